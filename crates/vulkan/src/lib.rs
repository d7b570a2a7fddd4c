//! Vulkan as a backend: devices, memory, pipelines and runs that are recorded once and replayed. What is run comes from
//! `pteron_gpu` as dispatches; the loader is opened when a [`VulkanBackend`] is, so that a program without Vulkan starts and says
//! what is missing.
//!
//! A run is a few kernels' worth of numbers: sizes, positions and grids lie in a small buffer that the host writes, and the
//! command buffer that reads them stays the same from token to token.

mod backend;
mod cache;
mod counts;
mod error;
mod ffi;
mod kept;
mod loaded;
mod outcome;
mod replay;
mod run;
mod state;
mod together;
mod workspace;

pub use backend::{VulkanBackend, VulkanOptions, may_have_gpu};
pub use counts::Counts;
pub use error::VulkanError;
