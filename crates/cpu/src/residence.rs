//! Where weights live: in the mapped file, there but locked, or in memory of their own that is there when the load returns.

use pteron_runtime::LoadMode;
use pteron_tensor::{Bytes, HostTensor};
use std::collections::HashMap;

/// Gives constants the place that a load asks for. Constants that share memory go on sharing it.
#[derive(Default)]
pub(crate) struct Residence {
    /// By address and length: the copy.
    copies: HashMap<(usize, usize), Bytes>,
    /// Bytes that were copied.
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
    pub(crate) fn place(&mut self, tensor: &HostTensor, mode: LoadMode) -> Result<HostTensor, NotResident> {
        let bytes = tensor.bytes();
        match mode {
            LoadMode::Map => Ok(tensor.clone()),
            LoadMode::Lock => {
                // A system that refuses leaves the pages to come and go, which is no error.
                if lock(bytes) {
                    self.locked += bytes.len() as u64;
                }
                Ok(tensor.clone())
            }
            LoadMode::Copy => {
                let key = (bytes.as_ptr() as usize, bytes.len());
                let copy = match self.copies.get(&key) {
                    Some(copy) => copy.clone(),
                    None => {
                        let copy = Bytes::copy_of(bytes);
                        if let Some((missing, pages)) =
                            missing_pages(&copy).filter(|(missing, _)| *missing > 0)
                        {
                            return Err(NotResident { missing, pages });
                        }
                        self.copied += copy.len() as u64;
                        self.copies.insert(key, copy.clone());
                        copy
                    }
                };
                // The copy has the length and a better alignment than what it was made of.
                Ok(HostTensor::new(tensor.dtype(), tensor.shape().to_vec(), copy)
                    .unwrap_or_else(|_| tensor.clone()))
            }
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
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

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    /// This system is not asked.
    pub(super) fn lock(_: &[u8]) -> bool {
        false
    }

    /// This system does not tell.
    pub(super) fn missing_pages(_: &[u8]) -> Option<(usize, usize)> {
        None
    }
}

use system::{lock, missing_pages};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_made_once_and_is_in_memory() {
        let tensor = HostTensor::from_slice(vec![3], &[1f32, 2.0, 3.0]).unwrap();
        let mut residence = Residence::default();
        let first = residence.place(&tensor, LoadMode::Copy).unwrap();
        let second = residence.place(&tensor, LoadMode::Copy).unwrap();
        assert_eq!(first, tensor);
        assert_ne!(first.bytes().as_ptr(), tensor.bytes().as_ptr());
        assert_eq!(first.bytes().as_ptr(), second.bytes().as_ptr());
        assert_eq!(residence.copied, 12);
        assert_eq!(
            residence.place(&tensor, LoadMode::Map).unwrap().bytes().as_ptr(),
            tensor.bytes().as_ptr()
        );
    }
}
