//! Operators of two tensors, or of a tensor and a number.
//!
//! Torch promotes by kind and lets numbers of the source model give way; the catalogue promotes by dtype alone.
//! Operands are therefore converted first, to what torch recorded of the result or, for comparisons, to the dtype
//! in which torch compares.

use super::call::{Arg, Call, Int, Scalar};
use super::context::{Lowerer, Outs, one};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

/// Rows for an operator with a tensor or a number on the right, in the dtype of the result.
macro_rules! arithmetic {
    ($operator:literal, $Op:ident) => {
        ($operator, |l, call| {
            let (a, b) = operands(l, call, call.result_dtype(0)?)?;
            one(l.emit(Op::$Op { a, b })?)
        })
    };
}

/// The same in the dtype in which both meet.
macro_rules! comparison {
    ($operator:literal, $Op:ident) => {
        ($operator, |l, call| {
            let dtype = common(l, call)?;
            let (a, b) = operands(l, call, dtype)?;
            one(l.emit(Op::$Op { a, b })?)
        })
    };
}

pub(super) const TABLE: Table = &[
    ("aten.add.Tensor", |l, call| one(scaled(l, call, true)?)),
    ("aten.add.Scalar", |l, call| one(scaled(l, call, true)?)),
    ("aten.sub.Tensor", |l, call| one(scaled(l, call, false)?)),
    ("aten.sub.Scalar", |l, call| one(scaled(l, call, false)?)),
    ("aten.subtract.Tensor", |l, call| one(scaled(l, call, false)?)),
    ("aten.rsub.Tensor", |l, call| one(reversed(l, call)?)),
    ("aten.rsub.Scalar", |l, call| one(reversed(l, call)?)),
    arithmetic!("aten.mul.Tensor", Multiply),
    arithmetic!("aten.mul.Scalar", Multiply),
    arithmetic!("aten.multiply.Tensor", Multiply),
    arithmetic!("aten.div.Tensor", Divide),
    arithmetic!("aten.div.Scalar", Divide),
    arithmetic!("aten.divide.Tensor", Divide),
    arithmetic!("aten.true_divide.Tensor", Divide),
    ("aten.div.Tensor_mode", divide_rounded),
    ("aten.div.Scalar_mode", divide_rounded),
    arithmetic!("aten.floor_divide.default", FloorDivide),
    arithmetic!("aten.floor_divide.Scalar", FloorDivide),
    arithmetic!("aten.remainder.Tensor", Remainder),
    arithmetic!("aten.remainder.Scalar", Remainder),
    arithmetic!("aten.remainder.Scalar_Tensor", Remainder),
    ("aten.fmod.Tensor", fmod),
    ("aten.fmod.Scalar", fmod),
    arithmetic!("aten.maximum.default", Maximum),
    arithmetic!("aten.minimum.default", Minimum),
    arithmetic!("aten.max.other", Maximum),
    arithmetic!("aten.min.other", Minimum),
    arithmetic!("aten.atan2.default", Atan2),
    arithmetic!("aten.arctan2.default", Atan2),
    arithmetic!("aten.logaddexp.default", LogAddExp),
    ("aten.pow.Tensor_Scalar", power),
    ("aten.pow.Tensor_Tensor", power),
    ("aten.pow.Scalar", power),
    arithmetic!("aten.bitwise_and.Tensor", BitwiseAnd),
    arithmetic!("aten.bitwise_and.Scalar", BitwiseAnd),
    arithmetic!("aten.bitwise_or.Tensor", BitwiseOr),
    arithmetic!("aten.bitwise_or.Scalar", BitwiseOr),
    arithmetic!("aten.bitwise_xor.Tensor", BitwiseXor),
    arithmetic!("aten.bitwise_xor.Scalar", BitwiseXor),
    arithmetic!("aten.__and__.Tensor", BitwiseAnd),
    arithmetic!("aten.__and__.Scalar", BitwiseAnd),
    arithmetic!("aten.__or__.Tensor", BitwiseOr),
    arithmetic!("aten.__or__.Scalar", BitwiseOr),
    arithmetic!("aten.__xor__.Tensor", BitwiseXor),
    arithmetic!("aten.__xor__.Scalar", BitwiseXor),
    comparison!("aten.logical_and.default", LogicalAnd),
    comparison!("aten.logical_or.default", LogicalOr),
    ("aten.logical_xor.default", |l, call| {
        let (a, b) = (call.tensor("self")?, call.tensor("other")?);
        let (a, b) = (l.cast(a, DType::Bool)?, l.cast(b, DType::Bool)?);
        one(l.emit(Op::NotEqual { a, b })?)
    }),
    comparison!("aten.eq.Tensor", Equal),
    comparison!("aten.eq.Scalar", Equal),
    comparison!("aten.ne.Tensor", NotEqual),
    comparison!("aten.ne.Scalar", NotEqual),
    comparison!("aten.not_equal.Tensor", NotEqual),
    comparison!("aten.not_equal.Scalar", NotEqual),
    comparison!("aten.lt.Tensor", Less),
    comparison!("aten.lt.Scalar", Less),
    comparison!("aten.less.Tensor", Less),
    comparison!("aten.less.Scalar", Less),
    comparison!("aten.le.Tensor", LessEqual),
    comparison!("aten.le.Scalar", LessEqual),
    comparison!("aten.less_equal.Tensor", LessEqual),
    comparison!("aten.less_equal.Scalar", LessEqual),
    comparison!("aten.gt.Tensor", Greater),
    comparison!("aten.gt.Scalar", Greater),
    comparison!("aten.greater.Tensor", Greater),
    comparison!("aten.greater.Scalar", Greater),
    comparison!("aten.ge.Tensor", GreaterEqual),
    comparison!("aten.ge.Scalar", GreaterEqual),
    comparison!("aten.greater_equal.Tensor", GreaterEqual),
    comparison!("aten.greater_equal.Scalar", GreaterEqual),
    ("aten.where.self", choose),
    ("aten.where.ScalarSelf", choose),
    ("aten.where.ScalarOther", choose),
    ("aten.where.Scalar", choose),
    ("aten.masked_fill.Scalar", masked_fill),
    ("aten.masked_fill.Tensor", masked_fill),
    ("aten.clamp.default", clamp),
    ("aten.clamp.Tensor", clamp),
    ("aten.clip.default", clamp),
    ("aten.clip.Tensor", clamp),
    ("aten.clamp_min.default", clamp),
    ("aten.clamp_min.Tensor", clamp),
    ("aten.clamp_max.default", clamp),
    ("aten.clamp_max.Tensor", clamp),
    ("aten.addcmul.default", |l, call| one(add_combined(l, call, false)?)),
    ("aten.addcdiv.default", |l, call| one(add_combined(l, call, true)?)),
    ("aten.lerp.Scalar", lerp),
    ("aten.lerp.Tensor", lerp),
    ("aten.hypot.default", |l, call| {
        let (a, b) = operands(l, call, call.result_dtype(0)?)?;
        let (a, b) = (l.emit(Op::Square { x: a })?, l.emit(Op::Square { x: b })?);
        let x = l.emit(Op::Add { a, b })?;
        one(l.emit(Op::Sqrt { x })?)
    }),
    ("aten.copy.default", copy_into),
    ("aten.fill.Scalar", fill),
    ("aten.fill.Tensor", fill),
    ("aten.zero.default", |l, call| {
        let x = call.tensor("self")?;
        one(l.emit(Op::FullLike { x, v: pteron_ir::op::FloatArg::Literal(0.0), scalar_type: None })?)
    }),
];

/// An argument as a tensor of that dtype.
pub(super) fn operand(l: &mut Lowerer<'_>, call: &Call<'_>, name: &str, dtype: DType) -> Lowered<ValueId> {
    match call.raw(name)? {
        Arg::Tensor(value) => l.cast(*value, dtype),
        _ => {
            let scalar = call.scalar(name)?;
            l.scalar_tensor(scalar, dtype)
        }
    }
}

fn operands(l: &mut Lowerer<'_>, call: &Call<'_>, dtype: DType) -> Lowered<(ValueId, ValueId)> {
    Ok((operand(l, call, "self", dtype)?, operand(l, call, "other", dtype)?))
}

/// What torch knows of an operand when it promotes.
#[derive(Clone, Copy)]
struct Promotes {
    dtype: DType,
    /// 2 for tensors with dims, 1 for those without, 0 for numbers.
    weight: u8,
}

fn promotes(l: &Lowerer<'_>, call: &Call<'_>, name: &str) -> Lowered<Promotes> {
    Ok(match call.raw(name)? {
        Arg::Tensor(value) => {
            let ty = l.ty(*value)?;
            Promotes { dtype: ty.dtype, weight: if ty.shape.is_empty() { 1 } else { 2 } }
        }
        _ => {
            let dtype = match call.scalar(name)? {
                Scalar::Bool(_) => DType::Bool,
                Scalar::Int(_) | Scalar::Value(_) => DType::I64,
                Scalar::Float(_) => DType::F32,
            };
            Promotes { dtype, weight: 0 }
        }
    })
}

fn kind(dtype: DType) -> u8 {
    match dtype {
        DType::Bool => 0,
        dtype if dtype.is_float() => 2,
        _ => 1,
    }
}

/// The dtype in which torch computes with two operands: of the highest kind, the weightiest operand has its way.
fn common(l: &Lowerer<'_>, call: &Call<'_>) -> Lowered<DType> {
    let (a, b) = (promotes(l, call, "self")?, promotes(l, call, "other")?);
    if a.weight == b.weight || kind(a.dtype) == kind(b.dtype) && a.dtype == b.dtype {
        return Ok(promoted(a.dtype, b.dtype));
    }
    let (heavy, light) = if a.weight > b.weight { (a, b) } else { (b, a) };
    Ok(if kind(light.dtype) > kind(heavy.dtype) { light.dtype } else { heavy.dtype })
}

/// Torch's promotion of two dtypes of equal weight.
fn promoted(a: DType, b: DType) -> DType {
    match (a, b) {
        (DType::F16, DType::BF16) | (DType::BF16, DType::F16) => DType::F32,
        _ => pteron_tensor::promote(a, b),
    }
}

fn scaled(l: &mut Lowerer<'_>, call: &Call<'_>, add: bool) -> Lowered<ValueId> {
    let dtype = call.result_dtype(0)?;
    let (a, mut b) = operands(l, call, dtype)?;
    if let Some(alpha) = call.maybe_scalar("alpha")?
        && alpha != Scalar::Int(1)
        && alpha != Scalar::Float(1.0)
    {
        let alpha = l.scalar_tensor(alpha, dtype)?;
        b = l.emit(Op::Multiply { a: b, b: alpha })?;
    }
    match (add, dtype) {
        (true, DType::Bool) => l.emit(Op::LogicalOr { a, b }),
        (true, _) => l.emit(Op::Add { a, b }),
        (false, _) => l.emit(Op::Subtract { a, b }),
    }
}

fn reversed(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<ValueId> {
    let dtype = call.result_dtype(0)?;
    let (mut a, b) = operands(l, call, dtype)?;
    if let Some(alpha) = call.maybe_scalar("alpha")?
        && alpha != Scalar::Int(1)
        && alpha != Scalar::Float(1.0)
    {
        let alpha = l.scalar_tensor(alpha, dtype)?;
        a = l.emit(Op::Multiply { a, b: alpha })?;
    }
    l.emit(Op::Subtract { a: b, b: a })
}

fn divide_rounded(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let dtype = call.result_dtype(0)?;
    let (a, b) = operands(l, call, dtype)?;
    match call.text("rounding_mode", "")?.as_str() {
        "" => one(l.emit(Op::Divide { a, b })?),
        "floor" => one(l.emit(Op::FloorDivide { a, b })?),
        "trunc" if dtype.is_float() => {
            let x = l.emit(Op::Divide { a, b })?;
            one(l.emit(Op::Trunc { x })?)
        }
        "trunc" => one(divide_toward_zero(l, a, b)?),
        other => Err(Refusal::because(format!("rounding mode {other:?}"))),
    }
}

/// Integers: the quotient rounded down is one too small where signs differ and something is left over.
fn divide_toward_zero(l: &mut Lowerer<'_>, a: ValueId, b: ValueId) -> Lowered<ValueId> {
    let (size_a, size_b) = (l.emit(Op::Abs { x: a })?, l.emit(Op::Abs { x: b })?);
    let quotient = l.emit(Op::FloorDivide { a: size_a, b: size_b })?;
    let (sign_a, sign_b) = (l.emit(Op::Sign { x: a })?, l.emit(Op::Sign { x: b })?);
    let sign = l.emit(Op::Multiply { a: sign_a, b: sign_b })?;
    l.emit(Op::Multiply { a: quotient, b: sign })
}

/// The remainder with the dividend's sign.
fn fmod(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (a, b) = operands(l, call, call.result_dtype(0)?)?;
    let (size_a, size_b) = (l.emit(Op::Abs { x: a })?, l.emit(Op::Abs { x: b })?);
    let left = l.emit(Op::Remainder { a: size_a, b: size_b })?;
    let sign = l.emit(Op::Sign { x: a })?;
    one(l.emit(Op::Multiply { a: left, b: sign })?)
}

fn power(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let dtype = call.result_dtype(0)?;
    let a = operand(l, call, "self", dtype)?;
    let exponent = call.raw("exponent")?;
    match exponent {
        Arg::Float(2.0) | Arg::Int(Int::Literal(2)) => return one(l.emit(Op::Square { x: a })?),
        Arg::Float(1.0) | Arg::Int(Int::Literal(1)) => return one(a),
        Arg::Float(0.5) => return one(l.emit(Op::Sqrt { x: a })?),
        Arg::Float(-0.5) => return one(l.emit(Op::Rsqrt { x: a })?),
        Arg::Float(-1.0) | Arg::Int(Int::Literal(-1)) if dtype.is_float() => {
            return one(l.emit(Op::Reciprocal { x: a })?);
        }
        _ => {}
    }
    let b = operand(l, call, "exponent", dtype)?;
    one(l.emit(Op::Power { a, b })?)
}

fn choose(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let dtype = call.result_dtype(0)?;
    let condition = call.tensor("condition")?;
    let (x, y) = (operand(l, call, "self", dtype)?, operand(l, call, "other", dtype)?);
    one(l.emit(Op::Where { condition, x, y })?)
}

fn masked_fill(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let dtype = call.result_dtype(0)?;
    let (condition, x) = (call.tensor("mask")?, operand(l, call, "value", dtype)?);
    let y = operand(l, call, "self", dtype)?;
    one(l.emit(Op::Where { condition, x, y })?)
}

fn clamp(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let dtype = call.result_dtype(0)?;
    let x = operand(l, call, "self", dtype)?;
    let mut bound = |name: &str| match call.has(name) {
        true => operand(l, call, name, dtype).map(Some),
        false => Ok(None),
    };
    let (a_min, a_max) = (bound("min")?, bound("max")?);
    one(l.emit(Op::Clip { x, a_min, a_max })?)
}

fn add_combined(l: &mut Lowerer<'_>, call: &Call<'_>, divide: bool) -> Lowered<ValueId> {
    let dtype = call.result_dtype(0)?;
    let x = operand(l, call, "self", dtype)?;
    let (a, b) = (operand(l, call, "tensor1", dtype)?, operand(l, call, "tensor2", dtype)?);
    let mut product = if divide { l.emit(Op::Divide { a, b })? } else { l.emit(Op::Multiply { a, b })? };
    if let Some(value) = call.maybe_scalar("value")?
        && value != Scalar::Int(1)
        && value != Scalar::Float(1.0)
    {
        let value = l.scalar_tensor(value, dtype)?;
        product = l.emit(Op::Multiply { a: product, b: value })?;
    }
    l.emit(Op::Add { a: x, b: product })
}

fn lerp(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let dtype = call.result_dtype(0)?;
    let (start, end) = (operand(l, call, "self", dtype)?, operand(l, call, "end", dtype)?);
    let weight = operand(l, call, "weight", dtype)?;
    let way = l.emit(Op::Subtract { a: end, b: start })?;
    let part = l.emit(Op::Multiply { a: way, b: weight })?;
    one(l.emit(Op::Add { a: start, b: part })?)
}

/// What a tensor holds after another was copied into it.
fn copy_into(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (to, from) = (call.tensor("self")?, call.tensor("src")?);
    let dtype = l.dtype(to)?;
    let from = l.cast(from, dtype)?;
    let (wanted, given) = (l.ty(to)?.shape, l.ty(from)?.shape);
    if wanted == given {
        return one(from);
    }
    let shape = l.sizes(to)?;
    one(l.emit(Op::BroadcastTo { x: from, shape })?)
}

fn fill(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let to = call.tensor("self")?;
    let dtype = l.dtype(to)?;
    let value = operand(l, call, "value", dtype)?;
    let shape = l.sizes(to)?;
    one(l.emit(Op::BroadcastTo { x: value, shape })?)
}
