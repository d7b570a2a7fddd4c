//! The one room with `unsafe`: calls into Vulkan, and its objects as Rust values with one owner each. Everything outside sees safe
//! types.
//!
//! What makes the calls hold, all of it kept here: an object is destroyed by the value that owns it, which keeps the device alive,
//! and the device its instance; what the device may still be using is waited for before it is changed or freed ([`flight`]); memory that the host sees stays mapped as long as it lives.

#![allow(unsafe_code, reason = "calls into Vulkan; each block says why it holds")]

mod compiled;
mod device;
mod flight;
mod instance;
mod memory;
mod pipeline;
mod recording;
mod times;

pub(crate) use device::Device;
pub(crate) use flight::{Flight, Report};
pub(crate) use instance::{Adapter, Instance, Kind};
pub(crate) use memory::{ALIGNMENT, Binding, Buffer, Purpose};
pub(crate) use recording::{Bound, Recording, Saved};

use crate::error::VulkanError;
use ash::vk;

/// The error of a call.
fn failed(call: &'static str) -> impl Fn(vk::Result) -> VulkanError {
    move |code| match code {
        vk::Result::ERROR_DEVICE_LOST => VulkanError::Lost,
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => {
            VulkanError::Memory { what: call, bytes: 0 }
        }
        code => VulkanError::Call { call, code: code.to_string() },
    }
}
