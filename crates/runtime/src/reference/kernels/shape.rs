//! Kernels of ops that move elements and change shapes. Most of them say only through which positions of `x` the
//! result goes.

use super::lanes::{cast, filled};
use super::offsets::{axis_of, broadcast_strides, strides};
use super::transfer::{Transfer, Walk, picked, row_major};
use super::{Computed, KernelError, Operands, ResultType};
use pteron_ir::ValueId;
use pteron_ir::op::IntArg;
use pteron_ir::rules::{SliceRange, slice_range};
use pteron_tensor::{HostTensor, Scalar};

/// The same elements in the shape of the result: reshape, squeeze, expand, copy.
pub(super) fn reshaped(operands: &mut Operands<'_>, x: ValueId) -> Computed {
    let shape = operands.out().shape.clone();
    Ok(operands.take(x)?.reshaped(shape)?)
}

pub(super) fn broadcast(operands: &Operands<'_>, x: ValueId) -> Computed {
    let (x, out) = (operands.tensor(x)?, operands.out());
    let strides = broadcast_strides(x.shape(), &out.shape);
    picked(x, out, out.shape.iter().zip(strides).map(|(&len, stride)| Walk::steps(len, stride)).collect())
}

pub(super) fn transpose(operands: &Operands<'_>, x: ValueId, perm: &[i32]) -> Computed {
    let x = operands.tensor(x)?;
    let perm: Vec<usize> = perm.iter().map(|&axis| axis_of(axis.into(), x.rank())).collect();
    permuted(x, &perm)
}

/// `x` with its axes in the order that `perm` lists.
pub(super) fn permuted(x: &HostTensor, perm: &[usize]) -> Computed {
    if perm.iter().enumerate().all(|(at, &axis)| at == axis) {
        return Ok(x.clone());
    }
    let strides = strides(x.shape());
    let walks = perm.iter().map(|&axis| Walk::steps(x.shape()[axis], strides[axis])).collect();
    let shape = perm.iter().map(|&axis| x.shape()[axis]).collect();
    picked(x, &ResultType { dtype: x.dtype(), shape }, walks)
}

/// Each axis of the result is two: which repeat, and which element.
pub(super) fn tile(operands: &Operands<'_>, x: ValueId, reps: &[IntArg<ValueId>]) -> Computed {
    let (x, out) = (operands.tensor(x)?, operands.out());
    let mut walks = Vec::with_capacity(2 * out.shape.len());
    let strides = broadcast_strides(x.shape(), &out.shape);
    for (at, stride) in strides.into_iter().enumerate() {
        let lead = |len: usize| at.checked_sub(out.shape.len() - len);
        let reps = lead(reps.len()).map_or(Ok(1), |at| operands.int(&reps[at]))?;
        let size = lead(x.rank()).map_or(1, |at| x.shape()[at]);
        walks.extend([Walk::stay(reps.max(0) as usize), Walk::steps(size, stride)]);
    }
    picked(x, out, walks)
}

/// The repeated axis is two: which element, and which repeat.
pub(super) fn repeat(operands: &Operands<'_>, x: ValueId, repeats: &IntArg<ValueId>, axis: i32) -> Computed {
    let (x, out) = (operands.tensor(x)?, operands.out());
    let repeats = operands.int(repeats)?.max(0) as usize;
    let mut walks = row_major(x.shape());
    walks.insert(axis_of(axis.into(), x.rank()) + 1, Walk::stay(repeats));
    picked(x, out, walks)
}

pub(super) fn slice(
    operands: &Operands<'_>,
    x: ValueId,
    axis: &IntArg<ValueId>,
    start: &IntArg<ValueId>,
    stop: &IntArg<ValueId>,
    step: i32,
) -> Computed {
    let x = operands.tensor(x)?;
    let (axis, range) = range_of(operands, x.shape(), axis, start, stop, step)?;
    let mut walks = row_major(x.shape());
    walks[axis] = walk_of(range, strides(x.shape())[axis]);
    picked(x, operands.out(), walks)
}

fn range_of(
    operands: &Operands<'_>,
    shape: &[usize],
    axis: &IntArg<ValueId>,
    start: &IntArg<ValueId>,
    stop: &IntArg<ValueId>,
    step: i32,
) -> Result<(usize, SliceRange), KernelError> {
    let axis = axis_of(operands.int(axis)?, shape.len());
    let range = slice_range(shape[axis], operands.int(start)?, operands.int(stop)?, step);
    Ok((axis, range.ok_or_else(|| KernelError::Invalid("a slice with step 0".into()))?))
}

fn walk_of(range: SliceRange, stride: usize) -> Walk {
    let SliceRange { start, step, count } = range;
    Walk::Steps {
        first: start.saturating_mul(stride),
        step: step.saturating_mul(stride as isize),
        len: count,
    }
}

/// Writes into `dst` itself when nobody else needs it: a cache of megabytes changes by a row a step.
pub(super) fn slice_update(
    operands: &mut Operands<'_>,
    (dst, update): (ValueId, ValueId),
    axis: &IntArg<ValueId>,
    start: &IntArg<ValueId>,
    stop: &IntArg<ValueId>,
    step: i32,
) -> Computed {
    let shape = operands.tensor(dst)?.shape().to_vec();
    let (axis, range) = range_of(operands, &shape, axis, start, stop, step)?;
    let update = cast(operands.tensor(update)?, operands.out().dtype)?;
    let mut out = operands.take(dst)?;
    let mut slice = shape.clone();
    slice[axis] = range.count;
    if slice.contains(&0) {
        return Ok(out); // whatever the update's shape
    }
    let mut to = row_major(&shape);
    to[axis] = walk_of(range, strides(&shape)[axis]);
    let from = broadcast_strides(update.shape(), &slice);
    let from = slice.iter().zip(from).map(|(&len, stride)| Walk::steps(len, stride));
    Transfer::new(out.dtype().size(), to, from)?.run(out.bytes_mut(), 0, update.bytes(), 0)?;
    Ok(out)
}

pub(super) fn split(operands: &Operands<'_>, x: ValueId, axis: i32) -> Result<Vec<HostTensor>, KernelError> {
    let x = operands.tensor(x)?;
    let axis = axis_of(axis.into(), x.rank());
    let mut start = 0;
    let pieces = operands.results.iter().map(|out| {
        let piece = part(x, axis, start, out.shape[axis]);
        start += out.shape[axis];
        piece
    });
    pieces.collect()
}

/// A contiguous part of one axis.
fn part(x: &HostTensor, axis: usize, start: usize, len: usize) -> Computed {
    let mut shape = x.shape().to_vec();
    shape[axis] = len;
    let mut walks = row_major(x.shape());
    let range = SliceRange { start: if len == 0 { 0 } else { start }, step: 1, count: len };
    walks[axis] = walk_of(range, strides(x.shape())[axis]);
    picked(x, &ResultType { dtype: x.dtype(), shape }, walks)
}

pub(super) fn concatenate(operands: &Operands<'_>, tensors: &[ValueId], axis: i32) -> Computed {
    let out = operands.out();
    joined(out, axis_of(axis.into(), out.shape.len()), converted(operands, tensors)?)
}

/// Concatenation after each tensor got the new axis.
pub(super) fn stack(operands: &Operands<'_>, tensors: &[ValueId], axis: i32) -> Computed {
    let out = operands.out();
    let axis = axis_of(axis.into(), out.shape.len());
    let mut layer = out.shape.clone();
    layer[axis] = 1;
    let layers = converted(operands, tensors)?.into_iter().map(|tensor| tensor.reshaped(layer.clone()));
    joined(out, axis, layers.collect::<Result<_, _>>()?)
}

fn converted(operands: &Operands<'_>, tensors: &[ValueId]) -> Result<Vec<HostTensor>, KernelError> {
    tensors.iter().map(|&tensor| cast(operands.tensor(tensor)?, operands.out().dtype)).collect()
}

fn joined(out: &ResultType, axis: usize, pieces: Vec<HostTensor>) -> Computed {
    let mut joined = HostTensor::zeros(out.dtype, out.shape.clone())?;
    let steps = strides(&out.shape);
    let size = out.dtype.size();
    let mut start = 0;
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        let to = piece.shape().iter().zip(&steps).map(|(&len, &step)| Walk::steps(len, step));
        let transfer = Transfer::new(size, to, row_major(piece.shape()))?;
        transfer.run(joined.bytes_mut(), start * steps[axis] * size, piece.bytes(), 0)?;
        start += piece.shape()[axis];
    }
    Ok(joined)
}

pub(super) fn pad(
    operands: &Operands<'_>,
    x: ValueId,
    widths: &[IntArg<ValueId>],
    mode: &str,
    constant: f32,
) -> Computed {
    let (x, out) = (operands.tensor(x)?, operands.out());
    let widths = widths.iter().map(|width| operands.int(width)).collect::<Result<Vec<_>, _>>()?;
    match mode {
        "edge" => pad_edges(x, &widths),
        _ => pad_constant(x, out, &widths, constant),
    }
}

fn pad_constant(x: &HostTensor, out: &ResultType, widths: &[i64], constant: f32) -> Computed {
    let mut padded = filled(out, Scalar::Float(constant.into()))?;
    if x.is_empty() {
        return Ok(padded);
    }
    let steps = strides(&out.shape);
    let to = x.shape().iter().zip(&steps).enumerate().map(|(axis, (&len, &step))| Walk::Steps {
        first: widths[2 * axis].max(0) as usize * step,
        step: step as isize,
        len,
    });
    let transfer = Transfer::new(out.dtype.size(), to, row_major(x.shape()))?;
    transfer.run(padded.bytes_mut(), 0, x.bytes(), 0)?;
    Ok(padded)
}

/// Axis by axis, so that corners repeat corners.
fn pad_edges(x: &HostTensor, widths: &[i64]) -> Computed {
    let mut x = x.clone();
    for (axis, pair) in widths.chunks_exact(2).enumerate() {
        let (before, after) = (pair[0].max(0) as usize, pair[1].max(0) as usize);
        let size = x.shape()[axis];
        if before + after == 0 || x.is_empty() {
            let mut shape = x.shape().to_vec();
            shape[axis] += before + after;
            x = HostTensor::new(x.dtype(), shape, x.bytes().clone())?;
            continue;
        }
        let stride = strides(x.shape())[axis];
        let last = Walk::Steps { first: (size - 1) * stride, step: 0, len: after };
        x = rejoined(&x, axis, [Walk::stay(before), Walk::steps(size, stride), last])?;
    }
    Ok(x)
}

pub(super) fn roll(
    operands: &Operands<'_>,
    x: ValueId,
    shifts: &[IntArg<ValueId>],
    axes: &[i32],
) -> Computed {
    let x = operands.tensor(x)?;
    let shape = x.shape().to_vec();
    if x.is_empty() {
        return Ok(x.clone());
    }
    // Without axes the tensor is rolled as if it were flat.
    let (mut rolled, axes) = match axes {
        [] => (x.clone().reshaped(vec![x.len()])?, vec![0]),
        _ => (x.clone(), axes.iter().map(|&axis| axis_of(axis.into(), x.rank())).collect()),
    };
    for (shift, axis) in shifts.iter().zip(axes) {
        let size = rolled.shape()[axis];
        let shift = operands.int(shift)?.rem_euclid(size as i64) as usize;
        let stride = strides(rolled.shape())[axis];
        let tail = Walk::Steps { first: (size - shift) * stride, step: stride as isize, len: shift };
        rolled = rejoined(&rolled, axis, [tail, Walk::steps(size - shift, stride)])?;
    }
    Ok(rolled.reshaped(shape)?)
}

/// One axis put together anew from walks over it.
fn rejoined<const N: usize>(x: &HostTensor, axis: usize, pieces: [Walk; N]) -> Computed {
    let mut shape = x.shape().to_vec();
    shape[axis] = pieces.iter().map(Walk::len).sum();
    let mut out = HostTensor::zeros(x.dtype(), shape)?;
    let steps = strides(out.shape());
    let size = x.dtype().size();
    let mut start = 0;
    for piece in pieces {
        let len = piece.len();
        let mut from = row_major(x.shape());
        from[axis] = piece;
        let lengths = x.shape().iter().enumerate().map(|(at, &other)| if at == axis { len } else { other });
        let to = lengths.zip(&steps).map(|(len, &step)| Walk::steps(len, step));
        let shift = start * steps[axis] * size;
        Transfer::new(size, to, from)?.run(out.bytes_mut(), shift, x.bytes(), 0)?;
        start += len;
    }
    Ok(out)
}

pub(super) fn flip(operands: &Operands<'_>, x: ValueId, axes: &[i32]) -> Computed {
    let x = operands.tensor(x)?;
    let axes: Vec<usize> = axes.iter().map(|&axis| axis_of(axis.into(), x.rank())).collect();
    flipped(x, &axes)
}

/// `x` with the listed axes reversed.
pub(super) fn flipped(x: &HostTensor, axes: &[usize]) -> Computed {
    if x.is_empty() {
        return Ok(x.clone());
    }
    let mut walks = row_major(x.shape());
    for (axis, stride) in strides(x.shape()).into_iter().enumerate() {
        let size = x.shape()[axis];
        if axes.contains(&axis) {
            walks[axis] = Walk::Steps { first: (size - 1) * stride, step: -(stride as isize), len: size };
        }
    }
    picked(x, &ResultType { dtype: x.dtype(), shape: x.shape().to_vec() }, walks)
}

/// Strides run over the row-major elements, whatever the real memory was. MLX reads beyond them unchecked.
pub(super) fn as_strided(
    operands: &Operands<'_>,
    x: ValueId,
    steps: &[IntArg<ValueId>],
    offset: u64,
) -> Computed {
    let (x, out) = (operands.tensor(x)?, operands.out());
    if out.shape.contains(&0) {
        return Ok(HostTensor::zeros(out.dtype, out.shape.clone())?);
    }
    let mut walks = Vec::with_capacity(steps.len() + 1);
    let (mut low, mut high) = (i128::from(offset), i128::from(offset));
    for (&len, step) in out.shape.iter().zip(steps) {
        let step = operands.int(step)?;
        let way = i128::from(step) * (len as i128 - 1);
        (low, high) = (low + way.min(0), high + way.max(0));
        // A backward axis starts at its far end.
        let first = way.min(0).unsigned_abs() as usize;
        walks.push(Walk::Steps { first, step: step as isize, len });
    }
    if low < 0 || high >= x.len() as i128 {
        let count = x.len();
        return Err(KernelError::Invalid(format!("strides reach {low} to {high} of {count} elements")));
    }
    walks.insert(0, Walk::Steps { first: low as usize, step: 0, len: 1 });
    picked(x, out, walks)
}
