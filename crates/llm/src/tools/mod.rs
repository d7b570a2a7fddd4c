//! What a model says, told apart: its reasoning, what it says to the user, and the tools that it calls.
//!
//! Pieces of text flow in as they come, cut anywhere; [`Part`]s flow out as soon as they will not change. A call comes as
//! a whole, when it is complete and makes sense; one that makes none stays what it is, text.

mod calls;
mod choice;
mod form;
mod gemma;

pub use choice::{ToolChoice, call_schema};
pub use form::ToolForm;

use serde_json::Value;

/// How models mark their reasoning.
const REASONING: [(&str, &str); 3] =
    [("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<|channel>thought", "<channel|>")];

/// A tool that a model wants to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Which.
    pub name: String,
    /// An object, as JSON.
    pub arguments: String,
}

/// A part of what a model says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// For the user.
    Content(String),
    /// What it thinks before it says something.
    Reasoning(String),
    /// A call.
    Call(ToolCall),
}

/// Marks that are worth showing to a [`Reader`] where a vocabulary has them as special tokens.
pub fn marks(form: Option<ToolForm>) -> impl Iterator<Item = &'static str> {
    let reasoning = REASONING.into_iter().flat_map(|(opens, closes)| {
        // The word behind the first mark of a channel is text.
        [opens.strip_suffix("thought").unwrap_or(opens), closes]
    });
    reasoning.chain(form.into_iter().flat_map(|form| form.marks().iter().copied()))
}

/// Tells the parts of one answer apart.
#[derive(Clone, Debug)]
pub struct Reader {
    form: Option<ToolForm>,
    /// Descriptions of the tools, for formats that do not say of which type a value is.
    tools: Value,
    state: State,
    held: String,
    /// Whether white space is of no meaning now.
    trims: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing has been said yet.
    Start,
    /// Until that mark.
    Reasoning(&'static str),
    /// Nothing for the user has been said yet.
    First,
    Content,
    Call,
    /// What may be a call without its marks.
    Bare,
}

impl Reader {
    /// A reader of one answer. `form` is how the model calls tools, where it may; `tools` are their descriptions.
    pub fn new(form: Option<ToolForm>, tools: &Value) -> Reader {
        let state = if form == Some(ToolForm::Whole) { State::Call } else { State::Start };
        Reader { form, tools: tools.clone(), state, held: String::new(), trims: false }
    }

    /// The same for an answer to a prompt that ends so: a template may have begun the reasoning itself.
    pub fn behind(mut self, prompt: &str) -> Reader {
        let end = prompt.trim_end();
        if let Some((_, closes)) = REASONING.into_iter().find(|(opens, _)| end.ends_with(opens)) {
            self.state = State::Reasoning(closes);
            self.trims = true;
        }
        self
    }

    /// Takes more text; what will not change any more.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.held += text;
        let mut parts = Vec::new();
        while self.step(&mut parts) {}
        parts
    }

    /// What is left when nothing more comes.
    pub fn finish(mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        let rest = std::mem::take(&mut self.held);
        match (self.state, self.form) {
            (State::Reasoning(_), _) => add(&mut parts, Part::Reasoning(rest)),
            (State::Call, Some(form)) => self.call(form, &rest, None, &mut parts),
            (State::Bare, _) => match calls::bare(&rest, &self.tools) {
                Some(calls) => parts.extend(calls.into_iter().map(Part::Call)),
                None => add(&mut parts, Part::Content(rest)),
            },
            _ => {
                let rest = if self.trims { rest.trim_start() } else { &rest };
                add(&mut parts, Part::Content(rest.to_owned()));
            }
        }
        parts
    }

    /// One step; whether there may be another.
    fn step(&mut self, parts: &mut Vec<Part>) -> bool {
        if self.trims {
            let start = self.held.len() - self.held.trim_start().len();
            self.held.drain(..start);
            self.trims = self.held.is_empty();
        }
        match self.state {
            State::Start => self.start(),
            State::Reasoning(closes) => self.reasoning(closes, parts),
            State::First => self.first(),
            State::Content => self.content(parts),
            State::Call => self.calling(parts),
            State::Bare => self.bare(),
        }
    }

    /// Whether the answer begins with reasoning.
    fn start(&mut self) -> bool {
        let said = self.held.trim_start();
        if let Some((opens, closes)) = REASONING.into_iter().find(|(opens, _)| said.starts_with(opens)) {
            let from = self.held.len() - said.len() + opens.len();
            self.held.drain(..from);
            (self.state, self.trims) = (State::Reasoning(closes), true);
            return true;
        }
        if REASONING.iter().any(|(opens, _)| opens.starts_with(said)) {
            return false;
        }
        self.state = State::First;
        true
    }

    fn reasoning(&mut self, closes: &'static str, parts: &mut Vec<Part>) -> bool {
        if let Some(at) = self.held.find(closes) {
            let thought = self.held[..at].trim_end().to_owned();
            self.held.drain(..at + closes.len());
            add(parts, Part::Reasoning(thought));
            (self.state, self.trims) = (State::First, true);
            return true;
        }
        let ready = ready(&self.held, closes);
        add(parts, Part::Reasoning(self.held.drain(..ready).collect()));
        false
    }

    /// Whether all that is said is a call, where a model calls without a mark.
    fn first(&mut self) -> bool {
        if self.form == Some(ToolForm::Llama) {
            let said = self.held.trim_start();
            if said.is_empty() || form::PYTHON_TAG.starts_with(said) && said.len() < form::PYTHON_TAG.len() {
                return false;
            }
            if said.starts_with('{') || said.starts_with(form::PYTHON_TAG) {
                self.state = State::Call;
                return true;
            }
        }
        let tagged = self.form == Some(ToolForm::Tagged) && !self.tools.is_null();
        self.state = if tagged { State::Bare } else { State::Content };
        true
    }

    /// Small models forget the marks: an answer that is nothing but a call of one of the tools is held back until it ends.
    fn bare(&mut self) -> bool {
        if calls::may_be_bare(&self.held) {
            return false;
        }
        self.state = State::Content;
        true
    }

    fn content(&mut self, parts: &mut Vec<Part>) -> bool {
        let Some(opens) = self.form.and_then(ToolForm::opens) else {
            add(parts, Part::Content(std::mem::take(&mut self.held)));
            return false;
        };
        if let Some(at) = self.held.find(opens) {
            let said = self.held[..at].trim_end().to_owned();
            self.held.drain(..at + opens.len());
            add(parts, Part::Content(said));
            self.state = State::Call;
            return true;
        }
        let ready = ready(&self.held, opens);
        add(parts, Part::Content(self.held.drain(..ready).collect()));
        false
    }

    fn calling(&mut self, parts: &mut Vec<Part>) -> bool {
        let Some(form) = self.form else { return false };
        let Some(closes) = form.closes() else { return false };
        let Some(at) = self.held.find(closes) else { return false };
        let body: String = self.held.drain(..at + closes.len()).collect();
        self.call(form, &body[..at], Some(closes), parts);
        (self.state, self.trims) = (State::Content, true);
        // A mark that only opens calls closes the one before it.
        if form.opens() == Some(closes) {
            (self.state, self.trims) = (State::Call, false);
        }
        true
    }

    /// A call, or the text that it is where it is none.
    fn call(&self, form: ToolForm, body: &str, closes: Option<&str>, parts: &mut Vec<Part>) {
        match form.parse(body, &self.tools) {
            Some(calls) => parts.extend(calls.into_iter().map(Part::Call)),
            None => {
                let closes = closes.filter(|closes| form.opens() != Some(*closes)).unwrap_or_default();
                let opens = form.opens().unwrap_or_default();
                add(parts, Part::Content(format!("{opens}{body}{closes}")));
            }
        }
    }
}

/// Adds a part that says something.
fn add(parts: &mut Vec<Part>, part: Part) {
    let says = match &part {
        Part::Content(text) | Part::Reasoning(text) => !text.is_empty(),
        Part::Call(_) => true,
    };
    if says {
        parts.push(part);
    }
}

/// How much of a text cannot be the beginning of a mark, nor white space before one.
fn ready(text: &str, mark: &str) -> usize {
    let from = text.len().saturating_sub(mark.len());
    let starts = text.char_indices().map(|(at, _)| at).filter(|&at| at >= from);
    let hold = starts.into_iter().find(|&at| mark.starts_with(&text[at..])).unwrap_or(text.len());
    text[..hold].trim_end().len()
}

#[cfg(test)]
mod tests;
