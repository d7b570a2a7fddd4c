//! Elements by index.

use super::lowering::{Compiled, Numbered, Planner};
use crate::fault::{invalid, of_run};
use pteron_ir::op::{IndexArg, IntArg};
use pteron_ir::rules::SliceRange;
use pteron_ir::{Op, ValueId};
use pteron_kernels::copy::copy;
use pteron_kernels::index::{put, take, take_along_axis};
use pteron_kernels::view::View;
use pteron_plan::{Layout, Sharing, counted};
use pteron_runtime::{KernelError, NodeError};
use pteron_tensor::DType;

/// Index tensors that the kernels read.
pub(super) fn is_index(planner: &Planner<'_>, value: ValueId) -> bool {
    planner.dtype(value).is_some_and(|dtype| !dtype.is_float() && dtype != DType::Bool)
}

pub(super) fn compile(planner: &Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let &result = node.node.results.first()?;
    match node.node.op.clone() {
        Op::Take { x, index: IndexArg::Tensor(indices), axis } => {
            let axis = counted(axis, planner.types.tensor(x)?.shape.len())?;
            is_index(planner, indices).then(|| {
                Compiled::Compute(Box::new(move |run| {
                    let (x, indices) = (run.view(x)?, run.view(indices)?);
                    take(run.pool, &mut run.target(result)?, &x, &indices, axis)
                        .map_err(|error| invalid(error.to_string()))
                }))
            })
        }
        Op::Take { x, index, axis } => {
            let index = match index {
                IndexArg::Literal(number) => IntArg::Literal(number),
                IndexArg::Value(value) => IntArg::Value(value),
                IndexArg::Tensor(_) => return None,
            };
            let axis = counted(axis, planner.types.tensor(x)?.shape.len())?;
            Some(Compiled::Compute(Box::new(move |run| {
                let view = run.view(x)?;
                let layout = run.slot(x).layout;
                let (size, index) = (layout.sizes()[axis], run.int(&index));
                let at = if index < 0 { index + size as i64 } else { index };
                let start = usize::try_from(at).ok().filter(|&at| at < size);
                let start = start.ok_or(NodeError::Kernel(KernelError::Index { index, size }))?;
                let picked = layout
                    .slice(axis, SliceRange { start, step: 1, count: 1 })
                    .and_then(|(offset, layout)| Some((offset, layout.remove_axis(axis)?)));
                let (offset, layout) = picked.ok_or_else(|| invalid("no such axis"))?;
                let data = view.data().wrapping_offset(offset * view.dtype().size() as isize);
                // SAFETY: one slice of the operand.
                let slice = unsafe { View::from_raw(data, view.dtype(), layout.sizes(), layout.strides()) };
                copy(run.pool, &mut run.target(result)?, &slice);
                Ok(())
            })))
        }
        Op::TakeAlongAxis { x, indices, axis } => {
            let axis = counted(axis, planner.types.tensor(x)?.shape.len())?;
            is_index(planner, indices).then(|| {
                Compiled::Compute(Box::new(move |run| {
                    let mut target = run.target(result)?;
                    let (view, picks) = (run.view(x)?, run.view(indices)?);
                    let mut sizes = target.sizes().to_vec();
                    let spread_picks = run.slot(indices).layout.broadcast_to(&sizes);
                    sizes[axis] = view.sizes()[axis];
                    let spread_x = run.slot(x).layout.broadcast_to(&sizes);
                    let (Some(of_x), Some(of_picks)) = (spread_x, spread_picks) else {
                        return Err(invalid("shapes do not broadcast"));
                    };
                    // SAFETY: the operands' own elements, some of them more than once.
                    let (view, picks) = unsafe {
                        (
                            View::from_raw(view.data(), view.dtype(), of_x.sizes(), of_x.strides()),
                            View::from_raw(picks.data(), picks.dtype(), of_picks.sizes(), of_picks.strides()),
                        )
                    };
                    take_along_axis(run.pool, &mut target, &view, &picks, axis)
                        .map_err(|error| invalid(error.to_string()))
                }))
            })
        }
        _ => None,
    }
}

/// Rows at indices replaced: in place where nobody else needs the old contents.
pub(super) fn index_copy(planner: &Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::IndexCopy { dst, update, indices, axis } = node.node.op else { return None };
    let &result = node.node.results.first()?;
    let rank = planner.types.tensor(dst)?.shape.len();
    let axis = counted(axis, rank)?;
    let fits = planner.dtype(dst)? == planner.dtype(update)?
        && planner.types.tensor(update)?.shape.len() == rank
        && planner.types.tensor(indices)?.shape.len() == 1;
    if !fits || !is_index(planner, indices) {
        return None;
    }
    let in_place = planner.lifetimes.life(result).sharing == Sharing::InPlace(dst);
    let saved = planner.buffer_of(result);
    let checked = node.clone();
    Some(Compiled::Whole(Box::new(move |run| {
        if !checked.is_static {
            run.infer(&checked.node)?;
        }
        let whole = *run.slot(dst);
        let touched = run.slot(update).layout.len() + if in_place { 0 } else { whole.layout.len() };
        run.control.charge(touched as u64 + 1).map_err(of_run)?;
        if in_place {
            run.set(result, whole);
        } else {
            run.place(result, whole.layout.sizes())?;
            copy(run.pool, &mut run.target(result)?, &run.view(dst)?);
        }
        // An update repeated along axes of size 1 has the target's sizes on all axes but this one.
        let mut sizes = [0; pteron_kernels::view::MAX_RANK];
        sizes[..rank].copy_from_slice(whole.layout.sizes());
        sizes[axis] = run.slot(indices).layout.len();
        let spread: Layout = run
            .slot(update)
            .layout
            .broadcast_to(&sizes[..rank])
            .ok_or_else(|| invalid("an update that does not fit its rows"))?;
        if let Some(buffer) = saved {
            run.save_rows(buffer, result, indices, axis)?;
        }
        let view = run.view(update)?;
        // SAFETY: the update's own elements, some of them more than once.
        let update = unsafe { View::from_raw(view.data(), view.dtype(), spread.sizes(), spread.strides()) };
        put(run.pool, &mut run.target(result)?, &update, &run.view(indices)?, axis)
            .map_err(|error| invalid(error.to_string()))
    })))
}
