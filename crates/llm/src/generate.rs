//! An answer of one session, token by token: the prompt is read in chunks, a token is chosen, its text is shown, until
//! something ends it: an end token, a stop string, the budget, the user. What is chosen, shown and counted is the work of
//! [`Generation`], each token is a round of the scheduler's with one turn ([`crate::drive`]); here is the loop around it,
//! on the caller's own thread and in the caller's own session.
//!
//! A [`Decoder`] and the tokens of a prompt flow in, an [`Answer`] flows out, its text already shown piece by piece.

use crate::constrain::Constraint;
use crate::drive::{Checked, Turn, drive_guessed, drive_one};
use crate::generation::{Generation, Step};
use crate::sampler::SamplerSettings;
use crate::seeing::PromptRef;
use crate::speculate::Speculator;
use crate::stats::Stats;
use crate::tokenizer::Tokenizer;
use crate::{Decoder, LlmError, Result};
use pteron_runtime::{Error, RunControl};
use serde::Serialize;
use std::ops::ControlFlow;
use web_time::Instant;

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

/// Answers a prompt: all of its tokens, with the images that some stand for, of which those that the decoder holds already are not read again. `show` gets
/// every piece of text as soon as it will not change any more, and may end the answer.
pub fn generate<'p>(
    decoder: &mut Decoder,
    tokenizer: Option<&Tokenizer>,
    prompt: impl Into<PromptRef<'p>>,
    options: &GenerateOptions,
    constraint: Option<&mut Constraint>,
    show: &mut dyn FnMut(&str) -> ControlFlow<()>,
    control: &RunControl,
) -> Result<Answer> {
    let prompt = prompt.into();
    let mut generation =
        Generation::new(decoder.model(), tokenizer, prompt.tokens, decoder.context(), options)?;
    if let Some(constraint) = constraint {
        generation = generation.constrained_by(constraint)?;
    }
    let reuse = decoder.begin_at_call(prompt)?;
    (generation.stats().reused_tokens, generation.stats().restored) = (reuse.kept, reuse.restored);
    decoder.mark()?;

    generation.stats().no_speculation = decoder.no_speculation();
    let mut speculator = decoder.take_speculator();
    let finish_reason = write(decoder, &mut generation, speculator.as_deref_mut(), show, control);
    decoder.give_back_speculator(speculator);
    let finish_reason = finish_reason?;
    // An interrupt may have come while the prompt was read.
    generation.stats().unread_tokens = prompt.tokens.len().saturating_sub(decoder.tokens().len());
    let (answer, rest) = generation.finish(finish_reason);
    if !rest.is_empty() {
        // The answer has ended, whether somebody listens or not.
        let _ = show(&rest);
    }
    Ok(answer)
}

/// Reads what is there and chooses what follows, until something ends the answer.
fn write(
    decoder: &mut Decoder,
    generation: &mut Generation<'_>,
    mut speculator: Option<&mut Speculator>,
    show: &mut dyn FnMut(&str) -> ControlFlow<()>,
    control: &RunControl,
) -> Result<FinishReason> {
    let mut show = |generation: &Generation<'_>| match generation.piece() {
        "" => ControlFlow::Continue(()),
        piece => show(piece),
    };
    let mut tokens = Vec::new();
    loop {
        tokens.clear();
        tokens.extend_from_slice(&generation.history()[decoder.tokens().len()..]);
        let (begun, unread) = (Instant::now(), tokens.len());
        if let (Some(speculator), 1) = (&mut speculator, unread) {
            let room = generation.budget().saturating_sub(generation.answer().len() + 1);
            let most = decoder.most_guesses().min(room);
            let vocab = decoder.model().vocab().unwrap_or(usize::MAX);
            match speculator.guess(generation, most, control) {
                Err(LlmError::Run(Error::Cancelled | Error::Deadline)) => return Ok(FinishReason::Cancelled),
                guesses => tokens.extend(guesses?.iter().take_while(|&&token| (token as usize) < vocab)),
            }
        }
        let guessed = tokens.len() - unread;
        let length = tokens.len();
        let (siblings, tokens) = (&mut [][..], tokens.as_slice());
        let turn = Turn { decoder, generation, siblings, tokens, length, control };
        let driven = match guessed {
            0 => drive_one(turn).map(|(step, _)| Checked { right: 0, step, stuck: false }),
            _ => drive_guessed(turn, &mut show),
        };
        let Checked { right, step, stuck } = match driven {
            Err(LlmError::Run(Error::Cancelled | Error::Deadline)) => return Ok(FinishReason::Cancelled),
            driven => driven?,
        };
        if let Some(speculator) = &mut speculator {
            let milliseconds = begun.elapsed().as_secs_f64() * 1e3;
            match (guessed, unread) {
                (0, 1) => speculator.note_plain(milliseconds),
                (0, _) => {}
                _ => speculator.note_guessed(guessed, right, milliseconds),
            }
            if stuck {
                speculator.give_up();
            }
            generation.stats().guessed_tokens += guessed;
            generation.stats().accepted_tokens += right;
        }
        let step = match step {
            Err(LlmError::Run(Error::Cancelled | Error::Deadline)) => return Ok(FinishReason::Cancelled),
            step => step?,
        };
        let closed = show(generation).is_break();
        match step {
            Step::End(reason) => return Ok(reason),
            Step::Read(_) if closed => return Ok(FinishReason::Cancelled),
            Step::Read(_) => {}
        }
    }
}
