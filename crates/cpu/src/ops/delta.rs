//! The gated delta rule, which files have as a kernel of ExecuTorch's exporter, known by its name.

use super::lowering::{Compiled, Numbered, Planner};
use super::rows::{Contiguous, floats};
use crate::fault::invalid;
use pteron_ir::Op;
use pteron_kernels::delta::{DeltaInputs, DeltaSizes, gated_delta};
use pteron_kernels::view::ViewMut;
use pteron_plan::Layout;
use pteron_runtime::NodeError;
use pteron_runtime::reference::{KnownKernel, known_kernel};
use pteron_tensor::DType;

/// Whether a node is one, as far as its name tells.
pub(super) fn is_delta(op: &Op<pteron_ir::Ssa>) -> bool {
    matches!(op, Op::MetalKernel { name, .. } if name == "gated_delta_step")
}

pub(super) fn compile(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::MetalKernel { inputs, .. } = &node.node.op else { return None };
    known_kernel(&node.node.op, planner.types)
        .ok()
        .filter(|kernel| *kernel == KnownKernel::GatedDeltaStep)?;
    let (&[q, k, v, g, beta, state, _], &[out, next]) = (&inputs[..], &node.node.results[..]) else {
        return None;
    };
    if [q, k, v, g, beta, state, out, next].iter().any(|&value| planner.dtype(value) != Some(DType::F32)) {
        return None;
    }
    let path = planner.lower.path;
    let mut plan = |value| Contiguous::plan(planner, node, value);
    let inputs = [plan(q)?, plan(k)?, plan(v)?, plan(g)?, plan(beta)?, plan(state)?];
    Some(Compiled::Compute(Box::new(move |run| {
        let mut layouts = [Layout::SCALAR; 6];
        let [of_q, of_k, of_v, of_g, of_beta, of_state] = &mut layouts;
        let (q, k) = (inputs[0].view(run, of_q)?, inputs[1].view(run, of_k)?);
        let (v, g) = (inputs[2].view(run, of_v)?, inputs[3].view(run, of_g)?);
        let (beta, state) = (inputs[4].view(run, of_beta)?, inputs[5].view(run, of_state)?);
        let (&[batch, tokens, key_heads, key_dim], &[_, _, value_heads, value_dim]) = (q.sizes(), v.sizes())
        else {
            return Err(invalid("heads of another rank than planned"));
        };
        let sizes = DeltaSizes { batch, tokens, key_heads, value_heads, key_dim, value_dim };
        let (mut out, mut next) = (run.target(out)?, run.target(next)?);
        let (out, next) = (floats_mut(&mut out)?, floats_mut(&mut next)?);
        let before = floats(&state)?;
        if before.len() != next.len() {
            return Err(invalid("a state of another size than planned"));
        }
        next.copy_from_slice(before);
        let inputs = DeltaInputs {
            queries: floats(&q)?,
            keys: floats(&k)?,
            values: floats(&v)?,
            left: floats(&g)?,
            rates: floats(&beta)?,
        };
        gated_delta(run.pool, path, sizes, inputs, next, out);
        Ok(())
    })))
}

/// The elements of a result of f32 that lies without gaps.
fn floats_mut<'r>(view: &'r mut ViewMut<'_>) -> Result<&'r mut [f32], NodeError> {
    if view.dtype() != DType::F32 || !view.is_contiguous() {
        return Err(invalid("a result that lies otherwise than planned"));
    }
    if view.is_empty() {
        return Ok(&mut []);
    }
    // SAFETY: a view covers all its elements, which lie side by side and are its own; tensors are aligned for their dtype.
    Ok(unsafe { std::slice::from_raw_parts_mut(view.data().cast(), view.len()) })
}
