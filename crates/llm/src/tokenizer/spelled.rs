//! A tokenizer whose rules are ours: a vocabulary, the special tokens it looks for, and how the rest is cut.

use super::bpe::{Alphabet, Bpe};
use super::sentences::Sentences;
use super::specials::{Part, Specials};
use super::vocabulary::{Kind, Vocabulary, byte_level_bytes, byte_of};
use super::wordpiece::WordPiece;
use super::{EndTokens, Model, TokenizerError};
use std::ops::Range;

/// Vocabularies of GGUF, SentencePiece, tiktoken and tekken files.
#[derive(Debug)]
pub(super) struct Spelled {
    pub(super) vocabulary: Vocabulary,
    pub(super) specials: Specials,
    pub(super) rules: Rules,
    pub(super) ends: EndTokens,
    /// Added to every id of the vocabulary, for formats whose special tokens come first.
    pub(super) added_first: Vec<Box<str>>,
}

/// How text between special tokens becomes ids.
#[derive(Debug)]
pub(super) enum Rules {
    Bpe(Bpe),
    Sentences(Box<Sentences>),
    WordPiece(WordPiece),
}

impl Spelled {
    fn offset(&self) -> u32 {
        // The number of tokens was checked when they were read.
        self.added_first.len() as u32
    }

    /// The id inside the vocabulary.
    fn inner(&self, id: u32) -> Option<u32> {
        id.checked_sub(self.offset())
    }

    fn added(&self, id: u32) -> Option<&str> {
        self.added_first.get(id as usize).map(|token| &**token)
    }

    /// The ids of a text that was cut at its special tokens.
    fn ids_of(&self, parts: Vec<Part<'_>>) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        let mut after_special = true;
        for part in parts {
            match part {
                Part::Token(id, _) => ids.push(id),
                Part::Text(text) => match &self.rules {
                    Rules::Bpe(bpe) => bpe.encode(&self.vocabulary, text, &mut ids)?,
                    Rules::Sentences(rules) => {
                        rules.encode(&self.vocabulary, text, after_special, &mut ids)?
                    }
                    Rules::WordPiece(rules) => rules.encode(&self.vocabulary, text, &mut ids)?,
                },
            }
            after_special = matches!(part, Part::Token(..));
        }
        let offset = self.offset();
        if offset > 0 {
            ids.iter_mut().for_each(|id| *id += offset);
        }
        Ok(ids)
    }
}

impl Model for Spelled {
    fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.ids_of(self.specials.cut(text))
    }

    fn encode_heard(&self, text: &str, heard: &[Range<usize>]) -> Result<Vec<u32>, TokenizerError> {
        self.ids_of(self.specials.cut_heard(text, heard))
    }

    fn decode(&self, ids: &[u32]) -> String {
        if let Rules::Sentences(rules) = &self.rules {
            return rules.decode(&self.vocabulary, ids);
        }
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend(self.piece(id, bytes.is_empty()).unwrap_or_default());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn piece(&self, id: u32, first: bool) -> Option<Vec<u8>> {
        if let Some(added) = self.added(id) {
            return Some(added.as_bytes().to_vec());
        }
        let id = self.inner(id)?;
        let (token, kind) = (self.vocabulary.token(id)?, self.vocabulary.kind(id)?);
        match &self.rules {
            Rules::Sentences(rules) => Some(rules.piece(token, kind, first)),
            _ if matches!(kind, Kind::Control | Kind::UserDefined | Kind::Unknown) => Some(token.to_vec()),
            Rules::Bpe(bpe) => Some(match bpe.alphabet {
                Alphabet::Bytes => token.to_vec(),
                Alphabet::ByteLevel => {
                    let bytes = std::str::from_utf8(token).ok().and_then(byte_level_bytes);
                    bytes.unwrap_or_else(|| token.to_vec())
                }
                Alphabet::Characters => match byte_of(token) {
                    Some(byte) => vec![byte],
                    None => String::from_utf8_lossy(token).replace('\u{2581}', " ").into_bytes(),
                },
            }),
            Rules::WordPiece(_) => {
                let text = String::from_utf8_lossy(token).replace('\u{2581}', " ");
                Some(if first { text.trim_start().as_bytes().to_vec() } else { text.into_bytes() })
            }
        }
    }

    fn spelling(&self, id: u32) -> Option<String> {
        if let Some(added) = self.added(id) {
            return Some(added.to_owned());
        }
        self.vocabulary.token(self.inner(id)?).map(|token| String::from_utf8_lossy(token).into_owned())
    }

    fn id_of(&self, token: &str) -> Option<u32> {
        let added = self.added_first.iter().position(|added| **added == *token).map(|at| at as u32);
        added.or_else(|| Some(self.vocabulary.id(token.as_bytes())? + self.offset()))
    }

    fn is_special(&self, id: u32) -> bool {
        let kind = self.inner(id).and_then(|id| self.vocabulary.kind(id));
        self.added(id).is_some() || matches!(kind, Some(Kind::Control | Kind::Unknown))
    }

    fn vocab_size(&self) -> usize {
        self.vocabulary.len() + self.added_first.len()
    }

    fn own_ends(&self) -> EndTokens {
        self.ends
    }
}
