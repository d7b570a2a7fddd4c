//! How families change the frequencies of rotary positions, so that a model reads further than it was first trained for.

use std::f32::consts::TAU;

/// How a family changes the frequencies `theta^(-2i/d)` of a head.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    #[default]
    None,
    /// Positions are divided by a factor.
    Linear(f32),
    /// Long wavelengths are stretched as Llama 3 does it.
    Llama3(Llama3Scaling),
    /// Wavelengths that turn seldom are stretched, and scores sharpened.
    Yarn(YarnScaling),
    /// Each frequency is divided by its own number, of one list up to the first training's context and another beyond.
    Long(LongScaling),
    /// Only a part of the pairs turns, and pairs span the whole head: Gemma 4's full layers.
    Proportional {
        /// Which part.
        part: f64,
        /// What the frequencies are divided by.
        factor: f32,
    },
    /// Each frequency is divided by its own number, as GGUF files store it.
    Divisors(Vec<f32>),
}

impl RopeScaling {
    /// What queries and keys are multiplied by.
    pub(super) fn attention_factor(&self) -> f32 {
        match self {
            RopeScaling::Yarn(scaling) => scaling.attention_factor as f32,
            RopeScaling::Long(scaling) => scaling.attention_factor as f32,
            RopeScaling::None
            | RopeScaling::Linear(_)
            | RopeScaling::Llama3(_)
            | RopeScaling::Proportional { .. }
            | RopeScaling::Divisors(_) => 1.0,
        }
    }
}

/// How Llama 3.1 and later stretch long wavelengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// By how much long wavelengths grow.
    pub factor: f32,
    /// Wavelengths above `original / low` grow whole.
    pub low_frequency_factor: f32,
    /// Wavelengths below `original / high` stay.
    pub high_frequency_factor: f32,
    /// The context of the first training.
    pub original_context: usize,
}

impl Llama3Scaling {
    pub(super) fn apply(&self, frequencies: &[f32]) -> Vec<f32> {
        let original = self.original_context as f32;
        let (low, high) = (self.low_frequency_factor, self.high_frequency_factor);
        let scaled = |&frequency: &f32| {
            let wavelength = TAU / frequency;
            if wavelength < original / high {
                frequency
            } else if wavelength > original / low {
                frequency / self.factor
            } else {
                let smooth = (original / wavelength - low) / (high - low);
                frequency * ((1.0 - smooth) / self.factor + smooth)
            }
        };
        frequencies.iter().map(scaled).collect()
    }
}

/// YaRN: pairs that turn often within the first training's context stay, pairs that hardly turn there are stretched, those
/// between are blended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YarnScaling {
    /// By how much long wavelengths grow.
    pub factor: f64,
    /// Pairs that turn more often than this stay.
    pub beta_fast: f64,
    /// Pairs that turn less often than this grow whole.
    pub beta_slow: f64,
    /// Whether the blend begins and ends at whole pairs.
    pub truncate: bool,
    /// The context of the first training.
    pub original_context: usize,
    /// What queries and keys are multiplied by.
    pub attention_factor: f64,
}

impl YarnScaling {
    /// What queries and keys are multiplied by unless the file says it: that much more for each e-fold of the factor.
    pub fn usual_attention_factor(factor: f64, more: f64) -> f64 {
        if factor <= 1.0 { 1.0 } else { 0.1 * more * factor.ln() + 1.0 }
    }

    pub(super) fn apply(&self, theta: f32, frequencies: &[f32]) -> Vec<f32> {
        let dims = frequencies.len() as f64 * 2.0;
        let pair_that_turns = |times: f64| {
            let log = (self.original_context as f64 / (times * std::f64::consts::TAU)).ln();
            dims * log / (2.0 * f64::from(theta).ln())
        };
        let (mut first, mut last) = (pair_that_turns(self.beta_fast), pair_that_turns(self.beta_slow));
        if self.truncate {
            (first, last) = (first.floor(), last.ceil());
        }
        (first, last) = (first.max(0.0), last.min(dims - 1.0));
        if first == last {
            // As the original has it: a step in place of a blend.
            last += 0.001;
        }
        let scaled = |(pair, &frequency): (usize, &f32)| {
            let stretched = ((pair as f32 - first as f32) / (last - first) as f32).clamp(0.0, 1.0);
            frequency / self.factor as f32 * stretched + frequency * (1.0 - stretched)
        };
        frequencies.iter().enumerate().map(scaled).collect()
    }
}

/// LongRoPE. The second list serves all of an input whose last position is beyond the first training's context, and all of a
/// text that the runner says to be so long, in however many inputs it is read. Keys that a cache holds by then stay as they
/// are.
#[derive(Clone, Debug, PartialEq)]
pub struct LongScaling {
    /// Divisors up to the first training's context.
    pub short: Vec<f32>,
    /// Divisors beyond.
    pub long: Vec<f32>,
    /// The context of the first training.
    pub original_context: usize,
    /// What queries and keys are multiplied by.
    pub attention_factor: f64,
}

impl LongScaling {
    /// What queries and keys are multiplied by unless the file says it.
    pub fn usual_attention_factor(factor: f64, original_context: usize) -> f64 {
        if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original_context as f64).ln()).sqrt() }
    }
}
