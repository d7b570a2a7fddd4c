//! Kernels that put elements in order along one axis: ascending, stable, NaN last, -0 equal to 0. A partition is
//! a full sort, which satisfies all that a partition promises.

use super::offsets::axis_of;
use super::reduce::{Rows, along};
use super::{Computed, KernelError, Operands, ResultType};
use half::{bf16, f16};
use pteron_ir::ValueId;
use pteron_tensor::{DType, HostTensor};
use std::cmp::Ordering;

pub(super) fn sort(operands: &Operands<'_>, x: ValueId, axis: i32) -> Computed {
    let x = operands.tensor(x)?;
    along(x, axis_of(axis.into(), x.rank()), |rows| {
        let mut sorted = rows.tensor.clone();
        sort_rows(&mut sorted, rows.len)?;
        Ok(sorted)
    })
}

pub(super) fn argsort(operands: &Operands<'_>, x: ValueId, axis: i32) -> Computed {
    let x = operands.tensor(x)?;
    along(x, axis_of(axis.into(), x.rank()), |rows| order_rows(rows, operands.out()))
}

/// Calls a function of typed elements with the tensor's type and how to compare two of them.
macro_rules! by_dtype {
    ($dtype:expr, $function:ident, $($argument:expr),*) => {
        match $dtype {
            // Bools have no slices of their own; as bytes they sort alike.
            DType::Bool | DType::U8 => $function::<u8>($($argument),*, u8::cmp),
            DType::U16 => $function::<u16>($($argument),*, u16::cmp),
            DType::U32 => $function::<u32>($($argument),*, u32::cmp),
            DType::U64 => $function::<u64>($($argument),*, u64::cmp),
            DType::I8 => $function::<i8>($($argument),*, i8::cmp),
            DType::I16 => $function::<i16>($($argument),*, i16::cmp),
            DType::I32 => $function::<i32>($($argument),*, i32::cmp),
            DType::I64 => $function::<i64>($($argument),*, i64::cmp),
            DType::F16 => $function::<f16>($($argument),*, |a, b| float_order(a.to_f32(), b.to_f32())),
            DType::BF16 => $function::<bf16>($($argument),*, |a, b| float_order(a.to_f32(), b.to_f32())),
            DType::F32 => $function::<f32>($($argument),*, |a, b| float_order(*a, *b)),
            DType::F64 => $function::<f64>($($argument),*, |a, b| float_order(*a, *b)),
        }
    };
}

/// Sorts each row of `len` elements in place.
pub(super) fn sort_rows(x: &mut HostTensor, len: usize) -> Result<(), KernelError> {
    by_dtype!(x.dtype(), sort_elements, x.bytes_mut(), len)
}

fn sort_elements<T: bytemuck::Pod>(
    bytes: &mut [u8],
    len: usize,
    order: impl Fn(&T, &T) -> Ordering,
) -> Result<(), KernelError> {
    let elements: &mut [T] = bytemuck::try_cast_slice_mut(bytes).map_err(unaligned)?;
    elements.chunks_mut(len.max(1)).for_each(|row| row.sort_by(&order));
    Ok(())
}

/// The indices that would sort each row.
fn order_rows(rows: &Rows, out: &ResultType) -> Computed {
    let mut indices = HostTensor::zeros(out.dtype, rows.tensor.shape().to_vec())?;
    by_dtype!(
        rows.tensor.dtype(),
        order_elements,
        rows.tensor.bytes(),
        indices.as_mut_slice::<u32>()?,
        rows.len
    )?;
    Ok(indices)
}

fn order_elements<T: bytemuck::Pod>(
    bytes: &[u8],
    indices: &mut [u32],
    len: usize,
    order: impl Fn(&T, &T) -> Ordering,
) -> Result<(), KernelError> {
    let elements: &[T] = bytemuck::try_cast_slice(bytes).map_err(unaligned)?;
    for (row, indices) in elements.chunks(len.max(1)).zip(indices.chunks_mut(len.max(1))) {
        indices.iter_mut().zip(0..).for_each(|(index, at)| *index = at);
        indices.sort_by(|&a, &b| order(&row[a as usize], &row[b as usize]));
    }
    Ok(())
}

fn float_order<F: PartialOrd>(a: F, b: F) -> Ordering {
    #[allow(clippy::eq_op)] // only a NaN differs from itself
    a.partial_cmp(&b).unwrap_or_else(|| (a != a).cmp(&(b != b)))
}

fn unaligned(_: bytemuck::PodCastError) -> KernelError {
    KernelError::Invalid("the tensor's memory is not aligned for its dtype".into())
}
