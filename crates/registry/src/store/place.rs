//! Files and folders that are there whole or not at all.

use crate::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Our own small files are never longer.
const MAX_JSON: u64 = 16 << 20;

/// A folder with all above it.
pub(crate) fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(Error::io(path, "make the folder"))
}

/// Removes a folder with all in it; nothing to remove is fine.
pub(crate) fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(path, "remove")(error)),
        _ => Ok(()),
    }
}

/// Gives a finished folder its place by one rename. What was there before is moved to `aside` first.
pub(crate) fn land(whole: &Path, place: &Path, aside: &Path) -> Result<()> {
    let above = place.parent().unwrap_or(place);
    make_folder(above)?;
    move_aside(place, aside)?;
    sync_folder(whole);
    fs::rename(whole, place).map_err(Error::io(place, "rename the finished folder to"))?;
    sync_folder(above);
    Ok(())
}

/// Takes a folder out of its place at one stroke, then removes it; a kill in between leaves it among partial work.
pub(crate) fn move_aside(place: &Path, aside: &Path) -> Result<()> {
    if !place.exists() {
        return Ok(());
    }
    make_folder(aside)?;
    let old = aside.join("removed");
    remove_folder(&old)?;
    fs::rename(place, &old).map_err(Error::io(place, "move away"))?;
    remove_folder(&old)
}

/// Names of folders in a folder, sorted; none if it is not there.
pub(crate) fn folders(path: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(path, "read the folder")(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::io(path, "read the folder"))?;
        // Names of ours are plain; whatever else lies here is none of them.
        if let (true, Ok(name)) = (entry.path().is_dir(), entry.file_name().into_string()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Bytes of all files below a folder, or of a file; links are not followed.
pub(crate) fn size_of(path: &Path) -> u64 {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| size_of(&entry.path())).sum()
        }
        Ok(about) => about.len(),
        Err(_) => 0,
    }
}

/// A value that one of us wrote; `None` if it is not there or is not whole.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let long = |about: fs::Metadata| about.len() > MAX_JSON;
    match fs::metadata(path).map(long).and_then(|long| if long { Ok(Vec::new()) } else { fs::read(path) }) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path, "read")(error)),
    }
}

/// Writes a value so that a reader sees the old one or the new one.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let failed = |error| Error::io(path, "write")(error);
    pteron_aside::write_file(path, |out| {
        serde_json::to_writer_pretty(&mut *out, value).map_err(|error| failed(error.into()))?;
        out.write_all(b"\n").map_err(failed)
    })
}

/// Makes names in a folder last, where the system has a way; it is a matter of power cuts only.
pub(crate) fn sync_folder(path: &Path) {
    if let Ok(folder) = File::open(path) {
        let _ = folder.sync_all();
    }
}
