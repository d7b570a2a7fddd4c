//! Conversations as programs send them over a network: lists of messages with roles, and the tools that a model may call.
//!
//! JSON flows in, messages that every chat template understands flow out. What a template would stumble over is told
//! here, with the message's place.

use crate::seeing::Eyes;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

/// More than any context holds.
const MOST_MESSAGES: usize = 100_000;

/// Who may speak.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// What a message may have besides its role and its content, and templates may read.
const FIELDS: [&str; 6] =
    ["name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "thinking"];

/// What assistants' messages bring along when clients send them back, of which nothing reaches a template.
const ECHOES: [&str; 4] = ["refusal", "annotations", "audio", "function_call"];

/// Bytes that all images of a conversation may have.
const MOST_IMAGE_BYTES: usize = 256 << 20;
/// Images that a conversation may show.
const MOST_IMAGES: usize = 256;

/// A message in the form that templates take.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadMessage {
    /// The message. Its content is a text or, where it shows images, a list of texts and places of images.
    pub message: Value,
    /// The files of those images, in order.
    pub images: Vec<Vec<u8>>,
}

/// Messages in the form that templates take: every content a text, or texts and images in turns, arguments of calls as
/// objects.
///
/// # Errors
/// What is wrong, with the number of the message.
pub fn read_messages(messages: Vec<Value>) -> Result<Vec<ReadMessage>, String> {
    if messages.is_empty() || messages.len() > MOST_MESSAGES {
        return Err(format!("there are {} messages; 1 to {MOST_MESSAGES} can be answered", messages.len()));
    }
    let numbered = messages.into_iter().enumerate();
    let read = |(at, message)| read_message(message).map_err(|wrong| format!("message {}: {wrong}", at + 1));
    let messages: Vec<ReadMessage> = numbered.map(read).collect::<Result<_, _>>()?;
    let images = || messages.iter().flat_map(|read| &read.images);
    if images().count() > MOST_IMAGES {
        return Err(format!("they show {} images; {MOST_IMAGES} at most are looked at", images().count()));
    }
    if images().map(Vec::len).sum::<usize>() > MOST_IMAGE_BYTES {
        return Err(format!("their images have more than {} MiB", MOST_IMAGE_BYTES >> 20));
    }
    Ok(messages)
}

/// One message in the form that templates take.
///
/// # Errors
/// What is wrong with it.
pub fn read_message(message: Value) -> Result<ReadMessage, String> {
    let Value::Object(mut given) = message else { return Err("it is no object".to_owned()) };
    let role = match given.remove("role") {
        Some(Value::String(role)) if ROLES.contains(&role.as_str()) => role,
        Some(Value::String(role)) => {
            return Err(format!("nobody has the role {:?}; there are {}", short(&role), ROLES.join(", ")));
        }
        Some(_) => return Err("its `role` is no text".to_owned()),
        None => return Err("it has no `role`".to_owned()),
    };
    let content = given.remove("content");
    let mut message = Map::new();
    message.insert("role".to_owned(), role.clone().into());
    message.insert("content".to_owned(), Value::Null);
    for (name, value) in given.into_iter().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            "tool_calls" => {
                message.insert(name, read_calls(value, &role)?);
            }
            known if FIELDS.contains(&known) => match value.is_string() {
                true => drop(message.insert(name, value)),
                false => return Err(format!("its `{known}` is no text")),
            },
            echo if ECHOES.contains(&echo) && is_empty(&value) => {}
            other => return Err(format!("`{}` of a message is not honoured", short(other))),
        }
    }
    let calls = message.get("tool_calls").is_some_and(|calls| !is_empty(calls));
    let mut images = Vec::new();
    let content = match content {
        Some(Value::String(text)) => text.into(),
        Some(Value::Array(parts)) => {
            let parts: Result<Vec<Part>, String> = parts.into_iter().map(part_of).collect();
            content_of(parts?, &mut images)
        }
        // Templates add the content to texts, also where a message is nothing but calls.
        None | Some(Value::Null) if calls => Value::from(""),
        None | Some(Value::Null) => return Err("it has no `content`".to_owned()),
        Some(_) => return Err("its `content` is neither a text nor a list of parts".to_owned()),
    };
    if !images.is_empty() && matches!(role.as_str(), "system" | "developer" | "assistant") {
        return Err(format!("images are shown by users and tools, and its role is {role}"));
    }
    message.insert("content".to_owned(), content);
    Ok(ReadMessage { message: Value::Object(message), images })
}

/// A message that shows so many images before it says something.
pub(crate) fn showing(role: &str, content: &str, images: usize) -> Value {
    let text = Value::from(content);
    let content = match images {
        0 => text,
        _ => {
            let mut parts = vec![json!({"type": "image"}); images];
            if !content.is_empty() {
                parts.push(json!({"type": "text", "text": text}));
            }
            Value::Array(parts)
        }
    };
    json!({"role": role, "content": content})
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// Not more of what a stranger wrote than a message has room for.
fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

/// A part of a message's content.
enum Part {
    Text(String),
    Image(Vec<u8>),
}

fn part_of(mut part: Value) -> Result<Part, String> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    match kind.as_str() {
        "text" => match part.get_mut("text").map(Value::take) {
            Some(Value::String(text)) => Ok(Part::Text(text)),
            _ => Err("a part of its `content` has no `text`".to_owned()),
        },
        "image_url" => {
            let url = part.get_mut("image_url").and_then(|image| match image {
                Value::String(_) => Some(image.take()),
                image => image.get_mut("url").map(Value::take),
            });
            match url {
                Some(Value::String(url)) => image_of(&url).map(Part::Image),
                _ => Err("an image of its `content` has no `url`".to_owned()),
            }
        }
        "" => Err("a part of its `content` has no `type`".to_owned()),
        other => {
            Err(format!("a part of its `content` is {:?}; only texts and images are read", short(other)))
        }
    }
}

/// The bytes of an image in a data URL. Nothing is fetched for anybody.
fn image_of(url: &str) -> Result<Vec<u8>, String> {
    let encoded = url.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:")).and_then(|_| {
        let (about, data) = url[5..].split_once(',')?;
        about.to_ascii_lowercase().ends_with(";base64").then_some(data)
    });
    let Some(encoded) = encoded else {
        return Err("an image is at an address, and nothing is fetched: send its data, as \
                    `data:image/png;base64,...`"
            .to_owned());
    };
    if encoded.len() / 4 * 3 > Eyes::MOST_BYTES + 3 {
        return Err(format!("an image has more than {} MiB", Eyes::MOST_BYTES >> 20));
    }
    BASE64.decode(encoded.trim()).map_err(|error| format!("an image is no base64: {error}"))
}

/// A content that is a text, or texts and places of images in turns.
fn content_of(parts: Vec<Part>, images: &mut Vec<Vec<u8>>) -> Value {
    let mut content: Vec<Value> = Vec::new();
    for part in parts {
        match (part, content.last_mut().and_then(|last| last.get_mut("text"))) {
            (Part::Text(more), Some(Value::String(text))) => *text = format!("{text}\n{more}"),
            (Part::Text(text), _) => content.push(json!({"type": "text", "text": text})),
            (Part::Image(file), _) => {
                images.push(file);
                content.push(json!({"type": "image"}));
            }
        }
    }
    match (images.is_empty(), content.as_mut_slice()) {
        (true, []) => Value::from(""),
        (true, [text]) => text["text"].take(),
        _ => Value::Array(content),
    }
}

/// Calls of tools by an assistant.
fn read_calls(calls: Value, role: &str) -> Result<Value, String> {
    if role != "assistant" {
        return Err("only an assistant has `tool_calls`".to_owned());
    }
    let Value::Array(mut calls) = calls else { return Err("its `tool_calls` are no list".to_owned()) };
    calls.iter_mut().try_for_each(read_call)?;
    Ok(Value::Array(calls))
}

/// A call of a tool. Arguments that are JSON in a text, as servers give them, become what templates want.
fn read_call(call: &mut Value) -> Result<(), String> {
    let function: Option<&mut Map<String, Value>> = call.get_mut("function").and_then(Value::as_object_mut);
    let Some(function) = function else { return Err("a tool call has no `function`".to_owned()) };
    if !function.get("name").is_some_and(Value::is_string) {
        return Err("a tool call has no `name`".to_owned());
    }
    match function.get_mut("arguments") {
        None => drop(function.insert("arguments".to_owned(), Value::Object(Map::new()))),
        Some(Value::Object(_)) => {}
        Some(arguments) => {
            let read = arguments.as_str().and_then(|text| match text.trim().is_empty() {
                true => Some(Value::Object(Map::new())),
                false => serde_json::from_str(text).ok(),
            });
            match read {
                Some(read @ Value::Object(_)) => *arguments = read,
                _ => return Err("the `arguments` of a tool call are no object".to_owned()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::read_messages;
    use serde_json::{Value, json};

    fn read(messages: Value) -> Result<Vec<Value>, String> {
        let read = read_messages(messages.as_array().cloned().unwrap_or_default())?;
        Ok(read.into_iter().map(|read| read.message).collect())
    }

    #[test]
    fn messages_become_what_templates_take() {
        let call = |arguments: Value| json!({"id": "1", "function": {"name": "add", "arguments": arguments}});
        let given = json!([
            {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}, {"type": "text", "text": "quick"}]},
            {"role": "assistant", "content": null, "refusal": null, "annotations": [],
             "tool_calls": [call(json!("{\"a\": 1, \"b\": 1}")), call(json!(""))]},
            {"role": "tool", "tool_call_id": "1", "content": "2"},
        ]);
        let messages = read(given).unwrap();
        assert_eq!(messages[0], json!({"role": "user", "content": "1 + 1?\nquick"}));
        assert_eq!(messages[1]["content"], "");
        assert_eq!(messages[1]["tool_calls"], json!([call(json!({"a": 1, "b": 1})), call(json!({}))]));
        assert_eq!(messages[1].get("refusal"), None);
        assert_eq!(messages[2]["tool_call_id"], "1");
    }

    #[test]
    fn images_keep_their_places_among_texts() {
        let image = |data: &str| json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}});
        let text = |text: &str| json!({"type": "text", "text": text});
        let content = json!([text("a"), text("b"), image("AAEC"), image("Aw=="), text("c")]);
        let read = read_messages(vec![json!({"role": "user", "content": content})]).unwrap();
        let place = json!({"type": "image"});
        assert_eq!(read[0].message["content"], json!([text("a\nb"), place, place, text("c")]));
        assert_eq!(read[0].images, [vec![0, 1, 2], vec![3]]);
    }

    #[test]
    fn what_is_no_message_is_told_with_its_place() {
        let call = |function: Value| json!([{"role": "assistant", "tool_calls": [{"function": function}]}]);
        let shown = |role: &str, url: &str| json!([{"role": role, "content": [{"type": "image_url", "image_url": {"url": url}}]}]);
        let cases = [
            (json!([]), "0 messages"),
            (json!([{"role": "user", "content": "a"}, 3]), "message 2: it is no object"),
            (json!([{"content": "a"}]), "message 1: it has no `role`"),
            (json!([{"role": 1, "content": "a"}]), "`role` is no text"),
            (json!([{"role": "<|im_start|>", "content": "a"}]), "nobody has the role \"<|im_start|>\""),
            (json!([{"role": "user"}]), "no `content`"),
            (json!([{"role": "user", "content": 3}]), "neither a text nor"),
            (json!([{"role": "user", "content": [{"type": "image_url"}]}]), "no `url`"),
            (json!([{"role": "user", "content": [{"type": "video"}]}]), "only texts and images"),
            (shown("user", "https://example.org/a.png"), "nothing is fetched: send its data"),
            (shown("user", "file:///etc/passwd"), "nothing is fetched"),
            (shown("user", "data:image/png,abc"), "nothing is fetched"),
            (shown("user", "data:image/png;base64,a*b"), "no base64"),
            (shown("assistant", "data:image/png;base64,AAAA"), "its role is assistant"),
            (json!([{"role": "user", "content": [{"text": "a"}]}]), "no `type`"),
            (json!([{"role": "user", "content": "a", "tool_calls": []}]), "only an assistant"),
            (json!([{"role": "user", "content": "a", "weight": 1}]), "`weight` of a message is not honoured"),
            (json!([{"role": "user", "content": "a", "name": 1}]), "`name` is no text"),
            (json!([{"role": "assistant", "tool_calls": [{}]}]), "no `function`"),
            (call(json!({"arguments": {}})), "no `name`"),
            (call(json!({"name": "f", "arguments": "{"})), "no object"),
            (call(json!({"name": "f", "arguments": "[1]"})), "no object"),
        ];
        for (messages, reason) in cases {
            let told = read(messages.clone()).unwrap_err();
            assert!(told.contains(reason), "{messages}: {told}");
        }
    }
}
