//! What is known of a model that is here.

use super::place::read_json;
use crate::{FileKind, Result, Sha256, Variant};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The shape of `record.json`; another number is another shape.
const VERSION: u32 = 1;

/// A variant that is here, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The model.
    pub model: String,
    /// Its variant.
    pub variant: String,
    /// The file, or the folder.
    pub path: PathBuf,
    /// What is known of it.
    pub record: Record,
}

/// What was fetched, as `record.json` keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    /// What it is.
    pub kind: FileKind,
    /// The source that gave it.
    pub source: String,
    /// Bytes of all files.
    pub size: u64,
    /// Hash of the file; of a folder, the hash of its list of files with theirs.
    pub sha256: Sha256,
    /// Whether that hash was known before, or is what this download found.
    pub verified: bool,
    /// Every file, in order.
    pub files: Vec<FileRecord>,
}

/// One file of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Below the folder, with slashes.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Hash.
    pub sha256: Sha256,
    /// Whether the hash was stated by somebody before the file came.
    pub verified: bool,
}

impl Record {
    /// A record of files that were fetched.
    pub(crate) fn new(kind: FileKind, source: String, files: Vec<FileRecord>) -> Record {
        let sha256 = match (&files[..], kind) {
            ([file], kind) if kind.is_file() => file.sha256,
            (files, _) => {
                let line = |file: &FileRecord| format!("{} {} {}\n", file.sha256, file.size, file.path);
                Sha256::of(files.iter().map(line).collect::<String>().as_bytes())
            }
        };
        let size = files.iter().map(|file| file.size).sum();
        let verified = files.iter().all(|file| file.verified);
        Record { version: VERSION, kind, source, size, sha256, verified, files }
    }
}

impl Installed {
    /// What is in a place; `None` if nothing is, or not the whole of it.
    pub(super) fn read(place: &Path, model: &str, variant: &str) -> Result<Option<Installed>> {
        let found = Installed::recorded(place, model, variant)?;
        Ok(found.filter(|installed| installed.is_whole(&place.join("files"))))
    }

    /// Whether all files are there with their sizes. Folders appear whole; where not, somebody changed this one since.
    fn is_whole(&self, folder: &Path) -> bool {
        self.record.files.iter().all(|file| {
            let about = std::fs::metadata(folder.join(&file.path));
            about.is_ok_and(|about| about.is_file() && about.len() == file.size)
        })
    }

    /// What a place says that it holds, whether or not that is still so.
    pub(super) fn recorded(place: &Path, model: &str, variant: &str) -> Result<Option<Installed>> {
        let record: Option<Record> = read_json(&place.join("record.json"))?;
        let Some(record) = record.filter(|record| record.version == VERSION) else { return Ok(None) };
        let folder = place.join("files");
        let path = match (&record.files[..], record.kind) {
            ([file], kind) if kind.is_file() => folder.join(&file.path),
            _ => folder,
        };
        Ok(Some(Installed { model: model.to_owned(), variant: variant.to_owned(), path, record }))
    }

    /// Whether it is what the registry means by a variant today.
    pub(super) fn is(&self, variant: &Variant) -> bool {
        self.record.kind == variant.kind
            && variant.sha256.is_none_or(|sha256| sha256 == self.record.sha256)
            && variant.size.is_none_or(|size| size == self.record.size)
    }

    /// Reads every byte again and says which files are not what they were.
    pub fn check(&self) -> Result<Vec<String>> {
        let folder = match self.record.kind {
            FileKind::Folder => self.path.as_path(),
            _ => self.path.parent().unwrap_or(&self.path),
        };
        let mut changed = Vec::new();
        for file in &self.record.files {
            if crate::fetch::hash_file(&folder.join(&file.path))? != file.sha256 {
                changed.push(file.path.clone());
            }
        }
        Ok(changed)
    }
}
