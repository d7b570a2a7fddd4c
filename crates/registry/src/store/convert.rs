//! Files that were made from sources: each is made once, lands whole, and is found again.
//!
//! A source becomes one or several pieces (its weights, programs that read them). What a piece is told by are words that
//! say how it was made and the number of their meaning, never the version of who made it.

use super::checksum::{Sums, Written};
use super::identity::Place;
use super::{Identity, Lock, Store, land, place, read_json, write_json};
use crate::{Error, Result, Sha256};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The shape of `origin.json`; those of earlier versions have no number.
const VERSION: u32 = 2;

const ORIGIN: &str = "origin.json";

/// One of the files that a source is made into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The file's name.
    pub file: &'a str,
    /// What the words mean: another number is another meaning.
    pub format: u32,
    /// How it is made, in words that stay the same.
    pub options: &'a str,
}

/// What is here of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// Something that is not what was written.
    Damaged,
    /// The file, as far as its size and its beginning tell.
    Whole(PathBuf),
}

/// A file that was made and is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// The file.
    pub path: PathBuf,
    /// What it was made from, in words.
    pub from: String,
    /// With which options, in words.
    pub options: String,
    /// Bytes.
    pub bytes: u64,
}

/// `origin.json`. What is not in those of earlier versions is empty.
#[derive(Serialize, Deserialize)]
pub(super) struct Origin {
    #[serde(default)]
    version: u32,
    #[serde(default)]
    pub(super) format: u32,
    pub(super) from: String,
    pub(super) options: String,
    #[serde(default)]
    pub(super) source: Recorded,
    #[serde(default = "earlier_file")]
    pub(super) file: String,
    #[serde(default)]
    pub(super) sums: Sums,
}

/// Where a source lies, so that it can be told whether it is still what it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Recorded {
    /// Among the models of the store.
    Installed,
    /// In these files or folders.
    Paths(Vec<String>),
    /// Nobody wrote it down.
    #[default]
    Unknown,
}

impl Recorded {
    pub(super) fn of(source: &Identity) -> Recorded {
        match &source.place {
            Place::Installed => Recorded::Installed,
            Place::Paths(paths) => {
                let paths: Option<Vec<String>> =
                    paths.iter().map(|path| path.to_str().map(str::to_owned)).collect();
                paths.map_or(Recorded::Unknown, Recorded::Paths)
            }
        }
    }
}

fn earlier_file() -> String {
    "model.pte".to_owned()
}

impl Origin {
    /// Whether it is of a version that this one reads, and of a meaning that is asked for.
    pub(super) fn is_of(&self, format: u32) -> bool {
        (self.version, self.format) == (VERSION, format)
    }
}

impl Store {
    /// Whether a piece is here. Its size and its beginning are looked at; to read all of it at every start would take
    /// longer than the start.
    pub fn conversion(&self, source: &Identity, piece: &Piece<'_>) -> Result<Found> {
        let place = self.conversion_place(source, piece);
        if !place.is_dir() {
            return Ok(Found::Nothing);
        }
        let origin: Option<Origin> = read_json(&place.join(ORIGIN))?;
        let path = place.join(piece.file);
        let whole = origin.is_some_and(|origin| origin.sums.fit_beginning(&path));
        Ok(if whole { Found::Whole(path) } else { Found::Damaged })
    }

    /// Where the file lives that is made from a source. If it is not there yet, or is damaged, `make` is called to write
    /// it, while other processes that want the same one wait. What `make` leaves when it fails, or when the process ends
    /// in the midst of it, is never used. What was made of earlier states of the same source goes.
    pub fn converted<E: From<Error>>(
        &self,
        source: &Identity,
        piece: &Piece<'_>,
        make: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        if let Found::Whole(path) = self.conversion(source, piece)? {
            return Ok(path);
        }
        let key = conversion_key(&source.key.to_string(), &piece_key(piece));
        let waiting = || tracing::warn!(from = source.from, "another process is converting it; waiting");
        let _lock = Lock::take(&self.conversion_lock(&key), waiting)?;
        if let Found::Whole(path) = self.conversion(source, piece)? {
            return Ok(path);
        }
        let partial = self.partial_conversion(&key);
        // Whoever left something here is gone: the lock is ours.
        place::remove_folder(&partial)?;
        // The same may be so of conversions that nobody asks for again; they are in nobody's way if they stay.
        if let Err(error) = self.sweep_conversions() {
            tracing::warn!(%error, "what is left of an earlier conversion stays");
        }
        let whole = partial.join("whole");
        let made = place::make_folder(&whole).map_err(E::from).and_then(|()| {
            let sums = write(&whole.join(piece.file), make)?;
            let origin = Origin {
                version: VERSION,
                format: piece.format,
                from: source.from.clone(),
                options: piece.options.to_owned(),
                source: Recorded::of(source),
                file: piece.file.to_owned(),
                sums,
            };
            Ok(write_json(&whole.join(ORIGIN), &origin)?)
        });
        if let Err(error) = made {
            let _ = place::remove_folder(&partial);
            return Err(error);
        }
        let place = self.conversion_place(source, piece);
        land(&whole, &place, &partial)?;
        place::remove_folder(&partial)?;
        if let Err(error) = self.remove_superseded(source, piece.format) {
            tracing::warn!(%error, "what was converted earlier stays");
        }
        Ok(place.join(piece.file))
    }

    /// Whether something was made from a source by another version, in another form.
    pub fn has_other_formats(&self, source: &Identity, format: u32) -> Result<bool> {
        let pieces = self.pieces_of(&source.key.to_string())?;
        Ok(pieces.iter().any(|(_, origin)| origin.as_ref().is_some_and(|origin| !origin.is_of(format))))
    }

    /// Reads all that was made from a source, and takes away what is not as it was written; whether anything was not.
    pub fn mend(&self, source: &Identity) -> Result<bool> {
        let mut damaged = false;
        for (folder, origin) in self.pieces_of(&source.key.to_string())? {
            let place = self.root.join("converted").join(source.key.to_string()).join(&folder);
            if !origin.is_some_and(|origin| origin.sums.fit(&place.join(&origin.file))) {
                self.remove_piece(&source.key.to_string(), &folder)?;
                damaged = true;
            }
        }
        Ok(damaged)
    }

    /// Every file that was made from a source, and is here.
    pub fn conversions_of(&self, source: &Identity) -> Result<Vec<Conversion>> {
        self.conversions_in(&source.key.to_string())
    }

    /// Every file that was made from anything.
    pub fn conversions(&self) -> Result<Vec<Conversion>> {
        let mut found = Vec::new();
        for source in place::folders(&self.root.join("converted"))? {
            found.extend(self.conversions_in(&source)?);
        }
        Ok(found)
    }

    fn conversions_in(&self, source: &str) -> Result<Vec<Conversion>> {
        let mut found = Vec::new();
        for (folder, origin) in self.pieces_of(source)? {
            let Some(origin) = origin else { continue };
            let path = self.root.join("converted").join(source).join(&folder).join(&origin.file);
            if path.is_file() {
                let Origin { from, options, .. } = origin;
                found.push(Conversion { bytes: place::size_of(&path), path, from, options });
            }
        }
        Ok(found)
    }

    /// The folders of pieces of a source, with what is known of each.
    pub(super) fn pieces_of(&self, source: &str) -> Result<Vec<(String, Option<Origin>)>> {
        let folder = self.root.join("converted").join(source);
        let mut found = Vec::new();
        for piece in place::folders(&folder)? {
            let origin = read_json(&folder.join(&piece).join(ORIGIN))?;
            found.push((piece, origin));
        }
        Ok(found)
    }

    /// The lock of whoever is at work on a conversion, by its [`conversion_key`].
    pub(super) fn conversion_lock(&self, key: &str) -> PathBuf {
        self.root.join("locks").join(format!("converted@{key}"))
    }

    pub(super) fn partial_conversion(&self, key: &str) -> PathBuf {
        self.root.join("partial/converted").join(key)
    }

    fn conversion_place(&self, source: &Identity, piece: &Piece<'_>) -> PathBuf {
        self.root.join("converted").join(source.key.to_string()).join(piece_key(piece))
    }
}

fn write<E: From<Error>>(path: &Path, make: impl FnOnce(&mut dyn Write) -> Result<(), E>) -> Result<Sums, E> {
    let mut out = Written::create(path).map_err(Error::io(path, "make"))?;
    if let Err(error) = make(&mut out) {
        // A full disk has words of its own, whoever met it.
        return Err(match out.full_disk() {
            Some(full) => Error::io(path, "write")(full).into(),
            None => error,
        });
    }
    if out.is_empty() {
        return Err(Error::NothingMade { path: path.to_owned() }.into());
    }
    Ok(out.finish().map_err(Error::io(path, "write"))?)
}

fn piece_key(piece: &Piece<'_>) -> String {
    let Piece { file, format, options } = piece;
    Sha256::of(format!("{format}\0{file}\0{options}").as_bytes()).to_string()[..16].to_owned()
}

/// One name for a source and a piece of it together.
pub(super) fn conversion_key(source: &str, piece: &str) -> String {
    format!("{source}@{piece}")
}

/// The locks of whoever may be at work on conversions of a source; `Busy` if somebody is.
pub(super) fn lock_conversions(store: &Store, source: &str) -> Result<Vec<Lock>> {
    let mut locks = Vec::new();
    for piece in place::folders(&store.root.join("converted").join(source))? {
        let path = store.conversion_lock(&conversion_key(source, &piece));
        let busy = || Error::Busy { what: format!("the conversion {}", path.display()) };
        locks.push(Lock::try_take(&path)?.ok_or_else(busy)?);
    }
    Ok(locks)
}
