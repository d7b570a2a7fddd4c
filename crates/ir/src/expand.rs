//! What internal ops stand for. An internal op is several plain ops that a backend runs as one; it computes exactly
//! what they compute, rounding included. Its catalogue entry names the method here that lists them, and its type rule
//! follows from that list. [`expand`] puts the plain ops back, so that no internal op gets into a file.

use crate::graph::{Block, Graph, Node, Ssa, ValueId};
use crate::op::{Activation, Op, expand_into};
use crate::rules::{RuleError, infer};

/// Plain ops in order, each of which gives one value.
#[derive(Debug, Default)]
pub(crate) struct Expansion {
    pub(crate) ops: Vec<Op<Ssa>>,
    /// Which of the values are the results of the internal op.
    pub(crate) given: Vec<ValueId>,
}

/// Several quantised weights of one form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuantizedList<'a> {
    pub(crate) w: &'a [ValueId],
    pub(crate) scales: &'a [ValueId],
    /// None, or one each.
    pub(crate) biases: &'a [ValueId],
    pub(crate) group_size: &'a i32,
    pub(crate) bits: &'a i32,
    pub(crate) mode: &'a str,
}

/// The most ops of an expansion: their values are named by the last numbers, which no graph reaches.
const MOST_OPS: usize = 1 << 16;

/// Which op of an expansion makes a value; `None` for values of the graph.
pub(crate) fn made_at(value: ValueId) -> Option<usize> {
    let at = (u32::MAX - value.0) as usize;
    (at < MOST_OPS).then_some(at)
}

impl Expansion {
    /// What an op stands for; empty for a plain one.
    pub(crate) fn of(op: &Op<Ssa>) -> Result<Expansion, RuleError> {
        let mut expansion = Expansion::default();
        expand_into(op, &mut expansion)?;
        if expansion.ops.len() > MOST_OPS {
            return Err(RuleError::Invalid(format!("{} ops in one", expansion.ops.len())));
        }
        Ok(expansion)
    }

    /// Appends an op; what it gives.
    pub(crate) fn op(&mut self, op: Op<Ssa>) -> ValueId {
        self.ops.push(op);
        ValueId(u32::MAX - (self.ops.len() as u32 - 1))
    }

    /// Appends an op whose value is the next result.
    pub(crate) fn give(&mut self, op: Op<Ssa>) -> ValueId {
        let value = self.op(op);
        self.given.push(value);
        value
    }

    pub(crate) fn add_rms_norm(
        &mut self,
        a: ValueId,
        b: ValueId,
        weight: Option<ValueId>,
        eps: f32,
    ) -> Result<(), RuleError> {
        let sum = self.give(Op::Add { a, b });
        self.give(Op::RMSNorm { x: sum, weight, eps });
        Ok(())
    }

    pub(crate) fn projections(&mut self, x: ValueId, weights: &QuantizedList<'_>) -> Result<(), RuleError> {
        for product in weights.products(x)? {
            self.give(product);
        }
        Ok(())
    }

    pub(crate) fn gated_projection(
        &mut self,
        x: ValueId,
        weights: &QuantizedList<'_>,
        activation: &str,
    ) -> Result<(), RuleError> {
        let Ok([gate, up]) = <[Op<Ssa>; 2]>::try_from(weights.products(x)?) else {
            return Err(RuleError::Invalid(format!(
                "{} weights of a gate and what it gates",
                weights.w.len()
            )));
        };
        let gate = self.op(gate);
        let active = match Activation::from_name(activation) {
            Some(Activation::Silu) => Op::Silu { x: gate },
            Some(Activation::SigmoidProduct) => {
                let part = self.op(Op::Sigmoid { x: gate });
                Op::Multiply { a: gate, b: part }
            }
            Some(Activation::Gelu) => Op::Gelu { x: gate, approximate: "none".to_owned() },
            Some(Activation::GeluTanh) => Op::Gelu { x: gate, approximate: "tanh".to_owned() },
            None => return Err(RuleError::Invalid(format!("there is no activation {activation:?}"))),
        };
        let active = self.op(active);
        let up = self.op(up);
        self.give(Op::Multiply { a: active, b: up });
        Ok(())
    }
}

impl QuantizedList<'_> {
    /// The product with each weight.
    fn products(&self, x: ValueId) -> Result<Vec<Op<Ssa>>, RuleError> {
        let count = self.w.len();
        let biases_fit = self.biases.is_empty() || self.biases.len() == count;
        if count == 0 || self.scales.len() != count || !biases_fit {
            let lists = [count, self.scales.len(), self.biases.len()];
            return Err(RuleError::Invalid(format!("{lists:?} weights, scales and biases")));
        }
        let product = |at: usize| Op::QuantizedMatmul {
            x,
            w: self.w[at],
            scales: self.scales[at],
            biases: self.biases.get(at).copied(),
            group_size: *self.group_size,
            bits: *self.bits,
            mode: self.mode.to_owned(),
            transpose: true,
        };
        Ok((0..count).map(product).collect())
    }
}

/// Replaces every internal op by the plain ones that it stands for, in nested blocks too. The values that it gave keep
/// their numbers. A graph whose internal ops have operands that their rules refuse is left with those.
pub fn expand(graph: &mut Graph) -> Result<(), RuleError> {
    if !graph.has_internal_ops() {
        return Ok(());
    }
    let mut body = std::mem::take(&mut graph.body);
    let expanded = expand_block(graph, &mut body);
    graph.body = body;
    expanded
}

fn expand_block(graph: &mut Graph, block: &mut Block) -> Result<(), RuleError> {
    let mut at = 0;
    while at < block.nodes.len() {
        let node = &mut block.nodes[at];
        match &mut node.op {
            Op::If { then_chain_idx, else_chain_idx, .. } => {
                expand_block(graph, then_chain_idx)?;
                expand_block(graph, else_chain_idx)?;
            }
            Op::Scan { body_chain_idx, .. } => expand_block(graph, body_chain_idx)?,
            op if op.kind().is_internal() => {
                let plain = expand_node(graph, node)?;
                let count = plain.len();
                block.nodes.splice(at..=at, plain);
                at += count;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// The plain nodes of an internal one.
fn expand_node(graph: &mut Graph, node: &Node) -> Result<Vec<Node>, RuleError> {
    let expansion = Expansion::of(&node.op)?;
    if expansion.given.len() != node.results.len() {
        let (given, found) = (expansion.given.len(), node.results.len());
        return Err(RuleError::Invalid(format!("{found} results are listed where the op gives {given}")));
    }
    // By op: the value of the graph that it gives.
    let mut values: Vec<ValueId> = Vec::with_capacity(expansion.ops.len());
    let mut nodes = Vec::with_capacity(expansion.ops.len());
    for (at, mut op) in expansion.ops.into_iter().enumerate() {
        op.for_each_field_mut(|_, mut field| {
            field.for_each_tensor(&mut |value| {
                if let Some(&made) = made_at(*value).and_then(|at| values.get(at)) {
                    *value = made;
                }
            });
        });
        let given = expansion.given.iter().position(|&value| made_at(value) == Some(at));
        let result = match given {
            Some(index) => node.results[index],
            None => {
                let types = infer(&op, &graph.values, &mut graph.symbols)?;
                let [ty] = <[_; 1]>::try_from(types)
                    .map_err(|types| RuleError::Invalid(format!("{} values of one op", types.len())))?;
                graph.add_value(ty)
            }
        };
        values.push(result);
        nodes.push(Node { op, results: vec![result], place: node.place });
    }
    Ok(nodes)
}
