//! A device that is open: its queue, the layouts and pipelines that kernels share, and commands that run once.

use super::compiled::Compiled;
use super::failed;
use super::flight::{Flight, Submission};
use super::instance::{Adapter, Instance, Kind};
use super::memory::Buffer;
use super::pipeline::{Layouts, Pipeline};
use crate::counts::Counts;
use crate::error::VulkanError;
use crate::kept::Kept;
use ash::vk;
use pteron_gpu::Kernel;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a submission may take before the device counts as hanging.
const PATIENCE_SECONDS: u64 = 300;

/// How long a run is asked for its end without a pause.
const EAGER: Duration = Duration::from_millis(4);

/// The queue, with what it was given: whoever holds it is the only one to submit.
struct Queue {
    queue: vk::Queue,
    /// In order, what may still run.
    under_way: Vec<Arc<Submission>>,
    /// Fences that are free, and not signalled.
    fences: Vec<vk::Fence>,
}

/// An open device.
pub(crate) struct Device {
    pub(super) device: ash::Device,
    pub(crate) adapter: Adapter,
    queue: Mutex<Queue>,
    pub(super) layouts: Layouts,
    pipelines: Mutex<HashMap<Kernel, Arc<Pipeline>>>,
    compiled: Compiled,
    counts: Mutex<Counts>,
    _instance: Arc<Instance>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is locked here is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// Opens a device; what it compiles stays in a folder, if there is one.
    pub(crate) fn open(
        instance: Arc<Instance>,
        adapter: Adapter,
        kept_in: Option<&Path>,
    ) -> Result<Arc<Device>, VulkanError> {
        let priorities = [1.0];
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(adapter.family)
            .queue_priorities(&priorities)];
        let features = vk::PhysicalDeviceFeatures::default().shader_int64(adapter.has_int64);
        let mut storage16 = vk::PhysicalDevice16BitStorageFeatures::default()
            .storage_buffer16_bit_access(true)
            .uniform_and_storage_buffer16_bit_access(true);
        let mut small = vk::PhysicalDeviceShaderFloat16Int8Features::default().shader_float16(true);
        let mut model = vk::PhysicalDeviceVulkanMemoryModelFeatures::default().vulkan_memory_model(true);
        let mut matrices = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default().cooperative_matrix(true);
        let extensions = [vk::KHR_COOPERATIVE_MATRIX_NAME.as_ptr()];
        let mut create =
            vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_features(&features);
        let mut dots =
            vk::PhysicalDeviceShaderIntegerDotProductFeatures::default().shader_integer_dot_product(true);
        if adapter.features.dots {
            create = create.push_next(&mut dots);
        }
        if adapter.features.matrices > 0 {
            create = create
                .enabled_extension_names(&extensions)
                .push_next(&mut storage16)
                .push_next(&mut small)
                .push_next(&mut model)
                .push_next(&mut matrices);
        }
        // SAFETY: the adapter is the instance's, its family computes, and only features that it has are asked for.
        let device = unsafe { instance.instance.create_device(adapter.physical, &create, None) }
            .map_err(failed("vkCreateDevice"))?;
        // SAFETY: one queue of this family was asked for above.
        let queue = unsafe { device.get_device_queue(adapter.family, 0) };
        let compiled = Compiled::new(&device, kept_in.map(|folder| Kept::new(folder, adapter.identity)));
        Ok(Arc::new(Device {
            device,
            adapter,
            queue: Mutex::new(Queue { queue, under_way: Vec::new(), fences: Vec::new() }),
            layouts: Layouts::default(),
            pipelines: Mutex::default(),
            compiled,
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
        let layout = self.layouts.of(&self.device, bindings)?;
        let pipeline = Arc::new(Pipeline::new(&self.device, layout, &words, &self.compiled)?);
        self.compiled.grew();
        tracing::debug!(?kernel, words = words.len(), took = ?started.elapsed(), "a pipeline was made");
        Ok(locked(&self.pipelines).entry(kernel.clone()).or_insert(pipeline).clone())
    }

    /// Keeps what was compiled since the last time.
    pub(super) fn keep_pipelines(&self) {
        self.compiled.keep(&self.device, false);
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

    /// Submits commands; they run behind all that was submitted before.
    ///
    /// # Safety
    ///
    /// The commands are recorded and not under way already; they, and all that they name, stay as they are until the flight has
    /// landed.
    pub(super) unsafe fn submit(
        self: &Arc<Device>,
        commands: vk::CommandBuffer,
        report: Option<Arc<Buffer>>,
    ) -> Result<Flight, VulkanError> {
        // SAFETY: the caller says so.
        let submission = unsafe { self.hand_over(commands) }?;
        Ok(Flight::new(self.clone(), submission, report))
    }

    /// # Safety
    ///
    /// As for [`Device::submit`].
    unsafe fn hand_over(&self, commands: vk::CommandBuffer) -> Result<Arc<Submission>, VulkanError> {
        let mut queue = locked(&self.queue);
        let Queue { queue, under_way, fences } = &mut *queue;
        // Those that were waited for and that nobody will ask for give their fences back.
        let mut at = 0;
        while at < under_way.len() {
            let is_over = under_way[at].outcome.get().is_some() && Arc::strong_count(&under_way[at]) == 1;
            if !is_over {
                at += 1;
                continue;
            }
            let fence = under_way.remove(at).fence;
            // SAFETY: the fence was waited for, and nobody else knows it any more.
            if unsafe { self.device.reset_fences(&[fence]) }.is_ok() {
                fences.push(fence);
            } else {
                // SAFETY: as above.
                unsafe { self.device.destroy_fence(fence, None) };
            }
        }
        let fence = match fences.pop() {
            Some(fence) => fence,
            // SAFETY: the structure lives until the call returns; the fence is the queue's from here on.
            None => unsafe { self.device.create_fence(&vk::FenceCreateInfo::default(), None) }
                .map_err(failed("vkCreateFence"))?,
        };
        let buffers = [commands];
        let submits = [vk::SubmitInfo::default().command_buffers(&buffers)];
        // SAFETY: the caller answers for the commands; the queue is locked; the fence is not signalled and nobody else has it.
        let submitted = unsafe { self.device.queue_submit(*queue, &submits, fence) };
        if let Err(code) = submitted {
            fences.push(fence);
            return Err(failed("vkQueueSubmit")(code));
        }
        let submission = Arc::new(Submission { fence, outcome: Default::default() });
        under_way.push(submission.clone());
        Ok(submission)
    }

    /// Waits for a submission of this device.
    pub(super) fn wait_for(&self, submission: &Submission) -> Result<(), VulkanError> {
        let wait = || {
            let fence = submission.fence;
            // A GPU that is about to end a short run is asked again and again: being woken takes as long as some kernels.
            if self.adapter.kind == Kind::Discrete {
                let begin = Instant::now();
                // SAFETY: the fence lives as long as the submission is known to anybody.
                while begin.elapsed() < EAGER
                    && matches!(unsafe { self.device.get_fence_status(fence) }, Ok(false))
                {
                    std::hint::spin_loop();
                }
            }
            // SAFETY: as above.
            let waited =
                unsafe { self.device.wait_for_fences(&[fence], true, PATIENCE_SECONDS * 1_000_000_000) };
            match waited {
                Ok(()) => Ok(()),
                Err(vk::Result::TIMEOUT) => {
                    // Nobody may touch what it uses: wait for the end, whatever comes.
                    let _queue = locked(&self.queue);
                    // SAFETY: the queue is locked.
                    let _ = unsafe { self.device.device_wait_idle() };
                    Err(VulkanError::Slow(PATIENCE_SECONDS))
                }
                Err(code) => Err(failed("vkWaitForFences")(code)),
            }
        };
        submission.outcome.get_or_init(wait).clone()
    }

    /// Whether a submission of this device has ended, be it by a failure.
    pub(super) fn is_over(&self, submission: &Submission) -> bool {
        // SAFETY: the fence lives as long as the submission is known to anybody.
        let is_signalled = || unsafe { self.device.get_fence_status(submission.fence) };
        submission.outcome.get().is_some() || !matches!(is_signalled(), Ok(false))
    }

    /// Waits for all that was submitted; what came of it is told to those whom it belongs to.
    pub(super) fn settle(&self) {
        // A fence says that everything up to it has ended.
        let last = locked(&self.queue).under_way.last().cloned();
        if let Some(last) = last {
            let _ = self.wait_for(&last);
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
        // SAFETY: pool and commands live in this function alone, and are destroyed when the device has run them or never will.
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
                // What comes next sees what was written here, and does not overtake what was read.
                let transfer = vk::PipelineStageFlags::TRANSFER;
                let barrier = [vk::MemoryBarrier::default()
                    .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
                    .dst_access_mask(
                        vk::AccessFlags::SHADER_READ
                            | vk::AccessFlags::SHADER_WRITE
                            | vk::AccessFlags::TRANSFER_READ
                            | vk::AccessFlags::TRANSFER_WRITE
                            | vk::AccessFlags::HOST_READ,
                    )];
                let next = transfer | vk::PipelineStageFlags::COMPUTE_SHADER | vk::PipelineStageFlags::HOST;
                let none = vk::DependencyFlags::empty();
                self.device.cmd_pipeline_barrier(commands, transfer, next, none, &barrier, &[], &[]);
                self.device.end_command_buffer(commands).map_err(failed("vkEndCommandBuffer"))?;
                let submission = self.hand_over(commands)?;
                self.wait_for(&submission)
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
            self.compiled.keep(&self.device, true);
            self.compiled.destroy(&self.device);
            for (_, pipeline) in locked(&self.pipelines).drain() {
                pipeline.destroy(&self.device);
            }
            let mut queue = locked(&self.queue);
            let held = queue.under_way.drain(..).map(|submission| submission.fence).collect::<Vec<_>>();
            for fence in held.into_iter().chain(queue.fences.drain(..)) {
                self.device.destroy_fence(fence, None);
            }
            drop(queue);
            self.layouts.destroy(&self.device);
            self.device.destroy_device(None);
        }
    }
}
