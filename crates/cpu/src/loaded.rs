//! A program in this backend: its constants, its plans by input signature, and the run of one of them.

use crate::constants::{Constants, Form, Prepared};
use crate::copy;
use crate::frame::{Frame, Slot};
use crate::memory::Memory;
use crate::ops::{self, Lowering};
use crate::residence::Residence;
use crate::run::{Run, nodes};
use crate::scratch::Lending;
use crate::state::{CpuState, Kept};
use crate::step::Planned;
use pteron_format::Limits;
use pteron_ir::Type;
use pteron_kernels::path::Path;
use pteron_kernels::pool::Pool;
use pteron_kernels::view::View;
use pteron_passes::fuse::fuse;
use pteron_plan::{Layout, RunMemory};
use pteron_runtime::backend::{
    Call, GraphId, LoadOptions, Loaded, MemoryReport, ProgramGraphs, RunControl, State, StateOptions, Ticket,
};
use pteron_runtime::reference::{Argument, cast, check_inputs};
use pteron_runtime::{Error, LoadMode, Precision, Result, Value, VerifiedProgram, Weights};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Plans kept for a program; prompts of many lengths come and go.
const PLANS: usize = 64;

/// What a plan is made for: a graph in one of its forms, and the sizes of all its tensors.
type Signature = (GraphId, Form, Vec<usize>);

pub(crate) struct LoadedCpu {
    graphs: Arc<ProgramGraphs>,
    weights: Arc<Weights>,
    prepared: Vec<Arc<Prepared>>,
    plans: Mutex<HashMap<Signature, Arc<Planned>>>,
    pool: Arc<Pool>,
    path: Path,
    memory: RunMemory,
    precision: Precision,
    /// Where the bytes of the files lie.
    mode: LoadMode,
    limits: Limits,
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
            let made = fuse(&mut fused);
            debug_assert_eq!(pteron_ir::verify(&fused), Ok(()), "what fuse makes is sound");
            tracing::debug!(method = graph.method, delegate = graph.delegate, ?made, "ops fused");
            prepared
                .push(Arc::new(Prepared::new(fused, Constants::new(weights.clone(), graphs.clone(), id))));
        }
        let seconds = begin.elapsed().as_secs_f64();
        let (copied, locked) = (residence.copied, residence.locked);
        tracing::info!(mode = ?options.mode, copied, locked, seconds, "weights loaded");
        Ok(LoadedCpu {
            graphs,
            weights,
            prepared,
            plans: Mutex::default(),
            pool,
            path,
            memory,
            precision: options.precision,
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
            return Ok(plan.clone());
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
        let lowering = Lowering::new(prepared.clone(), self.path, self.precision, self.pool.threads());
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
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if plans.len() >= PLANS {
            plans.clear();
        }
        plans.insert(key, planned.clone());
        Ok(planned)
    }

    fn run_pending(
        &self,
        id: GraphId,
        state: &mut CpuState,
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        if id.0 >= self.graphs.graphs.len() {
            return Err(Error::Invalid(format!("there is no graph {}", id.0)));
        }
        let form = if control.traces_values() { Form::Plain } else { Form::Fused };
        let graph = self.prepared[id.0].graph(form);
        let mut arguments = std::mem::take(&mut state.arguments);
        arguments.clear();
        for argument in check_inputs(graph, inputs)? {
            arguments.push(argument?);
        }
        let mut kept = match state.take_frame((id, form), signature(&arguments)) {
            Some(kept) => kept,
            None => {
                let signature: Vec<usize> = signature(&arguments).collect();
                let planned = self.plan((id, form), &signature, &arguments)?;
                state.grow_arena(planned.plan.arena_bytes);
                let (arena, constants) = (state.arena.as_mut_ptr(), &self.prepared[id.0].constants);
                let frame = Frame::new(&planned.plan, &planned.read, arena, constants);
                Kept { graph: (id, form), signature, planned, frame }
            }
        };
        let result = self.run_frame(&mut kept, state, &arguments, control, outputs);
        state.put_frame(kept);
        arguments.clear();
        state.arguments = arguments;
        result
    }

    fn run_frame(
        &self,
        kept: &mut Kept,
        state: &mut CpuState,
        inputs: &[Argument],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        let (id, form) = kept.graph;
        let graph = self.prepared[id.0].graph(form);
        let Planned { plan, work, .. } = &*kept.planned;
        let CpuState { buffers, undo, cache, committed, pending, arena, .. } = state;
        control.charge(*work)?;
        for (input, argument) in graph.inputs.iter().zip(inputs) {
            let index = input.value.0 as usize;
            match argument {
                Argument::Tensor(tensor) => {
                    let layout = Layout::row_major(tensor.shape())
                        .ok_or_else(|| Error::Invalid(format!("an input of {} axes", tensor.rank())))?;
                    // Inputs are never written: only arena and buffers are.
                    kept.frame.slots[index] = Slot { data: tensor.bytes().as_ptr().cast_mut(), layout };
                }
                Argument::Scalar(scalar) => kept.frame.numbers[index] = *scalar,
            }
        }
        for (index, buffer) in graph.buffers.iter().enumerate() {
            let memory = &mut buffers[id.0][index];
            let data = if plan.changed[index] {
                Memory::own(memory).as_mut_ptr()
            } else {
                memory.bytes().as_ptr().cast_mut()
            };
            kept.frame.slots[buffer.value.0 as usize].data = data;
        }
        // A draw is pending until a commit; nothing is taken out of the session, so that a panic loses nothing.
        let effects = match (&mut *pending, plan.draws) {
            (Some(pending), _) => pending,
            (none, true) => none.insert(committed.clone()),
            (None, false) => committed,
        };
        let mut run = Run {
            graph,
            id,
            plan,
            frame: &mut kept.frame,
            arena: arena.as_mut_ptr(),
            constants: &self.prepared[id.0].constants,
            effects,
            undo,
            cache: cache.as_mut(),
            pool: &self.pool,
            control,
            limits: &self.limits,
            listened: if control.trace.is_some() { nodes(graph) } else { Vec::new() },
            lending: Lending::default(),
        };
        let result = finish(&kept.planned, &mut run, outputs);
        // A step that failed may have left later ones undone.
        kept.frame.warm = result.is_ok() || kept.frame.warm;
        result
    }
}

/// A run that is taken back unless it succeeds: an error and a panic leave the session as it was.
struct Attempt<'s> {
    state: &'s mut CpuState,
    succeeded: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.succeeded {
            self.state.rollback();
        }
    }
}

/// Runs all steps, writes what buffers shall hold, and takes the outputs.
fn finish(planned: &Planned, run: &mut Run<'_>, outputs: &mut Vec<Value>) -> Result<()> {
    let plan = &planned.plan;
    planned.run(run)?;
    let at_end = |error: pteron_runtime::NodeError| Error::Invalid(error.to_string());
    outputs.resize(run.graph.outputs.len(), Value::None);
    for (output, place) in run.graph.outputs.iter().zip(outputs) {
        run.read_into(output.value, place).map_err(at_end)?;
        // The file declares what a caller gets: argmax gives u32 and is declared i64.
        if let (Type::Tensor(declared), Value::Tensor(tensor)) = (&output.ty, &*place)
            && tensor.dtype() != declared.dtype
        {
            *place = Value::Tensor(cast(tensor, declared.dtype)?);
        }
    }
    for write in &plan.writes {
        let view = run.view(write.value).map_err(at_end)?;
        let buffer = &run.graph.buffers[write.buffer];
        let wanted = run.slot(buffer.value).layout;
        if view.sizes() != wanted.sizes() || Some(view.dtype()) != plan.dtypes[buffer.value.0 as usize] {
            return Err(Error::Invalid(format!(
                "buffer `{}` holds {:?}, but {} {:?} is written to it",
                buffer.name,
                wanted.sizes(),
                view.dtype(),
                view.sizes()
            )));
        }
        if let Some(staging) = write.staging {
            let len = view.len() * view.dtype().size();
            let (data, bytes) = run.scratch(staging);
            if len > 0 && len <= bytes {
                // SAFETY: the arena holds these bytes, and the plan gives them to this write alone.
                copy::to_bytes(run.pool, &view, unsafe { std::slice::from_raw_parts_mut(data, len) });
            }
        }
    }
    for write in &plan.writes {
        let target = run.graph.buffers[write.buffer].value;
        let mut source = *run.slot(write.value);
        if let Some(staging) = write.staging {
            let layout = Layout::row_major(source.layout.sizes()).unwrap_or(source.layout);
            source = Slot { data: run.scratch(staging).0, layout };
        }
        // What was updated in place has slots of its own: the buffer's is where the run found it.
        let whole = *run.slot(target);
        let dtype = run.dtype(target).map_err(at_end)?;
        run.save(write.buffer, dtype, &whole);
        // SAFETY: the value's own memory, or the staging that was filled above; buffers are written only here.
        let from =
            unsafe { View::from_raw(source.data, dtype, source.layout.sizes(), source.layout.strides()) };
        pteron_kernels::copy::copy(run.pool, &mut run.target(target).map_err(at_end)?, &from);
    }
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

impl Loaded for LoadedCpu {
    fn new_state(&self, options: &StateOptions) -> Result<Box<dyn State>> {
        Ok(Box::new(CpuState::new(
            self.graphs.clone(),
            (self.pool.clone(), self.path),
            options,
            &self.limits,
        )?))
    }

    fn run(
        &self,
        graph: GraphId,
        state: &mut dyn State,
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        let state = state.as_any_mut().downcast_mut::<CpuState>();
        let state = state.filter(|state| state.is_of(&self.graphs)).ok_or(Error::ForeignState)?;
        let mut attempt = Attempt { state, succeeded: false };
        self.run_pending(graph, attempt.state, inputs, control, outputs)?;
        attempt.succeeded = true;
        Ok(())
    }

    /// Lanes of one signature lie side by side, and could share a plan's steps; here they run one after the other.
    fn submit(&self, graph: GraphId, calls: &mut [Call<'_>]) -> Result<Ticket> {
        for call in calls {
            call.result = self.run(graph, call.state, call.inputs, call.control, call.outputs);
        }
        Ok(Ticket::done())
    }

    fn memory(&self) -> MemoryReport {
        let (stored, made) = self.weights.bytes();
        let (mapped_bytes, copied) = if self.mode == LoadMode::Copy { (0, stored) } else { (stored, 0) };
        let derived = self.prepared.iter().map(|graph| {
            let linears = graph.linears.lock().unwrap_or_else(PoisonError::into_inner);
            linears.values().map(|linear| linear.packed_bytes() as u64).sum::<u64>()
        });
        let derived: u64 = derived.sum();
        let buffers = self.graphs.graphs.iter().flat_map(|graph| {
            let main = &graph.module.main;
            main.buffers.iter().filter_map(|buffer| match main.ty(buffer.value)? {
                Type::Tensor(tensor) => {
                    let count = pteron_tensor::element_count(&tensor.known_shape()?)?;
                    Some((count * tensor.dtype.size()) as u64)
                }
                _ => None,
            })
        });
        MemoryReport { mapped_bytes, packed_bytes: made + copied + derived, state_bytes: buffers.sum() }
    }
}
