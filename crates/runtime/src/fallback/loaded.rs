//! A program that two backends run: its calls go through the pieces of a graph, all lanes through one piece before any goes
//! on to the next.

use super::cut::{Piece, Whole};
use super::division::Division;
use super::place::Side;
use super::state::SplitState;
use crate::backend::{
    Call, Detail, GraphId, Late, Loaded, MemoryReport, RunControl, State, StateOptions, Step, Ticket, Trace,
};
use crate::reference::check_arguments;
use crate::value::describe_tensor;
use crate::{Error, Result, Value};
use std::sync::Arc;

pub(super) struct SplitLoaded {
    pub(super) division: Arc<Division>,
    pub(super) own: Arc<dyn Loaded>,
    pub(super) other: Arc<dyn Loaded>,
}

/// A lane under way.
struct Riding<'c> {
    state: &'c mut SplitState,
    /// By slot: what is there, while somebody will read it.
    values: Vec<Value>,
    outputs: &'c mut Vec<Value>,
    result: &'c mut Result<()>,
    /// As the caller gave it.
    given: &'c RunControl,
    /// Its place among the calls.
    number: usize,
    /// What a piece is called with.
    control: RunControl,
    arguments: Vec<Value>,
    results: Vec<Value>,
}

/// Tells a listener of the nodes of a piece as those of the graph that it was cut from.
struct Renamed {
    listener: Arc<dyn Trace>,
    graph: GraphId,
}

impl Trace for Renamed {
    fn step(&self, step: &Step<'_>) {
        let &Step { op, place, results, .. } = step;
        self.listener.step(&Step { graph: self.graph, op, place, results });
    }

    fn detail(&self) -> Detail {
        self.listener.detail()
    }
}

/// What pieces have under way, with the lanes of each.
struct Tickets(Vec<(Ticket, Vec<usize>)>);

impl Late for Tickets {
    fn wait(self: Box<Self>) -> Vec<(usize, Error)> {
        let mut failed: Vec<(usize, Error)> = Vec::new();
        for (ticket, lanes) in self.0 {
            for (at, error) in ticket.wait() {
                let Some(&lane) = lanes.get(at) else { continue };
                // What fails in an earlier piece is why a later one does.
                if failed.iter().all(|(known, _)| *known != lane) {
                    failed.push((lane, error));
                }
            }
        }
        failed
    }
}

impl Riding<'_> {
    /// Gets ready what a piece is called with.
    fn prepare(&mut self, piece: &Piece, whole: &Whole, is_last: bool) {
        self.arguments.clear();
        self.arguments.extend(piece.takes.iter().map(|&slot| self.values[slot].clone()));
        for &slot in &piece.done {
            self.values[slot] = Value::None;
        }
        self.results.clear();
        self.results.extend(piece.gives.iter().map(|slot| {
            let output = whole.outputs.iter().position(|output| output == slot);
            let spare = output.and_then(|output| self.outputs.get_mut(output));
            spare.map_or(Value::None, |spare| std::mem::replace(spare, Value::None))
        }));
        let held = self.values.iter().filter_map(Value::as_tensor).map(|tensor| tensor.bytes().len() as u64);
        self.control.held = self.given.held.saturating_add(held.sum());
        // What is kept between pieces is checked behind the last one, which can fail.
        self.control.last = self.given.last && is_last && whole.kept.iter().all(|kept| kept.update.is_none());
    }

    /// Takes what a piece gave.
    fn accept(&mut self, piece: &Piece) {
        for (&slot, value) in piece.gives.iter().zip(self.results.drain(..)) {
            self.values[slot] = value;
        }
        self.arguments.clear();
    }

    /// What the graph gives, and what its buffers hold now.
    fn finish(&mut self, graph: GraphId, whole: &Whole) -> Result<()> {
        for (at, kept) in whole.kept.iter().enumerate() {
            let Some(slot) = kept.update else { continue };
            let value = self.values[slot].clone();
            let given = match &value {
                Value::Tensor(tensor) => Some((tensor.dtype(), tensor.shape())),
                Value::Device(tensor) => Some((tensor.dtype(), tensor.shape())),
                _ => None,
            };
            let shape = kept.ty.known_shape().unwrap_or_default();
            if given != Some((kept.ty.dtype, &shape)) {
                let name = &self.state.division.graphs.graphs[graph.0].module.main.buffers[kept.buffer].name;
                let wanted = describe_tensor(kept.ty.dtype, &shape);
                let given = value.describe();
                return Err(Error::Invalid(format!(
                    "buffer `{name}` holds {wanted}, but {given} is written to it"
                )));
            }
            self.state.keep(graph.0, at, value);
        }
        self.outputs.clear();
        self.outputs.extend(whole.outputs.iter().map(|&slot| self.values[slot].clone()));
        Ok(())
    }

    /// The lane has failed: nothing of it is left.
    fn fail(self, error: Error) {
        self.state.rollback();
        *self.result = Err(error);
    }
}

impl SplitLoaded {
    fn side(&self, side: Side) -> &dyn Loaded {
        match side {
            Side::Own => self.own.as_ref(),
            Side::Other => self.other.as_ref(),
        }
    }

    /// Takes a call in. What is wrong with it takes back what is pending in its state.
    fn enter<'c>(
        &self,
        (number, graph): (usize, GraphId),
        call: &'c mut Call<'_>,
        whole: &Whole,
    ) -> Option<Riding<'c>> {
        let Call { state, inputs, outputs, control, result } = call;
        let state = state.as_any_mut().downcast_mut::<SplitState>();
        let Some(state) = state.filter(|state| state.is_of(&self.division)) else {
            *result = Err(Error::ForeignState);
            return None;
        };
        let main = &self.division.graphs.graphs[graph.0].module.main;
        let checked =
            state.check().and_then(|()| check_arguments(main, inputs)).and_then(|()| control.check());
        if let Err(error) = checked {
            state.rollback();
            *result = Err(error);
            return None;
        }
        let mut values = vec![Value::None; whole.slots];
        values[..inputs.len()].clone_from_slice(inputs);
        for (kept, value) in whole.kept.iter().zip(state.kept(graph.0)) {
            values[kept.slot] = value.clone();
        }
        *result = Ok(());
        let trace =
            control.trace.clone().map(|listener| Arc::new(Renamed { listener, graph }) as Arc<dyn Trace>);
        Some(Riding {
            state,
            values,
            outputs,
            result,
            given: control,
            number,
            control: RunControl { trace, ..RunControl::clone(control) },
            arguments: Vec::new(),
            results: Vec::new(),
        })
    }
}

impl Loaded for SplitLoaded {
    fn new_state(&self, options: &StateOptions) -> Result<Box<dyn State>> {
        let without = StateOptions { cache: None, ..options.clone() };
        let (own, other) = match self.division.cache {
            Side::Own => (options, &without),
            Side::Other => (&without, options),
        };
        let (own, other) = (self.own.new_state(own)?, self.other.new_state(other)?);
        Ok(Box::new(SplitState::new(self.division.clone(), own, other)?))
    }

    fn run(
        &self,
        graph: GraphId,
        state: &mut dyn State,
        inputs: &[Value],
        control: &RunControl,
        outputs: &mut Vec<Value>,
    ) -> Result<()> {
        let mut calls = [Call { state, inputs, outputs, control, result: Ok(()) }];
        let ticket = self.submit(graph, &mut calls)?;
        let [Call { state, result, .. }] = calls;
        result?;
        ticket.wait_alone().inspect_err(|_| state.rollback())
    }

    fn submit(&self, graph: GraphId, calls: &mut [Call<'_>]) -> Result<Ticket> {
        let Some(whole) = self.division.wholes.get(graph.0) else {
            return Err(Error::Invalid(format!("there is no graph {}", graph.0)));
        };
        let entered = calls.iter_mut().enumerate();
        let mut lanes: Vec<Riding<'_>> =
            entered.filter_map(|(number, call)| self.enter((number, graph), call, whole)).collect();
        let mut tickets = Vec::new();
        for (number, piece) in whole.pieces.iter().enumerate() {
            if lanes.is_empty() {
                break;
            }
            lanes.iter_mut().for_each(|lane| lane.prepare(piece, whole, number + 1 == whole.pieces.len()));
            let mut calls: Vec<Call<'_>> = lanes
                .iter_mut()
                .map(|Riding { state, arguments, results, control, .. }| Call {
                    state: state.side(piece.side),
                    inputs: arguments,
                    outputs: results,
                    control,
                    result: Ok(()),
                })
                .collect();
            let ticket = self.side(piece.side).submit(piece.id, &mut calls);
            let results: Vec<Result<()>> = calls.into_iter().map(|call| call.result).collect();
            let ticket = match ticket {
                Ok(ticket) => ticket,
                Err(error) => {
                    lanes.into_iter().for_each(|lane| lane.state.rollback());
                    return Err(error);
                }
            };
            if !ticket.is_done() {
                tickets.push((ticket, lanes.iter().map(|lane| lane.number).collect()));
            }
            let mut going = Vec::with_capacity(lanes.len());
            for (mut lane, result) in lanes.into_iter().zip(results) {
                match result {
                    Ok(()) => {
                        lane.accept(piece);
                        going.push(lane);
                    }
                    Err(error) => lane.fail(error),
                }
            }
            lanes = going;
        }
        for mut lane in lanes {
            if let Err(error) = lane.finish(graph, whole) {
                lane.fail(error);
            }
        }
        Ok(if tickets.is_empty() { Ticket::done() } else { Ticket::late(Box::new(Tickets(tickets))) })
    }

    /// Constants that pieces of both backends read count in each.
    fn memory(&self) -> MemoryReport {
        let (own, other) = (self.own.memory(), self.other.memory());
        let kept = self.division.wholes.iter().flat_map(|whole| &whole.kept).filter_map(|kept| {
            let count = pteron_tensor::element_count(&kept.ty.known_shape()?)?;
            Some((count * kept.ty.dtype.size()) as u64)
        });
        MemoryReport {
            mapped_bytes: own.mapped_bytes + other.mapped_bytes,
            packed_bytes: own.packed_bytes + other.packed_bytes,
            state_bytes: own.state_bytes + other.state_bytes + kept.sum::<u64>(),
            run_bytes: own.run_bytes + other.run_bytes,
            cache_bytes: own.cache_bytes + other.cache_bytes,
        }
    }
}
