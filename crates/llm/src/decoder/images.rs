//! Reading images where tokens stand for their rows: which part of a text is next, rows in place of tokens, and where tokens
//! behind an image turn.

use super::Decoder;
use crate::Result;
use crate::seeing::SeeError;
use pteron_runtime::{Error, RunControl};
use pteron_tensor::HostTensor;

impl Decoder {
    /// How many of some tokens may be read now if at most so many are wanted: an image whose rows are read at once is not torn.
    pub fn portion(&self, tokens: &[u32], most: usize) -> usize {
        let most = tokens.len().min(most.max(1));
        let held = self.tokens.len();
        let is_whole = |rows| self.model.sight().is_some_and(|sight| sight.is_whole(rows));
        let torn = self.images.iter().find(|shown| {
            let begins = shown.at >= held && tokens.get(shown.at - held) == Some(&shown.image.mark());
            begins && shown.holds(held + most)
        });
        match torn.filter(|shown| is_whole(shown.image.rows())) {
            Some(shown) if shown.at > held => shown.at - held,
            Some(shown) => tokens.len().min(shown.image.rows()),
            None => most,
        }
    }

    /// How many of some tokens the next call reads, and which image they stand for, by its number among those of the text.
    pub(super) fn next_part(&self, tokens: &[u32]) -> (usize, Option<usize>) {
        let held = self.tokens.len();
        let next = self.images.iter().position(|shown| held < shown.end());
        let Some((number, shown)) = next.map(|number| (number, &self.images[number])) else {
            return (tokens.len().min(self.model.chunk()), None);
        };
        let first = shown.at.saturating_sub(held);
        if tokens.get(first) != Some(&shown.image.mark()) {
            return (tokens.len().min(self.model.chunk()), None);
        }
        if first > 0 {
            return (first.min(self.model.chunk()), None);
        }
        let longest = self.model.sight().map_or(1, |sight| sight.longest());
        (tokens.len().min(shown.end() - held).min(longest), Some(number))
    }

    /// Reads the rows of an image that some tokens stand for.
    pub(super) fn read_rows(&mut self, number: usize, tokens: &[u32], control: &RunControl) -> Result<()> {
        let model = self.model.clone();
        let (Some(sight), Some(shown)) = (model.sight(), self.images.get(number).cloned()) else {
            return Err(SeeError::Blind.into());
        };
        let (rows, given) = (shown.image.rows(), tokens.len());
        if sight.is_whole(rows) && rows != given {
            return Err(SeeError::Torn { rows, given }.into());
        }
        let seen = shown.image.look(&mut self.session, sight, control)?;
        let (held, turns) = (self.tokens.len(), shown.at as i64 + self.shift_before(shown.at));
        let from = held - shown.at;
        let inputs = sight.inputs(&shown.image, &seen, from..from + given, held, turns)?;
        self.session.run_into(crate::seeing::Sight::READ, &inputs, control, &mut self.outputs)?;
        self.calls.push(held..held + given);
        self.tokens.extend_from_slice(tokens);
        self.high = self.high.max(self.tokens.len());
        Ok(())
    }

    /// What is added to the positions of tokens from a place on.
    fn shift_before(&self, place: usize) -> i64 {
        let before = self.images.iter().take_while(|shown| shown.end() <= place);
        before.map(|shown| shown.image.shift()).sum()
    }

    /// Tells the program what is added to the positions of the tokens that it reads next.
    pub(super) fn tell_shift(&mut self) -> Result<()> {
        let wanted = self.shift_before(self.tokens.len());
        if self.shift == Some(wanted) {
            return Ok(());
        }
        let model = self.model.clone();
        for buffer in model.sight().map_or(&[][..], |sight| sight.shift_buffers()) {
            let number = HostTensor::from_slice(vec![1], &[wanted]).map_err(Error::from)?;
            self.session.write(buffer, &number)?;
        }
        self.shift = Some(wanted);
        Ok(())
    }

    /// Notes tokens that were read as such: an image that was to stand there is of another text.
    pub(super) fn append(&mut self, tokens: &[u32]) {
        let (from, to) = (self.tokens.len(), self.tokens.len() + tokens.len());
        self.images.retain(|shown| shown.at < from || shown.at >= to);
        self.tokens.extend_from_slice(tokens);
        self.high = self.high.max(self.tokens.len());
    }
}
