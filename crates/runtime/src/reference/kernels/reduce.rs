//! Kernels that fold axes: sums, means, extremes, and running sums along one axis. A tensor is first arranged
//! so that what folds together lies together: one row for each element of the result.

use super::lanes::{BLOCK, Lane, Reader, Writer};
use super::offsets::axis_of;
use super::shape::{flipped, permuted};
use super::{Computed, KernelError, Operands, ResultType, functions, order};
use pteron_ir::ValueId;
use pteron_tensor::HostTensor;

/// A tensor whose rows are folded.
pub(super) struct Rows {
    pub(super) tensor: HostTensor,
    /// Elements in a row.
    pub(super) len: usize,
}

/// `x` with the listed axes last; without a list, all of it as one row.
pub(super) fn rows(x: &HostTensor, axes: Option<&[i32]>) -> Result<Rows, KernelError> {
    let listed = axes.unwrap_or_default();
    let folded: Vec<usize> = listed.iter().map(|&axis| axis_of(axis.into(), x.rank())).collect();
    let is_folded = |axis: &usize| listed.is_empty() || folded.contains(axis);
    let (last, first): (Vec<usize>, Vec<usize>) = (0..x.rank()).partition(is_folded);
    let len = last.iter().map(|&axis| x.shape()[axis]).fold(1, usize::saturating_mul);
    Ok(Rows { tensor: permuted(x, &[first, last].concat())?, len })
}

/// Folds each row from `start` by `step`, and makes the result's element of what it comes to.
fn fold<L: Lane, A, M: Lane>(
    rows: &Rows,
    out: &ResultType,
    start: impl Fn() -> A,
    step: impl Fn(A, L) -> A,
    finish: impl Fn(A) -> M,
) -> Computed {
    let (mut reader, mut writer) = (Reader::new(&rows.tensor), Writer::new(out)?);
    let mut lanes = [L::default(); BLOCK];
    while writer.left() > 0 {
        let (mut folded, mut left) = (start(), rows.len);
        while left > 0 {
            let lanes = &mut lanes[..left.min(BLOCK)];
            reader.fill(lanes)?;
            folded = lanes.iter().fold(folded, |folded, &lane| step(folded, lane));
            left -= lanes.len();
        }
        writer.put(&[finish(folded)])?;
    }
    Ok(writer.finish())
}

pub(super) fn sum(operands: &Operands<'_>, x: ValueId, axes: Option<&[i32]>) -> Computed {
    let (rows, out) = (rows(operands.tensor(x)?, axes)?, operands.out());
    match out.dtype.is_float() {
        true => fold(&rows, out, || 0.0, |sum, x: f64| sum + x, |sum: f64| sum),
        false => fold(&rows, out, || 0, |sum: i128, x: i128| sum.wrapping_add(x), |sum| sum),
    }
}

pub(super) fn product(operands: &Operands<'_>, x: ValueId, axes: Option<&[i32]>) -> Computed {
    let (rows, out) = (rows(operands.tensor(x)?, axes)?, operands.out());
    match out.dtype.is_float() {
        true => fold(&rows, out, || 1.0, |product, x: f64| product * x, |product: f64| product),
        false => fold(&rows, out, || 1, |product: i128, x: i128| product.wrapping_mul(x), |product| product),
    }
}

/// Divides the sum before it is rounded: MLX rounds both to the tensor's dtype first, and an f16 sum overflows.
pub(super) fn mean(operands: &Operands<'_>, x: ValueId, axes: Option<&[i32]>) -> Computed {
    let rows = rows(operands.tensor(x)?, axes)?;
    let count = rows.len as f64;
    fold(&rows, operands.out(), || 0.0, |sum, x: f64| sum + x, |sum: f64| sum / count)
}

/// Welford's running mean and sum of squared distances from it. Fewer elements than `ddof` divide by zero.
pub(super) fn variance(
    operands: &Operands<'_>,
    x: ValueId,
    axes: Option<&[i32]>,
    ddof: i32,
    finish: impl Fn(f64) -> f64,
) -> Computed {
    let rows = rows(operands.tensor(x)?, axes)?;
    let divisor = (rows.len as f64 - f64::from(ddof)).max(0.0);
    let step = |(count, mean, squares): (f64, f64, f64), x: f64| {
        let count = count + 1.0;
        let distance = x - mean;
        let mean = mean + distance / count;
        (count, mean, squares + distance * (x - mean))
    };
    fold(&rows, operands.out(), || (0.0, 0.0, 0.0), step, |(_, _, squares)| finish(squares / divisor))
}

pub(super) fn any(operands: &Operands<'_>, x: ValueId, axes: Option<&[i32]>) -> Computed {
    let rows = rows(operands.tensor(x)?, axes)?;
    fold(&rows, operands.out(), || false, |any, x: bool| any | x, |any| any)
}

pub(super) fn all(operands: &Operands<'_>, x: ValueId, axes: Option<&[i32]>) -> Computed {
    let rows = rows(operands.tensor(x)?, axes)?;
    fold(&rows, operands.out(), || true, |all, x: bool| all & x, |all| all)
}

pub(super) fn max(operands: &Operands<'_>, x: ValueId, axes: Option<&[i32]>) -> Computed {
    extreme(operands, x, axes, functions::maximum, functions::maximum)
}

pub(super) fn min(operands: &Operands<'_>, x: ValueId, axes: Option<&[i32]>) -> Computed {
    extreme(operands, x, axes, functions::minimum, functions::minimum)
}

fn extreme(
    operands: &Operands<'_>,
    x: ValueId,
    axes: Option<&[i32]>,
    float: fn(f64, f64) -> f64,
    int: fn(i128, i128) -> i128,
) -> Computed {
    let (rows, out) = (rows(operands.tensor(x)?, axes)?, operands.out());
    chosen_from(&rows, out)?;
    match out.dtype.is_float() {
        true => fold(
            &rows,
            out,
            || None,
            |best, x| Some(best.map_or(x, |best| float(best, x))),
            Option::unwrap_or_default,
        ),
        false => fold(
            &rows,
            out,
            || None,
            |best, x| Some(best.map_or(x, |best| int(best, x))),
            Option::unwrap_or_default,
        ),
    }
}

/// Refuses to choose from empty rows.
pub(super) fn chosen_from(rows: &Rows, out: &ResultType) -> Result<(), KernelError> {
    if rows.len == 0 && !out.shape.contains(&0) {
        return Err(KernelError::Invalid("there is no element to choose".into()));
    }
    Ok(())
}

/// Index of the first element that is `better` than all before it; the first NaN is better than any number.
pub(super) fn arg(operands: &Operands<'_>, x: ValueId, axis: i32, better: std::cmp::Ordering) -> Computed {
    let x = operands.tensor(x)?;
    let (rows, out) = (rows(x, Some(&[axis]))?, operands.out());
    chosen_from(&rows, out)?;
    if x.dtype().is_float() {
        arg_lanes::<f64>(&rows, out, better)
    } else {
        arg_lanes::<i128>(&rows, out, better)
    }
}

#[allow(clippy::eq_op)] // only a NaN differs from itself
fn arg_lanes<L: Lane + PartialOrd>(rows: &Rows, out: &ResultType, better: std::cmp::Ordering) -> Computed {
    let step = |(at, best): (i128, Option<(i128, L)>), x: L| {
        let found = match best {
            None => true,
            Some((_, best)) => x.partial_cmp(&best) == Some(better) || (x != x && best == best),
        };
        (at + 1, if found { Some((at, x)) } else { best })
    };
    fold(rows, out, || (0, None), step, |(_, best)| best.map_or(0, |(at, _)| at))
}

/// The middle of the sorted row; of an even count, the mean of the middle two. NaN sorts last, so a row that has
/// one ends with it.
pub(super) fn median(operands: &Operands<'_>, x: ValueId, axes: Option<&[i32]>) -> Computed {
    let (mut rows, out) = (rows(operands.tensor(x)?, axes)?, operands.out());
    chosen_from(&rows, out)?;
    order::sort_rows(&mut rows.tensor, rows.len)?;
    let middle = [(rows.len.saturating_sub(1)) / 2, rows.len / 2];
    let step = |(at, sum, last): (usize, f64, f64), x: f64| {
        let times = middle.iter().filter(|&&middle| middle == at).count();
        (
            at + 1,
            if times > 0 { sum + x * times as f64 } else { sum },
            if at + 1 == rows.len { x } else { last },
        )
    };
    let finish = |(_, sum, last): (usize, f64, f64)| if last.is_nan() { last } else { sum / 2.0 };
    fold(&rows, out, || (0, 0.0, 0.0), step, finish)
}

/// Running sums. Kept in the lane and rounded one by one as in PyTorch, where MLX adds rounded sums.
pub(super) fn cumsum(
    operands: &Operands<'_>,
    x: ValueId,
    axis: i32,
    reverse: bool,
    inclusive: bool,
) -> Computed {
    let (x, out) = (operands.tensor(x)?, operands.out());
    if out.shape.contains(&0) {
        return Ok(HostTensor::zeros(out.dtype, out.shape.clone())?);
    }
    let axis = axis_of(axis.into(), x.rank());
    let turned = |x: &HostTensor| if reverse { flipped(x, &[axis]) } else { Ok(x.clone()) };
    let sums = along(&turned(x)?, axis, |rows| {
        let out = ResultType { dtype: out.dtype, shape: rows.tensor.shape().to_vec() };
        match out.dtype.is_float() {
            true => running(rows, &out, inclusive, |sum: f64, x: f64| sum + x),
            false => running(rows, &out, inclusive, i128::wrapping_add),
        }
    })?;
    turned(&sums)
}

fn running<L: Lane>(rows: &Rows, out: &ResultType, inclusive: bool, add: impl Fn(L, L) -> L) -> Computed {
    let (mut reader, mut writer) = (Reader::new(&rows.tensor), Writer::new(out)?);
    let mut lanes = [L::default(); BLOCK];
    while writer.left() > 0 {
        let (mut sum, mut left) = (L::default(), rows.len);
        while left > 0 {
            let lanes = &mut lanes[..left.min(BLOCK)];
            reader.fill(lanes)?;
            for lane in lanes.iter_mut() {
                let before = sum;
                sum = add(sum, *lane);
                *lane = if inclusive { sum } else { before };
            }
            writer.put(lanes)?;
            left -= lanes.len();
        }
    }
    Ok(writer.finish())
}

/// Applies a function of rows along one axis, and puts the axis back where it was.
pub(super) fn along(x: &HostTensor, axis: usize, f: impl FnOnce(&Rows) -> Computed) -> Computed {
    let rank = x.rank();
    let rows = rows(x, Some(&[axis as i32]))?;
    // The axis went last; everything behind it moved up by one.
    let back: Vec<usize> = (0..rank)
        .map(|at| match at.cmp(&axis) {
            std::cmp::Ordering::Less => at,
            std::cmp::Ordering::Equal => rank - 1,
            std::cmp::Ordering::Greater => at - 1,
        })
        .collect();
    permuted(&f(&rows)?, &back)
}
