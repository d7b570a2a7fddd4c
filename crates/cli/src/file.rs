//! A file on the command line: which of the three kinds it is, told by what it says of itself, not by its name.

use crate::failure::{Failure, in_format};
use crate::form::{self, Wanted};
use pteron_format::bpte::Bpte;
use pteron_format::map::MappedFile;
use pteron_format::ptd::Ptd;
use pteron_format::pte::Pte;
use pteron_format::{FormatError, Limits};
use pteron_tensor::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that was read and checked.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) content: Content,
    mapped: Arc<MappedFile>,
}

/// What a file holds.
pub(crate) enum Content {
    /// A program.
    Pte(Pte),
    /// External data.
    Ptd(Ptd),
    /// A program with inputs and outputs to test it by.
    Bpte(Bpte),
}

impl File {
    /// Opens and reads a file; small ones are copied, large ones mapped. One of another kind is refused in words of that
    /// kind.
    pub(crate) fn open(path: &Path) -> Result<File, Failure> {
        form::check(path, Wanted::Program)?;
        File::read(path).map_err(|error| in_format(path, error))
    }

    /// The same, with the library's own error.
    pub(crate) fn read(path: &Path) -> Result<File, FormatError> {
        let limits = Limits::own();
        let mapped = MappedFile::open(path, &limits)?;
        let content = Content::read(mapped.to_bytes(), &limits)?;
        Ok(File { path: path.to_owned(), content, mapped })
    }

    /// Bytes of the file.
    pub(crate) fn len(&self) -> u64 {
        self.mapped.to_bytes().len() as u64
    }

    /// Fails if somebody wrote into the file since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<(), Failure> {
        self.mapped.check_unchanged().map_err(|error| in_format(&self.path, error))
    }
}

impl Content {
    fn read(bytes: Bytes, limits: &Limits) -> Result<Content, FormatError> {
        if Bpte::recognises(&bytes) {
            return Bpte::read(bytes, limits).map(Content::Bpte);
        }
        match bytes.get(4..6) {
            Some(b"FT") => Ptd::read(bytes, limits).map(Content::Ptd),
            // Whatever else it is, the reader of programs says best what is wrong with it.
            _ => Pte::read(bytes, limits).map(Content::Pte),
        }
    }

    /// The kind in words.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Content::Pte(_) => "a program (.pte)",
            Content::Ptd(_) => "external data (.ptd)",
            Content::Bpte(_) => "a bundled program (.bpte)",
        }
    }
}
