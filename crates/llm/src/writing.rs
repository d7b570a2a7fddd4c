//! An answer that its caller drives, a call of the model at a time: for threads that must not be held until the end, as the
//! one that a browser gives. [`generate`](crate::generate()) is the same with the loop inside, and reads guesses besides.
//!
//! A [`Decoder`] and the tokens of a prompt flow in, pieces of text flow out as they are asked for, then an [`Answer`].

use crate::constrain::Constraint;
use crate::drive::{Outcome, Turn, drive};
use crate::generate::{Answer, FinishReason, GenerateOptions};
use crate::generation::{Generation, Step};
use crate::seeing::PromptRef;
use crate::tokenizer::Tokenizer;
use crate::{Decoder, LlmError, Result};
use pteron_runtime::{Error, RunControl};

/// Tokens of a prompt that a step reads at most, so that whoever waits for a step can be told to stop.
const CHUNK: usize = 64;

/// An answer that is being written, step by step.
#[derive(Debug)]
pub struct Writing {
    generation: Generation<'static>,
}

/// What came of a step.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // it goes from call to call, once a token: a box would be made for each
pub enum Written {
    /// More text, which may be none, and the rest is to be written.
    More {
        /// What may be shown now.
        piece: String,
        /// To go on with.
        writing: Writing,
    },
    /// All of it.
    Ended {
        /// What was held back until now.
        rest: String,
        /// The whole answer.
        answer: Answer,
    },
}

impl Writing {
    /// Begins the answer to a prompt: all of its tokens, of which those that the decoder holds already are not read again.
    ///
    /// # Errors
    /// As [`generate`](crate::generate()).
    pub fn begin<'p>(
        decoder: &mut Decoder,
        tokenizer: Option<&Tokenizer>,
        prompt: impl Into<PromptRef<'p>>,
        options: &GenerateOptions,
        constraint: Option<Constraint>,
    ) -> Result<Writing> {
        let prompt = prompt.into();
        let mut generation =
            Generation::new(decoder.model(), tokenizer, prompt.tokens, decoder.context(), options)?;
        if let Some(constraint) = constraint {
            generation = generation.constrained(constraint)?;
        }
        let reuse = decoder.begin_at_call(prompt)?;
        (generation.stats().reused_tokens, generation.stats().restored) = (reuse.kept, reuse.restored);
        decoder.mark()?;
        Ok(Writing { generation })
    }

    /// Reads a part of the prompt, or chooses a token. The decoder is the one that it began with.
    ///
    /// # Errors
    /// When a run fails, or no token can be chosen.
    pub fn step(mut self, decoder: &mut Decoder, control: &RunControl) -> Result<Written> {
        let unread = self.generation.history().get(decoder.tokens().len()..).unwrap_or_default();
        let (tokens, length) = (unread[..decoder.portion(unread, CHUNK)].to_vec(), unread.len());
        let generation = &mut self.generation;
        let turn = Turn { decoder, generation, siblings: &mut [], tokens: &tokens, length, control };
        let step = match drive(vec![turn]).pop() {
            Some(Outcome::Chosen((step, _))) => step,
            Some(Outcome::Failed(error)) => Err(error),
            Some(Outcome::Read) | None => {
                return Ok(Written::More { piece: String::new(), writing: self });
            }
        };
        let reason = match step {
            Ok(Step::Read(_)) => {
                let piece = self.generation.piece().to_owned();
                return Ok(Written::More { piece, writing: self });
            }
            Ok(Step::End(reason)) => reason,
            Err(LlmError::Run(Error::Cancelled | Error::Deadline)) => FinishReason::Cancelled,
            Err(error) => return Err(error),
        };
        let (rest, answer) = self.end(decoder, reason);
        Ok(Written::Ended { rest, answer })
    }

    /// Ends it here, for a reason; what of its text was held back, and the whole answer.
    pub fn end(mut self, decoder: &Decoder, reason: FinishReason) -> (String, Answer) {
        let prompt = self.generation.prompt().len();
        self.generation.stats().unread_tokens = prompt.saturating_sub(decoder.tokens().len());
        let piece = match reason {
            // The last token's piece was shown with that token.
            FinishReason::Cancelled => String::new(),
            FinishReason::Stop | FinishReason::Length => self.generation.piece().to_owned(),
        };
        let (answer, rest) = self.generation.finish(reason);
        (piece + &rest, answer)
    }
}
