//! What each slot holds while chains are walked, with the way back out of a branch.

use pteron_ir::ValueId;

use crate::payload::{Payload, Slot, Tid, Vid};

/// The value in every slot. Every write is remembered, so that leaving a branch costs what it wrote and not the
/// size of the table.
#[derive(Debug)]
pub(super) struct SlotTable {
    tensors: Vec<Option<ValueId>>,
    values: Vec<Option<ValueId>>,
    writes: Vec<(Slot, Option<ValueId>)>,
}

/// A moment to come back to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(usize);

impl SlotTable {
    /// All slots of a payload, unset.
    pub(super) fn new(payload: &Payload) -> SlotTable {
        SlotTable {
            // The payload was checked: the sum is within limits.
            tensors: vec![None; payload.num_tensors() as usize],
            values: vec![None; payload.num_values as usize],
            writes: Vec::new(),
        }
    }

    fn cell(&mut self, slot: Slot) -> Option<&mut Option<ValueId>> {
        match slot {
            Slot::Tensor(Tid(index)) => self.tensors.get_mut(index as usize),
            Slot::Value(Vid(index)) => self.values.get_mut(index as usize),
        }
    }

    /// What the slot holds, if anything.
    pub(super) fn get(&self, slot: Slot) -> Option<ValueId> {
        match slot {
            Slot::Tensor(Tid(index)) => self.tensors.get(index as usize).copied()?,
            Slot::Value(Vid(index)) => self.values.get(index as usize).copied()?,
        }
    }

    /// Puts a value into a slot.
    pub(super) fn set(&mut self, slot: Slot, value: ValueId) {
        self.put(slot, Some(value));
    }

    /// Makes a slot as if nothing had ever set it.
    pub(super) fn unset(&mut self, slot: Slot) {
        self.put(slot, None);
    }

    fn put(&mut self, slot: Slot, value: Option<ValueId>) {
        if let Some(cell) = self.cell(slot) {
            let before = std::mem::replace(cell, value);
            self.writes.push((slot, before));
        }
    }

    /// This moment.
    pub(super) fn mark(&self) -> Mark {
        Mark(self.writes.len())
    }

    /// Undoes every write since that moment.
    pub(super) fn rewind(&mut self, mark: Mark) {
        while self.writes.len() > mark.0 {
            let Some((slot, before)) = self.writes.pop() else { return };
            if let Some(cell) = self.cell(slot) {
                *cell = before;
            }
        }
    }
}
