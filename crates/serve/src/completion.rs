//! `/v1/completions`: a text, or tokens, that go on.

use crate::asked::{self, Asked, MOST_LIKELIEST, Shape};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::models::Model;
use pteron_llm::Voice;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Tokens of a completion where nobody says how many, as clients of this interface expect it.
const USUAL_TOKENS: usize = 16;

/// Reads a request for a completion.
pub(crate) fn read(mut fields: Fields, model: Arc<Model>, longest: Duration) -> Result<Asked, ApiError> {
    let mut asked = asked::common(&mut fields, model.clone(), Shape::Completion, longest)?;
    asked.request.options.max_new = Some(fields.count("max_tokens")?.unwrap_or(USUAL_TOKENS));
    asked.request.likeliest = match fields.count("logprobs")? {
        Some(most) if most > MOST_LIKELIEST => {
            return Err(ApiError::parameter("logprobs", format!("`logprobs` is at most {MOST_LIKELIEST}")));
        }
        most => most,
    };
    fields.only("echo", &json!(false))?;
    fields.only("best_of", &json!(1))?;
    fields.only("suffix", &json!(""))?;
    asked.request.prompt = prompt(&mut fields, &model)?;
    fields.end()?;
    Ok(asked)
}

fn prompt(fields: &mut Fields, model: &Model) -> Result<Vec<u32>, ApiError> {
    let wrong = || ApiError::parameter("prompt", "`prompt` must be one text, or one list of token ids");
    let given = match fields.take("prompt") {
        None => {
            let missing = ApiError::parameter("prompt", "there is no `prompt`");
            return Err(missing.code("missing_required_parameter"));
        }
        // A list of one prompt.
        Some(Value::Array(mut list)) if list.len() == 1 && !list[0].is_number() => {
            list.pop().unwrap_or_default()
        }
        Some(given) => given,
    };
    match given {
        Value::String(text) => {
            let voice = Voice { context: model.handle.context(), ..model.voice.clone() };
            let prompt = voice.raw(&text).map_err(|error| ApiError::from(error).of_prompt("prompt"))?;
            Ok(prompt.tokens)
        }
        Value::Array(tokens) => {
            let read = |token: &Value| token.as_u64().and_then(|token| u32::try_from(token).ok());
            tokens.iter().map(|token| read(token).ok_or_else(wrong)).collect()
        }
        _ => Err(wrong()),
    }
}
