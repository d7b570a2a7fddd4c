//! Why a payload is no graph, with the chain, the instruction, the op and the slot.

use std::fmt;

use pteron_ir::RuleError;

use crate::FormatError;
use crate::payload::{ChainId, Slot};

/// An instruction, or a place at the boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// An instruction of a chain.
    Instruction {
        /// The chain.
        chain: ChainId,
        /// The position in it.
        index: usize,
        /// The op's name in the schema.
        op: &'static str,
    },
    /// What the payload gives, by position in its output map.
    Output(usize),
    /// What the payload takes, by position in its input map.
    Input(usize),
    /// What the payload keeps, by position among its mutable buffers.
    Buffer(usize),
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Where::Instruction { chain, index, op } => write!(f, "chain {} #{index} ({op})", chain.0),
            Where::Output(index) => write!(f, "output {index}"),
            Where::Input(index) => write!(f, "input {index}"),
            Where::Buffer(index) => write!(f, "mutable buffer {index}"),
        }
    }
}

/// A slot with its name, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPlace {
    /// The slot.
    pub slot: Slot,
    /// Its name in the payload.
    pub name: Option<String>,
}

impl fmt::Display for NamedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} {name:?}", self.slot),
            None => write!(f, "{}", self.slot),
        }
    }
}

impl LiftError {
    /// Everything that is wrong, one text for each thing.
    pub fn all(&self) -> Vec<String> {
        match self {
            LiftError::Payload(FormatError::Several(errors)) => {
                errors.iter().map(ToString::to_string).collect()
            }
            other => vec![other.to_string()],
        }
    }
}

/// Why a payload cannot be lifted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiftError {
    /// The tables themselves are not sound.
    #[error(transparent)]
    Payload(#[from] FormatError),
    /// The payload is of a delegate that nobody here knows.
    #[error(
        "the payload belongs to `{id}`; only those of `MLXBackend`, `XnnpackBackend` and `VulkanBackend` become graphs"
    )]
    Foreign {
        /// The delegate's id.
        id: String,
    },
    /// There is nothing to lift.
    #[error("{problem}")]
    Missing {
        /// What is not there.
        problem: String,
    },
    /// A slot is read that nothing has set on this path.
    #[error("{at} reads {slot}, which nothing has set before")]
    Unset {
        /// Who reads.
        at: Where,
        /// What.
        slot: NamedPlace,
    },
    /// A slot is written that must not change there.
    #[error("{at} writes {slot}: {problem}")]
    Forbidden {
        /// Who writes.
        at: Where,
        /// What.
        slot: NamedPlace,
        /// Why not.
        problem: &'static str,
    },
    /// The op does not take these operands.
    #[error("{at}: {source}; operands: {operands}")]
    Rule {
        /// The op.
        at: Where,
        /// Its operands with their slots and types.
        operands: String,
        /// What its rule says.
        source: RuleError,
    },
    /// The node has more or fewer result slots than the op gives results.
    #[error("{at} has {slots} result slots, but the op gives {results} results; operands: {operands}")]
    ResultCount {
        /// The op.
        at: Where,
        /// Slots in the node.
        slots: usize,
        /// Results of the op.
        results: usize,
        /// Its operands with their slots and types.
        operands: String,
    },
    /// A slot at the boundary is described badly or not at all.
    #[error("{what} {slot}: {problem}")]
    Boundary {
        /// `constant`, `input`, `output` or `mutable buffer`.
        what: &'static str,
        /// Which.
        slot: NamedPlace,
        /// What is wrong.
        problem: String,
    },
    /// The payload asks for more than [`Limits`](crate::Limits) allow.
    #[error("{at}: the graph's types exceed the limit `{limit}` of {allowed}")]
    Limit {
        /// The op at which it showed.
        at: Where,
        /// The field of `Limits`.
        limit: &'static str,
        /// What is allowed.
        allowed: u64,
    },
    /// A node has a field that only control flow has.
    #[error("{at}: no way to lift the field `{field}`")]
    Field {
        /// The op.
        at: Where,
        /// The field.
        field: &'static str,
    },
}
