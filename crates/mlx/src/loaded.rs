//! A program inside this backend: its constants as MLX arrays, its compiled functions, and the running of its graphs.
//!
//! A run builds a lazy graph, on the caller's thread and stream, and hands it over: outputs and new state are on their way
//! when `submit` returns, and only what was handed over is kept ([`Kept`]), so a session may move to another thread. What
//! indices the host does not know is computed and looked at first, while nothing has been changed yet. A run that ends
//! otherwise, by an error or a panic of a listener, leaves the state as it was at the last commit.

use crate::calls::Mlx;
use crate::compiled::{Compile, Compiled, PieceId, Replays};
use crate::constants::Constants;
use crate::device::DeviceArray;
use crate::error::MlxError;
use crate::ffi::{Flight, Shared, Submitted};
use crate::known::Known;
use crate::lower::Guard;
use crate::machine::{Context, Effects, Guarded, Way, joined, walk};
use crate::numbers::to_value;
use crate::pieces::{Piece, Pieces};
use crate::state::{Contents, MlxState, known};
use crate::values::{ArrayType, Datum, Held, Kept, Tensor};
use pteron_format::Limits;
use pteron_runtime::backend::{
    Call, GraphId, Late, LoadOptions, Loaded, MemoryReport, ProgramGraphs, RunControl, State, StateOptions,
    Ticket,
};
use pteron_runtime::reference::{BlockLife, check_arguments};
use pteron_runtime::{Error, Result, Value, VerifiedProgram};
use std::sync::Arc;

/// The graphs of a program and what every walk over them needs.
pub(crate) struct GraphSet {
    pub(crate) mlx: Mlx,
    pub(crate) graphs: Arc<ProgramGraphs>,
    lives: Vec<BlockLife>,
    /// By graph: what can be compiled of it.
    pieces: Vec<Pieces>,
    limits: Limits,
}

impl GraphSet {
    /// What a walk of one graph needs.
    pub(crate) fn context<'a>(
        &'a self,
        id: GraphId,
        control: &'a RunControl,
        elsewhere: u64,
        way: Way<'a>,
    ) -> Context<'a> {
        Context {
            mlx: self.mlx,
            id,
            graph: &self.graphs.graphs[id.0].module.main,
            life: &self.lives[id.0],
            limits: &self.limits,
            control,
            elsewhere,
            way,
        }
    }

    /// The pieces of a graph that can be compiled.
    pub(crate) fn pieces(&self, id: GraphId) -> &[Piece] {
        &self.pieces[id.0].pieces
    }

    /// One of them.
    pub(crate) fn piece(&self, id: PieceId) -> &Piece {
        &self.pieces(id.graph)[id.number]
    }

    /// The method that a graph belongs to.
    pub(crate) fn method(&self, id: GraphId) -> &str {
        &self.graphs.graphs[id.0].method
    }
}

/// A program that runs on MLX.
pub(crate) struct LoadedMlx {
    set: Arc<GraphSet>,
    /// By graph, in the graph's order.
    constants: Vec<Vec<Kept>>,
    compile: Compile,
    compiled: Compiled,
    mapped_bytes: u64,
    copied_bytes: u64,
}

impl LoadedMlx {
    pub(crate) fn new(
        mlx: Mlx,
        compile: Compile,
        program: &VerifiedProgram,
        options: &LoadOptions,
    ) -> Result<LoadedMlx> {
        let graphs = program.graphs().clone().expanded()?;
        let weights = program.weights();
        let mut arrays = Constants::new(mlx, options.mode);
        let mut constants = Vec::with_capacity(graphs.graphs.len());
        for (index, graph) in graphs.graphs.iter().enumerate() {
            let refused = |name: &str, problem: String| Error::Constant {
                file: graphs.file.clone(),
                method: graph.method.clone(),
                name: name.to_owned(),
                problem,
            };
            let made = graph.module.main.constants.iter().map(|constant| {
                let tensor = weights.get(GraphId(index), &constant.name);
                let tensor = tensor.ok_or_else(|| refused(&constant.name, "no data".into()))?;
                arrays.add(tensor).map_err(|error| refused(&constant.name, error.to_string()))
            });
            constants.push(made.collect::<Result<Vec<_>>>()?);
        }
        let lives: Vec<_> = graphs.graphs.iter().map(|graph| BlockLife::of(&graph.module.main)).collect();
        let pieces = compilable(&mlx, compile, &graphs, &lives);
        let set = Arc::new(GraphSet { mlx, graphs, lives, pieces, limits: options.limits.clone() });
        let (mapped_bytes, copied_bytes) = (arrays.mapped_bytes, arrays.copied_bytes);
        tracing::info!(mapped_bytes, copied_bytes, mode = ?options.mode, "constants are with MLX");
        let compiled = Compiled::default();
        Ok(LoadedMlx { set, constants, compile, compiled, mapped_bytes, copied_bytes })
    }

    /// Runs one graph over a state as far as that needs no wait, and says what is under way then.
    fn hand_over(
        &self,
        id: GraphId,
        state: &mut MlxState,
        inputs: &[Value],
        control: &RunControl,
    ) -> Result<Submitted<Vec<Value>>> {
        let Some(graph) = self.set.graphs.graphs.get(id.0) else {
            return Err(Error::Invalid(format!("there is no graph {}", id.0)));
        };
        check_arguments(&graph.module.main, inputs)?;
        control.check()?;
        let mlx = self.set.mlx;
        let contents = state.begin()?;
        let mut before: Vec<Arc<Flight>> = contents.flight.iter().cloned().collect();
        before.extend(inputs.iter().filter_map(flight_of));
        before.iter().try_for_each(|flight| flight.hold_back())?;
        let inputs = inputs.iter().map(|value| argument(&mlx, value)).collect::<Result<Vec<_>>>()?;
        // A listener wants to hear of every node.
        let way = match control.trace {
            Some(_) => Way::Walked,
            None => Way::Replayed(Replays { set: &self.set, compiled: &self.compiled, when: self.compile }),
        };
        let context = self.set.context(id, control, contents.bytes_outside(id), way);
        let Contents { mut buffers, effects, flight: earlier } = contents;
        let held = std::mem::take(&mut buffers[id.0]).into_iter().map(Kept::enter);
        let held = held.collect::<Result<_, _>>()?;
        let mut effects = effects.map(&mut Held::enter)?;
        let walked = walk(context, &self.constants[id.0], inputs, held, &mut effects)?;
        check_guards(&mlx, walked.guards)?;
        control.check()?;
        if control.last {
            state.give_up();
        }
        let left = Left { outputs: walked.outputs, updates: walked.updates, effects };
        let (left, flight) = left.handed_over(&mlx, before).map_err(|error| {
            Error::Invalid(format!("method `{}`, delegate {}: {error}", graph.method, graph.delegate))
        })?;
        buffers[id.0] = left.updates;
        state.finish(Contents { buffers, effects: left.effects, flight: flight.clone().or(earlier) });
        Ok((left.outputs.into_iter().map(|datum| to_value_of(mlx, datum)).collect(), flight))
    }

    /// One lane; what it leaves under way.
    fn submit_one(&self, graph: GraphId, call: &mut Call<'_>) -> Result<Option<Arc<Flight>>> {
        let state = call.state.as_any_mut().downcast_mut::<MlxState>();
        let state = state.filter(|state| state.is_of(&self.set.graphs)).ok_or(Error::ForeignState)?;
        call.outputs.clear();
        let mut attempt = Attempt { state, succeeded: false };
        let (outputs, flight) = self.hand_over(graph, attempt.state, call.inputs, call.control)?;
        *call.outputs = outputs;
        attempt.succeeded = true;
        Ok(flight)
    }
}

/// What lanes have under way.
struct Flights(Vec<(usize, Arc<Flight>)>);

impl Late for Flights {
    fn wait(self: Box<Self>) -> Vec<(usize, Error)> {
        let waited =
            self.0.into_iter().filter_map(|(lane, flight)| Some((lane, flight.wait().err()?.into())));
        waited.collect()
    }
}

/// What computes a value, where that is MLX and still under way.
fn flight_of(value: &Value) -> Option<Arc<Flight>> {
    let Value::Device(tensor) = value else { return None };
    tensor.as_any().downcast_ref::<DeviceArray>()?.tensor().array.flight().cloned()
}

/// What a run leaves behind.
struct Left<A> {
    outputs: Vec<Datum<A>>,
    updates: Vec<Tensor<A>>,
    effects: Effects<A>,
}

impl<A> Left<A> {
    fn map<B>(self, to: &mut impl FnMut(A) -> Result<B, MlxError>) -> Result<Left<B>, MlxError> {
        Ok(Left {
            outputs: self.outputs.into_iter().map(|datum| datum.map(to)).collect::<Result<_, _>>()?,
            updates: self.updates.into_iter().map(|tensor| tensor.map(to)).collect::<Result<_, _>>()?,
            effects: self.effects.map(to)?,
        })
    }
}

impl Left<Held> {
    /// The same, handed over in one go.
    fn handed_over(
        self,
        mlx: &Mlx,
        before: Vec<Arc<Flight>>,
    ) -> Result<Submitted<Left<Arc<Shared>>>, MlxError> {
        let mut held = Vec::new();
        let places = self.map(&mut |array| {
            held.push(array);
            Ok(())
        })?;
        let (arrays, flight) = mlx.submit(held, before)?;
        let mut arrays = arrays.into_iter();
        let missing = || MlxError::Invalid("an array went missing".into());
        let left = places.map(&mut |()| arrays.next().ok_or_else(missing))?;
        Ok((left, flight))
    }
}

/// What of the graphs can be compiled; the log says why one is cut into pieces.
fn compilable(mlx: &Mlx, compile: Compile, graphs: &ProgramGraphs, lives: &[BlockLife]) -> Vec<Pieces> {
    if compile == Compile::Never || !mlx.device.can_compile {
        let reason =
            if compile == Compile::Never { "switched off" } else { "MLX finds no compiler for its kernels" };
        tracing::info!(reason, "compiled execution: disabled");
        return graphs.graphs.iter().map(|_| Pieces::default()).collect();
    }
    let each = graphs.graphs.iter().zip(lives).map(|(graph, life)| {
        let pieces = Pieces::of(&graph.module.main, life);
        if let Some(op) = pieces.split_by {
            let (method, delegate) = (graph.method.as_str(), graph.delegate);
            tracing::info!(
                method,
                delegate,
                op,
                pieces = pieces.pieces.len(),
                "compiled execution: in pieces, because an op needs a number that only the data tell"
            );
        }
        pieces
    });
    each.collect()
}

/// Computes the guards; the first that found something is the error.
fn check_guards(mlx: &Mlx, guards: Vec<Guarded>) -> Result<()> {
    let Some(found) = joined(mlx, &guards)? else { return Ok(()) };
    let found = found.to_host()?;
    let notes = guards.into_iter().flat_map(|guard| guard.notes);
    let mut found = found.as_slice::<i64>()?.iter().zip(notes);
    match found.find(|(found, _)| **found != Guard::FINE) {
        Some((&number, note)) => Err(note.error(number)),
        None => Ok(()),
    }
}

fn argument(mlx: &Mlx, value: &Value) -> Result<Datum> {
    if let Some(scalar) = value.as_scalar() {
        return Ok(Datum::Scalar(scalar));
    }
    if let Value::Device(tensor) = value
        && let Some(array) = tensor.as_any().downcast_ref::<DeviceArray>()
    {
        return Ok(Datum::Tensor(array.tensor().clone().enter()?));
    }
    let tensor = value.to_tensor()?;
    let tensor = tensor.ok_or_else(|| MlxError::Invalid(format!("{} as input", value.describe())))?;
    let ty = ArrayType { dtype: tensor.dtype(), shape: tensor.shape().to_vec() };
    let placed = Kept::new(mlx.place(&tensor)?, ty).enter()?;
    Ok(Datum::Tensor(placed.with_known(Known::of(&tensor))))
}

fn to_value_of(mlx: Mlx, datum: Datum<Arc<Shared>>) -> Value {
    match datum {
        Datum::Tensor(tensor) => Value::Device(Arc::new(DeviceArray::new(mlx, tensor))),
        Datum::Scalar(scalar) => to_value(scalar),
    }
}

/// A run under way: takes back what runs since the last commit have made unless it succeeds, also where it ends by a
/// panic, of which nobody tells the state.
struct Attempt<'a> {
    state: &'a mut MlxState,
    succeeded: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.succeeded {
            self.state.rollback();
        }
    }
}

impl Loaded for LoadedMlx {
    fn new_state(&self, options: &StateOptions) -> Result<Box<dyn State>> {
        let state = MlxState::new(self.set.mlx, self.set.graphs.clone(), options, &self.set.limits)?;
        Ok(Box::new(state))
    }

    fn run(
        &self,
        graph: GraphId,
        state: &mut dyn State,
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        let mut call = Call { state, inputs, outputs, control, result: Ok(()) };
        let Some(flight) = self.submit_one(graph, &mut call)? else { return Ok(()) };
        flight.wait().map_err(|error| {
            call.state.rollback();
            error.into()
        })
    }

    /// Lanes are handed over one after the other, and computed one after the other; nobody waits for any of them.
    fn submit(&self, graph: GraphId, calls: &mut [Call<'_>]) -> Result<Ticket> {
        let mut flights = Vec::with_capacity(calls.len());
        for (lane, call) in calls.iter_mut().enumerate() {
            match self.submit_one(graph, call) {
                Ok(flight) => flights.extend(flight.map(|flight| (lane, flight))),
                Err(error) => call.result = Err(error),
            }
        }
        Ok(if flights.is_empty() { Ticket::done() } else { Ticket::late(Box::new(Flights(flights))) })
    }

    fn memory(&self) -> MemoryReport {
        let buffers = self.set.graphs.graphs.iter().flat_map(|graph| {
            let main = &graph.module.main;
            main.buffers.iter().filter_map(|buffer| main.ty(buffer.value).and_then(known))
        });
        let state_bytes = buffers.map(|ty| (ty.count() * ty.dtype.size()) as u64).sum();
        MemoryReport {
            mapped_bytes: self.mapped_bytes,
            packed_bytes: self.copied_bytes,
            state_bytes,
            run_bytes: 0,
            cache_bytes: 0,
        }
    }
}
