//! Constants of portable operators: what a program stores already, and more behind it.

use std::collections::HashMap;

use pteron_tensor::Bytes;

use crate::Segment;
use crate::assemble::{DATA_ALIGNMENT, StoredIndex, content_hash};
use crate::mirror::Blob;
use crate::pte::{self, Buffer, Pte, SubsegmentOffsets};

/// The constants of a program in the making.
pub(super) struct Store {
    /// The segment of constants that the program has.
    old: Option<Bytes>,
    /// Whether constants lie inside the tables, as in old files.
    is_inline: bool,
    /// Where each constant starts, or how many lie inside the tables.
    offsets: Vec<u64>,
    added: Vec<Bytes>,
    end: u64,
    by_hash: HashMap<u64, Vec<usize>>,
    first: usize,
}

impl Store {
    pub(super) fn of(pte: &Pte) -> Store {
        let program = &pte.program;
        let table = program.constant_segment.as_ref().filter(|table| !table.offsets.is_empty());
        let is_inline = table.is_none() && !program.constant_buffer.is_empty();
        let old = table.filter(|table| table.offsets.len() > 1);
        let old = old.and_then(|table| pte.segment(table.segment_index));
        let offsets = match table {
            Some(table) => table.offsets.to_vec(),
            // The first entry stands for "none".
            None => vec![0; program.constant_buffer.len().max(1)],
        };
        let end = old.as_ref().map_or(0, |old| old.len() as u64);
        let first = offsets.len();
        Store { old, is_inline, offsets, added: Vec::new(), end, by_hash: HashMap::new(), first }
    }

    /// The entry of those bytes.
    pub(super) fn add(&mut self, bytes: &Bytes) -> StoredIndex {
        let hash = content_hash(bytes);
        let known = self.by_hash.entry(hash).or_default();
        let at = known.iter().copied().find(|&at| *self.added[at] == **bytes).unwrap_or_else(|| {
            let start = self.end.next_multiple_of(DATA_ALIGNMENT);
            self.offsets.push(start);
            self.end = start + bytes.len() as u64;
            known.push(self.added.len());
            self.added.push(bytes.clone());
            self.added.len() - 1
        });
        StoredIndex::entry((self.first + at) as u32)
    }

    /// Writes what was added into a program's tables and segments.
    pub(super) fn finish(self, program: &mut pte::Program, segments: &mut Vec<Segment<'static>>) {
        if self.added.is_empty() {
            return;
        }
        if self.is_inline {
            let buffers = self.added.into_iter().map(|bytes| Buffer { storage: Blob::from(bytes) });
            program.constant_buffer.make_mut().extend(buffers);
            return;
        }
        let starts = self.offsets[self.first..].to_vec();
        let (old, added) = (self.old, self.added);
        let segment = Segment::produced(self.end, move |out| {
            let mut at = 0u64;
            let parts = old.iter().map(|old| (0, old)).chain(starts.iter().copied().zip(&added));
            for (start, bytes) in parts {
                const ZEROS: [u8; DATA_ALIGNMENT as usize] = [0; DATA_ALIGNMENT as usize];
                out.write_all(&ZEROS[..(start - at) as usize])?;
                out.write_all(bytes)?;
                at = start + bytes.len() as u64;
            }
            Ok(())
        });
        segments.push(segment.aligned_to(DATA_ALIGNMENT));
        let segment_index = segments.len() as u32 - 1;
        program.constant_segment = Some(SubsegmentOffsets { segment_index, offsets: self.offsets.into() });
    }
}
