//! Memory of sessions and runs: zeroed, aligned for the widest vectors, and never moved while it lives.

use crate::residence::prefer_huge_pages;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

/// Where regions begin: a cache line, which is also the widest vector.
pub(crate) const ALIGNMENT: usize = 64;

/// Size and alignment of a huge page: regions that have room for one ask for them, so that addresses are looked up
/// less often.
const HUGE_PAGE: usize = 2 << 20;

/// A region of bytes.
pub(crate) struct Memory {
    data: NonNull<u8>,
    len: usize,
}

// SAFETY: the region is owned and has no interior state; who may touch it when is decided by the borrow of the
// session or run that owns it.
unsafe impl Send for Memory {}
// SAFETY: as above: shared references only read.
unsafe impl Sync for Memory {}

impl Memory {
    /// `len` zero bytes.
    ///
    /// # Panics
    /// When `len` is more than half the address space, which no limit lets through.
    pub(crate) fn zeroed(len: usize) -> Memory {
        Memory::try_zeroed(len).unwrap_or_else(|| handle_alloc_error(Memory::layout(len)))
    }

    /// `len` zero bytes; `None` where the system has no more.
    ///
    /// # Panics
    /// As [`Memory::zeroed`].
    pub(crate) fn try_zeroed(len: usize) -> Option<Memory> {
        let data = Memory::allocate(len)?;
        // SAFETY: `len` bytes of our own, of which nobody else knows.
        unsafe { data.as_ptr().write_bytes(0, len) };
        Some(Memory { data, len })
    }

    /// A copy of `bytes`.
    pub(crate) fn copy_of(bytes: &[u8]) -> Memory {
        let len = bytes.len();
        let data = Memory::allocate(len).unwrap_or_else(|| handle_alloc_error(Memory::layout(len)));
        // SAFETY: `len` bytes of our own, of which nobody else knows, and as many to read.
        unsafe { data.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), len) };
        Memory { data, len }
    }

    /// `len` bytes that nobody has set yet.
    fn allocate(len: usize) -> Option<NonNull<u8>> {
        if len == 0 {
            return Some(NonNull::<u64>::dangling().cast());
        }
        // SAFETY: the size is not zero.
        let data = NonNull::new(unsafe { alloc(Memory::layout(len)) })?;
        if len >= HUGE_PAGE {
            prefer_huge_pages(data.as_ptr(), len);
        }
        Some(data)
    }

    /// The region itself, where nobody else holds it; else a copy of it in its place.
    pub(crate) fn own(shared: &mut Arc<Memory>) -> &mut Memory {
        Arc::make_mut(shared)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the region has `len` bytes, all of them set.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }

    /// Where it begins, for kernels that write to it.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.data.as_ptr()
    }

    /// Where it begins; to write there takes a proof that nobody else uses it.
    pub(crate) fn address(&self) -> *mut u8 {
        self.data.as_ptr()
    }

    fn layout(len: usize) -> Layout {
        let alignment = if len >= HUGE_PAGE { HUGE_PAGE } else { ALIGNMENT };
        Layout::from_size_align(len, alignment).expect("a size within the limits")
    }
}

/// Where the region of a run begins.
#[derive(Clone, Copy)]
pub(crate) struct Region(*mut u8);

// SAFETY: an address and nothing more; the region belongs to one run, which may move from thread to thread.
unsafe impl Send for Region {}

impl Region {
    pub(crate) fn new(data: *mut u8) -> Region {
        Region(data)
    }

    /// The byte at an offset.
    #[inline]
    pub(crate) fn at(self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }
}

impl Clone for Memory {
    fn clone(&self) -> Memory {
        Memory::copy_of(self.bytes())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.data.as_ptr(), Memory::layout(self.len)) };
        }
    }
}
