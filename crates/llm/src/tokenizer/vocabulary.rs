//! Tokens by id and ids by token, for the formats that are read here and not by a library.

use super::{MAX_TOKENS, TokenizerError, check_limit};
use std::collections::HashMap;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text.
    Normal,
    /// Stands for what has no token.
    Unknown,
    /// Marks structure; no text spells it.
    Control,
    /// Text that is one token wherever it occurs.
    UserDefined,
    /// Kept for its id alone.
    Unused,
    /// One byte of a character that has no token.
    Byte,
}

/// The tokens of a vocabulary, spelled in bytes.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    tokens: Vec<(Box<[u8]>, Kind)>,
    ids: HashMap<Box<[u8]>, u32>,
    bytes: Option<Box<[u32; 256]>>,
}

impl Vocabulary {
    /// A vocabulary whose ids are the places of its tokens. Where a token comes twice, the first has its name.
    pub(super) fn new(tokens: Vec<(Box<[u8]>, Kind)>) -> Result<Vocabulary, TokenizerError> {
        check_limit("the number of tokens", tokens.len(), MAX_TOKENS)?;
        let mut ids = HashMap::with_capacity(tokens.len());
        for ((token, _), id) in tokens.iter().zip(0u32..) {
            ids.entry(token.clone()).or_insert(id);
        }
        let mut vocabulary = Vocabulary { tokens, ids, bytes: None };
        let byte = |byte: usize| vocabulary.id(format!("<0x{byte:02X}>").as_bytes());
        let mut bytes = Box::new([0; 256]);
        let complete =
            bytes.iter_mut().enumerate().all(|(value, id)| byte(value).map(|found| *id = found).is_some());
        vocabulary.bytes = complete.then_some(bytes);
        Ok(vocabulary)
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(super) fn id(&self, token: &[u8]) -> Option<u32> {
        self.ids.get(token).copied()
    }

    /// The id of a token that text can become: what marks structure is found before the rules see a text, or not at all.
    pub(super) fn text_id(&self, token: &[u8]) -> Option<u32> {
        let id = self.id(token)?;
        (!matches!(self.kind(id), Some(Kind::Control | Kind::Unknown))).then_some(id)
    }

    pub(super) fn token(&self, id: u32) -> Option<&[u8]> {
        self.tokens.get(id as usize).map(|(token, _)| &**token)
    }

    pub(super) fn kind(&self, id: u32) -> Option<Kind> {
        self.tokens.get(id as usize).map(|(_, kind)| *kind)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &[u8], Kind)> {
        self.tokens.iter().zip(0..).map(|((token, kind), id)| (id, &**token, *kind))
    }

    /// The tokens of the 256 bytes, where the vocabulary has all of them.
    pub(super) fn byte_tokens(&self) -> Option<&[u32; 256]> {
        self.bytes.as_deref()
    }
}

/// The byte that a token such as `<0x0A>` stands for.
pub(super) fn byte_of(token: &[u8]) -> Option<u8> {
    let digits = token.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

/// The character by which byte-level vocabularies show a byte: itself where it can be seen, else one from U+0100 on.
pub(super) fn byte_level_char(byte: u8) -> char {
    let shown = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if shown(byte) {
        return char::from(byte);
    }
    let hidden_before = (0..byte).filter(|byte| !shown(*byte)).count() as u32;
    char::from_u32(0x100 + hidden_before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The bytes that a token of a byte-level vocabulary stands for; none where it has a character that is no byte's.
pub(super) fn byte_level_bytes(token: &str) -> Option<Vec<u8>> {
    use std::sync::LazyLock;
    static BYTES: LazyLock<HashMap<char, u8>> =
        LazyLock::new(|| (0..=u8::MAX).map(|byte| (byte_level_char(byte), byte)).collect());
    token.chars().map(|c| BYTES.get(&c).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_level_characters_are_those_of_gpt_2() {
        assert_eq!(byte_level_char(b' '), '\u{120}');
        assert_eq!(byte_level_char(b'\n'), '\u{10a}');
        assert_eq!(byte_level_char(0xad), '\u{143}');
        let all: String = (0..=u8::MAX).map(byte_level_char).collect();
        assert_eq!(byte_level_bytes(&all), Some((0..=u8::MAX).collect()));
        assert_eq!(byte_level_bytes("\u{2581}"), None);
    }
}
