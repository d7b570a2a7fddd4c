//! Segments: the large data that `.pte` and `.ptd` files carry behind their tables.
//!
//! The reading half turns offsets and sizes from a file into checked ranges. The writing half lays segments out
//! and streams them, each from borrowed bytes or from a function that produces them, so that a file of any size
//! is written with the memory of one of its parts. Nothing here knows what a segment holds.

use std::io::{self, Write};
use std::ops::Range;

use pteron_tensor::Bytes;

use crate::flatbuffer::Finished;
use crate::{FormatError, Place, Result};

/// What segments start at a multiple of unless told otherwise, as ExecuTorch has it.
pub const SEGMENT_ALIGNMENT: u64 = 128;

/// What every reader may rely on.
const LEAST_ALIGNMENT: u64 = 16;

/// Beyond the largest page of any platform, an alignment only wastes space.
const LARGEST_ALIGNMENT: u64 = 1 << 20;

/// How a file is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// What the first segment and every other one start at a multiple of.
    pub segment_alignment: u64,
}

impl Default for WriteOptions {
    fn default() -> WriteOptions {
        WriteOptions { segment_alignment: SEGMENT_ALIGNMENT }
    }
}

/// One segment to be written.
pub struct Segment<'a> {
    source: SegmentSource<'a>,
    alignment: u64,
}

type Produce<'a> = Box<dyn Fn(&mut dyn Write) -> io::Result<()> + 'a>;

enum SegmentSource<'a> {
    Shared(Bytes),
    Borrowed(&'a [u8]),
    Produced { len: u64, produce: Produce<'a> },
}

impl<'a> Segment<'a> {
    /// Bytes that are shared, such as a range of a mapped file.
    pub fn shared(bytes: Bytes) -> Segment<'a> {
        Segment { source: SegmentSource::Shared(bytes), alignment: 1 }
    }

    /// Bytes that are borrowed.
    pub fn borrowed(bytes: &'a [u8]) -> Segment<'a> {
        Segment { source: SegmentSource::Borrowed(bytes), alignment: 1 }
    }

    /// Bytes that `produce` writes when their turn comes: exactly `len`, the same each time.
    pub fn produced(len: u64, produce: impl Fn(&mut dyn Write) -> io::Result<()> + 'a) -> Segment<'a> {
        Segment { source: SegmentSource::Produced { len, produce: Box::new(produce) }, alignment: 1 }
    }

    /// The same segment, starting at a multiple of `alignment` as well as of the file's own.
    pub fn aligned_to(self, alignment: u64) -> Segment<'a> {
        Segment { alignment, ..self }
    }

    /// The bytes, where they are held and not produced.
    pub(crate) fn held(&self) -> Option<&[u8]> {
        match &self.source {
            SegmentSource::Shared(bytes) => Some(bytes),
            SegmentSource::Borrowed(bytes) => Some(bytes),
            SegmentSource::Produced { .. } => None,
        }
    }

    /// Bytes it has.
    pub fn len(&self) -> u64 {
        match &self.source {
            SegmentSource::Shared(bytes) => bytes.len() as u64,
            SegmentSource::Borrowed(bytes) => bytes.len() as u64,
            SegmentSource::Produced { len, .. } => *len,
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.source {
            SegmentSource::Shared(bytes) => out.write_all(bytes),
            SegmentSource::Borrowed(bytes) => out.write_all(bytes),
            SegmentSource::Produced { len, produce } => {
                let mut counted = Counted { out, left: *len };
                produce(&mut counted)?;
                match counted.left {
                    0 => Ok(()),
                    left => Err(io::Error::other(format!("its source ended {left} of {len} bytes early"))),
                }
            }
        }
    }
}

/// Lets through as many bytes as were announced; one more would move every segment after it.
struct Counted<'a> {
    out: &'a mut dyn Write,
    left: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(io::Error::other("its source produced more bytes than it announced"));
        }
        let written = self.out.write(bytes)?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Where segments go, from the segment base.
pub(crate) struct Layout {
    pub(crate) spans: Vec<(u64, u64)>,
    pub(crate) len: u64,
}

impl Layout {
    pub(crate) fn of(segments: &[Segment<'_>], options: &WriteOptions) -> Result<Layout> {
        let mut spans = Vec::with_capacity(segments.len());
        let mut end = 0u64;
        for (index, segment) in segments.iter().enumerate() {
            let fail = |problem: &str| FormatError::Unwritable {
                place: Place::at(format!("segments[{index}]")),
                problem: problem.into(),
            };
            let alignment = common_alignment(options.segment_alignment, segment.alignment)
                .ok_or_else(|| fail("its alignment is 0 or beyond a mebibyte"))?;
            let start = end.checked_next_multiple_of(alignment).ok_or_else(|| fail("it ends beyond 2^64"))?;
            end = start.checked_add(segment.len()).ok_or_else(|| fail("it ends beyond 2^64"))?;
            spans.push((start, segment.len()));
        }
        Ok(Layout { spans, len: end })
    }
}

fn common_alignment(a: u64, b: u64) -> Option<u64> {
    let sound = |alignment: u64| (1..=LARGEST_ALIGNMENT).contains(&alignment);
    if !sound(a) || !sound(b) {
        return None;
    }
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    Some(a / x * b).filter(|common| sound(*common))
}

/// Writes `head`, then the segments from byte `base` on; returns the bytes written in all.
pub(crate) fn stream(
    out: &mut dyn Write,
    head: &[u8],
    base: u64,
    segments: &[Segment<'_>],
    layout: &Layout,
) -> Result<u64> {
    let fail = |what: &str| {
        let what = what.to_owned();
        move |source| FormatError::Write { what, source }
    };
    out.write_all(head).map_err(fail("the tables"))?;
    let mut at = head.len() as u64;
    for (index, (segment, (offset, len))) in segments.iter().zip(&layout.spans).enumerate() {
        let start = base + offset;
        pad(out, start - at).map_err(fail("padding"))?;
        segment.write_to(out).map_err(|source| fail(&format!("segment {index}"))(source))?;
        at = start + len;
    }
    out.flush().map_err(fail("the end of the file"))?;
    Ok(at)
}

fn pad(out: &mut dyn Write, mut len: u64) -> io::Result<()> {
    const ZEROS: [u8; 4096] = [0; 4096];
    while len > 0 {
        let part = len.min(ZEROS.len() as u64);
        out.write_all(&ZEROS[..part as usize])?;
        len -= part;
    }
    Ok(())
}

/// Puts `header` between the identifier and the tables. Offsets inside are relative, so that only the root's
/// changes; a header that is a multiple of the buffer's alignment moves no field off its own.
pub(crate) fn insert_header(tables: &Finished, header: &[u8]) -> Result<Vec<u8>> {
    let (Some(root), Some(rest)) = (tables.bytes.first_chunk::<4>(), tables.bytes.get(8..)) else {
        return Err(FormatError::Unwritable { place: Place::at("tables"), problem: "they are empty".into() });
    };
    let padded = header.len().next_multiple_of(tables.align);
    let root = u32::from_le_bytes(*root) + padded as u32;
    let mut out = Vec::with_capacity(tables.bytes.len() + padded);
    out.extend_from_slice(&root.to_le_bytes());
    out.extend_from_slice(&tables.bytes[4..8]);
    out.extend_from_slice(header);
    out.resize(8 + padded, 0);
    out.extend_from_slice(rest);
    Ok(out)
}

/// Turns the spans that a file claims into ranges of the file: in order, apart, aligned and inside it.
pub(crate) fn ranges(
    root: &str,
    spans: impl Iterator<Item = (u64, u64)>,
    base: u64,
    file_len: usize,
) -> Result<Vec<Range<usize>>> {
    let mut ranges = Vec::new();
    let mut previous_end = 0;
    for (index, (offset, size)) in spans.enumerate() {
        let fail = |problem: String| FormatError::table(format!("{root}.segments[{index}]"), problem);
        if offset < previous_end {
            return Err(fail(format!("it starts at {offset}, inside or before the one before it")));
        }
        previous_end = offset
            .checked_add(size)
            .ok_or_else(|| fail(format!("offset {offset} and size {size} exceed 2^64")))?;
        if size == 0 {
            // The empty constant segment of a file without segments has a place, but no file to be in.
            ranges.push(0..0);
            continue;
        }
        if base == 0 {
            return Err(fail(format!("it has {size} bytes, but the header names no segment base")));
        }
        let end = base.checked_add(previous_end).and_then(|end| usize::try_from(end).ok());
        let Some(end) = end.filter(|end| *end <= file_len) else {
            return Err(fail(format!(
                "{size} bytes at {offset} from byte {base} run past the file's {file_len}; is it complete?"
            )));
        };
        // Not beyond the file, so that it fits.
        let start = end - size as usize;
        if !(start as u64).is_multiple_of(LEAST_ALIGNMENT) {
            return Err(fail(format!(
                "it starts at byte {start}, which is not a multiple of {LEAST_ALIGNMENT}"
            )));
        }
        ranges.push(start..end);
    }
    Ok(ranges)
}

/// The alignment that a segment at `offset` was most likely given: writing it again with that keeps its place.
pub(crate) fn likely_alignment(offset: u64) -> u64 {
    const LARGEST_LIKELY: u64 = 1 << 14;
    match offset {
        0 => SEGMENT_ALIGNMENT,
        offset => (1 << offset.trailing_zeros().min(63)).min(LARGEST_LIKELY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spans, their base, and the words that the error must have.
    type Refused = (&'static [(u64, u64)], u64, &'static str);

    #[test]
    fn segments_outside_the_file_are_refused() {
        let spans = |spans: &[(u64, u64)], base| ranges("Program", spans.iter().copied(), base, 1000);
        assert_eq!(spans(&[(0, 0), (0, 30), (128, 872 - 128)], 128).unwrap(), [0..0, 128..158, 256..1000]);
        let cases: [Refused; 7] = [
            (
                &[(0, 16), (u64::MAX - 3, 16)],
                128,
                "segments[1]: offset 18446744073709551612 and size 16 exceed",
            ),
            (&[(1 << 40, 1)], 128, "run past the file's 1000; is it complete?"),
            (&[(0, 873)], 128, "run past the file"),
            (&[(u64::MAX, 0), (u64::MAX, 1)], 128, "exceed 2^64"),
            (&[(8, 1)], 128, "it starts at byte 136, which is not a multiple of 16"),
            (&[(0, 100), (64, 1)], 128, "inside or before the one before it"),
            (&[(0, 1)], 0, "the header names no segment base"),
        ];
        for (given, base, wanted) in cases {
            let error = spans(given, base).unwrap_err().to_string();
            assert!(error.starts_with("Program.segments["), "{error}");
            assert!(error.contains(wanted), "{given:?}: {error}");
        }
    }

    #[test]
    fn a_segment_written_again_stays_in_place() {
        let segments = [(5, 1), (300, 4096), (0, 1), (7, 64), (1, 384)];
        let make = |alignments: &[u64]| {
            let segments = segments.iter().zip(alignments);
            let segments: Vec<_> = segments
                .map(|((len, _), alignment)| {
                    Segment::produced(*len, |_: &mut dyn Write| Ok(())).aligned_to(*alignment)
                })
                .collect();
            Layout::of(&segments, &WriteOptions::default()).unwrap().spans
        };
        let first = make(&segments.map(|(_, alignment)| alignment));
        assert_eq!(first, [(0, 5), (4096, 300), (4480, 0), (4480, 7), (4608, 1)]);
        let likely: Vec<u64> = first.iter().map(|(offset, _)| likely_alignment(*offset)).collect();
        assert_eq!(make(&likely), first);
    }
}
