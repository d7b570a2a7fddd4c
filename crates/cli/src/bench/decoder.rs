//! A language model as a benchmark drives it: made-up tokens in, greedy tokens out.

use crate::failure::Failure;
use pteron_llm::{Decoder, DecoderOptions, Draw, LanguageModel, Next};
use pteron_runtime::RunControl;

/// A decoder that always goes on with the most likely token.
pub(crate) struct Greedy(Decoder);

impl Greedy {
    pub(crate) fn new(model: &LanguageModel) -> Result<Greedy, Failure> {
        Ok(Greedy(Decoder::new(model, &DecoderOptions::default())?))
    }

    /// Reads tokens; the one that follows them.
    pub(crate) fn read(&mut self, tokens: &[u32], control: &RunControl) -> Result<u32, Failure> {
        match self.0.read(tokens, &Draw::default(), control)? {
            Next::Token(token) => Ok(token),
            Next::Scores(scores) => Ok(largest(scores)),
        }
    }

    /// Remembers this place, so that going back to it takes no second reading.
    pub(crate) fn mark(&mut self) -> Result<(), Failure> {
        Ok(self.0.mark()?)
    }

    /// Goes back to an earlier place: the beginning, or one that was marked.
    pub(crate) fn rewind(&mut self, position: usize) -> Result<(), Failure> {
        self.0.rewind(position)?;
        Ok(())
    }
}

/// Token ids that every vocabulary has, never twice the same in a row.
pub(crate) fn text(model: &LanguageModel, tokens: usize) -> Vec<u32> {
    let ids = model.vocab().map_or(32, |vocab| vocab.min(20_000)).max(1);
    (0..tokens).map(|at| ((at * 7919 + 13) % ids) as u32).collect()
}

fn largest(scores: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (at, &score) in scores.iter().enumerate() {
        if score > best.1 {
            best = (at as u32, score);
        }
    }
    best.0
}
