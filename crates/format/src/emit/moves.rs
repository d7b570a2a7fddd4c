//! Copies that happen at once, put into an order in which no source is overwritten before it is read.
//!
//! The end of a loop's body may swap two carried slots; the end of a run may swap two buffers.

use std::collections::{HashMap, VecDeque};

use crate::payload::Slot;

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) from: Slot,
    pub(super) to: Slot,
}

/// Copies with the same effect, one after another. Targets must differ. Each cycle goes through `scratch`, which
/// is asked for only if there is one.
pub(super) fn in_sequence(moves: &[Move], mut scratch: impl FnMut() -> Slot) -> Vec<Move> {
    let mut pending: Vec<Option<Move>> =
        moves.iter().map(|&one| (one.from != one.to).then_some(one)).collect();
    let mut readers: HashMap<Slot, Vec<usize>> = HashMap::new();
    let mut writer: HashMap<Slot, usize> = HashMap::new();
    for (index, one) in pending.iter().enumerate() {
        if let Some(one) = one {
            readers.entry(one.from).or_default().push(index);
            writer.insert(one.to, index);
        }
    }
    let mut left: HashMap<Slot, usize> = readers.iter().map(|(&slot, of)| (slot, of.len())).collect();
    let is_free = |left: &HashMap<Slot, usize>, slot: Slot| left.get(&slot).is_none_or(|&count| count == 0);

    let mut order = Vec::with_capacity(moves.len());
    let mut ready: VecDeque<usize> = VecDeque::new();
    ready
        .extend((0..pending.len()).filter(|&index| pending[index].is_some_and(|one| is_free(&left, one.to))));
    for index in 0..pending.len() {
        while let Some(next) = ready.pop_front() {
            let Some(one) = pending[next].take() else { continue };
            order.push(one);
            if let Some(count) = left.get_mut(&one.from) {
                *count -= 1;
                if *count == 0
                    && let Some(&unblocked) = writer.get(&one.from)
                {
                    ready.push_back(unblocked);
                }
            }
        }
        // Only cycles are left: save what this one would overwrite, and let its readers read the copy.
        let Some(one) = pending[index] else { continue };
        let saved = scratch();
        order.push(Move { from: one.to, to: saved });
        for &reader in readers.get(&one.to).into_iter().flatten() {
            if let Some(reader) = &mut pending[reader] {
                reader.from = saved;
            }
        }
        left.insert(one.to, 0);
        ready.push_back(index);
    }
    while let Some(next) = ready.pop_front() {
        order.extend(pending[next].take());
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Tid;

    fn slot(index: u32) -> Slot {
        Slot::Tensor(Tid(index))
    }

    /// Every set of moves over a few slots, run at once and in sequence.
    #[test]
    fn sequences_have_the_effect_of_copies_at_once() {
        const SLOTS: u32 = 4;
        for code in 0..(SLOTS + 1).pow(SLOTS) {
            let source = |to: u32| code / (SLOTS + 1).pow(to) % (SLOTS + 1);
            let moves: Vec<Move> = (0..SLOTS)
                .filter(|&to| source(to) < SLOTS)
                .map(|to| Move { from: slot(source(to)), to: slot(to) })
                .collect();
            let mut want: Vec<u32> = (0..SLOTS).collect();
            for one in &moves {
                if let (Slot::Tensor(from), Slot::Tensor(to)) = (one.from, one.to) {
                    want[to.0 as usize] = from.0;
                }
            }
            let mut got: Vec<u32> = (0..=SLOTS).collect();
            for one in in_sequence(&moves, || slot(SLOTS)) {
                if let (Slot::Tensor(from), Slot::Tensor(to)) = (one.from, one.to) {
                    got[to.0 as usize] = got[from.0 as usize];
                }
            }
            assert_eq!(got[..SLOTS as usize], want, "{moves:?}");
        }
    }
}
