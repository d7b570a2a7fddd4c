//! A session: the state of one conversation with a program, and the running of methods over it.

use crate::backend::{BufferId, Rewind, RunControl, Snapshot, State, StateOptions};
use crate::execute::{Execution, Table};
use crate::program::check_input;
use crate::value::describe_tensor;
use crate::{CacheSpec, Error, Program, Result, Value};
use pteron_tensor::HostTensor;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
}

/// The state of a session at one moment; memory is shared until either side writes.
#[derive(Clone)]
pub struct SessionSnapshot {
    program: Program,
    state: Arc<dyn Snapshot>,
    buffers: Vec<HostTensor>,
}

/// The state during a run: what the run writes is taken back unless somebody keeps it. An error and a panic that unwinds
/// both leave by way of [`Drop`].
struct Attempt<'a> {
    state: &'a mut dyn State,
    is_kept: bool,
}

impl Attempt<'_> {
    fn keep(mut self) {
        self.state.commit();
        self.is_kept = true;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.state.rollback();
        }
    }
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
        Ok(Session { program, options, state, buffers, table: Table::default(), work: Arc::default() })
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
        let attempt = Attempt { state: state.as_mut(), is_kept: false };
        let mut execution = Execution::new(inner, plan, attempt.state, control, table);
        execution.run(inputs, buffers, outputs)?;
        let changed = execution.changed(buffers)?;
        drop(execution);
        // Weights that changed under the run make its outputs worthless.
        inner.check_files()?;
        for (number, tensor) in changed {
            buffers[number] = tensor;
        }
        attempt.keep();
        Ok(())
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
