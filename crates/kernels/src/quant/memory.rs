//! Memory for weights that are brought into another order, or only nearer, when they are loaded.

#[cfg(not(target_family = "wasm"))]
use memmap2::MmapMut;
use pteron_tensor::{ByteOwner, Bytes};
use std::sync::Arc;

/// Least bytes for which pages of their own are asked for.
#[cfg(not(target_family = "wasm"))]
const LEAST_MAPPED: usize = 1 << 20;

/// Memory that begins at a line of the cache.
pub(super) enum Memory {
    /// Few bytes.
    Lines(Vec<Line>),
    /// Pages of their own, huge ones where that can be asked for.
    #[cfg(not(target_family = "wasm"))]
    Pages(MmapMut),
}

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([u8; 64]);

// SAFETY: 64 bytes, without padding; any of them are a line.
unsafe impl bytemuck::Zeroable for Line {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Line {}

impl Memory {
    /// So many zeros, or `None` where the system has no memory for them.
    pub(super) fn zeroed(len: usize) -> Option<Memory> {
        #[cfg(not(target_family = "wasm"))]
        if len >= LEAST_MAPPED {
            let pages = MmapMut::map_anon(len).ok()?;
            // A hint: where it is not taken, pages are small.
            #[cfg(target_os = "linux")]
            let _ = pages.advise(memmap2::Advice::HugePage);
            return Some(Memory::Pages(pages));
        }
        Some(Memory::Lines(vec![Line([0; 64]); len.div_ceil(64)]))
    }

    /// A copy, or `None` where the system has no memory for it.
    pub(super) fn copy_of(bytes: &[u8]) -> Option<Bytes> {
        let mut memory = Memory::zeroed(bytes.len())?;
        memory.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        Bytes::shared(Arc::new(memory), 0..bytes.len())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Memory::Lines(lines) => bytemuck::cast_slice(lines),
            #[cfg(not(target_family = "wasm"))]
            Memory::Pages(pages) => pages,
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Lines(lines) => bytemuck::cast_slice_mut(lines),
            #[cfg(not(target_family = "wasm"))]
            Memory::Pages(pages) => pages,
        }
    }
}

impl ByteOwner for Memory {
    fn bytes(&self) -> &[u8] {
        Memory::bytes(self)
    }
}
