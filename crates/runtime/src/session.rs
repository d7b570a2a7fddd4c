//! A session: the state of one conversation with a program, and the running of methods over it.

use crate::backend::{BufferId, Rewind, RunControl, Snapshot, State, StateOptions, Ticket};
use crate::execute::{Execution, Table};
use crate::program::{Inner, check_input};
use crate::value::describe_tensor;
use crate::{CacheSpec, Error, Program, Result, Value};
use pteron_tensor::HostTensor;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use web_time::Instant;

/// What a session is opened with.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// The off-graph cache, in place of the one that the program's metadata describe.
    pub cache: Option<CacheSpec>,
    /// The off-graph cache's capacity, in place of the metadata's; needed where they have none.
    pub context: Option<usize>,
    /// Where the random generator of unseeded draws starts. The same seed gives the same draws.
    pub seed: u64,
}

/// State over a program. May move between threads; sessions never wait for each other.
pub struct Session {
    program: Program,
    options: StateOptions,
    state: Box<dyn State>,
    /// The program's own buffers, in the program's order.
    buffers: Vec<HostTensor>,
    table: Table,
    /// What a run may still take of the work that the program's limits allow.
    work: Arc<AtomicU64>,
    /// How many runs were handed over without a wait.
    submitted: u64,
}

/// A run of a method, and what it writes in the end.
pub(crate) struct Run<'a> {
    inner: &'a Inner,
    pub(crate) execution: Execution<'a>,
    buffers: &'a mut Vec<HostTensor>,
}

impl Run<'_> {
    /// Takes the outputs of a run that has come to its end, and makes what it wrote permanent.
    pub(crate) fn finish(mut self, outputs: &mut Vec<Value>) -> Result<()> {
        self.execution.take_outputs(outputs)?;
        let changed = self.execution.changed(self.buffers)?;
        // Weights that changed under the run make its outputs worthless.
        self.inner.check_files()?;
        self.execution.keep()?;
        for (number, tensor) in changed {
            self.buffers[number] = tensor;
        }
        Ok(())
    }
}

/// A run that was handed over ([`Session::submit`]).
#[derive(Debug)]
#[must_use = "errors that come late are told by `wait`"]
pub struct Pending {
    step: u64,
    tickets: Vec<Ticket>,
    cancel: Option<Arc<AtomicBool>>,
    deadline: Option<Instant>,
}

impl Pending {
    /// Waits until all that the run makes is there. A run that was cancelled, or that is late, says so: then its outputs are
    /// of no use, but the session has gone on.
    pub fn wait(self) -> Result<()> {
        let Pending { step, tickets, cancel, deadline } = self;
        for ticket in tickets {
            ticket.wait_alone()?;
        }
        tracing::debug!(step, "read");
        RunControl { cancel, deadline, ..RunControl::default() }.check()
    }
}

/// The state of a session at one moment; memory is shared until either side writes.
#[derive(Clone)]
pub struct SessionSnapshot {
    program: Program,
    state: Arc<dyn Snapshot>,
    buffers: Vec<HostTensor>,
}

impl Session {
    pub(crate) fn new(program: Program, options: &SessionOptions) -> Result<Session> {
        let cache = match &options.cache {
            Some(spec) => {
                let capacity = options.context.unwrap_or(spec.capacity);
                Some(CacheSpec { capacity, ..spec.clone() })
            }
            None if program.needs_cache() => program.inner().cache_of(options.context),
            None => None,
        };
        Session::with_state(program, StateOptions { cache, seed: options.seed })
    }

    fn with_state(program: Program, options: StateOptions) -> Result<Session> {
        program.check_state()?;
        let state = program.inner().loaded.new_state(&options)?;
        let buffers = program.inner().program_buffers.iter().map(|buffer| buffer.initial.clone()).collect();
        Ok(Session {
            program,
            options,
            state,
            buffers,
            table: Table::default(),
            work: Arc::default(),
            submitted: 0,
        })
    }

    /// The program that it runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs a method. State takes effect as a whole when this returns, and not at all on an error or a panic.
    pub fn run(&mut self, method: &str, inputs: &[Value]) -> Result<Vec<Value>> {
        self.run_with(method, inputs, &RunControl::default())
    }

    /// Runs a method that can be stopped and watched.
    pub fn run_with(&mut self, method: &str, inputs: &[Value], control: &RunControl) -> Result<Vec<Value>> {
        let mut outputs = Vec::new();
        self.run_into(method, inputs, control, &mut outputs)?;
        Ok(outputs)
    }

    /// Runs a method over and over: `outputs` are those of an earlier run and become those of this one. Tensors that
    /// nobody else holds lend their memory to new ones of the same size, so that a backend that computes in place
    /// allocates nothing. After an error nothing in them is of use.
    pub fn run_into(
        &mut self,
        method: &str,
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        let mut tickets = Vec::new();
        let mut run = self.begin(method, inputs, control)?;
        run.execution.run(outputs, &mut tickets)?;
        for ticket in tickets {
            ticket.wait_alone()?;
        }
        run.finish(outputs)
    }

    /// Hands a method over and does not wait for it where the backend computes by itself: outputs that are still in the
    /// making are [`Value::Device`], may be inputs of what is submitted next, and are waited for where they are read. The
    /// session goes on from what this run will have made. An error that comes up later is told by [`Pending::wait`] and by
    /// whoever reads an output; the session is gone then, and says so.
    pub fn submit(
        &mut self,
        method: &str,
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<Pending> {
        let mut tickets = Vec::new();
        let mut run = self.begin(method, inputs, control)?;
        run.execution.run(outputs, &mut tickets)?;
        run.finish(outputs)?;
        self.submitted += 1;
        let step = self.submitted;
        tracing::debug!(step, under_way = !tickets.is_empty(), "submitted");
        Ok(Pending { step, tickets, cancel: control.cancel.clone(), deadline: control.deadline })
    }

    /// A run of a method, ready to begin.
    pub(crate) fn begin(&mut self, method: &str, inputs: &[Value], control: &RunControl) -> Result<Run<'_>> {
        // Sessions on many threads share the program: a run touches none of its counts of holders.
        let Session { program, state, buffers, table, work, .. } = self;
        let inner = program.inner();
        let position = program.position(method)?;
        let (plan, info) = (&inner.methods[position], &inner.infos[position]);
        if inputs.len() != info.inputs.len() {
            let (wanted, given) = (info.inputs.len(), inputs.len());
            return Err(Error::InputCount { method: method.to_owned(), wanted, given });
        }
        let arguments = info.inputs.iter().zip(&plan.inputs).zip(inputs).enumerate();
        for (index, ((argument, &value), given)) in arguments {
            check_input(method, index, argument, &plan.values[value], given)?;
        }
        inner.check_files()?;
        let mut control = control.clone();
        control.work.get_or_insert_with(|| {
            work.store(inner.limits.work, Ordering::Relaxed);
            work.clone()
        });
        let mut execution = Execution::new(inner, plan, state.as_mut(), control, table);
        execution.begin(inputs, buffers)?;
        Ok(Run { inner, execution, buffers })
    }

    /// What the backend keeps of it.
    pub(crate) fn state_mut(&mut self) -> &mut dyn State {
        self.state.as_mut()
    }

    /// The contents of a buffer.
    pub fn read(&self, buffer: &BufferId) -> Result<HostTensor> {
        match self.own_buffer(buffer) {
            Some(number) => Ok(self.buffers[number].clone()),
            None => self.state.read(buffer),
        }
    }

    /// Replaces the contents of a buffer by a tensor of the same type.
    pub fn write(&mut self, buffer: &BufferId, value: &HostTensor) -> Result<()> {
        let Some(number) = self.own_buffer(buffer) else { return self.state.write(buffer, value) };
        let slot = &mut self.buffers[number];
        if (slot.dtype(), slot.shape()) != (value.dtype(), value.shape()) {
            return Err(Error::BufferType {
                buffer: buffer.clone(),
                wanted: describe_tensor(slot.dtype(), slot.shape()),
                given: describe_tensor(value.dtype(), value.shape()),
            });
        }
        *slot = value.clone();
        Ok(())
    }

    fn own_buffer(&self, id: &BufferId) -> Option<usize> {
        self.program.inner().program_buffers.iter().position(|buffer| buffer.id == *id)
    }

    /// Puts all state back to what a new session has.
    pub fn reset(&mut self) -> Result<()> {
        *self = Session::with_state(self.program.clone(), self.options.clone())?;
        Ok(())
    }

    /// Goes back to when `tokens` positions had been written, or says that a replay is needed: then nothing has
    /// changed, and [`Session::reset`] followed by the tokens gives the state.
    pub fn rewind_to(&mut self, tokens: usize) -> Result<Rewind> {
        match self.program.inner().program_buffers.first() {
            Some(buffer) => Ok(Rewind::Replay {
                from: 0,
                reason: format!("buffer {} holds what all tokens so far have made of it", buffer.id),
            }),
            None => self.state.rewind_to(tokens),
        }
    }

    /// Positions in the off-graph cache; `None` when there is no cache.
    pub fn cached_tokens(&self) -> Option<usize> {
        self.state.cached_tokens()
    }

    /// The state as it is now.
    pub fn snapshot(&self) -> Result<SessionSnapshot> {
        let (program, buffers) = (self.program.clone(), self.buffers.clone());
        Ok(SessionSnapshot { program, buffers, state: self.state.snapshot()? })
    }

    /// Goes back to a snapshot of any session of the same program.
    pub fn restore(&mut self, snapshot: &SessionSnapshot) -> Result<()> {
        if !self.program.same(&snapshot.program) {
            return Err(Error::ForeignSnapshot);
        }
        self.state.restore(snapshot.state.as_ref())?;
        self.buffers = snapshot.buffers.clone();
        Ok(())
    }

    /// Another session that goes on from here.
    pub fn fork(&self) -> Result<Session> {
        let mut session = Session::with_state(self.program.clone(), self.options.clone())?;
        session.restore(&self.snapshot()?)?;
        Ok(session)
    }

    /// Bytes of state that it holds now.
    pub fn state_bytes(&self) -> u64 {
        let own: u64 = self.buffers.iter().map(|buffer| buffer.bytes().len() as u64).sum();
        own + self.state.bytes()
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("program", &self.program).field("bytes", &self.state_bytes()).finish()
    }
}

impl std::fmt::Debug for SessionSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionSnapshot").field("program", &self.program).finish()
    }
}
