//! How models are opened from other languages: options as records, progress to a listener, cancelling from any thread.

use crate::error::{PteronError, Result};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};

/// How closely results follow the model's own types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, uniffi::Enum)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// As the model says.
    Exact,
    /// Activations may be rounded to 8 bits before a quantised weight.
    Fast,
}

/// How a model is opened. What is not chosen takes what the machine has.
#[derive(Clone, Debug, Default, Deserialize, uniffi::Record)]
#[serde(default, deny_unknown_fields)]
pub struct OpenOptions {
    /// The folder that models are fetched to and conversions are kept in. Models by name and checkpoints need one.
    #[uniffi(default = None)]
    pub home: Option<String>,
    /// The folder of a `models.toml` that adds models to the registry; without, `home`.
    #[uniffi(default = None)]
    pub settings: Option<String>,
    /// The tokenizer, where the model carries none.
    #[uniffi(default = None)]
    pub tokenizer: Option<String>,
    /// Positions of the context.
    #[uniffi(default = None)]
    pub context: Option<u64>,
    /// Refuses a model that needs more bytes than this, before it is loaded.
    #[uniffi(default = None)]
    pub memory_limit: Option<u64>,
    /// The backend, with the number of a device where it has several: `cpu`, `mlx`, `mlx:1`.
    #[uniffi(default = None)]
    pub backend: Option<String>,
    /// Threads of the cpu backend; without, one for each core.
    #[uniffi(default = None)]
    pub threads: Option<u64>,
    /// How closely results follow the model's own types; without, for speed where text is made and exactly in a `Module`.
    #[uniffi(default = None)]
    pub precision: Option<Precision>,
    /// Holds the file to bounds that fit one of unknown origin.
    #[uniffi(default = false)]
    pub untrusted: bool,
    /// A token for the Hugging Face hub; it is sent there and nowhere else.
    #[uniffi(default = None)]
    pub hub_token: Option<String>,
}

/// What happens while a model is opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, uniffi::Enum)]
#[serde(rename_all = "lowercase", tag = "event")]
pub enum Event {
    /// A file comes over the network.
    Fetching {
        /// Its name.
        file: String,
        /// Bytes that are here.
        bytes: u64,
        /// Bytes that it has, where anybody stated it.
        total: Option<u64>,
    },
    /// A checkpoint becomes a program.
    Converting {
        /// Bytes of weights that are written.
        bytes: u64,
        /// Bytes of all weights.
        total: u64,
    },
    /// The program is being loaded.
    Loading,
    /// What is being done that takes a while, in words.
    Says {
        /// The words.
        words: String,
    },
    /// What somebody should know about the model, in words.
    Remark {
        /// The words.
        words: String,
    },
}

/// Who is told what happens while a model is opened, from whichever thread does it.
#[uniffi::export(with_foreign)]
pub trait ProgressListener: Send + Sync {
    /// Something happens; whether the opening shall go on.
    fn progress(&self, event: Event) -> Result<bool, PteronError>;
}

/// Ends what is under way, from any thread.
#[derive(Default, uniffi::Object)]
pub struct Cancel(pteron::Cancel);

#[uniffi::export]
impl Cancel {
    /// One that has cancelled nothing yet.
    #[uniffi::constructor]
    pub fn new() -> Arc<Cancel> {
        Arc::default()
    }

    /// Ends it.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether it shall end.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl OpenOptions {
    /// As the facade takes them.
    pub(crate) fn facade(self) -> pteron::OpenOptions {
        let mut options = pteron::OpenOptions::default();
        #[cfg(feature = "registry")]
        {
            if let Some(home) = self.home {
                options = options.home(home);
            }
            if let Some(settings) = self.settings {
                options = options.settings(settings);
            }
            if let Some(token) = self.hub_token {
                options = options.hub_token(token);
            }
        }
        if let Some(tokenizer) = self.tokenizer {
            options = options.tokenizer(tokenizer);
        }
        if let Some(context) = self.context {
            options = options.context(size(context));
        }
        if let Some(limit) = self.memory_limit {
            options = options.memory_limit(limit);
        }
        if let Some(backend) = self.backend {
            options = options.backend(backend);
        }
        if let Some(threads) = self.threads {
            options = options.threads(size(threads));
        }
        if let Some(precision) = self.precision {
            options = options.precision(match precision {
                Precision::Exact => pteron::Precision::Exact,
                Precision::Fast => pteron::Precision::Fast,
            });
        }
        if self.untrusted { options.untrusted() } else { options }
    }
}

/// A number of another language; what no memory could hold is as good as the largest.
pub(crate) fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The registry's default model where no name is given.
pub(crate) fn source(name: String) -> pteron::Source {
    if name.is_empty() { pteron::Source::Usual } else { pteron::Source::Named(name) }
}

/// Opens something with a listener, whose refusal cancels and whose failure is the error.
pub(crate) fn opening<T>(
    options: Option<OpenOptions>,
    listener: Option<Arc<dyn ProgressListener>>,
    cancel: Option<Arc<Cancel>>,
    open: impl FnOnce(pteron::OpenOptions) -> pteron::Result<T>,
) -> Result<T> {
    let cancel = cancel.unwrap_or_default();
    let failure = Arc::new(Mutex::new(None));
    let mut options = options.unwrap_or_default().facade().cancel(&cancel.0);
    if let Some(listener) = listener {
        let (cancel, failure) = (cancel.0.clone(), failure.clone());
        options = options.progress(move |event: pteron::Event<'_>| {
            let Some(event) = told(event).filter(|_| !cancel.is_cancelled()) else { return };
            match listener.progress(event) {
                Ok(true) => {}
                Ok(false) => cancel.cancel(),
                Err(error) => {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    cancel.cancel();
                }
            }
        });
    }
    let opened = open(options);
    match failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(error) => Err(error),
        None => Ok(opened?),
    }
}

fn told(event: pteron::Event<'_>) -> Option<Event> {
    Some(match event {
        pteron::Event::Fetching { file, bytes, total } => {
            Event::Fetching { file: file.to_owned(), bytes, total }
        }
        pteron::Event::Converting { bytes, total } => Event::Converting { bytes, total },
        pteron::Event::Loading => Event::Loading,
        pteron::Event::Says(words) => Event::Says { words: words.to_owned() },
        pteron::Event::Remark(words) => Event::Remark { words: words.to_owned() },
        _ => return None,
    })
}

/// Memory that a model takes at its largest, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, uniffi::Record)]
pub struct Requirements {
    /// The weights, which all conversations share.
    pub weights: u64,
    /// Buffers and caches of one conversation, when its context is full.
    pub state: u64,
    /// What each position of the context adds to these; 0 where all of it is there from the start.
    pub state_per_token: u64,
    /// What the largest run holds beside them.
    pub run: u64,
    /// All of it, with one conversation.
    pub total: u64,
    /// Bytes that are to be fetched first, where they are known.
    pub download: Option<u64>,
    /// Whether the model is still to be fetched or converted, so that the size of its weights is all that is known.
    pub is_estimate: bool,
}

/// What a model needs. Nothing is fetched, converted or loaded for the answer.
#[uniffi::export(default(options = None))]
pub fn requirements(source: String, options: Option<OpenOptions>) -> Result<Requirements, PteronError> {
    Requirements::of(self::source(source), options)
}

impl Requirements {
    /// The same of whatever is meant, as callers in Rust say it.
    pub fn of(source: pteron::Source, options: Option<OpenOptions>) -> Result<Requirements, PteronError> {
        let needs = pteron::requirements(source, &options.unwrap_or_default().facade())?;
        Ok(Requirements {
            weights: needs.weights,
            state: needs.state,
            state_per_token: needs.state_per_token,
            run: needs.run,
            total: needs.total(),
            download: needs.download,
            is_estimate: needs.is_estimate,
        })
    }
}
