//! From logits to one token.
//!
//! Logits and the tokens so far flow in, one token flows out, drawn with a generator whose numbers are the same on
//! every machine. What the filters do, and in which order, is data in [`SamplerSettings`]; `candidates` holds
//! the filters themselves. Knows nothing of vocabularies or texts.

mod candidates;
mod exponential;
mod random;

use candidates::Candidates;
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
    /// Divides positive and multiplies negative logits of tokens seen before, in the prompt or since; 1 changes nothing.
    pub repetition_penalty: f64,
    /// Subtracted from a token's logit for each time it was said; the prompt does not count.
    pub frequency_penalty: f64,
    /// Subtracted once from the logit of every token that was said; the prompt does not count.
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

    /// Whether the likeliest token is taken, whatever came before.
    pub fn takes_likeliest(&self) -> bool {
        self.temperature == 0.0 && !self.penalises()
    }

    /// Whether tokens that were seen before are treated in another way than those that were not.
    fn penalises(&self) -> bool {
        self.repetition_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0
    }

    /// The logit of a token that was seen before, and said `count` times.
    fn penalised(&self, logit: f64, count: u32) -> f64 {
        let logit =
            if logit < 0.0 { logit * self.repetition_penalty } else { logit / self.repetition_penalty };
        let presence = if count > 0 { self.presence_penalty } else { 0.0 };
        logit - f64::from(count) * self.frequency_penalty - presence
    }

    fn check(&self) -> Result<(), SamplerError> {
        let rules = [
            ("temperature", self.temperature, self.temperature >= 0.0, "a finite number, 0 or more"),
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
    /// Kept, like `counts`, for their memory alone.
    candidates: Candidates,
    /// How often each token that was seen was said, where a penalty asks.
    counts: HashMap<u32, u32>,
    /// Tokens at the beginning of a history that were read, not said.
    prompt: usize,
}

impl Sampler {
    /// A sampler that starts from a seed.
    ///
    /// # Errors
    /// When a setting is outside its range.
    pub fn new(settings: SamplerSettings, seed: u64) -> Result<Sampler, SamplerError> {
        settings.check()?;
        let random = Random::new(seed);
        Ok(Sampler { settings, random, candidates: Candidates::default(), counts: HashMap::new(), prompt: 0 })
    }

    /// The same for histories that begin with a prompt of so many tokens, which were read and not said: frequency and
    /// presence penalties do not count them.
    pub fn after_prompt(self, tokens: usize) -> Sampler {
        Sampler { prompt: tokens, ..self }
    }

    /// The settings.
    pub fn settings(&self) -> &SamplerSettings {
        &self.settings
    }

    /// Goes on with the settings and from the random number that another one stands at, in memory of its own.
    pub(crate) fn follow(&mut self, other: &Sampler) {
        self.settings.clone_from(&other.settings);
        self.random.clone_from(&other.random);
        self.prompt = other.prompt;
    }

    /// The distribution that the next token is drawn from, by token.
    ///
    /// # Errors
    /// As for [`Sampler::sample`].
    pub fn probabilities(&mut self, logits: &[f32], history: &[u32]) -> Result<Vec<f64>, SamplerError> {
        self.filter(logits, history)?;
        let mut probabilities = vec![0.0; logits.len()];
        if self.settings.temperature == 0.0 {
            let token = self.candidates.likeliest().ok_or(SamplerError::NothingLeft)?;
            probabilities[token as usize] = 1.0;
            return Ok(probabilities);
        }
        self.candidates.weighed().for_each(|(token, weight)| probabilities[token as usize] = weight);
        let total: f64 = probabilities.iter().sum();
        probabilities.iter_mut().for_each(|probability| *probability /= total);
        Ok(probabilities)
    }

    /// The next token, given the tokens so far. Tokens whose logit is negative infinity are never chosen.
    ///
    /// # Errors
    /// When there are no logits, one of them is not a number, or all tokens are ruled out.
    pub fn sample(&mut self, logits: &[f32], history: &[u32]) -> Result<u32, SamplerError> {
        let greedy = self.settings.temperature == 0.0;
        let token = if self.settings.takes_likeliest() {
            check_logits(logits)?;
            let largest = candidates::largest(logits, f32::NEG_INFINITY);
            let token = logits.iter().position(|logit| *logit == largest && largest > f32::NEG_INFINITY);
            token.map(|token| token as u32)
        } else {
            self.filter(logits, history)?;
            match greedy {
                true => self.candidates.likeliest(),
                false => self.candidates.draw(self.random.next_fraction()),
            }
        };
        token.ok_or(SamplerError::NothingLeft)
    }

    /// Leaves those among the candidates that the settings let through; greedy choices need no filter.
    fn filter(&mut self, logits: &[f32], history: &[u32]) -> Result<(), SamplerError> {
        check_logits(logits)?;
        let Sampler { settings, candidates, counts, prompt, .. } = self;
        counts.clear();
        if settings.penalises() {
            let known = |(_, token): &(usize, &u32)| (**token as usize) < logits.len();
            for (at, &token) in history.iter().enumerate().filter(known) {
                *counts.entry(token).or_default() += u32::from(at >= *prompt);
            }
        }
        let penalised = counts
            .iter()
            .map(|(&token, &count)| (token, settings.penalised(f64::from(logits[token as usize]), count)));
        candidates.start(logits, penalised);
        if settings.temperature == 0.0 {
            return Ok(());
        }
        candidates.top_k(settings.top_k, settings.order == SamplerOrder::Transformers);
        match settings.order {
            SamplerOrder::Transformers => {
                candidates.temperature(settings.temperature);
                candidates.top_p_from_the_tail(settings.top_p);
                candidates.min_p(settings.min_p);
            }
            SamplerOrder::LlamaCpp => {
                candidates.top_p_from_the_head(settings.top_p);
                candidates.min_p(settings.min_p);
                candidates.temperature(settings.temperature);
            }
        }
        Ok(())
    }
}

fn check_logits(logits: &[f32]) -> Result<(), SamplerError> {
    if logits.is_empty() {
        return Err(SamplerError::Empty);
    }
    let is_odd = |logit: &f32| logit.is_nan() || *logit == f32::INFINITY;
    // Counted over all, which takes a fraction of the time of looking for the first.
    if logits.iter().filter(|logit| is_odd(logit)).count() == 0 {
        return Ok(());
    }
    let odd = logits.iter().position(is_odd);
    odd.map_or(Ok(()), |token| Err(SamplerError::NotANumber { token, value: logits[token] }))
}

#[cfg(test)]
mod tests;
