//! A conversation over one session: every turn reads only what is new, and turns can be taken back, asked again,
//! continued twice and kept in a file.
//!
//! Words flow in, answers flow out; messages are the truth and the caches follow them. What the caches hold is compared
//! with the prompt of each turn, token by token, so that no order of commands can make them differ from what a new
//! session would hold.

mod saying;
mod store;

use crate::constrain::Constraint;
use crate::generate::{Answer, FinishReason, GenerateOptions, generate};
use crate::{Decoder, LlmError, Prompt, Result, Speculator, Voice};
use pteron_runtime::RunControl;
use pteron_template::Rendered;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::ops::ControlFlow;

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
        let (tools, turns) = (Value::Null, Vec::new());
        Conversation { decoder, voice, system, tools, turns, hidden: 0, dropped: 0, full, model: None }
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
        self.turns.push(Turn { asker, user, answer, hidden: self.hidden, heard: None });
        self
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
        self.note((asker, user.to_owned()), prompt, &answer, options);
        Ok(answer)
    }

    /// What was asked and answered becomes a turn.
    fn note(
        &mut self,
        (asker, user): (Asker, String),
        prompt: Prompt,
        answer: &Answer,
        options: &GenerateOptions,
    ) {
        let heard = self.heard(prompt, answer, options);
        let said = answer.text.clone();
        self.turns.push(Turn { asker, user, answer: said, hidden: self.hidden, heard });
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
        let answer =
            generate(&mut self.decoder, tokenizer, &prompt.tokens, options, constraint, show, control)?;
        Ok((prompt, answer))
    }

    /// Takes the last turn back; what was asked in it.
    pub fn undo(&mut self) -> Option<String> {
        let turn = self.turns.pop()?;
        // Turns that had to make room for it may be shown again.
        self.dropped = self.dropped.min(self.turns.len());
        self.hidden = self.turns.last().map_or(0, |turn| turn.hidden).max(self.dropped);
        Some(turn.user)
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
        let rendered = self.rendered(&self.turns[self.hidden..], asked)?;
        if let Some(rest) = self.rest_of(&rendered.text)
            && let Some(Turn { heard: Some(heard), .. }) = self.turns.last()
        {
            let from = rendered.text.len() - rest.len();
            let rest = self.voice.encode(&rendered, from, self.voice.special_tokens)?;
            // Text that follows text may be cut otherwise than alone; what follows a turn mark may not.
            if rest.first().is_some_and(|&token| self.voice.tokenizer.is_special(token)) {
                let tokens = [heard.tokens.as_slice(), &rest].concat();
                return Ok(Prompt { tokens, text: rendered.text });
            }
        }
        self.voice.tokens_of(rendered)
    }

    /// The text of a question behind some turns.
    fn rendered(&self, turns: &[Turn], (asker, asked): (Asker, &str)) -> Result<Rendered> {
        let mut messages: Vec<Value> = Vec::new();
        messages.extend(self.system.as_ref().map(|system| message("system", system)));
        for turn in turns {
            messages.push(message(turn.asker.role(), &turn.user));
            messages.push(message("assistant", &turn.answer));
        }
        messages.push(message(asker.role(), asked));
        self.voice.chat_text(&messages, &self.tools)
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
        Some(Heard { prompt: prompt.text, tokens })
    }
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}
