//! What a backend computes on, and what it says of an op: devices by number, and support with its reason.

use std::fmt;

/// One of a backend's devices, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub usize);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a backend computes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number among the backend's devices.
    pub id: DeviceId,
    /// In words.
    pub name: String,
    /// Memory of its own, where it has some.
    pub memory_bytes: Option<u64>,
    /// Instruction sets and the like.
    pub features: Vec<String>,
    /// The longest input that is worth giving in one run, where there is one.
    pub useful_input_length: Option<usize>,
}

/// Whether a backend runs an op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// By kernels of its own.
    Native,
    /// It leaves the op to the reference backend, which costs time.
    Fallback(Lack),
    /// Not at all.
    No(Lack),
}

/// Why a backend does not run an op itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lack {
    /// Nobody has written a vector kernel for it.
    #[error("it has no vector kernel")]
    VectorKernel,
    /// A kernel that the file has as source, which is never compiled: ours stand in for those that are known.
    #[error("{0}")]
    KnownSource(String),
    /// Something else.
    #[error("{0}")]
    Other(String),
}

impl Support {
    /// Of an op that is recognised by its source, or not.
    pub fn of_source<T>(recognised: Result<T, String>) -> Support {
        match recognised {
            Ok(_) => Support::Native,
            Err(reason) => Support::No(Lack::KnownSource(reason)),
        }
    }

    /// What is missing, unless the backend runs the op itself.
    pub fn lack(&self) -> Option<&Lack> {
        match self {
            Support::Native => None,
            Support::Fallback(lack) | Support::No(lack) => Some(lack),
        }
    }
}
