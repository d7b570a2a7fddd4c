//! Ops along the last axis: norms and softmax.

use super::lowering::{Compiled, Numbered, Planner};
use crate::fault::invalid;
use crate::run::Run;
use crate::step::Kernel;
use pteron_ir::{Op, ValueId};
use pteron_kernels::copy::copy;
use pteron_kernels::view::{View, ViewMut};
use pteron_kernels::{norm, softmax};
use pteron_plan::{Layout, counted};
use pteron_runtime::NodeError;
use pteron_tensor::DType;

/// A tensor whose rows along the last axis are dense: where it lies, or a copy.
pub(super) struct DenseRows {
    value: ValueId,
    /// Room for the copy, where the plan cannot tell that none is needed.
    scratch: usize,
}

impl DenseRows {
    pub(super) fn plan(planner: &mut Planner<'_>, node: &Numbered, value: ValueId) -> Option<DenseRows> {
        DenseRows::plan_at(planner, node.number, value)
    }

    /// For the step of that number.
    fn plan_at(planner: &mut Planner<'_>, number: usize, value: ValueId) -> Option<DenseRows> {
        let bytes = planner.types.most_bytes(value)?;
        Some(DenseRows { value, scratch: planner.reserve(number, bytes) })
    }

    /// The tensor; `layout` keeps the strides of a copy.
    pub(super) fn view<'r>(&self, run: &'r Run<'_>, layout: &'r mut Layout) -> Result<View<'r>, NodeError> {
        let view = run.view(self.value)?;
        if view.has_dense_rows() { Ok(view) } else { copied(run, &view, self.scratch, layout) }
    }
}

/// A tensor that is row-major without gaps: where it lies, or a copy.
pub(super) struct Contiguous(DenseRows);

impl Contiguous {
    pub(super) fn plan(planner: &mut Planner<'_>, node: &Numbered, value: ValueId) -> Option<Contiguous> {
        DenseRows::plan(planner, node, value).map(Contiguous)
    }

    /// For the step of that number, which may be another node's.
    pub(super) fn plan_at(planner: &mut Planner<'_>, number: usize, value: ValueId) -> Option<Contiguous> {
        DenseRows::plan_at(planner, number, value).map(Contiguous)
    }

    /// The tensor; `layout` keeps the strides of a copy.
    pub(super) fn view<'r>(&self, run: &'r Run<'_>, layout: &'r mut Layout) -> Result<View<'r>, NodeError> {
        let view = run.view(self.0.value)?;
        if view.is_contiguous() { Ok(view) } else { copied(run, &view, self.0.scratch, layout) }
    }
}

/// A row-major copy in scratch.
fn copied<'r>(
    run: &'r Run<'_>,
    view: &View<'_>,
    scratch: usize,
    layout: &'r mut Layout,
) -> Result<View<'r>, NodeError> {
    *layout = Layout::row_major(view.sizes()).ok_or_else(|| invalid("too many axes"))?;
    let (data, bytes) = run.scratch(scratch);
    if view.len() * view.dtype().size() > bytes {
        return Err(invalid("a tensor larger than planned"));
    }
    // SAFETY: the scratch was reserved for this node and has room for all elements.
    let mut target = unsafe { ViewMut::from_raw(data, view.dtype(), layout.sizes(), layout.strides()) };
    copy(run.pool, &mut target, view);
    // SAFETY: as above; it is only read from here on.
    Ok(unsafe { View::from_raw(data, view.dtype(), layout.sizes(), layout.strides()) })
}

/// The elements of a tensor of f32 that lies without gaps.
pub(super) fn floats<'r>(view: &View<'r>) -> Result<&'r [f32], NodeError> {
    if view.dtype() != DType::F32 || !view.is_contiguous() {
        return Err(invalid("a tensor that lies otherwise than planned"));
    }
    if view.is_empty() {
        return Ok(&[]);
    }
    // SAFETY: a view covers all its elements, which lie side by side; tensors are aligned for their dtype.
    Ok(unsafe { std::slice::from_raw_parts(view.data().cast(), view.len()) })
}

/// Floats that the kernels compute with.
fn is_float(planner: &Planner<'_>, value: ValueId) -> bool {
    planner.dtype(value).is_some_and(|dtype| dtype.is_float() && dtype.size() <= 4)
}

pub(super) fn compile(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let &result = node.node.results.first()?;
    let path = planner.lower.path;
    if !is_float(planner, result) {
        return None;
    }
    let kernel: Kernel = match node.node.op.clone() {
        Op::RMSNorm { x, weight, eps } => {
            if !is_float(planner, x) || weight.is_some_and(|weight| !is_float(planner, weight)) {
                return None;
            }
            let rows = DenseRows::plan(planner, node, x)?;
            let weight =
                weight.map(|weight| DenseRows::plan(planner, node, weight).ok_or(())).transpose().ok()?;
            Box::new(move |run| {
                let (mut of_x, mut of_weight) = (Layout::SCALAR, Layout::SCALAR);
                let x = rows.view(run, &mut of_x)?;
                let weight = weight.as_ref().map(|weight| weight.view(run, &mut of_weight)).transpose()?;
                norm::rms_norm(run.pool, path, &mut run.target(result)?, &x, weight.as_ref(), eps);
                Ok(())
            })
        }
        Op::AddRmsNorm { a, b, weight, eps } => {
            let &[sum, normed] = node.node.results.as_slice() else { return None };
            let same = [b, sum].iter().all(|&value| planner.types.tensor(value) == planner.types.tensor(a));
            let floats = [Some(normed), weight].into_iter().flatten().all(|value| is_float(planner, value));
            if !same || !floats {
                return None;
            }
            let rows = [DenseRows::plan(planner, node, a)?, DenseRows::plan(planner, node, b)?];
            let weight =
                weight.map(|weight| DenseRows::plan(planner, node, weight).ok_or(())).transpose().ok()?;
            Box::new(move |run| {
                let (mut of_a, mut of_b, mut of_weight) = (Layout::SCALAR, Layout::SCALAR, Layout::SCALAR);
                let (a, b) = (rows[0].view(run, &mut of_a)?, rows[1].view(run, &mut of_b)?);
                let weight = weight.as_ref().map(|weight| weight.view(run, &mut of_weight)).transpose()?;
                let (mut sum, mut out) = (run.target(sum)?, run.target(normed)?);
                norm::add_rms_norm(run.pool, path, &mut sum, &mut out, &a, &b, weight.as_ref(), eps);
                Ok(())
            })
        }
        Op::LayerNorm { x, weight, bias, eps } => {
            let dtypes: Vec<_> =
                [weight, bias].into_iter().flatten().map(|value| planner.dtype(value)).collect();
            let floats = [weight, bias].into_iter().flatten().all(|value| is_float(planner, value));
            if !is_float(planner, x) || !floats || dtypes.windows(2).any(|pair| pair[0] != pair[1]) {
                return None;
            }
            let rows = DenseRows::plan(planner, node, x)?;
            let weight =
                weight.map(|weight| DenseRows::plan(planner, node, weight).ok_or(())).transpose().ok()?;
            let bias = bias.map(|bias| DenseRows::plan(planner, node, bias).ok_or(())).transpose().ok()?;
            Box::new(move |run| {
                let (mut of_x, mut of_weight, mut of_bias) = (Layout::SCALAR, Layout::SCALAR, Layout::SCALAR);
                let x = rows.view(run, &mut of_x)?;
                let weight = weight.as_ref().map(|weight| weight.view(run, &mut of_weight)).transpose()?;
                let bias = bias.as_ref().map(|bias| bias.view(run, &mut of_bias)).transpose()?;
                let mut target = run.target(result)?;
                norm::layer_norm(run.pool, path, &mut target, &x, weight.as_ref(), bias.as_ref(), eps);
                Ok(())
            })
        }
        Op::Softmax { x, axis, .. } => {
            let rank = planner.types.tensor(x)?.shape.len();
            if rank == 0 || counted(axis, rank)? + 1 != rank || planner.dtype(x) != planner.dtype(result) {
                return None;
            }
            let rows = DenseRows::plan(planner, node, x)?;
            Box::new(move |run| {
                let mut layout = Layout::SCALAR;
                let x = rows.view(run, &mut layout)?;
                softmax::softmax(run.pool, path, &mut run.target(result)?, &x);
                Ok(())
            })
        }
        _ => return None,
    };
    Some(Compiled::Compute(kernel))
}
