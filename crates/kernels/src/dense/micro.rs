//! The two inner loops of all dense products. [`tile`] adds outer products: its lanes are columns, one multiply-add a
//! broadcast, for matrices. [`dots`] adds along rows: its lanes are terms of one sum, for vectors and for keys that
//! are read once. Both keep every sum in a register from the first term to the last.

use crate::simd::{Simd, Stored};

/// `sum over j of a[i * row + j * step] * b[j * ldb ..]` for `M` rows and `N` vectors of columns.
///
/// # Safety
/// The instruction set of `S` is there; `a` has `M` rows of `inner` elements, `b` has `inner` rows of `N` vectors.
#[inline(always)]
pub(crate) unsafe fn tile<S: Simd, T: Stored, const M: usize, const N: usize>(
    inner: usize,
    a: *const f32,
    row: usize,
    step: usize,
    b: *const T,
    ldb: usize,
) -> [[S::F; N]; M] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[S::splat(0.0); N]; M];
        let (mut a, mut b) = (a, b);
        for _ in 0..inner {
            let mut columns = [S::splat(0.0); N];
            for (n, columns) in columns.iter_mut().enumerate() {
                *columns = T::load::<S>(b.add(n * S::LANES));
            }
            for (m, sums) in sums.iter_mut().enumerate() {
                let factor = S::splat(a.add(m * row).read());
                for (sum, columns) in sums.iter_mut().zip(columns) {
                    *sum = S::fma(factor, columns, *sum);
                }
            }
            a = a.add(step);
            b = b.wrapping_add(ldb);
        }
        sums
    }
}

/// As [`tile`] for one vector of columns, of which only the first `count` are there.
///
/// # Safety
/// As [`tile`], but rows of `b` have `count` elements.
#[inline(always)]
pub(crate) unsafe fn ragged<S: Simd, T: Stored, const M: usize>(
    inner: usize,
    a: *const f32,
    row: usize,
    step: usize,
    b: *const T,
    ldb: usize,
    count: usize,
) -> [S::F; M] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [S::splat(0.0); M];
        for j in 0..inner {
            let columns = T::load_first::<S>(b.wrapping_add(j * ldb), count);
            for (m, sum) in sums.iter_mut().enumerate() {
                let factor = S::splat(a.add(m * row + j * step).read());
                *sum = S::fma(factor, columns, *sum);
            }
        }
        sums
    }
}

/// `sum over j of a[m * row + j] * b[n][j]` for `M` rows of `a` and four rows of `b`.
///
/// # Safety
/// The instruction set of `S` is there, and every row has `inner` elements.
#[inline(always)]
pub(crate) unsafe fn dots<S: Simd, T: Stored, const M: usize>(
    inner: usize,
    a: *const f32,
    row: usize,
    b: [*const T; 4],
) -> [[f32; 4]; M] {
    // SAFETY: the caller's promise; whole vectors first, then the rest one by one.
    unsafe {
        let mut sums = [[S::splat(0.0); 4]; M];
        let mut at = 0;
        while at + S::LANES <= inner {
            let mut rows = [S::splat(0.0); 4];
            for (rows, b) in rows.iter_mut().zip(b) {
                *rows = T::load::<S>(b.add(at));
            }
            for (m, sums) in sums.iter_mut().enumerate() {
                let a = S::load(a.add(m * row + at));
                for (sum, rows) in sums.iter_mut().zip(rows) {
                    *sum = S::fma(a, rows, *sum);
                }
            }
            at += S::LANES;
        }
        let mut out = [[0.0; 4]; M];
        for (m, (out, sums)) in out.iter_mut().zip(sums).enumerate() {
            *out = S::sum4(sums);
            for j in at..inner {
                let a = a.add(m * row + j).read();
                for (out, b) in out.iter_mut().zip(b) {
                    *out += a * b.add(j).read().to_f32();
                }
            }
        }
        out
    }
}

/// Calls a generic function with a number of rows as a constant, at most 4, 6, 8 or 12: each number is code of its own.
macro_rules! with_rows {
    (@ $rows:expr, $M:ident, $call:expr, $last:literal, $($count:literal)*) => {
        match $rows {
            $($count => {
                const $M: usize = $count;
                $call
            })*
            _ => {
                const $M: usize = $last;
                $call
            }
        }
    };
    (4, $rows:expr, $M:ident => $call:expr) => { with_rows!(@ $rows, $M, $call, 4, 1 2 3) };
    (6, $rows:expr, $M:ident => $call:expr) => { with_rows!(@ $rows, $M, $call, 6, 1 2 3 4 5) };
    (8, $rows:expr, $M:ident => $call:expr) => { with_rows!(@ $rows, $M, $call, 8, 1 2 3 4 5 6 7) };
    (12, $rows:expr, $M:ident => $call:expr) => { with_rows!(@ $rows, $M, $call, 12, 1 2 3 4 5 6 7 8 9 10 11) };
}
pub(crate) use with_rows;
