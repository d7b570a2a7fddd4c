//! A decoder in the making: the graph so far, its weights, and what every layer shares (positions, masks, counts).
//!
//! Thin over [`pteron_ir::Builder`]: one method an op that models use, each naming the part of the model in its error.
//! Blocks are built on it; it knows no architecture.

use std::collections::HashMap;
use std::sync::Arc;

use pteron_ir::op::{FloatArg, IndexArg, IntArg};
use pteron_ir::{Builder, Dim, Graph, Module, Op, Output, Ssa, TensorType, Type, ValueId};
use pteron_tensor::{Bytes, DType};

use crate::blocks::RingView;
use crate::model::ModelOptions;
use crate::weights::{Recipe, Stored, encode};
use crate::{ModelError, WeightSource};

/// A decoder in the making.
pub struct Net {
    builder: Builder,
    source: Arc<dyn WeightSource>,
    options: ModelOptions,
    place: String,
    constants: HashMap<String, ValueId>,
    stored: Vec<Stored>,
    derived: Vec<Derived>,
    tokens: ValueId,
    input_pos: ValueId,
    length: ValueId,
    start: ValueId,
    end: ValueId,
    pub(crate) rings: HashMap<(usize, usize), RingView>,
}

/// Biases that are a multiple of scales and made when the program is loaded.
struct Derived {
    scales: String,
    biases: String,
    ty: TensorType,
    factor: f32,
}

/// The method's name, and its graph's.
pub(crate) const METHOD: &str = "forward";

impl Net {
    pub(crate) fn new(source: Arc<dyn WeightSource>, options: ModelOptions) -> Result<Net, ModelError> {
        let mut graph = Graph { name: METHOD.to_owned(), ..Graph::default() };
        let length = Dim::symbol(graph.symbols.add("T", 1, Some(options.chunk as i64)));
        let tokens = TensorType { dtype: DType::I64, shape: vec![Dim::known(1), length] };
        let tokens = graph.add_input("tokens", Type::Tensor(tokens));
        let input_pos = graph.add_input("input_pos", Type::Tensor(TensorType::known(DType::I64, &[1])));
        let mut net = Net {
            builder: Builder::new(graph),
            source,
            options,
            place: "inputs".to_owned(),
            constants: HashMap::new(),
            stored: Vec::new(),
            derived: Vec::new(),
            tokens,
            input_pos,
            length: tokens,
            start: tokens,
            end: tokens,
            rings: HashMap::new(),
        };
        net.length = net.op(Op::SymSize { a: tokens, dim: 1 })?;
        net.start = net.op(Op::ItemInt { x: input_pos })?;
        net.end = net.add_int(value(net.start), value(net.length))?;
        Ok(net)
    }

    /// What the program is to be like.
    pub fn options(&self) -> &ModelOptions {
        &self.options
    }

    /// The dtype that activations have.
    pub fn activations(&self) -> DType {
        self.options.activations
    }

    /// Token ids, `[1, T]`.
    pub fn tokens(&self) -> ValueId {
        self.tokens
    }

    /// The position of the first token, as a tensor of one element.
    pub fn input_pos(&self) -> ValueId {
        self.input_pos
    }

    /// How many tokens there are.
    pub fn length(&self) -> ValueId {
        self.length
    }

    /// The position of the first token.
    pub fn start(&self) -> ValueId {
        self.start
    }

    /// The position after the last token.
    pub fn end(&self) -> ValueId {
        self.end
    }

    /// Names the part of the model that is built next, for errors.
    pub fn enter(&mut self, place: impl Into<String>) {
        self.place = place.into();
    }

    pub(crate) fn source(&self) -> &Arc<dyn WeightSource> {
        &self.source
    }

    /// Appends an op that gives one value.
    pub fn op(&mut self, op: Op<Ssa>) -> Result<ValueId, ModelError> {
        let name = op.spec().text;
        let rule = |source| ModelError::Rule { place: self.place.clone(), op: name, source };
        let results = self.builder.append(op, None).map_err(rule)?;
        results.first().copied().ok_or_else(|| ModelError::configuration(format!("{name} gives nothing")))
    }

    /// The dtype of a tensor of the graph.
    pub fn dtype(&self, tensor: ValueId) -> Option<DType> {
        match self.builder.graph().ty(tensor)? {
            Type::Tensor(ty) => Some(ty.dtype),
            _ => None,
        }
    }

    /// A stored constant, once however often it is asked for.
    pub(crate) fn constant(&mut self, key: &str, ty: TensorType, recipe: impl FnOnce() -> Recipe) -> ValueId {
        if let Some(&known) = self.constants.get(key) {
            return known;
        }
        let elements: i64 = ty.shape.iter().filter_map(Dim::as_known).product();
        let bytes = elements as u64 * ty.dtype.size() as u64;
        self.stored.push(Stored { key: key.to_owned(), bytes, recipe: recipe() });
        let constant = self.builder.graph_mut().add_constant(key, ty);
        self.constants.insert(key.to_owned(), constant);
        constant
    }

    /// A constant that the load-time graph makes: `scales * factor`.
    pub(crate) fn derived(&mut self, biases: &str, scales: &str, ty: TensorType, factor: f32) -> ValueId {
        if let Some(&known) = self.constants.get(biases) {
            return known;
        }
        let constant = self.builder.graph_mut().add_constant(biases, ty.clone());
        self.constants.insert(biases.to_owned(), constant);
        self.derived.push(Derived { scales: scales.to_owned(), biases: biases.to_owned(), ty, factor });
        constant
    }

    /// A number as a constant of rank 0.
    pub fn scalar(&mut self, number: f32, dtype: DType) -> ValueId {
        let key = format!("scalar.{dtype}.{number}");
        self.constant(&key, TensorType::known(dtype, &[]), || {
            let mut bytes = Vec::new();
            match dtype {
                DType::I64 => bytes.extend((number as i64).to_le_bytes()),
                _ => encode(&[number], dtype, &mut bytes),
            }
            Recipe::Literal(Bytes::copy_of(&bytes))
        })
    }

    /// Numbers as a constant of rank 1, in f32.
    pub fn vector(&mut self, key: &str, numbers: &[f32]) -> ValueId {
        self.constant(key, TensorType::known(DType::F32, &[numbers.len()]), || {
            let mut bytes = Vec::new();
            encode(numbers, DType::F32, &mut bytes);
            Recipe::Literal(Bytes::copy_of(&bytes))
        })
    }

    /// A weight held as floats, stored in a dtype with `plus` added.
    pub fn floats(
        &mut self,
        name: &str,
        shape: &[usize],
        dtype: DType,
        plus: f32,
    ) -> Result<ValueId, ModelError> {
        self.source.form(name, shape)?;
        let recipe = || Recipe::Floats { name: name.to_owned(), shape: shape.to_vec(), dtype, plus };
        Ok(self.constant(name, TensorType::known(dtype, shape), recipe))
    }

    /// State that a session keeps, zeros at first.
    pub fn buffer(&mut self, name: &str, dtype: DType, shape: &[usize]) -> ValueId {
        self.builder.graph_mut().add_buffer(name, TensorType::known(dtype, shape))
    }

    /// What a buffer holds after the run.
    pub fn update(&mut self, buffer: ValueId, update: ValueId) {
        let buffers = &mut self.builder.graph_mut().buffers;
        if let Some(entry) = buffers.iter_mut().find(|entry| entry.value == buffer) {
            entry.update = update;
        }
    }

    /// The whole model as a module, with that value as its output.
    pub(crate) fn finish(mut self, logits: ValueId) -> Result<(Module, Vec<Stored>), ModelError> {
        let init = self.load_time_graph()?;
        let mut main = self.builder.finish();
        let ty =
            main.ty(logits).cloned().ok_or_else(|| ModelError::configuration("the model gives nothing"))?;
        main.outputs.push(Output { name: "logits".to_owned(), value: logits, ty });
        Ok((Module { init, main }, self.stored))
    }

    fn load_time_graph(&mut self) -> Result<Option<Graph>, ModelError> {
        if self.derived.is_empty() {
            return Ok(None);
        }
        let mut init = Builder::new(Graph { name: format!("{METHOD}.init"), ..Graph::default() });
        let mut factors: HashMap<String, ValueId> = HashMap::new();
        for derived in std::mem::take(&mut self.derived) {
            let scales = init.graph_mut().add_constant(&derived.scales, derived.ty.clone());
            // Stored like any other constant, though only this graph reads it.
            let key = format!("scalar.{}.{}", derived.ty.dtype, derived.factor);
            let factor = match factors.get(&key) {
                Some(&factor) => factor,
                None => {
                    if !self.constants.contains_key(&key) {
                        let mut bytes = Vec::new();
                        encode(&[derived.factor], derived.ty.dtype, &mut bytes);
                        let recipe = Recipe::Literal(Bytes::copy_of(&bytes));
                        let bytes = bytes.len() as u64;
                        self.stored.push(Stored { key: key.clone(), bytes, recipe });
                    }
                    let factor =
                        init.graph_mut().add_constant(&key, TensorType::known(derived.ty.dtype, &[]));
                    *factors.entry(key).or_insert(factor)
                }
            };
            let rule = |source| ModelError::Rule { place: derived.biases.clone(), op: "multiply", source };
            let biases = init.append(Op::Multiply { a: scales, b: factor }, None).map_err(rule)?;
            if let [biases] = biases[..] {
                let ty = Type::Tensor(derived.ty.clone());
                init.graph_mut().outputs.push(Output { name: derived.biases, value: biases, ty });
            }
        }
        Ok(Some(init.finish()))
    }
}

/// An integer value as an argument.
pub(crate) fn value(value: ValueId) -> IntArg<ValueId> {
    IntArg::Value(value)
}

/// A plain number as an argument.
pub(crate) fn literal(number: usize) -> IntArg<ValueId> {
    IntArg::Literal(number as i64)
}

/// The ops that models are made of, by what they are called on paper.
impl Net {
    /// `a + b`.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, ModelError> {
        self.op(Op::Add { a, b })
    }

    /// `a * b`.
    pub fn multiply(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, ModelError> {
        self.op(Op::Multiply { a, b })
    }

    /// `x` times a number, which is rounded to `x`'s dtype first.
    pub fn scaled(&mut self, x: ValueId, factor: f32) -> Result<ValueId, ModelError> {
        let factor = self.scalar(factor, self.dtype(x).unwrap_or(DType::F32));
        self.multiply(x, factor)
    }

    /// `x` in another dtype; itself where it has that.
    pub fn cast(&mut self, x: ValueId, dtype: DType) -> Result<ValueId, ModelError> {
        if self.dtype(x) == Some(dtype) { Ok(x) } else { self.op(Op::AsType { x, scalar_type: dtype }) }
    }

    /// The same elements as `[1, T, ...sizes]`.
    pub fn split_tokens(&mut self, x: ValueId, sizes: &[usize]) -> Result<ValueId, ModelError> {
        let mut shape = vec![literal(1), value(self.length)];
        shape.extend(sizes.iter().map(|&size| literal(size)));
        self.op(Op::Reshape { x, shape })
    }

    /// Swaps the axes of tokens and heads.
    pub fn swap_heads(&mut self, x: ValueId) -> Result<ValueId, ModelError> {
        self.op(Op::Transpose { x, perm: vec![0, 2, 1, 3] })
    }

    /// One slice of an axis, without that axis.
    pub fn pick(&mut self, x: ValueId, index: i64, axis: i32) -> Result<ValueId, ModelError> {
        self.op(Op::Take { x, index: IndexArg::Literal(index), axis })
    }

    /// Rows by token.
    pub fn rows(&mut self, x: ValueId, tokens: ValueId) -> Result<ValueId, ModelError> {
        self.op(Op::Take { x, index: IndexArg::Tensor(tokens), axis: 0 })
    }

    pub(crate) fn add_int(&mut self, a: IntArg<ValueId>, b: IntArg<ValueId>) -> Result<ValueId, ModelError> {
        self.op(Op::AddInt { a, b })
    }

    pub(crate) fn subtract_int(
        &mut self,
        a: IntArg<ValueId>,
        b: IntArg<ValueId>,
    ) -> Result<ValueId, ModelError> {
        self.op(Op::SubtractInt { a, b })
    }

    /// The whole numbers below a bound.
    pub(crate) fn range(&mut self, stop: IntArg<ValueId>) -> Result<ValueId, ModelError> {
        self.op(Op::ARange { start: literal(0), stop, step: literal(1), scalar_type: Some(DType::I64) })
    }

    /// An integer of the graph as a tensor of rank 0.
    pub(crate) fn int_tensor(&mut self, number: ValueId) -> Result<ValueId, ModelError> {
        self.op(Op::Full { shape: vec![], v: FloatArg::Value(number), scalar_type: DType::I64 })
    }
}
