//! What is wrong with the data of a run, as the error of the node that found it.

use pteron_kernels::index::IndexError;
use pteron_plan::PlanError;
use pteron_runtime::{Error, KernelError, NodeError};

/// An error about data.
pub(crate) fn invalid(message: impl Into<String>) -> NodeError {
    NodeError::Kernel(KernelError::Invalid(message.into()))
}

/// An index that its axis does not have.
pub(crate) fn out_of_range(error: &IndexError) -> NodeError {
    NodeError::Kernel(KernelError::Index { index: error.index, size: error.size })
}

/// An error of the run as a whole, met in one of its nodes.
pub(crate) fn of_run(error: Error) -> NodeError {
    NodeError::Run(Box::new(error))
}

/// Why there is no plan.
pub(crate) fn of_plan(error: PlanError) -> Error {
    match error {
        PlanError::Limit { what, limit, found, allowed } => Error::Limit { what, limit, found, allowed },
        error => Error::Invalid(error.to_string()),
    }
}
