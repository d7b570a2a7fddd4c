//! How many bytes a decode step has to read, from the graph alone: every weight that is multiplied with, once, and the
//! keys and values that attention sees. What is picked by row (embeddings) counts by row, and of experts those that a token
//! goes to.

use pteron_ir::op::IndexArg;
use pteron_ir::{Dim, Graph, Module, Op, Type, ValueId};
use pteron_runtime::{CacheLayer, Program};
use std::collections::{HashMap, HashSet};

/// What one step reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Weights, each once.
    pub(crate) weights: u64,
    /// Keys and values a position, of attention that sees all of them.
    pub(crate) per_position: u64,
    /// Keys and values of attention over rings.
    pub(crate) rings: u64,
    /// Matrix products of every token, in multiply-adds.
    pub(crate) multiply_adds_a_token: u64,
    /// Those of every input, however long: the head, where only the last position has one.
    pub(crate) multiply_adds_an_input: u64,
}

impl Traffic {
    /// Of all delegates of the method.
    pub(crate) fn of(program: &Program, method: &str) -> Traffic {
        let mut traffic = Traffic::default();
        if let Ok(info) = program.method(method) {
            let layers = program.cache_spec().map_or(&[][..], |cache| &cache.layers);
            for delegate in &info.delegates {
                traffic.add(&delegate.module, layers);
            }
        }
        traffic
    }

    /// Bytes of one step at a position.
    pub(crate) fn bytes(&self, position: usize) -> u64 {
        self.weights + self.rings + self.per_position * position as u64
    }

    /// Matrix products of a text that is given in chunks.
    pub(crate) fn multiply_adds_of(&self, tokens: usize, chunk: usize) -> u64 {
        let inputs = tokens.div_ceil(chunk.max(1)) as u64;
        self.multiply_adds_a_token * tokens as u64 + self.multiply_adds_an_input * inputs
    }

    fn add(&mut self, module: &Module, layers: &[CacheLayer]) {
        let graph = &module.main;
        // What follows from other weights, such as biases from scales, need not be read.
        let outputs = module.init.iter().flat_map(|init| &init.outputs);
        let derived: HashSet<&str> = outputs.map(|output| output.name.as_str()).collect();
        let constants: HashMap<ValueId, u64> = graph
            .constants
            .iter()
            .filter(|constant| !derived.contains(constant.name.as_str()))
            .filter_map(|constant| Some((constant.value, tensor_bytes(graph, constant.value)?)))
            .collect();
        let mut read = HashSet::new();
        graph.for_each_node(|node, _| {
            match &node.op {
                // Rows by token.
                Op::Take { index: IndexArg::Tensor(_), .. } => {
                    self.weights += node.results.iter().filter_map(|&row| one_token(graph, row)).sum::<u64>();
                    return;
                }
                Op::Sdpa { k, v, .. } => self.attention(graph, *k, *v),
                Op::UpdateAndAttend { layer_id, .. } => {
                    let layer = layer_id.and_then(|layer| layers.get(usize::try_from(layer).ok()?));
                    let dtype = node.results.first().and_then(|&result| graph.ty(result));
                    if let (Some(layer), Some(Type::Tensor(ty))) = (layer, dtype) {
                        self.cached(layer, ty.dtype.size() as u64);
                    }
                }
                Op::QuantizedMatmul { x, scales, group_size, .. } => {
                    let groups = elements(graph, *scales).unwrap_or(0);
                    self.product(graph, *x, groups * (*group_size).max(0) as u64);
                }
                Op::Addmm { mat1, mat2, .. } => {
                    self.product(graph, *mat1, elements(graph, *mat2).unwrap_or(0))
                }
                Op::GatherQmm { x, w, scales, biases, rhs_indices: Some(picks), group_size, .. } => {
                    let numbers = elements(graph, *scales).unwrap_or(0) * (*group_size).max(0) as u64;
                    let met = Met::of(graph, *w, *picks);
                    self.product(graph, *x, met.part(numbers));
                    let parts = [Some(*w), Some(*scales), *biases].into_iter().flatten();
                    let bytes = parts.filter_map(|part| constants.get(&part)).sum();
                    self.weights += met.part(bytes);
                    return;
                }
                Op::GatherMm { a, b, rhs_indices: Some(picks), .. } => {
                    let met = Met::of(graph, *b, *picks);
                    self.product(graph, *a, met.part(elements(graph, *b).unwrap_or(0)));
                    self.weights += met.part(tensor_bytes(graph, *b).unwrap_or(0));
                    return;
                }
                _ => {}
            }
            node.for_each_operand(|operand| {
                if let Some(bytes) = constants.get(&operand)
                    && read.insert(operand)
                {
                    self.weights += bytes;
                }
            });
        });
    }

    /// Keys and values outside the graph, which have the dtype of activations.
    fn cached(&mut self, layer: &CacheLayer, size: u64) {
        let a_position = 2 * (layer.kv_heads * layer.head_dim) as u64 * size;
        match layer.window {
            Some(window) => self.rings += a_position * window as u64,
            None => self.per_position += a_position,
        }
    }

    /// A product takes place once a row of its input; an input of known size has one row whatever the text.
    fn product(&mut self, graph: &Graph, input: ValueId, multiply_adds: u64) {
        match elements(graph, input) {
            Some(_) => self.multiply_adds_an_input += multiply_adds,
            None => self.multiply_adds_a_token += multiply_adds,
        }
    }

    fn attention(&mut self, graph: &Graph, keys: ValueId, values: ValueId) {
        for cache in [keys, values] {
            let Some(Type::Tensor(ty)) = graph.ty(cache) else { continue };
            let [_, heads, slots, features] = ty.shape.as_slice() else { continue };
            let Some((heads, features)) = heads.as_known().zip(features.as_known()) else { continue };
            let a_position = (heads * features).max(0) as u64 * ty.dtype.size() as u64;
            match slots.as_known() {
                Some(slots) => self.rings += a_position * slots.max(0) as u64,
                None => self.per_position += a_position,
            }
        }
    }
}

/// How many of several matrices a token meets.
struct Met {
    chosen: u64,
    matrices: u64,
}

impl Met {
    fn of(graph: &Graph, matrices: ValueId, picks: ValueId) -> Met {
        let known = |value: ValueId, axes: fn(&[Dim]) -> &[Dim]| match graph.ty(value) {
            Some(Type::Tensor(ty)) => axes(&ty.shape).iter().map(known_or_one).product(),
            _ => 1,
        };
        let matrices = known(matrices, |shape| &shape[..shape.len().saturating_sub(2)]).max(1);
        Met { chosen: known(picks, |shape| shape).min(matrices), matrices }
    }

    /// What those have of something that all have.
    fn part(&self, of_all: u64) -> u64 {
        of_all / self.matrices * self.chosen
    }
}

/// A size; one token's where it depends on the text.
fn known_or_one(dim: &Dim) -> u64 {
    u64::try_from(dim.as_known().unwrap_or(1)).unwrap_or(0)
}

fn elements(graph: &Graph, value: ValueId) -> Option<u64> {
    match graph.ty(value)? {
        Type::Tensor(ty) => ty.shape.iter().map(|dim| u64::try_from(dim.as_known()?).ok()).product(),
        _ => None,
    }
}

fn tensor_bytes(graph: &Graph, value: ValueId) -> Option<u64> {
    let Type::Tensor(ty) = graph.ty(value)? else { return None };
    Some(elements(graph, value)? * ty.dtype.size() as u64)
}

/// Bytes of a tensor when every unknown size is one.
fn one_token(graph: &Graph, value: ValueId) -> Option<u64> {
    let Type::Tensor(ty) = graph.ty(value)? else { return None };
    Some(ty.shape.iter().map(known_or_one).product::<u64>() * ty.dtype.size() as u64)
}
