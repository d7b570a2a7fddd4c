//! The backend itself: the loader found, devices listed, the best first.

use crate::counts::Counts;
use crate::error::VulkanError;
use crate::ffi::{Adapter, Device, Instance, Kind};
use crate::loaded::LoadedVulkan;
use pteron_gpu::{Features, supports};
use pteron_ir::{Op, Ssa, TypeSource};
use pteron_runtime::backend::{Backend, DeviceId, DeviceInfo, Lack, LoadOptions, Loaded, Support};
use pteron_runtime::reference::known_kernel;
use pteron_runtime::{Result, VerifiedProgram};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// How the backend is opened.
#[derive(Clone, Debug, Default)]
pub struct VulkanOptions {
    /// Features to use at most, for tests; `None` uses what a device has.
    pub at_most: Option<Features>,
    /// Folder in which compiled kernels stay from one process to the next; `None` compiles them in each.
    pub kept_in: Option<PathBuf>,
}

/// Vulkan.
pub struct VulkanBackend {
    instance: Arc<Instance>,
    adapters: Vec<Adapter>,
    /// By adapter: the open device.
    open: Vec<Mutex<Option<Arc<Device>>>>,
    /// What all devices have: an op has one answer, whichever is taken.
    features: Features,
    kept_in: Option<PathBuf>,
}

impl VulkanBackend {
    /// Opens the loader and lists devices; an error says what is missing.
    pub fn open(options: &VulkanOptions) -> Result<VulkanBackend, VulkanError> {
        let instance = Instance::open()?;
        let (mut adapters, unfit): (Vec<Adapter>, Vec<Adapter>) =
            instance.adapters()?.into_iter().partition(|adapter| adapter.unfit.is_none());
        for adapter in &unfit {
            tracing::info!(name = adapter.name, reason = adapter.unfit, "a Vulkan device is passed over");
        }
        if adapters.is_empty() {
            return Err(match unfit.into_iter().next() {
                Some(Adapter { name, unfit: Some(reason), .. }) => VulkanError::Unfit { name, reason },
                _ => VulkanError::NoDevice,
            });
        }
        // GPUs with memory of their own first, software last.
        adapters.sort_by_key(|adapter| (adapter.kind, std::cmp::Reverse(adapter.memory_bytes)));
        if let Some(most) = options.at_most {
            adapters.iter_mut().for_each(|adapter| adapter.features = both(adapter.features, most));
        }
        let features =
            adapters.iter().map(|adapter| adapter.features).reduce(both).unwrap_or(Features::LEAST);
        let open = adapters.iter().map(|_| Mutex::default()).collect();
        Ok(VulkanBackend { instance, adapters, open, features, kept_in: options.kept_in.clone() })
    }

    /// Whether it computes on a GPU that is faster than the CPU beside it, by a driver that this backend was held to its cases
    /// on. Software on the CPU is for tests, a GPU in the CPU's memory is not faster for certain, and of other drivers nobody
    /// knows: those are for whoever names them.
    pub fn has_tried_gpu(&self) -> bool {
        self.adapters.first().is_some_and(|adapter| adapter.kind == Kind::Discrete && adapter.is_tried)
    }

    /// What runs on its open devices have taken so far.
    pub fn counts(&self) -> Counts {
        let open =
            self.open.iter().filter_map(|open| open.lock().ok()?.as_ref().map(|device| device.counts()));
        open.fold(Counts::default(), Counts::plus)
    }

    fn device(&self, number: usize) -> Result<Arc<Device>, VulkanError> {
        let (Some(adapter), Some(open)) = (self.adapters.get(number), self.open.get(number)) else {
            return Err(VulkanError::NoDevice);
        };
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = open.as_ref() {
            return Ok(device.clone());
        }
        let device = Device::open(self.instance.clone(), adapter.clone(), self.kept_in.as_deref())?;
        tracing::info!(name = adapter.name, driver = adapter.driver, "a Vulkan device is open");
        *open = Some(device.clone());
        Ok(device)
    }
}

/// Whether a look for devices may find a GPU. On Linux drivers of GPUs show device files, and where there are none, the loader,
/// which opens every driver that is installed, need not be asked.
pub fn may_have_gpu() -> bool {
    let has = |folder: &str, prefix: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
    };
    // Render nodes of the kernel, NVIDIA's own files, and Windows' GPU inside its Linux.
    !cfg!(target_os = "linux") || has("/dev/dri", "render") || has("/dev", "nvidia") || has("/dev", "dxg")
}

/// What two devices have in common.
fn both(one: Features, other: Features) -> Features {
    Features {
        int64: one.int64 && other.int64,
        subgroups: one.subgroups && other.subgroups,
        dots: one.dots && other.dots,
        matrices: if one.matrices == other.matrices { one.matrices } else { 0 },
        shared_bytes: one.shared_bytes.min(other.shared_bytes),
        max_binding: one.max_binding.min(other.max_binding),
        max_bindings: one.max_bindings.min(other.max_bindings),
        max_threads: one.max_threads.min(other.max_threads),
    }
}

impl Backend for VulkanBackend {
    fn name(&self) -> &'static str {
        "vulkan"
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        let info = |(number, adapter): (usize, &Adapter)| {
            let mut features = vec![adapter.kind.name().to_owned(), adapter.driver.clone()];
            features.extend(adapter.listed.iter().cloned());
            DeviceInfo {
                id: DeviceId(number),
                name: adapter.name.clone(),
                memory_bytes: Some(adapter.memory_bytes),
                features,
                useful_input_length: Some(512),
            }
        };
        self.adapters.iter().enumerate().map(info).collect()
    }

    fn supports(&self, op: &Op<Ssa>, types: &dyn TypeSource) -> Support {
        if let (Op::MetalKernel { .. }, Err(reason)) = (op, known_kernel(op, types)) {
            return Support::No(Lack::KnownSource(reason));
        }
        match supports(op, types, &self.features) {
            Ok(()) => Support::Native,
            Err(reason) => Support::No(Lack::Other(reason.to_owned())),
        }
    }

    fn load(
        &self,
        device: DeviceId,
        program: &VerifiedProgram,
        options: &LoadOptions,
    ) -> Result<Arc<dyn Loaded>> {
        Ok(Arc::new(LoadedVulkan::new(self.device(device.0)?, program, options)?))
    }
}

impl std::fmt::Debug for VulkanBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.adapters.iter().map(|adapter| (&adapter.name, &adapter.version));
        f.debug_list().entries(names).finish()
    }
}
