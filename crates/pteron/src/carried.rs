//! What a program carries beside its methods: its tokenizer, its chat template, how its publisher wants tokens chosen, and
//! what it is as a speech model.

use crate::error::{Error, Reason, Result};
use pteron_companion::{ENCODER, Encoder, SPEECH, Speech};
use pteron_format::pte::Pte;
use pteron_llm::tokenizer::Tokenizer;
use pteron_llm::{LlmError, Suggested, Voice};
use pteron_template::LocalTime;
use serde::de::DeserializeOwned;
use std::path::Path;

/// A tokenizer in a file of its own.
pub(crate) fn tokenizer(path: &Path) -> Result<Tokenizer> {
    Ok(Tokenizer::open(path).map_err(LlmError::from)?)
}

/// How a program hears and speaks, and the settings that it carries; a tokenizer that is given wins over its own.
pub(crate) fn voice(pte: &Pte, given: Option<Tokenizer>) -> Result<(Option<Voice>, Suggested)> {
    let tokenizer = match given {
        Some(given) => Some(given),
        None => Voice::tokenizer_inside(pte)?,
    };
    let suggested = Voice::suggested_inside(pte);
    let Some(tokenizer) = tokenizer else { return Ok((None, suggested)) };
    let template = Voice::template_inside(pte)?;
    let voice = Voice { template, now: LocalTime::utc_now(), ..Voice::new(tokenizer) };
    Ok((Some(voice), suggested))
}

/// What a program says of itself as a speech model.
pub(crate) fn speech(path: &Path, pte: &Pte) -> Result<Option<Speech>> {
    said(path, pte, SPEECH)
}

/// What a program says of itself as an encoder.
pub(crate) fn encoder(path: &Path, pte: &Pte) -> Result<Option<Encoder>> {
    said(path, pte, ENCODER)
}

/// What a program says under a name, as JSON.
fn said<T: DeserializeOwned>(path: &Path, pte: &Pte, name: &str) -> Result<Option<T>> {
    let Some(json) = pte.named(name) else { return Ok(None) };
    let said = serde_json::from_slice(&json);
    said.map(Some).map_err(|error| {
        let message = format!("{}: {name}: {error}", path.display());
        Error::Damaged(Reason::new(message).by(error))
    })
}
