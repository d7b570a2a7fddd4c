//! What can be wrong with a text, and where.

use crate::graph::ValueId;

/// Why a text is not a graph.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong at one place of a text.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Problem {
    #[error("expected {expected}, found {found}")]
    Expected { expected: &'static str, found: String },
    #[error("{0:?} has no meaning here")]
    StrayCharacter(char),
    #[error("this string has no closing quote")]
    OpenString,
    #[error("unknown escape in a string: use \\\", \\\\, \\n, \\r, \\t or \\u{{...}}")]
    BadEscape,
    #[error("{text} is not {expected}")]
    OutOfRange { text: String, expected: &'static str },
    #[error("there is no op `{0}`")]
    UnknownOp(String),
    #[error("`{op}` has no field `{field}`; it has {known}")]
    UnknownField { op: &'static str, field: String, known: String },
    #[error("`{op}` needs its field `{field}`")]
    MissingField { op: &'static str, field: &'static str },
    #[error("field `{0}` is written twice")]
    RepeatedField(&'static str),
    #[error("there is no symbol {0}")]
    UnknownSymbol(String),
    #[error("symbol {0} is declared twice: write it as `#number \"name\"`")]
    RepeatedSymbol(String),
    #[error("symbol #{found} is declared where #{expected} is due")]
    SymbolOutOfOrder { expected: usize, found: u64 },
    #[error("%{} has two types", .0.0)]
    TwoTypes(ValueId),
    #[error("%{} has no type: no input, constant, buffer, node, block or `value` line defines it", .0.0)]
    NoType(ValueId),
    #[error("the number of %{} leaves a gap: the {count} values here are numbered from %0", .value.0)]
    Gap { value: ValueId, count: usize },
    #[error("there are more than {limit} {what}")]
    TooMany { what: &'static str, limit: usize },
}

/// The beginning of a word of the text, so that a hostile one does not make the error long.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
