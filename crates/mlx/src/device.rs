//! Outputs that stay where MLX computed them until somebody asks.

use crate::values::Kept;
use pteron_runtime::{DeviceTensor, Result};
use pteron_tensor::{DType, HostTensor};
use std::any::Any;

/// A computed MLX array as a value of the program.
#[derive(Debug)]
pub(crate) struct DeviceArray {
    tensor: Kept,
}

impl DeviceArray {
    pub(crate) fn new(tensor: Kept) -> DeviceArray {
        DeviceArray { tensor }
    }

    pub(crate) fn tensor(&self) -> &Kept {
        &self.tensor
    }
}

impl DeviceTensor for DeviceArray {
    fn dtype(&self) -> DType {
        self.tensor.ty.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.tensor.ty.shape
    }

    fn to_host(&self) -> Result<HostTensor> {
        Ok(self.tensor.array.to_host()?)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
