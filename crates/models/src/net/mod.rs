//! A decoder in the making: the graph so far, its weights, and what every layer shares (positions, masks, counts).
//!
//! Thin over [`pteron_ir::Builder`]; errors name the part of the model. Blocks are built on it; it knows no architecture.

mod ops;
mod part;

use std::collections::HashMap;
use std::sync::Arc;

use pteron_ir::op::FloatArg;
use pteron_ir::{Builder, Dim, Graph, Module, Op, Output, Ssa, TensorType, Type, ValueId};
use pteron_tensor::{Bytes, DType};

use crate::blocks::RingView;
use crate::model::{CacheLayer, Logits, ModelOptions, Position};
use crate::weights::{Recipe, Stored, encode};
use crate::{ModelError, Wanted, WeightSource};

pub(crate) use ops::{literal, value};

/// A decoder in the making.
pub struct Net {
    builder: Builder,
    source: Arc<dyn WeightSource>,
    options: ModelOptions,
    place: String,
    constants: HashMap<String, ValueId>,
    stored: Vec<Stored>,
    derived: Vec<Derived>,
    /// The graph that runs once at load, and what it makes besides.
    load: Option<Box<Net>>,
    made: Vec<Output>,
    tokens: ValueId,
    /// The position of the first token as a tensor, and as a number: what the call gives, and what is made of it where it
    /// is needed.
    input_pos: Option<ValueId>,
    start: Option<ValueId>,
    length: ValueId,
    end: Option<ValueId>,
    /// The rows whose logits are wanted, where the call says it.
    picks: Option<ValueId>,
    caches: Vec<CacheLayer>,
    pub(crate) rings: HashMap<(usize, usize), RingView>,
    /// Rotary periods that are chosen by length, by the name of their positions.
    pub(crate) periods: HashMap<String, ValueId>,
    /// What layers share, by name: positions, masks.
    shared_values: HashMap<String, ValueId>,
    /// Where the graph is told how long the text is.
    text_length: Option<ValueId>,
    /// Lengths beyond which it makes a difference.
    borders: Vec<usize>,
    /// Whether there is a state of all tokens so far.
    is_recurrent: bool,
    /// The kind of each token, where the call says it.
    kinds: Option<ValueId>,
    /// What is added to positions before tokens turn by them, where images before them have taken fewer than they have rows.
    shift: Option<ValueId>,
    /// Positions of rows along several axes, `[axes, T]`, and the axis by which each pair of a head turns.
    axes: Option<(ValueId, Vec<usize>)>,
    /// The positions of the first and the last token in a column, where all of them see each other, and where they do.
    column: Option<(ValueId, Ahead)>,
}

/// On which layers the rows of an image see those behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// On none.
    Nowhere,
    /// On those that slide.
    InWindows,
    /// On all.
    Everywhere,
}

/// Where a runner says how long the text is that it reads: a buffer of one number, 0 until somebody writes it.
const TEXT_LENGTH: &str = "text_length";

/// Where a runner says what is added to positions before tokens turn by them: a buffer of one number, 0 until somebody writes it.
const POSITION_SHIFT: &str = "position_shift";

/// A method that is built.
pub(crate) struct Built {
    pub(crate) module: Module,
    pub(crate) stored: Vec<Stored>,
    /// The session's caches by number, where keys and values are kept outside the graph.
    pub(crate) caches: Vec<CacheLayer>,
    /// Lengths of a text beyond which it is read otherwise.
    pub(crate) borders: Vec<usize>,
    /// Whether there is a state of all tokens so far.
    pub(crate) is_recurrent: bool,
}

/// Biases that are a multiple of scales and made when the program is loaded.
struct Derived {
    scales: String,
    biases: String,
    ty: TensorType,
    factor: f32,
}

impl Net {
    pub(crate) fn new(
        source: Arc<dyn WeightSource>,
        options: ModelOptions,
        method: &str,
    ) -> Result<Net, ModelError> {
        let mut graph = Graph { name: method.to_owned(), ..Graph::default() };
        let longest = options.longest_input().map(i64::from);
        let length = Dim::symbol(graph.symbols.add("T", 1, longest));
        let tokens = TensorType { dtype: DType::I64, shape: vec![Dim::known(1), length.clone()] };
        let tokens = graph.add_input("tokens", Type::Tensor(tokens));
        let (input_pos, start) = match options.position {
            Position::Tensor => {
                let one = Type::Tensor(TensorType::known(DType::I64, &[1]));
                (Some(graph.add_input("input_pos", one)), None)
            }
            Position::Number => {
                let number = graph.symbols.add("P", 0, Some(options.context as i64 - 1));
                (None, Some(graph.add_input("input_pos", Type::Int(Dim::symbol(number)))))
            }
            Position::Each => {
                let each = Type::Tensor(TensorType { dtype: DType::I64, shape: vec![length] });
                (Some(graph.add_input("input_pos", each)), None)
            }
        };
        let picks = (options.logits == Logits::Selected).then(|| {
            let rows = Dim::symbol(graph.symbols.add("R", 1, longest));
            let rows = TensorType { dtype: DType::I64, shape: vec![rows] };
            graph.add_input("logits_to_keep", Type::Tensor(rows))
        });
        let mut net = Net {
            builder: Builder::new(graph),
            source,
            options,
            place: "inputs".to_owned(),
            constants: HashMap::new(),
            stored: Vec::new(),
            derived: Vec::new(),
            load: None,
            made: Vec::new(),
            tokens,
            input_pos,
            start,
            length: tokens,
            end: None,
            picks,
            caches: Vec::new(),
            rings: HashMap::new(),
            periods: HashMap::new(),
            shared_values: HashMap::new(),
            text_length: None,
            borders: Vec::new(),
            is_recurrent: false,
            kinds: None,
            shift: None,
            axes: None,
            column: None,
        };
        net.length = net.op(Op::SymSize { a: tokens, dim: 1 })?;
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

    /// The kinds of tokens, `[1, T]`, where the method is told them.
    pub(crate) fn kinds(&self) -> Option<ValueId> {
        self.kinds
    }

    /// Lets the runner say what is added to positions before tokens turn by them.
    pub(crate) fn shift_positions(&mut self) {
        let ty = TensorType::known(DType::I64, &[1]);
        self.shift = Some(self.builder.graph_mut().add_buffer(POSITION_SHIFT, ty));
    }

    /// The position that the first token turns by; where each token has one, those of all of them.
    pub(crate) fn turning_position(&mut self) -> Result<ValueId, ModelError> {
        let position = self.input_pos()?;
        match self.shift {
            Some(shift) => self.once("shifted position", |net| net.add(position, shift)),
            None => Ok(position),
        }
    }

    /// Positions along several axes, and the axis by which each pair turns, where rows have them.
    pub(crate) fn axes(&self) -> Option<&(ValueId, Vec<usize>)> {
        self.axes.as_ref()
    }

    /// What ops over the session's cache are told of where the tokens are: the position of the first, or, where tokens see
    /// those behind them, also of the last.
    pub(crate) fn cache_position(&mut self, slides: bool) -> Result<ValueId, ModelError> {
        match self.column {
            Some((column, ahead)) if slides || ahead == Ahead::Everywhere => Ok(column),
            _ => self.input_pos(),
        }
    }

    /// Whether each token has a position of its own, so that there is no first one of a text.
    pub fn has_each_position(&self) -> bool {
        self.options.position == Position::Each
    }

    /// The position of the first token, as a tensor of one element; where each token has one, those of all of them.
    pub fn input_pos(&mut self) -> Result<ValueId, ModelError> {
        if let Some(input_pos) = self.input_pos {
            return Ok(input_pos);
        }
        let v = FloatArg::Value(self.start()?);
        let input_pos = self.op(Op::Full { shape: vec![literal(1)], v, scalar_type: DType::I64 })?;
        Ok(*self.input_pos.insert(input_pos))
    }

    /// How many tokens there are.
    pub fn length(&self) -> ValueId {
        self.length
    }

    /// The position of the first token, as a number.
    pub fn start(&mut self) -> Result<ValueId, ModelError> {
        if let Some(start) = self.start {
            return Ok(start);
        }
        if self.has_each_position() {
            let problem =
                "the model asks where its input begins, and tokens of several texts begin in several places";
            return Err(ModelError::configuration(problem));
        }
        let x = self.input_pos()?;
        let start = self.op(Op::ItemInt { x })?;
        Ok(*self.start.insert(start))
    }

    /// The position after the last token, as a number.
    pub fn end(&mut self) -> Result<ValueId, ModelError> {
        if let Some(end) = self.end {
            return Ok(end);
        }
        let start = self.start()?;
        let end = self.add_int(value(start), value(self.length))?;
        Ok(*self.end.insert(end))
    }

    /// The rows of `[1, T, ...]` whose logits the method gives: `[1, ...]` of the last one, else `[1, rows, ...]`.
    pub fn wanted_rows(&mut self, x: ValueId) -> Result<ValueId, ModelError> {
        match (self.options.logits, self.picks) {
            (Logits::All, _) => Ok(x),
            (Logits::Selected, Some(picks)) => self.take_rows(x, picks),
            (Logits::Last | Logits::Selected, _) => self.pick(x, -1, 1),
        }
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

    /// Appends an op that gives two values.
    pub(crate) fn pair(&mut self, op: Op<Ssa>) -> Result<[ValueId; 2], ModelError> {
        let name = op.spec().text;
        let rule = |source| ModelError::Rule { place: self.place.clone(), op: name, source };
        let results = self.builder.append(op, None).map_err(rule)?;
        let other = || ModelError::configuration(format!("{name} does not give two values"));
        <[ValueId; 2]>::try_from(results.to_vec()).map_err(|_| other())
    }

    /// A loop over the tokens of `[1, T, ...]`: `step` is given the slices of one token and what is carried to it, and gives what comes out and
    /// what is carried on. What came out of all tokens, and what was carried last.
    pub(crate) fn scan(
        &mut self,
        originals: Vec<ValueId>,
        carried: ValueId,
        step: impl FnOnce(&mut Net, &[ValueId], ValueId) -> Result<[ValueId; 2], ModelError>,
    ) -> Result<[ValueId; 2], ModelError> {
        let mut params = Vec::new();
        for &value in originals.iter().chain([&carried]) {
            let ty = self.builder.graph().ty(value).cloned();
            let mut ty = ty.ok_or_else(|| ModelError::configuration("a loop over nothing"))?;
            if let (Type::Tensor(ty), true) = (&mut ty, params.len() < originals.len()) {
                ty.shape.remove(1);
            }
            params.push(ty);
        }
        let params = self.builder.open_block(params);
        let (&state, slices) =
            params.split_last().ok_or_else(|| ModelError::configuration("an empty loop"))?;
        let given = step(self, slices, state);
        let results = given.as_ref().map(|given| given.to_vec()).unwrap_or_default();
        let body_chain_idx = self.builder.close_block(results);
        given?;
        self.pair(Op::Scan { originals, sliced: (), carry: vec![carried], body_chain_idx, scan_axis: 1 })
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

    /// A constant that the load-time graph makes, once however often it is asked for.
    pub(crate) fn at_load(
        &mut self,
        name: &str,
        ty: TensorType,
        make: impl FnOnce(&mut Net) -> Result<ValueId, ModelError>,
    ) -> Result<ValueId, ModelError> {
        if let Some(&known) = self.constants.get(name) {
            return Ok(known);
        }
        let mut load = match self.load.take() {
            Some(load) => load,
            None => Box::new(Net::part(self.source.clone(), self.options.clone(), "init")?),
        };
        load.place.clone_from(&self.place);
        let made = make(&mut load);
        self.load = Some(load);
        let output = Output { name: name.to_owned(), value: made?, ty: Type::Tensor(ty.clone()) };
        self.made.push(output);
        let constant = self.builder.graph_mut().add_constant(name, ty);
        self.constants.insert(name.to_owned(), constant);
        Ok(constant)
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
        self.source.form(Wanted::new(name, shape))?;
        let recipe = || Recipe::Floats { name: name.to_owned(), shape: shape.to_vec(), dtype, plus };
        Ok(self.constant(name, TensorType::known(dtype, shape), recipe))
    }

    /// The same as a constant of another shape, in the order in which the source has it.
    pub(crate) fn floats_as(
        &mut self,
        name: &str,
        shape: &[usize],
        stored: &[usize],
        dtype: DType,
    ) -> Result<ValueId, ModelError> {
        self.source.form(Wanted::new(name, shape))?;
        let recipe = || Recipe::Floats { name: name.to_owned(), shape: shape.to_vec(), dtype, plus: 0.0 };
        Ok(self.constant(name, TensorType::known(dtype, stored), recipe))
    }

    /// What `make` makes, once for all layers that ask for it by that name.
    pub(crate) fn once(
        &mut self,
        name: &str,
        make: impl FnOnce(&mut Net) -> Result<ValueId, ModelError>,
    ) -> Result<ValueId, ModelError> {
        if let Some(&known) = self.shared_values.get(name) {
            return Ok(known);
        }
        let made = make(self)?;
        self.shared_values.insert(name.to_owned(), made);
        Ok(made)
    }

    /// State that a session keeps, zeros at first.
    pub fn buffer(&mut self, name: &str, dtype: DType, shape: &[usize]) -> ValueId {
        self.builder.graph_mut().add_buffer(name, TensorType::known(dtype, shape))
    }

    /// State that is made of all tokens so far, zeros at first: what it holds before the call, and the buffer, whose update is the
    /// caller's to say. It cannot be cut back to an earlier position.
    pub(crate) fn state(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[usize],
    ) -> Result<(ValueId, ValueId), ModelError> {
        if self.has_each_position() {
            let problem = "the model keeps a state of all tokens so far, so that those of several texts cannot share an input";
            return Err(ModelError::configuration(problem));
        }
        self.is_recurrent = true;
        let buffer = self.buffer(name, dtype, shape);
        let Position::Tensor = self.options.position else { return Ok((buffer, buffer)) };
        // ExecuTorch's runners begin a text anew by its position alone.
        let position = self.input_pos()?;
        let zero = self.scalar(0.0, DType::I64);
        let goes_on = self.op(Op::Greater { a: position, b: zero })?;
        let nothing = self.scalar(0.0, dtype);
        Ok((self.op(Op::Where { condition: goes_on, x: buffer, y: nothing })?, buffer))
    }

    /// How long the text is that the inputs are parts of, as far as the runner has said it; for what changes beyond a
    /// border. Each graph has its own, since nothing of it is carried from run to run.
    pub(crate) fn text_length(&mut self, border: usize) -> ValueId {
        if !self.borders.contains(&border) {
            self.borders.push(border);
        }
        let graph = self.builder.graph_mut();
        let ty = TensorType::known(DType::I64, &[1]);
        *self.text_length.get_or_insert_with(|| graph.add_buffer(TEXT_LENGTH, ty))
    }

    /// What a buffer holds after the run.
    pub fn update(&mut self, buffer: ValueId, update: ValueId) {
        let buffers = &mut self.builder.graph_mut().buffers;
        if let Some(entry) = buffers.iter_mut().find(|entry| entry.value == buffer) {
            entry.update = update;
        }
    }

    /// One more cache of the session for keys and values; its number.
    pub(crate) fn session_cache(&mut self, layer: CacheLayer) -> i32 {
        self.caches.push(layer);
        self.caches.len() as i32 - 1
    }

    /// The whole model as a module, with that value as its output.
    pub(crate) fn finish(self, logits: ValueId) -> Result<Built, ModelError> {
        self.finish_with(vec![("logits".to_owned(), logits)])
    }

    /// The same with outputs by name.
    pub(crate) fn finish_with(mut self, outputs: Vec<(String, ValueId)>) -> Result<Built, ModelError> {
        let init = self.load_time_graph()?;
        let mut main = self.builder.finish();
        for (name, value) in outputs {
            let nothing = || ModelError::configuration("the model gives nothing");
            let ty = main.ty(value).cloned().ok_or_else(nothing)?;
            main.outputs.push(Output { name, value, ty });
        }
        let module = Module { init, main };
        let Net { stored, caches, borders, is_recurrent, .. } = self;
        Ok(Built { module, stored, caches, borders, is_recurrent })
    }

    fn load_time_graph(&mut self) -> Result<Option<Graph>, ModelError> {
        let (mut init, mut factors) = match self.load.take() {
            Some(load) => {
                self.stored.extend(load.stored);
                (load.builder, load.constants)
            }
            None if self.derived.is_empty() => return Ok(None),
            None => (Builder::new(Graph::default()), HashMap::new()),
        };
        init.graph_mut().name = format!("{}.init", self.builder.graph().name);
        init.graph_mut().outputs.append(&mut self.made);
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
