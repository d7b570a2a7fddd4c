//! What SentencePiece does to a text before it cuts it: characters mapped by the model's own table, spaces made
//! visible.

use super::specials::{Part, Specials};
use super::{TokenizerError, TokenizerFormat, check_limit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The sign that stands for a space.
const SPACE: &str = "\u{2581}";
/// What one spelling may become: bounds how much longer than itself a text can get. Unicode's own longest has 33 bytes.
const MAX_MAPPED_BYTES: usize = 256;

/// How a model wants its texts.
#[derive(Debug, Default)]
pub(super) struct Normalizer {
    pub(super) charsmap: Option<Charsmap>,
    pub(super) add_prefix: bool,
    pub(super) remove_extra_spaces: bool,
    pub(super) escape_spaces: bool,
    pub(super) space_as_suffix: bool,
}

impl Normalizer {
    /// The text as it is cut. A prefix is put where a text begins; tokens of the user stay as they are.
    pub(super) fn apply(&self, text: &str, begins: bool, user_defined: &Specials) -> String {
        let space = if self.escape_spaces { SPACE } else { " " };
        let mut out = String::with_capacity(text.len() + SPACE.len());
        let mut after_space = self.remove_extra_spaces;
        let mut empty = true;
        for part in user_defined.cut(text) {
            let (mut rest, whole) = match part {
                Part::Text(text) => (text, false),
                Part::Token(_, token) => (token, true),
            };
            while !rest.is_empty() {
                let (mapped, length) = if whole { (rest, rest.len()) } else { self.map_prefix(rest) };
                rest = &rest[length..];
                let mut mapped = mapped;
                if after_space {
                    mapped = mapped.trim_start_matches(' ');
                }
                if mapped.is_empty() {
                    continue;
                }
                if empty && begins && self.add_prefix && !self.space_as_suffix {
                    out.push_str(space);
                }
                empty = false;
                for c in mapped.chars() {
                    match c {
                        ' ' => out.push_str(space),
                        c => out.push(c),
                    }
                }
                after_space = self.remove_extra_spaces && mapped.ends_with(' ');
            }
        }
        if self.remove_extra_spaces {
            out.truncate(out.trim_end_matches(space).len());
        }
        if !empty && begins && self.add_prefix && self.space_as_suffix {
            out.push_str(space);
        }
        out
    }

    /// What the start of a text becomes, and how much of the text that takes.
    fn map_prefix<'t>(&'t self, text: &'t str) -> (&'t str, usize) {
        let mapped = self.charsmap.as_ref().and_then(|charsmap| charsmap.longest(text));
        mapped.unwrap_or_else(|| {
            let length = text.chars().next().map_or(0, char::len_utf8);
            (&text[..length], length)
        })
    }

    /// A token's text at the start of a text, without the space that encoding put there.
    pub(super) fn without_prefix<'t>(&self, token: &'t str) -> &'t str {
        let strips = self.add_prefix || self.remove_extra_spaces;
        if strips { token.strip_prefix(SPACE).unwrap_or(token) } else { token }
    }
}

/// A table from spellings to spellings: a double-array trie over the bytes of the former, whose values are offsets of
/// the latter in a list of texts that end with a zero.
#[derive(Debug)]
pub(super) struct Charsmap {
    units: Vec<u32>,
    texts: String,
}

impl Charsmap {
    /// Reads a table as models carry it.
    pub(super) fn read(format: TokenizerFormat, bytes: &[u8]) -> Result<Charsmap, TokenizerError> {
        let malformed =
            |reason| TokenizerError::malformed(format, format_args!("its character map {reason}"));
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| malformed("is cut off"))?;
        let size = u32::from_le_bytes(*size) as usize;
        let trie =
            rest.get(..size).filter(|trie| trie.len() % 4 == 0).ok_or_else(|| malformed("is cut off"))?;
        let texts = std::str::from_utf8(&rest[size..]).map_err(|_| malformed("is not UTF-8"))?;
        let longest = texts.split('\0').map(str::len).max().unwrap_or(0);
        check_limit("the longest text of its character map in bytes", longest, MAX_MAPPED_BYTES)?;
        let units =
            trie.chunks_exact(4).filter_map(|unit| unit.first_chunk()).map(|unit| u32::from_le_bytes(*unit));
        Ok(Charsmap { units: units.collect(), texts: texts.to_owned() })
    }

    /// What the longest known spelling at the start of a text becomes, and its length.
    fn longest(&self, text: &str) -> Option<(&str, usize)> {
        let offset = |unit: u32| ((unit >> 10) << ((unit & (1 << 9)) >> 6)) as usize;
        let mut node = offset(*self.units.first()?);
        let mut found = None;
        for (index, byte) in text.bytes().enumerate() {
            node ^= usize::from(byte);
            let Some(&unit) = self.units.get(node) else { break };
            if unit & (1 << 31 | 0xff) != u32::from(byte) {
                break;
            }
            node ^= offset(unit);
            if unit & 1 << 8 != 0 {
                let value = self.units.get(node)? & !(1 << 31);
                found = Some((value as usize, index + 1));
            }
        }
        let (start, length) = found.filter(|(_, length)| text.is_char_boundary(*length))?;
        let mapped = self.texts.get(start..)?;
        Some((mapped.split('\0').next().unwrap_or(mapped), length))
    }
}

/// Whether a table in base64, which another reader will use, is one that this one would take.
pub(super) fn check_encoded(format: TokenizerFormat, table: &str) -> Result<(), TokenizerError> {
    let malformed = |_| TokenizerError::malformed(format, "its character map is not base64");
    let bytes = STANDARD.decode(table).map_err(malformed)?;
    Charsmap::read(format, &bytes).map(|_| ())
}
