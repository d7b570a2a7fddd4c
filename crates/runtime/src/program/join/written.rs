//! What the delegates and operators of a group have written: in order, and by where it lies, so that who reads a value finds
//! what is there without looking at all of it.

use super::super::uses::Span;
use pteron_ir::Output;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Values in the order in which they were written, with what they are in the graph.
#[derive(Default)]
pub(super) struct Written {
    list: Vec<Entry>,
    /// By value: where it was written last, and where its bytes were: of a view, those that it looks at.
    last: HashMap<usize, (usize, usize)>,
    /// By arena and first byte: one behind the last byte, and where in the list these bytes were written. They never overlap.
    spans: BTreeMap<(u32, u64), (u64, usize)>,
}

struct Entry {
    value: usize,
    span: Option<Span>,
    /// The value that it is a view of.
    of: Option<usize>,
    output: Output,
}

/// What a value holds.
pub(super) enum Held<'w> {
    /// What was written to it.
    Written(&'w Output),
    /// What was there before the group.
    Old,
    /// Something else was written over all or some of it.
    Mixed,
}

impl Written {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn push(&mut self, value: usize, span: Option<Span>, output: Output) {
        self.add(Entry { value, span, of: None, output });
    }

    /// Adds a view: a value that lies where another does and has the same bytes, so that both can be read.
    pub(super) fn push_view(&mut self, value: usize, span: Option<Span>, of: usize, output: Output) {
        self.add(Entry { value, span, of: Some(of), output });
    }

    fn add(&mut self, entry: Entry) {
        let at = self.list.len();
        let seen = entry.of.and_then(|of| self.last.get(&of)).map(|(_, bytes)| *bytes);
        self.last.insert(entry.value, (at, seen.unwrap_or(at)));
        if let (None, Some(span)) = (seen, entry.span) {
            self.cover(span, at);
        }
        self.list.push(entry);
    }

    /// Notes whose the bytes of a place are now.
    fn cover(&mut self, Span { arena, from, to }: Span, at: usize) {
        if from >= to {
            return;
        }
        for (start, end, owner) in self.overlapping(arena, from, to).collect::<Vec<_>>() {
            self.spans.remove(&(arena, start));
            if start < from {
                self.spans.insert((arena, start), (from, owner));
            }
            if to < end {
                self.spans.insert((arena, to), (end, owner));
            }
        }
        self.spans.insert((arena, from), (to, at));
    }

    /// Goes back to the first of what was written.
    pub(super) fn truncate(&mut self, len: usize) {
        if len < self.list.len() {
            let mut list = std::mem::take(self).list;
            list.truncate(len);
            list.into_iter().for_each(|entry| self.add(entry));
        }
    }

    /// What a value holds now.
    pub(super) fn held(&self, value: usize, span: Option<Span>) -> Held<'_> {
        let own = self.last.get(&value);
        let written = |at: usize| Held::Written(&self.list[at].output);
        let Some(Span { arena, from, to }) = span.filter(|span| span.from < span.to) else {
            return own.map_or(Held::Old, |(at, _)| written(*at));
        };
        match (self.overlapping(arena, from, to).next(), own) {
            (None, _) => Held::Old,
            (Some((start, end, bytes)), Some((at, own))) if (start, end, bytes) == (from, to, *own) => {
                written(*at)
            }
            _ => Held::Mixed,
        }
    }

    /// What was written last to a value.
    pub(super) fn last(&self, value: usize) -> Option<&Output> {
        self.last.get(&value).map(|(at, _)| &self.list[*at].output)
    }

    /// All that was written, in order; and whether it is still there, in full or in part.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &Output, bool)> {
        let owners: HashSet<usize> = self.spans.values().map(|(_, at)| *at).collect();
        self.list.iter().enumerate().map(move |(at, entry)| {
            let has_place = entry.span.is_some_and(|span| span.from < span.to);
            let is_last =
                |(last, bytes): &(usize, usize)| *last == at && (!has_place || owners.contains(bytes));
            (entry.value, &entry.output, self.last.get(&entry.value).is_some_and(is_last))
        })
    }

    /// What lies in some bytes: first byte, end and place in the list of each.
    fn overlapping(&self, arena: u32, from: u64, to: u64) -> impl Iterator<Item = (u64, u64, usize)> {
        let before = self.spans.range((arena, 0)..(arena, from)).next_back();
        let before = before.filter(|(_, (end, _))| *end > from);
        let inside = self.spans.range((arena, from)..(arena, to));
        before.into_iter().chain(inside).map(|(&(_, start), &(end, at))| (start, end, at))
    }
}
