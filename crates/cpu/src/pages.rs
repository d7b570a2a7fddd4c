//! Pages of off-graph caches: keys and values of consecutive rows of a layer, in one piece of memory, with the position
//! that each row holds. Sessions share a page by counting its holders, and who writes one that others hold copies it
//! first. What nobody holds any more goes back to the program's store, so that the next page is there already.

use crate::memory::{ALIGNMENT, Memory};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Rows of a page: a block of keys of attention, so that it reads pages as it reads one piece; small enough that copying
/// one is cheap, and that what a short text leaves empty is little.
pub(crate) const PAGE_ROWS: usize = 64;

/// Bytes of pages that wait for their next use, at most.
const SPARE_BYTES: u64 = 64 << 20;

/// How a page is laid out: keys, then values, each [head, row, feature].
#[derive(Clone, Copy)]
pub(crate) struct PageLayout {
    pub(crate) heads: usize,
    /// At most [`PAGE_ROWS`].
    pub(crate) rows: usize,
    /// Bytes of a row of one head.
    pub(crate) row_bytes: usize,
}

impl PageLayout {
    /// Where values begin.
    pub(crate) fn values_at(self) -> usize {
        (self.heads * self.rows * self.row_bytes).next_multiple_of(ALIGNMENT)
    }

    /// Bytes of a page; `None` where they cannot be counted.
    pub(crate) fn bytes(self) -> Option<usize> {
        let half = self.heads.checked_mul(self.rows)?.checked_mul(self.row_bytes)?;
        half.checked_next_multiple_of(ALIGNMENT)?.checked_mul(2)
    }

    /// Where some rows lie: keys before values, head by head.
    fn parts(self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        [0, self.values_at()].into_iter().flat_map(move |first| {
            let rows = rows.clone();
            (0..self.heads).map(move |head| {
                let at = |row: usize| first + (head * self.rows + row) * self.row_bytes;
                at(rows.start)..at(rows.end)
            })
        })
    }
}

/// A page.
pub(crate) struct Page {
    memory: Memory,
    /// One more than the position that each row holds; 0 where nothing was written yet, and the row is zero.
    pub(crate) held: [usize; PAGE_ROWS],
    home: Arc<PageStore>,
}

impl Page {
    /// The page itself, where nobody else holds it; else a copy of it in its place. `None` where no memory is left.
    pub(crate) fn own(shared: &mut Arc<Page>) -> Option<&mut Page> {
        if Arc::get_mut(shared).is_none() {
            let mut copy = shared.home.blank(shared.len())?;
            copy.memory.bytes_mut().copy_from_slice(shared.memory.bytes());
            copy.held = shared.held;
            *shared = Arc::new(copy);
        }
        Arc::get_mut(shared)
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    /// Where keys begin.
    pub(crate) fn data(&self) -> *const u8 {
        self.memory.bytes().as_ptr()
    }

    /// Where keys begin, for kernels that write there.
    pub(crate) fn data_mut(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr()
    }

    /// The bytes of some rows, part by part.
    pub(crate) fn parts(&self, layout: PageLayout, rows: Range<usize>) -> impl Iterator<Item = &[u8]> {
        layout.parts(rows).map(|part| &self.memory.bytes()[part])
    }

    /// Puts back what [`Page::parts`] gave.
    pub(crate) fn put_back(&mut self, layout: PageLayout, rows: Range<usize>, mut bytes: &[u8]) {
        for part in layout.parts(rows) {
            let (old, rest) = bytes.split_at(part.len());
            self.memory.bytes_mut()[part].copy_from_slice(old);
            bytes = rest;
        }
    }

    /// Zeros in some rows.
    pub(crate) fn clear(&mut self, layout: PageLayout, rows: Range<usize>) {
        layout.parts(rows).for_each(|part| self.memory.bytes_mut()[part].fill(0));
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.home.put(std::mem::replace(&mut self.memory, Memory::zeroed(0)));
    }
}

/// The pages of a program: what sessions hold is counted, what they have given up waits here.
#[derive(Default)]
pub(crate) struct PageStore {
    spare: Mutex<Spare>,
    held: AtomicU64,
}

#[derive(Default)]
struct Spare {
    pages: Vec<Memory>,
    bytes: u64,
}

impl PageStore {
    /// A page of zeros that holds nothing yet. `None` where no memory is left.
    pub(crate) fn zeroed(self: &Arc<PageStore>, bytes: usize) -> Option<Page> {
        let mut page = self.blank(bytes)?;
        page.memory.bytes_mut().fill(0);
        Some(page)
    }

    /// A page that holds nothing yet, whatever its bytes are. `None` where no memory is left.
    fn blank(self: &Arc<PageStore>, bytes: usize) -> Option<Page> {
        let memory = self.spare(bytes).or_else(|| Memory::try_zeroed(bytes))?;
        self.held.fetch_add(bytes as u64, Ordering::Relaxed);
        Some(Page { memory, held: [0; PAGE_ROWS], home: self.clone() })
    }

    /// Bytes of all pages that sessions and snapshots hold, each counted once, and of those that wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed) + self.spare.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }

    /// The memory of a page that nobody holds.
    fn spare(&self, bytes: usize) -> Option<Memory> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let fit = spare.pages.iter().rposition(|page| page.len() == bytes)?;
        spare.bytes -= bytes as u64;
        Some(spare.pages.swap_remove(fit))
    }

    fn put(&self, memory: Memory) {
        let bytes = memory.len() as u64;
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.bytes + bytes <= SPARE_BYTES {
            spare.bytes += bytes;
            spare.pages.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: PageLayout = PageLayout { heads: 2, rows: 3, row_bytes: 8 };

    #[test]
    fn parts_are_keys_before_values_head_by_head() {
        let parts: Vec<_> = LAYOUT.parts(1..3).collect();
        assert_eq!(parts, [8..24, 32..48, 72..88, 96..112]);
        assert_eq!((LAYOUT.values_at(), LAYOUT.bytes()), (64, Some(128)));
        assert_eq!(PageLayout { heads: usize::MAX / 4, ..LAYOUT }.bytes(), None);
    }

    #[test]
    fn pages_that_nobody_holds_are_used_again_and_hold_zeros() {
        let store = Arc::new(PageStore::default());
        let mut page = Arc::new(store.zeroed(128).unwrap());
        let own = Page::own(&mut page).unwrap();
        own.put_back(LAYOUT, 0..3, &[7; 96]);
        let at = page.data();
        let mut other = page.clone();
        assert_eq!(store.bytes(), 128);
        assert!(Page::own(&mut other).unwrap().data() != at);
        assert_eq!((store.bytes(), other.parts(LAYOUT, 2..3).next().unwrap()), (256, [7; 8].as_slice()));
        drop(page);
        assert_eq!(store.bytes(), 256, "what waits is counted");
        let again = store.zeroed(128).unwrap();
        assert_eq!((again.data(), store.bytes()), (at, 256));
        assert!(again.parts(LAYOUT, 0..3).all(|part| part.iter().all(|&byte| byte == 0)));
    }

    #[test]
    fn what_waits_is_bounded() {
        let store = Arc::new(PageStore::default());
        let bytes = SPARE_BYTES as usize / 4;
        let pages: Vec<_> = (0..6).map(|_| store.zeroed(bytes).unwrap()).collect();
        assert_eq!(store.bytes(), 6 * bytes as u64);
        drop(pages);
        assert_eq!(store.bytes(), SPARE_BYTES);
    }
}
