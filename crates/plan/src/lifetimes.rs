//! When values are needed and which of them share memory (aliases). How long a value is read is the graph's own liveness;
//! here a view keeps what it views alive, an update whose target nobody reads afterwards writes into it, and what a group
//! of nodes reads is read where the group runs.

use crate::groups::Groups;
use crate::types::Types;
use pteron_ir::liveness::{Liveness, Tick};
use pteron_ir::op::OffsetArg;
use pteron_ir::{Block, Graph, Node, Op, ValueId};

/// How a result relates to the memory of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// It has memory of its own.
    Own,
    /// It is a view of the operand.
    View(ValueId),
    /// It is a view where the operand's strides allow it, else a copy in memory of its own.
    MaybeView(ValueId),
    /// It is the operand, changed in place.
    InPlace(ValueId),
}

/// Of one value.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// When it is made.
    pub from: Tick,
    /// When it is last read itself; views of it may be read later.
    pub to: Tick,
    /// Whose memory it is in.
    pub sharing: Sharing,
}

/// Of all values.
pub struct Lifetimes {
    lives: Vec<Life>,
    /// By value: the first value of all that share its memory.
    roots: Vec<ValueId>,
    /// By root: where the last of them is read.
    ends: Vec<Tick>,
    /// Of the graph, without regard to who shares memory.
    liveness: Liveness,
}

impl Lifetimes {
    pub(crate) fn of(graph: &Graph, types: &Types, groups: &Groups<'_>) -> Lifetimes {
        let liveness = Liveness::of(graph);
        let lives = (0..graph.values.len() as u32).map(|value| liveness.life(ValueId(value)));
        let mut lives: Vec<Life> =
            lives.map(|life| Life { from: life.from, to: life.to, sharing: Sharing::Own }).collect();
        let mut number = 0;
        graph.for_each_node(|node, _| {
            let own = liveness.node(number);
            // What a node reads is read where the node runs that it is computed in.
            let place = liveness.node(groups.place(number)).start;
            number += 1;
            node.for_each_operand(|value| {
                let life = &mut lives[value.0 as usize];
                life.to = life.to.max(place);
            });
            for &result in &node.results {
                lives[result.0 as usize].sharing = sharing(node, types);
            }
            // Parameters of a loop get their next contents between two steps.
            if let Op::Scan { body_chain_idx: body, .. } = &node.op {
                for &param in &body.params {
                    let life = &mut lives[param.0 as usize];
                    (life.from, life.to) = (own.start, own.end);
                }
            }
        });
        let roots: Vec<ValueId> = (0..lives.len() as u32).map(ValueId).collect();
        let ends = lives.iter().map(|life| life.to).collect();
        let mut lifetimes = Lifetimes { lives, roots, ends, liveness };
        lifetimes.share_views(&graph.body);
        let mut fixed = vec![false; graph.values.len()];
        let constants = graph.constants.iter().map(|constant| constant.value);
        for value in constants.chain(graph.inputs.iter().map(|input| input.value)) {
            fixed[value.0 as usize] = true;
        }
        let mut number = 0;
        lifetimes.update_in_place(&graph.body, &fixed, &mut number);
        lifetimes
    }

    /// Of one value.
    pub fn life(&self, value: ValueId) -> Life {
        self.lives[value.0 as usize]
    }

    /// The value whose memory this one is in.
    pub fn root(&self, value: ValueId) -> ValueId {
        let mut at = value;
        while self.roots[at.0 as usize] != at {
            at = self.roots[at.0 as usize];
        }
        at
    }

    /// Where the memory of a root is last read.
    pub fn end_of_root(&self, root: ValueId) -> Tick {
        self.ends[root.0 as usize]
    }

    /// The number of the first node behind a node and its nested ones.
    pub fn next_number(&self, node: usize) -> usize {
        self.liveness.node(node).next
    }

    /// When a node runs.
    pub fn at(&self, node: usize) -> Tick {
        self.liveness.node(node).start
    }

    /// When a node and all its nested ones have run.
    pub fn behind(&self, node: usize) -> Tick {
        self.liveness.node(node).end
    }

    fn join(&mut self, value: ValueId, into: ValueId) {
        let (own, root) = (self.root(value), self.root(into));
        if own != root {
            self.roots[own.0 as usize] = root;
            self.ends[root.0 as usize] = self.ends[root.0 as usize].max(self.ends[own.0 as usize]);
        }
    }

    /// Views live in the memory of what they view; what may be a view keeps that memory alive.
    fn share_views(&mut self, block: &Block) {
        for node in &block.nodes {
            for &result in &node.results {
                if let Sharing::View(operand) = self.life(result).sharing {
                    self.join(result, operand);
                }
            }
            if let Op::Scan { originals, body_chain_idx: body, .. } = &node.op {
                for (&original, &slice) in originals.iter().zip(&body.params) {
                    self.join(slice, original);
                }
            }
            node.for_each_block(|block| self.share_views(block));
        }
        // In reverse: a chain of reshapes passes the last use up to its source.
        for node in block.nodes.iter().rev() {
            for &result in &node.results {
                if let Sharing::MaybeView(operand) = self.life(result).sharing {
                    let (own, root) = (self.root(result), self.root(operand));
                    self.ends[root.0 as usize] = self.ends[root.0 as usize].max(self.ends[own.0 as usize]);
                }
            }
        }
    }

    /// Updates whose target nobody reads afterwards write into it.
    fn update_in_place(&mut self, block: &Block, fixed: &[bool], number: &mut usize) {
        for node in &block.nodes {
            let own = *number;
            *number += 1;
            if let (Some((target, others)), &[result]) = (updated(node), node.results.as_slice()) {
                let root = self.root(target);
                let free = self.ends[root.0 as usize] <= self.at(own)
                    && !fixed[root.0 as usize]
                    // It may lie in memory that others read.
                    && !matches!(self.life(root).sharing, Sharing::MaybeView(_))
                    && !others.iter().flatten().any(|&other| self.shares(other, root));
                if free {
                    self.lives[result.0 as usize].sharing = Sharing::InPlace(target);
                    self.join(result, target);
                }
            }
            node.for_each_block(|block| self.update_in_place(block, fixed, number));
        }
    }

    /// Whether a value is, or may be, in the memory of a root.
    fn shares(&self, value: ValueId, root: ValueId) -> bool {
        let mut at = self.root(value);
        loop {
            if at == root {
                return true;
            }
            match self.life(at).sharing {
                Sharing::MaybeView(operand) => at = self.root(operand),
                _ => return false,
            }
        }
    }
}

/// The operand that an op gives back changed, and the other tensors that it reads.
fn updated(node: &Node) -> Option<(ValueId, [Option<ValueId>; 3])> {
    match &node.op {
        Op::SliceUpdate { dst, update, .. } => Some((*dst, [Some(*update), None, None])),
        Op::IndexCopy { dst, update, indices, .. } => Some((*dst, [Some(*update), Some(*indices), None])),
        Op::RopeUpdate { dst, x, offset, freqs, .. } => {
            let offset = match offset {
                OffsetArg::Tensor(offset) => Some(*offset),
                OffsetArg::Value(_) => None,
            };
            Some((*dst, [Some(*x), offset, *freqs]))
        }
        _ => None,
    }
}

/// How an op's result lies in memory.
fn sharing(node: &Node, types: &Types) -> Sharing {
    match &node.op {
        Op::IdCopy { x }
        | Op::ExpandDims { x, .. }
        | Op::Squeeze { x, .. }
        | Op::Transpose { x, .. }
        | Op::Slice { x, .. }
        | Op::BroadcastTo { x, .. }
        | Op::Split { x, .. }
        | Op::Flip { x, .. } => Sharing::View(*x),
        Op::Reshape { x, .. } | Op::Contiguous { x } => Sharing::MaybeView(*x),
        Op::AsType { x, .. } if types.is_renaming(node) => Sharing::View(*x),
        _ => Sharing::Own,
    }
}
