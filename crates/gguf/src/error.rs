//! Why a file is refused.

use crate::TensorType;

/// Why a file is refused, or a part of it cannot be had.
#[derive(Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum GgufError {
    /// It does not start like one.
    #[error("this is no GGUF file: it starts with {0:02x?} and not with \"GGUF\"")]
    Magic(Vec<u8>),
    /// A version that is not read.
    #[error("GGUF version {0} is not read; 2 and 3 are: convert the model again with a newer tool")]
    Version(u32),
    /// Bytes in the other order.
    #[error("this GGUF file is big-endian; only little-endian ones are read")]
    BigEndian,
    /// It ends too early.
    #[error(
        "{place}: the file ends here, and {wanted} bytes more are needed; it was cut short or is damaged"
    )]
    Truncated {
        /// What was being read.
        place: String,
        /// What is missing at least.
        wanted: u64,
    },
    /// Something is beyond a bound of [`Limits`](crate::Limits).
    #[error("{place}: {value} is beyond the limit {limit} ({name})")]
    Limit {
        /// What was being read.
        place: String,
        /// The field of `Limits`.
        name: &'static str,
        /// What the file says.
        value: u64,
        /// The bound.
        limit: u64,
    },
    /// A number that stands for no type of metadata.
    #[error("{place}: {number} is no type of metadata")]
    ValueType {
        /// What was being read.
        place: String,
        /// The number in the file.
        number: u32,
    },
    /// A number that stands for no tensor type that we know.
    #[error("tensor {name}: type {number} is unknown")]
    UnknownTensorType {
        /// The tensor.
        name: String,
        /// The number in the file.
        number: u32,
    },
    /// A type whose blocks are not read.
    #[error(
        "tensor {name}: blocks of type {ty} are not read; F32, F16, BF16, Q1_0 to Q8_0, Q2_K to Q6_K, TQ1_0, TQ2_0, IQ1 to \
         IQ4, MXFP4 and NVFP4 are: take another quantisation of the model"
    )]
    UnsupportedTensorType {
        /// The tensor.
        name: String,
        /// Its type.
        ty: TensorType,
    },
    /// Anything else that contradicts the format.
    #[error("{place}: {problem}")]
    Invalid {
        /// What was being read.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Metadata that a reader needs is not there.
    #[error("the file has no metadata {key:?}")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// Metadata is of another type than its reader needs.
    #[error("metadata {key:?} is {found}, where {wanted} is needed")]
    KeyType {
        /// The key.
        key: String,
        /// What it is, in words.
        found: String,
        /// What is needed, in words.
        wanted: &'static str,
    },
}

impl GgufError {
    pub(crate) fn invalid(place: impl Into<String>, problem: impl Into<String>) -> GgufError {
        GgufError::Invalid { place: place.into(), problem: problem.into() }
    }

    /// `Err` where a number is beyond a bound.
    pub(crate) fn check_limit(
        name: &'static str,
        value: u64,
        limit: u64,
        place: &dyn Fn() -> String,
    ) -> Result<(), GgufError> {
        if value <= limit { Ok(()) } else { Err(GgufError::Limit { place: place(), name, value, limit }) }
    }
}
