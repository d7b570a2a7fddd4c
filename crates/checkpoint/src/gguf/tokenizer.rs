//! The tokenizer and the chat templates inside a GGUF file.

use std::collections::BTreeMap;

use pteron_gguf::{Gguf, GgufError, Metadata, Writer};

use crate::{ChatTemplates, TokenizerData};
use pteron_companion::{TokenizerConfig, TokenizerFormat};

const TEMPLATE: &str = "tokenizer.chat_template";

/// The tokenizer's keys as a file of their own; nothing where the file has none. Chat templates travel by themselves.
pub(super) fn extract(file: &Gguf) -> Result<Option<TokenizerData>, GgufError> {
    let metadata = file.metadata();
    if metadata.get("tokenizer.ggml.tokens").is_none() {
        return Ok(None);
    }
    let mut writer = Writer::new();
    for (key, value) in metadata.iter() {
        let belongs = key == "general.architecture" || key.starts_with("tokenizer.");
        if belongs && !key.starts_with(TEMPLATE) {
            writer.put(key, value)?;
        }
    }
    let config = TokenizerConfig {
        add_bos: metadata.boolean("tokenizer.ggml.add_bos_token")?,
        add_eos: metadata.boolean("tokenizer.ggml.add_eos_token")?,
        tokens: special_tokens(metadata)?,
        ..TokenizerConfig::default()
    };
    Ok(Some(TokenizerData { format: TokenizerFormat::Gguf, bytes: writer.finish(), config }))
}

/// Texts of special tokens by role.
fn special_tokens(metadata: Metadata<'_>) -> Result<BTreeMap<String, String>, GgufError> {
    let roles =
        [("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding"), ("unk_token", "unknown")];
    let mut tokens = BTreeMap::new();
    for (role, key) in roles {
        let Some(id) = token_id(metadata, key)? else { continue };
        let vocabulary = metadata.array("tokenizer.ggml.tokens")?;
        let text = vocabulary.and_then(|list| list.strings()?.nth(id as usize));
        if let Some(text) = text {
            tokens.insert(role.to_owned(), String::from_utf8_lossy(text).into_owned());
        }
    }
    Ok(tokens)
}

/// The id of a special token; nothing where the file has none, also when it says so by a number beyond all ids.
pub(super) fn token_id(metadata: Metadata<'_>, role: &str) -> Result<Option<u32>, GgufError> {
    let id = metadata.integer(&format!("tokenizer.ggml.{role}_token_id"))?;
    Ok(id.and_then(|id| u32::try_from(id).ok()).filter(|&id| id != u32::MAX))
}

/// Texts that end a turn wherever they are special tokens. Files name one end of text; chats end by one of these.
const TURN_ENDS: [&[u8]; 6] =
    [b"<|im_end|>", b"<|eot_id|>", b"<|end|>", b"<end_of_turn>", b"<|end_of_turn|>", b"<turn|>"];

/// Token types of control tokens and of those that a model's makers added.
const SPECIAL_TYPES: [i64; 2] = [3, 4];

/// The ids that end a text or a turn: those that the file names, and special tokens that are known to.
pub(super) fn ends(metadata: Metadata<'_>) -> Result<Vec<u32>, GgufError> {
    let mut ends = Vec::new();
    for role in ["eos", "eot", "eom"] {
        ends.extend(token_id(metadata, role)?.filter(|id| !ends.contains(id)));
    }
    let (tokens, types) =
        (metadata.array("tokenizer.ggml.tokens")?, metadata.array("tokenizer.ggml.token_type")?);
    let strings = tokens.and_then(|tokens| tokens.strings());
    let kinds = types.and_then(|types| types.integers());
    if let (Some(strings), Some(kinds)) = (strings, kinds) {
        for ((text, kind), id) in strings.zip(kinds).zip(0u32..) {
            if SPECIAL_TYPES.contains(&kind) && TURN_ENDS.contains(&text) && !ends.contains(&id) {
                ends.push(id);
            }
        }
    }
    Ok(ends)
}

/// All templates of the file.
pub(super) fn chat_templates(file: &Gguf) -> ChatTemplates {
    let metadata = file.metadata();
    let template = |key: &str| metadata.get(key).and_then(|value| value.as_str()).map(str::to_owned);
    let named = metadata.iter().filter_map(|(key, value)| {
        let name = key.strip_prefix(TEMPLATE)?.strip_prefix('.')?;
        Some((name.to_owned(), value.as_str()?.to_owned()))
    });
    ChatTemplates { default: template(TEMPLATE), named: named.collect() }
}
