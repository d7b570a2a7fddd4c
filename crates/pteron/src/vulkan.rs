//! The Vulkan backend: there with the feature `vulkan`, and then only if a loader and a device are.

use pteron_runtime::registry::Registry;
use std::path::Path;

/// The backend's name.
const NAME: &str = "vulkan";

/// Who wants Vulkan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'n> {
    /// The user named a backend.
    Named(&'n str),
    /// Whatever is fastest here.
    Fastest,
    /// The CPU, unless another backend is named.
    Processor,
}

/// Adds Vulkan to the backends where it is named, or where it has a GPU that is faster than the CPU for certain; an error says why
/// what was asked for is not there.
#[cfg(not(feature = "vulkan"))]
pub fn add(_registry: &mut Registry, wanted: Wanted<'_>, _kept_in: Option<&Path>) -> Result<(), String> {
    match wanted {
        Wanted::Named(NAME) => Err("this binary was built without Vulkan".to_owned()),
        _ => Ok(()),
    }
}

/// Adds Vulkan to the backends where it is named, or where it has a GPU that is faster than the CPU for certain; an error says why
/// what was asked for is not there. Kernels that a driver has compiled stay in a folder, if one is named.
#[cfg(feature = "vulkan")]
pub fn add(registry: &mut Registry, wanted: Wanted<'_>, kept_in: Option<&Path>) -> Result<(), String> {
    use pteron_vulkan::{VulkanBackend, VulkanOptions, may_have_gpu};
    let is_named = match wanted {
        Wanted::Named(NAME) => true,
        // To open the loader takes a tenth of a second where only software drivers are installed.
        Wanted::Fastest if may_have_gpu() => false,
        _ => return Ok(()),
    };
    let options = VulkanOptions { kept_in: kept_in.map(Path::to_owned), ..VulkanOptions::default() };
    match VulkanBackend::open(&options) {
        Ok(backend) if is_named || backend.has_tried_gpu() => {
            registry.add(std::sync::Arc::new(backend));
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(error) if is_named => Err(error.to_string()),
        Err(error) => {
            tracing::info!(%error, "Vulkan is not used");
            Ok(())
        }
    }
}
