//! `/v1/messages` and its `count_tokens`: Anthropic's interface, as an adapter over the same request.

use crate::answer::{Piece, Says, Usage};
use crate::asked::{Asked, Shape};
use crate::chat;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::models::Model;
use crate::reply::fresh;
use crate::wire::Wire;
use bytes::Bytes;
use pteron_llm::tools::ToolCall;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Fields that both interfaces have.
const SAME: [&str; 5] = ["model", "stream", "temperature", "top_p", "top_k"];

/// Reads a request for a message.
pub(crate) fn read(mut fields: Fields, model: Arc<Model>, longest: Duration) -> Result<Asked, ApiError> {
    let mut chat = Map::new();
    for name in SAME {
        chat.extend(fields.take(name).map(|value| (name.to_owned(), value)));
    }
    let Some(most) = fields.count("max_tokens")? else {
        let missing = ApiError::parameter("max_tokens", "there are no `max_tokens`");
        return Err(missing.code("missing_required_parameter"));
    };
    chat.insert("max_tokens".to_owned(), most.into());
    chat.extend(fields.take("stop_sequences").map(|stops| ("stop".to_owned(), stops)));
    fields.ignore(&["metadata", "service_tier"]);
    if let Some(thinking) = fields.object("thinking")?
        && thinking.get("type").is_none_or(|kind| kind != "disabled")
    {
        return Err(ApiError::unsupported("thinking", "`thinking` is honoured only where it is disabled"));
    }
    conversation(&mut fields, &mut chat)?;
    fields.end()?;
    let asked = chat::read(Fields::of(chat), model, longest)?;
    Ok(Asked { shape: Shape::Messages, ..asked })
}

/// The tokens that a request for a message would have.
pub(crate) fn count(mut fields: Fields, model: &Model) -> Result<Value, ApiError> {
    let mut chat = Map::new();
    fields.ignore(&["thinking"]);
    conversation(&mut fields, &mut chat)?;
    fields.end()?;
    let tools = chat.remove("tools").unwrap_or_default();
    let prompt = chat::prompt(&mut Fields::of(chat), model, &tools, None)?;
    Ok(json!({"input_tokens": prompt.tokens.len()}))
}

/// Messages, system and tools as chats have them.
fn conversation(fields: &mut Fields, chat: &mut Map<String, Value>) -> Result<(), ApiError> {
    let wrong = |message: &str| ApiError::parameter("messages", message);
    let mut messages = Vec::new();
    if let Some(system) = fields.take("system") {
        let system =
            text_of(&system).ok_or_else(|| ApiError::parameter("system", "`system` must be a text"))?;
        messages.push(json!({"role": "system", "content": system}));
    }
    let Some(given) = fields.list("messages")? else {
        return Err(wrong("there are no `messages`").code("missing_required_parameter"));
    };
    for message in given {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
        match (role.as_str(), message.get("content")) {
            ("user", Some(Value::Array(blocks))) => user_blocks(blocks, &mut messages)?,
            ("assistant", Some(Value::Array(blocks))) => messages.push(assistant_blocks(blocks)?),
            ("user" | "assistant", Some(content @ Value::String(_))) => {
                messages.push(json!({"role": role, "content": content}));
            }
            ("user" | "assistant", _) => return Err(wrong("a message has no `content`")),
            _ => return Err(wrong("messages are of the user or the assistant")),
        }
    }
    // What the assistant has begun to say is gone on with.
    if let Some(last) =
        messages.last_mut().filter(|last| last["role"] == "assistant" && last["tool_calls"].is_null())
    {
        last["prefix"] = true.into();
    }
    chat.insert("messages".to_owned(), messages.into());
    tools(fields, chat)
}

/// A text, or a list of texts.
fn text_of(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(blocks) => {
            let texts = blocks.iter().map(|block| match block.get("type").and_then(Value::as_str) {
                Some("text") => block.get("text").and_then(Value::as_str),
                _ => None,
            });
            texts.collect::<Option<Vec<_>>>().map(|texts| texts.join("\n"))
        }
        _ => None,
    }
}

/// What users say, and what tools gave, which are messages of their own.
fn user_blocks(blocks: &[Value], messages: &mut Vec<Value>) -> Result<(), ApiError> {
    let wrong = |message: &str| ApiError::parameter("messages", message);
    let mut parts = Vec::new();
    for block in blocks {
        match block.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text" => {
                let text = block.get("text").and_then(Value::as_str).unwrap_or_default();
                parts.push(json!({"type": "text", "text": text}));
            }
            "image" => parts.push(image(block)?),
            "tool_result" => {
                let content = block.get("content").map_or(Some(String::new()), text_of);
                let content = content.ok_or_else(|| wrong("only texts of tools are read"))?;
                let id = block.get("tool_use_id").and_then(Value::as_str).unwrap_or_default();
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
            }
            _ => return Err(wrong("only texts, images and what tools gave are read")),
        }
    }
    if !parts.is_empty() {
        messages.push(json!({"role": "user", "content": parts}));
    }
    Ok(())
}

/// An image as chats have it.
fn image(block: &Value) -> Result<Value, ApiError> {
    let source = |name: &str| block.get("source").and_then(|source| source.get(name)).and_then(Value::as_str);
    match (source("type"), source("media_type"), source("data")) {
        (Some("base64"), kind, Some(data)) => Ok(chat::image(kind.unwrap_or("image/png"), data)),
        _ => {
            let message = "an image has a `source` of type base64 with its `data`: nothing is fetched";
            Err(ApiError::parameter("messages", message))
        }
    }
}

/// What the model said, thought and called.
fn assistant_blocks(blocks: &[Value]) -> Result<Value, ApiError> {
    let (mut texts, mut thoughts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for block in blocks {
        let part = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        match part("type") {
            "text" => texts.push(part("text")),
            "thinking" => thoughts.push(part("thinking")),
            "tool_use" => {
                let input = block.get("input").cloned().unwrap_or_else(|| json!({}));
                let function = json!({"name": part("name"), "arguments": input});
                calls.push(json!({"id": part("id"), "type": "function", "function": function}));
            }
            _ => return Err(ApiError::parameter("messages", "only texts, thoughts and calls are read")),
        }
    }
    let mut message = json!({"role": "assistant", "content": texts.join("\n")});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    if !thoughts.is_empty() {
        message["reasoning_content"] = thoughts.join("\n").into();
    }
    Ok(message)
}

fn tools(fields: &mut Fields, chat: &mut Map<String, Value>) -> Result<(), ApiError> {
    if let Some(tools) = fields.list("tools")? {
        let tool = |tool: Value| {
            let of = |name: &str| tool.get(name).cloned().unwrap_or_default();
            let function = json!({"name": of("name"), "description": of("description"), "parameters": of("input_schema")});
            json!({"type": "function", "function": function})
        };
        chat.insert("tools".to_owned(), tools.into_iter().map(tool).collect());
    }
    let Some(choice) = fields.object("tool_choice")? else { return Ok(()) };
    let mut choice = Fields::of(choice);
    let name = choice.text("name")?.unwrap_or_default();
    let word = match choice.text("type")?.as_deref() {
        Some("auto") => json!("auto"),
        Some("none") => json!("none"),
        Some("any") => json!("required"),
        Some("tool") => json!({"type": "function", "function": {"name": name}}),
        _ => return Err(ApiError::parameter("tool_choice", "`tool_choice` is auto, any, none or tool")),
    };
    chat.insert("tool_choice".to_owned(), word);
    if choice.truth("disable_parallel_tool_use")?.unwrap_or(false) {
        chat.insert("parallel_tool_calls".to_owned(), false.into());
    }
    choice.end()
}

/// Writes one message.
pub(crate) struct Writer {
    id: String,
    model: String,
    prompt: usize,
    /// The number and the kind of the block that is open.
    open: Option<&'static str>,
    blocks: usize,
    reason: &'static str,
    /// The stop sequence that ended it.
    stop: Option<String>,
}

impl Writer {
    pub(crate) fn new(asked: &Asked) -> Writer {
        Writer {
            id: fresh("msg_"),
            model: asked.model.name.clone(),
            prompt: asked.request.prompt.len(),
            open: None,
            blocks: 0,
            reason: "end_turn",
            stop: None,
        }
    }

    fn message(&self, content: Vec<Value>, reason: Value, usage: Value) -> Value {
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": reason, "stop_sequence": self.stop, "usage": usage,
        })
    }

    /// Notes why the message has ended.
    fn ends(&mut self, finish: &str, stop: Option<String>) {
        self.reason = match finish {
            "stop" if stop.is_some() => "stop_sequence",
            _ => reason(finish),
        };
        self.stop = stop;
    }

    fn close(&mut self) -> Option<Bytes> {
        self.open.take()?;
        self.blocks += 1;
        Some(event("content_block_stop", json!({"index": self.blocks - 1})))
    }

    /// Goes on with a block, or begins one.
    fn extend(&mut self, kind: &'static str, begins: Value, delta: Value) -> Vec<Bytes> {
        let mut events = Vec::new();
        if self.open != Some(kind) || kind == "tool_use" {
            events.extend(self.close());
            self.open = Some(kind);
            events.push(event("content_block_start", json!({"index": self.blocks, "content_block": begins})));
        }
        events.push(event("content_block_delta", json!({"index": self.blocks, "delta": delta})));
        events
    }
}

/// Why a message has ended.
fn reason(finish: &str) -> &'static str {
    match finish {
        "length" => "max_tokens",
        "tool_calls" => "tool_use",
        _ => "end_turn",
    }
}

fn usage_json(usage: Usage) -> Value {
    let usage = usage.json();
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
    let prompt = usage["prompt_tokens"].as_u64().unwrap_or(0);
    // What was in the caches is not counted among what was read.
    json!({
        "input_tokens": prompt.saturating_sub(cached), "output_tokens": usage["completion_tokens"],
        "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0,
    })
}

fn call_block(call: &ToolCall, input: Value) -> Value {
    json!({"type": "tool_use", "id": fresh("toolu_"), "name": call.name, "input": input})
}

/// An event with its name, which its data repeat.
fn event(name: &str, mut data: Value) -> Bytes {
    data["type"] = name.into();
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

/// An error as this interface tells it.
pub(crate) fn error_json(error: &ApiError) -> Value {
    let told = error.json();
    json!({"type": "error", "error": {"type": told["error"]["type"], "message": told["error"]["message"]}})
}

impl Wire for Writer {
    fn begin(&mut self) -> Vec<Bytes> {
        let usage = json!({"input_tokens": self.prompt, "output_tokens": 0});
        let message = self.message(Vec::new(), Value::Null, usage);
        vec![event("message_start", json!({"message": message}))]
    }

    fn piece(&mut self, piece: Piece) -> Vec<Bytes> {
        match piece.says {
            Says::Content(text) if text.is_empty() => Vec::new(),
            Says::Content(text) => {
                let begins = json!({"type": "text", "text": ""});
                self.extend("text", begins, json!({"type": "text_delta", "text": text}))
            }
            Says::Reasoning(text) => {
                let begins = json!({"type": "thinking", "thinking": "", "signature": ""});
                self.extend("thinking", begins, json!({"type": "thinking_delta", "thinking": text}))
            }
            Says::Call(_, call) => {
                let begins = call_block(&call, json!({}));
                let delta = json!({"type": "input_json_delta", "partial_json": call.arguments});
                self.extend("tool_use", begins, delta)
            }
            Says::End(finish) => {
                self.ends(finish, piece.stop);
                self.close().into_iter().collect()
            }
        }
    }

    fn end(&mut self, usage: Usage) -> Vec<Bytes> {
        let delta = json!({"stop_reason": self.reason, "stop_sequence": self.stop});
        let last = json!({"delta": delta, "usage": usage_json(usage)});
        vec![event("message_delta", last), event("message_stop", json!({}))]
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Bytes> {
        vec![event("error", error_json(error))]
    }

    fn whole(&mut self, pieces: Vec<Piece>, usage: Usage) -> Value {
        let (mut text, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
        for piece in pieces {
            match piece.says {
                Says::Content(more) => text += &more,
                Says::Reasoning(more) => thought += &more,
                Says::Call(_, call) => {
                    let input = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
                    calls.push(call_block(&call, input));
                }
                Says::End(finish) => self.ends(finish, piece.stop),
            }
        }
        let mut content = Vec::new();
        if !thought.is_empty() {
            content.push(json!({"type": "thinking", "thinking": thought, "signature": ""}));
        }
        if !text.is_empty() {
            content.push(json!({"type": "text", "text": text}));
        }
        content.extend(calls);
        self.message(content, self.reason.into(), usage_json(usage))
    }
}
