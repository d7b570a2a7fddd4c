//! Groups of element-wise nodes that run as one: a node whose only reader is another one of the same sizes is computed
//! inside it, block by block, and never lies in memory. A product or a convolution may begin a group: the others are computed
//! while its results are near. Which nodes a backend can compute as one, it says itself.

use crate::types::Types;
use pteron_ir::{Block, Graph, Node, Op, Ssa, ValueId};
use std::collections::{HashMap, HashSet};

/// Which nodes a backend can compute as one.
pub trait Join {
    /// Whether an op computes each element of its result from the elements at the same place.
    fn is_elementwise(&self, op: &Op<Ssa>) -> bool;

    /// Whether the step of a node that is no such op can go on with some, where nobody else reads its result.
    fn can_begin(&self, _types: &Types, _node: &Node) -> bool {
        false
    }

    /// Whether one step can compute a node and those whose results only it reads; they are given by result.
    fn can_join(&self, types: &Types, node: &Node, inner: &HashMap<ValueId, &Node>) -> bool;
}

/// Nodes by result.
type ByResult<'g> = HashMap<ValueId, &'g Node>;

/// Which nodes run inside others.
#[derive(Default)]
pub struct Groups<'g> {
    /// By the number of the node that is left: those that run inside it.
    inner: HashMap<usize, ByResult<'g>>,
    /// By the number of a node that runs inside another: that one's number.
    within: HashMap<usize, usize>,
}

impl<'g> Groups<'g> {
    /// Finds groups as large as the backend can join.
    pub fn of(graph: &'g Graph, types: &Types, join: &impl Join) -> Groups<'g> {
        let mut readers = HashMap::new();
        let outputs = graph.outputs.iter().map(|output| output.value);
        for value in outputs.chain(graph.buffers.iter().map(|buffer| buffer.update)) {
            *readers.entry(value).or_insert(0) += 1;
        }
        graph.for_each_node(|node, _| {
            node.for_each_operand(|value| *readers.entry(value).or_insert(0) += 1);
            // What a block gives is read by whoever holds it.
            node.for_each_block(|block| {
                block.results.iter().for_each(|&value| *readers.entry(value).or_insert(0) += 1);
            });
        });
        let mut finding = Finding { types, join, readers, groups: Groups::default() };
        finding.block(&graph.body, &mut 0);
        finding.groups
    }

    /// The nodes that run inside the one of this number, by result; nothing where it runs alone.
    pub fn inner(&self, number: usize) -> Option<&ByResult<'g>> {
        self.inner.get(&number)
    }

    /// Where a node's operands are read: at its own place, or at that of the node that it runs in.
    pub fn place(&self, number: usize) -> usize {
        let mut at = number;
        while let Some(&outer) = self.within.get(&at) {
            at = outer;
        }
        at
    }

    /// Whether a node runs inside another.
    pub fn is_inner(&self, number: usize) -> bool {
        self.within.contains_key(&number)
    }
}

struct Finding<'a, 'g, J> {
    types: &'a Types,
    join: &'a J,
    readers: HashMap<ValueId, usize>,
    groups: Groups<'g>,
}

impl<'g, J: Join> Finding<'_, 'g, J> {
    fn block(&mut self, block: &'g Block, number: &mut usize) {
        // Of this block: nodes that may run inside a later one, by result.
        let mut candidates: HashMap<ValueId, (usize, &'g Node)> = HashMap::new();
        // By node: all that run inside it, itself not counted.
        let mut parts: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
        // Those that begin a group, or contain one that does.
        let mut begun: HashSet<ValueId> = HashSet::new();
        for node in &block.nodes {
            let own = *number;
            *number += 1;
            node.for_each_block(|block| self.block(block, number));
            let &[result] = node.results.as_slice() else { continue };
            let known = !self.types.refused.contains_key(&own) && self.types.is_static(node);
            if !known || !self.join.is_elementwise(&node.op) || self.types.is_renaming(node) {
                if known && self.readers.get(&result) == Some(&1) && self.join.can_begin(self.types, node) {
                    candidates.insert(result, (own, node));
                    begun.insert(result);
                }
                continue;
            }
            let inner = self.take_in(node, result, &candidates, &parts, &begun);
            let nodes: ByResult<'g> =
                inner.iter().filter_map(|value| Some((*value, candidates.get(value)?.1))).collect();
            if !nodes.is_empty() && self.join.can_join(self.types, node, &nodes) {
                for value in &inner {
                    if let Some(&(inside, _)) = candidates.get(value) {
                        self.groups.within.insert(inside, own);
                        self.groups.inner.remove(&inside);
                    }
                }
                self.groups.inner.insert(own, nodes);
                if inner.iter().any(|value| begun.contains(value)) {
                    begun.insert(result);
                }
                parts.insert(result, inner);
            }
            if self.readers.get(&result) == Some(&1) {
                candidates.insert(result, (own, node));
            }
        }
    }

    /// Everything that could run inside a node.
    fn take_in(
        &self,
        node: &Node,
        result: ValueId,
        candidates: &HashMap<ValueId, (usize, &'g Node)>,
        parts: &HashMap<ValueId, Vec<ValueId>>,
        begun: &HashSet<ValueId>,
    ) -> Vec<ValueId> {
        let sizes = self.types.sizes(result);
        let mut inner = Vec::new();
        node.for_each_operand(|value| {
            // One beginning is all that a step has; what another gives lies in memory.
            let free = !begun.contains(&value) || !inner.iter().any(|value| begun.contains(value));
            if free && candidates.contains_key(&value) && self.types.sizes(value) == sizes {
                inner.push(value);
                inner.extend(parts.get(&value).into_iter().flatten());
            }
        });
        inner
    }
}
