//! What nobody will ask for again: conversions of sources that changed or are gone, those of earlier versions, and what is
//! left of work that was broken off.

use super::convert::{Origin, Recorded, conversion_key};
use super::place::{self, folders, move_aside, remove_folder, size_of};
use super::{Identity, Lock, Store};
use crate::{Result, Sha256};
use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

/// Something that is here and of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unused {
    /// What it is or was made from.
    pub what: String,
    /// The folder that goes.
    pub place: PathBuf,
    /// Why nobody uses it.
    pub why: Disuse,
    /// Bytes.
    pub bytes: u64,
}

/// Why nobody uses something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disuse {
    /// What it was made from is not there any more.
    SourceGone,
    /// What it was made from is another file by now.
    SourceChanged,
    /// Another version made it, in another form.
    OtherVersion,
    /// Nobody can tell what it was made from.
    Damaged,
    /// A download that was not finished.
    Download,
    /// A conversion that was not finished.
    Conversion,
}

impl fmt::Display for Disuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Disuse::SourceGone => "converted, its source is gone",
            Disuse::SourceChanged => "converted, its source has changed",
            Disuse::OtherVersion => "converted by another version",
            Disuse::Damaged => "converted, damaged",
            Disuse::Download => "a download that was broken off",
            Disuse::Conversion => "a conversion that was broken off",
        })
    }
}

/// The same with the lock that says that it is in work.
struct Leftover {
    unused: Unused,
    lock: PathBuf,
    /// Where it goes first, so that it leaves its place at one stroke; what was never whole needs none.
    aside: Option<PathBuf>,
}

impl Store {
    /// Everything that is of no use to a reader of conversions of `format`. What another process is at work on is in use.
    pub fn unused(&self, format: u32) -> Result<Vec<Unused>> {
        let found = self.leftovers(format)?.into_iter();
        Ok(found.filter(|left| !Lock::is_held(&left.lock)).map(|left| left.unused).collect())
    }

    /// Removes it, and says how many bytes that were.
    pub fn remove_unused(&self, format: u32) -> Result<u64> {
        let mut bytes = 0;
        for left in self.leftovers(format)? {
            if let Some(_lock) = Lock::try_take(&left.lock)? {
                if let Some(aside) = &left.aside {
                    move_aside(&left.unused.place, aside)?;
                    remove_folder(aside)?;
                }
                remove_folder(&left.unused.place)?;
                bytes += left.unused.bytes;
            }
        }
        self.remove_empty_folders()?;
        Ok(bytes)
    }

    /// Removes what was made of earlier states of a source, and of this one in other formats. What another process is at
    /// work on stays.
    pub(super) fn remove_superseded(&self, source: &Identity, format: u32) -> Result<()> {
        let (own, recorded) = (source.key.to_string(), Recorded::of(source));
        for key in folders(&self.root.join("converted"))? {
            for (piece, origin) in self.pieces_of(&key)? {
                let is_superseded = origin.is_some_and(|origin| match key == own {
                    true => !origin.is_of(format),
                    false => origin.source == recorded && matches!(recorded, Recorded::Paths(_)),
                });
                if is_superseded {
                    self.remove_piece(&key, &piece)?;
                }
            }
        }
        self.remove_empty_folders()
    }

    /// Removes one piece of a source, unless another process is at work on it.
    pub(super) fn remove_piece(&self, source: &str, piece: &str) -> Result<()> {
        let key = conversion_key(source, piece);
        let Some(_lock) = Lock::try_take(&self.conversion_lock(&key))? else { return Ok(()) };
        let aside = self.partial_conversion(&key);
        move_aside(&self.root.join("converted").join(source).join(piece), &aside)?;
        remove_folder(&aside)
    }

    fn leftovers(&self, format: u32) -> Result<Vec<Leftover>> {
        let installed: HashSet<Sha256> =
            self.list()?.into_iter().map(|installed| installed.record.sha256).collect();
        let mut found = Vec::new();
        for source in folders(&self.root.join("converted"))? {
            for (piece, origin) in self.pieces_of(&source)? {
                let Some(why) = disuse(&source, origin.as_ref(), format, &installed) else { continue };
                let place = self.root.join("converted").join(&source).join(&piece);
                let key = conversion_key(&source, &piece);
                let what = origin.map_or_else(|| source.clone(), |origin| origin.from);
                found.push(Leftover {
                    unused: Unused { what, why, bytes: size_of(&place), place },
                    lock: self.conversion_lock(&key),
                    aside: Some(self.partial_conversion(&key)),
                });
            }
        }
        for key in folders(&self.root.join("partial/converted"))? {
            let place = self.partial_conversion(&key);
            let what = key.chars().take(16).collect();
            found.push(Leftover {
                unused: Unused { what, why: Disuse::Conversion, bytes: size_of(&place), place },
                lock: self.conversion_lock(&key),
                aside: None,
            });
        }
        for partial in self.partials()? {
            let place = self.partial(&partial.model, &partial.variant);
            let what = format!("{}/{}", partial.model, partial.variant);
            found.push(Leftover {
                unused: Unused { what, why: Disuse::Download, bytes: partial.bytes, place },
                lock: self.lock_of(&partial.model, &partial.variant),
                aside: None,
            });
        }
        Ok(found)
    }

    /// Folders of sources and models of which nothing is left.
    fn remove_empty_folders(&self) -> Result<()> {
        for above in ["converted", "partial/models"] {
            let above = self.root.join(above);
            for folder in place::folders(&above)? {
                // Only if nothing is in it.
                let _ = std::fs::remove_dir(above.join(folder));
            }
        }
        Ok(())
    }
}

/// Why a conversion is of no use, if it is not.
fn disuse(source: &str, origin: Option<&Origin>, format: u32, installed: &HashSet<Sha256>) -> Option<Disuse> {
    let Some(origin) = origin else { return Some(Disuse::Damaged) };
    let is_installed = || installed.iter().any(|key| key.to_string() == source);
    match &origin.source {
        _ if !origin.is_of(format) => Some(Disuse::OtherVersion),
        Recorded::Installed => (!is_installed()).then_some(Disuse::SourceGone),
        Recorded::Paths(paths) => match Identity::of_paths(paths) {
            Ok(now) if now.key.to_string() == source => None,
            Ok(_) => Some(Disuse::SourceChanged),
            Err(_) => Some(Disuse::SourceGone),
        },
        Recorded::Unknown => None,
    }
}
