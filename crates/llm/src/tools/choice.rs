//! Which tools a model may or must call, and the schema of an answer that is nothing but such a call.

use serde_json::{Value, json};

/// Whether tools are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// One of them at least.
    Required,
    /// This one.
    Named(String),
}

/// The schema of a call of one of these tools, or of the one that is named; `None` where there is no such tool.
pub fn call_schema(tools: &Value, choice: &ToolChoice) -> Option<Value> {
    let functions = tools.as_array()?.iter().filter_map(|tool| tool.get("function"));
    let calls = functions.filter_map(|function| {
        let name = function.get("name")?.as_str()?;
        let is_meant = match choice {
            ToolChoice::Named(wanted) => wanted == name,
            ToolChoice::Required => true,
            ToolChoice::Auto | ToolChoice::None => false,
        };
        let given = function.get("parameters").filter(|parameters| parameters.is_object());
        let parameters = given.cloned().unwrap_or_else(|| json!({"type": "object"}));
        is_meant.then(|| {
            json!({
                "type": "object",
                "properties": {"name": {"const": name}, "arguments": parameters},
                "required": ["name", "arguments"],
                "additionalProperties": false,
            })
        })
    });
    let mut calls: Vec<Value> = calls.collect();
    match calls.len() {
        0 => None,
        1 => calls.pop(),
        _ => Some(json!({"anyOf": calls})),
    }
}
