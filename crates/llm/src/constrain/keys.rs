//! Keys that come once. A grammar knows what a key may look like, not which ones an object has already, so that patterns
//! and free keys let one come twice; read back, such an object has fewer entries than were counted.
//!
//! The bytes of a JSON text flow in; out flows which of the tokens that a grammar allows would end a key for the second
//! time, or leave no other way to go on.

use super::{ConstraintError, stopped};
use llguidance::Matcher;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use toktrie::{SimpleVob, TokTrie};

/// How many texts are looked at ahead of a token at most; where that does not tell, a token may come.
const MOST_STEPS: usize = 256;

/// Where in a JSON text its end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Structure,
    Text,
    Escape,
    /// Within `\uXXXX`: digits that are still to come, and what they say so far.
    Unicode(u8, u32),
}

/// An object or a list that is not closed yet.
#[derive(Clone, Debug)]
enum Open {
    List,
    Object {
        used: Arc<BTreeSet<Vec<u8>>>,
        /// Whether the next string is a key.
        at_key: bool,
    },
}

/// The objects that a JSON text is in the middle of, with their keys.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    open: Vec<Open>,
    place: Place,
    /// The key at hand as far as it goes, escapes read.
    key: Vec<u8>,
    /// The first half of a character that is spelled as two escapes.
    half: Option<u32>,
    /// Tokens that have a comma or a quote in them: no others begin or end keys.
    marks: Arc<[u32]>,
}

impl Keys {
    /// At the beginning of a text.
    pub(super) fn new(words: &TokTrie) -> Keys {
        let has_mark = |token: &u32| words.token(*token).iter().any(|byte| matches!(byte, b',' | b'"'));
        let marks = (0..words.vocab_size() as u32).filter(has_mark).collect();
        Keys { open: Vec::new(), place: Place::Structure, key: Vec::new(), half: None, marks }
    }

    /// Goes on by what was said; whether a key has come twice.
    pub(super) fn take(&mut self, bytes: &[u8]) -> bool {
        let mut twice = false;
        for &byte in bytes {
            match (self.place, byte) {
                (Place::Structure, b'"') => {
                    self.place = Place::Text;
                    self.key.clear();
                    self.half = None;
                }
                (Place::Structure, byte) => self.structure(byte),
                (Place::Text, b'"') => {
                    self.place = Place::Structure;
                    twice |= self.close();
                }
                (Place::Text, b'\\') => self.place = Place::Escape,
                (Place::Text, byte) => self.push(&[byte]),
                (Place::Escape, b'u') => self.place = Place::Unicode(4, 0),
                (Place::Escape, byte) => {
                    self.place = Place::Text;
                    self.push(&[unescaped(byte)]);
                }
                (Place::Unicode(left, code), byte) => {
                    let code = code << 4 | char::from(byte).to_digit(16).unwrap_or(0);
                    self.place = if left > 1 { Place::Unicode(left - 1, code) } else { Place::Text };
                    if left == 1 {
                        self.push_unit(code);
                    }
                }
            }
        }
        twice
    }

    fn structure(&mut self, byte: u8) {
        match byte {
            b'{' => self.open.push(Open::Object { used: Arc::default(), at_key: true }),
            b'[' => self.open.push(Open::List),
            b'}' | b']' => drop(self.open.pop()),
            b',' | b':' => {
                if let Some(Open::Object { at_key, .. }) = self.open.last_mut() {
                    *at_key = byte == b',';
                }
            }
            _ => {}
        }
    }

    fn in_key(&self) -> bool {
        matches!(self.open.last(), Some(Open::Object { at_key: true, .. }))
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.in_key() {
            self.half = None;
            self.key.extend(bytes);
        }
    }

    /// A UTF-16 unit that was spelled as an escape; halves that find no other half stand for themselves.
    fn push_unit(&mut self, unit: u32) {
        if !self.in_key() {
            return;
        }
        let joined = self
            .half
            .filter(|_| (0xdc00..0xe000).contains(&unit))
            .and_then(|high| char::from_u32(0x10000 + ((high - 0xd800) << 10) + (unit - 0xdc00)));
        match (joined, char::from_u32(unit)) {
            (Some(joined), _) => {
                // The first half was put down when it came.
                self.key.truncate(self.key.len().saturating_sub(4));
                self.push(joined.encode_utf8(&mut [0; 4]).as_bytes());
            }
            (None, Some(c)) => self.push(c.encode_utf8(&mut [0; 4]).as_bytes()),
            (None, None) => {
                // No text has such a byte, so that it equals nothing but the same half.
                self.push(&[0xff, 0, (unit >> 8) as u8, unit as u8]);
                self.half = Some(unit).filter(|unit| *unit < 0xdc00);
            }
        }
    }

    /// Ends a string; whether it was a key that the object has already.
    fn close(&mut self) -> bool {
        match self.open.last_mut() {
            Some(Open::Object { used, at_key: true }) => {
                !Arc::make_mut(used).insert(std::mem::take(&mut self.key))
            }
            _ => false,
        }
    }

    /// The keys that would be one too many.
    fn used(&self) -> Option<&BTreeSet<Vec<u8>>> {
        match self.open.last() {
            Some(Open::Object { used, at_key: true }) => Some(used).map(|used| &**used),
            _ => None,
        }
    }

    /// Whether a used key begins as the one at hand does.
    fn may_come_twice(&self) -> bool {
        let Some(used) = self.used() else { return false };
        let from = (Bound::Included(self.key.as_slice()), Bound::Unbounded);
        let begins = used.range::<[u8], _>(from).next().is_some_and(|key| key.starts_with(&self.key));
        if self.place == Place::Structure { !used.is_empty() } else { begins }
    }

    /// Takes from what the matcher allows next what would bring a key for the second time, at once or in the end.
    pub(super) fn narrow(&self, allowed: &mut SimpleVob, matcher: &Matcher) -> Result<(), ConstraintError> {
        let has_keys = |open: &Open| matches!(open, Open::Object { used, .. } if !used.is_empty());
        if !self.open.iter().any(has_keys) {
            return Ok(());
        }
        let environment = matcher.tok_env().map_err(|error| stopped(&error))?;
        let words = environment.tok_trie();
        // Within a key every token may go the way of a used one; elsewhere only those that begin the next key.
        let in_key = self.place != Place::Structure && self.in_key();
        let looked_at: Vec<u32> = match in_key {
            true if !self.may_come_twice() => return Ok(()),
            true => self.of_used_keys(allowed, words),
            false => self.marks.iter().copied().filter(|&token| allowed.is_allowed(token)).collect(),
        };
        let mut ahead = Ahead { words, known: BTreeMap::new(), steps: MOST_STEPS };
        for token in looked_at {
            let mut after = self.clone();
            let twice = after.take(words.token(token));
            let text = words.token(token).to_vec();
            if twice || (after.may_come_twice() && !ahead.goes_on(&after, text, token, matcher)) {
                allowed.disallow_token(token);
            }
        }
        match allowed.num_set() {
            0 => Err(ConstraintError::Stopped {
                reason: "every key that the schema allows here has come already".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// The tokens that go the way of a used key, or end one.
    fn of_used_keys(&self, allowed: &SimpleVob, words: &TokTrie) -> Vec<u32> {
        if self.place != Place::Text {
            return allowed.iter().collect();
        }
        let mut follows = [false; 256];
        follows[usize::from(b'\\')] = true;
        let from = (Bound::Included(self.key.as_slice()), Bound::Unbounded);
        let used = self.used().into_iter().flat_map(|used| used.range::<[u8], _>(from));
        for key in used.take_while(|key| key.starts_with(&self.key)) {
            follows[usize::from(key.get(self.key.len()).copied().unwrap_or(b'"'))] = true;
        }
        let goes_along = |token: &u32| {
            let first = words.token(*token).first();
            first.is_some_and(|&byte| follows[usize::from(byte)]) || self.marks.binary_search(token).is_ok()
        };
        allowed.iter().filter(goes_along).collect()
    }
}

/// A look at what may follow. Tokens spell the same text in many ways; each text is looked at once.
struct Ahead<'a> {
    words: &'a TokTrie,
    /// Whether texts can go on to a key that is new.
    known: BTreeMap<Vec<u8>, bool>,
    steps: usize,
}

impl Ahead<'_> {
    /// Whether the text, after a token that `keys` have taken and the matcher has not, can go on to a key that is new.
    /// `text` is all that comes from here on, the token included.
    fn goes_on(&mut self, keys: &Keys, text: Vec<u8>, token: u32, matcher: &Matcher) -> bool {
        if let Some(&known) = self.known.get(&text) {
            return known;
        }
        let Some(left) = self.steps.checked_sub(1) else { return true };
        self.steps = left;
        let found = self.look(keys, &text, token, matcher);
        self.known.insert(text, found);
        found
    }

    fn look(&mut self, keys: &Keys, text: &[u8], token: u32, matcher: &Matcher) -> bool {
        let mut matcher = matcher.clone();
        if !matcher.try_consume_tokens(&[token]).is_ok_and(|taken| taken == 1) {
            return false;
        }
        let Ok(allowed) = matcher.compute_mask_or_eos() else { return false };
        let mut unsure = Vec::new();
        for token in allowed.iter() {
            let mut after = keys.clone();
            match after.take(self.words.token(token)) {
                true => {}
                false if after.may_come_twice() => unsure.push((token, after)),
                false => return true,
            }
        }
        unsure.into_iter().any(|(token, after)| {
            let text = [text, self.words.token(token)].concat();
            self.goes_on(&after, text, token, &matcher)
        })
    }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'f' => 12,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_texts_and_compared_as_they_are_read() {
        let twice = |text: &str| {
            let marks = Arc::from([]);
            let mut keys =
                Keys { open: Vec::new(), place: Place::Structure, key: Vec::new(), half: None, marks };
            keys.take(text.as_bytes())
        };
        for text in [
            r#"{"a": "a", "b": ["a", "a"], "c": {"a": 1}}"#,
            r#"[{"a": 1}, {"a": 2}]"#,
            r#"{"a,\"b": 1, "b": ",\"b\": "}"#,
            r#"{"\ud83d": 1, "\ude00": 2}"#,
        ] {
            assert!(!twice(text), "{text}");
        }
        for text in [
            r#"{"a": 1, "a": 2}"#,
            r#"{"a": {"b": 1}, "c": [{}], "a": 2}"#,
            r#"{"ab": 1, "\u0061b": 2}"#,
            r#"{"😀": 1, "\ud83d\ude00": 2}"#,
            r#"{"\n\/": 1, "\u000A/": 2}"#,
        ] {
            assert!(twice(text), "{text}");
        }
    }
}
