//! When each word is said: heads of the decoder that follow the sound say which frames a token looks at, and the cheapest way
//! through tokens and frames gives every token its time.
//!
//! Scores of those heads flow in, words with times flow out; all of it is arithmetic on what a model gave. The steps and their
//! numbers are those of the published program.

use pteron_llm::tokenizer::Tokenizer;

use crate::segment::{Segment, Word};

/// Frames that a time is the median of.
const MEDIAN: usize = 7;
/// Places of the encoder a second.
const PLACES_A_SECOND: f64 = 50.0;
/// No median word is taken to be longer, in seconds.
const LONGEST_MEDIAN: f64 = 0.7;
/// Marks that belong to the word behind them.
const PREPENDED: &str = "\"'“¿([{-";
/// Marks that belong to the word before them.
const APPENDED: &str = "\"'.。,，!！?？:：”)]}、";
/// Marks that end a sentence.
const SENTENCE_ENDS: &str = ".。!！?？";
/// What stands for itself between words.
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
/// Languages that are written without spaces.
const WITHOUT_SPACES: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];

/// A word with its tokens, in seconds from the window's beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// What is said, with the space in front of it.
    pub word: String,
    /// How many tokens it has.
    pub tokens: usize,
    /// Where it begins.
    pub start: f64,
    /// Where it ends.
    pub end: f64,
}

/// Scores of heads over tokens and places.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    /// A head's scores: places of the first token, then of the second, and so on.
    pub heads: Vec<Vec<f32>>,
    /// Places of a token.
    pub places: usize,
}

/// The first place of every token from `first` on, but for the last of `tokens` in all, which is the end; over the places
/// that hold sound. All tokens count where places are compared.
pub fn token_places(scores: &Scores, tokens: usize, first: usize, heard: usize) -> Vec<usize> {
    let heard = heard.min(scores.places);
    let rows = tokens.saturating_sub(first + 1);
    if rows == 0 || heard == 0 || scores.heads.is_empty() {
        return vec![0; rows];
    }
    let mut mean = vec![0f64; rows * heard];
    for head in &scores.heads {
        let mut weights: Vec<f64> = Vec::with_capacity(tokens * heard);
        for row in head.chunks_exact(scores.places).take(tokens) {
            let most = row[..heard].iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let row: Vec<f64> = row[..heard].iter().map(|&score| f64::from(score - most).exp()).collect();
            let sum: f64 = row.iter().sum();
            weights.extend(row.iter().map(|weight| weight / sum));
        }
        if weights.len() < tokens * heard {
            continue;
        }
        standardise(&mut weights, heard);
        for (row, means) in
            weights.chunks_exact(heard).skip(first).take(rows).zip(mean.chunks_exact_mut(heard))
        {
            for (place, mean) in means.iter_mut().enumerate() {
                *mean -= median(row, place) / scores.heads.len() as f64;
            }
        }
    }
    let mut places = vec![0; rows];
    let mut last = None;
    for (row, place) in cheapest(&mean, heard) {
        if last != Some(row) {
            places[row] = place;
            last = Some(row);
        }
    }
    places
}

/// Each place over all tokens: less its mean, by its deviation.
fn standardise(weights: &mut [f64], width: usize) {
    let count = (weights.len() / width) as f64;
    for place in 0..width {
        let column = || weights[place..].iter().step_by(width);
        let mean = column().sum::<f64>() / count;
        let deviation = (column().map(|weight| (weight - mean).powi(2)).sum::<f64>() / count).sqrt();
        for weight in weights[place..].iter_mut().step_by(width) {
            *weight = if deviation > 0.0 { (*weight - mean) / deviation } else { 0.0 };
        }
    }
}

/// The median of the places around one; beyond an end the row goes on backwards.
fn median(row: &[f64], place: usize) -> f64 {
    let half = MEDIAN / 2;
    if row.len() <= half {
        return row[place];
    }
    let last = row.len() as i64 - 1;
    let mut around: [f64; MEDIAN] = std::array::from_fn(|n| {
        let at = (place as i64 + n as i64 - half as i64).abs();
        row[if at > last { 2 * last - at } else { at } as usize]
    });
    around.sort_by(f64::total_cmp);
    around[half]
}

/// The cheapest way from the first cell to the last, by single steps down, right or both (dynamic time warping).
pub fn cheapest(costs: &[f64], width: usize) -> Vec<(usize, usize)> {
    let rows = costs.len() / width;
    let stride = width + 1;
    let mut sums = vec![f64::INFINITY; (rows + 1) * stride];
    let mut steps = vec![0u8; (rows + 1) * stride];
    sums[0] = 0.0;
    for row in 1..=rows {
        for column in 1..=width {
            let at = row * stride + column;
            let (both, down, right) = (sums[at - stride - 1], sums[at - stride], sums[at - 1]);
            let (least, step) = match () {
                () if both < down && both < right => (both, 0),
                () if down < both && down < right => (down, 1),
                () => (right, 2),
            };
            sums[at] = costs[(row - 1) * width + column - 1] + least;
            steps[at] = step;
        }
    }
    let (mut row, mut column) = (rows, width);
    let mut way = Vec::new();
    while row > 0 && column > 0 {
        way.push((row - 1, column - 1));
        match steps[row * stride + column] {
            0 => (row, column) = (row - 1, column - 1),
            1 => row -= 1,
            _ => column -= 1,
        }
    }
    way.reverse();
    way
}

/// Words of text tokens, each with how many tokens it has.
pub fn split(tokenizer: &Tokenizer, tokens: &[u32], language: &str) -> Vec<(String, usize)> {
    let mut units: Vec<(String, usize)> = Vec::new();
    let (mut bytes, mut count) = (Vec::new(), 0);
    for (at, &token) in tokens.iter().enumerate() {
        bytes.extend(tokenizer.bytes_of(token).unwrap_or_default());
        count += 1;
        // A character may have several tokens.
        let is_whole = std::str::from_utf8(&bytes).is_ok();
        if is_whole || at + 1 == tokens.len() {
            units.push((String::from_utf8_lossy(&bytes).into_owned(), count));
            (bytes, count) = (Vec::new(), 0);
        }
    }
    if WITHOUT_SPACES.contains(&language) {
        return units;
    }
    let mut words: Vec<(String, usize)> = Vec::new();
    for (unit, count) in units {
        let begins = unit.starts_with(' ') || PUNCTUATION.contains(unit.trim());
        match words.last_mut() {
            Some((word, tokens)) if !begins => {
                word.push_str(&unit);
                *tokens += count;
            }
            _ => words.push((unit, count)),
        }
    }
    words
}

/// Words with their times, given the place of every token and of the end.
pub fn timed(words: Vec<(String, usize)>, places: &[usize]) -> Vec<Timing> {
    let mut at = 0;
    let mut timings = Vec::new();
    for (word, tokens) in words {
        let place = |at: usize| places.get(at).or(places.last()).copied().unwrap_or(0);
        let (start, end) = (place(at), place(at + tokens));
        at += tokens;
        let (start, end) = (start as f64 / PLACES_A_SECOND, end as f64 / PLACES_A_SECOND);
        timings.push(Timing { word, tokens, start, end });
    }
    timings
}

/// Half of all words are shorter; those without a length do not count.
fn median_duration(timings: &[Timing]) -> f64 {
    let durations = timings.iter().map(|timing| timing.end - timing.start);
    let mut durations: Vec<f64> = durations.filter(|&duration| duration != 0.0).collect();
    durations.sort_by(f64::total_cmp);
    let middle = durations.len() / 2;
    let median = match (durations.len(), durations.len().is_multiple_of(2)) {
        (0, _) => 0.0,
        (_, true) => (durations[middle - 1] + durations[middle]) / 2.0,
        (_, false) => durations[middle],
    };
    median.min(LONGEST_MEDIAN)
}

/// Marks join the words that they belong to.
fn merge_marks(timings: &mut [Timing]) {
    let join = |timings: &mut [Timing], from: usize, to: usize, in_front: bool| {
        let (word, tokens) = (std::mem::take(&mut timings[from].word), timings[from].tokens);
        timings[from].tokens = 0;
        let target = &mut timings[to];
        target.word = if in_front { word + &target.word } else { target.word.clone() + &word };
        target.tokens += tokens;
    };
    let mut next = timings.len().saturating_sub(1);
    for at in (0..next).rev() {
        let word = &timings[at].word;
        match word.starts_with(' ') && PREPENDED.contains(word.trim()) {
            true => join(timings, at, next, true),
            false => next = at,
        }
    }
    let mut before = 0;
    for at in 1..timings.len() {
        let (ends_open, word) = (!timings[before].word.ends_with(' '), &timings[at].word);
        match ends_open && APPENDED.contains(word.as_str()) {
            true => join(timings, at, before, false),
            false => before = at,
        }
    }
}

/// Gives the segments of a window their words, and borders that fit them. `offset` is where the window begins, `last_end`
/// where the last word before it ended; all in seconds.
pub fn place(
    segments: &mut [Segment],
    mut timings: Vec<Timing>,
    text_below: u32,
    offset: f64,
    last_end: &mut f64,
) {
    let median = median_duration(&timings);
    let longest = 2.0 * median;
    if median > 0.0 {
        // A word at the border of a sentence would take the pause.
        for at in 1..timings.len() {
            if timings[at].end - timings[at].start > longest {
                if SENTENCE_ENDS.contains(timings[at].word.as_str()) {
                    timings[at].end = timings[at].start + longest;
                } else if SENTENCE_ENDS.contains(timings[at - 1].word.as_str()) {
                    timings[at].start = timings[at].end - longest;
                }
            }
        }
    }
    merge_marks(&mut timings);
    let mut timings = timings.into_iter().peekable();
    for segment in segments {
        let text = segment.tokens.iter().filter(|&&id| id < text_below).count();
        let (mut taken, mut words) = (0, Vec::new());
        while taken < text
            && let Some(timing) = timings.next()
        {
            taken += timing.tokens;
            if !timing.word.is_empty() {
                let (start, end) = (offset + timing.start, offset + timing.end);
                words.push(Word { text: timing.word, start, end });
            }
        }
        fit(segment, &mut words, median, last_end);
        segment.words = words;
    }
}

/// Words at a segment's borders do not reach over a pause, and the segment keeps to its words.
fn fit(segment: &mut Segment, words: &mut [Word], median: f64, last_end: &mut f64) {
    let longest = 2.0 * median;
    let is_long = |word: &Word| word.end - word.start > longest;
    let Some(first) = words.first().cloned() else { return };
    let second = words.get(1).cloned();
    let after_pause = first.end - *last_end > 4.0 * median;
    let long_start = second.as_ref().is_some_and(|second| second.end - first.start > 2.0 * longest);
    if after_pause && (is_long(&first) || long_start) {
        if let Some(second) = second.filter(is_long) {
            let border = (second.end / 2.0).max(second.end - longest);
            words[0].end = border;
            words[1].start = border;
        }
        words[0].start = (words[0].end - longest).max(0.0);
    }
    let last = words.len() - 1;
    if segment.start < words[0].end && segment.start - 0.5 > words[0].start {
        words[0].start = (words[0].end - median).min(segment.start).max(0.0);
    } else {
        segment.start = words[0].start;
    }
    if segment.end > words[last].start && segment.end + 0.5 < words[last].end {
        words[last].end = (words[last].start + median).max(segment.end);
    } else {
        segment.end = words[last].end;
    }
    *last_end = segment.end;
}
