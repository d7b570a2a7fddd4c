//! A response as its items come: whole, or as events that are numbered in their order. Each item is opened, grows, and is
//! closed before the next one begins.

use crate::answer::{Piece, Says, Usage};
use crate::asked::Asked;
use crate::error::ApiError;
use crate::reply::{DONE, fresh};
use crate::wire::Wire;
use bytes::Bytes;
use pteron_llm::tools::ToolCall;
use serde_json::{Map, Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes one response.
pub(crate) struct Writer {
    id: String,
    created: u64,
    model: String,
    echo: Map<String, Value>,
    /// Events so far.
    number: u64,
    /// Items that are whole.
    output: Vec<Value>,
    open: Option<Open>,
    finish: &'static str,
}

/// An item that grows.
struct Open {
    kind: Kind,
    id: String,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
}

impl Open {
    fn part(&self, text: &str) -> Value {
        match self.kind {
            Kind::Message => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
            Kind::Reasoning => json!({"type": "reasoning_text", "text": text}),
        }
    }

    fn item(&self, status: &str, content: Vec<Value>) -> Value {
        match self.kind {
            Kind::Message => json!({
                "type": "message", "id": self.id, "status": status, "role": "assistant", "content": content,
            }),
            Kind::Reasoning => json!({
                "type": "reasoning", "id": self.id, "status": status, "summary": [], "content": content,
                "encrypted_content": null,
            }),
        }
    }

    fn names(&self) -> (&'static str, &'static str) {
        match self.kind {
            Kind::Message => ("response.output_text.delta", "response.output_text.done"),
            Kind::Reasoning => ("response.reasoning_text.delta", "response.reasoning_text.done"),
        }
    }
}

impl Writer {
    pub(crate) fn new(asked: &mut Asked) -> Writer {
        let mut echo = std::mem::take(&mut asked.echo);
        let sampling = &asked.request.options.sampling;
        for (name, value) in [("temperature", sampling.temperature), ("top_p", sampling.top_p)] {
            echo.entry(name).or_insert_with(|| json!(value));
        }
        Writer {
            id: fresh("resp_"),
            created: seconds(),
            model: asked.model.name.clone(),
            echo,
            number: 0,
            output: Vec::new(),
            open: None,
            finish: "stop",
        }
    }

    /// The response as it stands.
    fn response(&self, status: &str, usage: Option<Usage>, error: Option<&ApiError>) -> Value {
        let incomplete = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
        let completed = (status == "completed").then(seconds);
        let error = error.map(|error| json!({"code": "server_error", "message": error.message}));
        let mut response = json!({
            "id": self.id, "object": "response", "created_at": self.created, "completed_at": completed,
            "status": status, "background": false, "error": error, "incomplete_details": incomplete,
            "instructions": null, "max_output_tokens": null, "max_tool_calls": null, "model": self.model,
            "output": self.output, "parallel_tool_calls": true, "previous_response_id": null,
            "prompt_cache_key": null, "reasoning": {"effort": null, "summary": null},
            "safety_identifier": null, "service_tier": "default", "store": false,
            "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_logprobs": 0,
            "presence_penalty": 0.0, "frequency_penalty": 0.0, "truncation": "disabled",
            "usage": usage.map(usage_json), "user": null, "metadata": {},
        });
        if let Value::Object(response) = &mut response {
            response.extend(self.echo.clone());
        }
        response
    }

    /// An event with its name and its number.
    fn event(&mut self, name: &str, mut data: Value) -> Bytes {
        data["type"] = name.into();
        data["sequence_number"] = self.number.into();
        self.number += 1;
        Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
    }

    /// Goes on with an item, or begins one.
    fn extend(&mut self, kind: Kind, text: &str) -> Vec<Bytes> {
        let mut events = Vec::new();
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            events.extend(self.close("completed"));
            let id = fresh(if kind == Kind::Message { "msg_" } else { "rs_" });
            let open = Open { kind, id, text: String::new() };
            let (item, part) = (open.item("in_progress", Vec::new()), open.part(""));
            let (at, id) = (self.output.len(), open.id.clone());
            self.open = Some(open);
            events.push(self.event("response.output_item.added", json!({"output_index": at, "item": item})));
            let part = json!({"item_id": id, "output_index": at, "content_index": 0, "part": part});
            events.push(self.event("response.content_part.added", part));
        }
        let at = self.output.len();
        if let Some(open) = &mut self.open {
            open.text += text;
            let mut data = json!({"item_id": open.id, "output_index": at, "content_index": 0, "delta": text});
            if kind == Kind::Message {
                data["logprobs"] = json!([]);
            }
            let (name, _) = open.names();
            events.push(self.event(name, data));
        }
        events
    }

    /// Ends the item that grows.
    fn close(&mut self, status: &str) -> Vec<Bytes> {
        let Some(open) = self.open.take() else { return Vec::new() };
        let at = self.output.len();
        let place = json!({"item_id": open.id, "output_index": at, "content_index": 0});
        let (mut done, mut part) = (place.clone(), place);
        done["text"] = open.text.as_str().into();
        if open.kind == Kind::Message {
            done["logprobs"] = json!([]);
        }
        let whole = open.part(&open.text);
        part["part"] = whole.clone();
        let item = open.item(status, vec![whole]);
        self.output.push(item.clone());
        vec![
            self.event(open.names().1, done),
            self.event("response.content_part.done", part),
            self.event("response.output_item.done", json!({"output_index": at, "item": item})),
        ]
    }

    /// A call, which comes as a whole.
    fn call(&mut self, call: &ToolCall) -> Vec<Bytes> {
        let mut events = self.close("completed");
        let at = self.output.len();
        let (id, call_id) = (fresh("fc_"), fresh("call_"));
        let item = |arguments: &str, status: &str| {
            json!({
                "type": "function_call", "id": id, "call_id": call_id, "name": call.name,
                "arguments": arguments, "status": status,
            })
        };
        let added = json!({"output_index": at, "item": item("", "in_progress")});
        events.push(self.event("response.output_item.added", added));
        let place = json!({"item_id": id, "output_index": at});
        let (mut delta, mut done) = (place.clone(), place);
        delta["delta"] = call.arguments.as_str().into();
        done["arguments"] = call.arguments.as_str().into();
        done["name"] = call.name.as_str().into();
        events.push(self.event("response.function_call_arguments.delta", delta));
        events.push(self.event("response.function_call_arguments.done", done));
        let whole = item(&call.arguments, "completed");
        self.output.push(whole.clone());
        events.push(self.event("response.output_item.done", json!({"output_index": at, "item": whole})));
        events
    }

    /// How it has ended.
    fn status(&self) -> &'static str {
        if self.finish == "length" { "incomplete" } else { "completed" }
    }
}

fn usage_json(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt, "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.answers, "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.answers,
    })
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl Wire for Writer {
    fn begin(&mut self) -> Vec<Bytes> {
        let response = json!({"response": self.response("in_progress", None, None)});
        let created = self.event("response.created", response.clone());
        vec![created, self.event("response.in_progress", response)]
    }

    fn piece(&mut self, piece: Piece) -> Vec<Bytes> {
        match piece.says {
            Says::Content(text) if text.is_empty() => Vec::new(),
            Says::Content(text) => self.extend(Kind::Message, &text),
            Says::Reasoning(text) => self.extend(Kind::Reasoning, &text),
            Says::Call(_, call) => self.call(&call),
            Says::End(finish) => {
                self.finish = finish;
                self.close(self.status())
            }
        }
    }

    fn end(&mut self, usage: Usage) -> Vec<Bytes> {
        let status = self.status();
        let response = json!({"response": self.response(status, Some(usage), None)});
        vec![self.event(&format!("response.{status}"), response), DONE]
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Bytes> {
        let mut events = self.close("incomplete");
        let response = json!({"response": self.response("failed", None, Some(error))});
        events.extend([self.event("response.failed", response), DONE]);
        events
    }

    fn whole(&mut self, pieces: Vec<Piece>, usage: Usage) -> Value {
        // The same items, without anybody who follows them.
        for piece in pieces {
            self.piece(piece);
        }
        self.response(self.status(), Some(usage), None)
    }
}
