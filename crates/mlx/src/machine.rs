//! Walks a graph and builds MLX's lazy one: the type rule with the numbers at hand, then the op's lowering. Nothing is
//! computed on the way but what an op must read back to go on. Values are dropped after their last use, so that MLX
//! may reuse their memory. The same walk serves a run and the trace of a compiled function.

use crate::cache::Cache;
use crate::calls::{Call, Mlx};
use crate::compiled::{PieceId, Replays};
use crate::error::{MlxError, invalid};
use crate::ffi::Array;
use crate::known::{Known, Verdict};
use crate::lower::{self, Guard, Operands, TakenIndices};
use crate::numbers;
use crate::pieces::Piece;
use crate::values::{ArrayType, Datum, Held, Kept, Tensor, Values};
use pteron_format::Limits;
use pteron_ir::op::{IntArg, ResultKind};
use pteron_ir::text::Printer;
use pteron_ir::{Block, Graph, Node, Op, Symbols, Type, TypeSource, ValueId, infer};
use pteron_runtime::backend::{GraphId, RunControl, Step};
use pteron_runtime::reference::{BlockLife, extent, work};
use pteron_runtime::{Error, KernelError, NodeError, Result, Value};

/// What ops change besides their results.
#[derive(Clone, Debug)]
pub(crate) struct Effects<A = Held> {
    /// The off-graph cache, where the session has one.
    pub(crate) cache: Option<Cache<A>>,
    /// The key of the random generator.
    pub(crate) key: A,
}

impl<A> Effects<A> {
    /// The same with other holders of the arrays.
    pub(crate) fn map<B>(
        self,
        to: &mut impl FnMut(A) -> Result<B, MlxError>,
    ) -> Result<Effects<B>, MlxError> {
        Ok(Effects { cache: self.cache.map(|cache| cache.map(to)).transpose()?, key: to(self.key)? })
    }
}

/// What a walk needs besides its arguments.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) mlx: Mlx,
    pub(crate) id: GraphId,
    pub(crate) graph: &'a Graph,
    pub(crate) life: &'a BlockLife,
    pub(crate) limits: &'a Limits,
    pub(crate) control: &'a RunControl,
    /// Bytes that others hold.
    pub(crate) elsewhere: u64,
    pub(crate) way: Way<'a>,
}

/// How a graph is gone through.
#[derive(Clone, Copy)]
pub(crate) enum Way<'a> {
    /// While MLX traces: nothing can be read back.
    Traced,
    /// Node by node.
    Walked,
    /// By compiled pieces where there are some.
    Replayed(Replays<'a>),
}

impl<'a> Context<'a> {
    pub(crate) fn is_traced(&self) -> bool {
        matches!(self.way, Way::Traced)
    }

    fn replays(&self) -> Option<Replays<'a>> {
        match self.way {
            Way::Replayed(replays) => Some(replays),
            Way::Traced | Way::Walked => None,
        }
    }
}

/// What a walk gives; all of it is yet to be computed.
pub(crate) struct Walked {
    /// In the dtypes that the file declares.
    pub(crate) outputs: Vec<Datum>,
    /// What the buffers hold afterwards.
    pub(crate) updates: Vec<Tensor>,
    pub(crate) guards: Vec<Guarded>,
}

/// What guards have found, and the nodes that set them up.
pub(crate) struct Guarded {
    /// As many numbers as there are notes.
    pub(crate) found: Array,
    pub(crate) notes: Vec<Note>,
}

/// What is wrong with a node, for when its guard has found something.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    op: String,
    place: String,
    operands: String,
    problem: String,
    /// What its guard looks at, where that is what a compiled piece takes.
    taken: Option<TakenIndices>,
}

impl Note {
    /// What the host knows of what the guard looks at.
    fn verdict(&self, taken: &[Datum]) -> Verdict {
        let indices = self.taken.and_then(|indices| {
            let known = taken.get(indices.number)?.as_tensor()?.known.as_ref()?;
            Some(known.verdict(indices.least, indices.most))
        });
        indices.unwrap_or(Verdict::Unknown)
    }

    /// The error, with the number that was found.
    pub(crate) fn error(self, found: i64) -> Error {
        let problem = self.problem.replace("{}", &found.to_string());
        let source = Box::new(NodeError::Kernel(KernelError::Invalid(problem)));
        Error::Node { op: self.op, place: self.place, operands: self.operands, source }
    }
}

/// Walks a graph.
pub(crate) fn walk(
    context: Context<'_>,
    constants: &[Kept],
    inputs: Vec<Datum>,
    buffers: Vec<Tensor>,
    effects: &mut Effects,
) -> Result<Walked> {
    let graph = context.graph;
    let mut machine = Machine::new(context, effects);
    for (constant, tensor) in graph.constants.iter().zip(constants) {
        machine.values.set(constant.value, Datum::Tensor(tensor.clone().enter()?));
    }
    for (input, datum) in graph.inputs.iter().zip(inputs) {
        machine.values.set(input.value, datum);
    }
    let types: Vec<_> = buffers.iter().map(|tensor| tensor.ty.clone()).collect();
    for (buffer, tensor) in graph.buffers.iter().zip(buffers) {
        machine.values.set(buffer.value, Datum::Tensor(tensor));
    }
    machine.body()?;
    let outputs = graph.outputs.iter().map(|output| machine.output(output.value, &output.ty));
    let outputs = outputs.collect::<Result<_>>()?;
    let updates = graph.buffers.iter().map(|buffer| Ok(machine.values.tensor(buffer.update)?.clone()));
    let updates = updates.collect::<Result<Vec<Tensor>>>()?;
    for ((update, ty), buffer) in updates.iter().zip(&types).zip(&graph.buffers) {
        if update.ty != *ty {
            let (name, written) = (&buffer.name, &update.ty);
            return Err(Error::Invalid(format!(
                "buffer `{name}` holds {ty}, but {written} is written to it"
            )));
        }
    }
    Ok(Walked { outputs, updates, guards: machine.guards })
}

/// Walks the nodes of a piece: what it gives, and its guards.
pub(crate) fn walk_piece(
    context: Context<'_>,
    piece: &Piece,
    taken: Vec<Datum>,
    effects: &mut Effects,
) -> Result<(Vec<Datum>, Vec<Guarded>)> {
    let mut machine = Machine::new(context, effects);
    for (&value, datum) in piece.takes.iter().zip(taken) {
        machine.values.set(value, datum);
    }
    for index in piece.nodes.clone() {
        machine.step(&context.graph.body, context.life, index)?;
    }
    let gives = piece.gives.iter().map(|&value| Ok(machine.values.get(value)?.clone()));
    let gives = gives.collect::<Result<_>>()?;
    Ok((gives, machine.guards))
}

pub(crate) struct Machine<'a> {
    pub(crate) context: Context<'a>,
    pub(crate) effects: &'a mut Effects,
    pub(crate) values: Values,
    guards: Vec<Guarded>,
    /// By value: the bytes that it counts for.
    held: Vec<u64>,
    live: u64,
}

impl<'a> Machine<'a> {
    fn new(context: Context<'a>, effects: &'a mut Effects) -> Machine<'a> {
        let count = context.graph.values.len();
        let live = context.elsewhere.saturating_add(context.control.held);
        let values = Values::new(count);
        Machine { context, effects, values, guards: Vec::new(), held: vec![0; count], live }
    }

    /// The whole graph: compiled pieces where there are, nodes elsewhere.
    fn body(&mut self) -> Result<()> {
        let Context { graph, life, id, .. } = self.context;
        let pieces = self.context.replays().map_or(&[][..], |replays| replays.set.pieces(id));
        let (mut at, mut number) = (0, 0);
        while at < graph.body.nodes.len() {
            while pieces.get(number).is_some_and(|piece| piece.nodes.start < at) {
                number += 1;
            }
            match pieces.get(number).filter(|piece| piece.nodes.start == at) {
                Some(piece) if self.replay(PieceId { graph: id, number }, piece)? => at = piece.nodes.end,
                _ => {
                    self.step(&graph.body, life, at)?;
                    at += 1;
                }
            }
        }
        Ok(())
    }

    /// Runs a piece by its compiled function; whether there was one.
    fn replay(&mut self, id: PieceId, piece: &'a Piece) -> Result<bool> {
        let Some(replays) = self.context.replays() else { return Ok(false) };
        self.context.control.check()?;
        let taken = piece.takes.iter().map(|&value| Ok(self.values.get(value)?.clone()));
        let taken = taken.collect::<Result<Vec<Datum>>>()?;
        let Some(replayed) = replays.run(id, piece, &taken, &self.effects.key)? else { return Ok(false) };
        self.effects.key = replayed.key.into();
        if let Some((found, notes)) = replayed.guards {
            let verdicts = notes.iter().map(|note| note.verdict(&taken));
            let wrong = notes.iter().zip(verdicts.clone()).find_map(|(note, verdict)| match verdict {
                Verdict::Outside(number) => Some((note.clone(), number)),
                Verdict::Inside | Verdict::Unknown => None,
            });
            if let Some((note, number)) = wrong {
                return Err(note.error(number));
            }
            if verdicts.into_iter().any(|verdict| verdict == Verdict::Unknown) {
                self.guards.push(Guarded { found, notes });
            }
        }
        drop(taken);
        for (&value, datum) in piece.gives.iter().zip(replayed.gives) {
            self.set(value, datum, true);
        }
        let life = self.context.life;
        life.dying[piece.nodes.clone()].iter().flatten().for_each(|&value| self.release(value));
        Ok(true)
    }

    /// An output in the dtype that the file declares: argmax gives u32 and is declared i64.
    fn output(&self, value: ValueId, declared: &Type) -> Result<Datum> {
        let datum = self.values.get(value)?.clone();
        let (Type::Tensor(declared), Datum::Tensor(tensor)) = (declared, &datum) else { return Ok(datum) };
        if tensor.ty.dtype == declared.dtype {
            return Ok(datum);
        }
        let ty = ArrayType { dtype: declared.dtype, shape: tensor.ty.shape.clone() };
        let mut operands = Operands {
            mlx: self.context.mlx,
            values: &self.values,
            results: std::slice::from_ref(&ty),
            guards: &mut Vec::new(),
        };
        let op = Op::AsType { x: value, scalar_type: declared.dtype };
        let array = lower::lower(&op, &mut operands)?.pop().ok_or(MlxError::DType)?;
        Ok(Datum::Tensor(Tensor::new(array, ty)))
    }

    /// Sets a result and counts its memory; views of others count for nothing.
    fn set(&mut self, value: ValueId, datum: Datum, counts: bool) {
        self.release(value);
        if let (Datum::Tensor(tensor), true) = (&datum, counts) {
            let bytes = tensor.bytes();
            self.held[value.0 as usize] = bytes;
            self.live = self.live.saturating_add(bytes);
        }
        self.values.set(value, datum);
    }

    pub(crate) fn release(&mut self, value: ValueId) {
        if let Some(bytes) = self.held.get_mut(value.0 as usize) {
            self.live -= std::mem::take(bytes);
        }
        self.values.clear(value);
    }

    /// Sets what a nested block takes.
    pub(crate) fn set_param(&mut self, value: ValueId, datum: Datum) {
        self.set(value, datum, false);
    }

    pub(crate) fn block(&mut self, block: &'a Block, life: &'a BlockLife) -> Result<()> {
        (0..block.nodes.len()).try_for_each(|index| self.step(block, life, index))
    }

    /// One node of a block.
    fn step(&mut self, block: &'a Block, life: &'a BlockLife, index: usize) -> Result<()> {
        let node = &block.nodes[index];
        self.context.control.check()?;
        let results = match &node.op {
            Op::If { .. } => self.branch(node, &life.nested[index]),
            Op::Scan { .. } => self.scan(node, &life.nested[index]),
            _ => self.node(node),
        };
        let results = results.map_err(|error| self.at_node(node, error))?;
        self.trace(node, &results)?;
        let counts = !is_view(&node.op);
        for (&value, datum) in node.results.iter().zip(results) {
            self.set(value, datum, counts);
        }
        life.dying[index].iter().for_each(|&value| self.release(value));
        Ok(())
    }

    /// An op that only computes, or computes with an effect.
    fn node(&mut self, node: &Node) -> Result<Vec<Datum>, NodeError> {
        let types = infer(&node.op, &self.values, &mut Symbols::default())?;
        if node.op.spec().result.kind == ResultKind::Scalar {
            let number = numbers::compute(&node.op, &self.values).map_err(refused)?;
            return Ok(vec![Datum::Scalar(number)]);
        }
        let types = types.into_iter().map(array_type).collect::<Result<Vec<_>, _>>().map_err(refused)?;
        self.admit(node, &types).map_err(|error| NodeError::Run(Box::new(error)))?;
        let mut guards = Vec::new();
        let arrays = self.compute(node, &types, &mut guards).map_err(refused)?;
        for Guard { found, problem, taken } in guards {
            let notes = vec![Note { taken, ..self.note(node, problem) }];
            self.guards.push(Guarded { found, notes });
        }
        let number = |value| self.values.int(&IntArg::Value(value)).ok();
        let known = Known::after(&node.op, |value| self.values.tensor(value).ok(), number);
        let tensors = arrays
            .into_iter()
            .zip(types)
            .map(|(array, ty)| Datum::Tensor(Tensor::new(array, ty).with_known(known.clone())));
        Ok(tensors.collect())
    }

    fn compute(
        &mut self,
        node: &Node,
        types: &[ArrayType],
        guards: &mut Vec<Guard>,
    ) -> Result<Vec<Array>, MlxError> {
        let mlx = self.context.mlx;
        let mut operands = Operands { mlx, values: &self.values, results: types, guards };
        match &node.op {
            Op::RandomBits { seed: None, width, .. } => {
                let (kept, bits) = lower::draw(&operands, &self.effects.key, *width)?;
                self.effects.key = kept.into();
                Ok(vec![bits])
            }
            Op::UpdateAndAttend { q, k, v, position, layer_id, scale, .. } => {
                let (Some(layer), Some(scale)) = (layer_id, scale) else {
                    return invalid("the node has no layer or no scale");
                };
                let layer =
                    usize::try_from(*layer).map_err(|_| MlxError::Invalid("the layer is negative".into()))?;
                let tensor = |value: ValueId| self.values.tensor(value);
                if tensor(*position)?.ty.shape.as_slice() == [2, 1] {
                    return invalid(
                        "tokens that see those behind them (images) are read by the cpu backend alone",
                    );
                }
                let start = numbers::first(tensor(*position)?)?;
                let Some(cache) = &mut self.effects.cache else {
                    return invalid(
                        "the program keeps keys and values in a cache of the session, and its metadata do not say \
                         how long that is: open the session with a context or a cache",
                    );
                };
                let operands = [tensor(*q)?, tensor(*k)?, tensor(*v)?];
                Ok(vec![cache.update_and_attend(&mlx, layer, start, operands, *scale, &types[0])?])
            }
            op => lower::lower(op, &mut operands),
        }
    }

    /// Checks memory and work before anything is made.
    fn admit(&self, node: &Node, results: &[ArrayType]) -> Result<()> {
        let written = results.iter().fold(0u64, |sum, ty| sum.saturating_add(extent(&ty.shape)));
        let shape_of = |value: ValueId| match self.values.tensor(value) {
            Ok(tensor) => tensor.ty.shape.as_slice(),
            Err(_) => &[],
        };
        self.context.control.charge(work(node, &shape_of, written).saturating_add(1))?;
        let limit = |what, limit, found, allowed| Err(Error::Limit { what, limit, found, allowed });
        let (mut together, limits) = (self.live, self.context.limits);
        for ty in results {
            let bytes = extent(&ty.shape).saturating_mul(ty.dtype.size() as u64);
            if bytes > limits.tensor_bytes {
                return limit("a result", "tensor_bytes", bytes, limits.tensor_bytes);
            }
            together = together.saturating_add(bytes);
        }
        if together > limits.live_bytes && !is_view(&node.op) {
            return limit("the memory of a run", "live_bytes", together, limits.live_bytes);
        }
        Ok(())
    }

    /// Tells a listener of a node; that computes its results.
    fn trace(&self, node: &Node, results: &[Datum]) -> Result<()> {
        let Some(trace) = &self.context.control.trace else { return Ok(()) };
        let results = results.iter().map(|datum| match datum {
            Datum::Tensor(tensor) => Ok(Value::Tensor(tensor.array.to_host()?)),
            Datum::Scalar(scalar) => Ok(numbers::to_value(*scalar)),
        });
        let results = results.collect::<Result<Vec<Value>, MlxError>>()?;
        trace.step(&Step { graph: self.context.id, op: &node.op, place: node.place, results: &results });
        Ok(())
    }

    /// Adds the op, its place and its operands; errors from inside a nested block have theirs already.
    fn at_node(&self, node: &Node, source: NodeError) -> Error {
        let source = match source {
            NodeError::Run(inner) => match *inner {
                error @ (Error::Node { .. } | Error::Cancelled | Error::Deadline) => return error,
                other => NodeError::Run(Box::new(other)),
            },
            other => other,
        };
        let Note { op, place, operands, .. } = self.note(node, String::new());
        Error::Node { op, place, operands, source: Box::new(source) }
    }

    fn note(&self, node: &Node, problem: String) -> Note {
        let mut operands = Vec::new();
        node.for_each_operand(|value| {
            operands.push(match self.values.type_of(value) {
                Some(Type::Tensor(tensor)) => {
                    format!("%{} {} {:?}", value.0, tensor.dtype, tensor.known_shape().unwrap_or_default())
                }
                Some(Type::Int(dim)) => format!("%{} = {}", value.0, dim.as_known().unwrap_or_default()),
                Some(_) => format!("%{}", value.0),
                None => format!("%{} unset", value.0),
            });
        });
        let operands = if operands.is_empty() { "nothing".to_owned() } else { operands.join(", ") };
        let op = Printer::new(self.context.graph).node(node).to_string();
        let place = match node.place {
            Some(place) => format!("chain {} #{}", place.chain, place.index),
            None => "made by lift".to_owned(),
        };
        Note { op, place, operands, problem, taken: None }
    }
}

/// Whether results share their operand's memory.
pub(crate) fn is_view(op: &Op<pteron_ir::Ssa>) -> bool {
    matches!(
        op,
        Op::IdCopy { .. }
            | Op::Contiguous { .. }
            | Op::Reshape { .. }
            | Op::Squeeze { .. }
            | Op::ExpandDims { .. }
            | Op::Transpose { .. }
    )
}

fn array_type(ty: Type) -> Result<ArrayType, MlxError> {
    match ty {
        Type::Tensor(tensor) => match tensor.known_shape() {
            Some(shape) => Ok(ArrayType { dtype: tensor.dtype, shape }),
            None => invalid("the size of a result is not known"),
        },
        _ => invalid("a number where a tensor is given"),
    }
}

pub(crate) fn refused(error: MlxError) -> NodeError {
    NodeError::Kernel(KernelError::Invalid(error.to_string()))
}

/// What all guards have found, as one array; `None` where there is none.
pub(crate) fn joined(mlx: &Mlx, guards: &[Guarded]) -> Result<Option<Array>, MlxError> {
    if guards.is_empty() {
        return Ok(None);
    }
    let flat = guards.iter().map(|guard| {
        let count = guard.notes.len() as i64;
        mlx.one(Call::Reshape, &[&guard.found], &[count])
    });
    let flat = flat.collect::<Result<Vec<Array>, _>>()?;
    mlx.one(Call::Concatenate, &flat.iter().collect::<Vec<_>>(), &[0]).map(Some)
}
