//! Copies: from strides to strides, joined, expanded, padded.

use super::{Axes, Lowering, cast, fill, groups};
use crate::dispatch::View;
use crate::kernel::{Kernel, per_word};
use pteron_ir::rules::SliceRange;
use pteron_plan::Layout;
use pteron_tensor::Scalar;

/// Copies elements of equal sizes and dtypes. `whole` says that the rest of the target's last word is nobody's.
pub(crate) fn copy(on: &mut Lowering, to: View, from: View, whole: bool) {
    let len = to.layout.len();
    let fills_words = len.is_multiple_of(per_word(to.dtype) as usize);
    if to.is_plain() && (whole || fills_words) {
        return cast(on, to, from);
    }
    let mut axes = Axes::of(to.sizes(), &[to.layout.strides(), from.layout.strides()]);
    let mut firsts = [on.first(&to), on.first(&from)];
    let (mut size, mut count) = (to.dtype.size() as u32, len);
    if size < 4 && widen(&mut axes, &mut firsts, per_word(to.dtype) as usize) {
        count /= per_word(to.dtype) as usize;
        size = 4;
    }
    let mut params = vec![count as u32];
    axes.push(&mut params, &firsts);
    on.emit(Kernel::Copy { size, rank: axes.rank() }, &to, &[from], false, params, groups(count));
}

/// Counts in words instead of elements where all parts are whole words.
fn widen(axes: &mut Axes, firsts: &mut [u32; 2], per: usize) -> bool {
    let Some((&size, rest)) = axes.sizes.split_last() else { return false };
    let last = rest.len();
    let step = per as isize;
    let fits = size.is_multiple_of(per)
        && axes
            .strides
            .iter()
            .all(|strides| strides[last] == 1 && strides[..last].iter().all(|stride| stride % step == 0))
        && firsts.iter().all(|first| first.is_multiple_of(per as u32));
    if fits {
        axes.sizes[last] /= per;
        for strides in &mut axes.strides {
            strides[..last].iter_mut().for_each(|stride| *stride /= step);
        }
        firsts.iter_mut().for_each(|first| *first /= per as u32);
    }
    fits
}

/// Fills a result with the elements of a layout of more axes, in order.
pub(crate) fn expanded(on: &mut Lowering, out: View, from: View) {
    let layout = Layout::row_major(from.sizes()).unwrap_or(out.layout);
    cast(on, out.with(layout), from);
}

/// Puts tensors one behind the other along an axis.
pub(crate) fn join(on: &mut Lowering, out: View, axis: usize, parts: &[View]) {
    let mut start = 0;
    for &part in parts {
        let count = part.sizes().get(axis).copied().unwrap_or(1);
        let range = SliceRange { start, step: 1, count };
        start += count;
        let Some((moved, layout)) = out.layout.slice(axis, range) else { continue };
        let part = if part.dtype == out.dtype {
            part
        } else {
            let converted = on.scratch(out.dtype, part.sizes());
            cast(on, converted, part);
            converted
        };
        copy(on, out.with(layout).moved(moved), part, false);
    }
}

/// Puts a tensor into a larger one of one number.
pub(crate) fn pad(on: &mut Lowering, out: View, before: &[usize], x: View, number: f32) {
    fill(on, out, Scalar::Float(number.into()));
    let mut inner = out;
    for (axis, (&start, &count)) in before.iter().zip(x.sizes()).enumerate() {
        let range = SliceRange { start, step: 1, count };
        let Some((moved, layout)) = inner.layout.slice(axis, range) else { return };
        inner = inner.with(layout).moved(moved);
    }
    copy(on, inner, x, false);
}

/// Repeats the outermost elements of each axis so often before and behind it, axis by axis, so that corners repeat corners.
pub(crate) fn edges(on: &mut Lowering, out: View, x: View, widths: &[[usize; 2]]) -> Option<()> {
    let last = widths.iter().rposition(|&[before, after]| before + after > 0);
    if x.layout.is_empty() {
        // There is no edge to repeat.
        return out.layout.is_empty().then_some(());
    }
    let Some(last) = last else {
        copy(on, out, x, true);
        return Some(());
    };
    let mut x = x;
    for (axis, &[before, after]) in widths.iter().enumerate().take(last + 1) {
        if before + after == 0 {
            continue;
        }
        let size = *x.sizes().get(axis)?;
        let mut sizes = x.sizes().to_vec();
        sizes[axis] = size + before + after;
        let to = if axis == last { out } else { on.scratch(out.dtype, &sizes) };
        let edge = |at: usize, count: usize| {
            let (moved, layout) = x.layout.slice(axis, SliceRange { start: at, step: 1, count: 1 })?;
            let mut sizes = x.sizes().to_vec();
            sizes[axis] = count;
            Some(x.with(layout.broadcast_to(&sizes)?).moved(moved))
        };
        let parts = [edge(0, before)?, x, edge(size - 1, after)?];
        let parts: Vec<View> = parts.into_iter().filter(|part| !part.layout.is_empty()).collect();
        join(on, to, axis, &parts);
        x = to;
    }
    Some(())
}

/// Shifts axes in a circle, each by what is less than its size.
pub(crate) fn roll(on: &mut Lowering, out: View, x: View, shifts: &[(usize, usize)]) -> Option<()> {
    let mut x = x;
    for (number, &(axis, shift)) in shifts.iter().enumerate() {
        let size = *x.sizes().get(axis)?;
        let to = if number + 1 == shifts.len() { out } else { on.scratch(out.dtype, x.sizes()) };
        let part = |start: usize, count: usize| {
            let (moved, layout) = x.layout.slice(axis, SliceRange { start, step: 1, count })?;
            Some(x.with(layout).moved(moved))
        };
        let parts = [part(size - shift, shift)?, part(0, size - shift)?];
        let parts: Vec<View> = parts.into_iter().filter(|part| !part.layout.is_empty()).collect();
        join(on, to, axis, &parts);
        x = to;
    }
    Some(())
}
