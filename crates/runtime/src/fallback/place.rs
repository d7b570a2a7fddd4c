//! Where the nodes of a graph run: each on the chosen backend or on the one behind it, in as few turns as their order
//! allows. A turn is a run of nodes on one side; all that can run in an earlier turn of its side does, but for what would then
//! carry more bytes from turn to turn.
//!
//! Numbers that follow from what the graph is given (sizes, positions) belong to no turn: each computes those that it needs.

use crate::backend::{Backend, Support};
use pteron_ir::op::ResultKind;
use pteron_ir::{Effect, Graph, Node, Op, Type, ValueId};
use std::collections::{HashMap, HashSet};

/// Who runs a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Side {
    /// The backend that was chosen.
    Own,
    /// The one behind it.
    Other,
}

/// By effect: whether the backend behind the chosen one has it. State that ops change besides their results is in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) cache: bool,
    pub(super) random: bool,
}

/// Nodes that compute something, up to which a turn of the chosen backend is not worth going back and forth.
const FEW_NODES: usize = 2;
/// How often turns are looked at anew after small ones were given up.
const MOST_ROUNDS: usize = 8;

/// A run of nodes on one side, by their places in the graph's body.
pub(super) type Turn = (Side, Vec<usize>);

/// The turns of one graph.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) turns: Vec<Turn>,
    /// What the other side has of the effects.
    pub(super) moved: Moved,
}

/// Places the nodes of a graph. Effects that are `moved` run on the other side, whether or not the chosen one has the op.
pub(super) fn place(graph: &Graph, own: &dyn Backend, other: &dyn Backend, moved: Moved) -> Placed {
    let facts = Facts::of(graph, own);
    let mut sides = facts.sides(own, moved);
    let mut phases = facts.phases(&sides);
    for _ in 0..MOST_ROUNDS {
        if !facts.give_up_small(&mut sides, &phases, other, moved) {
            break;
        }
        phases = facts.phases(&sides);
    }
    facts.postpone(&sides, &mut phases);
    let mut effects = Moved::default();
    let nodes = graph.body.nodes.iter().zip(&sides);
    for (node, _) in nodes.filter(|(_, side)| **side == Some(Side::Other)) {
        effects.cache |= has_effect(node, Effect::Cache);
        effects.random |= has_effect(node, Effect::Random);
    }
    Placed { turns: turns(&sides, &phases), moved: effects }
}

/// Nodes by turn, in their order; turns of one side that nothing stands between are one.
fn turns(sides: &[Option<Side>], phases: &[usize]) -> Vec<Turn> {
    let placed = sides.iter().zip(phases).enumerate();
    let mut nodes: Vec<(usize, usize, Side)> =
        placed.filter_map(|(node, (side, phase))| Some((*phase, node, (*side)?))).collect();
    nodes.sort_unstable_by_key(|&(phase, node, _)| (phase, node));
    let mut turns: Vec<Turn> = Vec::new();
    for (_, node, side) in nodes {
        match turns.last_mut() {
            Some((last, nodes)) if *last == side => nodes.push(node),
            _ => turns.push((side, vec![node])),
        }
    }
    turns.iter_mut().for_each(|(_, nodes)| nodes.sort_unstable());
    turns
}

/// Whether a node or one in its blocks has an effect.
pub(super) fn has_effect(node: &Node, effect: Effect) -> bool {
    any_op(node, &mut |op| op.effect() == effect)
}

/// Whether something holds for a node's op or for one in its blocks.
pub(super) fn any_op(node: &Node, holds: &mut dyn FnMut(&Op<pteron_ir::Ssa>) -> bool) -> bool {
    let mut found = holds(&node.op);
    node.for_each_block(|block| found |= block.nodes.iter().any(|node| any_op(node, holds)));
    found
}

/// What placing asks of a graph.
struct Facts<'g> {
    graph: &'g Graph,
    /// By node: what it and its blocks read from outside it, each value once.
    reads: Vec<Vec<ValueId>>,
    /// By value: the node that makes it.
    maker: HashMap<ValueId, usize>,
    /// By value: the nodes that read it, in order.
    readers: HashMap<ValueId, Vec<usize>>,
    /// By node: the ones whose effects come right before its own; `None` where it has no effect.
    before: Vec<Option<Vec<usize>>>,
    /// Nodes whose numbers any turn can compute.
    anywhere: HashSet<usize>,
    constants: HashSet<ValueId>,
}

impl<'g> Facts<'g> {
    fn of(graph: &'g Graph, own: &dyn Backend) -> Facts<'g> {
        let nodes = &graph.body.nodes;
        let constants = graph.constants.iter().map(|constant| constant.value).collect();
        let inputs: HashSet<ValueId> = graph.inputs.iter().map(|input| input.value).collect();
        let mut facts = Facts {
            graph,
            reads: Vec::with_capacity(nodes.len()),
            maker: HashMap::new(),
            readers: HashMap::new(),
            before: Vec::with_capacity(nodes.len()),
            anywhere: HashSet::new(),
            constants,
        };
        let mut last = [None; 2];
        for (index, node) in nodes.iter().enumerate() {
            let (mut reads, mut seen) = (Vec::new(), HashSet::new());
            node.for_each_capture(&mut |value| {
                if seen.insert(value) {
                    reads.push(value);
                }
            });
            reads.iter().for_each(|value| facts.readers.entry(*value).or_default().push(index));
            let is_free = |value: &ValueId| {
                inputs.contains(value)
                    || facts.maker.get(value).is_some_and(|maker| facts.anywhere.contains(maker))
            };
            if node.op.spec().result.kind == ResultKind::Scalar
                && reads.iter().all(is_free)
                && !is_refused(node, own, graph)
            {
                facts.anywhere.insert(index);
            }
            facts.maker.extend(node.results.iter().map(|&value| (value, index)));
            facts.reads.push(reads);
            let mut before = None;
            for (last, effect) in last.iter_mut().zip([Effect::Cache, Effect::Random]) {
                if has_effect(node, effect) {
                    before.get_or_insert_with(Vec::new).extend(last.replace(index));
                }
            }
            facts.before.push(before);
        }
        facts
    }

    /// By node: who runs it; `None` for numbers that any turn can compute.
    fn sides(&self, own: &dyn Backend, moved: Moved) -> Vec<Option<Side>> {
        let nodes = self.graph.body.nodes.iter().enumerate();
        let sides = nodes.map(|(index, node)| {
            let follows = (moved.cache && has_effect(node, Effect::Cache))
                || (moved.random && has_effect(node, Effect::Random));
            match self.anywhere.contains(&index) {
                true => None,
                false if follows || is_refused(node, own, self.graph) => Some(Side::Other),
                false => Some(Side::Own),
            }
        });
        sides.collect()
    }

    /// Nodes that must have run before a node.
    fn needed(&self, node: usize) -> impl Iterator<Item = usize> {
        let makers = self.reads[node].iter().filter_map(|value| self.maker.get(value).copied());
        makers.chain(self.before[node].iter().flatten().copied())
    }

    /// By node: the earliest turn that it can run in, where turns alternate; the side that begins is the one that gives
    /// fewer of them.
    fn phases(&self, sides: &[Option<Side>]) -> Vec<usize> {
        let begun_by = |first: Side| {
            let mut phases = vec![0usize; sides.len()];
            for (node, side) in sides.iter().enumerate() {
                let Some(side) = side else { continue };
                let mut phase = usize::from(*side != first);
                for before in self.needed(node) {
                    if let Some(its) = sides[before] {
                        phase = phase.max(phases[before] + usize::from(its != *side));
                    }
                }
                phases[node] = phase;
            }
            phases
        };
        let [own, other] = [Side::Own, Side::Other].map(begun_by);
        if turns(sides, &other).len() < turns(sides, &own).len() { other } else { own }
    }

    /// Gives nodes of turns that do little to the other side; whether there were any.
    fn give_up_small(
        &self,
        sides: &mut [Option<Side>],
        phases: &[usize],
        other: &dyn Backend,
        moved: Moved,
    ) -> bool {
        let nodes = &self.graph.body.nodes;
        let mut changed = false;
        let all = turns(sides, phases);
        if all.len() < 2 {
            return false;
        }
        for (_, turn) in all.iter().filter(|(side, _)| *side == Side::Own) {
            let is_small = turn.iter().filter(|&&node| !is_view(&nodes[node].op)).count() <= FEW_NODES;
            let stays = |&node: &usize| {
                let node = &nodes[node];
                self.is_heavy(node)
                    || (has_effect(node, Effect::Cache) && !moved.cache)
                    || (has_effect(node, Effect::Random) && !moved.random)
                    || is_refused(node, other, self.graph)
            };
            if is_small && !turn.iter().any(stays) {
                turn.iter().for_each(|&node| sides[node] = Some(Side::Other));
                changed = true;
            }
        }
        changed
    }

    /// Whether a node is what one chooses a backend for: products, attention, bodies and all that reads weights.
    fn is_heavy(&self, node: &Node) -> bool {
        let mut heavy = matches!(node.op, Op::Addmm { .. } | Op::Sdpa { .. } | Op::UpdateAndAttend { .. });
        node.for_each_operand(|value| heavy |= self.constants.contains(&value));
        node.for_each_block(|_| heavy = true);
        heavy
    }

    /// Moves nodes to later turns where fewer bytes are carried from turn to turn then: masks and casts to where they are
    /// read, updates of a buffer to where the buffer is.
    fn postpone(&self, sides: &[Option<Side>], phases: &mut [usize]) {
        let free = self.free(sides);
        for (node, side) in sides.iter().enumerate().rev() {
            let (Some(side), None) = (side, &self.before[node]) else { continue };
            let made = &self.graph.body.nodes[node].results;
            let readers = made.iter().filter_map(|value| self.readers.get(value)).flatten();
            let by_reader = readers.filter_map(|&reader| {
                let its = sides[reader]?;
                Some(phases[reader] - usize::from(its != *side))
            });
            let Some(latest) = by_reader.min().filter(|&latest| latest > phases[node]) else { continue };
            let crosses = |value: &ValueId, home: usize| {
                let readers = self.readers.get(value).into_iter().flatten();
                readers.into_iter().any(|&reader| reader != node && phases[reader] != home)
            };
            let still = made.iter().filter(|value| crosses(value, latest)).map(|value| self.bytes(*value));
            let new = self.reads[node].iter().filter_map(|value| {
                let maker = *self.maker.get(value)?;
                let is_new = sides[maker].is_some()
                    && !free[maker]
                    && phases[maker] != latest
                    && !crosses(value, phases[maker]);
                is_new.then(|| self.bytes(*value))
            });
            let after = still.chain(new).fold(0, u64::saturating_add);
            if after < made.iter().map(|value| self.bytes(*value)).fold(0, u64::saturating_add) {
                phases[node] = latest;
            }
        }
    }

    /// By node: whether it reads nothing but what every turn has, by way of others like it.
    fn free(&self, sides: &[Option<Side>]) -> Vec<bool> {
        let mut free = vec![false; sides.len()];
        for node in 0..sides.len() {
            let reads_free = self.reads[node].iter().all(|value| match self.maker.get(value) {
                Some(&maker) => sides[maker].is_none() || free[maker] && sides[maker] == sides[node],
                None => true,
            });
            free[node] = reads_free && self.before[node].is_none();
        }
        free
    }

    /// The most bytes of a value.
    fn bytes(&self, value: ValueId) -> u64 {
        most_bytes(self.graph, value).unwrap_or(u64::MAX)
    }
}

/// The most bytes that a value can have; `None` where there is no bound.
pub(super) fn most_bytes(graph: &Graph, value: ValueId) -> Option<u64> {
    let Some(Type::Tensor(ty)) = graph.ty(value) else { return Some(size_of::<i64>() as u64) };
    ty.shape.iter().try_fold(ty.dtype.size() as u64, |bytes, dim| {
        bytes.checked_mul(u64::try_from(graph.symbols.upper(dim)?.max(0)).ok()?)
    })
}

/// Whether a backend refuses a node or one in its blocks.
pub(super) fn is_refused(node: &Node, backend: &dyn Backend, graph: &Graph) -> bool {
    any_op(node, &mut |op| matches!(backend.supports(op, &graph.values), Support::No(_)))
}

/// Whether an op but looks at its operand in another way.
fn is_view(op: &Op<pteron_ir::Ssa>) -> bool {
    matches!(
        op,
        Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::ExpandDims { .. }
            | Op::Squeeze { .. }
            | Op::Slice { .. }
            | Op::IdCopy { .. }
            | Op::Contiguous { .. }
            | Op::BroadcastTo { .. }
            | Op::AsType { .. }
    ) || op.spec().result.kind == ResultKind::Scalar
}
