//! One process at a time: locks that the system lets go of when their holder ends, however it ends.

use crate::{Error, Result};
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes a lock, and says so before it waits for one.
    pub(crate) fn take(path: &Path, waiting: impl FnOnce()) -> Result<Lock> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                waiting();
                file.lock().map_err(Error::io(path, "lock"))?;
            }
            Err(TryLockError::Error(error)) => tolerate(path, error)?,
        }
        Ok(Lock { _file: file })
    }

    /// Takes a lock that nobody holds; `None` if somebody does.
    pub(crate) fn try_take(path: &Path) -> Result<Option<Lock>> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => tolerate(path, error).map(|()| Some(Lock { _file: file })),
        }
    }
}

impl Lock {
    /// Whether somebody holds a lock. Nothing is made or kept for the answer.
    pub(crate) fn is_held(path: &Path) -> bool {
        File::open(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }
}

/// Lock files stay: to remove one would let two processes hold locks on two files of the same name.
fn open(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent() {
        super::place::make_folder(folder)?;
    }
    File::options().create(true).truncate(false).write(true).open(path).map_err(Error::io(path, "open"))
}

/// Some systems and some file systems have no locks; to refuse all work there would help nobody.
fn tolerate(path: &Path, error: io::Error) -> Result<()> {
    match error.kind() {
        io::ErrorKind::Unsupported => {
            tracing::warn!(path = %path.display(), "no locks here: do not run two downloads at once");
            Ok(())
        }
        _ => Err(Error::io(path, "lock")(error)),
    }
}
