//! What can go wrong, by what an app would do about it.

use serde_json::{Value, json};
use std::fmt;

/// The result of everything here.
pub(crate) type Result<T, E = PteronError> = std::result::Result<T, E>;

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, uniffi::Error)]
pub enum PteronError {
    /// There is no file or folder of that path, or no model of that name.
    #[error("{reason}")]
    NotFound {
        /// In words.
        reason: String,
    },
    /// The model needs more memory than it may have.
    #[error("{reason}")]
    NotEnoughMemory {
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that it may have.
        limit: u64,
        /// In words.
        reason: String,
    },
    /// The model, or what is asked of it, is of a kind that cannot be had here.
    #[error("{reason}")]
    Unsupported {
        /// In words.
        reason: String,
    },
    /// A file is not what it says that it is, or not whole.
    #[error("{reason}")]
    Damaged {
        /// In words.
        reason: String,
    },
    /// Whoever asked for it wants it no more.
    #[error("cancelled")]
    Cancelled,
    /// The text does not fit into the context.
    #[error("{reason}")]
    ContextFull {
        /// Tokens that it has.
        tokens: u64,
        /// Tokens that there is room for.
        context: u64,
        /// In words.
        reason: String,
    },
    /// What was asked for makes no sense: an option, a message, a schema, an input.
    #[error("{reason}")]
    Invalid {
        /// In words.
        reason: String,
    },
    /// The model could not be fetched.
    #[error("{reason}")]
    Fetch {
        /// In words.
        reason: String,
    },
    /// The file system refused, or is full.
    #[error("{reason}")]
    Storage {
        /// In words.
        reason: String,
    },
    /// A run failed.
    #[error("{reason}")]
    Run {
        /// In words.
        reason: String,
    },
    /// Another call uses the object; two objects can be used at once.
    #[error("another call is using this {what}")]
    Busy {
        /// What it is.
        what: String,
    },
    /// The object was disposed of.
    #[error("this {what} was disposed of")]
    Disposed {
        /// What it was.
        what: String,
    },
    /// A listener failed; what it listened to has ended there.
    #[error("the listener failed: {reason}")]
    Listener {
        /// What it said.
        reason: String,
    },
}

impl PteronError {
    /// What it is, by name: that of the variant.
    pub fn kind(&self) -> &'static str {
        match self {
            PteronError::NotFound { .. } => "NotFound",
            PteronError::NotEnoughMemory { .. } => "NotEnoughMemory",
            PteronError::Unsupported { .. } => "Unsupported",
            PteronError::Damaged { .. } => "Damaged",
            PteronError::Cancelled => "Cancelled",
            PteronError::ContextFull { .. } => "ContextFull",
            PteronError::Invalid { .. } => "Invalid",
            PteronError::Fetch { .. } => "Fetch",
            PteronError::Storage { .. } => "Storage",
            PteronError::Run { .. } => "Run",
            PteronError::Busy { .. } => "Busy",
            PteronError::Disposed { .. } => "Disposed",
            PteronError::Listener { .. } => "Listener",
        }
    }

    /// All there is to tell, as JSON: its kind, its words, and its numbers where it has some.
    pub fn details(&self) -> Value {
        let mut details = json!({"kind": self.kind(), "reason": self.to_string()});
        let numbers = match self {
            PteronError::NotEnoughMemory { needed, limit, .. } => [("needed", needed), ("limit", limit)],
            PteronError::ContextFull { tokens, context, .. } => [("tokens", tokens), ("context", context)],
            _ => return details,
        };
        for (name, number) in numbers {
            details[name] = json!(number);
        }
        details
    }

    pub(crate) fn invalid(reason: impl fmt::Display) -> PteronError {
        PteronError::Invalid { reason: reason.to_string() }
    }

    pub(crate) fn run(reason: impl fmt::Display) -> PteronError {
        PteronError::Run { reason: reason.to_string() }
    }
}

impl From<pteron::Error> for PteronError {
    fn from(error: pteron::Error) -> PteronError {
        use pteron::Error;
        let reason = error.to_string();
        match error {
            Error::NotFound(_) => PteronError::NotFound { reason },
            Error::NotEnoughMemory { needed, limit, .. } => {
                PteronError::NotEnoughMemory { needed, limit, reason }
            }
            Error::Unsupported(_) => PteronError::Unsupported { reason },
            Error::Damaged(_) => PteronError::Damaged { reason },
            Error::Cancelled => PteronError::Cancelled,
            Error::ContextFull { tokens, context, .. } => {
                PteronError::ContextFull { tokens: tokens as u64, context: context as u64, reason }
            }
            Error::Invalid(_) => PteronError::Invalid { reason },
            Error::Fetch(_) => PteronError::Fetch { reason },
            Error::Storage(_) => PteronError::Storage { reason },
            _ => PteronError::Run { reason },
        }
    }
}

/// What a listener throws that is none of the kinds above.
impl From<uniffi::UnexpectedUniFFICallbackError> for PteronError {
    fn from(error: uniffi::UnexpectedUniFFICallbackError) -> PteronError {
        PteronError::Listener { reason: error.reason }
    }
}
