//! e to the power of what is not positive, for whole vocabularies: without branches or calls, so that it is compiled to vector
//! instructions, and with the same result on every machine, which a system's own function does not promise.

/// Below this, results would no longer be normal numbers; they are 0.
const LOWEST: f64 = -708.0;

/// Adding it leaves a whole number in the lowest bits.
const ROUNDING: f64 = 1.5 * (1u64 << 52) as f64;

/// ln 2 in two parts; the first has so few bits that its product with an exponent is exact.
const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// 1 / k! from the highest power down: beyond, terms are below the rounding.
const TERMS: [f64; 13] = [
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
];

/// `e^x` for x of at most 0, to 1e-15 of itself.
#[inline(always)]
pub(super) fn exponential(x: f64) -> f64 {
    // e^x = 2^n e^r with |r| at most half of ln 2.
    let bounded = x.max(LOWEST);
    let shifted = bounded * std::f64::consts::LOG2_E + ROUNDING;
    let whole = shifted - ROUNDING;
    let rest = bounded - whole * LN_2_HIGH - whole * LN_2_LOW;
    let mut sum = 0.0;
    for term in TERMS {
        sum = sum * rest + term;
    }
    let power = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1.0f64.to_bits()));
    if x < LOWEST { 0.0 } else { sum * power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_standard_library_says() {
        let mut worst = 0.0f64;
        for step in 0..700_000 {
            let x = -f64::from(step) / 1000.0 - 1e-7 * f64::from(step % 13);
            worst = worst.max((exponential(x) / x.exp() - 1.0).abs());
        }
        assert!(worst < 1e-15, "{worst:e}");
        assert_eq!(exponential(0.0), 1.0);
        assert_eq!((exponential(-709.0), exponential(f64::NEG_INFINITY)), (0.0, 0.0));
    }
}
