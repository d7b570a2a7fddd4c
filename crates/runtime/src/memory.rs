//! The planned memory of one run. What is written to a place is there until something is written over it; a
//! tensor that is never written itself is seen through the place that it shares with another.
//!
//! Contents are tensors, not bytes: nothing is copied, and what is overwritten is dropped. Places outlive what lies there,
//! so that a run that writes where the one before it did allocates nothing.

use crate::Value;
use crate::program::Place;
use std::collections::BTreeMap;

/// What lies in planned memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    entries: BTreeMap<Place, Entry>,
    bytes: u64,
}

/// What was written to one place.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The value that it was written as; `None` for what a session brings along.
    pub(crate) writer: Option<usize>,
    /// A tensor.
    pub(crate) tensor: Value,
    len: u64,
}

impl Memory {
    /// Forgets what lies there.
    pub(crate) fn clear(&mut self) {
        for entry in self.entries.values_mut() {
            (entry.writer, entry.tensor, entry.len) = (None, Value::None, 0);
        }
        self.bytes = 0;
    }

    /// Writes `len` bytes: whatever they overlap is gone.
    pub(crate) fn write(&mut self, place: Place, writer: Option<usize>, tensor: Value, len: u64) {
        while let Some(gone) = self.overlapping(place, len) {
            self.bytes -= self.entries.remove(&gone).map_or(0, |entry| entry.len);
        }
        let old = self.entries.insert(place, Entry { writer, tensor, len });
        self.bytes = self.bytes.saturating_sub(old.map_or(0, |entry| entry.len)).saturating_add(len);
    }

    /// Another place that `len` bytes at a place would be written over, or that nothing lies at any more and that is in
    /// the way of the search.
    fn overlapping(&self, place: Place, len: u64) -> Option<Place> {
        let first = Place { offset: 0, ..place };
        // Contents never overlap, so only the last that begins before can reach into these bytes.
        let reaches = |at: &Place, len: u64| at.offset.saturating_add(len) > place.offset;
        let before = self.entries.range(first..place).next_back();
        let before = before.filter(|(at, entry)| entry.len == 0 || reaches(at, entry.len));
        let behind = Place { offset: place.offset.saturating_add(1), ..place };
        let end = Place { offset: place.offset.saturating_add(len).max(behind.offset), ..place };
        before.or_else(|| self.entries.range(behind..end).next()).map(|(&at, _)| at)
    }

    /// What begins at a place.
    pub(crate) fn read(&self, place: Place) -> Option<&Entry> {
        self.entries.get(&place).filter(|entry| !matches!(entry.tensor, Value::None))
    }

    /// Bytes of all that is there.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_over_is_gone() {
        let at = |offset| Place { arena: 1, offset };
        let mut memory = Memory::default();
        for (offset, len) in [(0, 16), (16, 16), (32, 16)] {
            memory.write(at(offset), Some(offset as usize), Value::None, len);
        }
        memory.write(Place { arena: 2, offset: 8 }, Some(9), Value::None, 100);
        memory.write(at(24), Some(1), Value::None, 8);
        let writers: Vec<_> =
            [0, 16, 24, 32].map(|offset| memory.read(at(offset)).and_then(|entry| entry.writer)).into();
        assert_eq!(writers, [Some(0), None, Some(1), Some(32)]);
        memory.write(at(0), Some(2), Value::None, 40);
        assert!(memory.read(at(24)).is_none() && memory.read(at(32)).is_none());
        assert_eq!(memory.bytes(), 140);
    }
}
