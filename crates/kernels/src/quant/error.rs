//! What can be wrong with a quantised product.

use crate::path::PathError;
use pteron_tensor::DType;
use std::fmt;

/// Why a quantised weight or a call is refused.
#[derive(Clone, Debug, PartialEq)]
pub enum LinearError {
    /// Sizes that do not belong together: what, how many there are, how many are needed.
    Length {
        /// Which part.
        what: &'static str,
        /// Its size.
        got: usize,
        /// The size that the rest asks for.
        want: usize,
    },
    /// A dtype that has no place here.
    DType {
        /// Which part.
        what: &'static str,
        /// Its dtype.
        dtype: DType,
    },
    /// Memory whose address is not a multiple of what its use asks for.
    Alignment {
        /// Which part.
        what: &'static str,
        /// The divisor that its address must have.
        to: usize,
    },
    /// A row, matrix or element that does not exist.
    Index {
        /// Which part.
        what: &'static str,
        /// The index that was asked for.
        index: i64,
        /// How many there are.
        count: usize,
    },
    /// The machine cannot run the path.
    Path(PathError),
}

impl fmt::Display for LinearError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinearError::Length { what, got, want } => write!(f, "{what}: {got} where {want} are needed"),
            LinearError::DType { what, dtype } => write!(f, "{what} cannot be {dtype}"),
            LinearError::Alignment { what, to } => write!(f, "{what} must start at a multiple of {to} bytes"),
            LinearError::Index { what, index, count } => write!(f, "{what} {index}: there are {count}"),
            LinearError::Path(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LinearError {}

impl From<PathError> for LinearError {
    fn from(error: PathError) -> LinearError {
        LinearError::Path(error)
    }
}

/// `Err` unless a part has the size that the rest asks for.
pub(super) fn expect_length(what: &'static str, got: usize, want: usize) -> Result<(), LinearError> {
    if got == want { Ok(()) } else { Err(LinearError::Length { what, got, want }) }
}

/// `Err` unless a part is at least as large as the rest asks for.
pub(super) fn expect_at_least(what: &'static str, got: usize, want: usize) -> Result<(), LinearError> {
    if got >= want { Ok(()) } else { Err(LinearError::Length { what, got, want }) }
}
