//! Files that land whole: written beside their place, flushed to the disk, then renamed into it.
//!
//! Several files land together: all are written before the first is renamed, so that whatever fails leaves
//! nothing behind but what was there before.

use crate::failure::Failure;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that becomes `path` when it lands, and nothing if it does not.
pub(crate) struct Aside {
    path: PathBuf,
    file: NamedTempFile,
}

impl Aside {
    /// Calls `write` with a new file beside `path`.
    pub(crate) fn write<E: std::fmt::Display>(
        path: &Path,
        write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<Aside, Failure> {
        let mut out = BufWriter::with_capacity(1 << 20, create(path)?);
        write(&mut out).map_err(|error| Failure::in_file(path, error))?;
        let failed = |error: std::io::Error| Failure::in_file(path, format!("cannot write it: {error}"));
        let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
        file.as_file().sync_all().map_err(failed)?;
        Ok(Aside { path: path.to_owned(), file })
    }

    /// Puts the file in its place.
    pub(crate) fn land(self) -> Result<(), Failure> {
        let Aside { path, file } = self;
        match file.persist(&path) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::in_file(&path, format!("cannot rename into place: {}", error.error))),
        }
    }
}

fn create(path: &Path) -> Result<NamedTempFile, Failure> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if path.is_dir() {
        return Err(Failure::in_file(path, "it is a folder, not a file to write"));
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".pteron-").suffix(".partial");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // What the user's mask leaves, as for any other program; a temporary file alone would be private.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::in_file(folder, "there is no such folder"),
        _ => Failure::in_file(path, format!("cannot create a file beside it: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_a_write_that_failed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        let failed = Aside::write(&path, |out| {
            out.write_all(b"half").unwrap();
            Err("the source ended early")
        });
        assert!(failed.err().unwrap().message().ends_with("out: the source ended early"));
        assert_eq!(names(), 0);
        let aside = Aside::write(&path, |out| out.write_all(b"whole")).unwrap();
        assert!(!path.exists());
        aside.land().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(), 1);
        assert!(Aside::write(folder.path(), |_| Ok::<(), String>(())).is_err());
        let lost = Aside::write(&folder.path().join("no/out"), |_| Ok::<(), String>(()));
        assert!(lost.err().unwrap().message().contains("no such folder"));
    }
}
