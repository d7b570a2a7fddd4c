//! Tokens to text as they come, whole characters only.
//!
//! Ids flow in one by one; out flows text that will not change any more. Bytes that cannot belong to any character
//! become U+FFFD as soon as that is known, one for each maximal subpart, as the Unicode standard recommends.

use crate::tokenizer::Tokenizer;

/// The text of tokens that arrive one at a time. Made by [`Tokenizer::stream`].
#[derive(Clone, Debug)]
pub struct TextStream {
    tokenizer: Tokenizer,
    characters: Utf8Stream,
    started: bool,
}

impl TextStream {
    pub(crate) fn new(tokenizer: Tokenizer) -> TextStream {
        TextStream { tokenizer, characters: Utf8Stream::default(), started: false }
    }

    /// Takes the next token; gives what may be shown now.
    pub fn push(&mut self, id: u32) -> String {
        let Some(bytes) = self.tokenizer.piece(id, !self.started) else { return String::new() };
        // A token that shows nothing because it marks structure does not begin the text.
        self.started |= !bytes.is_empty() || !self.tokenizer.is_special(id);
        self.characters.push(&bytes)
    }

    /// What is left at the end: U+FFFD where a character was cut off, else nothing.
    pub fn finish(self) -> String {
        self.characters.finish()
    }
}

/// Bytes to characters, with the start of a character held back until its end is there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Utf8Stream {
    held: Vec<u8>,
}

impl Utf8Stream {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = self.held.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text += valid;
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text += &String::from_utf8_lossy(valid);
                    rest = after;
                    // Without a length the bytes may still become a character. Half of an encoded surrogate never
                    // will, but the reference decoders wait for its last byte all the same.
                    let Some(invalid) = error.error_len().filter(|_| !matches!(rest, [0xed, 0xa0..=0xbf]))
                    else {
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[invalid..];
                }
            }
        }
        self.held = rest.to_vec();
        text
    }

    pub(crate) fn finish(self) -> String {
        String::from_utf8_lossy(&self.held).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::Utf8Stream;

    #[test]
    fn characters_come_whole_and_invalid_bytes_as_soon_as_they_are_known() {
        /// What comes, what may be shown after each, what is left.
        type Case = (&'static [&'static [u8]], &'static [&'static str], &'static str);
        let cases: [Case; 5] = [
            (&[b"\xe2\x82", b"\xac!"], &["", "\u{20ac}!"], ""),
            (&[b"a\xff", b"b"], &["a\u{fffd}", "b"], ""),
            (&[b"\xe2", b"\x82", b"x"], &["", "", "\u{fffd}x"], ""),
            (&[b"\xf0\x9f\x98"], &[""], "\u{fffd}"),
            (&[b"\xed", b"\xa0", b"\x80"], &["", "", "\u{fffd}\u{fffd}\u{fffd}"], ""),
        ];
        for (parts, shown, rest) in cases {
            let mut stream = Utf8Stream::default();
            let pieces: Vec<String> = parts.iter().map(|part| stream.push(part)).collect();
            assert_eq!(pieces, shown, "{parts:x?}");
            assert_eq!(stream.finish(), rest, "{parts:x?}");
        }
    }
}
