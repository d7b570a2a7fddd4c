//! Calls that are handed over: lanes of one graph, each with the state of another session, and the ticket that says when
//! what was handed over is there.

use super::{RunControl, State};
use crate::{Error, Result, Value};
use std::fmt;

/// One lane: a graph's call over the state of one session. Nobody can hand in a session twice:
///
/// ```compile_fail,E0499
/// # use pteron_runtime::{Lane, RunControl, Session};
/// fn twice(session: &mut Session, control: &RunControl) {
///     let (mut first, mut second) = (Vec::new(), Vec::new());
///     let mut lanes = [
///         Lane::new(session, &[], control, &mut first),
///         Lane::new(session, &[], control, &mut second),
///     ];
///     Session::run_together("forward", &mut lanes).unwrap();
/// }
/// ```
pub struct Call<'a> {
    /// What the session owns.
    pub state: &'a mut dyn State,
    /// What the graph is given.
    pub inputs: &'a [Value],
    /// Become its outputs; what they were may lend its memory, output by output.
    pub outputs: &'a mut Vec<Value>,
    /// How the lane is watched and stopped.
    pub control: &'a RunControl,
    /// What is wrong with this lane; others go on.
    pub result: Result<()>,
}

/// One session's part of a flat call ([`Loaded::run_flat`](super::Loaded::run_flat)): the tokens that follow those of the
/// part before it.
pub struct Part<'a> {
    /// What the session owns.
    pub state: &'a mut dyn State,
    /// How many of the call's tokens are its own; at least one.
    pub tokens: usize,
    /// How it is watched and stopped.
    pub control: &'a RunControl,
}

/// What was handed over. Outputs and states may still be in the making: reading an output waits for it, and
/// [`State::commit`] says whether a state holds.
#[must_use = "errors that come late are told by `wait`"]
#[derive(Default)]
pub struct Ticket(Option<Box<dyn Late>>);

/// What a backend is still busy with when it gives a ticket.
pub trait Late: Send {
    /// Waits until all of it is there; the lanes that failed, by their numbers in the submission.
    fn wait(self: Box<Self>) -> Vec<(usize, Error)>;
}

impl Ticket {
    /// Everything is there.
    pub fn done() -> Ticket {
        Ticket(None)
    }

    /// Something is still being computed.
    pub fn late(work: Box<dyn Late>) -> Ticket {
        Ticket(Some(work))
    }

    /// Whether there is nothing to wait for.
    pub fn is_done(&self) -> bool {
        self.0.is_none()
    }

    /// Waits until all lanes are there or have failed: the lanes that failed since the submission, by number.
    pub fn wait(self) -> Vec<(usize, Error)> {
        self.0.map(Late::wait).unwrap_or_default()
    }

    /// The same for a submission of one lane.
    pub fn wait_alone(self) -> Result<()> {
        self.wait().into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_done() { "done" } else { "under way" })
    }
}
