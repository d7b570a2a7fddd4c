//! The folder that models live in.
//!
//! ```text
//! models/MODEL/VARIANT/record.json        what it is, where it came from, size and hash of every file
//! models/MODEL/VARIANT/files/...          the file, or the files of a folder
//! converted/SOURCE/PIECE/...              a file made from a source (a hash) with options (a hash)
//! converted/SOURCE/PIECE/origin.json      the same two in words, and sums of the file
//! partial/...                             work in progress, of no use to anybody but who takes it up again
//! locks/...                               empty files; a lock on one is a process at work
//! ```
//!
//! Nothing is made before there is something to keep, so that a folder that cannot be written to can still be read.
//! Folders of `models` and `converted` appear whole, by one rename, and are never written to afterwards. Whatever is
//! under `partial` without a lock was left by a process that ended in mid-work: a download goes on from it, what is left
//! of a conversion goes with the next one.

mod checksum;
mod convert;
mod identity;
mod lock;
mod place;
mod record;
mod remove;
mod unused;

pub use convert::{Conversion, Found, Piece};
pub use identity::Identity;
pub use record::{FileRecord, Installed, Record};
pub use remove::Removed;
pub use unused::{Disuse, Unused};

pub(crate) use lock::Lock;
pub(crate) use place::{land, read_json, size_of, write_json};

use crate::fetch::{self, Network};
use crate::{Error, Event, Listener, Result, Variant};
use std::path::{Path, PathBuf};

/// What the store has in its folder.
const FOLDERS: [&str; 4] = ["models", "converted", "partial", "locks"];

/// Fetched models and what was made from them.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
    network: Network,
}

/// A model that was begun and not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    /// The model.
    pub model: String,
    /// Its variant.
    pub variant: String,
    /// Bytes that are there, packages that are still to be read included.
    pub bytes: u64,
}

impl Store {
    /// A store in a folder, which is made when the first thing is put there.
    pub fn open(root: &Path) -> Result<Store> {
        // Later work may run in other folders.
        let root = std::path::absolute(root).map_err(Error::io(root, "find"))?;
        Ok(Store { root, network: Network::default() })
    }

    /// The same with other ways to the network.
    pub fn with_network(self, network: Network) -> Store {
        Store { network, ..self }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What is here of a variant, if it is what the registry means today.
    pub fn installed(&self, variant: &Variant) -> Result<Option<Installed>> {
        let found = Installed::read(&self.place(variant), &variant.model, &variant.name)?;
        Ok(found.filter(|installed| installed.is(variant)))
    }

    /// Whether a variant was fetched once and is not whole any more.
    pub fn is_damaged(&self, variant: &Variant) -> Result<bool> {
        let place = self.place(variant);
        let recorded = Installed::recorded(&place, &variant.model, &variant.name)?;
        Ok(recorded.is_some() && Installed::read(&place, &variant.model, &variant.name)?.is_none())
    }

    /// Makes sure that a variant is here, and says where. What is here already costs no network.
    pub fn fetch(&self, variant: &Variant, listener: Listener<'_>) -> Result<Installed> {
        if let Some(installed) = self.installed(variant)? {
            return Ok(installed);
        }
        let _lock = Lock::take(&self.lock_of(&variant.model, &variant.name), || listener(Event::Waiting))?;
        // Whoever held the lock may have fetched it.
        if let Some(installed) = self.installed(variant)? {
            return Ok(installed);
        }
        if self.is_damaged(variant)? {
            listener(Event::Damaged);
        }
        let partial = self.partial(&variant.model, &variant.name);
        let whole = fetch::fetch(variant, &partial, &self.network, listener)?;
        land(&whole, &self.place(variant), &partial)?;
        place::remove_folder(&partial)?;
        let installed = Installed::read(&self.place(variant), &variant.model, &variant.name)?;
        installed.ok_or_else(|| Error::NothingMade { path: self.place(variant) })
    }

    /// Everything that is here, by name.
    pub fn list(&self) -> Result<Vec<Installed>> {
        let mut found = Vec::new();
        for model in place::folders(&self.root.join("models"))? {
            for variant in place::folders(&self.root.join("models").join(&model))? {
                let place = self.root.join("models").join(&model).join(&variant);
                found.extend(Installed::read(&place, &model, &variant)?);
            }
        }
        Ok(found)
    }

    /// Everything that was begun and not finished, by name.
    pub fn partials(&self) -> Result<Vec<Partial>> {
        let root = self.root.join("partial/models");
        let mut found = Vec::new();
        for model in place::folders(&root)? {
            for variant in place::folders(&root.join(&model))? {
                let bytes = place::size_of(&root.join(&model).join(&variant));
                if bytes > 0 {
                    found.push(Partial { model: model.clone(), variant, bytes });
                }
            }
        }
        Ok(found)
    }

    /// Bytes that are free where the store is.
    pub fn free_bytes(&self) -> Option<u64> {
        let made = self.root.ancestors().find(|folder| folder.is_dir())?;
        (self.network.free_space)(made)
    }

    /// An error if there is no room for so many more bytes.
    pub fn check_room(&self, needed: u64) -> Result<()> {
        match self.free_bytes() {
            Some(free) if free < needed => {
                Err(Error::DiskFull { path: self.root.clone(), needed: Some(needed), free: Some(free) })
            }
            _ => Ok(()),
        }
    }

    /// Bytes that the store takes; whatever else lies in its folder is not its own.
    pub fn bytes(&self) -> u64 {
        FOLDERS.iter().map(|part| place::size_of(&self.root.join(part))).sum()
    }

    /// The machine's package clients, by name, each with the command that starts it, if any does.
    pub fn package_clients(&self) -> Vec<(&'static str, Option<String>)> {
        // They are started in a folder that is there.
        fetch::clients(self.root.ancestors().find(|folder| folder.is_dir()).unwrap_or(&self.root))
    }

    fn place(&self, variant: &Variant) -> PathBuf {
        self.root.join("models").join(&variant.model).join(&variant.name)
    }

    fn partial(&self, model: &str, variant: &str) -> PathBuf {
        self.root.join("partial/models").join(model).join(variant)
    }

    fn lock_of(&self, model: &str, variant: &str) -> PathBuf {
        // No name of a model or variant holds an `@`, so that no two locks are the same.
        self.root.join("locks").join(format!("model@{model}@{variant}"))
    }
}
