//! What the system is asked about memory. Whether weights are there: those of a mapped file are locked there where a load asks for it, and of those that
//! were copied every page is looked at. One that is missing would cost seconds in the middle of a run.

use pteron_runtime::LoadMode;
use pteron_tensor::HostTensor;
use std::collections::HashSet;

/// What was done for the constants of a program; those that share memory are looked at once.
#[derive(Default)]
pub(crate) struct Residence {
    /// By address and length.
    seen: HashSet<(usize, usize)>,
    /// Bytes of copies that are in memory.
    pub(crate) copied: u64,
    /// Bytes that the system has locked.
    pub(crate) locked: u64,
}

/// A copy whose pages are not in memory: somebody took them away, or the copy was never made.
#[derive(Debug, thiserror::Error)]
#[error(
    "{missing} of {pages} pages of a copied weight are not in memory: there is too little of it; `--load map` needs less"
)]
pub(crate) struct NotResident {
    missing: usize,
    pages: usize,
}

impl Residence {
    /// Looks after one constant.
    pub(crate) fn keep(&mut self, tensor: &HostTensor, mode: LoadMode) -> Result<(), NotResident> {
        let bytes = tensor.bytes();
        if matches!(mode, LoadMode::Map | LoadMode::Arrange)
            || !self.seen.insert((bytes.as_ptr() as usize, bytes.len()))
        {
            return Ok(());
        }
        if mode == LoadMode::Lock {
            // A system that refuses leaves the pages to come and go, which is no error.
            self.locked += if lock(bytes) { bytes.len() as u64 } else { 0 };
            return Ok(());
        }
        match missing_pages(bytes) {
            Some((missing, pages)) if missing > 0 => Err(NotResident { missing, pages }),
            _ => {
                self.copied += bytes.len() as u64;
                Ok(())
            }
        }
    }
}

#[cfg(all(any(target_os = "linux", target_os = "android"), not(miri)))]
mod system {
    fn page_size() -> usize {
        // SAFETY: a question without arguments in memory.
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1)
    }

    /// Whether the system now keeps these bytes in memory.
    pub(super) fn lock(bytes: &[u8]) -> bool {
        // SAFETY: the range is mapped, and locking changes nothing that a program can see.
        !bytes.is_empty() && unsafe { libc::mlock(bytes.as_ptr().cast(), bytes.len()) } == 0
    }

    /// Asks for huge pages at the whole ones of a region; a system that has none leaves it as it is.
    pub(crate) fn prefer_huge_pages(data: *mut u8, len: usize) {
        let page = page_size();
        let start = (data as usize).next_multiple_of(page);
        let end = (data as usize + len) / page * page;
        if start < end {
            // SAFETY: whole pages inside the caller's region; how they are backed changes nothing that can be seen.
            let _ = unsafe { libc::madvise(start as *mut _, end - start, libc::MADV_HUGEPAGE) };
        }
    }

    /// Says that the whole pages of these bytes are not needed for long: those of a mapped file are given back, and read again
    /// if somebody looks after all.
    pub(crate) fn rarely_needed(bytes: &[u8]) {
        let page = page_size();
        let start = (bytes.as_ptr() as usize).next_multiple_of(page);
        let end = (bytes.as_ptr() as usize + bytes.len()) / page * page;
        if start < end {
            // SAFETY: whole pages of memory that is mapped; what they hold stays what it is.
            let _ = unsafe { libc::madvise(start as *mut _, end - start, libc::MADV_PAGEOUT) };
        }
    }

    /// Brings the pages of these bytes into memory. A system that cannot do it at once does it when they are read.
    pub(crate) fn bring_in(bytes: &[u8]) {
        let page = page_size();
        let start = bytes.as_ptr() as usize / page * page;
        let end = (bytes.as_ptr() as usize + bytes.len()).next_multiple_of(page);
        if !bytes.is_empty() {
            // SAFETY: whole pages around bytes that are mapped, which are read and not changed.
            let _ = unsafe { libc::madvise(start as *mut _, end - start, libc::MADV_POPULATE_READ) };
        }
    }

    /// Pages of these bytes that are not in memory, and all of them; `None` where the system does not tell.
    pub(super) fn missing_pages(bytes: &[u8]) -> Option<(usize, usize)> {
        let page = page_size();
        let start = bytes.as_ptr() as usize / page * page;
        let end = (bytes.as_ptr() as usize + bytes.len()).next_multiple_of(page);
        let mut seen = vec![0u8; (end - start) / page];
        if seen.is_empty() {
            return Some((0, 0));
        }
        // SAFETY: whole pages around bytes that are mapped, and one byte of answer for each.
        let answer = unsafe { libc::mincore(start as *mut _, end - start, seen.as_mut_ptr()) };
        (answer == 0).then(|| (seen.iter().filter(|&&page| page & 1 == 0).count(), seen.len()))
    }
}

// Miri is a system that is not asked either.
#[cfg(any(miri, not(any(target_os = "linux", target_os = "android"))))]
mod system {
    /// This system is not asked.
    pub(super) fn lock(_: &[u8]) -> bool {
        false
    }

    /// This system is not asked.
    pub(crate) fn prefer_huge_pages(_: *mut u8, _: usize) {}

    /// This system is not told.
    pub(crate) fn rarely_needed(_: &[u8]) {}

    /// This system is not asked.
    pub(crate) fn bring_in(_: &[u8]) {}

    /// This system does not tell.
    pub(super) fn missing_pages(_: &[u8]) -> Option<(usize, usize)> {
        None
    }
}

/// Keeps memory of 256 KiB and more, which is what states, plans and sound take, out of the C library's heap: each such
/// block is mapped by itself and goes back to the system whole. glibc raises that size with whatever is freed, up to
/// 32 MiB; blocks between long-lived ones then leave holes that the next one does not fit, and an hour of speech grows.
///
/// It holds for the whole process, so it is for a program to ask for, at its start, and not for a library. Where the C
/// library is another one, nothing happens.
pub fn map_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: sets a number that the allocator reads; no memory of ours is passed.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10) };
}

pub(crate) use system::{bring_in, prefer_huge_pages, rarely_needed};
use system::{lock, missing_pages};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_in_memory_count_once() {
        let tensor = HostTensor::from_slice(vec![3], &[1f32, 2.0, 3.0]).unwrap();
        let mut residence = Residence::default();
        residence.keep(&tensor, LoadMode::Copy).unwrap();
        residence.keep(&tensor, LoadMode::Copy).unwrap();
        assert_eq!((residence.copied, residence.locked), (12, 0));
        let mut residence = Residence::default();
        residence.keep(&tensor, LoadMode::Map).unwrap();
        assert_eq!((residence.copied, residence.locked), (0, 0));
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn pages_that_nobody_touched_are_missing() {
        // A mapping of its own: allocators, those of sanitizers above all, may touch what they give.
        let untouched = memmap2::MmapMut::map_anon(16 << 20).unwrap();
        let (missing, pages) = missing_pages(&untouched).unwrap();
        assert!(missing + 2 >= pages && pages >= 16 << 20 >> 16, "{missing} of {pages}");
        bring_in(&untouched[5000..8 << 20]);
        let (still, pages) = missing_pages(&untouched).unwrap();
        // Kernels before 5.14 do not know of it.
        assert!(still == missing || still <= pages / 2 + 2, "{still} of {pages}");
    }
}
