//! Order along an axis.

use super::lowering::{Compiled, Numbered, Planner};
use pteron_ir::Op;
use pteron_kernels::order::{Order, Ordered, order, scratch_bytes};
use pteron_plan::counted;
use pteron_tensor::DType;

pub(super) fn compile(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    // A partition is any order that puts one element in its place; the sorted one does.
    let (x, axis, ordered) = match node.node.op {
        Op::Sort { x, axis } | Op::Partition { x, axis, .. } => (x, axis, Ordered::Values),
        Op::Argsort { x, axis } | Op::ArgPartition { x, axis, .. } => (x, axis, Ordered::Indices),
        _ => return None,
    };
    let &result = node.node.results.first()?;
    let shape = &planner.types.tensor(x)?.shape;
    let axis = counted(axis, shape.len())?;
    let length = usize::try_from(planner.types.symbols.upper(&shape[axis])?).ok()?;
    let fits = match ordered {
        Ordered::Values => planner.dtype(x) == planner.dtype(result),
        Ordered::Indices => planner.dtype(result) == Some(DType::U32),
    };
    if !fits || planner.dtype(x) == Some(DType::F64) || u32::try_from(length).is_err() {
        return None;
    }
    let scratch = planner.reserve(node.number, scratch_bytes(length, planner.lower.threads));
    Some(Compiled::Compute(Box::new(move |run| {
        let mut scratch = run.lend(scratch)?;
        order(run.pool, &mut run.target(result)?, &run.view(x)?, axis, Order::Sorted, ordered, &mut scratch);
        Ok(())
    })))
}
