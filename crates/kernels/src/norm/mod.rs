//! Norms over the last axis: sums in f32 lanes, results rounded once. Each row is read twice and written once; at the
//! sizes of models the second read comes from the nearest cache.

#[cfg(test)]
mod tests;

use crate::path::Path;
use crate::pool::Pool;
use crate::rows::{each_row, outer, with_float};
use crate::simd::{Kernel, Simd, Stored, on};
use crate::view::{View, ViewMut};

/// `x / sqrt(mean(x^2) + eps) * weight`, row by row. The weight is dense along its one axis and may have another
/// dtype than `x` and the output. The output may be the very elements of `x`.
///
/// # Panics
/// When sizes differ, the last axis of a tensor is not dense, or a dtype is no float of at most 32 bits.
pub fn rms_norm(
    pool: &Pool,
    path: Path,
    out: &mut ViewMut<'_>,
    x: &View<'_>,
    weight: Option<&View<'_>>,
    eps: f32,
) {
    assert_eq!(out.sizes(), x.sizes());
    let width = width_of(x);
    check(width, &[&out.as_view(), x], weight);
    if out.is_empty() {
        return;
    }
    let floats = weight.map_or(x.dtype(), View::dtype);
    let strides = [outer(out.strides()), outer(x.strides())];
    with_float!(x.dtype(), X => with_float!(floats, W => with_float!(out.dtype(), O => {
        each_row(pool, outer(x.sizes()), strides, width / 8 + 20, &|[to, from]| {
            // SAFETY: the rows lie in their views, which are dense along them; rows of the output are disjoint.
            unsafe {
                let from = x.data().cast::<X>().offset(from);
                on(path, RmsNorm {
                    x: from,
                    scaled: Scaled {
                        x: from,
                        out: out.data().cast::<O>().offset(to),
                        weight: weight.map(|weight| weight.data().cast::<W>()),
                        bias: None::<*const W>,
                        width,
                    },
                    eps,
                });
            }
        });
    })));
}

/// `sum = x + residual`, rounded to its dtype, and `out = rms_norm(sum)` in one pass. `sum` may be the very elements
/// of `x` or `residual`.
///
/// # Panics
/// As [`rms_norm`]; `sum`, `x` and `residual` have one dtype.
#[allow(clippy::too_many_arguments)] // two results and three operands
pub fn add_rms_norm(
    pool: &Pool,
    path: Path,
    sum: &mut ViewMut<'_>,
    out: &mut ViewMut<'_>,
    x: &View<'_>,
    residual: &View<'_>,
    weight: Option<&View<'_>>,
    eps: f32,
) {
    assert!(out.sizes() == x.sizes() && sum.sizes() == x.sizes() && residual.sizes() == x.sizes());
    assert!(x.dtype() == residual.dtype() && x.dtype() == sum.dtype());
    let width = width_of(x);
    check(width, &[&out.as_view(), &sum.as_view(), x, residual], weight);
    if out.is_empty() {
        return;
    }
    let floats = weight.map_or(x.dtype(), View::dtype);
    let strides = [outer(out.strides()), outer(sum.strides()), outer(x.strides()), outer(residual.strides())];
    with_float!(x.dtype(), X => with_float!(floats, W => with_float!(out.dtype(), O => {
        each_row(pool, outer(x.sizes()), strides, width / 6 + 20, &|[to, kept, a, b]| {
            // SAFETY: as in `rms_norm`.
            unsafe {
                let kept = sum.data().cast::<X>().offset(kept);
                on(path, AddRmsNorm {
                    a: x.data().cast::<X>().offset(a),
                    b: residual.data().cast::<X>().offset(b),
                    sum: kept,
                    scaled: Scaled {
                        x: kept.cast_const(),
                        out: out.data().cast::<O>().offset(to),
                        weight: weight.map(|weight| weight.data().cast::<W>()),
                        bias: None::<*const W>,
                        width,
                    },
                    eps,
                });
            }
        });
    })));
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias`, row by row, with the variance about the mean. Weight and
/// bias are dense along their one axis and have one dtype.
///
/// # Panics
/// As [`rms_norm`], and when weight and bias differ in dtype.
pub fn layer_norm(
    pool: &Pool,
    path: Path,
    out: &mut ViewMut<'_>,
    x: &View<'_>,
    weight: Option<&View<'_>>,
    bias: Option<&View<'_>>,
    eps: f32,
) {
    assert_eq!(out.sizes(), x.sizes());
    let width = width_of(x);
    check(width, &[&out.as_view(), x], weight);
    check(width, &[], bias);
    let floats = weight.or(bias).map_or(x.dtype(), View::dtype);
    assert!([weight, bias].into_iter().flatten().all(|factor| factor.dtype() == floats));
    if out.is_empty() {
        return;
    }
    let strides = [outer(out.strides()), outer(x.strides())];
    with_float!(x.dtype(), X => with_float!(floats, W => with_float!(out.dtype(), O => {
        each_row(pool, outer(x.sizes()), strides, width / 5 + 20, &|[to, from]| {
            // SAFETY: as in `rms_norm`.
            unsafe {
                let from = x.data().cast::<X>().offset(from);
                on(path, LayerNorm {
                    scaled: Scaled {
                        x: from,
                        out: out.data().cast::<O>().offset(to),
                        weight: weight.map(|weight| weight.data().cast::<W>()),
                        bias: bias.map(|bias| bias.data().cast::<W>()),
                        width,
                    },
                    eps,
                });
            }
        });
    })));
}

fn width_of(x: &View<'_>) -> usize {
    x.sizes().last().copied().unwrap_or(1)
}

fn check(width: usize, rows: &[&View<'_>], factor: Option<&View<'_>>) {
    assert!(rows.iter().all(|view| view.has_dense_rows()), "rows must be dense");
    if let Some(factor) = factor {
        assert!(
            factor.sizes() == [width] && factor.is_contiguous(),
            "a factor for each feature, side by side"
        );
    }
}

/// The last pass of every norm: `out = (x - mean) * scale * weight + bias`.
struct Scaled<X, W, O> {
    x: *const X,
    out: *mut O,
    weight: Option<*const W>,
    bias: Option<*const W>,
    width: usize,
}

impl<X: Stored, W: Stored, O: Stored> Scaled<X, W, O> {
    /// # Safety
    /// `width` elements lie at every pointer, and the instruction set of `S` is there.
    #[inline(always)]
    unsafe fn run<S: Simd>(self, mean: f32, scale: f32) {
        // SAFETY: the caller's promise; the loop leaves the last, incomplete vector to the one behind it.
        unsafe {
            let (means, scales) = (S::splat(mean), S::splat(scale));
            let mut at = 0;
            while at + S::LANES <= self.width {
                let mut value = S::mul(S::sub(X::load::<S>(self.x.add(at)), means), scales);
                if let Some(weight) = self.weight {
                    value = S::mul(value, W::load::<S>(weight.add(at)));
                }
                if let Some(bias) = self.bias {
                    value = S::add(value, W::load::<S>(bias.add(at)));
                }
                O::store::<S>(self.out.add(at), value);
                at += S::LANES;
            }
            while at < self.width {
                let mut value = (self.x.add(at).read().to_f32() - mean) * scale;
                if let Some(weight) = self.weight {
                    value *= weight.add(at).read().to_f32();
                }
                if let Some(bias) = self.bias {
                    value += bias.add(at).read().to_f32();
                }
                self.out.add(at).write(O::from_f32(value));
                at += 1;
            }
        }
    }
}

/// The sum of `f` over a row: four vectors of running sums.
///
/// # Safety
/// `width` elements lie at `x`, and the instruction set of `S` is there.
#[inline(always)]
unsafe fn sum_of<S: Simd, X: Stored>(
    x: *const X,
    width: usize,
    vector: impl Fn(S::F, S::F) -> S::F,
    scalar: impl Fn(f32) -> f32,
) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [S::splat(0.0); 4];
        let mut at = 0;
        while at + 4 * S::LANES <= width {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = vector(X::load::<S>(x.add(at + i * S::LANES)), *sum);
            }
            at += 4 * S::LANES;
        }
        while at + S::LANES <= width {
            sums[0] = vector(X::load::<S>(x.add(at)), sums[0]);
            at += S::LANES;
        }
        let mut sum = S::sum(S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3])));
        while at < width {
            sum += scalar(x.add(at).read().to_f32());
            at += 1;
        }
        sum
    }
}

struct RmsNorm<X, W, O> {
    x: *const X,
    scaled: Scaled<X, W, O>,
    eps: f32,
}

impl<X: Stored, W: Stored, O: Stored> Kernel for RmsNorm<X, W, O> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let width = self.scaled.width;
        // SAFETY: the row lies at the pointers, as whoever made this kernel says.
        unsafe {
            let square = sum_of::<S, X>(self.x, width, |x, sum| S::fma(x, x, sum), |x| x * x);
            self.scaled.run::<S>(0.0, 1.0 / (square / width as f32 + self.eps).sqrt());
        }
    }
}

struct AddRmsNorm<X, W, O> {
    a: *const X,
    b: *const X,
    sum: *mut X,
    scaled: Scaled<X, W, O>,
    eps: f32,
}

impl<X: Stored, W: Stored, O: Stored> Kernel for AddRmsNorm<X, W, O> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let width = self.scaled.width;
        // SAFETY: the rows lie at the pointers, as whoever made this kernel says; a vector of the sum is written
        // after the same elements of both operands were read.
        unsafe {
            let mut at = 0;
            while at + S::LANES <= width {
                let sum = S::add(X::load::<S>(self.a.add(at)), X::load::<S>(self.b.add(at)));
                X::store::<S>(self.sum.add(at), sum);
                at += S::LANES;
            }
            while at < width {
                let sum = self.a.add(at).read().to_f32() + self.b.add(at).read().to_f32();
                self.sum.add(at).write(X::from_f32(sum));
                at += 1;
            }
            RmsNorm { x: self.sum.cast_const(), scaled: self.scaled, eps: self.eps }.run::<S>();
        }
    }
}

struct LayerNorm<X, W, O> {
    scaled: Scaled<X, W, O>,
    eps: f32,
}

impl<X: Stored, W: Stored, O: Stored> Kernel for LayerNorm<X, W, O> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (x, width) = (self.scaled.x, self.scaled.width);
        // SAFETY: the row lies at the pointers, as whoever made this kernel says.
        unsafe {
            let mean = sum_of::<S, X>(x, width, |x, sum| S::add(x, sum), |x| x) / width as f32;
            let means = S::splat(mean);
            let square = sum_of::<S, X>(
                x,
                width,
                |x, sum| {
                    let distance = S::sub(x, means);
                    S::fma(distance, distance, sum)
                },
                |x| (x - mean) * (x - mean),
            );
            self.scaled.run::<S>(mean, 1.0 / (square / width as f32 + self.eps).sqrt());
        }
    }
}
