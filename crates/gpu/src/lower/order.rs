//! Indices that put rows in order.

use super::{Axes, Lowering, copy, groups};
use crate::dispatch::View;
use crate::kernel::{Kernel, MOST_ORDERED, Merge};
use pteron_ir::rules::SliceRange;
use pteron_plan::Layout;
use pteron_tensor::DType;

/// The indices that sort each row along the last axis.
pub(crate) fn order(on: &mut Lowering, out: View, x: View) -> Option<()> {
    if out.layout.is_empty() {
        return Some(());
    }
    if x.sizes().last().is_some_and(|&count| count > MOST_ORDERED) {
        return long(on, out, x);
    }
    let lead = x.layout.rank().saturating_sub(1);
    let count = x.sizes().last().copied().unwrap_or(1);
    let rows = x.layout.len() / count.max(1);
    let step = x.layout.strides().last().copied().unwrap_or(0);
    let mut params = vec![rows as u32, on.first_word(&out), count as u32, step as i32 as u32];
    let axes = Axes::of(&x.sizes()[..lead], &[&x.layout.strides()[..lead]]);
    axes.push(&mut params, &[on.first(&x)]);
    on.emit(Kernel::Order { input: x.dtype, rank: axes.rank() }, &out, &[x], false, params, rows);
    Some(())
}

/// The same of rows that are longer than shared memory holds. Rows that a device cannot see at once are done some at a time.
fn long(on: &mut Lowering, out: View, x: View) -> Option<()> {
    let &[ref lead @ .., count] = x.sizes() else { return None };
    let padded = count.checked_next_power_of_two()?;
    let rows: usize = lead.iter().product();
    let at_once = (on.features.max_binding / 4 / padded as u64).min(rows as u64) as usize;
    if at_once == 0 {
        return None;
    }
    // Rows that can be counted one by one, whatever their places.
    let flat = [rows, count];
    let (x, rows_of) = match x.layout.reshape(&flat) {
        Some(layout) => (x, layout),
        None => (on.plain(x), Layout::row_major(&flat)?),
    };
    let targets = Layout::row_major(&flat)?;
    let mut first = 0;
    while first < rows {
        let some = at_once.min(rows - first);
        let range = SliceRange { start: first, step: 1, count: some };
        let (moved, layout) = rows_of.slice(0, range)?;
        let indices = on.scratch(DType::U32, &[some, padded]);
        network(on, indices, x.with(layout).moved(moved), (some, count, padded));
        let (_, kept) = indices.layout.slice(1, SliceRange { start: 0, step: 1, count })?;
        let (moved, layout) = targets.slice(0, range)?;
        copy(on, out.with(layout).moved(moved), indices.with(kept), false);
        first += some;
    }
    Some(())
}

/// The merges of a bitonic network, from two indices to all of a row.
fn network(on: &mut Lowering, indices: View, x: View, (rows, count, padded): (usize, usize, usize)) {
    let strides = x.layout.strides();
    let axes = Axes::of(&[rows], &[&strides[..1]]);
    let mut step = |merge: Merge, sizes: [usize; 2], apart: usize, groups: usize| {
        let mut params = vec![rows as u32, on.first_word(&indices), count as u32, strides[1] as i32 as u32];
        params.extend([padded, sizes[0], sizes[1], apart].map(|size| size as u32));
        axes.push(&mut params, &[on.first(&x)]);
        let kernel = Kernel::Bitonic { input: x.dtype, merge, rank: axes.rank() };
        on.emit(kernel, &indices, &[x], false, params, groups);
    };
    let blocks = rows * padded / MOST_ORDERED;
    step(Merge::First, [2, MOST_ORDERED], 0, blocks);
    let mut size = 2 * MOST_ORDERED;
    while size <= padded {
        let mut apart = size / 2;
        while apart >= MOST_ORDERED {
            step(Merge::Across, [size, size], apart, groups(rows * padded / 2));
            apart /= 2;
        }
        step(Merge::Within, [size, size], 0, blocks);
        size *= 2;
    }
}
