//! Element-wise nodes that run as one: a node whose only reader is another one of the same sizes is computed inside it,
//! block by block, and never lies in memory.

use super::types::Types;
use crate::ops::elementwise::{fuse, is_elementwise};
use pteron_ir::{Block, Graph, Node, Op, ValueId};
use pteron_kernels::elementwise::Chain;
use pteron_kernels::path::Path;
use std::collections::HashMap;

/// A chain with the values that it reads from memory.
#[derive(Clone)]
pub(crate) struct Fused {
    pub(crate) chain: Chain,
    pub(crate) operands: Vec<ValueId>,
}

/// Which nodes run inside others.
#[derive(Default)]
pub(crate) struct Chains {
    /// By the number of the node that is left: its chain.
    pub(crate) fused: HashMap<usize, Fused>,
    /// By the number of a node that runs inside another: that one's number.
    within: HashMap<usize, usize>,
}

impl Chains {
    pub(crate) fn of(graph: &Graph, types: &Types, path: Path) -> Chains {
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
        let mut finding = Finding { types, path, readers, chains: Chains::default() };
        finding.block(&graph.body, &mut 0);
        finding.chains
    }

    /// Where a node's operands are read: at its own place, or at that of the node that it runs in.
    pub(crate) fn place(&self, number: usize) -> usize {
        let mut at = number;
        while let Some(&outer) = self.within.get(&at) {
            at = outer;
        }
        at
    }

    /// Whether a node runs inside another.
    pub(crate) fn is_inner(&self, number: usize) -> bool {
        self.within.contains_key(&number)
    }
}

/// Whether a node is a cast to the dtype that its operand has: another name for it.
pub(crate) fn is_view(node: &Node, types: &Types) -> bool {
    match &node.op {
        Op::AsType { x, scalar_type } => types.tensor(*x).is_some_and(|tensor| tensor.dtype == *scalar_type),
        _ => false,
    }
}

struct Finding<'a> {
    types: &'a Types,
    path: Path,
    readers: HashMap<ValueId, usize>,
    chains: Chains,
}

impl Finding<'_> {
    fn block(&mut self, block: &Block, number: &mut usize) {
        // Of this block: nodes that may run inside a later one, by result.
        let mut candidates: HashMap<ValueId, (usize, &Node)> = HashMap::new();
        // By node: all that run inside it, itself not counted.
        let mut parts: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
        for node in &block.nodes {
            let own = *number;
            *number += 1;
            node.for_each_block(|block| self.block(block, number));
            let &[result] = node.results.as_slice() else { continue };
            let fits = is_elementwise(&node.op)
                && !is_view(node, self.types)
                && !self.types.refused.contains_key(&own)
                && self.types.is_static(node);
            if !fits {
                continue;
            }
            let inner = self.take_in(node, result, &candidates, &parts);
            if !inner.is_empty() {
                let nodes: HashMap<ValueId, &Node> =
                    inner.iter().filter_map(|value| Some((*value, candidates.get(value)?.1))).collect();
                if let Some(fused) = fuse(node, &nodes, self.types, self.path) {
                    for value in &inner {
                        if let Some(&(inside, _)) = candidates.get(value) {
                            self.chains.within.insert(inside, own);
                            self.chains.fused.remove(&inside);
                        }
                    }
                    self.chains.fused.insert(own, fused);
                    parts.insert(result, inner);
                }
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
        candidates: &HashMap<ValueId, (usize, &Node)>,
        parts: &HashMap<ValueId, Vec<ValueId>>,
    ) -> Vec<ValueId> {
        let sizes = self.types.sizes(result);
        let mut inner = Vec::new();
        node.for_each_operand(|value| {
            if candidates.contains_key(&value) && self.types.sizes(value) == sizes {
                inner.push(value);
                inner.extend(parts.get(&value).into_iter().flatten());
            }
        });
        inner
    }
}
