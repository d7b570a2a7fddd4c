//! Which session answers a prompt: one that holds the longest beginning of it, or a copy of that one where it holds more
//! than the prompt has use for, or a new one.

use super::Scheduler;
use crate::seeing::PromptRef;
use crate::{Decoder, DecoderOptions, Result};

/// A beginning shorter than this is not worth a copy.
const WORTH_A_COPY: usize = 16;

/// A session whose answer has ended.
pub(super) struct Idle {
    pub(super) decoder: Decoder,
    /// The round in which it was last of use.
    pub(super) used: u64,
}

impl Scheduler {
    /// A session for a prompt that will take so many bytes. What it holds is for [`Decoder::begin_at_call`] to look at.
    pub(super) fn session_for(&mut self, prompt: PromptRef<'_>, bytes: u64) -> Result<Decoder> {
        let waiting = self.idle.iter().map(|idle| idle.decoder.shared(prompt));
        let kept = waiting.enumerate().max_by_key(|&(_, common)| common).filter(|&(_, common)| common > 0);
        let running = self.lanes.iter().map(|lane| &lane.decoder).max_by_key(|held| held.shared(prompt));
        let shared = running.map_or(0, |decoder| decoder.shared(prompt));
        if let Some(decoder) =
            running.filter(|_| shared >= WORTH_A_COPY && shared > kept.map_or(0, |(_, common)| common))
        {
            let copy = decoder.fork()?;
            self.make_room(bytes);
            return Ok(copy);
        }
        let Some((at, common)) = kept else { return self.empty_session(bytes) };
        let held = self.idle[at].decoder.tokens().len();
        if common >= held {
            let idle = self.idle.swap_remove(at);
            self.make_room(bytes);
            return Ok(idle.decoder);
        }
        self.idle[at].used = self.rounds;
        if common < WORTH_A_COPY {
            return self.empty_session(bytes);
        }
        // Somebody may go on from what the prompt has no use for.
        let copy = self.idle[at].decoder.fork()?;
        self.make_room(bytes);
        Ok(copy)
    }

    /// A session without a text.
    fn empty_session(&mut self, bytes: u64) -> Result<Decoder> {
        let unused = self.idle.iter().position(|idle| idle.decoder.tokens().is_empty());
        if let Some(at) = unused {
            return Ok(self.idle.swap_remove(at).decoder);
        }
        self.make_room(bytes);
        Decoder::new(&self.model, &DecoderOptions { context: self.options.context, seed: 0 })
    }

    /// Lets the oldest sessions go until so many bytes are free beside what is set aside.
    fn make_room(&mut self, bytes: u64) {
        let reserved: u64 = self.lanes.iter().map(|lane| lane.reserved).sum();
        let free = self.options.memory.saturating_sub(reserved).saturating_sub(bytes);
        while self.idle.iter().map(|idle| idle.decoder.bytes()).fold(0, u64::saturating_add) > free {
            self.drop_oldest();
        }
    }

    /// Keeps a session for later.
    pub(super) fn keep(&mut self, decoder: Decoder) {
        self.idle.push(Idle { decoder, used: self.rounds });
        while self.idle.len() > self.options.kept {
            self.drop_oldest();
        }
        self.make_room(0);
    }

    fn drop_oldest(&mut self) {
        if let Some((at, _)) = self.idle.iter().enumerate().min_by_key(|(_, idle)| idle.used) {
            self.idle.remove(at);
        }
    }
}
