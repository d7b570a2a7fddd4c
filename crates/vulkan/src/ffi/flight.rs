//! Commands that were submitted and may still run: who waits for them, and what they tell the host.
//!
//! The queue runs what it is given in order, and a fence says that everything up to it has ended. So it is enough to wait for the last
//! flight before memory is freed or changed that any of them might use; what belongs to one flight alone waits for that.

use super::device::Device;
use super::memory::Buffer;
use crate::error::VulkanError;
use ash::vk;
use pteron_gpu::REPORT_WORDS;
use std::sync::{Arc, OnceLock};

/// What a run tells the host.
pub(crate) type Report = [u32; REPORT_WORDS];

/// A submission: its fence, and what came of it once somebody has waited.
pub(super) struct Submission {
    pub(super) fence: vk::Fence,
    pub(super) outcome: OnceLock<Result<(), VulkanError>>,
}

/// A submission with what it tells.
pub(crate) struct Flight {
    device: Arc<Device>,
    submission: Arc<Submission>,
    /// Where its kernels leave their report; nobody writes there before it has been read.
    report: Option<Arc<Buffer>>,
    told: OnceLock<Result<Report, VulkanError>>,
}

impl Flight {
    pub(super) fn new(
        device: Arc<Device>,
        submission: Arc<Submission>,
        report: Option<Arc<Buffer>>,
    ) -> Flight {
        Flight { device, submission, report, told: OnceLock::new() }
    }

    /// Waits for its end; what it tells.
    pub(crate) fn wait(&self) -> Result<Report, VulkanError> {
        let told = self.told.get_or_init(|| {
            self.device.wait_for(&self.submission)?;
            let mut words = [0u8; REPORT_WORDS * 4];
            if let Some(report) = &self.report {
                report.read_landed(0, &mut words)?;
            }
            let mut report: Report = [0; REPORT_WORDS];
            for (word, bytes) in report.iter_mut().zip(words.chunks_exact(4)) {
                *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
            Ok(report)
        });
        told.clone()
    }

    /// What came of it, where that is known already.
    pub(crate) fn told(&self) -> Option<&Result<Report, VulkanError>> {
        self.told.get()
    }

    /// Whether it has ended; what it tells is kept then.
    pub(crate) fn has_landed(&self) -> bool {
        if self.told.get().is_none() && self.device.is_over(&self.submission) {
            let _ = self.wait();
        }
        self.told.get().is_some()
    }
}
