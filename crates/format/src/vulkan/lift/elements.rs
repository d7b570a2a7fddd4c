//! Operators that go element by element, and tensors that are made from numbers.

use pteron_ir::op::{FloatArg, IntArg};
use pteron_ir::{Op, Ssa, ValueId};
use pteron_tensor::DType;

use super::arguments::known;
use super::{Call, Given, Lifter, Table, one};
use crate::draft::{Int, Step, problem};
use crate::vulkan::tables::Value;

pub(super) const TABLE: Table = &[
    ("aten.abs.default", |l, call| unary(l, call, |x| Op::Abs { x })),
    ("aten.cos.default", |l, call| unary(l, call, |x| Op::Cos { x })),
    ("aten.exp.default", |l, call| unary(l, call, |x| Op::Exp { x })),
    ("aten.log10.default", |l, call| unary(l, call, |x| Op::Log10 { x })),
    ("aten.logical_not.default", |l, call| unary(l, call, |x| Op::LogicalNot { x })),
    ("aten.bitwise_not.default", |l, call| unary(l, call, |x| Op::BitwiseInvert { x })),
    ("aten.neg.default", |l, call| unary(l, call, |x| Op::Neg { x })),
    ("aten.round.default", |l, call| unary(l, call, |x| Op::Round { x, decimals: 0 })),
    ("aten.rsqrt.default", |l, call| unary(l, call, |x| Op::Rsqrt { x })),
    ("aten.sigmoid.default", |l, call| unary(l, call, |x| Op::Sigmoid { x })),
    ("aten.sin.default", |l, call| unary(l, call, |x| Op::Sin { x })),
    ("aten.sqrt.default", |l, call| unary(l, call, |x| Op::Sqrt { x })),
    ("aten.tan.default", |l, call| unary(l, call, |x| Op::Tan { x })),
    ("aten.tanh.default", |l, call| unary(l, call, |x| Op::Tanh { x })),
    ("aten.gelu.default", |l, call| {
        let approximate = if l.has(call, 1) { l.text(call, 1)? } else { "none" };
        unary(l, call, |x| Op::Gelu { x, approximate: approximate.into() })
    }),
    // What changes but the element type, which every result is brought to, or nothing at all.
    ("aten._to_copy.default", same),
    ("dim_order_ops._to_dim_order_copy.default", same),
    ("aten.clone.default", same),
    ("dim_order_ops._clone_dim_order.default", same),
    ("aten.alias_copy.default", same),
    ("aten.copy.default", |l, call| one(l.tensor(call, 1)?)),
    ("aten.relu.default", |l, call| between(l, call, Some(0.0), None)),
    ("aten.relu6.default", |l, call| between(l, call, Some(0.0), Some(6.0))),
    ("aten.clamp.default", limited),
    ("aten.hardtanh.default", limited),
    ("aten.hardsigmoid.default", |l, call| {
        let x = l.tensor(call, 0)?;
        one(l.gate(x)?)
    }),
    ("aten.hardswish.default", |l, call| {
        let x = l.tensor(call, 0)?;
        let gate = l.gate(x)?;
        one(l.emit(Op::Multiply { a: x, b: gate })?)
    }),
    ("aten.hardshrink.default", hard_shrink),
    ("aten.leaky_relu.default", leaky_relu),
    ("aten.add.Tensor", |l, call| sum(l, call, |a, b| Op::Add { a, b })),
    ("aten.sub.Tensor", |l, call| sum(l, call, |a, b| Op::Subtract { a, b })),
    ("aten.mul.Tensor", |l, call| binary(l, call, |a, b| Op::Multiply { a, b })),
    ("aten.minimum.default", |l, call| binary(l, call, |a, b| Op::Minimum { a, b })),
    ("aten.maximum.default", |l, call| binary(l, call, |a, b| Op::Maximum { a, b })),
    ("aten.div.Tensor", |l, call| binary(l, call, |a, b| Op::Divide { a, b })),
    ("aten.div.Tensor_mode", quotient),
    ("aten.pow.Tensor_Tensor", |l, call| binary(l, call, |a, b| Op::Power { a, b })),
    ("aten.pow.Tensor_Scalar", |l, call| binary(l, call, |a, b| Op::Power { a, b })),
    ("aten.bitwise_and.Tensor", |l, call| binary(l, call, |a, b| Op::BitwiseAnd { a, b })),
    ("aten.bitwise_or.Tensor", |l, call| binary(l, call, |a, b| Op::BitwiseOr { a, b })),
    ("aten.logical_and.default", |l, call| binary(l, call, |a, b| Op::LogicalAnd { a, b })),
    ("aten.logical_or.default", |l, call| binary(l, call, |a, b| Op::LogicalOr { a, b })),
    ("aten.eq.Tensor", |l, call| binary(l, call, |a, b| Op::Equal { a, b })),
    ("aten.lt.Tensor", |l, call| binary(l, call, |a, b| Op::Less { a, b })),
    ("aten.le.Tensor", |l, call| binary(l, call, |a, b| Op::LessEqual { a, b })),
    ("aten.gt.Tensor", |l, call| binary(l, call, |a, b| Op::Greater { a, b })),
    ("aten.ge.Tensor", |l, call| binary(l, call, |a, b| Op::GreaterEqual { a, b })),
    ("aten.eq.Scalar", |l, call| binary(l, call, |a, b| Op::Equal { a, b })),
    ("aten.ne.Scalar", |l, call| binary(l, call, |a, b| Op::NotEqual { a, b })),
    ("aten.lt.Scalar", |l, call| binary(l, call, |a, b| Op::Less { a, b })),
    ("aten.le.Scalar", |l, call| binary(l, call, |a, b| Op::LessEqual { a, b })),
    ("aten.gt.Scalar", |l, call| binary(l, call, |a, b| Op::Greater { a, b })),
    ("aten.ge.Scalar", |l, call| binary(l, call, |a, b| Op::GreaterEqual { a, b })),
    ("aten.where.self", |l, call| {
        let condition = l.tensor(call, 0)?;
        let dtype = l.result(call)?.datatype.dtype();
        let (x, y) = (l.operand(call, 1, dtype)?, l.operand(call, 2, dtype)?);
        one(l.emit(Op::Where { condition, x, y })?)
    }),
    ("aten.full.default", |l, call| {
        let number = filling(l, call, 1)?;
        full(l, call, number)
    }),
    ("aten.ones.default", |l, call| full(l, call, FloatArg::Literal(1.0))),
    ("aten.zeros.default", |l, call| full(l, call, FloatArg::Literal(0.0))),
    ("aten.full_like.default", |l, call| {
        let number = filling(l, call, 1)?;
        full_like(l, call, number)
    }),
    ("aten.ones_like.default", |l, call| full_like(l, call, FloatArg::Literal(1.0))),
    ("aten.zeros_like.default", |l, call| full_like(l, call, FloatArg::Literal(0.0))),
    ("aten.scalar_tensor.default", |l, call| {
        let v = filling(l, call, 0)?;
        let scalar_type = l.result(call)?.datatype.dtype();
        one(l.emit(Op::Full { shape: Vec::new(), v, scalar_type })?)
    }),
    ("aten.arange.start_step", arange),
    ("add", |l, call| integers(l, call, |l, a, b| l.plus(a, b))),
    ("mul", |l, call| integers(l, call, |l, a, b| l.times(a, b))),
    ("sub", |l, call| {
        integers(l, call, |l, a, b| match (a, b) {
            (IntArg::Literal(a), IntArg::Literal(b)) => Ok(IntArg::Literal(a.saturating_sub(b))),
            (a, b) => l.integer(Op::SubtractInt { a, b }),
        })
    }),
    ("floordiv", |l, call| integers(l, call, |l, a, b| l.divided(a, known(b)?))),
    ("sym_size.int", |l, call| {
        let x = l.tensor(call, 0)?;
        let rank = l.rank(x)?;
        let axis = l.axis(call, 1, rank)?;
        Ok(Given::Int(l.size(x, axis)?))
    }),
];

fn unary(l: &mut Lifter<'_>, call: &Call<'_>, op: impl FnOnce(ValueId) -> Op<Ssa>) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    one(l.emit(op(x))?)
}

fn same(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    one(l.tensor(call, 0)?)
}

/// Numbers among the operands are of the type of the tensor beside them, but for fractions beside integers.
fn operands(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<(ValueId, ValueId)> {
    let is_tensor = |l: &Lifter<'_>, at| Ok(matches!(l.argument(call, at)?.1, Value::Tensor(_)));
    let tensor = if is_tensor(l, 0)? { 0 } else { 1 };
    let x = l.tensor(call, tensor)?;
    let other = 1 - tensor;
    let dtype = match (l.argument(call, other)?.1, l.dtype(x)?) {
        (Value::Double(_), dtype) if !dtype.is_float() => DType::F32,
        (Value::Int(_), DType::Bool) => DType::I32,
        (_, dtype) => dtype,
    };
    let y = l.operand(call, other, dtype)?;
    Ok(if tensor == 0 { (x, y) } else { (y, x) })
}

fn binary(l: &mut Lifter<'_>, call: &Call<'_>, op: impl FnOnce(ValueId, ValueId) -> Op<Ssa>) -> Step<Given> {
    let (a, b) = operands(l, call)?;
    one(l.emit(op(a, b))?)
}

/// `a` and `alpha` times `b`.
fn sum(l: &mut Lifter<'_>, call: &Call<'_>, op: impl FnOnce(ValueId, ValueId) -> Op<Ssa>) -> Step<Given> {
    let (a, mut b) = operands(l, call)?;
    let alpha = l.maybe_float(call, 2)?.unwrap_or(1.0);
    if alpha != 1.0 {
        let alpha = l.number_like(b, alpha)?;
        b = l.emit(Op::Multiply { a: b, b: alpha })?;
    }
    one(l.emit(op(a, b))?)
}

fn quotient(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let (a, b) = operands(l, call)?;
    match l.text(call, 2)? {
        "floor" => one(l.emit(Op::FloorDivide { a, b })?),
        "trunc" => {
            let x = l.emit(Op::Divide { a, b })?;
            one(l.emit(Op::Trunc { x })?)
        }
        "" => one(l.emit(Op::Divide { a, b })?),
        other => problem(format!("a quotient rounded by {other:?}")),
    }
}

/// Numbers as the bounds of a range; infinite ones are none.
pub(super) fn clip(l: &mut Lifter<'_>, x: ValueId, least: Option<f64>, most: Option<f64>) -> Step<ValueId> {
    let dtype = l.dtype(x)?;
    let limit = if dtype == DType::F16 { 65504.0 } else { f64::from(f32::MAX) };
    let mut bound = |bound: Option<f64>| match bound.filter(|bound| bound.abs() < limit) {
        Some(bound) => l.number(bound, dtype).map(Some),
        None => Ok(None),
    };
    match (bound(least)?, bound(most)?) {
        (None, None) => Ok(x),
        (a_min, a_max) => l.emit(Op::Clip { x, a_min, a_max }),
    }
}

fn between(l: &mut Lifter<'_>, call: &Call<'_>, least: Option<f64>, most: Option<f64>) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    one(clip(l, x, least, most)?)
}

fn limited(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let (least, most) = (l.maybe_float(call, 1)?, l.maybe_float(call, 2)?);
    between(l, call, least, most)
}

fn hard_shrink(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    let dtype = l.dtype(x)?;
    let (width, zero) = (l.float(call, 1)?, l.number(0.0, dtype)?);
    let width = l.number(width, dtype)?;
    let size = l.emit(Op::Abs { x })?;
    let condition = l.emit(Op::LessEqual { a: size, b: width })?;
    one(l.emit(Op::Where { condition, x: zero, y: x })?)
}

fn leaky_relu(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    let dtype = l.dtype(x)?;
    let slope = l.maybe_float(call, 1)?.unwrap_or(0.01);
    let (slope, zero) = (l.number(slope, dtype)?, l.number(0.0, dtype)?);
    let below = l.emit(Op::Multiply { a: x, b: slope })?;
    let condition = l.emit(Op::Less { a: x, b: zero })?;
    one(l.emit(Op::Where { condition, x: below, y: x })?)
}

/// A number that a tensor is filled with.
fn filling(l: &mut Lifter<'_>, call: &Call<'_>, at: usize) -> Step<FloatArg<ValueId>> {
    match l.argument(call, at)?.1 {
        Value::SymInt(_) => Ok(match l.int(call, at)? {
            IntArg::Literal(number) => FloatArg::Literal(number as f64),
            IntArg::Value(value) => FloatArg::Value(value),
        }),
        _ => l.float(call, at).map(FloatArg::Literal),
    }
}

fn full(l: &mut Lifter<'_>, call: &Call<'_>, v: FloatArg<ValueId>) -> Step<Given> {
    let shape = l.ints(call, 0)?;
    let scalar_type = l.result(call)?.datatype.dtype();
    one(l.emit(Op::Full { shape, v, scalar_type })?)
}

fn full_like(l: &mut Lifter<'_>, call: &Call<'_>, v: FloatArg<ValueId>) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    let scalar_type = Some(l.result(call)?.datatype.dtype());
    one(l.emit(Op::FullLike { x, v, scalar_type })?)
}

fn arange(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let is_fraction = |at| matches!(l.argument(call, at), Ok((_, Value::Double(_))));
    if !(0..3).any(is_fraction) {
        let (start, stop) = (l.int(call, 0)?, l.int(call, 1)?);
        let step = if l.has(call, 2) { l.int(call, 2)? } else { IntArg::Literal(1) };
        return one(l.emit(Op::ARange { start, stop, step, scalar_type: Some(DType::I32) })?);
    }
    let (start, stop, step) = (l.float(call, 0)?, l.float(call, 1)?, l.maybe_float(call, 2)?.unwrap_or(1.0));
    let count = ((stop - start) / step).ceil();
    if !(0.0..=f64::from(i32::MAX)).contains(&count) {
        return problem(format!("numbers from {start} to {stop} by {step}"));
    }
    let [from, to, by] = [0, count as i64, 1].map(IntArg::Literal);
    let x = l.emit(Op::ARange { start: from, stop: to, step: by, scalar_type: Some(DType::F32) })?;
    let (step, start) = (l.number(step, DType::F32)?, l.number(start, DType::F32)?);
    let x = l.emit(Op::Multiply { a: x, b: step })?;
    one(l.emit(Op::Add { a: x, b: start })?)
}

fn integers(
    l: &mut Lifter<'_>,
    call: &Call<'_>,
    op: impl FnOnce(&mut Lifter<'_>, Int, Int) -> Step<Int>,
) -> Step<Given> {
    let (a, b) = (l.int(call, 0)?, l.int(call, 1)?);
    op(l, a, b).map(Given::Int)
}

impl Lifter<'_> {
    /// `clip(x + 3, 0, 6) / 6`.
    fn gate(&mut self, x: ValueId) -> Step<ValueId> {
        let dtype = self.dtype(x)?;
        let (zero, three, six) =
            (self.number(0.0, dtype)?, self.number(3.0, dtype)?, self.number(6.0, dtype)?);
        let gate = self.emit(Op::Add { a: x, b: three })?;
        let gate = self.emit(Op::Clip { x: gate, a_min: Some(zero), a_max: Some(six) })?;
        self.emit(Op::Divide { a: gate, b: six })
    }
}
