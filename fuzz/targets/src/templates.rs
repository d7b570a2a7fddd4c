//! Rendering under bounds: what both targets of templates hold.

use crate::memory::within;
use pteron_template::{ChatTemplate, LocalTime, RenderInput};
use serde_json::{Map, Value, json};

/// A tree takes so many bytes for each byte of its source, at most.
const TREE_A_BYTE: usize = 1024;
/// What `template/src/budget.rs` lets any template ask for, and for each byte of its conversation.
const BASE_BYTES: usize = 10 << 20;
const BYTES_A_BYTE: usize = 64;
/// Growing vectors have their old and their new memory at once, and take twice what they need.
const SLACK: usize = 4;
/// What small things take beside it.
const SMALL: usize = 1 << 20;

/// Reads and renders a template: there is a text or an error, and both are had within the budget of bytes.
pub(crate) fn check(source: &str, input: &RenderInput) {
    let tree = within(SMALL + TREE_A_BYTE * source.len(), "reading a template", || ChatTemplate::new(source));
    let Ok(template) = tree else { return };
    let size = input.messages.to_string().len()
        + input.tools.to_string().len()
        + Value::from(input.flags.clone()).to_string().len()
        + input.tokens.iter().map(|(name, token)| name.len() + token.len()).sum::<usize>();
    let bytes = BASE_BYTES + BYTES_A_BYTE * (size + SMALL / BYTES_A_BYTE);
    let rendered = within(SLACK * bytes, "rendering", || template.render(input));
    if let Ok(text) = rendered {
        assert!(text.len() <= bytes, "a text of {} bytes; the budget is {bytes}", text.len());
    }
}

/// The conversation that a JSON object of variables describes; a short one where it is none.
pub(crate) fn input(json: &[u8]) -> RenderInput {
    let mut flags: Map<String, Value> = serde_json::from_slice(json).unwrap_or_default();
    let mut take = |name: &str| flags.remove(name);
    RenderInput {
        messages: take("messages").unwrap_or_else(messages),
        tools: take("tools").unwrap_or_default(),
        add_generation_prompt: take("add_generation_prompt").and_then(|flag| flag.as_bool()).unwrap_or(true),
        tokens: [("bos_token", "<s>"), ("eos_token", "</s>")]
            .map(|(name, token)| (name.to_owned(), token.to_owned()))
            .into(),
        now: LocalTime::default(),
        flags,
    }
}

/// A conversation with something of all that messages may have.
fn messages() -> Value {
    json!([
        {"role": "system", "content": "Answer in few words."},
        {"role": "user", "content": [{"type": "text", "text": "How warm is it in \u{d8}lstykke?"}, {"type": "image"}]},
        {"role": "assistant", "content": null, "reasoning_content": "<think>\n it depends \n</think>", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"where": "\u{d8}lstykke", "n": 2.5}}}
        ]},
        {"role": "tool", "content": "-3", "name": "weather"},
    ])
}
