//! Messages as apps write them, and as JSON that programs send over a network.

use crate::error::{Error, Result};
use pteron_llm::{ReadMessage, read_message, read_messages};
use serde_json::{Value, json};
use std::sync::Arc;

/// A message: who says what, and whatever else a chat template knows.
///
/// ```
/// use pteron::Message;
///
/// let messages = [Message::system("Be brief."), Message::user("Hello")];
/// assert_eq!((messages[1].role(), messages[1].content()), ("user", "Hello"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    json: Value,
    /// The files of the images that its content has places for, in order.
    images: Vec<Arc<[u8]>>,
}

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
        Message { json: json!({"role": role, "content": content}), images: Vec::new() }
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
        read_message(message).map(Message::from).map_err(Error::invalid)
    }

    /// The same with images before what it says: the bytes of PNG or JPEG files. Only models that [see](crate::Model::sees) take
    /// them.
    ///
    /// ```
    /// # let photo = pteron::tiny::image(8, 8);
    /// let message = pteron::Message::user("What is that?").showing([photo]);
    /// assert_eq!((message.content(), message.images().len()), ("What is that?", 1));
    /// ```
    #[must_use]
    pub fn showing(mut self, images: impl IntoIterator<Item = impl Into<Arc<[u8]>>>) -> Message {
        let images: Vec<Arc<[u8]>> = images.into_iter().map(Into::into).collect();
        if images.is_empty() {
            return self;
        }
        let content = self.json["content"].take();
        let text = content.as_str().is_none_or(|text| !text.is_empty());
        let before = match content {
            Value::Array(parts) => parts,
            text_alone if text => vec![json!({"type": "text", "text": text_alone})],
            _ => Vec::new(),
        };
        let places = images.iter().map(|_| json!({"type": "image"}));
        self.json["content"] = places.chain(before).collect();
        // What was shown before stands behind what is put first.
        self.images.splice(0..0, images);
        self
    }

    /// The files of the images that it shows, in order.
    ///
    /// ```
    /// assert!(pteron::Message::user("Hello").images().is_empty());
    /// ```
    pub fn images(&self) -> &[Arc<[u8]>] {
        &self.images
    }

    /// Who says it: `system`, `developer`, `user`, `assistant` or `tool`.
    ///
    /// ```
    /// assert_eq!(pteron::Message::user("Hello").role(), "user");
    /// ```
    pub fn role(&self) -> &str {
        self.json["role"].as_str().unwrap_or_default()
    }

    /// What is said, beside what is shown; empty where it is no single text.
    ///
    /// ```
    /// assert_eq!(pteron::Message::user("Hello").content(), "Hello");
    /// ```
    pub fn content(&self) -> &str {
        match &self.json["content"] {
            Value::Array(parts) => {
                let mut texts = parts.iter().filter_map(|part| part["text"].as_str());
                texts.next().filter(|_| texts.next().is_none()).unwrap_or_default()
            }
            content => content.as_str().unwrap_or_default(),
        }
    }

    /// The message as JSON; an image is a part of its content without the file.
    ///
    /// ```
    /// let message = pteron::Message::user("Hello");
    /// assert_eq!(message.as_json(), &serde_json::json!({"role": "user", "content": "Hello"}));
    /// ```
    pub fn as_json(&self) -> &Value {
        &self.json
    }
}

impl From<ReadMessage> for Message {
    fn from(read: ReadMessage) -> Message {
        let images = read.images.into_iter().map(Into::into).collect();
        Message { json: read.message, images }
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
        self.messages.iter().map(|message| message.json.clone()).collect()
    }

    /// The files of all images, in order.
    pub(crate) fn images(&self) -> Vec<Arc<[u8]>> {
        self.messages.iter().flat_map(|message| message.images.iter().cloned()).collect()
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
    check_tools(&tools)?;
    let messages = read_messages(messages)?.into_iter().map(Message::from).collect();
    Ok(Messages { messages, tools })
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
            (json!([{"role": "user", "content": [{"type": "image_url"}]}]), "no `url`"),
            (json!([{"role": "user", "content": [{"type": "video"}]}]), "only texts and images are read"),
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
