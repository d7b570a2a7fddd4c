//! A whole file: header, metadata, tensors, and the numbers of a tensor.

use std::fmt;
use std::ops::Range;

use indexmap::IndexMap;
use pteron_tensor::Bytes;

use crate::cursor::Cursor;
use crate::metadata::{self, Entry, Metadata};
use crate::tensors::{self, Tensor};
use crate::{GgufError, Limits, ValueType};

/// The key whose value says how tensor data is aligned, and what holds without it.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
pub(crate) const DEFAULT_ALIGNMENT: u64 = 32;

/// A GGUF file that has been checked.
#[derive(Clone)]
pub struct Gguf {
    bytes: Bytes,
    version: u32,
    entries: IndexMap<String, Entry>,
    tensors: IndexMap<String, Tensor>,
}

impl Gguf {
    /// Reads and checks everything but the numbers of tensors. A mapped file stays mapped.
    pub fn read(bytes: Bytes, limits: &Limits) -> Result<Gguf, GgufError> {
        let mut cursor = Cursor::new(&bytes, 0);
        let header = || "header".to_owned();
        let magic = &bytes[..bytes.len().min(4)];
        if magic != b"GGUF" {
            return Err(GgufError::Magic(magic.to_vec()));
        }
        cursor.take(4, &header)?;
        let version = cursor.u32(&header)?;
        match version {
            2 | 3 => {}
            _ if matches!(version.swap_bytes(), 1..=3) => return Err(GgufError::BigEndian),
            _ => return Err(GgufError::Version(version)),
        }
        let tensor_count = cursor.u64(&header)?;
        let metadata_count = cursor.u64(&header)?;
        GgufError::check_limit("tensors", tensor_count, limits.tensors, &header)?;
        GgufError::check_limit("metadata", metadata_count, limits.metadata, &header)?;
        let entries = read_metadata(&mut cursor, metadata_count, limits)?;
        let alignment = alignment(Metadata { bytes: &bytes, entries: &entries }, limits)?;
        let tensors = tensors::read(&mut cursor, tensor_count, alignment, limits)?;
        Ok(Gguf { bytes, version, entries, tensors })
    }

    /// The version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What the file says about itself.
    pub fn metadata(&self) -> Metadata<'_> {
        Metadata { bytes: &self.bytes, entries: &self.entries }
    }

    /// The tensors, in the file's order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &Tensor> {
        self.tensors.values()
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// A tensor's blocks as the file has them; nothing for a tensor of another file.
    pub fn data(&self, tensor: &Tensor) -> Option<&[u8]> {
        self.bytes.get(tensor.range())
    }

    /// Decodes some elements of a tensor, counted row-major, into as many floats.
    pub fn decode(&self, tensor: &Tensor, elements: Range<usize>, out: &mut [f32]) -> Result<(), GgufError> {
        let (name, ty) = (tensor.name(), tensor.ty());
        let format =
            ty.format().ok_or_else(|| GgufError::UnsupportedTensorType { name: name.to_owned(), ty })?;
        let place = || format!("tensor {name}");
        let outside = || GgufError::invalid(place(), format!("elements {elements:?} are not all there"));
        let data = self.data(tensor).ok_or_else(outside)?;
        if elements.end > tensor.elements() || elements.len() != out.len() {
            return Err(outside());
        }
        let (len, size) = (ty.block_len(), ty.block_bytes());
        let refused = |error| GgufError::invalid(place(), format!("{error}"));
        let mut at = elements.start;
        let mut rest = out;
        let mut block = vec![0.0; len];
        while !rest.is_empty() {
            // As many whole blocks as lie ahead, or else the part of one.
            let skip = at % len;
            let whole = if skip == 0 { rest.len() / len * len } else { 0 };
            let bytes =
                |blocks: usize| data.get(at / len * size..).and_then(|data| data.get(..blocks * size));
            let taken = if whole > 0 {
                let (done, _) = rest.split_at_mut(whole);
                format.dequantise(bytes(whole / len).ok_or_else(outside)?, done).map_err(refused)?;
                whole
            } else {
                format.dequantise(bytes(1).ok_or_else(outside)?, &mut block).map_err(refused)?;
                let part = &block[skip..];
                let part = &part[..part.len().min(rest.len())];
                rest[..part.len()].copy_from_slice(part);
                part.len()
            };
            at += taken;
            rest = &mut rest[taken..];
        }
        Ok(())
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf")
            .field("version", &self.version)
            .field("metadata", &self.entries.len())
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

fn read_metadata(
    cursor: &mut Cursor<'_>,
    count: u64,
    limits: &Limits,
) -> Result<IndexMap<String, Entry>, GgufError> {
    let mut entries = IndexMap::new();
    for number in 0..count {
        let key = cursor.name(limits, &|| format!("metadata entry {number}"))?;
        let place = || format!("metadata {key:?}");
        let number = cursor.u32(&place)?;
        let ty =
            ValueType::from_number(number).ok_or_else(|| GgufError::ValueType { place: place(), number })?;
        let start = cursor.position();
        metadata::checked(cursor, ty, limits, 0, &place)?;
        let entry = Entry { ty, range: start..cursor.position() };
        if entries.insert(key.to_owned(), entry).is_some() {
            return Err(GgufError::invalid(place(), "the key is there twice"));
        }
    }
    Ok(entries)
}

fn alignment(metadata: Metadata<'_>, limits: &Limits) -> Result<u64, GgufError> {
    let alignment = metadata.integer(ALIGNMENT_KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    let place = || format!("metadata {ALIGNMENT_KEY:?}");
    if !alignment.is_power_of_two() {
        return Err(GgufError::invalid(place(), format!("{alignment} is no power of two")));
    }
    GgufError::check_limit("alignment", alignment, limits.alignment, &place)?;
    Ok(alignment)
}
