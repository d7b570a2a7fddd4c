//! Common subexpressions: of pure nodes with equal operands and attributes, the first one serves all. Mask building and
//! reads of positions, which exporters repeat a layer, become one.

use crate::{Pass, Remarks, Weights};
use pteron_ir::text::Printer;
use pteron_ir::{Block, Effect, Graph, Node, Op, Ssa, ValueId};
use std::collections::HashMap;

/// The pass.
pub const PASS: Pass = Pass { name: "cse", doc: "computes what is computed twice once", run: share };

fn share(graph: &mut Graph, _: &mut dyn Weights, remarks: &mut Remarks) {
    let mut body = std::mem::take(&mut graph.body);
    let mut sharing = Sharing { seen: Vec::new(), aliases: HashMap::new(), taken: Vec::new() };
    sharing.block(&mut body);
    let printer = Printer::new(graph);
    for node in &sharing.taken {
        remarks.push(crate::Remark {
            pattern: PASS.name,
            node: printer.node(node).to_string(),
            place: node.place,
            verdict: crate::Verdict::Taken { nodes: 1 },
        });
    }
    graph.body = body;
    for buffer in &mut graph.buffers {
        buffer.update = sharing.of(buffer.update);
    }
    for output in &mut graph.outputs {
        output.value = sharing.of(output.value);
    }
}

struct Sharing {
    /// What is computed already, innermost block last.
    seen: Vec<HashMap<String, Vec<ValueId>>>,
    aliases: HashMap<ValueId, ValueId>,
    taken: Vec<Node>,
}

impl Sharing {
    fn of(&self, value: ValueId) -> ValueId {
        self.aliases.get(&value).copied().unwrap_or(value)
    }

    fn block(&mut self, block: &mut Block) {
        self.seen.push(HashMap::new());
        let nodes = std::mem::take(&mut block.nodes);
        for mut node in nodes {
            self.settle(&mut node.op);
            match &mut node.op {
                Op::If { then_chain_idx, else_chain_idx, .. } => {
                    self.block(then_chain_idx);
                    self.block(else_chain_idx);
                }
                Op::Scan { body_chain_idx, .. } => self.block(body_chain_idx),
                op if op.effect() == Effect::Pure && !node.results.is_empty() => {
                    let key = key(op);
                    if let Some(first) = self.seen.iter().find_map(|seen| seen.get(&key)) {
                        self.aliases.extend(node.results.iter().copied().zip(first.iter().copied()));
                        self.taken.push(node);
                        continue;
                    }
                    if let Some(innermost) = self.seen.last_mut() {
                        innermost.insert(key, node.results.clone());
                    }
                }
                _ => {}
            }
            block.nodes.push(node);
        }
        block.results.iter_mut().for_each(|value| *value = self.of(*value));
        self.seen.pop();
    }

    fn settle(&self, op: &mut Op<Ssa>) {
        op.for_each_field_mut(|_, mut field| {
            field.for_each_tensor(&mut |value: &mut ValueId| *value = self.of(*value));
            field.for_each_scalar(&mut |value: &mut ValueId| *value = self.of(*value));
        });
    }
}

/// What tells one computation from another. Numbers are written with all their digits, so that no two differ alike.
fn key(op: &Op<Ssa>) -> String {
    let mut op = op.clone();
    match &mut op {
        Op::Add { a, b }
        | Op::Multiply { a, b }
        | Op::Maximum { a, b }
        | Op::Minimum { a, b }
        | Op::Equal { a, b }
        | Op::NotEqual { a, b }
        | Op::LogicalAnd { a, b }
        | Op::LogicalOr { a, b }
        | Op::BitwiseAnd { a, b }
        | Op::BitwiseOr { a, b }
        | Op::BitwiseXor { a, b } => {
            // Either order is the same computation.
            (*a, *b) = ((*a).min(*b), (*a).max(*b));
        }
        _ => {}
    }
    format!("{op:?}")
}
