//! When a value of a graph is read for the last time: from then on its memory is free, and the op that reads it
//! may write its result there.

use pteron_ir::{Block, Graph, Node, ValueId};
use std::collections::{HashMap, HashSet};

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
        let kept = graph.outputs.iter().map(|output| output.value);
        let kept = kept.chain(graph.buffers.iter().map(|buffer| buffer.update)).collect();
        life(&graph.body, constants.chain(inputs).chain(buffers).collect(), &kept).0
    }
}

/// The life of a block, and what it reads of what is defined outside.
fn life(
    block: &Block,
    mut defined: HashSet<ValueId>,
    kept: &HashSet<ValueId>,
) -> (BlockLife, HashSet<ValueId>) {
    defined.extend(&block.params);
    let mut nested = Vec::with_capacity(block.nodes.len());
    let mut last: HashMap<ValueId, usize> = HashMap::new();
    let mut outside = HashSet::new();
    for (index, node) in block.nodes.iter().enumerate() {
        let (inner, reads) = node_life(node);
        nested.push(inner);
        for value in reads {
            if defined.contains(&value) {
                last.insert(value, index);
            } else {
                outside.insert(value);
            }
        }
        for &result in &node.results {
            defined.insert(result);
            // A result that nobody reads dies where it is made.
            last.insert(result, index);
        }
    }
    outside.extend(block.results.iter().filter(|value| !defined.contains(value)));
    let results: HashSet<ValueId> = block.results.iter().copied().collect();
    let mut dying = vec![HashSet::new(); block.nodes.len()];
    for (value, index) in last {
        if !kept.contains(&value) && !results.contains(&value) {
            dying[index].insert(value);
            defined.remove(&value);
        }
    }
    (BlockLife { dying, nested, left: defined.into_iter().collect() }, outside)
}

fn node_life(node: &Node) -> (Vec<BlockLife>, HashSet<ValueId>) {
    let mut reads = HashSet::new();
    node.for_each_operand(|value| {
        reads.insert(value);
    });
    let mut nested = Vec::new();
    node.for_each_block(|block| {
        let (inner, outside) = life(block, HashSet::new(), &HashSet::new());
        nested.push(inner);
        reads.extend(outside);
    });
    (nested, reads)
}

/// Whether an op reads a value exactly once, so that its memory may be taken for the result.
pub(super) fn reads_once(node: &Node, value: ValueId) -> bool {
    let mut count = 0;
    node.for_each_operand(|operand| count += usize::from(operand == value));
    count == 1
}
