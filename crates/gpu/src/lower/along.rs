//! What goes over rows one element after the other: running sums, updates that add up, and words of a random key.

use super::{Axes, Lowering, cast, copy, groups};
use crate::dispatch::View;
use crate::kernel::Kernel;
use pteron_plan::Layout;

/// Elements of a row up to which a thread has it by itself, and rows from which on.
const SHORT_ROWS: usize = 32;
const MANY_ROWS: usize = 1 << 14;

/// Running sums along an axis, from its end where `reverse` holds; not `inclusive`, of the elements before each.
pub(crate) fn running(
    on: &mut Lowering,
    out: View,
    x: View,
    axis: usize,
    (reverse, inclusive): (bool, bool),
) -> Option<()> {
    if out.layout.is_empty() {
        return Some(());
    }
    let count = x.sizes().get(axis).copied().unwrap_or(1);
    let target = on.word_target(out);
    let along = |view: &View| {
        let stride = view.layout.strides().get(axis).copied().unwrap_or(0);
        let last = stride.checked_mul(count as isize - 1)?;
        Some(if reverse { (view.moved(last), -stride) } else { (*view, stride) })
    };
    let ((to, to_step), (from, from_step)) = (along(&target)?, along(&x)?);
    let around = |view: &View| {
        if axis < view.layout.rank() { view.layout.remove_axis(axis) } else { Some(view.layout) }
    };
    let (places, sources) = (around(&target)?, around(&x)?);
    let axes = Axes::of(places.sizes(), &[places.strides(), sources.strides()]);
    let rows = places.len();
    let mut params = vec![rows as u32, count as u32, to_step as i32 as u32, from_step as i32 as u32];
    let beyond = |view: View, whole: &View, last: &View| {
        on.first(whole).wrapping_add_signed(
            ((last.offset as isize - whole.offset as isize) / view.dtype.size() as isize) as i32,
        )
    };
    axes.push(&mut params, &[beyond(target, &target, &to), beyond(x, &x, &from)]);
    let alone = count <= SHORT_ROWS || rows >= MANY_ROWS;
    let kernel = Kernel::Running { input: x.dtype, out: target.dtype, inclusive, alone, rank: axes.rank() };
    on.emit(kernel, &target, &[x], false, params, if alone { groups(rows) } else { rows });
    on.settle(target, out);
    Some(())
}

/// `x` with updates added at indices along an axis; both are laid over each other and begin at 0 on the other axes.
pub(crate) fn scatter(
    on: &mut Lowering,
    out: View,
    x: View,
    (indices, updates): (View, View),
    axis: usize,
) -> Option<()> {
    if out.layout.is_empty() {
        return Some(());
    }
    let written: Vec<usize> = indices
        .sizes()
        .iter()
        .zip(updates.sizes())
        .map(|(&index, &update)| if index == 1 { update } else { index })
        .collect();
    if written.iter().zip(x.sizes()).enumerate().any(|(at, (written, size))| at != axis && written > size) {
        return None;
    }
    let target = on.word_target(out);
    if target.dtype == x.dtype {
        copy(on, target, x, true)
    } else {
        cast(on, target, x)
    }
    if written.contains(&0) {
        on.settle(target, out);
        return Some(());
    }
    let mut updates = updates;
    if updates.dtype != out.dtype {
        let rounded = on.scratch(out.dtype, updates.sizes());
        cast(on, rounded, updates);
        updates = rounded;
    }
    let (from, places) = (updates.layout.broadcast_to(&written)?, indices.layout.broadcast_to(&written)?);
    let around =
        |layout: &Layout| if axis < layout.rank() { layout.remove_axis(axis) } else { Some(*layout) };
    let lines = around(&from)?;
    let step = |layout: &Layout| layout.strides().get(axis).map_or(0, |&stride| stride as i32 as u32);
    let (to, at) = (around(&target.layout)?, around(&places)?);
    let axes = Axes::of(lines.sizes(), &[to.strides(), lines.strides(), at.strides()]);
    let mut params = vec![
        lines.len() as u32,
        on.fault(),
        written.get(axis).copied().unwrap_or(1) as u32,
        x.sizes().get(axis).copied().unwrap_or(1) as u32,
        step(&target.layout),
        step(&from),
        step(&places),
    ];
    axes.push(&mut params, &[on.first(&target), on.first(&updates), on.first(&indices)]);
    let kernel = Kernel::Scatter {
        out: target.dtype,
        updates: updates.dtype,
        indices: indices.dtype,
        rank: axes.rank(),
    };
    on.emit(kernel, &target, &[updates, indices], true, params, groups(lines.len()));
    on.settle(target, out);
    Some(())
}

/// Random bits of a seed's key.
pub(crate) fn random(on: &mut Lowering, out: View, seed: u64) {
    // The last word may be more than what is left of the result; the rest of it is nobody's.
    let words = (out.layout.len() * out.dtype.size()).div_ceil(4);
    let params = vec![words as u32, on.first_word(&out), (seed >> 32) as u32, seed as u32];
    on.emit(Kernel::Random, &out, &[], false, params, groups(words.div_ceil(2)));
}
