//! What can be wrong with a `.pt2` archive, as values that name the member, the node or the weight.
//!
//! Texts that come from the file are cut short here, so that a hostile name cannot fill a terminal.

use pteron_format::FormatError;

/// The result of reading an archive.
pub type Result<T, E = Pt2Error> = std::result::Result<T, E>;

/// Why an archive was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Pt2Error {
    /// The operating system refused, or the file asks for more than the limits allow.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The zip around everything is not sound, or not one that torch writes.
    #[error("{archive}: {problem}")]
    Archive {
        /// `archive`, or the payload that is an archive itself.
        archive: String,
        /// What is wrong.
        problem: String,
    },
    /// A member is compressed; torch stores all of them.
    #[error(
        "{archive}: member `{member}` is compressed (zip method {method}); weights are read in place, so save the \
         program again with torch.export.save, or repack the archive with `zip -0`"
    )]
    Compressed {
        /// The archive.
        archive: String,
        /// The member.
        member: String,
        /// Zip's number of the method.
        method: u16,
    },
    /// A member that every archive has is not there.
    #[error("the archive has no member `{member}`")]
    Missing {
        /// Its name below the root folder.
        member: String,
    },
    /// A member says something that means nothing.
    #[error("member `{member}`: {problem}")]
    Member {
        /// Its name below the root folder.
        member: String,
        /// What is wrong.
        problem: String,
    },
    /// A member is not the JSON that it should be; the message leads to the node.
    #[error("member `{member}`: {source}")]
    Json {
        /// Its name below the root folder.
        member: String,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// The program was written in a schema that this reader does not know.
    #[error(
        "member `{member}`: schema version {major}.{minor}, this reader knows {known}; save the program again with \
         torch 2.13 to 2.15"
    )]
    Schema {
        /// The program's member.
        member: String,
        /// Major version found.
        major: i64,
        /// Minor version found.
        minor: i64,
        /// What is known.
        known: &'static str,
    },
    /// A node, an input or an output of the graph does not fit the rest.
    #[error("program `{program}`, {place}: {problem}")]
    Graph {
        /// The program.
        program: String,
        /// The node or the spec, with its place in the source model where that is known.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// A weight or constant is not what its description says.
    #[error("weight `{name}`: {problem}")]
    Weight {
        /// Its fully qualified name.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// A pickle names something outside the closed list.
    #[error(
        "weight `{name}`: its pickle names `{global}`, which is none of the classes and functions that this reader \
         knows; nothing was called. Unwrap tensor subclasses before export, or call run_decompositions({{}})"
    )]
    Global {
        /// The weight.
        name: String,
        /// Module and name.
        global: String,
    },
    /// A pickle is not sound, or does what no torch does.
    #[error("weight `{name}`: pickle, byte {offset}: {problem}")]
    Pickle {
        /// The weight.
        name: String,
        /// Byte of the pickle.
        offset: usize,
        /// What is wrong.
        problem: String,
    },
}

impl Pt2Error {
    pub(crate) fn archive(archive: &str, problem: impl Into<String>) -> Pt2Error {
        Pt2Error::Archive { archive: archive.to_owned(), problem: problem.into() }
    }

    pub(crate) fn member(member: &str, problem: impl Into<String>) -> Pt2Error {
        Pt2Error::Member { member: clip(member), problem: problem.into() }
    }

    pub(crate) fn weight(name: &str, problem: impl Into<String>) -> Pt2Error {
        Pt2Error::Weight { name: clip(name), problem: problem.into() }
    }
}

/// A text of the file as an error may show it.
pub(crate) fn clip(text: &str) -> String {
    const MOST: usize = 160;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
