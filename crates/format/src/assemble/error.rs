//! Why a program cannot be put together.

use crate::{EmitError, FormatError};

/// Why a program cannot be put together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// A graph has no payload.
    #[error("graph {graph:?}: {source}")]
    Emit {
        /// The graph.
        graph: String,
        /// Why.
        source: EmitError,
    },
    /// A payload cannot be encoded.
    #[error("graph {graph:?}: {source}")]
    Encode {
        /// The graph.
        graph: String,
        /// Why.
        source: FormatError,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A key names no data.
    #[error("no data is named {key:?}; name it before the program is written")]
    UnknownName {
        /// The key.
        key: String,
    },
    /// A key was given twice.
    #[error("two data are named {key:?}")]
    DoubleName {
        /// The key.
        key: String,
    },
    /// A method was added twice.
    #[error("two methods are named {method:?}")]
    DoubleMethod {
        /// The method.
        method: String,
    },
    /// A delegate call does not fit its payload.
    #[error(
        "method {method:?}: a delegate takes {wanted} arguments, inputs and outputs together, not {given}"
    )]
    Arguments {
        /// The method.
        method: String,
        /// What the payload says.
        wanted: usize,
        /// What the call has.
        given: usize,
    },
    /// A tensor has no bound, or one that the format cannot hold.
    #[error("method {method:?}: value {value} has no size that the format can hold: {problem}")]
    Size {
        /// The method.
        method: String,
        /// The value's number.
        value: i32,
        /// What is wrong.
        problem: String,
    },
    /// Two methods disagree on a state that they share.
    #[error(
        "method {method:?}: the shared state {state:?} has {bytes} bytes here and {known} in another method"
    )]
    SharedSize {
        /// The state.
        state: String,
        /// The method.
        method: String,
        /// Bytes elsewhere.
        known: u64,
        /// Bytes here.
        bytes: u64,
    },
}
