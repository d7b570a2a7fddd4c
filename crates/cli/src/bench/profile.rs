//! Where the time of one decode step, or of one run of any program, goes: every step as the backend takes it, several ops in one where it fuses them, summed by
//! kind. Of several tokens, the one of the median time is shown.
//!
//! A step's time is that since the step before it, so that what a backend does between two steps counts to the later
//! one. Its bytes are the file's weights that it reads and, where the backend gives them, its results; what the program makes of
//! weights when it is loaded, such as biases that are multiples of scales, a backend need not read.

use super::decoder::Greedy;
use crate::failure::Failure;
use pteron_ir::{Module, Type, ValueId};
use pteron_runtime::backend::{Detail, Step, Trace};
use pteron_runtime::{Program, RunControl, Value};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// One step of a run.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The op's name.
    pub(crate) kind: &'static str,
    /// Seconds from the beginning of the run.
    pub(crate) start: f64,
    /// Seconds that it took.
    pub(crate) seconds: f64,
    /// Bytes of weights read and of results that were given.
    pub(crate) bytes: u64,
}

/// All steps of one kind.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Kind {
    /// The op's name.
    pub(crate) kind: &'static str,
    /// How many steps.
    pub(crate) steps: usize,
    /// Seconds in all.
    pub(crate) seconds: f64,
    /// Part of the whole run.
    pub(crate) share: f64,
    /// Bytes in all.
    pub(crate) bytes: u64,
    /// Bytes a second as a part of what plain reads reach.
    pub(crate) limit_fraction: Option<f64>,
}

/// One run, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) events: Vec<Event>,
    /// Seconds of the whole step, with what lies outside the backend's steps.
    pub(crate) seconds: f64,
}

struct Listener {
    sizes: HashMap<ValueId, u64>,
    state: Mutex<(Instant, Instant, Vec<Event>)>,
}

impl Trace for Listener {
    fn step(&self, step: &Step<'_>) {
        let now = Instant::now();
        let mut bytes = step.results.iter().map(value_bytes).sum::<u64>();
        let mut count = |operand: ValueId| bytes += self.sizes.get(&operand).copied().unwrap_or(0);
        // A gather reads rows, which its result already counts.
        if !matches!(step.op, pteron_ir::Op::Take { .. }) {
            step.op.for_each_tensor(&mut count);
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (begin, last, events) = &mut *state;
        events.push(Event {
            kind: step.op.spec().name,
            start: last.duration_since(*begin).as_secs_f64(),
            seconds: now.duration_since(*last).as_secs_f64(),
            bytes,
        });
        *last = Instant::now();
    }

    fn detail(&self) -> Detail {
        Detail::Steps
    }
}

/// Tokens that a profile takes where the context has room for them. The first ones are not listened to: with them plans are made,
/// and caches that a copy shares become its own.
const TOKENS: usize = 13;

/// Runs some decode steps where there is room for so many, listens, and gives the one of the median time.
pub(crate) fn profile(program: &Program, decoder: &mut Greedy, room: usize) -> Result<Profile, Failure> {
    let mut token = 1;
    let tokens = TOKENS.min(room.max(1));
    let unheard = tokens / 3;
    for _ in 0..unheard {
        token = decoder.read(&[token], false, &RunControl::default())?;
    }
    listen(program, tokens - unheard, |control| {
        token = decoder.read(&[token], false, control)?;
        Ok(())
    })
}

/// Listens to so many runs, at least one, and gives that of the median time.
pub(crate) fn listen(
    program: &Program,
    runs: usize,
    mut run: impl FnMut(&RunControl) -> Result<(), Failure>,
) -> Result<Profile, Failure> {
    let graphs = program.methods().iter().flat_map(|method| &method.delegates);
    let sizes: HashMap<ValueId, u64> = graphs.flat_map(|delegate| stored_sizes(&delegate.module)).collect();
    let mut profiles = Vec::new();
    for _ in 0..runs.max(1) {
        let begin = Instant::now();
        let listener =
            Arc::new(Listener { sizes: sizes.clone(), state: Mutex::new((begin, begin, Vec::new())) });
        let control = RunControl { trace: Some(listener.clone()), ..RunControl::default() };
        run(&control)?;
        let seconds = begin.elapsed().as_secs_f64();
        let mut state = listener.state.lock().unwrap_or_else(PoisonError::into_inner);
        profiles.push(Profile { events: std::mem::take(&mut state.2), seconds });
    }
    profiles.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Ok(profiles.swap_remove(profiles.len() / 2))
}

/// Bytes of the constants that the file stores, by their values in the main graph.
fn stored_sizes(module: &Module) -> impl Iterator<Item = (ValueId, u64)> + '_ {
    let made: HashSet<&str> =
        module.init.iter().flat_map(|init| &init.outputs).map(|output| output.name.as_str()).collect();
    module.main.constants.iter().filter_map(move |constant| {
        let Some(Type::Tensor(ty)) = module.main.ty(constant.value) else { return None };
        let elements: usize = ty.known_shape()?.iter().product();
        (!made.contains(constant.name.as_str()))
            .then_some((constant.value, elements as u64 * ty.dtype.size() as u64))
    })
}

fn value_bytes(value: &Value) -> u64 {
    match value {
        Value::Tensor(tensor) => tensor.bytes().len() as u64,
        Value::Device(tensor) => {
            tensor.shape().iter().product::<usize>() as u64 * tensor.dtype().size() as u64
        }
        _ => 0,
    }
}

impl Profile {
    /// Steps by kind, the most expensive first.
    pub(crate) fn kinds(&self, read_limit: Option<f64>) -> Vec<Kind> {
        let mut kinds: HashMap<&'static str, Kind> = HashMap::new();
        for event in &self.events {
            let kind = kinds.entry(event.kind).or_insert(Kind {
                kind: event.kind,
                steps: 0,
                seconds: 0.0,
                share: 0.0,
                bytes: 0,
                limit_fraction: None,
            });
            kind.steps += 1;
            kind.seconds += event.seconds;
            kind.bytes += event.bytes;
        }
        let mut kinds: Vec<Kind> = kinds.into_values().collect();
        for kind in &mut kinds {
            kind.share = kind.seconds / self.seconds;
            kind.limit_fraction = read_limit.map(|limit| kind.bytes as f64 / kind.seconds.max(1e-12) / limit);
        }
        kinds.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.kind.cmp(b.kind)));
        kinds
    }
}
