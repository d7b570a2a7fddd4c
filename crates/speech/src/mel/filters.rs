//! Triangles over the bins of a spectrum, on Slaney's mel scale and with its norm: each has the same area.

use crate::sound::RATE;

/// Hertz of a mel in the scale's linear part.
const LINEAR: f64 = 200.0 / 3.0;
/// Where the logarithmic part begins.
const BORDER: f64 = 1000.0;

/// One band: the first bin that counts, and the weights from there on.
pub(super) struct Filter {
    first: usize,
    weights: Vec<f32>,
}

impl Filter {
    /// The band's energy.
    pub(super) fn apply(&self, power: &[f32]) -> f32 {
        let sum: f64 = power[self.first..]
            .iter()
            .zip(&self.weights)
            .map(|(power, weight)| f64::from(*power) * f64::from(*weight))
            .sum();
        sum as f32
    }
}

/// Mels a natural logarithm of frequency, above the border.
fn log_step() -> f64 {
    6.4f64.ln() / 27.0
}

fn to_mel(hertz: f64) -> f64 {
    match hertz < BORDER {
        true => hertz / LINEAR,
        false => BORDER / LINEAR + (hertz / BORDER).ln() / log_step(),
    }
}

fn to_hertz(mel: f64) -> f64 {
    match mel < BORDER / LINEAR {
        true => mel * LINEAR,
        false => BORDER * ((mel - BORDER / LINEAR) * log_step()).exp(),
    }
}

/// Bands from 0 Hz to half the rate.
pub(super) fn slaney(mels: usize, n_fft: usize) -> Vec<Filter> {
    let rate = f64::from(RATE);
    let top = to_mel(rate / 2.0);
    let edge = |n: usize| to_hertz(top * n as f64 / (mels + 1) as f64);
    let hertz = |bin: usize| bin as f64 * rate / n_fft as f64;
    let band = |mel: usize| {
        let (low, middle, high) = (edge(mel), edge(mel + 1), edge(mel + 2));
        let norm = 2.0 / (high - low);
        let weight = |bin: usize| {
            let (up, down) = ((hertz(bin) - low) / (middle - low), (high - hertz(bin)) / (high - middle));
            (up.min(down).max(0.0) * norm) as f32
        };
        let weights: Vec<f32> = (0..=n_fft / 2).map(weight).collect();
        let first = weights.iter().position(|&weight| weight > 0.0).unwrap_or(0);
        let end = weights.iter().rposition(|&weight| weight > 0.0).map_or(first, |last| last + 1);
        Filter { first, weights: weights[first..end].to_vec() }
    };
    (0..mels).map(band).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_goes_there_and_back() {
        for hertz in [0.0, 440.0, 999.9, 1000.0, 1000.1, 7999.0] {
            assert!((to_hertz(to_mel(hertz)) - hertz).abs() < 1e-9);
        }
        // The scale's own anchors: 15 mels at the border, 27 mels for a factor of 6.4.
        assert!((to_mel(1000.0) - 15.0).abs() < 1e-12 && (to_mel(6400.0) - 42.0).abs() < 1e-12);
    }
}
