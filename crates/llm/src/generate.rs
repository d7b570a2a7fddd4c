//! An answer of one session, token by token: the prompt is read in chunks, a token is chosen, its text is shown, until
//! something ends it: an end token, a stop string, the budget, the user. What is chosen, shown and counted is the work of
//! [`Generation`], each token is a round of the scheduler's with one turn ([`crate::drive`]); here is the loop around it,
//! on the caller's own thread and in the caller's own session.
//!
//! A [`Decoder`] and the tokens of a prompt flow in, an [`Answer`] flows out, its text already shown piece by piece.

use crate::constrain::Constraint;
use crate::drive::{Turn, drive_one};
use crate::generation::{Generation, Step};
use crate::sampler::SamplerSettings;
use crate::stats::Stats;
use crate::tokenizer::Tokenizer;
use crate::{Decoder, LlmError, Result};
use pteron_runtime::{Error, RunControl};
use serde::Serialize;
use std::ops::ControlFlow;

/// What an answer shall be like.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// Tokens at most; `None` goes on to the end of the context.
    pub max_new: Option<usize>,
    /// How tokens are chosen.
    pub sampling: SamplerSettings,
    /// Where the random generator starts.
    pub seed: u64,
    /// Strings that end the answer and are no part of it.
    pub stop: Vec<String>,
    /// Tokens that end the answer and are no part of it.
    pub end_tokens: Vec<u32>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// The model ended it, or a stop string came, or a grammar allows no more.
    Stop,
    /// The budget was spent or the context was full.
    Length,
    /// It was interrupted.
    Cancelled,
}

/// What a model said.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its tokens, without the one that ended it.
    pub tokens: Vec<u32>,
    /// Its text, without the string that ended it.
    pub text: String,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The stop string that ended it.
    pub stop: Option<String>,
    /// What it took.
    pub stats: Stats,
}

/// Answers a prompt: all of its tokens, of which those that the decoder holds already are not read again. `show` gets
/// every piece of text as soon as it will not change any more, and may end the answer.
pub fn generate(
    decoder: &mut Decoder,
    tokenizer: Option<&Tokenizer>,
    prompt: &[u32],
    options: &GenerateOptions,
    constraint: Option<&mut Constraint>,
    show: &mut dyn FnMut(&str) -> ControlFlow<()>,
    control: &RunControl,
) -> Result<Answer> {
    let mut generation = Generation::new(decoder.model(), tokenizer, prompt, decoder.context(), options)?;
    if let Some(constraint) = constraint {
        generation = generation.constrained_by(constraint)?;
    }
    let reuse = decoder.begin_at_call(prompt)?;
    (generation.stats().reused_tokens, generation.stats().restored) = (reuse.kept, reuse.restored);
    decoder.mark()?;

    let mut unread: &[u32] = &prompt[reuse.kept..];
    let mut last;
    let finish_reason = loop {
        let turn = Turn {
            decoder: &mut *decoder,
            generation: &mut generation,
            siblings: &mut [],
            tokens: unread,
            length: unread.len(),
            control,
        };
        let step = match drive_one(turn) {
            Err(LlmError::Run(Error::Cancelled | Error::Deadline)) => break FinishReason::Cancelled,
            chosen => chosen?.0?,
        };
        let piece = generation.piece();
        let closed = !piece.is_empty() && show(piece).is_break();
        match step {
            Step::End(reason) => break reason,
            Step::Read(_) if closed => break FinishReason::Cancelled,
            Step::Read(token) => last = [token],
        }
        unread = &last;
    };
    // An interrupt may have come while the prompt was read.
    generation.stats().unread_tokens = prompt.len().saturating_sub(decoder.tokens().len());
    let (answer, rest) = generation.finish(finish_reason);
    if !rest.is_empty() {
        // The answer has ended, whether somebody listens or not.
        let _ = show(&rest);
    }
    Ok(answer)
}
