//! Ops that move elements and change shapes.

use super::elementwise::as_type;
use super::{Lowered, Operands};
use crate::calls::Call;
use crate::error::{MlxError, invalid};
use crate::ffi::{Array, Attributes};
use pteron_ir::ValueId;
use pteron_ir::op::IntArg;
use pteron_ir::rules::{SliceRange, slice_range};
use pteron_tensor::Scalar;

/// An axis counted from the front; the rules have seen to it that it is there.
pub(super) fn axis_of(axis: i64, rank: usize) -> usize {
    let at = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(at).unwrap_or(0)
}

pub(super) fn transpose(on: &Operands<'_>, x: ValueId, perm: &[i32]) -> Lowered {
    let perm: Vec<i64> = perm.iter().map(|&axis| axis_of(axis.into(), perm.len()) as i64).collect();
    on.mlx.one(Call::Transpose, &[on.array(x)?], &perm)
}

/// MLX reads beyond the end unchecked.
pub(super) fn as_strided(on: &Operands<'_>, x: ValueId, strides: &[IntArg<ValueId>], offset: u64) -> Lowered {
    let (count, out) = (on.ty(x)?.count(), on.out());
    let strides = on.ints(strides)?;
    let (mut low, mut high) = (i128::from(offset), i128::from(offset));
    for (&len, &stride) in out.shape.iter().zip(&strides) {
        let way = i128::from(stride) * (len as i128 - 1);
        (low, high) = (low + way.min(0), high + way.max(0));
    }
    if low < 0 || high >= count as i128 {
        return invalid(format!("strides reach {low} to {high} of {count} elements"));
    }
    let ints: Vec<i64> = [offset as i64].into_iter().chain(out.ints()).chain(strides).collect();
    on.mlx.one(Call::AsStrided, &[on.array(x)?], &ints)
}

pub(super) fn split(on: &Operands<'_>, x: ValueId, axis: i32) -> Result<Vec<Array>, MlxError> {
    let axis = axis_of(axis.into(), on.ty(x)?.shape.len());
    let mut at = 0;
    let mut ints = vec![axis as i64];
    for piece in &on.results[..on.results.len().saturating_sub(1)] {
        at += piece.shape[axis] as i64;
        ints.push(at);
    }
    let attributes = Attributes { ints: &ints, ..Attributes::default() };
    on.mlx.many(Call::Split, &[Some(on.array(x)?)], attributes, on.results.len())
}

pub(super) fn slice(
    on: &Operands<'_>,
    x: ValueId,
    axis: &IntArg<ValueId>,
    start: &IntArg<ValueId>,
    stop: &IntArg<ValueId>,
    step: i32,
) -> Lowered {
    let shape = &on.ty(x)?.shape;
    let (axis, range) = range_of(on, shape, axis, start, stop, step)?;
    on.mlx.one(Call::Slice, &[on.array(x)?], &bounds(shape, axis, range))
}

/// The elements from `start` to `end` of one axis.
pub(super) fn part(
    on: &Operands<'_>,
    x: &Array,
    shape: &[usize],
    axis: usize,
    start: usize,
    end: usize,
) -> Lowered {
    let range = SliceRange { start, step: 1, count: end.saturating_sub(start) };
    on.mlx.one(Call::Slice, &[x], &bounds(shape, axis, range))
}

fn range_of(
    on: &Operands<'_>,
    shape: &[usize],
    axis: &IntArg<ValueId>,
    start: &IntArg<ValueId>,
    stop: &IntArg<ValueId>,
    step: i32,
) -> Result<(usize, SliceRange), MlxError> {
    let axis = axis_of(on.int(axis)?, shape.len());
    let range = slice_range(shape[axis], on.int(start)?, on.int(stop)?, step);
    Ok((axis, range.ok_or_else(|| MlxError::Invalid("a slice with step 0".into()))?))
}

/// Starts, stops and steps of all axes, of which only one is cut.
fn bounds(shape: &[usize], axis: usize, range: SliceRange) -> Vec<i64> {
    let (start, step) = (range.start as i64, range.step as i64);
    let last = start + (range.count as i64 - 1) * step;
    // A stop before element 0 counts from the end in MLX as in Python, so it is written as far below.
    let stop = match last + step.signum() {
        -1 => -(shape[axis] as i64) - 1,
        stop => stop,
    };
    let mut starts = vec![0; shape.len()];
    let mut stops: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
    let mut steps = vec![1; shape.len()];
    (starts[axis], stops[axis], steps[axis]) = (start, stop, step);
    [starts, stops, steps].concat()
}

pub(super) fn slice_update(
    on: &Operands<'_>,
    (dst, update): (ValueId, ValueId),
    axis: &IntArg<ValueId>,
    start: &IntArg<ValueId>,
    stop: &IntArg<ValueId>,
    step: i32,
) -> Lowered {
    let ty = on.ty(dst)?;
    let (axis, range) = range_of(on, &ty.shape, axis, start, stop, step)?;
    if range.count == 0 {
        return on.array(dst)?.share();
    }
    let update = as_type(on, update, ty.dtype)?;
    let mut slice: Vec<i64> = ty.ints();
    slice[axis] = range.count as i64;
    let update = on.mlx.one(Call::BroadcastTo, &[&update], &slice)?;
    on.mlx.one(Call::SliceUpdate, &[on.array(dst)?, &update], &bounds(&ty.shape, axis, range))
}

/// Concatenate and stack, in the dtype that all share. A scalar counts as one element.
pub(super) fn join(on: &Operands<'_>, call: Call, tensors: &[ValueId], axis: i32) -> Lowered {
    let out = on.out();
    let axis = axis_of(axis.into(), out.shape.len());
    let mut arrays = Vec::with_capacity(tensors.len());
    for &tensor in tensors {
        let array = on.cast(on.array(tensor)?, out.dtype)?;
        let scalar = call == Call::Concatenate && on.ty(tensor)?.shape.is_empty();
        arrays.push(if scalar { on.reshape(&array, &[1])? } else { array });
    }
    on.mlx.one(call, &arrays.iter().collect::<Vec<_>>(), &[axis as i64])
}

pub(super) fn pad(
    on: &Operands<'_>,
    x: ValueId,
    widths: &[IntArg<ValueId>],
    mode: &str,
    constant: f32,
) -> Lowered {
    let ty = on.ty(x)?;
    let filler = Scalar::Float(constant.into());
    if ty.count() == 0 {
        return on.full(filler, on.out());
    }
    let filler = on.constant(filler, ty.dtype)?;
    let ints = on.ints(widths)?;
    let arrays = [Some(on.array(x)?), Some(&filler)];
    on.mlx.with(Call::Pad, &arrays, Attributes { ints: &ints, text: mode, ..Attributes::default() })
}

pub(super) fn roll(on: &Operands<'_>, x: ValueId, shifts: &[IntArg<ValueId>], axes: &[i32]) -> Lowered {
    let ty = on.ty(x)?;
    // Without axes the tensor is rolled as if it were flat.
    let (mut rolled, shape, axes) = match axes {
        [] => (on.reshape(on.array(x)?, &[ty.count()])?, vec![ty.count()], vec![0]),
        _ => {
            let axes = axes.iter().map(|&axis| axis_of(axis.into(), ty.shape.len())).collect();
            (on.array(x)?.share()?, ty.shape.clone(), axes)
        }
    };
    for (shift, axis) in shifts.iter().zip(axes) {
        let size = shape.get(axis).copied().unwrap_or(1).max(1) as i64;
        rolled = on.mlx.one(Call::Roll, &[&rolled], &[on.int(shift)?.rem_euclid(size), axis as i64])?;
    }
    Ok(rolled)
}

pub(super) fn flip(on: &Operands<'_>, x: ValueId, axes: &[i32]) -> Lowered {
    let rank = on.ty(x)?.shape.len();
    if axes.is_empty() || rank == 0 {
        return on.array(x)?.share();
    }
    let axes: Vec<i64> = axes.iter().map(|&axis| axis_of(axis.into(), rank) as i64).collect();
    on.mlx.one(Call::Flip, &[on.array(x)?], &axes)
}
