//! The door of a scheduler: requests are checked and made ready by whoever brings them, wait in order, and are counted.

use super::ScheduleOptions;
use super::memory::answer_bytes;
use super::request::{Listener, Request};
use crate::generation::Generation;
use crate::seeing::Shown;
use crate::tokenizer::Tokenizer;
use crate::{GenerateOptions, LanguageModel, LlmError};
use pteron_runtime::RunControl;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// As many wait as may.
    #[error("{waiting} requests wait already")]
    Full {
        /// How many.
        waiting: usize,
    },
    /// It is being shut down.
    #[error("no more requests are taken")]
    Closed,
    /// What is asked for cannot be had.
    #[error(transparent)]
    Request(#[from] LlmError),
}

/// What has been done, and what is being done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Requests that wait.
    pub waiting: usize,
    /// Answers under way.
    pub running: usize,
    /// Sessions that wait for a prompt that begins as theirs did.
    pub kept: usize,
    /// Bytes that are set aside for the answers under way.
    pub reserved_bytes: u64,
    /// Requests that were taken up.
    pub requests: u64,
    /// Tokens of their prompts.
    pub prompt_tokens: u64,
    /// Of these, tokens that were in the caches.
    pub cached_tokens: u64,
    /// Tokens of answers.
    pub generated_tokens: u64,
    /// Answers that were given up by those who asked, or by the clock.
    pub cancelled: u64,
    /// Answers that went wrong.
    pub failed: u64,
}

/// A request that is ready to be taken up.
pub(super) struct Waiting {
    /// One for each answer.
    pub(super) generations: Vec<Generation<'static>>,
    /// Of the prompt.
    pub(super) images: Vec<Shown>,
    pub(super) listener: Listener,
    pub(super) control: RunControl,
    /// Bytes of caches that it will take at most.
    pub(super) bytes: u64,
}

impl Waiting {
    fn is_cancelled(&self) -> bool {
        self.control.check().is_err()
    }
}

/// What the scheduler and its handles share.
pub(super) struct Shared {
    pub(super) model: LanguageModel,
    tokenizer: Option<Tokenizer>,
    context: Option<usize>,
    options: ScheduleOptions,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    closed: bool,
    counts: Counts,
}

impl Shared {
    pub(super) fn new(
        model: LanguageModel,
        tokenizer: Option<Tokenizer>,
        context: Option<usize>,
        options: ScheduleOptions,
    ) -> Shared {
        Shared { model, tokenizer, context, options, state: Mutex::default(), wake: Condvar::new() }
    }

    /// A queue is whole after every change: whoever panicked while it was held left it so.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is counted.
    pub(super) fn note(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.state().counts);
    }

    /// The first of those that wait, if it fits.
    pub(super) fn next(&self, fits: impl Fn(&Waiting) -> bool) -> Option<Waiting> {
        let mut state = self.state();
        match state.waiting.front() {
            Some(waiting) if fits(waiting) => state.waiting.pop_front(),
            _ => None,
        }
    }

    /// Lets those go that nobody waits for any more. Their listeners end outside the lock.
    pub(super) fn drop_cancelled(&self) {
        let mut state = self.state();
        if !state.waiting.iter().any(Waiting::is_cancelled) {
            return;
        }
        let (gone, left): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut state.waiting).into_iter().partition(Waiting::is_cancelled);
        state.waiting = left;
        state.counts.cancelled += gone.len() as u64;
        drop(state);
        for waiting in gone {
            super::lane::end_unread(waiting);
        }
    }

    /// Waits until somebody comes or the door is closed.
    pub(super) fn wait(&self) {
        let state = self.state();
        let nothing = |state: &mut State| state.waiting.is_empty() && !state.closed;
        drop(self.wake.wait_while(state, nothing).unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether nothing waits and nothing will.
    pub(super) fn is_drained(&self) -> bool {
        let state = self.state();
        state.closed && state.waiting.is_empty()
    }

    /// Closes the door for good and forgets who waits.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let gone = std::mem::take(&mut state.waiting);
        drop(state);
        drop(gone);
    }
}

/// Brings requests to a scheduler, from any thread.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

/// A request that was taken.
#[derive(Clone, Debug)]
pub struct Ticket {
    cancel: Arc<AtomicBool>,
}

impl Ticket {
    /// Gives the request up; its sessions are free within a round.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }
}

impl Handle {
    pub(super) fn new(shared: Arc<Shared>) -> Handle {
        Handle(shared)
    }

    /// The model.
    pub fn model(&self) -> &LanguageModel {
        &self.0.model
    }

    /// Positions that a prompt and its answer have together.
    pub fn context(&self) -> Option<usize> {
        self.0.context
    }

    /// Answers that are written at the same time.
    pub fn parallel(&self) -> usize {
        self.0.options.parallel
    }

    /// Bytes that all sessions together may hold.
    pub fn memory(&self) -> u64 {
        self.0.options.memory
    }

    /// Hands a request over. What is wrong with it is found here, before it waits.
    ///
    /// # Errors
    /// When it cannot be answered, the queue is full, or the scheduler is gone.
    pub fn submit(&self, request: Request, listener: Listener) -> Result<Ticket, Refused> {
        // Before the work of making it ready, and once more behind it.
        self.check_door(&self.0.state())?;
        let cancel = Arc::new(AtomicBool::new(false));
        let control =
            RunControl { cancel: Some(cancel.clone()), deadline: request.deadline, ..RunControl::default() };
        let images = request.images.clone();
        let (generations, bytes) = self.ready(request)?;
        let mut state = self.0.state();
        self.check_door(&state)?;
        state.waiting.push_back(Waiting { generations, images, listener, control, bytes });
        drop(state);
        self.0.wake.notify_one();
        Ok(Ticket { cancel })
    }

    fn check_door(&self, state: &State) -> Result<(), Refused> {
        match state.waiting.len() {
            _ if state.closed => Err(Refused::Closed),
            waiting if waiting >= self.0.options.queue => Err(Refused::Full { waiting }),
            _ => Ok(()),
        }
    }

    /// The answers of a request, none of which has begun, and the bytes that they will take at most.
    fn ready(&self, request: Request) -> Result<(Vec<Generation<'static>>, u64), LlmError> {
        let Shared { model, tokenizer, context, options, .. } = &*self.0;
        let Request { prompt, options: asked, constraint, bias, likeliest, marks, answers, .. } = request;
        if answers == 0 || answers > options.parallel {
            return Err(LlmError::Answers { asked: answers, most: options.parallel });
        }
        if answers > 1 && model.draws_itself() {
            return Err(LlmError::DrawsItself { what: "several answers" });
        }
        let vocab = model.vocab().unwrap_or(usize::MAX);
        if let Some(&token) = prompt.iter().find(|&&token| token as usize >= vocab) {
            return Err(LlmError::UnknownToken { token, vocab });
        }
        let mut generations = Vec::with_capacity(answers);
        for answer in 0..answers {
            let own = GenerateOptions { seed: asked.seed.wrapping_add(answer as u64), ..asked.clone() };
            let generation = Generation::new(model, tokenizer.as_ref(), &prompt, *context, &own)?;
            let generation = generation.biased(bias.clone())?.told_likelihoods(likeliest)?.spelling(&marks);
            generations.push(match &constraint {
                Some(constraint) => generation.constrained(constraint.clone())?,
                None => generation,
            });
        }
        let budget = generations.first().map_or(0, Generation::budget);
        let bytes = answer_bytes(model, prompt.len(), budget, answers);
        match bytes > options.memory {
            true => Err(LlmError::TooLarge { needed: bytes, most: options.memory }),
            false => Ok((generations, bytes)),
        }
    }

    /// Takes no more requests; those that are there are answered, and then [`Round::Drained`](super::Round::Drained) comes.
    pub fn drain(&self) {
        self.0.state().closed = true;
        self.0.wake.notify_one();
    }

    /// What is counted.
    pub fn counts(&self) -> Counts {
        let state = self.0.state();
        Counts { waiting: state.waiting.len(), ..state.counts }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("model", &self.0.model).field("counts", &self.counts()).finish()
    }
}
