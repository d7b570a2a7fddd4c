//! The loader, the instance, and what the devices behind it say of themselves.

use super::failed;
use crate::error::VulkanError;
use crate::kept::Identity;
use ash::vk;
use pteron_gpu::Features;
use std::ffi::CStr;
use std::sync::Arc;

/// Bindings that every kernel may have, its parameters included.
const LEAST_BINDINGS: u32 = 8;
/// More of them are of no use.
const MOST_BINDINGS: u32 = 32;

/// Drivers that the backend's cases were run by on real devices: who runs another one names the backend.
const TRIED_DRIVERS: [vk::DriverId; 1] = [vk::DriverId::NVIDIA_PROPRIETARY];

/// The loader with an instance.
pub(crate) struct Instance {
    // Below the instance in the order of drops: its library must outlive all that came from it.
    pub(super) instance: ash::Instance,
    entry: ash::Entry,
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: nothing of the instance is left: devices hold it while they live.
        unsafe { self.instance.destroy_instance(None) };
    }
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// With memory of its own.
    Discrete,
    /// Beside the CPU, in the same memory.
    Integrated,
    /// Handed through to a virtual machine.
    Virtual,
    /// Something else.
    Other,
    /// Software on the CPU.
    Cpu,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Discrete => "discrete GPU",
            Kind::Integrated => "integrated GPU",
            Kind::Virtual => "virtual GPU",
            Kind::Other => "other device",
            Kind::Cpu => "software on the CPU",
        }
    }
}

/// A device that is there, before it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Adapter {
    pub(super) physical: vk::PhysicalDevice,
    pub(super) family: u32,
    pub(super) memory: vk::PhysicalDeviceMemoryProperties,
    pub(super) has_int64: bool,
    /// What a step of the device's clock takes; 0 where it has none.
    pub(super) tick_nanoseconds: f32,
    pub(crate) identity: Identity,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Whether the backend's cases were run by this driver on real devices.
    pub(crate) is_tried: bool,
    pub(crate) driver: String,
    pub(crate) version: String,
    pub(crate) memory_bytes: u64,
    pub(crate) features: Features,
    /// In words, for listings.
    pub(crate) listed: Vec<String>,
    /// Why it cannot be used.
    pub(crate) unfit: Option<String>,
}

fn version_text(version: u32) -> String {
    let (major, minor, patch) =
        (vk::api_version_major(version), vk::api_version_minor(version), vk::api_version_patch(version));
    format!("{major}.{minor}.{patch}")
}

impl Instance {
    /// Opens the loader.
    pub(crate) fn open() -> Result<Arc<Instance>, VulkanError> {
        // SAFETY: loading runs the initialisers of the system's Vulkan loader, which is made for that.
        let entry =
            unsafe { ash::Entry::load() }.map_err(|error| VulkanError::NoLoader(error.to_string()))?;
        // SAFETY: the function is the loader's own, or absent in version 1.0.
        let version = unsafe { entry.try_enumerate_instance_version() }
            .map_err(failed("vkEnumerateInstanceVersion"))?
            .unwrap_or(vk::API_VERSION_1_0);
        if version < vk::API_VERSION_1_1 {
            return Err(VulkanError::OldLoader(version_text(version)));
        }
        let application = vk::ApplicationInfo::default()
            .application_name(c"pteron")
            .api_version(version.min(vk::API_VERSION_1_3));
        let create = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the structures live until the call returns, and name no layer or extension.
        let instance = unsafe { entry.create_instance(&create, None) }.map_err(|code| match code {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => VulkanError::NoDevice,
            code => failed("vkCreateInstance")(code),
        })?;
        Ok(Arc::new(Instance { instance, entry }))
    }

    /// All devices, in the loader's order.
    pub(crate) fn adapters(&self) -> Result<Vec<Adapter>, VulkanError> {
        // SAFETY: the instance is alive.
        let devices = unsafe { self.instance.enumerate_physical_devices() }
            .map_err(failed("vkEnumeratePhysicalDevices"))?;
        Ok(devices.into_iter().map(|physical| self.adapter(physical)).collect())
    }

    /// Threads of a subgroup that multiplies matrices of 16 by 16 halves, where a device does so with all that such kernels need
    /// besides, and all its subgroups are alike.
    fn matrices(&self, physical: vk::PhysicalDevice, version: u32) -> Option<u32> {
        if version < vk::API_VERSION_1_3 {
            return None;
        }
        let (mut sizes, mut properties) = (
            vk::PhysicalDeviceSubgroupSizeControlProperties::default(),
            vk::PhysicalDeviceProperties2::default(),
        );
        let mut storage16 = vk::PhysicalDevice16BitStorageFeatures::default();
        let mut small = vk::PhysicalDeviceShaderFloat16Int8Features::default();
        let mut model = vk::PhysicalDeviceVulkanMemoryModelFeatures::default();
        let mut matrices = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
        // SAFETY: the device is the instance's own.
        let extensions = unsafe { self.instance.enumerate_device_extension_properties(physical) }.ok()?;
        let is_listed = |own: &vk::ExtensionProperties| {
            own.extension_name_as_c_str() == Ok(vk::KHR_COOPERATIVE_MATRIX_NAME)
        };
        if !extensions.iter().any(is_listed) {
            return None;
        }
        properties = properties.push_next(&mut sizes);
        let mut features = vk::PhysicalDeviceFeatures2::default()
            .push_next(&mut storage16)
            .push_next(&mut small)
            .push_next(&mut model)
            .push_next(&mut matrices);
        let known = ash::khr::cooperative_matrix::Instance::new(&self.entry, &self.instance);
        // SAFETY: each structure of the chains is one that a device of this version and with this extension knows, and lives until
        // the calls return.
        let listed = unsafe {
            self.instance.get_physical_device_properties2(physical, &mut properties);
            self.instance.get_physical_device_features2(physical, &mut features);
            known.get_physical_device_cooperative_matrix_properties(physical)
        }
        .ok()?;
        let (half, single) = (vk::ComponentTypeKHR::FLOAT16, vk::ComponentTypeKHR::FLOAT32);
        let fits = |one: &vk::CooperativeMatrixPropertiesKHR<'_>| {
            (one.m_size, one.n_size, one.k_size) == (16, 16, 16)
                && (one.a_type, one.b_type) == (half, half)
                && (one.c_type, one.result_type) == (single, single)
                && one.scope == vk::ScopeKHR::SUBGROUP
        };
        let has_all = [
            storage16.storage_buffer16_bit_access,
            storage16.uniform_and_storage_buffer16_bit_access,
            small.shader_float16,
            model.vulkan_memory_model,
            matrices.cooperative_matrix,
        ];
        let is_fit = has_all.iter().all(|&has| has == vk::TRUE)
            && sizes.min_subgroup_size == sizes.max_subgroup_size
            && listed.iter().any(fits);
        is_fit.then_some(sizes.max_subgroup_size)
    }

    fn adapter(&self, physical: vk::PhysicalDevice) -> Adapter {
        let instance = &self.instance;
        // SAFETY: the device is the instance's own.
        let plain = unsafe { instance.get_physical_device_properties(physical) };
        let version = plain.api_version;
        let mut subgroup = vk::PhysicalDeviceSubgroupProperties::default();
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default();
        let mut storage16 = vk::PhysicalDevice16BitStorageFeatures::default();
        let mut storage8 = vk::PhysicalDevice8BitStorageFeatures::default();
        let mut small = vk::PhysicalDeviceShaderFloat16Int8Features::default();
        let mut dot = vk::PhysicalDeviceShaderIntegerDotProductFeatures::default();
        let mut features = vk::PhysicalDeviceFeatures2::default();
        if version >= vk::API_VERSION_1_1 {
            properties = properties.push_next(&mut subgroup);
            features = features.push_next(&mut storage16);
        }
        if version >= vk::API_VERSION_1_2 {
            properties = properties.push_next(&mut driver);
            features = features.push_next(&mut storage8).push_next(&mut small);
        }
        if version >= vk::API_VERSION_1_3 {
            features = features.push_next(&mut dot);
        }
        if version >= vk::API_VERSION_1_1 {
            // SAFETY: each structure of the chains is one that a device of its version knows, and lives until the calls return.
            unsafe {
                instance.get_physical_device_properties2(physical, &mut properties);
                instance.get_physical_device_features2(physical, &mut features);
            }
        }
        let has_int64 = features.features.shader_int64 == vk::TRUE;
        let matrices = self.matrices(physical, version).unwrap_or(0);
        // SAFETY: as above.
        let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
        // SAFETY: as above.
        let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
        let computes = |flags: vk::QueueFlags| flags.contains(vk::QueueFlags::COMPUTE);
        // One that draws nothing leaves the display alone.
        let apart = families.iter().position(|family| {
            computes(family.queue_flags) && !family.queue_flags.contains(vk::QueueFlags::GRAPHICS)
        });
        let family = apart.or_else(|| families.iter().position(|family| computes(family.queue_flags)));
        let limits = plain.limits;
        let ticks = family.is_some_and(|family| families[family].timestamp_valid_bits == 64);
        let sums = vk::SubgroupFeatureFlags::BASIC | vk::SubgroupFeatureFlags::ARITHMETIC;
        let subgroups = subgroup.supported_stages.contains(vk::ShaderStageFlags::COMPUTE)
            && subgroup.supported_operations.contains(sums);
        let heaps = &memory.memory_heaps[..memory.memory_heap_count as usize];
        let local = heaps.iter().filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
        let memory_bytes = local.map(|heap| heap.size).max().unwrap_or(0);
        let mut listed = vec![format!("Vulkan {}", version_text(version))];
        let mut list = |there: bool, name: String| listed.extend(there.then_some(name));
        list(subgroups, format!("subgroups of {}", subgroup.subgroup_size));
        list(small.shader_float16 == vk::TRUE, "f16".into());
        list(storage16.storage_buffer16_bit_access == vk::TRUE, "16-bit storage".into());
        list(storage8.storage_buffer8_bit_access == vk::TRUE, "8-bit storage".into());
        list(dot.shader_integer_dot_product == vk::TRUE, "integer dot product".into());
        list(has_int64, "int64".into());
        list(matrices > 0, "cooperative matrices of 16x16x16".into());
        list(true, format!("push constants of {} bytes", limits.max_push_constants_size));
        list(true, format!("bindings of {} MiB", limits.max_storage_buffer_range >> 20));
        list(true, format!("shared memory of {} KiB", limits.max_compute_shared_memory_size >> 10));
        let unfit = if version < vk::API_VERSION_1_1 {
            Some(format!("it has Vulkan {}, and 1.1 is needed", version_text(version)))
        } else if family.is_none() {
            Some("it has no queue that computes".to_owned())
        } else if limits.max_per_stage_descriptor_storage_buffers < LEAST_BINDINGS {
            let found = limits.max_per_stage_descriptor_storage_buffers;
            Some(format!("its kernels see {found} buffers, and {LEAST_BINDINGS} are needed"))
        } else {
            None
        };
        // SAFETY: the driver fills these arrays with text that ends in a zero.
        let text = |bytes: &[std::ffi::c_char]| {
            unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_string_lossy().into_owned()
        };
        let is_tried = TRIED_DRIVERS.contains(&driver.driver_id);
        let driver_text = [text(&driver.driver_name), text(&driver.driver_info)];
        let driver =
            driver_text.iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join(" ");
        Adapter {
            physical,
            family: family.unwrap_or(0) as u32,
            memory,
            has_int64,
            identity: Identity {
                vendor: plain.vendor_id,
                device: plain.device_id,
                driver: plain.driver_version,
                uuid: plain.pipeline_cache_uuid,
            },
            name: text(&plain.device_name),
            kind: match plain.device_type {
                vk::PhysicalDeviceType::DISCRETE_GPU => Kind::Discrete,
                vk::PhysicalDeviceType::INTEGRATED_GPU => Kind::Integrated,
                vk::PhysicalDeviceType::VIRTUAL_GPU => Kind::Virtual,
                vk::PhysicalDeviceType::CPU => Kind::Cpu,
                _ => Kind::Other,
            },
            is_tried,
            driver: if driver.is_empty() { format!("driver {}", plain.driver_version) } else { driver },
            version: version_text(version),
            memory_bytes,
            features: Features {
                int64: has_int64,
                subgroups,
                matrices,
                dots: dot.shader_integer_dot_product == vk::TRUE,
                shared_bytes: limits.max_compute_shared_memory_size,
                max_binding: limits.max_storage_buffer_range.into(),
                max_bindings: limits
                    .max_per_stage_descriptor_storage_buffers
                    .min(limits.max_descriptor_set_storage_buffers)
                    .min(MOST_BINDINGS),
                max_threads: limits
                    .max_compute_work_group_invocations
                    .min(limits.max_compute_work_group_size[0]),
            },
            tick_nanoseconds: if ticks { limits.timestamp_period } else { 0.0 },
            listed,
            unfit,
        }
    }
}
