//! The 30 bytes before the tables of XNNPACK and Vulkan payloads: zeros, four letters, and where the tables and the data
//! behind them lie.

use std::ops::Range;

use crate::{FormatError, Result};

/// Whose header it is.
pub(crate) struct Owner {
    pub(crate) magic: [u8; 4],
    /// The delegate, as errors call it.
    pub(crate) name: &'static str,
    /// What errors call such a payload.
    pub(crate) kind: &'static str,
}

/// Bytes of the header as it says itself.
const LENGTH: usize = 30;
/// The tables start here, which keeps blobs inside them aligned to 16.
const PADDED: usize = 32;
const ALIGNMENT: usize = 16;

/// Where the parts of a payload lie.
pub(crate) struct Parts {
    pub(crate) tables: Range<usize>,
    /// Constants that are found by offset.
    pub(crate) data: Range<usize>,
}

fn number<const SIZE: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(part) = bytes.get(at..at + SIZE) {
        word[..SIZE].copy_from_slice(part);
    }
    u64::from_le_bytes(word)
}

/// What the header says; `None` where there is none.
pub(crate) fn read(bytes: &[u8], owner: &Owner) -> Result<Option<Parts>> {
    if bytes.get(4..8) != Some(&owner.magic[..]) {
        return Ok(None);
    }
    if bytes.len() < LENGTH {
        let (found, needed) = (bytes.len() as u64, LENGTH as u64);
        return Err(FormatError::TooShort { kind: owner.kind, found, needed });
    }
    let length = number::<2>(bytes, 8);
    if length < LENGTH as u64 {
        let problem =
            format!("the {} header says that it has {length} bytes instead of {LENGTH}", owner.name);
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
    Ok(Some(Parts { tables, data }))
}

/// The header, the tables and the data, both where their alignment wants them.
pub(crate) fn prepend(tables: &[u8], data: &[u8], owner: &Owner) -> Result<Vec<u8>> {
    let start = (PADDED + tables.len()).next_multiple_of(ALIGNMENT);
    let (Ok(size), Ok(offset)) = (u32::try_from(tables.len()), u32::try_from(start)) else {
        return Err(FormatError::Unwritable {
            place: crate::Place::at(owner.kind),
            problem: "the tables do not fit into 4 GiB".into(),
        });
    };
    let mut bytes = Vec::with_capacity(start + data.len());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&owner.magic);
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
