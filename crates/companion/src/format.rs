//! The kinds of tokenizer file, by name, by file name and by their first bytes.

use serde::{Deserialize, Serialize};
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
    /// Lines of base64 token and rank; pattern and special tokens come from the [`TokenizerConfig`](crate::TokenizerConfig).
    #[serde(rename = "tiktoken")]
    Tiktoken,
    /// Mistral's `tekken.json`.
    #[serde(rename = "tekken")]
    Tekken,
    /// A GGUF file, of which only the metadata is read.
    #[serde(rename = "gguf")]
    Gguf,
}

/// A name that no format has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat {
    /// The beginning of what was given.
    pub name: String,
}

impl TokenizerFormat {
    /// All of them.
    pub const ALL: [TokenizerFormat; 5] = [
        TokenizerFormat::TokenizerJson,
        TokenizerFormat::SentencePiece,
        TokenizerFormat::Tiktoken,
        TokenizerFormat::Tekken,
        TokenizerFormat::Gguf,
    ];

    /// The file names under which models are published with a tokenizer, the most exact format first.
    pub const FILE_NAMES: [&str; 6] = [
        "tokenizer.json",
        "tekken.json",
        "tokenizer.model",
        "spiece.model",
        "tokenizer.tiktoken",
        "qwen.tiktoken",
    ];

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

    /// Which format a file has, told by its bytes: file names do not tell, since Llama 3's own files give tiktoken's ranks
    /// the name of a SentencePiece model.
    pub fn guess(bytes: &[u8]) -> Option<TokenizerFormat> {
        let start = bytes.trim_ascii_start();
        if bytes.starts_with(b"GGUF") {
            return Some(TokenizerFormat::Gguf);
        }
        if start.first() == Some(&b'{') {
            // `token_bytes` is how a tekken file spells its tokens; a vocabulary that has it as a word quotes it as
            // a key of another object, after `"model"`.
            let names = |name: &[u8]| bytes.windows(name.len()).position(|window| window == name);
            return match (names(b"\"token_bytes\""), names(b"\"model\"")) {
                (Some(_), None) => Some(TokenizerFormat::Tekken),
                (Some(tekken), Some(model)) if tekken < model => Some(TokenizerFormat::Tekken),
                _ => Some(TokenizerFormat::TokenizerJson),
            };
        }
        if is_rank(start.split(|&byte| byte == b'\n').next()?) {
            return Some(TokenizerFormat::Tiktoken);
        }
        // Field 1 of the model, a piece with its length: how every SentencePiece model begins.
        (bytes.first() == Some(&0x0a)).then_some(TokenizerFormat::SentencePiece)
    }
}

/// Whether a line is `BASE64 NUMBER`.
fn is_rank(line: &[u8]) -> bool {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let mut words = line.trim_ascii_end().split(|&byte| byte == b' ');
    match (words.next(), words.next(), words.next()) {
        (Some(token), Some(rank), None) => {
            let is_filled = !token.is_empty() && !rank.is_empty();
            is_filled && token.iter().all(is_base64) && rank.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    }
}

impl fmt::Display for TokenizerFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TokenizerFormat {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<TokenizerFormat, UnknownFormat> {
        let unknown = || UnknownFormat { name: name.chars().take(40).collect() };
        TokenizerFormat::ALL.into_iter().find(|format| format.name() == name).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_found_by_their_names() {
        for format in TokenizerFormat::ALL {
            assert_eq!(format.name().parse(), Ok(format));
            assert_eq!(serde_json::to_value(format).unwrap(), format.name());
        }
        assert_eq!("bytes".parse::<TokenizerFormat>(), Err(UnknownFormat { name: "bytes".to_owned() }));
    }

    #[test]
    fn formats_are_told_by_their_bytes() {
        let cases: [(&[u8], Option<TokenizerFormat>); 8] = [
            (b"GGUF\x03\0\0\0", Some(TokenizerFormat::Gguf)),
            (b" {\"version\": \"1.0\", \"model\": {}}", Some(TokenizerFormat::TokenizerJson)),
            (b"{\"vocab\": [{\"token_bytes\": \"IQ==\"}]}", Some(TokenizerFormat::Tekken)),
            (b"{\"model\": {\"vocab\": {\"token_bytes\": 1}}}", Some(TokenizerFormat::TokenizerJson)),
            (b"IQ== 0\r\nIg== 1\n", Some(TokenizerFormat::Tiktoken)),
            (b"\x0a\x09\x0a\x05<unk>", Some(TokenizerFormat::SentencePiece)),
            (b"once upon a time", None),
            (b"", None),
        ];
        for (bytes, format) in cases {
            assert_eq!(TokenizerFormat::guess(bytes), format, "{}", bytes.escape_ascii());
        }
    }
}
