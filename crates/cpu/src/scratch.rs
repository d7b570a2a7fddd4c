//! Memory that a plan sets aside for a step, lent to it while it runs. A piece is lent once at a time and no longer than
//! the run is borrowed, so that no two slices over it ever meet.

use crate::fault::invalid;
use pteron_runtime::NodeError;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};

/// Pieces that one step may hold at once.
const MOST: usize = 6;
const FREE: usize = usize::MAX;

/// Which pieces are lent.
pub(crate) struct Lending([Cell<usize>; MOST]);

impl Default for Lending {
    fn default() -> Lending {
        Lending([const { Cell::new(FREE) }; MOST])
    }
}

/// A piece of memory for the time of a step. What it holds at first is left over from others.
pub(crate) struct Scratch<'r> {
    bytes: &'r mut [u8],
    lent: &'r Cell<usize>,
}

impl Lending {
    /// Lends the piece of this number, which lies at `data`.
    ///
    /// # Safety
    /// The bytes are there for as long as `self` is borrowed, the number is always that of this piece, and only who is
    /// lent it here touches it.
    pub(crate) unsafe fn lend(
        &self,
        number: usize,
        (data, bytes): (*mut u8, usize),
    ) -> Result<Scratch<'_>, NodeError> {
        if self.0.iter().any(|lent| lent.get() == number) {
            return Err(invalid("a step asks for the same memory twice"));
        }
        let lent = self.0.iter().find(|lent| lent.get() == FREE);
        let lent = lent.ok_or_else(|| invalid("a step asks for more memory than it may hold"))?;
        let bytes = match data.is_null() || bytes == 0 {
            true => &mut [],
            // SAFETY: the caller's promise, and nobody else has been lent them.
            false => unsafe { std::slice::from_raw_parts_mut(data, bytes) },
        };
        lent.set(number);
        Ok(Scratch { bytes, lent })
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.lent.set(FREE);
    }
}

impl Deref for Scratch<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl DerefMut for Scratch<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}
