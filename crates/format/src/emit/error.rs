//! Why a graph cannot be written as a payload. A graph that passes the verifier meets few of these.

use pteron_ir::{RuleError, ValueId};

/// Why a module has no payload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// A value is used where nothing has defined it.
    #[error("graph {graph:?}: {user} uses %{}, which is not defined there", .value.0)]
    Undefined {
        /// The graph.
        graph: String,
        /// The value.
        value: ValueId,
        /// Who uses it.
        user: String,
    },
    /// A value is defined twice, or by nobody's rules.
    #[error("graph {graph:?}: {definer} defines %{}, which is defined already", .value.0)]
    Redefined {
        /// The graph.
        graph: String,
        /// The value.
        value: ValueId,
        /// Who defines it again.
        definer: String,
    },
    /// A value is of a kind that does not fit where it stands.
    #[error("graph {graph:?}: {user}: %{} is not {want}", .value.0)]
    Kind {
        /// The graph.
        graph: String,
        /// The value.
        value: ValueId,
        /// Who uses it.
        user: String,
        /// What is wanted.
        want: &'static str,
    },
    /// An op has more or fewer results than it can have.
    #[error("graph {graph:?}: {op} with {found} results")]
    Results {
        /// The graph.
        graph: String,
        /// The op.
        op: &'static str,
        /// How many results the node has.
        found: usize,
    },
    /// The format has no instruction that copies floats or bools.
    #[error("graph {graph:?}: %{} would have to be copied, and the format copies only tensors and integers", .value.0)]
    NoCopy {
        /// The graph.
        graph: String,
        /// The value.
        value: ValueId,
    },
    /// A constant, input, output or buffer has no description in the format.
    #[error("{what} {name:?}: {problem}")]
    Boundary {
        /// `constant`, `input`, `output` or `buffer`.
        what: &'static str,
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// An internal op does not fit what it stands for.
    #[error("graph {graph:?}: {source}")]
    Expand {
        /// The graph.
        graph: String,
        /// What is wrong with it.
        source: RuleError,
    },
    /// A node has a field that only control flow has.
    #[error("graph {graph:?}: no way to write the field `{field}`")]
    Field {
        /// The graph.
        graph: String,
        /// The field.
        field: &'static str,
    },
}
