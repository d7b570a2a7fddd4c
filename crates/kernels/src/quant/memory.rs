//! Memory for weights that are brought into another order, or only nearer, when they are loaded: parts of large blocks that begin
//! at a huge page, so that small weights lie in huge pages too.

use pteron_tensor::{ByteOwner, Bytes};
use std::sync::Arc;

/// Where parts begin: at a line of the cache.
const ALIGNMENT: usize = 64;

/// Bytes, all of which belong to one holder.
pub(super) struct Memory {
    block: Arc<Block>,
    start: usize,
    len: usize,
}

impl Memory {
    /// So many zeros, or `None` where the system has no memory for them.
    pub(super) fn zeroed(len: usize) -> Option<Memory> {
        let (block, start) = block::part(len.checked_next_multiple_of(ALIGNMENT)?)?;
        Some(Memory { block, start, len })
    }

    /// A copy, or `None` where the system has no memory for it.
    pub(super) fn copy_of(bytes: &[u8]) -> Option<Bytes> {
        let mut memory = Memory::zeroed(bytes.len())?;
        memory.bytes_mut().copy_from_slice(bytes);
        Bytes::shared(Arc::new(memory), 0..bytes.len())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: a part of a block is lent once, to this holder, and lies inside the block.
        unsafe { std::slice::from_raw_parts(self.block.data().add(self.start), self.len) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the holder is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.block.data().add(self.start), self.len) }
    }
}

impl ByteOwner for Memory {
    fn bytes(&self) -> &[u8] {
        Memory::bytes(self)
    }
}

use block::Block;

#[cfg(not(any(miri, target_family = "wasm")))]
mod block {
    use memmap2::{MmapMut, MmapOptions};
    use std::sync::{Arc, Mutex, PoisonError, Weak};

    /// A huge page of most systems.
    const HUGE_PAGE: usize = 2 << 20;
    /// Bytes of a block that several parts share.
    const SHARED: usize = 64 << 20;

    /// Pages from which parts are lent, each once. They are given back with the last part.
    pub(super) struct Block {
        data: *mut u8,
        _pages: MmapMut,
    }

    // SAFETY: the pages are reached by way of parts alone, each of which has one holder.
    unsafe impl Send for Block {}
    // SAFETY: as above.
    unsafe impl Sync for Block {}

    impl Block {
        fn new(len: usize) -> Option<Block> {
            let mut pages = MmapOptions::new().len(len.checked_add(HUGE_PAGE)?).map_anon().ok()?;
            // A hint: where it is not taken, pages are small.
            #[cfg(target_os = "linux")]
            let _ = pages.advise(memmap2::Advice::HugePage);
            let to_border = pages.as_ptr().align_offset(HUGE_PAGE) % HUGE_PAGE;
            Some(Block { data: pages.as_mut_ptr().wrapping_add(to_border), _pages: pages })
        }

        pub(super) fn data(&self) -> *mut u8 {
            self.data
        }
    }

    /// A part of the block that the last one was of, where there is room, or else of a new one; where it begins.
    pub(super) fn part(len: usize) -> Option<(Arc<Block>, usize)> {
        static LAST: Mutex<(Weak<Block>, usize)> = Mutex::new((Weak::new(), 0));
        if len >= SHARED / 4 {
            return Some((Arc::new(Block::new(len)?), 0));
        }
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let (block, used) = &mut *last;
        if let Some(shared) = block.upgrade().filter(|_| *used + len <= SHARED) {
            let start = *used;
            *used += len;
            return Some((shared, start));
        }
        let new = Arc::new(Block::new(SHARED)?);
        *last = (Arc::downgrade(&new), len);
        Some((new, 0))
    }
}

// Where there are no pages to ask for, and under Miri, which knows none: memory like any other.
#[cfg(any(miri, target_family = "wasm"))]
mod block {
    use std::cell::UnsafeCell;
    use std::sync::Arc;

    #[repr(C, align(64))]
    struct Line(UnsafeCell<[u8; 64]>);

    /// Memory of one part.
    pub(super) struct Block(Vec<Line>);

    // SAFETY: reached by way of its one part alone.
    unsafe impl Sync for Block {}

    impl Block {
        pub(super) fn data(&self) -> *mut u8 {
            self.0.as_ptr().cast_mut().cast()
        }
    }

    /// All of a new block.
    pub(super) fn part(len: usize) -> Option<(Arc<Block>, usize)> {
        let lines = (0..len / 64).map(|_| Line(UnsafeCell::new([0; 64])));
        Some((Arc::new(Block(lines.collect())), 0))
    }
}
