//! What runs compute in: a region of memory, and for every plan that has run there the table of where its values lie. It
//! belongs to a run, not to a session: a program keeps those that nobody uses, and a run takes one and puts it back, so that
//! sessions that wait hold nothing but their state. A run that panics drops its own.

use crate::constants::Form;
use crate::frame::Frame;
use crate::memory::{Memory, Region};
use crate::step::Planned;
use pteron_runtime::backend::GraphId;
use std::sync::{Arc, Mutex, PoisonError};

/// Plans that a workspace keeps frames for: prefill of one length, decode, and a few that come and go.
const FRAMES: usize = 8;

/// A workspace that none of so many runs has taken goes: there were more runs at once, or more lanes, than there are now.
const RUNS_UNUSED: u64 = 1024;

/// Memory of one run at a time, and what plans keep in it.
pub(crate) struct Workspace {
    arena: Memory,
    /// Most recently used last.
    frames: Vec<Kept>,
    /// When it was last put back, in runs.
    used: u64,
}

/// What a workspace keeps for one signature.
pub(crate) struct Kept {
    pub(crate) graph: (GraphId, Form),
    pub(crate) signature: Vec<usize>,
    pub(crate) planned: Arc<Planned>,
    pub(crate) frame: Frame,
}

impl Kept {
    fn is_for(&self, graph: (GraphId, Form), signature: impl Iterator<Item = usize>) -> bool {
        self.graph == graph && self.signature.iter().copied().eq(signature)
    }
}

impl Workspace {
    /// What is kept for a signature, taken out for the time of a run.
    pub(crate) fn take_frame(
        &mut self,
        graph: (GraphId, Form),
        signature: impl Iterator<Item = usize> + Clone,
    ) -> Option<Kept> {
        let at = self.frames.iter().rposition(|kept| kept.is_for(graph, signature.clone()))?;
        Some(self.frames.remove(at))
    }

    pub(crate) fn put_frame(&mut self, kept: Kept) {
        if self.frames.len() == FRAMES {
            self.frames.remove(0);
        }
        self.frames.push(kept);
    }

    /// Where a region of so many bytes begins. Frames that point into one that was too small are gone.
    pub(crate) fn arena(&mut self, bytes: usize) -> Region {
        if self.arena.len() < bytes {
            self.frames.clear();
            self.arena = Memory::zeroed(bytes);
        }
        Region::new(self.arena.as_mut_ptr())
    }

    fn bytes(&self) -> usize {
        let heaps = self.frames.iter().flat_map(|kept| &kept.frame.heaps);
        self.arena.len() + heaps.map(Memory::len).sum::<usize>()
    }
}

/// The workspaces of a program that no run uses.
#[derive(Default)]
pub(crate) struct Workspaces(Mutex<Free>);

#[derive(Default)]
struct Free {
    /// Most recently used last.
    list: Vec<Workspace>,
    runs: u64,
}

impl Workspaces {
    /// A workspace for a run: one that knows its plan already, else the one that was used last, whose memory is near.
    pub(crate) fn take(
        &self,
        graph: (GraphId, Form),
        signature: impl Iterator<Item = usize> + Clone,
    ) -> Workspace {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let knows = |space: &Workspace| space.frames.iter().any(|kept| kept.is_for(graph, signature.clone()));
        let known = free.list.iter().rposition(knows);
        match known.or(free.list.len().checked_sub(1)) {
            Some(at) => free.list.remove(at),
            None => Workspace { arena: Memory::zeroed(0), frames: Vec::new(), used: 0 },
        }
    }

    /// Takes a workspace back.
    pub(crate) fn put(&self, mut space: Workspace) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.runs += 1;
        space.used = free.runs;
        free.list.push(space);
        let is_stale = free.list[0].used + RUNS_UNUSED < free.runs;
        let stale = is_stale.then(|| free.list.remove(0));
        drop(free);
        // To give memory back takes time that nobody need wait for.
        drop(stale);
    }

    /// Bytes that wait for the next runs.
    pub(crate) fn bytes(&self) -> u64 {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.list.iter().map(|space| space.bytes() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 1 << 10;

    fn take(spaces: &Workspaces) -> Workspace {
        let mut space = spaces.take((GraphId(0), Form::Fused), std::iter::empty());
        space.arena(BYTES);
        space
    }

    #[test]
    fn as_many_are_kept_as_runs_at_once_need_and_no_longer() {
        let spaces = Workspaces::default();
        let at_once: Vec<Workspace> = (0..5).map(|_| take(&spaces)).collect();
        at_once.into_iter().for_each(|space| spaces.put(space));
        let again: Vec<Workspace> = (0..5).map(|_| take(&spaces)).collect();
        assert_eq!(spaces.bytes(), 0, "all five were taken again");
        again.into_iter().for_each(|space| spaces.put(space));
        assert_eq!(spaces.bytes(), 5 * BYTES as u64);
        for _ in 0..RUNS_UNUSED {
            spaces.put(take(&spaces));
        }
        assert_eq!(spaces.bytes(), BYTES as u64, "one run at a time needs one");
    }
}
