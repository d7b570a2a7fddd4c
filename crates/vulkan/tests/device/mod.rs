//! The device that tests run on: whatever Vulkan has here, a software one among them.

use pteron_runtime::backend::Backend;
use pteron_vulkan::{VulkanBackend, VulkanOptions};
use std::sync::{Arc, OnceLock};

/// The backend, opened once; without a device a line says so, and there is none.
pub(crate) fn open() -> Option<Arc<dyn Backend>> {
    static VULKAN: OnceLock<Option<Arc<dyn Backend>>> = OnceLock::new();
    let open = || -> Option<Arc<dyn Backend>> {
        match VulkanBackend::open(&VulkanOptions::default()) {
            Ok(backend) => Some(Arc::new(backend)),
            Err(error) => {
                println!("not run on Vulkan: {error}");
                None
            }
        }
    };
    VULKAN.get_or_init(open).clone()
}
