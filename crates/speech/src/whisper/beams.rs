//! The likeliest text: the best few beginnings are kept beside each other, each goes on with its best tokens, and the best of all
//! those are kept again. One beam takes the likeliest token each time.

use super::rules::{Rules, log_sum};
use super::search::{Branch, Search, Text, without_nan};

/// The most beginnings: the model has a copy of keys and values for each.
pub const MOST_BEAMS: usize = 32;

/// The beginnings that are kept.
pub struct Beams<'r> {
    rules: &'r Rules,
    width: usize,
    /// Tokens of a text at most.
    most: usize,
    live: Vec<Text>,
    ended: Vec<Text>,
}

/// A beginning by one token more.
#[derive(Clone, Copy)]
struct Candidate {
    branch: Branch,
    log_probability: f64,
}

impl<'r> Beams<'r> {
    /// So many beginnings, of texts of at most so many tokens.
    pub fn new(rules: &'r Rules, width: usize, most: usize) -> Beams<'r> {
        Beams {
            rules,
            width: width.clamp(1, MOST_BEAMS),
            most,
            live: vec![Text::default()],
            ended: Vec::new(),
        }
    }

    /// The best tokens behind one beginning, the best first.
    fn best_of(&self, from: usize, logits: &[f32]) -> Vec<Candidate> {
        let total = log_sum(logits);
        let mut best: Vec<(u32, f32)> = Vec::with_capacity(2 * self.width + 1);
        for (token, &logit) in logits.iter().enumerate() {
            let is_among =
                best.len() < 2 * self.width || best.last().is_some_and(|&(_, least)| logit > least);
            if is_among && logit > f32::NEG_INFINITY {
                let place = best.partition_point(|&(_, other)| other >= logit);
                best.insert(place, (token as u32, logit));
                best.truncate(2 * self.width);
            }
        }
        let before = self.live[from].log_probability;
        let candidate = |(token, logit)| Candidate {
            branch: Branch { from, token },
            log_probability: before + f64::from(logit - total),
        };
        best.into_iter().map(candidate).collect()
    }
}

impl Search for Beams<'_> {
    fn next(&mut self, logits: &mut [Vec<f32>]) -> Vec<Branch> {
        let mut candidates = Vec::new();
        for (from, logits) in logits.iter_mut().enumerate().take(self.live.len()) {
            without_nan(logits);
            self.rules.apply(&self.live[from].tokens, logits);
            candidates.extend(self.best_of(from, logits));
        }
        candidates.sort_by(|a, b| b.log_probability.total_cmp(&a.log_probability));
        // Enough for as many that go on as there may be, even if as many end.
        candidates.truncate(2 * self.width);
        let (mut live, mut branches) = (Vec::new(), Vec::new());
        for (rank, Candidate { branch, log_probability }) in candidates.into_iter().enumerate() {
            let mut tokens = self.live[branch.from].tokens.clone();
            if branch.token == self.rules.tokens().end {
                // An end counts where another token in its place would have been kept.
                if rank < self.width {
                    self.ended.push(Text { tokens, log_probability });
                }
            } else if live.len() < self.width {
                tokens.push(branch.token);
                live.push(Text { tokens, log_probability });
                branches.push(branch);
            }
        }
        // A model that gives nothing to choose from has come to its end.
        if !live.is_empty() || !self.ended.is_empty() {
            self.live = live;
        }
        let is_full = self.live.first().is_some_and(|text| text.tokens.len() >= self.most);
        if is_full || self.ended.len() >= self.width { Vec::new() } else { branches }
    }

    fn finish(self) -> Text {
        let Beams { live, mut ended, width, .. } = self;
        // Those that were cut off stand in for ends that were never reached.
        let missing = width.saturating_sub(ended.len());
        ended.extend(live.into_iter().take(missing));
        // By the length, or the shortest would win: every token makes a text less likely.
        let share = |text: &Text| text.log_probability / text.tokens.len().max(1) as f64;
        // The first of equals.
        ended.into_iter().rev().max_by(|a, b| share(a).total_cmp(&share(b))).unwrap_or_default()
    }
}
