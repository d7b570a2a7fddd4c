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
        let is_stale = |entry: &Entry| matches!(entry.tensor, Value::None);
        // Contents never overlap, so only the last that begins before, and has a length, can reach into these bytes.
        let mut before = self.entries.range(first..place).rev();
        let before = before.find(|(_, entry)| entry.len > 0 || is_stale(entry));
        let before = before
            .filter(|(at, entry)| is_stale(entry) || at.offset.saturating_add(entry.len) > place.offset);
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

    const SOMETHING: Value = Value::Bool(true);

    fn at(offset: u64) -> Place {
        Place { arena: 1, offset }
    }

    fn writers(memory: &Memory, offsets: [u64; 4]) -> [Option<usize>; 4] {
        offsets.map(|offset| memory.read(at(offset)).and_then(|entry| entry.writer))
    }

    #[test]
    fn what_is_written_over_is_gone() {
        let mut memory = Memory::default();
        for (offset, len) in [(0, 16), (16, 16), (32, 16)] {
            memory.write(at(offset), Some(offset as usize), SOMETHING, len);
        }
        memory.write(Place { arena: 2, offset: 8 }, Some(9), SOMETHING, 100);
        memory.write(at(24), Some(1), SOMETHING, 8);
        assert_eq!(writers(&memory, [0, 16, 24, 32]), [Some(0), None, Some(1), Some(32)]);
        memory.write(at(0), Some(2), SOMETHING, 40);
        assert!(memory.read(at(24)).is_none() && memory.read(at(32)).is_none());
        assert_eq!(memory.bytes(), 140);
    }

    #[test]
    fn what_is_empty_stays_and_hides_nothing() {
        let mut memory = Memory::default();
        memory.write(at(0), Some(0), SOMETHING, 16);
        memory.write(at(8), Some(1), SOMETHING, 0);
        memory.write(at(32), Some(2), SOMETHING, 8);
        assert_eq!(writers(&memory, [0, 8, 32, 40])[1..], [Some(1), Some(2), None]);
        memory.write(at(12), Some(3), SOMETHING, 4);
        assert_eq!(writers(&memory, [0, 8, 12, 32]), [None, Some(1), Some(3), Some(2)]);
    }

    #[test]
    fn after_a_clearing_nothing_is_there() {
        let mut memory = Memory::default();
        memory.write(at(0), Some(0), SOMETHING, 16);
        memory.write(at(16), Some(1), SOMETHING, 16);
        memory.clear();
        assert_eq!((writers(&memory, [0, 16, 0, 0]), memory.bytes()), ([None; 4], 0));
        memory.write(at(16), Some(2), SOMETHING, 8);
        assert_eq!((writers(&memory, [0, 16, 0, 0]), memory.bytes()), ([None, Some(2), None, None], 8));
    }
}
