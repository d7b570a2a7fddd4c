//! The file that is coming in: written, hashed and counted on the way, taken up again where a process left it.

use super::{Network, Wanted};
use crate::digest::Hasher;
use crate::store::{FileRecord, read_json, write_json};
use crate::{Error, Event, Listener, Result, Sha256};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// How much is read and written at once.
pub(super) const BLOCK: usize = 1 << 18;

/// How often a file without a known hash is flushed. After a power cut what was not flushed may be anything, and no
/// hash would tell.
const FLUSH: u64 = 64 << 20;

/// Where a file can be taken up again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resume {
    /// Bytes that are there.
    pub(super) at: u64,
    /// What the server said of the version that they belong to, where no hash tells.
    pub(super) validator: Option<String>,
}

/// `incoming.json`.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    path: String,
    sha256: Option<Sha256>,
    validator: Option<String>,
    flushed: u64,
}

/// Takes the bytes of one file.
pub(super) struct Sink<'a> {
    wanted: &'a Wanted,
    from: &'a str,
    partial: &'a Path,
    network: &'a Network,
    file: File,
    hasher: Hasher,
    at: u64,
    flushed: u64,
    validator: Option<String>,
    /// Whether bytes of an earlier process or connection are among these.
    resumed: bool,
    listener: Listener<'a>,
}

impl<'a> Sink<'a> {
    /// Opens what is there of a file, or begins it.
    pub(super) fn open(
        wanted: &'a Wanted,
        from: &'a str,
        partial: &'a Path,
        network: &'a Network,
        listener: Listener<'a>,
    ) -> Result<Sink<'a>> {
        let path = incoming(partial);
        let options = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let mut file = options.map_err(Error::io(&path, "open"))?;
        let state: Option<State> = read_json(&state_path(partial))?;
        let state = state.filter(|state| state.path == wanted.path);
        let length = file.metadata().map_err(Error::io(&path, "look at"))?.len();
        let (keep, validator) = match state {
            Some(state) if state.sha256.is_some() && state.sha256 == wanted.sha256 => (length, None),
            Some(state) if wanted.sha256.is_none() && state.validator.is_some() => {
                (state.flushed.min(length), state.validator)
            }
            _ => (0, None),
        };
        let keep = if wanted.size.is_some_and(|size| keep > size) { 0 } else { keep };
        let mut hasher = Hasher::default();
        hash_into(&mut hasher, &mut file, keep).map_err(Error::io(&path, "read"))?;
        file.set_len(keep)
            .and_then(|()| file.seek(SeekFrom::Start(keep)))
            .map_err(Error::io(&path, "cut"))?;
        let resumed = keep > 0;
        Ok(Sink {
            wanted,
            from,
            partial,
            network,
            file,
            hasher,
            at: keep,
            flushed: keep,
            validator,
            resumed,
            listener,
        })
    }

    /// Bytes that are there.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Where the next connection should begin: where the last one ended, if anything can tell that the bytes are of
    /// one version.
    pub(super) fn resume(&self) -> Resume {
        match self.wanted.sha256.is_some() || self.validator.is_some() {
            true => Resume { at: self.at, validator: self.validator.clone() },
            false => Resume::default(),
        }
    }

    /// Whether size or hash tell a whole file from half of it.
    pub(super) fn knows_the_end(&self) -> bool {
        self.wanted.size.is_some() || self.wanted.sha256.is_some()
    }

    /// Whether all bytes are there, as far as their number is known.
    pub(super) fn is_full(&self) -> bool {
        self.wanted.size == Some(self.at)
    }

    /// Whoever follows what happens.
    pub(super) fn tell(&mut self, event: Event<'_>) {
        (self.listener)(event);
    }

    /// The origin begins at `at`, which is where [`Sink::resume`] said or the start, and states what it knows.
    pub(super) fn begin(&mut self, at: u64, total: Option<u64>, validator: Option<String>) -> Result<()> {
        if let (Some(wanted), Some(found)) = (self.wanted.size, total)
            && wanted != found
        {
            return Err(self.wrong_size(wanted, found));
        }
        if at != self.at {
            self.restart()?;
        }
        self.resumed = at > 0;
        self.validator = validator;
        self.write_state()?;
        let size = self.wanted.size.or(total);
        if let Some(size) = size {
            self.check_space(size.saturating_sub(self.at))?;
        }
        self.tell(Event::File { path: &self.wanted.path, size, at });
        Ok(())
    }

    /// Takes the next bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.network.check()?;
        let at = self.at + bytes.len() as u64;
        if let Some(size) = self.wanted.size
            && at > size
        {
            return Err(self.wrong_size(size, at));
        }
        self.file.write_all(bytes).map_err(Error::io(&incoming(self.partial), "write"))?;
        self.hasher.update(bytes);
        self.at = at;
        if self.wanted.sha256.is_none() && self.at - self.flushed >= FLUSH {
            self.file.sync_data().map_err(Error::io(&incoming(self.partial), "flush"))?;
            self.flushed = self.at;
            self.write_state()?;
        }
        self.tell(Event::Bytes { at });
        Ok(())
    }

    /// Forgets every byte.
    pub(super) fn restart(&mut self) -> Result<()> {
        let path = incoming(self.partial);
        self.file.set_len(0).and_then(|()| self.file.rewind()).map_err(Error::io(&path, "cut"))?;
        (self.hasher, self.at, self.flushed) = (Hasher::default(), 0, 0);
        (self.validator, self.resumed) = (None, false);
        Ok(())
    }

    /// Checks what came and puts the file among the finished ones. Wrong bytes are kept in no form; the second value
    /// says whether those of an earlier process were among them, so that a fresh start may do better.
    pub(super) fn finish(mut self) -> Result<FileRecord, (Error, bool)> {
        let resumed = self.resumed;
        let fresh = |error| (error, false);
        if let Some(wanted) = self.wanted.size
            && wanted != self.at
        {
            let error = self.wrong_size(wanted, self.at);
            self.restart().map_err(fresh)?;
            return Err((error, resumed));
        }
        let found = self.hasher.clone().finish();
        if let Some(wanted) = self.wanted.sha256
            && wanted != found
        {
            self.restart().map_err(fresh)?;
            let (file, from) = (self.wanted.path.clone(), self.from.to_owned());
            return Err((Error::WrongHash { file, from, wanted, found }, resumed));
        }
        let path = incoming(self.partial);
        self.file.sync_all().map_err(Error::io(&path, "flush")).map_err(fresh)?;
        let place = finished(self.partial, self.wanted);
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder).map_err(Error::io(folder, "make the folder")).map_err(fresh)?;
        }
        fs::rename(&path, &place).map_err(Error::io(&place, "rename the finished file to")).map_err(fresh)?;
        Ok(FileRecord {
            path: self.wanted.path.clone(),
            size: self.at,
            sha256: found,
            verified: self.wanted.sha256.is_some(),
        })
    }

    fn wrong_size(&self, wanted: u64, found: u64) -> Error {
        Error::WrongSize { file: self.wanted.path.clone(), from: self.from.to_owned(), wanted, found }
    }

    fn check_space(&self, needed: u64) -> Result<()> {
        match fs4::available_space(self.partial) {
            Ok(free) if free < needed => {
                Err(Error::DiskFull { path: self.partial.to_owned(), needed: Some(needed), free: Some(free) })
            }
            _ => Ok(()),
        }
    }

    fn write_state(&self) -> Result<()> {
        let (sha256, validator) = (self.wanted.sha256, self.validator.clone());
        let state = State { path: self.wanted.path.clone(), sha256, validator, flushed: self.flushed };
        write_json(&state_path(self.partial), &state)
    }
}

/// A finished file of an earlier process, if it is certain that it is the wanted one.
pub(super) fn already_finished(partial: &Path, wanted: &Wanted) -> Result<Option<FileRecord>> {
    let path = finished(partial, wanted);
    let (Some(sha256), true) = (wanted.sha256, path.is_file()) else { return Ok(None) };
    if hash_file(&path)? != sha256 {
        return Ok(None);
    }
    let size = fs::metadata(&path).map_err(Error::io(&path, "look at"))?.len();
    Ok(Some(FileRecord { path: wanted.path.clone(), size, sha256, verified: true }))
}

/// The hash of a file's bytes.
pub(crate) fn hash_file(path: &Path) -> Result<Sha256> {
    let mut hasher = Hasher::default();
    let mut file = File::open(path).map_err(Error::io(path, "open"))?;
    hash_into(&mut hasher, &mut file, u64::MAX).map_err(Error::io(path, "read"))?;
    Ok(hasher.finish())
}

fn hash_into(hasher: &mut Hasher, file: &mut File, bytes: u64) -> std::io::Result<()> {
    let mut block = vec![0; BLOCK];
    let mut rest = file.take(bytes);
    loop {
        match rest.read(&mut block)? {
            0 => return Ok(()),
            count => hasher.update(&block[..count]),
        }
    }
}

fn incoming(partial: &Path) -> PathBuf {
    partial.join("incoming")
}

fn state_path(partial: &Path) -> PathBuf {
    partial.join("incoming.json")
}

fn finished(partial: &Path, wanted: &Wanted) -> PathBuf {
    partial.join("whole/files").join(&wanted.path)
}
