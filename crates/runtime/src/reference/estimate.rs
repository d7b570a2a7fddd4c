//! What a run of a graph will need in memory, from its types alone: the same walk as a run, with every size at
//! its upper bound.

use super::liveness::BlockLife;
use pteron_ir::{Block, Dim, Graph, Type, ValueId};
use std::collections::HashMap;

/// Bytes of values that live at once, at the largest declared sizes; constants and buffers as they come in do
/// not count. `None` where a size has no bound.
pub(crate) fn run_bytes(graph: &Graph) -> Option<u64> {
    let mut estimate = Estimate { graph, live: HashMap::new(), now: 0, most: 0 };
    for input in &graph.inputs {
        estimate.add(input.value)?;
    }
    estimate.block(&graph.body, &BlockLife::of(graph))?;
    Some(estimate.most)
}

struct Estimate<'a> {
    graph: &'a Graph,
    live: HashMap<ValueId, u64>,
    now: u64,
    most: u64,
}

impl Estimate<'_> {
    fn add(&mut self, value: ValueId) -> Option<()> {
        let bytes = match self.graph.ty(value)? {
            Type::Tensor(tensor) => tensor
                .shape
                .iter()
                .try_fold(tensor.dtype.size() as u64, |bytes, dim| bytes.checked_mul(self.upper(dim)?))?,
            _ => 0,
        };
        if self.live.insert(value, bytes).is_none() {
            self.now = self.now.saturating_add(bytes);
            self.most = self.most.max(self.now);
        }
        Some(())
    }

    fn upper(&self, dim: &Dim) -> Option<u64> {
        u64::try_from(self.graph.symbols.upper(dim)?.max(0)).ok()
    }

    fn remove(&mut self, value: ValueId) {
        if let Some(bytes) = self.live.remove(&value) {
            self.now -= bytes;
        }
    }

    fn block(&mut self, block: &Block, life: &BlockLife) -> Option<()> {
        for (index, node) in block.nodes.iter().enumerate() {
            let mut blocks = Vec::new();
            node.for_each_block(|block| blocks.push(block));
            for (block, life) in blocks.into_iter().zip(&life.nested[index]) {
                for &param in &block.params {
                    self.add(param)?;
                }
                self.block(block, life)?;
                life.left.iter().for_each(|&value| self.remove(value));
            }
            for &result in &node.results {
                self.add(result)?;
            }
            life.dying[index].iter().for_each(|&value| self.remove(value));
        }
        Some(())
    }
}
