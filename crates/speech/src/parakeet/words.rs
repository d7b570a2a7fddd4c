//! Words and segments of tokens in their places.

use pteron_llm::tokenizer::Tokenizer;

use super::Said;
use crate::segment::{Segment, Word};

/// Marks that have no time of their own, as the published programs have it: they end where the token before them does.
const MARKS: [&str; 11] = ["?", "'", "¡", "¿", "-", ":", ",", "%", "/", ".", "!"];
/// Marks that end a segment.
pub(crate) const SENTENCE_ENDS: [char; 7] = ['.', '?', '!', '。', '？', '！', '…'];
/// A pause, in seconds, that ends a segment too.
const PAUSE: f64 = 2.0;
/// A segment, in seconds, that ends with its next word, for models that know no marks.
const LONGEST: f64 = 30.0;

/// Tokens of a word at most, for languages of which no piece tells where one begins.
const MOST_TOKENS: usize = 64;

/// A word, and how many tokens it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Spoken {
    /// The word with its time.
    pub word: Word,
    /// Its tokens.
    pub tokens: usize,
}

/// Whether a token begins a word.
pub fn begins(tokenizer: &Tokenizer, token: u32) -> bool {
    tokenizer.bytes_of(token).is_some_and(|bytes| bytes.first() == Some(&b' '))
}

/// Whether a piece begins with a letter of a script that puts no spaces between words: there each piece is one.
fn stands_alone(piece: &[u8]) -> bool {
    let first = std::str::from_utf8(piece).ok().and_then(|piece| piece.chars().next());
    first.is_some_and(|first| {
        matches!(first, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
            | '\u{2e80}'..='\u{2fff}' | '\u{3040}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
    })
}

/// Words of tokens; a place lasts so many seconds.
pub fn words(tokenizer: &Tokenizer, said: &[Said], seconds: f64) -> Vec<Spoken> {
    let mut words: Vec<Spoken> = Vec::new();
    let mut bytes: Vec<u8> = Vec::new();
    for said in said {
        let piece = tokenizer.bytes_of(said.token).unwrap_or_default();
        let is_mark = std::str::from_utf8(&piece).is_ok_and(|piece| MARKS.contains(&piece));
        let start = said.place as f64 * seconds;
        let end = start + said.lasts as f64 * seconds;
        let begins = piece.first() == Some(&b' ') || stands_alone(&piece);
        match words.last_mut() {
            Some(last) if !begins && start - last.word.end < PAUSE && last.tokens < MOST_TOKENS => {
                bytes.extend(piece);
                last.tokens += 1;
                if !is_mark {
                    last.word.end = end.max(last.word.end);
                }
                last.word.text = String::from_utf8_lossy(&bytes).into_owned();
            }
            _ => {
                bytes = piece;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                // What is said takes some time, whatever its duration.
                let word = Word { text, start, end: end.max(start + seconds) };
                words.push(Spoken { word, tokens: 1 });
            }
        }
    }
    words
}

/// Segments of words, in the order of their tokens.
pub fn segments(words: &[Spoken], said: &[Said]) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut tokens = said.iter().map(|said| said.token);
    let mut is_open = false;
    for Spoken { word, tokens: count } in words {
        let own = tokens.by_ref().take(*count);
        let goes_on = segments
            .last()
            .filter(|_| is_open)
            .is_some_and(|segment| word.start - segment.end < PAUSE && word.end - segment.start < LONGEST);
        match segments.last_mut().filter(|_| goes_on) {
            Some(segment) => {
                segment.text.push_str(&word.text);
                segment.tokens.extend(own);
                segment.end = word.end;
                segment.words.push(word.clone());
            }
            None => segments.push(Segment {
                start: word.start,
                end: word.end,
                text: word.text.clone(),
                tokens: own.collect(),
                temperature: 0.0,
                measures: None,
                words: vec![word.clone()],
            }),
        }
        is_open = !word.text.ends_with(SENTENCE_ENDS);
    }
    segments
}
