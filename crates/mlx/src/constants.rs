//! The weights of a program as MLX arrays: each piece of host data once, however many graphs name it.
//!
//! `Map` lets MLX use the mapped memory itself where it can: Metal for whole pages, its CPU and CUDA builds not at all;
//! they copy, and the report says so. `Lock` and `Copy` copy into memory of MLX's own, and do not return before
//! it is certain that every byte is there: a copy that was elided, or that is not resident, is an error.

use crate::calls::Mlx;
use crate::error::{MlxError, invalid};
use crate::ffi::DeviceKind;
use crate::values::{ArrayType, Kept};
use pteron_runtime::LoadMode;
use pteron_tensor::{DType, HostTensor};
use std::collections::HashMap;

/// Arrays by the host data that they were made of.
pub(crate) struct Constants {
    mlx: Mlx,
    mode: LoadMode,
    known: HashMap<(usize, DType, Vec<usize>), Kept>,
    /// Bytes that MLX reads where the files are mapped.
    pub(crate) mapped_bytes: u64,
    /// Bytes in memory of MLX's own.
    pub(crate) copied_bytes: u64,
}

impl Constants {
    /// None yet.
    pub(crate) fn new(mlx: Mlx, mode: LoadMode) -> Constants {
        Constants { mlx, mode, known: HashMap::new(), mapped_bytes: 0, copied_bytes: 0 }
    }

    /// The array of a constant.
    pub(crate) fn add(&mut self, tensor: &HostTensor) -> Result<Kept, MlxError> {
        let key = (tensor.bytes().as_ptr() as usize, tensor.dtype(), tensor.shape().to_vec());
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let array = match self.mode {
            LoadMode::Map | LoadMode::Arrange => self.mlx.wrap(tensor)?,
            LoadMode::Lock | LoadMode::Copy => self.mlx.place(tensor)?,
        };
        let bytes = tensor.bytes().len();
        let (address, resident) = array.residency()?;
        let source = tensor.bytes().as_ptr() as usize;
        let shared = bytes > 0 && address == source;
        if !matches!(self.mode, LoadMode::Map | LoadMode::Arrange) && bytes > 0 {
            let apart = address + bytes <= source || source + bytes <= address;
            if !apart {
                return invalid("the copy into MLX's memory was elided");
            }
            // A GPU's own memory is none of the system's pages.
            if resident < bytes && self.mlx.device.kind != DeviceKind::Cuda {
                return invalid(format!("{resident} of {bytes} copied bytes are resident"));
            }
        }
        *(if shared { &mut self.mapped_bytes } else { &mut self.copied_bytes }) += bytes as u64;
        let ty = ArrayType { dtype: tensor.dtype(), shape: tensor.shape().to_vec() };
        let made = Kept::new(array, ty);
        self.known.insert(key, made.clone());
        Ok(made)
    }
}
