//! How surprised a model is by a text: windows of tokens, each read from empty caches, every token but the first
//! scored. Two decoders over the same text also tell how far their distributions are apart.

use crate::{Decoder, Result};
use pteron_runtime::RunControl;
use serde::Serialize;

/// Tokens that are compared at once: their scores are all in memory.
const COMPARED: usize = 32;

/// What came of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Perplexity {
    /// Tokens that were scored.
    pub scored_tokens: usize,
    /// Sum of their negative log likelihoods, in nats.
    pub negative_log_likelihood: f64,
    /// Sum of the divergences of the other decoder's distributions from this one's, in nats; 0 without another.
    pub divergence: f64,
    /// The same as likelihoods of the other decoder.
    pub other_negative_log_likelihood: f64,
}

impl Perplexity {
    /// The exponential of the mean negative log likelihood.
    pub fn perplexity(&self) -> f64 {
        (self.negative_log_likelihood / self.scored_tokens as f64).exp()
    }

    /// That of the other decoder.
    pub fn other_perplexity(&self) -> f64 {
        (self.other_negative_log_likelihood / self.scored_tokens as f64).exp()
    }

    /// Mean Kullback-Leibler divergence of the other decoder from this one.
    pub fn mean_divergence(&self) -> f64 {
        self.divergence / self.scored_tokens as f64
    }

    /// Reads one window from empty caches and adds its tokens. `other` reads the same and is compared with this one,
    /// which counts as the truth.
    pub fn add(
        &mut self,
        decoder: &mut Decoder,
        mut other: Option<&mut Decoder>,
        window: &[u32],
        control: &RunControl,
    ) -> Result<()> {
        decoder.reset()?;
        if let Some(other) = other.as_deref_mut() {
            other.reset()?;
        }
        // The last token predicts nothing that could be scored.
        let Some((_, given)) = window.split_last() else { return Ok(()) };
        let part = if other.is_some() { COMPARED } else { given.len().max(1) };
        for (number, tokens) in given.chunks(part).enumerate() {
            let first = number * part;
            let mut rows = Vec::new();
            decoder.read_all(tokens, control, |at, scores| {
                let norm = log_sum_exp(scores);
                self.negative_log_likelihood += norm - score(scores, window[first + at + 1]);
                self.scored_tokens += 1;
                if other.is_some() {
                    rows.push((scores.to_vec(), norm));
                }
                Ok(())
            })?;
            if let Some(other) = other.as_deref_mut() {
                other.read_all(tokens, control, |at, scores| {
                    let norm = log_sum_exp(scores);
                    self.other_negative_log_likelihood += norm - score(scores, window[first + at + 1]);
                    let (truth, truth_norm) = &rows[at];
                    self.divergence += divergence(truth, *truth_norm, scores, norm);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

/// A token that the model has no score for is impossible.
fn score(scores: &[f32], token: u32) -> f64 {
    scores.get(token as usize).map_or(f64::NEG_INFINITY, |&score| f64::from(score))
}

fn log_sum_exp(scores: &[f32]) -> f64 {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let largest = f64::from(largest);
    largest + scores.iter().map(|&score| (f64::from(score) - largest).exp()).sum::<f64>().ln()
}

fn divergence(truth: &[f32], truth_norm: f64, scores: &[f32], norm: f64) -> f64 {
    let pairs = truth.iter().zip(scores).map(|(&truth, &score)| {
        let (p, q) = (f64::from(truth) - truth_norm, f64::from(score) - norm);
        // What has no probability adds nothing, whatever the other one says.
        if p == f64::NEG_INFINITY { 0.0 } else { p.exp() * (p - q) }
    });
    pairs.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_distributions() {
        let uniform = [1.0f32; 4];
        assert!((log_sum_exp(&uniform) - (1.0 + 4f64.ln())).abs() < 1e-12);
        let peaked = [0.0, f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0];
        let (p, q) = (log_sum_exp(&peaked), log_sum_exp(&uniform));
        assert!((divergence(&peaked, p, &uniform, q) - 2f64.ln()).abs() < 1e-12);
        assert_eq!(divergence(&uniform, q, &uniform, q), 0.0);
        assert_eq!(score(&uniform, 9), f64::NEG_INFINITY);
    }
}
