//! Tokens of two windows that overlap, joined without losing a word or saying one twice.
//!
//! Both windows have heard the overlap. Where they agree on a run of tokens at about the same time, the first counts up to a
//! token of that run and the second from there on; the run's token nearest to the middle is taken, because both windows know
//! least at their own ends. Where they agree on nothing, the cut is made between words, as near to the middle as can be; where
//! one of them has heard nothing there, all of the other counts but for a second at its own end.

use std::ops::Range;

use super::Said;

/// Places that the same token may be apart in two windows: about a second.
const NEAR: usize = 13;

/// Joins what a window said behind what those before it said; places count from the beginning of the sound. `begins` tells
/// whether a token begins a word.
pub fn merge(before: &mut Vec<Said>, after: &[Said], overlap: Range<usize>, begins: impl Fn(u32) -> bool) {
    let first = before.partition_point(|said| said.place < overlap.start);
    let count = after.partition_point(|said| said.place < overlap.end);
    let (old, new) = (&before[first..], &after[..count]);
    let middle = overlap.start.midpoint(overlap.end);
    let (kept, taken) = match agreed(old, new, middle) {
        Some((at_old, at_new)) => (first + at_old + 1, at_new + 1),
        None if old.is_empty() => (first, new.partition_point(|said| said.place < overlap.start + NEAR)),
        None if new.is_empty() => (first + old.partition_point(|said| said.place + NEAR < overlap.end), 0),
        None => {
            let (old, new) = between_words(old, new, &overlap, begins);
            (first + old, new)
        }
    };
    before.truncate(kept);
    before.extend_from_slice(&after[taken..]);
}

/// The pair of equal tokens, nearest to the middle, of the longest run that both have.
fn agreed(old: &[Said], new: &[Said], middle: usize) -> Option<(usize, usize)> {
    let is_same = |a: &Said, b: &Said| a.token == b.token && a.place.abs_diff(b.place) <= NEAR;
    // Lengths of runs that end in a pair, row by row.
    let mut above = vec![0usize; new.len() + 1];
    let mut best: Option<(usize, usize, usize)> = None;
    let distance = |end: usize, length: usize| {
        let places = old[end + 1 - length..=end].iter().map(|said| said.place.abs_diff(middle));
        places.min().unwrap_or(usize::MAX)
    };
    for (i, a) in old.iter().enumerate() {
        let mut row = vec![0usize; new.len() + 1];
        for (j, b) in new.iter().enumerate() {
            if !is_same(a, b) {
                continue;
            }
            let length = above[j] + 1;
            row[j + 1] = length;
            let is_better = best.is_none_or(|(most, end, _)| {
                length > most || length == most && distance(i, length) < distance(end, most)
            });
            if is_better {
                best = Some((length, i, j));
            }
        }
        above = row;
    }
    let (length, i, j) = best?;
    let back = (0..length).min_by_key(|back| old[i - back].place.abs_diff(middle))?;
    Some((i - back, j - back))
}

/// How many tokens of the first and from which of the second on are taken, where both have the border of a word.
fn between_words(
    old: &[Said],
    new: &[Said],
    overlap: &Range<usize>,
    begins: impl Fn(u32) -> bool,
) -> (usize, usize) {
    let middle = overlap.start.midpoint(overlap.end);
    let cut = |place: usize| {
        let at = |list: &[Said]| list.partition_point(|said| said.place < place);
        (at(old), at(new))
    };
    let is_border = |list: &[Said], at: usize| list.get(at).is_none_or(|said| begins(said.token));
    let steps = 0..=overlap.len().div_ceil(2);
    let mut places = steps.flat_map(|step| [middle + step, middle.saturating_sub(step)]);
    let clean = places.find(|&place| {
        let (kept, taken) = cut(place);
        overlap.contains(&place) && is_border(old, kept) && is_border(new, taken)
    });
    cut(clean.unwrap_or(middle))
}
