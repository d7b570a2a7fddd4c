//! Unigram: of all ways to cut a text into pieces, the one whose scores add up to the most.

use super::vocabulary::{Kind, Vocabulary};

/// What of a vocabulary the search needs beside the scores.
#[derive(Debug)]
pub(super) struct Unigram {
    /// Lengths that pieces have, ascending.
    lengths: Vec<usize>,
    smallest: f32,
    largest: f32,
}

/// How much worse than the worst piece an unknown character is.
const UNKNOWN_PENALTY: f32 = 10.0;
/// Longer pieces are not looked for; published ones have some dozen characters.
const MAX_PIECE_BYTES: usize = 1024;

#[derive(Clone, Copy)]
struct Best {
    score: f32,
    start: usize,
    id: Option<u32>,
}

impl Unigram {
    pub(super) fn new(vocabulary: &Vocabulary, scores: &[f32]) -> Unigram {
        let mut lengths = Vec::new();
        let (mut smallest, mut largest) = (f32::MAX, f32::MIN);
        for ((_, token, kind), &score) in vocabulary.iter().zip(scores) {
            // A piece of nothing would be followed by itself without end.
            let is_found = (1..=MAX_PIECE_BYTES).contains(&token.len());
            if matches!(kind, Kind::Normal | Kind::UserDefined) && is_found {
                lengths.push(token.len());
            }
            if kind == Kind::Normal {
                (smallest, largest) = (smallest.min(score), largest.max(score));
            }
        }
        lengths.sort_unstable();
        lengths.dedup();
        Unigram { lengths, smallest, largest }
    }

    /// The pieces of a text, each with its id where it has one.
    pub(super) fn pieces<'t>(
        &self,
        vocabulary: &Vocabulary,
        scores: &[f32],
        text: &'t str,
    ) -> Vec<(Option<u32>, &'t str)> {
        let bytes = text.as_bytes();
        let mut best: Vec<Option<Best>> = vec![None; bytes.len() + 1];
        best[0] = Some(Best { score: 0.0, start: 0, id: None });
        for (start, c) in text.char_indices() {
            // Every start of a character can be reached, since every character can be unknown.
            let Some(Best { score: so_far, .. }) = best[start] else { continue };
            let mut offer = |end: usize, score: f32, id: Option<u32>| {
                let score = so_far + score;
                if best[end].is_none_or(|old| score > old.score) {
                    best[end] = Some(Best { score, start, id });
                }
            };
            let mut has_single = false;
            for &length in self.lengths.iter().take_while(|length| start + **length <= bytes.len()) {
                let end = start + length;
                let Some(id) = vocabulary.id(&bytes[start..end]).filter(|_| text.is_char_boundary(end))
                else {
                    continue;
                };
                let score = match vocabulary.kind(id) {
                    Some(Kind::Normal) => scores.get(id as usize).copied().unwrap_or(0.0),
                    // A token of the user beats every other way to cut it.
                    Some(Kind::UserDefined) => length as f32 * self.largest - 0.1,
                    _ => continue,
                };
                offer(end, score, Some(id));
                has_single |= length == c.len_utf8();
            }
            if !has_single {
                offer(start + c.len_utf8(), self.smallest - UNKNOWN_PENALTY, None);
            }
        }
        let mut pieces = Vec::new();
        let mut end = bytes.len();
        while let Some(Best { start, id, .. }) = best[end].filter(|_| end > 0) {
            pieces.push((id, &text[start..end]));
            end = start;
        }
        pieces.reverse();
        pieces
    }
}
