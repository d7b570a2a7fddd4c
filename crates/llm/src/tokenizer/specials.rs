//! Special tokens that a text spells: found before anything else is done with the text.

use super::{TokenizerError, TokenizerFormat};
use aho_corasick::{AhoCorasick, MatchKind};

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'t> {
    Text(&'t str),
    /// A token, and how the text spells it.
    Token(u32, &'t str),
}

/// The tokens that are looked for.
#[derive(Debug)]
pub(super) struct Specials {
    finder: Option<AhoCorasick>,
    ids: Vec<u32>,
}

impl Specials {
    pub(super) fn new<'v>(
        format: TokenizerFormat,
        tokens: impl Iterator<Item = (&'v [u8], u32)>,
    ) -> Result<Specials, TokenizerError> {
        let (spellings, ids): (Vec<&[u8]>, Vec<u32>) = tokens.filter(|(token, _)| !token.is_empty()).unzip();
        let builder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&spellings);
        let finder = builder.map_err(|error| TokenizerError::malformed(format, error))?;
        Ok(Specials { finder: (!ids.is_empty()).then_some(finder), ids })
    }

    /// The text cut at its special tokens, the longest first where several begin at one place.
    pub(super) fn cut<'t>(&self, text: &'t str) -> Vec<Part<'t>> {
        let mut parts = Vec::new();
        let mut done = 0;
        for found in self.finder.iter().flat_map(|finder| finder.find_iter(text)) {
            // A token that is not UTF-8 cannot be part of a text, but may seem to be.
            let (Some(before), Some(token)) = (text.get(done..found.start()), text.get(found.range())) else {
                continue;
            };
            if !before.is_empty() {
                parts.push(Part::Text(before));
            }
            parts.push(Part::Token(self.ids[found.pattern().as_usize()], token));
            done = found.end();
        }
        if done < text.len() {
            parts.push(Part::Text(&text[done..]));
        }
        parts
    }
}
