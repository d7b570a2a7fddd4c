//! Functions of numbers that `std` does not have, or has with another meaning. All are computed in f64, so that
//! one rounding to the tensor's dtype is the only one that counts.

use super::lanes::Lane;
use pteron_tensor::DType;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// The larger one. NaN wins over numbers; of equals (zeros of either sign) the second is returned.
#[allow(clippy::eq_op)] // only a NaN differs from itself
pub(super) fn maximum<L: Copy + PartialOrd>(a: L, b: L) -> L {
    if a > b || a != a { a } else { b }
}

/// The smaller one, with the same rules.
#[allow(clippy::eq_op)]
pub(super) fn minimum<L: Copy + PartialOrd>(a: L, b: L) -> L {
    if a < b || a != a { a } else { b }
}

/// -1, 0 or 1, of NaN 0.
pub(super) fn sign(x: f64) -> f64 {
    f64::from(i8::from(x > 0.0) - i8::from(x < 0.0))
}

/// The remainder has the divisor's sign. A zero one keeps the dividend's, as in PyTorch: -6 mod 3 is -0.
pub(super) fn remainder(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
}

/// The same for integers. There is no remainder by zero; what is left undivided is the dividend.
pub(super) fn remainder_int(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { a - floor_divide_int(a, b) * b }
}

/// PyTorch's quotient rounded down: built on the exact remainder, so that 1 divided by the f32 nearest to 0.1,
/// which is above it, is 9 and not the rounded quotient's 10; -1 divided by infinity is -1.
pub(super) fn floor_divide(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return a / b;
    }
    let rest = a % b;
    let mut quotient = (a - rest) / b;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return 0f64.copysign(a / b);
    }
    let floor = quotient.floor();
    if quotient - floor > 0.5 { floor + 1.0 } else { floor }
}

/// The same for integers. Division by zero gives 0: PyTorch refuses it, MLX leaves it undefined.
pub(super) fn floor_divide_int(a: i128, b: i128) -> i128 {
    if b == 0 {
        return 0;
    }
    let quotient = a / b;
    if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

/// Repeated multiplication that wraps; a negative exponent gives 0, even of base 1.
pub(super) fn power_int(base: i128, exponent: i128) -> i128 {
    if exponent < 0 {
        return 0;
    }
    let (mut power, mut square, mut left) = (1i128, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        left >>= 1;
    }
    power
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(super) fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

pub(super) fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2))
}

pub(super) fn gelu_tanh(x: f64) -> f64 {
    let inner = FRAC_1_SQRT_2 * FRAC_2_SQRT_PI * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

/// `log(exp(a) + exp(b))` without leaving the range; two equal infinities are themselves, not NaN.
pub(super) fn log_add_exp(a: f64, b: f64) -> f64 {
    if a == b && a.is_infinite() {
        return a;
    }
    let larger = maximum(a, b);
    larger + (-(a - b).abs()).exp().ln_1p()
}

/// The error function by its series of positive terms,
/// `2/sqrt(pi) * exp(-x^2) * sum of 2^n x^(2n+1) / (1 * 3 * ... * (2n+1))`: nothing cancels, so it is right to a
/// few units in the last place of f64. Beyond 6 it is 1 in every dtype.
pub(super) fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() > 6.0 {
        return 1f64.copysign(x);
    }
    let (mut sum, mut term, mut n) = (x, x, 1.0);
    // 6 needs 98 terms, 1 needs 19; 0 ends at once.
    while term.abs() > sum.abs() * 1e-17 {
        n += 2.0;
        term *= 2.0 * x * x / n;
        sum += term;
    }
    FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// Rounding to a number of decimals, halves to even.
pub(super) struct Round {
    decimals: i32,
    /// 10 to the number of decimals, whatever its sign.
    unit: f64,
    unit_int: Option<i128>,
    precision: DType,
}

impl Round {
    pub(super) fn new(decimals: i32, dtype: DType) -> Round {
        let precision = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let power = decimals.unsigned_abs();
        let unit = 10f64.powi(power.min(400) as i32).rounded(precision);
        // Every integer is less than half of 10^20, and so rounds to none of it.
        let unit_int = (power < 20).then(|| 10i128.pow(power));
        Round { decimals, unit, unit_int, precision }
    }

    /// Every step in f32, as in PyTorch: 0.35 is less than that in f32, but ten times it is exactly 3.5 there,
    /// which rounds to 4.
    pub(super) fn float(&self, x: f64) -> f64 {
        match self.decimals {
            0 => x.round_ties_even(),
            1.. => (x * self.unit).rounded(self.precision).round_ties_even() / self.unit,
            _ => (x / self.unit).rounded(self.precision).round_ties_even() * self.unit,
        }
    }

    pub(super) fn int(&self, x: i128) -> i128 {
        if self.decimals >= 0 {
            return x;
        }
        let Some(unit) = self.unit_int else { return 0 };
        let below = floor_divide_int(x, unit);
        let twice = 2 * (x - below * unit);
        let up = twice > unit || (twice == unit && below % 2 != 0);
        (below + i128::from(up)) * unit
    }
}
