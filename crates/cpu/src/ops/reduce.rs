//! Ops that fold axes, and running sums.

use super::lowering::{Compiled, Numbered, Planner};
use crate::fault::invalid;
use pteron_ir::{Op, ValueId};
use pteron_kernels::reduce::{Cumulative, Reduce, ReduceOp, cumsum};
use pteron_kernels::view::ViewMut;
use pteron_plan::{Layout, counted};
use pteron_tensor::DType;

pub(super) fn compile(planner: &Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let one = |axis: &i32| vec![*axis];
    let (op, x, axes) = match &node.node.op {
        Op::Sum { x, axes, .. } => (ReduceOp::Sum, *x, axes.clone()),
        Op::Prod { x, axes, .. } => (ReduceOp::Prod, *x, axes.clone()),
        Op::Mean { x, axes, .. } => (ReduceOp::Mean, *x, axes.clone()),
        Op::Var { x, axes, ddof, .. } => (ReduceOp::Var { ddof: *ddof }, *x, axes.clone()),
        Op::Std { x, axes, ddof, .. } => (ReduceOp::Std { ddof: *ddof }, *x, axes.clone()),
        Op::Max { x, axes, .. } => (ReduceOp::Max, *x, axes.clone()),
        Op::Min { x, axes, .. } => (ReduceOp::Min, *x, axes.clone()),
        Op::Any { x, axes, .. } => (ReduceOp::Any, *x, axes.clone()),
        Op::All { x, axes, .. } => (ReduceOp::All, *x, axes.clone()),
        Op::Argmax { x, axis, .. } => (ReduceOp::Argmax, *x, Some(one(axis))),
        Op::Argmin { x, axis, .. } => (ReduceOp::Argmin, *x, Some(one(axis))),
        _ => return None,
    };
    let &result = node.node.results.first()?;
    let (from, to) = (planner.dtype(x)?, planner.dtype(result)?);
    let rank = planner.types.tensor(x)?.shape.len();
    let axes = folded(axes.as_deref(), rank)?;
    let reduce = Reduce::new(op, from, to, planner.lower.path)?;
    // A folded axis of size 1 looks like one that stays; an index of it is 0 all the same.
    Some(Compiled::Compute(Box::new(move |run| {
        let (source, target) = (run.view(x)?, run.target(result)?);
        let mut sizes = [0; pteron_kernels::view::MAX_RANK];
        let sizes = &mut sizes[..rank];
        for (axis, size) in sizes.iter_mut().enumerate() {
            *size = if axes[axis] { 1 } else { source.sizes()[axis] };
        }
        let layout = Layout::row_major(sizes).ok_or_else(|| invalid("too many axes"))?;
        // SAFETY: the result is row-major in storage of its own; axes of size 1 change nothing of that.
        let mut target =
            unsafe { ViewMut::from_raw(target.data(), target.dtype(), layout.sizes(), layout.strides()) };
        reduce.run(run.pool, &mut target, &source).map_err(|error| invalid(error.to_string()))
    })))
}

/// Which axes fold; no list, or an empty one, means all.
fn folded(axes: Option<&[i32]>, rank: usize) -> Option<Vec<bool>> {
    let Some(axes) = axes.filter(|axes| !axes.is_empty()) else { return Some(vec![true; rank]) };
    let mut folded = vec![false; rank];
    for &axis in axes {
        // A tensor of rank 0 counts as one element along axis 0.
        if rank > 0 {
            folded[counted(axis, rank)?] = true;
        }
    }
    Some(folded)
}

pub(super) fn running(planner: &Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::Cumsum { x, axis, reverse, inclusive } = node.node.op else { return None };
    let &result = node.node.results.first()?;
    let known = |value: ValueId| planner.dtype(value).is_some_and(|dtype| dtype != DType::F64);
    let axis = counted(axis, planner.types.tensor(x)?.shape.len())?;
    if !known(x) || !known(result) {
        return None;
    }
    let path = planner.lower.path;
    Some(Compiled::Compute(Box::new(move |run| {
        let which = Cumulative { reverse, inclusive };
        cumsum(run.pool, path, &mut run.target(result)?, &run.view(x)?, axis, which);
        Ok(())
    })))
}
