//! The zip around a program: its central directory, checked, and its members as bytes that are borrowed from
//! the file.
//!
//! Only what torch writes is read: stored members, each in one piece. The reader is ours because a general
//! one allocates by the counts that a file claims and keeps the last of two members of one name; here both
//! are errors. Checksums are not compared: torch can be told not to compute them, and a weight of gigabytes
//! is not read to be looked at. What the members mean is not known here.

use super::error::{Pt2Error, Result, clip};
use indexmap::IndexMap;
use pteron_format::map::shared;
use pteron_format::{FormatError, Limits, Place};
use pteron_tensor::Bytes;
use std::ops::Range;

const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const LOCAL: u32 = 0x0403_4b50;

const END_BYTES: usize = 22;
const CENTRAL_BYTES: usize = 46;
const LOCAL_BYTES: usize = 30;
const ENCRYPTED: u16 = 1;

/// A zip of stored members.
#[derive(Clone, Debug)]
pub struct Archive {
    /// What errors call it.
    name: String,
    bytes: Bytes,
    members: IndexMap<String, Range<usize>>,
}

/// Where the central directory says that it is.
struct Directory {
    entries: u64,
    range: Range<usize>,
}

/// One entry of the central directory.
struct Entry {
    name: String,
    header: usize,
    size: usize,
}

impl Archive {
    /// Whether bytes begin as every archive of torch does.
    pub fn recognises(bytes: &[u8]) -> bool {
        bytes.starts_with(&LOCAL.to_le_bytes())
    }

    /// Reads the directory of an archive; `name` is what errors call it.
    pub fn read(name: &str, bytes: Bytes, limits: &Limits) -> Result<Archive> {
        let bytes = shared(bytes);
        let mut archive = Archive { name: name.to_owned(), bytes, members: IndexMap::new() };
        let directory = archive.directory()?;
        let place = || Place::at(format!("{name}: directory"));
        FormatError::check_limit("entries", directory.entries, limits.entries, place)?;
        let mut at = directory.range.start;
        let mut spans = Vec::new();
        for _ in 0..directory.entries {
            let (entry, next) = archive.entry(at, directory.range.end)?;
            at = next;
            let data = archive.data(&entry, directory.range.start)?;
            spans.push(entry.header..data.end);
            if entry.name.ends_with('/') {
                continue; // a folder; torch writes none, repacking tools do
            }
            if archive.members.insert(entry.name.clone(), data).is_some() {
                return Err(archive.error(format!("two members are named `{}`", clip(&entry.name))));
            }
        }
        if at != directory.range.end {
            return Err(archive.error("the directory is longer than its entries"));
        }
        spans.sort_by_key(|span| span.start);
        if spans.windows(2).any(|pair| pair[1].start < pair[0].end) {
            return Err(archive.error("members overlap"));
        }
        Ok(archive)
    }

    /// The folder that everything lies in, known by a member that is always there; with its slash.
    pub fn root(&self, marker: &str) -> Result<String> {
        let roots = self.members.keys().filter_map(|name| {
            let (root, rest) = name.split_once('/')?;
            (rest == marker).then(|| format!("{root}/"))
        });
        let mut roots = roots.collect::<Vec<_>>();
        match (roots.pop(), roots.is_empty()) {
            (Some(root), true) => Ok(root),
            (Some(_), false) => Err(self.error(format!("several folders hold a `{marker}`"))),
            (None, _) => Err(self.error(format!("no folder holds a `{marker}`"))),
        }
    }

    /// A member by its full name, borrowed from the file.
    pub fn get(&self, name: &str) -> Option<Bytes> {
        self.bytes.slice(self.members.get(name)?.clone())
    }

    /// Every member's full name with its size, in the order of the directory.
    pub fn members(&self) -> impl Iterator<Item = (&str, usize)> {
        self.members.iter().map(|(name, range)| (name.as_str(), range.len()))
    }

    fn error(&self, problem: impl Into<String>) -> Pt2Error {
        Pt2Error::archive(&self.name, problem)
    }

    fn directory(&self) -> Result<Directory> {
        let bytes: &[u8] = &self.bytes;
        let short = || self.error("this is not a zip archive, or its end is missing; is the file complete?");
        let last = bytes.len().checked_sub(END_BYTES).ok_or_else(short)?;
        // A comment may follow, at most 65,535 bytes of it.
        let first = last.saturating_sub(usize::from(u16::MAX));
        let is_end = |at: &usize| {
            let comment = u16_at(bytes, at + 20).map(usize::from);
            u32_at(bytes, *at) == Some(END) && comment == Some(last - at)
        };
        let end = (first..=last).rev().find(is_end).ok_or_else(short)?;
        let (mut entries, mut size, mut start) = (
            u64::from(u16_at(bytes, end + 10).ok_or_else(short)?),
            u64::from(u32_at(bytes, end + 12).ok_or_else(short)?),
            u64::from(u32_at(bytes, end + 16).ok_or_else(short)?),
        );
        let locator = end.checked_sub(20).filter(|&at| u32_at(bytes, at) == Some(LOCATOR_64));
        let mut bound = end;
        if let Some(locator) = locator {
            let at = u64_at(bytes, locator + 8).and_then(|at| usize::try_from(at).ok());
            let at = at.filter(|&at| u32_at(bytes, at) == Some(END_64) && at < locator).ok_or_else(short)?;
            let field = |offset: usize| u64_at(bytes, at.checked_add(offset)?);
            (entries, size, start) =
                (field(32).ok_or_else(short)?, field(40).ok_or_else(short)?, field(48).ok_or_else(short)?);
            bound = at;
        }
        let (start, size) = (usize::try_from(start), usize::try_from(size));
        let range = start.ok().zip(size.ok()).and_then(|(start, size)| Some(start..start.checked_add(size)?));
        let range = range.filter(|range| range.end <= bound).ok_or_else(short)?;
        if entries > (range.len() / CENTRAL_BYTES) as u64 {
            return Err(self.error(format!("{entries} members do not fit into the directory")));
        }
        Ok(Directory { entries, range })
    }

    /// The entry at a place of the directory, and where the next one begins.
    fn entry(&self, at: usize, end: usize) -> Result<(Entry, usize)> {
        let cut = || self.error(format!("directory entry at byte {at} is damaged"));
        let bytes: &[u8] = self.bytes.get(at..end).ok_or_else(cut)?;
        if u32_at(bytes, 0) != Some(CENTRAL) {
            return Err(cut());
        }
        let short = |offset| u16_at(bytes, offset).ok_or_else(cut);
        let word = |offset| u32_at(bytes, offset).map(u64::from).ok_or_else(cut);
        let name_end = CENTRAL_BYTES + usize::from(short(28)?);
        let extra_end = name_end + usize::from(short(30)?);
        let next = extra_end + usize::from(short(32)?);
        let name = bytes.get(CENTRAL_BYTES..name_end).ok_or_else(cut)?;
        let extra = bytes.get(name_end..extra_end).ok_or_else(cut)?;
        if next > bytes.len() {
            return Err(cut());
        }
        let name = self.checked_name(name)?;
        let method = short(10)?;
        if method != 0 {
            return Err(Pt2Error::Compressed { archive: self.name.clone(), member: clip(&name), method });
        }
        if short(8)? & ENCRYPTED != 0 {
            return Err(self.error(format!("member `{}` is encrypted", clip(&name))));
        }
        let mut wide = Wide(zip64_field(extra));
        let whole = wide.or(word(24)?).ok_or_else(cut)?;
        let packed = wide.or(word(20)?).ok_or_else(cut)?;
        let header = wide.or(word(42)?).ok_or_else(cut)?;
        if whole != packed {
            return Err(self.error(format!("stored member `{}` has two sizes", clip(&name))));
        }
        let entry = Entry {
            name,
            header: usize::try_from(header).map_err(|_| cut())?,
            size: usize::try_from(whole).map_err(|_| cut())?,
        };
        Ok((entry, at + next))
    }

    /// Names are keys, never paths of this machine; still nothing is gained by accepting odd ones.
    fn checked_name(&self, name: &[u8]) -> Result<String> {
        let name = std::str::from_utf8(name).map_err(|_| self.error("a member's name is not UTF-8"))?;
        let plain = name.strip_suffix('/').unwrap_or(name);
        let odd = plain.split('/').any(|part| matches!(part, "" | "." | ".."))
            || plain.contains(|c: char| c == '\\' || c == ':' || c.is_control());
        match odd {
            true => {
                Err(self
                    .error(format!("member name `{}` is refused", clip(&name.escape_debug().to_string()))))
            }
            false => Ok(name.to_owned()),
        }
    }

    /// Where a member's bytes lie: behind its local header, whose extra field holds the padding.
    fn data(&self, entry: &Entry, bound: usize) -> Result<Range<usize>> {
        let cut = || self.error(format!("member `{}` is damaged or cut off", clip(&entry.name)));
        let header = self.bytes.get(entry.header..bound).ok_or_else(cut)?;
        if u32_at(header, 0) != Some(LOCAL) || u16_at(header, 8) != Some(0) {
            return Err(cut());
        }
        let name = usize::from(u16_at(header, 26).ok_or_else(cut)?);
        let extra = usize::from(u16_at(header, 28).ok_or_else(cut)?);
        // Another name here than in the directory would be another member to other readers.
        if header.get(LOCAL_BYTES..LOCAL_BYTES + name) != Some(entry.name.as_bytes()) {
            return Err(cut());
        }
        let start = entry.header + LOCAL_BYTES + name + extra;
        let end = start.checked_add(entry.size).filter(|&end| end <= bound).ok_or_else(cut)?;
        if start > end {
            return Err(cut());
        }
        Ok(start..end)
    }
}

/// The numbers that did not fit into 32 bits, in the order of their fields.
struct Wide<'a>(&'a [u8]);

impl Wide<'_> {
    fn or(&mut self, narrow: u64) -> Option<u64> {
        if narrow != u64::from(u32::MAX) {
            return Some(narrow);
        }
        let value = u64_at(self.0, 0)?;
        self.0 = &self.0[8..];
        Some(value)
    }
}

fn zip64_field(mut extra: &[u8]) -> &[u8] {
    while let (Some(id), Some(len)) = (u16_at(extra, 0), u16_at(extra, 2)) {
        let Some(body) = extra.get(4..4 + usize::from(len)) else { break };
        if id == 1 {
            return body;
        }
        extra = &extra[4 + usize::from(len)..];
    }
    &[]
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive as writers make it beyond 4 GiB: every number that may be wide is.
    fn wide(name: &str, data: &[u8]) -> Vec<u8> {
        let (name_len, size) = (name.len() as u16, data.len() as u64);
        let mut bytes = LOCAL.to_le_bytes().to_vec();
        bytes.extend([0; 22]);
        bytes.extend(name_len.to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend(name.as_bytes());
        bytes.extend(data);
        let directory = bytes.len() as u64;
        bytes.extend(CENTRAL.to_le_bytes());
        bytes.extend([0; 16]);
        bytes.extend([0xff; 8]);
        bytes.extend(name_len.to_le_bytes());
        bytes.extend(28u16.to_le_bytes());
        bytes.extend([0; 10]);
        bytes.extend([0xff; 4]);
        bytes.extend(name.as_bytes());
        bytes.extend([1, 0, 24, 0]);
        for number in [size, size, 0] {
            bytes.extend(number.to_le_bytes());
        }
        let end = bytes.len() as u64;
        bytes.extend(END_64.to_le_bytes());
        bytes.extend([0; 20]);
        for number in [1, 1, end - directory, directory] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(LOCATOR_64.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(end.to_le_bytes());
        bytes.extend([1, 0, 0, 0]);
        bytes.extend(END.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend([0xff; 12]);
        bytes.extend([0; 2]);
        bytes
    }

    #[test]
    fn archives_beyond_four_gibibytes_are_read_by_their_wide_numbers() {
        let bytes = wide("root/data.pkl", b"12345");
        let archive = Archive::read("a", Bytes::copy_of(&bytes), &Limits::default()).unwrap();
        assert_eq!(archive.root("data.pkl").unwrap(), "root/");
        assert_eq!(&*archive.get("root/data.pkl").unwrap(), b"12345");
        for len in 0..bytes.len() {
            assert!(Archive::read("a", Bytes::copy_of(&bytes[..len]), &Limits::default()).is_err());
        }
    }
}
