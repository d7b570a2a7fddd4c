//! A conversation over one session: every turn reads only what is new, and turns can be taken back, asked again,
//! continued twice and kept in a file.
//!
//! Words flow in, answers flow out; messages are the truth and the caches follow them. What the caches hold is compared
//! with the prompt of each turn, token by token, so that no order of commands can make them differ from what a new
//! session would hold.

mod exhibit;
mod saying;
mod store;

use crate::constrain::Constraint;
use crate::generate::{Answer, FinishReason, GenerateOptions, generate};
use crate::messages::showing;
use crate::seeing::{Image, Shown};
use crate::{Decoder, LlmError, Prompt, Result, Speculator, Voice};
use pteron_runtime::RunControl;
use pteron_template::Rendered;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ops::ControlFlow;
use std::sync::Arc;

pub use exhibit::Exhibit;
pub use saying::{Said, Saying};
pub use store::StoreError;

/// What happens when the context is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The oldest turns are left out; what the model was told before the conversation stays.
    #[default]
    Slide,
    /// Nothing more is said.
    Stop,
}

/// Who says what the model answers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Asker {
    /// A person.
    #[default]
    User,
    /// A tool that the model has called.
    Tool,
}

impl Asker {
    /// The role that templates know.
    fn role(self) -> &'static str {
        match self {
            Asker::User => "user",
            Asker::Tool => "tool",
        }
    }
}

/// One question with its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Who asked; files of old know people only.
    #[serde(default)]
    pub asker: Asker,
    /// What was asked.
    pub user: String,
    /// What was shown with that; files keep it apart.
    #[serde(skip)]
    pub images: Vec<Exhibit>,
    /// What was answered.
    pub answer: String,
    /// How many turns before it the model was not shown.
    hidden: usize,
    /// What the model read and wrote for it.
    heard: Option<Heard>,
}

/// A turn as tokens. Kept, since the same text may be cut into other tokens than those that the model wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Heard {
    /// The whole prompt as text.
    prompt: String,
    /// The whole prompt, then the answer.
    tokens: Vec<u32>,
    /// The images that some of them stand for. Turns that show any are read anew when they come from a file.
    #[serde(skip)]
    images: Vec<Shown>,
}

/// A conversation.
#[derive(Debug)]
pub struct Conversation {
    decoder: Decoder,
    voice: Voice,
    system: Option<String>,
    /// Descriptions of the tools that the model may call; null without any.
    tools: Value,
    turns: Vec<Turn>,
    /// What the next question shows.
    shown: Vec<Exhibit>,
    /// Turns that the model is not shown any more.
    hidden: usize,
    /// Of these, those that were left out on request.
    dropped: usize,
    full: WhenFull,
    /// What the model is called.
    model: Option<String>,
}

impl Conversation {
    /// A conversation that begins.
    pub fn new(decoder: Decoder, voice: Voice, system: Option<String>, full: WhenFull) -> Conversation {
        let (tools, turns, shown) = (Value::Null, Vec::new(), Vec::new());
        Conversation { decoder, voice, system, tools, turns, shown, hidden: 0, dropped: 0, full, model: None }
    }

    /// The same with a model of that name: files say with whom a conversation was held.
    pub fn with(self, model: impl Into<String>) -> Conversation {
        Conversation { model: Some(model.into()), ..self }
    }

    /// The same where the model may call tools: a list of their descriptions.
    pub fn with_tools(self, tools: Value) -> Conversation {
        Conversation { tools, ..self }
    }

    /// The same behind a turn that was held before.
    pub fn after(
        mut self,
        asker: Asker,
        asked: impl Into<String>,
        answer: impl Into<String>,
    ) -> Conversation {
        let (user, answer) = (asked.into(), answer.into());
        let (images, hidden) = (Vec::new(), self.hidden);
        self.turns.push(Turn { asker, user, images, answer, hidden, heard: None });
        self
    }

    /// The same, where the last of these turns showed images: the bytes of their files.
    ///
    /// # Errors
    /// When one is no image, or the model does not see.
    pub fn showing(mut self, files: &[Arc<[u8]>]) -> Result<Conversation> {
        let images = Exhibit::of(&self.voice, files)?;
        if let Some(turn) = self.turns.last_mut() {
            turn.images = images;
        }
        Ok(self)
    }

    /// Shows an image with the next question: the bytes of its file.
    ///
    /// # Errors
    /// When it is no image, or the model does not see.
    pub fn show(&mut self, file: Arc<[u8]>) -> Result<()> {
        self.shown.append(&mut Exhibit::of(&self.voice, &[file])?);
        Ok(())
    }

    /// Shows what the last question showed with the next one too, unless that shows something already.
    pub fn show_again(&mut self) {
        if let Some(turn) = self.turns.last().filter(|_| self.shown.is_empty()) {
            self.shown.clone_from(&turn.images);
        }
    }

    /// Shows these images with the next question, in place of those that it gives back.
    pub fn show_instead(&mut self, images: Vec<Exhibit>) -> Vec<Exhibit> {
        std::mem::replace(&mut self.shown, images)
    }

    /// What the model was told before the conversation.
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// How many of its turns the model is not shown any more.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Leaves out so many of the oldest turns that the model is shown; how many there were.
    pub fn drop_oldest(&mut self, turns: usize) -> usize {
        let dropped = turns.min(self.turns.len() - self.hidden);
        self.hidden += dropped;
        self.dropped = self.hidden;
        dropped
    }

    /// Its turns.
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// The decoder, to look at.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Guesses the tokens of further answers by this, as [`Decoder::set_speculator`] does.
    pub fn set_speculator(&mut self, speculator: Option<Speculator>) {
        self.decoder.set_speculator(speculator);
    }

    /// Asks something. `show` gets the answer piece by piece and may end it; what was said until then stays a turn.
    pub fn say(
        &mut self,
        user: &str,
        options: &GenerateOptions,
        constraint: Option<&mut Constraint>,
        show: &mut dyn FnMut(&str) -> ControlFlow<()>,
        control: &RunControl,
    ) -> Result<Answer> {
        self.say_as(Asker::User, user, options, constraint, show, control)
    }

    /// The same, by whoever asks.
    pub fn say_as(
        &mut self,
        asker: Asker,
        user: &str,
        options: &GenerateOptions,
        constraint: Option<&mut Constraint>,
        show: &mut dyn FnMut(&str) -> ControlFlow<()>,
        control: &RunControl,
    ) -> Result<Answer> {
        let hidden = self.hidden;
        let asked = self.ask((asker, user), options, constraint, show, control);
        // What was not said hides nothing from what will be.
        let (prompt, answer) = asked.inspect_err(|_| self.hidden = hidden)?;
        let images = std::mem::take(&mut self.shown);
        self.note((asker, user.to_owned(), images), prompt, &answer, options);
        Ok(answer)
    }

    /// What was asked and answered becomes a turn.
    fn note(
        &mut self,
        (asker, user, images): (Asker, String, Vec<Exhibit>),
        prompt: Prompt,
        answer: &Answer,
        options: &GenerateOptions,
    ) {
        let heard = self.heard(prompt, answer, options);
        let said = answer.text.clone();
        self.turns.push(Turn { asker, user, images, answer: said, hidden: self.hidden, heard });
    }

    /// The prompt of a question, and what the model says to it.
    fn ask(
        &mut self,
        asked: (Asker, &str),
        options: &GenerateOptions,
        constraint: Option<&mut Constraint>,
        show: &mut dyn FnMut(&str) -> ControlFlow<()>,
        control: &RunControl,
    ) -> Result<(Prompt, Answer)> {
        let prompt = self.fitting_prompt(asked, options)?;
        let tokenizer = Some(&self.voice.tokenizer);
        let answer = generate(&mut self.decoder, tokenizer, &prompt, options, constraint, show, control)?;
        Ok((prompt, answer))
    }

    /// Takes the last turn back; what was asked in it.
    pub fn undo(&mut self) -> Option<String> {
        self.take_back().map(|turn| turn.user)
    }

    /// The same with all of the turn.
    pub fn take_back(&mut self) -> Option<Turn> {
        let turn = self.turns.pop()?;
        // Turns that had to make room for it may be shown again.
        self.dropped = self.dropped.min(self.turns.len());
        self.hidden = self.turns.last().map_or(0, |turn| turn.hidden).max(self.dropped);
        Some(turn)
    }

    /// Forgets every turn.
    pub fn clear(&mut self) {
        self.turns.clear();
        (self.hidden, self.dropped) = (0, 0);
    }

    /// Another conversation that goes on from here; the two share memory until either goes on.
    pub fn fork(&self) -> Result<Conversation> {
        Ok(Conversation {
            decoder: self.decoder.fork()?,
            voice: self.voice.clone(),
            system: self.system.clone(),
            tools: self.tools.clone(),
            turns: self.turns.clone(),
            shown: self.shown.clone(),
            hidden: self.hidden,
            dropped: self.dropped,
            full: self.full,
            model: self.model.clone(),
        })
    }

    /// The prompt of a question, with as many earlier turns as the context has room for.
    fn fitting_prompt(&mut self, asked: (Asker, &str), options: &GenerateOptions) -> Result<Prompt> {
        let context = self.decoder.context().unwrap_or(usize::MAX);
        // Room for an answer, or at least for a good part of one.
        let part = (context / 4).max(1);
        let reserve = options.max_new.map_or(part, |most| most.clamp(1, part));
        loop {
            let prompt = self.prompt(asked)?;
            if prompt.tokens.len().saturating_add(reserve) <= context {
                return Ok(prompt);
            }
            let tokens = prompt.tokens.len();
            if self.full == WhenFull::Stop && self.hidden < self.turns.len() {
                return Err(LlmError::ContextFull { tokens, context });
            }
            if self.hidden >= self.turns.len() {
                // Alone it may still have room for a short answer.
                return match tokens < context {
                    true => Ok(prompt),
                    false => Err(LlmError::PromptTooLong { tokens, context }),
                };
            }
            self.hidden += 1;
        }
    }

    /// The prompt of a question. Where the template goes on from what the model has read and written, that stays as it
    /// was, and only the rest is cut into tokens.
    fn prompt(&self, asked: (Asker, &str)) -> Result<Prompt> {
        let turns = &self.turns[self.hidden..];
        let rendered = self.rendered(turns, asked, self.shown.len())?;
        let images = |exhibits: &[Exhibit]| exhibits.iter().map(|shown| shown.image.clone()).collect();
        let last: Vec<Image> = images(&self.shown);
        if let Some(rest) = self.rest_of(&rendered.text)
            && let Some(Turn { heard: Some(heard), .. }) = self.turns.last()
        {
            let from = rendered.text.len() - rest.len();
            let (rest, shown) = self.voice.encode_showing(&rendered, from, &last, heard.tokens.len())?;
            // Text that follows text may be cut otherwise than alone; what follows a turn mark may not.
            if rest.first().is_some_and(|&token| self.voice.tokenizer.is_special(token)) {
                let tokens = [heard.tokens.as_slice(), &rest].concat();
                let images = [heard.images.as_slice(), &shown].concat();
                return Ok(Prompt { tokens, text: rendered.text, images });
            }
        }
        let mut all: Vec<Image> = turns.iter().flat_map(|turn| images(&turn.images)).collect();
        all.extend(last);
        self.voice.tokens_of(rendered, &all)
    }

    /// The text of a question that shows so many images, behind some turns.
    fn rendered(&self, turns: &[Turn], (asker, asked): (Asker, &str), shown: usize) -> Result<Rendered> {
        let before: usize = turns.iter().map(|turn| turn.images.len()).sum();
        let mut messages: Vec<Value> = Vec::new();
        messages.extend(self.system.as_ref().map(|system| showing("system", system, 0)));
        for turn in turns {
            messages.push(showing(turn.asker.role(), &turn.user, turn.images.len()));
            messages.push(showing("assistant", &turn.answer, 0));
        }
        messages.push(showing(asker.role(), asked, shown));
        self.voice.chat_text(&messages, &self.tools, before + shown)
    }

    /// What follows the last answer in a rendered conversation; `None` where that does not go on from it. Templates
    /// may strip the answer of white space.
    fn rest_of<'t>(&self, text: &'t str) -> Option<&'t str> {
        let turn = self.turns.last().filter(|turn| turn.hidden == self.hidden)?;
        let behind = text.strip_prefix(turn.heard.as_ref()?.prompt.as_str())?;
        behind.strip_prefix(&turn.answer).or_else(|| behind.strip_prefix(turn.answer.trim()))
    }

    /// What was read and written, where the answer's tokens are its text and nothing but that.
    fn heard(&self, prompt: Prompt, answer: &Answer, options: &GenerateOptions) -> Option<Heard> {
        let by_string = answer.finish_reason == FinishReason::Stop && !options.stop.is_empty();
        let marks = answer.tokens.iter().any(|&token| self.voice.tokenizer.is_special(token));
        if by_string || marks || answer.text.contains(char::REPLACEMENT_CHARACTER) {
            return None;
        }
        let mut tokens = prompt.tokens;
        tokens.extend(&answer.tokens);
        Some(Heard { prompt: prompt.text, tokens, images: prompt.images })
    }
}
