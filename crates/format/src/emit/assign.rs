//! Which slot each value is in: a walk along the line of ticks that hands slots out and takes them back.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashSet};

use pteron_ir::liveness::{Clock, Liveness, LivenessError, Tick};
use pteron_ir::{Block, Graph, Node, Op, Type, ValueId};

use super::EmitError;
use super::boundary::Edge;
use super::moves::Move;
use crate::payload::{Slot, Tid, Vid};

/// Slots of all values of a graph.
#[derive(Debug)]
pub(super) struct Assignment {
    slots: Vec<Option<Slot>>,
    /// Copies before the first node: outputs that were there all along.
    pub(super) at_start: Vec<Move>,
    /// Copies after the last node: updates and outputs that could not be computed in place.
    pub(super) at_end: Vec<Move>,
    /// How many temporaries of each space there are.
    pub(super) tensors: u32,
    pub(super) values: u32,
}

impl Assignment {
    /// The slot of a value; `None` for one that nothing defines.
    pub(super) fn slot(&self, value: ValueId) -> Option<Slot> {
        self.slots.get(value.0 as usize).copied().flatten()
    }
}

/// Gives every value of a graph a slot.
pub(super) fn assign(graph: &Graph, edge: &Edge) -> Result<Assignment, EmitError> {
    let mut walk = Walk {
        graph,
        liveness: liveness(graph, edge)?,
        slots: vec![None; graph.values.len()],
        clock: Clock::default(),
        tensors: Pool::new(edge.first_tensor),
        values: Pool::new(edge.first_value),
    };
    for &(value, slot) in &edge.given {
        walk.set(value, slot);
    }
    let (at_start, at_end) = walk.boundary(edge)?;
    walk.nodes(&graph.body)?;
    let at_end =
        at_end.into_iter().filter_map(|(value, to)| Some(Move { from: walk.get(value)?, to })).collect();
    Ok(Assignment {
        at_start,
        at_end,
        tensors: walk.tensors.taken,
        values: walk.values.taken,
        slots: walk.slots,
    })
}

/// When values are needed, between what the graph finds and what it leaves.
fn liveness(graph: &Graph, edge: &Edge) -> Result<Liveness, EmitError> {
    let given: HashSet<ValueId> = edge.given.iter().map(|&(value, _)| value).collect();
    // An output that is there from the start is copied at the start.
    let outputs = edge.outputs.iter().map(|&(value, _)| value).filter(|value| !given.contains(value));
    let updates = edge.homes.iter().filter(|home| home.old != Some(home.new)).map(|home| home.new);
    let kept = outputs.map(|value| ("an output", value)).chain(updates.map(|value| ("an update", value)));
    let given = edge.given.iter().map(|&(value, _)| value);
    Liveness::between(graph, given, kept).map_err(|error| {
        let graph = graph.name.clone();
        match error {
            LivenessError::Undefined { value, user } => EmitError::Undefined { graph, value, user },
            LivenessError::Redefined { value, definer } => EmitError::Redefined { graph, value, definer },
        }
    })
}

/// Temporaries of one space.
#[derive(Debug)]
struct Pool {
    first: u32,
    taken: u32,
    free: BTreeSet<u32>,
    busy: BinaryHeap<Reverse<(Tick, u32)>>,
}

impl Pool {
    fn new(first: u32) -> Pool {
        Pool { first, taken: 0, free: BTreeSet::new(), busy: BinaryHeap::new() }
    }

    /// Takes back what was last used up to now: a node reads its operands before it writes its results.
    fn release(&mut self, now: Tick) {
        while let Some(&Reverse((last, index))) = self.busy.peek() {
            if last > now {
                return;
            }
            self.busy.pop();
            self.free.insert(index);
        }
    }

    /// A slot until after `last`: the wanted one if it is free, else the lowest, else a new one.
    fn take(&mut self, last: Tick, wanted: Option<u32>) -> u32 {
        let wanted = wanted.filter(|index| self.free.remove(index));
        let index = wanted.or_else(|| self.free.pop_first()).unwrap_or_else(|| {
            self.taken += 1;
            self.first + self.taken - 1
        });
        self.busy.push(Reverse((last, index)));
        index
    }
}

struct Walk<'g> {
    graph: &'g Graph,
    liveness: Liveness,
    slots: Vec<Option<Slot>>,
    clock: Clock,
    tensors: Pool,
    values: Pool,
}

/// Values to be copied to slots.
type Copies = Vec<(ValueId, Slot)>;

impl Walk<'_> {
    fn get(&self, value: ValueId) -> Option<Slot> {
        self.slots.get(value.0 as usize).copied().flatten()
    }

    fn set(&mut self, value: ValueId, slot: Slot) {
        if let Some(cell) = self.slots.get_mut(value.0 as usize) {
            *cell = Some(slot);
        }
    }

    fn first(&self, value: ValueId) -> Tick {
        self.liveness.life(value).from
    }

    fn last(&self, value: ValueId) -> Tick {
        self.liveness.life(value).to
    }

    fn is_tensor(&self, value: ValueId) -> bool {
        matches!(self.graph.ty(value), Some(Type::Tensor(_)))
    }

    fn fits(&self, value: ValueId, slot: Slot) -> bool {
        self.is_tensor(value) == matches!(slot, Slot::Tensor(_))
    }

    /// Puts updates and outputs where they are wanted, if their nodes can write them there; the rest is copied.
    fn boundary(&mut self, edge: &Edge) -> Result<(Vec<Move>, Copies), EmitError> {
        let (mut at_start, mut at_end) = (Vec::new(), Vec::new());
        for home in &edge.homes {
            if home.old == Some(home.new) {
                continue;
            }
            // Operands are read before results are written, so the last use may be the update itself.
            let old_is_dead = home.old.is_none_or(|old| self.last(old) <= self.first(home.new));
            if self.can_take(home.new, home.slot, 0) && old_is_dead {
                self.set(home.new, home.slot);
            } else {
                self.check_kind("an update", home.new, home.slot)?;
                at_end.push((home.new, home.slot));
            }
        }
        for &(value, slot) in &edge.outputs {
            self.check_kind("an output", value, slot)?;
            if self.can_take(value, slot, 0) {
                self.set(value, slot);
                continue;
            }
            if matches!(self.graph.ty(value), Some(Type::Float | Type::Bool)) {
                return Err(EmitError::NoCopy { graph: self.graph.name.clone(), value });
            }
            if self.liveness.is_made_in(value, 0) {
                at_end.push((value, slot));
            } else if let Some(from) = self.get(value) {
                at_start.push(Move { from, to: slot });
            }
        }
        Ok((at_start, at_end))
    }

    fn check_kind(&self, user: &str, value: ValueId, slot: Slot) -> Result<(), EmitError> {
        if self.fits(value, slot) {
            return Ok(());
        }
        let want = if self.is_tensor(value) { "an integer" } else { "a tensor" };
        Err(EmitError::Kind { graph: self.graph.name.clone(), value, user: user.to_owned(), want })
    }

    /// Whether a node of that block may compute the value right in the slot.
    fn can_take(&self, value: ValueId, slot: Slot, block: u32) -> bool {
        self.liveness.is_made_in(value, block) && self.get(value).is_none() && self.fits(value, slot)
    }

    /// Gives a value a temporary, unless it has a slot.
    fn place(&mut self, value: ValueId, wanted: Option<Slot>) {
        if self.get(value).is_some() {
            return;
        }
        let last = self.last(value);
        let slot = match (self.is_tensor(value), wanted) {
            (true, Some(Slot::Tensor(Tid(wanted)))) => {
                Slot::Tensor(Tid(self.tensors.take(last, Some(wanted))))
            }
            (true, _) => Slot::Tensor(Tid(self.tensors.take(last, None))),
            (false, _) => Slot::Value(Vid(self.values.take(last, None))),
        };
        self.set(value, slot);
    }

    fn nodes(&mut self, block: &Block) -> Result<(), EmitError> {
        block.nodes.iter().try_for_each(|node| self.node(node))
    }

    fn node(&mut self, node: &Node) -> Result<(), EmitError> {
        let start = self.clock.tick();
        self.tensors.release(start);
        self.values.release(start);
        match &node.op {
            Op::If { then_chain_idx, else_chain_idx, .. } => {
                node.results.iter().for_each(|&result| self.place(result, None));
                for body in [then_chain_idx, else_chain_idx] {
                    let number = self.clock.enter();
                    self.clock.tick();
                    for (&result, &given) in node.results.iter().zip(&body.results) {
                        self.join(result, given, number);
                    }
                    self.nodes(body)?;
                    self.clock.tick();
                }
                self.clock.tick();
            }
            Op::Scan { originals, carry, body_chain_idx, .. } => {
                self.scan(node, originals.len(), carry, body_chain_idx)?;
            }
            _ => node.results.iter().for_each(|&result| self.place(result, None)),
        }
        Ok(())
    }

    /// Lets a body compute what it gives where it is wanted. The slot of a result belongs to it from the start
    /// of the node, so nothing else in the body can be in it.
    fn join(&mut self, result: ValueId, given: ValueId, block: u32) {
        if let Some(slot) = self.get(result)
            && self.can_take(given, slot, block)
        {
            self.set(given, slot);
        }
    }

    fn scan(&mut self, node: &Node, slices: usize, carry: &[ValueId], body: &Block) -> Result<(), EmitError> {
        let outputs = node.results.len().saturating_sub(carry.len());
        let (stacked, finals) = node.results.split_at(outputs);
        stacked.iter().for_each(|&result| self.place(result, None));
        for (&result, &start) in finals.iter().zip(carry) {
            // Where the first content is, if that is dead now: then nothing needs to be copied.
            self.place(result, self.get(start));
        }
        let number = self.clock.enter();
        let start = self.clock.tick();
        self.tensors.release(start);
        let (sliced, carried) = body.params.split_at(slices.min(body.params.len()));
        for (&param, &result) in carried.iter().zip(finals) {
            if let Some(slot) = self.get(result) {
                self.set(param, slot);
            }
        }
        let (given, next) = body.results.split_at(outputs.min(body.results.len()));
        for ((&next, &param), &result) in next.iter().zip(carried).zip(finals) {
            // In place, if the step has no use for the old content by then.
            if self.last(param) <= self.first(next) {
                self.join(result, next, number);
            }
        }
        for (&given, &result) in given.iter().zip(stacked) {
            self.join(result, given, number);
        }
        sliced.iter().for_each(|&param| self.place(param, None));
        self.nodes(body)?;
        self.clock.tick();
        self.clock.tick();
        Ok(())
    }
}
