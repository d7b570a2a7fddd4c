//! Whether a file is what was written: sums that are made on the way to the disk, and compared in part at every start, in
//! whole where something is wrong. They find damage, not malice.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::Path;

/// What is read of a file at every start: the tables that say where everything else lies, and a small file whole.
const BEGINNING: u64 = 8 << 20;

/// How much is read and written at once.
const BLOCK: usize = 1 << 20;

/// What a file was when it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sums {
    bytes: u64,
    beginning: u32,
    all: u32,
}

impl Sums {
    /// Whether size and beginning of a file are these.
    pub(super) fn fit_beginning(&self, path: &Path) -> bool {
        let length = std::fs::metadata(path).map(|about| about.len());
        length.is_ok_and(|length| length == self.bytes)
            && sum(path, BEGINNING).is_ok_and(|sum| sum == self.beginning)
    }

    /// Whether all of a file is this.
    pub(super) fn fit(&self, path: &Path) -> bool {
        self.fit_beginning(path) && sum(path, u64::MAX).is_ok_and(|sum| sum == self.all)
    }
}

fn sum(path: &Path, most: u64) -> io::Result<u32> {
    let mut rest = File::open(path)?.take(most);
    let mut block = vec![0; BLOCK];
    let mut sum = crc32fast::Hasher::new();
    loop {
        match rest.read(&mut block)? {
            0 => return Ok(sum.finalize()),
            count => sum.update(&block[..count]),
        }
    }
}

/// A new file that is summed while it is written.
pub(super) struct Written {
    out: BufWriter<File>,
    bytes: u64,
    beginning: crc32fast::Hasher,
    all: crc32fast::Hasher,
    is_full: bool,
}

impl Written {
    pub(super) fn create(path: &Path) -> io::Result<Written> {
        let out = BufWriter::with_capacity(BLOCK, File::create(path)?);
        let new = crc32fast::Hasher::new;
        Ok(Written { out, bytes: 0, beginning: new(), all: new(), is_full: false })
    }

    /// Whether nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The system's words, if there was no room for all.
    pub(super) fn full_disk(&self) -> Option<io::Error> {
        self.is_full.then(|| ErrorKind::StorageFull.into())
    }

    /// Flushes the file to the disk.
    pub(super) fn finish(mut self) -> io::Result<Sums> {
        self.out.flush()?;
        self.out.get_ref().sync_all()?;
        Ok(Sums { bytes: self.bytes, beginning: self.beginning.finalize(), all: self.all.finalize() })
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes).inspect_err(|error| {
            self.is_full |= matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        })?;
        let bytes = &bytes[..written];
        let left = BEGINNING.saturating_sub(self.bytes).min(written as u64);
        self.beginning.update(&bytes[..left as usize]);
        self.all.update(bytes);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_found_at_once_at_the_beginning_and_on_reading_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut bytes = vec![7; BEGINNING as usize + 1000];
        let mut out = Written::create(&path).unwrap();
        for part in bytes.chunks(300_001) {
            out.write_all(part).unwrap();
        }
        let sums = out.finish().unwrap();
        assert!(sums.fit(&path));
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(!sums.fit_beginning(&path), "a file that was cut short");
        *bytes.last_mut().unwrap() = 8;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!((sums.fit_beginning(&path), sums.fit(&path)), (true, false));
        bytes[1000] = 8;
        std::fs::write(&path, &bytes).unwrap();
        assert!(!sums.fit_beginning(&path));
        std::fs::remove_file(&path).unwrap();
        assert!(!sums.fit_beginning(&path));
    }
}
