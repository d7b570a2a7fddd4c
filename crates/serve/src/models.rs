//! Which models there are: the caller's part of a server.

use pteron_llm::sampler::SamplerSettings;
use pteron_llm::tools::ToolForm;
use pteron_llm::{Handle, Voice};
use std::sync::Arc;

/// A model that is open.
#[derive(Debug)]
pub struct Model {
    /// What clients call it.
    pub name: String,
    /// Its scheduler.
    pub handle: Handle,
    /// Its tokenizer and its template.
    pub voice: Voice,
    /// How tokens are chosen where a request says nothing.
    pub sampling: SamplerSettings,
    /// Tokens that end an answer.
    pub end_tokens: Vec<u32>,
    /// How it calls tools; `None` where its template has no place for calls.
    pub tools: Option<ToolForm>,
}

impl Model {
    /// A model whose scheduler runs.
    pub fn new(name: impl Into<String>, handle: Handle, voice: Voice, sampling: SamplerSettings) -> Model {
        let end_tokens = voice.end_tokens(handle.model());
        let tools = ToolForm::of(&voice);
        Model { name: name.into(), handle, voice, sampling, end_tokens, tools }
    }
}

/// A model in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// What clients call it.
    pub name: String,
    /// When it was made or loaded, in seconds since the epoch.
    pub created: u64,
}

/// Why a model cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There is none of that name.
    #[error("there is no model of that name")]
    Unknown,
    /// It could not be loaded.
    #[error("the model could not be loaded: {0}")]
    Failed(String),
}

/// The models of a server.
pub trait Models: Send + Sync {
    /// All that can be asked for.
    fn list(&self) -> Vec<Served>;

    /// Opens a model by name; it may take its time. What is open already is given at once.
    ///
    /// # Errors
    /// When there is none, or it cannot be loaded.
    fn open(&self, name: &str) -> Result<Arc<Model>, OpenError>;

    /// Those that are open, to be counted and drained.
    fn opened(&self) -> Vec<Arc<Model>>;
}
