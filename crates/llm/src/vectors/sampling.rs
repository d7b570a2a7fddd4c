//! Sampler vectors: the distribution that logits, history and settings give.

use super::{Report, VectorError, read};
use crate::sampler::{Sampler, SamplerOrder, SamplerSettings};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// A line of `cases.jsonl`.
#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    /// Null is negative infinity.
    logits: Vec<Option<f32>>,
    history: Vec<u32>,
    settings: SamplerSettings,
    probs: BTreeMap<String, Vec<f64>>,
    atol: f64,
}

/// Runs the cases of a `cases.jsonl`, each in every order that it has a distribution for.
///
/// # Errors
/// When the file cannot be read.
pub fn run_sampling(file: &Path) -> Result<Report, VectorError> {
    let mut report = Report::default();
    for line in read(file)?.lines().filter(|line| !line.trim().is_empty()) {
        let case: Case = serde_json::from_str(line).map_err(|error| VectorError::malformed(file, error))?;
        report.case(|| format!("sampling/{}", case.name), case.check());
    }
    Ok(report)
}

impl Case {
    fn check(&self) -> Result<(), String> {
        let logits: Vec<f32> = self.logits.iter().map(|logit| logit.unwrap_or(f32::NEG_INFINITY)).collect();
        for (order, wanted) in &self.probs {
            let order: SamplerOrder =
                serde_json::from_value(order.as_str().into()).map_err(|error| error.to_string())?;
            let settings = SamplerSettings { order, ..self.settings.clone() };
            let mut sampler = Sampler::new(settings, 0).map_err(|error| error.to_string())?;
            let found = sampler.probabilities(&logits, &self.history).map_err(|error| error.to_string())?;
            if wanted.len() != found.len() {
                return Err(format!(
                    "{order:?}: wanted {} probabilities, found {}",
                    wanted.len(),
                    found.len()
                ));
            }
            let apart = |(wanted, found): (&f64, &f64)| (wanted - found).abs() > self.atol;
            if let Some(token) = wanted.iter().zip(&found).position(apart) {
                return Err(format!(
                    "{order:?}: token {token}: wanted {}, found {}",
                    wanted[token], found[token]
                ));
            }
        }
        Ok(())
    }
}
