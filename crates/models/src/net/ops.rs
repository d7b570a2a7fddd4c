//! The ops that models are made of, by what they are called on paper.

use pteron_ir::op::{FloatArg, IndexArg, IntArg};
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::Net;
use crate::ModelError;

/// An integer value as an argument.
pub(crate) fn value(value: ValueId) -> IntArg<ValueId> {
    IntArg::Value(value)
}

/// A plain number as an argument.
pub(crate) fn literal(number: usize) -> IntArg<ValueId> {
    IntArg::Literal(number as i64)
}

impl Net {
    /// `a + b`.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, ModelError> {
        self.op(Op::Add { a, b })
    }

    /// `a * b`.
    pub fn multiply(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, ModelError> {
        self.op(Op::Multiply { a, b })
    }

    /// `x` times a number, which is rounded to `x`'s dtype first.
    pub fn scaled(&mut self, x: ValueId, factor: f32) -> Result<ValueId, ModelError> {
        if factor == 1.0 {
            return Ok(x);
        }
        let factor = self.scalar(factor, self.dtype(x).unwrap_or(DType::F32));
        self.multiply(x, factor)
    }

    /// `x` in another dtype; itself where it has that.
    pub fn cast(&mut self, x: ValueId, dtype: DType) -> Result<ValueId, ModelError> {
        if self.dtype(x) == Some(dtype) { Ok(x) } else { self.op(Op::AsType { x, scalar_type: dtype }) }
    }

    /// The same elements as `[1, T, ...sizes]`.
    pub fn split_tokens(&mut self, x: ValueId, sizes: &[usize]) -> Result<ValueId, ModelError> {
        let mut shape = vec![literal(1), value(self.length())];
        shape.extend(sizes.iter().map(|&size| literal(size)));
        self.op(Op::Reshape { x, shape })
    }

    /// Swaps the axes of tokens and heads.
    pub fn swap_heads(&mut self, x: ValueId) -> Result<ValueId, ModelError> {
        self.op(Op::Transpose { x, perm: vec![0, 2, 1, 3] })
    }

    /// One slice of an axis, without that axis.
    pub fn pick(&mut self, x: ValueId, index: i64, axis: i32) -> Result<ValueId, ModelError> {
        self.op(Op::Take { x, index: IndexArg::Literal(index), axis })
    }

    /// Rows by token.
    pub fn rows(&mut self, x: ValueId, tokens: ValueId) -> Result<ValueId, ModelError> {
        self.op(Op::Take { x, index: IndexArg::Tensor(tokens), axis: 0 })
    }

    /// Slices of axis 1 by their numbers.
    pub(crate) fn take_rows(&mut self, x: ValueId, numbers: ValueId) -> Result<ValueId, ModelError> {
        self.op(Op::Take { x, index: IndexArg::Tensor(numbers), axis: 1 })
    }

    pub(crate) fn add_int(&mut self, a: IntArg<ValueId>, b: IntArg<ValueId>) -> Result<ValueId, ModelError> {
        self.op(Op::AddInt { a, b })
    }

    pub(crate) fn subtract_int(
        &mut self,
        a: IntArg<ValueId>,
        b: IntArg<ValueId>,
    ) -> Result<ValueId, ModelError> {
        self.op(Op::SubtractInt { a, b })
    }

    /// The whole numbers below a bound.
    pub(crate) fn range(&mut self, stop: IntArg<ValueId>) -> Result<ValueId, ModelError> {
        self.op(Op::ARange { start: literal(0), stop, step: literal(1), scalar_type: Some(DType::I64) })
    }

    /// The positions of the tokens, `[T]`.
    pub(crate) fn positions(&mut self) -> Result<ValueId, ModelError> {
        if self.has_each_position() {
            return self.input_pos();
        }
        self.once("positions", |net| {
            let tokens = net.range(value(net.length()))?;
            let first = net.input_pos()?;
            net.add(tokens, first)
        })
    }

    /// An integer of the graph as a tensor of rank 0.
    pub(crate) fn int_tensor(&mut self, number: ValueId) -> Result<ValueId, ModelError> {
        self.op(Op::Full { shape: vec![], v: FloatArg::Value(number), scalar_type: DType::I64 })
    }
}
