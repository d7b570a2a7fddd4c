//! Functions of one or two f32, without branches, so that loops over them become vector code. Those that models
//! run on every token (`exp`, `sigmoid`, `silu`, `tanh`, `gelu`, `gelu_tanh`) are computed in f32 and are right to about 4
//! units in the last place; the others are computed in f64 by short series and are right to one.

use crate::simd::Simd;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, FRAC_PI_2, FRAC_PI_4, LN_2, LOG2_E, LOG10_E};

/// Adding it to a small f32 leaves the nearest integer in the low bits.
const ROUND: f32 = 12_582_912.0;
/// The same for f64.
const ROUND_64: f64 = 6_755_399_441_055_744.0;

/// `c[0] + c[1] x + ...` by Horner's rule.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(x: f64, c: [f64; N]) -> f64 {
    let mut sum = c[N - 1];
    for i in (0..N - 1).rev() {
        sum = S::fma64(sum, x, c[i]);
    }
    sum
}

/// `e^x`, with subnormal results; error below 2 units in the last place.
#[inline(always)]
pub(crate) fn exp<S: Simd>(x: f32) -> f32 {
    // Comparisons that are false for NaN keep it.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = S::fma1(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = S::fma1(n, -0.693_359_4, x);
    let r = S::fma1(n, 2.121_944_4e-4, r);
    let mut p = 1.0 / 5040.0;
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = S::fma1(p, r, c);
    }
    // In two steps, because 2^n itself may be outside the range of normal floats.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    p * power(half) * power(n.wrapping_sub(half))
}

#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<S>(-x))
}

#[inline(always)]
pub(crate) fn silu<S: Simd>(x: f32) -> f32 {
    x / (1.0 + exp::<S>(-x))
}

/// `x (1 + tanh(u)) / 2` is `x / (1 + e^(-2u))`, where nothing cancels.
#[inline(always)]
pub(crate) fn gelu_tanh<S: Simd>(x: f32) -> f32 {
    const TWICE: f32 = (2.0 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI) as f32;
    let inner = TWICE * S::fma1(0.044_715 * x * x, x, x);
    x / (1.0 + exp::<S>(-inner))
}

#[inline(always)]
pub(crate) fn tanh<S: Simd>(x: f32) -> f32 {
    let (size, square) = (x.abs(), x * x);
    // A fraction of polynomials near 0, where the other form cancels.
    let above = S::fma1(square + 105.0, square, 945.0);
    let below = S::fma1(S::fma1(15.0, square, 420.0), square, 945.0);
    let near = x * above / below;
    let far = 1.0 - 2.0 / (exp::<S>(2.0 * size) + 1.0);
    if size < 0.55 { near } else { far.copysign(x) }
}

/// `(n, e^r - 1)` with `x = n ln 2 + r`.
#[inline(always)]
fn exp_parts<S: Simd>(x: f64) -> (f64, f64) {
    let shifted = S::fma64(x, LOG2_E, ROUND_64);
    let n = shifted - ROUND_64;
    let r = S::fma64(n, -LN_2, x);
    let series = [
        1.0,
        1.0 / 2.0,
        1.0 / 6.0,
        1.0 / 24.0,
        1.0 / 120.0,
        1.0 / 720.0,
        1.0 / 5040.0,
        1.0 / 40320.0,
        1.0 / 362_880.0,
        1.0 / 3_628_800.0,
    ];
    let power = f64::from_bits(shifted.to_bits().wrapping_sub(ROUND_64.to_bits()).wrapping_add(1023) << 52);
    (power, r * polynomial::<S, 10>(r, series))
}

/// Between bounds beyond which every f32 result is infinite or zero; NaN stays.
#[inline(always)]
fn bounded(x: f64) -> f64 {
    let x = if x > 200.0 { 200.0 } else { x };
    if x < -200.0 { -200.0 } else { x }
}

#[inline(always)]
fn exp64<S: Simd>(x: f64) -> f64 {
    let (power, rest) = exp_parts::<S>(bounded(x));
    S::fma64(power, rest, power)
}

#[inline(always)]
fn exp_m1_64<S: Simd>(x: f64) -> f64 {
    let (power, rest) = exp_parts::<S>(bounded(x));
    S::fma64(power, rest, power - 1.0)
}

#[inline(always)]
pub(crate) fn exp_m1<S: Simd>(x: f32) -> f32 {
    // Of -0 the sum above makes 0.
    if x == 0.0 { x } else { exp_m1_64::<S>(x.into()) as f32 }
}

/// `ln((1 + s) / (1 - s))` for s within 0.1716.
#[inline(always)]
fn log_series<S: Simd>(s: f64) -> f64 {
    let series =
        [2.0, 2.0 / 3.0, 2.0 / 5.0, 2.0 / 7.0, 2.0 / 9.0, 2.0 / 11.0, 2.0 / 13.0, 2.0 / 15.0, 2.0 / 17.0];
    s * polynomial::<S, 9>(s * s, series)
}

/// `(e, ln m)` with `x = 2^e m`, of positive normal numbers.
#[inline(always)]
fn log_parts<S: Simd>(x: f64) -> (f64, f64) {
    // Subtracting the bits of sqrt(1/2) carries into the exponent where the rest is at least that.
    let base = FRAC_1_SQRT_2.to_bits();
    let above = x.to_bits().wrapping_sub(base);
    let exponent = (above as i64 >> 52) as i32;
    let m = f64::from_bits((above & 0xf_ffff_ffff_ffff).wrapping_add(base));
    (f64::from(exponent), log_series::<S>((m - 1.0) / (m + 1.0)))
}

/// The logarithm's special values: of zero, of negative numbers, of infinity and NaN.
#[inline(always)]
fn log_limits(x: f64, log: f64) -> f64 {
    let log = if x < f64::INFINITY { log } else { x };
    let log = if x > 0.0 { log } else { f64::NAN };
    let log = if x == 0.0 { f64::NEG_INFINITY } else { log };
    if x.is_nan() { x } else { log }
}

#[inline(always)]
fn log64<S: Simd>(x: f64) -> f64 {
    let (e, log) = log_parts::<S>(x);
    log_limits(x, S::fma64(e, LN_2, log))
}

#[inline(always)]
pub(crate) fn log<S: Simd>(x: f32) -> f32 {
    log64::<S>(x.into()) as f32
}

#[inline(always)]
pub(crate) fn log2<S: Simd>(x: f32) -> f32 {
    let (e, log) = log_parts::<S>(x.into());
    log_limits(x.into(), S::fma64(log, LOG2_E, e)) as f32
}

#[inline(always)]
pub(crate) fn log10<S: Simd>(x: f32) -> f32 {
    let (e, log) = log_parts::<S>(x.into());
    log_limits(x.into(), S::fma64(e, LN_2, log) * LOG10_E) as f32
}

#[inline(always)]
fn log_1p64<S: Simd>(x: f64) -> f64 {
    let near = log_series::<S>(x / (2.0 + x));
    let far = log64::<S>(1.0 + x);
    if x.abs() < 0.29 { near } else { far }
}

#[inline(always)]
pub(crate) fn log_1p<S: Simd>(x: f32) -> f32 {
    log_1p64::<S>(x.into()) as f32
}

/// Beyond it the reduction below loses bits; [`sin`], [`cos`] and [`tan`] then ask the standard library.
const REDUCIBLE: f32 = 1e8;

/// Quadrant and rest of an angle.
#[inline(always)]
fn quadrant<S: Simd>(x: f32) -> (u64, f64) {
    let x = f64::from(x);
    let shifted = S::fma64(x, 1.0 / FRAC_PI_2, ROUND_64);
    let n = shifted - ROUND_64;
    // pi / 2 in two parts; the product of the first with n is exact.
    let r = x - n * 1.570_796_310_901_641_8;
    (shifted.to_bits() & 3, r - n * 1.589_325_477_352_819_6e-8)
}

#[inline(always)]
fn sin_series<S: Simd>(r: f64) -> f64 {
    let series = [
        1.0,
        -1.0 / 6.0,
        1.0 / 120.0,
        -1.0 / 5040.0,
        1.0 / 362_880.0,
        -1.0 / 39_916_800.0,
        1.0 / 6_227_020_800.0,
    ];
    r * polynomial::<S, 7>(r * r, series)
}

#[inline(always)]
fn cos_series<S: Simd>(r: f64) -> f64 {
    let series = [
        1.0,
        -1.0 / 2.0,
        1.0 / 24.0,
        -1.0 / 720.0,
        1.0 / 40320.0,
        -1.0 / 3_628_800.0,
        1.0 / 479_001_600.0,
        -1.0 / 87_178_291_200.0,
    ];
    polynomial::<S, 8>(r * r, series)
}

/// Sine and cosine of an angle within [`REDUCIBLE`].
#[inline(always)]
fn sin_cos_reduced<S: Simd>(x: f32) -> (f64, f64) {
    let (quadrant, r) = quadrant::<S>(x);
    let (sin, cos) = (sin_series::<S>(r), cos_series::<S>(r));
    let swapped = quadrant & 1 == 1;
    let (sin, cos) = if swapped { (cos, sin) } else { (sin, cos) };
    let sin = if quadrant & 2 == 2 { -sin } else { sin };
    let cos = if (quadrant + 1) & 2 == 2 { -cos } else { cos };
    (sin, cos)
}

/// Whether an angle may be reduced by multiplication; not so are huge ones, infinities and NaN.
#[inline(always)]
pub(crate) fn is_reducible(x: f32) -> bool {
    x.abs() < REDUCIBLE
}

#[inline(always)]
pub(crate) fn sin<S: Simd>(x: f32) -> f32 {
    if x == 0.0 { x } else { sin_cos_reduced::<S>(x).0 as f32 }
}

#[inline(always)]
pub(crate) fn cos<S: Simd>(x: f32) -> f32 {
    sin_cos_reduced::<S>(x).1 as f32
}

#[inline(always)]
pub(crate) fn tan<S: Simd>(x: f32) -> f32 {
    let (sin, cos) = sin_cos_reduced::<S>(x);
    if x == 0.0 { x } else { (sin / cos) as f32 }
}

/// The arc tangent of numbers from 0 to infinity.
#[inline(always)]
fn atan_positive<S: Simd>(x: f64) -> f64 {
    let above = x > 1.0;
    let x = if above { 1.0 / x } else { x };
    // Beyond the tangent of pi / 8, the difference from pi / 4.
    let upper = x > 0.414_213_562_373_095;
    let t = if upper { (x - 1.0) / (x + 1.0) } else { x };
    let mut series = [0.0; 14];
    for (i, c) in series.iter_mut().enumerate() {
        *c = if i % 2 == 0 { 1.0 } else { -1.0 } / (2 * i + 1) as f64;
    }
    let angle = t * polynomial::<S, 14>(t * t, series) + if upper { FRAC_PI_4 } else { 0.0 };
    if above { FRAC_PI_2 - angle } else { angle }
}

#[inline(always)]
fn atan64<S: Simd>(x: f64) -> f64 {
    atan_positive::<S>(x.abs()).copysign(x)
}

#[inline(always)]
pub(crate) fn atan<S: Simd>(x: f32) -> f32 {
    if x.is_nan() { x } else { atan64::<S>(x.into()) as f32 }
}

#[inline(always)]
pub(crate) fn asin<S: Simd>(x: f32) -> f32 {
    let x = f64::from(x);
    let cos = ((1.0 - x) * (1.0 + x)).sqrt();
    let angle = atan64::<S>(x / cos);
    // At 1 the quotient is infinite, beyond it the root is NaN.
    if cos.is_nan() { f32::NAN } else { angle as f32 }
}

#[inline(always)]
pub(crate) fn acos<S: Simd>(x: f32) -> f32 {
    let x = f64::from(x);
    let cos = ((1.0 - x) * (1.0 + x)).sqrt();
    let angle = FRAC_PI_2 - atan64::<S>(x / cos);
    if cos.is_nan() { f32::NAN } else { angle as f32 }
}

#[inline(always)]
pub(crate) fn atan2<S: Simd>(y: f32, x: f32) -> f32 {
    let (a, b) = (f64::from(y).abs(), f64::from(x).abs());
    // Equal zeros and equal infinities have directions of their own.
    let ratio = if a == b { 1.0 } else { a / b };
    let angle = atan_positive::<S>(ratio);
    let angle = if a == 0.0 && b == 0.0 { 0.0 } else { angle };
    let angle = if x.is_sign_negative() { std::f64::consts::PI - angle } else { angle };
    if y.is_nan() || x.is_nan() { f32::NAN } else { angle.copysign(y.into()) as f32 }
}

#[inline(always)]
pub(crate) fn sinh<S: Simd>(x: f32) -> f32 {
    let t = exp_m1_64::<S>(f64::from(x).abs());
    let sinh = 0.5 * (t + t / (t + 1.0));
    sinh.copysign(x.into()) as f32
}

#[inline(always)]
pub(crate) fn cosh<S: Simd>(x: f32) -> f32 {
    let e = exp64::<S>(f64::from(x).abs());
    (0.5 * (e + 1.0 / e)) as f32
}

#[inline(always)]
pub(crate) fn asinh<S: Simd>(x: f32) -> f32 {
    let size = f64::from(x).abs();
    let square = size * size;
    let log = log_1p64::<S>(size + square / (1.0 + (1.0 + square).sqrt()));
    // Infinity over infinity is none of it.
    let log = if size < f64::INFINITY { log } else { size };
    log.copysign(x.into()) as f32
}

#[inline(always)]
pub(crate) fn acosh<S: Simd>(x: f32) -> f32 {
    let x = f64::from(x);
    let log = log64::<S>(x + ((x - 1.0) * (x + 1.0)).sqrt());
    if x < 1.0 { f32::NAN } else { log as f32 }
}

#[inline(always)]
pub(crate) fn atanh<S: Simd>(x: f32) -> f32 {
    let wide = f64::from(x);
    let result = 0.5 * log_1p64::<S>(2.0 * wide / (1.0 - wide));
    if x == 0.0 { x } else { result as f32 }
}

#[inline(always)]
pub(crate) fn rsqrt<S: Simd>(x: f32) -> f32 {
    (1.0 / f64::from(x).sqrt()) as f32
}

/// `1 - erf(x)` for x from 0 on: `e^(-x^2) t q(t)` with `t = 1 / (1 + x / 2)`, where q was fitted to a relative
/// error of 2e-11 up to x = 11, from where on the result is 0 in f32.
#[inline(always)]
fn erfc_positive<S: Simd>(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.5 * x);
    let fit = [
        0.282_094_257_760_994_3,
        0.282_115_483_259_988,
        0.246_471_244_582_003_23,
        0.180_090_773_952_359_95,
        0.057_329_006_566_406_38,
        0.125_982_545_615_737_18,
        -0.524_864_324_328_016_6,
        1.183_562_764_261_607_3,
        -2.402_182_464_129_551,
        3.391_152_502_472_423_6,
        -3.137_625_721_396_569_5,
        1.904_680_572_508_286_3,
        -0.739_924_211_007_821_1,
        0.168_251_457_123_556_4,
        -0.017_133_887_240_877_065,
    ];
    exp64::<S>(-x * x) * t * polynomial::<S, 15>(t, fit)
}

/// The error function near 0 by its series, for x within 0.5.
#[inline(always)]
fn erf_series<S: Simd>(x: f64) -> f64 {
    let series =
        [1.0, -1.0 / 3.0, 1.0 / 10.0, -1.0 / 42.0, 1.0 / 216.0, -1.0 / 1320.0, 1.0 / 9360.0, -1.0 / 75600.0];
    FRAC_2_SQRT_PI * x * polynomial::<S, 8>(x * x, series)
}

#[inline(always)]
pub(crate) fn erf<S: Simd>(x: f32) -> f32 {
    let wide = f64::from(x);
    let far = (1.0 - erfc_positive::<S>(wide.abs())).copysign(wide);
    if x.abs() < 0.5 { erf_series::<S>(wide) as f32 } else { far as f32 }
}

/// `x (1 + erf(x / sqrt 2)) / 2`: x times the part of a normal distribution that lies below it. What lies beyond `z = |x|` is
/// `e^(-z^2 / 2) t q(t)` with `t = 1 / (1 + 0.3 z)`, where q was fitted to a relative error of 5e-9 up to z = 13.6, from where on
/// it is 0 in f32.
#[inline(always)]
pub(crate) fn gelu<S: Simd>(x: f32) -> f32 {
    let z = x.abs();
    let t = 1.0 / S::fma1(z, 0.3, 1.0);
    // Between -1 and 1, so that terms shrink with their power.
    let v = S::fma1(t, 2.490_196, -1.490_196);
    let fit = [
        -5.667_942e-6,
        9.484_886e-7,
        7.455_813e-5,
        -3.377_777e-5,
        -9.501_518e-4,
        -3.407_225_3e-4,
        1.459_931_9e-2,
        6.654_972_4e-2,
        0.162_170_08,
        0.257_935_7,
    ];
    let mut q = fit[0];
    for &c in &fit[1..] {
        q = S::fma1(q, v, c);
    }
    // A small change of the exponent is a large one of the power: what rounding took from the square is put back.
    let square = z * z;
    let rest = S::fma1(z, z, -square);
    let power = exp::<S>(-0.5 * square);
    let power = S::fma1(power, -0.5 * rest, power);
    let beyond = if z < 13.6 { power * (t * q) } else { 0.0 };
    x * if x > 0.0 { 1.0 - beyond } else { beyond }
}

/// `a^b`. An f64 logarithm is precise enough for every power that fits f32.
#[inline(always)]
pub(crate) fn pow<S: Simd>(a: f32, b: f32) -> f32 {
    let (base, power) = (f64::from(a), f64::from(b));
    let size = exp64::<S>(power * log64::<S>(base.abs()));
    // An odd integer power keeps the sign; every f32 from 2^24 on is an even one.
    let whole = |x: f64| (x + ROUND_64) - ROUND_64 == x;
    let is_integer = b.abs() >= 16_777_216.0 || whole(power);
    let is_odd = b.abs() < 16_777_216.0 && is_integer && !whole(0.5 * power);
    let negative = a.is_sign_negative();
    let signed = if negative && is_odd { -size } else { size };
    let result =
        if negative && !is_integer && base != 0.0 && base > f64::NEG_INFINITY { f64::NAN } else { signed };
    let result = if base.abs() == 1.0 && b.is_infinite() { 1.0 } else { result };
    let result = if a.is_nan() || b.is_nan() { f64::NAN } else { result };
    if a == 1.0 || b == 0.0 { 1.0 } else { result as f32 }
}

/// `log(e^a + e^b)`; two equal infinities are themselves, not NaN.
#[inline(always)]
pub(crate) fn log_add_exp<S: Simd>(a: f32, b: f32) -> f32 {
    let (x, y) = (f64::from(a), f64::from(b));
    let larger = if x > y || x.is_nan() { x } else { y };
    let sum = larger + log_1p64::<S>(exp64::<S>(-(x - y).abs()));
    if a == b && a.is_infinite() { a } else { sum as f32 }
}
