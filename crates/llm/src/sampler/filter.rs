//! The filters: each takes candidates away or changes their logits, and leaves the rest in the order of their tokens.
//!
//! A vocabulary of 256 k is looked at once; what is sorted is only as much as a filter needs to find its cut.

use std::cmp::Ordering;
use std::collections::HashMap;

/// A token that may still be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) token: u32,
    pub(super) logit: f64,
}

impl Candidate {
    /// The likelier first; of equals, the one with the smaller id.
    fn rank(&self, other: &Candidate) -> Ordering {
        other.logit.total_cmp(&self.logit).then(self.token.cmp(&other.token))
    }
}

/// The `keep` largest logits, all of them for 0; with `ties_stay` also those that equal the smallest of these.
/// Tokens whose logit is negative infinity are out from the start.
pub(super) fn top_k(
    logits: &[f32],
    penalised: &HashMap<u32, f64>,
    keep: usize,
    ties_stay: bool,
) -> Vec<Candidate> {
    let all = logits.iter().zip(0u32..).filter_map(|(&logit, token)| {
        let plain = || f64::from(logit);
        let logit =
            if penalised.is_empty() { plain() } else { penalised.get(&token).copied().unwrap_or_else(plain) };
        (logit > f64::NEG_INFINITY).then_some(Candidate { token, logit })
    });
    if keep == 0 || keep >= logits.len() {
        return all.collect();
    }
    let mut best: Vec<Candidate> = Vec::with_capacity(2 * keep);
    let mut ties: Vec<Candidate> = Vec::new();
    let mut floor = f64::NEG_INFINITY;
    for candidate in all {
        // What equals the floor comes later and loses against what is kept, but may stay as a tie.
        if best.len() >= keep && candidate.logit <= floor {
            if ties_stay && candidate.logit == floor {
                ties.push(candidate);
            }
            continue;
        }
        best.push(candidate);
        if best.len() == 2 * keep || best.len() == keep {
            shrink(&mut best, &mut ties, keep, &mut floor);
        }
    }
    shrink(&mut best, &mut ties, keep, &mut floor);
    if ties_stay {
        best.extend(ties);
    }
    best.sort_unstable_by_key(|candidate| candidate.token);
    best
}

/// Cuts down to the `keep` best, and remembers what ties with the last of them.
fn shrink(best: &mut Vec<Candidate>, ties: &mut Vec<Candidate>, keep: usize, floor: &mut f64) {
    if best.len() < keep {
        return;
    }
    let (_, last, rest) = best.select_nth_unstable_by(keep - 1, Candidate::rank);
    if last.logit > *floor {
        *floor = last.logit;
        ties.clear();
    }
    let floor = *floor;
    ties.extend(rest.iter().filter(|candidate| candidate.logit == floor));
    best.truncate(keep);
}

/// Divides all logits.
pub(super) fn temperature(candidates: &mut [Candidate], temperature: f64) {
    if temperature != 1.0 {
        candidates.iter_mut().for_each(|candidate| candidate.logit /= temperature);
    }
}

/// Probabilities up to a factor; the likeliest has 1.
pub(super) fn weights(candidates: &[Candidate]) -> Vec<f64> {
    let largest = candidates.iter().map(|candidate| candidate.logit).fold(f64::NEG_INFINITY, f64::max);
    candidates.iter().map(|candidate| (candidate.logit - largest).exp()).collect()
}

/// Keeps the likeliest up to and including the one that makes their sum reach `p`.
pub(super) fn top_p_from_the_head(candidates: &mut Vec<Candidate>, p: f64) {
    if p < 1.0 {
        keep_head(candidates, |sum_before| sum_before < p);
    }
}

/// Drops the least likely as long as the sum of what is dropped stays at or below 1 - `p`.
pub(super) fn top_p_from_the_tail(candidates: &mut Vec<Candidate>, p: f64) {
    if p < 1.0 {
        keep_head(candidates, |sum_before| 1.0 - sum_before > 1.0 - p);
    }
}

/// Keeps candidates from the likeliest on, while `wanted` agrees to the sum of those before; the first always stays.
fn keep_head(candidates: &mut Vec<Candidate>, wanted: impl Fn(f64) -> bool) {
    const FIRST_LOOK: usize = 64;
    let total: f64 = weights(candidates).iter().sum();
    let mut sorted = candidates.clone();
    let (mut done, mut sum, mut look) = (0, 0.0, FIRST_LOOK);
    let largest = candidates.iter().map(|candidate| candidate.logit).fold(f64::NEG_INFINITY, f64::max);
    let mut last: Option<Candidate> = None;
    // Sorts the head in growing parts, since the cut mostly comes early.
    while done < sorted.len() {
        let tail = &mut sorted[done..];
        let part = look.min(tail.len());
        if part < tail.len() {
            tail.select_nth_unstable_by(part, Candidate::rank);
        }
        tail[..part].sort_unstable_by(Candidate::rank);
        for candidate in &tail[..part] {
            if last.is_some() && !wanted(sum) {
                let cut = last;
                candidates.retain(|one| cut.is_none_or(|cut| one.rank(&cut) != Ordering::Greater));
                return;
            }
            sum += (candidate.logit - largest).exp() / total;
            last = Some(*candidate);
        }
        done += part;
        look *= 8;
    }
}

/// Drops what is less likely than `share` of the likeliest.
pub(super) fn min_p(candidates: &mut Vec<Candidate>, share: f64) {
    if share > 0.0 {
        let largest = candidates.iter().map(|candidate| candidate.logit).fold(f64::NEG_INFINITY, f64::max);
        let floor = largest + share.ln();
        candidates.retain(|candidate| candidate.logit >= floor);
    }
}
