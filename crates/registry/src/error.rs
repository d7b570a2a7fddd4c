//! What can go wrong, with the place and what would help.

use crate::{NotAHash, NotASource, Sha256};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody knows the name.
    #[error("no model is called `{name}`{}", nearest_names(nearest))]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// Names that are near to it, best first.
        nearest: Vec<String>,
    },
    /// The model has no variant that fits.
    #[error("{model} has no variant for {wanted}; it has {has}")]
    NoVariant {
        /// The model.
        model: String,
        /// The backends that were considered.
        wanted: String,
        /// What there is.
        has: String,
    },
    /// A data file that is not one.
    #[error("{file}: {problem}")]
    Data {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Text that is no source.
    #[error(transparent)]
    Source(#[from] NotASource),
    /// Text that is no hash.
    #[error(transparent)]
    Hash(#[from] NotAHash),
    /// The file system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// What was touched.
        path: PathBuf,
        /// What was to be done.
        action: &'static str,
        /// The system's words.
        source: io::Error,
    },
    /// The disk is full, or would be.
    #[error(
        "{}: the disk is full{}; free some space or keep models elsewhere, what was fetched so far is kept",
        path.display(),
        shortage(*needed, *free)
    )]
    DiskFull {
        /// A folder of that disk.
        path: PathBuf,
        /// Bytes that are still to come, if known.
        needed: Option<u64>,
        /// Bytes that are free, if known.
        free: Option<u64>,
    },
    /// No answer from the network, or none to the end.
    #[error("{address}: {problem}")]
    Network {
        /// Where.
        address: String,
        /// What happened.
        problem: String,
    },
    /// The server says no.
    #[error("{address}: the server answers {refusal}")]
    Status {
        /// Where.
        address: String,
        /// What it says.
        refusal: Refusal,
    },
    /// A server's answer that makes no sense.
    #[error("{address}: {problem}")]
    Answer {
        /// Where.
        address: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Other bytes than those that were promised, by their number.
    #[error(
        "{file} from {from} has {found} bytes, not {wanted}: these are other bytes, nothing of them is kept"
    )]
    WrongSize {
        /// The file.
        file: String,
        /// Where it came from.
        from: String,
        /// As promised.
        wanted: u64,
        /// As found; at least so many where the source went on.
        found: u64,
    },
    /// Other bytes than those that were promised, by their hash.
    #[error(
        "{file} from {from} has SHA-256 {found}, not {wanted}: these are other bytes, nothing of them is kept"
    )]
    WrongHash {
        /// The file.
        file: String,
        /// Where it came from.
        from: String,
        /// As promised.
        wanted: Sha256,
        /// As found.
        found: Sha256,
    },
    /// No client that could fetch packages.
    #[error("{what} cannot be started (tried {tried}); install it, or use another source")]
    NoClient {
        /// `pip` or `npm`.
        what: &'static str,
        /// Commands.
        tried: String,
    },
    /// The client did not deliver.
    #[error("`{command}` failed{}", tail(output))]
    Client {
        /// The command.
        command: String,
        /// The end of what it printed.
        output: String,
    },
    /// A package that cannot be read, or does not hold what it should.
    #[error("{package}: {problem}")]
    Package {
        /// The package.
        package: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A kind of source that cannot give this kind of thing.
    #[error("{from} {problem}")]
    Unfit {
        /// The source.
        from: String,
        /// Why not.
        problem: &'static str,
    },
    /// Every source failed.
    #[error("{model} could not be fetched:{}", lines(attempts))]
    AllSources {
        /// The model.
        model: String,
        /// Each source with its reason.
        attempts: Vec<Attempt>,
    },
    /// Whoever asked for it wants it no more; what was fetched so far is kept.
    #[error("the download was cancelled")]
    Cancelled,
    /// Somebody else is at work on it.
    #[error("{what}: another process is at work on it; wait until it is done")]
    Busy {
        /// The model or conversion.
        what: String,
    },
    /// Nothing to remove.
    #[error("nothing of {model} is here")]
    NotInstalled {
        /// The model.
        model: String,
    },
    /// A conversion that ended well and left nothing.
    #[error("{}: the conversion left no file", path.display())]
    NothingMade {
        /// Where the file should be.
        path: PathBuf,
    },
}

/// A server's no.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The hub's name for the reason, such as `GatedRepo`.
    pub reason: Option<String>,
    /// The hub's words.
    pub said: Option<String>,
    /// How long it wants to be left alone.
    pub wait: Option<Duration>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if let Some(said) = &self.said {
            write!(f, ", {said:?}")?;
        }
        f.write_str(match (self.status, self.reason.as_deref()) {
            // The hub does not tell strangers which repositories there are.
            (401 | 403 | 404, Some("RepoNotFound")) => {
                " (there is no such repository, or it is private: check the name, or give a token)"
            }
            (404, Some("RevisionNotFound")) => " (it has no such revision)",
            (401 | 403, _) => {
                " (it wants to know who asks: accept the model's licence there and give a token)"
            }
            (404 | 410, _) => " (it has no such file)",
            (429, _) => " (too many requests: try again later)",
            (500..=599, _) => " (its own fault: try again later)",
            _ => "",
        })
    }
}

/// One source and why it failed.
#[derive(Debug)]
pub struct Attempt {
    /// The source.
    pub source: String,
    /// The reason.
    pub error: Box<Error>,
}

impl From<pteron_aside::AsideError> for Error {
    fn from(error: pteron_aside::AsideError) -> Error {
        Error::io(&error.place, error.action)(error.source)
    }
}

impl Error {
    /// A wrapper for errors of the file system that knows a full disk when it sees one.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                let folder = path.parent().unwrap_or(&path);
                let free = fs4::available_space(folder).ok();
                Error::DiskFull { path: folder.to_owned(), needed: None, free }
            }
            _ => Error::Io { path, action, source },
        }
    }

    /// Whether the same source may do better in a moment.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Error::Network { .. } => true,
            Error::Status { refusal, .. } => {
                matches!(refusal.status, 408 | 425 | 429 | 500 | 502 | 503 | 504)
            }
            _ => false,
        }
    }

    /// How long the source wants to be left alone.
    pub(crate) fn wait(&self) -> Option<Duration> {
        match self {
            Error::Status { refusal, .. } => refusal.wait,
            _ => None,
        }
    }

    /// Whether it lies with this machine, so that no other source can do better.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Error::DiskFull { .. } | Error::Io { .. } | Error::Cancelled)
    }

    /// Whether the network was the problem, everywhere it was tried.
    pub fn is_offline(&self) -> bool {
        match self {
            Error::Network { .. } => true,
            Error::AllSources { attempts, .. } => attempts.iter().all(|attempt| attempt.error.is_offline()),
            _ => false,
        }
    }

    /// Whether a server wants to know who asks.
    pub fn wants_credentials(&self) -> bool {
        match self {
            Error::Status { refusal, .. } => matches!(refusal.status, 401 | 403),
            Error::AllSources { attempts, .. } => {
                attempts.iter().any(|attempt| attempt.error.wants_credentials())
            }
            _ => false,
        }
    }
}

fn nearest_names(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        many => format!("; nearest are {}", many.join(", ")),
    }
}

fn shortage(needed: Option<u64>, free: Option<u64>) -> String {
    match (needed, free) {
        (Some(needed), Some(free)) => format!(" ({} are needed, {} are free)", size(needed), size(free)),
        (None, Some(free)) => format!(" ({} are free)", size(free)),
        _ => String::new(),
    }
}

/// Bytes as people read them; below a thousand to the byte.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (0..UNITS.len() - 1).find(|&unit| bytes >> (10 * unit) < 1000).unwrap_or(UNITS.len() - 1);
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{:.1} {}", bytes as f64 / (1u64 << (10 * unit)) as f64, UNITS[unit]),
    }
}

fn tail(output: &str) -> String {
    match output.is_empty() {
        true => String::new(),
        false => format!(": {output}"),
    }
}

fn lines(attempts: &[Attempt]) -> String {
    use fmt::Write as _;
    attempts.iter().fold(String::new(), |mut text, Attempt { source, error }| {
        let indented = error.to_string().replace('\n', "\n    ");
        let _ = write!(text, "\n  {source}\n    {indented}");
        text
    })
}
