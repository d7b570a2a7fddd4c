//! What a driver has compiled, so that it need not do so again; with a file, not in the next process either.

use crate::kept::Kept;
use ash::vk;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two writes of the file, while kernels are still being made.
const PAUSE: Duration = Duration::from_secs(30);

/// The driver's store of compiled kernels. The device destroys it.
pub(super) struct Compiled {
    /// Null where nothing is kept, or where the driver would not have one.
    pub(super) cache: vk::PipelineCache,
    kept: Option<Kept>,
    unwritten: Mutex<Unwritten>,
}

#[derive(Default)]
struct Unwritten {
    /// Kernels that the file may lack.
    kernels: usize,
    written: Option<Instant>,
    /// The checksum of what the file holds.
    held: Option<u32>,
}

impl Compiled {
    pub(super) fn new(device: &ash::Device, kept: Option<Kept>) -> Compiled {
        let read = kept.as_ref().and_then(Kept::read);
        let held = read.as_deref().map(crc32fast::hash);
        let data = read.unwrap_or_default();
        let cache = kept.as_ref().and_then(|_| {
            let filled = vk::PipelineCacheCreateInfo::default().initial_data(&data);
            // SAFETY: the structure lives until the call returns; the data is empty, or bears the checksum of what a driver of this
            // identity gave, in a folder of the user's own.
            unsafe { device.create_pipeline_cache(&filled, None) }.ok()
        });
        let unwritten = Mutex::new(Unwritten { held, ..Unwritten::default() });
        Compiled { cache: cache.unwrap_or_default(), kept, unwritten }
    }

    /// A kernel was compiled.
    pub(super) fn grew(&self) {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).kernels += 1;
    }

    /// Writes the file if kernels came since: at the end, or unless that was done just now.
    pub(super) fn keep(&self, device: &ash::Device, is_the_end: bool) {
        let Some(kept) = self.kept.as_ref().filter(|_| self.cache != vk::PipelineCache::null()) else {
            return;
        };
        let mut unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = unwritten.written.is_some_and(|written| written.elapsed() < PAUSE);
        if unwritten.kernels == 0 || (is_early && !is_the_end) {
            return;
        }
        // SAFETY: the cache is the device's own and alive.
        let Ok(data) = (unsafe { device.get_pipeline_cache_data(self.cache) }) else { return };
        let held = Some(crc32fast::hash(&data));
        if held != unwritten.held {
            kept.write(&data);
        }
        *unwritten = Unwritten { kernels: 0, written: Some(Instant::now()), held };
    }

    /// # Safety
    ///
    /// No pipeline is made with it afterwards.
    pub(super) unsafe fn destroy(&self, device: &ash::Device) {
        // SAFETY: the caller says so; a null handle is let be.
        unsafe { device.destroy_pipeline_cache(self.cache, None) };
    }
}
