//! The 30 bytes before the tables: zeros, `XH00`, and where the tables and the data behind them lie. Old files have none:
//! there the payload is the tables themselves.

use std::ops::Range;

use crate::{FormatError, Result};

const MAGIC: [u8; 4] = *b"XH00";
/// Bytes of the header as it says itself.
const LENGTH: usize = 30;
/// The tables start here, which keeps blobs inside them aligned to 16.
const PADDED: usize = 32;
const ALIGNMENT: usize = 16;

/// Where the parts of a payload lie.
pub(super) struct Parts {
    pub(super) tables: Range<usize>,
    /// Constants that are found by offset; `None` in a payload without a header.
    pub(super) data: Option<Range<usize>>,
}

fn number<const SIZE: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(part) = bytes.get(at..at + SIZE) {
        word[..SIZE].copy_from_slice(part);
    }
    u64::from_le_bytes(word)
}

pub(super) fn read(bytes: &[u8]) -> Result<Parts> {
    if bytes.get(4..8) != Some(&MAGIC[..]) {
        return Ok(Parts { tables: 0..bytes.len(), data: None });
    }
    if bytes.len() < LENGTH {
        let (found, needed) = (bytes.len() as u64, LENGTH as u64);
        return Err(FormatError::TooShort { kind: "XNNPACK payload", found, needed });
    }
    let length = number::<2>(bytes, 8);
    if length < LENGTH as u64 {
        let problem = format!("the XNNPACK header says that it has {length} bytes instead of {LENGTH}");
        return Err(FormatError::Header { offset: 8, problem });
    }
    let part = |what: &str, at: u64, start: u64, size: u64| {
        let end = start.checked_add(size).filter(|end| *end <= bytes.len() as u64);
        match end.and_then(|end| Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)) {
            Some(range) => Ok(range),
            None => {
                let problem =
                    format!("the payload's {what} are {size} bytes at byte {start} of {}", bytes.len());
                Err(FormatError::Header { offset: at, problem })
            }
        }
    };
    let tables = part("tables", 10, number::<4>(bytes, 10), number::<4>(bytes, 14))?;
    let data = part("constants", 18, number::<4>(bytes, 18), number::<8>(bytes, 22))?;
    Ok(Parts { tables, data: Some(data) })
}

/// The header, the tables and the data, both where their alignment wants them.
pub(super) fn prepend(tables: &[u8], data: &[u8]) -> Result<Vec<u8>> {
    let start = (PADDED + tables.len()).next_multiple_of(ALIGNMENT);
    let (Ok(size), Ok(offset)) = (u32::try_from(tables.len()), u32::try_from(start)) else {
        return Err(FormatError::Unwritable {
            place: crate::Place::at("XNNGraph"),
            problem: "the tables do not fit into 4 GiB".into(),
        });
    };
    let mut bytes = Vec::with_capacity(start + data.len());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&(LENGTH as u16).to_le_bytes());
    bytes.extend_from_slice(&(PADDED as u32).to_le_bytes());
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(&offset.to_le_bytes());
    bytes.extend_from_slice(&(data.len() as u64).to_le_bytes());
    bytes.resize(PADDED, 0);
    bytes.extend_from_slice(tables);
    bytes.resize(start, 0);
    bytes.extend_from_slice(data);
    Ok(bytes)
}
