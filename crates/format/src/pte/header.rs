//! The extended header: 32 bytes after the identifier that say where tables end and segments begin.

use crate::flatbuffer::{Finished, Scalar};
use crate::segments::insert_header;
use crate::{FormatError, Identifier, Result};

/// What `.pte` files of the known version have at byte 4.
pub(super) const IDENTIFIER: [u8; 4] = *b"ET12";

/// What ExecuTorch's loader reads before anything else; it refuses shorter files.
pub(super) const LEAST_FILE: usize = 64;

const MAGIC: [u8; 4] = *b"eh00";
const HEADER_AT: usize = 8;
const LEAST_LENGTH: u32 = 24;
const LENGTH: u32 = 32;

/// The extended header as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedHeader {
    /// Bytes of the header itself. From 24; later versions may append.
    pub length: u32,
    /// Bytes from the start of the file to the end of the tables.
    pub program_size: u64,
    /// Byte that segment offsets count from; 0 where there are no segments.
    pub segment_base_offset: u64,
    /// Bytes from the base to the end of the last segment; 0 where the header is too old to say.
    pub segment_data_size: u64,
}

impl ExtendedHeader {
    /// Reads the header of a file that has been found long enough; `None` where it has none.
    pub(super) fn read(file: &[u8]) -> Result<Option<ExtendedHeader>> {
        check_identifier(file)?;
        let at = |offset: usize| &file[HEADER_AT + offset..LEAST_FILE];
        if !at(0).starts_with(&MAGIC) {
            return Ok(None);
        }
        let length = u32::from_wire(at(4));
        let header = ExtendedHeader {
            length,
            program_size: u64::from_wire(at(8)),
            segment_base_offset: u64::from_wire(at(16)),
            segment_data_size: if length >= LENGTH { u64::from_wire(at(24)) } else { 0 },
        };
        header.check(file.len() as u64)?;
        Ok(Some(header))
    }

    fn check(&self, file_len: u64) -> Result<()> {
        let fail = |offset: usize, problem: String| {
            Err(FormatError::Header { offset: (HEADER_AT + offset) as u64, problem })
        };
        if self.length < LEAST_LENGTH {
            return fail(4, format!("it claims {} bytes of at least {LEAST_LENGTH}", self.length));
        }
        let size = self.program_size;
        if size < HEADER_AT as u64 + u64::from(self.length) {
            return fail(8, format!("a program of {size} bytes would end inside the header"));
        }
        if size > file_len {
            return fail(8, format!("the program has {size} bytes, the file {file_len}"));
        }
        let (base, data) = (self.segment_base_offset, self.segment_data_size);
        if base != 0 && (base < size || base > file_len) {
            return fail(16, format!("segments start at {base}, the program ends at {size} of {file_len}"));
        }
        if base == 0 && data > 0 {
            return fail(24, format!("there are {data} bytes of segments, but no segment base"));
        }
        match base.checked_add(data) {
            Some(end) if end <= file_len => Ok(()),
            _ => fail(24, format!("{data} bytes of segments at {base} exceed the file's {file_len}")),
        }
    }

    /// `tables` with a header for `segment_len` bytes of segments, and where those begin.
    pub(super) fn insert(tables: &Finished, segment_len: u64, alignment: u64) -> Result<(Vec<u8>, u64)> {
        let program_size = (tables.bytes.len() + (LENGTH as usize).next_multiple_of(tables.align)) as u64;
        let base = program_size.next_multiple_of(alignment);
        let mut header = Vec::with_capacity(LENGTH as usize);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&LENGTH.to_le_bytes());
        for field in [program_size, base, segment_len] {
            header.extend_from_slice(&field.to_le_bytes());
        }
        Ok((insert_header(tables, &header)?, base))
    }
}

fn check_identifier(file: &[u8]) -> Result<()> {
    let kind = ".pte";
    if file.len() < LEAST_FILE {
        return Err(FormatError::TooShort { kind, found: file.len() as u64, needed: LEAST_FILE as u64 });
    }
    let found = [file[4], file[5], file[6], file[7]];
    let (shown, expected) = (Identifier(found), Identifier(IDENTIFIER));
    match found {
        IDENTIFIER => Ok(()),
        [b'E', b'T', ..] => Err(FormatError::OtherVersion { kind, found: shown, expected }),
        _ => Err(FormatError::OtherFormat { kind, found: shown, expected }),
    }
}
