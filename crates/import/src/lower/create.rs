//! Tensors from nothing but a shape and a number.

use super::call::{Call, Int, Scalar};
use super::context::{Lowerer, Outs, one};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use pteron_ir::op::FloatArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::{DType, HostTensor};

pub(super) const TABLE: Table = &[
    ("aten.full.default", |l, call| one(full(l, call, "size", call.scalar("fill_value")?)?)),
    ("aten.zeros.default", |l, call| one(full(l, call, "size", Scalar::Int(0))?)),
    ("aten.ones.default", |l, call| one(full(l, call, "size", Scalar::Int(1))?)),
    ("aten.empty.memory_format", |l, call| one(full(l, call, "size", Scalar::Int(0))?)),
    ("aten.new_full.default", |l, call| one(full(l, call, "size", call.scalar("fill_value")?)?)),
    ("aten.new_zeros.default", |l, call| one(full(l, call, "size", Scalar::Int(0))?)),
    ("aten.new_ones.default", |l, call| one(full(l, call, "size", Scalar::Int(1))?)),
    ("aten.new_empty.default", |l, call| one(full(l, call, "size", Scalar::Int(0))?)),
    ("aten.full_like.default", |l, call| one(like(l, call, call.scalar("fill_value")?)?)),
    ("aten.zeros_like.default", |l, call| one(like(l, call, Scalar::Int(0))?)),
    ("aten.ones_like.default", |l, call| one(like(l, call, Scalar::Int(1))?)),
    ("aten.empty_like.default", |l, call| one(like(l, call, Scalar::Int(0))?)),
    ("aten.scalar_tensor.default", |l, call| {
        let dtype = call.result_dtype(0)?;
        one(l.scalar_tensor(call.scalar("s")?, dtype)?)
    }),
    ("aten.arange.default", |l, call| arange(l, call)),
    ("aten.arange.start", |l, call| arange(l, call)),
    ("aten.arange.start_step", |l, call| arange(l, call)),
    ("aten.linspace.default", linspace),
    ("aten.eye.default", eye),
    ("aten.eye.m", eye),
    ("aten.tril_indices.default", |_, _| Err(Refusal::Unknown)),
];

fn literal(value: Scalar) -> FloatArg<ValueId> {
    match value {
        Scalar::Float(value) => FloatArg::Literal(value),
        Scalar::Int(value) => FloatArg::Literal(value as f64),
        Scalar::Bool(value) => FloatArg::Literal(f64::from(u8::from(value))),
        Scalar::Value(value) => FloatArg::Value(value),
    }
}

fn full(l: &mut Lowerer<'_>, call: &Call<'_>, name: &str, value: Scalar) -> Lowered<ValueId> {
    let (shape, scalar_type) = (call.any_ints(name)?, call.result_dtype(0)?);
    l.emit(Op::Full { shape, v: literal(value), scalar_type })
}

fn like(l: &mut Lowerer<'_>, call: &Call<'_>, value: Scalar) -> Lowered<ValueId> {
    let scalar_type = Some(call.result_dtype(0)?);
    l.emit(Op::FullLike { x: call.tensor("self")?, v: literal(value), scalar_type })
}

/// Whole numbers are an op; other steps are known now and become a constant.
fn arange(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let dtype = call.result_dtype(0)?;
    let whole = |name: &str, default: i64| match call.has(name) {
        false => Some(Int::Literal(default)),
        true => match call.scalar(name) {
            Ok(Scalar::Int(value)) => Some(Int::Literal(value)),
            Ok(Scalar::Value(value)) => Some(Int::Value(value)),
            Ok(Scalar::Float(value)) if value.fract() == 0.0 && value.abs() < 1e9 => {
                Some(Int::Literal(value as i64))
            }
            _ => None,
        },
    };
    if let (Some(start), Some(stop), Some(step)) = (whole("start", 0), whole("end", 0), whole("step", 1)) {
        return one(l.emit(Op::ARange { start, stop, step, scalar_type: Some(dtype) })?);
    }
    let (start, stop) = (call.float("start", 0.0)?, call.float("end", 0.0)?);
    let step = call.float("step", 1.0)?;
    let count = ((stop - start) / step).ceil();
    if !(0.0..1e7).contains(&count) {
        return Err(Refusal::because(format!("a range of {count} numbers")));
    }
    let values: Vec<f32> = (0..count as u64).map(|at| (start + at as f64 * step) as f32).collect();
    one(numbers(l, &format!("_arange_{start:?}_{stop:?}_{step:?}"), &values, dtype)?)
}

fn numbers(l: &mut Lowerer<'_>, name: &str, values: &[f32], dtype: DType) -> Lowered<ValueId> {
    let tensor = HostTensor::from_slice(vec![values.len()], values);
    let value = l.constant(name, tensor.map_err(|error| Refusal::because(error.to_string()))?)?;
    l.cast(value, dtype)
}

fn linspace(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let dtype = call.result_dtype(0)?;
    let (start, end, steps) = (call.float("start", 0.0)?, call.float("end", 1.0)?, call.int("steps", 1)?);
    if !(0..10_000_000).contains(&steps) {
        return Err(Refusal::because(format!("{steps} numbers")));
    }
    let step = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
    // Both halves count from their own end, so that the last number is exact.
    let value = |at: i64| match at < steps / 2 {
        true => start + at as f64 * step,
        false => end - (steps - 1 - at) as f64 * step,
    };
    let values: Vec<f32> = (0..steps).map(|at| if steps == 1 { start } else { value(at) } as f32).collect();
    one(numbers(l, &format!("_linspace_{start:?}_{end:?}_{steps}"), &values, dtype)?)
}

fn eye(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let dtype = call.result_dtype(0)?;
    let n = call.any_int("n", 0)?;
    let m = call.maybe_any_int("m")?.unwrap_or(n);
    let lower = l.emit(Op::Tri { n, m, k: 0, scalar_type: dtype })?;
    one(l.emit(Op::Triu { x: lower, k: 0 })?)
}
