//! Puts internal ops in the place of the plain ones that a backend runs better together: quantised products of one
//! tensor, the gate of a feed-forward block, the residual sum before a norm, turned keys on their way into the cache, rows
//! of packed embeddings.
//!
//! A fused node gives the very values that the plain ones gave, under their numbers; only what lay between them is gone.
//! Files hold plain ops, so this is no part of the pipeline of a compiler: backends call [`fuse`] on what they load.

use crate::{Pass, Remarks, Weights};
use pteron_ir::op::{Activation, IndexArg};
use pteron_ir::{Block, Graph, Node, Op, OpKind, Ssa, TensorType, Type, ValueId};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The pass.
pub const PASS: Pass = Pass { name: "fuse", doc: "runs several ops as one, for backends", run };

/// The most products that are taken together.
const MOST_PRODUCTS: usize = 8;

/// How many of each internal op were made.
pub type Counts = BTreeMap<OpKind, usize>;

fn run(graph: &mut Graph, _: &mut dyn Weights, _: &mut Remarks) {
    fuse(graph);
}

/// Fuses a graph. Values keep their numbers; those that nothing gives any more stay in its table.
pub fn fuse(graph: &mut Graph) -> Counts {
    let mut uses = HashMap::new();
    let mut count = |value: ValueId| *uses.entry(value).or_insert(0) += 1;
    graph.outputs.iter().for_each(|output| count(output.value));
    graph.buffers.iter().for_each(|buffer| count(buffer.update));
    graph.for_each_node(|node, _| {
        node.for_each_operand(&mut count);
        node.for_each_block(|block| block.results.iter().for_each(|&value| count(value)));
    });
    let constants = graph.constants.iter().map(|constant| constant.value).collect();
    let mut body = std::mem::take(&mut graph.body);
    let mut fusing = Fusing { graph, constants, uses, counts: Counts::new() };
    fusing.block(&mut body);
    let counts = fusing.counts;
    graph.body = body;
    counts
}

struct Fusing<'g> {
    /// Without its nodes.
    graph: &'g Graph,
    constants: HashSet<ValueId>,
    /// How often each value is read.
    uses: HashMap<ValueId, usize>,
    counts: Counts,
}

/// The nodes of a block while some of them are taken.
struct Nodes {
    nodes: Vec<Option<Node>>,
    /// By value: the node of this block that gives it.
    places: HashMap<ValueId, usize>,
}

impl Nodes {
    fn new(nodes: Vec<Node>) -> Nodes {
        let places = nodes.iter().enumerate();
        let places =
            places.flat_map(|(at, node)| node.results.iter().map(move |&value| (value, at))).collect();
        Nodes { nodes: nodes.into_iter().map(Some).collect(), places }
    }

    fn len(&self) -> usize {
        self.nodes.len()
    }

    fn op(&self, at: usize) -> Option<&Op<Ssa>> {
        self.nodes[at].as_ref().map(|node| &node.op)
    }

    /// What a node gives, if that is one value.
    fn result(&self, at: usize) -> Option<ValueId> {
        match self.nodes[at].as_ref()?.results[..] {
            [value] => Some(value),
            _ => None,
        }
    }

    /// Where in this block a value is given, and by what.
    fn giver(&self, value: ValueId) -> Option<(usize, &Op<Ssa>)> {
        let &at = self.places.get(&value)?;
        Some((at, self.op(at)?))
    }

    /// Puts one node in the place of another and takes the rest out.
    fn replace(&mut self, at: usize, op: Op<Ssa>, results: Vec<ValueId>, taken: &[usize]) {
        for &taken in taken {
            self.nodes[taken] = None;
        }
        self.places.extend(results.iter().map(|&value| (value, at)));
        if let Some(node) = &mut self.nodes[at] {
            node.op = op;
            node.results = results;
        }
    }
}

/// A product with a quantised constant.
struct Product {
    x: ValueId,
    w: ValueId,
    scales: ValueId,
    biases: Option<ValueId>,
    form: Form,
}

/// What products that are taken together have in common besides their input.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Form {
    group_size: i32,
    bits: i32,
    mode: String,
    biased: bool,
}

impl Fusing<'_> {
    fn block(&mut self, block: &mut Block) {
        for node in &mut block.nodes {
            match &mut node.op {
                Op::If { then_chain_idx, else_chain_idx, .. } => {
                    self.block(then_chain_idx);
                    self.block(else_chain_idx);
                }
                Op::Scan { body_chain_idx, .. } => self.block(body_chain_idx),
                _ => {}
            }
        }
        let mut nodes = Nodes::new(std::mem::take(&mut block.nodes));
        for at in 0..nodes.len() {
            self.gate(&mut nodes, at);
            self.residual(&mut nodes, at);
            self.cache_write(&mut nodes, at);
            self.embedding(&mut nodes, at);
        }
        // What gates have left.
        self.products(&mut nodes);
        block.nodes = nodes.nodes.into_iter().flatten().collect();
    }

    fn count(&mut self, kind: OpKind) {
        *self.counts.entry(kind).or_default() += 1;
    }

    fn tensor(&self, value: ValueId) -> Option<&TensorType> {
        match self.graph.ty(value)? {
            Type::Tensor(ty) => Some(ty),
            _ => None,
        }
    }

    fn same_type(&self, a: ValueId, b: ValueId) -> bool {
        self.tensor(a).is_some() && self.tensor(a) == self.tensor(b)
    }

    fn is_read(&self, value: ValueId, times: usize) -> bool {
        self.uses.get(&value) == Some(&times)
    }

    /// The product that an op is, if its weight is one constant matrix whose rows are outputs.
    fn product(&self, op: &Op<Ssa>) -> Option<Product> {
        let Op::QuantizedMatmul { x, w, scales, biases, group_size, bits, mode, transpose: true } = op else {
            return None;
        };
        let parts = [Some(*w), Some(*scales), *biases];
        let constant = parts.iter().flatten().all(|part| self.constants.contains(part));
        let form =
            Form { group_size: *group_size, bits: *bits, mode: mode.clone(), biased: biases.is_some() };
        (constant && self.tensor(*w)?.shape.len() == 2).then_some(Product {
            x: *x,
            w: *w,
            scales: *scales,
            biases: *biases,
            form,
        })
    }

    /// `activation(x @ gate) * (x @ up)`.
    fn gate(&mut self, nodes: &mut Nodes, at: usize) -> Option<()> {
        let &Op::Multiply { a, b } = nodes.op(at)? else { return None };
        let result = nodes.result(at)?;
        let gated = |active: ValueId, up: ValueId| {
            let (activation, gate, mut taken) = self.activation(nodes, active)?;
            let ((gate_at, gate_op), (up_at, up_op)) = (nodes.giver(gate)?, nodes.giver(up)?);
            let (of_gate, of_up) = (self.product(gate_op)?, self.product(up_op)?);
            let fits = of_gate.x == of_up.x
                && of_gate.form == of_up.form
                && gate != up
                && self.is_read(up, 1)
                && self.same_type(gate, up)
                && self.same_type(gate, result);
            taken.extend([gate_at, up_at]);
            fits.then_some((activation, of_gate, of_up, taken))
        };
        let (activation, gate, up, taken) = gated(a, b).or_else(|| gated(b, a))?;
        let (x, form) = (gate.x, gate.form.clone());
        let (w, scales, biases) = lists([gate, up]);
        let Form { group_size, bits, mode, .. } = form;
        let activation = activation.name().to_owned();
        let op = Op::GatedProjection { x, w, scales, biases, group_size, bits, mode, activation };
        nodes.replace(at, op, vec![result], &taken);
        self.count(OpKind::GatedProjection);
        Some(())
    }

    /// The activation that gives a value which one product alone reads: of what, and by which nodes.
    fn activation(&self, nodes: &Nodes, active: ValueId) -> Option<(Activation, ValueId, Vec<usize>)> {
        let (at, op) = nodes.giver(active)?;
        if !self.is_read(active, 1) {
            return None;
        }
        if let Some((activation, x)) = Activation::of(op) {
            return self.is_read(x, 1).then_some((activation, x, vec![at]));
        }
        let &Op::Multiply { a, b } = op else { return None };
        let spelled = |x: ValueId, part: ValueId| match nodes.giver(part)? {
            (inner, Op::Sigmoid { x: of }) if *of == x && self.is_read(part, 1) && self.is_read(x, 2) => {
                Some((Activation::SigmoidProduct, x, vec![at, inner]))
            }
            _ => None,
        };
        spelled(a, b).or_else(|| spelled(b, a))
    }

    /// Products of one tensor, where the first of them stands.
    fn products(&mut self, nodes: &mut Nodes) {
        let mut groups: Vec<Vec<(usize, Product)>> = Vec::new();
        let mut open: HashMap<(ValueId, Form), usize> = HashMap::new();
        for at in 0..nodes.len() {
            let Some(product) = nodes.op(at).and_then(|op| self.product(op)) else { continue };
            let key = (product.x, product.form.clone());
            match open.get(&key).map(|&group| &mut groups[group]) {
                Some(group) if group.len() < MOST_PRODUCTS => group.push((at, product)),
                _ => {
                    open.insert(key, groups.len());
                    groups.push(vec![(at, product)]);
                }
            }
        }
        for group in groups.into_iter().filter(|group| group.len() > 1) {
            let places: Vec<usize> = group.iter().map(|(at, _)| *at).collect();
            let results: Option<Vec<ValueId>> = places.iter().map(|&at| nodes.result(at)).collect();
            let Some(results) = results else { continue };
            let (x, form) = (group[0].1.x, group[0].1.form.clone());
            let (w, scales, biases) = lists(group.into_iter().map(|(_, product)| product));
            let Form { group_size, bits, mode, .. } = form;
            let op = Op::Projections { x, w, scales, biases, group_size, bits, mode };
            nodes.replace(places[0], op, results, &places[1..]);
            self.count(OpKind::Projections);
        }
    }

    /// A sum and the norm that reads it, where the sum stands.
    fn residual(&mut self, nodes: &mut Nodes, at: usize) -> Option<()> {
        let &Op::RMSNorm { x: sum, weight, eps } = nodes.op(at)? else { return None };
        let normed = nodes.result(at)?;
        let (sum_at, &Op::Add { a, b }) = nodes.giver(sum)? else { return None };
        let is_float = self.tensor(sum)?.dtype.is_float();
        // A weight that this block makes may not be there yet.
        let ready = weight.is_none_or(|weight| nodes.places.get(&weight).is_none_or(|&made| made < sum_at));
        if !is_float || !ready || !self.same_type(a, sum) || !self.same_type(b, sum) {
            return None;
        }
        nodes.replace(sum_at, Op::AddRmsNorm { a, b, weight, eps }, vec![sum, normed], &[at]);
        self.count(OpKind::AddRmsNorm);
        Some(())
    }

    /// Keys that are turned and written into the cache.
    fn cache_write(&mut self, nodes: &mut Nodes, at: usize) -> Option<()> {
        let &Op::SliceUpdate { dst, update, axis, start, stop, step } = nodes.op(at)? else { return None };
        let result = nodes.result(at)?;
        let (rope_at, rope) = nodes.giver(update)?;
        let &Op::Rope { x, dims, offset, freqs, traditional, base, scale } = rope else { return None };
        // Programs ask the turned keys for their length; the keys have the same.
        let asks = |node: &Option<Node>| {
            node.as_ref().is_some_and(|node| matches!(node.op, Op::SymSize { a, .. } if a == update))
        };
        let lengths = nodes.nodes.iter().filter(|node| asks(node)).count();
        if !self.is_read(update, 1 + lengths) || self.tensor(dst)?.dtype != self.tensor(update)?.dtype {
            return None;
        }
        for node in nodes.nodes.iter_mut().filter(|node| asks(node)).flatten() {
            if let Op::SymSize { a, .. } = &mut node.op {
                *a = x;
            }
        }
        let op =
            Op::RopeUpdate { x, dims, offset, freqs, traditional, base, scale, dst, axis, start, stop, step };
        nodes.replace(at, op, vec![result], &[rope_at]);
        self.count(OpKind::RopeUpdate);
        Some(())
    }

    /// Rows that one index tensor picks of codes, scales and biases, as numbers.
    fn embedding(&mut self, nodes: &mut Nodes, at: usize) -> Option<()> {
        let Op::Dequantize { w, scales, biases, group_size, bits, mode, global_scale: None, dtype } =
            nodes.op(at)?
        else {
            return None;
        };
        let result = nodes.result(at)?;
        let picked = |value: ValueId| match nodes.giver(value)? {
            (at, &Op::Take { x, index: IndexArg::Tensor(indices), axis: 0 }) => {
                let is_matrix = self.constants.contains(&x) && self.tensor(x)?.shape.len() == 2;
                (is_matrix && self.is_read(value, 1)).then_some((at, x, indices))
            }
            _ => None,
        };
        let (w_at, w, indices) = picked(*w)?;
        let mut taken = vec![w_at];
        let mut part = |value: ValueId| {
            let (at, x, by) = picked(value)?;
            taken.push(at);
            (by == indices).then_some(x)
        };
        let scales = part(*scales)?;
        let biases = match biases {
            Some(biases) => Some(part(*biases)?),
            None => None,
        };
        let (group_size, bits, mode, dtype) = (*group_size, *bits, mode.clone(), *dtype);
        let op = Op::PackedEmbedding { w, scales, biases, indices, group_size, bits, mode, dtype };
        nodes.replace(at, op, vec![result], &taken);
        self.count(OpKind::PackedEmbedding);
        Some(())
    }
}

/// Weights, scales and biases of several products.
fn lists(products: impl IntoIterator<Item = Product>) -> (Vec<ValueId>, Vec<ValueId>, Vec<ValueId>) {
    let (mut w, mut scales, mut biases) = (Vec::new(), Vec::new(), Vec::new());
    for product in products {
        w.push(product.w);
        scales.push(product.scales);
        biases.extend(product.biases);
    }
    (w, scales, biases)
}
