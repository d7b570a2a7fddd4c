//! A model that can be talked to.

use crate::chat::{Chat, ChatOptions};
use crate::error::PteronError;
use crate::generation::Generation;
use crate::message::GenerateOptions;
use crate::open::{Cancel, OpenOptions, ProgressListener, opening, source};
use crate::owner::Owner;
use serde::Serialize;
use std::sync::Arc;

/// What a model holds, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, uniffi::Record)]
pub struct MemoryReport {
    /// Weights that stay in the mapped file.
    pub mapped: u64,
    /// Weights that were copied, packed or derived.
    pub packed: u64,
    /// Buffers that every conversation allocates.
    pub state: u64,
    /// Memory that runs compute in.
    pub run: u64,
    /// Caches of all conversations, what they share counted once.
    pub cache: u64,
}

/// A model that can be talked to.
#[derive(uniffi::Object)]
pub struct Model(Arc<Owner>);

impl Model {
    /// Opens whatever is meant, as callers in Rust say it: a program in memory too.
    pub fn of(
        source: pteron::Source,
        options: Option<OpenOptions>,
        listener: Option<Arc<dyn ProgressListener>>,
        cancel: Option<Arc<Cancel>>,
    ) -> Result<Arc<Model>, PteronError> {
        let model = opening(options, listener, cancel, |options| pteron::Model::open(source, options))?;
        Ok(Arc::new(Model(Owner::of(model))))
    }
}

#[uniffi::export]
impl Model {
    /// Opens a model: a program, a GGUF file or a checkpoint folder by its path, or one that the registry knows by its name;
    /// the registry's default one where the name is empty. What has to be fetched or converted is so the first time.
    #[uniffi::constructor(default(options = None, listener = None, cancel = None))]
    pub fn open(
        source: String,
        options: Option<OpenOptions>,
        listener: Option<Arc<dyn ProgressListener>>,
        cancel: Option<Arc<Cancel>>,
    ) -> Result<Arc<Model>, PteronError> {
        Model::of(self::source(source), options, listener, cancel)
    }

    /// What it was asked for by.
    pub fn name(&self) -> Result<String, PteronError> {
        Ok(self.0.model()?.name().to_owned())
    }

    /// Positions that a text may have; none where nothing says it.
    pub fn context(&self) -> Result<Option<u64>, PteronError> {
        Ok(self.0.model()?.context().map(|context| context as u64))
    }

    /// Whether it sees images: those that `Chat.show` gives it.
    pub fn sees(&self) -> Result<bool, PteronError> {
        Ok(self.0.model()?.sees())
    }

    /// What it holds, with all that is said with it.
    pub fn memory(&self) -> Result<MemoryReport, PteronError> {
        let memory = self.0.model()?.memory();
        Ok(MemoryReport {
            mapped: memory.mapped_bytes,
            packed: memory.packed_bytes,
            state: memory.state_bytes,
            run: memory.run_bytes,
            cache: memory.cache_bytes,
        })
    }

    /// How many tokens a text has.
    pub fn count_tokens(&self, text: String) -> Result<u64, PteronError> {
        let prompt =
            self.0.model()?.tokens(pteron::Prompt::Raw(text), &pteron::GenerateOptions::default())?;
        Ok(prompt.tokens.len() as u64)
    }

    /// A conversation. Several of one model run beside each other and share its weights.
    #[uniffi::method(default(options = None))]
    pub fn chat(&self, options: Option<ChatOptions>) -> Result<Arc<Chat>, PteronError> {
        Chat::begin(&self.0, options.unwrap_or_default())
    }

    /// Answers without a conversation: messages in, answers out, nothing kept.
    #[uniffi::method(default(options = None))]
    pub fn generation(&self, options: Option<GenerateOptions>) -> Result<Arc<Generation>, PteronError> {
        Generation::new(&self.0, options.unwrap_or_default())
    }

    /// Cancels all that is being said with it, waits for that, and gives its memory back. Chats and generations of it are
    /// disposed of too.
    pub fn dispose(&self) {
        self.0.dispose();
    }
}
