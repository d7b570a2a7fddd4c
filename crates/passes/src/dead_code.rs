//! Removes nodes whose results nobody uses, unless they have an effect; loops and branches are entered.

use crate::{Pass, Remarks, Weights};
use pteron_ir::{Block, Effect, Graph, Node, Op, ValueId};
use std::collections::HashSet;

/// The pass.
pub const PASS: Pass = Pass { name: "dead-code", doc: "removes nodes whose results nobody uses", run };

fn run(graph: &mut Graph, _: &mut dyn Weights, _: &mut Remarks) {
    remove(graph);
}

pub(crate) fn remove(graph: &mut Graph) {
    let mut live: HashSet<ValueId> = graph.outputs.iter().map(|output| output.value).collect();
    live.extend(graph.buffers.iter().map(|buffer| buffer.update));
    sweep(&mut graph.body, &mut live);
}

/// From the last node to the first: whatever is not live when its node is reached is never used.
fn sweep(block: &mut Block, live: &mut HashSet<ValueId>) {
    live.extend(block.results.iter().copied());
    let mut kept = Vec::with_capacity(block.nodes.len());
    for mut node in std::mem::take(&mut block.nodes).into_iter().rev() {
        if node.results.iter().any(|value| live.contains(value)) || has_effect(&node) {
            node.for_each_operand(|value| {
                live.insert(value);
            });
            match &mut node.op {
                Op::If { then_chain_idx, else_chain_idx, .. } => {
                    sweep(then_chain_idx, live);
                    sweep(else_chain_idx, live);
                }
                Op::Scan { body_chain_idx, .. } => sweep(body_chain_idx, live),
                _ => {}
            }
            kept.push(node);
        }
    }
    kept.reverse();
    block.nodes = kept;
}

fn has_effect(node: &Node) -> bool {
    let mut effect = node.op.effect() != Effect::Pure;
    node.for_each_block(|block| effect |= block.nodes.iter().any(has_effect));
    effect
}
