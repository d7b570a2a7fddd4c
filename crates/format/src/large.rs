//! Memory of our own for whole files: anonymous, in huge pages where the system has them, filled by several threads.
//!
//! A decoded token reads every weight once. In pages of 4 KiB, looking up their addresses takes some per cent of that
//! time; in pages of 2 MiB, next to none. Mapped files have small pages on most file systems, so that the bytes are read
//! into memory that is asked for in large ones.

use pteron_tensor::ByteOwner;
use std::fs::File;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Bytes that a thread takes at a time: a few huge pages.
const PART: usize = 8 << 20;

/// More threads than this do not copy faster: memory is the limit.
const MOST_THREADS: usize = 8;

/// Size and alignment of a huge page on the systems that have them.
#[cfg(not(target_family = "wasm"))]
const HUGE_PAGE: usize = 2 << 20;

/// Bytes that nobody else holds, from a huge page's border on.
pub(crate) struct Large {
    #[cfg(not(target_family = "wasm"))]
    map: memmap2::MmapMut,
    #[cfg(target_family = "wasm")]
    map: Vec<u8>,
    start: usize,
    len: usize,
}

impl Large {
    /// So many zeros; an error where there is no room for them.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn zeroed(len: usize) -> io::Result<Large> {
        let room = len.checked_add(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = memmap2::MmapMut::map_anon(room)?;
        // A system that refuses gives small pages, which is no error.
        #[cfg(target_os = "linux")]
        let _ = (len >= HUGE_PAGE).then(|| map.advise(memmap2::Advice::HugePage));
        let address = map.as_ptr() as usize;
        Ok(Large { start: address.next_multiple_of(HUGE_PAGE) - address, map, len })
    }

    /// So many zeros.
    #[cfg(target_family = "wasm")]
    pub(crate) fn zeroed(len: usize) -> io::Result<Large> {
        Ok(Large { map: vec![0; len], start: 0, len })
    }

    /// The same bytes in memory of our own.
    pub(crate) fn copy_of(bytes: &[u8]) -> io::Result<Large> {
        let mut large = Large::zeroed(bytes.len())?;
        large.fill(&|to, from| {
            to.copy_from_slice(&bytes[from..from + to.len()]);
            Ok(())
        })?;
        Ok(large)
    }

    /// The first bytes of a file; an error where it has fewer.
    pub(crate) fn read(file: &File, len: usize) -> io::Result<Large> {
        let mut large = Large::zeroed(len)?;
        large.read_all(file)?;
        Ok(large)
    }

    #[cfg(unix)]
    fn read_all(&mut self, file: &File) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        self.fill(&|to, from| file.read_exact_at(to, from as u64))
    }

    #[cfg(not(unix))]
    fn read_all(&mut self, mut file: &File) -> io::Result<()> {
        io::Read::read_exact(&mut file, self.bytes_mut())
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.len]
    }

    /// Fills parts, each with what lies at its place, on as many threads as help. The first error counts.
    fn fill(&mut self, part: &(dyn Fn(&mut [u8], usize) -> io::Result<()> + Sync)) -> io::Result<()> {
        let bytes = self.bytes_mut();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.min(MOST_THREADS).min(bytes.len().div_ceil(PART));
        let parts = Mutex::new(bytes.chunks_mut(PART).enumerate());
        let work = || -> io::Result<()> {
            loop {
                let next = parts.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((index, to)) = next else { return Ok(()) };
                part(to, index * PART)?;
            }
        };
        std::thread::scope(|scope| {
            // Where the system refuses a thread, the others do its work.
            let start = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
            let others: Vec<_> = (1..threads).filter_map(start).collect();
            let mine = work();
            let join = |result: io::Result<()>, other: std::thread::ScopedJoinHandle<'_, io::Result<()>>| {
                result.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            };
            others.into_iter().fold(mine, join)
        })
    }
}

impl ByteOwner for Large {
    fn bytes(&self) -> &[u8] {
        &self.map[self.start..self.start + self.len]
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn copies_hold_the_same_bytes_at_a_large_border() {
        for len in [0, 1, 4096, PART - 1, PART, 2 * PART + 17] {
            let bytes = pattern(len);
            let copy = Large::copy_of(&bytes).unwrap();
            assert_eq!(copy.bytes(), bytes);
            assert!((copy.bytes().as_ptr() as usize).is_multiple_of(HUGE_PAGE));

            let mut file = tempfile::tempfile().unwrap();
            io::Write::write_all(&mut file, &bytes).unwrap();
            io::Seek::rewind(&mut file).unwrap();
            assert_eq!(Large::read(&file, len).unwrap().bytes(), bytes);
        }
    }

    #[test]
    fn a_file_that_is_too_short_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PART as u64 + 5).unwrap();
        let error = Large::read(&file, 2 * PART).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(Large::zeroed(usize::MAX).is_err());
    }
}
