//! The types of all values for one input signature: known sizes wherever the inputs' sizes decide them, upper
//! bounds wherever a number read from data does.

use pteron_ir::{
    Block, Dim, Graph, Node, Op, RuleError, Symbol, Symbols, TensorType, Type, TypeSource, ValueId, infer,
};
use std::collections::HashMap;

/// Types by value, where they are known already.
struct Table(Vec<Option<Type>>);

impl TypeSource for Table {
    fn type_of(&self, value: ValueId) -> Option<&Type> {
        self.0.get(value.0 as usize)?.as_ref()
    }
}

/// Types by value, and which nodes their rule refuses.
pub struct Types {
    table: Table,
    /// The graph's, and those that rules have added.
    pub symbols: Symbols,
    /// By the node's number in pre-order: what is wrong with it, to be said when it is reached.
    pub refused: HashMap<usize, RuleError>,
    /// What the inputs' sizes say of the graph's symbols.
    bound: HashMap<Symbol, i64>,
}

impl TypeSource for Types {
    fn type_of(&self, value: ValueId) -> Option<&Type> {
        self.table.type_of(value)
    }
}

impl Types {
    /// Types for inputs of these shapes; inputs without one are numbers.
    pub(crate) fn of(graph: &Graph, shapes: &[Option<&[usize]>]) -> Types {
        let mut types = Types {
            table: Table(vec![None; graph.values.len()]),
            symbols: graph.symbols.clone(),
            refused: HashMap::new(),
            bound: HashMap::new(),
        };
        for (input, shape) in graph.inputs.iter().zip(shapes) {
            let declared = graph.ty(input.value);
            let ty = match (declared, shape) {
                (Some(Type::Tensor(tensor)), Some(shape)) => {
                    for (dim, &size) in tensor.shape.iter().zip(*shape) {
                        if let Some(symbol) = dim.as_symbol() {
                            types.bound.insert(symbol, size as i64);
                        }
                    }
                    Some(Type::Tensor(TensorType::known(tensor.dtype, shape)))
                }
                _ => declared.cloned(),
            };
            types.set(input.value, ty);
        }
        let constants = graph.constants.iter().map(|constant| constant.value);
        for value in constants.chain(graph.buffers.iter().map(|buffer| buffer.value)) {
            types.set(value, graph.ty(value).cloned());
        }
        types.block(graph, &graph.body, &mut 0);
        types
    }

    /// The tensor type of a value.
    pub fn tensor(&self, value: ValueId) -> Option<&TensorType> {
        match self.type_of(value)? {
            Type::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The sizes of a tensor, if all are known.
    pub fn sizes(&self, value: ValueId) -> Option<Vec<usize>> {
        self.tensor(value)?.known_shape()
    }

    /// The number that a value always is.
    pub fn known_int(&self, value: ValueId) -> Option<i64> {
        match self.type_of(value)? {
            Type::Int(dim) => dim.as_known(),
            _ => None,
        }
    }

    /// The most bytes that a tensor can have; `None` when there is no bound.
    pub fn most_bytes(&self, value: ValueId) -> Option<usize> {
        let tensor = self.tensor(value)?;
        let most = tensor.shape.iter().try_fold(tensor.dtype.size(), |product, dim| {
            product.checked_mul(usize::try_from(self.symbols.upper(dim)?.max(0)).ok()?)
        });
        most.filter(|&bytes| isize::try_from(bytes).is_ok())
    }

    /// Whether everything that a node reads and gives has known sizes, and every number it reads is known.
    pub fn is_static(&self, node: &Node) -> bool {
        let known = |value: ValueId| match self.type_of(value) {
            Some(Type::Tensor(tensor)) => tensor.shape.iter().all(|dim| dim.as_known().is_some()),
            Some(Type::Int(dim)) => dim.as_known().is_some(),
            _ => false,
        };
        let mut all = node.results.iter().all(|&value| known(value));
        node.for_each_operand(|value| all &= known(value));
        all
    }

    /// Whether a node is a cast to the dtype that its operand has: another name for it.
    pub fn is_renaming(&self, node: &Node) -> bool {
        match &node.op {
            Op::AsType { x, scalar_type } => {
                self.tensor(*x).is_some_and(|tensor| tensor.dtype == *scalar_type)
            }
            _ => false,
        }
    }

    fn set(&mut self, value: ValueId, ty: Option<Type>) {
        if let Some(slot) = self.table.0.get_mut(value.0 as usize) {
            *slot = ty;
        }
    }

    /// The graph's own type with what the inputs say put in.
    fn declared(&self, graph: &Graph, value: ValueId) -> Option<Type> {
        let put_in = |dim: &Dim| {
            let (constant, terms) = dim.parts();
            terms.iter().fold(Dim::known(constant), |sum, &(symbol, factor)| {
                let term = match self.bound.get(&symbol) {
                    Some(&size) => size.checked_mul(factor).map(Dim::known),
                    None => Dim::symbol(symbol).scale(factor),
                };
                term.and_then(|term| sum.add(&term)).unwrap_or_else(|| dim.clone())
            })
        };
        Some(match graph.ty(value)? {
            Type::Tensor(tensor) => Type::Tensor(TensorType {
                dtype: tensor.dtype,
                shape: tensor.shape.iter().map(put_in).collect(),
            }),
            Type::Int(dim) => Type::Int(put_in(dim)),
            other => other.clone(),
        })
    }

    fn block(&mut self, graph: &Graph, block: &Block, number: &mut usize) {
        for node in &block.nodes {
            let own = *number;
            *number += 1;
            match &node.op {
                Op::If { then_chain_idx, else_chain_idx, .. } => {
                    self.block(graph, then_chain_idx, number);
                    self.block(graph, else_chain_idx, number);
                }
                Op::Scan { originals, carry, body_chain_idx: body, scan_axis, .. } => {
                    self.scan(graph, (originals, carry), body, *scan_axis, number);
                }
                _ => {}
            }
            match infer(&node.op, &self.table, &mut self.symbols) {
                Ok(types) => {
                    for (&value, ty) in node.results.iter().zip(types) {
                        self.set(value, Some(ty));
                    }
                }
                Err(error) => {
                    self.refused.insert(own, error);
                    for &value in &node.results {
                        let ty = self.declared(graph, value);
                        self.set(value, ty);
                    }
                }
            }
        }
    }

    /// The body of a loop: with the sizes of what goes in, unless a step passes on something else.
    fn scan(
        &mut self,
        graph: &Graph,
        (originals, carry): (&[ValueId], &[ValueId]),
        body: &Block,
        axis: i32,
        number: &mut usize,
    ) {
        let first = *number;
        for (index, &param) in body.params.iter().enumerate() {
            let ty = match originals.get(index) {
                Some(&original) => self.tensor(original).and_then(|tensor| {
                    let mut shape = tensor.shape.clone();
                    shape.remove(counted(axis, shape.len())?);
                    Some(Type::Tensor(TensorType { dtype: tensor.dtype, shape }))
                }),
                None => carry.get(index - originals.len()).and_then(|&value| self.type_of(value)).cloned(),
            };
            self.set(param, ty);
        }
        self.block(graph, body, number);
        let carried = body.params.iter().rev().zip(body.results.iter().rev()).take(carry.len());
        if carried.into_iter().all(|(&param, &next)| self.type_of(param) == self.type_of(next)) {
            return;
        }
        for &param in &body.params {
            let ty = self.declared(graph, param);
            self.set(param, ty);
        }
        *number = first;
        self.refused.retain(|&refused, _| refused < first);
        self.block(graph, body, number);
    }
}

/// An axis counted from the front.
pub fn counted(axis: i32, rank: usize) -> Option<usize> {
    let at = if axis < 0 { i64::from(axis) + rank as i64 } else { axis.into() };
    usize::try_from(at).ok().filter(|&at| at < rank)
}
