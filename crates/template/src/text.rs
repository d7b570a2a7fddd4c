//! Texts that know where their bytes come from: the template itself, or what the caller passed in.
//!
//! A prompt may spell special tokens where the template wrote them, and nowhere else: what a user, a file or a tool
//! wrote is text. Every string of a template therefore carries which of its bytes were heard and not written. Where a
//! filter changes a text so that this cannot be followed, all of the result counts as heard if any of it was.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A string of a template. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Text {
    text: Arc<str>,
    heard: Heard,
}

/// Which bytes came from outside the template.
#[derive(Clone, Debug)]
enum Heard {
    Nothing,
    All,
    /// In order, none empty, none touching the next.
    Parts(Arc<[Range<usize>]>),
}

/// A text in the making.
#[derive(Debug, Default)]
pub(super) struct Written {
    text: String,
    heard: Vec<Range<usize>>,
}

impl Text {
    /// A text of the template itself.
    pub(super) fn own(text: impl Into<Arc<str>>) -> Text {
        Text { text: text.into(), heard: Heard::Nothing }
    }

    /// A text of the caller.
    pub(super) fn heard(text: impl Into<Arc<str>>) -> Text {
        Text { text: text.into(), heard: Heard::All }
    }

    /// What was made of other texts in a way that cannot be followed byte by byte.
    pub(super) fn like(text: impl Into<Arc<str>>, sources: &[&Text]) -> Text {
        if sources.iter().any(|source| source.has_heard()) { Text::heard(text) } else { Text::own(text) }
    }

    pub(super) fn has_heard(&self) -> bool {
        !matches!(self.heard, Heard::Nothing)
    }

    /// The bytes as they are shared with keys of dictionaries.
    pub(super) fn shared(&self) -> &Arc<str> {
        &self.text
    }

    /// What a copy takes: bytes, and where heard parts lie.
    pub(super) fn cost(&self) -> usize {
        let parts = if let Heard::Parts(parts) = &self.heard { parts.len() } else { 0 };
        self.text.len() + parts * size_of::<Range<usize>>()
    }

    /// A part of this very text, such as searching and splitting give.
    pub(super) fn part(&self, part: &str) -> Text {
        let start = (part.as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        if self.text.get(start..start.saturating_add(part.len())).is_none_or(|found| found != part) {
            return Text::like(part, &[self]);
        }
        let mut written = Written::default();
        written.push_range(self, start..start + part.len());
        written.finish()
    }

    /// The heard parts that lie between two places.
    fn heard_within(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let whole = 0..self.text.len();
        let parts = match &self.heard {
            Heard::Nothing => &[][..],
            Heard::All => std::slice::from_ref(&whole),
            Heard::Parts(parts) => parts,
        };
        let first = parts.partition_point(|part| part.end <= range.start);
        let parts = parts[first..].iter().take_while(|part| part.start < range.end);
        let cut = parts.map(|part| part.start.max(range.start)..part.end.min(range.end));
        cut.collect::<Vec<_>>().into_iter()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl Written {
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Text of the template itself.
    pub(super) fn push_own(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub(super) fn push(&mut self, text: &Text) {
        self.push_range(text, 0..text.text.len());
    }

    /// A part of a text; where it ends inside of a character, nothing.
    pub(super) fn push_range(&mut self, text: &Text, range: Range<usize>) {
        let Some(part) = text.text.get(range.clone()) else { return };
        let at = self.text.len();
        self.text.push_str(part);
        for heard in text.heard_within(range.clone()) {
            self.note(at + heard.start - range.start..at + heard.end - range.start);
        }
    }

    /// Says that what was written since `from` shows a text that may have been heard.
    pub(super) fn shows(&mut self, text: &Text, from: usize) {
        if text.has_heard() {
            self.note(from..self.text.len());
        }
    }

    fn note(&mut self, heard: Range<usize>) {
        match self.heard.last_mut() {
            Some(last) if last.end == heard.start => last.end = heard.end,
            _ if heard.is_empty() => {}
            _ => self.heard.push(heard),
        }
    }

    /// The text with its heard parts.
    pub(super) fn into_parts(self) -> (String, Vec<Range<usize>>) {
        (self.text, self.heard)
    }

    pub(super) fn finish(self) -> Text {
        let heard = match self.heard.as_slice() {
            [] => Heard::Nothing,
            [all] if *all == (0..self.text.len()) => Heard::All,
            _ => Heard::Parts(self.heard.into()),
        };
        Text { text: self.text.into(), heard }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &Text) -> Vec<&str> {
        text.heard_within(0..text.len()).map(|part| &text[part]).collect()
    }

    #[test]
    fn joined_and_cut_texts_keep_what_was_heard() {
        let mut written = Written::default();
        written.push_own("<|im_start|>user\n");
        written.push(&Text::heard("h\u{e9}llo "));
        written.push(&Text::heard("you"));
        written.push(&Text::heard(""));
        written.push_own("<|im_end|>");
        let whole = written.finish();
        assert_eq!(shown(&whole), ["h\u{e9}llo you"]);
        let words: Vec<Text> = whole.split(' ').map(|part| whole.part(part)).collect();
        assert_eq!(shown(&words[0]), ["h\u{e9}llo"]);
        assert_eq!(shown(&words[1]), ["you"]);
        assert!(!whole.part(&whole[..4]).has_heard());
        assert!(whole.part("elsewhere").has_heard());
        assert!(matches!(whole.part(&whole[17..20]).heard, Heard::All));
    }
}
