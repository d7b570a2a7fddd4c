//! What a single token of a `tokenizer.json` adds to a text, by the file's own decoder.
//!
//! The library decodes whole lists of ids; streams and grammars need the bytes of one token at a time.

use super::vocabulary::{byte_level_bytes, byte_of};
use serde_json::Value;

/// The steps of a decoder, in order.
#[derive(Debug)]
pub(super) struct Decoder {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Without a decoder, tokens are words with spaces between.
    Words,
    ByteLevel,
    ByteFallback,
    Replace(String, String),
    /// Takes characters off the start of every token, or of the text once tokens are one.
    Strip {
        content: char,
        start: usize,
        text_only: bool,
    },
    Metaspace {
        replacement: char,
        strips_first: bool,
    },
    WordPiece {
        prefix: String,
        cleans_up: bool,
    },
    /// A suffix that ends words.
    Suffix(String),
}

impl Decoder {
    /// Reads the `decoder` of a file. What has no meaning for a single token is passed over.
    pub(super) fn read(decoder: &Value) -> Decoder {
        let mut steps = Vec::new();
        let mut fused = false;
        if decoder.is_null() {
            steps.push(Step::Words);
        }
        match decoder.get("decoders").and_then(Value::as_array) {
            Some(decoders) => decoders.iter().for_each(|decoder| read_step(decoder, &mut fused, &mut steps)),
            None => read_step(decoder, &mut fused, &mut steps),
        }
        Decoder { steps }
    }

    /// The bytes that a token adds; `first` where it begins the text.
    pub(super) fn piece(&self, token: &str, first: bool) -> Vec<u8> {
        let mut text = token.to_owned();
        for step in &self.steps {
            match step {
                Step::ByteLevel => return byte_level_bytes(&text).unwrap_or_else(|| text.into_bytes()),
                Step::ByteFallback => {
                    if let Some(byte) = byte_of(text.as_bytes()) {
                        return vec![byte];
                    }
                }
                Step::Words if !first => text.insert(0, ' '),
                Step::Replace(pattern, content) => text = text.replace(pattern, content),
                Step::Strip { content, start, text_only } if first || !text_only => {
                    for _ in 0..*start {
                        text = text.strip_prefix(*content).map_or_else(|| text.clone(), str::to_owned);
                    }
                }
                Step::Metaspace { replacement, strips_first } => {
                    let space = if first && *strips_first { "" } else { " " };
                    text = text.replace(*replacement, space);
                }
                Step::WordPiece { prefix, cleans_up } => {
                    if !first {
                        let inside = text.strip_prefix(prefix.as_str()).map(str::to_owned);
                        text = inside.unwrap_or_else(|| format!(" {text}"));
                    }
                    if *cleans_up {
                        text = clean_up(&text);
                    }
                }
                Step::Suffix(suffix) => text = text.replace(suffix.as_str(), " "),
                Step::Words | Step::Strip { .. } => {}
            }
        }
        text.into_bytes()
    }
}

fn read_step(decoder: &Value, fused: &mut bool, steps: &mut Vec<Step>) {
    let text = |name: &str| decoder.get(name).and_then(Value::as_str);
    let character = |name: &str| text(name).and_then(|text| text.chars().next());
    let step = match text("type") {
        Some("ByteLevel") => Some(Step::ByteLevel),
        Some("ByteFallback") => Some(Step::ByteFallback),
        Some("Replace") => {
            let pattern =
                decoder.get("pattern").and_then(|pattern| pattern.get("String")).and_then(Value::as_str);
            pattern.map(|pattern| Step::Replace(pattern.to_owned(), text("content").unwrap_or("").to_owned()))
        }
        Some("Fuse") => {
            *fused = true;
            None
        }
        Some("Strip") => {
            let start =
                decoder.get("start").and_then(Value::as_u64).and_then(|start| usize::try_from(start).ok());
            let start = start.unwrap_or(0).min(16);
            character("content").map(|content| Step::Strip { content, start, text_only: *fused })
        }
        Some("Metaspace") => {
            let strips_first = text("prepend_scheme") != Some("never");
            Some(Step::Metaspace {
                replacement: character("replacement").unwrap_or('\u{2581}'),
                strips_first,
            })
        }
        Some("WordPiece") => {
            let cleans_up = decoder.get("cleanup").and_then(Value::as_bool).unwrap_or(true);
            Some(Step::WordPiece { prefix: text("prefix").unwrap_or("##").to_owned(), cleans_up })
        }
        Some("BPEDecoder") => Some(Step::Suffix(text("suffix").unwrap_or("</w>").to_owned())),
        _ => None,
    };
    steps.extend(step);
}

/// Spaces that written English does not have.
fn clean_up(text: &str) -> String {
    let rules = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    rules.iter().fold(text.to_owned(), |text, (spaced, clean)| text.replace(spaced, clean))
}

#[cfg(test)]
mod tests {
    use super::Decoder;
    use serde_json::json;

    #[test]
    fn tokens_add_what_the_decoder_says() {
        let piece = |decoder: &serde_json::Value, token, first| {
            String::from_utf8(Decoder::read(decoder).piece(token, first)).unwrap()
        };
        let spaces = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
        assert_eq!(piece(&spaces, "\u{2581}a", true), "a");
        assert_eq!(piece(&spaces, "\u{2581}a", false), " a");
        assert_eq!(piece(&spaces, "<0x41>", false), "A");
        let words = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
        assert_eq!(piece(&words, "##ing", false), "ing");
        assert_eq!(piece(&words, ".", false), ".");
        assert_eq!(piece(&words, "word", false), " word");
        assert_eq!(piece(&json!({"type": "ByteLevel"}), "\u{120}x", true), " x");
        assert_eq!(piece(&serde_json::Value::Null, "x", false), " x");
        let metaspace = json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always"});
        assert_eq!(piece(&metaspace, "\u{2581}x", true), "x");
    }
}
