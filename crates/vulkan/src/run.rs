//! One call: inputs written, the walk over the plan's steps turned into commands, what it gives read back. Commands that are those
//! of an earlier run are replayed with new parameters.

use crate::counts::Counts;
use crate::ffi::{Bound, Buffer, Purpose, Recording, Saved};
use crate::loaded::LoadedVulkan;
use crate::outcome::{Greatest, Kept, Outcome, Ran, at_node};
use crate::replay::{Recorded, Replay};
use crate::state::VulkanState;
use crate::workspace::{Outputs, Slot, Workspace};
use pteron_gpu::{
    CacheView, Datum, Dispatch, Finished, Given, Pause, Planned, REPORT_GREATEST, REPORT_WORDS, Region, Span,
    View, Walk, WalkError, Written,
};
use pteron_ir::Node;
use pteron_plan::{Access, barriers};
use pteron_runtime::backend::{GraphId, RunControl, Step};
use pteron_runtime::reference::{extent, work};
use pteron_runtime::{Error, Result, Value};
use pteron_tensor::{HostTensor, Scalar};
use std::sync::Arc;
use std::time::{Duration, Instant};

mod places;

use places::Lies;
pub(crate) use places::first_element;

/// Words between the parameters of two kernels, so that each begins in a line of its own.
const PARAM_WORDS: usize = 16;
/// The grid lies before the parameters.
const GRID_WORDS: usize = 3;

/// A call under way.
pub(crate) struct Run<'a> {
    program: &'a LoadedVulkan,
    space: &'a mut Workspace,
    state: &'a mut VulkanState,
    beside: Option<Beside<'a>>,
    id: GraphId,
    planned: Arc<Planned>,
    ran: Ran,
    control: &'a RunControl,
    /// The slot that it runs in.
    slot: usize,
    /// By input: where it lies.
    given: Vec<Option<Lies>>,
    /// What was handed over last.
    outcome: Option<Arc<Outcome>>,
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

/// What a run over the tokens of several sessions knows besides the state of the first.
pub(crate) struct Beside<'a> {
    /// Of the others.
    pub(crate) states: Vec<&'a mut VulkanState>,
    /// Where the tokens of all of them are in their texts.
    pub(crate) spans: Vec<Span>,
    /// By output: the axis of its rows, where each session gets its own; none where outputs stay whole.
    pub(crate) parted: Vec<usize>,
    /// What was recorded for such runs.
    pub(crate) recorded: &'a mut Recorded,
}

/// What a run gives.
pub(crate) struct Gives {
    /// Tensors of it stay on the device. By session where each gets its own, else once.
    pub(crate) values: Vec<Vec<Value>>,
    /// What is to be waited for.
    pub(crate) outcome: Option<Arc<Outcome>>,
}

/// Dispatches that were handed over.
struct HandedOver {
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

impl<'a> Run<'a> {
    pub(crate) fn new(
        program: &'a LoadedVulkan,
        space: &'a mut Workspace,
        (state, beside): (&'a mut VulkanState, Option<Beside<'a>>),
        (id, ran, planned): (GraphId, Ran, Arc<Planned>),
        control: &'a RunControl,
    ) -> Run<'a> {
        let (changes_buffers, work, counts) = Default::default();
        let (began, before, waited) = (Instant::now(), Duration::ZERO, Duration::ZERO);
        let (slot, given, outcome) = Default::default();
        Run {
            program,
            space,
            state,
            beside,
            id,
            planned,
            ran,
            control,
            slot,
            given,
            outcome,
            changes_buffers,
            work,
            began,
            before,
            waited,
            counts,
        }
    }

    /// Hands the whole graph over; what it gives. All but its last part has run when this returns.
    pub(crate) fn all(&mut self, inputs: &[Value]) -> Result<Gives> {
        let (recorded, planned) = (recorded_of(self.state, self.beside.as_ref()), &self.planned);
        let knows = |slot: &Slot| recorded.knows(planned, slot.outputs.buffer.id());
        self.slot = self.space.slot(&self.program.device, knows)?;
        let given = self.inputs(inputs)?;
        self.changes_buffers = self.planned.plan.changed.contains(&true);
        self.slot().report.write_landed(0, &[0; REPORT_WORDS * 4])?;
        let traced = self.control.trace.is_some();
        let known = if traced { None } else { self.known() };
        let values = match known {
            None => self.walked(&given, traced, &[])?,
            Some(mut replay) => {
                if self.replayed(&mut replay, &given)? {
                    let values = self.outputs(&replay.outputs, replay.greatest.as_ref())?;
                    self.recorded().put_replay(replay);
                    values
                } else {
                    let Replay { varies, .. } = replay;
                    self.walked(&given, traced, &varies)?
                }
            }
        };
        let host = self.began.elapsed().saturating_sub(self.waited);
        tracing::trace!(?host, before = ?self.before, waited = ?self.waited, "a call");
        self.program.device.count(Counts { runs: 1, host, ..self.counts });
        Ok(Gives { values, outcome: self.outcome.take() })
    }

    fn slot(&self) -> &Slot {
        &self.space.slots[self.slot]
    }

    /// What was recorded for runs like this one.
    fn recorded(&mut self) -> &mut Recorded {
        match &mut self.beside {
            Some(beside) => beside.recorded,
            None => &mut self.state.recorded,
        }
    }

    /// The state of a session.
    fn state_of(&self, span: usize) -> Option<&VulkanState> {
        let Some(other) = span.checked_sub(1) else { return Some(self.state) };
        self.beside.as_ref()?.states.get(other).map(|state| &**state)
    }

    /// The texts that are read side by side; none where it is one.
    fn spans(&self) -> &[Span] {
        self.beside.as_ref().map_or(&[], |beside| &beside.spans)
    }

    /// Makes room in the cache of a session.
    fn admit(&mut self, written: &Written) -> Result<CacheView> {
        let state = match (written.span.checked_sub(1), &mut self.beside) {
            (None, _) => &mut *self.state,
            (Some(other), Some(beside)) if other < beside.states.len() => &mut *beside.states[other],
            _ => return Err(no_cache()),
        };
        let admitted = state.cache.as_mut().ok_or_else(no_cache).and_then(|cache| cache.admit(written));
        match &self.beside {
            Some(_) => {
                admitted.map_err(|source| Error::Span { span: written.span, source: Box::new(source) })
            }
            None => admitted,
        }
    }

    /// What its steps were charged.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// What was recorded for this plan over the memory of this slot and these inputs.
    fn known(&mut self) -> Option<Replay> {
        let planned = self.planned.clone();
        let at = recorded_of(self.state, self.beside.as_ref()).replays().iter().position(|replay| {
            let mut own = replay
                .memory
                .iter()
                .filter(|(region, ..)| matches!(region, Region::Input(_) | Region::Outputs | Region::Faults));
            Arc::ptr_eq(&replay.planned, &planned) && own.all(|memory| self.is_there(memory))
        })?;
        Some(self.recorded().take_replay(at))
    }

    /// Runs what a call before has recorded, with what its numbers change; false where more than numbers would change.
    fn replayed(&mut self, replay: &mut Replay, given: &[Given]) -> Result<bool> {
        let Replay { lowered, dispatches, offsets, recording, varies, groups, .. } = replay;
        let (ran, planned, spans) = (self.ran.clone(), self.planned.clone(), self.spans().to_vec());
        let mut is_fixed = true;
        let same = lowered.replay::<Halt>(
            (ran.graph(), &planned),
            (given, &spans),
            dispatches,
            |written| self.admit(written).map_err(Halt::Run),
            |at, dispatch| {
                // Grids that turn out to change are read by the device from then on.
                is_fixed &= varies[at] || groups[at] == dispatch.groups;
                is_fixed &= !dispatch.kernel.is_pushed();
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
        let is_there = replay.memory.iter().all(|memory| self.is_there(memory));
        if !is_there || self.saving()? != replay.recording.saved() {
            return Ok(false);
        }
        self.work = replay.work;
        self.control.charge(replay.work)?;
        self.control.check()?;
        self.submit(&mut replay.recording)?;
        self.counts.replayed += 1;
        self.counts.dispatches += replay.dispatches.len() as u64;
        Ok(true)
    }

    /// The copy that the next commands begin with.
    fn saving(&mut self) -> Result<Option<Saved>> {
        if self.changes_buffers { self.state.saving(&self.program.device) } else { Ok(None) }
    }

    /// Hands commands over.
    fn submit(&mut self, recording: &mut Recording) -> Result<()> {
        self.before = self.began.elapsed();
        let flight = recording.submit(&self.slot().report).map_err(Error::from);
        if recording.saved().is_some() {
            self.state.saved(flight.as_ref().err());
        }
        let flight = flight?;
        self.space.slots[self.slot].flight = Some(flight.clone());
        let (planned, ran) = (self.planned.clone(), self.ran.clone());
        let (graphs, id) = (self.program.graphs.clone(), self.id);
        self.outcome = Some(Arc::new(Outcome { flight, planned, ran, graphs, id }));
        Ok(())
    }

    /// Waits for what was handed over last.
    fn land(&mut self) -> Result<()> {
        let Some(outcome) = self.outcome.take() else { return Ok(()) };
        let began = Instant::now();
        let told = outcome.wait();
        self.waited += began.elapsed();
        told.map(drop)
    }

    /// Walks over all steps; `varies` says of which dispatches the grids change from call to call, as far as that is known.
    fn walked(&mut self, given: &[Given], traced: bool, varies: &[bool]) -> Result<Vec<Vec<Value>>> {
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
        let features = self.program.features;
        let (ran, planned) = (self.ran.clone(), self.planned.clone());
        let planned_graph = (ran.graph(), &*planned);
        let spans = self.spans().to_vec();
        let mut walk = Walk::new(planned_graph, given, &constants, &buffers, &spans, (features, traced))
            .map_err(|error| Error::Invalid(error.to_string()))?;
        let mut charged = 0;
        loop {
            let pause = walk.advance();
            self.charge(&walk, &mut charged)?;
            match pause.map_err(|error| self.at_node(walk.node(walk.step()), error))? {
                Pause::Done => break,
                Pause::Admit(written) => {
                    let view = self.admit(&written)?;
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
        let Finished { outputs, bytes, greatest } = finished.map_err(|error| self.at_node(None, error))?;
        if bytes as u64 > self.slot().outputs.buffer.bytes {
            let larger = Outputs::new(&self.program.device, (bytes as u64).next_power_of_two())?;
            self.space.slots[self.slot].outputs = Arc::new(larger);
        }
        let known = (!walk.has_read()).then_some(varies);
        let ran = self.dispatched(&mut walk, known)?;
        let values = self.outputs(&outputs, greatest.as_ref())?;
        if let Some(HandedOver { dispatches, offsets, varies, recording }) = ran {
            match walk.into_lowered(&dispatches) {
                Some(lowered) => {
                    let memory = self.memory_of(&dispatches);
                    let groups = dispatches.iter().map(|dispatch| dispatch.groups).collect();
                    let work = self.work;
                    self.recorded().put_replay(Replay {
                        planned,
                        lowered,
                        dispatches,
                        offsets,
                        varies,
                        groups,
                        recording,
                        memory,
                        outputs,
                        greatest,
                        work,
                    });
                }
                None => self.recorded().put_recording(recording),
            }
        }
        Ok(values)
    }

    /// What lies in the region of outputs, or will; by session where each gets its own.
    fn outputs(&self, outputs: &[Datum], greatest: Option<&(usize, Vec<usize>)>) -> Result<Vec<Vec<Value>>> {
        let parted = self.beside.as_ref().map_or(&[][..], |beside| &beside.parted);
        if parted.is_empty() {
            let values = outputs.iter().enumerate().map(|(at, datum)| {
                let rows = greatest.filter(|(output, _)| *output == at).map_or(&[][..], |(_, rows)| rows);
                let found = match rows {
                    &[offset] => Some(Greatest { offset: offset as u64, word: REPORT_GREATEST }),
                    _ => None,
                };
                self.value(datum, found, None)
            });
            return Ok(vec![values.collect::<Result<_>>()?]);
        }
        let sessions = self.spans().len();
        let lengths = outputs.iter().map(|datum| match datum {
            Datum::Tensor(view) => view.offset + view.layout.len() * view.dtype.size(),
            Datum::Number(_) => 0,
        });
        let all = lengths.max().unwrap_or(0) as u64;
        let one = |session: usize| {
            let values = outputs.iter().zip(parted).enumerate().map(|(at, (datum, &axis))| {
                let own = part(datum, axis, (session, sessions))?;
                let found =
                    greatest.filter(|(output, _)| *output == at).and_then(|(_, rows)| rows.get(session));
                let word = REPORT_GREATEST + 2 * session;
                let found = found.map(|&offset| Greatest { offset: offset as u64, word });
                self.value(&own, found, Some(all))
            });
            values.collect::<Result<Vec<Value>>>()
        };
        (0..sessions).map(one).collect()
    }

    /// One output, of so many bytes that several sessions have together.
    fn value(&self, datum: &Datum, greatest: Option<Greatest>, together: Option<u64>) -> Result<Value> {
        Ok(match datum {
            Datum::Number(Scalar::Int(number)) => Value::Int(*number),
            Datum::Number(Scalar::Float(number)) => Value::Float(*number),
            Datum::Number(Scalar::Bool(truth)) => Value::Bool(*truth),
            Datum::Tensor(view) => {
                let (outputs, ty) = (self.slot().outputs.clone(), (view.dtype, view.sizes().to_vec()));
                let Some(outcome) = self.outcome.clone() else {
                    // Nothing was computed: it has no element.
                    return Ok(Value::Tensor(HostTensor::zeros(ty.0, ty.1)?));
                };
                let kept = Kept::new((outputs, outcome), view.offset as u64, ty, greatest);
                Value::Device(Arc::new(match together {
                    Some(bytes) => kept.one_of(bytes),
                    None => kept,
                }))
            }
        })
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
            self.recorded().put_recording(ran.recording);
            self.land()?;
        }
        Ok(())
    }

    /// The same; what was run.
    fn dispatched(&mut self, walk: &mut Walk<'_>, varies: Option<&[bool]>) -> Result<Option<HandedOver>> {
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
            let pushed = if dispatch.kernel.is_pushed() { dispatch.params.clone() } else { Vec::new() };
            bound.push(Bound { kernel: dispatch.kernel.clone(), bindings, grid, params, pushed, waits });
        }
        let offsets = bound.iter().map(|bound| bound.params).collect();
        let saved = self.saving()?;
        let device = &self.program.device;
        let known = self.recorded().take_recording(|recording| recording.is_of(&bound, saved));
        let mut recording = match known {
            Some(mut recording) => {
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
        Ok(Some(HandedOver { dispatches, offsets, varies, recording }))
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
        let most = self.program.limits.tensor_bytes.min(self.program.device.adapter.features.max_binding);
        at_node(self.ran.graph(), node, error, most)
    }
}

/// What was recorded for runs of a session, or of several side by side.
fn recorded_of<'r>(state: &'r VulkanState, beside: Option<&'r Beside<'_>>) -> &'r Recorded {
    beside.map_or(&state.recorded, |beside| &*beside.recorded)
}

/// What one of several sessions has of an output with a row for each of them.
fn part(datum: &Datum, axis: usize, (session, sessions): (usize, usize)) -> Result<Datum> {
    let Datum::Tensor(view) = datum else { return Ok(*datum) };
    let sizes = view.sizes();
    let is_parted = sizes.get(axis) == Some(&sessions) && sizes.iter().take(axis).all(|&size| size == 1);
    let range = pteron_ir::rules::SliceRange { start: session, step: 1, count: 1 };
    let own = view.layout.slice(axis, range).filter(|_| is_parted);
    let Some((moved, layout)) = own else {
        return Err(Error::Invalid(format!(
            "an output {sizes:?} has no row for each of {sessions} sessions"
        )));
    };
    let offset = view.offset.saturating_add_signed(moved * view.dtype.size() as isize);
    Ok(Datum::Tensor(View { offset, layout, ..*view }))
}

/// The first element of a tensor of floats, cut off behind the point.
fn first_float(tensor: &HostTensor) -> Option<i64> {
    let host = pteron_runtime::reference::cast(tensor, pteron_tensor::DType::I64).ok()?;
    first_element(&host)
}
