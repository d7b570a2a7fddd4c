//! Rotary position embedding: pairs of features turn by an angle that grows with the position. Angles are f32
//! products, as in the models that were exported; their sines and cosines come from a table that the caller keeps
//! for as long as positions last (all layers of a step share one).

use crate::elementwise::walk::Walk;
use crate::path::Path;
use crate::pool::Pool;
use crate::rows::with_float;
use crate::simd::{Kernel, Simd, Stored, on};
use crate::split::in_parts;
use crate::view::{View, ViewMut};

/// Radians that each pair of features turns by per position: `base^(-2i / dims)`, or 1 over the given periods.
pub fn inverse_periods(dims: usize, base: f32, periods: Option<&[f32]>, out: &mut [f32]) {
    for (i, out) in out.iter_mut().enumerate().take(dims / 2) {
        *out = match periods {
            Some(periods) => 1.0 / periods[i],
            None => f64::from(base).powf(-2.0 * i as f64 / dims as f64) as f32,
        };
    }
}

/// Cosine and sine of every position and pair: `table[t]` is the cosines of all pairs, then their sines, for
/// position `first + t`. The table's length says how many positions.
///
/// # Panics
/// When the table is no whole number of positions.
pub fn turns(first: i64, scale: f32, inverse: &[f32], table: &mut [f32]) {
    let pairs = inverse.len();
    if pairs == 0 {
        return;
    }
    assert!(table.len().is_multiple_of(2 * pairs), "a table of whole positions");
    for (t, row) in table.chunks_exact_mut(2 * pairs).enumerate() {
        let position = first.wrapping_add(t as i64) as f32 * scale;
        let (cos, sin) = row.split_at_mut(pairs);
        for ((cos, sin), inverse) in cos.iter_mut().zip(sin).zip(inverse) {
            let (s, c) = f64::from(position * inverse).sin_cos();
            (*cos, *sin) = (c as f32, s as f32);
        }
    }
}

/// How pairs lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Feature i with feature i + dims / 2.
    Halves,
    /// Feature 2i with feature 2i + 1.
    Neighbours,
}

/// Turns the first `dims` features of `x` and copies the others. Positions run along the last axis but one, and the
/// table (see [`turns`]) has one row each; where batch rows (axis 0) have positions of their own, it has exactly
/// theirs, one after another. The output may be the very elements of `x`, or part of a cache.
///
/// # Panics
/// When sizes or dtypes differ, rows are not dense, there are fewer than two axes, or the table is too short.
pub fn rope(
    pool: &Pool,
    path: Path,
    out: &mut ViewMut<'_>,
    x: &View<'_>,
    dims: usize,
    pairs: Pairs,
    table: &[f32],
) {
    assert!(out.sizes() == x.sizes() && out.dtype() == x.dtype());
    assert!(out.has_dense_rows() && x.has_dense_rows(), "rows must be dense");
    let rank = x.sizes().len();
    assert!(rank >= 2, "positions and features need an axis each");
    if x.is_empty() {
        return;
    }
    let (length, features) = (x.sizes()[rank - 2], x.sizes()[rank - 1]);
    assert!(dims <= features);
    let (half, width) = (dims / 2, dims / 2 * 2);
    let per_batch = if rank > 2 { x.len() / features / x.sizes()[0] } else { x.len() / features };
    let own = rank > 2 && half > 0 && x.sizes()[0] > 1 && table.len() == x.sizes()[0] * length * width;
    assert!(table.len() >= length * width, "the table has too few positions");
    let walk = Walk::new(&x.sizes()[..rank - 1], &[&out.strides()[..rank - 1], &x.strides()[..rank - 1]]);
    with_float!(x.dtype(), T => in_parts(pool, x.len() / features, 1, features / 4 + 4, &|range| {
        let mut cursor = walk.cursor(range.start);
        for row in range {
            let batch = if own { row / per_batch } else { 0 };
            let turn = &table[(batch * length + row % length) * width..][..width];
            // SAFETY: the rows lie in their views, which are dense along them; rows of the output are disjoint.
            unsafe {
                on(path, Turn {
                    x: x.data().cast::<T>().offset(cursor.offset(1)),
                    out: out.data().cast::<T>().offset(cursor.offset(0)),
                    cos: turn.as_ptr(),
                    sin: turn.as_ptr().add(half),
                    half,
                    features,
                    pairs,
                });
            }
            cursor.advance(1);
        }
    }));
}

struct Turn<T> {
    x: *const T,
    out: *mut T,
    cos: *const f32,
    sin: *const f32,
    half: usize,
    features: usize,
    pairs: Pairs,
}

impl<T: Stored> Kernel for Turn<T> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Turn { x, out, cos, sin, half, features, pairs } = self;
        // SAFETY: a row lies at both pointers, half of the turned features at the others; both features of a pair
        // are read before either is written.
        unsafe {
            let mut i = 0;
            while pairs == Pairs::Halves && i + S::LANES <= half {
                let (a, b) = (T::load::<S>(x.add(i)), T::load::<S>(x.add(half + i)));
                let (c, s) = (S::load(cos.add(i)), S::load(sin.add(i)));
                T::store::<S>(out.add(i), S::sub(S::mul(a, c), S::mul(b, s)));
                T::store::<S>(out.add(half + i), S::fma(a, s, S::mul(b, c)));
                i += S::LANES;
            }
            while i < half {
                let (first, second) = match pairs {
                    Pairs::Halves => (i, half + i),
                    Pairs::Neighbours => (2 * i, 2 * i + 1),
                };
                let (a, b) = (x.add(first).read().to_f32(), x.add(second).read().to_f32());
                let (c, s) = (cos.add(i).read(), sin.add(i).read());
                out.add(first).write(T::from_f32(a * c - b * s));
                out.add(second).write(T::from_f32(a * s + b * c));
                i += 1;
            }
            for i in 2 * half..features {
                out.add(i).write(x.add(i).read());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{Random, assert_close, dense, on_every_path};
    use pteron_tensor::DType;

    #[test]
    fn features_turn_as_the_formula_says() {
        let mut random = Random::new(1);
        on_every_path(|path| {
            for (pairs, dims, features) in [
                (Pairs::Halves, 64, 64),
                (Pairs::Halves, 6, 9),
                (Pairs::Neighbours, 64, 80),
                (Pairs::Neighbours, 4, 4),
                (Pairs::Halves, 0, 5),
            ] {
                let sizes = [2, 3, 5, features];
                let strides = dense(&sizes);
                let x = random.floats(sizes.iter().product());
                let mut inverse = vec![0.0; dims / 2];
                inverse_periods(dims, 10000.0, None, &mut inverse);
                // Each batch row has its own positions.
                let mut table = vec![0.0; 2 * 5 * dims];
                let (first, second) = table.split_at_mut(5 * dims);
                turns(7, 0.5, &inverse, first);
                turns(900, 0.5, &inverse, second);
                let mut out = vec![0f32; x.len()];
                rope(
                    &Pool::new(2),
                    path,
                    &mut ViewMut::new(bytemuck::cast_slice_mut(&mut out), DType::F32, 0, &sizes, &strides)
                        .unwrap(),
                    &View::new(bytemuck::cast_slice(&x), DType::F32, 0, &sizes, &strides).unwrap(),
                    dims,
                    pairs,
                    &table,
                );
                let want: Vec<f64> = (0..x.len())
                    .map(|at| {
                        let (feature, row) = (at % features, at / features);
                        let position = [7, 900][row / 15] + row % 5;
                        let (i, is_first, other) = match pairs {
                            _ if feature >= dims => return x[at].into(),
                            Pairs::Halves if feature < dims / 2 => (feature, true, at + dims / 2),
                            Pairs::Halves => (feature - dims / 2, false, at - dims / 2),
                            Pairs::Neighbours => (feature / 2, feature % 2 == 0, at ^ 1),
                        };
                        let other = if pairs == Pairs::Neighbours {
                            if is_first { at + 1 } else { at - 1 }
                        } else {
                            other
                        };
                        let angle = f64::from(position as f32 * 0.5 * inverse[i]);
                        let (own, other) = (f64::from(x[at]), f64::from(x[other]));
                        if is_first {
                            own * angle.cos() - other * angle.sin()
                        } else {
                            other * angle.sin() + own * angle.cos()
                        }
                    })
                    .collect();
                assert_close(&out, &want, 1e-6, 3e-7, &format!("{pairs:?} {dims} {path}"));
            }
        });
    }
}
