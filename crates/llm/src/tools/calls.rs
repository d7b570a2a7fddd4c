//! Calls that are JSON, in its several wrappings, and those that are written with tags.

use super::ToolCall;
use serde_json::{Map, Value};

/// Stand between a name and its arguments.
pub(super) const ARGUMENTS: &str = "[ARGS]";
pub(super) const CALL_ID: &str = "[CALL_ID]";

/// `{"name": ..., "arguments": {...}}`; some say `parameters`.
fn call_of(value: &Value) -> Option<ToolCall> {
    let name = value.get("name")?.as_str()?;
    let arguments = value.get("arguments").or_else(|| value.get("parameters"));
    let arguments = match arguments {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(object @ Value::Object(_)) => object.to_string(),
        // JSON in a text.
        Some(Value::String(text)) => match serde_json::from_str(text).ok()? {
            object @ Value::Object(_) => object.to_string(),
            _ => return None,
        },
        Some(_) => return None,
    };
    Some(ToolCall { name: name.to_owned(), arguments })
}

/// Calls as JSON one behind the other, with white space, commas or semicolons between.
pub(super) fn in_a_row(body: &str) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    let mut rest = body.trim();
    while !rest.is_empty() {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match values.next()?.ok()? {
            Value::Array(all) => calls.extend(all.iter().map(call_of).collect::<Option<Vec<_>>>()?),
            one => calls.push(call_of(&one)?),
        }
        rest = rest[values.byte_offset()..].trim_start().trim_start_matches([';', ',']).trim_start();
    }
    Some(calls).filter(|calls| !calls.is_empty())
}

/// What models put around code.
const FENCES: [&str; 2] = ["```json", "```"];

/// Whether a text is the beginning of a call without marks, or may become one: an object whose first key is its name.
pub(super) fn may_be_bare(text: &str) -> bool {
    let mut rest = text.trim_start();
    if FENCES.iter().any(|fence| fence.starts_with(rest)) {
        return true;
    }
    if let Some(inside) = FENCES.iter().find_map(|fence| rest.strip_prefix(fence)) {
        rest = inside;
    }
    for part in ["{", "\"name\"", ":"] {
        rest = rest.trim_start();
        match rest.strip_prefix(part) {
            Some(behind) => rest = behind,
            None => return part.starts_with(rest),
        }
    }
    true
}

/// Calls without marks, where all of them are of tools that there are.
pub(super) fn bare(text: &str, tools: &Value) -> Option<Vec<ToolCall>> {
    let text = text.trim();
    let inside = FENCES.iter().find_map(|fence| text.strip_prefix(fence)?.strip_suffix("```"));
    let names = tools.as_array()?.iter().filter_map(|tool| tool.get("function")?.get("name")?.as_str());
    let names: Vec<&str> = names.collect();
    in_a_row(inside.unwrap_or(text))
        .filter(|calls| calls.iter().all(|call| names.contains(&call.name.as_str())))
}

/// What stands between `<tool_call>` and `</tool_call>`.
pub(super) fn tagged(body: &str, tools: &Value) -> Option<Vec<ToolCall>> {
    match body.trim().strip_prefix("<function=") {
        Some(function) => with_tags(function, tools).map(|call| vec![call]),
        None => in_a_row(body),
    }
}

/// `name><parameter=key>value</parameter>...</function>`.
fn with_tags(text: &str, tools: &Value) -> Option<ToolCall> {
    let (name, mut rest) = text.split_once('>')?;
    let name = name.trim();
    let types = parameters_of(name, tools);
    let mut arguments = Map::new();
    while let Some((_, from)) = rest.split_once("<parameter=") {
        let (key, from) = from.split_once('>')?;
        let (value, behind) = from.split_once("</parameter>").or_else(|| from.split_once("</function>"))?;
        // One line end on each side belongs to the tags.
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.trim().to_owned(), typed(value, types.and_then(|types| types.get(key.trim()))));
        rest = behind;
    }
    (!name.is_empty())
        .then(|| ToolCall { name: name.to_owned(), arguments: Value::Object(arguments).to_string() })
}

/// The parameters of a tool, by name.
fn parameters_of<'t>(name: &str, tools: &'t Value) -> Option<&'t Value> {
    let mut functions = tools.as_array()?.iter().filter_map(|tool| tool.get("function"));
    let function = functions.find(|function| function.get("name").is_some_and(|found| found == name))?;
    function.get("parameters")?.get("properties")
}

/// A value that was written as plain text: a text where its schema says so, else JSON where it is such.
fn typed(text: &str, schema: Option<&Value>) -> Value {
    match schema.and_then(|schema| schema.get("type")) {
        Some(kind) if kind == "string" => text.into(),
        _ => serde_json::from_str(text.trim()).unwrap_or_else(|_| text.into()),
    }
}

/// What stands behind `[TOOL_CALLS]`.
pub(super) fn mistral(body: &str) -> Option<Vec<ToolCall>> {
    let body = body.trim();
    if body.starts_with('[') {
        return in_a_row(body);
    }
    let (name, arguments) = match body.split_once(ARGUMENTS) {
        Some(parts) => parts,
        None => body.split_at(body.find('{')?),
    };
    let name = name.split(CALL_ID).next().unwrap_or_default().trim();
    let object: Value = serde_json::from_str(arguments.trim()).ok().filter(Value::is_object)?;
    (!name.is_empty()).then(|| vec![ToolCall { name: name.to_owned(), arguments: object.to_string() }])
}
