//! Conversations as programs send them over a network: lists of messages with roles, and the tools that a model may call.
//!
//! JSON flows in, messages that every chat template understands flow out. What a template would stumble over is told
//! here, with the message's place.

use serde_json::{Map, Value};

/// More than any context holds.
const MOST_MESSAGES: usize = 100_000;

/// Who may speak.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// What a message may have besides its role and its content, and templates may read.
const FIELDS: [&str; 6] =
    ["name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "thinking"];

/// What assistants' messages bring along when clients send them back, of which nothing reaches a template.
const ECHOES: [&str; 4] = ["refusal", "annotations", "audio", "function_call"];

/// Messages in the form that templates take: every content a text, arguments of calls as objects.
///
/// # Errors
/// What is wrong, with the number of the message.
pub fn read_messages(messages: Vec<Value>) -> Result<Vec<Value>, String> {
    if messages.is_empty() || messages.len() > MOST_MESSAGES {
        return Err(format!("there are {} messages; 1 to {MOST_MESSAGES} can be answered", messages.len()));
    }
    let numbered = messages.into_iter().enumerate();
    let read = |(at, message)| read_message(message).map_err(|wrong| format!("message {}: {wrong}", at + 1));
    numbered.map(read).collect()
}

/// One message in the form that templates take.
///
/// # Errors
/// What is wrong with it.
pub fn read_message(message: Value) -> Result<Value, String> {
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
    let content = match content {
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => {
            let texts: Result<Vec<String>, String> = parts.into_iter().map(text_of).collect();
            texts?.join("\n")
        }
        // Templates add the content to texts, also where a message is nothing but calls.
        None | Some(Value::Null) if calls => String::new(),
        None | Some(Value::Null) => return Err("it has no `content`".to_owned()),
        Some(_) => return Err("its `content` is neither a text nor a list of parts".to_owned()),
    };
    message.insert("content".to_owned(), content.into());
    Ok(Value::Object(message))
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// Not more of what a stranger wrote than a message has room for.
fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

/// The text of a part of a message's content.
fn text_of(mut part: Value) -> Result<String, String> {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    match (kind.as_str(), part.get_mut("text").map(Value::take)) {
        ("text", Some(Value::String(text))) => Ok(text),
        ("text", _) => Err("a part of its `content` has no `text`".to_owned()),
        ("", _) => Err("a part of its `content` has no `type`".to_owned()),
        (other, _) => Err(format!("a part of its `content` is {:?}; only texts are read", short(other))),
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
        read_messages(messages.as_array().cloned().unwrap_or_default())
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
    fn what_is_no_message_is_told_with_its_place() {
        let call = |function: Value| json!([{"role": "assistant", "tool_calls": [{"function": function}]}]);
        let cases = [
            (json!([]), "0 messages"),
            (json!([{"role": "user", "content": "a"}, 3]), "message 2: it is no object"),
            (json!([{"content": "a"}]), "message 1: it has no `role`"),
            (json!([{"role": 1, "content": "a"}]), "`role` is no text"),
            (json!([{"role": "<|im_start|>", "content": "a"}]), "nobody has the role \"<|im_start|>\""),
            (json!([{"role": "user"}]), "no `content`"),
            (json!([{"role": "user", "content": 3}]), "neither a text nor"),
            (json!([{"role": "user", "content": [{"type": "image_url"}]}]), "only texts are read"),
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
