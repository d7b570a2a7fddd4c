//! Products with few rows on the left: each weight is loaded once and used for every row while it is in a register.

use super::One;
use super::micro::{dots, ragged, tile, with_rows};
use crate::pool::Pool;
use crate::rows::with_float;
use crate::simd::{Kernel, Simd, Stored, on};
use crate::split::{Shared, in_parts};
use std::ops::Range;

/// The left rows as f32.
pub(super) fn scratch_floats(rows: usize, inner: usize) -> usize {
    if rows > super::FEW_ROWS { 0 } else { rows.saturating_mul(inner) }
}

/// Nanoseconds of one column: its weights from memory.
fn cost(one: &One) -> usize {
    one.inner * one.b.dtype.size() / 12 + 1
}

/// The left matrix as f32: where it lies already, or in scratch. Returns the distance between rows, too.
pub(super) fn left(one: &One, scratch: &mut [f32]) -> (*const f32, usize) {
    if one.inner == 0 {
        // Strides of nothing lead nowhere.
        return (scratch.as_ptr(), 0);
    }
    if one.a.dtype == pteron_tensor::DType::F32 && one.a.strides[1] == 1 && one.a.strides[0] >= 0 {
        return (one.a.data.cast_const().cast(), one.a.strides[0] as usize);
    }
    for row in 0..one.rows {
        let to = scratch[row * one.inner..][..one.inner].as_mut_ptr();
        // SAFETY: the row is inside the matrix and fits the slice.
        unsafe { one.a.widen_row(one.path, row, 0, to, one.inner) };
    }
    (scratch.as_ptr(), one.inner)
}

/// Weights that are dense along the inner axis: sums along rows, four columns at a time.
pub(super) fn by_inner(pool: &Pool, one: &One, scratch: &mut [f32]) {
    let (a, row) = left(one, scratch);
    let a = Shared::new(a.cast_mut());
    in_parts(pool, one.columns, 4, cost(one), &|columns| {
        let a = a.get().cast_const();
        with_float!(one.b.dtype, T => on(one.path, ByInner::<T> { one, a, row, columns, of: std::marker::PhantomData }));
    });
}

struct ByInner<'a, T> {
    one: &'a One,
    a: *const f32,
    row: usize,
    columns: Range<usize>,
    of: std::marker::PhantomData<T>,
}

impl<T: Stored> Kernel for ByInner<'_, T> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let ByInner { one, a, row: stride, columns, .. } = self;
        let step = (S::ACCUMULATORS / 4).clamp(1, 6);
        let mut column = columns.start;
        while column < columns.end {
            let count = (columns.end - column).min(4);
            // Of an incomplete group the last column is read again.
            let weight = |n: usize| one.b.at(0, column + n.min(count - 1)).cast_const().cast::<T>();
            let four = [weight(0), weight(1), weight(2), weight(3)];
            let mut row = 0;
            while row < one.rows {
                let rows = (one.rows - row).min(step);
                // SAFETY: rows and columns are inside their matrices, which are dense along the inner axis; tasks
                // have columns of their own.
                unsafe {
                    with_rows!(6, rows, M => {
                        let sums = dots::<S, T, M>(one.inner, a.add(row * stride), stride, four);
                        for (m, sums) in sums.iter().enumerate() {
                            for (n, &sum) in sums.iter().enumerate().take(count) {
                                one.finish(row + m, column + n, sum);
                            }
                        }
                    });
                }
                row += rows;
            }
            column += count;
        }
    }
}

/// Weights that are dense along the columns: sums of scaled rows, a few vectors of columns at a time.
pub(super) fn by_column(pool: &Pool, one: &One, scratch: &mut [f32]) {
    let (a, row) = left(one, scratch);
    let a = Shared::new(a.cast_mut());
    in_parts(pool, one.columns, 64, cost(one), &|columns| {
        let a = a.get().cast_const();
        with_float!(one.b.dtype, T => on(one.path, ByColumn::<T> { one, a, row, columns, of: std::marker::PhantomData }));
    });
}

struct ByColumn<'a, T> {
    one: &'a One,
    a: *const f32,
    row: usize,
    columns: Range<usize>,
    of: std::marker::PhantomData<T>,
}

/// Columns whose sums are kept in the nearest cache while rows of the weight stream by.
const PANEL: usize = 512;
/// Rows of the weight that are added at a time.
const TERMS: usize = 16;

impl<T: Stored> Kernel for ByColumn<'_, T> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let ByColumn { one, a, row: stride, columns, .. } = self;
        let step = (S::ACCUMULATORS / 4).clamp(1, 6);
        let mut sums = [[0f32; PANEL]; super::FEW_ROWS];
        for first in columns.clone().step_by(PANEL) {
            let width = PANEL.min(columns.end - first);
            sums[..one.rows].iter_mut().for_each(|sums| sums[..width].fill(0.0));
            for start in (0..one.inner).step_by(TERMS) {
                let terms = TERMS.min(one.inner - start);
                let mut row = 0;
                while row < one.rows {
                    let rows = (one.rows - row).min(step);
                    // SAFETY: rows, terms and columns are inside their matrices, whose columns are dense.
                    unsafe {
                        let a = a.add(row * stride + start);
                        let b = one.b.at(start, first).cast_const().cast::<T>();
                        let ldb = one.b.strides[0] as usize;
                        let to = sums.as_mut_ptr().cast::<f32>().add(row * PANEL);
                        with_rows!(6, rows, M => add_columns::<S, T, M>(terms, a, stride, b, ldb, to, width));
                    }
                    row += rows;
                }
            }
            for (row, sums) in sums[..one.rows].iter().enumerate() {
                // SAFETY: tasks have columns of their own.
                unsafe { one.finish_row(row, first, sums.as_ptr(), width) };
            }
        }
    }
}

/// Adds products of `M` rows with a few rows of the weight to sums that lie `PANEL` apart.
///
/// # Safety
/// `M` rows and `width` columns are there.
#[inline(always)]
unsafe fn add_columns<S: Simd, T: Stored, const M: usize>(
    terms: usize,
    a: *const f32,
    stride: usize,
    b: *const T,
    ldb: usize,
    sums: *mut f32,
    width: usize,
) {
    let mut column = 0;
    // SAFETY: the caller's promise; whole vectors first, then the rest.
    unsafe {
        while column + 4 * S::LANES <= width {
            let tile = tile::<S, T, M, 4>(terms, a, stride, 1, b.add(column), ldb);
            for (m, tile) in tile.into_iter().enumerate() {
                for (n, sum) in tile.into_iter().enumerate() {
                    let at = sums.add(m * PANEL + column + n * S::LANES);
                    S::store(at, S::add(S::load(at), sum));
                }
            }
            column += 4 * S::LANES;
        }
        while column < width {
            let count = S::LANES.min(width - column);
            let tile = ragged::<S, T, M>(terms, a, stride, 1, b.add(column), ldb, count);
            for (m, sum) in tile.into_iter().enumerate() {
                let at = sums.add(m * PANEL + column);
                S::store_first(at, S::add(S::load_first(at, count), sum), count);
            }
            column += count;
        }
    }
}
