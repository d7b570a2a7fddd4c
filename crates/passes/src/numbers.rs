//! Constants as numbers: reading elements of any dtype, and rounding numbers into one.

use crate::rewrite::Site;
use half::{bf16, f16};
use pteron_ir::op::FloatArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::{Bytes, DType, HostTensor};

/// Elements as f64, which holds every dtype but large 64-bit integers exactly; those are refused.
pub(crate) fn floats(tensor: &HostTensor) -> Option<Vec<f64>> {
    let size = tensor.dtype().size();
    tensor.bytes().chunks_exact(size).map(|bytes| element(tensor.dtype(), bytes)).collect()
}

/// Integers that f64 holds exactly.
const EXACT: i64 = 1 << 53;

fn element(dtype: DType, bytes: &[u8]) -> Option<f64> {
    macro_rules! read {
        ($type:ty) => {
            <$type>::from_le_bytes(bytes.try_into().ok()?)
        };
    }
    Some(match dtype {
        DType::Bool => f64::from(u8::from(bytes[0] != 0)),
        DType::U8 => f64::from(bytes[0]),
        DType::I8 => f64::from(read!(i8)),
        DType::U16 => f64::from(read!(u16)),
        DType::I16 => f64::from(read!(i16)),
        DType::U32 => f64::from(read!(u32)),
        DType::I32 => f64::from(read!(i32)),
        DType::I64 => {
            let value = read!(i64);
            (-EXACT..=EXACT).contains(&value).then_some(value as f64)?
        }
        DType::U64 => {
            let value = read!(u64);
            (value <= EXACT as u64).then_some(value as f64)?
        }
        DType::F16 => f64::from(read!(f16)),
        DType::BF16 => f64::from(read!(bf16)),
        DType::F32 => f64::from(read!(f32)),
        DType::F64 => read!(f64),
    })
}

/// A tensor of those numbers; `None` where an integer dtype does not hold one of them.
pub(crate) fn tensor(dtype: DType, shape: &[usize], values: &[f64]) -> Option<HostTensor> {
    let mut bytes = Vec::with_capacity(values.len() * dtype.size());
    for &value in values {
        push(dtype, value, &mut bytes)?;
    }
    HostTensor::new(dtype, shape.to_vec(), Bytes::copy_of(&bytes)).ok()
}

fn push(dtype: DType, value: f64, bytes: &mut Vec<u8>) -> Option<()> {
    macro_rules! integer {
        ($type:ty) => {{
            let held = value as $type;
            (held as f64 == value).then(|| bytes.extend(held.to_le_bytes()))?
        }};
    }
    match dtype {
        DType::Bool => bytes.push(u8::from(value != 0.0)),
        DType::U8 => integer!(u8),
        DType::I8 => integer!(i8),
        DType::U16 => integer!(u16),
        DType::I16 => integer!(i16),
        DType::U32 => integer!(u32),
        DType::I32 => integer!(i32),
        DType::U64 => integer!(u64),
        DType::I64 => integer!(i64),
        // By way of f32, as backends compute: one more rounding, and the same number as theirs.
        DType::F16 => bytes.extend(f16::from_f32(value as f32).to_le_bytes()),
        DType::BF16 => bytes.extend(bf16::from_f32(value as f32).to_le_bytes()),
        DType::F32 => bytes.extend((value as f32).to_le_bytes()),
        DType::F64 => bytes.extend(value.to_le_bytes()),
    }
    Some(())
}

/// Elements that are looked at to tell whether all are the same.
const MOST_EQUAL: usize = 1 << 16;

/// A number that a value holds everywhere.
pub(crate) fn everywhere(site: &Site<'_>, value: ValueId) -> Option<f64> {
    if let Some(Op::Full { v: FloatArg::Literal(number), scalar_type, .. }) = site.definition(value) {
        return floats(&tensor(*scalar_type, &[], &[*number])?)?.first().copied();
    }
    let data = site.data(value)?;
    if data.is_empty() || data.len() > MOST_EQUAL {
        return None;
    }
    let mut elements = data.bytes().chunks_exact(data.dtype().size());
    let first = elements.next()?;
    if elements.any(|other| other != first) {
        return None;
    }
    element(data.dtype(), first)
}
