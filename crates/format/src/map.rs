//! Files as bytes: mapped where that pays and the platform can, or read into memory of our own.
//!
//! The one place of this crate that maps files. Paths flow in, [`Bytes`] that keep the file alive flow out; what the
//! bytes mean is not known here.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use pteron_tensor::{ByteOwner, Bytes};

use crate::large::Large;
use crate::{FormatError, Limits, Place, Result};

/// Files below this are read, not mapped. Touching a mapping past the end of a file that somebody cut short ends
/// the process; a copy cannot be cut short, and a megabyte takes less time to read than a program to plan.
/// Larger files are weights, where the copy would double the memory.
pub const MAPPED_FROM: u64 = 1 << 20;

/// A file that was opened, with what it looked like then.
pub struct MappedFile {
    path: PathBuf,
    content: Content,
}

enum Content {
    /// A copy, which nobody else can change.
    Copied(Large),
    #[cfg(not(target_family = "wasm"))]
    Mapped { map: memmap2::Mmap, file: File, seen: Seen },
}

/// What tells a changed file from an unchanged one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    len: u64,
    modified: Option<SystemTime>,
}

impl Seen {
    fn of(file: &File, path: &Path) -> Result<Seen> {
        let metadata = file.metadata().map_err(|source| io(path, "inspect", source))?;
        Ok(Seen { len: metadata.len(), modified: metadata.modified().ok() })
    }

    fn check(self, now: Seen, path: &Path) -> Result<()> {
        let what = match () {
            () if now.len != self.len => format!("it had {} bytes, now {}", self.len, now.len),
            () if now.modified != self.modified => "its modification time differs".into(),
            () => return Ok(()),
        };
        Err(FormatError::Changed { path: path.into(), what })
    }
}

fn io(path: &Path, action: &'static str, source: std::io::Error) -> FormatError {
    FormatError::Io { path: path.into(), action, source }
}

impl MappedFile {
    /// Opens a file: a small one is copied, a large one mapped where the platform can.
    pub fn open(path: &Path, limits: &Limits) -> Result<Arc<MappedFile>> {
        let (file, seen) = MappedFile::inspect(path, limits)?;
        #[cfg(not(target_family = "wasm"))]
        if seen.len >= MAPPED_FROM {
            return MappedFile::map(path, file, seen);
        }
        MappedFile::copy(path, file, seen)
    }

    /// Reads a file of any size into memory of its own, in huge pages where the system has them, so that nothing that
    /// happens to it later matters.
    pub fn read(path: &Path, limits: &Limits) -> Result<Arc<MappedFile>> {
        let (file, seen) = MappedFile::inspect(path, limits)?;
        MappedFile::copy(path, file, seen)
    }

    fn inspect(path: &Path, limits: &Limits) -> Result<(File, Seen)> {
        let metadata = std::fs::metadata(path).map_err(|source| io(path, "open", source))?;
        if !metadata.is_file() {
            // Opening a pipe would wait for somebody to write to it.
            return Err(io(path, "open", std::io::Error::other("it is not a regular file")));
        }
        let file = File::open(path).map_err(|source| io(path, "open", source))?;
        let seen = Seen::of(&file, path)?;
        let place = || Place::at(path.display().to_string());
        FormatError::check_limit("file_bytes", seen.len, limits.file_bytes, place)?;
        Ok((file, seen))
    }

    fn copy(path: &Path, file: File, seen: Seen) -> Result<Arc<MappedFile>> {
        let len = usize::try_from(seen.len)
            .map_err(|_| io(path, "read", std::io::ErrorKind::OutOfMemory.into()))?;
        let read = Large::read(&file, len);
        // A file that was cut short in the meantime is that, and not one that cannot be read.
        seen.check(Seen::of(&file, path)?, path)?;
        let bytes = read.map_err(|source| io(path, "read", source))?;
        Ok(Arc::new(MappedFile { path: path.into(), content: Content::Copied(bytes) }))
    }

    #[cfg(not(target_family = "wasm"))]
    #[allow(unsafe_code)]
    fn map(path: &Path, file: File, seen: Seen) -> Result<Arc<MappedFile>> {
        // SAFETY: the mapping is read-only and lives as long as `Mmap`, which `MappedFile` owns and only lends.
        // Its bytes can still change when another process writes into the file. No memory safety rests on
        // their value: they are read as plain numbers behind bounds that come from the mapping's length, which
        // does not change, and text is copied out as it is checked. `check_unchanged` reports such a change.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|source| io(path, "map", source))?;
        seen.check(Seen::of(&file, path)?, path)?;
        Ok(Arc::new(MappedFile { path: path.into(), content: Content::Mapped { map, file, seen } }))
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the bytes are those of the file itself, not a copy.
    pub fn is_mapped(&self) -> bool {
        match &self.content {
            Content::Copied(_) => false,
            #[cfg(not(target_family = "wasm"))]
            Content::Mapped { .. } => true,
        }
    }

    /// Fails if a mapped file was cut short or written into since it was opened. Call it before trusting the
    /// bytes again after a pause; replacing the file by rename is harmless and is not reported.
    pub fn check_unchanged(&self) -> Result<()> {
        match &self.content {
            Content::Copied(_) => Ok(()),
            #[cfg(not(target_family = "wasm"))]
            Content::Mapped { file, seen, .. } => seen.check(Seen::of(file, &self.path)?, &self.path),
        }
    }

    /// All bytes of the file, shared.
    pub fn to_bytes(self: &Arc<MappedFile>) -> Bytes {
        share(self.clone())
    }
}

impl ByteOwner for MappedFile {
    fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Copied(bytes) => bytes.bytes(),
            #[cfg(not(target_family = "wasm"))]
            Content::Mapped { map, .. } => map,
        }
    }
}

/// All bytes of an owner; slices of them are shared, never copied.
pub(crate) fn share(owner: Arc<dyn ByteOwner>) -> Bytes {
    let len = owner.bytes().len();
    // The whole range always lies inside the owner.
    Bytes::shared(owner, 0..len).unwrap_or_else(|| Bytes::zeroed(0))
}

/// A copy of bytes in memory of its own, in huge pages where the system has them; slices of it are shared.
pub fn copied(bytes: &[u8]) -> std::io::Result<Bytes> {
    Ok(share(Arc::new(Large::copy_of(bytes)?)))
}

/// The same bytes so that slices are shared: slicing owned [`Bytes`] copies.
pub fn shared(bytes: Bytes) -> Bytes {
    struct Held(Bytes);
    impl ByteOwner for Held {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }
    share(Arc::new(Held(bytes)))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn small_files_are_copied_and_large_ones_mapped() {
        let folder = tempfile::tempdir().unwrap();
        for (len, mapped) in [(0, false), (100, false), (MAPPED_FROM as usize, true)] {
            let path = folder.path().join(len.to_string());
            std::fs::write(&path, vec![7u8; len]).unwrap();
            let file = MappedFile::open(&path, &Limits::default()).unwrap();
            assert_eq!(file.is_mapped(), mapped);
            assert_eq!(&*file.to_bytes(), &vec![7u8; len]);
            assert!(!MappedFile::read(&path, &Limits::default()).unwrap().is_mapped());
        }
    }

    #[test]
    fn changes_of_a_mapped_file_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        std::fs::write(&path, vec![1u8; 2 << 20]).unwrap();
        let file = MappedFile::open(&path, &Limits::default()).unwrap();
        file.check_unchanged().unwrap();

        let beside = folder.path().join("new");
        std::fs::write(&beside, b"other").unwrap();
        std::fs::rename(&beside, &path).unwrap();
        file.check_unchanged().unwrap();
        assert_eq!(file.to_bytes()[0], 1, "the mapping keeps the old file");

        std::fs::write(&path, vec![1u8; 2 << 20]).unwrap();
        let file = MappedFile::open(&path, &Limits::default()).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
        let error = file.check_unchanged().unwrap_err().to_string();
        assert!(error.contains("it had 2097152 bytes, now 4096"), "{error}");

        let file = MappedFile::read(&path, &Limits::default()).unwrap();
        std::fs::File::options().append(true).open(&path).unwrap().write_all(b"x").unwrap();
        file.check_unchanged().unwrap();
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { file_bytes: 3, ..Limits::default() };
        assert!(MappedFile::open(folder.path(), &limits).is_err());
        assert!(MappedFile::open(&folder.path().join("absent"), &limits).is_err());
        let path = folder.path().join("four");
        std::fs::write(&path, b"four").unwrap();
        let error = MappedFile::open(&path, &limits).err().unwrap();
        assert!(matches!(error, FormatError::Limit { limit: "file_bytes", .. }), "{error}");
    }
}
