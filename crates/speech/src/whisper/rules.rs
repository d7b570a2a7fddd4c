//! Which tokens may follow: what is never said, what may not come first, and how times come in pairs that do not go back.
//!
//! The rules that Whisper was published with, as a function of the tokens so far; logits of what may not follow become minus
//! infinity.

use pteron_companion::WhisperTokens;
use pteron_llm::tokenizer::{Ends, Tokenizer};

use crate::Result;

/// Marks that stand for music, effects and speakers rather than for words.
const MARKS: &str = "\" # ( ) * + / : ; < = > @ [ \\ ] ^ _ ` { | } ~ 「 」 『 』 << >> <<< >>> -- --- -( -[ (' (\" (( )) ((( \
    ))) [[ ]] {{ }} ♪♪ ♪♪♪";
/// Notes, of which the first of several tokens is enough.
const NOTES: &str = "♩ ♪ ♫ ♬ ♭ ♮ ♯";
/// Seconds between two times.
pub const TIME_STEP: f64 = 0.02;

/// The rules of one transcript.
#[derive(Clone, Debug)]
pub struct Rules {
    tokens: WhisperTokens,
    /// What is never said.
    suppressed: Vec<u32>,
    /// What may not come first.
    blank: Vec<u32>,
    /// Whether texts have times.
    times: bool,
    /// The latest time that a window may begin with, counted in steps.
    latest_start: u32,
}

impl Rules {
    /// The usual ones: marks and blanks are left out, and a window begins within its first second.
    pub fn new(tokens: &WhisperTokens, tokenizer: &Tokenizer, times: bool) -> Result<Rules> {
        let mut blank = tokenizer.encode(" ", Ends::None)?;
        blank.push(tokens.end);
        let suppressed = not_speech(tokens, tokenizer)?;
        let latest_start = (1.0 / TIME_STEP) as u32;
        Ok(Rules { tokens: tokens.clone(), suppressed, blank, times, latest_start })
    }

    /// Rules over bare numbers, for machines without a vocabulary.
    pub fn plain(tokens: &WhisperTokens, suppressed: Vec<u32>, blank: Vec<u32>, times: bool) -> Rules {
        Rules { tokens: tokens.clone(), suppressed, blank, times, latest_start: (1.0 / TIME_STEP) as u32 }
    }

    /// What is never said.
    pub fn suppressed(&self) -> &[u32] {
        &self.suppressed
    }

    /// The tokens with a meaning.
    pub fn tokens(&self) -> &WhisperTokens {
        &self.tokens
    }

    /// Takes away what may not follow the tokens of a text.
    pub fn apply(&self, text: &[u32], logits: &mut [f32]) {
        if text.is_empty() {
            self.blank.iter().for_each(|&id| silence(logits, id, id + 1));
        }
        self.suppressed.iter().for_each(|&id| silence(logits, id, id + 1));
        if self.times {
            self.apply_times(text, logits);
        }
    }

    fn apply_times(&self, text: &[u32], logits: &mut [f32]) {
        let WhisperTokens { end, no_times, first_time: first, .. } = self.tokens;
        silence(logits, no_times, no_times + 1);
        let is_time = |id: &u32| *id >= first;
        let last = text.last().is_some_and(is_time);
        // A single time counts as the end of a pair: it begins the window.
        let before = text.len() < 2 || is_time(&text[text.len() - 2]);
        match (last, before) {
            (true, true) => silence(logits, first, u32::MAX),
            (true, false) => silence(logits, 0, end),
            (false, _) => {}
        }
        if let Some(&latest) = text.iter().rev().find(|id| is_time(id)) {
            // A segment has a length; the second of a pair may repeat the first.
            let allowed = if last && !before { latest } else { latest + 1 };
            silence(logits, first, allowed);
        }
        if text.is_empty() {
            silence(logits, 0, first);
            silence(logits, first + self.latest_start + 1, u32::MAX);
        }
        let Some((words, times)) = logits.split_at_mut_checked(first as usize) else { return };
        let most = words.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        // All times together against the likeliest word; both are shares of the same sum.
        if log_sum(times) > most {
            words.fill(f32::NEG_INFINITY);
        }
    }
}

/// Takes away ids from one up to another.
fn silence(logits: &mut [f32], from: u32, to: u32) {
    let end = (to as usize).min(logits.len());
    if let Some(range) = logits.get_mut(from as usize..end) {
        range.fill(f32::NEG_INFINITY);
    }
}

/// The logarithm of the sum of exponentials.
pub(super) fn log_sum(logits: &[f32]) -> f32 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if most == f32::NEG_INFINITY {
        return most;
    }
    let sum: f64 = logits.iter().map(|&logit| f64::from((logit - most).exp())).sum();
    (f64::from(most) + sum.ln()) as f32
}

/// Ids that stand for no words.
fn not_speech(tokens: &WhisperTokens, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let mut ids = vec![tokens.translate, tokens.transcribe, tokens.start, tokens.previous, tokens.no_speech];
    // The token between the tasks and the text before begins a language model's text, which is never spoken.
    ids.push(tokens.previous - 1);
    for hyphen in [" -", " '"] {
        ids.extend(tokenizer.encode(hyphen, Ends::None)?.first());
    }
    let (marks, notes) = (MARKS.split_whitespace(), NOTES.split_whitespace());
    for (mark, is_note) in marks.map(|mark| (mark, false)).chain(notes.map(|note| (note, true))) {
        for spelled in [mark.to_owned(), format!(" {mark}")] {
            let encoded = tokenizer.encode(&spelled, Ends::None)?;
            if encoded.len() == 1 || is_note {
                ids.extend(encoded.first());
            }
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}
