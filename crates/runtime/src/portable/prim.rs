//! Numbers of the program itself: sizes of tensors, arithmetic on symbolic integers, the copies of a `map` loop.

use super::lanes;
use super::walk::axis;
use super::{Call, Kernel, Operator, Outs, PortableError, Results, invalid};
use crate::Value;
use pteron_tensor::{HostTensor, Scalar};

pub(super) const TABLE: &[Operator] = &[
    number("aten::sym_size.int", 2, |call| {
        let x = call.tensor(0)?;
        let at = axis(call.int(1)?, x.rank())?;
        Ok(Value::Int(x.shape().get(at).copied().unwrap_or(1) as i64))
    }),
    number("aten::sym_numel", 1, |call| Ok(Value::Int(call.tensor(0)?.len() as i64))),
    number("aten::_local_scalar_dense", 1, |call| match lanes::first(call.tensor(0)?) {
        Some(scalar) => Ok(value(scalar)),
        None => invalid("an empty tensor has no element"),
    }),
    number("executorch_prim::add.Scalar", 2, |call| arithmetic(call, i64::checked_add, |a, b| a + b)),
    number("executorch_prim::sub.Scalar", 2, |call| arithmetic(call, i64::checked_sub, |a, b| a - b)),
    number("executorch_prim::mul.Scalar", 2, |call| arithmetic(call, i64::checked_mul, |a, b| a * b)),
    number("executorch_prim::floordiv.Scalar", 2, |call| {
        arithmetic(call, floor_divide, |a, b| (a / b).floor())
    }),
    number("executorch_prim::floordiv.int", 2, |call| {
        arithmetic(call, i64::checked_div, |a, b| (a / b).floor())
    }),
    number("executorch_prim::mod.Scalar", 2, |call| arithmetic(call, i64::checked_rem, |a, b| a % b)),
    number("executorch_prim::mod.int", 2, |call| arithmetic(call, i64::checked_rem, |a, b| a % b)),
    number("executorch_prim::truediv.Scalar", 2, |call| Ok(Value::Float(call.float(0)? / call.float(1)?))),
    number("executorch_prim::sym_max.Scalar", 2, |call| arithmetic(call, |a, b| Some(a.max(b)), f64::max)),
    number("executorch_prim::sym_min.Scalar", 2, |call| arithmetic(call, |a, b| Some(a.min(b)), f64::min)),
    number("executorch_prim::sym_float.Scalar", 1, |call| Ok(Value::Float(call.float(0)?))),
    number("executorch_prim::sym_int.Scalar", 1, |call| Ok(Value::Int(call.float(0)?.trunc() as i64))),
    number("executorch_prim::ceil.Scalar", 1, |call| Ok(Value::Int(call.float(0)?.ceil() as i64))),
    number("executorch_prim::round.Scalar", 1, |call| {
        Ok(Value::Int(call.float(0)?.round_ties_even() as i64))
    }),
    number("executorch_prim::trunc.Scalar", 1, |call| Ok(Value::Int(call.float(0)?.trunc() as i64))),
    number("executorch_prim::neg.Scalar", 1, |call| match call.scalar(0)? {
        Scalar::Float(a) => Ok(Value::Float(-a)),
        Scalar::Int(a) => Ok(Value::Int(a.wrapping_neg())),
        Scalar::Bool(a) => Ok(Value::Int(-i64::from(a))),
    }),
    number("executorch_prim::eq.Scalar", 2, |call| compare(call, |a, b| a == b, |a, b| a == b)),
    number("executorch_prim::ne.Scalar", 2, |call| compare(call, |a, b| a != b, |a, b| a != b)),
    number("executorch_prim::gt.Scalar", 2, |call| compare(call, |a, b| a > b, |a, b| a > b)),
    number("executorch_prim::lt.Scalar", 2, |call| compare(call, |a, b| a < b, |a, b| a < b)),
    number("executorch_prim::ge.Scalar", 2, |call| compare(call, |a, b| a >= b, |a, b| a >= b)),
    number("executorch_prim::le.Scalar", 2, |call| compare(call, |a, b| a <= b, |a, b| a <= b)),
    number("executorch_prim::sym_not.Scalar", 1, |call| Ok(Value::Bool(!call.bool(0)?))),
    number("executorch_prim::sym_ite.Scalar", 3, |call| {
        Ok(value(if call.bool(0)? { call.scalar(1)? } else { call.scalar(2)? }))
    }),
    Operator {
        name: "executorch_prim::et_copy_index.tensor",
        inputs: 3,
        outs: Outs::Grown,
        kernel: Kernel::Whole(copy_index),
    },
];

/// A row that gives a number.
const fn number(
    name: &'static str,
    inputs: usize,
    kernel: fn(&Call<'_>) -> Result<Value, PortableError>,
) -> Operator {
    Operator { name, inputs, outs: Outs::Number, kernel: Kernel::Number(kernel) }
}

fn value(scalar: Scalar) -> Value {
    match scalar {
        Scalar::Int(value) => Value::Int(value),
        Scalar::Float(value) => Value::Float(value),
        Scalar::Bool(value) => Value::Bool(value),
    }
}

fn arithmetic(
    call: &Call<'_>,
    int: fn(i64, i64) -> Option<i64>,
    float: fn(f64, f64) -> f64,
) -> Result<Value, PortableError> {
    match (call.scalar(0)?, call.scalar(1)?) {
        (Scalar::Float(_), _) | (_, Scalar::Float(_)) => {
            Ok(Value::Float(float(call.float(0)?, call.float(1)?)))
        }
        _ => {
            let (a, b) = (call.int(0)?, call.int(1)?);
            match int(a, b) {
                Some(value) => Ok(Value::Int(value)),
                None => invalid(format!("{a} and {b} overflow or divide by zero")),
            }
        }
    }
}

fn compare(
    call: &Call<'_>,
    int: fn(&i64, &i64) -> bool,
    float: fn(&f64, &f64) -> bool,
) -> Result<Value, PortableError> {
    Ok(Value::Bool(match (call.scalar(0)?, call.scalar(1)?) {
        (Scalar::Float(_), _) | (_, Scalar::Float(_)) => float(&call.float(0)?, &call.float(1)?),
        _ => int(&call.int(0)?, &call.int(1)?),
    }))
}

fn floor_divide(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

/// `to[index] = from`, where `to` has grown to `index` rows so far: how a loop stacks what its steps give.
fn copy_index(call: &Call<'_>) -> Results {
    let (from, index) = (call.tensor(1)?, super::call::as_size(call.int(2)?)?);
    let mut shape = vec![index + 1];
    shape.extend(from.shape());
    let mut grown = HostTensor::zeros(from.dtype(), shape)?;
    let row = from.bytes().len();
    if index > 0 {
        let before = call.tensor(0)?;
        let known = before.bytes().get(..index * row).filter(|_| before.dtype() == from.dtype());
        let Some(known) = known else {
            return invalid(format!("row {index} is set, but only {:?} are there", before.shape()));
        };
        grown.bytes_mut()[..index * row].copy_from_slice(known);
    }
    grown.bytes_mut()[index * row..].copy_from_slice(from.bytes());
    super::one(Ok(grown))
}
