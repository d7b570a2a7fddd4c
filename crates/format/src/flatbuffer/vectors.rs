//! Vectors whose elements are opened one by one: tables and strings behind offsets, and inline structs.
//!
//! A vector's own extent is checked when its field is read; each element is when it is asked for, so that a
//! caller can refuse a count before it pays for it.

use super::Table;
use crate::{FormatError, Result};

/// A vector of tables.
#[derive(Clone, Copy)]
pub struct TableVector<'a> {
    pub(super) parent: Table<'a>,
    pub(super) name: &'static str,
    pub(super) start: usize,
    pub(super) len: usize,
}

impl<'a> TableVector<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Refuses more tables than a limit allows, before any is opened.
    pub fn check_limit(&self, limit: &'static str, allowed: u64) -> Result<()> {
        FormatError::check_limit(limit, self.len as u64, allowed, || self.parent.place(self.name))
    }

    /// The table of that index.
    pub fn get(&self, index: usize) -> Result<Table<'a>> {
        if index >= self.len {
            return self.parent.fail(self.name, self.start, "an element past the end was asked for");
        }
        let at = self.parent.follow(self.start + 4 * index, self.name)?;
        self.parent.child(at, self.name, Some(index as u32))
    }

    /// All of them in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Result<Table<'a>>> {
        (0..self.len).map(move |index| self.get(index))
    }
}

/// A vector of strings.
#[derive(Clone, Copy)]
pub struct StringVector<'a> {
    pub(super) parent: Table<'a>,
    pub(super) name: &'static str,
    pub(super) start: usize,
    pub(super) len: usize,
}

impl<'a> StringVector<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of them in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Result<&'a str>> {
        (0..self.len).map(move |index| {
            // An empty string is still an owned one: charge what it costs, or a vector of them is free.
            self.parent.charge(self.name, self.start, size_of::<String>())?;
            let at = self.parent.follow(self.start + 4 * index, self.name)?;
            self.parent.string_at(at, self.name, Some(index as u32))
        })
    }
}

/// A vector of inline structs.
#[derive(Clone, Copy)]
pub struct StructVector<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) size: usize,
}

impl<'a> StructVector<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.size.max(1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes of each in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.bytes.chunks_exact(self.size.max(1))
    }
}
