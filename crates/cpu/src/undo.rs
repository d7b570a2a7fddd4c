//! What a run has written over in the buffers of a session, so that a run that fails leaves them as they were. Regions
//! are kept by buffer and offset, never by address: whatever becomes of a buffer's memory before a rollback (a snapshot
//! shares it, `write` replaces it), the log finds it again or finds that it has nothing to say about it.

use crate::copy;
use crate::memory::Memory;
use pteron_kernels::pool::Pool;
use pteron_kernels::view::{View, ViewMut};
use pteron_plan::Layout;
use pteron_runtime::backend::GraphId;
use pteron_tensor::DType;
use std::sync::Arc;

/// A buffer of a session: of which graph, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferPlace {
    pub(crate) graph: GraphId,
    pub(crate) buffer: usize,
}

/// A region of a buffer as it was.
struct Entry {
    place: BufferPlace,
    /// Of its first element, in elements from the buffer's beginning.
    offset: usize,
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

impl Undo {
    /// Saves a region that is about to be written; `base` is where its buffer begins.
    pub(crate) fn save(&mut self, pool: &Pool, place: BufferPlace, base: *const u8, region: &View<'_>) {
        let (Some(layout), at) = (Layout::from_parts(region.sizes(), region.strides()), self.bytes.len())
        else {
            return;
        };
        if layout.is_empty() {
            return;
        }
        let dtype = region.dtype();
        let offset = (region.data() as usize).wrapping_sub(base as usize) / dtype.size();
        let len = region.len() * dtype.size();
        self.bytes.resize(at + len, 0);
        copy::to_bytes(pool, region, &mut self.bytes[at..]);
        self.entries.push(Entry { place, offset, dtype, layout, at, len });
    }

    /// Keeps what was written.
    pub(crate) fn forget(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }

    /// Keeps what one buffer holds now: somebody has given it new contents as a whole.
    pub(crate) fn forget_buffer(&mut self, place: BufferPlace) {
        self.entries.retain(|entry| entry.place != place);
    }

    /// Puts everything back, newest first. A buffer that a snapshot shares by now is copied first.
    pub(crate) fn roll_back(&mut self, pool: &Pool, buffers: &mut [Vec<Arc<Memory>>]) {
        for entry in self.entries.drain(..).rev() {
            let BufferPlace { graph, buffer } = entry.place;
            let Some(memory) = buffers.get_mut(graph.0).and_then(|graph| graph.get_mut(buffer)) else {
                continue;
            };
            let (sizes, strides) = (entry.layout.sizes(), entry.layout.strides());
            let bytes = Memory::own(memory).bytes_mut();
            // A region was inside its buffer when it was saved, and buffers keep their sizes.
            if let Some(mut target) = ViewMut::new(bytes, entry.dtype, entry.offset, sizes, strides) {
                copy::from_bytes(pool, &self.bytes[entry.at..entry.at + entry.len], &mut target);
            }
        }
        self.bytes.clear();
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}
