//! Softmax and the logarithm of a sum of exponentials along the last axis, computed in f32 and rounded once. Each row
//! is read three times; exponentials are computed twice rather than kept, so that 16-bit rows need no other memory.

use crate::path::Path;
use crate::pool::Pool;
use crate::rows::{each_row, outer, with_float};
use crate::simd::{Kernel, Simd, Stored, on};
use crate::view::{View, ViewMut};

/// `e^x / sum(e^x)`, row by row. A row of -inf, or with +inf or NaN, gives NaN. The output may be the very elements of
/// `x`.
///
/// # Panics
/// When sizes or dtypes differ, rows are not dense, or the dtype is no float of at most 32 bits.
pub fn softmax(pool: &Pool, path: Path, out: &mut ViewMut<'_>, x: &View<'_>) {
    assert!(out.sizes() == x.sizes() && out.dtype() == x.dtype());
    assert!(out.has_dense_rows() && x.has_dense_rows(), "rows must be dense");
    if out.is_empty() {
        return;
    }
    let width = x.sizes().last().copied().unwrap_or(1);
    let strides = [outer(out.strides()), outer(x.strides())];
    with_float!(x.dtype(), T => each_row(pool, outer(x.sizes()), strides, width, &|[to, from]| {
        // SAFETY: the rows lie in their views, which are dense along them; rows of the output are disjoint.
        unsafe {
            let x = x.data().cast::<T>().offset(from);
            on(path, Softmax { x, out: out.data().cast::<T>().offset(to), width });
        }
    }));
}

/// `log(sum(e^x))` of each row; the output's last axis has one element. Infinities give themselves, an empty row -inf.
///
/// # Panics
/// As [`softmax`].
pub fn log_sum_exp(pool: &Pool, path: Path, out: &mut ViewMut<'_>, x: &View<'_>) {
    assert!(outer(out.sizes()) == outer(x.sizes()) && out.dtype() == x.dtype());
    assert!(out.sizes().last().is_none_or(|&size| size == 1) && x.has_dense_rows(), "rows must be dense");
    let width = x.sizes().last().copied().unwrap_or(1);
    let strides = [outer(out.strides()), outer(x.strides())];
    with_float!(x.dtype(), T => each_row(pool, outer(x.sizes()), strides, width, &|[to, from]| {
        // SAFETY: as above; of rows without elements, which may lie anywhere, nothing is read.
        unsafe {
            let sum = on(path, LogSumExp { x: x.data().cast::<T>().wrapping_offset(from), width });
            out.data().cast::<T>().offset(to).write(T::from_f32(sum));
        }
    }));
}

struct Softmax<T> {
    x: *const T,
    out: *mut T,
    width: usize,
}

impl<T: Stored> Kernel for Softmax<T> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Softmax { x, out, width } = self;
        // SAFETY: the row lies at the pointers; a vector is read before it is written.
        unsafe {
            let largest = largest::<S, T>(x, width);
            let factor = 1.0 / sum_exp::<S, T>(x, width, largest);
            let mut at = 0;
            let (shift, factors) = (S::splat(largest), S::splat(factor));
            while at + S::LANES <= width {
                let power = S::exp_negative(S::sub(T::load::<S>(x.add(at)), shift));
                T::store::<S>(out.add(at), S::mul(power, factors));
                at += S::LANES;
            }
            while at < width {
                let power = exp_one::<S>(x.add(at).read().to_f32() - largest);
                out.add(at).write(T::from_f32(power * factor));
                at += 1;
            }
        }
    }
}

struct LogSumExp<T> {
    x: *const T,
    width: usize,
}

impl<T: Stored> Kernel for LogSumExp<T> {
    type Output = f32;
    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> f32 {
        // SAFETY: the row lies at the pointer.
        unsafe {
            let largest = largest::<S, T>(self.x, self.width);
            // An infinite largest element is the result; subtracting it would give NaN.
            if largest.is_infinite() {
                return if has_nan(self.x, self.width) { f32::NAN } else { largest };
            }
            sum_exp::<S, T>(self.x, self.width, largest).ln() + largest
        }
    }
}

#[inline(always)]
unsafe fn has_nan<T: Stored>(x: *const T, width: usize) -> bool {
    // SAFETY: `width` elements lie at `x`.
    (0..width).any(|at| unsafe { x.add(at).read().to_f32() }.is_nan())
}

/// The largest element; NaN is passed over.
#[inline(always)]
unsafe fn largest<S: Simd, T: Stored>(x: *const T, width: usize) -> f32 {
    // SAFETY: `width` elements lie at `x`.
    unsafe {
        let mut best = [S::splat(f32::NEG_INFINITY); 2];
        let mut at = 0;
        while at + 2 * S::LANES <= width {
            for (i, best) in best.iter_mut().enumerate() {
                *best = S::max(T::load::<S>(x.add(at + i * S::LANES)), *best);
            }
            at += 2 * S::LANES;
        }
        let mut largest = S::largest(S::max(best[0], best[1]));
        while at < width {
            let value = x.add(at).read().to_f32();
            largest = if value > largest { value } else { largest };
            at += 1;
        }
        largest
    }
}

/// The sum of `e^(x - largest)`.
#[inline(always)]
unsafe fn sum_exp<S: Simd, T: Stored>(x: *const T, width: usize, largest: f32) -> f32 {
    // SAFETY: `width` elements lie at `x`.
    unsafe {
        let (mut sums, shift) = ([S::splat(0.0); 2], S::splat(largest));
        let mut at = 0;
        while at + 2 * S::LANES <= width {
            for (i, sum) in sums.iter_mut().enumerate() {
                let value = T::load::<S>(x.add(at + i * S::LANES));
                *sum = S::add(*sum, S::exp_negative(S::sub(value, shift)));
            }
            at += 2 * S::LANES;
        }
        let mut sum = S::sum(S::add(sums[0], sums[1]));
        while at < width {
            sum += exp_one::<S>(x.add(at).read().to_f32() - largest);
            at += 1;
        }
        sum
    }
}

/// One exponential as the vectors compute it.
#[inline(always)]
pub(crate) unsafe fn exp_one<S: Simd>(x: f32) -> f32 {
    // SAFETY: the caller has the instruction set; one lane is stored of the vector.
    unsafe {
        let mut out = 0.0;
        S::store_first(&mut out, S::exp_negative(S::splat(x)), 1);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{Random, assert_close, dense, on_every_path, sized};
    use pteron_tensor::DType;

    fn run(
        path: Path,
        x: &[f32],
        width: usize,
        f: fn(&Pool, Path, &mut ViewMut<'_>, &View<'_>),
        last: usize,
    ) -> Vec<f32> {
        let rows = x.len().checked_div(width).unwrap_or(2);
        let (from, to) = ([rows, width], [rows, last]);
        let mut out = vec![0f32; rows * last];
        let strides = [dense(&from), dense(&to)];
        let bytes = bytemuck::cast_slice_mut(&mut out);
        f(
            &Pool::new(2),
            path,
            &mut ViewMut::new(bytes, DType::F32, 0, &to, &strides[1]).unwrap(),
            &View::new(bytemuck::cast_slice(x), DType::F32, 0, &from, &strides[0]).unwrap(),
        );
        out
    }

    #[test]
    fn rows_equal_the_formula() {
        let mut random = Random::new(1);
        on_every_path(|path| {
            for width in [1, 5, 16, 33, 100, sized(4097, 260)] {
                let x: Vec<f32> = random.floats(3 * width).iter().map(|x| x * 30.0).collect();
                let sums: Vec<f64> =
                    x.chunks(width).map(|row| row.iter().map(|&x| f64::from(x).exp()).sum()).collect();
                let want: Vec<f64> =
                    x.iter().enumerate().map(|(i, &x)| f64::from(x).exp() / sums[i / width]).collect();
                assert_close(
                    &run(path, &x, width, softmax, width),
                    &want,
                    3e-6,
                    1e-30,
                    &format!("{width} {path}"),
                );
                let want: Vec<f64> = sums.iter().map(|sum| sum.ln()).collect();
                assert_close(
                    &run(path, &x, width, log_sum_exp, 1),
                    &want,
                    1e-6,
                    1e-6,
                    &format!("{width} {path}"),
                );
            }
        });
    }

    #[test]
    fn special_rows() {
        const INF: f32 = f32::INFINITY;
        on_every_path(|path| {
            let x = [-INF, -INF, 0.0, -INF, f32::NAN, 1.0, INF, 1.0];
            let got = run(path, &x, 2, softmax, 2);
            assert!(
                got[0].is_nan() && got[2..4] == [1.0, 0.0] && got[4].is_nan() && got[6].is_nan(),
                "{got:?}"
            );
            let got = run(path, &x, 2, log_sum_exp, 1);
            assert!(got[0] == -INF && got[1] == 0.0 && got[2].is_nan() && got[3] == INF, "{got:?}");
            assert_eq!(run(path, &[], 0, log_sum_exp, 1), [-INF, -INF]);
        });
    }
}
