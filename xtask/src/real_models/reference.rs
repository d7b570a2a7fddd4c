//! What a language model shall give: the prompts and the text of `real/language.json`, and the figures that
//! `real/reference.py` wrote for them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Doing, Error, Result};
use crate::workspace;

/// `real/language.json`.
#[derive(Deserialize)]
pub(super) struct Plan {
    /// Names in the registry.
    pub(super) models: Vec<String>,
    text: PathBuf,
    /// Tokens of the text that are read.
    pub(super) text_tokens: usize,
    /// Tokens of a window of the text.
    pub(super) window: usize,
    prompts: Vec<Prompt>,
}

/// A prompt: a text, a conversation, or BOS alone.
#[derive(Deserialize)]
pub(super) struct Prompt {
    name: String,
    /// A text; BOS comes first where the tokenizer puts it there.
    pub(super) text: Option<String>,
    /// Tokens to keep of the text, BOS included.
    pub(super) tokens: Option<usize>,
    /// A conversation in the model's template.
    pub(super) messages: Option<Vec<Value>>,
}

/// What the reference gives for one model.
pub(super) struct Reference {
    pub(super) figures: Figures,
    /// By prompt.
    pub(super) logits: BTreeMap<String, Logits>,
}

/// `real/reference/NAME.json`.
#[derive(Deserialize)]
pub(super) struct Figures {
    pub(super) perplexity: f64,
    pub(super) scored_tokens: usize,
    pub(super) prompts: Vec<Expected>,
}

/// A prompt as tokens, and what follows it.
#[derive(Deserialize)]
pub(super) struct Expected {
    pub(super) name: String,
    pub(super) ids: Vec<u32>,
    pub(super) continuation: Vec<Step>,
}

/// A greedily chosen token.
#[derive(Deserialize)]
pub(super) struct Step {
    pub(super) token: u32,
    /// The runner-up.
    pub(super) second: u32,
    /// The logits of both.
    pub(super) logits: [f64; 2],
}

/// Logits of every token of a prompt.
pub(super) struct Logits {
    /// Which tokens of the vocabulary they belong to.
    pub(super) columns: Vec<usize>,
    /// Row by row.
    pub(super) values: Vec<f32>,
}

impl Plan {
    pub(super) fn read() -> Result<Plan> {
        json(&folder().join("language.json"))
    }

    pub(super) fn text(&self) -> Result<String> {
        let path = folder().join(&self.text);
        fs::read_to_string(&path).doing("read", &path)
    }

    /// The prompt of that name.
    pub(super) fn prompt(&self, name: &str) -> Result<&Prompt> {
        let found = self.prompts.iter().find(|prompt| prompt.name == name);
        found.ok_or_else(|| {
            Error::message(format!("real/language.json has no prompt {name:?}; try --refresh"))
        })
    }
}

impl Reference {
    /// The one that the repository carries.
    pub(super) fn stored(name: &str) -> Result<Reference> {
        Reference::read(name, &folder().join("reference").join(format!("{name}.safetensors")))
    }

    /// The stored figures, with logits from a file of their own.
    pub(super) fn read(name: &str, logits: &Path) -> Result<Reference> {
        let figures: Figures = json(&folder().join("reference").join(format!("{name}.json")))?;
        let bytes = fs::read(logits).doing("read", logits)?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|error| Error::content(logits, error))?;
        let wrong = |name: &str| Error::content(logits, format!("`{name}` is missing or of another kind"));
        let columns = tensors.tensor("columns").ok();
        let mut found = BTreeMap::new();
        for Expected { name, ids, .. } in &figures.prompts {
            let tensor = tensors.tensor(name).map_err(|_| wrong(name))?;
            if tensor.dtype() != Dtype::F32 {
                return Err(wrong(name));
            }
            let words = tensor.data().as_chunks().0.iter();
            let values: Vec<f32> = words.map(|&word| f32::from_le_bytes(word)).collect();
            let columns: Vec<usize> = match &columns {
                Some(columns) => {
                    let words = columns.data().as_chunks().0.iter();
                    words.map(|&word| u32::from_le_bytes(word) as usize).collect()
                }
                None => (0..tensor.shape().last().copied().unwrap_or(0)).collect(),
            };
            if values.len() != ids.len() * columns.len() {
                return Err(wrong(name));
            }
            found.insert(name.clone(), Logits { columns, values });
        }
        Ok(Reference { figures, logits: found })
    }
}

fn folder() -> PathBuf {
    workspace::root().join("real")
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read(path).doing("read", path)?;
    serde_json::from_slice(&text).map_err(|error| Error::content(path, error))
}
