//! What a device can do, as an argument of all that makes kernels and dispatches. Tests force less than a device has.

/// Queried from a device, or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Features {
    /// Integers of 64 bits in kernels.
    pub int64: bool,
    /// Sums and the like over the threads that run in step.
    pub subgroups: bool,
    /// Bytes that the threads of a group share.
    pub shared_bytes: u32,
    /// The most bytes that a kernel sees of one region.
    pub max_binding: u64,
}

impl Features {
    /// What every device with Vulkan 1.1 has.
    pub const LEAST: Features =
        Features { int64: false, subgroups: false, shared_bytes: 16 << 10, max_binding: 128 << 20 };
}
