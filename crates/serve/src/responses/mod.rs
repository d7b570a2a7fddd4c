//! `/v1/responses`, without a memory: items become messages, an adapter over the same request. What a client wants to be
//! remembered it sends again.

mod events;

pub(crate) use events::Writer;

use crate::asked::{Asked, Shape};
use crate::chat;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::models::{Model, THINKS};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Fields that both interfaces have.
const SAME: [&str; 7] = [
    "temperature",
    "top_p",
    "stream",
    "parallel_tool_calls",
    "user",
    "safety_identifier",
    "prompt_cache_key",
];
/// What replies repeat, where it was said.
const ECHOED: [&str; 5] = ["instructions", "metadata", "safety_identifier", "prompt_cache_key", "user"];

/// Reads a request for a response.
pub(crate) fn read(mut fields: Fields, model: Arc<Model>, longest: Duration) -> Result<Asked, ApiError> {
    if fields.take("previous_response_id").is_some() || fields.take("conversation").is_some() {
        let message = "responses are not kept; send the items of the conversation as `input`";
        return Err(ApiError::unsupported("previous_response_id", message));
    }
    let mut echo = Map::new();
    for name in ECHOED {
        echo.extend(fields.look(name).map(|value| (name.to_owned(), value.clone())));
    }
    let mut chat = Map::new();
    let instructions = fields.text("instructions")?;
    for name in SAME {
        let value = fields.take(name);
        if name == "temperature" || name == "top_p" || name == "parallel_tool_calls" {
            echo.extend(value.as_ref().map(|value| (name.to_owned(), value.clone())));
        }
        chat.extend(value.map(|value| (name.to_owned(), value)));
    }
    if let Some(most) = fields.count("max_output_tokens")? {
        chat.insert("max_tokens".to_owned(), most.into());
        echo.insert("max_output_tokens".to_owned(), most.into());
    }
    form(&mut fields, &mut chat, &mut echo)?;
    tools(&mut fields, &mut chat, &mut echo)?;
    if let Some(thinks) = reasoning(&mut fields, &model, &mut echo)? {
        chat.insert("chat_template_kwargs".to_owned(), json!({THINKS: thinks}));
    }
    let system = instructions.map(|text| json!({"role": "system", "content": text}));
    let messages: Vec<Value> = system.into_iter().chain(items(&mut fields)?).collect();
    chat.insert("messages".to_owned(), messages.into());
    rest(&mut fields)?;
    fields.end()?;
    let asked = chat::read(Fields::of(chat), model, longest);
    // What chats call otherwise.
    let names =
        [("messages", "input"), ("max_completion_tokens", "max_output_tokens"), ("response_format", "text")];
    let asked =
        asked.map_err(|error| names.into_iter().fold(error, |error, (from, to)| error.renamed(from, to)))?;
    Ok(Asked { shape: Shape::Responses, echo, ..asked })
}

/// Fields that are taken only where they ask for what happens anyhow.
fn rest(fields: &mut Fields) -> Result<(), ApiError> {
    fields.ignore(&["metadata"]);
    fields.only("store", &json!(false))?;
    fields.only("background", &json!(false))?;
    fields.only("truncation", &json!("disabled"))?;
    fields.only("include", &json!([]))?;
    fields.only("service_tier", &json!("auto"))?;
    fields.only("top_logprobs", &json!(0))?;
    let mut options = Fields::of(fields.object("stream_options")?.unwrap_or_default());
    options.only("include_obfuscation", &json!(false))?;
    options.end()
}

/// The form of the answer.
fn form(
    fields: &mut Fields,
    chat: &mut Map<String, Value>,
    echo: &mut Map<String, Value>,
) -> Result<(), ApiError> {
    let Some(text) = fields.object("text")? else { return Ok(()) };
    let mut text = Fields::of(text);
    text.only("verbosity", &json!("medium"))?;
    let format = text.object("format")?;
    text.end()?;
    let Some(mut format) = format else { return Ok(()) };
    echo.insert("text".to_owned(), json!({"format": format}));
    if format.get("type").is_some_and(|kind| kind == "json_schema") {
        format.remove("type");
        chat.insert("response_format".to_owned(), json!({"type": "json_schema", "json_schema": format}));
    } else {
        chat.insert("response_format".to_owned(), format.into());
    }
    Ok(())
}

/// Functions that may be called, which this interface writes without a level that chats have.
fn tools(
    fields: &mut Fields,
    chat: &mut Map<String, Value>,
    echo: &mut Map<String, Value>,
) -> Result<(), ApiError> {
    if let Some(tools) = fields.list("tools")? {
        let function = |tool: &Value| {
            let mut function = tool.as_object().cloned().unwrap_or_default();
            match function.remove("type") {
                Some(kind) if kind == "function" => Ok(json!({"type": "function", "function": function})),
                _ => Err(ApiError::unsupported("tools", "only tools of type \"function\" can be called")),
            }
        };
        let functions: Result<Vec<Value>, ApiError> = tools.iter().map(function).collect();
        chat.insert("tools".to_owned(), functions?.into());
        echo.insert("tools".to_owned(), tools.into());
    }
    if let Some(choice) = fields.take("tool_choice") {
        echo.insert("tool_choice".to_owned(), choice.clone());
        let named = |name: &Value| json!({"type": "function", "function": {"name": name}});
        let choice = choice.get("name").map_or(choice.clone(), named);
        chat.insert("tool_choice".to_owned(), choice);
    }
    fields.only("max_tool_calls", &Value::Null)
}

/// Whether the model shall think first.
fn reasoning(
    fields: &mut Fields,
    model: &Model,
    echo: &mut Map<String, Value>,
) -> Result<Option<bool>, ApiError> {
    let Some(given) = fields.object("reasoning")? else { return Ok(None) };
    let mut reasoning = Fields::of(given);
    // What it thinks is told as it is; there is nothing to sum up.
    reasoning.only("summary", &json!("auto"))?;
    let effort = reasoning.text("effort")?;
    reasoning.end()?;
    echo.insert("reasoning".to_owned(), json!({"effort": effort, "summary": null}));
    match effort.as_deref() {
        None => Ok(None),
        Some("none" | "minimal") => Ok(model.thinks.then_some(false)),
        Some("low" | "medium" | "high") if model.thinks => Ok(Some(true)),
        Some("low" | "medium" | "high") => {
            let message = "the model's template has no place for thinking; `effort` can be \"none\"";
            Err(ApiError::unsupported("reasoning", message))
        }
        Some(_) => Err(ApiError::parameter("reasoning", "`effort` is none, minimal, low, medium or high")),
    }
}

/// The input as messages.
fn items(fields: &mut Fields) -> Result<Vec<Value>, ApiError> {
    let missing = || ApiError::parameter("input", "there is no `input`").code("missing_required_parameter");
    let given = match fields.take("input").ok_or_else(missing)? {
        Value::String(text) => return Ok(vec![json!({"role": "user", "content": text})]),
        Value::Array(items) => items,
        _ => return Err(ApiError::parameter("input", "`input` is a text or a list of items")),
    };
    let mut messages: Vec<Value> = Vec::new();
    for item in given {
        let Value::Object(item) = item else {
            return Err(ApiError::parameter("input", "an item of `input` is no object"));
        };
        let mut item = Fields::of(item);
        item.ignore(&["id", "status"]);
        match item.text("type")?.as_deref().unwrap_or("message") {
            "message" => speak(&mut messages, spoken(&mut item)?),
            "reasoning" => {
                item.ignore(&["summary", "encrypted_content"]);
                let thought = item.list("content")?.unwrap_or_default();
                let thought: Vec<&str> =
                    thought.iter().filter_map(|part| part.get("text")?.as_str()).collect();
                join(&mut messages, "reasoning_content", thought.join("\n").into());
            }
            "function_call" => {
                let call = call(&mut item)?;
                join(&mut messages, "tool_calls", json!([call]));
            }
            "function_call_output" => {
                let id = item.text("call_id")?.unwrap_or_default();
                let output = match item.take("output") {
                    Some(Value::String(text)) => text,
                    Some(Value::Array(parts)) => texts(parts)?,
                    _ => {
                        return Err(ApiError::parameter("input", "a `function_call_output` has no `output`"));
                    }
                };
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": output}));
            }
            other => {
                let shown: String = other.chars().take(40).collect();
                return Err(ApiError::unsupported("input", format!("items of type {shown:?} are not read")));
            }
        }
        item.end().map_err(|error| error.at("input"))?;
    }
    // What was thought before nothing is said is of no use.
    messages.retain(|message| !is_silent(message));
    Ok(messages)
}

/// Whether it is an assistant's that has neither words nor calls.
fn is_silent(message: &Value) -> bool {
    message["role"] == "assistant" && message["content"] == "" && message.get("tool_calls").is_none()
}

/// Puts a message behind the others, or words to what their assistant has thought.
fn speak(messages: &mut Vec<Value>, message: Value) {
    match messages.last_mut().filter(|last| is_silent(last) && message["role"] == "assistant") {
        Some(last) => last["content"] = message["content"].clone(),
        None => messages.push(message),
    }
}

fn spoken(item: &mut Fields) -> Result<Value, ApiError> {
    let role = item.text("role")?.unwrap_or_default();
    // Which phase of its work an assistant was in is known to its author alone.
    item.ignore(&["phase"]);
    let content = match item.take("content") {
        Some(text @ Value::String(_)) => text,
        Some(Value::Array(parts)) if parts.iter().any(is_image) => {
            let parts: Result<Vec<Value>, ApiError> = parts.into_iter().map(part).collect();
            parts?.into()
        }
        Some(Value::Array(parts)) => texts(parts)?.into(),
        _ => return Err(ApiError::parameter("input", "a message has no `content`")),
    };
    Ok(json!({"role": role, "content": content}))
}

fn is_image(part: &Value) -> bool {
    part.get("type").is_some_and(|kind| kind == "input_image")
}

/// A part of a message that shows images, as chats have it.
fn part(part: Value) -> Result<Value, ApiError> {
    if !is_image(&part) {
        return Ok(json!({"type": "text", "text": texts(vec![part])?}));
    }
    match part.get("image_url") {
        Some(url @ Value::String(_)) => Ok(json!({"type": "image_url", "image_url": {"url": url}})),
        _ => {
            let message = "an `input_image` has its data as `image_url`: files are not kept";
            Err(ApiError::parameter("input", message))
        }
    }
}

fn texts(parts: Vec<Value>) -> Result<String, ApiError> {
    let text = |part: &Value| match part.get("type").and_then(Value::as_str) {
        Some("input_text" | "output_text" | "text") => part.get("text")?.as_str().map(str::to_owned),
        Some("refusal") => part.get("refusal")?.as_str().map(str::to_owned),
        _ => None,
    };
    let texts: Option<Vec<String>> = parts.iter().map(text).collect();
    let wrong = || ApiError::unsupported("input", "only texts and images of messages are read");
    Ok(texts.ok_or_else(wrong)?.join("\n"))
}

fn call(item: &mut Fields) -> Result<Value, ApiError> {
    let (id, name) = (item.text("call_id")?.unwrap_or_default(), item.text("name")?.unwrap_or_default());
    let arguments = item.text("arguments")?.unwrap_or_default();
    Ok(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
}

/// Puts a thought or calls to the assistant's message that is being made; texts of it come as items of their own.
fn join(messages: &mut Vec<Value>, name: &str, value: Value) {
    let is_assistant = messages.last().is_some_and(|message| message["role"] == "assistant");
    if !is_assistant || name == "reasoning_content" {
        messages.push(json!({"role": "assistant", "content": ""}));
    }
    let Some(message) = messages.last_mut() else { return };
    match (message.get_mut(name), value) {
        (Some(Value::Array(known)), Value::Array(more)) => known.extend(more),
        (_, value) => message[name] = value,
    }
}
