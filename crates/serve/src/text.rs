//! `/tokenize` and `/apply-template`: what a model would be given, without asking it.

use crate::chat;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::models::Model;
use pteron_llm::SpecialTokens;
use serde_json::{Value, json};

/// The tokens of a text, or of a conversation.
pub(crate) fn tokenize(mut fields: Fields, model: &Model) -> Result<Value, ApiError> {
    let text = match fields.text("content")? {
        Some(text) => Some(text),
        None => fields.text("prompt")?,
    };
    let tokens = match text {
        Some(text) => {
            let leads = fields.truth("add_special")?.unwrap_or(false);
            let parses = fields.truth("parse_special")?.unwrap_or(true);
            let special = if parses { SpecialTokens::Parse } else { SpecialTokens::Text };
            let mut tokens = model.voice.alone(&text, special)?.tokens;
            if let Some(first) = model.voice.leading()?.filter(|_| !leads) {
                // Behind the token that a text begins with comes the text.
                let from = usize::from(tokens.first() == Some(&first));
                tokens.drain(..from);
            }
            tokens
        }
        None => chat::prompt(&mut fields, model, &Value::Null, None)?.tokens,
    };
    fields.end()?;
    Ok(json!({"tokens": tokens, "count": tokens.len(), "max_model_len": model.handle.context()}))
}

/// The text that a conversation becomes.
pub(crate) fn apply_template(mut fields: Fields, model: &Model) -> Result<Value, ApiError> {
    let tools = fields.list("tools")?.map_or(Value::Null, Value::Array);
    let prompt = chat::prompt(&mut fields, model, &tools, None)?;
    fields.end()?;
    Ok(json!({"prompt": prompt.text}))
}
