//! Why a model cannot be built.

use pteron_format::AssembleError;
use pteron_ir::RuleError;

use crate::{PackingError, WeightError};

/// Why a model cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// An op does not fit its operands.
    #[error("{place}: {op}: {source}")]
    Rule {
        /// The part of the model that was being built.
        place: String,
        /// The op.
        op: &'static str,
        /// What the op's rule says.
        source: RuleError,
    },
    /// A weight is missing or unlike what the configuration says.
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// A weight cannot be stored as asked.
    #[error("{name}: {source}")]
    Packing {
        /// The weight.
        name: String,
        /// Why not.
        source: PackingError,
    },
    /// The configuration contradicts itself.
    #[error("the configuration cannot be: {problem}")]
    Configuration {
        /// What is wrong.
        problem: String,
    },
    /// The program cannot be put together.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
}

impl ModelError {
    pub(crate) fn configuration(problem: impl Into<String>) -> ModelError {
        ModelError::Configuration { problem: problem.into() }
    }
}
