//! Sessions whose tokens are read in one run, so that weights are read once for all of them: calls of one token each, which are put
//! together here, and flat calls, which come so.

use crate::loaded::{Attempt, LoadedVulkan};
use crate::outcome::{Outcome, Ran};
use crate::run::{Beside, Gives, Run, first_element};
use crate::state::VulkanState;
use pteron_gpu::{MOST_SPANS, Span};
use pteron_ir::{Graph, LaneInput, LaneRows, position_input};
use pteron_runtime::backend::{Call, GraphId, Part, RunControl, State};
use pteron_runtime::reference::check_arguments;
use pteron_runtime::{Error, Result, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use std::sync::{Arc, PoisonError};

/// Whether a call reads one token of a text of its own, and nothing of it is known to the device alone.
fn is_one_token(rows: &LaneRows, inputs: &[Value]) -> bool {
    let host = |value: &Value| match value {
        Value::Tensor(tensor) => Some(tensor.clone()),
        _ => None,
    };
    inputs.len() == rows.inputs.len()
        && rows.inputs.iter().zip(inputs).all(|(kind, value)| match *kind {
            LaneInput::Tokens { axis, below } => host(value).is_some_and(|tensor| {
                let before = tensor.shape().iter().take(axis);
                tensor.shape().get(axis) == Some(&1)
                    && before.product::<usize>() == 1
                    && below.is_none_or(|below| picks_below(&tensor, below))
            }),
            LaneInput::Picks => {
                host(value).is_some_and(|tensor| tensor.len() == 1 && first_element(&tensor) == Some(0))
            }
            LaneInput::Start => start_of(value).is_some(),
            LaneInput::Same => false,
        })
}

/// Whether all of some integers are numbers of so many rows.
fn picks_below(numbers: &HostTensor, below: usize) -> bool {
    let numbers = pteron_runtime::reference::cast(numbers, DType::I64);
    let is_row = |&number: &i64| usize::try_from(number).is_ok_and(|number| number < below);
    numbers.is_ok_and(|numbers| numbers.as_slice::<i64>().is_ok_and(|numbers| numbers.iter().all(is_row)))
}

/// Where a call's token is in its text.
fn start_of(value: &Value) -> Option<usize> {
    let number = match value {
        Value::Int(number) => Some(*number),
        Value::Tensor(tensor) if tensor.len() == 1 => first_element(tensor),
        _ => None,
    };
    number.and_then(|number| usize::try_from(number).ok())
}

/// The inputs of calls of one token each, as those of one call.
fn joined(rows: &LaneRows, calls: &[&mut Call<'_>]) -> Result<Vec<Value>> {
    let input = |(at, kind): (usize, &LaneInput)| {
        let mut tensors = calls.iter().filter_map(|call| match call.inputs.get(at) {
            Some(Value::Tensor(tensor)) => Some(tensor),
            _ => None,
        });
        Ok(match *kind {
            LaneInput::Tokens { axis, .. } => {
                let Some(first) = tensors.clone().next() else { return Err(differ()) };
                let mut shape = first.shape().to_vec();
                if let Some(size) = shape.get_mut(axis) {
                    *size = calls.len();
                }
                let mut bytes = Vec::with_capacity(first.bytes().len() * calls.len());
                tensors.for_each(|tensor| bytes.extend_from_slice(tensor.bytes()));
                Value::Tensor(HostTensor::new(first.dtype(), shape, Bytes::copy_of(&bytes))?)
            }
            LaneInput::Picks => {
                let dtype = tensors.next().map(HostTensor::dtype);
                let numbers = 0..calls.len() as i64;
                Value::Tensor(match dtype {
                    Some(DType::I32) => {
                        let numbers: Vec<i32> = numbers.map(|number| number as i32).collect();
                        HostTensor::from_slice(vec![numbers.len()], &numbers)?
                    }
                    _ => HostTensor::from_slice(vec![calls.len()], &numbers.collect::<Vec<i64>>())?,
                })
            }
            // That of the first; the others' are told apart.
            LaneInput::Start | LaneInput::Same => {
                calls.first().and_then(|call| call.inputs.get(at)).cloned().ok_or_else(differ)?
            }
        })
    };
    rows.inputs.iter().enumerate().map(input).collect()
}

fn differ() -> Error {
    Error::Invalid("calls of one graph have different inputs".into())
}

/// Where the tokens of each part are in its text: `inputs` say it token by token.
fn spans_of(graph: &Graph, parts: &[(usize, usize)], inputs: &[Value]) -> Result<Vec<Span>> {
    let wrong =
        |span: usize, problem: &str| Error::Span { span, source: Box::new(Error::Invalid(problem.into())) };
    let positions = position_input(graph).and_then(|at| inputs.get(at));
    let Some(positions) = positions.map(Value::to_tensor).transpose()?.flatten() else {
        return Err(Error::Invalid("no input says where each token is".into()));
    };
    let positions = pteron_runtime::reference::cast(&positions, DType::I64)?;
    let positions = positions.as_slice::<i64>()?;
    let span = |(number, &(from, tokens)): (usize, &(usize, usize))| {
        let own = positions
            .get(from..from + tokens)
            .ok_or_else(|| wrong(number, "its tokens have no positions"))?;
        if own.windows(2).any(|pair| pair[0].checked_add(1) != Some(pair[1])) {
            return Err(wrong(number, "its tokens do not follow each other"));
        }
        let start = own.first().and_then(|&start| usize::try_from(start).ok());
        Ok(Span { start: start.ok_or_else(|| wrong(number, "it begins before its text does"))?, tokens })
    };
    parts.iter().enumerate().map(span).collect()
}

impl LoadedVulkan {
    /// The state of a session of this program, taken back unless somebody says that it holds.
    pub(crate) fn attempt<'c>(&self, state: &'c mut dyn State) -> Result<Attempt<'c>> {
        let state = state.as_any_mut().downcast_mut::<VulkanState>();
        let state = state.filter(|state| state.is_of(&self.graphs)).ok_or(Error::ForeignState)?;
        Ok(Attempt { state, succeeded: false })
    }

    /// Whether a call can share a run with others like it: an error of that run is then found again by each alone.
    pub(crate) fn can_share(&self, rows: &LaneRows, id: GraphId, call: &mut Call<'_>) -> bool {
        let state = call.state.as_any_mut().downcast_mut::<VulkanState>();
        let is_settled = state
            .is_some_and(|state| state.is_of(&self.graphs) && state.is_settled() && state.check().is_ok());
        is_settled
            && call.control.trace.is_none()
            && call.control.check().is_ok()
            && is_one_token(rows, call.inputs)
            && check_arguments(&self.graphs.graphs[id.0].module.main, call.inputs).is_ok()
    }

    /// Calls of one token each in one run; what is wrong with any of them is wrong with all.
    pub(crate) fn submit_together(
        &self,
        id: GraphId,
        rows: &LaneRows,
        calls: &mut [&mut Call<'_>],
    ) -> Result<Option<Arc<Outcome>>> {
        let inputs = joined(rows, calls)?;
        let at = rows.inputs.iter().position(|kind| *kind == LaneInput::Start);
        let start = |call: &&mut Call<'_>| {
            let start = at.and_then(|at| call.inputs.get(at)).and_then(start_of).ok_or_else(differ)?;
            Ok(Span { start, tokens: 1 })
        };
        let spans = calls.iter().map(start).collect::<Result<Vec<Span>>>()?;
        let control = RunControl::default();
        let mut attempts = Vec::with_capacity(calls.len());
        let mut kept = Vec::with_capacity(calls.len());
        for call in calls.iter_mut() {
            let Call { state, outputs, control, result, .. } = &mut **call;
            attempts.push(self.attempt(&mut **state)?);
            kept.push((&mut **outputs, *control, result));
        }
        let sharing = attempts.len() as u64;
        let (Gives { values, outcome }, work) =
            self.run_spans(id, &mut attempts, (spans, rows.outputs.clone()), &inputs, &control)?;
        for ((mut attempt, values), (outputs, control, result)) in attempts.into_iter().zip(values).zip(kept)
        {
            *result = control.charge(work / sharing.max(1));
            if result.is_ok() {
                *outputs = values;
                if let Some(outcome) = &outcome {
                    attempt.state.follows(outcome.clone());
                }
                attempt.succeeded = true;
            }
        }
        Ok(outcome)
    }

    /// One run over the tokens of several sessions, which lie one behind the other.
    pub(crate) fn run_parts(
        &self,
        id: GraphId,
        parts: &mut [Part<'_>],
        inputs: &[Value],
        control: &RunControl,
    ) -> Result<Vec<Value>> {
        let Some(graph) = self.graphs.graphs.get(id.0) else {
            return Err(Error::Invalid(format!("there is no graph {}", id.0)));
        };
        let (mut lengths, mut from) = (Vec::with_capacity(parts.len()), 0usize);
        let mut attempts = Vec::with_capacity(parts.len());
        for (span, Part { state, tokens, control }) in parts.iter_mut().enumerate() {
            control.check().map_err(|source| Error::Span { span, source: Box::new(source) })?;
            attempts.push(self.attempt(&mut **state)?);
            lengths.push((from, *tokens));
            from = from.saturating_add(*tokens);
        }
        check_arguments(&graph.module.main, inputs)?;
        let spans = spans_of(&graph.module.main, &lengths, inputs)?;
        let (Gives { values, outcome }, _) =
            self.run_spans(id, &mut attempts, (spans, Vec::new()), inputs, control)?;
        if let Some(outcome) = outcome {
            outcome.wait()?;
        }
        attempts.iter_mut().for_each(|attempt| attempt.succeeded = true);
        Ok(values.into_iter().next().unwrap_or_default())
    }

    fn run_spans(
        &self,
        id: GraphId,
        attempts: &mut [Attempt<'_>],
        (spans, parted): (Vec<Span>, Vec<usize>),
        inputs: &[Value],
        control: &RunControl,
    ) -> Result<(Gives, u64)> {
        for (span, attempt) in attempts.iter().enumerate() {
            attempt.state.check().map_err(|source| Error::Span { span, source: Box::new(source) })?;
        }
        if attempts.len() > MOST_SPANS {
            return Err(Error::Invalid(format!(
                "{} sessions in one run, {MOST_SPANS} at most",
                attempts.len()
            )));
        }
        let ran = Ran::Fused(self.fused[id.0].clone());
        check_arguments(&self.graphs.graphs[id.0].module.main, inputs)?;
        let planned = self.plan((id.0, true), ran.graph(), inputs)?;
        let mut space = self.workspace.lock().unwrap_or_else(PoisonError::into_inner);
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let [first, others @ ..] = attempts else { return Err(Error::Invalid("no session runs".into())) };
        let states = others.iter_mut().map(|attempt| &mut *attempt.state).collect();
        let beside = Beside { states, spans, parted, recorded: &mut recorded };
        let mut run = Run::new(self, &mut space, (first.state, Some(beside)), (id, ran, planned), control);
        let gives = run.all(inputs)?;
        Ok((gives, run.work()))
    }
}
