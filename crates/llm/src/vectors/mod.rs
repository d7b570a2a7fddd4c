//! Vectors: texts, ids and distributions that the reference libraries gave, and whether we give the same.
//!
//! Folders and files as `conformance/make_vectors.py` writes them flow in, a count with every difference flows out.
//! Used by the tests of this crate and by the command line; nothing that runs a model needs it.

mod sampling;
mod templates;
mod tokenizers;

pub use sampling::run_sampling;
pub use templates::{run_template_cases, run_templates};
pub use tokenizers::run_tokenizers;

use std::path::{Path, PathBuf};

/// How many cases passed, and what is wrong with the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Cases that gave what they should.
    pub passed: usize,
    /// One line for each case that did not.
    pub failures: Vec<String>,
}

/// Why vectors could not be run at all.
#[derive(Debug, thiserror::Error)]
pub enum VectorError {
    /// A file or folder that cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that holds something else than vectors.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl VectorError {
    fn malformed(path: &Path, reason: impl ToString) -> VectorError {
        VectorError::Malformed { path: path.to_owned(), reason: reason.to_string() }
    }
}

impl Report {
    /// Adds what another part found.
    pub fn add(&mut self, other: Report) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
    }

    /// Counts one case.
    fn case(&mut self, name: impl FnOnce() -> String, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.passed += 1,
            Err(difference) => self.failures.push(format!("{}: {difference}", name())),
        }
    }
}

fn read(path: &Path) -> Result<String, VectorError> {
    std::fs::read_to_string(path).map_err(|source| VectorError::Io { path: path.to_owned(), source })
}

fn read_json(path: &Path) -> Result<serde_json::Value, VectorError> {
    serde_json::from_str(&read(path)?).map_err(|error| VectorError::malformed(path, error))
}

/// What lies in a folder, in the order of its names.
fn list(folder: &Path) -> Result<Vec<PathBuf>, VectorError> {
    let io = |source| VectorError::Io { path: folder.to_owned(), source };
    let entries = std::fs::read_dir(folder).map_err(io)?;
    let mut paths =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>().map_err(io)?;
    paths.sort();
    Ok(paths)
}

/// The first place where two texts differ, with a little around it.
fn difference(wanted: &str, found: &str) -> String {
    let same = wanted.bytes().zip(found.bytes()).take_while(|(left, right)| left == right).count();
    let shown = |text: &str| {
        let start = (same.saturating_sub(20)..=same).find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.get(start..).unwrap_or("").chars().take(60).collect::<String>()
    };
    format!("at byte {same}: wanted {:?}, found {:?}", shown(wanted), shown(found))
}
