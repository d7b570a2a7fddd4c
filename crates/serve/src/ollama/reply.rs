//! Answers in the words of Ollama's interface: whole ones, and streams of lines.

use crate::answer::{Piece, Says, Usage};
use crate::asked::{Asked, Shape};
use crate::error::ApiError;
use crate::keep::now;
use crate::wire::Wire;
use bytes::Bytes;
use pteron_llm::tools::ToolCall;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// An error as this interface tells it.
pub(crate) fn error_json(error: &ApiError) -> Value {
    json!({"error": error.message})
}

/// Writes one answer.
pub(crate) struct Writer {
    talks: bool,
    model: String,
    reason: &'static str,
    loading: Duration,
    began: Instant,
}

impl Writer {
    pub(crate) fn new(asked: &Asked, loading: Duration) -> Writer {
        let (talks, model) = (asked.shape == Shape::Talk, asked.model.name.clone());
        Writer { talks, model, reason: "stop", loading, began: Instant::now() }
    }

    fn line(&self, text: &str, thinking: &str, calls: Vec<Value>) -> Value {
        let mut line = json!({"model": self.model, "created_at": now(), "done": false});
        let mut said = match self.talks {
            true => json!({"role": "assistant", "content": text}),
            false => json!({"response": text}),
        };
        if !thinking.is_empty() {
            said["thinking"] = thinking.into();
        }
        if !calls.is_empty() {
            said["tool_calls"] = calls.into();
        }
        match (said, &mut line) {
            (Value::Object(said), Value::Object(line)) if !self.talks => line.extend(said),
            (said, line) => line["message"] = said,
        }
        line
    }

    /// The same, with what all of it took.
    fn last(&self, mut line: Value, usage: Usage) -> Value {
        let nanoseconds = |milliseconds: f64| (milliseconds.max(0.0) * 1e6) as u64;
        let whole = self.began.elapsed() + self.loading;
        line["done"] = true.into();
        line["done_reason"] = self.reason.into();
        line["total_duration"] = (whole.as_nanos() as u64).into();
        line["load_duration"] = (self.loading.as_nanos() as u64).into();
        line["prompt_eval_count"] = usage.prompt.into();
        line["prompt_eval_duration"] = nanoseconds(usage.prompt_time).into();
        line["eval_count"] = usage.answers.into();
        line["eval_duration"] = nanoseconds(usage.answer_time).into();
        line
    }

    fn ends(&mut self, finish: &str) {
        self.reason = if finish == "length" { "length" } else { "stop" };
    }
}

fn bytes(line: &Value) -> Bytes {
    Bytes::from(format!("{line}\n"))
}

fn call_json(call: &ToolCall) -> Value {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
    json!({"function": {"name": call.name, "arguments": arguments}})
}

impl Wire for Writer {
    fn kind(&self) -> &'static str {
        "application/x-ndjson"
    }

    fn ping(&self) -> Option<Bytes> {
        None
    }

    fn begin(&mut self) -> Vec<Bytes> {
        Vec::new()
    }

    fn piece(&mut self, piece: Piece) -> Vec<Bytes> {
        match piece.says {
            Says::Content(text) if text.is_empty() => Vec::new(),
            Says::Content(text) => vec![bytes(&self.line(&text, "", Vec::new()))],
            Says::Reasoning(text) => vec![bytes(&self.line("", &text, Vec::new()))],
            Says::Call(_, call) => vec![bytes(&self.line("", "", vec![call_json(&call)]))],
            Says::End(finish) => {
                self.ends(finish);
                Vec::new()
            }
        }
    }

    fn end(&mut self, usage: Usage) -> Vec<Bytes> {
        vec![bytes(&self.last(self.line("", "", Vec::new()), usage))]
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Bytes> {
        vec![bytes(&error_json(error))]
    }

    fn whole(&mut self, pieces: Vec<Piece>, usage: Usage) -> Value {
        let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
        for piece in pieces {
            match piece.says {
                Says::Content(more) => text += &more,
                Says::Reasoning(more) => thinking += &more,
                Says::Call(_, call) => calls.push(call_json(&call)),
                Says::End(finish) => self.ends(finish),
            }
        }
        self.last(self.line(&text, &thinking, calls), usage)
    }
}
