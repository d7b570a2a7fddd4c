//! What can be wrong with a file, as values: each says where (table path, byte) and what would help.
//!
//! One enum for the whole crate, so that a caller has one thing to render. Texts are made when an error is made,
//! never on the way through a sound file.

use std::fmt;
use std::path::PathBuf;

/// The result of reading or writing a file.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;

/// Where in a file something was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path through the tables, such as `Program.execution_plan[0].values[3]`.
    pub path: String,
    /// Byte of the file (or of the payload, for what lies inside one), where known.
    pub offset: Option<u64>,
}

impl Place {
    /// A place that is known by its path alone.
    pub fn at(path: impl Into<String>) -> Place {
        Place { path: path.into(), offset: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "{} (byte {offset})", self.path),
            None => f.write_str(&self.path),
        }
    }
}

/// Four bytes of a file, shown as text where they are text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identifier(pub [u8; 4]);

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0.escape_ascii())
    }
}

impl fmt::Debug for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a file was not read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried, as a verb: `open`, `map`, `rename into place`.
        action: &'static str,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Writing to the given sink failed, or a segment's source did.
    #[error("cannot write {what}: {source}")]
    Write {
        /// The part that was being written.
        what: String,
        /// What the sink or the source said.
        source: std::io::Error,
    },
    /// The file is not what it was when it was opened.
    #[error(
        "{}: the file changed while it was in use ({what}); load it again, and replace model files by rename \
         instead of writing into them",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: String,
    },
    /// Fewer bytes than the smallest valid file has.
    #[error("{kind} file of {found} bytes is shorter than the {needed} that every one has; is it complete?")]
    TooShort {
        /// The kind of file: `.pte`, `.ptd`, `.bpte`.
        kind: &'static str,
        /// Bytes there are.
        found: u64,
        /// Bytes the smallest one has.
        needed: u64,
    },
    /// The identifier belongs to nothing we know.
    #[error("not a {kind} file: bytes 4 to 8 are {found}, expected {expected}")]
    OtherFormat {
        /// The kind of file asked for.
        kind: &'static str,
        /// The identifier found.
        found: Identifier,
        /// The identifier that this kind has.
        expected: Identifier,
    },
    /// The identifier is of the same family, written by another version of the exporter.
    #[error("{kind} file of format version {found}; this reader knows {expected}. Export the model again")]
    OtherVersion {
        /// The kind of file.
        kind: &'static str,
        /// The identifier found.
        found: Identifier,
        /// The identifier that this reader knows.
        expected: Identifier,
    },
    /// A table's own version number is newer than this reader.
    #[error("{place}: version {found}, this reader knows up to {known}; a newer pteron may read it")]
    NewerVersion {
        /// Where the number stands.
        place: Place,
        /// The number found.
        found: u64,
        /// The newest that is known.
        known: u64,
    },
    /// The extended header contradicts itself or the file.
    #[error("header at byte {offset}: {problem}; the file is damaged or cut off")]
    Header {
        /// Byte of the file.
        offset: u64,
        /// What is wrong.
        problem: String,
    },
    /// The tables are not sound FlatBuffers, or a field has a value that means nothing.
    #[error("{place}: {problem}")]
    Table {
        /// The table and field.
        place: Place,
        /// What is wrong.
        problem: String,
    },
    /// A union has a member that this reader does not know.
    #[error(
        "{place}: unknown kind {tag} of {union_name} (known are 1 to {known}); a newer exporter wrote it"
    )]
    UnknownTag {
        /// The table.
        place: Place,
        /// The union in the schema.
        union_name: &'static str,
        /// The tag found.
        tag: u8,
        /// The highest tag that is known.
        known: u8,
    },
    /// An enumeration has a value that this reader does not know.
    #[error("{place}: unknown {enum_name} {value}; a newer exporter wrote it, or the file is damaged")]
    UnknownValue {
        /// The field.
        place: Place,
        /// The enumeration in the schema.
        enum_name: &'static str,
        /// The value found.
        value: i64,
    },
    /// An index points at nothing.
    #[error("{place}: index {index}, but there are {count} {what}")]
    Index {
        /// The field that holds the index.
        place: Place,
        /// The index found.
        index: i64,
        /// How many there are.
        count: u64,
        /// What is counted, in plural.
        what: &'static str,
    },
    /// The file asks for more than [`Limits`](crate::Limits) allow.
    #[error("{place}: {found} exceeds the limit `{limit}` of {allowed}")]
    Limit {
        /// Where.
        place: Place,
        /// The field of `Limits`.
        limit: &'static str,
        /// What was asked for.
        found: u64,
        /// What is allowed.
        allowed: u64,
    },
    /// More than one thing, each with its own place.
    #[error("{}", several(.0))]
    Several(Vec<FormatError>),
    /// What was handed to the writer cannot be a file.
    #[error("cannot write {place}: {problem}")]
    Unwritable {
        /// The part that cannot be written.
        place: Place,
        /// Why.
        problem: String,
    },
}

/// Errors are listed up to this many; the rest is a number.
const LISTED: usize = 16;

fn several(errors: &[FormatError]) -> String {
    let mut text: Vec<String> = errors.iter().take(LISTED).map(ToString::to_string).collect();
    if errors.len() > LISTED {
        text.push(format!("and {} more", errors.len() - LISTED));
    }
    text.join("; ")
}

impl FormatError {
    /// Nothing wrong, the one thing that is, or all of them.
    pub(crate) fn gathered(mut errors: Vec<FormatError>) -> Result<()> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(FormatError::Several(errors)),
        }
    }

    /// A table or field that means nothing, known by its path alone.
    pub fn table(path: impl Into<String>, problem: impl Into<String>) -> FormatError {
        FormatError::Table { place: Place::at(path), problem: problem.into() }
    }

    /// Checks a count against a limit; `path` is called only for the error.
    pub fn check_limit(
        limit: &'static str,
        found: u64,
        allowed: u64,
        path: impl FnOnce() -> Place,
    ) -> Result<()> {
        match found <= allowed {
            true => Ok(()),
            false => Err(FormatError::Limit { place: path(), limit, found, allowed }),
        }
    }
}

#[cfg(not(target_family = "wasm"))]
impl From<pteron_aside::AsideError> for FormatError {
    fn from(error: pteron_aside::AsideError) -> FormatError {
        let pteron_aside::AsideError { place, action, source } = error;
        FormatError::Io { path: place, action, source }
    }
}
