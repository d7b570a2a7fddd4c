//! What a loaded program owes the runtime: states, runs alone, lanes, and what all of it holds.

use crate::cache::SpanCache;
use crate::finish::finish;
use crate::joint::Lane;
use crate::lanes::{caught, run_lanes};
use crate::loaded::{Beside, LoadedCpu};
use crate::run::Run;
use crate::state::CpuState;
use crate::step::Planned;
use crate::workspace::{Kept, Workspace};
use pteron_ir::Type;
use pteron_runtime::backend::{
    Call, GraphId, Loaded, MemoryReport, Part, RunControl, State, StateOptions, Ticket,
};
use pteron_runtime::reference::Argument;
use pteron_runtime::{Error, LoadMode, Result, Value};
use std::sync::Arc;

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

/// A call with all that it needs to run. One that is dropped before it leaves has changed nothing.
struct Entered<'c> {
    attempt: Attempt<'c>,
    arguments: Vec<Argument>,
    space: Workspace,
    kept: Kept,
    control: &'c RunControl,
}

/// A lane of a submission: the call, where its outputs go, and what becomes of it.
type Entry<'c> = (Entered<'c>, &'c mut Vec<Value>, &'c mut Result<()>);

/// A session of a flat batch that is not its first: how many tokens are its own, and who stops it.
type Rider<'c> = (Attempt<'c>, usize, &'c RunControl);

impl Entered<'_> {
    fn bind<'r>(&'r mut self, program: &'r LoadedCpu) -> Result<(&'r Planned, Run<'r>)> {
        let Entered { attempt, arguments, space, kept, control } = self;
        let region = space.arena(kept.planned.plan.arena_bytes);
        program.bind(kept, region, (attempt.state, None), arguments, control)
    }

    /// All steps, for the tokens of this call and of others that lie behind them.
    fn run_flat(
        &mut self,
        program: &LoadedCpu,
        (tokens, watched): (usize, &RunControl),
        others: &mut [Rider<'_>],
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        // The first place is for the cache of this call.
        let mut caches = Vec::with_capacity(1 + others.len());
        for (number, (attempt, tokens, control)) in others.iter_mut().enumerate() {
            let missing = || Error::Span {
                span: number + 1,
                source: Box::new(Error::Cache("the session has none".into())),
            };
            let cache = attempt.state.cache.as_mut().ok_or_else(missing)?;
            caches.push(SpanCache { cache, tokens: *tokens, control });
        }
        let beside = Beside { tokens, control: watched, others: caches };
        let Entered { attempt, arguments, space, kept, control } = self;
        let region = space.arena(kept.planned.plan.arena_bytes);
        let (planned, mut run) =
            program.bind(kept, region, (attempt.state, Some(beside)), arguments, control)?;
        planned.run(&mut run)?;
        finish(&mut run, outputs)
    }

    /// All steps, for this call alone.
    fn run(&mut self, program: &LoadedCpu, outputs: &mut Vec<Value>) -> Result<()> {
        let (planned, mut run) = self.bind(program)?;
        planned.run(&mut run)?;
        finish(&mut run, outputs)
    }

    /// Gives back what the call has used, and says whether its state holds.
    fn leave(self, program: &LoadedCpu, result: Result<()>) -> Result<()> {
        let Entered { mut attempt, mut arguments, mut space, mut kept, .. } = self;
        // A step that failed may have left later ones undone.
        kept.frame.warm |= result.is_ok();
        space.put_frame(kept);
        program.workspaces.put(space);
        arguments.clear();
        attempt.state.arguments = arguments;
        attempt.succeeded = result.is_ok();
        result
    }
}

impl LoadedCpu {
    /// A state of this program, which is taken back unless somebody says that it holds.
    fn attempt<'c>(&self, state: &'c mut dyn State) -> Result<Attempt<'c>> {
        let state = state.as_any_mut().downcast_mut::<CpuState>();
        let state = state.filter(|state| state.is_of(&self.graphs)).ok_or(Error::ForeignState)?;
        Ok(Attempt { state, succeeded: false })
    }

    /// Takes a call in; what is wrong with it takes back what is pending in its state. What it computes in comes off
    /// the bytes that are left.
    fn entered<'c>(
        &self,
        graph: GraphId,
        state: &'c mut dyn State,
        (inputs, control): (&[Value], &'c RunControl),
        left: &mut u64,
    ) -> Result<Entered<'c>> {
        let attempt = self.attempt(state)?;
        let mut arguments = std::mem::take(&mut attempt.state.arguments);
        let form = self.admit(graph, inputs, control, &mut arguments)?;
        let (space, kept) = self.enter((graph, form), &arguments, left)?;
        Ok(Entered { attempt, arguments, space, kept, control })
    }

    /// Runs calls that have one plan.
    fn run_group(&self, planned: &Planned, mut group: Vec<Entry<'_>>) {
        if group.len() == 1 {
            for (mut call, outputs, place) in group.drain(..) {
                let result = caught(|| call.run(self, outputs));
                *place = call.leave(self, result);
            }
            return;
        }
        let mut results: Vec<Result<()>> = group.iter().map(|_| Ok(())).collect();
        let (mut calls, places): (Vec<_>, Vec<_>) =
            group.into_iter().map(|(call, outputs, result)| ((call, outputs), result)).unzip();
        let mut lanes = Vec::with_capacity(calls.len());
        for (number, (call, outputs)) in calls.iter_mut().enumerate() {
            match call.bind(self) {
                Ok((_, run)) => lanes.push(Lane { run, outputs, number, result: Ok(()) }),
                Err(error) => results[number] = Err(error),
            }
        }
        let mut batch = self.batches.take();
        run_lanes(planned, &mut lanes, (&mut batch, &self.pool), |lane| results[lane.number] = lane.result);
        drop(lanes);
        self.batches.put(batch);
        for (((call, _), result), place) in calls.into_iter().zip(results).zip(places) {
            *place = call.leave(self, result);
        }
    }
}

impl Loaded for LoadedCpu {
    fn new_state(&self, options: &StateOptions) -> Result<Box<dyn State>> {
        Ok(Box::new(CpuState::new(
            self.graphs.clone(),
            (self.pool.clone(), self.path, self.pages.clone()),
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
        let mut left = self.limits.live_bytes;
        let mut entered = self.entered(graph, state, (inputs, control), &mut left)?;
        let result = entered.run(self, outputs);
        entered.leave(self, result)
    }

    /// Lanes whose calls have the same plan run together. A lane's numbers are those that it has alone, to the last bit,
    /// but for products of so many rows that matrix tiles or panels compute them.
    fn submit(&self, graph: GraphId, calls: &mut [Call<'_>]) -> Result<Ticket> {
        if let [call] = calls {
            call.result = self.run(graph, call.state, call.inputs, call.control, call.outputs);
            return Ok(Ticket::done());
        }
        let mut left = self.limits.live_bytes;
        let mut entered = Vec::with_capacity(calls.len());
        for Call { state, inputs, outputs, control, result } in calls {
            // Who listens hears of one run from its beginning to its end.
            if control.trace.is_some() {
                *result = caught(|| self.run(graph, *state, inputs, control, outputs));
                continue;
            }
            match self.entered(graph, *state, (inputs, control), &mut left) {
                Ok(lane) => entered.push((lane, &mut **outputs, result)),
                Err(error) => *result = Err(error),
            }
        }
        entered.sort_by_key(|(lane, ..)| Arc::as_ptr(&lane.kept.planned) as usize);
        while let Some((first, ..)) = entered.last() {
            let planned = first.kept.planned.clone();
            let group = entered.partition_point(|(lane, ..)| {
                (Arc::as_ptr(&lane.kept.planned) as usize) < Arc::as_ptr(&planned) as usize
            });
            self.run_group(&planned, entered.split_off(group));
        }
        Ok(Ticket::done())
    }

    fn runs_flat(&self) -> bool {
        true
    }

    /// One plan for all tokens: their numbers are those that they have alone, to the last bit, but for products of so many
    /// rows that matrix tiles or panels compute them; with `batch_invariant` there is no such exception.
    fn run_flat(
        &self,
        graph: GraphId,
        parts: &mut [Part<'_>],
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        let [first, rest @ ..] = parts else {
            return Err(Error::Invalid("a flat batch of no sessions".into()));
        };
        let mut others: Vec<Rider<'_>> = Vec::with_capacity(rest.len());
        for Part { state, tokens, control } in rest {
            others.push((self.attempt(*state)?, *tokens, *control));
        }
        let mut left = self.limits.live_bytes;
        let mut entered = self.entered(graph, first.state, (inputs, control), &mut left)?;
        let result = entered.run_flat(self, (first.tokens, first.control), &mut others, outputs);
        let result = entered.leave(self, result);
        others.iter_mut().for_each(|(attempt, ..)| attempt.succeeded = result.is_ok());
        result
    }

    fn memory(&self) -> MemoryReport {
        let (stored, made) = self.weights.bytes();
        let (mapped_bytes, copied) = if self.mode == LoadMode::Copy { (0, stored) } else { (stored, 0) };
        let derived: u64 = self.prepared.iter().map(|graph| graph.packed_bytes()).sum();
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
        MemoryReport {
            mapped_bytes,
            packed_bytes: made + copied + derived,
            state_bytes: buffers.sum(),
            run_bytes: self.workspaces.bytes() + self.batches.bytes(),
            cache_bytes: self.pages.bytes(),
        }
    }
}
