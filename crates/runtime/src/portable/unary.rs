//! Operators of one tensor, element by element.

use super::call::as_float;
use super::lanes::{self, Lanes};
use super::special::{erf, erfc, erfinv};
use super::{Call, Kernel, Operator, Results, invalid, one, row, whole};
use pteron_tensor::{DType, Scalar};
use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};

use Kernel::{Float, Keep, Test};

pub(super) const TABLE: &[Operator] = &[
    row("aten::acos.out", 1, Float(f64::acos)),
    row("aten::acosh.out", 1, Float(f64::acosh)),
    row("aten::asin.out", 1, Float(f64::asin)),
    row("aten::asinh.out", 1, Float(f64::asinh)),
    row("aten::atan.out", 1, Float(f64::atan)),
    row("aten::atanh.out", 1, Float(f64::atanh)),
    row("aten::cos.out", 1, Float(f64::cos)),
    row("aten::cosh.out", 1, Float(f64::cosh)),
    row("aten::erf.out", 1, Float(erf)),
    row("aten::erfc.out", 1, Float(erfc)),
    row("aten::erfinv.out", 1, Float(erfinv)),
    row("aten::exp.out", 1, Float(f64::exp)),
    row("aten::exp2.out", 1, Float(f64::exp2)),
    row("aten::expm1.out", 1, Float(f64::exp_m1)),
    row("aten::log.out", 1, Float(f64::ln)),
    row("aten::log10.out", 1, Float(f64::log10)),
    row("aten::log1p.out", 1, Float(f64::ln_1p)),
    row("aten::log2.out", 1, Float(f64::log2)),
    row("aten::log_sigmoid.out", 1, Float(|x| x.min(0.0) - (-x.abs()).exp().ln_1p())),
    row("aten::reciprocal.out", 1, Float(f64::recip)),
    row("aten::rsqrt.out", 1, Float(|x| x.sqrt().recip())),
    row("aten::sigmoid.out", 1, Float(sigmoid)),
    row("aten::silu.out", 1, Float(|x| x * sigmoid(x))),
    row("aten::mish.out", 1, Float(|x| x * softplus(x, 1.0, f64::INFINITY).tanh())),
    row("aten::hardsigmoid.out", 1, Float(|x| (x + 3.0).clamp(0.0, 6.0) / 6.0)),
    row("aten::hardswish.out", 1, Float(|x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0)),
    row("aten::sin.out", 1, Float(f64::sin)),
    row("aten::sinh.out", 1, Float(f64::sinh)),
    row("aten::sqrt.out", 1, Float(f64::sqrt)),
    row("aten::tan.out", 1, Float(f64::tan)),
    row("aten::tanh.out", 1, Float(f64::tanh)),
    row("aten::abs.out", 1, Keep(i64::wrapping_abs, f64::abs)),
    row("aten::ceil.out", 1, Keep(same, f64::ceil)),
    row("aten::floor.out", 1, Keep(same, f64::floor)),
    row("aten::frac.out", 1, Keep(|_| 0, |x| x - x.trunc())),
    row("aten::neg.out", 1, Keep(i64::wrapping_neg, |x| -x)),
    row("aten::relu.out", 1, Keep(|x| x.max(0), |x| if x < 0.0 { 0.0 } else { x })),
    row("aten::round.out", 1, Keep(same, f64::round_ties_even)),
    row("aten::sgn.out", 1, Keep(i64::signum, sign)),
    row("aten::sign.out", 1, Keep(i64::signum, sign)),
    row("aten::square.out", 1, Keep(|x| x.wrapping_mul(x), |x| x * x)),
    row("aten::trunc.out", 1, Keep(same, f64::trunc)),
    row("aten::_conj_physical.out", 1, Keep(same, |x| x)),
    row("aten::isfinite.out", 1, Test(|_| true, f64::is_finite)),
    row("aten::isinf.out", 1, Test(|_| false, f64::is_infinite)),
    row("aten::isnan.out", 1, Test(|_| false, f64::is_nan)),
    row("aten::isneginf.out", 1, Test(|_| false, |x| x == f64::NEG_INFINITY)),
    row("aten::isposinf.out", 1, Test(|_| false, |x| x == f64::INFINITY)),
    row("aten::logical_not.out", 1, Test(|x| x == 0, |x| x == 0.0)),
    row("aten::signbit.out", 1, Test(|x| x < 0, f64::is_sign_negative)),
    whole("aten::bitwise_not.out", 1, bitwise_not),
    whole("aten::celu.out", 2, celu),
    whole("aten::clamp.out", 3, clamp),
    whole("aten::clamp_min.out", 2, clamp),
    whole("aten::clamp_max.out", 2, |call| bounded(call, None, call.maybe_scalar(1)?)),
    whole("aten::elu.out", 4, elu),
    whole("aten::gelu.out", 2, gelu),
    whole("aten::hardshrink.out", 2, hardshrink),
    whole("aten::hardtanh.out", 3, clamp),
    whole("aten::leaky_relu.out", 2, leaky_relu),
    whole("aten::logit.out", 2, logit),
    whole("aten::nan_to_num.out", 4, nan_to_num),
    whole("aten::round.decimals_out", 2, round_decimals),
    whole("aten::softplus.out", 3, softplus_op),
    whole("aten::softshrink.out", 2, softshrink),
    whole("aten::threshold.out", 3, threshold),
];

/// Element by element in floats.
pub(super) fn float(call: &Call<'_>, op: impl Fn(f64) -> f64) -> Results {
    let x = call.tensor(0)?;
    one(lanes::from_floats(call.out_dtype(), x.shape().to_vec(), lanes::floats(x).into_iter().map(op)))
}

/// Element by element; integers stay integers and wrap in their own dtype.
pub(super) fn keep(call: &Call<'_>, int: fn(i64) -> i64, float: fn(f64) -> f64) -> Results {
    let x = call.tensor(0)?;
    let shape = x.shape().to_vec();
    one(match lanes::lanes(x) {
        Lanes::Int(values) => lanes::from_ints(x.dtype(), shape, values.into_iter().map(int)),
        Lanes::Float(values) => lanes::from_floats(call.out_dtype(), shape, values.into_iter().map(float)),
    })
}

/// Element by element to truth values.
pub(super) fn test(call: &Call<'_>, int: fn(i64) -> bool, float: fn(f64) -> bool) -> Results {
    let x = call.tensor(0)?;
    let shape = x.shape().to_vec();
    one(match lanes::lanes(x) {
        Lanes::Int(values) => lanes::from_bools(shape, values.into_iter().map(int)),
        Lanes::Float(values) => lanes::from_bools(shape, values.into_iter().map(float)),
    })
}

fn same(x: i64) -> i64 {
    x
}

/// Of NaN, 0: both comparisons fail.
fn sign(x: f64) -> f64 {
    f64::from(u8::from(x > 0.0)) - f64::from(u8::from(x < 0.0))
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64, beta: f64, threshold: f64) -> f64 {
    let scaled = x * beta;
    if scaled > threshold {
        x
    } else {
        // Stable on both sides: log(1 + e^s) = max(s, 0) + log1p(e^-|s|).
        (scaled.max(0.0) + (-scaled.abs()).exp().ln_1p()) / beta
    }
}

fn bitwise_not(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let shape = x.shape().to_vec();
    match (lanes::lanes(x), x.dtype()) {
        (Lanes::Int(values), DType::Bool) => {
            one(lanes::from_bools(shape, values.into_iter().map(|x| x == 0)))
        }
        (Lanes::Int(values), dtype) => one(lanes::from_ints(dtype, shape, values.into_iter().map(|x| !x))),
        (Lanes::Float(_), dtype) => invalid(format!("the bits of {dtype} cannot be turned")),
    }
}

fn clamp(call: &Call<'_>) -> Results {
    bounded(call, call.maybe_scalar(1)?, call.maybe_scalar(2)?)
}

/// Where the bounds cross the upper one wins; NaN stays.
fn bounded(call: &Call<'_>, low: Option<Scalar>, high: Option<Scalar>) -> Results {
    let x = call.tensor(0)?;
    let shape = x.shape().to_vec();
    let whole = |bound: Option<Scalar>| !matches!(bound, Some(Scalar::Float(_)));
    if let Lanes::Int(values) = lanes::lanes(x)
        && whole(low)
        && whole(high)
    {
        let low = low.map_or(i64::MIN, |scalar| as_float(scalar) as i64);
        let high = high.map_or(i64::MAX, |scalar| as_float(scalar) as i64);
        return one(lanes::from_ints(
            call.out_dtype(),
            shape,
            values.into_iter().map(|x| x.max(low).min(high)),
        ));
    }
    let (low, high) = (low.map(as_float), high.map(as_float));
    float(call, |x| {
        let x = if low.is_some_and(|low| x < low) { low.unwrap_or(x) } else { x };
        if high.is_some_and(|high| x > high) { high.unwrap_or(x) } else { x }
    })
}

fn celu(call: &Call<'_>) -> Results {
    let alpha = call.float(1)?;
    float(call, |x| x.max(0.0) + (alpha * (x / alpha).exp_m1()).min(0.0))
}

fn elu(call: &Call<'_>) -> Results {
    let (alpha, scale, input_scale) = (call.float(1)?, call.float(2)?, call.float(3)?);
    float(call, |x| if x <= 0.0 { (x * input_scale).exp_m1() * alpha * scale } else { x * scale })
}

fn gelu(call: &Call<'_>) -> Results {
    match call.text(1)? {
        // sqrt(2 / pi) = (2 / sqrt(pi)) / sqrt(2).
        "tanh" => {
            float(call, |x| 0.5 * x * (1.0 + (FRAC_2_SQRT_PI / SQRT_2 * (x + 0.044715 * x * x * x)).tanh()))
        }
        "none" | "" => float(call, |x| 0.5 * x * (1.0 + erf(x / SQRT_2))),
        other => invalid(format!("gelu does not know the approximation {other:?}")),
    }
}

fn hardshrink(call: &Call<'_>) -> Results {
    let lambda = call.float(1)?;
    float(call, |x| if x.abs() <= lambda { 0.0 } else { x })
}

fn softshrink(call: &Call<'_>) -> Results {
    let lambda = call.float(1)?;
    float(call, |x| {
        if x > lambda {
            x - lambda
        } else if x < -lambda {
            x + lambda
        } else {
            x * 0.0
        }
    })
}

fn leaky_relu(call: &Call<'_>) -> Results {
    let slope = call.float(1)?;
    float(call, |x| if x > 0.0 { x } else { x * slope })
}

fn logit(call: &Call<'_>) -> Results {
    let eps = call.maybe_float(1)?;
    float(call, |x| {
        let x = eps.map_or(x, |eps| {
            if x < eps {
                eps
            } else if x > 1.0 - eps {
                1.0 - eps
            } else {
                x
            }
        });
        (x / (1.0 - x)).ln()
    })
}

fn nan_to_num(call: &Call<'_>) -> Results {
    let largest = match call.tensor(0)?.dtype() {
        DType::F16 => half::f16::MAX.into(),
        DType::BF16 => half::bf16::MAX.into(),
        DType::F64 => f64::MAX,
        _ => f32::MAX.into(),
    };
    let nan = call.maybe_float(1)?.unwrap_or(0.0);
    let (high, low) = (call.maybe_float(2)?.unwrap_or(largest), call.maybe_float(3)?.unwrap_or(-largest));
    float(call, |x| match x {
        _ if x.is_nan() => nan,
        f64::INFINITY => high,
        f64::NEG_INFINITY => low,
        _ => x,
    })
}

fn round_decimals(call: &Call<'_>) -> Results {
    let power = 10f64.powi(call.int(1)?.clamp(-400, 400) as i32);
    float(call, |x| (x * power).round_ties_even() / power)
}

fn softplus_op(call: &Call<'_>) -> Results {
    let (beta, threshold) = (call.float(1)?, call.float(2)?);
    float(call, |x| softplus(x, beta, threshold))
}

fn threshold(call: &Call<'_>) -> Results {
    let (threshold, value) = (call.float(1)?, call.float(2)?);
    float(call, |x| if x <= threshold { value } else { x })
}
