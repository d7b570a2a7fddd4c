//! A language model as a benchmark drives it: made-up tokens in, greedy tokens out.

use crate::failure::Failure;
use pteron_llm::sampler::{Sampler, SamplerSettings};
use pteron_llm::{Decoder, DecoderOptions, LanguageModel, LlmError, Next};
use pteron_runtime::RunControl;

/// A decoder that always goes on with the most likely token.
pub(crate) struct Greedy {
    decoder: Decoder,
    sampler: Sampler,
}

impl Greedy {
    pub(crate) fn new(model: &LanguageModel) -> Result<Greedy, Failure> {
        let sampler = Sampler::new(SamplerSettings::greedy(), 0).map_err(LlmError::from)?;
        Ok(Greedy { decoder: Decoder::new(model, &DecoderOptions::default())?, sampler })
    }

    /// Reads tokens; the one that follows them. `goes_on` says whether that one is read next, so that a backend may begin with it, as
    /// greedy answers do.
    pub(crate) fn read(
        &mut self,
        tokens: &[u32],
        goes_on: bool,
        control: &RunControl,
    ) -> Result<u32, Failure> {
        match self.decoder.read_greedily(tokens, goes_on, control)? {
            Next::Token(token) => Ok(token),
            Next::Scores(scores) => Ok(self.sampler.sample(scores, &[]).map_err(LlmError::from)?),
        }
    }

    /// Remembers this place, so that going back to it takes no second reading.
    pub(crate) fn mark(&mut self) -> Result<(), Failure> {
        Ok(self.decoder.mark()?)
    }

    /// Goes back to an earlier place: the beginning, or one that was marked.
    pub(crate) fn rewind(&mut self, position: usize) -> Result<(), Failure> {
        self.decoder.rewind(position)?;
        Ok(())
    }
}

/// Token ids that every vocabulary has, never twice the same in a row.
pub(crate) fn text(model: &LanguageModel, tokens: usize) -> Vec<u32> {
    let ids = model.vocab().map_or(32, |vocab| vocab.min(20_000)).max(1);
    (0..tokens).map(|at| ((at * 7919 + 13) % ids) as u32).collect()
}
