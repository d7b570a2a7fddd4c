//! `.ptd` external data: named tensors and blobs that a program finds by key.
//!
//! Laid out like a `.pte`: tables, a header between identifier and tables, segments behind. Read with every
//! offset and size checked and data borrowed; written deterministically and streamed.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use pteron_tensor::Bytes;

use crate::flatbuffer::{Buffer, Builder, Scalar};
use crate::map::{MappedFile, shared};
use crate::mirror::{List, Mirror, Source, Text, mirror_table};
use crate::pte::{DataSegment, ScalarType};
use crate::segments::{Layout, Segment, WriteOptions, insert_header, likely_alignment, ranges, stream};
use crate::{FormatError, Identifier, Limits, Place, Result};

const IDENTIFIER: [u8; 4] = *b"FT01";
const MAGIC: [u8; 4] = *b"FH01";
const HEADER_AT: usize = 8;
const HEADER_LEN: usize = 40;
const LEAST_FILE: usize = 64;
/// ExecuTorch pads the header to this even where the tables need less.
const HEADER_ALIGNMENT: usize = 16;
const NEWEST: u32 = 0;

mirror_table! {
    /// The root: everything a `.ptd` file says outside its segments.
    pub struct FlatTensor {
        /// Schema version; 0 so far.
        0 version: u32,
        /// Where the segments lie; recomputed when a file is written.
        1 segments: List<DataSegment>,
        /// What the segments hold.
        2 named_data: List<NamedTensor>,
    }

    /// A segment's name, and its layout if it is a tensor. Several names may share a segment.
    pub struct NamedTensor {
        /// The name.
        0 key: Text,
        /// Which segment.
        1 segment_index: u32,
        /// How to read the bytes as a tensor; absent for blobs.
        2 tensor_layout: Option<TensorLayout>,
    }

    /// Type and shape of a stored tensor.
    pub struct TensorLayout {
        /// The element type.
        0 scalar_type: ScalarType,
        /// The shape.
        1 sizes: List<i32>,
        /// Dimensions from outer to inner in memory.
        2 dim_order: List<u8>,
    }
}

impl TensorLayout {
    /// Bytes of such a tensor, if they can be counted.
    pub fn byte_len(&self) -> Option<u64> {
        self.sizes.iter().try_fold(self.scalar_type.size() as u64, |bytes, size| {
            bytes.checked_mul(u64::try_from(*size).ok()?)
        })
    }
}

/// A `.ptd` file that was read and checked.
#[derive(Clone)]
pub struct Ptd {
    /// Everything the tables say.
    pub tables: FlatTensor,
    bytes: Bytes,
    segments: Vec<Range<usize>>,
    names: HashMap<String, usize>,
    unknown_fields: Vec<String>,
    file: Option<Arc<MappedFile>>,
}

/// One entry of a `.ptd`.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalData {
    /// The bytes, shared.
    pub bytes: Bytes,
    /// Type and shape, if it is a tensor.
    pub layout: Option<TensorLayout>,
}

impl Ptd {
    /// Reads external data from bytes. Segments stay where they are.
    pub fn read(bytes: Bytes, limits: &Limits) -> Result<Ptd> {
        let place = || Place::at("file");
        FormatError::check_limit("file_bytes", bytes.len() as u64, limits.file_bytes, place)?;
        let (tables_end, base) = read_header(&bytes)?;
        let bytes = shared(bytes);
        let source = Source::new(&bytes, limits);
        let tables: FlatTensor = source.root(&Buffer::new(&bytes[..tables_end], 0, limits))?;
        let unknown_fields = source.into_unknown();
        let spans = tables.segments.iter().map(|segment| (segment.offset, segment.size));
        let segments = ranges("FlatTensor", spans, base, bytes.len())?;
        let sizes: Vec<u64> = tables.segments.iter().map(|segment| segment.size).collect();
        let names = check(&tables, &sizes, limits)?;
        Ok(Ptd { tables, segments, names, unknown_fields, bytes, file: None })
    }

    /// Opens a file, mapped if it is large, and reads it.
    pub fn open(path: &Path, limits: &Limits) -> Result<Ptd> {
        let file = MappedFile::open(path, limits)?;
        Ok(Ptd { file: Some(file.clone()), ..Ptd::read(file.to_bytes(), limits)? })
    }

    /// Fails if the file was cut short or written into since it was opened.
    pub fn check_unchanged(&self) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.check_unchanged())
    }

    /// Fields that a newer exporter wrote and this reader does not know, by path.
    pub fn unknown_fields(&self) -> &[String] {
        &self.unknown_fields
    }

    /// All keys, in the file's order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.tables.named_data.iter().map(|named| &*named.key)
    }

    /// The entry of that key.
    pub fn named(&self, key: &str) -> Option<ExternalData> {
        let named = &self.tables.named_data[*self.names.get(key)?];
        let bytes = self.bytes.slice(self.segments[named.segment_index as usize].clone())?;
        Some(ExternalData { bytes, layout: named.tensor_layout.clone() })
    }

    /// The segments as they are, to write the file again; each keeps the alignment that it shows.
    pub fn segments(&self) -> Vec<Segment<'static>> {
        let ranges = self.segments.iter().zip(self.tables.segments.iter());
        let segments = ranges.map(|(range, segment)| {
            let bytes = self.bytes.slice(range.clone()).unwrap_or_else(|| Bytes::zeroed(0));
            Segment::shared(bytes).aligned_to(likely_alignment(segment.offset))
        });
        segments.collect()
    }
}

/// Where the tables end, and what segment offsets count from.
fn read_header(file: &[u8]) -> Result<(usize, u64)> {
    let kind = ".ptd";
    if file.len() < LEAST_FILE {
        return Err(FormatError::TooShort { kind, found: file.len() as u64, needed: LEAST_FILE as u64 });
    }
    let found = [file[4], file[5], file[6], file[7]];
    let (shown, expected) = (Identifier(found), Identifier(IDENTIFIER));
    match found {
        IDENTIFIER => {}
        [b'F', b'T', ..] => return Err(FormatError::OtherVersion { kind, found: shown, expected }),
        _ => return Err(FormatError::OtherFormat { kind, found: shown, expected }),
    }
    let at = |offset: usize| &file[HEADER_AT + offset..LEAST_FILE];
    let fail = |offset: usize, problem: String| {
        Err(FormatError::Header { offset: (HEADER_AT + offset) as u64, problem })
    };
    if !at(0).starts_with(&MAGIC) {
        return fail(0, format!("{} is missing", Identifier(MAGIC)));
    }
    let (length, len) = (u32::from_wire(at(4)), file.len() as u64);
    if (length as usize) < HEADER_LEN {
        return fail(4, format!("it claims {length} bytes of at least {HEADER_LEN}"));
    }
    let [tables_at, tables_len, base, data] = [8, 16, 24, 32].map(|offset| u64::from_wire(at(offset)));
    let tables_end = match tables_at.checked_add(tables_len) {
        Some(end) if end <= len => end,
        _ => return fail(8, format!("{tables_len} bytes of tables at {tables_at} exceed the file's {len}")),
    };
    if base != 0 && base < tables_end {
        return fail(24, format!("segments start at {base}, the tables end at {tables_end}"));
    }
    match base.checked_add(data) {
        Some(end) if end <= len => Ok((tables_end as usize, base)),
        _ => fail(32, format!("{data} bytes of segments at {base} exceed the file's {len}")),
    }
}

/// Checks what the tables must agree on; returns the entries by key.
fn check(tables: &FlatTensor, segments: &[u64], limits: &Limits) -> Result<HashMap<String, usize>> {
    if tables.version > NEWEST {
        let (found, known) = (tables.version.into(), NEWEST.into());
        return Err(FormatError::NewerVersion { place: Place::at("FlatTensor.version"), found, known });
    }
    let mut names = HashMap::new();
    for (index, named) in tables.named_data.iter().enumerate() {
        let path = || format!("FlatTensor.named_data[{index}]");
        if named.key.is_absent() || names.insert(named.key.to_string(), index).is_some() {
            let problem = format!("the key {:?} is absent or occurs twice", &*named.key);
            return Err(FormatError::table(path(), problem));
        }
        let Some(size) = segments.get(named.segment_index as usize) else {
            let (place, found) = (Place::at(format!("{}.segment_index", path())), named.segment_index.into());
            let count = segments.len() as u64;
            return Err(FormatError::Index { place, index: found, count, what: "segments" });
        };
        let Some(layout) = &named.tensor_layout else { continue };
        let rank = layout.sizes.len();
        FormatError::check_limit("rank", rank as u64, limits.rank as u64, || Place::at(path()))?;
        let mut order = layout.dim_order.to_vec();
        order.sort_unstable();
        if order.len() != rank || order.iter().enumerate().any(|(at, dim)| at != usize::from(*dim)) {
            let problem = format!("dim_order {:?} is no permutation of {rank}", &*layout.dim_order);
            return Err(FormatError::table(path(), problem));
        }
        match layout.byte_len() {
            Some(bytes) if bytes <= *size => {
                FormatError::check_limit("tensor_bytes", bytes, limits.tensor_bytes, || Place::at(path()))?;
            }
            _ => {
                let problem = format!("sizes {:?} do not fit the segment's {size} bytes", &*layout.sizes);
                return Err(FormatError::table(path(), problem));
            }
        }
    }
    Ok(names)
}

/// Writes external data: entries by key, and the segments that they name. Returns the bytes written.
pub fn write(
    named_data: &[NamedTensor],
    segments: &[Segment<'_>],
    options: &WriteOptions,
    out: &mut dyn Write,
) -> Result<u64> {
    let layout = Layout::of(segments, options)?;
    let spans = layout.spans.iter().map(|(offset, size)| DataSegment { offset: *offset, size: *size });
    let tables = FlatTensor { version: 0, segments: spans.collect(), named_data: named_data.to_vec().into() };
    let sizes: Vec<u64> = layout.spans.iter().map(|(_, size)| *size).collect();
    check(&tables, &sizes, &Limits::default())?;

    let mut builder = Builder::new();
    let root = tables.write(&mut builder);
    let mut tables = builder.finish(root, Some(IDENTIFIER))?;
    tables.align = tables.align.max(HEADER_ALIGNMENT);
    let header_len = HEADER_LEN.next_multiple_of(tables.align);
    let base = ((header_len + tables.bytes.len()) as u64).next_multiple_of(options.segment_alignment);
    let mut header = Vec::with_capacity(HEADER_LEN);
    header.extend_from_slice(&MAGIC);
    header.extend_from_slice(&(HEADER_LEN as u32).to_le_bytes());
    for field in [header_len as u64, tables.bytes.len() as u64, base, layout.len] {
        header.extend_from_slice(&field.to_le_bytes());
    }
    let mut head = insert_header(&tables, &header)?;
    // The base is part of the file even if no segment has a byte.
    head.resize(base as usize, 0);
    stream(out, &head, base, segments, &layout)
}

/// Writes a file of that name: aside, flushed, then renamed, so that nobody sees a part of it.
#[cfg(not(target_family = "wasm"))]
pub fn write_file(
    path: &Path,
    named_data: &[NamedTensor],
    segments: &[Segment<'_>],
    options: &WriteOptions,
) -> Result<u64> {
    pteron_aside::write_file(path, |out| write(named_data, segments, options, out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pteron_tensor::DType;

    fn layout(sizes: &[i32]) -> Option<TensorLayout> {
        let dim_order = (0..sizes.len() as u8).collect();
        Some(TensorLayout { scalar_type: DType::F32.into(), sizes: sizes.to_vec().into(), dim_order })
    }

    fn entries() -> Vec<NamedTensor> {
        let entry = |key: &str, segment_index, tensor_layout| NamedTensor {
            key: key.into(),
            segment_index,
            tensor_layout,
        };
        vec![entry("weight", 0, layout(&[2, 3])), entry("tied", 0, layout(&[6])), entry("blob", 1, None)]
    }

    fn file(entries: &[NamedTensor]) -> Result<Vec<u8>> {
        let segments = [Segment::borrowed(&[5; 24]), Segment::borrowed(b"bytes")];
        let mut file = Vec::new();
        write(entries, &segments, &WriteOptions::default(), &mut file)?;
        Ok(file)
    }

    fn read(file: &[u8]) -> Result<Ptd> {
        Ptd::read(Bytes::copy_of(file), &Limits::default())
    }

    #[test]
    fn round_trip() {
        let file = file(&entries()).unwrap();
        let ptd = read(&file).unwrap();
        assert_eq!(&*ptd.tables.named_data, &entries()[..]);
        assert_eq!(ptd.keys().collect::<Vec<_>>(), ["weight", "tied", "blob"]);
        let tied = ptd.named("tied").unwrap();
        assert_eq!((&*tied.bytes, tied.layout), (&[5u8; 24][..], layout(&[6])));
        assert_eq!(&*ptd.named("blob").unwrap().bytes, b"bytes");
        assert!(ptd.named("bias").is_none());
        let mut again = Vec::new();
        write(&ptd.tables.named_data, &ptd.segments(), &WriteOptions::default(), &mut again).unwrap();
        assert_eq!(file, again);
        assert_eq!((&file[4..12], file[12], file[16]), (&b"FT01FH01"[..], 40, 48));
    }

    /// A change to the first entry, and the words that the error must have.
    type Refused = (fn(&mut NamedTensor), &'static str);

    #[test]
    fn contradictions_are_refused() {
        let cases: [Refused; 5] = [
            (|entry| entry.segment_index = 2, "named_data[0].segment_index: index 2"),
            (|entry| entry.key = "blob".into(), "absent or occurs twice"),
            (|entry| entry.tensor_layout = layout(&[7]), "do not fit the segment's 24 bytes"),
            (|entry| entry.tensor_layout = layout(&[-1]), "do not fit"),
            (|entry| entry.tensor_layout = layout(&[1; 17]), "the limit `rank`"),
        ];
        for (change, wanted) in cases {
            let mut entries = entries();
            change(&mut entries[0]);
            let error = file(&entries).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn damage_never_panics() {
        let file = file(&entries()).unwrap();
        let step = if cfg!(miri) { 97 } else { 1 };
        for at in (0..file.len()).step_by(step) {
            assert!(read(&file[..at]).is_err(), "{at} of {} bytes were accepted", file.len());
            let mut damaged = file.clone();
            for change in [0x01, 0x80, 0xff] {
                damaged[at] = file[at] ^ change;
                let _ = read(&damaged);
            }
        }
    }
}
