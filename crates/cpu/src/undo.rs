//! What a run has written over in the buffers of a session, so that a run that fails leaves them as they were.

use crate::layout::Layout;
use crate::ops::copy;
use pteron_kernels::pool::Pool;
use pteron_kernels::view::{View, ViewMut};
use pteron_tensor::DType;

/// A region of a buffer as it was.
struct Entry {
    data: *mut u8,
    dtype: DType,
    layout: Layout,
    /// Where its bytes begin in the log.
    at: usize,
    len: usize,
}

/// The regions written since the last commit, oldest first. Its memory is kept from run to run.
#[derive(Default)]
pub(crate) struct Undo {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

// SAFETY: entries point into buffers of the session that owns the log; both move between threads together.
unsafe impl Send for Undo {}

impl Undo {
    /// Saves a region that is about to be written.
    pub(crate) fn save(&mut self, pool: &Pool, region: &View<'_>) {
        let (Some(layout), at) = (Layout::from_parts(region.sizes(), region.strides()), self.bytes.len())
        else {
            return;
        };
        let len = region.len() * region.dtype().size();
        self.bytes.resize(at + len, 0);
        copy::to_bytes(pool, region, &mut self.bytes[at..]);
        let data = region.data().cast_mut();
        self.entries.push(Entry { data, dtype: region.dtype(), layout, at, len });
    }

    /// Keeps what was written.
    pub(crate) fn forget(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }

    /// Puts everything back, newest first.
    ///
    /// # Safety
    /// The buffers whose regions were saved are still where they were, and nobody else uses them.
    pub(crate) unsafe fn roll_back(&mut self, pool: &Pool) {
        for entry in self.entries.drain(..).rev() {
            let (sizes, strides) = (entry.layout.sizes(), entry.layout.strides());
            // SAFETY: the region was a valid view when it was saved, and by the caller's word still is.
            let target = unsafe { ViewMut::from_raw(entry.data, entry.dtype, sizes, strides) };
            copy::from_bytes(pool, &self.bytes[entry.at..entry.at + entry.len], &target);
        }
        self.bytes.clear();
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}
