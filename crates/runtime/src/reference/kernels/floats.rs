//! Contiguous runs of tensors as f32, for the kernels that sum products: what they read is converted a row or
//! a block at a time, what they computed is rounded to its dtype once.

use super::{Computed, KernelError, ResultType};
use half::slice::HalfFloatSliceExt as _;
use half::{bf16, f16};
use pteron_tensor::{DType, Element, HostTensor};
use std::borrow::Cow;

/// Fills `out` with the elements from `start` on.
pub(super) fn load(tensor: &HostTensor, start: usize, out: &mut [f32]) -> Result<(), KernelError> {
    match tensor.dtype() {
        DType::F32 => out.copy_from_slice(part::<f32>(tensor, start, out.len())?),
        DType::F16 => part::<f16>(tensor, start, out.len())?.convert_to_f32_slice(out),
        DType::BF16 => part::<bf16>(tensor, start, out.len())?.convert_to_f32_slice(out),
        DType::F64 => convert(part::<f64>(tensor, start, out.len())?, out, |value| value as f32),
        DType::U8 => convert(part::<u8>(tensor, start, out.len())?, out, f32::from),
        DType::U16 => convert(part::<u16>(tensor, start, out.len())?, out, f32::from),
        DType::U32 => convert(part::<u32>(tensor, start, out.len())?, out, |value| value as f32),
        DType::U64 => convert(part::<u64>(tensor, start, out.len())?, out, |value| value as f32),
        DType::I8 => convert(part::<i8>(tensor, start, out.len())?, out, f32::from),
        DType::I16 => convert(part::<i16>(tensor, start, out.len())?, out, f32::from),
        DType::I32 => convert(part::<i32>(tensor, start, out.len())?, out, |value| value as f32),
        DType::I64 => convert(part::<i64>(tensor, start, out.len())?, out, |value| value as f32),
        DType::Bool => {
            let bytes = tensor.bytes().get(start..start + out.len()).ok_or_else(outside)?;
            convert(bytes, out, |value| u8::from(value != 0).into());
        }
    }
    Ok(())
}

/// All elements; borrowed where they are f32 already.
pub(super) fn all(tensor: &HostTensor) -> Result<Cow<'_, [f32]>, KernelError> {
    if tensor.dtype() == DType::F32 {
        return Ok(Cow::Borrowed(tensor.as_slice()?));
    }
    let mut out = vec![0.0; tensor.len()];
    load(tensor, 0, &mut out)?;
    Ok(Cow::Owned(out))
}

/// Rounds values into the elements from `start` on, nearest even; the tensor holds floats.
pub(super) fn store(values: &[f32], tensor: &mut HostTensor, start: usize) -> Result<(), KernelError> {
    let range = start..start + values.len();
    match tensor.dtype() {
        DType::F32 => {
            tensor.as_mut_slice::<f32>()?.get_mut(range).ok_or_else(outside)?.copy_from_slice(values)
        }
        DType::F16 => {
            tensor.as_mut_slice::<f16>()?.get_mut(range).ok_or_else(outside)?.convert_from_f32_slice(values);
        }
        DType::BF16 => {
            tensor.as_mut_slice::<bf16>()?.get_mut(range).ok_or_else(outside)?.convert_from_f32_slice(values);
        }
        DType::F64 => {
            convert(values, tensor.as_mut_slice::<f64>()?.get_mut(range).ok_or_else(outside)?, f64::from)
        }
        dtype => return Err(KernelError::Invalid(format!("floats cannot be stored as {dtype}"))),
    }
    Ok(())
}

/// A result of the kernel's type.
pub(super) fn rounded(ty: &ResultType, values: &[f32]) -> Computed {
    let mut out = HostTensor::zeros(ty.dtype, ty.shape.clone())?;
    if out.len() != values.len() {
        return Err(KernelError::Invalid(format!("{} values for a result of {:?}", values.len(), ty.shape)));
    }
    store(values, &mut out, 0)?;
    Ok(out)
}

/// What a computation in `dtype` sees of a value.
pub(super) fn round_to(dtype: DType, values: &mut [f32]) {
    match dtype {
        DType::F16 => values.iter_mut().for_each(|value| *value = f16::from_f32(*value).to_f32()),
        DType::BF16 => values.iter_mut().for_each(|value| *value = bf16::from_f32(*value).to_f32()),
        _ => {}
    }
}

/// All elements of an integer tensor.
pub(super) fn indices(tensor: &HostTensor) -> Result<Vec<i64>, KernelError> {
    fn widened<T: Element + Into<i64>>(tensor: &HostTensor) -> Result<Vec<i64>, KernelError> {
        Ok(tensor.as_slice::<T>()?.iter().map(|&value| value.into()).collect())
    }
    match tensor.dtype() {
        DType::U8 => widened::<u8>(tensor),
        DType::U16 => widened::<u16>(tensor),
        DType::U32 => widened::<u32>(tensor),
        DType::I8 => widened::<i8>(tensor),
        DType::I16 => widened::<i16>(tensor),
        DType::I32 => widened::<i32>(tensor),
        DType::I64 => widened::<i64>(tensor),
        // Beyond i64 no index is inside anything; saturating keeps it outside.
        DType::U64 => {
            Ok(tensor.as_slice::<u64>()?.iter().map(|&v| v.try_into().unwrap_or(i64::MAX)).collect())
        }
        dtype => Err(KernelError::Invalid(format!("{dtype} where integers are needed"))),
    }
}

fn outside() -> KernelError {
    KernelError::Invalid("a kernel reads beyond its operand".into())
}

fn part<T: Element>(tensor: &HostTensor, start: usize, len: usize) -> Result<&[T], KernelError> {
    tensor.as_slice::<T>()?.get(start..start + len).ok_or_else(outside)
}

fn convert<T: Copy, U>(from: &[T], to: &mut [U], by: impl Fn(T) -> U) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to = by(from));
}
