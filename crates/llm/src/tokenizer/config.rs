//! What a tokenizer file does not say itself: its format, the ends to add, the names that templates use for tokens.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The kinds of tokenizer file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TokenizerFormat {
    /// `tokenizer.json` of Hugging Face's `tokenizers`.
    #[serde(rename = "tokenizer.json")]
    TokenizerJson,
    /// A SentencePiece model.
    #[serde(rename = "sentencepiece")]
    SentencePiece,
    /// Lines of base64 token and rank; pattern and special tokens come from the [`TokenizerConfig`].
    #[serde(rename = "tiktoken")]
    Tiktoken,
    /// Mistral's `tekken.json`.
    #[serde(rename = "tekken")]
    Tekken,
    /// A GGUF file, of which only the metadata is read.
    #[serde(rename = "gguf")]
    Gguf,
}

impl TokenizerFormat {
    /// The name, as programs carry it.
    pub fn name(self) -> &'static str {
        match self {
            TokenizerFormat::TokenizerJson => "tokenizer.json",
            TokenizerFormat::SentencePiece => "sentencepiece",
            TokenizerFormat::Tiktoken => "tiktoken",
            TokenizerFormat::Tekken => "tekken",
            TokenizerFormat::Gguf => "gguf",
        }
    }
}

impl fmt::Display for TokenizerFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TokenizerFormat {
    type Err = super::TokenizerError;

    fn from_str(name: &str) -> Result<TokenizerFormat, Self::Err> {
        use TokenizerFormat::{Gguf, SentencePiece, Tekken, Tiktoken, TokenizerJson};
        [TokenizerJson, SentencePiece, Tiktoken, Tekken, Gguf]
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| super::TokenizerError::UnknownFormat { name: name.chars().take(40).collect() })
    }
}

/// What travels beside a tokenizer file, in programs as `pteron.tokenizer.config`.
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
    /// Reads what Hugging Face's `tokenizer_config.json` says; entries of another shape are passed over, as its own
    /// readers do.
    pub fn from_hugging_face(config: &Value) -> TokenizerConfig {
        let flag = |name: &str| config.get(name).and_then(Value::as_bool);
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            other => other.get("content")?.as_str().map(str::to_owned),
        };
        let names =
            ["bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token"];
        let token = |name: &str| Some((name.to_owned(), text(config.get(name)?)?));
        TokenizerConfig {
            add_bos: flag("add_bos_token"),
            add_eos: flag("add_eos_token"),
            tokens: names.into_iter().filter_map(token).collect(),
            ..TokenizerConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hugging_face_names_tokens_as_text_or_as_object() {
        let config = json!({
            "add_bos_token": true, "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>",
            "pad_token": null, "model_max_length": 1e30,
        });
        let config = TokenizerConfig::from_hugging_face(&config);
        assert_eq!((config.add_bos, config.add_eos), (Some(true), None));
        let tokens: Vec<_> =
            config.tokens.iter().map(|(name, token)| (name.as_str(), token.as_str())).collect();
        assert_eq!(tokens, [("bos_token", "<s>"), ("eos_token", "</s>")]);
    }

    #[test]
    fn formats_are_found_by_their_names() {
        assert_eq!("tekken".parse::<TokenizerFormat>().ok(), Some(TokenizerFormat::Tekken));
        assert!("bytes".parse::<TokenizerFormat>().is_err());
        let json = serde_json::to_string(&TokenizerFormat::TokenizerJson).unwrap();
        assert_eq!(json, "\"tokenizer.json\"");
    }
}
