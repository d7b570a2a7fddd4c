//! `tokenizer.json`, read by Hugging Face's own library.
//!
//! The library was made for files of friends: it may panic on odd ones, and a chain of replacements can make a short
//! text endless. Calls are guarded, and such chains are refused.

use super::decoder::Decoder;
use super::{EndTokens, MAX_TOKENS, Model, TokenizerError, TokenizerFormat, check_limit};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokenizers::Tokenizer;

const FORMAT: TokenizerFormat = TokenizerFormat::TokenizerJson;
/// How many times longer normalisation may make a text.
const MAX_GROWTH: usize = 64;

#[derive(Debug)]
pub(super) struct HuggingFace {
    tokenizer: Tokenizer,
    decoder: Decoder,
    ends: EndTokens,
    vocab_size: usize,
}

pub(super) fn read(bytes: &[u8]) -> Result<HuggingFace, TokenizerError> {
    let json: Value =
        serde_json::from_slice(bytes).map_err(|error| TokenizerError::malformed(FORMAT, error))?;
    let growth = growth(json.get("normalizer").unwrap_or(&Value::Null));
    check_limit("the factor by which its normalizer lengthens texts", growth, MAX_GROWTH)?;
    let decoder = Decoder::read(json.get("decoder").unwrap_or(&Value::Null));
    drop(json);
    let mut tokenizer = guarded(|| Tokenizer::from_bytes(bytes))?
        .map_err(|error| TokenizerError::malformed(FORMAT, error))?;
    // Cutting off and filling up are for training; a prompt is taken whole.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|error| TokenizerError::malformed(FORMAT, error))?;
    let largest = guarded(|| tokenizer.get_vocab(true).into_values().max())?.unwrap_or(0) as usize;
    check_limit("the largest token id", largest, MAX_TOKENS - 1)?;
    let mut model = HuggingFace { tokenizer, decoder, ends: EndTokens::default(), vocab_size: largest + 1 };
    model.ends = model.find_ends();
    Ok(model)
}

/// What the library makes of it; a panic inside becomes an error.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, TokenizerError> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|_| TokenizerError::malformed(FORMAT, "the tokenizers library cannot work with it"))
}

/// By how much a normalizer can lengthen a text, at most.
fn growth(normalizer: &Value) -> usize {
    let length = |value: Option<&Value>| value.and_then(Value::as_str).map_or(0, str::len);
    match normalizer.get("type").and_then(Value::as_str) {
        Some("Sequence") => {
            let steps = normalizer.get("normalizers").and_then(Value::as_array);
            steps.into_iter().flatten().map(growth).fold(1, usize::saturating_mul)
        }
        Some("Replace") => {
            let pattern = length(normalizer.get("pattern").and_then(|pattern| pattern.get("String")));
            length(normalizer.get("content")).div_ceil(pattern.max(1)).max(1)
        }
        _ => 1,
    }
}

impl HuggingFace {
    fn ids(&self, text: &str, with_ends: bool) -> Result<Vec<u32>, TokenizerError> {
        let encoding = guarded(|| self.tokenizer.encode_fast(text, with_ends))?;
        let encoding = encoding.map_err(|error| TokenizerError::malformed(FORMAT, error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The tokens that the file's own rules put around a text, where that is one before and one behind at most.
    fn find_ends(&self) -> EndTokens {
        let (Ok(plain), Ok(whole)) = (self.ids("a", false), self.ids("a", true)) else {
            return EndTokens::default();
        };
        let added = whole.len().saturating_sub(plain.len());
        let Some(before) = (0..=added).find(|&at| whole[at..].starts_with(&plain)) else {
            return EndTokens::default();
        };
        let bos = whole.first().copied().filter(|_| before == 1);
        let eos = whole.last().copied().filter(|_| added - before == 1);
        EndTokens { bos, eos, add_bos: bos.is_some(), add_eos: eos.is_some() }
    }
}

impl Model for HuggingFace {
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.ids(text, false)
    }

    fn encode_with_own_ends(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.ids(text, true)
    }

    fn decode(&self, ids: &[u32]) -> String {
        let text = guarded(|| self.tokenizer.decode(ids, false).ok());
        text.ok().flatten().unwrap_or_default()
    }

    fn piece(&self, id: u32, first: bool) -> Option<Vec<u8>> {
        self.tokenizer.id_to_token(id).map(|token| self.decoder.piece(&token, first))
    }

    fn spelling(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    fn id_of(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    fn is_special(&self, id: u32) -> bool {
        let added = self.tokenizer.get_added_vocabulary();
        added.get_added_tokens_decoder().get(&id).is_some_and(|token| token.special)
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn own_ends(&self) -> EndTokens {
        self.ends
    }
}
