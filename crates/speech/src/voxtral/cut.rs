//! Where a sound that is too long for one prompt is parted: in the quietest moment near the end, so that no word is cut.

use crate::sound::RATE;

/// Samples of a moment: a fifth of a second.
const MOMENT: usize = RATE as usize / 5;
/// Samples at the end in which a quiet moment is looked for.
const END: usize = 15 * RATE as usize;

/// How many of the samples come before the cut; all where they are no more than `most`.
pub fn cut(samples: &[f32], most: usize) -> usize {
    if samples.len() <= most || most < 2 * MOMENT {
        return samples.len().min(most);
    }
    let from = most.saturating_sub(END).max(MOMENT);
    let power = |at: usize| -> f64 {
        samples[at..at + MOMENT].iter().map(|&sample| f64::from(sample) * f64::from(sample)).sum()
    };
    let moments = (from..=most - MOMENT).step_by(MOMENT / 2);
    // The last of several that are as quiet: what is before is heard together.
    let quietest = moments.map(|at| (at, power(at))).min_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
    quietest.map_or(most, |(at, _)| at + MOMENT / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_sound_is_parted_where_it_is_quiet() {
        let rate = RATE as usize;
        let mut samples: Vec<f32> =
            (0..40 * rate).map(|n| ((n * 7919 % 1000) as f32 / 500.0 - 1.0) * 0.3).collect();
        samples[22 * rate..22 * rate + rate / 2].fill(0.001);
        let at = cut(&samples, 30 * rate);
        assert!((22 * rate..22 * rate + rate / 2).contains(&at), "{at}");
        // Nothing is quiet everywhere: the end, and never nothing.
        assert_eq!(cut(&vec![0.0; 40 * rate], 30 * rate), 30 * rate - MOMENT / 2);
        assert_eq!(cut(&samples, 50 * rate), samples.len());
        for most in [1, 10, MOMENT, 2 * MOMENT, 3 * MOMENT] {
            assert!((1..=most).contains(&cut(&samples, most)), "{most}");
        }
    }
}
