//! Compiled kernels that stay on the disk from one process to the next, as a file for each kind of device. A driver believes
//! what it is given back, so that a file which is cut short, changed or another driver's is never shown to it.

use pteron_aside::AsideError;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// How a file begins; the last byte is the form's number.
const MAGIC: [u8; 8] = *b"PTVKPC\0\x01";

/// The beginning, the checksum, the device.
const HEADER: usize = MAGIC.len() + 4 + IDENTITY;

/// Bytes that tell devices and drivers apart.
const IDENTITY: usize = 28;

/// Larger files are not ours: a hundred kernels take a few MiB.
const MOST_BYTES: u64 = 64 << 20;

/// Which device and driver compiled something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) vendor: u32,
    pub(crate) device: u32,
    pub(crate) driver: u32,
    /// What the driver changes when it no longer reads what it wrote.
    pub(crate) uuid: [u8; 16],
}

impl Identity {
    fn bytes(&self) -> [u8; IDENTITY] {
        let mut bytes = [0; IDENTITY];
        for (place, number) in bytes.chunks_exact_mut(4).zip([self.vendor, self.device, self.driver]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[12..].copy_from_slice(&self.uuid);
        bytes
    }
}

/// The file of a device.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    place: PathBuf,
    identity: Identity,
}

impl Kept {
    /// In this folder, which need not be there yet. A new driver takes the place of the old one's.
    pub(crate) fn new(folder: &Path, identity: Identity) -> Kept {
        let Identity { vendor, device, .. } = identity;
        Kept { place: folder.join(format!("vulkan-{vendor:04x}-{device:04x}.kernels")), identity }
    }

    /// What was kept; `None` where nothing was, or nothing of use.
    pub(crate) fn read(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(&self.place).ok()?;
        let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
        let checked = read.is_ok() && bytes.len() as u64 <= MOST_BYTES && self.is_whole(&bytes);
        if !checked {
            tracing::debug!(place = %self.place.display(), "kept kernels are of another driver, or damaged");
            return None;
        }
        Some(bytes.split_off(HEADER))
    }

    fn is_whole(&self, bytes: &[u8]) -> bool {
        let Some((header, data)) = bytes.split_at_checked(HEADER) else { return false };
        *header == self.header(data)
    }

    fn header(&self, data: &[u8]) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&crc32fast::hash(data).to_le_bytes());
        header[12..].copy_from_slice(&self.identity.bytes());
        header
    }

    /// Keeps what a driver has compiled. A folder that cannot be written to costs only the time to compile it again.
    pub(crate) fn write(&self, data: &[u8]) {
        if HEADER as u64 + data.len() as u64 > MOST_BYTES {
            return;
        }
        let folder = self.place.parent().map_or(Ok(()), std::fs::create_dir_all);
        let failed = |source: io::Error| AsideError { place: self.place.clone(), action: "write", source };
        let written = folder.map_err(failed).and_then(|()| {
            pteron_aside::write_file(&self.place, |out| {
                out.write_all(&self.header(data)).and_then(|()| out.write_all(data)).map_err(failed)
            })
        });
        match written {
            Ok(()) => tracing::debug!(place = %self.place.display(), bytes = data.len(), "kernels were kept"),
            Err(error) => tracing::debug!(%error, "compiled kernels are not kept"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const IDENTITY: Identity = Identity { vendor: 0x10de, device: 0x2335, driver: 7, uuid: [9; 16] };

    #[test]
    fn what_was_kept_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(&folder.path().join("not/there/yet"), IDENTITY);
        assert_eq!(kept.read(), None);
        kept.write(b"compiled");
        assert_eq!(kept.read().unwrap(), b"compiled");
        kept.write(b"");
        assert_eq!(kept.read().unwrap(), b"");
    }

    #[test]
    fn another_driver_finds_nothing_and_takes_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(folder.path(), IDENTITY);
        kept.write(b"compiled");
        let updates = [Identity { driver: 8, ..IDENTITY }, Identity { uuid: [8; 16], ..IDENTITY }];
        for identity in updates {
            let newer = Kept::new(folder.path(), identity);
            assert_eq!(newer.read(), None);
            newer.write(b"anew");
            assert_eq!((kept.read(), newer.read().unwrap()), (None, b"anew".to_vec()));
        }
        Kept::new(folder.path(), Identity { device: 1, ..IDENTITY }).write(b"beside");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn no_driver_sees_a_damaged_file() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(folder.path(), IDENTITY);
        kept.write(b"compiled");
        let whole = fs::read(&kept.place).unwrap();
        for at in 0..whole.len() {
            fs::write(&kept.place, &whole[..at]).unwrap();
            assert_eq!(kept.read(), None, "cut at {at}");
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            fs::write(&kept.place, changed).unwrap();
            assert_eq!(kept.read(), None, "changed at {at}");
        }
        fs::write(&kept.place, &whole).unwrap();
        assert!(kept.read().is_some());
    }

    #[test]
    fn a_place_that_cannot_be_written_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(folder.path(), IDENTITY);
        fs::create_dir(&kept.place).unwrap();
        kept.write(b"compiled");
        assert_eq!(kept.read(), None);
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        let kept = Kept::new(&file, IDENTITY);
        kept.write(b"compiled");
        assert_eq!(kept.read(), None);
    }
}
