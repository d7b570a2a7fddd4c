//! Several sessions of one program through one method, side by side: their calls of a delegate are handed to the backend
//! at once, so that it may read weights once for all. Where lanes part (a jump, an error), each goes on as it would alone.

use crate::backend::{Call, GraphId, Ticket};
use crate::session::Run;
use crate::{Error, Result, RunControl, Session, Value};

/// One session's part in [`Session::run_together`].
pub struct Lane<'a> {
    /// The session; each is of the same program.
    pub session: &'a mut Session,
    /// What the method is given.
    pub inputs: &'a [Value],
    /// How the lane is watched and stopped.
    pub control: &'a RunControl,
    /// Outputs of an earlier run, whose memory may be used again; they become those of this one.
    pub outputs: &'a mut Vec<Value>,
    /// What came of it: a lane that fails is as it was before, and the others go on.
    pub result: Result<()>,
}

impl<'a> Lane<'a> {
    /// A lane that has not run yet.
    pub fn new(
        session: &'a mut Session,
        inputs: &'a [Value],
        control: &'a RunControl,
        outputs: &'a mut Vec<Value>,
    ) -> Lane<'a> {
        Lane { session, inputs, control, outputs, result: Ok(()) }
    }
}

/// A lane under way.
struct Riding<'a> {
    run: Run<'a>,
    outputs: &'a mut Vec<Value>,
    result: &'a mut Result<()>,
    /// The delegate that it stands before.
    at: GraphId,
    /// Its place among those that were given.
    number: usize,
}

/// What is wrong, if something is, goes to the lane that it is wrong with.
fn noted<T>(outcome: Result<T>, result: &mut Result<()>) -> Option<T> {
    outcome.map_err(|error| *result = Err(error)).ok()
}

impl Session {
    /// Runs a method in several sessions of one program at once, each with its own inputs. What each gives and what becomes
    /// of its state is what [`Session::run_into`] would have made of it; `result` of each lane says whether it succeeded.
    /// An error of all is for a method that there is not.
    pub fn run_together(method: &str, lanes: &mut [Lane<'_>]) -> Result<()> {
        let Some(first) = lanes.first() else { return Ok(()) };
        let program = first.session.program().clone();
        program.position(method)?;
        let loaded = &program.inner().loaded;
        let (mut riding, mut arrived) = (Vec::with_capacity(lanes.len()), Vec::with_capacity(lanes.len()));
        for (number, lane) in lanes.iter_mut().enumerate() {
            let Lane { session, inputs, control, outputs, result } = lane;
            *result = Ok(());
            let run = match session.program().same(&program) {
                true => session.begin(method, inputs, control),
                false => Err(Error::ForeignState),
            };
            if let Some(run) = noted(run, result) {
                let lane = Riding { run, outputs, result, at: GraphId(0), number };
                go_on(lane, &mut riding, &mut arrived);
            }
        }
        let mut tickets: Vec<(Ticket, Vec<usize>)> = Vec::new();
        while !riding.is_empty() {
            // Lanes of one signature lie side by side; apart from that they keep their order.
            riding.sort_by_cached_key(|lane: &Riding<'_>| lane.signature());
            let mut round = std::mem::take(&mut riding);
            for group in round.chunk_by_mut(|a, b| a.at == b.at) {
                let graph = group[0].at;
                let mut calls: Vec<Call<'_>> =
                    group.iter_mut().map(|lane| lane.run.execution.call()).collect();
                let ticket = loaded.submit(graph, &mut calls);
                let results: Vec<Result<()>> = calls.into_iter().map(|call| call.result).collect();
                let refused = ticket.as_ref().err().map(ToString::to_string);
                for (lane, result) in group.iter_mut().zip(results) {
                    let outcome = match &refused {
                        Some(problem) => Err(lane.run.execution.here(Error::Invalid(problem.clone()))),
                        None => lane.run.execution.accept(result),
                    };
                    *lane.result = outcome;
                }
                if let Ok(ticket) = ticket
                    && !ticket.is_done()
                {
                    tickets.push((ticket, group.iter().map(|lane| lane.number).collect()));
                }
            }
            let going = round.into_iter().filter(|lane| lane.result.is_ok());
            going.for_each(|lane| go_on(lane, &mut riding, &mut arrived));
        }
        for (ticket, numbers) in tickets {
            for (at, error) in ticket.wait() {
                let failed =
                    numbers.get(at).and_then(|number| arrived.iter_mut().find(|lane| lane.number == *number));
                if let Some(lane) = failed {
                    *lane.result = Err(error);
                }
            }
        }
        // A run that is dropped takes back what it wrote.
        for Riding { run, outputs, result, .. } in arrived.into_iter().filter(|lane| lane.result.is_ok()) {
            *result = run.finish(outputs);
        }
        Ok(())
    }
}

impl Riding<'_> {
    /// What lanes that can go together have in common: the delegate, and the sizes of what it is given.
    fn signature(&self) -> (GraphId, Vec<Vec<usize>>) {
        let sizes = self.run.execution.arguments().iter().map(|value| match value {
            Value::Tensor(tensor) => tensor.shape().to_vec(),
            Value::Device(tensor) => tensor.shape().to_vec(),
            _ => Vec::new(),
        });
        (self.at, sizes.collect())
    }
}

/// Takes a lane to its next delegate, or to its end.
fn go_on<'a>(mut lane: Riding<'a>, riding: &mut Vec<Riding<'a>>, arrived: &mut Vec<Riding<'a>>) {
    match noted(lane.run.execution.advance(lane.outputs), lane.result) {
        Some(Some(graph)) => {
            lane.at = graph;
            riding.push(lane);
        }
        Some(None) => arrived.push(lane),
        None => {}
    }
}
