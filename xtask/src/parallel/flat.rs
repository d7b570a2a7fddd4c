//! The steps of a case in flat batches: tokens of as many sessions in one call as it has room for, each at its own step.

use pteron_runtime::{ArgumentKind, Program, RunControl, Session, Span, Value};
use pteron_tensor::{Bytes, HostTensor};

use super::lanes::{DELAYS, Given, varied};
use crate::start::Start;

/// How the calls of a case are put together.
pub(super) struct Batches {
    method: String,
    /// Tokens of the largest call.
    most: usize,
}

impl Batches {
    /// Of a case whose steps all call a method that reads flat batches and gives a row for each token.
    pub(super) fn of(program: &Program, start: &Start) -> Option<Batches> {
        program.reads_flat(&start.method).ok()?;
        let same = start.steps.iter().all(|step| step.method == start.method && step.inputs.len() == 2);
        let ArgumentKind::Tensor { dims, .. } = &program.method(&start.method).ok()?.inputs.first()?.kind
        else {
            return None;
        };
        let most = dims.last()?.max.unwrap_or(usize::MAX);
        same.then(|| Batches { method: start.method.clone(), most })
    }

    /// What every step gives in each of these sessions, which begin in different rounds.
    pub(super) fn run(&self, sessions: &mut [Session], start: &Start) -> Vec<Vec<Given>> {
        let mut given = vec![Vec::new(); sessions.len()];
        for round in 0..start.steps.len() + DELAYS - 1 {
            let step_of = |lane: usize| start.steps.get(round.checked_sub(lane % DELAYS)?);
            let each = sessions.iter_mut().enumerate();
            let mut waiting: Vec<Riding<'_>> = each
                .filter_map(|(lane, session)| {
                    let inputs = varied(start, step_of(lane)?, lane);
                    let tokens = inputs.first()?.as_tensor()?.len();
                    Some(Riding { lane, session, inputs, tokens })
                })
                .collect();
            while !waiting.is_empty() {
                let mut sum = 0;
                let fits = |riding: &&Riding<'_>| {
                    sum += riding.tokens;
                    sum <= self.most
                };
                let count = waiting.iter().take_while(fits).count().max(1);
                let mut batch: Vec<Riding<'_>> = waiting.drain(..count).collect();
                let lanes: Vec<usize> = batch.iter().map(|riding| riding.lane).collect();
                match self.call(&mut batch) {
                    Ok(outputs) => {
                        lanes.iter().zip(outputs).for_each(|(&lane, outputs)| given[lane].push(Ok(outputs)));
                    }
                    Err(error) => lanes.iter().for_each(|&lane| given[lane].push(Err(error.clone()))),
                }
            }
        }
        given
    }

    /// One call; what it gives each of them.
    fn call(&self, batch: &mut [Riding<'_>]) -> Result<Vec<Vec<HostTensor>>, String> {
        let joined = |number: usize| {
            let parts: Option<Vec<&HostTensor>> =
                batch.iter().map(|riding| riding.inputs.get(number)?.as_tensor()).collect();
            join(&parts?).map(Value::Tensor)
        };
        let inputs = [joined(0), joined(1)];
        let [Some(tokens), Some(positions)] = inputs else {
            return Err("inputs that cannot be joined".into());
        };
        let lengths: Vec<usize> = batch.iter().map(|riding| riding.tokens).collect();
        let control = RunControl::default();
        let mut spans: Vec<Span<'_>> =
            batch.iter_mut().map(|riding| Span::new(riding.session, riding.tokens, &control)).collect();
        let mut outputs = Vec::new();
        Session::run_flat(&self.method, &mut spans, &[tokens, positions], &mut outputs)
            .map_err(|error| error.to_string())?;
        let tensors: Vec<&HostTensor> = outputs.iter().filter_map(Value::as_tensor).collect();
        let mut at = 0;
        let each = lengths.into_iter().map(|length| {
            at += length;
            tensors.iter().map(|tensor| rows(tensor, at - length, length)).collect::<Option<Vec<_>>>()
        });
        each.collect::<Option<Vec<_>>>().ok_or_else(|| "outputs without a row for each token".into())
    }
}

/// One session in a round.
struct Riding<'s> {
    lane: usize,
    session: &'s mut Session,
    inputs: Vec<Value>,
    tokens: usize,
}

/// Tensors of one row each, end to end.
fn join(parts: &[&HostTensor]) -> Option<HostTensor> {
    let first = parts.first()?;
    let mut shape = first.shape().to_vec();
    *shape.last_mut()? = parts.iter().map(|part| part.len()).sum();
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes().iter().copied()).collect();
    HostTensor::new(first.dtype(), shape, Bytes::copy_of(&bytes)).ok()
}

/// Rows of `[1, T, ...]`.
fn rows(tensor: &HostTensor, from: usize, count: usize) -> Option<HostTensor> {
    let [1, length, rest @ ..] = tensor.shape() else { return None };
    let row = tensor.bytes().len() / (*length).max(1);
    let bytes = tensor.bytes().get(from * row..(from + count) * row)?;
    let shape = [&[1, count], rest].concat();
    HostTensor::new(tensor.dtype(), shape, Bytes::copy_of(bytes)).ok()
}
