//! What is stored once however often it comes: payloads, named data and constants, found again by their content.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

use pteron_tensor::Bytes;

use super::{DATA_ALIGNMENT, StoredIndex};
use crate::pte::SubsegmentOffsets;

/// Entries that can be found again by their content.
pub(super) struct Pool<T> {
    pub(super) entries: Vec<T>,
    by_hash: HashMap<u64, Vec<usize>>,
}

impl<T> Default for Pool<T> {
    fn default() -> Pool<T> {
        Pool { entries: Vec::new(), by_hash: HashMap::new() }
    }
}

impl<T> Pool<T> {
    pub(super) fn find(&self, hash: u64, same: impl Fn(&T) -> bool) -> Option<usize> {
        self.by_hash.get(&hash)?.iter().copied().find(|&at| same(&self.entries[at]))
    }

    pub(super) fn push(&mut self, hash: Option<u64>, entry: T) -> usize {
        let at = self.entries.len();
        self.entries.push(entry);
        if let Some(hash) = hash {
            self.by_hash.entry(hash).or_default().push(at);
        }
        at
    }
}

/// Tensors that share a segment; entry 0 stands for "none".
#[derive(Default)]
pub(super) struct Stored {
    data: Vec<u8>,
    /// Start and length, from entry 1 on.
    offsets: Vec<(usize, usize)>,
    by_hash: HashMap<u64, Vec<usize>>,
}

impl Stored {
    pub(super) fn add(&mut self, bytes: &[u8], share: bool) -> StoredIndex {
        let hash = content_hash(bytes);
        let same = |at: &usize| {
            let (start, len) = self.offsets[*at];
            self.data[start..start + len] == *bytes
        };
        let known =
            self.by_hash.get(&hash).filter(|_| share).and_then(|known| known.iter().copied().find(same));
        let at = known.unwrap_or_else(|| {
            self.data.resize(self.data.len().next_multiple_of(DATA_ALIGNMENT as usize), 0);
            self.offsets.push((self.data.len(), bytes.len()));
            self.data.extend_from_slice(bytes);
            self.by_hash.entry(hash).or_default().push(self.offsets.len() - 1);
            self.offsets.len() - 1
        });
        StoredIndex(at as u32 + 1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes::copy_of(&self.data)
    }

    pub(super) fn table(&self, segment_index: u32) -> SubsegmentOffsets {
        let offsets = std::iter::once(0).chain(self.offsets.iter().map(|(start, _)| *start as u64));
        SubsegmentOffsets { segment_index, offsets: offsets.collect() }
    }
}

/// Equal within one process, which is all that finding again needs; it never reaches a file.
pub(crate) fn content_hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
