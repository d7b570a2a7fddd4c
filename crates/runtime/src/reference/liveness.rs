//! When a value of a graph is read for the last time: from then on its memory is free, and the op that reads it
//! may write its result there. The lives are those of `pteron_ir::liveness`, sorted by the node that ends them.

use pteron_ir::liveness::{Liveness, NodeTicks};
use pteron_ir::{Block, Graph, Node, ValueId};
use std::collections::HashSet;

/// What dies where in one block.
#[derive(Debug, Default)]
pub struct BlockLife {
    /// By node: values of this block that nothing reads afterwards. Values from outside die in the block that
    /// they come from, because this one may run again.
    pub dying: Vec<HashSet<ValueId>>,
    /// By node: the lives of its nested blocks in order.
    pub nested: Vec<Vec<BlockLife>>,
    /// Values of this block that are still there at its end: what it gives, and parameters that nothing reads.
    pub left: Vec<ValueId>,
}

impl BlockLife {
    /// Of a whole graph: outputs and the new contents of buffers outlive it.
    pub fn of(graph: &Graph) -> BlockLife {
        let constants = graph.constants.iter().map(|constant| constant.value);
        let inputs = graph.inputs.iter().map(|input| input.value);
        let buffers = graph.buffers.iter().map(|buffer| buffer.value);
        let mut sorting = Sorting { liveness: Liveness::of(graph), number: 0 };
        sorting.block(&graph.body, constants.chain(inputs).chain(buffers).collect())
    }
}

/// A walk over the nodes, counted in pre-order.
struct Sorting {
    liveness: Liveness,
    number: usize,
}

impl Sorting {
    /// The life of a block, in which these values are there before the first node.
    fn block(&mut self, block: &Block, given: Vec<ValueId>) -> BlockLife {
        let mut values = given;
        let mut ticks: Vec<NodeTicks> = Vec::with_capacity(block.nodes.len());
        let mut nested = Vec::with_capacity(block.nodes.len());
        for node in &block.nodes {
            ticks.push(self.liveness.node(self.number));
            self.number += 1;
            let mut inner = Vec::new();
            node.for_each_block(|block| inner.push(self.block(block, block.params.clone())));
            nested.push(inner);
            values.extend(&node.results);
        }
        let mut dying = vec![HashSet::new(); block.nodes.len()];
        let mut left = Vec::new();
        for value in values {
            let last = self.liveness.life(value).to;
            let at = ticks.partition_point(|node| node.end < last);
            match ticks.get(at).is_some_and(|node| node.start <= last) {
                true => _ = dying[at].insert(value),
                // Read behind the last node, or never.
                false => left.push(value),
            }
        }
        BlockLife { dying, nested, left }
    }
}

/// Whether an op reads a value exactly once, so that its memory may be taken for the result.
pub(super) fn reads_once(node: &Node, value: ValueId) -> bool {
    let mut count = 0;
    node.for_each_operand(|operand| count += usize::from(operand == value));
    count == 1
}
