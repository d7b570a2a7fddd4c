//! Ollama's interface: chats and prompts as an adapter over the same request, answered line by line.

mod about;
mod reply;

pub(crate) use about::{loaded, running, show, tags, version};
pub(crate) use reply::{Writer, error_json};

use crate::asked::{Asked, Shape};
use crate::chat;
use crate::completion;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::keep::KeepAlive;
use crate::models::{Model, THINKS};
use pteron_llm::LlmError;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Options that have the same name and meaning in chats.
const SAME: [&str; 8] =
    ["temperature", "top_k", "top_p", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty"];
/// Options that say how a machine computes, and change no answer.
const OF_MACHINES: [&str; 8] =
    ["num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap", "use_mlock", "numa", "num_keep"];

/// How long a model shall stay: seconds, or a text such as `5m`; what is below 0 keeps it.
pub(crate) fn keep_alive(fields: &mut Fields) -> Result<Option<KeepAlive>, ApiError> {
    const NAME: &str = "keep_alive";
    let wrong = || ApiError::parameter(NAME, "`keep_alive` is a number of seconds or a time such as \"5m\"");
    match fields.take(NAME) {
        None => Ok(None),
        Some(Value::Number(seconds)) => Ok(seconds.as_f64().map(KeepAlive::of_seconds)),
        Some(Value::String(text)) => KeepAlive::parse(&text).map(Some).ok_or_else(wrong),
        Some(_) => Err(wrong()),
    }
}

/// Whether a request asks for a model to be loaded or dropped, and for nothing else.
pub(crate) fn loads_only(path: &str, fields: &Fields) -> bool {
    match path {
        "/api/chat" => fields.look("messages").is_none_or(|messages| *messages == json!([])),
        _ => fields.look("prompt").is_none_or(|prompt| prompt == ""),
    }
}

/// Reads a request for a chat.
pub(crate) fn read_chat(mut fields: Fields, model: Arc<Model>, longest: Duration) -> Result<Asked, ApiError> {
    let (mut chat, limits) = common(&mut fields, &model)?;
    let messages = fields.list("messages")?.unwrap_or_default();
    let messages: Result<Vec<Value>, ApiError> = messages.into_iter().map(message).collect();
    chat.insert("messages".to_owned(), messages?.into());
    chat.extend(fields.take("tools").map(|tools| ("tools".to_owned(), tools)));
    fields.end()?;
    let asked = chat::read(Fields::of(chat), model, longest)?;
    limits.hold(Asked { shape: Shape::Talk, ..asked })
}

/// Reads a request for what follows a prompt.
pub(crate) fn read_prompt(
    mut fields: Fields,
    model: Arc<Model>,
    longest: Duration,
) -> Result<Asked, ApiError> {
    let (mut chat, limits) = common(&mut fields, &model)?;
    let prompt = fields.text("prompt")?.unwrap_or_default();
    let system = fields.text("system")?.filter(|system| !system.is_empty());
    let raw = fields.truth("raw")?.unwrap_or(false);
    for name in ["suffix", "template"] {
        fields.only(name, &json!(""))?;
    }
    let images = images(fields.take("images"))?;
    fields.only("context", &json!([]))?;
    fields.end()?;
    if raw && !images.is_empty() {
        return Err(ApiError::unsupported("images", "a prompt that is `raw` shows no images"));
    }
    let mut asked = if raw {
        let schema = chat.remove("response_format");
        let most = chat.get("max_tokens").cloned();
        chat.remove("chat_template_kwargs");
        chat.insert("prompt".to_owned(), prompt.into());
        let mut asked = completion::read(Fields::of(chat), model.clone(), longest)?;
        if most.is_none() {
            asked.request.options.max_new = None;
        }
        if let Some(schema) = schema.as_ref().and_then(schema_of) {
            asked.request.constraint = Some(chat::constraint(&model, &schema, "format")?);
        }
        asked
    } else {
        let system = system.map(|system| json!({"role": "system", "content": system}));
        let user = json!({"role": "user", "content": showing(images, prompt.into())});
        chat.insert("messages".to_owned(), system.into_iter().chain([user]).collect());
        chat::read(Fields::of(chat), model, longest)?
    };
    asked.shape = Shape::Generate;
    limits.hold(asked)
}

/// Positions that a request wants to have at most.
struct Limits {
    context: Option<usize>,
}

impl Limits {
    /// Holds an answer to them.
    fn hold(self, mut asked: Asked) -> Result<Asked, ApiError> {
        let Some(context) = self.context else { return Ok(asked) };
        let tokens = asked.request.prompt.len();
        if tokens >= context {
            return Err(LlmError::PromptTooLong { tokens, context }.into());
        }
        let room = context - tokens;
        let most = asked.request.options.max_new.map_or(room, |most| most.min(room));
        asked.request.options.max_new = Some(most);
        Ok(asked)
    }
}

/// What chats and prompts have in common, as chats of the other interface have it.
fn common(fields: &mut Fields, model: &Model) -> Result<(Map<String, Value>, Limits), ApiError> {
    let mut chat = Map::new();
    chat.insert("stream".to_owned(), fields.truth("stream")?.unwrap_or(true).into());
    fields.only("logprobs", &json!(false))?;
    fields.only("truncate", &json!(false))?;
    fields.only("shift", &json!(false))?;
    if let Some(thinks) = thinking(fields, model)? {
        chat.insert("chat_template_kwargs".to_owned(), json!({THINKS: thinks}));
    }
    if let Some(format) = fields.take("format").filter(|format| *format != "") {
        let format = match format {
            Value::String(word) if word == "json" => json!({"type": "json_object"}),
            schema @ Value::Object(_) => {
                json!({"type": "json_schema", "json_schema": {"name": "format", "schema": schema}})
            }
            _ => return Err(ApiError::parameter("format", "`format` is \"json\" or a JSON schema")),
        };
        chat.insert("response_format".to_owned(), format);
    }
    let mut options = Fields::of(fields.object("options")?.unwrap_or_default());
    for name in SAME {
        chat.extend(options.take(name).map(|value| (name.to_owned(), value)));
    }
    let penalty = options.take("repeat_penalty");
    chat.extend(penalty.map(|penalty| ("repetition_penalty".to_owned(), penalty)));
    if let Some(most) = options.count_or_all("num_predict")? {
        chat.insert("max_tokens".to_owned(), most.into());
    }
    let context = options.count("num_ctx")?;
    if let (Some(asked), Some(has)) = (context, model.handle.context())
        && asked > has
    {
        let message = format!("`num_ctx` is {asked}; the model was loaded with {has} positions");
        return Err(ApiError::parameter("num_ctx", message));
    }
    // Everything that was said counts, in the prompt too.
    options.only("repeat_last_n", &json!(-1))?;
    options.only("typical_p", &json!(1.0))?;
    options.only("mirostat", &json!(0))?;
    options.ignore(&OF_MACHINES);
    options.end()?;
    Ok((chat, Limits { context }))
}

/// Whether the model shall think first.
fn thinking(fields: &mut Fields, model: &Model) -> Result<Option<bool>, ApiError> {
    match fields.truth("think")? {
        Some(true) if !model.thinks => {
            Err(ApiError::unsupported("think", "the model's template has no place for thinking"))
        }
        thinks => Ok(thinks.filter(|_| model.thinks)),
    }
}

/// A message as chats of the other interface have it.
fn message(mut message: Value) -> Result<Value, ApiError> {
    let Some(fields) = message.as_object_mut() else { return Ok(message) };
    let images = images(fields.remove("images")).map_err(|error| error.renamed("images", "messages"))?;
    if let Some(content) = fields.get_mut("content").filter(|_| !images.is_empty()) {
        *content = showing(images, content.take());
    }
    if let Some(tool) = fields.remove("tool_name") {
        fields.insert("name".to_owned(), tool);
    }
    Ok(message)
}

/// Images in base64, as parts of a content of the other interface.
fn images(given: Option<Value>) -> Result<Vec<Value>, ApiError> {
    let wrong = || ApiError::parameter("images", "`images` is a list of images in base64");
    let images = match given {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(images)) => images,
        Some(_) => return Err(wrong()),
    };
    let image = |image: &Value| image.as_str().map(|data| chat::image("image/png", data)).ok_or_else(wrong);
    images.iter().map(image).collect()
}

/// A content that shows images before what it says.
fn showing(mut images: Vec<Value>, content: Value) -> Value {
    if images.is_empty() {
        return content;
    }
    match content {
        Value::Array(parts) => images.extend(parts),
        Value::String(text) if text.is_empty() => {}
        text => images.push(json!({"type": "text", "text": text})),
    }
    images.into()
}

fn schema_of(format: &Value) -> Option<Value> {
    match format["type"].as_str() {
        Some("json_object") => Some(json!({"type": "object"})),
        _ => format["json_schema"].get("schema").cloned(),
    }
}
