//! Texts whose tokens are drawn by their probabilities, side by side; the likeliest of them is taken.

use super::rules::{Rules, log_sum};
use super::search::{Branch, Search, Text, without_nan};

/// Texts in the making, each with luck of its own.
pub struct Draws<'r> {
    rules: &'r Rules,
    temperature: f32,
    /// Tokens of a text at most.
    most: usize,
    draws: Vec<Draw>,
    /// Which of them go on, in the order of their logits.
    going: Vec<usize>,
}

struct Draw {
    text: Text,
    /// SplitMix64: the same seed gives the same text.
    random: u64,
}

impl<'r> Draws<'r> {
    /// As many texts as there are seeds, at a temperature above 0.
    pub fn new(
        rules: &'r Rules,
        temperature: f32,
        seeds: impl IntoIterator<Item = u64>,
        most: usize,
    ) -> Draws<'r> {
        let draws: Vec<Draw> =
            seeds.into_iter().map(|random| Draw { text: Text::default(), random }).collect();
        let going = (0..draws.len()).collect();
        Draws { rules, temperature, most, draws, going }
    }
}

impl Search for Draws<'_> {
    fn next(&mut self, logits: &mut [Vec<f32>]) -> Vec<Branch> {
        // All begin behind the same logits.
        let is_first = logits.len() < self.going.len();
        let (mut going, mut branches) = (Vec::new(), Vec::new());
        let mut changed = Vec::new();
        for (at, &number) in self.going.iter().enumerate() {
            let from = if is_first { 0 } else { at };
            let Some(given) = logits.get(from) else { continue };
            changed.clone_from(given);
            without_nan(&mut changed);
            let draw = &mut self.draws[number];
            self.rules.apply(&draw.text.tokens, &mut changed);
            if let Some(token) = draw.next(&changed, self.temperature, self.rules.tokens().end)
                && draw.text.tokens.len() < self.most
            {
                going.push(number);
                branches.push(Branch { from, token });
            }
        }
        self.going = going;
        branches
    }

    fn finish(self) -> Text {
        let texts = self.draws.into_iter().map(|draw| draw.text);
        // The first of equals.
        let best = texts.rev().max_by(|a, b| a.mean_log_probability().total_cmp(&b.mean_log_probability()));
        best.unwrap_or_default()
    }
}

impl Draw {
    /// The token that follows; nothing at the end.
    fn next(&mut self, logits: &[f32], temperature: f32, end: u32) -> Option<u32> {
        // A model that gives nothing to choose from has come to its end.
        let chosen = self.pick(logits, temperature)?;
        self.text.log_probability += f64::from(logits[chosen as usize] - log_sum(logits));
        if chosen == end {
            return None;
        }
        self.text.tokens.push(chosen);
        Some(chosen)
    }

    /// Whose share of the exponentials a random number falls into.
    fn pick(&mut self, logits: &[f32], temperature: f32) -> Option<u32> {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weight = |logit: f32| f64::from(((logit - most) / temperature).exp());
        let total: f64 = logits.iter().map(|&logit| weight(logit)).sum();
        if most == f32::NEG_INFINITY || !total.is_finite() {
            return None;
        }
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let fraction = ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        let mut left = fraction * total;
        let mut last = None;
        for (id, &logit) in logits.iter().enumerate().filter(|(_, logit)| **logit > f32::NEG_INFINITY) {
            left -= weight(logit);
            last = Some(id as u32);
            if left < 0.0 {
                break;
            }
        }
        last
    }
}
