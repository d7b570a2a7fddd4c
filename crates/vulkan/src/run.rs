//! One call: inputs written, the walk over the plan's steps turned into commands, what it gives read back. Commands that are those
//! of an earlier run are replayed with new parameters.

use crate::counts::Counts;
use crate::ffi::{ALIGNMENT, Binding, Bound, Buffer, Purpose, Recording, Saved};
use crate::loaded::{LoadedVulkan, Workspace};
use crate::replay::Replay;
use crate::state::VulkanState;
use pteron_gpu::{Datum, Dispatch, Given, Pause, Planned, Region, View, Walk, WalkError};
use pteron_ir::text::Printer;
use pteron_ir::{Graph, Node};
use pteron_plan::{Access, barriers};
use pteron_runtime::backend::{GraphId, RunControl, Step};
use pteron_runtime::reference::{extent, work};
use pteron_runtime::{Error, KernelError, NodeError, Result, Value};
use pteron_tensor::{HostTensor, Scalar};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Words between the parameters of two kernels, so that each begins in a line of its own.
const PARAM_WORDS: usize = 16;
/// The grid lies before the parameters.
const GRID_WORDS: usize = 3;

/// A call under way.
pub(crate) struct Run<'a> {
    program: &'a LoadedVulkan,
    space: &'a mut Workspace,
    state: &'a mut VulkanState,
    id: GraphId,
    graph: &'a Graph,
    control: &'a RunControl,
    /// Whether it changes buffers of the session.
    changes_buffers: bool,
    /// What its steps were charged.
    work: u64,
    began: Instant,
    /// How long it took until the last submission.
    before: Duration,
    /// How long the device was waited for.
    waited: Duration,
    counts: Counts,
}

/// Dispatches that ran.
struct Ran {
    dispatches: Vec<Dispatch>,
    /// Of their parameters, in words.
    offsets: Vec<u32>,
    varies: Vec<bool>,
    recording: Recording,
}

/// Why a replay ends early.
enum Halt {
    /// A step cannot be lowered with this call's numbers.
    Walk,
    /// Anything else.
    Run(Error),
}

impl From<WalkError> for Halt {
    fn from(_: WalkError) -> Halt {
        Halt::Walk
    }
}

fn no_cache() -> Error {
    Error::Cache(
        "the program keeps keys and values in a cache of the session, and its metadata do not say how long that is: open the \
         session with a context or a cache"
            .into(),
    )
}

/// The first element of a tensor of integers.
pub(crate) fn first_element(tensor: &HostTensor) -> Option<i64> {
    let bytes = tensor.bytes();
    Some(match tensor.dtype() {
        pteron_tensor::DType::I64 => *tensor.as_slice::<i64>().ok()?.first()?,
        pteron_tensor::DType::I32 => (*tensor.as_slice::<i32>().ok()?.first()?).into(),
        pteron_tensor::DType::U32 => (*tensor.as_slice::<u32>().ok()?.first()?).into(),
        pteron_tensor::DType::I16 => (*tensor.as_slice::<i16>().ok()?.first()?).into(),
        pteron_tensor::DType::U16 => (*tensor.as_slice::<u16>().ok()?.first()?).into(),
        pteron_tensor::DType::U8 => (*bytes.first()?).into(),
        pteron_tensor::DType::I8 => (*tensor.as_slice::<i8>().ok()?.first()?).into(),
        pteron_tensor::DType::Bool => i64::from(*bytes.first()? != 0),
        _ => return None,
    })
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        program: &'a LoadedVulkan,
        space: &'a mut Workspace,
        state: &'a mut VulkanState,
        (id, graph): (GraphId, &'a Graph),
        control: &'a RunControl,
    ) -> Run<'a> {
        let (changes_buffers, work, counts) = Default::default();
        let (began, before, waited) = (Instant::now(), Duration::ZERO, Duration::ZERO);
        Run {
            program,
            space,
            state,
            id,
            graph,
            control,
            changes_buffers,
            work,
            began,
            before,
            waited,
            counts,
        }
    }

    /// Runs the whole graph; what it gives.
    pub(crate) fn all(&mut self, planned: &Arc<Planned>, inputs: &[Value]) -> Result<Vec<Value>> {
        let given = self.inputs(inputs)?;
        self.changes_buffers = planned.plan.changed.contains(&true);
        self.space.faults.write(0, &[0; 12])?;
        let traced = self.control.trace.is_some();
        let known = if traced { None } else { self.state.take_replay(planned) };
        let values = match known {
            None => self.walked(planned, &given, traced, &[])?,
            Some(mut replay) => {
                if self.replayed(&mut replay, &given)? {
                    let values = self.outputs(&replay.outputs)?;
                    self.state.put_replay(replay);
                    values
                } else {
                    let Replay { varies, .. } = replay;
                    self.walked(planned, &given, traced, &varies)?
                }
            }
        };
        let host = self.began.elapsed().saturating_sub(self.waited);
        tracing::trace!(?host, before = ?self.before, waited = ?self.waited, "a call");
        self.program.device.count(Counts { runs: 1, host, ..self.counts });
        Ok(values)
    }

    /// Runs what a call before has recorded, with what its numbers change; false where more than numbers would change.
    fn replayed(&mut self, replay: &mut Replay, given: &[Given]) -> Result<bool> {
        let Replay { planned, lowered, dispatches, offsets, recording, varies, groups, .. } = replay;
        let cache = &mut self.state.cache;
        let mut is_fixed = true;
        let same = lowered.replay::<Halt>(
            (self.graph, planned),
            given,
            dispatches,
            |written| match cache {
                Some(cache) => cache.admit(written).map_err(Halt::Run),
                None => Err(Halt::Run(no_cache())),
            },
            |at, dispatch| {
                // Grids that turn out to change are read by the device from then on.
                is_fixed &= varies[at] || groups[at] == dispatch.groups;
                varies[at] |= groups[at] != dispatch.groups;
                let mut words = dispatch.grid().to_vec();
                words.extend(&dispatch.params);
                recording.set(offsets[at], &words).map_err(|error| Halt::Run(error.into()))
            },
        );
        match same {
            Ok(true) if is_fixed => {}
            Ok(true) => return Ok(false),
            // A walk finds the same fault, and says where.
            Ok(false) | Err(Halt::Walk) => return Ok(false),
            Err(Halt::Run(error)) => return Err(error),
        }
        let is_there =
            |&(region, id): &(Region, u64)| self.memory(region).is_some_and(|(held, _)| held.id() == id);
        if !replay.memory.iter().all(is_there) || self.saving()? != replay.recording.saved() {
            return Ok(false);
        }
        self.control.charge(replay.work)?;
        self.control.check()?;
        self.submit(&mut replay.recording)?;
        self.counts.replayed += 1;
        self.counts.dispatches += replay.dispatches.len() as u64;
        self.faults(&replay.dispatches, |step| replay.planned.node(step).cloned())?;
        Ok(true)
    }

    /// The copy that the next commands begin with.
    fn saving(&mut self) -> Result<Option<Saved>> {
        if self.changes_buffers { self.state.saving(&self.program.device) } else { Ok(None) }
    }

    fn submit(&mut self, recording: &mut Recording) -> Result<()> {
        let began = Instant::now();
        self.before = began.duration_since(self.began);
        let ran = recording.run().map_err(Error::from);
        self.waited += began.elapsed();
        if recording.saved().is_some() {
            self.state.saved(&ran);
        }
        ran
    }

    /// Walks over all steps; `varies` says of which dispatches the grids change from call to call, as far as that is known.
    fn walked(
        &mut self,
        planned: &Arc<Planned>,
        given: &[Given],
        traced: bool,
        varies: &[bool],
    ) -> Result<Vec<Value>> {
        let constants: Vec<Given> =
            self.program.constants[self.id.0].iter().map(|placed| placed.given.clone()).collect();
        let slots = self.state.slots.clone();
        let buffers: Vec<Given> = slots.by_graph[self.id.0]
            .iter()
            .map(|slot| Given::Tensor {
                dtype: slot.dtype,
                sizes: slot.sizes.clone(),
                offset: 0,
                first: None,
            })
            .collect();
        let features = self.program.device.adapter.features;
        let planned_graph = (self.graph, &**planned);
        let mut walk = Walk::new(planned_graph, given, &constants, &buffers, (features, traced))
            .map_err(|error| Error::Invalid(error.to_string()))?;
        let mut charged = 0;
        loop {
            let pause = walk.advance();
            self.charge(&walk, &mut charged)?;
            match pause.map_err(|error| self.at_node(walk.node(walk.step()), error))? {
                Pause::Done => break,
                Pause::Admit(written) => {
                    let Some(cache) = &mut self.state.cache else { return Err(no_cache()) };
                    let view = cache.admit(&written)?;
                    walk.admit(view);
                }
                Pause::Read(view) => {
                    self.flush(&mut walk)?;
                    let tensor = self.fetch(&view, &walk)?;
                    let Some(number) = first_element(&tensor).or_else(|| first_float(&tensor)) else {
                        return Err(Error::Invalid("an integer is read from a tensor that has none".into()));
                    };
                    walk.give(number);
                }
                Pause::Step(results) => {
                    self.flush(&mut walk)?;
                    self.trace(&walk, &results)?;
                }
            }
        }
        let finished = walk.finish(self.program.limits.tensor_bytes);
        let (outputs, bytes) = finished.map_err(|error| self.at_node(None, error))?;
        if bytes as u64 > self.space.outputs.bytes {
            self.space.outputs = Buffer::new(
                &self.program.device,
                (bytes as u64).next_power_of_two(),
                Purpose::Readback,
                "outputs",
            )?;
        }
        let known = (!walk.has_read()).then_some(varies);
        let ran = self.dispatched(&mut walk, known)?;
        let values = self.outputs(&outputs)?;
        if let Some(Ran { dispatches, offsets, varies, recording }) = ran {
            match walk.into_lowered(&dispatches) {
                Some(lowered) => {
                    let memory = self.memory_of(&dispatches);
                    let groups = dispatches.iter().map(|dispatch| dispatch.groups).collect();
                    let (planned, work) = (planned.clone(), self.work);
                    self.state.put_replay(Replay {
                        planned,
                        lowered,
                        dispatches,
                        offsets,
                        varies,
                        groups,
                        recording,
                        memory,
                        outputs,
                        work,
                    });
                }
                None => self.state.put_recording(recording),
            }
        }
        Ok(values)
    }

    /// What lies in the region of outputs.
    fn outputs(&self, outputs: &[Datum]) -> Result<Vec<Value>> {
        let values = outputs.iter().map(|datum| match datum {
            Datum::Number(Scalar::Int(number)) => Ok(Value::Int(*number)),
            Datum::Number(Scalar::Float(number)) => Ok(Value::Float(*number)),
            Datum::Number(Scalar::Bool(truth)) => Ok(Value::Bool(*truth)),
            Datum::Tensor(view) => {
                let mut tensor = HostTensor::zeros(view.dtype, view.sizes().to_vec())?;
                self.space.outputs.read(view.offset as u64, tensor.bytes_mut())?;
                Ok(Value::Tensor(tensor))
            }
        });
        values.collect()
    }

    /// The memory that dispatches see, but for constants, which stay where they are.
    fn memory_of(&self, dispatches: &[Dispatch]) -> Vec<(Region, u64)> {
        let mut memory: Vec<(Region, u64)> = Vec::new();
        for region in dispatches.iter().flat_map(|dispatch| &dispatch.operands).map(|operand| operand.region)
        {
            let is_new =
                !matches!(region, Region::Constant(_)) && memory.iter().all(|(seen, _)| *seen != region);
            if let (true, Some((held, _))) = (is_new, self.memory(region)) {
                memory.push((region, held.id()));
            }
        }
        memory
    }

    /// Writes inputs one behind the other.
    fn inputs(&mut self, inputs: &[Value]) -> Result<Vec<Given>> {
        let mut given = Vec::with_capacity(inputs.len());
        let mut tensors = Vec::new();
        let mut end = 0usize;
        for value in inputs {
            if let Some(number) = value.as_scalar() {
                given.push(Given::Number(number));
                continue;
            }
            let Some(tensor) = value.to_tensor()? else {
                return Err(Error::Invalid(format!("{} as input", value.describe())));
            };
            given.push(Given::Tensor {
                dtype: tensor.dtype(),
                sizes: tensor.shape().to_vec(),
                offset: end,
                first: first_element(&tensor),
            });
            let offset = end;
            end = (end + tensor.bytes().len()).next_multiple_of(ALIGNMENT as usize);
            tensors.push((offset, tensor));
        }
        if end as u64 > self.space.inputs.bytes {
            let bytes = (end as u64).next_power_of_two();
            self.space.inputs = Buffer::new(&self.program.device, bytes, Purpose::Upload, "inputs")?;
        }
        for (offset, tensor) in tensors {
            self.space.inputs.write(offset as u64, tensor.bytes())?;
        }
        Ok(given)
    }

    /// Takes the work of steps off the run's budget, before any of it is done.
    fn charge(&mut self, walk: &Walk<'_>, charged: &mut usize) -> Result<()> {
        while *charged <= walk.step() {
            if let Some(node) = walk.node(*charged) {
                let shape_of = |value| walk.sizes_of(value);
                let written = node.results.iter().map(|&value| extent(walk.sizes_of(value)));
                let written = written.fold(0u64, u64::saturating_add);
                let work = work(node, &shape_of, written).saturating_add(1);
                self.work = self.work.saturating_add(work);
                self.control.charge(work)?;
            }
            *charged += 1;
        }
        self.control.check()
    }

    /// Runs what the walk has lowered so far.
    fn flush(&mut self, walk: &mut Walk<'_>) -> Result<()> {
        if let Some(ran) = self.dispatched(walk, None)? {
            self.state.put_recording(ran.recording);
        }
        Ok(())
    }

    /// The same; what was run.
    fn dispatched(&mut self, walk: &mut Walk<'_>, varies: Option<&[bool]>) -> Result<Option<Ran>> {
        let dispatches = walk.take();
        if dispatches.is_empty() {
            return Ok(None);
        }
        self.control.check()?;
        let device = &self.program.device;
        let arena = walk.arena_bytes() as u64;
        if arena > self.program.limits.live_bytes {
            let (what, limit) = ("the memory of a run", "live_bytes");
            let allowed = self.program.limits.live_bytes;
            return Err(Error::Limit { what, limit, found: arena, allowed });
        }
        if arena > self.space.arena.bytes {
            // What earlier parts of the run have left there moves along.
            let larger =
                Buffer::new(device, arena.next_power_of_two(), Purpose::Compute, "the memory of runs")?;
            self.space.arena.copy_to(0, &larger, 0, self.space.arena.bytes)?;
            self.space.arena = larger;
        }
        let accesses: Vec<Access> = dispatches.iter().map(|dispatch| dispatch.access.clone()).collect();
        let waits = barriers(&accesses);
        let mut words: Vec<u32> = Vec::new();
        let mut bound = Vec::with_capacity(dispatches.len());
        // Commands that are no replay's are found again by what they are, whatever their grids.
        let varies = match varies {
            Some(varies) if varies.len() == dispatches.len() => varies.to_vec(),
            Some(_) => vec![false; dispatches.len()],
            None => vec![true; dispatches.len()],
        };
        for ((dispatch, waits), &varies) in dispatches.iter().zip(waits).zip(&varies) {
            let params = words.len() as u32;
            words.extend(dispatch.grid());
            words.extend(&dispatch.params);
            words.resize(words.len().next_multiple_of(PARAM_WORDS), 0);
            debug_assert_eq!(GRID_WORDS, dispatch.grid().len());
            let bindings =
                dispatch.operands.iter().map(|operand| self.binding(operand.region, operand.base as u64));
            let bindings = bindings.collect::<Result<Vec<_>>>()?;
            let grid = (!varies).then_some(dispatch.grid());
            bound.push(Bound { kernel: dispatch.kernel.clone(), bindings, grid, params, waits });
        }
        let offsets = bound.iter().map(|bound| bound.params).collect();
        let saved = self.saving()?;
        let device = &self.program.device;
        let known = self.state.take_recording(|recording| recording.is_of(&bound, saved));
        let mut recording = match known {
            Some(recording) => {
                recording.set(0, &words)?;
                recording
            }
            None => {
                let waits = bound.iter().filter(|bound| bound.waits).count();
                let recording = Recording::new(device, bound, &words, saved)?;
                let (count, pipelines) = (dispatches.len(), device.pipelines());
                tracing::debug!(dispatches = count, waits, pipelines, "a run was recorded");
                self.counts.recorded += 1;
                recording
            }
        };
        self.submit(&mut recording)?;
        self.counts.dispatches += dispatches.len() as u64;
        self.faults(&dispatches, |step| walk.node(step).cloned())?;
        Ok(Some(Ran { dispatches, offsets, varies, recording }))
    }

    /// An error where a kernel met an index outside its axis.
    fn faults(&self, dispatches: &[Dispatch], node: impl Fn(usize) -> Option<Arc<Node>>) -> Result<()> {
        if !dispatches
            .iter()
            .any(|dispatch| dispatch.operands.iter().any(|operand| operand.region == Region::Faults))
        {
            return Ok(());
        }
        let mut bytes = [0; 12];
        self.space.faults.read(0, &mut bytes)?;
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        match word(0).checked_sub(1) {
            None => Ok(()),
            Some(step) => {
                let error = KernelError::Index { index: (word(4) as i32).into(), size: word(8) as usize };
                Err(self.with_place(node(step as usize).as_ref(), NodeError::Kernel(error)))
            }
        }
    }

    /// What a kernel sees of a region from a byte on.
    fn binding(&self, region: Region, base: u64) -> Result<Binding> {
        let most = self.program.device.adapter.features.max_binding;
        let of = |buffer: &Buffer, offset: u64, bytes: u64| {
            let left = bytes.next_multiple_of(4).saturating_sub(base).max(4).min(most);
            buffer.binding(offset + base, left)
        };
        let missing = || Error::Invalid("a kernel is bound to memory that is not there".into());
        Ok(match region {
            Region::Arena => of(&self.space.arena, 0, self.space.arena.bytes),
            Region::Inputs => of(&self.space.inputs, 0, self.space.inputs.bytes),
            Region::Outputs => of(&self.space.outputs, 0, self.space.outputs.bytes),
            Region::Faults => of(&self.space.faults, 0, 12),
            Region::Constant(number) => {
                let placed = self.program.constants[self.id.0].get(number).ok_or_else(missing)?;
                of(&self.program.blocks[placed.block], placed.offset, placed.bytes)
            }
            Region::Buffer(number) => {
                let slot = self.state.slots.by_graph[self.id.0].get(number).ok_or_else(missing)?;
                of(self.state.buffers.as_ref().ok_or_else(missing)?, slot.offset, slot.bytes)
            }
            Region::Cache(part) => {
                let part =
                    self.state.cache.as_ref().and_then(|cache| cache.part(part)).ok_or_else(missing)?;
                of(part, 0, part.bytes)
            }
        })
    }

    /// The memory of a region, and where the region begins in it.
    fn memory(&self, region: Region) -> Option<(&Buffer, u64)> {
        Some(match region {
            Region::Arena => (&self.space.arena, 0),
            Region::Inputs => (&self.space.inputs, 0),
            Region::Outputs => (&self.space.outputs, 0),
            Region::Faults => (&self.space.faults, 0),
            Region::Constant(number) => {
                let placed = self.program.constants[self.id.0].get(number)?;
                (&self.program.blocks[placed.block], placed.offset)
            }
            Region::Buffer(number) => {
                let slot = self.state.slots.by_graph[self.id.0].get(number)?;
                (self.state.buffers.as_ref()?, slot.offset)
            }
            Region::Cache(part) => (self.state.cache.as_ref()?.part(part)?, 0),
        })
    }

    /// A view's elements on the host, read one row-major run after the other.
    fn fetch(&self, view: &View, _: &Walk<'_>) -> Result<HostTensor> {
        let mut tensor = HostTensor::zeros(view.dtype, view.sizes().to_vec())?;
        let Some((buffer, start)) = self.memory(view.region) else {
            return Err(Error::Invalid("a value is read from memory that is not there".into()));
        };
        let size = view.dtype.size();
        if view.layout.is_row_major() {
            buffer.read(start + view.offset as u64, tensor.bytes_mut())?;
            return Ok(tensor);
        }
        let mut index = vec![0usize; view.sizes().len()];
        for element in tensor.bytes_mut().chunks_exact_mut(size) {
            let steps = index.iter().zip(view.layout.strides());
            let moved: isize = steps.map(|(&at, &stride)| at as isize * stride).sum();
            let at = view.offset.saturating_add_signed(moved * size as isize);
            buffer.read(start + at as u64, element)?;
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                if index[axis] < view.sizes()[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        Ok(tensor)
    }

    /// Tells a listener of a step.
    fn trace(&self, walk: &Walk<'_>, results: &[Datum]) -> Result<()> {
        let (Some(trace), Some(node)) = (&self.control.trace, walk.node(walk.step())) else { return Ok(()) };
        // Who takes the time of steps wants none of what they gave.
        let results = if self.control.traces_values() { results } else { &[] };
        let results = results.iter().map(|datum| match datum {
            Datum::Tensor(view) => self.fetch(view, walk).map(Value::Tensor),
            Datum::Number(Scalar::Int(number)) => Ok(Value::Int(*number)),
            Datum::Number(Scalar::Float(number)) => Ok(Value::Float(*number)),
            Datum::Number(Scalar::Bool(truth)) => Ok(Value::Bool(*truth)),
        });
        let results = results.collect::<Result<Vec<Value>>>()?;
        trace.step(&Step { graph: self.id, op: &node.op, place: node.place, results: &results });
        Ok(())
    }

    /// The same error, with the op and its place.
    fn at_node(&self, node: Option<&Arc<Node>>, error: WalkError) -> Error {
        let source = match error {
            WalkError::Rule(error) => NodeError::Rule(error),
            WalkError::Large(found) => {
                let allowed =
                    self.program.limits.tensor_bytes.min(self.program.device.adapter.features.max_binding);
                return Error::Limit { what: "a result", limit: "tensor_bytes", found, allowed };
            }
            WalkError::Invalid(problem) => NodeError::Kernel(KernelError::Invalid(problem)),
        };
        self.with_place(node, source)
    }

    fn with_place(&self, node: Option<&Arc<Node>>, source: NodeError) -> Error {
        let Some(node) = node else { return Error::Invalid(source.to_string()) };
        let mut operands = Vec::new();
        node.for_each_operand(|value| operands.push(format!("%{}", value.0)));
        let operands = if operands.is_empty() { "nothing".to_owned() } else { operands.join(", ") };
        let op = Printer::new(self.graph).node(node).to_string();
        let place = match node.place {
            Some(place) => format!("chain {} #{}", place.chain, place.index),
            None => "made by lift".to_owned(),
        };
        Error::Node { op, place, operands, source: Box::new(source) }
    }
}

/// The first element of a tensor of floats, cut off behind the point.
fn first_float(tensor: &HostTensor) -> Option<i64> {
    let host = pteron_runtime::reference::cast(tensor, pteron_tensor::DType::I64).ok()?;
    first_element(&host)
}
