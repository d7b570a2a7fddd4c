//! Answers that an app drives itself, a call of the model at a time: where the thread that asks must be free in between, as
//! the one that a browser gives.

use super::Chat;
use crate::error::Result;
use crate::generate::{GenerateOptions, Prompt};
use crate::model::Model;
use crate::progress::Cancel;
use pteron_llm::conversation::{Asker, Said, Saying};
use pteron_llm::{Answer, Decoder, FinishReason, Written};
use pteron_runtime::RunControl;

/// A turn of a [`Chat`] whose answer is being written; [`Chat::step`] goes on with it.
#[derive(Debug)]
pub struct Asking(Box<Saying>);

/// What came of a step of an answer, which goes on by an `A`.
#[derive(Debug)]
pub enum Step<A> {
    /// More text, which may be none; there is more to come.
    More {
        /// What may be shown now.
        piece: String,
        /// To go on with.
        rest: A,
    },
    /// The answer has ended.
    Ended {
        /// The last of its text.
        piece: String,
        /// All of it.
        answer: Box<Answer>,
    },
}

impl Chat {
    /// Begins to ask something: the answer comes as [`Chat::step`] is called, and is a turn when it has ended. Without
    /// options it is as the chat's answers are. What is dropped before its end was never asked.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// # let brief = pteron::GenerateOptions::default().max_tokens(4);
    /// # let options = pteron::ChatOptions::default().answering(brief);
    /// use pteron::Step;
    ///
    /// let mut chat = model.chat(options)?;
    /// let mut asking = chat.begin("Why is the sky blue?", None)?;
    /// let answer = loop {
    ///     match chat.step(asking)? {
    ///         Step::More { piece, rest } => {
    ///             print!("{piece}");
    ///             asking = rest;
    ///         }
    ///         Step::Ended { answer, .. } => break answer,
    ///     }
    /// };
    /// assert_eq!((answer.tokens.len(), chat.turns()), (4, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Chat::send`].
    pub fn begin(&mut self, text: &str, options: Option<&GenerateOptions>) -> Result<Asking> {
        self.asking(Asker::User, text, options)
    }

    /// Begins to give the model what a tool has found.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// let mut chat = model.chat(Default::default())?;
    /// let asking = chat.begin_result("14 degrees")?;
    /// let (_, answer) = chat.interrupt(asking);
    /// assert_eq!(answer.finish_reason, pteron::FinishReason::Cancelled);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Chat::send_result`].
    pub fn begin_result(&mut self, found: &str) -> Result<Asking> {
        self.asking(Asker::Tool, found, None)
    }

    fn asking(&mut self, asker: Asker, text: &str, options: Option<&GenerateOptions>) -> Result<Asking> {
        self.stop.reset();
        let options = options.unwrap_or(&self.answering);
        let seed = options.seed.unwrap_or(self.seed);
        let resolved = pteron_llm::GenerateOptions { seed, ..options.resolved(&self.model) };
        let constraint = options.constraint(&self.model)?;
        let begun = self.conversation.begin(asker, text, resolved, constraint);
        Ok(Asking(Box::new(begun.map_err(|error| self.model.named(error))?)))
    }

    /// Reads a part of what was asked, or chooses a token of the answer. [`Stopper::stop`](crate::Stopper::stop) makes it the
    /// last one. Nothing is guessed ahead.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// # let mut chat = model.chat(Default::default())?;
    /// let asking = chat.begin("Why is the sky blue?", None)?;
    /// chat.stopper().stop();
    /// let pteron::Step::Ended { answer, .. } = chat.step(asking)? else { panic!("it was stopped") };
    /// assert_eq!(answer.finish_reason, pteron::FinishReason::Cancelled);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When a run fails; nothing was asked then.
    pub fn step(&mut self, asking: Asking) -> Result<Step<Asking>> {
        let control = RunControl { cancel: Some(self.stop.flag()), ..RunControl::default() };
        let said = self.conversation.step(*asking.0, &control);
        Ok(match said.map_err(|error| self.model.named(error))? {
            Said::More { piece, saying } => Step::More { piece, rest: Asking(Box::new(saying)) },
            Said::Ended { rest, answer } => {
                self.stop.reset();
                Step::Ended { piece: rest, answer: Box::new(self.model.timed(answer)) }
            }
        })
    }

    /// Ends an answer here; what was said until now is a turn. The last of its text, and all of it.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// # let mut chat = model.chat(Default::default())?;
    /// let asking = chat.begin("Why is the sky blue?", None)?;
    /// let (rest, answer) = chat.interrupt(asking);
    /// assert!(rest.is_empty() && answer.text.is_empty() && chat.turns() == 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn interrupt(&mut self, asking: Asking) -> (String, Answer) {
        let (rest, answer) = self.conversation.interrupt(*asking.0);
        self.stop.reset();
        (rest, self.model.timed(answer))
    }
}

/// An answer without a conversation that is being written.
#[derive(Debug)]
pub struct Writing {
    model: Model,
    decoder: Decoder,
    writing: pteron_llm::Writing,
}

impl Model {
    /// Begins an answer as [`Model::stream`] gives it: it comes as [`Writing::step`] is called.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// use pteron::{Cancel, GenerateOptions, Step};
    ///
    /// let (options, cancel) = (GenerateOptions::default().max_tokens(4), Cancel::default());
    /// let mut writing = model.begin("Why is the sky blue?", &options)?;
    /// let answer = loop {
    ///     match writing.step(&cancel)? {
    ///         Step::More { rest, .. } => writing = rest,
    ///         Step::Ended { answer, .. } => break answer,
    ///     }
    /// };
    /// assert_eq!(answer.text, model.generate("Why is the sky blue?", &options)?[0].text);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Model::stream`].
    pub fn begin(&self, prompt: impl Into<Prompt>, options: &GenerateOptions) -> Result<Writing> {
        let prompt = self.tokens(prompt, options)?;
        let (resolved, constraint) = (options.resolved(self), options.constraint(self)?);
        let mut decoder = self.decoder(resolved.seed)?;
        let tokenizer = self.voice().ok().map(|voice| &voice.tokenizer);
        let begun = pteron_llm::Writing::begin(&mut decoder, tokenizer, &prompt, &resolved, constraint);
        let writing = begun.map_err(|error| self.named(error))?;
        Ok(Writing { model: self.clone(), decoder, writing })
    }
}

impl Writing {
    /// Reads a part of the prompt, or chooses a token. Where it is cancelled, the answer ends.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// let writing = model.begin("Why is the sky blue?", &Default::default())?;
    /// let cancel = pteron::Cancel::default();
    /// cancel.cancel();
    /// assert!(matches!(writing.step(&cancel)?, pteron::Step::Ended { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When a run fails.
    pub fn step(self, cancel: &Cancel) -> Result<Step<Writing>> {
        let Writing { model, mut decoder, writing } = self;
        let control = RunControl { cancel: Some(cancel.flag()), ..RunControl::default() };
        let written = writing.step(&mut decoder, &control).map_err(|error| model.named(error))?;
        Ok(match written {
            Written::More { piece, writing } => {
                Step::More { piece, rest: Writing { model, decoder, writing } }
            }
            Written::Ended { rest, answer } => {
                Step::Ended { piece: rest, answer: Box::new(model.timed(answer)) }
            }
        })
    }

    /// Ends it here. The last of its text, and all of it.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// let (rest, answer) = model.begin("Why?", &Default::default())?.interrupt();
    /// assert!(rest.is_empty() && answer.tokens.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn interrupt(self) -> (String, Answer) {
        let (rest, answer) = self.writing.end(&self.decoder, FinishReason::Cancelled);
        (rest, self.model.timed(answer))
    }
}
