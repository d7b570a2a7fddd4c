//! Codes and the numbers that they stand for. Scales and zero points are numbers of the file, tensors, or found at run time.

use pteron_ir::op::IntArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::arguments::axis_of;
use super::elements::clip;
use super::{Call, Given, Lifter, Table, one};
use crate::draft::{Part, Step, problem, small};

pub(super) const TABLE: Table = &[
    ("quantized_decomposed.quantize_per_tensor.default", quantize),
    ("quantized_decomposed.quantize_per_tensor.tensor", quantize),
    ("quantized_decomposed.quantize_per_token.default", quantize),
    ("quantized_decomposed.dequantize_per_tensor.default", dequantize),
    ("quantized_decomposed.dequantize_per_tensor.tensor", dequantize),
    ("quantized_decomposed.dequantize_per_token.default", dequantize),
    ("quantized_decomposed.quantize_per_channel.default", |l, call| {
        let x = l.tensor(call, 0)?;
        let (scale, zero) = l.by_axis(call, x)?;
        let range = (l.float(call, 4)?, l.float(call, 5)?);
        one(l.codes(x, scale, zero, range)?)
    }),
    ("quantized_decomposed.dequantize_per_channel.default", |l, call| {
        let x = l.tensor(call, 0)?;
        let (scale, zero) = l.by_axis(call, x)?;
        one(l.numbers(x, scale, zero)?)
    }),
    ("torchao.quantize_affine.default", |l, call| {
        let x = l.tensor(call, 0)?;
        let (scale, zero) = l.by_block(call, x)?;
        let range = (l.float(call, 5)?, l.float(call, 6)?);
        one(l.codes(x, scale, zero, range)?)
    }),
    ("torchao.dequantize_affine.default", |l, call| {
        let x = l.tensor(call, 0)?;
        let (scale, zero) = l.by_block(call, x)?;
        one(l.numbers(x, scale, zero)?)
    }),
    ("quantized_decomposed.choose_qparams.tensor", |l, call| {
        let x = l.tensor(call, 0)?;
        let (range, eps) = ((l.float(call, 1)?, l.float(call, 2)?), l.float(call, 3)?);
        let (scale, zero) = l.chosen(x, None, (range, eps), false)?;
        let flat = |l: &mut Lifter<'_>, x| l.emit(Op::Reshape { x, shape: vec![IntArg::Literal(1)] });
        Ok(Given::Tensors(vec![flat(l, scale)?, flat(l, zero)?]))
    }),
    ("quantized_decomposed.choose_qparams_per_token_asymmetric.default", |l, call| {
        let x = l.tensor(call, 0)?;
        let (scale, zero) = l.chosen(x, Some(vec![-1]), ((-128.0, 127.0), f64::from(f32::EPSILON)), true)?;
        Ok(Given::Tensors(vec![scale, zero]))
    }),
    ("torchao.choose_qparams_affine.default", |l, call| {
        if l.text(call, 1)? != "ASYMMETRIC" {
            return problem(format!("scales chosen {}", l.text(call, 1)?));
        }
        let x = l.tensor(call, 0)?;
        let (block, sizes) = (l.known_ints(call, 2)?, l.sizes(x)?);
        let last = sizes.len().saturating_sub(1);
        let rows = block.len() == sizes.len() && block.iter().take(last).all(|size| *size == 1);
        if !rows
            || sizes.last().is_none_or(|size| block.last().is_none_or(|of| *size != IntArg::Literal(*of)))
        {
            return problem("scales of other blocks than rows");
        }
        let range = (l.float(call, 4)?, l.float(call, 5)?);
        let eps = l.maybe_float(call, 6)?.unwrap_or(f64::from(f32::EPSILON));
        let keeps = l.flag(call, 9)?;
        let (scale, zero) = l.chosen(x, Some(vec![-1]), (range, eps), keeps)?;
        Ok(Given::Tensors(vec![scale, zero]))
    }),
    ("et_vk.q8ta_add.default", |l, call| {
        let (a, mut b) = (l.decoded(call, 0, 2)?, l.decoded(call, 1, 4)?);
        let alpha = l.float(call, 8)?;
        if alpha != 1.0 {
            let alpha = l.number(alpha, DType::F32)?;
            b = l.emit(Op::Multiply { a: b, b: alpha })?;
        }
        let sum = l.emit(Op::Add { a, b })?;
        one(l.encoded(call, 6, sum)?)
    }),
    ("et_vk.q8ta_relu.default", |l, call| {
        let x = l.decoded(call, 0, 1)?;
        let x = clip(l, x, Some(0.0), None)?;
        one(l.encoded(call, 3, x)?)
    }),
    ("et_vk.q8ta_pixel_shuffle.default", |l, call| {
        let (x, factor) = (l.decoded(call, 0, 1)?, l.known_int(call, 5)?);
        let x = l.shuffled(x, factor)?;
        let (inverse, zero) = (l.float(call, 3)?, l.float(call, 4)?);
        one(l.grid(x, inverse, zero, (-128.0, 127.0))?)
    }),
];

fn quantize(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    let (scale, zero) = (l.operand(call, 1, DType::F32)?, l.operand(call, 2, DType::F32)?);
    let range = (l.float(call, 3)?, l.float(call, 4)?);
    one(l.codes(x, scale, zero, range)?)
}

fn dequantize(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    let (scale, zero) = (l.operand(call, 1, DType::F32)?, l.operand(call, 2, DType::F32)?);
    one(l.numbers(x, scale, zero)?)
}

impl Lifter<'_> {
    /// `round(x / scale) + zero` within a range.
    fn codes(
        &mut self,
        x: ValueId,
        scale: ValueId,
        zero: ValueId,
        (least, most): (f64, f64),
    ) -> Step<ValueId> {
        let [x, scale, zero] =
            [self.cast(x, DType::F32)?, self.cast(scale, DType::F32)?, self.cast(zero, DType::F32)?];
        let one = self.number(1.0, DType::F32)?;
        let inverse = self.emit(Op::Divide { a: one, b: scale })?;
        let steps = self.emit(Op::Multiply { a: x, b: inverse })?;
        let steps = self.emit(Op::Round { x: steps, decimals: 0 })?;
        let codes = self.emit(Op::Add { a: steps, b: zero })?;
        clip(self, codes, Some(least), Some(most))
    }

    fn numbers(&mut self, x: ValueId, scale: ValueId, zero: ValueId) -> Step<ValueId> {
        let [x, scale, zero] =
            [self.cast(x, DType::F32)?, self.cast(scale, DType::F32)?, self.cast(zero, DType::F32)?];
        let steps = self.emit(Op::Subtract { a: x, b: zero })?;
        self.emit(Op::Multiply { a: steps, b: scale })
    }

    /// Codes of a grid that is known.
    fn grid(&mut self, x: ValueId, inverse: f64, zero: f64, (least, most): (f64, f64)) -> Step<ValueId> {
        let inverse = self.number(f64::from(inverse as f32), DType::F32)?;
        let steps = self.emit(Op::Multiply { a: x, b: inverse })?;
        let steps = self.emit(Op::Round { x: steps, decimals: 0 })?;
        let zero = self.number(zero, DType::F32)?;
        let codes = self.emit(Op::Add { a: steps, b: zero })?;
        clip(self, codes, Some(least), Some(most))
    }

    /// The numbers of a call's codes, whose scale and zero point are arguments `at` and the next.
    pub(super) fn decoded(&mut self, call: &Call<'_>, x: usize, at: usize) -> Step<ValueId> {
        let x = self.tensor(call, x)?;
        let (scale, zero) =
            (self.float(call, at)? as f32, small("a zero point", self.known_int(call, at + 1)?)?);
        self.decode(Part::Main, x, scale, zero)
    }

    /// The same where numbers are given instead of codes: they are rounded to those that codes stand for.
    pub(super) fn on_grid(&mut self, call: &Call<'_>, x: usize, at: usize) -> Step<ValueId> {
        let given = self.tensor(call, x)?;
        if !self.dtype(given)?.is_float() {
            return self.decoded(call, x, at);
        }
        let codes = self.encoded(call, at, given)?;
        let (scale, zero) =
            (self.float(call, at)? as f32, small("a zero point", self.known_int(call, at + 1)?)?);
        self.decode(Part::Main, codes, scale, zero)
    }

    /// The codes of what a call gives, whose scale and zero point are arguments `at` and the next.
    pub(super) fn encoded(&mut self, call: &Call<'_>, at: usize, x: ValueId) -> Step<ValueId> {
        let (scale, zero) = (self.float(call, at)?, self.float(call, at + 1)?);
        if !(scale.is_finite() && scale > 0.0) {
            return problem(format!("a scale of {scale}"));
        }
        self.grid(x, 1.0 / scale, zero, (-128.0, 127.0))
    }

    /// What follows a product in the same operator.
    pub(super) fn activated(&mut self, call: &Call<'_>, at: usize, x: ValueId) -> Step<ValueId> {
        match self.text(call, at)? {
            "none" | "" => Ok(x),
            "relu" => clip(self, x, Some(0.0), None),
            other => problem(format!("the activation {other:?}")),
        }
    }

    /// Rows rounded to the codes of their scales and zero points, as the numbers that those stand for.
    pub(super) fn rounded_rows(&mut self, x: ValueId, scale: ValueId, zero: ValueId) -> Step<ValueId> {
        let dtype = self.dtype(x)?;
        let rank = self.rank(x)?;
        let column = |l: &mut Self, side: ValueId| -> Step<ValueId> {
            match l.rank(side)? {
                has if has == rank => Ok(side),
                has if has + 1 == rank => l.emit(Op::ExpandDims { x: side, axis: -1 }),
                has => problem(format!("scales of {has} dims for rows of {rank}")),
            }
        };
        let (scale, zero) = (column(self, scale)?, column(self, zero)?);
        let codes = self.codes(x, scale, zero, (-128.0, 127.0))?;
        let numbers = self.numbers(codes, scale, zero)?;
        self.cast(numbers, dtype)
    }

    /// Scales and zero points of an axis (arguments 1 to 3) against the tensor.
    fn by_axis(&mut self, call: &Call<'_>, x: ValueId) -> Step<(ValueId, ValueId)> {
        let rank = self.rank(x)?;
        let axis = axis_of(self.known_int(call, 3)?, rank)?;
        let mut shape = vec![IntArg::Literal(1); rank];
        if let Some(size) = shape.get_mut(axis) {
            *size = IntArg::Literal(-1);
        }
        let scale = self.tensor(call, 1)?;
        let scale = self.emit(Op::Reshape { x: scale, shape: shape.clone() })?;
        let zero = match self.maybe_tensor(call, 2)? {
            Some(zero) => self.emit(Op::Reshape { x: zero, shape })?,
            None => self.number(0.0, DType::F32)?,
        };
        Ok((scale, zero))
    }

    /// Scales and zero points of rows (arguments 1 to 3) against the tensor: blocks of the last axis, or of one element.
    fn by_block(&mut self, call: &Call<'_>, x: ValueId) -> Step<(ValueId, ValueId)> {
        let (block, sizes) = (self.known_ints(call, 1)?, self.sizes(x)?);
        if block.len() != sizes.len() {
            return problem(format!("blocks of {} dims for {}", block.len(), sizes.len()));
        }
        let side = |l: &mut Self, side: ValueId| -> Step<ValueId> {
            let mut shape = Vec::with_capacity(sizes.len());
            for (&size, &of) in sizes.iter().zip(&block) {
                shape.push(match size {
                    _ if of == 1 => size,
                    size if size == IntArg::Literal(of) => IntArg::Literal(1),
                    _ => return problem("blocks of a part of an axis"),
                });
            }
            l.emit(Op::Reshape { x: side, shape })
        };
        let scale = self.tensor(call, 2)?;
        let scale = side(self, scale)?;
        let zero = match self.maybe_tensor(call, 3)? {
            Some(zero) => side(self, zero)?,
            None => self.number(0.0, DType::F32)?,
        };
        Ok((scale, zero))
    }

    /// Scales and zero points that hold all numbers of an axis, zero among them.
    fn chosen(
        &mut self,
        x: ValueId,
        axes: Option<Vec<i32>>,
        ((lowest, highest), eps): ((f64, f64), f64),
        keepdims: bool,
    ) -> Step<(ValueId, ValueId)> {
        let x = self.cast(x, DType::F32)?;
        let none = self.number(0.0, DType::F32)?;
        let least = self.emit(Op::Min { x, axes: axes.clone(), keepdims })?;
        let least = self.emit(Op::Minimum { a: least, b: none })?;
        let most = self.emit(Op::Max { x, axes, keepdims })?;
        let most = self.emit(Op::Maximum { a: most, b: none })?;
        let span = self.emit(Op::Subtract { a: most, b: least })?;
        let steps = self.number(highest - lowest, DType::F32)?;
        let scale = self.emit(Op::Divide { a: span, b: steps })?;
        let eps = self.number(eps, DType::F32)?;
        let scale = self.emit(Op::Maximum { a: scale, b: eps })?;
        let below = self.emit(Op::Divide { a: least, b: scale })?;
        let below = self.emit(Op::Round { x: below, decimals: 0 })?;
        let low = self.number(lowest, DType::F32)?;
        let zero = self.emit(Op::Subtract { a: low, b: below })?;
        Ok((scale, clip(self, zero, Some(lowest), Some(highest))?))
    }
}
