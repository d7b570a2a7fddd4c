//! The measuring itself: prefill of a text, decode at several depths, each several times after one round that nobody
//! counts.

use super::decoder::{Greedy, text};
use super::figures::Figures;
use super::traffic::Traffic;
use crate::failure::Failure;
use indicatif::ProgressBar;
use pteron_llm::LanguageModel;
use pteron_runtime::RunControl;
use serde::Serialize;
use std::time::{Duration, Instant};

/// How long tokens are decoded that nobody counts: the first makes the plan of a step, and machines that give memory on
/// demand, as virtual ones do, take some seconds to be at their best.
pub(crate) const WARM_UP: Duration = Duration::from_secs(2);

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Tokens of the prefill; 0 leaves it out.
    pub(crate) prompt: usize,
    /// Tokens decoded one by one; 0 leaves that out.
    pub(crate) new: usize,
    /// Positions that are full when decoding begins.
    pub(crate) depths: Vec<usize>,
    /// How often.
    pub(crate) repeats: usize,
}

impl Plan {
    /// Positions that the largest measurement needs.
    pub(crate) fn positions(&self) -> usize {
        let deepest = self.depths.iter().max().copied().unwrap_or(0);
        // A profile takes one more token than the prefill at least, also where nothing is decoded.
        self.prompt.max(deepest + self.new.max(1))
    }

    /// Rounds in all, for a bar; `lanes` says with how many numbers of sessions decoding is measured.
    pub(crate) fn rounds(&self, lanes: usize) -> u64 {
        let decode = if self.new > 0 { self.depths.len() * lanes.max(1) } else { 0 };
        ((usize::from(self.prompt > 0) + decode) * self.repeats) as u64
    }
}

/// The prefill of a text from the beginning.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Prefill {
    /// How long the text is.
    pub(crate) tokens: usize,
    /// Tokens a second.
    pub(crate) tok_s: Figures,
    /// Seconds to the first token of an answer.
    pub(crate) first_token_s: f64,
    /// Multiply-adds a second in matrix products.
    pub(crate) multiply_adds_s: f64,
    /// Those, as a part of what the matrix unit reaches on bytes (fast) or bf16 (exact).
    pub(crate) limit_fraction: Option<f64>,
}

/// Decoding token by token from a depth on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Decode {
    /// Positions that were full when it began.
    pub(crate) context: usize,
    /// Seconds that filling them took, to the first token behind them: the first such prompt of a session.
    pub(crate) fill_s: f64,
    /// How many tokens.
    pub(crate) tokens: usize,
    /// Tokens a second.
    pub(crate) tok_s: Figures,
    /// Bytes that a token must read at least: weights, and keys and values halfway.
    pub(crate) bytes_per_token: u64,
    /// Those bytes a second, as a part of what plain reads reach.
    pub(crate) limit_fraction: Option<f64>,
}

/// Measures a program.
pub(crate) struct Bench<'p> {
    pub(crate) model: &'p LanguageModel,
    pub(crate) traffic: Traffic,
    pub(crate) read_limit: Option<f64>,
    pub(crate) matrix_limit: Option<f64>,
    pub(crate) progress: &'p ProgressBar,
}

impl Bench<'_> {
    pub(crate) fn prefill(&self, plan: &Plan) -> Result<Option<Prefill>, Failure> {
        if plan.prompt == 0 {
            return Ok(None);
        }
        let text = text(self.model, plan.prompt);
        let mut speeds = Vec::new();
        let mut decoder = Greedy::new(self.model)?;
        for round in 0..=plan.repeats {
            decoder.rewind(0)?;
            let start = Instant::now();
            decoder.read(&text, false, &RunControl::default())?;
            if round > 0 {
                speeds.push(plan.prompt as f64 / start.elapsed().as_secs_f64());
                self.progress.inc(1);
            }
        }
        Ok(Figures::of(speeds).map(|tok_s| {
            // The head runs once for the whole text, not once a token.
            let work = self.traffic.multiply_adds_of(plan.prompt, self.model.chunk());
            let multiply_adds_s = work as f64 * tok_s.median / plan.prompt as f64;
            Prefill {
                tokens: plan.prompt,
                first_token_s: plan.prompt as f64 / tok_s.median,
                multiply_adds_s,
                limit_fraction: self.matrix_limit.map(|limit| multiply_adds_s / limit),
                tok_s,
            }
        }))
    }

    pub(crate) fn decode(&self, plan: &Plan) -> Result<Vec<Decode>, Failure> {
        let mut all = Vec::new();
        for &depth in plan.depths.iter().filter(|_| plan.new > 0) {
            let mut speeds = Vec::new();
            let start = Instant::now();
            let mut decoder = self.at_depth(depth)?;
            let fill_s = start.elapsed().as_secs_f64();
            let warming = Instant::now();
            self.tokens(&mut decoder, plan.new)?;
            while warming.elapsed() < WARM_UP {
                decoder.rewind(depth)?;
                self.tokens(&mut decoder, plan.new)?;
            }
            for _ in 0..plan.repeats {
                decoder.rewind(depth)?;
                let start = Instant::now();
                self.tokens(&mut decoder, plan.new)?;
                speeds.push(plan.new as f64 / start.elapsed().as_secs_f64());
                self.progress.inc(1);
            }
            let bytes_per_token = self.traffic.bytes(depth + plan.new / 2);
            all.extend(Figures::of(speeds).map(|tok_s| Decode {
                context: depth,
                fill_s,
                tokens: plan.new,
                bytes_per_token,
                limit_fraction: self.read_limit.map(|limit| bytes_per_token as f64 * tok_s.median / limit),
                tok_s,
            }));
        }
        Ok(all)
    }

    /// A session whose caches are full up to there.
    pub(crate) fn at_depth(&self, depth: usize) -> Result<Greedy, Failure> {
        let mut decoder = Greedy::new(self.model)?;
        if depth > 0 {
            decoder.read(&text(self.model, depth), false, &RunControl::default())?;
        }
        decoder.mark()?;
        Ok(decoder)
    }

    fn tokens(&self, decoder: &mut Greedy, count: usize) -> Result<(), Failure> {
        let mut token = 1;
        for at in 1..=count {
            token = decoder.read(&[token], at < count, &RunControl::default())?;
        }
        Ok(())
    }
}
