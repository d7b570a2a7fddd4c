//! When the values of a method are read and written, and which of them lie at one place of planned memory.

use super::method::{Instruction, Method, ValuePlan};
use super::tensors::TensorPlan;
use std::collections::HashSet;
use std::ops::Range;

/// Values at one place that are looked at before what lies there counts as read.
const MOST_ALIASES: usize = 256;
/// Members of lists that are noted where the lists are read; those of further lists count as read at any time.
const MOST_MEMBERS: usize = 1 << 20;

/// Where a planned tensor lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) arena: u32,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Span {
    pub(super) fn of(plan: &ValuePlan) -> Option<Span> {
        let ValuePlan::Tensor(plan @ TensorPlan { place: Some(place), .. }) = plan else { return None };
        Some(Span { arena: place.arena, from: place.offset, to: place.offset.saturating_add(plan.bytes()) })
    }

    pub(super) fn overlaps(&self, other: &Span) -> bool {
        self.arena == other.arena && self.from < other.to && other.from < self.to
    }
}

/// When the values of a method are read and written, and where they lie.
pub(super) struct Uses {
    /// By value, in order: the place among all instructions, and whether it is read there.
    events: Vec<Vec<(usize, bool)>>,
    /// The place of each chain's first instruction.
    starts: Vec<usize>,
    /// Values that lie where a buffer is kept, and members of lists that were too many: read at any time.
    always: Vec<bool>,
    /// Members of lists that may still be noted, and the lists that were too many.
    members: usize,
    wide: HashSet<usize>,
    /// By value: whether the caller gives it.
    given: Vec<bool>,
    /// Whether instructions may be run in another order than that in which they stand.
    pub(super) jumps: bool,
    /// By value.
    spans: Vec<Option<Span>>,
    /// Where values lie, in order, with the furthest end in the arena so far.
    sorted: Vec<(Span, usize, u64)>,
}

impl Uses {
    pub(super) fn of(method: &Method) -> Uses {
        let count = method.values.len();
        let spans: Vec<_> = method.values.iter().map(Span::of).collect();
        let placed = spans.iter().enumerate().filter_map(|(value, span)| Some(((*span)?, value, 0)));
        let mut sorted: Vec<(Span, usize, u64)> = placed.collect();
        sorted.sort_unstable();
        let (mut arena, mut furthest) = (None, 0);
        for (span, _, end) in &mut sorted {
            furthest = if arena == Some(span.arena) { span.to.max(furthest) } else { span.to };
            (arena, *end) = (Some(span.arena), furthest);
        }
        let (events, always) = (vec![Vec::new(); count], vec![false; count]);
        let mut given = vec![false; count];
        method.inputs.iter().for_each(|&value| given[value] = true);
        let mut uses = Uses {
            events,
            starts: Vec::new(),
            always,
            members: MOST_MEMBERS,
            wide: HashSet::new(),
            given,
            jumps: false,
            spans,
            sorted,
        };
        let mut at = 0;
        for chain in &method.chains {
            uses.starts.push(at);
            for step in chain {
                uses.jumps |= matches!(step, Instruction::JumpFalse { .. });
                match step {
                    // What is grown is read, too.
                    Instruction::Kernel { inputs, .. } => {
                        inputs.iter().for_each(|&value| uses.read(method, value, at));
                    }
                    other => other.for_each_read(|value| uses.read(method, value, at)),
                }
                step.for_each_written(|value| uses.events[value].push((at, false)));
                at += 1;
            }
        }
        method.outputs.iter().for_each(|&value| uses.read(method, value, at));
        let kept: HashSet<_> = method.buffers.iter().map(|(place, _)| *place).collect();
        for (value, plan) in method.values.iter().enumerate() {
            if let ValuePlan::Tensor(TensorPlan { place: Some(place), .. }) = plan
                && kept.contains(place)
            {
                uses.always[value] = true;
            }
        }
        uses
    }

    /// Notes that a value is read; of a list, its members are.
    fn read(&mut self, method: &Method, value: usize, at: usize) {
        self.events[value].push((at, true));
        let items: Vec<usize> = match &method.values[value] {
            // A list whose members count as read at any time has nothing to add.
            _ if self.wide.contains(&value) => return,
            ValuePlan::Tensors(items) => items.iter().flatten().copied().collect(),
            ValuePlan::Ints(items) => items.clone(),
            ValuePlan::Tensor(_) | ValuePlan::Value(_) => return,
        };
        match self.members.checked_sub(items.len()) {
            Some(left) => {
                self.members = left;
                items.into_iter().for_each(|item| self.events[item].push((at, true)));
            }
            None => {
                self.wide.insert(value);
                items.into_iter().for_each(|item| self.always[item] = true);
            }
        }
    }

    /// Whether anything is done with a value behind an instruction, in whatever order instructions are run.
    pub(super) fn is_used_after(&self, value: usize, chain: usize, place: usize) -> bool {
        let at = self.starts[chain] + place;
        self.jumps || self.always[value] || self.events[value].last().is_some_and(|(last, _)| *last > at)
    }

    /// Whether nothing but a group of instructions touches a value.
    pub(super) fn is_used_only_in(&self, value: usize, chain: usize, places: &Range<usize>) -> bool {
        let start = self.starts[chain];
        let own = start + places.start..start + places.end;
        !self.given[value] && self.events[value].iter().all(|(at, _)| own.contains(at))
    }

    /// Whether anything is done with a value.
    pub(super) fn is_used(&self, value: usize) -> bool {
        self.given[value] || !self.events[value].is_empty()
    }

    /// Whether a value is what the file says, whatever is run.
    pub(super) fn is_fixed(&self, value: usize) -> bool {
        !self.given[value] && self.events[value].iter().all(|(_, is_read)| *is_read)
    }

    /// Whether what a value holds when a group of instructions ends is read before it is written again.
    pub(super) fn is_read_after(&self, value: usize, chain: usize, places: &Range<usize>) -> bool {
        let start = self.starts[chain];
        let (begin, end) = (start + places.start, start + places.end);
        let events = &self.events[value];
        let behind = events.partition_point(|(at, _)| *at < end);
        let is_read = match self.jumps {
            // In any order: whoever stands before or behind the group counts, be it that he writes.
            true => behind < events.len() || events.first().is_some_and(|(at, _)| *at < begin),
            false => events.get(behind).is_some_and(|(_, is_read)| *is_read),
        };
        is_read || self.always[value]
    }

    /// Whether something holds for a value, or for another that is seen through its place: a view that the exporter left
    /// out. Where too many lie there, it does.
    pub(super) fn any_at(&self, value: usize, holds: impl Fn(usize) -> bool) -> bool {
        let Some(span) = self.spans[value] else { return holds(value) };
        let end =
            self.sorted.partition_point(|(other, ..)| (other.arena, other.from) < (span.arena, span.to));
        let mut near = self.sorted[..end]
            .iter()
            .rev()
            .take_while(|(other, _, furthest)| other.arena == span.arena && *furthest > span.from);
        let found =
            near.by_ref().take(MOST_ALIASES).any(|(other, at, _)| other.overlaps(&span) && holds(*at));
        found || holds(value) || near.next().is_some()
    }
}
