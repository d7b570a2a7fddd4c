//! Many answers at once: sessions of one program whose calls go to the backend together, round by round.
//!
//! Requests flow in through a bounded queue, tokens flow out to whoever listens. In each round every answer under way
//! gets its next token, and at most one prompt is read on by a chunk, so that long prompts hold nobody up for long. One
//! thread owns all sessions; [`Scheduler::run_round`] is a plain function, so that tests are the same every time.

mod lane;
mod memory;
mod queue;
mod request;
mod sessions;

pub use queue::{Counts, Handle, Refused, Ticket};
pub use request::{Event, Listener, Request};

use crate::tokenizer::Tokenizer;
use crate::{Decoder, DecoderOptions, LanguageModel, Result};
use lane::Lane;
use queue::{Shared, Waiting};
use sessions::Idle;
use std::sync::Arc;
use std::thread::JoinHandle;

/// How much is done at once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScheduleOptions {
    /// Answers that are written at the same time.
    pub parallel: usize,
    /// Requests that may wait.
    pub queue: usize,
    /// Tokens of a prompt that are read in one round.
    pub chunk: usize,
    /// Sessions that are kept when their answer has ended, for prompts that begin as they do.
    pub kept: usize,
    /// Positions of a session; `None` takes what the model has.
    pub context: Option<usize>,
    /// Bytes that all sessions together may hold.
    pub memory: u64,
}

impl Default for ScheduleOptions {
    fn default() -> ScheduleOptions {
        ScheduleOptions { parallel: 8, queue: 64, chunk: 64, kept: 8, context: None, memory: u64::MAX }
    }
}

/// What a round came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// Something was read.
    Worked,
    /// There was nothing to do.
    Idle,
    /// There was nothing to do, and nothing will come.
    Drained,
}

/// All sessions of one program, and who waits for them.
pub struct Scheduler {
    model: LanguageModel,
    options: ScheduleOptions,
    shared: Arc<Shared>,
    lanes: Vec<Lane>,
    idle: Vec<Idle>,
    /// Rounds so far: the clock by which turns are taken and sessions grow old.
    rounds: u64,
}

impl Scheduler {
    /// A scheduler without requests, and the way to bring it some.
    ///
    /// # Errors
    /// When a session with such a context cannot be opened.
    pub fn new(
        model: &LanguageModel,
        tokenizer: Option<&Tokenizer>,
        options: ScheduleOptions,
    ) -> Result<(Scheduler, Handle)> {
        let decoder = Decoder::new(model, &DecoderOptions { context: options.context, seed: 0 })?;
        let shared =
            Arc::new(Shared::new(model.clone(), tokenizer.cloned(), decoder.context(), options.clone()));
        let handle = Handle::new(shared.clone());
        let idle = vec![Idle { decoder, used: 0 }];
        let scheduler =
            Scheduler { model: model.clone(), options, shared, lanes: Vec::new(), idle, rounds: 0 };
        Ok((scheduler, handle))
    }

    /// One round: what was cancelled leaves, what waits and has room enters, every answer gets a token, one prompt a chunk.
    pub fn run_round(&mut self) -> Round {
        self.rounds += 1;
        self.shared.drop_cancelled();
        self.end_cancelled();
        self.admit();
        let worked = !self.lanes.is_empty();
        if worked {
            self.read();
        }
        self.shared.note(|counts| {
            counts.running = self.lanes.iter().map(|lane| 1 + lane.siblings.len()).sum();
            counts.kept = self.idle.len();
            counts.reserved_bytes = self.lanes.iter().map(|lane| lane.reserved).sum();
        });
        match worked {
            true => Round::Worked,
            false if self.shared.is_drained() => Round::Drained,
            false => Round::Idle,
        }
    }

    /// Rounds until nothing is left and nothing will come; waits while there is nothing to do.
    pub fn run(mut self) {
        loop {
            match self.run_round() {
                Round::Worked => {}
                Round::Idle => self.shared.wait(),
                Round::Drained => return,
            }
        }
    }

    /// The same on a thread of its own.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn spawn(self) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("scheduler".to_owned()).spawn(move || self.run())
    }

    /// Answers whose listener has gone, or whose time is up.
    fn end_cancelled(&mut self) {
        let mut at = 0;
        while at < self.lanes.len() {
            match self.lanes[at].control.check() {
                Ok(()) => at += 1,
                Err(_) => {
                    let lane = self.lanes.remove(at);
                    self.end_cancelled_lane(lane);
                }
            }
        }
    }

    /// Takes up requests in the order in which they came, as long as there are lanes and memory for the first of them.
    fn admit(&mut self) {
        loop {
            let taken: usize = self.lanes.iter().map(|lane| 1 + lane.siblings.len()).sum();
            let free = self.options.parallel.saturating_sub(taken);
            let held: u64 = self.lanes.iter().map(|lane| lane.reserved).sum();
            let room = self.options.memory.saturating_sub(held);
            let fits = |waiting: &Waiting| waiting.generations.len() <= free && waiting.bytes <= room;
            let Some(waiting) = self.shared.next(fits) else { return };
            self.start(waiting);
        }
    }
}

impl Drop for Scheduler {
    /// Whoever still waits is told by the end of its listener, and nobody can come any more.
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler")
            .field("model", &self.model)
            .field("running", &self.lanes.len())
            .field("kept", &self.idle.len())
            .finish()
    }
}
