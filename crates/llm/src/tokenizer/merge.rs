//! Merging neighbours, best pair first: what all kinds of byte-pair encoding share.
//!
//! A queue of pairs makes long words cost n log n; pairs that an earlier merge took apart are passed over.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A part of the word that is being merged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Its token; none where the vocabulary has no such token.
    pub(super) id: Option<u32>,
    /// Whether it stays apart from its neighbours.
    frozen: bool,
    next: usize,
    previous: usize,
}

const NONE: usize = usize::MAX;

impl Symbol {
    pub(super) fn new(start: usize, end: usize, id: Option<u32>) -> Symbol {
        Symbol { start, end, id, frozen: false, next: NONE, previous: NONE }
    }

    /// A symbol that merges with nothing.
    pub(super) fn frozen(start: usize, end: usize, id: u32) -> Symbol {
        Symbol { frozen: true, ..Symbol::new(start, end, Some(id)) }
    }
}

/// How urgent a merge is (the smaller the sooner), and the token it gives.
pub(super) type Merge = (u64, Option<u32>);

/// Merges symbols until no rule applies; gives those that are left, in order.
pub(super) fn merge(
    mut symbols: Vec<Symbol>,
    rule: impl Fn(&Symbol, &Symbol) -> Option<Merge>,
) -> impl Iterator<Item = Symbol> {
    let count = symbols.len();
    for (index, symbol) in symbols.iter_mut().enumerate() {
        symbol.previous = index.checked_sub(1).unwrap_or(NONE);
        symbol.next = if index + 1 < count { index + 1 } else { NONE };
    }
    let mut queue = BinaryHeap::new();
    let push = |queue: &mut BinaryHeap<_>, symbols: &[Symbol], left: usize, right: usize| {
        let (Some(one), Some(other)) = (symbols.get(left), symbols.get(right)) else { return };
        if one.frozen || other.frozen {
            return;
        }
        if let Some((urgency, id)) = rule(one, other) {
            // Of equals, the leftmost comes first.
            queue.push(Reverse((urgency, left, right, other.end - one.start, id)));
        }
    };
    for index in 1..count {
        push(&mut queue, &symbols, index - 1, index);
    }
    while let Some(Reverse((_, left, right, length, id))) = queue.pop() {
        let (one, other) = (symbols[left], symbols[right]);
        let is_current = one.next == right && other.previous == left && other.end - one.start == length;
        if !is_current || one.start == one.end {
            continue;
        }
        symbols[left] = Symbol { end: other.end, id, next: other.next, ..one };
        symbols[right].start = other.end;
        symbols[right].next = NONE;
        if let Some(after) = symbols.get_mut(other.next) {
            after.previous = left;
        }
        push(&mut queue, &symbols, one.previous, left);
        push(&mut queue, &symbols, left, other.next);
    }
    symbols.into_iter().filter(|symbol| symbol.start < symbol.end)
}
