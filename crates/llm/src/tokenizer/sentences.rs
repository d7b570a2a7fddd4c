//! SentencePiece's rules, for its own models and for GGUF vocabularies made of them: the text with its spaces made
//! visible, cut by scores.

use super::TokenizerError;
use super::charsmap::Normalizer;
use super::merge::{Symbol, merge};
use super::specials::{Part, Specials};
use super::unigram::Unigram;
use super::vocabulary::{Kind, Vocabulary, byte_of};

/// How such a vocabulary cuts texts.
#[derive(Debug)]
pub(super) struct Sentences {
    pub(super) normalizer: Normalizer,
    pub(super) algorithm: Algorithm,
    pub(super) scores: Vec<f32>,
    pub(super) unknown: Option<u32>,
    /// Whether what has no token becomes byte tokens.
    pub(super) byte_fallback: bool,
    /// What an unknown token shows as.
    pub(super) unknown_text: String,
    /// Tokens that are one piece wherever they occur.
    pub(super) user_defined: Specials,
}

#[derive(Debug)]
pub(super) enum Algorithm {
    /// Neighbours merge where that gives a token, the best score first.
    Bpe,
    /// The pieces whose scores add up to the most.
    Unigram(Unigram),
}

impl Sentences {
    pub(super) fn encode(
        &self,
        vocabulary: &Vocabulary,
        text: &str,
        after_special: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let text = self.normalizer.apply(text, after_special, &self.user_defined);
        match &self.algorithm {
            Algorithm::Bpe => {
                let symbols = self.symbols(vocabulary, &text);
                let bytes = text.as_bytes();
                let rule = |left: &Symbol, right: &Symbol| {
                    let id = self.mergeable(vocabulary, &bytes[left.start..right.end])?;
                    Some((urgency(*self.scores.get(id as usize)?), Some(id)))
                };
                let pieces = merge(symbols, rule).map(|symbol| (symbol.id, &text[symbol.start..symbol.end]));
                self.push(vocabulary, pieces, ids)
            }
            Algorithm::Unigram(unigram) => {
                let pieces = unigram.pieces(vocabulary, &self.scores, &text);
                self.push(vocabulary, pieces.into_iter(), ids)
            }
        }
    }

    /// A token that text can become.
    fn mergeable(&self, vocabulary: &Vocabulary, piece: &[u8]) -> Option<u32> {
        let id = vocabulary.id(piece)?;
        matches!(vocabulary.kind(id), Some(Kind::Normal | Kind::UserDefined)).then_some(id)
    }

    /// The characters of a text; tokens of the user are symbols of their own that merge with nothing.
    fn symbols(&self, vocabulary: &Vocabulary, text: &str) -> Vec<Symbol> {
        let mut symbols = Vec::new();
        let mut at = 0;
        for part in self.user_defined.cut(text) {
            match part {
                Part::Token(id, token) => {
                    symbols.push(Symbol::frozen(at, at + token.len(), id));
                    at += token.len();
                }
                Part::Text(part) => {
                    for c in part.chars() {
                        let end = at + c.len_utf8();
                        symbols.push(Symbol::new(
                            at,
                            end,
                            self.mergeable(vocabulary, &text.as_bytes()[at..end]),
                        ));
                        at = end;
                    }
                }
            }
        }
        symbols
    }

    /// Appends ids; what has none becomes bytes, or one unknown token for a whole run of it.
    fn push<'t>(
        &self,
        vocabulary: &Vocabulary,
        pieces: impl Iterator<Item = (Option<u32>, &'t str)>,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut after_unknown = false;
        for (id, piece) in pieces {
            let known = id.filter(|id| Some(*id) != self.unknown);
            match (known, vocabulary.byte_tokens(), self.unknown) {
                (Some(id), ..) => ids.push(id),
                (None, Some(bytes), _) if self.byte_fallback => {
                    ids.extend(piece.bytes().map(|byte| bytes[usize::from(byte)]));
                }
                (None, _, Some(_)) if after_unknown => {}
                (None, _, Some(unknown)) => ids.push(unknown),
                (None, _, None) => {
                    return Err(TokenizerError::NoToken { piece: piece.chars().take(20).collect() });
                }
            }
            after_unknown = known.is_none();
        }
        Ok(())
    }

    /// The bytes that a token adds to a text.
    pub(super) fn piece(&self, token: &[u8], kind: Kind, first: bool) -> Vec<u8> {
        match kind {
            Kind::Control => Vec::new(),
            Kind::Unknown => self.unknown_text.as_bytes().to_vec(),
            Kind::Byte if byte_of(token).is_some() => byte_of(token).into_iter().collect(),
            _ => {
                let text = String::from_utf8_lossy(token);
                let text = match first {
                    true => self.normalizer.without_prefix(&text),
                    false => &text,
                };
                text.replace('\u{2581}', " ").into_bytes()
            }
        }
    }

    /// The text of ids: of a run of byte tokens, every byte that belongs to no character is one U+FFFD.
    pub(super) fn decode(&self, vocabulary: &Vocabulary, ids: &[u32]) -> String {
        let mut text = String::new();
        let mut run: Vec<u8> = Vec::new();
        let mut first = true;
        for &id in ids {
            let (Some(token), Some(kind)) = (vocabulary.token(id), vocabulary.kind(id)) else { continue };
            if let (Kind::Byte, Some(byte)) = (kind, byte_of(token)) {
                run.push(byte);
                first = false;
                continue;
            }
            flush(&mut run, &mut text);
            text += &String::from_utf8_lossy(&self.piece(token, kind, first));
            first &= kind == Kind::Control;
        }
        flush(&mut run, &mut text);
        text
    }
}

fn flush(run: &mut Vec<u8>, text: &mut String) {
    for chunk in run.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    run.clear();
}

/// The order of merges: the largest score first.
fn urgency(score: f32) -> u64 {
    let bits = score.to_bits();
    let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    u64::from(!ascending)
}

#[cfg(test)]
mod tests {
    use super::urgency;

    #[test]
    fn large_scores_come_first() {
        let scores = [3.5, 0.25, 0.0, -0.5, -10.0, f32::NEG_INFINITY];
        assert!(scores.windows(2).all(|pair| urgency(pair[0]) < urgency(pair[1])));
    }
}
