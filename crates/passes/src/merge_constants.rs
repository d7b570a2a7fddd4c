//! Constants of equal type and bytes become one, so that tied weights are stored and packed once.

use crate::{Pass, Remark, Remarks, Verdict, Weights};
use pteron_ir::{Block, Graph, Op, ValueId};
use pteron_tensor::{DType, HostTensor};
use std::collections::HashMap;

/// The pass.
pub const PASS: Pass = Pass { name: "merge-constants", doc: "makes equal constants one", run };

/// Dtype, shape and a few bytes: what equal tensors share.
type Likeness = (DType, Vec<usize>, Vec<u8>);

/// Bytes that tell most tensors apart before all of them are compared.
const SAMPLE: usize = 256;

fn run(graph: &mut Graph, weights: &mut dyn Weights, remarks: &mut Remarks) {
    let mut groups: HashMap<Likeness, Vec<(ValueId, HostTensor)>> = HashMap::new();
    let mut aliases = HashMap::new();
    for constant in &graph.constants {
        let Some(tensor) = weights.get(&constant.name) else { continue };
        let group = groups.entry((tensor.dtype(), tensor.shape().to_vec(), sample(tensor))).or_default();
        match group.iter().find(|(_, other)| other.bytes()[..] == tensor.bytes()[..]) {
            Some((first, _)) => {
                aliases.insert(constant.value, *first);
                let node = format!("constant \"{}\"", constant.name);
                let verdict = Verdict::Taken { nodes: 1 };
                remarks.push(Remark { pattern: PASS.name, node, place: None, verdict });
            }
            // A clone shares the bytes.
            None => group.push((constant.value, tensor.clone())),
        }
    }
    if aliases.is_empty() {
        return;
    }
    let point = |value: &mut ValueId| {
        if let Some(first) = aliases.get(value) {
            *value = *first;
        }
    };
    point_block(&mut graph.body, &point);
    graph.outputs.iter_mut().for_each(|output| point(&mut output.value));
    graph.buffers.iter_mut().for_each(|buffer| point(&mut buffer.update));
}

/// Bytes from the beginning and the middle: beginnings are often alike.
fn sample(tensor: &HostTensor) -> Vec<u8> {
    let bytes: &[u8] = tensor.bytes();
    let part = |from: usize| bytes[from..].iter().copied().take(SAMPLE);
    part(0).chain(part(bytes.len() / 2)).collect()
}

fn point_block(block: &mut Block, point: &dyn Fn(&mut ValueId)) {
    for node in &mut block.nodes {
        node.op.for_each_field_mut(|_, mut field| {
            field.for_each_tensor(&mut |value: &mut ValueId| point(value))
        });
        match &mut node.op {
            Op::If { then_chain_idx, else_chain_idx, .. } => {
                point_block(then_chain_idx, point);
                point_block(else_chain_idx, point);
            }
            Op::Scan { body_chain_idx, .. } => point_block(body_chain_idx, point),
            _ => {}
        }
    }
    block.results.iter_mut().for_each(point);
}
