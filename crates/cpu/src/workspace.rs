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
    fn take_frame(
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
    /// A workspace that knows a plan already, and what it keeps for it.
    pub(crate) fn take_known(
        &self,
        graph: (GraphId, Form),
        signature: impl Iterator<Item = usize> + Clone,
    ) -> Option<(Workspace, Kept)> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for at in (0..free.list.len()).rev() {
            if let Some(kept) = free.list[at].take_frame(graph, signature.clone()) {
                return Some((free.list.remove(at), kept));
            }
        }
        None
    }

    /// A workspace for a plan that none knows: of those with so many bytes the one that was used last, whose memory is near, else
    /// the largest, so that a few large ones and many small ones stay what they are.
    pub(crate) fn take(&self, bytes: usize) -> Workspace {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sizes = || free.list.iter().map(|space| space.arena.len());
        let enough = sizes().rposition(|size| size >= bytes);
        let largest = sizes().enumerate().max_by_key(|&(_, size)| size).map(|(at, _)| at);
        match enough.or(largest) {
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
        take_with(spaces, BYTES)
    }

    fn take_with(spaces: &Workspaces, bytes: usize) -> Workspace {
        let mut space = spaces.take(bytes);
        space.arena(bytes);
        space
    }

    #[test]
    fn what_small_runs_use_does_not_grow_by_large_ones() {
        let spaces = Workspaces::default();
        spaces.put(take_with(&spaces, 100 * BYTES));
        for lanes in [5, 3, 5] {
            let at_once: Vec<Workspace> = (0..lanes).map(|_| take(&spaces)).collect();
            at_once.into_iter().for_each(|space| spaces.put(space));
            // One after another, whichever was used last.
            for large in [90, 100, 80] {
                spaces.put(take(&spaces));
                spaces.put(take_with(&spaces, large * BYTES));
            }
        }
        assert_eq!(spaces.bytes(), (100 + 4) * BYTES as u64);
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
