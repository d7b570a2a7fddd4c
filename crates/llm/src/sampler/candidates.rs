//! The tokens that may still be chosen, and the filters: each takes some away or changes their scores, and leaves the rest in
//! the order of their tokens, so that drawing does not hang on how a filter sorts.
//!
//! A vocabulary of 256 k is looked at a few times in a straight line; what is sorted is only as much as a filter needs to find its
//! cut. All memory is used again for the next token.

use super::exponential::exponential;
use std::cmp::Ordering;

/// Tokens with their scores: logits less the largest of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    tokens: Vec<u32>,
    scores: Vec<f64>,
    /// Probabilities up to a factor, the likeliest having 1, as of the last call of [`Candidates::weigh`].
    weights: Vec<f64>,
    /// What a filter sorts.
    head: Vec<Candidate>,
}

/// One of them, where it is moved about.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    token: u32,
    score: f64,
}

impl Candidate {
    /// The likelier first; of equals, the one with the smaller id.
    fn rank(&self, other: &Candidate) -> Ordering {
        other.score.total_cmp(&self.score).then(self.token.cmp(&other.token))
    }
}

impl Candidates {
    /// All tokens, with `changed` logits in the place of some.
    pub(super) fn start(&mut self, logits: &[f32], changed: impl Iterator<Item = (u32, f64)>) {
        self.tokens.clear();
        self.tokens.extend(0..logits.len() as u32);
        self.scores.clear();
        self.scores.extend(logits.iter().map(|&logit| f64::from(logit)));
        for (token, logit) in changed {
            self.scores[token as usize] = logit;
        }
        let largest = largest(&self.scores, f64::NEG_INFINITY);
        match largest == f64::NEG_INFINITY {
            true => self.retain(|_| false),
            false => self.scores.iter_mut().for_each(|score| *score -= largest),
        }
    }

    /// The first of the likeliest.
    pub(super) fn likeliest(&self) -> Option<u32> {
        self.scores.iter().position(|score| *score == 0.0).map(|at| self.tokens[at])
    }

    /// The tokens that are left, with their probabilities up to a factor.
    pub(super) fn weighed(&mut self) -> impl Iterator<Item = (u32, f64)> {
        self.weigh();
        self.tokens.iter().copied().zip(self.weights.iter().copied())
    }

    /// The token at this fraction of all weights.
    pub(super) fn draw(&mut self, fraction: f64) -> Option<u32> {
        const BLOCK: usize = 256;
        self.weigh();
        let mut left = fraction * sum(&self.weights);
        for (block, tokens) in self.weights.chunks(BLOCK).zip(self.tokens.chunks(BLOCK)) {
            let whole = sum(block);
            if left < whole {
                // One by one, weights may add up to less than their sum in lanes: then the last of them is meant.
                for (weight, token) in block.iter().zip(tokens) {
                    left -= weight;
                    if left < 0.0 {
                        return Some(*token);
                    }
                }
                return last_possible(block, tokens);
            }
            left -= whole;
        }
        // Rounding may leave a crumb; it belongs to the last token that can be drawn.
        last_possible(&self.weights, &self.tokens)
    }

    /// Keeps the `keep` likeliest, all of them for 0; with `ties_stay` also those that equal the last of these.
    pub(super) fn top_k(&mut self, keep: usize, ties_stay: bool) {
        if keep == 0 || keep >= self.tokens.len() {
            return;
        }
        let best = &mut self.head;
        best.clear();
        best.reserve(2 * keep);
        let mut floor = f64::NEG_INFINITY;
        for (&score, &token) in self.scores.iter().zip(&self.tokens) {
            // What equals the floor comes later, and loses against what is kept.
            if best.len() >= keep && score <= floor {
                continue;
            }
            best.push(Candidate { token, score });
            if best.len() == 2 * keep || best.len() == keep {
                best.select_nth_unstable_by(keep - 1, Candidate::rank);
                best.truncate(keep);
                floor = best[keep - 1].score;
            }
        }
        let (_, &mut last, _) = best.select_nth_unstable_by(keep - 1, Candidate::rank);
        self.retain(|one| if ties_stay { one.score >= last.score } else { one.rank(&last).is_le() });
    }

    /// Divides all scores.
    pub(super) fn temperature(&mut self, temperature: f64) {
        if temperature != 1.0 {
            self.scores.iter_mut().for_each(|score| *score /= temperature);
        }
    }

    /// Keeps the likeliest up to and including the one that makes their sum reach `p`.
    pub(super) fn top_p_from_the_head(&mut self, p: f64) {
        if p < 1.0 {
            self.keep_head(|sum_before| sum_before < p);
        }
    }

    /// Drops the least likely as long as the sum of what is dropped stays at or below 1 - `p`.
    pub(super) fn top_p_from_the_tail(&mut self, p: f64) {
        if p < 1.0 {
            self.keep_head(|sum_before| 1.0 - sum_before > 1.0 - p);
        }
    }

    /// Drops what is less likely than `share` of the likeliest.
    pub(super) fn min_p(&mut self, share: f64) {
        if share > 0.0 {
            let floor = share.ln();
            self.retain(|one| one.score >= floor);
        }
    }

    /// Keeps candidates from the likeliest on, while `wanted` agrees to the sum of those before; the first always stays.
    fn keep_head(&mut self, wanted: impl Fn(f64) -> bool) {
        /// The cut mostly comes early: first only tokens that are at least so likely, beside the likeliest, are sorted.
        const SHARES: [f64; 4] = [1.0 / 64.0, 1.0 / 4096.0, 1.0 / 16_777_216.0, f64::MIN_POSITIVE];
        self.weigh();
        let total = sum(&self.weights);
        for share in SHARES {
            let all = self.tokens.iter().zip(&self.scores).zip(&self.weights);
            let likely = all.filter(|(_, weight)| **weight >= share);
            self.head.clear();
            self.head.extend(likely.map(|((&token, &score), _)| Candidate { token, score }));
            self.head.sort_unstable_by(Candidate::rank);
            let mut sum_before = 0.0;
            let cut = self.head.iter().position(|candidate| {
                sum_before += exponential(candidate.score) / total;
                !wanted(sum_before)
            });
            if let Some(last) = cut.map(|at| self.head[at]) {
                return self.retain(|one| one.rank(&last).is_le());
            }
        }
    }

    fn weigh(&mut self) {
        self.weights.clear();
        self.weights.extend(self.scores.iter().map(|&score| exponential(score)));
    }

    fn retain(&mut self, stays: impl Fn(Candidate) -> bool) {
        let mut kept = 0;
        for at in 0..self.tokens.len() {
            let one = Candidate { token: self.tokens[at], score: self.scores[at] };
            if stays(one) {
                (self.tokens[kept], self.scores[kept]) = (one.token, one.score);
                kept += 1;
            }
        }
        self.tokens.truncate(kept);
        self.scores.truncate(kept);
    }
}

/// The last token that has a weight.
fn last_possible(weights: &[f64], tokens: &[u32]) -> Option<u32> {
    weights.iter().rposition(|weight| *weight > 0.0).map(|at| tokens[at])
}

/// The largest number, or `least` where none is larger, in eight lanes that do not wait for each other.
pub(super) fn largest<T: Copy + PartialOrd>(numbers: &[T], least: T) -> T {
    let larger = |a: T, b: T| if b > a { b } else { a };
    let (whole, rest) = numbers.as_chunks::<8>();
    let mut lanes = [least; 8];
    for chunk in whole {
        for (lane, number) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, *number);
        }
    }
    lanes.iter().chain(rest).copied().fold(least, larger)
}

/// The sum, in eight lanes that do not wait for each other.
fn sum(numbers: &[f64]) -> f64 {
    let (whole, rest) = numbers.as_chunks::<8>();
    let mut lanes = [0.0; 8];
    for chunk in whole {
        for (lane, number) in lanes.iter_mut().zip(chunk) {
            *lane += number;
        }
    }
    lanes.iter().chain(rest).sum()
}

#[cfg(test)]
mod tests {
    use super::super::tests::logits;
    use super::*;

    #[test]
    fn the_k_largest_are_found_without_sorting_all() {
        for count in [1, 2, 7, 64, 1000] {
            let logits = logits(count);
            for keep in [1, 2, 3, 10, 63, 64, 999] {
                let mut sorted: Vec<(f32, u32)> = logits.iter().copied().zip(0..).collect();
                sorted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                let floor = sorted[keep.min(count) - 1].0;
                for ties_stay in [false, true] {
                    let above = sorted.iter().filter(|(logit, _)| *logit >= floor).count();
                    let kept = if ties_stay { above } else { keep };
                    let mut expected: Vec<u32> =
                        sorted[..kept.min(count)].iter().map(|(_, token)| *token).collect();
                    expected.sort_unstable();
                    let mut candidates = Candidates::default();
                    candidates.start(&logits, std::iter::empty());
                    candidates.top_k(keep, ties_stay);
                    assert_eq!(candidates.tokens, expected, "{keep} of {count}");
                }
            }
        }
    }

    #[test]
    fn a_masked_token_is_never_drawn_whatever_rounding_does() {
        // The sum of a block and the same weights taken off one by one differ in their last bits, so that a fraction just
        // below 1 can be left with a crumb behind the last token that has a weight.
        for shift in 0..64 {
            let mut logits: Vec<f32> = logits(256 + shift)[shift..].to_vec();
            logits.resize(512, f32::NEG_INFINITY);
            let mut candidates = Candidates::default();
            candidates.start(&logits, std::iter::empty());
            for below in 1..8u32 {
                let drawn = candidates.draw(1.0 - f64::from(below) * f64::EPSILON / 2.0);
                assert!(drawn.is_some_and(|token| token < 256), "{drawn:?} at {shift}, {below}");
            }
        }
    }

    #[test]
    fn a_head_is_the_same_however_far_the_look_goes() {
        // From one token that has nearly everything to a vocabulary of equals.
        for spread in [0.0f32, 0.01, 0.3, 1.0, 4.0] {
            let logits: Vec<f32> = logits(3000).iter().map(|logit| logit * spread).collect();
            for p in [0.0, 0.1, 0.5, 0.9, 0.999, 0.999_999_999] {
                let mut candidates = Candidates::default();
                candidates.start(&logits, std::iter::empty());
                let mut sorted: Vec<(f64, u32)> =
                    candidates.weighed().map(|(token, weight)| (weight, token)).collect();
                sorted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                let total = sum(&candidates.weights);
                let mut before = 0.0;
                let kept = sorted.iter().position(|(weight, _)| {
                    before += weight / total;
                    before >= p
                });
                let mut expected: Vec<u32> =
                    sorted[..=kept.unwrap_or(sorted.len() - 1)].iter().map(|(_, token)| *token).collect();
                expected.sort_unstable();
                candidates.top_p_from_the_head(p);
                assert_eq!(candidates.tokens, expected, "{p} of {spread}");
            }
        }
    }
}
