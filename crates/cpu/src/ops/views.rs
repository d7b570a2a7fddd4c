//! Ops that move no elements: their results are other sizes and strides over the same memory. A reshape that strides
//! cannot express copies.

use super::lowering::{Compiled, Numbered, Planner};
use crate::fault::invalid;
use crate::frame::Slot;
use crate::run::Run;
use crate::step::Kernel;
use pteron_ir::op::IntArg;
use pteron_ir::rules::{SliceRange, slice_range};
use pteron_ir::{Op, Type, ValueId};
use pteron_kernels::copy::copy;
use pteron_kernels::view::{MAX_RANK, ViewMut};
use pteron_plan::{Layout, counted};
use pteron_runtime::NodeError;

/// A slot moved by elements, with another layout.
pub(super) fn moved(
    run: &Run<'_>,
    source: ValueId,
    offset: isize,
    layout: Option<Layout>,
) -> Result<Slot, NodeError> {
    let slot = run.slot(source);
    let layout = layout.ok_or_else(|| invalid("more axes than a view can have"))?;
    let bytes = offset * run.dtype(source)?.size() as isize;
    // An empty view points at nothing.
    let data = if layout.is_empty() { slot.data } else { slot.data.wrapping_offset(bytes) };
    Ok(Slot { data, layout })
}

pub(super) fn compile(planner: &Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let &first = node.node.results.first()?;
    let kernel: Kernel = match node.node.op.clone() {
        // A cast to the dtype that it has already is one of these.
        Op::IdCopy { x } | Op::AsType { x, .. } => Box::new(move |run| {
            let slot = *run.slot(x);
            run.set(first, slot);
            Ok(())
        }),
        Op::ExpandDims { x, axis } => Box::new(move |run| {
            let layout = run.slot(x).layout;
            let layout = counted(axis, layout.rank() + 1).and_then(|axis| layout.insert_axis(axis));
            let slot = moved(run, x, 0, layout)?;
            run.set(first, slot);
            Ok(())
        }),
        Op::Transpose { x, perm } => Box::new(move |run| {
            let layout = run.slot(x).layout;
            let rank = layout.rank();
            let layout = layout.permute(perm.iter().map(|&axis| counted(axis, rank).unwrap_or(rank)));
            let slot = moved(run, x, 0, layout)?;
            run.set(first, slot);
            Ok(())
        }),
        Op::Squeeze { x, dims } => Box::new(move |run| {
            let layout = squeezed(run.slot(x).layout, dims.as_deref().unwrap_or_default());
            let slot = moved(run, x, 0, layout)?;
            run.set(first, slot);
            Ok(())
        }),
        Op::Slice { x, axis, start, stop, step } => Box::new(move |run| {
            let (axis, range) = range(run, x, &axis, (&start, &stop, step))?;
            let (offset, layout) =
                run.slot(x).layout.slice(axis, range).ok_or_else(|| invalid("no such axis"))?;
            let slot = moved(run, x, offset, Some(layout))?;
            run.set(first, slot);
            Ok(())
        }),
        Op::Flip { x, axes } => Box::new(move |run| {
            let mut layout = run.slot(x).layout;
            let (mut offset, mut turned) = (0, [false; MAX_RANK]);
            let rank = layout.rank();
            // A tensor of rank 0 has nothing to turn, whatever is listed.
            for &axis in axes.iter().filter(|_| rank > 0) {
                let axis = counted(axis, rank).ok_or_else(|| invalid("no such axis"))?;
                // An axis that is listed twice turns once.
                if std::mem::replace(&mut turned[axis], true) {
                    continue;
                }
                let count = layout.sizes()[axis];
                let range = SliceRange { start: count.saturating_sub(1), step: -1, count };
                let (further, flipped) = layout.slice(axis, range).ok_or_else(|| invalid("no such axis"))?;
                offset += further;
                layout = flipped;
            }
            let slot = moved(run, x, offset, Some(layout))?;
            run.set(first, slot);
            Ok(())
        }),
        Op::BroadcastTo { x, .. } => {
            let sizes = Sizes::of(planner, node, first);
            Box::new(move |run| {
                let layout = sizes.with(run, |run, sizes| run.slot(x).layout.broadcast_to(sizes))?;
                let slot = moved(run, x, 0, layout)?;
                run.set(first, slot);
                Ok(())
            })
        }
        Op::Split { x, axis, .. } => split(planner, node, x, axis),
        Op::Reshape { x, .. } | Op::Contiguous { x } => {
            let sizes = Sizes::of(planner, node, first);
            let contiguous = matches!(node.node.op, Op::Contiguous { .. });
            // A view that stays where it is needs no storage; `MaybeView` has some for when it cannot be one.
            Box::new(move |run| {
                let layout = sizes.with(run, |run, sizes| {
                    let source = &run.slot(x).layout;
                    if contiguous && !source.is_row_major() { None } else { source.reshape(sizes) }
                })?;
                if let Some(layout) = layout {
                    let slot = moved(run, x, 0, Some(layout))?;
                    run.set(first, slot);
                    return Ok(());
                }
                sizes.place(run, first)?;
                // The copy is written under the source's own sizes: its elements keep their order.
                let (source, target) = (run.view(x)?, run.target(first)?);
                let flat = Layout::row_major(source.sizes()).ok_or_else(|| invalid("too many axes"))?;
                // SAFETY: the result has as many elements as the source, row-major in storage of its own.
                let mut target =
                    unsafe { ViewMut::from_raw(target.data(), source.dtype(), flat.sizes(), flat.strides()) };
                copy(run.pool, &mut target, &source);
                Ok(())
            })
        }
        _ => return None,
    };
    // A reshape may copy, which every run does anew.
    let copies = matches!(node.node.op, Op::Reshape { .. } | Op::Contiguous { .. });
    Some(if copies { Compiled::Whole(kernel) } else { Compiled::View(kernel) })
}

/// The sizes of a result: known to the plan, or by the rule in every run.
#[derive(Clone)]
enum Sizes {
    Known(Box<Layout>),
    Ruled(Numbered, usize),
}

impl Sizes {
    fn of(planner: &Planner<'_>, node: &Numbered, result: ValueId) -> Sizes {
        let known = planner.types.sizes(result).filter(|_| node.is_static);
        match known.and_then(|sizes| Layout::row_major(&sizes)) {
            Some(layout) => Sizes::Known(Box::new(layout)),
            None => {
                let index = node.node.results.iter().position(|&value| value == result);
                Sizes::Ruled(node.clone(), index.unwrap_or(0))
            }
        }
    }

    fn with<T>(&self, run: &Run<'_>, then: impl FnOnce(&Run<'_>, &[usize]) -> T) -> Result<T, NodeError> {
        match self {
            Sizes::Known(layout) => Ok(then(run, layout.sizes())),
            Sizes::Ruled(node, index) => {
                let sizes = match run.infer(&node.node)?.get(*index) {
                    Some(Type::Tensor(tensor)) => tensor.known_shape(),
                    _ => None,
                };
                let sizes = sizes.ok_or_else(|| invalid("the size of a result is not known"))?;
                Ok(then(run, &sizes))
            }
        }
    }

    fn place(&self, run: &mut Run<'_>, result: ValueId) -> Result<(), NodeError> {
        let layout = self.with(run, |_, sizes| Layout::row_major(sizes))?;
        run.place(result, layout.ok_or_else(|| invalid("too many axes"))?.sizes())
    }
}

/// Without the listed axes of size 1; without a list, without all of them.
fn squeezed(layout: Layout, dims: &[i32]) -> Option<Layout> {
    let rank = layout.rank();
    let mut squeezed = layout;
    for axis in (0..rank).rev() {
        let listed = dims.is_empty() || dims.iter().any(|&dim| counted(dim, rank) == Some(axis));
        if listed && layout.sizes()[axis] == 1 {
            squeezed = squeezed.remove_axis(axis)?;
        }
    }
    Some(squeezed)
}

/// The range of a slice with the numbers at hand.
pub(super) fn range(
    run: &Run<'_>,
    x: ValueId,
    axis: &IntArg<ValueId>,
    (start, stop, step): (&IntArg<ValueId>, &IntArg<ValueId>, i32),
) -> Result<(usize, SliceRange), NodeError> {
    let sizes = run.slot(x).layout.sizes();
    let axis = i32::try_from(run.int(axis)).ok().and_then(|axis| counted(axis, sizes.len()));
    let axis = axis.ok_or_else(|| invalid("no such axis"))?;
    let range = slice_range(sizes[axis], run.int(start), run.int(stop), step);
    Ok((axis, range.ok_or_else(|| invalid("a slice of step 0"))?))
}

/// Pieces of one axis, side by side.
fn split(planner: &Planner<'_>, node: &Numbered, x: ValueId, axis: i32) -> Kernel {
    let pieces: Vec<(ValueId, Sizes)> =
        node.node.results.iter().map(|&value| (value, Sizes::of(planner, node, value))).collect();
    Box::new(move |run| {
        let source = run.slot(x).layout;
        let axis = counted(axis, source.rank()).ok_or_else(|| invalid("no such axis"))?;
        let mut start = 0;
        for (value, sizes) in &pieces {
            let count = sizes.with(run, |_, sizes| sizes.get(axis).copied().unwrap_or(0))?;
            if start + count > source.sizes()[axis] {
                return Err(invalid("pieces longer than the axis"));
            }
            let (offset, layout) = source
                .slice(axis, SliceRange { start, step: 1, count })
                .ok_or_else(|| invalid("no such axis"))?;
            let slot = moved(run, x, offset, Some(layout))?;
            run.set(*value, slot);
            start += count;
        }
        Ok(())
    })
}
