//! The graph: SSA values with types, nodes in execution order, nested blocks, and state as explicit values.
//!
//! A mutable buffer enters the graph as a value (what it holds when the run begins) and leaves it as another
//! (what it holds afterwards); between the two it is a tensor like any other, so no op has hidden state. Nested
//! blocks (If, Scan) live in the same value table and simply use outer values. Ops with an
//! [`Effect`](crate::Effect) keep their order in the node list.

use crate::dim::{Dim, Symbols};
use crate::op::{Op, World};
use crate::rules::{self, RuleError, TypeSource};
use pteron_tensor::DType;
use std::collections::HashSet;

/// A value of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub u32);

/// The world of graphs: operands are SSA values, bodies are blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Ssa;

impl World for Ssa {
    type Tensor = ValueId;
    type Scalar = ValueId;
    type Body = Block;
    type LoopSlots = ();
}

/// Dtype and symbolic shape.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Dims, outermost first.
    pub shape: Vec<Dim>,
}

impl TensorType {
    /// A type with known sizes.
    pub fn known(dtype: DType, shape: &[usize]) -> TensorType {
        TensorType { dtype, shape: shape.iter().map(|&dim| Dim::known(dim as i64)).collect() }
    }

    /// The sizes, if all are known and fit.
    pub fn known_shape(&self) -> Option<Vec<usize>> {
        self.shape.iter().map(|dim| usize::try_from(dim.as_known()?).ok()).collect()
    }
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// A tensor.
    Tensor(TensorType),
    /// An integer, with what is known of it.
    Int(Dim),
    /// A float.
    Float,
    /// A truth value.
    Bool,
}

/// What a graph knows of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueInfo {
    /// Its type.
    pub ty: Type,
}

/// A list of nodes with parameters and results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// Values that whoever runs the block sets first.
    pub params: Vec<ValueId>,
    /// In execution order.
    pub nodes: Vec<Node>,
    /// Values that the block gives.
    pub results: Vec<ValueId>,
}

/// An op with its results.
#[derive(Clone, Debug)]
pub struct Node {
    /// What is computed, from what.
    pub op: Op<Ssa>,
    /// Where the results go.
    pub results: Vec<ValueId>,
    /// Where it came from.
    pub place: Option<Place>,
}

/// Two nodes are equal when they compute the same; where they came from does not matter.
impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        self.op == other.op && self.results == other.results
    }
}

/// Where a node stood in its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Instruction chain.
    pub chain: u32,
    /// Position in the chain.
    pub index: u32,
}

/// An argument of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Its name in the file; may be empty.
    pub name: String,
    /// The value that it sets.
    pub value: ValueId,
}

/// A result of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Its name in the file; may be empty. In an init graph, the constant that it defines.
    pub name: String,
    /// What is given.
    pub value: ValueId,
    /// The type that the file declares, to which a caller's tensor is converted.
    pub ty: Type,
}

/// A tensor that never changes, by its key in the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Key of its data, or of the init graph's output that makes it.
    pub name: String,
    /// The value that it sets.
    pub value: ValueId,
}

/// A tensor that a session keeps from run to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Its name in the file.
    pub name: String,
    /// What it holds when a run begins.
    pub value: ValueId,
    /// What it holds afterwards; itself when nothing writes it.
    pub update: ValueId,
}

/// One function over tensors: inputs, constants and state in, outputs and new state out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// The method or delegate that this came from.
    pub name: String,
    /// Symbols of all dims.
    pub symbols: Symbols,
    /// All values, also those of nested blocks.
    pub values: Vec<ValueInfo>,
    /// Arguments in order.
    pub inputs: Vec<Input>,
    /// Constants that it reads.
    pub constants: Vec<Constant>,
    /// State that it reads and writes.
    pub buffers: Vec<Buffer>,
    /// The nodes; `body.params` and `body.results` stay empty, arguments and results are named above and below.
    pub body: Block,
    /// Results in order.
    pub outputs: Vec<Output>,
}

/// What one delegate payload becomes: the graph of every call, and one that runs once at load and defines
/// constants by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// Runs once; each output's name is a constant of `main`.
    pub init: Option<Graph>,
    /// Runs at each call.
    pub main: Graph,
}

impl Graph {
    /// The type of a value.
    pub fn ty(&self, value: ValueId) -> Option<&Type> {
        self.values.get(value.0 as usize).map(|info| &info.ty)
    }

    /// A new value of that type.
    pub fn add_value(&mut self, ty: Type) -> ValueId {
        self.values.push(ValueInfo { ty });
        ValueId(self.values.len() as u32 - 1)
    }

    /// A new argument.
    pub fn add_input(&mut self, name: &str, ty: Type) -> ValueId {
        let value = self.add_value(ty);
        self.inputs.push(Input { name: name.to_owned(), value });
        value
    }

    /// A new constant.
    pub fn add_constant(&mut self, name: &str, ty: TensorType) -> ValueId {
        let value = self.add_value(Type::Tensor(ty));
        self.constants.push(Constant { name: name.to_owned(), value });
        value
    }

    /// A new buffer that nothing writes yet.
    pub fn add_buffer(&mut self, name: &str, ty: TensorType) -> ValueId {
        let value = self.add_value(Type::Tensor(ty));
        self.buffers.push(Buffer { name: name.to_owned(), value, update: value });
        value
    }

    /// Visits every node, nested ones after the node that holds them, with its depth.
    pub fn for_each_node<'a>(&'a self, mut visit: impl FnMut(&'a Node, usize)) {
        self.body.for_each_node(0, &mut visit);
    }

    /// Whether it has ops that no file has: [`expand`](crate::expand()) puts plain ones in their place.
    pub fn has_internal_ops(&self) -> bool {
        let mut found = false;
        self.for_each_node(|node, _| found |= node.op.kind().is_internal());
        found
    }
}

impl Block {
    fn for_each_node<'a>(&'a self, depth: usize, visit: &mut impl FnMut(&'a Node, usize)) {
        for node in &self.nodes {
            visit(node, depth);
            node.for_each_block(|block| block.for_each_node(depth + 1, visit));
        }
    }
}

impl Node {
    /// Visits the nested blocks.
    pub fn for_each_block<'a>(&'a self, mut visit: impl FnMut(&'a Block)) {
        match &self.op {
            Op::If { then_chain_idx, else_chain_idx, .. } => {
                visit(then_chain_idx);
                visit(else_chain_idx);
            }
            Op::Scan { body_chain_idx, .. } => visit(body_chain_idx),
            _ => {}
        }
    }

    /// Visits every value that the op reads itself; nested blocks are not entered.
    pub fn for_each_operand(&self, mut visit: impl FnMut(ValueId)) {
        self.op.for_each_tensor(&mut visit);
        self.op.for_each_scalar(&mut visit);
    }
}

impl Node {
    /// Visits every value that the node and the blocks in it name: what is read, taken, made and given.
    pub fn for_each_value_mut(&mut self, visit: &mut dyn FnMut(&mut ValueId)) {
        self.op.for_each_field_mut(|_, mut field| {
            field.for_each_tensor(&mut |value: &mut ValueId| visit(value));
            field.for_each_scalar(&mut |value: &mut ValueId| visit(value));
        });
        match &mut self.op {
            Op::If { then_chain_idx, else_chain_idx, .. } => {
                then_chain_idx.for_each_value_mut(visit);
                else_chain_idx.for_each_value_mut(visit);
            }
            Op::Scan { body_chain_idx, .. } => body_chain_idx.for_each_value_mut(visit),
            _ => {}
        }
        self.results.iter_mut().for_each(visit);
    }

    /// Visits every value from outside that the node or a block in it reads; one that is read twice is visited twice.
    pub fn for_each_capture(&self, visit: &mut dyn FnMut(ValueId)) {
        self.for_each_operand(&mut *visit);
        self.for_each_block(|block| {
            let mut inside = HashSet::new();
            block.definitions(&mut inside);
            block.reads(&mut |value| {
                if !inside.contains(&value) {
                    visit(value);
                }
            });
        });
    }
}

impl Block {
    fn for_each_value_mut(&mut self, visit: &mut dyn FnMut(&mut ValueId)) {
        self.params.iter_mut().for_each(&mut *visit);
        self.nodes.iter_mut().for_each(|node| node.for_each_value_mut(visit));
        self.results.iter_mut().for_each(visit);
    }

    /// All values that it and the blocks in it define.
    fn definitions(&self, into: &mut HashSet<ValueId>) {
        into.extend(&self.params);
        for node in &self.nodes {
            into.extend(&node.results);
            node.for_each_block(|block| block.definitions(into));
        }
    }

    /// All values that it and the blocks in it read.
    fn reads(&self, visit: &mut dyn FnMut(ValueId)) {
        for node in &self.nodes {
            node.for_each_operand(&mut *visit);
            node.for_each_block(|block| block.reads(visit));
        }
        self.results.iter().copied().for_each(visit);
    }
}

impl TypeSource for Vec<ValueInfo> {
    fn type_of(&self, value: ValueId) -> Option<&Type> {
        self.get(value.0 as usize).map(|info| &info.ty)
    }
}

/// Appends nodes to a graph, giving each result the type that its op's rule says. Blocks nest: open one, append
/// to it, close it, and use it as a body.
#[derive(Debug)]
pub struct Builder {
    graph: Graph,
    open: Vec<Block>,
}

impl Builder {
    /// Goes on building a graph.
    pub fn new(graph: Graph) -> Builder {
        Builder { graph, open: Vec::new() }
    }

    /// The graph so far, without blocks that are still open.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The graph so far, for adding inputs, constants, buffers and symbols.
    pub fn graph_mut(&mut self) -> &mut Graph {
        &mut self.graph
    }

    /// Appends an op to the innermost open block; its results in order.
    pub fn append(&mut self, op: Op<Ssa>, place: Option<Place>) -> Result<Vec<ValueId>, RuleError> {
        let types = rules::infer(&op, &self.graph.values, &mut self.graph.symbols)?;
        let results: Vec<ValueId> = types.into_iter().map(|ty| self.graph.add_value(ty)).collect();
        let node = Node { op, results: results.clone(), place };
        self.open.last_mut().unwrap_or(&mut self.graph.body).nodes.push(node);
        Ok(results)
    }

    /// Opens a nested block with parameters of those types.
    pub fn open_block(&mut self, params: Vec<Type>) -> Vec<ValueId> {
        let params: Vec<ValueId> = params.into_iter().map(|ty| self.graph.add_value(ty)).collect();
        self.open.push(Block { params: params.clone(), ..Block::default() });
        params
    }

    /// Closes the innermost open block, which gives those values. Without an open block: an empty one.
    pub fn close_block(&mut self, results: Vec<ValueId>) -> Block {
        let mut block = self.open.pop().unwrap_or_default();
        block.results = results;
        block
    }

    /// The finished graph.
    pub fn finish(self) -> Graph {
        self.graph
    }
}
