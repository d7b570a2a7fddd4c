//! Recorded commands: kernels with their bindings in order and barriers where one must wait for others. A recording is replayed for
//! as long as kernels and bindings are the same; parameters, and grids that change, are read from a buffer that the host writes.

use super::device::Device;
use super::failed;
use super::flight::Flight;
use super::memory::{Binding, Buffer, Purpose};
use super::times::Times;
use crate::error::VulkanError;
use ash::vk;
use pteron_gpu::Kernel;
use std::sync::Arc;

/// A kernel with what it is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) kernel: Kernel,
    /// By binding behind the parameters.
    pub(crate) bindings: Vec<Binding>,
    /// Its grid, where that is the same in every run; else it is read from before the parameters, which takes the device longer.
    pub(crate) grid: Option<[u32; 3]>,
    /// Where its parameters begin, in words.
    pub(crate) params: u32,
    /// They themselves, where they are pushed.
    pub(crate) pushed: Vec<u32>,
    /// Whether it waits for all before it.
    pub(crate) waits: bool,
}

/// A buffer that is copied into another before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Saved {
    from: Binding,
    to: Binding,
}

impl Saved {
    /// Of two buffers, the second as large as the first.
    pub(crate) fn new(from: &Buffer, to: &Buffer) -> Saved {
        let bytes = from.bytes.min(to.bytes);
        Saved { from: from.binding(0, bytes), to: to.binding(0, bytes) }
    }
}

/// Commands that can be run again and again.
pub(crate) struct Recording {
    device: Arc<Device>,
    bound: Vec<Bound>,
    saved: Option<Saved>,
    params: Buffer,
    times: Option<Times>,
    pool: vk::CommandPool,
    descriptors: vk::DescriptorPool,
    commands: vk::CommandBuffer,
    /// Its last run.
    flight: Option<Arc<Flight>>,
}

impl Recording {
    /// Records kernels with these grids and parameters.
    pub(crate) fn new(
        device: &Arc<Device>,
        bound: Vec<Bound>,
        words: &[u32],
        saved: Option<Saved>,
    ) -> Result<Recording, VulkanError> {
        let params = Buffer::new(device, words.len() as u64 * 4, Purpose::Upload, "parameters")?;
        params.write_landed(0, &bytes_of(words))?;
        let times = Times::new(device, bound.len())?;
        let raw = &device.device;
        let mut pipelines = Vec::with_capacity(bound.len());
        let mut descriptors = 0;
        for one in &bound {
            let bindings = one.bindings.len() as u32 + 1;
            descriptors += bindings;
            pipelines.push(device.pipeline(&one.kernel, bindings)?);
        }
        device.keep_pipelines();
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(descriptors.max(1))];
        let pool_info =
            vk::DescriptorPoolCreateInfo::default().max_sets(bound.len().max(1) as u32).pool_sizes(&sizes);
        let command_info = vk::CommandPoolCreateInfo::default().queue_family_index(device.adapter.family);
        // SAFETY: pools and commands are this value's own, and destroyed with it; structures live until each call returns.
        // The buffers that are bound are those of whoever replays, who compares them before each run: a recording that names a
        // buffer that is gone is never run again.
        unsafe {
            let pool = raw.create_command_pool(&command_info, None).map_err(failed("vkCreateCommandPool"))?;
            let mut made = Recording {
                device: device.clone(),
                bound: Vec::new(),
                saved,
                params,
                times,
                pool,
                descriptors: vk::DescriptorPool::null(),
                commands: vk::CommandBuffer::null(),
                flight: None,
            };
            made.descriptors =
                raw.create_descriptor_pool(&pool_info, None).map_err(failed("vkCreateDescriptorPool"))?;
            let allocate =
                vk::CommandBufferAllocateInfo::default().command_pool(pool).command_buffer_count(1);
            made.commands =
                raw.allocate_command_buffers(&allocate).map_err(failed("vkAllocateCommandBuffers"))?[0];
            let layouts: Vec<_> = pipelines.iter().map(|pipeline| pipeline.layout.set).collect();
            let sets = if layouts.is_empty() {
                Vec::new()
            } else {
                let allocate = vk::DescriptorSetAllocateInfo::default()
                    .descriptor_pool(made.descriptors)
                    .set_layouts(&layouts);
                raw.allocate_descriptor_sets(&allocate).map_err(failed("vkAllocateDescriptorSets"))?
            };
            let begin = vk::CommandBufferBeginInfo::default();
            raw.begin_command_buffer(made.commands, &begin).map_err(failed("vkBeginCommandBuffer"))?;
            // What was submitted before may still run.
            let (transfer, compute) =
                (vk::PipelineStageFlags::TRANSFER, vk::PipelineStageFlags::COMPUTE_SHADER);
            let barrier = [vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::SHADER_WRITE | vk::AccessFlags::TRANSFER_WRITE)
                .dst_access_mask(
                    vk::AccessFlags::SHADER_READ
                        | vk::AccessFlags::SHADER_WRITE
                        | vk::AccessFlags::TRANSFER_READ
                        | vk::AccessFlags::TRANSFER_WRITE,
                )];
            let (both, none) = (transfer | compute, vk::DependencyFlags::empty());
            raw.cmd_pipeline_barrier(made.commands, both, both, none, &barrier, &[], &[]);
            if let Some(times) = &made.times {
                times.begin(made.commands);
            }
            if let Some(Saved { from, to }) = saved {
                let region = [vk::BufferCopy::default().size(from.range)];
                raw.cmd_copy_buffer(made.commands, from.buffer, to.buffer, &region);
                // Kernels write over what is read here.
                let barrier = [vk::MemoryBarrier::default()
                    .src_access_mask(vk::AccessFlags::TRANSFER_READ | vk::AccessFlags::TRANSFER_WRITE)
                    .dst_access_mask(vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE)];
                raw.cmd_pipeline_barrier(
                    made.commands,
                    vk::PipelineStageFlags::TRANSFER,
                    vk::PipelineStageFlags::COMPUTE_SHADER,
                    vk::DependencyFlags::empty(),
                    &barrier,
                    &[],
                    &[],
                );
            }
            for (number, ((one, pipeline), &set)) in bound.iter().zip(&pipelines).zip(&sets).enumerate() {
                let params = &made.params;
                let mut infos = vec![
                    vk::DescriptorBufferInfo::default().buffer(params.buffer).offset(0).range(params.bytes),
                ];
                infos.extend(one.bindings.iter().map(|&Binding { buffer, offset, range, .. }| {
                    vk::DescriptorBufferInfo::default().buffer(buffer).offset(offset).range(range)
                }));
                let writes: Vec<_> = infos
                    .iter()
                    .enumerate()
                    .map(|(binding, info)| {
                        vk::WriteDescriptorSet::default()
                            .dst_set(set)
                            .dst_binding(binding as u32)
                            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                            .buffer_info(std::slice::from_ref(info))
                    })
                    .collect();
                raw.update_descriptor_sets(&writes, &[]);
                if one.waits {
                    let stage = vk::PipelineStageFlags::COMPUTE_SHADER;
                    let access = vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE;
                    let barrier = [vk::MemoryBarrier::default()
                        .src_access_mask(vk::AccessFlags::SHADER_WRITE)
                        .dst_access_mask(access)];
                    let none = vk::DependencyFlags::empty();
                    raw.cmd_pipeline_barrier(made.commands, stage, stage, none, &barrier, &[], &[]);
                }
                let compute = vk::PipelineBindPoint::COMPUTE;
                raw.cmd_bind_pipeline(made.commands, compute, pipeline.pipeline);
                let layout = pipeline.layout.pipeline;
                raw.cmd_bind_descriptor_sets(made.commands, compute, layout, 0, &[set], &[]);
                let stages = vk::ShaderStageFlags::COMPUTE;
                let mut pushed = vec![one.params];
                pushed.extend(&one.pushed);
                raw.cmd_push_constants(made.commands, layout, stages, 0, &bytes_of(&pushed));
                match one.grid {
                    Some([x, y, z]) => raw.cmd_dispatch(made.commands, x, y, z),
                    None => {
                        raw.cmd_dispatch_indirect(made.commands, params.buffer, u64::from(one.params) * 4);
                    }
                }
                if let Some(times) = &made.times {
                    times.mark(made.commands, number);
                }
            }
            // What kernels wrote is seen by the host, and by copies that come next.
            let barrier = [vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::SHADER_WRITE)
                .dst_access_mask(
                    vk::AccessFlags::HOST_READ
                        | vk::AccessFlags::TRANSFER_READ
                        | vk::AccessFlags::SHADER_READ,
                )];
            let after = vk::PipelineStageFlags::HOST
                | vk::PipelineStageFlags::TRANSFER
                | vk::PipelineStageFlags::COMPUTE_SHADER;
            raw.cmd_pipeline_barrier(
                made.commands,
                vk::PipelineStageFlags::COMPUTE_SHADER,
                after,
                vk::DependencyFlags::empty(),
                &barrier,
                &[],
                &[],
            );
            raw.end_command_buffer(made.commands).map_err(failed("vkEndCommandBuffer"))?;
            made.bound = bound;
            Ok(made)
        }
    }

    /// Whether it is what would be recorded for these.
    pub(crate) fn is_of(&self, bound: &[Bound], saved: Option<Saved>) -> bool {
        self.saved == saved && self.bound == bound
    }

    /// The copy that it begins with.
    pub(crate) fn saved(&self) -> Option<Saved> {
        self.saved
    }

    /// Writes grids and parameters from a word on.
    pub(crate) fn set(&mut self, first: u32, words: &[u32]) -> Result<(), VulkanError> {
        self.land()?;
        self.params.write_landed(u64::from(first) * 4, &bytes_of(words))
    }

    /// Waits for its last run. An error of that is told to whoever waits for the flight.
    fn land(&mut self) -> Result<(), VulkanError> {
        let Some(flight) = self.flight.take() else { return Ok(()) };
        if flight.wait().is_ok()
            && let Some(times) = &mut self.times
        {
            times.read()?;
        }
        Ok(())
    }

    /// Runs it once more, and does not wait. What its kernels say is in `report`, which is theirs until the flight has landed.
    pub(crate) fn submit(&mut self, report: &Arc<Buffer>) -> Result<Arc<Flight>, VulkanError> {
        self.land()?;
        // SAFETY: the last run of the commands has ended. This value waits for this one before it changes or frees anything, and
        // buffers wait for all that runs before they go.
        let flight = Arc::new(unsafe { self.device.submit(self.commands, Some(report.clone())) }?);
        self.flight = Some(flight.clone());
        Ok(flight)
    }
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.land();
        if let Some(times) = &self.times {
            times.tell(&self.bound);
        }
        // SAFETY: its last run has ended, so that nothing of it is in use; a null handle is let be.
        unsafe {
            self.device.device.destroy_descriptor_pool(self.descriptors, None);
            self.device.device.destroy_command_pool(self.pool, None);
        }
    }
}
