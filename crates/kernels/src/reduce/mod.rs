//! Folding axes: sums, products, means, variances, extremes, truth, and where extremes lie. Floats are added in f64,
//! integers wrap. Where the dense axis folds, runs of elements become one number each; where it stays, rows are folded
//! into each other, column by column.

mod fold;
mod lanes;
mod running;
#[cfg(test)]
mod tests;

pub use running::{Cumulative, cumsum};

use crate::path::Path;
use crate::pool::Pool;
use crate::view::{MAX_RANK, View, ViewMut};
use fold::{Folding, Kind};
use pteron_tensor::DType;

/// What elements that fold together become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReduceOp {
    /// The sum; integers wrap.
    Sum,
    /// The product.
    Prod,
    /// The sum over the count; of floats.
    Mean,
    /// The mean squared distance from the mean, over the count less `ddof`; of floats.
    Var {
        /// What is taken off the count.
        ddof: i32,
    },
    /// The root of [`ReduceOp::Var`].
    Std {
        /// What is taken off the count.
        ddof: i32,
    },
    /// The largest; NaN wins.
    Max,
    /// The smallest; NaN wins.
    Min,
    /// Whether any is not zero.
    Any,
    /// Whether none is zero.
    All,
    /// Index of the first largest along one axis; the first NaN wins.
    Argmax,
    /// Index of the first smallest along one axis; the first NaN wins.
    Argmin,
}

/// There is no element to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty;

impl std::fmt::Display for Empty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("there is no element to choose")
    }
}

impl std::error::Error for Empty {}

/// A reduction for given dtypes, planned once.
#[derive(Clone, Debug)]
pub struct Reduce {
    folding: Folding,
    input: DType,
    output: DType,
}

impl Reduce {
    /// Folds elements of `input`; results are rounded or wrapped to `output` (bool for `Any` and `All`, u32 for
    /// indices). `None` for f64, or where the op needs floats and has none: convert them first.
    pub fn new(op: ReduceOp, input: DType, output: DType, path: Path) -> Option<Reduce> {
        Some(Reduce { folding: Folding::new(op, input, output, path)?, input, output })
    }

    /// Computes the result, whose sizes are those of `x` with 1 along the axes that fold.
    ///
    /// # Errors
    /// When an extreme is asked of no element.
    ///
    /// # Panics
    /// When dtypes are not those planned for, or sizes do not fit; an index folds a single axis.
    pub fn run(&self, pool: &Pool, out: &mut ViewMut<'_>, x: &View<'_>) -> Result<(), Empty> {
        assert!(x.dtype() == self.input && out.dtype() == self.output);
        let rank = x.sizes().len();
        assert_eq!(out.sizes().len(), rank);
        let mut kept = Axes::default();
        let mut folded = Axes::default();
        for axis in 0..rank {
            let size = x.sizes()[axis];
            if out.sizes()[axis] == size {
                kept.push(size, x.strides()[axis], out.strides()[axis]);
            } else {
                assert_eq!(out.sizes()[axis], 1, "an axis folds to 1 or stays");
                folded.push(size, x.strides()[axis], 0);
            }
        }
        if out.is_empty() {
            return Ok(());
        }
        if folded.count() == 0 && matches!(self.folding.kind(), Kind::Choice | Kind::Index) {
            return Err(Empty);
        }
        assert!(self.folding.kind() != Kind::Index || folded.len <= 1, "an index folds one axis");
        self.folding.run(pool, out, x, &kept, &folded);
        Ok(())
    }
}

/// Axes in a list without a heap: sizes, and strides of the input and the output.
#[derive(Clone, Copy, Debug, Default)]
struct Axes {
    sizes: [usize; MAX_RANK],
    from: [isize; MAX_RANK],
    to: [isize; MAX_RANK],
    len: usize,
}

impl Axes {
    fn push(&mut self, size: usize, from: isize, to: isize) {
        if size == 1 {
            return;
        }
        (self.sizes[self.len], self.from[self.len], self.to[self.len]) = (size, from, to);
        self.len += 1;
    }

    fn count(&self) -> usize {
        self.sizes[..self.len].iter().product()
    }
}
