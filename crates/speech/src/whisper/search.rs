//! What the two ways to a text share: texts in the making stand side by side, are given the logits behind each of them, and
//! say which tokens they go on with.

use super::Engine;
use crate::Result;

/// A text that goes on: from one of those before, by a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The number of the text that it goes on from.
    pub from: usize,
    /// What follows it.
    pub token: u32,
}

/// A text that has come to its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text {
    /// Words and times, without the end.
    pub tokens: Vec<u32>,
    /// The sum of the logarithms of all tokens' probabilities, the end's included.
    pub log_probability: f64,
}

impl Text {
    /// The mean logarithm of the tokens' probabilities, the end's included.
    pub fn mean_log_probability(&self) -> f32 {
        (self.log_probability / (self.tokens.len() + 1) as f64) as f32
    }
}

/// Texts in the making.
pub trait Search {
    /// Takes the logits behind each text, of which there is one at first, and gives the texts that the model is to read next;
    /// none when all have ended. Logits are changed on the way.
    fn next(&mut self, logits: &mut [Vec<f32>]) -> Vec<Branch>;

    /// The best of all texts.
    fn finish(self) -> Text;
}

/// Takes a search to its end, from the logits at a position on.
pub fn run<E: Engine>(
    engine: &mut E,
    mut search: impl Search,
    first: &[f32],
    position: usize,
) -> Result<Text> {
    let mut logits = vec![first.to_vec()];
    let mut at = position;
    loop {
        let branches = search.next(&mut logits);
        if branches.is_empty() {
            return Ok(search.finish());
        }
        engine.follow(&branches, at, &mut logits)?;
        at += 1;
    }
}

/// What is no number is as unlikely as can be.
pub(super) fn without_nan(logits: &mut [f32]) {
    logits.iter_mut().filter(|logit| logit.is_nan()).for_each(|logit| *logit = f32::NEG_INFINITY);
}
