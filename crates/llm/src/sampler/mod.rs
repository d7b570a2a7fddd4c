//! From logits to one token.
//!
//! Logits and the tokens so far flow in, one token flows out, drawn with a generator whose numbers are the same on
//! every machine. What the filters do, and in which order, is data in [`SamplerSettings`]; `filter` holds the
//! filters themselves. Knows nothing of vocabularies or texts.

mod filter;
mod random;

use filter::Candidate;
use random::Random;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// How the distribution that a token is drawn from is made out of logits.
///
/// The defaults draw from the model's own distribution: every filter is off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplerSettings {
    /// Logits are divided by this; 0 takes the first of the largest logits.
    pub temperature: f64,
    /// Only the k largest logits stay; 0 keeps all.
    pub top_k: usize,
    /// The smallest set of likely tokens whose probabilities add up to p stays; 1 keeps all.
    pub top_p: f64,
    /// Tokens less likely than this share of the likeliest go; 0 keeps all.
    pub min_p: f64,
    /// Divides positive and multiplies negative logits of tokens seen before; 1 changes nothing.
    pub repetition_penalty: f64,
    /// Subtracted from a token's logit for each time it was seen.
    pub frequency_penalty: f64,
    /// Subtracted once from the logit of every token seen before.
    pub presence_penalty: f64,
    /// In which order the filters work.
    pub order: SamplerOrder,
}

impl Default for SamplerSettings {
    fn default() -> SamplerSettings {
        SamplerSettings {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            order: SamplerOrder::Transformers,
        }
    }
}

impl SamplerSettings {
    /// Always the likeliest token.
    pub fn greedy() -> SamplerSettings {
        SamplerSettings { temperature: 0.0, ..SamplerSettings::default() }
    }

    fn check(&self) -> Result<(), SamplerError> {
        let rules = [
            ("temperature", self.temperature, self.temperature >= 0.0, "0 or more"),
            ("top_p", self.top_p, (0.0..=1.0).contains(&self.top_p), "between 0 and 1"),
            ("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "between 0 and 1"),
            ("repetition_penalty", self.repetition_penalty, self.repetition_penalty > 0.0, "more than 0"),
            ("frequency_penalty", self.frequency_penalty, true, "a number"),
            ("presence_penalty", self.presence_penalty, true, "a number"),
        ];
        let broken = rules.into_iter().find(|(_, value, holds, _)| !(*holds && value.is_finite()));
        broken.map_or(Ok(()), |(name, value, _, range)| Err(SamplerError::Setting { name, value, range }))
    }
}

/// The order of the filters, as two widespread libraries have it. Penalties always come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SamplerOrder {
    /// Temperature, top-k (ties of the k-th stay), top-p, min-p.
    #[default]
    #[serde(rename = "transformers")]
    Transformers,
    /// Top-k, top-p, min-p, temperature.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
}

/// Why no token could be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SamplerError {
    /// A setting outside its range.
    #[error("the sampler's {name} is {value}, and must be {range}")]
    Setting {
        /// Which.
        name: &'static str,
        /// What it is.
        value: f64,
        /// What it may be.
        range: &'static str,
    },
    /// No logits at all.
    #[error("there are no logits to choose a token from")]
    Empty,
    /// A logit that is not a number, or infinite.
    #[error("the logit of token {token} is {value}: the model's arithmetic overflowed")]
    NotANumber {
        /// Whose.
        token: usize,
        /// What it is.
        value: f32,
    },
    /// Every token is ruled out.
    #[error("every token is ruled out, so none can be chosen")]
    NothingLeft,
}

/// Chooses tokens. The same settings, seed and logits give the same tokens.
///
/// Random numbers come from xoshiro256++, its state filled by SplitMix64 from the seed: one number in [0, 1) of 53
/// bits for each drawn token, none for a greedy one.
#[derive(Clone, Debug)]
pub struct Sampler {
    settings: SamplerSettings,
    random: Random,
}

impl Sampler {
    /// A sampler that starts from a seed.
    ///
    /// # Errors
    /// When a setting is outside its range.
    pub fn new(settings: SamplerSettings, seed: u64) -> Result<Sampler, SamplerError> {
        settings.check()?;
        Ok(Sampler { settings, random: Random::new(seed) })
    }

    /// The settings.
    pub fn settings(&self) -> &SamplerSettings {
        &self.settings
    }

    /// The distribution that the next token is drawn from, by token.
    ///
    /// # Errors
    /// As for [`Sampler::sample`].
    pub fn probabilities(&self, logits: &[f32], history: &[u32]) -> Result<Vec<f64>, SamplerError> {
        let mut probabilities = vec![0.0; logits.len()];
        match self.choose(logits, history)? {
            Choice::One(token) => probabilities[token as usize] = 1.0,
            Choice::Draw(candidates) => {
                let weights = filter::weights(&candidates);
                let total: f64 = weights.iter().sum();
                for (candidate, weight) in candidates.iter().zip(weights) {
                    probabilities[candidate.token as usize] = weight / total;
                }
            }
        }
        Ok(probabilities)
    }

    /// The next token, given the tokens so far. Tokens whose logit is negative infinity are never chosen.
    ///
    /// # Errors
    /// When there are no logits, one of them is not a number, or all tokens are ruled out.
    pub fn sample(&mut self, logits: &[f32], history: &[u32]) -> Result<u32, SamplerError> {
        let candidates = match self.choose(logits, history)? {
            Choice::One(token) => return Ok(token),
            Choice::Draw(candidates) => candidates,
        };
        let weights = filter::weights(&candidates);
        let mut left = self.random.next_fraction() * weights.iter().sum::<f64>();
        for (candidate, weight) in candidates.iter().zip(&weights) {
            left -= weight;
            if left < 0.0 {
                return Ok(candidate.token);
            }
        }
        // Rounding may leave a crumb; it belongs to the last token that can be drawn.
        let last = candidates.iter().zip(&weights).rev().find(|(_, weight)| **weight > 0.0);
        last.map(|(candidate, _)| candidate.token).ok_or(SamplerError::NothingLeft)
    }

    fn choose(&self, logits: &[f32], history: &[u32]) -> Result<Choice, SamplerError> {
        check_logits(logits)?;
        let settings = &self.settings;
        let penalised = penalise(settings, logits, history);
        let keep = if settings.temperature == 0.0 { 1 } else { settings.top_k };
        let ties_stay = settings.order == SamplerOrder::Transformers && settings.temperature != 0.0;
        let mut candidates = filter::top_k(logits, &penalised, keep, ties_stay);
        if settings.temperature == 0.0 {
            return candidates.first().map(|first| Choice::One(first.token)).ok_or(SamplerError::NothingLeft);
        }
        match settings.order {
            SamplerOrder::Transformers => {
                filter::temperature(&mut candidates, settings.temperature);
                filter::top_p_from_the_tail(&mut candidates, settings.top_p);
                filter::min_p(&mut candidates, settings.min_p);
            }
            SamplerOrder::LlamaCpp => {
                filter::top_p_from_the_head(&mut candidates, settings.top_p);
                filter::min_p(&mut candidates, settings.min_p);
                filter::temperature(&mut candidates, settings.temperature);
            }
        }
        if candidates.is_empty() { Err(SamplerError::NothingLeft) } else { Ok(Choice::Draw(candidates)) }
    }
}

/// What is left to chance.
enum Choice {
    One(u32),
    /// Candidates by token, so that the order of drawing does not hang on how a filter sorts.
    Draw(Vec<Candidate>),
}

fn check_logits(logits: &[f32]) -> Result<(), SamplerError> {
    if logits.is_empty() {
        return Err(SamplerError::Empty);
    }
    let odd = logits.iter().position(|logit| logit.is_nan() || *logit == f32::INFINITY);
    odd.map_or(Ok(()), |token| Err(SamplerError::NotANumber { token, value: logits[token] }))
}

/// The logits that penalties change, by token.
fn penalise(settings: &SamplerSettings, logits: &[f32], history: &[u32]) -> HashMap<u32, f64> {
    let mut counts: HashMap<u32, u32> = HashMap::new();
    let off = settings.repetition_penalty == 1.0
        && settings.frequency_penalty == 0.0
        && settings.presence_penalty == 0.0;
    if off {
        return HashMap::new();
    }
    for &token in history.iter().filter(|token| (**token as usize) < logits.len()) {
        *counts.entry(token).or_default() += 1;
    }
    let penalised = |(token, count): (u32, u32)| {
        let logit = f64::from(logits[token as usize]);
        let penalty = settings.repetition_penalty;
        let logit = if logit < 0.0 { logit * penalty } else { logit / penalty };
        (token, logit - f64::from(count) * settings.frequency_penalty - settings.presence_penalty)
    };
    counts.into_iter().map(penalised).collect()
}

#[cfg(test)]
mod tests;
