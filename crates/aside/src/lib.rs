//! Files that land whole: written beside their place, flushed to the disk, then renamed into it.
//!
//! A reader sees the old file or the new one, never a part. A write that fails removes what it wrote; a process that is
//! killed cannot, so the next write into the same folder does. The writer holds a lock on its part, which the system
//! lets go of however the process ends: a part that can be locked is nobody's.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Parts are told from other files by how their names begin and end.
const PREFIX: &str = ".pteron-";
const SUFFIX: &str = ".partial";

/// Larger than a pipe's or a page's worth, so that small tables and large segments alike go out in few calls.
const BUFFER: usize = 1 << 20;

/// What could not be done on the way.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {action}: {source}", place.display())]
pub struct AsideError {
    /// The file that was to be written.
    pub place: PathBuf,
    /// What was tried, as a verb.
    pub action: &'static str,
    /// What the system said.
    pub source: io::Error,
}

/// Who may read a file, once it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Whom the user's mask lets, as with the files of any other program.
    AsUsual,
    /// Its owner alone.
    Owner,
}

/// A file that is all written and on the disk, but not yet in its place. Dropped, it is gone.
#[derive(Debug)]
pub struct Whole {
    place: PathBuf,
    part: NamedTempFile,
}

/// Writes a file of that name.
pub fn write_file<T, E: From<AsideError>>(
    place: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    let (result, whole) = write_aside(place, Readers::AsUsual, write)?;
    whole.land()?;
    Ok(result)
}

/// Calls `write` with a new file beside `place`, so that several files can be written before the first of them lands.
pub fn write_aside<T, E: From<AsideError>>(
    place: &Path,
    readers: Readers,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<(T, Whole), E> {
    let folder = folder_of(place);
    sweep(folder);
    let part = create(folder, readers).map_err(failed(place, "create a file beside it"))?;
    let mut out = BufWriter::with_capacity(BUFFER, part);
    let result = write(&mut out)?;
    let part = out.into_inner().map_err(|error| failed(place, "write")(error.into_error()))?;
    part.as_file().sync_all().map_err(failed(place, "flush to the disk"))?;
    Ok((result, Whole { place: place.to_owned(), part }))
}

impl Whole {
    /// Puts the file in its place.
    pub fn land(self) -> Result<(), AsideError> {
        let Whole { place, part } = self;
        part.persist(&place).map_err(|error| failed(&place, "rename into place")(error.error))?;
        // The rename itself is safe from a power cut only once the folder is on the disk too. Not every file system
        // can do that, and the file is whole either way.
        #[cfg(unix)]
        let _ = File::open(folder_of(&place)).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

/// Removes the parts in a folder that were left by processes which are no more. Whatever cannot be looked at, locked or
/// removed stays: it is in nobody's way.
pub fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_named = name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX));
        // To open a pipe would wait for its other end.
        if !is_named || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let Ok(part) = File::options().read(true).write(true).open(entry.path()) else { continue };
        if part.try_lock().is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A new part, locked.
fn create(folder: &Path, readers: Readers) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = match readers {
            Readers::AsUsual => 0o666,
            Readers::Owner => 0o600,
        };
        builder.permissions(fs::Permissions::from_mode(mode));
    }
    #[cfg(not(unix))]
    let _ = readers; // folders decide there
    loop {
        let part = builder.tempfile_in(folder)?;
        match part.as_file().try_lock() {
            // Whoever swept between the two calls has taken the part for an old one and removed it, or is about to.
            Ok(()) if !part.path().exists() => {}
            Err(fs::TryLockError::WouldBlock) => {}
            // Without locks on this file system nobody sweeps either.
            Ok(()) | Err(fs::TryLockError::Error(_)) => return Ok(part),
        }
    }
}

fn folder_of(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn failed(place: &Path, action: &'static str) -> impl FnOnce(io::Error) -> AsideError {
    let place = place.to_owned();
    move |source| AsideError { place, action, source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may panic

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn write(place: &Path, text: &str) -> Result<Whole, AsideError> {
        write_aside(place, Readers::AsUsual, |out| {
            out.write_all(text.as_bytes()).map_err(failed(place, "write"))
        })
        .map(|(_, whole)| whole)
    }

    #[test]
    fn a_file_is_there_once_it_lands_and_nothing_is_left_of_one_that_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("out");
        drop(write(&place, "dropped").unwrap());
        let broken: Result<(), AsideError> = write_file(&place, |out| {
            out.write_all(b"half").unwrap();
            Err(failed(&place, "go on")(io::Error::other("the source ended early")))
        });
        assert!(broken.unwrap_err().to_string().ends_with("out: cannot go on: the source ended early"));
        assert_eq!(names(folder.path()), [""; 0]);
        let whole = write(&place, "whole").unwrap();
        assert!(!place.exists());
        whole.land().unwrap();
        assert_eq!((fs::read(&place).unwrap(), names(folder.path()).len()), (b"whole".to_vec(), 1));
        let lost = write(&folder.path().join("no/out"), "").unwrap_err();
        assert_eq!((lost.action, lost.source.kind()), ("create a file beside it", io::ErrorKind::NotFound));
    }

    #[test]
    fn parts_of_the_dead_are_swept_and_those_of_the_living_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in [".pteron-dead.partial", ".pteron-settings", "pteron-x.partial"] {
            fs::write(at(name), b"what a killed process leaves, and what it does not").unwrap();
        }
        fs::create_dir(at(".pteron-folder.partial")).unwrap();
        let living = write(&at("one"), "1").unwrap();
        write(&at("two"), "2").unwrap().land().unwrap();
        living.land().unwrap();
        assert_eq!(
            names(folder.path()),
            [".pteron-folder.partial", ".pteron-settings", "one", "pteron-x.partial", "two"]
        );
        assert_eq!(fs::read(at("one")).unwrap(), b"1");
    }

    #[test]
    fn many_writers_sweep_at_once_and_every_file_lands() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let folder = folder.path();
                scope.spawn(move || {
                    for round in 0..25 {
                        write(&folder.join(format!("{writer}")), &round.to_string()).unwrap().land().unwrap();
                    }
                });
            }
        });
        assert_eq!(names(folder.path()), ["0", "1", "2", "3", "4", "5", "6", "7"]);
        assert_eq!(fs::read(folder.path().join("3")).unwrap(), b"24");
    }

    #[cfg(unix)]
    #[test]
    fn who_may_read_it_is_asked_for() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("out");
        let (_, whole) = write_aside(&place, Readers::Owner, |_| Ok::<(), AsideError>(())).unwrap();
        whole.land().unwrap();
        assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o600);
        // Any other file shows what the mask leaves.
        fs::write(folder.path().join("usual"), b"").unwrap();
        write(&place, "").unwrap().land().unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode("out"), mode("usual"));
    }
}
