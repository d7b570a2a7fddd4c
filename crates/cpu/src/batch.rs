//! Memory of steps that take the rows of several lanes together: lists of where rows lie, and one region for what lies
//! between them. It is kept from step to step and from submission to submission, so that a token of many lanes asks for
//! memory as seldom as a token of one.

use crate::memory::{ALIGNMENT, Memory};
use std::sync::{Mutex, PoisonError};

/// What joint steps work with.
pub(crate) struct Batch {
    /// Where rows begin that are read.
    pub(crate) sources: Vec<*mut u8>,
    /// Where rows begin that are written.
    pub(crate) targets: Vec<*mut u8>,
    memory: Memory,
}

// SAFETY: addresses are of the step that runs, which fills the lists anew; nobody uses those of an earlier one.
unsafe impl Send for Batch {}

/// Pieces of a region, one after the other.
pub(crate) struct Pieces<'b>(&'b mut [u8]);

impl<'b> Pieces<'b> {
    /// The next piece, of as many bytes as were counted for it. What it holds is left over from others.
    pub(crate) fn next(&mut self, bytes: usize) -> &'b mut [u8] {
        let rest = std::mem::take(&mut self.0);
        let (piece, rest) = rest.split_at_mut(padded(bytes).min(rest.len()));
        self.0 = rest;
        let len = bytes.min(piece.len());
        &mut piece[..len]
    }
}

/// What a piece of so many bytes takes.
fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

impl Batch {
    fn new() -> Batch {
        Batch { sources: Vec::new(), targets: Vec::new(), memory: Memory::zeroed(0) }
    }

    /// Empties the lists, and gives both of them with memory for pieces of these sizes.
    pub(crate) fn begin(
        &mut self,
        pieces: impl IntoIterator<Item = usize>,
    ) -> (&mut Vec<*mut u8>, &mut Vec<*mut u8>, Pieces<'_>) {
        let bytes = pieces.into_iter().map(padded).sum::<usize>();
        if self.memory.len() < bytes {
            self.memory = Memory::zeroed(bytes.next_power_of_two());
        }
        let Batch { sources, targets, memory } = self;
        sources.clear();
        targets.clear();
        (sources, targets, Pieces(memory.bytes_mut()))
    }
}

/// The batches of a program that no submission uses.
#[derive(Default)]
pub(crate) struct Batches(Mutex<Vec<Batch>>);

/// Batches that are kept: there is one a submission, and few submissions at once.
const KEPT: usize = 4;

impl Batches {
    pub(crate) fn take(&self) -> Batch {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_else(Batch::new)
    }

    pub(crate) fn put(&self, batch: Batch) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT {
            free.push(batch);
        }
    }

    /// Bytes that wait for the next submissions.
    pub(crate) fn bytes(&self) -> u64 {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.iter().map(|batch| batch.memory.len() as u64).sum()
    }
}
