//! Taking models away, with all that was made from them.

use super::convert::lock_conversions;
use super::place::{folders, move_aside, remove_folder, size_of};
use super::{Identity, Installed, Lock, Store};
use crate::source::plain_word;
use crate::{Error, Result};

/// What was taken away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Bytes of fetched files, unfinished ones included.
    pub fetched: u64,
    /// Bytes of programs that were converted from them.
    pub converted: u64,
}

impl Store {
    /// Removes all variants of a model, what was begun of them, and what was converted from them.
    pub fn remove(&self, model: &str) -> Result<Removed> {
        let missing = || Error::NotInstalled { model: model.to_owned() };
        plain_word(model).map_err(|_| missing())?;
        let places = self.root.join("models").join(model);
        let partials = self.root.join("partial/models").join(model);
        let mut variants = folders(&places)?;
        variants.extend(folders(&partials)?);
        variants.sort();
        variants.dedup();
        if variants.is_empty() {
            return Err(missing());
        }
        // All locks first: what is removed is removed as a whole.
        let busy = || Error::Busy { what: model.to_owned() };
        let mut locks = Vec::new();
        for variant in &variants {
            locks.push(Lock::try_take(&self.lock_of(model, variant))?.ok_or_else(busy)?);
        }
        let mut removed = Removed::default();
        for variant in &variants {
            let place = places.join(variant);
            if let Some(installed) = Installed::recorded(&place, model, variant)? {
                removed.converted += self.remove_conversions(&Identity::of_installed(&installed))?;
            }
            let partial = self.partial(model, variant);
            removed.fetched += size_of(&place) + size_of(&partial);
            move_aside(&place, &partial)?;
            remove_folder(&partial)?;
        }
        // What is left of conversions that were killed is of no use to any model.
        removed.converted += self.sweep_conversions()?;
        for folder in [places, partials] {
            // Only if nothing else is in it.
            let _ = std::fs::remove_dir(folder);
        }
        Ok(removed)
    }

    /// Removes every program that was made from a source, and says how many bytes that were.
    pub fn remove_conversions(&self, source: &Identity) -> Result<u64> {
        self.remove_conversions_in(&source.key.to_string())
    }

    /// Removes every converted program, and what was begun of others; all can be made again.
    pub fn remove_all_conversions(&self) -> Result<u64> {
        let mut bytes = 0;
        for source in folders(&self.root.join("converted"))? {
            bytes += self.remove_conversions_in(&source)?;
        }
        Ok(bytes + self.sweep_conversions()?)
    }

    /// Removes what is left of conversions that ended in mid-work, and says how many bytes that were. Nobody takes them up
    /// again: the next one begins anew. Those that are under way hold their locks.
    pub(super) fn sweep_conversions(&self) -> Result<u64> {
        let partials = self.root.join("partial/converted");
        let mut bytes = 0;
        for key in folders(&partials)? {
            if Lock::try_take(&self.conversion_lock(&key))?.is_some() {
                bytes += size_of(&partials.join(&key));
                remove_folder(&partials.join(&key))?;
            }
        }
        Ok(bytes)
    }

    fn remove_conversions_in(&self, source: &str) -> Result<u64> {
        let place = self.root.join("converted").join(source);
        let _locks = lock_conversions(self, source)?;
        let bytes = size_of(&place);
        let aside = self.root.join("partial/converted").join(source);
        move_aside(&place, &aside)?;
        remove_folder(&aside)?;
        Ok(bytes)
    }
}
