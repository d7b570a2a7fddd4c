//! `.pte` programs: a header, tables, and segments that are borrowed from the file.
//!
//! [`Pte::read`] and [`Pte::open`] give a file of which every offset, size and index is known to be sound;
//! [`write()`] and [`write_file`] turn tables and segments back into one. What a delegate's payload means is not
//! known here: it is bytes, kept as they are.

mod check;
mod header;
mod schema;
mod values;
mod write;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use pteron_tensor::Bytes;

use crate::flatbuffer::Buffer as Tables;
use crate::map::{MappedFile, shared};
use crate::mirror::Source;
use crate::segments::{Segment, WriteOptions, likely_alignment, ranges};
use crate::{FormatError, Limits, Place, Result};

pub use header::ExtendedHeader;
pub use schema::*;
pub use values::{EValue, Instruction, ScalarType};
pub use write::write;
#[cfg(not(target_family = "wasm"))]
pub use write::write_file;

/// A `.pte` file that was read and checked.
#[derive(Clone)]
pub struct Pte {
    /// Everything the tables say.
    pub program: Program,
    header: Option<ExtendedHeader>,
    bytes: Bytes,
    segments: Vec<Range<usize>>,
    names: HashMap<String, u32>,
    unknown_fields: Vec<String>,
    file: Option<Arc<MappedFile>>,
}

impl Pte {
    /// Reads a program from bytes. Segments and payloads stay where they are.
    pub fn read(bytes: Bytes, limits: &Limits) -> Result<Pte> {
        let place = || Place::at("file");
        FormatError::check_limit("file_bytes", bytes.len() as u64, limits.file_bytes, place)?;
        let header = ExtendedHeader::read(&bytes)?;
        let bytes = shared(bytes);
        let tables_end = header.map_or(bytes.len(), |header| header.program_size as usize);
        let source = Source::new(&bytes, limits);
        let program: Program = source.root(&Tables::new(&bytes[..tables_end], 0, limits))?;
        let unknown_fields = source.into_unknown();

        let base = header.map_or(0, |header| header.segment_base_offset);
        let spans = program.segments.iter().map(|segment| (segment.offset, segment.size));
        let segments = ranges("Program", spans, base, bytes.len())?;
        let sizes: Vec<u64> = program.segments.iter().map(|segment| segment.size).collect();
        check::check(&program, &sizes, limits)?;
        let names = program.named_data.iter().map(|named| (named.key.to_string(), named.segment_index));
        let names = names.collect();
        Ok(Pte { header, names, segments, unknown_fields, program, bytes, file: None })
    }

    /// Opens a file, mapped if it is large, and reads it.
    pub fn open(path: &Path, limits: &Limits) -> Result<Pte> {
        let file = MappedFile::open(path, limits)?;
        Ok(Pte { file: Some(file.clone()), ..Pte::read(file.to_bytes(), limits)? })
    }

    /// The header, if the file has one; a file without segments has none.
    pub fn header(&self) -> Option<&ExtendedHeader> {
        self.header.as_ref()
    }

    /// All bytes of the file.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Fails if the file behind this program was cut short or written into since it was opened.
    pub fn check_unchanged(&self) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.check_unchanged())
    }

    /// Fields that a newer exporter wrote and this reader does not know, by path. Writing the program again
    /// loses them.
    pub fn unknown_fields(&self) -> &[String] {
        &self.unknown_fields
    }

    /// The method of that name.
    pub fn method(&self, name: &str) -> Option<&ExecutionPlan> {
        self.program.execution_plan.iter().find(|plan| &*plan.name == name)
    }

    /// How many segments there are.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// The bytes of a segment, shared.
    pub fn segment(&self, index: u32) -> Option<Bytes> {
        self.bytes.slice(self.segments.get(index as usize)?.clone())
    }

    /// Where a segment lies in the file.
    pub fn segment_range(&self, index: u32) -> Option<Range<usize>> {
        self.segments.get(index as usize).cloned()
    }

    /// The bytes under a name, shared.
    pub fn named(&self, key: &str) -> Option<Bytes> {
        self.segment(*self.names.get(key)?)
    }

    /// The payload of a delegate of this program, shared.
    pub fn payload(&self, delegate: &BackendDelegate) -> Option<Bytes> {
        let processed = delegate.processed.as_ref()?;
        match processed.location {
            DataLocation::Segment => self.segment(processed.index),
            DataLocation::Inline => {
                let inline = self.program.backend_delegate_data.get(processed.index as usize)?;
                Some(inline.data.get().cloned().unwrap_or_else(|| Bytes::zeroed(0)))
            }
        }
    }

    /// The bytes that the file stores for a tensor of this program, shared: a constant, or the initial value of
    /// a mutable one. `None` where it stores none or they are in another file.
    pub fn stored(&self, tensor: &Tensor) -> Option<Bytes> {
        let entry = tensor.data_buffer_idx as usize;
        if entry == 0 || tensor.is_external() {
            return None;
        }
        let len = usize::try_from(tensor.byte_len()?).ok()?;
        let table = match (&tensor.allocation_info, &tensor.extra_tensor_info) {
            (None, _) => self.program.constant_segment.as_ref().filter(|table| !table.offsets.is_empty()),
            (Some(_), extra) => {
                let index = extra.as_ref().map_or(0, |extra| extra.mutable_data_segments_idx);
                Some(self.program.mutable_data_segments.get(usize::try_from(index).ok()?)?)
            }
        };
        let Some(table) = table else {
            return self.program.constant_buffer.get(entry)?.storage.get()?.slice(0..len);
        };
        let segment = self.segments.get(table.segment_index as usize)?;
        let start = segment.start.checked_add(usize::try_from(*table.offsets.get(entry)?).ok()?)?;
        let end = start.checked_add(len).filter(|end| *end <= segment.end)?;
        self.bytes.slice(start..end)
    }

    /// The segments as they are, to write the program again; each keeps the alignment that it shows.
    pub fn segments(&self) -> Vec<Segment<'static>> {
        let offsets = self.program.segments.iter().map(|segment| segment.offset);
        let ranges = self.segments.iter().zip(offsets);
        let segments = ranges.map(|(range, offset)| {
            let bytes = self.bytes.slice(range.clone()).unwrap_or_else(|| Bytes::zeroed(0));
            Segment::shared(bytes).aligned_to(likely_alignment(offset))
        });
        segments.collect()
    }

    /// Writes the program again with the same segments; tables keep what they say, payloads their bytes.
    pub fn rewrite(&self, out: &mut dyn std::io::Write) -> Result<u64> {
        write(&self.program, &self.segments(), &WriteOptions::default(), out)
    }
}
