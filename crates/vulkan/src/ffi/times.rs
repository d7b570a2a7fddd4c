//! When kernels end on the device: a timestamp behind each of them, where the log asks for it (`trace`). Kernels that run beside each
//! other share their time by the order in which they end.

use super::device::Device;
use super::failed;
use super::recording::Bound;
use crate::error::VulkanError;
use ash::vk;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Timestamps of a recording.
pub(super) struct Times {
    device: Arc<Device>,
    pool: vk::QueryPool,
    /// By kernel, over all runs.
    ticks: Vec<u64>,
    runs: u64,
}

impl Times {
    /// Room for so many kernels; `None` where nobody listens or the device has no clock.
    pub(super) fn new(device: &Arc<Device>, kernels: usize) -> Result<Option<Times>, VulkanError> {
        if device.adapter.tick_nanoseconds <= 0.0 || !tracing::enabled!(tracing::Level::TRACE) {
            return Ok(None);
        }
        let create = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(kernels as u32 + 1);
        // SAFETY: the structure lives until the call returns; the pool is this value's own.
        let pool =
            unsafe { device.device.create_query_pool(&create, None) }.map_err(failed("vkCreateQueryPool"))?;
        Ok(Some(Times { device: device.clone(), pool, ticks: vec![0; kernels], runs: 0 }))
    }

    /// # Safety
    ///
    /// The commands are being recorded, and outlived by this value.
    pub(super) unsafe fn begin(&self, commands: vk::CommandBuffer) {
        // SAFETY: the caller says so; the pool has one more query than there are kernels.
        unsafe {
            let raw = &self.device.device;
            raw.cmd_reset_query_pool(commands, self.pool, 0, self.ticks.len() as u32 + 1);
            raw.cmd_write_timestamp(commands, vk::PipelineStageFlags::BOTTOM_OF_PIPE, self.pool, 0);
        }
    }

    /// # Safety
    ///
    /// As for [`Times::begin`]; the number is that of one of the kernels.
    pub(super) unsafe fn mark(&self, commands: vk::CommandBuffer, number: usize) {
        let stage = vk::PipelineStageFlags::COMPUTE_SHADER;
        // SAFETY: the caller says so.
        unsafe { self.device.device.cmd_write_timestamp(commands, stage, self.pool, number as u32 + 1) };
    }

    /// Adds the times of a run that has ended.
    pub(super) fn read(&mut self) -> Result<(), VulkanError> {
        let mut ends = vec![0u64; self.ticks.len() + 1];
        // SAFETY: the run was waited for, so that all queries have their results.
        unsafe {
            let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
            let read = self.device.device.get_query_pool_results(self.pool, 0, &mut ends, flags);
            read.map_err(failed("vkGetQueryPoolResults"))?;
        }
        for (ticks, pair) in self.ticks.iter_mut().zip(ends.windows(2)) {
            *ticks += pair[1].saturating_sub(pair[0]);
        }
        self.runs += 1;
        Ok(())
    }

    /// Says what kinds of kernels have taken, by run.
    pub(super) fn tell(&self, bound: &[Bound]) {
        let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for (one, ticks) in bound.iter().zip(&self.ticks) {
            let kind = kinds.entry(format!("{:?}", one.kernel)).or_default();
            *kind = (kind.0 + 1, kind.1 + ticks);
        }
        let micros = |ticks: u64| {
            ticks as f64 * f64::from(self.device.adapter.tick_nanoseconds) / 1000.0 / self.runs.max(1) as f64
        };
        let (all, runs, kernels) = (micros(self.ticks.iter().sum()), self.runs, bound.len());
        tracing::trace!(runs, kernels, us = all, "a recording ran");
        for (kind, (count, ticks)) in kinds {
            tracing::trace!(count, us = micros(ticks), kind, "of that");
        }
    }
}

impl Drop for Times {
    fn drop(&mut self) {
        // SAFETY: every run is waited for, so that nothing uses the pool.
        unsafe { self.device.device.destroy_query_pool(self.pool, None) };
    }
}
