//! What can be wrong with a device.

/// Why Vulkan is not there, or no longer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum VulkanError {
    #[error(
        "no Vulkan loader was found ({0}); it comes with the driver of a GPU, or as the package libvulkan1"
    )]
    NoLoader(String),
    #[error("the Vulkan loader is of version {0}; 1.1 is needed")]
    OldLoader(String),
    #[error("Vulkan has no device here: no driver is installed, or none of them finds a GPU")]
    NoDevice,
    #[error("{name} cannot be used: {reason}")]
    Unfit { name: String, reason: String },
    #[error("the Vulkan device was lost: its driver has stopped it, and everything on it is gone")]
    Lost,
    #[error("the Vulkan device has no room for {bytes} bytes of {what}")]
    Memory { what: &'static str, bytes: u64 },
    #[error("{call} failed: {code}")]
    Call { call: &'static str, code: String },
    #[error(transparent)]
    Kernel(#[from] pteron_gpu::SpirvError),
    #[error("the device did not finish within {0} seconds")]
    Slow(u64),
}

impl From<VulkanError> for pteron_runtime::Error {
    fn from(error: VulkanError) -> pteron_runtime::Error {
        pteron_runtime::Error::Invalid(error.to_string())
    }
}
