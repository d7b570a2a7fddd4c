//! An answer under way: a session, what it reads next, and who listens.

use super::Scheduler;
use super::queue::Waiting;
use super::request::{Event, Listener};
use crate::drive::{Outcome, Turn, drive};
use crate::generation::{Generation, Step};
use crate::seeing::PromptRef;
use crate::{Answer, Decoder, FinishReason, LlmError, Result};
use pteron_runtime::{Error, RunControl};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// One answer.
pub(super) struct Lane {
    pub(super) decoder: Decoder,
    generation: Generation<'static>,
    work: Work,
    /// The other answers to its prompt, until that has been read.
    pub(super) siblings: Vec<Generation<'static>>,
    number: usize,
    listener: Arc<Mutex<Listener>>,
    pub(super) control: RunControl,
    /// Bytes that are set aside for it.
    pub(super) reserved: u64,
    /// The round in which its prompt was last read on.
    served: u64,
}

/// What is to be read.
#[derive(Clone, Copy)]
enum Work {
    /// The prompt, from where the session stands.
    Prompt,
    Token(u32),
}

/// What a lane reads in one round.
struct Part {
    tokens: Vec<u32>,
    /// Tokens of the text from here on.
    length: usize,
}

/// Tells a listener something. One that does not want to hear more gives its whole request up.
fn tell(listener: &Mutex<Listener>, control: &RunControl, event: Event) {
    let mut listener = listener.lock().unwrap_or_else(PoisonError::into_inner);
    if let (ControlFlow::Break(()), Some(cancel)) = (listener(event), &control.cancel) {
        cancel.store(true, Ordering::Relaxed);
    }
}

/// Ends the answers of a request that was given up before it was taken up.
pub(super) fn end_unread(waiting: Waiting) {
    let Waiting { generations, listener, control, .. } = waiting;
    let listener = Mutex::new(listener);
    for (answer, mut generation) in generations.into_iter().enumerate() {
        generation.stats().unread_tokens = generation.prompt().len();
        let (whole, rest) = generation.finish(FinishReason::Cancelled);
        tell(&listener, &control, Event::Ended { answer, rest, outcome: Ok(whole) });
    }
}

impl Lane {
    /// What it reads in this round; a prompt only when it has its turn.
    fn part(&self, turn: bool, chunk: usize) -> Option<Part> {
        match self.work {
            Work::Token(token) => Some(Part { tokens: vec![token], length: 1 }),
            Work::Prompt if turn => {
                let unread = &self.generation.prompt()[self.decoder.tokens().len()..];
                let tokens = unread[..self.decoder.portion(unread, chunk)].to_vec();
                Some(Part { tokens, length: unread.len() })
            }
            Work::Prompt => None,
        }
    }

    fn tell(&self, event: Event) {
        tell(&self.listener, &self.control, event);
    }

    /// Tells of a token that was chosen.
    fn tell_token(&mut self) {
        let text = self.generation.piece().to_owned();
        let likelihood = self.generation.likelihood();
        self.tell(Event::Token { answer: self.number, text, likelihood });
    }
}

impl Scheduler {
    /// Takes a request up: finds it a session, which goes back to where its text and the prompt part.
    pub(super) fn start(&mut self, waiting: Waiting) {
        let Waiting { mut generations, images, listener, control, bytes } = waiting;
        let listener = Arc::new(Mutex::new(listener));
        let prompt = generations.first().map(|generation| generation.prompt().to_vec()).unwrap_or_default();
        let text = PromptRef { tokens: &prompt, images: &images };
        let session = self.session_for(text, bytes).and_then(|mut decoder| {
            let reuse = decoder.begin_at_call(text)?;
            decoder.mark()?;
            Ok((decoder, reuse))
        });
        let (decoder, reuse) = match session {
            Ok(found) => found,
            Err(error) => {
                return self.tell_failure(&listener, &control, 0..generations.len(), error);
            }
        };
        for generation in &mut generations {
            let stats = generation.stats();
            (stats.reused_tokens, stats.restored) = (reuse.kept, reuse.restored);
        }
        self.shared.note(|counts| {
            counts.requests += 1;
            counts.prompt_tokens += prompt.len() as u64;
            counts.cached_tokens += reuse.kept as u64;
        });
        tell(&listener, &control, Event::Began { cached: reuse.kept });
        let siblings = generations.split_off(1);
        let Some(generation) = generations.pop() else { return };
        self.lanes.push(Lane {
            decoder,
            generation,
            work: Work::Prompt,
            siblings,
            number: 0,
            listener,
            control,
            reserved: bytes,
            served: self.rounds,
        });
    }

    /// Every answer reads its last token, and one prompt a chunk, all in calls that go to the backend together.
    pub(super) fn read(&mut self) {
        let chunk = self.options.chunk.clamp(1, self.model.chunk());
        let prompts = self.lanes.iter().enumerate().filter(|(_, lane)| matches!(lane.work, Work::Prompt));
        let turn = prompts.min_by_key(|(_, lane)| lane.served).map(|(at, _)| at);
        let parts: Vec<Option<Part>> =
            self.lanes.iter().enumerate().map(|(at, lane)| lane.part(turn == Some(at), chunk)).collect();
        let mut turns = Vec::with_capacity(self.lanes.len());
        let mut places = Vec::with_capacity(self.lanes.len());
        for (at, (lane, part)) in self.lanes.iter_mut().zip(&parts).enumerate() {
            let Some(Part { tokens, length }) = part else { continue };
            let Lane { decoder, generation, siblings, control, served, .. } = lane;
            *served = self.rounds;
            turns.push(Turn { decoder, generation, siblings, tokens, length: *length, control });
            places.push(at);
        }
        // From the last to the first, so that lanes that leave move no other that is still to be looked at.
        let mut more = Vec::new();
        for (at, outcome) in places.into_iter().zip(drive(turns)).rev() {
            self.settle(at, outcome, &mut more);
        }
        self.lanes.append(&mut more);
    }

    /// What becomes of a lane after a round; the answers that part from it come to `more`.
    fn settle(&mut self, at: usize, outcome: Outcome, more: &mut Vec<Lane>) {
        let (step, steps) = match outcome {
            Outcome::Read => return,
            Outcome::Chosen(steps) => steps,
            Outcome::Failed(LlmError::Run(Error::Cancelled | Error::Deadline)) => {
                let lane = self.lanes.remove(at);
                return self.end_cancelled_lane(lane);
            }
            Outcome::Failed(error) => {
                let lane = self.lanes.remove(at);
                return self.fail(lane, error);
            }
        };
        if !self.lanes[at].siblings.is_empty() {
            self.part(at, steps, more);
        }
        match step {
            Ok(Step::Read(token)) => {
                let lane = &mut self.lanes[at];
                lane.work = Work::Token(token);
                lane.tell_token();
            }
            Ok(Step::End(reason)) => {
                let lane = self.lanes.remove(at);
                self.end(lane, reason);
            }
            Err(error) => {
                let lane = self.lanes.remove(at);
                self.fail(lane, error);
            }
        }
    }

    /// The prompt has been read: each further answer goes on in a copy of the session.
    fn part(&mut self, at: usize, steps: Vec<Result<Step>>, more: &mut Vec<Lane>) {
        let siblings = std::mem::take(&mut self.lanes[at].siblings);
        let share = self.lanes[at].reserved / (siblings.len() as u64 + 1);
        self.lanes[at].reserved = share;
        for (number, (generation, step)) in (1..).zip(siblings.into_iter().zip(steps)) {
            let first = &self.lanes[at];
            let (listener, control) = (first.listener.clone(), first.control.clone());
            let decoder = match first.decoder.fork() {
                Ok(decoder) => decoder,
                Err(error) => {
                    self.tell_failure(&listener, &control, number..number + 1, error);
                    continue;
                }
            };
            let mut lane = Lane {
                decoder,
                generation,
                work: Work::Prompt,
                siblings: Vec::new(),
                number,
                listener,
                control,
                reserved: share,
                served: self.rounds,
            };
            match step {
                Ok(Step::Read(token)) => {
                    lane.work = Work::Token(token);
                    lane.tell_token();
                    more.push(lane);
                }
                Ok(Step::End(reason)) => self.end(lane, reason),
                Err(error) => self.fail(lane, error),
            }
        }
    }

    /// An answer has come to its end; its session is kept.
    fn end(&mut self, mut lane: Lane, reason: FinishReason) {
        if lane.generation.grew() {
            lane.tell_token();
        }
        let (answer, rest) = lane.generation.finish(reason);
        self.shared.note(|counts| counts.generated_tokens += answer.tokens.len() as u64);
        let event = Event::Ended { answer: lane.number, rest, outcome: Ok(answer) };
        tell(&lane.listener, &lane.control, event);
        self.keep(lane.decoder);
    }

    /// An answer that nobody wants any more; what its session has read is kept.
    pub(super) fn end_cancelled_lane(&mut self, lane: Lane) {
        let Lane { decoder, generation, siblings, number, listener, control, .. } = lane;
        for (answer, mut generation) in (number..).zip([generation].into_iter().chain(siblings)) {
            let unread = generation.prompt().len().saturating_sub(decoder.tokens().len());
            generation.stats().unread_tokens = unread;
            let (whole, rest) = generation.finish(FinishReason::Cancelled);
            self.count_cancelled(&whole);
            tell(&listener, &control, Event::Ended { answer, rest, outcome: Ok(whole) });
        }
        self.keep(decoder);
    }

    fn count_cancelled(&self, answer: &Answer) {
        self.shared.note(|counts| {
            counts.cancelled += 1;
            counts.generated_tokens += answer.tokens.len() as u64;
        });
    }

    /// An answer that went wrong, and those that waited for the same prompt. Its session is given up.
    fn fail(&mut self, lane: Lane, error: LlmError) {
        let answers = lane.number..lane.number + 1 + lane.siblings.len();
        self.tell_failure(&lane.listener, &lane.control, answers, error);
    }

    /// Tells of each of these answers that it failed.
    fn tell_failure(
        &self,
        listener: &Mutex<Listener>,
        control: &RunControl,
        answers: Range<usize>,
        error: LlmError,
    ) {
        self.shared.note(|counts| counts.failed += answers.len() as u64);
        let (problem, mut error) = (error.to_string(), Some(error));
        for answer in answers {
            let outcome = Err(error.take().unwrap_or_else(|| LlmError::Run(Error::Invalid(problem.clone()))));
            tell(listener, control, Event::Ended { answer, rest: String::new(), outcome });
        }
    }
}
