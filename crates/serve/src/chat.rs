//! `/v1/chat/completions`: messages, tools and a form of the answer become a prompt, a constraint and a reader.

use crate::asked::{self, Asked, MOST_LIKELIEST, Shape};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::models::Model;
use crate::schema::closed;
use pteron_llm::constrain::Constraint;
use pteron_llm::tools::{Reader, ToolChoice, ToolForm, call_schema, marks};
use pteron_llm::{LlmError, Prompt, ReadMessage, SeeError, Voice, read_messages};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Tools that one request may describe.
const MOST_TOOLS: usize = 256;

/// Reads a request for a chat.
pub(crate) fn read(mut fields: Fields, model: Arc<Model>, longest: Duration) -> Result<Asked, ApiError> {
    let mut asked = asked::common(&mut fields, model.clone(), Shape::Chat, longest)?;
    let tokens = (fields.count("max_completion_tokens")?, fields.count("max_tokens")?);
    asked.request.options.max_new = tokens.0.or(tokens.1);
    if asked.request.options.max_new == Some(0) {
        return Err(ApiError::parameter("max_completion_tokens", "an answer has at least one token"));
    }
    asked.request.likeliest = likeliest(&mut fields)?;
    let tools = Tools::read(&mut fields)?;
    asked.many_calls = fields.truth("parallel_tool_calls")?.unwrap_or(true);
    let schema = response_schema(&mut fields)?;
    let prompt = prompt(&mut fields, &model, &tools.shown(), model.handle.context())?;
    fields.end()?;

    let form = tools.form(&model)?;
    asked.request.constraint = match (tools.schema()?, schema) {
        (Some(_), Some(_)) => {
            let message = "an answer cannot be a tool call and of another form at the same time";
            return Err(ApiError::parameter("response_format", message));
        }
        (None, Some(_)) if form.is_some() => {
            let message = "`response_format` is honoured beside `tools` only where `tool_choice` is \"none\"";
            return Err(ApiError::unsupported("response_format", message));
        }
        (Some(schema), None) => Some(constraint(&model, &schema, "tools")?),
        (None, Some(schema)) => Some(constraint(&model, &schema, "response_format")?),
        (None, None) => None,
    };
    let special = |id: &u32| model.voice.tokenizer.is_special(*id);
    let ids = marks(form).filter_map(|mark| model.voice.tokenizer.id_of(mark));
    asked.request.marks = ids.filter(special).collect();
    asked.reader = Some(Reader::new(form, &tools.all).behind(&prompt.text));
    asked.request.prompt = prompt.tokens;
    asked.request.images = prompt.images;
    Ok(asked)
}

/// The prompt of a conversation, which is to fit into a context where it is answered; also what `/apply-template` shows.
pub(crate) fn prompt(
    fields: &mut Fields,
    model: &Model,
    tools: &Value,
    context: Option<usize>,
) -> Result<Prompt, ApiError> {
    let messages = fields.list("messages")?;
    let Some(mut messages) = messages else {
        return Err(
            ApiError::parameter("messages", "there are no `messages`").code("missing_required_parameter")
        );
    };
    let is_begun = take_prefix(&mut messages);
    let read = read_messages(messages).map_err(|wrong| ApiError::parameter("messages", wrong))?;
    let mut messages: Vec<Value> = Vec::with_capacity(read.len());
    let mut files: Vec<Vec<u8>> = Vec::new();
    for ReadMessage { message, mut images } in read {
        messages.push(message);
        files.append(&mut images);
    }
    let flags = fields.object("chat_template_kwargs")?.unwrap_or_default();
    let mut voice = Voice { context, ..model.voice.at_present() };
    voice.flags.extend(flags);
    let begun = match messages.pop_if(|_| is_begun) {
        Some(last) => begun(&messages, &last)?,
        None => String::new(),
    };
    let images = match (files.len(), &voice.eyes) {
        (0, _) => Ok(Vec::new()),
        (_, Some(eyes)) => eyes.images(files),
        (_, None) => Err(LlmError::from(SeeError::Blind)),
    };
    let prompt = images.and_then(|images| voice.chat_showing(&messages, tools, &images, &begun));
    prompt.map_err(|error| ApiError::from(error).of_prompt("messages"))
}

/// An image of other interfaces, in base64, as a part of a content.
pub(crate) fn image(kind: &str, data: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": format!("data:{kind};base64,{data}")}})
}

/// Whether the answer has begun with the last message: where it is the assistant's and marked as a `prefix`, of which
/// nothing is left.
fn take_prefix(messages: &mut [Value]) -> bool {
    let marked = |message: &Value, mark: bool| message["role"] == "assistant" && message["prefix"] == mark;
    let is_begun = messages.last().is_some_and(|last| marked(last, true));
    let count = messages.len();
    for (at, message) in messages.iter_mut().enumerate() {
        if marked(message, false) || is_begun && at + 1 == count {
            message.as_object_mut().map(|message| message.remove("prefix"));
        }
    }
    is_begun
}

/// The text that the answer goes on from.
fn begun(before: &[Value], last: &Value) -> Result<String, ApiError> {
    let wrong = |message: &str| Err(ApiError::parameter("messages", message));
    if before.is_empty() {
        return wrong("there is no message before the one that the answer goes on from");
    }
    let is_more = |(name, value): (&String, &Value)| {
        !matches!(name.as_str(), "role" | "content") && value.as_array().is_none_or(|list| !list.is_empty())
    };
    if last.as_object().is_some_and(|last| last.iter().any(is_more)) {
        return wrong("a message that the answer goes on from has a content, and no more");
    }
    Ok(last["content"].as_str().unwrap_or_default().to_owned())
}

fn likeliest(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let wanted = fields.truth("logprobs")?.unwrap_or(false);
    match fields.count("top_logprobs")? {
        Some(_) if !wanted => {
            Err(ApiError::parameter("top_logprobs", "`top_logprobs` needs `logprobs`: true"))
        }
        Some(most) if most > MOST_LIKELIEST => {
            Err(ApiError::parameter("top_logprobs", format!("`top_logprobs` is at most {MOST_LIKELIEST}")))
        }
        most => Ok(wanted.then_some(most.unwrap_or(0))),
    }
}

pub(crate) fn constraint(model: &Model, schema: &Value, name: &str) -> Result<Constraint, ApiError> {
    Constraint::json_schema(&model.voice.tokenizer, &closed(schema))
        .map_err(|error| ApiError::parameter(name, error.to_string()))
}

/// The schema that an answer shall have.
fn response_schema(fields: &mut Fields) -> Result<Option<Value>, ApiError> {
    const NAME: &str = "response_format";
    let Some(format) = fields.object(NAME)? else { return Ok(None) };
    let mut format = Fields::of(format);
    let kind = format.text("type")?.unwrap_or_default();
    let schema = match kind.as_str() {
        "text" => None,
        "json_object" => Some(json!({"type": "object"})),
        "json_schema" => {
            let missing = || ApiError::parameter(NAME, "`json_schema` has no `schema`");
            let mut given = Fields::of(format.object("json_schema")?.ok_or_else(missing)?);
            // What is asked for is always held to, strict or not.
            given.ignore(&["name", "description", "strict"]);
            let schema = given.take("schema").ok_or_else(missing)?;
            given.end()?;
            Some(schema)
        }
        _ => {
            let message = "`response_format` is of type text, json_object or json_schema";
            return Err(ApiError::parameter(NAME, message));
        }
    };
    format.end()?;
    Ok(schema)
}

/// The tools of a request, and whether they are to be called.
struct Tools {
    /// A list of descriptions, or null.
    all: Value,
    choice: ToolChoice,
}

impl Tools {
    fn read(fields: &mut Fields) -> Result<Tools, ApiError> {
        let all = fields.list("tools")?.unwrap_or_default();
        if all.len() > MOST_TOOLS {
            return Err(ApiError::parameter("tools", format!("there may be at most {MOST_TOOLS} tools")));
        }
        let is_function = |tool: &Value| {
            let name = tool.get("function").and_then(|function| function.get("name"));
            tool.get("type").is_some_and(|kind| kind == "function") && name.is_some_and(Value::is_string)
        };
        if !all.iter().all(is_function) {
            let message = "each of the `tools` is of type \"function\" and has a `function` with a `name`";
            return Err(ApiError::parameter("tools", message));
        }
        let choice = match fields.take("tool_choice") {
            None => ToolChoice::Auto,
            Some(Value::String(word)) if word == "auto" => ToolChoice::Auto,
            Some(Value::String(word)) if word == "none" => ToolChoice::None,
            Some(Value::String(word)) if word == "required" => ToolChoice::Required,
            Some(choice) => {
                let name = choice.get("function").and_then(|function| function.get("name"));
                let Some(name) = name.and_then(Value::as_str) else {
                    let message = "`tool_choice` is auto, none, required or a function with its name";
                    return Err(ApiError::parameter("tool_choice", message));
                };
                ToolChoice::Named(name.to_owned())
            }
        };
        let all = if all.is_empty() { Value::Null } else { Value::Array(all) };
        Ok(Tools { all, choice })
    }

    /// What the template is shown.
    fn shown(&self) -> Value {
        if self.choice == ToolChoice::None { Value::Null } else { self.all.clone() }
    }

    /// How calls will be written; `None` where none will.
    fn form(&self, model: &Model) -> Result<Option<ToolForm>, ApiError> {
        match (&self.choice, self.all.is_null()) {
            (ToolChoice::Auto, true) | (ToolChoice::None, _) => Ok(None),
            (ToolChoice::Required | ToolChoice::Named(_), _) => Ok(Some(ToolForm::Whole)),
            (ToolChoice::Auto, false) => match model.tools {
                Some(form) => Ok(Some(form)),
                None => Err(ApiError::unsupported(
                    "tools",
                    "the model's chat template has no place for tools; a call can be forced by `tool_choice`",
                )),
            },
        }
    }

    /// The schema of a call that must come.
    fn schema(&self) -> Result<Option<Value>, ApiError> {
        match &self.choice {
            ToolChoice::Auto | ToolChoice::None => Ok(None),
            choice => match call_schema(&self.all, choice) {
                Some(schema) => Ok(Some(schema)),
                None => Err(ApiError::parameter("tool_choice", "there is no such tool among the `tools`")),
            },
        }
    }
}
