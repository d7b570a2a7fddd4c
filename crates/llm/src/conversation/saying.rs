//! A turn that its caller drives, step by step: the conversation is left as it was until the answer has ended.

use super::{Asker, Conversation, Exhibit};
use crate::constrain::Constraint;
use crate::generate::{Answer, FinishReason, GenerateOptions};
use crate::writing::{Writing, Written};
use crate::{Prompt, Result};
use pteron_runtime::RunControl;

/// A turn whose answer is being written.
#[derive(Debug)]
pub struct Saying {
    asked: (Asker, String, Vec<Exhibit>),
    prompt: Prompt,
    options: GenerateOptions,
    /// Turns that it hides.
    hidden: usize,
    writing: Writing,
}

/// What came of a step.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // it goes from call to call, once a token: a box would be made for each
pub enum Said {
    /// More text, which may be none, and the rest is to be said.
    More {
        /// What may be shown now.
        piece: String,
        /// To go on with.
        saying: Saying,
    },
    /// All of it; it is a turn now.
    Ended {
        /// What was held back until now.
        rest: String,
        /// The whole answer.
        answer: Answer,
    },
}

impl Conversation {
    /// Begins a turn, as [`Conversation::say_as`] does. Until it has ended, nothing else may be asked.
    ///
    /// # Errors
    /// As [`Conversation::say_as`].
    pub fn begin(
        &mut self,
        asker: Asker,
        user: &str,
        options: GenerateOptions,
        constraint: Option<Constraint>,
    ) -> Result<Saying> {
        let before = self.hidden;
        let fitting = self.fitting_prompt((asker, user), &options);
        // What is not said to its end hides nothing from what will be.
        let hidden = std::mem::replace(&mut self.hidden, before);
        let prompt = fitting?;
        let tokenizer = Some(&self.voice.tokenizer);
        let writing = Writing::begin(&mut self.decoder, tokenizer, &prompt, &options, constraint)?;
        let asked = (asker, user.to_owned(), self.shown.clone());
        Ok(Saying { asked, prompt, options, hidden, writing })
    }

    /// Goes on with a turn that was begun here.
    ///
    /// # Errors
    /// When a run fails; the turn is then forgotten.
    pub fn step(&mut self, saying: Saying, control: &RunControl) -> Result<Said> {
        let Saying { asked, prompt, options, hidden, writing } = saying;
        Ok(match writing.step(&mut self.decoder, control)? {
            Written::More { piece, writing } => {
                Said::More { piece, saying: Saying { asked, prompt, options, hidden, writing } }
            }
            Written::Ended { rest, answer } => {
                self.hidden = hidden;
                self.put_away(asked.2.len());
                self.note(asked, prompt, &answer, &options);
                Said::Ended { rest, answer }
            }
        })
    }

    /// Ends a turn that was begun here; what was said until now stays. What of it was held back, and the whole answer.
    pub fn interrupt(&mut self, saying: Saying) -> (String, Answer) {
        let Saying { asked, prompt, options, hidden, writing } = saying;
        let (rest, answer) = writing.end(&self.decoder, FinishReason::Cancelled);
        self.hidden = hidden;
        self.put_away(asked.2.len());
        self.note(asked, prompt, &answer, &options);
        (rest, answer)
    }

    /// What a turn has shown is not shown with the next one.
    fn put_away(&mut self, images: usize) {
        self.shown.drain(..images.min(self.shown.len()));
    }
}
