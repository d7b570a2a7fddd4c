//! What a scheduler is asked for, and what it tells.

use crate::constrain::Constraint;
use crate::generation::Likelihood;
use crate::seeing::Shown;
use crate::{Answer, GenerateOptions, Result};
use std::ops::ControlFlow;
use web_time::Instant;

/// A prompt that is to be answered.
#[derive(Clone, Debug)]
pub struct Request {
    /// All of its tokens.
    pub prompt: Vec<u32>,
    /// The images that some of them stand for, in order.
    pub images: Vec<Shown>,
    /// What answers shall be like. Each answer has its own seed: this one, the next, and so on.
    pub options: GenerateOptions,
    /// What may be said.
    pub constraint: Option<Constraint>,
    /// What is added to the scores of some tokens.
    pub bias: Vec<(u32, f32)>,
    /// Whether log probabilities are told, and of how many of the likeliest tokens.
    pub likeliest: Option<usize>,
    /// Special tokens that are shown as text, since they mean something to the listener.
    pub marks: Vec<u32>,
    /// How many answers; the prompt is read once for all.
    pub answers: usize,
    /// When it is given up.
    pub deadline: Option<Instant>,
}

impl Request {
    /// One answer to a prompt.
    pub fn new(prompt: Vec<u32>, options: GenerateOptions) -> Request {
        Request {
            prompt,
            images: Vec::new(),
            options,
            constraint: None,
            bias: Vec::new(),
            likeliest: None,
            marks: Vec::new(),
            answers: 1,
            deadline: None,
        }
    }
}

/// What a listener hears.
#[derive(Debug)]
pub enum Event {
    /// The request has left the queue: so many tokens of its prompt were in the caches already.
    Began {
        /// How many.
        cached: usize,
    },
    /// An answer has one more token.
    Token {
        /// Which answer.
        answer: usize,
        /// What may be shown since the last one; often empty, where a character or a stop string is not yet complete.
        text: String,
        /// How likely it was, where that was asked for.
        likelihood: Option<Likelihood>,
    },
    /// An answer has ended, or failed; nothing more comes of it.
    Ended {
        /// Which answer.
        answer: usize,
        /// What was held back of its text until now.
        rest: String,
        /// All of it, or what went wrong.
        outcome: Result<Answer>,
    },
}

/// Hears what becomes of a request; gives up the whole request by saying so. It is called between two rounds and must not
/// wait for anything.
pub type Listener = Box<dyn FnMut(Event) -> ControlFlow<()> + Send>;
