//! Which models there are: the caller's part of a server.

use crate::audio::Hears;
use crate::embed::Embeds;
use pteron_llm::sampler::SamplerSettings;
use pteron_llm::tools::ToolForm;
use pteron_llm::{Handle, Voice};
use serde_json::json;
use std::sync::Arc;

/// The variable by which templates are told whether the model shall think first.
pub(crate) const THINKS: &str = "enable_thinking";

/// A language model that is open.
#[derive(Debug)]
#[non_exhaustive]
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
    /// Whether its template can be told to let it think first or not.
    pub thinks: bool,
    /// Bytes that it holds, with what its answers may take.
    pub bytes: u64,
}

impl Model {
    /// A model whose scheduler runs.
    pub fn new(name: impl Into<String>, handle: Handle, voice: Voice, sampling: SamplerSettings) -> Model {
        let end_tokens = voice.end_tokens(handle.model());
        let (tools, thinks) = (ToolForm::of(&voice), thinks(&voice));
        Model { name: name.into(), handle, voice, sampling, end_tokens, tools, thinks, bytes: 0 }
    }

    /// The same that holds so many bytes.
    #[must_use]
    pub fn holding(self, bytes: u64) -> Model {
        Model { bytes, ..self }
    }
}

/// Whether it makes a difference to the template.
fn thinks(voice: &Voice) -> bool {
    let messages = [json!({"role": "user", "content": "a"})];
    let told = |thinks: bool| {
        let mut voice = voice.clone();
        voice.flags.insert(THINKS.to_owned(), thinks.into());
        voice.chat(&messages).ok().map(|prompt| prompt.text)
    };
    told(true) != told(false)
}

/// What is loaded.
#[derive(Clone)]
#[non_exhaustive]
pub enum Loaded {
    /// A language model.
    Talks(Arc<Model>),
    /// A speech model.
    Hears(Arc<dyn Hears>),
    /// A model that makes vectors of texts.
    Embeds(Arc<dyn Embeds>),
}

impl Loaded {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Loaded::Talks(model) => model.bytes,
            Loaded::Hears(model) => model.bytes(),
            Loaded::Embeds(model) => model.bytes(),
        }
    }

    /// Nobody will ask it again.
    pub(crate) fn close(&self) {
        if let Loaded::Talks(model) = self {
            model.handle.drain();
        }
    }
}

/// A model in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// What clients call it.
    pub name: String,
    /// When it was made or offered, in seconds since the epoch.
    pub created: u64,
    /// Bytes of its files, where they are known.
    pub size: Option<u64>,
}

impl Served {
    /// A model of which no more is known.
    pub fn new(name: impl Into<String>, created: u64) -> Served {
        Served { name: name.into(), created, size: None }
    }

    /// The same with files of so many bytes.
    #[must_use]
    pub fn of_size(self, size: u64) -> Served {
        Served { size: Some(size), ..self }
    }
}

/// Why a model cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is none of that name.
    #[error("there is no model of that name")]
    Unknown,
    /// It could not be loaded.
    #[error("the model could not be loaded: {0}")]
    Failed(String),
    /// It would not fit beside those that are in use; later it may.
    #[error("the model needs {needed} bytes; models that are in use leave {free} of {most}")]
    NoRoom {
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that are not in use.
        free: u64,
        /// Bytes that all may have.
        most: u64,
    },
    /// It will never fit.
    #[error("the model needs {needed} bytes; all models together may have {most}")]
    TooLarge {
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that all may have.
        most: u64,
    },
}

/// The models that a server can load.
pub trait Models: Send + Sync {
    /// All that can be asked for.
    fn list(&self) -> Vec<Served>;

    /// Bytes that a model will hold, as far as that is known before it is loaded.
    fn needs(&self, name: &str) -> Option<u64> {
        let _ = name;
        None
    }

    /// Loads a model that is in the list; it may take its time. No other request waits for it.
    ///
    /// # Errors
    /// When it cannot be loaded.
    fn load(&self, name: &str) -> Result<Loaded, OpenError>;
}
