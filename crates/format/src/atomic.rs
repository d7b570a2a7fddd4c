//! Files that land whole: written aside in the same folder, flushed to the disk, then renamed into place.
//!
//! A reader sees the old file or the new one, never a part; a failed or killed write leaves the old one.

use std::io::{BufWriter, Write};
use std::path::Path;

use crate::{FormatError, Result};

/// Larger than a pipe's or a page's worth, so that small tables and large segments alike go out in few calls.
const BUFFER: usize = 1 << 20;

/// Calls `write` with a file that becomes `path` if it succeeds.
pub(crate) fn write_file<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    let io = |action| move |source| FormatError::Io { path: path.to_owned(), action, source };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".pteron-").suffix(".partial");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // What the user's mask leaves, as any other program would; a temporary file alone would be private.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let file = builder.tempfile_in(folder).map_err(io("create a file beside it"))?;
    let mut out = BufWriter::with_capacity(BUFFER, file);
    let result = write(&mut out)?;
    let file = out.into_inner().map_err(|error| io("write")(error.into_error()))?;
    file.as_file().sync_all().map_err(io("flush to the disk"))?;
    file.persist(path).map_err(|error| io("rename into place")(error.error))?;
    // The rename itself is safe from a power cut only once the folder is on the disk too. Not every file system
    // can do that, and the file is whole either way.
    #[cfg(unix)]
    let _ = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
    Ok(result)
}
