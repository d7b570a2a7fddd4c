//! Vectors of texts, and how well texts answer a question.

use crate::error::{PteronError, Result};
use crate::open::{Cancel, OpenOptions, ProgressListener, opening, source};
use std::sync::{Arc, PoisonError, RwLock};

/// A model that makes a vector of a text, or numbers of a pair of texts. Threads may use it at the same time.
#[derive(uniffi::Object)]
pub struct Embedder(RwLock<Option<pteron::Embedder>>);

impl Embedder {
    fn with<T>(&self, ask: impl FnOnce(&pteron::Embedder) -> pteron::Result<T>) -> Result<T> {
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let disposed = || PteronError::Disposed { what: "embedder".to_owned() };
        Ok(ask(held.as_ref().ok_or_else(disposed)?)?)
    }
}

impl Embedder {
    /// Opens whatever is meant, as callers in Rust say it: a program in memory too.
    pub fn of(
        source: pteron::Source,
        options: Option<OpenOptions>,
        listener: Option<Arc<dyn ProgressListener>>,
        cancel: Option<Arc<Cancel>>,
    ) -> Result<Arc<Embedder>, PteronError> {
        let embedder = opening(options, listener, cancel, |options| pteron::Embedder::open(source, options))?;
        Ok(Arc::new(Embedder(RwLock::new(Some(embedder)))))
    }
}

#[uniffi::export]
impl Embedder {
    /// Opens an encoder: a program, a folder as Hugging Face and sentence-transformers publish them, or a name.
    #[uniffi::constructor(default(options = None, listener = None, cancel = None))]
    pub fn open(
        source: String,
        options: Option<OpenOptions>,
        listener: Option<Arc<dyn ProgressListener>>,
        cancel: Option<Arc<Cancel>>,
    ) -> Result<Arc<Embedder>, PteronError> {
        Embedder::of(self::source(source), options, listener, cancel)
    }

    /// How many numbers a vector has.
    pub fn dimensions(&self) -> Result<u64, PteronError> {
        self.with(|embedder| Ok(embedder.dimensions() as u64))
    }

    /// Whether it gives numbers for pairs of texts, by `score`, and no vectors.
    pub fn scores(&self) -> Result<bool, PteronError> {
        self.with(|embedder| Ok(embedder.scores()))
    }

    /// The vector of each text. A text that is too long for the model is cut off.
    pub fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, PteronError> {
        self.with(|embedder| embedder.embed(&texts))
    }

    /// What a reranker says of each document beside a question.
    pub fn score(&self, question: String, documents: Vec<String>) -> Result<Vec<Vec<f32>>, PteronError> {
        self.with(|embedder| embedder.score(&question, &documents))
    }

    /// Tokens that the model reads of a text.
    pub fn count_tokens(&self, text: String) -> Result<u64, PteronError> {
        self.with(|embedder| Ok(embedder.count_tokens(&text)? as u64))
    }

    /// Waits for what is being computed, and gives the memory back.
    pub fn dispose(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).take();
    }
}
