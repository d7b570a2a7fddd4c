//! Pipelines: a kernel's words with the layout of its bindings, storage buffers all of them.

use super::compiled::Compiled;
use super::failed;
use crate::error::VulkanError;
use ash::vk;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// How kernels of so many bindings see them.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) set: vk::DescriptorSetLayout,
    pub(super) pipeline: vk::PipelineLayout,
}

/// By number of bindings.
#[derive(Default)]
pub(super) struct Layouts(Mutex<HashMap<u32, Layout>>);

/// What may be told to a kernel besides its bindings: where its parameters begin, and of some the parameters themselves. Every
/// device has room for so much.
pub(super) const PUSH_BYTES: u32 = 128;

impl Layouts {
    pub(super) fn of(&self, device: &ash::Device, bindings: u32) -> Result<Layout, VulkanError> {
        let mut layouts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(layout) = layouts.get(&bindings) {
            return Ok(*layout);
        }
        let slots: Vec<_> = (0..bindings)
            .map(|number| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(number)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let create = vk::DescriptorSetLayoutCreateInfo::default().bindings(&slots);
        // SAFETY: the structures live until the calls return; the layouts live as long as the device, which destroys them.
        let layout = unsafe {
            let set = device
                .create_descriptor_set_layout(&create, None)
                .map_err(failed("vkCreateDescriptorSetLayout"))?;
            let sets = [set];
            let push = [vk::PushConstantRange::default()
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
                .size(PUSH_BYTES)];
            let create =
                vk::PipelineLayoutCreateInfo::default().set_layouts(&sets).push_constant_ranges(&push);
            let pipeline = device.create_pipeline_layout(&create, None).map_err(|code| {
                device.destroy_descriptor_set_layout(set, None);
                failed("vkCreatePipelineLayout")(code)
            })?;
            Layout { set, pipeline }
        };
        layouts.insert(bindings, layout);
        Ok(layout)
    }

    /// # Safety
    ///
    /// Nothing made with these layouts is used afterwards.
    pub(super) unsafe fn destroy(&self, device: &ash::Device) {
        for (_, layout) in self.0.lock().unwrap_or_else(PoisonError::into_inner).drain() {
            // SAFETY: the caller says so.
            unsafe {
                device.destroy_pipeline_layout(layout.pipeline, None);
                device.destroy_descriptor_set_layout(layout.set, None);
            }
        }
    }
}

/// A kernel that is ready to run. The device destroys it.
pub(crate) struct Pipeline {
    pub(super) pipeline: vk::Pipeline,
    pub(super) layout: Layout,
}

impl Pipeline {
    pub(super) fn new(
        device: &ash::Device,
        layout: Layout,
        words: &[u32],
        compiled: &Compiled,
    ) -> Result<Pipeline, VulkanError> {
        let create = vk::ShaderModuleCreateInfo::default().code(words);
        // SAFETY: the words are a module that naga has validated, whose bindings are those of the layout; the module is not
        // needed once the pipeline is there.
        unsafe {
            let module =
                device.create_shader_module(&create, None).map_err(failed("vkCreateShaderModule"))?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"main");
            let create = vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout.pipeline);
            let made = device.create_compute_pipelines(compiled.cache, &[create], None);
            device.destroy_shader_module(module, None);
            match made {
                Ok(pipelines) => Ok(Pipeline { pipeline: pipelines[0], layout }),
                Err((_, code)) => Err(failed("vkCreateComputePipelines")(code)),
            }
        }
    }

    /// # Safety
    ///
    /// Nothing that was recorded with it runs afterwards.
    pub(super) unsafe fn destroy(&self, device: &ash::Device) {
        // SAFETY: the caller says so.
        unsafe { device.destroy_pipeline(self.pipeline, None) };
    }
}
