//! The device that tests run on: whatever Vulkan has here, a software one among them.

use pteron_runtime::backend::Backend;
use pteron_vulkan::{VulkanBackend, VulkanOptions};
use std::sync::{Arc, OnceLock};

/// The backend, opened once; without a device a line says so, and there is none.
#[allow(dead_code)] // each test file uses its part
pub(crate) fn open() -> Option<Arc<dyn Backend>> {
    static VULKAN: OnceLock<Option<Arc<dyn Backend>>> = OnceLock::new();
    VULKAN.get_or_init(|| open_with(&VulkanOptions::default())).clone()
}

/// The same with other options.
#[allow(dead_code)] // as above
pub(crate) fn open_with(options: &VulkanOptions) -> Option<Arc<dyn Backend>> {
    match VulkanBackend::open(options) {
        Ok(backend) => Some(Arc::new(backend)),
        Err(error) => {
            #[allow(clippy::print_stdout)] // so that nobody takes it for a test that ran
            {
                println!("not run on Vulkan: {error}");
            }
            None
        }
    }
}
