//! Ops whose result is a number beside the tensors. Such numbers have 32 bits; what does not fit is an error.

use crate::error::{MlxError, invalid};
use crate::known::Known;
use crate::values::{Tensor, Values};
use half::{bf16, f16};
use pteron_ir::op::IntArg;
use pteron_ir::{Op, Ssa, ValueId};
use pteron_runtime::Value;
use pteron_tensor::{DType, Element, HostTensor, Scalar};

/// The number that an op with a scalar result gives. Reading an element that the host does not know waits for it.
pub(crate) fn compute(op: &Op<Ssa>, values: &Values) -> Result<Scalar, MlxError> {
    let int = |arg: &IntArg<ValueId>| values.int(arg).map(i128::from);
    let divided = |a: &IntArg<ValueId>, b: &IntArg<ValueId>| match (int(a)?, int(b)?) {
        (_, 0) => invalid("division by zero"),
        (a, b) => Ok((a, b, a.div_euclid(b) - i128::from(b < 0 && a.rem_euclid(b) != 0))),
    };
    let value = match op {
        Op::ItemInt { x } => {
            let tensor = values.tensor(*x)?;
            if tensor.ty.count() != 1 {
                return invalid(format!("{} elements where one is needed", tensor.ty.count()));
            }
            first(tensor)?.into()
        }
        Op::SymSize { a, dim } => {
            let shape = &values.tensor(*a)?.ty.shape;
            let at = if *dim < 0 { i64::from(*dim) + shape.len() as i64 } else { i64::from(*dim) };
            let size = usize::try_from(at).ok().and_then(|at| shape.get(at));
            *size.ok_or_else(|| MlxError::Invalid(format!("no axis {dim}")))? as i128
        }
        Op::AddInt { a, b } => int(a)? + int(b)?,
        Op::SubtractInt { a, b } => int(a)? - int(b)?,
        Op::MultiplyInt { a, b } => int(a)? * int(b)?,
        // Rounded down, and the rest with the divisor's sign.
        Op::FloorDivideInt { a, b } => divided(a, b)?.2,
        Op::ModInt { a, b } => {
            let (a, b, quotient) = divided(a, b)?;
            a - quotient * b
        }
        _ => return invalid("the op gives no number"),
    };
    match i32::try_from(value) {
        Ok(value) => Ok(Scalar::Int(value.into())),
        Err(_) => invalid(format!("{value} does not fit 32 bits")),
    }
}

/// The first element as an integer, by its dtype; floats are cut off. Waits for it unless the host knows it.
pub(crate) fn first(tensor: &Tensor) -> Result<i64, MlxError> {
    fn at<T: Element>(tensor: &HostTensor) -> Result<T, MlxError> {
        let element = tensor.as_slice::<T>()?.first().copied();
        element.ok_or_else(|| MlxError::Invalid("an empty tensor where an element is read".into()))
    }
    if let Some(number) = tensor.known.as_ref().and_then(Known::first) {
        return Ok(number);
    }
    let host = tensor.array.to_host()?;
    Ok(match host.dtype() {
        DType::Bool => host.bytes().first().copied().unwrap_or(0).into(),
        DType::U8 => at::<u8>(&host)?.into(),
        DType::U16 => at::<u16>(&host)?.into(),
        DType::U32 => at::<u32>(&host)?.into(),
        DType::U64 => i64::try_from(at::<u64>(&host)?).unwrap_or(i64::MAX),
        DType::I8 => at::<i8>(&host)?.into(),
        DType::I16 => at::<i16>(&host)?.into(),
        DType::I32 => at::<i32>(&host)?.into(),
        DType::I64 => at::<i64>(&host)?,
        DType::F16 => at::<f16>(&host)?.to_f32() as i64,
        DType::BF16 => at::<bf16>(&host)?.to_f32() as i64,
        DType::F32 => at::<f32>(&host)? as i64,
        DType::F64 => at::<f64>(&host)? as i64,
    })
}

/// A number as a value of the program.
pub(crate) fn to_value(scalar: Scalar) -> Value {
    match scalar {
        Scalar::Int(value) => Value::Int(value),
        Scalar::Float(value) => Value::Float(value),
        Scalar::Bool(value) => Value::Bool(value),
    }
}
