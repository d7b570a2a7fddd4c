//! The first elements of a tensor, as people read them.

use half::{bf16, f16};
use pteron_tensor::{DType, Element, HostTensor};
use std::fmt::Display;

/// Elements that a preview shows.
const SHOWN: usize = 6;

/// `[0.5, 1, 2, ...]`: the first elements, row by row.
pub(crate) fn preview(tensor: &HostTensor) -> String {
    let first = match tensor.dtype() {
        DType::Bool => tensor.bytes().iter().take(SHOWN).map(|&byte| (byte != 0).to_string()).collect(),
        DType::U8 => texts::<u8>(tensor),
        DType::U16 => texts::<u16>(tensor),
        DType::U32 => texts::<u32>(tensor),
        DType::U64 => texts::<u64>(tensor),
        DType::I8 => texts::<i8>(tensor),
        DType::I16 => texts::<i16>(tensor),
        DType::I32 => texts::<i32>(tensor),
        DType::I64 => texts::<i64>(tensor),
        DType::F16 => texts::<f16>(tensor),
        DType::BF16 => texts::<bf16>(tensor),
        DType::F32 => texts::<f32>(tensor),
        DType::F64 => texts::<f64>(tensor),
    };
    let more = if tensor.len() > SHOWN { ", ..." } else { "" };
    match tensor.rank() {
        0 => first.join(""),
        _ => format!("[{}{more}]", first.join(", ")),
    }
}

fn texts<T: Element + Display>(tensor: &HostTensor) -> Vec<String> {
    // The dtype was looked at, so that the slice is of it.
    let elements = tensor.as_slice::<T>().unwrap_or_default();
    elements.iter().take(SHOWN).map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn previews_are_short_and_complete_for_small_tensors() {
        let tensor =
            |shape: &[usize], values: &[f32]| HostTensor::from_slice(shape.to_vec(), values).unwrap();
        assert_eq!(preview(&tensor(&[], &[0.1])), "0.1");
        assert_eq!(preview(&tensor(&[2], &[0.5, -1.0])), "[0.5, -1]");
        assert_eq!(preview(&tensor(&[0], &[])), "[]");
        assert_eq!(preview(&tensor(&[7], &[0.0; 7])), "[0, 0, 0, 0, 0, 0, ...]");
        assert_eq!(preview(&HostTensor::from_bools(vec![1], &[true]).unwrap()), "[true]");
    }
}
