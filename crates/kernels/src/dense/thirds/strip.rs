//! Rows that were split times a strip of columns, two tiles at a time, and the way of the sums to memory.

use super::block::block;
use super::left::Left;
use super::weight::Weight;
use super::{COLUMNS, NEAR_STEPS, PASS, SUMS};
use crate::amx::Few;
use crate::dense::packed::Job;
use crate::simd::{Avx512, Simd};
use std::ops::Range;

/// Rows that were split, from the first tile on, times some tiles of columns.
///
/// # Safety
/// Nobody else has these rows and columns of the output; `sums` has room for two tiles of columns of all rows.
pub(super) unsafe fn strip(
    job: &Job<'_>,
    weight: &Weight,
    left: &Left,
    rows: Range<usize>,
    columns: Range<usize>,
    sums: *mut f32,
) {
    let column_of = |tile: usize| (tile * COLUMNS).min(weight.columns);
    let mut passed = columns.start;
    for first in columns.clone().step_by(2) {
        let end = columns.end.min(first + 2);
        // The configuration lasts no longer than the products: what follows may be anybody's code.
        let multiplied = Few::with(left.height, 64, |tiles| {
            // SAFETY: the caller's promise.
            unsafe { multiply(tiles, weight, left, rows.len(), first..end, sums) }
        });
        assert!(multiplied.is_some(), "tiles that were there when the weight was packed");
        // SAFETY: the caller's promise; the path of the weight has AVX-512.
        unsafe {
            left.mend(weight, rows.len(), first..end, sums);
            finish(job, left.height, rows.clone(), first..end, sums);
        }
        if let Some(then) = job.epilogue.then
            && (end == columns.end || (end - passed) * COLUMNS >= PASS)
        {
            then(rows.clone(), job.column + column_of(passed)..job.column + column_of(end));
            passed = end;
        }
    }
}

/// The sums of rows that were split and of one or two tiles of columns.
///
/// # Safety
/// They are inside; `sums` has room for pairs of tiles.
unsafe fn multiply(
    tiles: &Few,
    weight: &Weight,
    left: &Left,
    rows: usize,
    columns: Range<usize>,
    sums: *mut f32,
) {
    let height = rows.div_ceil(left.height);
    let chunks = weight.steps.div_ceil(NEAR_STEPS);
    // The columns that come next, as many lines with each block.
    let ahead = weight.ahead(columns.end);
    let blocks = chunks * height.div_ceil(2);
    for first in (0..weight.steps).step_by(NEAR_STEPS) {
        let (steps, begins) = ((weight.steps - first).min(NEAR_STEPS), first == 0);
        // The second tile of each is not looked at where there is none.
        let right = [weight.at(columns.start, first), weight.at(columns.start + 1, first)];
        for row in (0..height).step_by(2) {
            let to = sums.wrapping_add(row * 2 * SUMS);
            let next = ahead.part(first / NEAR_STEPS * height.div_ceil(2) + row / 2, blocks);
            let of_left = [left.tile(row, first).cast_const(), left.tile(row + 1, first).cast_const()];
            // SAFETY: the caller's promise.
            unsafe {
                match (height - row > 1, columns.len() > 1) {
                    (true, true) => block::<2, 2>(tiles, of_left, right, steps, begins, to, next),
                    (true, false) => block::<2, 1>(tiles, of_left, right, steps, begins, to, next),
                    (false, true) => block::<1, 2>(tiles, of_left, right, steps, begins, to, next),
                    (false, false) => block::<1, 1>(tiles, of_left, right, steps, begins, to, next),
                }
            }
        }
    }
}

/// Writes sums to the output, by way of what follows them.
///
/// # Safety
/// Rows and columns are those of the sums, and nobody else has them; AVX-512 is there.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn finish(job: &Job<'_>, height: usize, rows: Range<usize>, columns: Range<usize>, sums: *const f32) {
    let all = job.panels.columns();
    for (index, row) in rows.enumerate() {
        let (tile, within) = (index / height, index % height);
        for (at, own) in columns.clone().map(|tile| tile * COLUMNS).enumerate() {
            let from = sums.wrapping_add((tile * 2 + at) * SUMS + within * COLUMNS);
            let count = (all - own).min(COLUMNS);
            let (column, to) = (job.column + own, row * job.row + job.column + own);
            // SAFETY: the caller's promise.
            unsafe {
                let value = job.epilogue.apply::<Avx512>(Avx512::load(from), column, to, count);
                match count == COLUMNS {
                    true => Avx512::store(job.out.get().add(to), value),
                    false => Avx512::store_first(job.out.get().add(to), value, count),
                }
            }
        }
    }
}
