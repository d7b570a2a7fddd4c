//! Conversations that are given as JSON: a list of messages, or an object with `messages` and `tools`, as programs that call
//! models over the network write them.
//!
//! A file flows in, messages that a chat template understands flow out. What a template would stumble over is told here,
//! with the message's place.

use crate::failure::Failure;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// More than any context holds.
const MOST_BYTES: u64 = 64 << 20;
const MOST_MESSAGES: usize = 100_000;

/// Who may speak.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// A conversation, and the tools that the model may call.
#[derive(Debug, PartialEq)]
pub(crate) struct Messages {
    pub(crate) messages: Vec<Value>,
    /// A list of descriptions, or null.
    pub(crate) tools: Value,
}

/// Reads a conversation from a file.
pub(crate) fn read(path: &Path) -> Result<Messages, Failure> {
    let wrong = |problem: String| {
        Failure::in_file(path, problem)
            .hint("a list of messages such as [{\"role\": \"user\", \"content\": \"Hello\"}]")
    };
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| Failure::in_file(path, error))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(wrong(format!("it has more than {} MiB", MOST_BYTES >> 20)));
    }
    let value = serde_json::from_slice(&bytes).map_err(|error| wrong(format!("it is no JSON: {error}")))?;
    conversation(value).map_err(wrong)
}

fn conversation(value: Value) -> Result<Messages, String> {
    let (messages, tools) = match value {
        Value::Array(messages) => (messages, Value::Null),
        Value::Object(mut fields) => {
            let messages = match fields.remove("messages") {
                Some(Value::Array(messages)) => messages,
                Some(_) => return Err("its `messages` are no list".to_owned()),
                None => return Err("it is an object without `messages`".to_owned()),
            };
            let tools = fields.remove("tools").unwrap_or_default();
            if let Some(unknown) = fields.keys().next() {
                return Err(format!("`{unknown}` is not known; `messages` and `tools` are"));
            }
            (messages, tools)
        }
        _ => return Err("it is neither a list of messages nor an object with `messages`".to_owned()),
    };
    if messages.is_empty() || messages.len() > MOST_MESSAGES {
        return Err(format!("it has {} messages; 1 to {MOST_MESSAGES} can be answered", messages.len()));
    }
    let fits = |tool: &Value| tool.is_object();
    if !tools.is_null() && !tools.as_array().is_some_and(|tools| tools.iter().all(fits)) {
        return Err("its `tools` are no list of objects".to_owned());
    }
    let numbered = messages.into_iter().enumerate();
    let messages = numbered
        .map(|(at, message)| read_message(message).map_err(|wrong| format!("message {}: {wrong}", at + 1)));
    Ok(Messages { messages: messages.collect::<Result<_, _>>()?, tools })
}

fn read_message(message: Value) -> Result<Value, String> {
    let Value::Object(mut fields) = message else { return Err("it is no object".to_owned()) };
    let role = match fields.get("role") {
        Some(Value::String(role)) if ROLES.contains(&role.as_str()) => role.clone(),
        Some(Value::String(role)) => {
            let shown: String = role.chars().take(40).collect();
            return Err(format!("nobody has the role {shown:?}; there are {}", ROLES.join(", ")));
        }
        Some(_) => return Err("its `role` is no text".to_owned()),
        None => return Err("it has no `role`".to_owned()),
    };
    match fields.get_mut("tool_calls") {
        None | Some(Value::Null) => {}
        Some(_) if role != "assistant" => return Err("only an assistant has `tool_calls`".to_owned()),
        Some(Value::Array(calls)) => calls.iter_mut().try_for_each(read_call)?,
        Some(_) => return Err("its `tool_calls` are no list".to_owned()),
    }
    let calls = fields.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty());
    match fields.get("content") {
        Some(Value::String(_)) => {}
        Some(Value::Array(parts)) => parts.iter().try_for_each(check_part)?,
        // Templates add the content to texts, also where a message is nothing but calls.
        None | Some(Value::Null) if calls => drop(fields.insert("content".to_owned(), Value::from(""))),
        None | Some(Value::Null) => return Err("it has no `content`".to_owned()),
        Some(_) => return Err("its `content` is neither a text nor a list of parts".to_owned()),
    }
    Ok(Value::Object(fields))
}

/// A part of a message's content.
fn check_part(part: &Value) -> Result<(), String> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    match (kind, part.get("text")) {
        ("text", Some(Value::String(_))) => Ok(()),
        ("text", _) => Err("a part of its `content` has no `text`".to_owned()),
        ("", _) => Err("a part of its `content` has no `type`".to_owned()),
        (other, _) => {
            let shown: String = other.chars().take(40).collect();
            Err(format!("a part of its `content` is {shown:?}; only texts are read"))
        }
    }
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
            let read = arguments.as_str().and_then(|text| serde_json::from_str(text).ok());
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
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_and_objects_become_messages_that_templates_take() {
        let list = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]);
        let read = conversation(list.clone()).unwrap();
        assert_eq!((&Value::Array(read.messages), &read.tools), (&list, &Value::Null));
        let call = |arguments: Value| json!({"id": "1", "function": {"name": "add", "arguments": arguments}});
        let whole = json!({
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}]},
                {"role": "assistant", "content": null, "tool_calls": [call(json!("{\"a\": 1, \"b\": 1}"))]},
                {"role": "tool", "name": "add", "content": "2"},
            ],
            "tools": [{"type": "function", "function": {"name": "add"}}],
        });
        let read = conversation(whole).unwrap();
        assert_eq!(read.messages[1]["tool_calls"][0], call(json!({"a": 1, "b": 1})));
        assert_eq!(read.messages[1]["content"], "");
        assert_eq!(read.tools[0]["function"]["name"], "add");
    }

    #[test]
    fn what_is_no_conversation_is_told_with_its_place() {
        let cases = [
            (json!("hi"), "neither a list"),
            (json!([]), "0 messages"),
            (json!({"message": []}), "without `messages`"),
            (json!({"messages": [], "model": "x"}), "`model` is not known"),
            (json!({"messages": [{"role": "user", "content": "a"}], "tools": {}}), "`tools` are no list"),
            (json!([{"role": "user", "content": "a"}, 3]), "message 2: it is no object"),
            (json!([{"content": "a"}]), "message 1: it has no `role`"),
            (json!([{"role": "<|im_start|>", "content": "a"}]), "nobody has the role \"<|im_start|>\""),
            (json!([{"role": "user"}]), "no `content`"),
            (json!([{"role": "user", "content": 3}]), "neither a text nor"),
            (json!([{"role": "user", "content": [{"type": "image_url"}]}]), "only texts are read"),
            (json!([{"role": "user", "content": "a", "tool_calls": []}]), "only an assistant"),
            (json!([{"role": "assistant", "tool_calls": [{}]}]), "no `function`"),
            (
                json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]),
                "no object",
            ),
        ];
        for (value, reason) in cases {
            let told = conversation(value.clone()).unwrap_err();
            assert!(told.contains(reason), "{value}: {told}");
        }
    }
}
