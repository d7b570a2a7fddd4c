//! The 24 bytes before a payload's tables: zeros, `MLX0`, where the tables end, and how much data follows.

use std::ops::Range;

use crate::error::Identifier;
use crate::{FormatError, Result};

/// Bytes of the header; the tables start here, which keeps their 8-byte numbers aligned.
pub(super) const LENGTH: usize = 24;

const MAGIC: [u8; 4] = *b"MLX0";
const ALIGNMENT: usize = 16;
const KIND: &str = "MLX payload";

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|part| part.first_chunk()).map_or(0, |part| u64::from_le_bytes(*part))
}

/// Where the tables lie, padding at their end included.
pub(super) fn read(bytes: &[u8]) -> Result<Range<usize>> {
    if bytes.len() <= LENGTH {
        return Err(FormatError::TooShort {
            kind: KIND,
            found: bytes.len() as u64,
            needed: LENGTH as u64 + 1,
        });
    }
    let magic = bytes.get(4..8).and_then(|part| part.first_chunk()).copied().unwrap_or_default();
    if magic != MAGIC {
        let (found, expected) = (Identifier(magic), Identifier(MAGIC));
        return Err(FormatError::OtherFormat { kind: KIND, found, expected });
    }
    let (data_offset, data_size) = (number(bytes, 8), number(bytes, 16));
    let end = usize::try_from(data_offset).ok().filter(|end| (LENGTH + 1..=bytes.len()).contains(end));
    let Some(end) = end else {
        let problem = format!("the payload's tables end at byte {data_offset} of {}", bytes.len());
        return Err(FormatError::Header { offset: 8, problem });
    };
    if data_size != 0 {
        // Constants travel as named data of the file; a payload with data of its own is not one we know.
        let problem = format!("the payload holds {data_size} bytes of data after its tables");
        return Err(FormatError::Header { offset: 16, problem });
    }
    Ok(LENGTH..end)
}

/// The header, the tables, and padding to where data would start.
pub(super) fn prepend(tables: &[u8]) -> Vec<u8> {
    let data_offset = (LENGTH + tables.len()).next_multiple_of(ALIGNMENT);
    let mut bytes = Vec::with_capacity(data_offset);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&(data_offset as u64).to_le_bytes());
    bytes.extend_from_slice(&0u64.to_le_bytes());
    bytes.extend_from_slice(tables);
    bytes.resize(data_offset, 0);
    bytes
}
