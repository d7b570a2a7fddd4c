//! Files that commands write: all of them are there before the first one takes its place, so that whatever fails leaves
//! nothing behind but what was there before.

use crate::failure::Failure;
use pteron_aside::{AsideError, Readers, Whole, write_aside};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// A file that becomes what it was named when it lands, and nothing if it does not.
pub(crate) struct Aside(Whole);

impl Aside {
    /// Calls `write` with a new file beside `path`.
    pub(crate) fn write<E: std::fmt::Display>(
        path: &Path,
        write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<Aside, Failure> {
        if path.is_dir() {
            return Err(Failure::in_file(path, "it is a folder, not a file to write"));
        }
        let (_, whole) = write_aside(path, Readers::AsUsual, |out| {
            write(out).map_err(|error| Failure::in_file(path, error))
        })?;
        Ok(Aside(whole))
    }

    /// Puts the file in its place.
    pub(crate) fn land(self) -> Result<(), Failure> {
        Ok(self.0.land()?)
    }
}

impl From<AsideError> for Failure {
    fn from(error: AsideError) -> Failure {
        match (error.place.parent(), error.source.kind()) {
            (Some(folder), ErrorKind::NotFound) => Failure::in_file(folder, "there is no such folder"),
            _ => Failure::new(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_says_why_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let failed = Aside::write(&path, |out| {
            out.write_all(b"half").unwrap();
            Err("the source ended early")
        });
        assert!(failed.err().unwrap().message().ends_with("out: the source ended early"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(Aside::write(folder.path(), |_| Ok::<(), String>(())).is_err());
        let lost = Aside::write(&folder.path().join("no/out"), |_| Ok::<(), String>(()));
        assert!(lost.err().unwrap().message().contains("no such folder"));
    }
}
