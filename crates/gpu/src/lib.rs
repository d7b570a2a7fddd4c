//! What GPUs run: kernels as WGSL text that Rust functions write from dtypes and ranks, graphs as lists of dispatches over
//! regions of memory, and SPIR-V of the text.
//!
//! A plan (`pteron_plan`) says where values lie; a [`Walk`] goes over its steps with the numbers of one call and gives
//! [`Dispatch`]es. Whoever drives a device binds regions, writes the parameters and runs them. Nothing here knows which device
//! that is: it knows its [`Features`], and no file can make a kernel, because kernels are made of types and ranks alone.

mod dispatch;
mod features;
mod kernel;
mod lower;
mod spirv;
mod steps;
mod support;
mod walk;

pub use dispatch::{
    Cached, Dispatch, GROUPS_X, MOST_SPANS, Operand, REPORT_GREATEST, REPORT_WORDS, Region, View,
};
pub use features::Features;
pub use kernel::{
    Conv, Cooperative, Decode, Delta, Gemm, Gemv, Greatest, Kernel, Merge, Norm, Packed, Right, Tiled, Token,
    Turn,
};
pub use spirv::{SpirvError, spirv};
pub use steps::{Planned, StepNode};
pub use support::supports;
pub use walk::{CacheView, Datum, Finished, Given, Lowered, Pause, Span, Walk, WalkError, Written};
