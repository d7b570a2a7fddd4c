//! Runs that are kept whole: what the next call of the same sizes needs besides its numbers.

use crate::ffi::Recording;
use pteron_gpu::{Datum, Dispatch, Lowered, Planned, Region};
use std::sync::Arc;

/// Recordings that are kept: a step of decoding, prompts of a few lengths.
const MOST_RECORDINGS: usize = 8;

/// A recorded run with all that its parameters were made of.
pub(crate) struct Replay {
    pub(crate) planned: Arc<Planned>,
    pub(crate) lowered: Lowered,
    pub(crate) dispatches: Vec<Dispatch>,
    /// By dispatch: where its grid and parameters begin, in words.
    pub(crate) offsets: Vec<u32>,
    /// By dispatch: whether its grid changes from call to call, and its groups when it was recorded.
    pub(crate) varies: Vec<bool>,
    pub(crate) groups: Vec<u32>,
    pub(crate) recording: Recording,
    /// The memory that its commands name, and where each region begins in it: where another has taken its place, it is of no use.
    pub(crate) memory: Vec<(Region, u64, u64)>,
    pub(crate) outputs: Vec<Datum>,
    pub(crate) greatest: Option<(usize, Vec<usize>)>,
    /// What its steps were charged.
    pub(crate) work: u64,
}

/// What was recorded, the latest last.
#[derive(Default)]
pub(crate) struct Recorded {
    recordings: Vec<Recording>,
    /// Runs that are replayed.
    replays: Vec<Replay>,
}

impl Recorded {
    /// Takes a recording for which `is_wanted` holds out of the list.
    pub(crate) fn take_recording(&mut self, is_wanted: impl Fn(&Recording) -> bool) -> Option<Recording> {
        let at = self.recordings.iter().position(is_wanted)?;
        Some(self.recordings.remove(at))
    }

    /// Runs that are replayed.
    pub(crate) fn replays(&self) -> &[Replay] {
        &self.replays
    }

    /// Takes one of them out of the list.
    pub(crate) fn take_replay(&mut self, at: usize) -> Replay {
        self.replays.remove(at)
    }

    /// Whether a run of a plan can be replayed that gives its outputs into this memory.
    pub(crate) fn knows(&self, planned: &Arc<Planned>, outputs: u64) -> bool {
        let is_there = |&(region, id, _): &(Region, u64, u64)| (region, id) == (Region::Outputs, outputs);
        let mut own = self.replays.iter().filter(|replay| Arc::ptr_eq(&replay.planned, planned));
        own.any(|replay| replay.memory.iter().any(is_there))
    }

    /// Puts one back as the latest.
    pub(crate) fn put_replay(&mut self, replay: Replay) {
        if self.replays.len() >= MOST_RECORDINGS {
            self.replays.remove(0);
        }
        self.replays.push(replay);
    }

    /// Puts one back as the latest.
    pub(crate) fn put_recording(&mut self, recording: Recording) {
        if self.recordings.len() >= MOST_RECORDINGS {
            self.recordings.remove(0);
        }
        self.recordings.push(recording);
    }
}
