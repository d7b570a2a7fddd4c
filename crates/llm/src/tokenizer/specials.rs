//! Special tokens that a text spells: found before anything else is done with the text.
//!
//! Tokens that mark structure count only where the text was not heard, that is, where no user, file or tool wrote it.
//! Tokens that stand for text, such as runs of spaces, are found everywhere.

use super::{TokenizerError, TokenizerFormat};
use aho_corasick::{AhoCorasick, MatchKind};
use std::ops::Range;

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'t> {
    Text(&'t str),
    /// A token, and how the text spells it.
    Token(u32, &'t str),
}

/// What a token that is looked for is to a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Marks structure: turns, ends, padding.
    Mark,
    /// Stands for text.
    Text,
}

/// The tokens that are looked for.
#[derive(Debug)]
pub(super) struct Specials {
    all: Finder,
    marks: Finder,
    texts: Finder,
}

#[derive(Debug)]
struct Finder {
    automaton: Option<AhoCorasick>,
    ids: Vec<u32>,
}

impl Specials {
    pub(super) fn new<'v>(
        format: TokenizerFormat,
        tokens: impl Iterator<Item = (&'v [u8], u32, Role)>,
    ) -> Result<Specials, TokenizerError> {
        let tokens: Vec<_> = tokens.filter(|(token, ..)| !token.is_empty()).collect();
        let of = |wanted: Role| {
            let chosen = tokens.iter().filter(|(.., role)| *role == wanted);
            Finder::new(format, chosen.map(|(token, id, _)| (*token, *id)))
        };
        let all = Finder::new(format, tokens.iter().map(|(token, id, _)| (*token, *id)))?;
        Ok(Specials { all, marks: of(Role::Mark)?, texts: of(Role::Text)? })
    }

    /// The text cut at its special tokens, the longest first where several begin at one place.
    pub(super) fn cut<'t>(&self, text: &'t str) -> Vec<Part<'t>> {
        let mut parts = Vec::new();
        cut_at(text, self.all.find(text, 0), parts_of, &mut parts);
        parts
    }

    /// The same, but a mark that was heard, or a part of it, is text.
    pub(super) fn cut_heard<'t>(&self, text: &'t str, heard: &[Range<usize>]) -> Vec<Part<'t>> {
        if !self.heard_spells_marks(text, heard) {
            return self.cut(text);
        }
        let mut parts = Vec::new();
        let inner = |between: &'t str| {
            let mut parts = Vec::new();
            cut_at(between, self.texts.find(between, 0), parts_of, &mut parts);
            parts
        };
        cut_at(text, self.marks_outside(text, heard), inner, &mut parts);
        parts
    }

    /// Whether a mark is spelled by what was heard, wholly or in part.
    pub(super) fn heard_spells_marks(&self, text: &str, heard: &[Range<usize>]) -> bool {
        !heard.is_empty() && self.marks.find(text, 0).any(|(_, range)| touches(heard, &range))
    }

    /// The marks that the text spells where it was not heard, in order.
    pub(super) fn marks_outside(
        &self,
        text: &str,
        heard: &[Range<usize>],
    ) -> impl Iterator<Item = (u32, Range<usize>)> {
        let starts = std::iter::once(0).chain(heard.iter().map(|part| part.end));
        let ends = heard.iter().map(|part| part.start).chain([text.len()]);
        let runs = starts.zip(ends).filter(|(start, end)| start < end);
        runs.flat_map(|(start, end)| self.marks.find(text.get(start..end).unwrap_or(""), start))
    }
}

impl Finder {
    fn new<'v>(
        format: TokenizerFormat,
        tokens: impl Iterator<Item = (&'v [u8], u32)>,
    ) -> Result<Finder, TokenizerError> {
        let (spellings, ids): (Vec<&[u8]>, Vec<u32>) = tokens.unzip();
        if ids.is_empty() {
            return Ok(Finder { automaton: None, ids });
        }
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&spellings);
        let automaton = automaton.map_err(|error| TokenizerError::malformed(format, error))?;
        Ok(Finder { automaton: Some(automaton), ids })
    }

    /// Tokens in order, none of which overlap; `offset` is added to their places.
    fn find<'t>(
        &self,
        text: &'t str,
        offset: usize,
    ) -> impl Iterator<Item = (u32, Range<usize>)> + use<'_, 't> {
        let found = self.automaton.iter().flat_map(move |automaton| automaton.find_iter(text));
        // A token that is not UTF-8 cannot be part of a text, but may seem to be.
        let found = found.filter(move |found| text.get(found.range()).is_some());
        found.map(move |found| {
            let range = found.range();
            (self.ids[found.pattern().as_usize()], range.start + offset..range.end + offset)
        })
    }
}

/// Cuts a text at tokens; `inner` cuts what lies between them.
fn cut_at<'t>(
    text: &'t str,
    tokens: impl Iterator<Item = (u32, Range<usize>)>,
    inner: impl Fn(&'t str) -> Vec<Part<'t>>,
    parts: &mut Vec<Part<'t>>,
) {
    let mut done = 0;
    for (id, range) in tokens {
        parts.extend(inner(&text[done..range.start]));
        parts.push(Part::Token(id, &text[range.clone()]));
        done = range.end;
    }
    parts.extend(inner(&text[done..]));
}

fn parts_of(text: &str) -> Vec<Part<'_>> {
    if text.is_empty() { Vec::new() } else { vec![Part::Text(text)] }
}

/// Whether a range shares bytes with one of several, which are in order.
fn touches(heard: &[Range<usize>], range: &Range<usize>) -> bool {
    let next = heard.partition_point(|part| part.end <= range.start);
    heard.get(next).is_some_and(|part| part.start < range.end)
}
