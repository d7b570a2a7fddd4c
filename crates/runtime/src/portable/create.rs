//! Operators that make tensors out of numbers.

use super::call::{as_float, as_size};
use super::lanes::{self, filled};
use super::{Call, Operator, PortableError, Results, invalid, one, whole};
use pteron_tensor::{HostTensor, Scalar};

pub(super) const TABLE: &[Operator] = &[
    whole("aten::full.out", 2, |call| fill(call, call.sizes(0)?, call.scalar(1)?)),
    whole("aten::new_full.out", 3, |call| fill(call, call.sizes(1)?, call.scalar(2)?)),
    whole("aten::full_like.out", 3, |call| fill(call, call.tensor(0)?.shape().to_vec(), call.scalar(1)?)),
    whole("aten::fill.Scalar_out", 2, |call| fill(call, call.tensor(0)?.shape().to_vec(), call.scalar(1)?)),
    whole("aten::fill.Tensor_out", 2, |call| fill(call, call.tensor(0)?.shape().to_vec(), call.scalar(1)?)),
    whole("aten::ones.out", 1, |call| fill(call, call.sizes(0)?, Scalar::Int(1))),
    whole("aten::new_ones.out", 2, |call| fill(call, call.sizes(1)?, Scalar::Int(1))),
    whole("aten::ones_like.out", 2, |call| fill(call, call.tensor(0)?.shape().to_vec(), Scalar::Int(1))),
    whole("aten::zeros.out", 1, |call| fill(call, call.sizes(0)?, Scalar::Int(0))),
    whole("aten::new_zeros.out", 2, |call| fill(call, call.sizes(1)?, Scalar::Int(0))),
    whole("aten::zeros_like.out", 2, |call| fill(call, call.tensor(0)?.shape().to_vec(), Scalar::Int(0))),
    // What is empty has any contents; zeros are the same at every run.
    whole("aten::empty.out", 2, |call| fill(call, call.sizes(0)?, Scalar::Int(0))),
    whole("aten::new_empty.out", 2, |call| fill(call, call.sizes(1)?, Scalar::Int(0))),
    whole("aten::empty_like.out", 2, |call| fill(call, call.tensor(0)?.shape().to_vec(), Scalar::Int(0))),
    whole("aten::empty_permuted.out", 2, |call| fill(call, call.sizes(0)?, Scalar::Int(0))),
    whole("dim_order_ops::_empty_dim_order.out", 2, |call| fill(call, call.sizes(0)?, Scalar::Int(0))),
    whole("aten::scalar_tensor.out", 1, |call| fill(call, Vec::new(), call.scalar(0)?)),
    whole("aten::arange.out", 1, |call| range(call, Scalar::Int(0), call.scalar(0)?, Scalar::Int(1))),
    whole("aten::arange.start_out", 3, |call| {
        range(call, call.scalar(0)?, call.scalar(1)?, call.maybe_scalar(2)?.unwrap_or(Scalar::Int(1)))
    }),
    whole("aten::linspace.out", 3, linspace),
    whole("aten::eye.out", 1, |call| eye(call, call.int(0)?, call.int(0)?)),
    whole("aten::eye.m_out", 2, |call| eye(call, call.int(0)?, call.int(1)?)),
    whole("aten::masked_fill.Scalar_out", 3, masked_fill),
    whole("aten::masked_fill.Tensor_out", 3, masked_fill),
    whole("aten::tril.out", 2, |call| triangle(call, true)),
    whole("aten::triu.out", 2, |call| triangle(call, false)),
];

fn fill(call: &Call<'_>, shape: Vec<usize>, value: Scalar) -> Results {
    call.admit(&shape)?;
    one(filled(call.out_dtype(), shape, value))
}

/// Numbers from start to end; integers where all three are.
fn range(call: &Call<'_>, start: Scalar, end: Scalar, step: Scalar) -> Results {
    if let (Scalar::Int(start), Scalar::Int(end), Scalar::Int(step)) = (start, end, step) {
        if step == 0 {
            return invalid("a range cannot have a step of 0");
        }
        let way = i128::from(end) - i128::from(start);
        let length = range_length(way as f64 / step as f64)?;
        call.admit(&[length])?;
        // The numbers lie between start and end, so they cannot overflow.
        let values = (0..length).map(|index| start.wrapping_add(step.wrapping_mul(index as i64)));
        return one(lanes::from_ints(call.out_dtype(), vec![length], values));
    }
    let (start, end, step) = (as_float(start), as_float(end), as_float(step));
    if step == 0.0 {
        return invalid("a range cannot have a step of 0");
    }
    let length = range_length((end - start) / step)?;
    call.admit(&[length])?;
    one(lanes::from_floats(
        call.out_dtype(),
        vec![length],
        (0..length).map(|index| start + step * index as f64),
    ))
}

/// How many steps fit; more than memory holds are refused before anything is allocated.
fn range_length(steps: f64) -> Result<usize, PortableError> {
    match steps.ceil() {
        length if length <= 0.0 => Ok(0),
        length if length < f64::from(u32::MAX) => Ok(length as usize),
        length => invalid(format!("a range of {length} numbers")),
    }
}

fn linspace(call: &Call<'_>) -> Results {
    let (start, end, steps) = (call.float(0)?, call.float(1)?, as_size(call.int(2)?)?);
    call.admit(&[steps])?;
    let step = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
    // Both ends are met exactly: the second half is counted from the end.
    let value = |index: usize| match index < steps / 2 || steps < 2 {
        true => start + step * index as f64,
        false => end - step * (steps - 1 - index) as f64,
    };
    one(lanes::from_floats(call.out_dtype(), vec![steps], (0..steps).map(value)))
}

fn eye(call: &Call<'_>, rows: i64, columns: i64) -> Results {
    let (rows, columns) = (as_size(rows)?, as_size(columns)?);
    let shape = vec![rows, columns];
    call.admit(&shape)?;
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| i64::from(row == column)));
    one(lanes::from_ints(call.out_dtype(), shape, places))
}

fn masked_fill(call: &Call<'_>) -> Results {
    let (x, mask) = (call.tensor(0)?, call.tensor(1)?);
    let value = filled(x.dtype(), Vec::new(), call.scalar(2)?)?;
    super::binary::choose(call, mask, &value, x)
}

/// Zero on one side of the k-th diagonal of the last two axes.
fn triangle(call: &Call<'_>, lower: bool) -> Results {
    let (x, diagonal) = (call.tensor(0)?, call.int(1)?);
    let &[.., rows, columns] = x.shape() else { return invalid("a triangle needs two axes") };
    let mut out: HostTensor = x.clone();
    let size = x.dtype().size();
    let bytes = out.bytes_mut();
    for (number, element) in bytes.chunks_exact_mut(size).enumerate() {
        let (row, column) = ((number / columns % rows) as i64, (number % columns) as i64);
        let edge = row.saturating_add(diagonal);
        let kept = if lower { column <= edge } else { column >= edge };
        if !kept {
            element.fill(0);
        }
    }
    one(Ok(out))
}
