//! What becomes of the sums of a product or a convolution on their way to memory: a bias, a residual sum, bounds (ReLU, ReLU6) while
//! they are in registers, and whatever else a caller does to rows while they are in a near cache. In f32 each step rounds as the
//! op that it stands for, so that the numbers are those of separate passes.

use crate::simd::Simd;
use std::ops::Range;

/// Rows and columns of the output that a task has written and nobody else touches.
pub type Then<'a> = &'a (dyn Fn(Range<usize>, Range<usize>) + Sync);

/// Steps behind a sum, in this order. The output is seen as rows of all its columns: positions and filters of a convolution.
#[derive(Clone, Copy, Default)]
pub struct Epilogue<'a> {
    /// Added to every row: an element a column.
    pub bias: Option<&'a [f32]>,
    /// Added next: as many elements as the output has, in its order.
    pub residual: Option<&'a [f32]>,
    /// What is less becomes this; NaN stays. It is no NaN itself.
    pub low: Option<f32>,
    /// What is more becomes this; NaN stays. It is no NaN itself.
    pub high: Option<f32>,
    /// Called for every part of the output, once, when it is written.
    pub then: Option<Then<'a>>,
}

impl std::fmt::Debug for Epilogue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Epilogue { bias, residual, low, high, then } = self;
        let (bias, residual, then) = (bias.is_some(), residual.is_some(), then.is_some());
        write!(f, "Epilogue {{ bias: {bias}, residual: {residual}, {low:?}..{high:?}, then: {then} }}")
    }
}

impl Epilogue<'_> {
    /// Whether sums go to memory as they are.
    pub fn is_none(&self) -> bool {
        let Epilogue { bias, residual, low, high, then } = self;
        bias.is_none() && residual.is_none() && low.is_none() && high.is_none() && then.is_none()
    }

    /// Holds the lists against an output.
    ///
    /// # Panics
    /// When one is too short or long, or a bound is NaN.
    pub(crate) fn check(&self, rows: usize, columns: usize) {
        assert!(self.bias.is_none_or(|bias| bias.len() == columns), "a bias has an element a column");
        assert!(self.residual.is_none_or(|list| list.len() == rows * columns), "a residual is an output");
        assert!([self.low, self.high].iter().flatten().all(|bound| !bound.is_nan()), "a bound is a number");
    }

    /// The steps for `count` neighbours of a row, but for the last; `at` is the first one's place in the output.
    ///
    /// # Safety
    /// The instruction set of `S` is there; the columns and the place are those of an output that was checked.
    #[inline(always)]
    pub(crate) unsafe fn apply<S: Simd>(
        &self,
        mut value: S::F,
        column: usize,
        at: usize,
        count: usize,
    ) -> S::F {
        // SAFETY: the caller's promise.
        unsafe {
            let some = |list: &[f32], at: usize| match count == S::LANES {
                true => S::load(list.as_ptr().add(at)),
                false => S::load_first(list.as_ptr().add(at), count),
            };
            if let Some(bias) = self.bias {
                value = S::add(value, some(bias, column));
            }
            if let Some(residual) = self.residual {
                value = S::add(value, some(residual, at));
            }
            if let Some(low) = self.low {
                value = S::at_least(value, S::splat(low));
            }
            if let Some(high) = self.high {
                value = S::at_most(value, S::splat(high));
            }
            value
        }
    }

    /// The same for one element.
    pub(crate) fn apply_one(&self, mut value: f32, column: usize, at: usize) -> f32 {
        value = self.bias.map_or(value, |bias| value + bias[column]);
        value = self.residual.map_or(value, |residual| value + residual[at]);
        value = self.low.map_or(value, |low| if value > low || value.is_nan() { value } else { low });
        self.high.map_or(value, |high| if value < high || value.is_nan() { value } else { high })
    }
}
