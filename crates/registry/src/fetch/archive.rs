//! Files inside packages, read as data: wheels are zip archives, npm's packages are compressed tar archives.
//!
//! Archives are strangers' work. Nothing is unpacked by its name in the archive; an entry is never read beyond the size
//! that it declares, and one that is shorter is an error.

use super::incoming::BLOCK;
use crate::{Error, Result};
use flate2::read::GzDecoder;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// Entries of an archive that are looked at.
const MAX_ENTRIES: usize = 100_000;

/// A file inside an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its name there.
    pub(super) path: String,
    /// Bytes that it declares.
    pub(super) size: u64,
}

/// Who takes the bytes.
type Taker<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

/// The files that a pattern means, parts in number order.
pub(super) fn entries(archive: &Path, pattern: &str) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    let mut consider = |path: &str, size: u64| {
        if fast_glob::glob_match(pattern, path) {
            found.push(Entry { path: path.to_owned(), size });
        }
    };
    if is_zip(archive) {
        let mut zip = open_zip(archive)?;
        for index in 0..zip.len().min(MAX_ENTRIES) {
            let entry = zip.by_index(index).map_err(|error| wrong(archive, &error))?;
            if let (true, Ok(path)) = (entry.is_file(), entry.name()) {
                consider(&path, entry.size());
            }
        }
    } else {
        let mut tar = open_tar(archive)?;
        let entries = tar.entries().map_err(|error| wrong(archive, &error))?;
        for entry in entries.take(MAX_ENTRIES) {
            let entry = entry.map_err(|error| wrong(archive, &error))?;
            if entry.header().entry_type().is_file() {
                let size = entry.size();
                consider(&String::from_utf8_lossy(&entry.path_bytes()), size);
            }
        }
    }
    found.sort_by_cached_key(|entry| number_order(&entry.path));
    Ok(found)
}

/// Hands over the bytes of one file.
pub(super) fn read(archive: &Path, wanted: &Entry, take: Taker<'_>) -> Result<()> {
    if is_zip(archive) {
        let mut zip = open_zip(archive)?;
        let entry = zip.by_name(&wanted.path).map_err(|error| wrong(archive, &error))?;
        return hand_over(archive, wanted, entry, take);
    }
    let mut tar = open_tar(archive)?;
    for entry in tar.entries().map_err(|error| wrong(archive, &error))?.take(MAX_ENTRIES) {
        let entry = entry.map_err(|error| wrong(archive, &error))?;
        if entry.header().entry_type().is_file() && *entry.path_bytes() == *wanted.path.as_bytes() {
            return hand_over(archive, wanted, entry, take);
        }
    }
    Err(wrong(archive, &format!("`{}` has gone", wanted.path)))
}

fn hand_over(archive: &Path, wanted: &Entry, entry: impl Read, take: Taker<'_>) -> Result<()> {
    // One byte more than declared tells that there is more.
    let mut entry = entry.take(wanted.size.saturating_add(1));
    let mut block = vec![0; BLOCK];
    let mut sum = 0;
    loop {
        let count = entry.read(&mut block).map_err(|error| wrong(archive, &error))?;
        sum += count as u64;
        if sum > wanted.size || count == 0 && sum < wanted.size {
            let problem =
                format!("`{}` does not have the {} bytes that it declares", wanted.path, wanted.size);
            return Err(wrong(archive, &problem));
        }
        match count {
            0 => return Ok(()),
            _ => take(&block[..count])?,
        }
    }
}

/// Text with its numbers as numbers: part10 comes after part9.
fn number_order(path: &str) -> Vec<(String, u64)> {
    let mut pieces = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let words = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let digits = rest[words..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |end| words + end);
        pieces.push((rest[..words].to_owned(), rest[words..digits].parse().unwrap_or(0)));
        rest = &rest[digits..];
    }
    pieces
}

fn is_zip(archive: &Path) -> bool {
    archive.extension().is_some_and(|ending| ending == "whl" || ending == "zip")
}

fn open_zip(archive: &Path) -> Result<zip::ZipArchive<BufReader<File>>> {
    let file = File::open(archive).map_err(|error| wrong(archive, &error))?;
    zip::ZipArchive::new(BufReader::new(file)).map_err(|error| wrong(archive, &error))
}

fn open_tar(archive: &Path) -> Result<tar::Archive<GzDecoder<BufReader<File>>>> {
    let file = File::open(archive).map_err(|error| wrong(archive, &error))?;
    Ok(tar::Archive::new(GzDecoder::new(BufReader::new(file))))
}

fn wrong(archive: &Path, problem: &dyn std::fmt::Display) -> Error {
    let package = archive.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Error::Package { package, problem: format!("it cannot be read: {problem}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn zip_of(folder: &Path, files: &[(&str, &[u8])]) -> std::path::PathBuf {
        let path = folder.join("package.whl");
        let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
        let options =
            zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        for (name, bytes) in files {
            zip.start_file(*name, options).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
        path
    }

    fn tar_of(folder: &Path, files: &[(&str, &[u8])]) -> std::path::PathBuf {
        let path = folder.join("package.tgz");
        let gzip = flate2::write::GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::fast());
        let mut tar = tar::Builder::new(gzip);
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, name, *bytes).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap();
        path
    }

    /// Some file systems flush a file that is cut and written again; a new one costs nothing.
    fn rewrite(path: &Path, bytes: &[u8]) {
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn joined(archive: &Path, pattern: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for entry in entries(archive, pattern)? {
            read(archive, &entry, &mut |part| {
                bytes.extend_from_slice(part);
                Ok(())
            })?;
        }
        Ok(bytes)
    }

    #[test]
    fn parts_are_joined_in_number_order() {
        let folder = tempfile::tempdir().unwrap();
        let files: [(&str, &[u8]); 5] = [
            ("p/data/m.part10", b"three"),
            ("p/data/m.part9", b"two "),
            ("p/__init__.py", b"code"),
            ("p/data/m.part01", b"one "),
            ("p/data/deeper/m.part2", b"not this"),
        ];
        for archive in [zip_of(folder.path(), &files), tar_of(folder.path(), &files)] {
            assert_eq!(joined(&archive, "*/data/*.part*").unwrap(), b"one two three");
            assert_eq!(joined(&archive, "p/data/m.part9").unwrap(), b"two ");
            assert_eq!(entries(&archive, "p/data/**").unwrap().len(), 4);
            assert!(entries(&archive, "nothing").unwrap().is_empty());
        }
    }

    #[test]
    fn a_damaged_archive_is_an_error_whatever_byte_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..2000u32).map(|number| ((number * number) >> 5) as u8).collect();
        let files: [(&str, &[u8]); 1] = [("m.gguf", &content)];
        for archive in [zip_of(folder.path(), &files), tar_of(folder.path(), &files)] {
            let whole = std::fs::read(&archive).unwrap();
            for at in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] ^= 0x55;
                rewrite(&archive, &damaged);
                // Whatever it says, it does not say more than the entry declares, and never panics.
                if let Ok(entries) = entries(&archive, "*") {
                    for entry in entries {
                        let mut sum = 0;
                        let _ = read(&archive, &entry, &mut |part| {
                            sum += part.len() as u64;
                            Ok(())
                        });
                        assert!(sum <= entry.size);
                    }
                }
            }
            for end in (0..whole.len()).step_by(7) {
                rewrite(&archive, &whole[..end]);
                assert!(joined(&archive, "*").map_or(true, |bytes| bytes.is_empty() || bytes == content));
            }
        }
    }
}
