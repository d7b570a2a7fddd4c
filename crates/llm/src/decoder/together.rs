//! Several decoders of one model that read at the same time: their calls go to the backend together, which may then read
//! weights once for all of them.

use super::{Decoder, Next, flat};
use crate::signature::{Draw, Signature};
use crate::{LlmError, Result};
use pteron_runtime::{Lane, RunControl, Session};

/// One decoder's part in [`Decoder::read_together`].
pub struct Reading<'r> {
    pub(super) decoder: &'r mut Decoder,
    tokens: &'r [u32],
    draw: &'r Draw,
    pub(super) control: &'r RunControl,
    /// Tokens of the whole text, where they are its beginning.
    length: usize,
    /// What has been read of the tokens.
    read: usize,
    /// Tokens of its last call.
    last: usize,
    pub(super) result: Result<()>,
}

impl<'r> Reading<'r> {
    /// A decoder that shall read these tokens.
    pub fn new(
        decoder: &'r mut Decoder,
        tokens: &'r [u32],
        draw: &'r Draw,
        control: &'r RunControl,
    ) -> Reading<'r> {
        Reading { decoder, tokens, draw, control, length: tokens.len(), read: 0, last: 0, result: Ok(()) }
    }

    /// The same, where the tokens are a part of a text that has so many of them from here on: programs that are told how
    /// long a text is are told so before they read the first of it.
    pub fn part_of(self, length: usize) -> Reading<'r> {
        Reading { length, ..self }
    }

    /// Whether all of it has been read, where nobody wants to know what follows.
    pub fn done(self) -> Result<()> {
        self.result
    }

    /// What follows what was read, or why that has not been read to its end; then the decoder holds what it had read until
    /// then.
    pub fn finish(self) -> Result<Next<'r>> {
        self.result?;
        let model = self.decoder.model.clone();
        let signature = match self.last {
            0 => return Err(LlmError::EmptyPrompt),
            1 => model.decode(),
            _ => model.prefill(),
        };
        self.decoder.scores_of(signature)
    }

    /// What is left to be read; nothing after an error.
    fn rest(&self) -> Option<&'r [u32]> {
        self.tokens.get(self.read..).filter(|rest| !rest.is_empty() && self.result.is_ok())
    }

    /// The tokens of its next call; none at the end, after an error, and where an image comes next.
    pub(super) fn part(&self) -> Option<&'r [u32]> {
        let rest = self.rest()?;
        match self.decoder.next_part(rest) {
            (count, None) => rest.get(..count),
            (_, Some(_)) => None,
        }
    }

    /// Reads the images that come next: each text has its own.
    pub(super) fn read_images(&mut self) {
        while let Some(rest) = self.rest()
            && let (count, Some(image)) = self.decoder.next_part(rest)
        {
            self.result = self.decoder.read_rows(image, &rest[..count], self.control);
            (self.read, self.last) = (self.read + count, count);
        }
    }

    /// Whether a call with that part is its last one.
    pub(super) fn ends_with(&self, part: &[u32]) -> bool {
        self.read + part.len() == self.tokens.len()
    }

    /// Notes that a call has read the next part.
    pub(super) fn note(&mut self) {
        if let Some(part) = self.part() {
            (self.read, self.last) = (self.read + part.len(), part.len());
            self.decoder.note(part);
        }
    }
}

impl Decoder {
    /// Reads with several decoders of one model, each its own tokens, as [`Decoder::read`] does with one. What each gives is
    /// told by [`Reading::finish`]; one that fails leaves the others alone.
    pub fn read_together(readings: &mut [Reading<'_>]) {
        let Some(model) = readings.first().map(|reading| reading.decoder.model.clone()) else { return };
        for reading in &mut *readings {
            let Reading { decoder, tokens, length, .. } = reading;
            let ready = decoder.drop_ahead().and_then(|()| decoder.check(tokens));
            reading.result = ready.and_then(|()| decoder.tell_length(*length));
        }
        if let Some(most) = model.most_flat_tokens() {
            return flat::read(&model, most, readings);
        }
        loop {
            readings.iter_mut().for_each(Reading::read_images);
            if readings.iter().all(|reading| reading.part().is_none()) {
                return;
            }
            for one in [true, false] {
                let is_ready =
                    |reading: &&mut Reading<'_>| reading.part().is_some_and(|part| (part.len() == 1) == one);
                let signature = if one { model.decode() } else { model.prefill() };
                let mut ready: Vec<&mut Reading<'_>> = readings.iter_mut().filter(is_ready).collect();
                call(signature, &mut ready);
            }
        }
    }
}

/// One call of each of these decoders.
pub(super) fn call(signature: &Signature, readings: &mut [&mut Reading<'_>]) {
    let mut lanes = Vec::with_capacity(readings.len());
    let mut parts = Vec::with_capacity(readings.len());
    for reading in &mut *readings {
        let Some(part) = reading.part() else { continue };
        let told = reading.decoder.tell_shift();
        let Decoder { session, tokens, inputs, outputs, .. } = &mut *reading.decoder;
        match told.and_then(|()| signature.inputs(part, tokens.len(), reading.draw, inputs)) {
            Ok(()) => {
                lanes.push(Lane::new(session, inputs, reading.control, outputs));
                parts.push((part, &mut reading.result));
            }
            Err(error) => reading.result = Err(error),
        }
    }
    let all = Session::run_together(&signature.method, &mut lanes).map_err(|error| error.to_string());
    let results: Vec<_> = lanes.into_iter().map(|lane| lane.result).collect();
    for ((_, place), result) in parts.into_iter().zip(results) {
        *place = match &all {
            Ok(()) => result.map_err(LlmError::from),
            Err(text) => Err(LlmError::Run(pteron_runtime::Error::Invalid(text.clone()))),
        };
    }
    readings.iter_mut().filter(|reading| reading.result.is_ok()).for_each(|reading| reading.note());
}
