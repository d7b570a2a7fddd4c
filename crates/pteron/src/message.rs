//! Messages as programs that call models over the network write them: JSON in, what chat templates understand out. What a
//! template would stumble over is told here, with the message's place.

use crate::error::{Error, Result};
use serde_json::{Map, Value, json};

/// More than any context holds.
const MOST_MESSAGES: usize = 100_000;

/// Who may speak.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// A message: who says what, and whatever else a chat template knows.
///
/// ```
/// use pteron::Message;
///
/// let messages = [Message::system("Be brief."), Message::user("Hello")];
/// assert_eq!((messages[1].role(), messages[1].content()), ("user", "Hello"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Message(Value);

impl Message {
    /// What the model is told before the conversation.
    ///
    /// ```
    /// assert_eq!(pteron::Message::system("Be brief.").role(), "system");
    /// ```
    pub fn system(content: impl Into<String>) -> Message {
        Message::of("system", content.into())
    }

    /// What somebody asks.
    ///
    /// ```
    /// assert_eq!(pteron::Message::user("Hello").role(), "user");
    /// ```
    pub fn user(content: impl Into<String>) -> Message {
        Message::of("user", content.into())
    }

    /// What the model has answered.
    ///
    /// ```
    /// assert_eq!(pteron::Message::assistant("Hi").role(), "assistant");
    /// ```
    pub fn assistant(content: impl Into<String>) -> Message {
        Message::of("assistant", content.into())
    }

    /// What a tool that the model called has found.
    ///
    /// ```
    /// assert_eq!(pteron::Message::tool("14 degrees").role(), "tool");
    /// ```
    pub fn tool(content: impl Into<String>) -> Message {
        Message::of("tool", content.into())
    }

    fn of(role: &str, content: String) -> Message {
        Message(json!({"role": role, "content": content}))
    }

    /// One message as JSON: an object with `role` and `content`, and with `tool_calls` where an assistant has made some.
    ///
    /// ```
    /// use pteron::Message;
    /// use serde_json::json;
    ///
    /// let message = Message::from_json(json!({"role": "user", "content": "Hello"}))?;
    /// assert_eq!(message, Message::user("Hello"));
    /// assert!(Message::from_json(json!({"role": "user"})).is_err());
    /// # Ok::<(), pteron::Error>(())
    /// ```
    ///
    /// # Errors
    /// When it is none.
    pub fn from_json(message: Value) -> Result<Message> {
        read_message(message).map(Message).map_err(Error::invalid)
    }

    /// Who says it: `system`, `developer`, `user`, `assistant` or `tool`.
    ///
    /// ```
    /// assert_eq!(pteron::Message::user("Hello").role(), "user");
    /// ```
    pub fn role(&self) -> &str {
        self.0["role"].as_str().unwrap_or_default()
    }

    /// What is said; empty where it is no single text.
    ///
    /// ```
    /// assert_eq!(pteron::Message::user("Hello").content(), "Hello");
    /// ```
    pub fn content(&self) -> &str {
        self.0["content"].as_str().unwrap_or_default()
    }

    /// The message as JSON.
    ///
    /// ```
    /// let message = pteron::Message::user("Hello");
    /// assert_eq!(message.as_json(), &serde_json::json!({"role": "user", "content": "Hello"}));
    /// ```
    pub fn as_json(&self) -> &Value {
        &self.0
    }
}

/// A conversation, and the tools that the model may call.
///
/// ```
/// let asked = serde_json::json!({
///     "messages": [{"role": "user", "content": "How warm is it in Oslo?"}],
///     "tools": [{"type": "function", "function": {"name": "weather"}}],
/// });
/// let messages = pteron::Messages::from_json(asked)?;
/// assert_eq!(messages.messages[0].role(), "user");
/// # Ok::<(), pteron::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Messages {
    /// What was said, in order.
    pub messages: Vec<Message>,
    /// A list of descriptions, or null.
    pub tools: Value,
}

impl Messages {
    /// A list of messages, or an object with `messages` and `tools`.
    ///
    /// ```
    /// let list = serde_json::json!([{"role": "user", "content": "Hello"}]);
    /// assert_eq!(pteron::Messages::from_json(list)?.messages.len(), 1);
    /// # Ok::<(), pteron::Error>(())
    /// ```
    ///
    /// # Errors
    /// When it is none that could be answered, with the place.
    pub fn from_json(value: Value) -> Result<Messages> {
        conversation(value).map_err(Error::invalid)
    }

    pub(crate) fn values(&self) -> Vec<Value> {
        self.messages.iter().map(|message| message.0.clone()).collect()
    }
}

impl From<Vec<Message>> for Messages {
    fn from(messages: Vec<Message>) -> Messages {
        Messages { messages, tools: Value::Null }
    }
}

/// An error where tools are no list of objects.
pub(crate) fn check_tools(tools: &Value) -> Result<(), String> {
    let fits = |tool: &Value| tool.is_object();
    match tools.is_null() || tools.as_array().is_some_and(|tools| tools.iter().all(fits)) {
        true => Ok(()),
        false => Err("its `tools` are no list of objects".to_owned()),
    }
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
    check_tools(&tools)?;
    let numbered = messages.into_iter().enumerate();
    let messages = numbered.map(|(at, message)| match read_message(message) {
        Ok(message) => Ok(Message(message)),
        Err(wrong) => Err(format!("message {}: {wrong}", at + 1)),
    });
    Ok(Messages { messages: messages.collect::<Result<_, String>>()?, tools })
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
        assert_eq!((&Value::Array(read.values()), &read.tools), (&list, &Value::Null));
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
        assert_eq!(read.messages[1].as_json()["tool_calls"][0], call(json!({"a": 1, "b": 1})));
        assert_eq!(read.messages[1].content(), "");
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
