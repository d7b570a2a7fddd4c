//! Runs a rule over every node of a graph, nested blocks included, in execution order.
//!
//! A rule sees a node whose operands are already what earlier rewrites made of them, may append nodes before it, and
//! gives the values that stand for its results from there on; what nobody uses any more is removed at the end. Types of
//! later nodes follow: a node whose operands changed is typed anew. A replacement of another dtype, or of a shape that
//! is provably another, is refused, so that a mistake in a rule costs a fusion and never the meaning.

use crate::remark::{Remark, Remarks, Verdict};
use crate::{Weights, dead_code, numbers};
use pteron_ir::text::Printer;
use pteron_ir::{
    Block, Dim, Graph, Node, Op, Place, Ssa, TensorType, Type, ValueId, Verdict as Decided, infer,
};
use pteron_tensor::HostTensor;
use std::collections::{HashMap, HashSet};

/// Looks at one node; the values that stand for its results, if they are to be others.
pub type Rule<'r> = &'r mut dyn FnMut(&mut Site<'_>, &Node) -> Option<Vec<ValueId>>;

/// Runs a rule over a graph.
pub fn rewrite(graph: &mut Graph, weights: &mut dyn Weights, remarks: &mut Remarks, rule: Rule<'_>) {
    let body = std::mem::take(&mut graph.body);
    let uses = uses(graph, &body);
    let constants = graph.constants.iter().map(|constant| (constant.value, constant.name.clone())).collect();
    let mut site = Site {
        graph,
        weights,
        remarks,
        constants,
        definitions: HashMap::new(),
        uses,
        aliases: HashMap::new(),
        retyped: HashSet::new(),
        ints: Vec::new(),
        pending: Vec::new(),
        place: None,
    };
    for input in site.graph.inputs.clone() {
        site.note_int(input.value);
    }
    let body = site.block(body, rule);
    let aliases = std::mem::take(&mut site.aliases);
    let seen = |value: ValueId| resolve(&aliases, value);
    graph.body = body;
    for buffer in &mut graph.buffers {
        buffer.update = seen(buffer.update);
    }
    for output in &mut graph.outputs {
        output.value = seen(output.value);
    }
    // What a pattern has taken is in nobody's way from here on.
    dead_code::remove(graph);
}

fn resolve(aliases: &HashMap<ValueId, ValueId>, mut value: ValueId) -> ValueId {
    while let Some(&other) = aliases.get(&value) {
        value = other;
    }
    value
}

/// How often each value is used by nodes, blocks, outputs and state.
fn uses(graph: &Graph, body: &Block) -> HashMap<ValueId, usize> {
    let mut uses = HashMap::new();
    let mut count = |value: ValueId| *uses.entry(value).or_default() += 1;
    count_block(body, &mut count);
    graph.outputs.iter().for_each(|output| count(output.value));
    graph
        .buffers
        .iter()
        .filter(|buffer| buffer.update != buffer.value)
        .for_each(|buffer| count(buffer.update));
    uses
}

fn count_block(block: &Block, count: &mut dyn FnMut(ValueId)) {
    for node in &block.nodes {
        node.for_each_operand(&mut *count);
        node.for_each_block(|block| count_block(block, &mut *count));
    }
    block.results.iter().for_each(|value| count(*value));
}

/// What a rule works with.
pub struct Site<'g> {
    graph: &'g mut Graph,
    weights: &'g mut dyn Weights,
    remarks: &'g mut Remarks,
    constants: HashMap<ValueId, String>,
    /// What gives a value, where its node holds no block.
    definitions: HashMap<ValueId, Op<Ssa>>,
    uses: HashMap<ValueId, usize>,
    aliases: HashMap<ValueId, ValueId>,
    /// Values whose type is no longer what it was.
    retyped: HashSet<ValueId>,
    /// Integers in scope, by what is known of them.
    ints: Vec<(Dim, ValueId)>,
    /// Nodes that the rule has appended before the current one.
    pending: Vec<Node>,
    place: Option<Place>,
}

impl Site<'_> {
    fn block(&mut self, block: Block, rule: Rule<'_>) -> Block {
        let Block { params, nodes, results } = block;
        let outer_ints = self.ints.len();
        params.iter().for_each(|value| self.note_int(*value));
        let mut made = Vec::with_capacity(nodes.len());
        for mut node in nodes {
            self.settle(&mut node);
            self.nested(&mut node.op, rule);
            self.place = node.place;

            let found = rule(self, &node);
            match found.filter(|values| self.stand_for(&node, values)) {
                Some(values) => {
                    made.append(&mut self.pending);
                    for (old, new) in node.results.iter().zip(values) {
                        let moved = self.uses(*old);
                        *self.uses.entry(new).or_default() += moved;
                        self.aliases.insert(*old, new);
                        self.retyped.insert(new);
                    }
                }
                None => {
                    self.forget_pending();
                    self.define(&node);
                    made.push(node);
                }
            }
        }
        self.ints.truncate(outer_ints);
        let results = results.into_iter().map(|value| resolve(&self.aliases, value)).collect();
        Block { params, nodes: made, results }
    }

    fn nested(&mut self, op: &mut Op<Ssa>, rule: Rule<'_>) {
        match op {
            Op::If { then_chain_idx, else_chain_idx, .. } => {
                *then_chain_idx = self.block(std::mem::take(then_chain_idx), rule);
                *else_chain_idx = self.block(std::mem::take(else_chain_idx), rule);
            }
            Op::Scan { body_chain_idx, .. } => {
                *body_chain_idx = self.block(std::mem::take(body_chain_idx), rule);
            }
            _ => {}
        }
    }

    /// Points a node's operands at what stands for them now, and types it anew where they changed.
    fn settle(&mut self, node: &mut Node) {
        let mut changed = false;
        let aliases = &self.aliases;
        let mut point = |value: &mut ValueId| {
            let new = resolve(aliases, *value);
            changed |= new != *value;
            *value = new;
        };
        node.op.for_each_field_mut(|_, mut field| {
            field.for_each_tensor(&mut point);
            field.for_each_scalar(&mut point);
        });
        let holds_blocks = matches!(node.op, Op::If { .. } | Op::Scan { .. });
        node.for_each_operand(|value| changed |= self.retyped.contains(&value));
        if !changed || holds_blocks {
            return;
        }
        let Ok(types) = infer(&node.op, &self.graph.values, &mut self.graph.symbols) else { return };
        for (&value, ty) in node.results.iter().zip(types) {
            let Some(info) = self.graph.values.get_mut(value.0 as usize) else { continue };
            if info.ty != ty && agree(&self.graph.symbols, &info.ty, &ty) {
                info.ty = ty;
                self.retyped.insert(value);
            }
        }
    }

    fn define(&mut self, node: &Node) {
        if matches!(node.op, Op::If { .. } | Op::Scan { .. }) {
            return;
        }
        for &value in &node.results {
            self.definitions.insert(value, node.op.clone());
            self.note_int(value);
        }
    }

    fn note_int(&mut self, value: ValueId) {
        if let Some(Type::Int(dim)) = self.graph.ty(value) {
            self.ints.push((dim.clone(), value));
        }
    }

    fn forget_pending(&mut self) {
        for node in std::mem::take(&mut self.pending) {
            for value in &node.results {
                self.definitions.remove(value);
                self.ints.retain(|(_, known)| known != value);
            }
        }
    }

    /// Whether values may stand for a node's results.
    fn stand_for(&self, node: &Node, values: &[ValueId]) -> bool {
        node.results.len() == values.len()
            && node.results.iter().zip(values).all(|(old, new)| {
                old != new
                    && match (self.graph.ty(*old), self.graph.ty(*new)) {
                        (Some(old), Some(new)) => agree(&self.graph.symbols, old, new),
                        _ => false,
                    }
            })
    }

    /// The graph, without its nodes.
    pub fn graph(&self) -> &Graph {
        self.graph
    }

    /// The type of a tensor.
    pub fn tensor(&self, value: ValueId) -> Option<&TensorType> {
        match self.graph.ty(value) {
            Some(Type::Tensor(ty)) => Some(ty),
            _ => None,
        }
    }

    /// What gives a value: a node before the current one, in this block or around it.
    pub fn definition(&self, value: ValueId) -> Option<&Op<Ssa>> {
        self.definitions.get(&value)
    }

    /// How often a value was used when the pass began, or is used by what stands for it.
    pub fn uses(&self, value: ValueId) -> usize {
        self.uses.get(&value).copied().unwrap_or(0)
    }

    /// The name of a constant.
    pub fn constant_name(&self, value: ValueId) -> Option<&str> {
        self.constants.get(&value).map(String::as_str)
    }

    /// The data of a constant, where it is at hand.
    pub fn data(&self, value: ValueId) -> Option<&HostTensor> {
        self.weights.get(self.constants.get(&value)?)
    }

    /// A number that a value holds everywhere: a constant of one element, or a fill.
    pub fn number(&self, value: ValueId) -> Option<f64> {
        numbers::everywhere(self, value)
    }

    /// An integer in scope that is known to be that expression.
    pub fn int_of(&self, dim: &Dim) -> Option<ValueId> {
        self.ints.iter().find(|(known, _)| known == dim).map(|(_, value)| *value)
    }

    /// Adds a constant whose name begins like another's.
    pub fn add_constant(&mut self, like: &str, suffix: &str, tensor: HostTensor) -> ValueId {
        let mut name = format!("{like}_{suffix}");
        let mut number = 1;
        while let Some(held) = self.weights.get(&name) {
            let same = held.dtype() == tensor.dtype()
                && held.shape() == tensor.shape()
                && held.bytes()[..] == tensor.bytes()[..];
            if same && let Some(constant) = self.graph.constants.iter().find(|known| known.name == name) {
                return constant.value;
            }
            number += 1;
            name = format!("{like}_{suffix}_{number}");
        }
        let value = self.graph.add_constant(&name, TensorType::known(tensor.dtype(), tensor.shape()));
        self.weights.add(&name, tensor);
        self.constants.insert(value, name);
        value
    }

    /// Appends a node with one result before the current one; `None` if its operands do not fit it.
    pub fn append(&mut self, op: Op<Ssa>) -> Option<ValueId> {
        let types = infer(&op, &self.graph.values, &mut self.graph.symbols).ok()?;
        let [ty] = <[Type; 1]>::try_from(types).ok()?;
        let value = self.graph.add_value(ty);
        let node = Node { op, results: vec![value], place: self.place };
        node.for_each_operand(|operand| *self.uses.entry(operand).or_default() += 1);
        self.define(&node);
        self.pending.push(node);
        Some(value)
    }

    /// Says that a pattern took `nodes` nodes, the given one last.
    pub fn took(&mut self, pattern: &'static str, node: &Node, nodes: usize) {
        self.remark(pattern, node, Verdict::Taken { nodes });
    }

    /// Says why a pattern that begins like this node was left.
    pub fn left<T>(&mut self, pattern: &'static str, node: &Node, why: impl Into<String>) -> Option<T> {
        self.remark(pattern, node, Verdict::Left(why.into()));
        None
    }

    fn remark(&mut self, pattern: &'static str, node: &Node, verdict: Verdict) {
        let text = Printer::new(self.graph).node(node).to_string();
        self.remarks.push(Remark { pattern, node: text, place: node.place, verdict });
    }
}

/// Whether two types may be of one value: nothing about them is provably different.
fn agree(symbols: &pteron_ir::Symbols, a: &Type, b: &Type) -> bool {
    let may_equal = |a: &Dim, b: &Dim| symbols.equal(a, b) != Decided::No;
    match (a, b) {
        (Type::Tensor(a), Type::Tensor(b)) => {
            a.dtype == b.dtype
                && a.shape.len() == b.shape.len()
                && a.shape.iter().zip(&b.shape).all(|(a, b)| may_equal(a, b))
        }
        (Type::Int(a), Type::Int(b)) => may_equal(a, b),
        (a, b) => a == b,
    }
}
