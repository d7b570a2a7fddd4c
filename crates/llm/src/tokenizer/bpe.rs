//! Byte-pair encoding over words: by a list of merges, or by the ranks of the tokens themselves.

use super::merge::{Symbol, merge};
use super::split::Splitter;
use super::vocabulary::{Vocabulary, byte_level_char};
use super::{TokenizerError, TokenizerFormat};
use std::collections::HashMap;

/// How words become tokens.
#[derive(Debug)]
pub(super) struct Bpe {
    pub(super) splitter: Splitter,
    pub(super) merges: Merges,
    /// Whether a word that is a token stays one, whatever the merges say.
    pub(super) whole_words: bool,
    pub(super) alphabet: Alphabet,
}

/// What may be merged.
#[derive(Debug)]
pub(super) enum Merges {
    /// Pairs of tokens: rank and the token they give.
    Pairs(HashMap<(u32, u32), (u64, Option<u32>)>),
    /// Whatever gives a token; its id is its rank.
    Ranks,
}

/// What the letters of a word are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alphabet {
    /// Bytes, shown as GPT-2 shows them.
    ByteLevel,
    /// Bytes as they are.
    Bytes,
    /// Characters, with a visible sign for the space; what has no token becomes byte tokens.
    Characters,
}

impl Bpe {
    /// Reads merges as vocabularies list them: two tokens with a space between, the most urgent first.
    pub(super) fn pairs<'m>(
        format: TokenizerFormat,
        vocabulary: &Vocabulary,
        merges: impl Iterator<Item = &'m [u8]>,
    ) -> Result<Merges, TokenizerError> {
        let mut pairs = HashMap::new();
        for (line, rank) in merges.zip(0u64..) {
            // A token may itself begin with a space, so that the first one does not separate.
            let space = line.iter().skip(1).position(|&byte| byte == b' ').map(|at| at + 1);
            let Some(space) = space else {
                return Err(TokenizerError::malformed(format, format_args!("merge {rank} is no pair")));
            };
            let (left, right) = (&line[..space], &line[space + 1..]);
            if let (Some(left_id), Some(right_id)) = (vocabulary.id(left), vocabulary.id(right)) {
                let joined = vocabulary.text_id(&[left, right].concat());
                pairs.entry((left_id, right_id)).or_insert((rank, joined));
            }
        }
        Ok(Merges::Pairs(pairs))
    }

    pub(super) fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let escaped;
        let text = match self.alphabet {
            Alphabet::Characters => {
                escaped = text.replace(' ', "\u{2581}");
                escaped.as_str()
            }
            _ => text,
        };
        for word in self.splitter.words(text)? {
            match self.alphabet {
                Alphabet::ByteLevel => {
                    let shown: String = word.bytes().map(byte_level_char).collect();
                    self.word(vocabulary, shown.as_bytes(), ids);
                }
                _ => self.word(vocabulary, word.as_bytes(), ids),
            }
        }
        Ok(())
    }

    fn word(&self, vocabulary: &Vocabulary, word: &[u8], ids: &mut Vec<u32>) {
        let newlines = self.alphabet == Alphabet::Characters && word.iter().all(|&byte| byte == b'\n');
        let stays_whole = self.whole_words || newlines || matches!(self.merges, Merges::Ranks);
        if let Some(id) = vocabulary.text_id(word).filter(|_| stays_whole) {
            ids.push(id);
            return;
        }
        let rule = |left: &Symbol, right: &Symbol| match &self.merges {
            Merges::Pairs(pairs) => pairs.get(&(left.id?, right.id?)).copied(),
            Merges::Ranks => {
                vocabulary.text_id(&word[left.start..right.end]).map(|id| (u64::from(id), Some(id)))
            }
        };
        for symbol in merge(self.letters(vocabulary, word), rule) {
            match (symbol.id, vocabulary.byte_tokens()) {
                (Some(id), _) => ids.push(id),
                // What has no token at all is left out, as llama.cpp does.
                (None, Some(bytes)) if self.alphabet == Alphabet::Characters => {
                    ids.extend(word[symbol.start..symbol.end].iter().map(|&byte| bytes[usize::from(byte)]));
                }
                (None, _) => {}
            }
        }
    }

    fn letters(&self, vocabulary: &Vocabulary, word: &[u8]) -> Vec<Symbol> {
        let is_start = |index: usize| self.alphabet == Alphabet::Bytes || (word[index] & 0xc0) != 0x80;
        let starts: Vec<usize> = (0..word.len()).filter(|index| is_start(*index)).collect();
        let ends = starts.iter().skip(1).copied().chain([word.len()]);
        starts
            .iter()
            .copied()
            .zip(ends)
            .map(|(start, end)| Symbol::new(start, end, vocabulary.text_id(&word[start..end])))
            .collect()
    }
}
