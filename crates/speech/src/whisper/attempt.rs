//! One text for a window at one temperature: logits in, token out.

use super::rules::{Rules, log_sum};

/// A text in the making.
pub struct Attempt<'r> {
    rules: &'r Rules,
    temperature: f32,
    /// SplitMix64: the same seed gives the same text.
    random: u64,
    most: usize,
    tokens: Vec<u32>,
    /// Logarithms of the probabilities of all tokens so far, the end's included.
    sum: f64,
}

/// A text that has come to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// Words and times, without the end.
    pub tokens: Vec<u32>,
    /// The mean logarithm of the tokens' probabilities, the end's included.
    pub mean_log_probability: f32,
}

impl<'r> Attempt<'r> {
    /// A text of at most so many tokens. At temperature 0 the likeliest token is taken, and the seed does not count.
    pub fn new(rules: &'r Rules, temperature: f32, seed: u64, most: usize) -> Attempt<'r> {
        Attempt { rules, temperature, random: seed, most, tokens: Vec::new(), sum: 0.0 }
    }

    /// The token that follows, which the model is to read next; nothing at the end. Logits are changed on the way.
    pub fn next(&mut self, logits: &mut [f32]) -> Option<u32> {
        // What is no number is as unlikely as can be.
        logits.iter_mut().filter(|logit| logit.is_nan()).for_each(|logit| *logit = f32::NEG_INFINITY);
        self.rules.apply(&self.tokens, logits);
        let total = log_sum(logits);
        let chosen = match self.temperature > 0.0 {
            true => self.draw(logits),
            false => best(logits),
        };
        // A model that gives nothing to choose from has come to its end.
        let chosen = chosen.filter(|&id| logits[id as usize] > f32::NEG_INFINITY)?;
        self.sum += f64::from(logits[chosen as usize] - total);
        if chosen == self.rules.tokens().end {
            return None;
        }
        self.tokens.push(chosen);
        (self.tokens.len() < self.most).then_some(chosen)
    }

    /// Whose share of the exponentials a random number falls into.
    fn draw(&mut self, logits: &[f32]) -> Option<u32> {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weight = |logit: f32| f64::from(((logit - most) / self.temperature).exp());
        let total: f64 = logits.iter().map(|&logit| weight(logit)).sum();
        if most == f32::NEG_INFINITY || !total.is_finite() {
            return None;
        }
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let fraction = ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        let mut left = fraction * total;
        for (id, &logit) in logits.iter().enumerate() {
            left -= weight(logit);
            if left < 0.0 {
                return Some(id as u32);
            }
        }
        best(logits)
    }

    /// What came of it.
    pub fn finish(self) -> Text {
        let count = self.tokens.len() + 1;
        Text { tokens: self.tokens, mean_log_probability: (self.sum / count as f64) as f32 }
    }
}

/// The likeliest, the first of equals.
fn best(logits: &[f32]) -> Option<u32> {
    let mut best = None;
    for (id, &logit) in logits.iter().enumerate() {
        if best.is_none_or(|(_, most)| logit > most) {
            best = Some((id as u32, logit));
        }
    }
    best.map(|(id, _)| id)
}
