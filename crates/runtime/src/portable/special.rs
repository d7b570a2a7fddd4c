//! Functions that the standard library lacks.

use std::f64::consts::{FRAC_2_SQRT_PI, PI};

/// The Gauss error function, to about f64 precision: its series near zero, the complement's continued fraction
/// further out.
pub(super) fn erf(x: f64) -> f64 {
    if x.abs() < 2.5 { series(x) } else { x.signum() * (1.0 - tail(x.abs())) }
}

/// `1 - erf(x)`, without loss for large `x`.
pub(super) fn erfc(x: f64) -> f64 {
    match x {
        _ if x < 2.5 => 1.0 - erf(x),
        _ => tail(x),
    }
}

/// erf(x) = 2/sqrt(pi) * exp(-x^2) * sum of 2^n x^(2n+1) / (1 * 3 * ... * (2n+1)): all terms of one sign, so
/// nothing cancels.
fn series(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    let mut n = 0.0;
    while term.abs() > sum.abs() * 1e-17 {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// erfc for x >= 2.5: exp(-x^2) / sqrt(pi) / (x + (1/2)/(x + 1/(x + (3/2)/(x + ...)))).
fn tail(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let fraction = (1..=60).rev().fold(0.0, |below, n| 0.5 * f64::from(n) / (x + below));
    (-x * x).exp() / PI.sqrt() / (x + fraction)
}

/// The inverse of `erf`: a rough start, then Newton steps.
pub(super) fn erfinv(y: f64) -> f64 {
    if y.is_nan() || y.abs() > 1.0 {
        return f64::NAN;
    }
    if y.abs() == 1.0 {
        return y * f64::INFINITY;
    }
    // Winitzki's approximation, good to two digits everywhere.
    const A: f64 = 0.147;
    let log = (1.0 - y * y).ln();
    let half = 2.0 / (PI * A) + log / 2.0;
    let mut x = ((half * half - log / A).sqrt() - half).sqrt().copysign(y);
    for _ in 0..4 {
        let error = if y.abs() < 0.5 { erf(x) - y } else { (1.0 - y.abs() - erfc(x.abs())) * y.signum() };
        x -= error / (FRAC_2_SQRT_PI * (-x * x).exp());
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_functions_have_the_known_values() {
        // Abramowitz and Stegun, table 7.1, and computed values further out.
        let cases = [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (2.6, 0.999_763_965_583_470_6),
            (-1.0, -0.842_700_792_949_714_9),
        ];
        for (x, want) in cases {
            assert!((erf(x) - want).abs() < 1e-14, "erf({x}) = {}", erf(x));
            assert!((erfinv(want) - x).abs() < 1e-9, "erfinv({want}) = {}", erfinv(want));
        }
        assert!((erfc(5.0) / 1.537_459_794_428_035e-12 - 1.0).abs() < 1e-12);
        assert_eq!((erf(f64::INFINITY), erf(f64::NEG_INFINITY)), (1.0, -1.0));
        assert!(erf(f64::NAN).is_nan());
    }
}
