//! A program on the device: its constants uploaded once, plans by the sizes of inputs, and the memory that runs compute in, which
//! all sessions share: the device runs one call at a time.

use crate::error::VulkanError;
use crate::ffi::{ALIGNMENT, Buffer, Device, Purpose};
use crate::outcome::{Kept, Outcome, Outcomes, Ran};
use crate::replay::Recorded;
use crate::run::{Gives, Run};
use crate::state::{Slots, VulkanState};
use crate::workspace::Workspace;
use pteron_format::Limits;
use pteron_gpu::{Features, Given, MOST_SPANS, Planned};
use pteron_ir::{Graph, LaneRows, lane_rows};
use pteron_passes::fuse::fuse;
use pteron_passes::layouts;
use pteron_plan::PlanError;
use pteron_runtime::backend::{
    Call, DelegateGraph, GraphId, LoadOptions, Loaded, MemoryReport, Part, Precision, ProgramGraphs,
    RunControl, State, StateOptions, Ticket,
};
use pteron_runtime::reference::check_arguments;
use pteron_runtime::{Error, Result, Value, VerifiedProgram, Weights};
use pteron_tensor::HostTensor;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of one allocation of constants, unless one of them is larger.
const BLOCK_BYTES: u64 = 1 << 30;
/// Plans that are kept: more signatures than that begin anew.
const MOST_PLANS: usize = 64;

/// Where a constant lies.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) block: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) given: Given,
}

/// By graph, whether it is the fused one, and shapes of its inputs.
type PlanKey = (usize, bool, Vec<Option<Vec<usize>>>);

/// A program that runs on Vulkan.
pub(crate) struct LoadedVulkan {
    pub(crate) device: Arc<Device>,
    pub(crate) graphs: Arc<ProgramGraphs>,
    /// By graph: the same with fused ops, for runs of which nobody wants the values of all nodes.
    pub(crate) fused: Vec<Arc<Graph>>,
    /// By graph: its rows, where calls of one token each may share a run.
    lanes: Vec<Option<LaneRows>>,
    slots: Arc<Slots>,
    pub(crate) blocks: Vec<Buffer>,
    /// By graph, in the graph's order.
    pub(crate) constants: Vec<Vec<Placed>>,
    plans: Mutex<HashMap<PlanKey, Arc<Planned>>>,
    pub(crate) workspace: Mutex<Workspace>,
    /// What was recorded for runs over the tokens of several sessions.
    pub(crate) recorded: Mutex<Recorded>,
    pub(crate) limits: Limits,
    /// Those of the device that its kernels may use.
    pub(crate) features: Features,
    constant_bytes: u64,
}

/// A run that is taken back unless it succeeds: an error and a panic leave the session as it was.
pub(crate) struct Attempt<'s> {
    pub(crate) state: &'s mut VulkanState,
    pub(crate) succeeded: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.succeeded {
            self.state.rollback();
        }
    }
}

impl LoadedVulkan {
    pub(crate) fn new(
        device: Arc<Device>,
        program: &VerifiedProgram,
        options: &LoadOptions,
    ) -> Result<LoadedVulkan> {
        let graphs = program.graphs().clone().expanded()?;
        let slots = Arc::new(Slots::of(&graphs, options.limits.live_bytes)?);
        let most = device.adapter.features.max_binding;
        let mut uploads =
            Uploads { device: device.clone(), blocks: Vec::new(), seen: HashMap::new(), most, bytes: 0 };
        let mut constants = Vec::with_capacity(graphs.graphs.len());
        for (index, graph) in graphs.graphs.iter().enumerate() {
            let refused = |name: &str, problem: String| Error::Constant {
                file: graphs.file.clone(),
                method: graph.method.clone(),
                name: name.to_owned(),
                problem,
            };
            let weights: &Weights = program.weights();
            let placed = graph.module.main.constants.iter().map(|constant| {
                let tensor = weights.get(GraphId(index), &constant.name);
                let tensor = tensor.ok_or_else(|| refused(&constant.name, "no data".into()))?;
                uploads.place(tensor).map_err(|problem| refused(&constant.name, problem))
            });
            constants.push(placed.collect::<Result<Vec<_>>>()?);
        }
        let fused = graphs.graphs.iter().map(|graph| {
            let mut fused = graph.module.main.clone();
            // Before products are found: transposes are among what they read.
            layouts::sink(&mut fused);
            let made = fuse(&mut fused);
            tracing::debug!(method = graph.method, delegate = graph.delegate, ?made, "ops fused");
            Arc::new(fused)
        });
        let fused = fused.collect();
        let (blocks, constant_bytes) = uploads.finish()?;
        tracing::info!(constant_bytes, device = device.adapter.name, "constants are on the device");
        let workspace = Mutex::new(Workspace::new(&device)?);
        let limits = options.limits.clone();
        let mut features = device.adapter.features;
        // Halves and bytes are further from the program's own numbers than it allows.
        if options.precision == Precision::Exact {
            (features.matrices, features.dots) = (0, false);
        }
        let lanes = |graph: &DelegateGraph| match lane_rows(&graph.module.main) {
            Ok(rows) if !options.batch_invariant => Some(rows),
            Ok(_) => None,
            Err(reason) => {
                tracing::debug!(method = graph.method, reason, "sessions run one by one");
                None
            }
        };
        let lanes = graphs.graphs.iter().map(lanes).collect();
        let (plans, recorded) = Default::default();
        Ok(LoadedVulkan {
            device,
            graphs,
            fused,
            lanes,
            slots,
            blocks,
            constants,
            plans,
            workspace,
            recorded,
            limits,
            features,
            constant_bytes,
        })
    }

    /// One call, handed over; unless it may be `late`, it is waited for.
    fn submit_one(&self, id: GraphId, call: &mut Call<'_>, late: bool) -> Result<Option<Arc<Outcome>>> {
        call.outputs.clear();
        let mut attempt = self.attempt(&mut *call.state)?;
        let Some(graph) = self.graphs.graphs.get(id.0) else {
            return Err(Error::Invalid(format!("there is no graph {}", id.0)));
        };
        attempt.state.check()?;
        check_arguments(&graph.module.main, call.inputs)?;
        call.control.check()?;
        let is_fused = !call.control.traces_values();
        let ran = match is_fused {
            true => Ran::Fused(self.fused[id.0].clone()),
            false => Ran::Plain(graph.module.clone()),
        };
        let planned = self.plan((id.0, is_fused), ran.graph(), call.inputs)?;
        let mut space = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let mut run = Run::new(self, &mut space, (attempt.state, None), (id, ran, planned), call.control);
        let Gives { values, outcome } = run.all(call.inputs)?;
        drop(space);
        if let Some(outcome) = &outcome {
            if late {
                attempt.state.follows(outcome.clone());
            } else {
                outcome.wait()?;
            }
        }
        *call.outputs = values.into_iter().next().unwrap_or_default();
        attempt.succeeded = true;
        Ok(outcome)
    }

    /// The plan of a graph for inputs of these shapes.
    pub(crate) fn plan(
        &self,
        (id, is_fused): (usize, bool),
        graph: &Graph,
        inputs: &[Value],
    ) -> Result<Arc<Planned>> {
        let shapes: Vec<Option<Vec<usize>>> = inputs
            .iter()
            .map(|value| match value {
                Value::Tensor(tensor) => Some(tensor.shape().to_vec()),
                Value::Device(tensor) => Some(tensor.shape().to_vec()),
                _ => None,
            })
            .collect();
        let key = (id, is_fused, shapes);
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(planned) = plans.get(&key) {
            return Ok(planned.clone());
        }
        let shapes: Vec<Option<&[usize]>> = key.2.iter().map(Option::as_deref).collect();
        let limits = (self.limits.tensor_bytes, self.limits.live_bytes);
        let planned = Arc::new(Planned::new(graph, &shapes, limits).map_err(|error| match error {
            PlanError::Limit { what, limit, found, allowed } => Error::Limit { what, limit, found, allowed },
            other => Error::Invalid(other.to_string()),
        })?);
        let (steps, arena_bytes) = (planned.steps.len(), planned.plan.arena_bytes);
        tracing::debug!(graph = id, steps, arena_bytes, "a plan was made");
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        plans.insert(key, planned.clone());
        Ok(planned)
    }
}

/// Constants on their way to the device. Equal data are uploaded once.
struct Uploads {
    device: Arc<Device>,
    /// Of each block: what lies in it.
    blocks: Vec<(u64, Vec<(u64, HostTensor)>)>,
    seen: HashMap<(usize, usize), (usize, u64)>,
    /// The most bytes that a kernel sees.
    most: u64,
    bytes: u64,
}

impl Uploads {
    fn place(&mut self, tensor: &HostTensor) -> Result<Placed, String> {
        let bytes = tensor.bytes().len() as u64;
        if bytes > self.most {
            let most = self.most;
            return Err(format!("{bytes} bytes are more than a kernel of this device can see ({most})"));
        }
        let identity = (tensor.bytes().as_ptr() as usize, tensor.bytes().len());
        let (block, offset) = match self.seen.get(&identity) {
            Some(&place) => place,
            None => {
                let room = bytes.max(1).next_multiple_of(ALIGNMENT);
                let full = self.blocks.last().is_none_or(|(used, _)| used + room > BLOCK_BYTES);
                if full {
                    self.blocks.push((0, Vec::new()));
                }
                let block = self.blocks.len() - 1;
                let (used, list) = &mut self.blocks[block];
                let offset = *used;
                *used += room;
                list.push((offset, tensor.clone()));
                self.bytes += bytes;
                self.seen.insert(identity, (block, offset));
                (block, offset)
            }
        };
        let given = Given::Tensor {
            dtype: tensor.dtype(),
            sizes: tensor.shape().to_vec(),
            offset: 0,
            first: crate::run::first_element(tensor),
        };
        Ok(Placed { block, offset, bytes, given })
    }

    fn finish(self) -> Result<(Vec<Buffer>, u64), VulkanError> {
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for (bytes, list) in self.blocks {
            let block = Buffer::new(&self.device, bytes, Purpose::Compute, "weights")?;
            for (offset, tensor) in list {
                block.write(offset, tensor.bytes())?;
            }
            blocks.push(block);
        }
        Ok((blocks, self.bytes))
    }
}

impl Loaded for LoadedVulkan {
    fn new_state(&self, options: &StateOptions) -> Result<Box<dyn State>> {
        if let Some(spec) = &options.cache {
            spec.check(&self.limits)?;
        }
        let state =
            VulkanState::new(&self.device, self.graphs.clone(), self.slots.clone(), options.cache.as_ref())?;
        Ok(Box::new(state))
    }

    fn run(
        &self,
        id: GraphId,
        state: &mut dyn State,
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        let mut call = Call { state, inputs, outputs, control, result: Ok(()) };
        let Some(outcome) = self.submit_one(id, &mut call, false)? else { return Ok(()) };
        // What is small is read once and for all, so that its memory serves the next run; of scores perhaps only the greatest is
        // wanted.
        for output in call.outputs.iter_mut() {
            if let Value::Device(tensor) = output
                && tensor.as_any().downcast_ref::<Kept>().is_none_or(Kept::is_read_at_once)
            {
                *output = Value::Tensor(tensor.to_host()?);
            }
        }
        drop(outcome);
        Ok(())
    }

    /// Lanes of one token each share runs where their texts meet nowhere but in their caches: weights are read once for all of them.
    /// Others are handed over one after the other. Nobody waits for any of them. In a shared run of so many lanes that products
    /// are computed in tiles, sums are made in another order than alone.
    fn submit(&self, graph: GraphId, calls: &mut [Call<'_>]) -> Result<Ticket> {
        let mut outcomes = Vec::with_capacity(calls.len());
        let mut alone: Vec<(usize, &mut Call<'_>)> = calls.iter_mut().enumerate().collect();
        if let Some(rows) = self.lanes.get(graph.0).and_then(Option::as_ref).filter(|_| alone.len() > 1) {
            let can_share = |(_, call): &mut (usize, &mut Call<'_>)| self.can_share(rows, graph, call);
            let mut sharing: Vec<_> = alone.extract_if(.., can_share).collect();
            while sharing.len() > 1 {
                let rest = sharing.split_off(sharing.len().min(MOST_SPANS));
                let mut group = std::mem::replace(&mut sharing, rest);
                let mut calls: Vec<&mut Call<'_>> = group.iter_mut().map(|(_, call)| &mut **call).collect();
                match self.submit_together(graph, rows, &mut calls) {
                    Ok(outcome) => {
                        let lanes = group.iter().map(|(lane, _)| *lane);
                        outcomes.extend(lanes.filter_map(|lane| Some((lane, outcome.clone()?))));
                    }
                    // Each alone finds its own fault.
                    Err(error) => {
                        tracing::debug!(%error, "lanes part");
                        alone.append(&mut group);
                    }
                }
            }
            alone.append(&mut sharing);
        }
        for (lane, call) in alone {
            match self.submit_one(graph, call, true) {
                Ok(outcome) => outcomes.extend(outcome.map(|outcome| (lane, outcome))),
                Err(error) => call.result = Err(error),
            }
        }
        Ok(if outcomes.is_empty() { Ticket::done() } else { Ticket::late(Box::new(Outcomes(outcomes))) })
    }

    fn runs_flat(&self) -> bool {
        true
    }

    /// One run for all tokens; of so many that products are computed in tiles, sums are made in another order than alone.
    fn run_flat(
        &self,
        graph: GraphId,
        parts: &mut [Part<'_>],
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        *outputs = self.run_parts(graph, parts, inputs, control)?;
        Ok(())
    }

    fn memory(&self) -> MemoryReport {
        let space = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        MemoryReport {
            mapped_bytes: 0,
            packed_bytes: self.constant_bytes,
            state_bytes: self.slots.bytes,
            run_bytes: space.bytes(),
            cache_bytes: 0,
        }
    }
}
