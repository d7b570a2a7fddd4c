//! Half-quadratic quantisation: the scale of a group's range, and a zero point that is moved until few values are off by
//! much. The error is split into a sparse part, found by shrinking, and a dense one, which the zero point then fits.

use super::Packing;
use super::groups::{Group, affine_codes, by_range, levels, value};
use crate::weights::rounded;
use pteron_tensor::quant::Mode;

/// Most rounds; few groups need more than ten.
const ROUNDS: usize = 20;
/// The power of the norm that shrinking stands for: below 1, so that a few large errors cost less than many small ones.
const POWER: f32 = 0.7;
/// How strongly errors are held to their sparse part at first, and by how much more each round.
const STRENGTH: f32 = 10.0;
const GROWTH: f32 = 1.01;

/// Codes of a group whose zero point has been fitted: never worse in the mean error than those of its range.
pub(super) fn by_fit(values: &[f32], codes: &mut [u8], packing: Packing) -> Group {
    let mut best = by_range(values, codes, packing, 1.0);
    let mut least = mean_error(values, codes, best);
    let scale = best.scale;
    if scale == 0.0 || !least.is_finite() {
        return best;
    }
    let top = levels(packing) - 1.0;
    let mut zero = -best.bias / scale;
    let mut strength = STRENGTH;
    let mut tried = vec![0; codes.len()];
    for _ in 0..ROUNDS {
        let least_kept = strength.powf(1.0 / (POWER - 2.0));
        let mut sum = 0.0;
        for value in values {
            let code = (value / scale + zero).round_ties_even().clamp(0.0, top);
            let sparse = shrunk(value - (code - zero) * scale, strength, least_kept);
            sum += code - (value - sparse) / scale;
        }
        zero = sum / values.len() as f32;
        strength *= GROWTH;
        let bias = rounded(-zero * scale, packing.scale_dtype());
        affine_codes(values, &mut tried, scale, bias, packing);
        let group = Group { scale, bias, byte: 0 };
        let error = mean_error(values, &tried, group);
        if error >= least {
            break;
        }
        (best, least) = (group, error);
        codes.copy_from_slice(&tried);
    }
    best
}

/// The proximal step of the norm: errors up to the least that is kept vanish, larger ones shrink a little.
fn shrunk(error: f32, strength: f32, least_kept: f32) -> f32 {
    let size = error.abs();
    // Nearly all errors of nearly all weights: powers are what takes the time.
    if size <= least_kept {
        return 0.0;
    }
    (size - size.powf(POWER - 1.0) / strength).max(0.0).copysign(error)
}

fn mean_error(values: &[f32], codes: &[u8], group: Group) -> f32 {
    let errors =
        values.iter().zip(codes).map(|(wanted, &code)| (wanted - value(code, group, Mode::Affine)).abs());
    errors.sum::<f32>() / values.len().max(1) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinking_begins_where_the_step_leaves_something() {
        for strength in [10.0f32, 12.5] {
            let least = strength.powf(1.0 / (POWER - 2.0));
            assert_eq!(shrunk(least * 0.999, strength, least), 0.0);
            let above = shrunk(-least * 1.01, strength, least);
            assert!(above < 0.0 && above > -0.05 * least, "{above}");
        }
    }

    #[test]
    fn a_group_of_equal_values_is_exact() {
        let packing = Packing::affine(4, 32, true, pteron_tensor::DType::F32).unwrap();
        for number in [0.0, -0.375] {
            let mut codes = [0; 32];
            let group = by_fit(&[number; 32], &mut codes, packing);
            assert!(codes.iter().all(|&code| value(code, group, Mode::Affine) == number));
        }
    }
}
