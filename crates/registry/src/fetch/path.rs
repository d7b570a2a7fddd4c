//! A file or folder of this machine as an origin. Its bytes are copied: what lies elsewhere may change at any time.

use super::incoming::{BLOCK, Resume, Sink};
use super::{Origin, Wanted};
use crate::{Error, Listener, Result};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// A place on the disk.
pub(super) struct PathOrigin<'a> {
    path: &'a Path,
}

impl<'a> PathOrigin<'a> {
    pub(super) fn new(path: &'a Path) -> PathOrigin<'a> {
        PathOrigin { path }
    }

    /// What is wrong with that place is no fault of the store's disk: another source may do better.
    fn unreadable(&self, error: std::io::Error) -> Error {
        Error::Answer {
            address: self.path.display().to_string(),
            problem: format!("cannot read it: {error}"),
        }
    }
}

impl Origin for PathOrigin<'_> {
    fn list(&mut self, _: Listener<'_>) -> Result<Vec<Wanted>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.path).map_err(|error| self.unreadable(error))? {
            let entry = entry.map_err(|error| self.unreadable(error))?;
            let about = fs::metadata(entry.path()).map_err(|error| self.unreadable(error))?;
            if let (true, Ok(path)) = (about.is_file(), entry.file_name().into_string()) {
                files.push(Wanted { path, size: Some(about.len()), sha256: None });
            }
        }
        Ok(files)
    }

    fn pour(&mut self, file: &Wanted, resume: &Resume, sink: &mut Sink<'_>) -> Result<()> {
        let path = if self.path.is_dir() { self.path.join(&file.path) } else { self.path.to_owned() };
        let mut source = File::open(path).map_err(|error| self.unreadable(error))?;
        let total = source.metadata().map_err(|error| self.unreadable(error))?.len();
        // Bytes are the same as before only if a hash says so in the end.
        let at = if file.sha256.is_some() { resume.at.min(total) } else { 0 };
        source.seek(SeekFrom::Start(at)).map_err(|error| self.unreadable(error))?;
        sink.begin(at, Some(total), None)?;
        let mut block = vec![0; BLOCK];
        loop {
            match source.read(&mut block).map_err(|error| self.unreadable(error))? {
                0 => return Ok(()),
                count => sink.write(&block[..count])?,
            }
        }
    }
}
