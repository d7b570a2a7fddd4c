//! Why an exported program could not be turned into graphs, as values that name the node, its place in the
//! source model and what to do.

use crate::pt2::schema::Node;
use pteron_ir::RuleError;

/// Why one operator does not become catalogue ops. A node that is refused stays outside the delegate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Nobody has written how.
    #[error("no catalogue op computes it")]
    Unknown,
    /// It is known, but not with these arguments.
    #[error("{0}")]
    Arguments(String),
    /// A catalogue op does not take these types.
    #[error("{op} of the catalogue: {problem}")]
    Rule {
        /// The op.
        op: &'static str,
        /// What its rule says.
        problem: RuleError,
    },
}

impl Refusal {
    /// A refusal in words.
    pub(crate) fn because(problem: impl Into<String>) -> Refusal {
        Refusal::Arguments(problem.into())
    }
}

/// What an operator's lowering gives.
pub(crate) type Lowered<T> = Result<T, Refusal>;

/// Why a whole program could not be lowered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LowerError {
    /// A node is not sound, or does what nothing here can follow.
    #[error("{place}: {problem}{}", source_line(.source_place))]
    Node {
        /// The node with its operator and module.
        place: String,
        /// The innermost line of the source model, where it was recorded.
        source_place: Option<String>,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A size has no bound.
    #[error(
        "{what}: size `{symbol}` has no upper bound, and programs reserve memory for the largest input; export with \
         `Dim(\"{symbol}\", max=...)`"
    )]
    Unbounded {
        /// The input.
        what: String,
        /// The symbol or expression.
        symbol: String,
    },
    /// The signature asks for what programs do not have.
    #[error("{what}: {problem}")]
    Signature {
        /// The input or output.
        what: String,
        /// What is wrong, and what to do.
        problem: String,
    },
}

fn source_line(place: &Option<String>) -> String {
    place.as_ref().map(|place| format!(" (at {place})")).unwrap_or_default()
}

impl LowerError {
    /// An error about a node.
    pub(crate) fn node(node: &Node, problem: impl Into<String>) -> LowerError {
        LowerError::Node { place: node.place(), source_place: source_place(node), problem: problem.into() }
    }

    /// An error about an input or output.
    pub(crate) fn signature(what: impl Into<String>, problem: impl Into<String>) -> LowerError {
        LowerError::Signature { what: what.into(), problem: problem.into() }
    }
}

/// File and line that a node was traced from: the innermost frame, with the file's own name only, since folders
/// are those of the exporting machine.
pub fn source_place(node: &Node) -> Option<String> {
    let frame = node.stack_trace()?.lines().rev().find_map(|line| {
        let rest = line.trim_start().strip_prefix("File \"")?;
        let (path, rest) = rest.split_once("\", line ")?;
        let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
        let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some(format!("{}:{number}", crate::pt2::clip(file)))
    });
    frame.filter(|frame| !frame.ends_with(':'))
}
