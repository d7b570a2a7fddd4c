//! Why a published model cannot be read or exported.

use std::path::{Path, PathBuf};

use pteron_format::AssembleError;
use pteron_models::{ModelError, WeightError};

/// Why a published model cannot be read or exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The path is nothing that is read here.
    #[error("{}: {problem}", path.display())]
    NotACheckpoint {
        /// The path.
        path: PathBuf,
        /// What it lacks, and what would be one.
        problem: String,
    },
    /// A file cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file is damaged, or says what it must not.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Nobody has written this architecture down yet.
    #[error("{}: the architecture `{name}` is not known; known are {known}", path.display())]
    Architecture {
        /// The file that names it.
        path: PathBuf,
        /// Its name there.
        name: String,
        /// Those that can be built.
        known: String,
    },
    /// The configuration asks for something that cannot be built.
    #[error("{}: {problem}", path.display())]
    Configuration {
        /// The file.
        path: PathBuf,
        /// The key, its value, and what would do.
        problem: String,
    },
    /// A weight is missing, misshapen or stored in a way that is not read.
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// The model cannot be built as asked.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The program cannot be put together or written.
    #[error(transparent)]
    Program(#[from] AssembleError),
}

impl CheckpointError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> CheckpointError {
        CheckpointError::Io { path: path.to_owned(), source }
    }

    pub(crate) fn file(path: &Path, problem: impl Into<String>) -> CheckpointError {
        CheckpointError::File { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn configuration(path: &Path, problem: impl Into<String>) -> CheckpointError {
        CheckpointError::Configuration { path: path.to_owned(), problem: problem.into() }
    }
}
