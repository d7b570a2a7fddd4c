//! WordPiece as GGUF files of BERT models have it: the longest token that fits, word by word.

use super::TokenizerError;
use super::vocabulary::Vocabulary;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

#[derive(Debug)]
pub(super) struct WordPiece {
    pub(super) unknown: Option<u32>,
    /// The longest token in bytes.
    pub(super) longest: usize,
}

/// Words longer than this are unknown, as in BERT's own rules.
const MAX_WORD_BYTES: usize = 4096;

impl WordPiece {
    pub(super) fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        for word in words(text) {
            // Tokens at the start of a word are marked, those inside are not.
            let word = format!("\u{2581}{word}");
            let found = ids.len();
            let mut start = 0;
            while start < word.len() && word.len() <= MAX_WORD_BYTES {
                let longest = word.len().min(start + self.longest);
                let ends = (start + 1..=longest).rev().filter(|end| word.is_char_boundary(*end));
                let token = ends
                    .into_iter()
                    .find_map(|end| Some((vocabulary.text_id(&word.as_bytes()[start..end])?, end)));
                let Some((id, end)) = token else { break };
                ids.push(id);
                start = end;
            }
            if start < word.len() {
                ids.truncate(found);
                match self.unknown {
                    Some(unknown) => ids.push(unknown),
                    None => {
                        return Err(TokenizerError::NoToken {
                            piece: word.chars().skip(1).take(20).collect(),
                        });
                    }
                }
            }
        }
        Ok(())
    }
}

/// Words without accents and in small letters, punctuation and Chinese characters each on their own.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut last_is_open = true;
    for c in text.nfd() {
        if c.is_whitespace() {
            last_is_open = false;
            continue;
        }
        if c == '\0' || c == char::REPLACEMENT_CHARACTER || c.is_control() || is_combining_mark(c) {
            continue;
        }
        let alone = is_punctuation(c) || is_chinese(c);
        if alone || !last_is_open {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
        last_is_open = !alone;
    }
    words.retain(|word| !word.is_empty());
    words
}

fn is_punctuation(c: char) -> bool {
    use std::sync::LazyLock;
    static PUNCTUATION: LazyLock<Option<fancy_regex::Regex>> =
        LazyLock::new(|| fancy_regex::Regex::new(r"^\p{P}$").ok());
    if c.is_ascii() {
        return c.is_ascii_punctuation();
    }
    let pattern = PUNCTUATION.as_ref();
    pattern.is_some_and(|pattern| pattern.is_match(c.encode_utf8(&mut [0; 4])).unwrap_or(false))
}

fn is_chinese(c: char) -> bool {
    matches!(u32::from(c),
        0x4e00..=0x9fff | 0x3400..=0x4dbf | 0x20000..=0x2a6df | 0x2a700..=0x2b73f | 0x2b740..=0x2b81f
        | 0x2b920..=0x2ceaf | 0xf900..=0xfaff | 0x2f800..=0x2fa1f)
}
