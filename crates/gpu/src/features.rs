//! What a device can do, as an argument of all that makes kernels and dispatches. Tests force less than a device has.

/// Queried from a device, or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Features {
    /// Integers of 64 bits in kernels.
    pub int64: bool,
    /// Sums and the like over the threads that run in step.
    pub subgroups: bool,
    /// Threads of a subgroup that multiplies matrices of 16 by 16 halves to sums of f32; 0 where none does, or where halves are not
    /// close enough.
    pub matrices: u32,
    /// Products of four bytes at once, where rounding activations to those is close enough.
    pub dots: bool,
    /// Bytes that the threads of a group share.
    pub shared_bytes: u32,
    /// The most bytes that a kernel sees of one region.
    pub max_binding: u64,
    /// The most regions that a kernel sees, its parameters included.
    pub max_bindings: u32,
    /// The most threads of a group.
    pub max_threads: u32,
}

impl Features {
    /// What every device with Vulkan 1.1 has.
    pub const LEAST: Features = Features {
        int64: false,
        subgroups: false,
        matrices: 0,
        dots: false,
        shared_bytes: 16 << 10,
        max_binding: 128 << 20,
        max_bindings: 8,
        max_threads: 128,
    };
}
