//! Why a program could not be compiled.

use crate::lower::LowerError;
use pteron_format::AssembleError;

/// Why there is no program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The graph, its signature or its sizes.
    #[error("method `{method}`: {source}")]
    Lower {
        /// The method.
        method: String,
        /// What is wrong.
        source: LowerError,
    },
    /// An operator that neither the delegate nor a portable kernel computes, or any operator outside the delegate
    /// where that is forbidden.
    #[error("method `{method}`: {place}{}: {reason}. {advice}", at(.source_place))]
    Operator {
        /// The method.
        method: String,
        /// The node with its operator and module.
        place: String,
        /// File and line of the source model, where they were recorded.
        source_place: Option<String>,
        /// Why it is not lowered.
        reason: String,
        /// What to do.
        advice: String,
    },
    /// A graph that a pass or a rule has made is not sound: a mistake of ours.
    #[error("method `{method}`: the graph that was made is not sound: {problem}")]
    Unsound {
        /// The method.
        method: String,
        /// What the verifier says.
        problem: String,
    },
    /// A pass could not do what was asked: a weight does not fit its packing.
    #[error("method `{method}`: {problem}")]
    Pass {
        /// The method.
        method: String,
        /// What is wrong.
        problem: String,
    },
    /// Putting the file together failed.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// The methods do not go together.
    #[error("{0}")]
    Methods(String),
}

fn at(place: &Option<String>) -> String {
    place.as_ref().map(|place| format!(" (at {place})")).unwrap_or_default()
}
