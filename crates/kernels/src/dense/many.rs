//! Products with many rows. One operand is packed into panels a few vectors wide, whose columns are the lanes; the
//! other is broadcast, element by element, from rows that are dense along the inner axis. Sums of a block of the
//! inner axis stay in registers and are then added to a task's own part of the result.
//!
//! Where the weight is dense along the inner axis it is the one that is broadcast, and the result comes out
//! transposed; else the left matrix is.

use super::One;
use super::few::left;
use super::micro::{tile, with_rows};
use crate::pool::Pool;
use crate::simd::{Kernel, Simd, on};
use crate::split::{Shared, in_parts};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Terms of a sum between two visits of memory: a panel of them and the broadcast rows stay in the second cache.
const BLOCK: usize = 384;
/// Rows or columns of the result that a task computes at a time.
const SLICE: usize = 96;
/// Lanes of the widest panel: four of the widest vectors.
const WIDEST: usize = 64;

/// Floats of a task: broadcast rows of a block, one panel, and sums.
fn task_floats(other: usize) -> usize {
    let sums =
        SLICE.saturating_mul(other.saturating_add(WIDEST)).saturating_add(other.saturating_mul(WIDEST));
    sums.saturating_add(SLICE * BLOCK + BLOCK * WIDEST)
}

pub(super) fn scratch_floats(rows: usize, inner: usize, _columns: usize, threads: usize) -> usize {
    if rows <= super::FEW_ROWS {
        return 0;
    }
    // The left matrix, packed or converted, then the tasks' parts.
    let left = rows.saturating_add(WIDEST).saturating_mul(inner);
    left.saturating_add(threads.saturating_mul(task_floats(rows.saturating_add(48))))
}

/// Lanes of a panel on a path.
struct Lanes;
impl Kernel for Lanes {
    type Output = usize;
    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> usize {
        S::LANES
    }
}

/// Calls `f` with numbers below `items` and a part of the scratch that is the task's own.
pub(super) fn each_item(
    pool: &Pool,
    items: usize,
    cost: usize,
    scratch: *mut f32,
    floats: usize,
    f: &(dyn Fn(usize, *mut f32) + Sync),
) {
    let (next, scratch) = (AtomicUsize::new(0), Shared::new(scratch));
    let tasks = if cost < 8_000 { 1 } else { pool.threads().min(items) };
    pool.run(tasks, &|task| {
        // SAFETY: the scratch was checked to have room for a part a thread.
        let own = unsafe { scratch.get().add(task * floats) };
        loop {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= items {
                return;
            }
            f(item, own);
        }
    });
}

/// `out^T = b^T @ a^T`: rows of the weight are broadcast, rows of the left matrix are lanes.
pub(super) fn by_inner(pool: &Pool, one: &One, scratch: &mut [f32]) {
    let lanes = on(one.path, Lanes);
    let width = 3 * lanes;
    let panels = one.rows.div_ceil(width);
    let padded = panels * width;
    let (packed, own) = scratch.split_at_mut(padded * one.inner);
    let packed = Shared::new(packed.as_mut_ptr());
    in_parts(pool, panels, 1, one.inner * width, &|range| {
        for panel in range {
            // SAFETY: a panel has room for its rows, zeros behind the last.
            unsafe { pack_rows(one, panel * width, width, packed.get().add(panel * width * one.inner)) };
        }
    });
    let slice = slice_of(one.columns, pool.threads());
    let items = one.columns.div_ceil(slice);
    let cost = one.rows * one.columns * one.inner / 64;
    each_item(pool, items, cost, own.as_mut_ptr(), task_floats(padded), &|item, work| {
        let first = item * slice;
        let count = slice.min(one.columns - first);
        let (weights, sums) = (work, work.wrapping_add(SLICE * BLOCK + BLOCK * WIDEST));
        for start in (0..one.inner).step_by(BLOCK) {
            let terms = BLOCK.min(one.inner - start);
            // SAFETY: columns, terms and panels are inside; the work has room as `task_floats` counts it.
            unsafe {
                let (a, stride) = broadcast_rows(one, first, count, start, terms, weights);
                for panel in 0..panels {
                    on(
                        one.path,
                        Block {
                            terms,
                            a,
                            stride,
                            rows: count,
                            b: packed.get().add(panel * width * one.inner + start * width),
                            width,
                            vectors: 3,
                            sums: sums.add(panel * width),
                            row: padded,
                            add: start > 0,
                        },
                    );
                }
            }
        }
        // SAFETY: the columns belong to this item alone.
        unsafe {
            if one.inner == 0 {
                sums.write_bytes(0, count * padded);
            }
            finish_transposed(one, first, count, sums, padded);
        }
    });
}

/// Columns of the result for a task: fewer than [`SLICE`] where threads would have none.
fn slice_of(columns: usize, threads: usize) -> usize {
    let wanted = columns.div_ceil(4 * threads).next_multiple_of(8);
    if threads == 1 { SLICE } else { wanted.clamp(8, SLICE) }
}

/// The rows of the weight that are broadcast, as f32: where they lie already, or converted.
///
/// # Safety
/// Columns and terms are inside the weight; `to` has room for them.
unsafe fn broadcast_rows(
    one: &One,
    first: usize,
    count: usize,
    start: usize,
    terms: usize,
    to: *mut f32,
) -> (*const f32, usize) {
    let stride = one.b.strides[1];
    if one.b.dtype == pteron_tensor::DType::F32 && stride >= 0 {
        return (one.b.at(start, first).cast_const().cast(), stride as usize);
    }
    for column in 0..count {
        // SAFETY: the caller's promise; the weight is dense along the inner axis.
        unsafe {
            let from = one.b.at(start, first + column);
            crate::convert::widen(one.path, from, one.b.dtype, to.add(column * BLOCK), terms);
        }
    }
    (to.cast_const(), BLOCK)
}

/// Packs rows of the left matrix as lanes: `[inner][width]`.
///
/// # Safety
/// The first row is inside; `to` has room for `width * inner` floats.
unsafe fn pack_rows(one: &One, first: usize, width: usize, to: *mut f32) {
    let mut line = [0f32; 128];
    for i in 0..width {
        let row = first + i;
        for start in (0..one.inner).step_by(line.len()) {
            let count = line.len().min(one.inner - start);
            // SAFETY: the caller's promise.
            unsafe {
                if row < one.rows {
                    one.a.widen_row(one.path, row, start, line.as_mut_ptr(), count);
                } else {
                    line.fill(0.0);
                }
                for (j, &value) in line[..count].iter().enumerate() {
                    to.add((start + j) * width + i).write(value);
                }
            }
        }
    }
}

/// Writes sums of `[columns][rows]` to the result.
///
/// # Safety
/// The columns are inside the result and nobody else's.
unsafe fn finish_transposed(one: &One, first: usize, count: usize, sums: *const f32, padded: usize) {
    let mut line = [0f32; SLICE];
    for row in 0..one.rows {
        for (column, value) in line[..count].iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *value = unsafe { sums.add(column * padded + row).read() };
        }
        // SAFETY: the caller's promise.
        unsafe { one.finish_row(row, first, line.as_ptr(), count) };
    }
}

/// `out = a @ b`: rows of the left matrix are broadcast, columns of the weight are lanes.
pub(super) fn by_column(pool: &Pool, one: &One, scratch: &mut [f32]) {
    let (converted, rest) = scratch.split_at_mut(one.rows * one.inner);
    let (a, stride) = left(one, converted);
    let a = Shared::new(a.cast_mut());
    let width = 4 * on(one.path, Lanes);
    let items = one.columns.div_ceil(width);
    let cost = one.rows * one.columns * one.inner / 64;
    each_item(pool, items, cost, rest.as_mut_ptr(), task_floats(one.rows), &|item, work| {
        let first = item * width;
        let count = width.min(one.columns - first);
        let panel = work.wrapping_add(SLICE * BLOCK);
        let sums = panel.wrapping_add(BLOCK * WIDEST);
        for start in (0..one.inner).step_by(BLOCK) {
            let terms = BLOCK.min(one.inner - start);
            // SAFETY: terms, rows and columns are inside; the work has room as `task_floats` counts it.
            unsafe {
                for term in 0..terms {
                    let to = panel.add(term * width);
                    one.b.widen_row(one.path, start + term, first, to, count);
                    (count..width).for_each(|i| to.add(i).write(0.0));
                }
                on(
                    one.path,
                    Block {
                        terms,
                        a: a.get().add(start).cast_const(),
                        stride,
                        rows: one.rows,
                        b: panel.cast_const(),
                        width,
                        vectors: 4,
                        sums,
                        row: width,
                        add: start > 0,
                    },
                );
            }
        }
        for row in 0..one.rows {
            // SAFETY: the columns belong to this item alone.
            unsafe {
                if one.inner == 0 {
                    sums.add(row * width).write_bytes(0, width);
                }
                one.finish_row(row, first, sums.add(row * width), count);
            }
        }
    });
}

/// Broadcast rows times one panel, into sums.
struct Block {
    terms: usize,
    /// Rows that are broadcast, `stride` apart.
    a: *const f32,
    stride: usize,
    rows: usize,
    /// `[terms][width]`.
    b: *const f32,
    width: usize,
    /// Vectors of the panel: 3 or 4.
    vectors: usize,
    /// `[rows][row]`.
    sums: *mut f32,
    row: usize,
    /// Whether there are sums to add to.
    add: bool,
}

impl Kernel for Block {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let step = (S::ACCUMULATORS / self.vectors).clamp(1, 8);
        let mut row = 0;
        while row < self.rows {
            let rows = step.min(self.rows - row);
            // SAFETY: rows, terms and panels are there, as whoever made this kernel says.
            unsafe {
                with_rows!(8, rows, M => {
                    if self.vectors == 3 { self.tile::<S, M, 3>(row) } else { self.tile::<S, M, 4>(row) }
                });
            }
            row += rows;
        }
    }
}

impl Block {
    #[inline(always)]
    unsafe fn tile<S: Simd, const M: usize, const N: usize>(&self, row: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let a = self.a.add(row * self.stride);
            let sums = tile::<S, f32, M, N>(self.terms, a, self.stride, 1, self.b, self.width);
            for (m, sums) in sums.into_iter().enumerate() {
                for (n, sum) in sums.into_iter().enumerate() {
                    let at = self.sums.add((row + m) * self.row + n * S::LANES);
                    S::store(at, if self.add { S::add(S::load(at), sum) } else { sum });
                }
            }
        }
    }
}
