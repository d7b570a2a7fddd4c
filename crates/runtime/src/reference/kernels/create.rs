//! Kernels that make tensors from numbers, and the triangles.

use super::lanes::{Writer, filled};
use super::{Computed, Operands};
use pteron_ir::ValueId;
use pteron_ir::op::{FloatArg, IntArg};
use pteron_tensor::{HostTensor, Scalar};
use std::ops::Range;

/// One number everywhere, for Full and FullLike.
pub(super) fn full(operands: &Operands<'_>, value: &FloatArg<ValueId>) -> Computed {
    filled(operands.out(), operands.number(value)?)
}

pub(super) fn arange(operands: &Operands<'_>, start: &IntArg<ValueId>, step: &IntArg<ValueId>) -> Computed {
    let (start, step) = (i128::from(operands.int(start)?), i128::from(operands.int(step)?));
    let mut writer = Writer::new(operands.out())?;
    let mut value = start;
    while writer.left() > 0 {
        writer.put(&[value])?;
        value += step;
    }
    Ok(writer.finish())
}

pub(super) fn tri(operands: &Operands<'_>, k: i32) -> Computed {
    let ones = filled(operands.out(), Scalar::Int(1))?;
    cleared(ones, |row| row + i64::from(k) + 1..i64::MAX)
}

pub(super) fn lower(operands: &mut Operands<'_>, x: ValueId, k: i32) -> Computed {
    cleared(operands.take(x)?, |row| row + i64::from(k) + 1..i64::MAX)
}

pub(super) fn upper(operands: &mut Operands<'_>, x: ValueId, k: i32) -> Computed {
    cleared(operands.take(x)?, |row| 0..row + i64::from(k))
}

/// Zeroes a range of columns in each row. All-zero bytes are zero in every dtype, and NaN goes away too, which a
/// product with a triangle of ones would keep.
fn cleared(mut x: HostTensor, columns_of: impl Fn(i64) -> Range<i64>) -> Computed {
    let [.., rows, columns] = *x.shape() else { return Ok(x) };
    if x.is_empty() {
        return Ok(x);
    }
    let size = x.dtype().size();
    for (index, row) in x.bytes_mut().chunks_exact_mut(columns * size).enumerate() {
        let Range { start, end } = columns_of((index % rows) as i64);
        let byte = |column: i64| column.clamp(0, columns as i64) as usize * size;
        if start < end {
            row[byte(start)..byte(end)].fill(0);
        }
    }
    Ok(x)
}
