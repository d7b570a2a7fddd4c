//! Copies of what a session cannot make again from its caches alone: rings, recurrent states, counters. A few of them,
//! the newest, so that going back a turn costs no second reading of the text.

use crate::Result;
use crate::caches::{Caches, Kind};
use pteron_runtime::{BufferId, Session, SessionSnapshot};
use pteron_tensor::HostTensor;
use std::sync::Arc;

/// How many places are remembered.
const MOST: usize = 8;

/// Bytes that copies may take in all; the newest is kept whatever its size.
const MOST_BYTES: u64 = 512 << 20;

/// Places to go back to, oldest first.
#[derive(Clone, Default)]
pub(super) struct Marks(Vec<Arc<Mark>>);

/// A place in a text with what was in the caches there.
pub(super) struct Mark {
    position: usize,
    kept: Kept,
}

enum Kept {
    /// Buffers that are no lines: those are cut back instead.
    Buffers(Vec<(BufferId, HostTensor)>),
    /// Everything: an off-graph cache shares its memory with the copy until it is written.
    All(SessionSnapshot),
}

impl Mark {
    pub(super) fn of(session: &Session, caches: &Caches, position: usize) -> Result<Mark> {
        if caches.off_graph {
            return Ok(Mark { position, kept: Kept::All(session.snapshot()?) });
        }
        let mut buffers = Vec::new();
        for (buffer, kind) in &caches.buffers {
            if !matches!(kind, Kind::Line { .. }) {
                buffers.push((buffer.id.clone(), session.read(&buffer.id)?));
            }
        }
        Ok(Mark { position, kept: Kept::Buffers(buffers) })
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn restore(&self, session: &mut Session) -> Result<()> {
        match &self.kept {
            Kept::All(snapshot) => session.restore(snapshot)?,
            Kept::Buffers(buffers) => {
                for (id, contents) in buffers {
                    session.write(id, contents)?;
                }
            }
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        match &self.kept {
            Kept::All(_) => 0,
            Kept::Buffers(buffers) => buffers.iter().map(|(_, tensor)| tensor.bytes().len() as u64).sum(),
        }
    }
}

impl Marks {
    /// Keeps one, in place of what was remembered of later places.
    pub(super) fn keep(&mut self, mark: Mark) {
        self.0.retain(|old| old.position < mark.position);
        self.0.push(Arc::new(mark));
        while self.0.len() > MOST || (self.0.len() > 1 && self.bytes() > MOST_BYTES) {
            self.0.remove(0);
        }
    }

    pub(super) fn forget_after(&mut self, position: usize) {
        self.0.retain(|mark| mark.position <= position);
    }

    pub(super) fn last(&self) -> Option<Arc<Mark>> {
        self.0.last().cloned()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|mark| mark.bytes()).sum()
    }
}
