//! Whisper's two vocabularies, each a few bytes a token (`make_vocabularies.py`), as the files that tiktoken reads.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pteron_companion::{TokenizerConfig, TokenizerFormat, WhisperTokens};

use crate::TokenizerData;

const ENGLISH: &[u8] = include_bytes!("english.pairs");
const MULTILINGUAL: &[u8] = include_bytes!("multilingual.pairs");
/// How GPT-2 cuts texts into words.
const PATTERN: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The tokenizer of a published model.
pub(super) fn tokenizer(tokens: &WhisperTokens) -> TokenizerData {
    let pairs = if tokens.languages.is_empty() { ENGLISH } else { MULTILINGUAL };
    let spelled = spelled(pairs);
    let lines = spelled.iter().enumerate().filter(|(_, token)| !token.is_empty());
    let file: String = lines.map(|(id, token)| format!("{} {id}\n", STANDARD.encode(token))).collect();
    let marks = [
        ("<|endoftext|>", tokens.end),
        ("<|startoftranscript|>", tokens.start),
        ("<|translate|>", tokens.translate),
        ("<|transcribe|>", tokens.transcribe),
        ("<|startofprev|>", tokens.previous),
        ("<|nospeech|>", tokens.no_speech),
        ("<|notimestamps|>", tokens.no_times),
    ];
    let mut special: BTreeMap<String, u32> = marks.map(|(name, id)| (name.to_owned(), id)).into();
    for (code, id) in tokens.languages.iter().zip(tokens.start + 1..) {
        special.insert(format!("<|{code}|>"), id);
    }
    let config = TokenizerConfig {
        pattern: Some(PATTERN.to_owned()),
        special_tokens: special,
        ..TokenizerConfig::default()
    };
    TokenizerData { format: TokenizerFormat::Tiktoken, bytes: file.into_bytes(), config }
}

/// The bytes of each token; none of an id that is not used.
fn spelled(pairs: &[u8]) -> Vec<Vec<u8>> {
    let (bytes, joined) = pairs.split_at(256);
    let mut tokens: Vec<Vec<u8>> = bytes.iter().map(|&byte| vec![byte]).collect();
    for [a, b, c, d] in joined.as_chunks::<4>().0 {
        let part = |low: u8, high: u8| tokens.get(usize::from(u16::from_le_bytes([low, high])));
        let token = match (part(*a, *b), part(*c, *d)) {
            (Some(first), Some(second)) => [&first[..], second].concat(),
            _ => Vec::new(),
        };
        tokens.push(token);
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vocabularies_are_whole() {
        for (pairs, count) in [(ENGLISH, 50_256), (MULTILINGUAL, 50_256)] {
            let tokens = spelled(pairs);
            let used: Vec<_> = tokens.iter().filter(|token| !token.is_empty()).collect();
            assert_eq!(used.len(), count);
            let different: std::collections::HashSet<_> = used.iter().collect();
            assert_eq!(different.len(), count);
        }
        // Tokens that the published files name.
        let english = spelled(ENGLISH);
        assert_eq!(
            (&english[220][..], &english[262][..], &english[50_255][..]),
            (&b" "[..], &b" the"[..], &b" gazed"[..])
        );
        assert_eq!(spelled(MULTILINGUAL)[50_255], "场".as_bytes());
    }
}
