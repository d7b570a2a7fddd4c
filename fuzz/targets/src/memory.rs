//! An allocator that counts, so that a target can say how much memory a call may have at once.

#![allow(unsafe_code)] // an allocator cannot be written otherwise

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counted;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counted = Counted;

fn add(bytes: usize) {
    PEAK.fetch_max(LIVE.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above; the memory came from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new are there at once while the contents move.
        add(size);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above; the memory came from the system's allocator.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Bytes that are held now.
pub fn held() -> usize {
    LIVE.load(Relaxed)
}

/// Does something that may hold no more than `limit` bytes at any time, beside what is held already.
pub fn within<T>(limit: usize, what: &str, work: impl FnOnce() -> T) -> T {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let done = work();
    let held = PEAK.load(Relaxed).saturating_sub(before);
    assert!(held <= limit, "{what} held {held} bytes; its bound is {limit}");
    done
}
