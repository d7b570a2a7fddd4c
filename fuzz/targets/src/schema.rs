//! Any text as a JSON schema or a grammar: an error, or a constraint under which tokens can be taken until the text ends. What
//! a schema let through to its end is JSON.
//!
//! The first byte says which of the two; then comes the number of choices, the choices, and the source.

use crate::memory::within;
use crate::{Source, let_guards_catch, vocabularies};
use pteron_llm::constrain::{Constraint, ConstraintError};
use pteron_llm::tokenizer::{Tokenizer, TokenizerConfig};
use std::sync::LazyLock;

/// What the engine's own limits let a grammar take, and a text under it.
const HELD: usize = 1 << 30;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let config = TokenizerConfig {
        tokens: [("eos_token".to_owned(), "<|end|>".to_owned())].into(),
        ..TokenizerConfig::default()
    };
    vocabularies::load("hf-llama3", &config)
});

/// One input.
pub fn run(data: &[u8]) {
    // The engine guards itself against its own panics.
    let_guards_catch();
    let mut source = Source::new(data);
    let (is_schema, choices) = (!source.flag(), source.below(64));
    let mut choices = Source::new(source.take(choices));
    let Ok(text) = std::str::from_utf8(source.rest()) else { return };
    within(HELD, "a constraint", || take(is_schema, text, &mut choices));
}

fn take(is_schema: bool, source: &str, choices: &mut Source<'_>) {
    let constraint = match is_schema {
        true => {
            let Ok(schema) = serde_json::from_str(source) else { return };
            Constraint::json_schema(&TOKENIZER, &schema)
        }
        false => Constraint::grammar(&TOKENIZER, source),
    };
    let Ok(mut constraint) = constraint else { return };
    let mut said = Vec::new();
    // Some more than there are choices: then the first token that is allowed, which ends many texts.
    for _ in 0..96 {
        if constraint.is_done() {
            break;
        }
        let mut logits = vec![0.0f32; TOKENIZER.vocab_size()];
        if constraint.mask(&mut logits).is_err() {
            return;
        }
        let allowed: Vec<u32> =
            (0u32..).zip(&logits).filter(|(_, logit)| **logit == 0.0).map(|(id, _)| id).collect();
        let Some(&token) = allowed.get(choices.below(allowed.len().min(256))) else { return };
        let taken = constraint.accept(token);
        assert!(taken.is_ok() || matches!(taken, Err(ConstraintError::Stopped { .. })), "{taken:?}");
        if taken.is_err() {
            return;
        }
        if Some(token) != TOKENIZER.eos() {
            said.extend(TOKENIZER.bytes_of(token).unwrap_or_default());
        }
    }
    if is_schema && constraint.is_done() {
        let read = serde_json::from_slice::<serde_json::Value>(&said);
        assert!(read.is_ok(), "{:?} is no JSON", String::from_utf8_lossy(&said));
    }
}
