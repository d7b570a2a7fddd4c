//! What something was converted from: told by content where that is known, else by place, size and time.

use super::Installed;
use crate::digest::Hasher;
use crate::{Error, Result, Sha256};
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Files of a folder that are looked at; a checkpoint has fewer.
const MAX_FILES: usize = 10_000;

/// A source of conversions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub(super) key: Sha256,
    pub(super) from: String,
    pub(super) place: Place,
}

/// Where a source lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Among the models of the store.
    Installed,
    /// In these files or folders, links followed.
    Paths(Vec<PathBuf>),
}

impl Identity {
    /// A model of the store: the same bytes are the same source, wherever they came from.
    pub fn of_installed(installed: &Installed) -> Identity {
        let Installed { model, variant, record, .. } = installed;
        Identity { key: record.sha256, from: format!("{model}/{variant}"), place: Place::Installed }
    }

    /// A file, the files that make one model together, or a folder with what is directly in it. Told by place, sizes and
    /// times of change, since to read many gigabytes at every start would take longer than the start.
    pub fn of_paths<P: AsRef<Path>>(paths: &[P]) -> Result<Identity> {
        let mut hasher = Hasher::default();
        let mut found = Vec::new();
        for path in paths {
            let path = path.as_ref();
            let path = fs::canonicalize(path).map_err(Error::io(path, "find"))?;
            look_at(&path, &mut hasher)?;
            found.push(path);
        }
        let from = found.first().map(|path| path.display().to_string()).unwrap_or_default();
        Ok(Identity { key: hasher.finish(), from, place: Place::Paths(found) })
    }
}

fn look_at(path: &Path, hasher: &mut Hasher) -> Result<()> {
    let about = fs::metadata(path).map_err(Error::io(path, "look at"))?;
    hasher.update(path.as_os_str().as_encoded_bytes());
    if about.is_dir() {
        let entries = fs::read_dir(path).map_err(Error::io(path, "read the folder"))?;
        let mut files = Vec::new();
        for entry in entries.take(MAX_FILES) {
            let entry = entry.map_err(Error::io(path, "read the folder"))?;
            // Through links: hubs keep checkpoints as folders of links.
            let about = fs::metadata(entry.path()).map_err(Error::io(&entry.path(), "look at"))?;
            files.push((entry.file_name(), about));
        }
        files.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, about) in files {
            hasher.update(name.as_encoded_bytes());
            hasher.update(state(&about).as_bytes());
        }
    } else {
        hasher.update(state(&about).as_bytes());
    }
    Ok(())
}

fn state(about: &Metadata) -> String {
    let changed = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    format!("\0{} {}\0", about.len(), changed.unwrap_or_default().as_nanos())
}
