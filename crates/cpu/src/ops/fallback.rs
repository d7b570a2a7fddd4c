//! Ops without a kernel here: operands are copied out, the reference backend computes, results are copied in.

use super::lowering::{Compiled, Numbered, Planner};
use crate::copy;
use crate::fault::{invalid, of_run};
use crate::run::Run;
use pteron_ir::{Op, ValueId};
use pteron_plan::Storage;
use pteron_runtime::{NodeError, Value};
use pteron_tensor::{HostTensor, Scalar};

pub(super) fn compile(planner: &Planner<'_>, node: &Numbered) -> Compiled {
    let node = node.node.clone();
    tracing::debug!(op = node.op.spec().name, place = ?node.place, "computed by the reference backend");
    let in_place = in_place_of(&node);
    let saved: Vec<Option<usize>> = node.results.iter().map(|&value| planner.buffer_of(value)).collect();
    Compiled::Whole(Box::new(move |run| {
        let mut values = Vec::new();
        node.for_each_operand(|value| values.push(value));
        let operands = values
            .into_iter()
            .map(|value| Ok((value, run.read(value)?)))
            .collect::<Result<Vec<_>, NodeError>>()?;
        let results = run.effects.run_op(&node.op, &operands, run.limits, run.control);
        let results = results.map_err(|error| of_run(unwrapped(error)))?;
        for ((&value, &saved), result) in node.results.iter().zip(&saved).zip(results) {
            match result {
                Value::Tensor(tensor) => write(run, value, &tensor, in_place, saved)?,
                Value::Int(number) => run.set_number(value, Scalar::Int(number)),
                Value::Float(number) => run.set_number(value, Scalar::Float(number)),
                Value::Bool(truth) => run.set_number(value, Scalar::Bool(truth)),
                other => return Err(invalid(format!("{} as a result", other.describe()))),
            }
        }
        Ok(())
    }))
}

/// The reference backend runs a graph of one node, whose place says nothing; only the reason does.
fn unwrapped(error: pteron_runtime::Error) -> pteron_runtime::Error {
    match error {
        pteron_runtime::Error::Node { source, .. } => match *source {
            NodeError::Run(inner) => *inner,
            other => pteron_runtime::Error::Invalid(other.to_string()),
        },
        other => other,
    }
}

/// The operand in whose memory the result lies, where it does.
fn in_place_of(node: &pteron_ir::Node) -> Option<ValueId> {
    match &node.op {
        Op::SliceUpdate { dst, .. } | Op::IndexCopy { dst, .. } | Op::RopeUpdate { dst, .. } => Some(*dst),
        _ => None,
    }
}

/// Puts a tensor where a value belongs; what lies in a buffer can be put back.
fn write(
    run: &mut Run<'_>,
    value: ValueId,
    tensor: &HostTensor,
    target: Option<ValueId>,
    saved: Option<usize>,
) -> Result<(), NodeError> {
    match (run.plan.storage[value.0 as usize], target) {
        (Storage::View, Some(target)) => {
            let slot = *run.slot(target);
            if slot.layout.sizes() != tensor.shape() {
                return Err(invalid("an update changes the size"));
            }
            run.set(value, slot);
            if let Some(buffer) = saved {
                let dtype = run.dtype(value)?;
                run.save(buffer, dtype, &slot);
            }
        }
        _ => run.place(value, tensor.shape())?,
    }
    copy::from_bytes(run.pool, tensor.bytes(), &mut run.target(value)?);
    Ok(())
}
