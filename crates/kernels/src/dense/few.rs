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
    if rows > super::FEW_ROWS { 0 } else { rows * inner }
}

/// Nanoseconds of one column: its weights from memory.
fn cost(one: &One) -> usize {
    one.inner * one.b.dtype.size() / 12 + 1
}

/// The left matrix as f32: where it lies already, or in scratch. Returns the distance between rows, too.
pub(super) fn left(one: &One, scratch: &mut [f32]) -> (*const f32, usize) {
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
                    with_rows!(rows, M => {
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

impl<T: Stored> Kernel for ByColumn<'_, T> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let ByColumn { one, a, row: stride, columns, .. } = self;
        let step = (S::ACCUMULATORS / 4).clamp(1, 6);
        let mut column = columns.start;
        while column < columns.end {
            let left = columns.end - column;
            let vectors = (left / S::LANES).min(4);
            let mut row = 0;
            while row < one.rows {
                let rows = (one.rows - row).min(step);
                // SAFETY: as in `ByInner`.
                unsafe {
                    let a = a.add(row * stride);
                    with_rows!(rows, M => match vectors {
                        4 => columns_of::<S, T, M, 4>(one, a, stride, row, column),
                        1..4 => columns_of::<S, T, M, 1>(one, a, stride, row, column),
                        _ => {
                            let b = one.b.at(0, column).cast_const().cast::<T>();
                            let ldb = one.b.strides[0] as usize;
                            let sums = ragged::<S, T, M>(one.inner, a, stride, 1, b, ldb, left);
                            for (m, sum) in sums.into_iter().enumerate() {
                                let mut lanes = [0f32; 16];
                                S::store(lanes.as_mut_ptr(), sum);
                                one.finish_row(row + m, column, lanes.as_ptr(), left);
                            }
                        }
                    });
                }
                row += rows;
            }
            column += match vectors {
                4 => 4 * S::LANES,
                1..4 => S::LANES,
                _ => left,
            };
        }
    }
}

/// # Safety
/// `M` rows and `N` vectors of columns are inside their matrices.
#[inline(always)]
unsafe fn columns_of<S: Simd, T: Stored, const M: usize, const N: usize>(
    one: &One,
    a: *const f32,
    stride: usize,
    row: usize,
    column: usize,
) {
    // SAFETY: the caller's promise; no vector has more than 16 lanes, and there are at most four.
    unsafe {
        let b = one.b.at(0, column).cast_const().cast::<T>();
        let sums = tile::<S, T, M, N>(one.inner, a, stride, 1, b, one.b.strides[0] as usize);
        for (m, sums) in sums.into_iter().enumerate() {
            let mut lanes = [0f32; 64];
            for (n, sum) in sums.into_iter().enumerate() {
                S::store(lanes.as_mut_ptr().add(n * S::LANES), sum);
            }
            one.finish_row(row + m, column, lanes.as_ptr(), N * S::LANES);
        }
    }
}
