//! A range of one axis replaced: in place where nobody else needs the old contents, else in a copy. This is how caches
//! are written; keys that are turned on the way are computed where they belong.

use super::lowering::{Compiled, Numbered, Planner};
use super::rope::Turning;
use super::views::{moved, range};
use crate::fault::{invalid, of_run};
use crate::frame::Slot;
use crate::run::Run;
use pteron_ir::op::IntArg;
use pteron_ir::{Op, ValueId};
use pteron_kernels::copy::copy;
use pteron_kernels::view::{View, ViewMut};
use pteron_plan::{Layout, Sharing};
use pteron_runtime::NodeError;

/// Which range of what.
struct Range {
    dst: ValueId,
    result: ValueId,
    axis: IntArg<ValueId>,
    start: IntArg<ValueId>,
    stop: IntArg<ValueId>,
    step: i32,
    in_place: bool,
    /// The buffer of the session that it lies in, whose old contents a failed run puts back.
    saved: Option<usize>,
}

impl Range {
    fn plan(planner: &Planner<'_>, node: &Numbered) -> Option<Range> {
        let (Op::SliceUpdate { dst, axis, start, stop, step, .. }
        | Op::RopeUpdate { dst, axis, start, stop, step, .. }) = node.node.op
        else {
            return None;
        };
        let &result = node.node.results.first()?;
        let in_place = planner.lifetimes.life(result).sharing == Sharing::InPlace(dst);
        let saved = planner.buffer_of(result);
        Some(Range { dst, result, axis, start, stop, step, in_place, saved })
    }

    /// Makes the range ready for writing; `None` where it is empty, whatever the update's shape.
    fn begin(&self, run: &mut Run<'_>) -> Result<Option<Slot>, NodeError> {
        let (axis, range) = range(run, self.dst, &self.axis, (&self.start, &self.stop, self.step))?;
        let whole = *run.slot(self.dst);
        if self.in_place {
            run.set(self.result, whole);
        } else {
            run.place(self.result, whole.layout.sizes())?;
            copy(run.pool, &mut run.target(self.result)?, &run.view(self.dst)?);
        }
        let (offset, region) =
            run.slot(self.result).layout.slice(axis, range).ok_or_else(|| invalid("no such axis"))?;
        let copied = if self.in_place { region.len() } else { region.len() + whole.layout.len() };
        run.control.charge(copied as u64 + 1).map_err(of_run)?;
        if region.is_empty() {
            return Ok(None);
        }
        moved(run, self.result, offset, Some(region)).map(Some)
    }

    /// Keeps what the range holds, once nothing speaks against writing it.
    fn save(&self, run: &mut Run<'_>, target: &Slot) -> Result<(), NodeError> {
        if let Some(buffer) = self.saved {
            let dtype = run.dtype(self.result)?;
            run.save(buffer, dtype, target);
        }
        Ok(())
    }

    /// The range to write.
    fn view<'r>(&self, run: &Run<'_>, target: &'r Slot) -> Result<ViewMut<'r>, NodeError> {
        let (dtype, layout) = (run.dtype(self.result)?, &target.layout);
        // SAFETY: part of the result's memory, which nobody else uses now.
        Ok(unsafe { ViewMut::from_raw(target.data, dtype, layout.sizes(), layout.strides()) })
    }
}

/// The layout of an update repeated over a range.
fn spread(update: &Layout, range: &Layout) -> Result<Layout, NodeError> {
    update.broadcast_to(range.sizes()).ok_or_else(|| {
        invalid(format!("an update of {:?} for a range of {:?}", update.sizes(), range.sizes()))
    })
}

/// A tensor goes into the range.
pub(super) fn slice_update(planner: &Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::SliceUpdate { dst, update, .. } = node.node.op else { return None };
    if planner.dtype(dst)? != planner.dtype(update)? {
        return None;
    }
    let range = Range::plan(planner, node)?;
    Some(Compiled::Whole(Box::new(move |run| {
        let Some(target) = range.begin(run)? else { return Ok(()) };
        let source = *run.slot(update);
        let layout = spread(&source.layout, &target.layout)?;
        range.save(run, &target)?;
        let dtype = run.dtype(update)?;
        // SAFETY: a tensor of this run, spread over axes of size 1; the plan keeps it apart from the target.
        let from = unsafe { View::from_raw(source.data, dtype, layout.sizes(), layout.strides()) };
        copy(run.pool, &mut range.view(run, &target)?, &from);
        Ok(())
    })))
}

/// What `rope` makes of a tensor goes into the range.
pub(super) fn rope_update(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::RopeUpdate { dst, x, .. } = node.node.op else { return None };
    if planner.dtype(dst)? != planner.dtype(x)? {
        return None;
    }
    let range = Range::plan(planner, node)?;
    let turning = Turning::plan(planner, node)?;
    // Only where an axis of size 1 is repeated over the range.
    let apart = planner.reserve(node.number, planner.types.most_bytes(x)?);
    let mut sizes_are_known = true;
    node.node.op.for_each_tensor(|value| sizes_are_known &= planner.types.sizes(value).is_some());
    // The plan has held known sizes against the rule; the range itself is looked at in every run.
    let checked = (!sizes_are_known).then(|| node.node.clone());
    Some(Compiled::Whole(Box::new(move |run| {
        if let Some(node) = &checked {
            run.infer(node)?;
        }
        let source = run.slot(x).layout;
        run.control.charge(source.len() as u64 + 1).map_err(of_run)?;
        let Some(target) = range.begin(run)? else { return turning.skip(run) };
        let flat = Layout::row_major(source.sizes()).ok_or_else(|| invalid("too many axes"))?;
        let repeated = spread(&flat, &target.layout)?;
        range.save(run, &target)?;
        let mut to = range.view(run, &target)?;
        if source.sizes() == target.layout.sizes() && to.as_view().has_dense_rows() {
            return turning.write(run, &mut to);
        }
        let ((data, bytes), dtype) = (run.scratch(apart), run.dtype(x)?);
        if source.len() * dtype.size() > bytes {
            return Err(invalid("a tensor larger than planned"));
        }
        // SAFETY: the scratch was reserved for this node and has room for all elements.
        turning.write(run, &mut unsafe { ViewMut::from_raw(data, dtype, flat.sizes(), flat.strides()) })?;
        // SAFETY: as above; it is only read from here on.
        let from = unsafe { View::from_raw(data, dtype, repeated.sizes(), repeated.strides()) };
        copy(run.pool, &mut to, &from);
        Ok(())
    })))
}
