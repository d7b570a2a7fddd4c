//! A device that is open: its queue, the layouts and pipelines that kernels share, and commands that run once.

use super::failed;
use super::instance::{Adapter, Instance, Kind};
use super::pipeline::{Layouts, Pipeline};
use crate::counts::Counts;
use crate::error::VulkanError;
use ash::vk;
use pteron_gpu::Kernel;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a submission may take before the device counts as hanging.
const PATIENCE_SECONDS: u64 = 300;

/// How long a run is asked for its end without a pause.
const EAGER: Duration = Duration::from_millis(4);

/// An open device.
pub(crate) struct Device {
    pub(super) device: ash::Device,
    pub(crate) adapter: Adapter,
    /// The queue: whoever holds it is the only one to submit, and waits before letting go.
    queue: Mutex<vk::Queue>,
    pub(super) layouts: Layouts,
    pipelines: Mutex<HashMap<Kernel, Arc<Pipeline>>>,
    counts: Mutex<Counts>,
    _instance: Arc<Instance>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is locked here is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// Opens a device.
    pub(crate) fn open(instance: Arc<Instance>, adapter: Adapter) -> Result<Arc<Device>, VulkanError> {
        let priorities = [1.0];
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(adapter.family)
            .queue_priorities(&priorities)];
        let features = vk::PhysicalDeviceFeatures::default().shader_int64(adapter.has_int64);
        let create = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_features(&features);
        // SAFETY: the adapter is the instance's, its family computes, and only features that it has are asked for.
        let device = unsafe { instance.instance.create_device(adapter.physical, &create, None) }
            .map_err(failed("vkCreateDevice"))?;
        // SAFETY: one queue of this family was asked for above.
        let queue = unsafe { device.get_device_queue(adapter.family, 0) };
        Ok(Arc::new(Device {
            device,
            adapter,
            queue: Mutex::new(queue),
            layouts: Layouts::default(),
            pipelines: Mutex::default(),
            counts: Mutex::default(),
            _instance: instance,
        }))
    }

    /// The pipeline of a kernel, made when it is first asked for.
    pub(crate) fn pipeline(
        self: &Arc<Device>,
        kernel: &Kernel,
        bindings: u32,
    ) -> Result<Arc<Pipeline>, VulkanError> {
        if let Some(pipeline) = locked(&self.pipelines).get(kernel) {
            return Ok(pipeline.clone());
        }
        let started = Instant::now();
        let words = pteron_gpu::spirv(&kernel.wgsl())?;
        let pipeline =
            Arc::new(Pipeline::new(&self.device, self.layouts.of(&self.device, bindings)?, &words)?);
        tracing::debug!(?kernel, words = words.len(), took = ?started.elapsed(), "a pipeline was made");
        Ok(locked(&self.pipelines).entry(kernel.clone()).or_insert(pipeline).clone())
    }

    /// Adds what a run has taken.
    pub(crate) fn count(&self, run: Counts) {
        let mut counts = locked(&self.counts);
        *counts = counts.plus(run);
    }

    /// What all runs have taken.
    pub(crate) fn counts(&self) -> Counts {
        *locked(&self.counts)
    }

    /// How many pipelines there are.
    pub(crate) fn pipelines(&self) -> usize {
        locked(&self.pipelines).len()
    }

    /// Submits commands and waits until they have run.
    pub(super) fn run(&self, commands: vk::CommandBuffer, fence: vk::Fence) -> Result<(), VulkanError> {
        let queue = locked(&self.queue);
        let buffers = [commands];
        let submits = [vk::SubmitInfo::default().command_buffers(&buffers)];
        // SAFETY: the commands are recorded, not in use by anyone else (their owner lends them, and every submission is waited for
        // before the queue is let go), and all that they name lives with their owner; the fence is not signalled.
        unsafe {
            self.device.queue_submit(*queue, &submits, fence).map_err(failed("vkQueueSubmit"))?;
            // A GPU that is about to end a short run is asked again and again: being woken takes as long as some kernels.
            if self.adapter.kind == Kind::Discrete {
                let begin = Instant::now();
                while begin.elapsed() < EAGER && matches!(self.device.get_fence_status(fence), Ok(false)) {
                    std::hint::spin_loop();
                }
            }
            let waited = self.device.wait_for_fences(&[fence], true, PATIENCE_SECONDS * 1_000_000_000);
            match waited {
                Ok(()) => {}
                Err(vk::Result::TIMEOUT) => {
                    // Nobody may touch what it uses: wait for the end, whatever comes.
                    let _ = self.device.queue_wait_idle(*queue);
                    let _ = self.device.reset_fences(&[fence]);
                    return Err(VulkanError::Slow(PATIENCE_SECONDS));
                }
                Err(code) => return Err(failed("vkWaitForFences")(code)),
            }
            self.device.reset_fences(&[fence]).map_err(failed("vkResetFences"))
        }
    }

    /// Records commands, runs them and waits for them.
    pub(super) fn once(
        &self,
        record: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> Result<(), VulkanError> {
        let create = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::TRANSIENT)
            .queue_family_index(self.adapter.family);
        // SAFETY: pool, commands and fence live in this function alone, and are destroyed when the device has run them or never
        // will.
        unsafe {
            let pool =
                self.device.create_command_pool(&create, None).map_err(failed("vkCreateCommandPool"))?;
            let ran = (|| {
                let allocate =
                    vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
                let commands = self
                    .device
                    .allocate_command_buffers(&allocate)
                    .map_err(failed("vkAllocateCommandBuffers"))?[0];
                let begin =
                    vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
                self.device.begin_command_buffer(commands, &begin).map_err(failed("vkBeginCommandBuffer"))?;
                record(&self.device, commands);
                self.device.end_command_buffer(commands).map_err(failed("vkEndCommandBuffer"))?;
                let fence = self
                    .device
                    .create_fence(&vk::FenceCreateInfo::default(), None)
                    .map_err(failed("vkCreateFence"))?;
                let ran = self.run(commands, fence);
                self.device.destroy_fence(fence, None);
                ran
            })();
            self.device.destroy_command_pool(pool, None);
            ran
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: buffers, recordings and pools hold the device, so that none of them is left; pipelines and layouts are its own
        // and go first.
        unsafe {
            let _ = self.device.device_wait_idle();
            for (_, pipeline) in locked(&self.pipelines).drain() {
                pipeline.destroy(&self.device);
            }
            self.layouts.destroy(&self.device);
            self.device.destroy_device(None);
        }
    }
}
