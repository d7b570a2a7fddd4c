//! A walk that is done, kept so that the next call of the same sizes lowers only what its numbers change. Lowering a step depends on
//! nothing but its operands' views and numbers: where those are what they were, so are its dispatches.

use super::{Datum, Given, Pause, Span, Table, Walk, WalkError, Written};
use crate::dispatch::{Dispatch, View};
use crate::lower::Lowering;
use crate::steps::{Planned, StepNode};
use crate::walk::CacheView;
use crate::walk::products::Normed;
use pteron_ir::{Graph, Op, ValueId};
use std::collections::HashMap;
use std::ops::Range;

/// Steps that were lowered together.
struct Group {
    steps: Range<usize>,
    dispatches: Range<usize>,
    /// Where their scratch begins and ends.
    scratch: [(usize, usize); 2],
    operands: Vec<ValueId>,
    results: Vec<ValueId>,
    kind: GroupKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum GroupKind {
    /// Lowered again where an operand has changed.
    Plain,
    /// Lowered again in any case: how a cache lies is asked anew.
    Cached,
    /// What others leave out depends on it: a change of an operand changes everything.
    Norm,
}

/// What a walk has worked out.
pub struct Lowered {
    values: Vec<Option<Datum>>,
    types: Table,
    firsts: Vec<Option<i64>>,
    norms: HashMap<ValueId, Normed>,
    lowering: Lowering,
    places: Vec<((usize, usize), usize)>,
    spans: Vec<Span>,
    groups: Vec<Group>,
    /// By value: whether it is another than in the call before.
    changed: Vec<bool>,
}

fn is_same(one: &Option<Datum>, other: &Option<Datum>) -> bool {
    let place = |view: &View| (view.region, view.offset, view.dtype, view.storage);
    match (one, other) {
        (Some(Datum::Tensor(one)), Some(Datum::Tensor(other))) => {
            place(one) == place(other)
                && one.layout.sizes() == other.layout.sizes()
                && one.layout.strides() == other.layout.strides()
        }
        (Some(Datum::Number(one)), Some(Datum::Number(other))) => one == other,
        (None, None) => true,
        _ => false,
    }
}

impl Walk<'_> {
    /// What it has worked out, behind its end, where that can be replayed: `None` where a number was read back from the device.
    pub fn into_lowered(self, dispatches: &[Dispatch]) -> Option<Lowered> {
        if self.has_read || self.traced || self.next != self.planned.steps.len() {
            return None;
        }
        let count = self.places.len();
        let mut bounds = vec![true; count + 1];
        for (step, &(_, first)) in self.places.iter().enumerate() {
            bounds[first + 1..=step].fill(false);
        }
        let mut groups = Vec::new();
        let (mut first, mut at) = (0, 0);
        let end = self.lowering.cursor();
        for (step, _) in bounds.iter().enumerate().skip(1).filter(|(_, is_bound)| **is_bound) {
            let steps = first..step;
            let begin = at;
            while dispatches.get(at).is_some_and(|dispatch| dispatch.step < step) {
                at += 1;
            }
            let behind = self.places.get(step).map_or(self.finish_cursor.unwrap_or(end), |place| place.0);
            groups.push(self.group(steps, begin..at, [self.places[first].0, behind]));
            first = step;
        }
        let changed = vec![false; self.values.len()];
        let Walk { values, types, firsts, norms, lowering, places, spans, .. } = self;
        Some(Lowered { values, types, firsts, norms, lowering, places, spans, groups, changed })
    }

    fn group(&self, steps: Range<usize>, dispatches: Range<usize>, scratch: [(usize, usize); 2]) -> Group {
        let (mut operands, mut results) = (Vec::new(), Vec::new());
        let mut kind = GroupKind::Plain;
        for step in &self.planned.steps[steps.clone()] {
            let StepNode::Run { node, .. } = step else { continue };
            node.for_each_operand(|value| operands.push(value));
            results.extend(&node.results);
            kind = match &node.op {
                Op::UpdateAndAttend { .. } => GroupKind::Cached,
                Op::AddRmsNorm { .. } => GroupKind::Norm,
                _ => kind,
            };
        }
        operands.sort_unstable_by_key(|value| value.0);
        operands.dedup();
        Group { steps, dispatches, scratch, operands, results, kind }
    }
}

impl Lowered {
    /// Lowers a call of the same sizes once more. Dispatches whose parameters differ are put into the list, and told by number; false
    /// where more than parameters would differ, and a walk must begin anew.
    pub fn replay<E: From<WalkError>>(
        &mut self,
        (graph, planned): (&Graph, &Planned),
        (inputs, spans): (&[Given], &[Span]),
        dispatches: &mut [Dispatch],
        mut admit: impl FnMut(&Written) -> Result<CacheView, E>,
        mut patch: impl FnMut(usize, &Dispatch) -> Result<(), E>,
    ) -> Result<bool, E> {
        // Of texts side by side, the numbers of the first are those by which steps are found to have changed.
        let is_alike = self.spans.len() == spans.len()
            && self.spans.iter().zip(spans).all(|(old, new)| old.tokens == new.tokens)
            && (self.spans == spans || self.spans[0].start != spans[0].start);
        if !is_alike {
            return Ok(false);
        }
        let next = planned.steps.len();
        let mut walk = Walk {
            graph,
            planned,
            values: std::mem::take(&mut self.values),
            types: Table(std::mem::take(&mut self.types.0)),
            firsts: std::mem::take(&mut self.firsts),
            lowering: std::mem::replace(&mut self.lowering, Lowering::new(crate::Features::LEAST, 0)),
            next,
            waiting: None,
            spans: spans.to_vec(),
            admitted: Vec::new(),
            traced: false,
            norms: std::mem::take(&mut self.norms),
            ropes: HashMap::new(),
            spanned: Vec::new(),
            places: std::mem::take(&mut self.places),
            has_read: false,
            finish_cursor: None,
        };
        let end = walk.lowering.cursor();
        let same = self.go_over(&mut walk, inputs, dispatches, &mut admit, &mut patch);
        walk.lowering.begin_at(end);
        let Walk { values, types, firsts, norms, lowering, places, spans, .. } = walk;
        (self.values, self.types, self.firsts) = (values, types, firsts);
        (self.norms, self.lowering, self.places, self.spans) = (norms, lowering, places, spans);
        same
    }

    fn go_over<E: From<WalkError>>(
        &mut self,
        walk: &mut Walk<'_>,
        inputs: &[Given],
        dispatches: &mut [Dispatch],
        admit: &mut impl FnMut(&Written) -> Result<CacheView, E>,
        patch: &mut impl FnMut(usize, &Dispatch) -> Result<(), E>,
    ) -> Result<bool, E> {
        self.changed.fill(false);
        for (input, given) in walk.graph.inputs.iter().zip(inputs) {
            let at = input.value.0 as usize;
            let before = (walk.values[at], walk.firsts[at]);
            match (given, &before.0) {
                (Given::Number(number), Some(Datum::Number(_))) => walk.set_number(input.value, *number),
                (Given::Tensor { dtype, sizes, offset, first }, Some(Datum::Tensor(view)))
                    if (*dtype, sizes.as_slice(), *offset) == (view.dtype, view.sizes(), view.offset) =>
                {
                    walk.firsts[at] = *first;
                }
                _ => return Ok(false),
            }
            self.changed[at] = walk.firsts[at] != before.1 || !is_same(&walk.values[at], &before.0);
        }
        for group in &self.groups {
            let is_changed = group.operands.iter().any(|value| self.changed[value.0 as usize]);
            if !is_changed && group.kind != GroupKind::Cached {
                continue;
            }
            if is_changed && group.kind == GroupKind::Norm {
                return Ok(false);
            }
            let before: Vec<_> = group
                .results
                .iter()
                .map(|value| (walk.values[value.0 as usize], walk.firsts[value.0 as usize]))
                .collect();
            walk.lowering.begin_at(group.scratch[0]);
            walk.next = group.steps.start;
            while walk.next < group.steps.end {
                match walk.step_on()? {
                    None => {}
                    Some(Pause::Admit(written)) => {
                        walk.next -= 1;
                        walk.admitted.push(admit(&written)?);
                    }
                    Some(_) => return Ok(false),
                }
            }
            let made = walk.take();
            let old = &mut dispatches[group.dispatches.clone()];
            if walk.lowering.cursor() != group.scratch[1] || made.len() != old.len() {
                return Ok(false);
            }
            for (at, (old, new)) in old.iter_mut().zip(made).enumerate() {
                let alike = old.kernel == new.kernel
                    && old.operands == new.operands
                    && old.access == new.access
                    && old.params.len() == new.params.len();
                if !alike {
                    return Ok(false);
                }
                if old.params != new.params || old.groups != new.groups {
                    *old = new;
                    patch(group.dispatches.start + at, old)?;
                }
            }
            for (value, (datum, first)) in group.results.iter().zip(before) {
                let at = value.0 as usize;
                self.changed[at] = walk.firsts[at] != first || !is_same(&walk.values[at], &datum);
            }
        }
        // What is behind the last step was lowered from these.
        let mut behind = walk.graph.outputs.iter().map(|output| output.value);
        let mut written = walk.graph.buffers.iter().map(|buffer| buffer.update);
        let is_kept = |value: ValueId| !self.changed[value.0 as usize];
        Ok(behind.all(is_kept) && written.all(is_kept))
    }
}
