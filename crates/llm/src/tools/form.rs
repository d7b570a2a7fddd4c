//! How a model writes calls of tools: found by what its template makes of one, never by the model's name.

use super::{ToolCall, calls, gemma};
use crate::Voice;
use serde_json::{Value, json};

/// What Llama may write before a call.
pub(super) const PYTHON_TAG: &str = "<|python_tag|>";

/// A way of writing calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolForm {
    /// `<tool_call>` with JSON, as Hermes and Qwen have it, or with tags for the function and its parameters, as Qwen's
    /// coders have it.
    Tagged,
    /// The whole answer is `{"name": ..., "parameters": ...}`, or several of them with semicolons between.
    Llama,
    /// `[TOOL_CALLS]`, then a list of JSON objects, or a name, `[ARGS]` and an object.
    Mistral,
    /// `<|tool_call>call:name{key:value}<tool_call|>`, with quotes of its own.
    Gemma,
    /// The same with the marks of a smaller model.
    FunctionGemma,
    /// The whole answer is one call as JSON, since a grammar allows nothing else.
    Whole,
}

impl ToolForm {
    /// How this model calls tools; `None` where its template has no place for calls.
    pub fn of(voice: &Voice) -> Option<ToolForm> {
        voice.template.as_ref()?;
        // Nine characters, which some templates insist on.
        let id = "probe0001";
        let call = json!({"id": id, "type": "function",
            "function": {"name": "probe_tool", "arguments": {"probe_key": "probe_value"}}});
        let messages = [
            json!({"role": "user", "content": "a"}),
            json!({"role": "assistant", "content": "", "tool_calls": [call]}),
            json!({"role": "tool", "name": "probe_tool", "tool_call_id": id, "content": "b"}),
        ];
        let parameters = json!({"type": "object", "properties": {"probe_key": {"type": "string"}}});
        let tools = json!([{"type": "function",
            "function": {"name": "probe_tool", "description": "a", "parameters": parameters}}]);
        let text = voice.chat_text(&messages, &tools, 0).ok()?.text;
        let forms = [ToolForm::Tagged, ToolForm::Gemma, ToolForm::FunctionGemma, ToolForm::Mistral];
        let marked = forms.into_iter().find(|form| form.opens().is_some_and(|mark| text.contains(mark)));
        // Without a mark, the call itself has to be there.
        let bare =
            ["{\"name\": \"probe_tool\", \"parameters\": ", "{\"name\":\"probe_tool\",\"parameters\":"];
        marked.or_else(|| bare.iter().any(|call| text.contains(call)).then_some(ToolForm::Llama))
    }

    /// The mark before a call.
    pub(super) fn opens(self) -> Option<&'static str> {
        match self {
            ToolForm::Tagged => Some("<tool_call>"),
            ToolForm::Mistral => Some("[TOOL_CALLS]"),
            ToolForm::Gemma => Some("<|tool_call>"),
            ToolForm::FunctionGemma => Some("<start_function_call>"),
            ToolForm::Llama | ToolForm::Whole => None,
        }
    }

    /// The mark behind a call.
    pub(super) fn closes(self) -> Option<&'static str> {
        match self {
            ToolForm::Tagged => Some("</tool_call>"),
            ToolForm::Mistral => Some("[TOOL_CALLS]"),
            ToolForm::Gemma => Some("<tool_call|>"),
            ToolForm::FunctionGemma => Some("<end_function_call>"),
            ToolForm::Llama | ToolForm::Whole => None,
        }
    }

    /// All marks, which vocabularies may have as special tokens.
    pub(super) fn marks(self) -> &'static [&'static str] {
        match self {
            ToolForm::Tagged => &["<tool_call>", "</tool_call>"],
            ToolForm::Llama => &[PYTHON_TAG],
            ToolForm::Mistral => &["[TOOL_CALLS]", calls::ARGUMENTS, calls::CALL_ID],
            ToolForm::Gemma => &["<|tool_call>", "<tool_call|>", gemma::QUOTE],
            ToolForm::FunctionGemma => &["<start_function_call>", "<end_function_call>", gemma::ESCAPE],
            ToolForm::Whole => &[],
        }
    }

    /// The calls in what stands between the marks; `None` where that makes no sense.
    pub(super) fn parse(self, body: &str, tools: &Value) -> Option<Vec<ToolCall>> {
        match self {
            ToolForm::Tagged => calls::tagged(body, tools),
            ToolForm::Llama => calls::in_a_row(body.trim().strip_prefix(PYTHON_TAG).unwrap_or(body)),
            ToolForm::Mistral => calls::mistral(body),
            ToolForm::Gemma => gemma::call(body, gemma::QUOTE),
            ToolForm::FunctionGemma => gemma::call(body, gemma::ESCAPE),
            ToolForm::Whole => calls::in_a_row(body),
        }
    }
}
