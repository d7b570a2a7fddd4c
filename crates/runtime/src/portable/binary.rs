//! Operators of two operands, element by element, with broadcasting. Either operand may be a plain number.

use super::lanes::{self, Lanes};
use super::promote::{self, Operand};
use super::walk::{Walk, broadcast_shape};
use super::{Call, Kernel, Operator, PortableError, Results, invalid, one, row, whole};
use pteron_tensor::{DType, HostTensor, Scalar};

use Kernel::{Compare, FloatPair, Logical};

/// Arithmetic in the common dtype of both operands.
#[derive(Clone, Copy)]
pub(crate) struct Arithmetic {
    int: fn(i64, i64) -> i64,
    /// `None` where floats have no meaning.
    float: Option<fn(f64, f64) -> f64>,
    /// Whether a zero among integer divisors is an error.
    divides: bool,
}

const fn arith(name: &'static str, int: fn(i64, i64) -> i64, float: fn(f64, f64) -> f64) -> Operator {
    row(name, 2, Kernel::Arithmetic(Arithmetic { int, float: Some(float), divides: false }))
}

const fn division(name: &'static str, int: fn(i64, i64) -> i64, float: fn(f64, f64) -> f64) -> Operator {
    row(name, 2, Kernel::Arithmetic(Arithmetic { int, float: Some(float), divides: true }))
}

const fn bits(name: &'static str, int: fn(i64, i64) -> i64) -> Operator {
    row(name, 2, Kernel::Arithmetic(Arithmetic { int, float: None, divides: false }))
}

pub(super) const TABLE: &[Operator] = &[
    whole("aten::add.out", 3, |call| scaled(call, i64::wrapping_add, |a, b| a + b)),
    whole("aten::add.Scalar_out", 3, |call| scaled(call, i64::wrapping_add, |a, b| a + b)),
    whole("aten::sub.out", 3, |call| scaled(call, i64::wrapping_sub, |a, b| a - b)),
    whole("aten::sub.Scalar_out", 3, |call| scaled(call, i64::wrapping_sub, |a, b| a - b)),
    whole("aten::rsub.Scalar_out", 3, reverse_subtract),
    whole("aten::rsub.Tensor_out", 3, reverse_subtract),
    arith("aten::mul.out", i64::wrapping_mul, |a, b| a * b),
    arith("aten::mul.Scalar_out", i64::wrapping_mul, |a, b| a * b),
    row("aten::div.out", 2, FloatPair(|a, b| a / b)),
    row("aten::div.Scalar_out", 2, FloatPair(|a, b| a / b)),
    whole("aten::div.out_mode", 3, divide_rounding),
    whole("aten::div.Scalar_mode_out", 3, divide_rounding),
    division("aten::floor_divide.out", floor_divide, floor_quotient),
    division("aten::floor_divide.Scalar_out", floor_divide, floor_quotient),
    division("aten::fmod.Tensor_out", i64::wrapping_rem, |a, b| a % b),
    division("aten::fmod.Scalar_out", i64::wrapping_rem, |a, b| a % b),
    division("aten::remainder.Tensor_out", remainder, float_remainder),
    division("aten::remainder.Scalar_out", remainder, float_remainder),
    arith("aten::maximum.out", i64::max, |a, b| if a.is_nan() || a > b { a } else { b }),
    arith("aten::minimum.out", i64::min, |a, b| if a.is_nan() || a < b { a } else { b }),
    arith("aten::fmax.out", i64::max, f64::max),
    arith("aten::fmin.out", i64::min, f64::min),
    arith("aten::pow.Tensor_Tensor_out", int_power, f64::powf),
    arith("aten::pow.Tensor_Scalar_out", int_power, f64::powf),
    arith("aten::pow.Scalar_out", int_power, f64::powf),
    row("aten::atan2.out", 2, FloatPair(f64::atan2)),
    row("aten::hypot.out", 2, FloatPair(f64::hypot)),
    row("aten::copysign.out", 2, FloatPair(f64::copysign)),
    row("aten::copysign.Scalar_out", 2, FloatPair(f64::copysign)),
    row("aten::xlogy.OutTensor", 2, FloatPair(xlogy)),
    row("aten::logaddexp.out", 2, FloatPair(log_add_exp)),
    row("aten::logaddexp2.out", 2, FloatPair(|a, b| log_add_exp(a * LN_2, b * LN_2) / LN_2)),
    arith("aten::heaviside.out", step_int, step_float),
    bits("aten::bitwise_and.Tensor_out", |a, b| a & b),
    bits("aten::bitwise_and.Scalar_out", |a, b| a & b),
    bits("aten::bitwise_or.Tensor_out", |a, b| a | b),
    bits("aten::bitwise_or.Scalar_out", |a, b| a | b),
    bits("aten::bitwise_xor.Tensor_out", |a, b| a ^ b),
    bits("aten::bitwise_xor.Scalar_out", |a, b| a ^ b),
    bits("aten::bitwise_left_shift.Tensor_out", shift_left),
    bits("aten::bitwise_left_shift.Tensor_Scalar_out", shift_left),
    bits("aten::bitwise_right_shift.Tensor_out", shift_right),
    bits("aten::bitwise_right_shift.Tensor_Scalar_out", shift_right),
    bits("aten::__lshift__.Scalar_out", shift_left),
    bits("aten::__lshift__.Tensor_out", shift_left),
    bits("aten::__rshift__.Scalar_out", shift_right),
    bits("aten::__rshift__.Tensor_out", shift_right),
    row("aten::eq.Tensor_out", 2, Compare(|a, b| a == b, |a, b| a == b)),
    row("aten::eq.Scalar_out", 2, Compare(|a, b| a == b, |a, b| a == b)),
    row("aten::ne.Tensor_out", 2, Compare(|a, b| a != b, |a, b| a != b)),
    row("aten::ne.Scalar_out", 2, Compare(|a, b| a != b, |a, b| a != b)),
    row("aten::lt.Tensor_out", 2, Compare(|a, b| a < b, |a, b| a < b)),
    row("aten::lt.Scalar_out", 2, Compare(|a, b| a < b, |a, b| a < b)),
    row("aten::le.Tensor_out", 2, Compare(|a, b| a <= b, |a, b| a <= b)),
    row("aten::le.Scalar_out", 2, Compare(|a, b| a <= b, |a, b| a <= b)),
    row("aten::gt.Tensor_out", 2, Compare(|a, b| a > b, |a, b| a > b)),
    row("aten::gt.Scalar_out", 2, Compare(|a, b| a > b, |a, b| a > b)),
    row("aten::ge.Tensor_out", 2, Compare(|a, b| a >= b, |a, b| a >= b)),
    row("aten::ge.Scalar_out", 2, Compare(|a, b| a >= b, |a, b| a >= b)),
    row("aten::logical_and.out", 2, Logical(|a, b| a && b)),
    row("aten::logical_or.out", 2, Logical(|a, b| a || b)),
    row("aten::logical_xor.out", 2, Logical(|a, b| a != b)),
    whole("aten::where.self_out", 3, |call| choose(call, call.tensor(0)?, call.tensor(1)?, call.tensor(2)?)),
    whole("aten::clamp.Tensor_out", 3, clamp),
    whole("aten::addcmul.out", 4, |call| fused(call, |a, b| a * b)),
    whole("aten::addcdiv.out", 4, |call| fused(call, |a, b| a / b)),
    whole("aten::lerp.Scalar_out", 3, lerp),
];

const LN_2: f64 = std::f64::consts::LN_2;

/// Two operands in one dtype and one shape.
struct Pair {
    shape: Vec<usize>,
    common: DType,
    a: Lanes,
    b: Lanes,
}

fn operand(call: &Call<'_>, index: usize) -> Result<Operand, PortableError> {
    Ok(if call.is_tensor(index) {
        Operand::of(call.tensor(index)?)
    } else {
        Operand::Number(call.scalar(index)?)
    })
}

/// An operand as a tensor of `common`. A number is rounded as torch rounds it: to f32 where the tensor is a
/// narrower float.
fn operand_in(call: &Call<'_>, index: usize, common: DType) -> Result<HostTensor, PortableError> {
    if call.is_tensor(index) {
        return Ok(lanes::cast(call.tensor(index)?, common)?);
    }
    let dtype = if common.is_float() && common != DType::F64 { DType::F32 } else { common };
    Ok(lanes::filled(dtype, Vec::new(), call.scalar(index)?)?)
}

fn pair(call: &Call<'_>, force_float: bool) -> Result<Pair, PortableError> {
    let common = promote::common(&[operand(call, 0)?, operand(call, 1)?]);
    let common = if force_float { promote::to_float(common) } else { common };
    let (a, b) = (operand_in(call, 0, common)?, operand_in(call, 1, common)?);
    let shape = broadcast_shape(a.shape(), b.shape())?;
    call.admit(&shape)?;
    let spread = |x: &HostTensor| {
        let values = lanes::lanes(x);
        if x.shape() == shape { values } else { values.pick(Walk::broadcast(x.shape(), &shape)) }
    };
    Ok(Pair { common, a: spread(&a), b: spread(&b), shape })
}

/// Arithmetic in the common dtype; integers wrap in it, floats are rounded once to what is written.
pub(super) fn arithmetic(call: &Call<'_>, op: &Arithmetic) -> Results {
    let Pair { shape, common, a, b } = pair(call, false)?;
    match (a, b) {
        (Lanes::Int(a), Lanes::Int(b)) => {
            if op.divides && b.contains(&0) {
                return invalid("an integer is divided by zero");
            }
            one(lanes::from_ints(common, shape, a.into_iter().zip(b).map(|(a, b)| (op.int)(a, b))))
        }
        (a, b) => {
            let Some(float) = op.float else { return invalid(format!("{common} has no bits to work on")) };
            let zipped = a.into_floats().into_iter().zip(b.into_floats());
            one(lanes::from_floats(float_result(call, common), shape, zipped.map(|(a, b)| float(a, b))))
        }
    }
}

/// The dtype in which a float result is rounded first: what is written, if that is a float.
fn float_result(call: &Call<'_>, common: DType) -> DType {
    if call.out_dtype().is_float() { call.out_dtype() } else { common }
}

/// Both operands as floats.
pub(super) fn float_pair(call: &Call<'_>, op: fn(f64, f64) -> f64) -> Results {
    let Pair { shape, common, a, b } = pair(call, true)?;
    let zipped = a.into_floats().into_iter().zip(b.into_floats());
    one(lanes::from_floats(float_result(call, common), shape, zipped.map(|(a, b)| op(a, b))))
}

/// A comparison in the common dtype.
pub(super) fn compare(call: &Call<'_>, int: fn(i64, i64) -> bool, float: fn(f64, f64) -> bool) -> Results {
    let Pair { shape, a, b, .. } = pair(call, false)?;
    one(match (a, b) {
        (Lanes::Int(a), Lanes::Int(b)) => {
            lanes::from_bools(shape, a.into_iter().zip(b).map(|(a, b)| int(a, b)))
        }
        (a, b) => {
            let zipped = a.into_floats().into_iter().zip(b.into_floats());
            lanes::from_bools(shape, zipped.map(|(a, b)| float(a, b)))
        }
    })
}

/// Two truth values; each operand is tested in its own dtype.
pub(super) fn logical(call: &Call<'_>, op: fn(bool, bool) -> bool) -> Results {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let shape = broadcast_shape(a.shape(), b.shape())?;
    call.admit(&shape)?;
    let (x, y) = (lanes::truths(a), lanes::truths(b));
    let places = Walk::broadcast(a.shape(), &shape).zip(Walk::broadcast(b.shape(), &shape));
    one(lanes::from_bools(shape, places.map(|(at, other)| op(x[at], y[other]))))
}

/// `self op alpha * other`.
fn scaled(call: &Call<'_>, int: fn(i64, i64) -> i64, float: fn(f64, f64) -> f64) -> Results {
    let alpha = call.maybe_scalar(2)?.unwrap_or(Scalar::Int(1));
    scaled_pair(call, alpha, false, int, float)
}

fn reverse_subtract(call: &Call<'_>) -> Results {
    let alpha = call.maybe_scalar(2)?.unwrap_or(Scalar::Int(1));
    scaled_pair(call, alpha, true, i64::wrapping_sub, |a, b| a - b)
}

fn scaled_pair(
    call: &Call<'_>,
    alpha: Scalar,
    reversed: bool,
    int: fn(i64, i64) -> i64,
    float: fn(f64, f64) -> f64,
) -> Results {
    let Pair { shape, common, a, b } = pair(call, false)?;
    // Reversed, it is the first operand that is scaled and subtracted.
    let (left, right) = if reversed { (b, a) } else { (a, b) };
    match (left, right, alpha) {
        (Lanes::Int(a), Lanes::Int(b), Scalar::Int(_) | Scalar::Bool(_)) => {
            let alpha = super::call::as_float(alpha) as i64;
            let values = a.into_iter().zip(b).map(|(a, b)| int(a, b.wrapping_mul(alpha)));
            one(lanes::from_ints(common, shape, values))
        }
        (Lanes::Int(_), Lanes::Int(_), Scalar::Float(alpha)) => {
            invalid(format!("integers cannot be scaled by the float {alpha}"))
        }
        (a, b, alpha) => {
            let alpha = super::call::as_float(alpha);
            let zipped = a.into_floats().into_iter().zip(b.into_floats());
            let values = zipped.map(|(a, b)| float(a, b * alpha));
            one(lanes::from_floats(float_result(call, common), shape, values))
        }
    }
}

fn divide_rounding(call: &Call<'_>) -> Results {
    match call.text(2)? {
        "" => float_pair(call, |a, b| a / b),
        "floor" => {
            arithmetic(call, &Arithmetic { int: floor_divide, float: Some(floor_quotient), divides: true })
        }
        "trunc" => arithmetic(
            call,
            &Arithmetic { int: i64::wrapping_div, float: Some(|a, b| (a / b).trunc()), divides: true },
        ),
        other => invalid(format!("division does not know the rounding {other:?}")),
    }
}

fn floor_divide(a: i64, b: i64) -> i64 {
    let quotient = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

/// Python's: from the remainder, so that 1 // 0.1 is 9, as in torch.
fn floor_quotient(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return a / b;
    }
    let rest = a % b;
    let quotient = (a - rest) / b;
    let quotient = if rest != 0.0 && (b < 0.0) != (rest < 0.0) { quotient - 1.0 } else { quotient };
    if quotient == 0.0 {
        return 0f64.copysign(a / b);
    }
    let floor = quotient.floor();
    if quotient - floor > 0.5 { floor + 1.0 } else { floor }
}

/// The remainder has the divisor's sign.
fn remainder(a: i64, b: i64) -> i64 {
    let rest = a.wrapping_rem(b);
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}

fn float_remainder(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
}

/// Wraps; a negative exponent gives 0 except for 1 and -1.
fn int_power(base: i64, exponent: i64) -> i64 {
    match (base, exponent) {
        (_, 0..) => {
            let (mut result, mut factor, mut left) = (1i64, base, exponent);
            while left > 0 {
                if left & 1 == 1 {
                    result = result.wrapping_mul(factor);
                }
                factor = factor.wrapping_mul(factor);
                left >>= 1;
            }
            result
        }
        (1, _) => 1,
        (-1, _) if exponent % 2 == 0 => 1,
        (-1, _) => -1,
        _ => 0,
    }
}

fn shift_left(a: i64, b: i64) -> i64 {
    u32::try_from(b).ok().and_then(|by| a.checked_shl(by)).unwrap_or(0)
}

fn shift_right(a: i64, b: i64) -> i64 {
    a >> b.clamp(0, 63)
}

fn xlogy(a: f64, b: f64) -> f64 {
    if b.is_nan() {
        b
    } else if a == 0.0 {
        0.0
    } else {
        a * b.ln()
    }
}

fn log_add_exp(a: f64, b: f64) -> f64 {
    let high = a.max(b);
    if high.is_infinite() || a.is_nan() || b.is_nan() {
        return if a.is_nan() || b.is_nan() { f64::NAN } else { high };
    }
    high + (-(a - b).abs()).exp().ln_1p()
}

fn step_int(x: i64, at_zero: i64) -> i64 {
    if x == 0 { at_zero } else { (x > 0).into() }
}

fn step_float(x: f64, at_zero: f64) -> f64 {
    if x == 0.0 { at_zero } else { u8::from(x > 0.0).into() }
}

/// `self` where the condition is not zero, else `other`.
pub(super) fn choose(call: &Call<'_>, condition: &HostTensor, x: &HostTensor, y: &HostTensor) -> Results {
    let common = promote::common(&[Operand::of(x), Operand::of(y)]);
    let shape = broadcast_shape(condition.shape(), &broadcast_shape(x.shape(), y.shape())?)?;
    call.admit(&shape)?;
    let (x, y) = (lanes::cast(x, common)?, lanes::cast(y, common)?);
    let truths = lanes::truths(condition);
    let at = Walk::broadcast(condition.shape(), &shape);
    let (from_x, from_y) = (Walk::broadcast(x.shape(), &shape), Walk::broadcast(y.shape(), &shape));
    let places = at.zip(from_x.zip(from_y));
    one(match (lanes::lanes(&x), lanes::lanes(&y)) {
        (Lanes::Int(x), Lanes::Int(y)) => {
            lanes::from_ints(common, shape, places.map(|(at, (i, j))| if truths[at] { x[i] } else { y[j] }))
        }
        (x, y) => {
            let (x, y) = (x.into_floats(), y.into_floats());
            lanes::from_floats(common, shape, places.map(|(at, (i, j))| if truths[at] { x[i] } else { y[j] }))
        }
    })
}

/// Between two tensors, either of which may be absent.
fn clamp(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let bounds = [call.maybe_tensor(1)?, call.maybe_tensor(2)?];
    let mut operands = vec![Operand::of(x)];
    operands.extend(bounds.iter().flatten().map(|bound| Operand::of(bound)));
    let common = promote::common(&operands);
    let mut value = lanes::cast(x, common)?;
    for (bound, upper) in bounds.into_iter().zip([false, true]) {
        let Some(bound) = bound else { continue };
        let bound = lanes::cast(bound, common)?;
        let shape = broadcast_shape(value.shape(), bound.shape())?;
        call.admit(&shape)?;
        let places = Walk::broadcast(value.shape(), &shape).zip(Walk::broadcast(bound.shape(), &shape));
        value = match (lanes::lanes(&value), lanes::lanes(&bound)) {
            (Lanes::Int(x), Lanes::Int(y)) => {
                let limit = if upper { i64::min } else { i64::max };
                lanes::from_ints(common, shape, places.map(|(i, j)| limit(x[i], y[j])))?
            }
            (x, y) => {
                let (x, y) = (x.into_floats(), y.into_floats());
                let limit = |x: f64, y: f64| match upper {
                    _ if x.is_nan() || y.is_nan() => f64::NAN,
                    true => x.min(y),
                    false => x.max(y),
                };
                lanes::from_floats(common, shape, places.map(|(i, j)| limit(x[i], y[j])))?
            }
        };
    }
    one(Ok(value))
}

/// `self + value * (a op b)`, in floats.
fn fused(call: &Call<'_>, op: fn(f64, f64) -> f64) -> Results {
    let (x, a, b) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let value = call.float(3)?;
    let shape = broadcast_shape(x.shape(), &broadcast_shape(a.shape(), b.shape())?)?;
    call.admit(&shape)?;
    let lane = |tensor: &HostTensor| {
        lanes::lanes(tensor).pick(Walk::broadcast(tensor.shape(), &shape)).into_floats()
    };
    let values = lane(x).into_iter().zip(lane(a).into_iter().zip(lane(b)));
    let values: Vec<f64> = values.map(|(x, (a, b))| x + value * op(a, b)).collect();
    one(lanes::from_floats(call.out_dtype(), shape, values))
}

fn lerp(call: &Call<'_>) -> Results {
    let (start, end, weight) = (call.tensor(0)?, call.tensor(1)?, call.float(2)?);
    let shape = broadcast_shape(start.shape(), end.shape())?;
    call.admit(&shape)?;
    let (a, b) = (lanes::floats(start), lanes::floats(end));
    let places = Walk::broadcast(start.shape(), &shape).zip(Walk::broadcast(end.shape(), &shape));
    one(lanes::from_floats(
        call.out_dtype(),
        shape.clone(),
        places.map(|(i, j)| a[i] + weight * (b[j] - a[i])),
    ))
}
