//! `tokenizer.json`, read by Hugging Face's own library.
//!
//! The library was made for files of friends: it may panic on odd ones, and a chain of replacements can make a short
//! text endless. Calls are guarded, and such chains are refused.

use super::charsmap;
use super::decoder::Decoder;
use super::{EndTokens, Model, TokenizerError, TokenizerFormat, check_largest_id, check_limit};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokenizers::Tokenizer;

const FORMAT: TokenizerFormat = TokenizerFormat::TokenizerJson;
/// How many times longer each of the file's chains of rules may make a text.
const MAX_GROWTH: usize = 64;

/// The chains, and what a limit on each is called.
const CHAINS: [(&str, &str); 4] = [
    ("normalizer", "the factor by which its normalizer lengthens texts"),
    ("pre_tokenizer", "the factor by which its pretokenizer lengthens texts"),
    ("post_processor", "the factor by which its postprocessor lengthens texts"),
    ("decoder", "the factor by which its decoder lengthens texts"),
];

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
    for (chain, what) in CHAINS {
        check_limit(what, growth(json.get(chain).unwrap_or(&Value::Null))?, MAX_GROWTH)?;
    }
    let decoder = Decoder::read(json.get("decoder").unwrap_or(&Value::Null));
    drop(json);
    let mut tokenizer = guarded(|| Tokenizer::from_bytes(bytes))?
        .map_err(|error| TokenizerError::malformed(FORMAT, error))?;
    // Cutting off and filling up are for training; a prompt is taken whole.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|error| TokenizerError::malformed(FORMAT, error))?;
    let vocabulary = guarded(|| tokenizer.get_vocab(true))?;
    let largest = vocabulary.values().max().copied().unwrap_or(0) as usize;
    check_largest_id(largest, vocabulary.len())?;
    let mut model = HuggingFace { tokenizer, decoder, ends: EndTokens::default(), vocab_size: largest + 1 };
    model.ends = model.find_ends();
    Ok(model)
}

/// What the library makes of it; a panic inside becomes an error.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, TokenizerError> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|_| TokenizerError::malformed(FORMAT, "the tokenizers library cannot work with it"))
}

/// By how much a rule, with those inside it, can lengthen a text, at most. The library also takes rules without their
/// `type`, so that they are known by their fields.
fn growth(rule: &Value) -> Result<usize, TokenizerError> {
    let text = |name: &str| rule.get(name).and_then(Value::as_str);
    let mut factor = 1usize;
    for chain in ["normalizers", "pretokenizers", "processors", "decoders"] {
        for step in rule.get(chain).and_then(Value::as_array).into_iter().flatten() {
            factor = factor.saturating_mul(growth(step)?);
        }
    }
    if let (Some(pattern), Some(content)) = (rule.get("pattern"), text("content")) {
        let pattern = pattern.get("String").and_then(Value::as_str).map_or(0, str::len);
        let replaced = match pattern {
            // An expression or nothing at all may be found between any two bytes.
            0 => content.len() + 1,
            length => content.len().div_ceil(length),
        };
        factor = factor.saturating_mul(replaced.max(1));
    }
    // Bytes that are shown as characters of two bytes.
    let byte_level = text("type") == Some("ByteLevel") || rule.get("add_prefix_space").is_some();
    // A space between any two characters.
    let spaces = text("suffix") == Some("") || text("word_delimiter_token") == Some("");
    let doubles = usize::from(byte_level) + usize::from(spaces);
    if let Some(table) = text("precompiled_charsmap") {
        charsmap::check_encoded(FORMAT, table)?;
    }
    Ok(factor.saturating_mul(1 << doubles).saturating_mul(repeats(rule.get("single"))))
}

/// How often a template of the ends has the text itself; whatever is no token counts as that.
fn repeats(template: Option<&Value>) -> usize {
    let count = match template {
        Some(Value::Array(pieces)) => {
            pieces.iter().filter(|piece| piece.get("SpecialToken").is_none()).count()
        }
        Some(Value::String(pieces)) => pieces.split_whitespace().count(),
        _ => 1,
    };
    count.max(1)
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
