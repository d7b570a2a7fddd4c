//! The contract between the runtime and whatever computes: a [`Backend`] loads all delegate graphs of a program
//! at once, a [`Loaded`] runs one of them at a time, a [`State`] is all that a session owns there.
//!
//! A backend sees graphs, weights and values; it never sees files, slots or program-level instructions.

mod device;
mod submit;

pub use device::{DeviceId, DeviceInfo, Lack, Support};
pub use submit::{Call, Late, Part, Ticket};

use crate::{CacheSpec, Result, Value, VerifiedProgram};
use indexmap::IndexMap;
use pteron_format::Constant;
use pteron_format::Limits;
use pteron_ir::{Module, Op, Place, Ssa, TypeSource};
use pteron_tensor::HostTensor;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use web_time::Instant;

/// A way to compute.
pub trait Backend: Send + Sync {
    /// As the registry and the command line know it.
    fn name(&self) -> &'static str;

    /// What it can compute on, by number; none where it cannot compute at all here.
    fn devices(&self) -> Vec<DeviceInfo>;

    /// Whether it runs an op. Asked for every node when a program is loaded, so that nothing is first refused in
    /// mid-run.
    fn supports(&self, op: &Op<Ssa>, types: &dyn TypeSource) -> Support;

    /// Whether loaded programs read weights where the files' bytes lie. Then it matters in which pages those are, and a
    /// copy of them is the runtime's to make; a backend that packs or uploads weights makes its own.
    fn reads_in_place(&self) -> bool {
        false
    }

    /// Whether loaded programs can bring weights into an order of their own kernels, as [`LoadMode::Arrange`] asks.
    fn arranges(&self) -> bool {
        false
    }

    /// Takes all delegate graphs of a program at once, for one of its devices, so that weights are packed once. What the
    /// verifier says of them, and that constants are of the types that they have there, is proved by the type.
    fn load(
        &self,
        device: DeviceId,
        program: &VerifiedProgram,
        options: &LoadOptions,
    ) -> Result<Arc<dyn Loaded>>;
}

/// A program inside a backend: packed weights and plans, shared by all sessions.
pub trait Loaded: Send + Sync {
    /// All that a session owns, for every graph: buffers zeroed, cache empty.
    fn new_state(&self, options: &StateOptions) -> Result<Box<dyn State>>;

    /// Runs one graph over a state that this program has made; any other is refused. What it writes to `state` is pending
    /// until [`State::commit`]: a method may call several graphs, and takes effect as a whole or not at all. An error has
    /// taken back all that is pending; after a panic [`State::rollback`] does. `outputs` become its outputs; what they were
    /// may lend its memory, output by output. All of it is there when this returns.
    fn run(
        &self,
        graph: GraphId,
        state: &mut dyn State,
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()>;

    /// Hands over calls of one graph, each for the state of another session; what `run` says holds for each of them. A lane
    /// that cannot be run has its own error and leaves the others alone; an error of all is for what no lane could have.
    /// A backend may be still at work when this returns: see [`Ticket`].
    ///
    /// Here: one after the other. A lane's numbers never depend on who rides along but for what the backend documents.
    fn submit(&self, graph: GraphId, calls: &mut [Call<'_>]) -> Result<Ticket> {
        for call in calls {
            call.result = self.run(graph, call.state, call.inputs, call.control, call.outputs);
        }
        Ok(Ticket::done())
    }

    /// Whether it runs flat calls.
    fn runs_flat(&self) -> bool {
        false
    }

    /// Runs one graph once over the tokens of several sessions, which lie one behind the other along its axis of tokens:
    /// keys and values go to the cache of the session whose token they are of, and its tokens attend over that. Only for graphs
    /// whose tokens meet nowhere else ([`token_rows`](pteron_ir::token_rows)), and for inputs that have as many tokens as
    /// the parts have together.
    ///
    /// It succeeds for all of them or for none: an error has taken back what is pending in every part, and is an
    /// [`Error::Span`](crate::Error::Span) inside where one part is to blame.
    fn run_flat(
        &self,
        graph: GraphId,
        parts: &mut [Part<'_>],
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        let _ = (graph, parts, inputs, control, outputs);
        Err(crate::Error::Invalid("the backend runs one session at a time".into()))
    }

    /// What it holds and what a session will.
    fn memory(&self) -> MemoryReport;
}

/// What a session owns inside a backend: buffers by id, the off-graph cache, the random generator.
pub trait State: Send {
    /// The contents of a buffer.
    fn read(&self, buffer: &BufferId) -> Result<HostTensor>;

    /// Replaces the contents of a buffer by a tensor of the same type.
    fn write(&mut self, buffer: &BufferId, value: &HostTensor) -> Result<()>;

    /// Makes what the last runs wrote permanent, be it still in the making. An error says that there is nothing to make
    /// permanent: the state is as before those runs, or says from then on that it is gone.
    fn commit(&mut self) -> Result<()>;

    /// Forgets what runs wrote since the last commit.
    fn rollback(&mut self);

    /// Goes back to when `tokens` positions had been written. Changes nothing unless it answers
    /// [`Rewind::Done`].
    fn rewind_to(&mut self, tokens: usize) -> Result<Rewind>;

    /// Positions in the off-graph cache; `None` when the session has none.
    fn cached_tokens(&self) -> Option<usize>;

    /// A copy of everything, sharing memory until either side writes.
    fn snapshot(&self) -> Result<Arc<dyn Snapshot>>;

    /// Goes back to a snapshot of this or of another session of the same program and backend.
    fn restore(&mut self, snapshot: &dyn Snapshot) -> Result<()>;

    /// Bytes that it holds now. Of what it shares with other sessions it may count its part only, so that a sum over all
    /// sessions counts it once.
    fn bytes(&self) -> u64;

    /// For the backend that made it.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// A state at one moment.
pub trait Snapshot: Send + Sync {
    /// For the backend that made it.
    fn as_any(&self) -> &dyn Any;
}

/// What came of a rewind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewind {
    /// The state is as it was then.
    Done,
    /// It cannot be had from what is stored: reset the session and run the tokens again from `from`.
    Replay {
        /// Position to begin at.
        from: usize,
        /// What stands in the way.
        reason: String,
    },
}

/// All delegate graphs of a program.
#[derive(Debug)]
pub struct ProgramGraphs {
    /// The file, for errors.
    pub file: String,
    /// Graphs by [`GraphId`].
    pub graphs: Vec<DelegateGraph>,
}

impl ProgramGraphs {
    /// Where a buffer is: its graph, and its place there.
    pub fn find_buffer(&self, id: &BufferId) -> Result<(GraphId, usize)> {
        let mut graphs = self.graphs.iter().enumerate();
        let found = graphs.find_map(|(index, graph)| {
            let is_methods = matches!(&id.scope, Scope::Method(method) if *method == graph.method);
            let place = is_methods.then(|| graph.buffer(id.delegate, &id.name))??;
            Some((GraphId(index), place))
        });
        found.ok_or_else(|| crate::Error::UnknownBuffer(id.clone()))
    }

    /// The same graphs without internal ops, for a backend that runs plain ones only. Graphs that come from a file have
    /// none, and are shared.
    pub fn expanded(self: Arc<ProgramGraphs>) -> Result<Arc<ProgramGraphs>> {
        if !self.graphs.iter().any(|graph| graph.module.main.has_internal_ops()) {
            return Ok(self);
        }
        let graphs = self.graphs.iter().map(|graph| {
            let mut module = Module::clone(&graph.module);
            pteron_ir::expand(&mut module.main).map_err(|error| crate::Error::Invalid(error.to_string()))?;
            Ok(DelegateGraph { module: Arc::new(module), ..graph.clone() })
        });
        Ok(Arc::new(ProgramGraphs { file: self.file.clone(), graphs: graphs.collect::<Result<_>>()? }))
    }
}

/// One delegate of one method.
#[derive(Clone, Debug)]
pub struct DelegateGraph {
    /// The method that calls it.
    pub method: String,
    /// Its number among the method's delegates.
    pub delegate: usize,
    /// What it computes. Delegates with equal payloads share one.
    pub module: Arc<Module>,
    /// Where the bytes of constants are that do not lie under their own names.
    pub data: Arc<IndexMap<String, Constant>>,
    /// Of delegates that were joined to one: by buffer, whose it is, and its name there; the program's own are no
    /// delegate's. Else none are listed.
    pub origins: Vec<(Option<usize>, String)>,
}

impl DelegateGraph {
    /// A delegate as the file has it.
    pub fn new(method: String, delegate: usize, module: Arc<Module>) -> DelegateGraph {
        DelegateGraph { method, delegate, module, data: Arc::default(), origins: Vec::new() }
    }

    /// The place of a buffer that a delegate has by that name.
    fn buffer(&self, delegate: Option<usize>, name: &str) -> Option<usize> {
        if self.origins.is_empty() {
            let buffers = &self.module.main.buffers;
            return buffers.iter().position(|buffer| Some(self.delegate) == delegate && buffer.name == name);
        }
        self.origins.iter().position(|(whose, own)| *whose == delegate && own == name)
    }
}

/// An index into [`ProgramGraphs::graphs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GraphId(pub usize);

/// What a backend is told when it loads a program.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Bounds on memory and work.
    pub limits: Limits,
    /// How closely results follow the program's own types.
    pub precision: Precision,
    /// Where weights live.
    pub mode: LoadMode,
    /// Whether a lane's numbers must be those that it has alone, to the last bit, whatever runs beside it
    /// ([`Loaded::submit`]). What is faster for many rows at once is then left out where it sums in another order.
    pub batch_invariant: bool,
}

/// How closely a backend follows the types that a program computes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Activations are rounded to no type narrower than the program's own.
    #[default]
    Exact,
    /// Activations may be rounded further where that is faster: to 8 bits per group before a quantised weight.
    Fast,
}

/// Where a loaded program keeps the weights that it does not pack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LoadMode {
    /// In the mapped file; pages come as they are touched.
    #[default]
    Map,
    /// In the mapped file, locked into memory where the system allows it.
    Lock,
    /// In the mapped file, but for weights that a backend multiplies with: it brings those into memory of its own, in the order
    /// of its kernels, when it first plans with them. A backend that has no such order takes it as [`LoadMode::Map`].
    Arrange,
    /// In memory of our own, resident before the load returns. Where a backend reads weights in place, the runtime
    /// has made the copy before the backend is asked.
    Copy,
}

/// What a program's loader is told about where weights shall live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// This way.
    Fixed(LoadMode),
    /// Copied where the backend reads weights in place and the files have at most so many bytes, else mapped. A copy
    /// lies in huge pages, which are read faster; it costs time before the first run, and memory that other processes
    /// do not share.
    CopyUpTo(u64),
    /// As [`Placement::CopyUpTo`], but arranged where the backend can: for many sessions at once, which are faster so.
    ArrangeUpTo(u64),
}

impl Default for Placement {
    fn default() -> Placement {
        Placement::Fixed(LoadMode::Map)
    }
}

/// What a backend is told when a session opens.
#[derive(Clone, Debug, Default)]
pub struct StateOptions {
    /// The off-graph cache, where the program has one.
    pub cache: Option<CacheSpec>,
    /// Where the random generator of unseeded draws starts.
    pub seed: u64,
}

/// Whose a buffer is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// One method's.
    Method(String),
    /// All methods' that share an arena.
    Shared,
}

/// A buffer of a session: a delegate's, or, without a delegate, one of the program itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId {
    /// Whose it is.
    pub scope: Scope,
    /// Number of the delegate among the method's.
    pub delegate: Option<usize>,
    /// Its name in the file.
    pub name: String,
}

impl fmt::Display for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            Scope::Method(method) => f.write_str(method)?,
            Scope::Shared => f.write_str("shared")?,
        }
        if let Some(delegate) = self.delegate {
            write!(f, ".{delegate}")?;
        }
        write!(f, ":{}", self.name)
    }
}

/// How a run is watched and stopped; checked between any two steps.
#[derive(Clone, Default)]
pub struct RunControl {
    /// Set from any thread to stop.
    pub cancel: Option<Arc<AtomicBool>>,
    /// When to stop.
    pub deadline: Option<Instant>,
    /// Told of every step.
    pub trace: Option<Arc<dyn Trace>>,
    /// Element operations that the run may still take, shared by all its steps; a session sets it from
    /// `Limits` unless the caller did.
    pub work: Option<Arc<AtomicU64>>,
    /// Bytes that whoever asks for the run holds already; they count against `live_bytes` too.
    pub held: u64,
    /// Whether nothing that computes follows in the method. A backend may then give up the old state for the new
    /// one before [`State::commit`]; a rollback that comes all the same leaves a session that says so.
    pub last: bool,
}

/// A listener to the steps of a run.
pub trait Trace: Send + Sync {
    /// One node has been computed.
    fn step(&self, step: &Step<'_>);

    /// What it wants to be told.
    fn detail(&self) -> Detail {
        Detail::Values
    }
}

/// What a [`Trace`] listens for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Every node of the program as the file has it, with what it gave.
    Values,
    /// What a backend really does, internal ops included, where it can tell: nothing is read back, so that time can be taken.
    Steps,
}

/// What a [`Trace`] is told.
#[derive(Debug)]
pub struct Step<'a> {
    /// The graph.
    pub graph: GraphId,
    /// The node's op.
    pub op: &'a Op<Ssa>,
    /// Where it stood in its payload.
    pub place: Option<Place>,
    /// What it gave; nothing where only steps are asked for.
    pub results: &'a [Value],
}

impl RunControl {
    /// Whether somebody wants the values of every node.
    pub fn traces_values(&self) -> bool {
        self.trace.as_ref().is_some_and(|trace| trace.detail() == Detail::Values)
    }

    /// An error if the run is to stop.
    pub fn check(&self) -> Result<()> {
        if self.cancel.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Err(crate::Error::Cancelled);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(crate::Error::Deadline);
        }
        Ok(())
    }

    /// Takes work off the budget, before it is done; an error if that is more than is left.
    pub fn charge(&self, operations: u64) -> Result<()> {
        let Some(work) = &self.work else { return Ok(()) };
        let taken =
            work.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(operations));
        taken.map(drop).map_err(|left| crate::Error::Limit {
            what: "a step's work",
            limit: "work",
            found: operations,
            allowed: left,
        })
    }
}

impl fmt::Debug for RunControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunControl")
            .field("cancel", &self.cancel)
            .field("deadline", &self.deadline)
            .field("trace", &self.trace.is_some())
            .finish()
    }
}

/// What a loaded program holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReport {
    /// Weights that stay in the mapped file.
    pub mapped_bytes: u64,
    /// Weights that were copied, packed or derived.
    pub packed_bytes: u64,
    /// Buffers that every session allocates; the off-graph cache comes on top and grows.
    pub state_bytes: u64,
    /// Memory that runs compute in, kept for the next ones: as much as the most runs at once have needed lately.
    pub run_bytes: u64,
    /// Off-graph caches of all sessions and snapshots, what they share counted once, and what is kept for the next ones;
    /// 0 where a backend does not share any.
    pub cache_bytes: u64,
}
