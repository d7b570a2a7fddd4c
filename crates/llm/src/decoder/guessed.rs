//! Reading tokens that were only guessed: all of them in one call, the scores after each, and back to where they were right.

use super::{Decoder, copy_row, output_of, row_length};
use crate::signature::Draw;
use crate::speculate::{NoSpeculation, Speculator};
use crate::{LlmError, Result};
use pteron_runtime::{Error, RunControl};

impl Decoder {
    /// The same with something that guesses the tokens of its answers; nothing where this model's cannot be guessed, as
    /// [`LanguageModel::can_speculate`](crate::LanguageModel::can_speculate) says.
    pub fn set_speculator(&mut self, speculator: Option<Speculator>) {
        self.no_speculation = speculator.as_ref().and_then(|_| self.model.can_speculate().err());
        self.speculator = speculator.filter(|_| self.no_speculation.is_none()).map(Box::new);
    }

    /// Why nothing is guessed, although somebody wants it.
    pub fn no_speculation(&self) -> Option<NoSpeculation> {
        self.no_speculation
    }

    /// Lends what guesses; it is to be given back.
    pub(crate) fn take_speculator(&mut self) -> Option<Box<Speculator>> {
        self.speculator.take()
    }

    pub(crate) fn give_back_speculator(&mut self, speculator: Option<Box<Speculator>>) {
        self.speculator = speculator;
    }

    /// Tokens that may be guessed behind one that is read now, so that one call reads all of them as it would read each.
    pub(crate) fn most_guesses(&self) -> usize {
        let longest = self.model.all_logits().and_then(|all| all.longest).unwrap_or(usize::MAX);
        let most = self.model.chunk().min(longest).min(self.room());
        let held = self.tokens.len();
        let mut most = most.saturating_sub(1);
        // Beyond a border all tokens of a call would be read otherwise.
        while most > 0 && !self.model.reads_alike(held + 1, held + 1 + most) {
            most -= 1;
        }
        most
    }

    /// Reads tokens in one call; [`Decoder::scores_after`] has what follows each. That is no call of a text which is read
    /// many tokens at a time: what comes of it is as if they had been read one by one.
    pub(crate) fn read_guessed(&mut self, tokens: &[u32], control: &RunControl) -> Result<()> {
        self.drop_ahead()?;
        self.check(tokens)?;
        let model = self.model.clone();
        let Some(signature) = model.all_logits() else {
            return Err(LlmError::Run(Error::Invalid(NoSpeculation::LastLogits.to_string())));
        };
        self.tell_shift()?;
        signature.inputs(tokens, self.tokens.len(), &Draw::default(), &mut self.inputs)?;
        self.session.run_into(&signature.method, &self.inputs, control, &mut self.guessed)?;
        self.append(tokens);
        Ok(())
    }

    /// The scores after a token of the last call of [`Decoder::read_guessed`]; free to be changed.
    pub(crate) fn scores_after(&mut self, at: usize) -> Result<&mut Vec<f32>> {
        let model = self.model.clone();
        let signature = model.all_logits().unwrap_or(model.decode());
        let output = output_of(signature, &mut self.guessed)?;
        let row = row_length(signature, output)?;
        if at >= output.len() / row {
            return Err(super::wrong(signature, output));
        }
        copy_row(signature, output, at, row, &mut self.scores)?;
        Ok(&mut self.scores)
    }
}
