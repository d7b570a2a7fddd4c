//! Which slots matter where: what a chain reads before writing it, what it surely writes, what it may write, and
//! from these what a branch or a loop must hand on.
//!
//! The wire has no result lists for branches and calls a loop's carried slots documentation; both follow from
//! liveness. Bodies are summarised once a chain, so that a body used in many places is walked once for it.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use pteron_ir::Op;
use pteron_ir::op::IntArg;

use crate::payload::{ChainId, Instruction, Payload, Slot, Tid, Wire};

/// What running a chain does to slots.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Read before the chain itself has written them on every path.
    pub(super) uses: HashSet<Slot>,
    /// Written on every path.
    pub(super) kills: HashSet<Slot>,
    /// Written on some path.
    pub(super) writes: HashSet<Slot>,
}

/// What the control nodes of one chain hand on, by position.
pub(super) type Wanted = HashMap<usize, Vec<Slot>>;

/// Liveness over the chains of one payload.
#[derive(Debug)]
pub(super) struct Liveness<'p> {
    payload: &'p Payload,
    effects: HashMap<ChainId, Rc<Effects>>,
}

impl<'p> Liveness<'p> {
    /// Of a payload that was checked: chains exist and do not run themselves.
    pub(super) fn new(payload: &'p Payload) -> Liveness<'p> {
        Liveness { payload, effects: HashMap::new() }
    }

    fn instructions(&self, chain: ChainId) -> &'p [Instruction] {
        self.payload.chain(chain).map_or(&[], |chain| &chain.instructions)
    }

    /// What a chain does to slots. Recursion is as deep as chains nest, which is limited.
    pub(super) fn effects(&mut self, chain: ChainId) -> Rc<Effects> {
        if let Some(effects) = self.effects.get(&chain) {
            return effects.clone();
        }
        let mut total = Effects::default();
        for instruction in self.instructions(chain) {
            let step = self.step(instruction);
            total.uses.extend(step.uses.iter().filter(|slot| !total.kills.contains(slot)));
            total.kills.extend(&step.kills);
            total.writes.extend(&step.writes);
        }
        let total = Rc::new(total);
        self.effects.insert(chain, total.clone());
        total
    }

    fn step(&mut self, instruction: &Instruction) -> Effects {
        match &instruction.op {
            Op::If { then_chain_idx, else_chain_idx, .. } => {
                let (then, other) = (self.effects(*then_chain_idx), self.effects(*else_chain_idx));
                let mut uses: HashSet<Slot> = operands(&instruction.op);
                uses.extend(then.uses.iter().chain(&other.uses));
                Effects {
                    uses,
                    kills: then.kills.intersection(&other.kills).copied().collect(),
                    writes: then.writes.union(&other.writes).copied().collect(),
                }
            }
            Op::Scan { originals, sliced, body_chain_idx, .. } => {
                let body = self.effects(*body_chain_idx);
                let mut uses = loop_uses(&body, sliced, &instruction.results);
                uses.extend(originals.iter().map(|&tid| Slot::Tensor(tid)));
                let mut writes = body.writes.clone();
                writes.extend(sliced.iter().map(|&tid| Slot::Tensor(tid)));
                writes.extend(&instruction.results);
                // What the body writes is not surely written: a loop may have no steps.
                Effects { uses, kills: instruction.results.iter().copied().collect(), writes }
            }
            op => Effects {
                uses: operands(op),
                kills: instruction.results.iter().copied().collect(),
                writes: instruction.results.iter().copied().collect(),
            },
        }
    }

    /// What each branch and loop of a chain must hand on when `live_out` is read after the chain.
    pub(super) fn wanted(&mut self, chain: ChainId, live_out: impl IntoIterator<Item = Slot>) -> Wanted {
        let instructions = self.instructions(chain);
        let mut wanted = Wanted::new();
        let is_control =
            |instruction: &Instruction| matches!(instruction.op, Op::If { .. } | Op::Scan { .. });
        let Some(first) = instructions.iter().position(is_control) else { return wanted };
        let mut live: HashSet<Slot> = live_out.into_iter().collect();
        for (index, instruction) in instructions.iter().enumerate().skip(first).rev() {
            match &instruction.op {
                Op::If { then_chain_idx, else_chain_idx, .. } => {
                    let (then, other) = (self.effects(*then_chain_idx), self.effects(*else_chain_idx));
                    let written = then.writes.union(&other.writes);
                    wanted.insert(index, in_order(written.filter(|slot| live.contains(slot))));
                }
                Op::Scan { sliced, carry, body_chain_idx, .. } => {
                    let body = self.effects(*body_chain_idx);
                    let carried = carried(&body, sliced, carry, &instruction.results, &live);
                    live.extend(&carried);
                    wanted.insert(index, carried);
                }
                // A copy into a slot that nobody reads keeps nothing alive: lifting leaves it out.
                op if copied(op).is_some() && !instruction.results.iter().any(|slot| live.contains(slot)) => {
                    continue;
                }
                _ => {}
            }
            let step = self.step(instruction);
            for slot in &step.kills {
                live.remove(slot);
            }
            live.extend(&step.uses);
        }
        wanted
    }
}

/// The slot that an instruction copies, if it does nothing else. Adding 0 is how integers are copied: the format
/// has no other way, and `emit` uses it.
pub(super) fn copied(op: &Op<Wire>) -> Option<Slot> {
    match op {
        Op::IdCopy { x } => Some(Slot::Tensor(*x)),
        Op::AddInt { a: IntArg::Value(a), b: IntArg::Literal(0) } => Some(Slot::Value(*a)),
        _ => None,
    }
}

fn in_order<'a>(slots: impl Iterator<Item = &'a Slot>) -> Vec<Slot> {
    let mut slots: Vec<Slot> = slots.copied().collect();
    slots.sort_unstable();
    slots
}

fn operands(op: &Op<Wire>) -> HashSet<Slot> {
    let mut slots = HashSet::new();
    op.for_each_tensor(|tid| {
        slots.insert(Slot::Tensor(tid));
    });
    op.for_each_scalar(|vid| {
        slots.insert(Slot::Value(vid));
    });
    slots
}

/// What one step of a loop reads of what was there before it. The runtime sets `sliced` first and reads the
/// outputs last, whether or not the body wrote them.
fn loop_uses(body: &Effects, sliced: &[Tid], outputs: &[Slot]) -> HashSet<Slot> {
    let collected = outputs.iter().filter(|slot| !body.kills.contains(slot));
    let sliced: HashSet<Slot> = sliced.iter().map(|&tid| Slot::Tensor(tid)).collect();
    body.uses.iter().chain(collected).filter(|slot| !sliced.contains(slot)).copied().collect()
}

/// Slots that a loop carries: written by a step, and read by the next one or after the loop. In the order of the
/// node's own list where it names them, then by number, so that lifting what was emitted finds the same order.
fn carried(
    body: &Effects,
    sliced: &[Tid],
    listed: &[Tid],
    outputs: &[Slot],
    live: &HashSet<Slot>,
) -> Vec<Slot> {
    let uses = loop_uses(body, sliced, outputs);
    let outputs: HashSet<Slot> = outputs.iter().copied().collect();
    let mut written = body.writes.clone();
    written.extend(sliced.iter().map(|&tid| Slot::Tensor(tid)));
    let mut rest: HashSet<Slot> = written
        .into_iter()
        .filter(|slot| uses.contains(slot) || (live.contains(slot) && !outputs.contains(slot)))
        .collect();
    let mut slots = Vec::with_capacity(rest.len());
    slots.extend(listed.iter().map(|&tid| Slot::Tensor(tid)).filter(|slot| rest.remove(slot)));
    slots.extend(in_order(rest.iter()));
    slots
}
