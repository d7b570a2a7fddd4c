//! Writing: a builder that lays tables out from the end of the buffer to its start, as offsets only lead
//! forward and a table's children must exist before it does.
//!
//! The same calls give the same bytes. Running past 2 GiB is an error of [`Builder::finish`], so that the calls
//! before it stay free of error handling. Like the reader, it knows no schema.

use std::collections::HashMap;

use super::Scalar;
use super::read::LARGEST_BUFFER;
use crate::{FormatError, Place, Result};

/// Something already built: its distance from the end of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset(usize);

/// What a field holds inside its table.
#[derive(Clone, Copy, Debug)]
enum Inline {
    Number { bytes: [u8; 8], size: usize },
    Offset(Offset),
}

impl Inline {
    fn size(&self) -> usize {
        match self {
            Inline::Number { size, .. } => *size,
            Inline::Offset(_) => 4,
        }
    }
}

fn wire_word<T: Scalar>(value: T) -> [u8; 8] {
    let mut wire = Vec::with_capacity(8);
    value.to_wire(&mut wire);
    let mut word = [0; 8];
    word[..wire.len()].copy_from_slice(&wire);
    word
}

/// The fields of one table, gathered in any order before it is built.
#[derive(Clone, Debug, Default)]
pub struct TableFields(Vec<(u16, Inline)>);

impl TableFields {
    /// No fields yet.
    pub fn new() -> TableFields {
        TableFields::default()
    }

    /// A number that is written even if it is the default. A struct of one number is written the same way.
    pub fn scalar<T: Scalar>(&mut self, slot: u16, value: T) -> &mut TableFields {
        self.0.push((slot, Inline::Number { bytes: wire_word(value), size: T::SIZE }));
        self
    }

    /// A number that is left out where it is the default, bit by bit: -0.0 is not the default 0.0.
    pub fn scalar_unless<T: Scalar>(&mut self, slot: u16, value: T, default: T) -> &mut TableFields {
        if wire_word(value) != wire_word(default) {
            self.scalar(slot, value);
        }
        self
    }

    /// A string, vector, table or member of a union.
    pub fn offset(&mut self, slot: u16, offset: Offset) -> &mut TableFields {
        self.0.push((slot, Inline::Offset(offset)));
        self
    }

    /// The same, left out where there is none.
    pub fn optional(&mut self, slot: u16, offset: Option<Offset>) -> &mut TableFields {
        if let Some(offset) = offset {
            self.offset(slot, offset);
        }
        self
    }
}

/// A finished buffer.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The bytes; byte 0 holds the root offset.
    pub bytes: Vec<u8>,
    /// What byte 0 must be aligned to for every field to be.
    pub align: usize,
}

/// Builds one buffer, children before parents.
#[derive(Debug)]
pub struct Builder {
    /// Filled from the back; everything before `head` is free.
    buffer: Vec<u8>,
    head: usize,
    align: usize,
    vtables: HashMap<Vec<u8>, usize>,
    strings: HashMap<String, Offset>,
    overflow: bool,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// An empty buffer.
    pub fn new() -> Builder {
        Builder {
            buffer: Vec::new(),
            head: 0,
            align: 4,
            vtables: HashMap::new(),
            strings: HashMap::new(),
            overflow: false,
        }
    }

    fn used(&self) -> usize {
        self.buffer.len() - self.head
    }

    /// Writes before all that is there, unless the buffer would outgrow what offsets can span.
    fn prepend(&mut self, bytes: &[u8]) {
        let used = self.used();
        if self.overflow || bytes.len() > LARGEST_BUFFER - used {
            self.overflow = true;
            return;
        }
        if bytes.len() > self.head {
            let capacity = (2 * self.buffer.len()).max(used + bytes.len()).max(256);
            let mut grown = vec![0; capacity];
            grown[capacity - used..].copy_from_slice(&self.buffer[self.head..]);
            self.head = capacity - used;
            self.buffer = grown;
        }
        self.head -= bytes.len();
        self.buffer[self.head..self.head + bytes.len()].copy_from_slice(bytes);
    }

    /// Pads so that, once `len` more bytes are written, the distance from the end is `phase` modulo `align`.
    fn pad(&mut self, len: usize, phase: usize, align: usize) {
        const ZEROS: [u8; 256] = [0; 256];
        self.align = self.align.max(align);
        let over = (self.used() + len + align - phase % align) % align;
        let mut missing = (align - over) % align;
        while missing > 0 && !self.overflow {
            let part = missing.min(ZEROS.len());
            self.prepend(&ZEROS[..part]);
            missing -= part;
        }
    }

    fn here(&self) -> Offset {
        Offset(self.used())
    }

    fn counted(&mut self, bytes: &[u8], count: usize, align: usize) -> Offset {
        self.pad(bytes.len(), 0, align.max(4));
        self.prepend(bytes);
        // A count past u32 has overflowed the buffer already.
        self.prepend(&(count as u32).to_le_bytes());
        self.here()
    }

    /// A string.
    pub fn string(&mut self, text: &str) -> Offset {
        self.pad(text.len() + 1, 0, 4);
        self.prepend(&[0]);
        self.prepend(text.as_bytes());
        self.prepend(&(text.len() as u32).to_le_bytes());
        self.here()
    }

    /// A string that is stored once, however often it is asked for.
    pub fn shared_string(&mut self, text: &str) -> Offset {
        if let Some(&known) = self.strings.get(text) {
            return known;
        }
        let offset = self.string(text);
        self.strings.insert(text.to_owned(), offset);
        offset
    }

    /// A vector of bytes whose first one is aligned to `align`, a power of two.
    pub fn bytes(&mut self, bytes: &[u8], align: usize) -> Offset {
        self.counted(bytes, bytes.len(), align)
    }

    /// A vector of numbers, or of structs of one number.
    pub fn vector<T: Scalar>(&mut self, items: &[T]) -> Offset {
        let mut wire = Vec::with_capacity(items.len() * T::SIZE);
        for item in items {
            item.to_wire(&mut wire);
        }
        self.counted(&wire, items.len(), T::SIZE)
    }

    /// A vector of strings or tables.
    pub fn offsets(&mut self, items: &[Offset]) -> Offset {
        self.pad(4 * items.len(), 0, 4);
        let end = self.used();
        let mut wire = Vec::with_capacity(4 * items.len());
        for (index, item) in items.iter().enumerate() {
            let from = end + 4 * (items.len() - index);
            wire.extend_from_slice(&(from.wrapping_sub(item.0) as u32).to_le_bytes());
        }
        self.counted(&wire, items.len(), 4)
    }

    /// A table of these fields; one vtable serves all tables of the same layout.
    pub fn table(&mut self, fields: &TableFields) -> Offset {
        let mut fields = fields.0.clone();
        // Largest first after the leading four bytes, which then end on the largest alignment: no padding.
        fields.sort_by_key(|(slot, field)| (std::cmp::Reverse(field.size()), *slot));
        let align = fields.first().map_or(4, |(_, field)| field.size().max(4));
        let size = 4 + fields.iter().map(|(_, field)| field.size()).sum::<usize>();
        self.pad(size, 4, align);
        let start = self.used() + size;

        let slots = fields.iter().map(|(slot, _)| *slot as usize + 1).max().unwrap_or(0);
        let mut vtable = vec![0; 4 + 2 * slots];
        let (vtable_len, table_len) = (vtable.len() as u16, size as u16);
        vtable[..2].copy_from_slice(&vtable_len.to_le_bytes());
        vtable[2..4].copy_from_slice(&table_len.to_le_bytes());
        // A table of more than 64 KiB cannot be described; no schema comes near.
        self.overflow |= size > u16::MAX as usize || 4 + 2 * slots > u16::MAX as usize;

        let mut wire = vec![0; 4];
        for (slot, field) in &fields {
            let at = 4 + 2 * *slot as usize;
            vtable[at..at + 2].copy_from_slice(&(wire.len() as u16).to_le_bytes());
            match field {
                Inline::Number { bytes, size } => wire.extend_from_slice(&bytes[..*size]),
                Inline::Offset(target) => {
                    let from = start - wire.len();
                    wire.extend_from_slice(&(from.wrapping_sub(target.0) as u32).to_le_bytes());
                }
            }
        }
        let known = self.vtables.get(&vtable).copied();
        let vtable_at = known.unwrap_or(start + vtable.len());
        let back = vtable_at as i64 - start as i64;
        wire[..4].copy_from_slice(&(back as i32).to_le_bytes());
        self.prepend(&wire);
        if known.is_none() {
            self.prepend(&vtable);
            self.vtables.insert(vtable, vtable_at);
        }
        Offset(start)
    }

    /// The buffer with `root` as its root table.
    pub fn finish(mut self, root: Offset, identifier: Option<[u8; 4]>) -> Result<Finished> {
        let head = 4 + identifier.map_or(0, |id| id.len());
        self.pad(head, 0, self.align);
        if let Some(identifier) = identifier {
            self.prepend(&identifier);
        }
        let from = self.used() + 4;
        self.prepend(&(from.wrapping_sub(root.0) as u32).to_le_bytes());
        if self.overflow {
            return Err(FormatError::Unwritable {
                place: Place::at("tables"),
                problem: "they would exceed the 2 GiB that FlatBuffers offsets span; \
                          keep large data in segments"
                    .into(),
            });
        }
        self.buffer.drain(..self.head);
        Ok(Finished { bytes: self.buffer, align: self.align })
    }
}
