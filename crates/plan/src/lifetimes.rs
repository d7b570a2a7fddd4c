//! When values are needed and which of them share memory (liveness and aliases). Time is counted in ticks: a node has one
//! by its number in execution order (pre-order over nested blocks), and so has the end of a block, where what the block
//! gives is read, behind its last node. A value lives from where it is made to where it, or a view of it, is last read.

use crate::groups::Groups;
use crate::types::Types;
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

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(usize);

impl Tick {
    /// Before the first node.
    pub const START: Tick = Tick(0);

    /// When a node runs.
    pub(crate) fn at(node: usize) -> Tick {
        Tick(2 * node)
    }

    /// When all nodes up to this one have run, and none behind it.
    fn behind(node: usize) -> Tick {
        Tick(2 * node + 1)
    }
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
    /// By node number: the number after its last nested node.
    spans: Vec<usize>,
    /// After the last node.
    pub end: Tick,
}

impl Lifetimes {
    pub(crate) fn of(graph: &Graph, types: &Types, groups: &Groups<'_>) -> Lifetimes {
        let mut walk = Walk {
            types,
            groups,
            lives: vec![
                Life { from: Tick::START, to: Tick::START, sharing: Sharing::Own };
                graph.values.len()
            ],
            spans: Vec::new(),
            number: 0,
        };
        walk.block(&graph.body);
        let end = Tick::at(walk.number);
        let outputs = graph.outputs.iter().map(|output| output.value);
        for value in outputs.chain(graph.buffers.iter().map(|buffer| buffer.update)) {
            walk.read(value, end);
        }
        let (mut lives, spans) = (walk.lives, walk.spans);
        // Constants, inputs and buffers are there before the first node.
        let given = graph.constants.iter().map(|constant| constant.value);
        let given = given.chain(graph.inputs.iter().map(|input| input.value));
        for value in given.chain(graph.buffers.iter().map(|buffer| buffer.value)) {
            if let Some(life) = lives.get_mut(value.0 as usize) {
                life.from = Tick::START;
            }
        }
        let roots: Vec<ValueId> = (0..lives.len() as u32).map(ValueId).collect();
        let ends = lives.iter().map(|life| life.to).collect();
        let mut lifetimes = Lifetimes { lives, roots, ends, spans, end };
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
        self.spans[node]
    }

    /// When a node and all its nested ones have run.
    pub fn behind(&self, node: usize) -> Tick {
        Tick::behind(self.spans[node] - 1)
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
                let free = self.ends[root.0 as usize] <= Tick::at(own)
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

struct Walk<'a> {
    types: &'a Types,
    groups: &'a Groups<'a>,
    lives: Vec<Life>,
    spans: Vec<usize>,
    number: usize,
}

impl Walk<'_> {
    /// Walks a block; gives all values that it reads.
    fn block(&mut self, block: &Block) -> Vec<ValueId> {
        let mut reads = Vec::new();
        for node in &block.nodes {
            let own = self.number;
            self.number += 1;
            self.spans.push(0);
            let mut operands = Vec::new();
            node.for_each_operand(|value| operands.push(value));
            let place = Tick::at(self.groups.place(own));
            for &value in &operands {
                self.read(value, place);
            }
            reads.extend(operands);
            match &node.op {
                Op::If { then_chain_idx, else_chain_idx, .. } => {
                    for branch in [then_chain_idx, else_chain_idx] {
                        reads.extend(self.block(branch));
                        reads.extend(&branch.results);
                    }
                    // What a branch gives is read when all of it has run, whichever branch that was.
                    let last = Tick::behind(self.number - 1);
                    for branch in [then_chain_idx, else_chain_idx] {
                        branch.results.iter().for_each(|&value| self.read(value, last));
                    }
                }
                Op::Scan { body_chain_idx: body, originals, carry, .. } => {
                    let mut inner = self.block(body);
                    let last = Tick::behind(self.number - 1);
                    inner.extend(originals.iter().chain(carry).chain(&body.results).chain(&body.params));
                    for &param in &body.params {
                        self.lives[param.0 as usize].from = Tick::at(own);
                    }
                    // What a step reads from outside, the next step reads again: it lives until the loop is left.
                    for &value in &inner {
                        let made_inside = self.lives[value.0 as usize].from > Tick::at(own);
                        if !made_inside || body.results.contains(&value) {
                            self.read(value, last);
                        }
                    }
                    reads.extend(inner);
                }
                _ => {}
            }
            self.spans[own] = self.number;
            for &result in &node.results {
                // The results of branches and loops are written while their blocks' values still live.
                let sharing = sharing(node, self.types);
                let last = self.number - 1;
                let to = if last > own { Tick::behind(last) } else { Tick::at(own) };
                self.lives[result.0 as usize] = Life { from: Tick::at(own), to, sharing };
            }
        }
        reads
    }

    fn read(&mut self, value: ValueId, at: Tick) {
        if let Some(life) = self.lives.get_mut(value.0 as usize) {
            life.to = life.to.max(at);
        }
    }
}

/// Whether a node is a cast to the dtype that its operand has: another name for it.
pub fn is_view(node: &Node, types: &Types) -> bool {
    match &node.op {
        Op::AsType { x, scalar_type } => types.tensor(*x).is_some_and(|tensor| tensor.dtype == *scalar_type),
        _ => false,
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
        Op::AsType { x, .. } if is_view(node, types) => Sharing::View(*x),
        _ => Sharing::Own,
    }
}
