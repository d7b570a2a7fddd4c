//! Programs that were made from sources: each is made once, lands whole, and is found again.

use super::{Identity, Lock, Store, land, place, read_json, write_json};
use crate::{Error, Result, Sha256};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The name of every converted program, in a folder of its own.
const FILE: &str = "model.pte";

/// A program that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// The program.
    pub path: PathBuf,
    /// What it was made from, in words.
    pub from: String,
    /// With which options, in words.
    pub options: String,
    /// Bytes.
    pub bytes: u64,
}

/// `origin.json`.
#[derive(Serialize, Deserialize)]
struct Origin {
    from: String,
    options: String,
}

impl Store {
    /// Where the program lives that is made from a source with options. If it is not there yet, `make` is called with
    /// the path to write it to, while other processes that want the same one wait. What `make` leaves when it fails,
    /// or when the process ends in the midst of it, is never used.
    pub fn converted<E: From<Error>>(
        &self,
        source: &Identity,
        options: &str,
        make: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let place = self.conversion_place(source, options);
        let program = place.join(FILE);
        if program.is_file() {
            return Ok(program);
        }
        let key = conversion_key(source.key, options);
        let waiting = || tracing::warn!(from = source.from, "another process is converting it; waiting");
        let _lock = Lock::take(&self.conversion_lock(&key), waiting)?;
        if program.is_file() {
            return Ok(program);
        }
        let partial = self.root.join("partial/converted").join(key);
        // Whoever left something here is gone: the lock is ours.
        place::remove_folder(&partial)?;
        // The same may be so of conversions that nobody asks for again; they are in nobody's way if they stay.
        if let Err(error) = self.sweep_conversions() {
            tracing::warn!(%error, "what is left of an earlier conversion stays");
        }
        let whole = partial.join("whole");
        place::make_folder(&whole)?;
        let made = whole.join(FILE);
        if let Err(error) = make(&made) {
            let _ = place::remove_folder(&partial);
            return Err(error);
        }
        if !made.is_file() {
            return Err(Error::NothingMade { path: made }.into());
        }
        // Some systems flush only what was opened for writing.
        let flushed = File::options().append(true).open(&made).and_then(|file| file.sync_all());
        flushed.map_err(Error::io(&made, "flush"))?;
        let origin = Origin { from: source.from.clone(), options: options.to_owned() };
        write_json(&whole.join("origin.json"), &origin)?;
        land(&whole, &place, &partial)?;
        place::remove_folder(&partial)?;
        Ok(program)
    }

    /// Every program that was made from a source, and is here.
    pub fn conversions_of(&self, source: &Identity) -> Result<Vec<Conversion>> {
        self.conversions_in(&source.key.to_string())
    }

    /// Every converted program.
    pub fn conversions(&self) -> Result<Vec<Conversion>> {
        let mut found = Vec::new();
        for source in place::folders(&self.root.join("converted"))? {
            found.extend(self.conversions_in(&source)?);
        }
        Ok(found)
    }

    fn conversions_in(&self, source: &str) -> Result<Vec<Conversion>> {
        let folder = self.root.join("converted").join(source);
        let mut found = Vec::new();
        for options in place::folders(&folder)? {
            let path = folder.join(&options).join(FILE);
            let origin: Option<Origin> = read_json(&folder.join(&options).join("origin.json"))?;
            if let (Some(Origin { from, options }), true) = (origin, path.is_file()) {
                found.push(Conversion { bytes: place::size_of(&path), path, from, options });
            }
        }
        Ok(found)
    }

    /// The lock of whoever is at work on a conversion, by its [`conversion_key`].
    pub(super) fn conversion_lock(&self, key: &str) -> PathBuf {
        self.root.join("locks").join(format!("converted@{key}"))
    }

    fn conversion_place(&self, source: &Identity, options: &str) -> PathBuf {
        self.root.join("converted").join(source.key.to_string()).join(options_key(options))
    }
}

fn options_key(options: &str) -> String {
    Sha256::of(options.as_bytes()).to_string()[..16].to_owned()
}

/// One name for a source and its options together.
fn conversion_key(source: Sha256, options: &str) -> String {
    format!("{source}@{}", options_key(options))
}

/// The locks of whoever may be at work on conversions of a source; `Busy` if somebody is.
pub(super) fn lock_conversions(store: &Store, source: &str) -> Result<Vec<Lock>> {
    let mut locks = Vec::new();
    for options in place::folders(&store.root.join("converted").join(source))? {
        let path = store.conversion_lock(&format!("{source}@{options}"));
        let busy = || Error::Busy { what: format!("the conversion {}", path.display()) };
        locks.push(Lock::try_take(&path)?.ok_or_else(busy)?);
    }
    Ok(locks)
}
