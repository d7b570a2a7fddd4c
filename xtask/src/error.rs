//! The one error type of the developers' commands: what was being done, and what went wrong. A person reads it and
//! nothing is decided by its kind, so there are few kinds.

use std::io;
use std::path::Path;

/// Why a command could not do its work.
#[derive(thiserror::Error, Debug)]
pub(crate) enum Error {
    /// The file system or a pipe refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, as "read FILE".
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{file}: {problem}")]
    Content {
        /// The file, or a member of an archive.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Anything else, in words.
    #[error("{0}")]
    Message(String),
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn message(text: impl Into<String>) -> Error {
        Error::Message(text.into())
    }

    pub(crate) fn content(file: &Path, problem: impl ToString) -> Error {
        Error::Content { file: file.display().to_string(), problem: problem.to_string() }
    }
}

/// Says what was being done when the system refused.
pub(crate) trait Doing<T> {
    fn doing(self, verb: &str, what: impl AsRef<Path>) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, verb: &str, what: impl AsRef<Path>) -> Result<T> {
        self.map_err(|source| Error::Io { doing: format!("{verb} {}", what.as_ref().display()), source })
    }
}
