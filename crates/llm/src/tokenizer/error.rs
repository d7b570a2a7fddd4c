//! What can be wrong with a tokenizer file or a text.

use super::TokenizerFormat;
use std::path::PathBuf;

/// Why a tokenizer could not be loaded or used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A format that nobody here knows.
    #[error("`{name}` is no tokenizer format; known: tokenizer.json, sentencepiece, tiktoken, tekken, gguf")]
    UnknownFormat {
        /// What was given.
        name: String,
    },
    /// The file does not hold what its format asks for.
    #[error("the {format} tokenizer cannot be read: {reason}")]
    Malformed {
        /// The format it was read as.
        format: TokenizerFormat,
        /// What is wrong, with its place.
        reason: String,
    },
    /// The file is sound but asks for rules that are not implemented.
    #[error(
        "the {format} tokenizer needs {what}, which is not supported; a tokenizer.json of the same model works"
    )]
    Unsupported {
        /// The format it was read as.
        format: TokenizerFormat,
        /// The rule.
        what: String,
    },
    /// The file or the text asks for more than this place allows.
    #[error("{what} is {found}, more than the limit of {limit}")]
    Limit {
        /// What was counted.
        what: &'static str,
        /// How much there is.
        found: u64,
        /// How much there may be.
        limit: u64,
    },
    /// A pattern of the file needs too many steps on this text.
    #[error(
        "cutting the text into words ran wild at byte {at}: the tokenizer's pattern backtracks without end"
    )]
    Pattern {
        /// How far it got.
        at: usize,
    },
    /// A character for which the vocabulary has no token, no bytes and no unknown token.
    #[error("the vocabulary has no token for `{piece}` and no token for what is unknown")]
    NoToken {
        /// The start of what has no token.
        piece: String,
    },
    /// A file that could not be read from disk.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Nothing in this place looks like a tokenizer.
    #[error(
        "{}: no tokenizer found; expected tokenizer.json, tekken.json, a SentencePiece or tiktoken model, or a \
         GGUF file", path.display()
    )]
    NotFound {
        /// Where it was looked for.
        path: PathBuf,
    },
}

impl TokenizerError {
    pub(crate) fn malformed(format: TokenizerFormat, reason: impl ToString) -> TokenizerError {
        TokenizerError::Malformed { format, reason: reason.to_string() }
    }

    pub(crate) fn unsupported(format: TokenizerFormat, what: impl ToString) -> TokenizerError {
        TokenizerError::Unsupported { format, what: what.to_string() }
    }
}

impl From<pteron_companion::UnknownFormat> for TokenizerError {
    fn from(unknown: pteron_companion::UnknownFormat) -> TokenizerError {
        TokenizerError::UnknownFormat { name: unknown.name }
    }
}
