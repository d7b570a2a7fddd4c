//! The Vulkan backend: there with the feature `vulkan`, and then only if a loader and a device are.

use pteron_runtime::registry::Registry;
use std::path::Path;

/// The backend's name.
const NAME: &str = "vulkan";

/// Adds Vulkan to the backends where it is named; an error says why it is not there.
#[cfg(not(feature = "vulkan"))]
pub fn add(_registry: &mut Registry, named: Option<&str>, _kept_in: Option<&Path>) -> Result<(), String> {
    match named {
        Some(NAME) => Err("this binary was built without Vulkan".to_owned()),
        _ => Ok(()),
    }
}

/// Adds Vulkan to the backends where it is named; an error says why it is not there. Kernels that a driver has compiled stay in
/// a folder, if one is named.
#[cfg(feature = "vulkan")]
pub fn add(registry: &mut Registry, named: Option<&str>, kept_in: Option<&Path>) -> Result<(), String> {
    use pteron_vulkan::{VulkanBackend, VulkanOptions};
    if named != Some(NAME) {
        return Ok(());
    }
    let options = VulkanOptions { kept_in: kept_in.map(Path::to_owned), ..VulkanOptions::default() };
    let backend = VulkanBackend::open(&options).map_err(|error| error.to_string())?;
    registry.add(std::sync::Arc::new(backend));
    Ok(())
}
