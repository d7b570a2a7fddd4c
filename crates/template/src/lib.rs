//! Chat templates: the Jinja that models carry, rendered as `transformers` renders it.
//!
//! A template's source and a conversation flow in, the text of the prompt flows out. The language is that of jinja2
//! 3.1 in its immutable sandbox, values behave and print as Python's do, and every step and every byte is counted,
//! since templates come from strangers. Engines made for Jinja in general let a template build strings without
//! bound and print values in their own way, so that this one is ours.

mod access;
mod ast;
mod budget;
mod call;
mod error;
mod evaluate;
mod expression;
mod filters;
mod format;
mod interpreter;
mod json;
mod lexer;
mod methods;
mod operators;
mod parser;
mod predicates;
mod print;
mod strings;
mod text;
mod time;
mod value;

pub use error::TemplateError;
pub use time::LocalTime;

use budget::Budget;
use interpreter::Interpreter;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use text::Text;

/// A template that has been read. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    statements: Arc<[ast::Statement]>,
}

/// A conversation, and everything else that a template may ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RenderInput {
    /// The messages: a list of objects with `role`, `content` and what else the model knows.
    pub messages: Value,
    /// Descriptions of the tools that the model may call; null where there are none.
    pub tools: Value,
    /// Whether the text shall end with the start of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Tokens by name, such as `bos_token`.
    pub tokens: BTreeMap<String, String>,
    /// What `strftime_now` sees.
    pub now: LocalTime,
    /// Further variables: `enable_thinking`, `documents` and whatever else a template reads.
    pub flags: Map<String, Value>,
}

/// The text of a conversation, and which of it the template did not write itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The text.
    pub text: String,
    /// Bytes that came from messages, tools or flags, in order: special tokens that they spell are none.
    pub heard: Vec<Range<usize>>,
}

impl Rendered {
    /// A text that no template wrote.
    pub fn heard(text: String) -> Rendered {
        Rendered { heard: std::iter::once(0..text.len()).collect(), text }
    }
}

impl ChatTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// When the source is not a template, or is nested too deeply.
    pub fn new(source: &str) -> Result<ChatTemplate, TemplateError> {
        parser::parse(source).map(|statements| ChatTemplate { statements: statements.into() })
    }

    /// The text of a conversation.
    ///
    /// # Errors
    /// When the template refuses the conversation, stumbles over it, or goes over its limits.
    pub fn render(&self, input: &RenderInput) -> Result<String, TemplateError> {
        self.render_heard(input).map(|rendered| rendered.text)
    }

    /// The text of a conversation, with what was heard of it.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn render_heard(&self, input: &RenderInput) -> Result<Rendered, TemplateError> {
        let is_chat = |messages: &Vec<Value>| messages.iter().all(Value::is_object);
        if !input.messages.as_array().is_some_and(is_chat) {
            let message = "the messages must be a list of objects".into();
            return Err(TemplateError::Evaluation { line: 1, message });
        }
        let variables = input.variables();
        let size = variables.iter().map(|(name, value)| name.len() + json_size(value)).sum();
        let mut interpreter = Interpreter::new(Budget::new(size), input.now);
        for (name, value) in &variables {
            let value = match value {
                Value::Array(messages) if name == "messages" => interpreter.budget.messages(messages),
                token if input.is_token(name) => interpreter.budget.json(token, |text| Text::own(text)),
                other => interpreter.budget.json(other, |text| Text::heard(text)),
            };
            interpreter.define(name, value.map_err(|fault| fault.at(1))?);
        }
        let result = interpreter.render(&self.statements);
        let (text, heard) = result.map_err(|fault| fault.at(interpreter.line))?.into_parts();
        Ok(Rendered { text, heard })
    }
}

impl RenderInput {
    /// Whether a variable is one of the tokenizer's tokens, and not one of that name that the caller gave.
    fn is_token(&self, name: &str) -> bool {
        self.tokens.contains_key(name) && !self.flags.contains_key(name)
    }

    /// The names that the template sees. Those of the call itself win over flags and tokens.
    fn variables(&self) -> Map<String, Value> {
        let mut variables: Map<String, Value> =
            self.tokens.iter().map(|(name, token)| (name.clone(), Value::from(token.as_str()))).collect();
        variables.insert("documents".into(), Value::Null);
        variables.extend(self.flags.clone());
        variables.insert("messages".into(), with_reasoning(&self.messages));
        variables.insert("tools".into(), self.tools.clone());
        variables.insert("add_generation_prompt".into(), self.add_generation_prompt.into());
        variables
    }
}

/// Messages whose reasoning stands under every name that templates look for.
fn with_reasoning(messages: &Value) -> Value {
    let Value::Array(messages) = messages else { return messages.clone() };
    let alias = |message: &Value| {
        let Value::Object(fields) = message else { return message.clone() };
        let names = ["reasoning_content", "thinking", "reasoning"];
        let reasoning = names.iter().filter_map(|name| fields.get(*name)).find(|value| !value.is_null());
        let Some(reasoning) = reasoning else { return message.clone() };
        // The order of the entries shows where a template prints a whole message.
        let mut aliased = Map::new();
        aliased.insert("thinking".into(), reasoning.clone());
        aliased.extend(fields.clone());
        aliased.insert("reasoning_content".into(), reasoning.clone());
        Value::Object(aliased)
    };
    messages.iter().map(alias).collect()
}

/// About how many bytes a value takes as JSON.
fn json_size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(json_size).sum::<usize>(),
        Value::Object(entries) => {
            2 + entries.iter().map(|(key, value)| key.len() + 4 + json_size(value)).sum::<usize>()
        }
        _ => 8,
    }
}
