//! How the next token is found: from scores, or by the program itself.

use crate::generate::GenerateOptions;
use crate::sampler::Sampler;
use crate::signature::Draw;
use crate::{LanguageModel, LlmError, Result};

/// Who chooses.
#[derive(Debug)]
pub(super) enum Chooser {
    Scores(Box<Sampler>),
    Program,
}

impl Chooser {
    pub(super) fn new(
        model: &LanguageModel,
        options: &GenerateOptions,
        prompt: usize,
    ) -> Result<(Chooser, Draw)> {
        let sampling = &options.sampling;
        // Also where the program draws: the settings are checked.
        let sampler = Sampler::new(sampling.clone(), options.seed)?.after_prompt(prompt);
        if !model.draws_itself() {
            return Ok((Chooser::Scores(Box::new(sampler)), Draw::default()));
        }
        let penalties = sampling.frequency_penalty != 0.0
            || sampling.presence_penalty != 0.0
            || sampling.repetition_penalty != 1.0;
        let refused = [(penalties, "penalties"), (sampling.min_p > 0.0, "min-p")];
        if let Some((_, what)) = refused.into_iter().find(|(asked, _)| *asked) {
            return Err(LlmError::DrawsItself { what });
        }
        let draw = Draw {
            temperature: sampling.temperature as f32,
            top_k: Some(sampling.top_k).filter(|&k| k > 0),
            top_p: sampling.top_p as f32,
            seed: options.seed,
        };
        Ok((Chooser::Program, draw))
    }

    /// What chooses from scores.
    pub(super) fn sampler(&self) -> Option<&Sampler> {
        match self {
            Chooser::Scores(sampler) => Some(sampler),
            Chooser::Program => None,
        }
    }

    /// Whether it takes the likeliest token, whatever came before.
    pub(super) fn takes_likeliest(&self) -> bool {
        matches!(self, Chooser::Scores(sampler) if sampler.settings().takes_likeliest())
    }
}
