//! Ops that pick and place elements by index tensors. An index may be negative once. One that is still outside its
//! axis would read or write whatever lies there: it is an error where the host knows it ([`Known`]), else it is replaced by
//! 0, and a guard tells of it after the run.

use super::elementwise::as_type;
use super::shape::{axis_of, part};
use super::{Guard, Lowered, Operands, TakenIndices};
use crate::calls::Call;
use crate::error::{MlxError, invalid};
use crate::ffi::Array;
use crate::known::{Known, Verdict};
use pteron_ir::ValueId;
use pteron_ir::op::{IndexArg, IntArg};
use pteron_tensor::{DType, Scalar};

/// Indices into an axis of `size`, from which `room` elements must be left: counted from the front, in range, as i32.
/// A negative one counts from the end.
pub(super) fn checked(on: &mut Operands<'_>, indices: ValueId, size: usize, room: usize) -> Lowered {
    let from_front = |on: &Operands<'_>, wide: &Array| {
        let number = |value: i64| on.constant(Scalar::Int(value), DType::I64);
        let counted = on.mlx.one(Call::Add, &[wide, &number(size as i64)?], &[])?;
        let negative = on.mlx.one(Call::Less, &[wide, &number(0)?], &[])?;
        on.mlx.one(Call::Where, &[&negative, &counted, wide], &[])
    };
    in_range(on, indices, Axis { least: -(size as i64), size, room }, from_front)
}

/// Indices that count from the front alone: of matrices in a batch, of rows in a table of blocks.
pub(super) fn checked_from_front(on: &mut Operands<'_>, indices: ValueId, size: usize) -> Lowered {
    in_range(on, indices, Axis { least: 0, size, room: 1 }, |_, wide| wide.share())
}

/// What indices are held to.
struct Axis {
    least: i64,
    size: usize,
    /// Elements that must be left from each index on.
    room: usize,
}

/// Replaces what is outside by 0, and sets up the guard that tells of it, unless the host knows.
fn in_range(
    on: &mut Operands<'_>,
    indices: ValueId,
    Axis { least, size, room }: Axis,
    from_front: impl Fn(&Operands<'_>, &Array) -> Lowered,
) -> Lowered {
    let tensor = on.tensor(indices)?;
    if size < room {
        return invalid(format!("{room} elements of an axis of size {size}"));
    }
    let most = size as i64 - room as i64;
    let problem = format!("index {{}} is outside an axis of size {size}");
    let wide = on.cast(on.array(indices)?, DType::I64)?;
    // Negative ones leave as much room as is left from where they point at.
    let verdict = tensor.known.as_ref().filter(|_| room == 1).map(|known| known.verdict(least, most));
    match verdict {
        Some(Verdict::Inside) if least == 0 => return on.cast(&wide, DType::I32),
        Some(Verdict::Inside) => return on.cast(&from_front(on, &wide)?, DType::I32),
        Some(Verdict::Outside(found)) => return invalid(problem.replace("{}", &found.to_string())),
        Some(Verdict::Unknown) | None => {}
    }
    let from_front = from_front(on, &wide)?;
    let number = |value: i64| on.constant(Scalar::Int(value), DType::I64);
    let zero = number(0)?;
    let before = on.mlx.one(Call::Less, &[&from_front, &zero], &[])?;
    let beyond = on.mlx.one(Call::Greater, &[&from_front, &number(most)?], &[])?;
    let outside = on.mlx.one(Call::LogicalOr, &[&before, &beyond], &[])?;
    let safe = on.mlx.one(Call::Where, &[&outside, &zero, &from_front], &[])?;
    if tensor.ty.count() > 0 {
        let wrong = on.mlx.one(Call::Where, &[&outside, &wide, &number(Guard::FINE)?], &[])?;
        let axes: Vec<i64> = (0..tensor.ty.shape.len() as i64).collect();
        let found = match axes.is_empty() {
            true => wrong,
            false => on.mlx.one(Call::Max, &[&wrong], &[&[0], axes.as_slice()].concat())?,
        };
        let taken = match (&tensor.known, room) {
            (Some(Known::Taken(number)), 1) => Some(TakenIndices { number: *number, least, most }),
            _ => None,
        };
        on.guards.push(Guard { found, problem, taken });
    }
    on.cast(&safe, DType::I32)
}

pub(super) fn take(
    on: &mut Operands<'_>,
    x: ValueId,
    index: &IndexArg<ValueId, ValueId>,
    axis: i32,
) -> Lowered {
    let ty = on.ty(x)?;
    let axis = axis_of(axis.into(), ty.shape.len());
    let size = ty.shape[axis];
    let index = match index {
        IndexArg::Literal(index) => *index,
        IndexArg::Value(value) => on.int(&IntArg::Value(*value))?,
        IndexArg::Tensor(indices) => {
            let indices = checked(on, *indices, size, 1)?;
            return on.mlx.one(Call::Take, &[on.array(x)?, &indices], &[axis as i64]);
        }
    };
    let at = if index < 0 { index + size as i64 } else { index };
    match usize::try_from(at) {
        Ok(at) if at < size => part(on, on.array(x)?, &ty.shape, axis, at, at + 1),
        _ => invalid(format!("index {index} is outside an axis of size {size}")),
    }
}

pub(super) fn take_along_axis(on: &mut Operands<'_>, x: ValueId, indices: ValueId, axis: i32) -> Lowered {
    let ty = on.ty(x)?;
    if ty.shape.is_empty() {
        checked(on, indices, 1, 1)?;
        return on.array(x)?.share();
    }
    let axis = axis_of(axis.into(), ty.shape.len());
    let indices = checked(on, indices, ty.shape[axis], 1)?;
    on.mlx.one(Call::TakeAlongAxis, &[on.array(x)?, &indices], &[axis as i64])
}

pub(super) fn gather(
    on: &mut Operands<'_>,
    x: ValueId,
    indices: &[ValueId],
    axes: &[i32],
    slice_sizes: &[i32],
) -> Lowered {
    let ty = on.ty(x)?;
    let mut starts = Vec::with_capacity(indices.len());
    let axes: Vec<usize> = axes.iter().map(|&axis| axis_of(axis.into(), ty.shape.len())).collect();
    for (&index, &axis) in indices.iter().zip(&axes) {
        let room = usize::try_from(slice_sizes[axis]).unwrap_or(0);
        starts.push(checked(on, index, ty.shape[axis], room)?);
    }
    let sizes = slice_sizes.iter().map(|&size| i64::from(size));
    if starts.is_empty() {
        let ints: Vec<i64> =
            vec![0; ty.shape.len()].into_iter().chain(sizes).chain(vec![1; ty.shape.len()]).collect();
        return on.mlx.one(Call::Slice, &[on.array(x)?], &ints);
    }
    let axes = axes.iter().map(|&axis| axis as i64);
    let ints: Vec<i64> = [starts.len() as i64].into_iter().chain(axes).chain(sizes).collect();
    let arrays: Vec<&Array> = std::iter::once(on.array(x)?).chain(&starts).collect();
    on.mlx.one(Call::Gather, &arrays, &ints)
}

/// Of equal indices the last one stays on a CPU; a GPU writes them in any order.
pub(super) fn index_copy(
    on: &mut Operands<'_>,
    (dst, update): (ValueId, ValueId),
    indices: ValueId,
    axis: i32,
) -> Lowered {
    let ty = on.ty(dst)?;
    let axis = axis_of(axis.into(), ty.shape.len());
    let count = on.ty(indices)?.count();
    if count == 0 {
        return on.array(dst)?.share();
    }
    let indices = checked(on, indices, ty.shape[axis], 1)?;
    // MLX wants [row, a whole slice of dst with one element on the axis].
    let update = as_type(on, update, ty.dtype)?;
    let order: Vec<i64> = std::iter::once(axis)
        .chain((0..ty.shape.len()).filter(|&at| at != axis))
        .map(|at| at as i64)
        .collect();
    let rows = on.mlx.one(Call::Transpose, &[&update], &order)?;
    let mut slices = vec![count];
    slices.extend(ty.shape.iter().enumerate().map(|(at, &size)| if at == axis { 1 } else { size }));
    let rows = on.reshape(&rows, &slices)?;
    on.mlx.one(Call::Scatter, &[on.array(dst)?, &indices, &rows], &[axis as i64])
}

/// Indices and updates broadcast to each other, and may be shorter than `x` beside the axis.
pub(super) fn scatter_add(
    on: &mut Operands<'_>,
    (x, indices, updates): (ValueId, ValueId, ValueId),
    axis: i32,
) -> Lowered {
    let ty = on.ty(x)?;
    let updates_ty = on.ty(updates)?;
    if ty.shape.is_empty() {
        checked(on, indices, 1, 1)?;
        let update = as_type(on, updates, ty.dtype)?;
        return on.mlx.one(Call::Add, &[on.array(x)?, &update], &[]);
    }
    let axis = axis_of(axis.into(), ty.shape.len());
    let written: Vec<usize> = broadcast(&on.ty(indices)?.shape, &updates_ty.shape);
    let places = checked(on, indices, ty.shape[axis], 1)?;
    if written.contains(&0) {
        return on.array(x)?.share();
    }
    let sizes: Vec<i64> = written.iter().map(|&size| size as i64).collect();
    let places = on.mlx.one(Call::BroadcastTo, &[&places], &sizes)?;
    let update = as_type(on, updates, ty.dtype)?;
    let update = on.mlx.one(Call::BroadcastTo, &[&update], &sizes)?;
    let mut touched = written;
    touched[axis] = ty.shape[axis];
    if touched == ty.shape {
        return on.mlx.one(Call::ScatterAddAxis, &[on.array(x)?, &places, &update], &[axis as i64]);
    }
    let ends: Vec<i64> = touched.iter().map(|&size| size as i64).collect();
    let bounds = [vec![0; ends.len()], ends.clone(), vec![1; ends.len()]].concat();
    let corner = on.mlx.one(Call::Slice, &[on.array(x)?], &bounds)?;
    let summed = on.mlx.one(Call::ScatterAddAxis, &[&corner, &places, &update], &[axis as i64])?;
    on.mlx.one(Call::SliceUpdate, &[on.array(x)?, &summed], &bounds)
}

fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    a.iter().zip(b).map(|(&a, &b)| if a == 1 { b } else { a }).collect()
}

/// Indices of matrices in a batch, as MLX's products take them.
pub(super) fn batch_indices(
    on: &mut Operands<'_>,
    indices: Option<ValueId>,
    batch: &[usize],
) -> Result<Option<Array>, MlxError> {
    let Some(indices) = indices else { return Ok(None) };
    let count = pteron_tensor::element_count(batch).unwrap_or(0);
    let safe = checked_from_front(on, indices, count)?;
    on.cast(&safe, DType::U32).map(Some)
}
