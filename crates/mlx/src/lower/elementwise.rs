//! Element by element, where one call of MLX is not what the op means, and numbers as tensors.

use super::{Lowered, Operands};
use crate::calls::Call;
use crate::error::MlxError;
use crate::ffi::{Array, Attributes};
use half::{bf16, f16};
use pteron_ir::ValueId;
use pteron_ir::op::IntArg;
use pteron_tensor::{DType, HostTensor, Scalar};

/// Floor, ceil and trunc: integers stay.
pub(super) fn rounded(on: &Operands<'_>, call: Call, x: ValueId) -> Lowered {
    if on.ty(x)?.dtype.is_float() { on.unary(call, x) } else { on.array(x)?.share() }
}

/// In f32 throughout: step by step in 16 bits is a rounding at each.
pub(super) fn gelu(on: &Operands<'_>, x: ValueId, tanh: bool) -> Lowered {
    let x = on.cast(&on.widened(x)?, float_of(on.ty(x)?.dtype))?;
    let number = |value: f64| on.constant(Scalar::Float(value), DType::F32);
    let times = |a: &Array, b: &Array| on.mlx.one(Call::Multiply, &[a, b], &[]);
    let curve = if tanh {
        let cube = times(&x, &times(&x, &x)?)?;
        let inner = on.mlx.one(Call::Add, &[&x, &times(&number(0.044715)?, &cube)?], &[])?;
        let inner = times(&number((2.0 / std::f64::consts::PI).sqrt())?, &inner)?;
        on.mlx.one(Call::Tanh, &[&inner], &[])?
    } else {
        let inner = times(&number(std::f64::consts::FRAC_1_SQRT_2)?, &x)?;
        on.mlx.one(Call::Erf, &[&inner], &[])?
    };
    let curve = on.mlx.one(Call::Add, &[&curve, &number(1.0)?], &[])?;
    times(&times(&x, &number(0.5)?)?, &curve)
}

/// Integers stay, unless digits before the point are rounded: then in i64, because MLX goes by way of their own dtype.
pub(super) fn round(on: &Operands<'_>, x: ValueId, decimals: i32) -> Lowered {
    if on.ty(x)?.dtype.is_float() {
        return on.mlx.one(Call::Round, &[&on.widened(x)?], &[decimals.into()]);
    }
    if decimals >= 0 {
        return on.array(x)?.share();
    }
    let Some(unit) = 10i64.checked_pow(decimals.unsigned_abs()) else {
        return on.full(Scalar::Int(0), on.out());
    };
    let number = |value: i64| on.constant(Scalar::Int(value), DType::I64);
    let call = |call: Call, a: &Array, b: &Array| on.mlx.one(call, &[a, b], &[]);
    let (x, unit) = (on.cast(on.array(x)?, DType::I64)?, number(unit)?);
    // The unit is positive, so the rest is what is above the next multiple below.
    let rest = call(Call::Remainder, &x, &unit)?;
    let below = call(Call::FloorDivide, &call(Call::Subtract, &x, &rest)?, &unit)?;
    let twice = call(Call::Multiply, &rest, &number(2)?)?;
    let odd = call(Call::NotEqual, &call(Call::Remainder, &below, &number(2)?)?, &number(0)?)?;
    let tie = call(Call::LogicalAnd, &call(Call::Equal, &twice, &unit)?, &odd)?;
    let up = call(Call::LogicalOr, &call(Call::Greater, &twice, &unit)?, &tie)?;
    let nearest = call(Call::Add, &below, &on.cast(&up, DType::I64)?)?;
    call(Call::Multiply, &nearest, &unit)
}

/// In f32: the exponential inside leaves the range of f16 from 11 on.
pub(super) fn sigmoid(on: &Operands<'_>, x: ValueId) -> Lowered {
    on.mlx.one(Call::Sigmoid, &[&on.widened(x)?], &[])
}

pub(super) fn silu(on: &Operands<'_>, x: ValueId) -> Lowered {
    on.mlx.one(Call::Multiply, &[&on.widened(x)?, &sigmoid(on, x)?], &[])
}

fn float_of(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// A tensor in another dtype.
pub(super) fn as_type(on: &Operands<'_>, x: ValueId, to: DType) -> Lowered {
    let from = on.ty(x)?.dtype;
    if !from.is_float() || !to.is_int() {
        return on.cast(on.array(x)?, to);
    }
    saturated(on, &on.widened(x)?, float_of(from), to)
}

/// Floats cast to integers as Rust does: what does not fit saturates and NaN is 0, where C++ leaves both open.
fn saturated(on: &Operands<'_>, x: &Array, from: DType, to: DType) -> Lowered {
    let bits = to.size() as i32 * 8 - i32::from(!to.is_unsigned());
    let high = f64::from(bits).exp2();
    let low = if to.is_unsigned() { -1.0 } else { -high };
    let number = |value: f64, dtype: DType| on.constant(Scalar::Float(value), dtype);
    let compare = |call: Call, limit: f64| on.mlx.one(call, &[x, &number(limit, from)?], &[]);
    let choose = |condition: &Array, a: &Array, b: &Array| on.mlx.one(Call::Where, &[condition, a, b], &[]);
    let (above, below) = (compare(Call::GreaterEqual, high)?, compare(Call::LessEqual, low)?);
    let fits = [&compare(Call::Less, high)?, &compare(Call::Greater, low)?];
    let fits = on.mlx.one(Call::LogicalAnd, &fits, &[])?;
    let safe = on.cast(&choose(&fits, x, &number(0.0, from)?)?, to)?;
    let (least, most) = (number(f64::NEG_INFINITY, to)?, number(f64::INFINITY, to)?);
    choose(&above, &most, &choose(&below, &least, &safe)?)
}

/// Integers rounded down. C++'s quotient is cut off, ends the process for a divisor of 0, and overflows for -1.
pub(super) fn floor_divide(on: &Operands<'_>, a: ValueId, b: ValueId) -> Lowered {
    let dtype = on.out().dtype;
    if dtype.is_float() {
        return on.binary(Call::FloorDivide, a, b);
    }
    let whole = if dtype == DType::Bool { DType::I32 } else { dtype };
    let (a, b) = (on.cast(on.array(a)?, whole)?, on.cast(on.array(b)?, whole)?);
    let divisor = Divisor::new(on, &b, whole)?;
    let zero = on.constant(Scalar::Int(0), whole)?;
    let quotient = on.mlx.one(Call::FloorDivide, &[&a, &divisor.safe], &[])?;
    let product = on.mlx.one(Call::Multiply, &[&quotient, &divisor.safe], &[])?;
    let rest = on.mlx.one(Call::Subtract, &[&a, &product], &[])?;
    let left = on.mlx.one(Call::NotEqual, &[&rest, &zero], &[])?;
    let negative = |x: &Array| on.mlx.one(Call::Less, &[x, &zero], &[]);
    let apart = on.mlx.one(Call::NotEqual, &[&negative(&rest)?, &negative(&divisor.safe)?], &[])?;
    let one_less = on.cast(&on.mlx.one(Call::LogicalAnd, &[&left, &apart], &[])?, whole)?;
    let quotient = on.mlx.one(Call::Subtract, &[&quotient, &one_less], &[])?;
    let quotient = match &divisor.minus_one {
        Some(minus_one) => {
            let turned = on.mlx.one(Call::Negative, &[&a], &[])?;
            on.mlx.one(Call::Where, &[minus_one, &turned, &quotient], &[])?
        }
        None => quotient,
    };
    on.mlx.one(Call::Where, &[&divisor.zero, &zero, &quotient], &[])
}

/// Of integers by 0, the dividend is left.
pub(super) fn remainder(on: &Operands<'_>, a: ValueId, b: ValueId) -> Lowered {
    let dtype = on.out().dtype;
    if dtype.is_float() {
        return on.binary(Call::Remainder, a, b);
    }
    let whole = if dtype == DType::Bool { DType::I32 } else { dtype };
    let (a, b) = (on.cast(on.array(a)?, whole)?, on.cast(on.array(b)?, whole)?);
    let divisor = Divisor::new(on, &b, whole)?;
    let rest = on.mlx.one(Call::Remainder, &[&a, &divisor.safe], &[])?;
    on.mlx.one(Call::Where, &[&divisor.zero, &a, &rest], &[])
}

/// A divisor without the numbers that a processor cannot divide by.
struct Divisor {
    /// 1 in their place.
    safe: Array,
    zero: Array,
    minus_one: Option<Array>,
}

impl Divisor {
    fn new(on: &Operands<'_>, b: &Array, dtype: DType) -> Result<Divisor, MlxError> {
        let equals =
            |value: i64| on.mlx.one(Call::Equal, &[b, &on.constant(Scalar::Int(value), dtype)?], &[]);
        let zero = equals(0)?;
        let minus_one = if dtype.is_unsigned() { None } else { Some(equals(-1)?) };
        let unsafe_ones = match &minus_one {
            Some(minus_one) => on.mlx.one(Call::LogicalOr, &[&zero, minus_one], &[])?,
            None => zero.share()?,
        };
        let one = on.constant(Scalar::Int(1), dtype)?;
        Ok(Divisor { safe: on.mlx.one(Call::Where, &[&unsafe_ones, &one, b], &[])?, zero, minus_one })
    }
}

/// Counted in i64, then cast: MLX counts in the dtype itself, where f16 stops at 2048.
pub(super) fn arange(on: &Operands<'_>, start: &IntArg<ValueId>, step: &IntArg<ValueId>) -> Lowered {
    let count = on.out().count() as f64;
    let steps = on.mlx.with(
        Call::ARange,
        &[],
        Attributes { ints: &[DType::I64.code().into()], floats: &[0.0, count, 1.0], text: "" },
    )?;
    let number = |value: i64| on.constant(Scalar::Int(value), DType::I64);
    let scaled = on.mlx.one(Call::Multiply, &[&steps, &number(on.int(step)?)?], &[])?;
    on.mlx.one(Call::Add, &[&scaled, &number(on.int(start)?)?], &[])
}

/// A number as a tensor without axes. Whole numbers keep all their bits and wrap into integers; others are cut off.
pub(crate) fn scalar_tensor(value: Scalar, dtype: DType) -> Result<HostTensor, MlxError> {
    let real = match value {
        Scalar::Int(value) => value as f64,
        Scalar::Float(value) => value,
        Scalar::Bool(value) => u8::from(value).into(),
    };
    let whole = match value {
        Scalar::Int(value) => Some(i128::from(value)),
        Scalar::Bool(value) => Some(value.into()),
        Scalar::Float(value) => (value.trunc() == value && value.abs() < 2e19).then_some(value as i128),
    };
    macro_rules! integer {
        ($rust:ty) => {
            HostTensor::from_slice(vec![], &[whole.map_or(real as $rust, |whole| whole as $rust)])
        };
    }
    let tensor = match dtype {
        DType::U8 => integer!(u8),
        DType::U16 => integer!(u16),
        DType::U32 => integer!(u32),
        DType::U64 => integer!(u64),
        DType::I8 => integer!(i8),
        DType::I16 => integer!(i16),
        DType::I32 => integer!(i32),
        DType::I64 => integer!(i64),
        DType::F32 => HostTensor::from_slice(vec![], &[real as f32]),
        DType::F64 => HostTensor::from_slice(vec![], &[real]),
        DType::F16 => HostTensor::from_slice(vec![], &[f16::from_f32(real as f32)]),
        DType::BF16 => HostTensor::from_slice(vec![], &[bf16::from_f32(real as f32)]),
        DType::Bool => HostTensor::from_bools(vec![], &[real != 0.0]),
    };
    Ok(tensor?)
}

/// The key of a seed: its upper and its lower half.
pub(super) fn random_key(seed: u64) -> Result<HostTensor, MlxError> {
    Ok(HostTensor::from_slice(vec![2], &[(seed >> 32) as u32, seed as u32])?)
}
