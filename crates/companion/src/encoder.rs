//! What a program that makes vectors of texts, or numbers of pairs of them, says of itself.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A program of an encoder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encoder {
    /// The method that does it: `embed` for a vector of a text, `score` for numbers of a pair.
    pub method: String,
    /// How many numbers it gives.
    pub numbers: usize,
    /// Tokens of the longest text; what is longer is cut off.
    pub tokens: usize,
    /// What is put before texts of a kind, such as `query`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prompts: BTreeMap<String, String>,
    /// The kind that is meant unless another is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual_prompt: Option<String>,
}
