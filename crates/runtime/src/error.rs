//! Everything that can go wrong between a file and its outputs, as values with a place: file, method, op,
//! shapes, and what would help.

use crate::backend::{BufferId, Lack};
use crate::portable::PortableError;
use crate::reference::kernels::KernelError;
use pteron_format::FormatError;
use pteron_ir::RuleError;
use pteron_tensor::TensorError;

/// The result of loading or running a program.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a program was not loaded or did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum Error {
    #[error("{file}: {source}")]
    Format { file: String, source: FormatError },
    #[error("{file}: {place}: {problem}")]
    Program { file: String, place: String, problem: String },
    #[error("no backend is called `{name}`; there are: {known}")]
    UnknownBackend { name: String, known: String },
    #[error("backend `{backend}` has no device {device}; there are: {known}")]
    UnknownDevice { backend: String, device: usize, known: String },
    #[error("{file} has no method `{method}`; it has: {known}")]
    UnknownMethod { file: String, method: String, known: String },
    #[error(
        "{file}: method `{method}` calls delegate {index} of `{id}`; only payloads of `MLXBackend`, `XnnpackBackend` and `VulkanBackend` can be run"
    )]
    ForeignDelegate { file: String, method: String, index: usize, id: String },
    #[error("{file}: method `{method}` calls operator `{operator}`, which is not implemented")]
    UnknownOperator { file: String, method: String, operator: String },
    #[error(transparent)]
    UnsupportedOp(Box<UnsupportedOp>),
    #[error("{file}: constant `{name}` of method `{method}`: {problem}")]
    Constant { file: String, method: String, name: String, problem: String },
    #[error("method `{method}` takes {wanted} inputs, {given} were given")]
    InputCount { method: String, wanted: usize, given: usize },
    #[error("input {index}{} of method `{method}`: wanted {wanted}, given {given}", named(.name))]
    Input { method: String, index: usize, name: String, wanted: String, given: String },
    #[error("method `{method}`, {place}: {source}")]
    Step {
        method: String,
        /// Chain and position of the instruction, and what it calls.
        place: String,
        source: Box<Error>,
    },
    #[error("{op} ({place}) of {operands}: {source}")]
    Node { op: String, place: String, operands: String, source: Box<NodeError> },
    #[error("{source}; arguments: {arguments}")]
    Operator { arguments: String, source: PortableError },
    #[error("value {0} is read before it is set")]
    Unset(usize),
    #[error("{0}")]
    Invalid(String),
    #[error("{what} of {found} exceeds the limit `{limit}` of {allowed}")]
    Limit { what: &'static str, limit: &'static str, found: u64, allowed: u64 },
    #[error("there is no buffer {0}")]
    UnknownBuffer(BufferId),
    #[error("buffer {buffer} holds {wanted}, not {given}")]
    BufferType { buffer: BufferId, wanted: String, given: String },
    #[error("the snapshot belongs to another program or backend")]
    ForeignSnapshot,
    #[error("the state belongs to another program or backend")]
    ForeignState,
    #[error("method `{method}` does not read the tokens of several sessions in one call: {reason}")]
    NotFlat { method: String, reason: String },
    #[error("session {span} of a flat batch: {source}")]
    Span {
        /// Which of those that were handed in.
        span: usize,
        source: Box<Error>,
    },
    #[error("off-graph cache: {0}")]
    Cache(String),
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error("the run was cancelled")]
    Cancelled,
    #[error("the run did not end by its deadline")]
    Deadline,
}

/// An op that no backend runs: met when a program is planned.
#[derive(Debug, thiserror::Error)]
#[error(
    "{file}: method `{method}`, delegate {delegate}, {place}: backend `{backend}` cannot run `{op}`: {reason}"
)]
#[allow(missing_docs)]
pub struct UnsupportedOp {
    pub file: String,
    pub method: String,
    pub delegate: usize,
    pub place: String,
    pub backend: String,
    pub op: String,
    pub reason: Lack,
}

/// What can be wrong with one node of a graph when it runs.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum NodeError {
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Run(Box<Error>),
}

impl Error {
    /// Whose fault it is that a flat batch failed: the session's number, and the error as it is for that one; else the error
    /// itself.
    pub fn into_span(self) -> Result<(usize, Error)> {
        fn find(error: &Error) -> Option<(usize, &Error)> {
            match error {
                Error::Span { span, source } => Some((*span, source)),
                Error::Step { source, .. } => find(source),
                Error::Node { source, .. } => match &**source {
                    NodeError::Run(inner) => find(inner),
                    _ => None,
                },
                _ => None,
            }
        }
        match find(&self) {
            Some((span, Error::Cancelled)) => Ok((span, Error::Cancelled)),
            Some((span, Error::Deadline)) => Ok((span, Error::Deadline)),
            Some((span, _)) => Ok((span, self)),
            None => Err(self),
        }
    }

    /// The same error, with the instruction at which it came up.
    pub(crate) fn at(self, method: &str, place: impl Into<String>) -> Error {
        match self {
            Error::Cancelled | Error::Deadline => self,
            source => {
                Error::Step { method: method.to_owned(), place: place.into(), source: Box::new(source) }
            }
        }
    }
}

fn named(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" (`{name}`)") }
}
