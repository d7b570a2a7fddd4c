//! What a tokenizer file does not say itself: the ends to add, the names that templates use for tokens.

use crate::TokenizerFormat;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The roles that Hugging Face's files give to tokens.
const ROLES: [&str; 7] =
    ["bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token"];

/// What travels beside a tokenizer file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenizerConfig {
    /// Whether encoding puts BOS in front; without a word, the file decides.
    pub add_bos: Option<bool>,
    /// Whether encoding puts EOS behind; without a word, the file decides.
    pub add_eos: Option<bool>,
    /// Tokens by the names that chat templates use: `bos_token`, `eos_token`, `pad_token`, `unk_token`.
    pub tokens: BTreeMap<String, String>,
    /// How a tiktoken vocabulary cuts texts into words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Special tokens of a tiktoken vocabulary.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub special_tokens: BTreeMap<String, u32>,
}

impl TokenizerConfig {
    /// Reads what Hugging Face's `tokenizer_config.json` says, and for tokens that it does not name,
    /// `special_tokens_map.json`. Entries of another shape are passed over, as its own readers do. Only tiktoken's files need
    /// a pattern and special tokens from outside; the other formats hold their own.
    pub fn from_hugging_face(
        format: TokenizerFormat,
        config: &Value,
        special_tokens: &Value,
    ) -> TokenizerConfig {
        let flag = |name: &str| config.get(name).and_then(Value::as_bool);
        let token = |role: &str| {
            let named = [config, special_tokens].into_iter().find_map(|file| text_of(file.get(role)?));
            Some((role.to_owned(), named?))
        };
        let mut read = TokenizerConfig {
            add_bos: flag("add_bos_token"),
            add_eos: flag("add_eos_token"),
            tokens: ROLES.into_iter().filter_map(token).collect(),
            ..TokenizerConfig::default()
        };
        if format == TokenizerFormat::Tiktoken {
            read.pattern = config.get("pat_str").and_then(Value::as_str).map(str::to_owned);
            read.special_tokens = added_tokens(config);
        }
        read
    }
}

/// A token as text, or as an object with its `content`.
fn text_of(token: &Value) -> Option<String> {
    let text = token.as_str().or_else(|| token.get("content")?.as_str())?;
    Some(text.to_owned())
}

/// `added_tokens_decoder`: texts by id.
fn added_tokens(config: &Value) -> BTreeMap<String, u32> {
    let added = config.get("added_tokens_decoder").and_then(Value::as_object);
    let entries = added.into_iter().flatten();
    entries.filter_map(|(id, token)| Some((text_of(token)?, id.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hugging_face_names_tokens_as_text_or_as_object() {
        let config = json!({
            "add_bos_token": true, "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>",
            "pad_token": null, "model_max_length": 1e30, "added_tokens_decoder": {"7": {"content": "<x>"}, "a": 1},
        });
        let special =
            json!({"bos_token": "<other>", "pad_token": "<pad>", "unk_token": {"content": "<unk>"}});
        let plain = TokenizerConfig::from_hugging_face(TokenizerFormat::TokenizerJson, &config, &special);
        let config = TokenizerConfig::from_hugging_face(TokenizerFormat::Tiktoken, &config, &special);
        assert_eq!((config.add_bos, config.add_eos), (Some(true), None));
        let tokens: Vec<_> =
            config.tokens.iter().map(|(name, token)| (name.as_str(), token.as_str())).collect();
        let wanted =
            [("bos_token", "<s>"), ("eos_token", "</s>"), ("pad_token", "<pad>"), ("unk_token", "<unk>")];
        assert!(
            wanted.iter().all(|pair| tokens.contains(pair)) && tokens.len() == wanted.len(),
            "{tokens:?}"
        );
        assert_eq!(config.special_tokens, BTreeMap::from([("<x>".to_owned(), 7)]));
        assert_eq!(plain, TokenizerConfig { special_tokens: BTreeMap::new(), ..config });
    }
}
