//! A program in this backend: its constants, its plans by input signature, and what becomes of a call before its steps run.

use crate::batch::Batches;
use crate::cache::{Caches, SpanCache};
use crate::constants::{Arranged, Constants, Form, Prepared};
use crate::frame::{Frame, Slot};
use crate::memory::{Memory, Region};
use crate::ops::{self, Lowering, Numerics};
use crate::pages::PageStore;
use crate::recent::{Bounds, Recent};
use crate::residence::Residence;
use crate::run::{Run, nodes};
use crate::scratch::Lending;
use crate::state::CpuState;
use crate::step::Planned;
use crate::workspace::{Kept, Workspace, Workspaces};
use pteron_format::Limits;
use pteron_ir::token_rows;
use pteron_kernels::path::Path;
use pteron_kernels::pool::Pool;
use pteron_passes::fuse::fuse;
use pteron_passes::layouts;
use pteron_plan::{Layout, RunMemory};
use pteron_runtime::backend::{DelegateGraph, GraphId, LoadOptions, ProgramGraphs, RunControl};
use pteron_runtime::reference::{Argument, check_inputs};
use pteron_runtime::{Error, LoadMode, Precision, Result, Value, VerifiedProgram, Weights};
use std::sync::{Arc, Mutex, PoisonError};
use web_time::Instant;

/// Plans kept for a program; prompts of many lengths come and go, and decoding stays. One of 786 steps (SmolLM2 135M) takes
/// 0.9 MB. Prompts are not cut into parts of few lengths for the plans' sake: each part more reads all weights once more, which
/// takes longer than to make a plan, and tiles would sum in another order.
const PLANS: Bounds = Bounds { most: 64, bytes: 32 << 20, least: 8 };

/// What a plan is made for: a graph in one of its forms, and the sizes of all its tensors.
type Signature = (GraphId, Form, Vec<usize>);

pub(crate) struct LoadedCpu {
    pub(crate) graphs: Arc<ProgramGraphs>,
    pub(crate) weights: Arc<Weights>,
    pub(crate) prepared: Vec<Arc<Prepared>>,
    plans: Mutex<Recent<Signature, Arc<Planned>>>,
    pub(crate) workspaces: Workspaces,
    pub(crate) batches: Batches,
    /// Of the off-graph caches of all sessions.
    pub(crate) pages: Arc<PageStore>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) path: Path,
    memory: RunMemory,
    precision: Precision,
    /// Whether lanes must not change each other's numbers.
    invariant: bool,
    /// By graph: whether that holds for the rows of one run, since they may be those of several sessions.
    invariant_rows: Vec<bool>,
    /// Where the bytes of the files lie.
    pub(crate) mode: LoadMode,
    pub(crate) limits: Limits,
}

impl LoadedCpu {
    pub(crate) fn new(
        program: &VerifiedProgram,
        (pool, path, memory): (Arc<Pool>, Path, RunMemory),
        options: &LoadOptions,
    ) -> Result<LoadedCpu> {
        let (graphs, weights) = (program.graphs().clone(), program.weights().clone());
        let begin = Instant::now();
        let mut residence = Residence::default();
        let mut prepared = Vec::with_capacity(graphs.graphs.len());
        let arranged = Arc::new(match options.mode {
            LoadMode::Arrange => Arranged::new(&graphs, &weights),
            _ => Arranged::default(),
        });
        for (index, graph) in graphs.graphs.iter().enumerate() {
            let id = GraphId(index);
            for constant in &graph.module.main.constants {
                if weights.multiple(id, &constant.name).is_some() {
                    continue;
                }
                let problem = |problem: String| Error::Constant {
                    file: graphs.file.clone(),
                    method: graph.method.clone(),
                    name: constant.name.clone(),
                    problem,
                };
                let tensor = weights.get(id, &constant.name).ok_or_else(|| problem("no data".into()))?;
                residence.keep(tensor, options.mode).map_err(|error| problem(error.to_string()))?;
            }
            let mut fused = graph.module.main.clone();
            layouts::sink(&mut fused);
            let made = fuse(&mut fused);
            debug_assert_eq!(pteron_ir::verify(&fused), Ok(()), "what passes make is sound");
            tracing::debug!(method = graph.method, delegate = graph.delegate, ?made, "ops fused");
            let constants = Constants::new(weights.clone(), graphs.clone(), id);
            prepared.push(Arc::new(Prepared::new(fused, constants, arranged.clone())));
        }
        let reads_flat = |graph: &DelegateGraph| token_rows(&graph.module.main).is_ok();
        let invariant_rows =
            graphs.graphs.iter().map(|graph| options.batch_invariant && reads_flat(graph)).collect();
        let seconds = begin.elapsed().as_secs_f64();
        let (copied, locked) = (residence.copied, residence.locked);
        tracing::info!(mode = ?options.mode, copied, locked, seconds, "weights loaded");
        Ok(LoadedCpu {
            graphs,
            weights,
            prepared,
            plans: Mutex::new(Recent::new(PLANS)),
            workspaces: Workspaces::default(),
            batches: Batches::default(),
            pages: Arc::default(),
            pool,
            path,
            memory,
            precision: options.precision,
            invariant: options.batch_invariant,
            invariant_rows,
            mode: options.mode,
            limits: options.limits.clone(),
        })
    }

    /// The plan for a signature: made once, found afterwards.
    fn plan(
        &self,
        (id, form): (GraphId, Form),
        signature: &[usize],
        inputs: &[Argument],
    ) -> Result<Arc<Planned>> {
        let key = (id, form, signature.to_vec());
        if let Some(plan) = self.plans.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(plan);
        }
        let graph = &self.graphs.graphs[id.0];
        let shapes: Vec<Option<&[usize]>> = inputs
            .iter()
            .map(|input| match input {
                Argument::Tensor(tensor) => Some(tensor.shape()),
                Argument::Scalar(_) => None,
            })
            .collect();
        let prepared = &self.prepared[id.0];
        let how = Numerics {
            path: self.path,
            precision: self.precision,
            invariant: self.invariant,
            invariant_rows: self.invariant_rows[id.0],
            arranges: self.mode == LoadMode::Arrange,
        };
        let lowering = Lowering::new(prepared.clone(), how, self.pool.threads(), form);
        let planned = ops::plan(prepared.graph(form), &shapes, lowering, self.memory, &self.limits)?;
        let planned = Arc::new(planned);
        tracing::info!(
            method = graph.method,
            delegate = graph.delegate,
            inputs = ?shapes,
            ?form,
            steps = planned.steps.len(),
            arena_bytes = planned.plan.arena_bytes,
            "compiled execution: enabled"
        );
        let bytes = planned.bytes();
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).insert(key, planned.clone(), bytes);
        Ok(planned)
    }

    /// Checks what a graph is given, and says in which form it runs.
    pub(crate) fn admit(
        &self,
        id: GraphId,
        inputs: &[Value],
        control: &RunControl,
        arguments: &mut Vec<Argument>,
    ) -> Result<Form> {
        let prepared =
            self.prepared.get(id.0).ok_or_else(|| Error::Invalid(format!("there is no graph {}", id.0)))?;
        let form = if control.traces_values() { Form::Plain } else { Form::Fused };
        arguments.clear();
        for argument in check_inputs(prepared.graph(form), inputs)? {
            arguments.push(argument?);
        }
        Ok(form)
    }

    /// A workspace, with the frame of the plan for these arguments; what it takes comes off the bytes that are left.
    pub(crate) fn enter(
        &self,
        graph: (GraphId, Form),
        arguments: &[Argument],
        left: &mut u64,
    ) -> Result<(Workspace, Kept)> {
        // Sessions on many threads share plans: a run that finds its frame leaves their counts of holders alone.
        let (mut space, mut kept) = match self.workspaces.take_known(graph, signature(arguments)) {
            Some((space, kept)) => match take_bytes(&kept.planned, left) {
                Ok(()) => (space, kept),
                Err(error) => {
                    self.workspaces.put(space);
                    return Err(error);
                }
            },
            None => {
                let signature: Vec<usize> = signature(arguments).collect();
                let planned = self.plan(graph, &signature, arguments)?;
                take_bytes(&planned, left)?;
                let space = self.workspaces.take(planned.plan.arena_bytes);
                (space, Kept { graph, signature, planned, frame: Frame::default() })
            }
        };
        if kept.frame.slots.is_empty() {
            let Planned { plan, read, .. } = &*kept.planned;
            let region = space.arena(plan.arena_bytes);
            kept.frame = Frame::new(plan, read, region, &self.prepared[graph.0.0].constants);
        }
        Ok((space, kept))
    }

    /// A run, with inputs and buffers where its steps find them. Of a flat batch the state is that of its first session;
    /// `beside` says how many tokens are that one's, and has the caches of the others.
    pub(crate) fn bind<'r>(
        &'r self,
        kept: &'r mut Kept,
        arena: Region,
        (state, beside): (&'r mut CpuState, Option<Beside<'r>>),
        inputs: &[Argument],
        control: &'r RunControl,
    ) -> Result<(&'r Planned, Run<'r>)> {
        let (id, form) = kept.graph;
        let graph = self.prepared[id.0].graph(form);
        let Kept { planned, frame, .. } = kept;
        let Planned { plan, work, .. } = &**planned;
        let CpuState { buffers, undo, cache, committed, pending, .. } = state;
        control.charge(*work)?;
        for (input, argument) in graph.inputs.iter().zip(inputs) {
            let index = input.value.0 as usize;
            match argument {
                Argument::Tensor(tensor) => {
                    let layout = Layout::row_major(tensor.shape())
                        .ok_or_else(|| Error::Invalid(format!("an input of {} axes", tensor.rank())))?;
                    // Inputs are never written: only arena and buffers are.
                    frame.slots[index] = Slot { data: tensor.bytes().as_ptr().cast_mut(), layout };
                }
                Argument::Scalar(scalar) => frame.numbers[index] = *scalar,
            }
        }
        for (index, buffer) in graph.buffers.iter().enumerate() {
            let memory = &mut buffers[id.0][index];
            let data = if plan.changed[index] {
                Memory::own(memory).as_mut_ptr()
            } else {
                memory.bytes().as_ptr().cast_mut()
            };
            frame.slots[buffer.value.0 as usize].data = data;
        }
        // A draw is pending until a commit; nothing is taken out of the session, so that a panic loses nothing.
        let effects = match (&mut *pending, plan.draws) {
            (Some(pending), _) => pending,
            (none, true) => none.insert(committed.clone()),
            (None, false) => committed,
        };
        let caches = match (cache.as_mut(), beside) {
            (Some(cache), Some(Beside { tokens, control, mut others })) => {
                others.insert(0, SpanCache { cache, tokens, control });
                Caches::Several(others)
            }
            (Some(cache), None) => Caches::One(cache),
            (None, _) => Caches::None,
        };
        let run = Run {
            graph,
            id,
            plan,
            frame,
            arena,
            constants: &self.prepared[id.0].constants,
            effects,
            undo,
            caches,
            pool: &self.pool,
            control,
            limits: &self.limits,
            listened: if control.trace.is_some() { nodes(graph) } else { Vec::new() },
            lending: Lending::default(),
        };
        Ok((planned, run))
    }
}

/// What a run of a flat batch knows besides the state of its first session.
pub(crate) struct Beside<'r> {
    /// Tokens of the first session.
    pub(crate) tokens: usize,
    pub(crate) control: &'r RunControl,
    pub(crate) others: Vec<SpanCache<'r>>,
}

/// Takes the region of a plan off the bytes that are left.
fn take_bytes(planned: &Planned, left: &mut u64) -> Result<()> {
    let (found, allowed) = (planned.plan.arena_bytes as u64, *left);
    *left = allowed.checked_sub(found).ok_or(Error::Limit {
        what: "the memory of a run beside others",
        limit: "live_bytes",
        found,
        allowed,
    })?;
    Ok(())
}

/// What a plan is made for: the sizes of all tensors.
fn signature(inputs: &[Argument]) -> impl Iterator<Item = usize> + Clone {
    let shapes = inputs.iter().map(|input| match input {
        Argument::Tensor(tensor) => tensor.shape(),
        Argument::Scalar(_) => &[],
    });
    shapes.flatten().copied()
}
