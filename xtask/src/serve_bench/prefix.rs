//! What a warm prefix saves: the time to the first token behind a text of a thousand tokens that nobody has read, and behind
//! the same text with another question.

use serde::Serialize;
use serde_json::json;

use super::load::{answer, text};
use crate::bench::rows::median;
use crate::error::{Error, Result};
use crate::serving::Client;

/// Words that are some thousand tokens in vocabularies of English.
const WORDS: usize = 960;
const TRIES: u64 = 3;

/// Seconds to the first token.
#[derive(Serialize)]
pub(super) struct Prefix {
    pub(super) model: String,
    pub(super) prompt_tokens: u64,
    pub(super) cold: f64,
    pub(super) warm: f64,
}

pub(super) fn measure(client: &Client, model: &str) -> Result<Prefix> {
    let mut prompt_tokens = 0;
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    for number in 0..TRIES {
        let system = text(1000 + number, WORDS);
        let mut first = |question: &str| {
            let messages =
                json!([{"role": "system", "content": system}, {"role": "user", "content": question}]);
            let counted = client.post("/tokenize", &json!({"model": model, "messages": messages}))?.json()?;
            prompt_tokens = counted["count"].as_u64().unwrap_or(0);
            let body = json!({
                "model": model, "messages": messages, "max_tokens": 2, "temperature": 0, "stream": true,
                "stream_options": {"include_usage": true},
            });
            answer(client, &body)?.times.first().copied().ok_or_else(|| Error::message("an empty answer"))
        };
        cold.push(first("Tell me about the first word.")?);
        warm.push(first("And what of the last one, please?")?);
    }
    let of = |all: &[f64]| median(all).unwrap_or(0.0);
    Ok(Prefix { model: model.to_owned(), prompt_tokens, cold: of(&cold), warm: of(&warm) })
}
