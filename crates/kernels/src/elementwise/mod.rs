//! Ops that compute each element of the result from the elements at the same place of their operands, alone or
//! chained: a [`Chain`] runs several of them over blocks that stay in the nearest cache, so that a fused chain
//! costs one pass over memory. Loops are picked when a chain is built; running one is a few indirect calls a block.

mod binary;
mod build;
mod chain;
mod lane;
mod math;
mod run;
#[cfg(test)]
mod tests;
mod unary;
pub(crate) mod walk;

pub use binary::BinaryOp;
pub use build::{ChainBuilder, Value};
pub use chain::Chain;
pub use unary::UnaryOp;

use crate::path::Path;
use pteron_tensor::DType;

impl Chain {
    /// One op of one operand that is first converted to `dtype`. LogicalNot gives bool, the others `dtype`. `None`
    /// where the op has no meaning for it.
    pub fn unary(op: UnaryOp, input: DType, dtype: DType, path: Path) -> Option<Chain> {
        let mut chain = ChainBuilder::new(path);
        let x = chain.input(input)?;
        let x = chain.cast(x, dtype)?;
        let result = chain.unary(op, x)?;
        chain.finish(result)
    }

    /// Rounding to a number of decimals, halves to even.
    pub fn round(input: DType, decimals: i32, path: Path) -> Option<Chain> {
        let mut chain = ChainBuilder::new(path);
        let x = chain.input(input)?;
        let result = chain.round(x, decimals)?;
        chain.finish(result)
    }

    /// One op of two operands that are first converted to `dtype`, in which it computes. Comparisons and logical
    /// ops give bool, the others `dtype`.
    pub fn binary(op: BinaryOp, inputs: [DType; 2], dtype: DType, path: Path) -> Option<Chain> {
        let mut chain = ChainBuilder::new(path);
        let (a, b) = (chain.input(inputs[0])?, chain.input(inputs[1])?);
        let (a, b) = (chain.cast(a, dtype)?, chain.cast(b, dtype)?);
        let result = chain.binary(op, a, b)?;
        chain.finish(result)
    }

    /// Where the first operand is true the second, else the third, both converted to `dtype`.
    pub fn select(inputs: [DType; 3], dtype: DType, path: Path) -> Option<Chain> {
        let mut chain = ChainBuilder::new(path);
        let condition = chain.input(inputs[0])?;
        let (x, y) = (chain.input(inputs[1])?, chain.input(inputs[2])?);
        let (x, y) = (chain.cast(x, dtype)?, chain.cast(y, dtype)?);
        let result = chain.select(condition, x, y)?;
        chain.finish(result)
    }

    /// One tensor converted: integers wrap, floats truncate and saturate on the way to integers, anything but zero
    /// is true.
    pub fn cast(from: DType, to: DType, path: Path) -> Option<Chain> {
        let mut chain = ChainBuilder::new(path);
        let x = chain.input(from)?;
        let result = chain.cast(x, to)?;
        chain.finish(result)
    }
}
