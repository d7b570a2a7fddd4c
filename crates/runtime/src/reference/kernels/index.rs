//! Kernels of ops that pick and place elements by index tensors. An index may be negative once; one that is
//! still outside its axis is an error, where MLX reads or writes whatever is there.

use super::lanes::{BLOCK, Reader, cast};
use super::offsets::{Offsets, axis_of, broadcast_strides, strides};
use super::transfer::{Transfer, Walk, picked, row_major};
use super::{Computed, KernelError, Operands, ResultType};
use half::{bf16, f16};
use pteron_ir::ValueId;
use pteron_ir::op::{IndexArg, IntArg};
use pteron_tensor::{DType, Element, HostTensor};

/// The positions that an index tensor means on an axis, a block at a time.
struct Positions<'a> {
    reader: Reader<'a>,
    left: usize,
    size: usize,
}

impl<'a> Positions<'a> {
    /// In the order of the index tensor.
    fn new(indices: &'a HostTensor, size: usize) -> Positions<'a> {
        Positions { reader: Reader::new(indices), left: indices.len(), size }
    }

    /// In the order of `shape`, to which the index tensor is broadcast.
    fn broadcast(indices: &'a HostTensor, shape: &[usize], size: usize) -> Positions<'a> {
        let left = pteron_tensor::element_count(shape).unwrap_or(0);
        Positions { reader: Reader::operand(indices, shape, indices.dtype()), left, size }
    }

    /// The next block; empty at the end.
    fn next_block(&mut self) -> Result<Vec<usize>, KernelError> {
        let mut lanes = [0i128; BLOCK];
        let lanes = &mut lanes[..self.left.min(BLOCK)];
        self.left -= lanes.len();
        self.reader.fill(lanes)?;
        lanes.iter().map(|&index| position(index, self.size)).collect()
    }
}

fn position(index: i128, size: usize) -> Result<usize, KernelError> {
    let from_front = if index < 0 { index + size as i128 } else { index };
    match usize::try_from(from_front) {
        Ok(position) if position < size => Ok(position),
        _ => Err(KernelError::Index { index: index as i64, size }),
    }
}

/// Looks at all indices before anything is written: an op that fails leaves no half of its work behind.
fn check(indices: &HostTensor, size: usize) -> Result<(), KernelError> {
    let mut positions = Positions::new(indices, size);
    while !positions.next_block()?.is_empty() {}
    Ok(())
}

pub(super) fn take(
    operands: &Operands<'_>,
    x: ValueId,
    index: &IndexArg<ValueId, ValueId>,
    axis: i32,
) -> Computed {
    let (x, out) = (operands.tensor(x)?, operands.out());
    let axis = axis_of(axis.into(), x.rank());
    let one = |index: i64| {
        let first = position(index.into(), x.shape()[axis])?.saturating_mul(strides(x.shape())[axis]);
        let mut walks = row_major(x.shape());
        walks[axis] = Walk::Steps { first, step: 0, len: 1 };
        picked(x, out, walks)
    };
    match index {
        IndexArg::Literal(index) => one(*index),
        IndexArg::Value(value) => one(operands.int(&IntArg::Value(*value))?),
        IndexArg::Tensor(indices) => take_many(x, operands.tensor(*indices)?, axis, out),
    }
}

fn take_many(x: &HostTensor, indices: &HostTensor, axis: usize, out: &ResultType) -> Computed {
    let mut rows = x.shape().to_vec();
    rows[axis] = indices.len();
    let mut taken = HostTensor::zeros(out.dtype, out.shape.clone())?;
    each_block(indices, x.shape(), &rows, axis, |picks, places, shift| {
        Transfer::new(x.dtype().size(), places, picks)?.run(
            taken.bytes_mut(),
            shift * x.dtype().size(),
            x.bytes(),
            0,
        )
    })?;
    Ok(taken)
}

/// For each block of indices into an axis of `shape`: walks over the rows that they name, walks over as many rows
/// of a tensor of shape `rows`, and where those begin.
fn each_block(
    indices: &HostTensor,
    shape: &[usize],
    rows: &[usize],
    axis: usize,
    mut visit: impl FnMut(Vec<Walk>, Vec<Walk>, usize) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let (named, row_strides) = (strides(shape), strides(rows));
    let mut positions = Positions::new(indices, shape[axis]);
    let mut start = 0;
    loop {
        let mut block = positions.next_block()?;
        let count = block.len();
        if count == 0 {
            return Ok(());
        }
        // An empty tensor has strides that mean nothing; no element is moved then.
        block.iter_mut().for_each(|position| *position = position.saturating_mul(named[axis]));
        let mut picks = row_major(shape);
        picks[axis] = Walk::List(block);
        let mut places = row_major(rows);
        places[axis] = Walk::steps(count, row_strides[axis]);
        visit(picks, places, row_strides[axis].saturating_mul(start))?;
        start += count;
    }
}

pub(super) fn take_along_axis(operands: &Operands<'_>, x: ValueId, indices: ValueId, axis: i32) -> Computed {
    let (x, indices, out) = (operands.tensor(x)?, operands.tensor(indices)?, operands.out());
    let axis = axis_of(axis.into(), x.rank());
    let size = x.shape().get(axis).copied().unwrap_or(1);
    // Along the axis only the index moves; the other axes broadcast.
    let step = strides(x.shape()).get(axis).copied().unwrap_or(0);
    let mut around = broadcast_strides(x.shape(), &out.shape);
    if let Some(stride) = around.get_mut(axis) {
        *stride = 0;
    }
    let mut around = Offsets::new(&out.shape, &around);
    let mut positions = Positions::broadcast(indices, &out.shape, size);
    let mut taken = HostTensor::zeros(out.dtype, out.shape.clone())?;
    let bytes = out.dtype.size();
    for elements in taken.bytes_mut().chunks_mut(BLOCK * bytes) {
        for (element, position) in elements.chunks_exact_mut(bytes).zip(positions.next_block()?) {
            let from = (around.next_one() + position * step) * bytes;
            element.copy_from_slice(&x.bytes()[from..from + bytes]);
        }
    }
    Ok(taken)
}

/// One slice per element of the broadcast indices; a slice begins at 0 on axes without an index.
pub(super) fn gather(
    operands: &Operands<'_>,
    x: ValueId,
    indices: &[ValueId],
    axes: &[i32],
    slice_sizes: &[i32],
) -> Computed {
    let (x, out) = (operands.tensor(x)?, operands.out());
    let slice: Vec<usize> = slice_sizes.iter().map(|&size| size.max(0) as usize).collect();
    let batch = &out.shape[..out.shape.len() - slice.len()];
    let steps = strides(x.shape());
    let mut starts = Vec::with_capacity(indices.len());
    for (&index, &axis) in indices.iter().zip(axes) {
        let axis = axis_of(axis.into(), x.rank());
        starts.push((axis, Positions::broadcast(operands.tensor(index)?, batch, x.shape()[axis])));
    }
    let mut gathered = HostTensor::zeros(out.dtype, out.shape.clone())?;
    if gathered.is_empty() {
        return Ok(gathered);
    }
    let bytes = out.dtype.size();
    let from = slice.iter().zip(&steps).map(|(&len, &step)| Walk::steps(len, step));
    let transfer = Transfer::new(bytes, row_major(&slice), from)?;
    let slice_bytes = slice.iter().product::<usize>() * bytes;
    for block in gathered.bytes_mut().chunks_mut(BLOCK * slice_bytes) {
        let mut offsets = vec![0; block.len() / slice_bytes];
        for (axis, positions) in &mut starts {
            for (offset, position) in offsets.iter_mut().zip(positions.next_block()?) {
                let end = position + slice[*axis];
                if end > x.shape()[*axis] {
                    return Err(KernelError::Index { index: end as i64 - 1, size: x.shape()[*axis] });
                }
                *offset += position * steps[*axis] * bytes;
            }
        }
        for (at, offset) in offsets.into_iter().enumerate() {
            transfer.run(block, at * slice_bytes, x.bytes(), offset)?;
        }
    }
    Ok(gathered)
}

/// Writes into `dst` itself when nobody else needs it. Of equal indices the last one stays, because rows are
/// written in order.
pub(super) fn index_copy(
    operands: &mut Operands<'_>,
    (dst, update): (ValueId, ValueId),
    indices: ValueId,
    axis: i32,
) -> Computed {
    let shape = operands.tensor(dst)?.shape().to_vec();
    let axis = axis_of(axis.into(), shape.len());
    let indices = operands.tensor(indices)?.clone();
    let update = cast(operands.tensor(update)?, operands.out().dtype)?;
    check(&indices, shape[axis])?;
    let mut out = operands.take(dst)?;
    let size = out.dtype().size();
    each_block(&indices, &shape, update.shape(), axis, |picks, places, shift| {
        Transfer::new(size, picks, places)?.run(out.bytes_mut(), 0, update.bytes(), shift * size)
    })?;
    Ok(out)
}

/// Indices and updates broadcast to each other; beside the axis they begin at 0 and may be shorter than `x`.
pub(super) fn scatter_add(
    operands: &mut Operands<'_>,
    (x, indices, updates): (ValueId, ValueId, ValueId),
    axis: i32,
) -> Computed {
    let shape = operands.tensor(x)?.shape().to_vec();
    let axis = axis_of(axis.into(), shape.len());
    let size = shape.get(axis).copied().unwrap_or(1);
    let indices = operands.tensor(indices)?.clone();
    let updates = cast(operands.tensor(updates)?, operands.out().dtype)?;
    check(&indices, size)?;
    let pairs = indices.shape().iter().zip(updates.shape());
    let written: Vec<usize> =
        pairs.map(|(&index, &update)| if index == 1 { update } else { index }).collect();
    let mut around = strides(&shape);
    let step = around.get_mut(axis).map_or(0, std::mem::take);
    let mut around = Offsets::new(&written, &around);
    let mut from = Offsets::broadcast(updates.shape(), &written);
    let mut positions = Positions::broadcast(&indices, &written, size);
    let mut out = operands.take(x)?;
    loop {
        let block = positions.next_block()?;
        if block.is_empty() {
            return Ok(out);
        }
        let places = block.into_iter().map(|position| (around.next_one() + position * step, from.next_one()));
        add_block(&mut out, &updates, places)?;
    }
}

/// Adds elements of `updates` to elements of `out`, in their dtype.
fn add_block(
    out: &mut HostTensor,
    updates: &HostTensor,
    places: impl Iterator<Item = (usize, usize)>,
) -> Result<(), KernelError> {
    match out.dtype() {
        DType::Bool => {
            let out = out.bytes_mut();
            places.for_each(|(to, from)| out[to] = u8::from(out[to] != 0 || updates.bytes()[from] != 0));
            Ok(())
        }
        DType::U8 => add(out, updates, places, u8::wrapping_add),
        DType::U16 => add(out, updates, places, u16::wrapping_add),
        DType::U32 => add(out, updates, places, u32::wrapping_add),
        DType::U64 => add(out, updates, places, u64::wrapping_add),
        DType::I8 => add(out, updates, places, i8::wrapping_add),
        DType::I16 => add(out, updates, places, i16::wrapping_add),
        DType::I32 => add(out, updates, places, i32::wrapping_add),
        DType::I64 => add(out, updates, places, i64::wrapping_add),
        DType::F16 => add(out, updates, places, |a: f16, b| f16::from_f32(a.to_f32() + b.to_f32())),
        DType::BF16 => add(out, updates, places, |a: bf16, b| bf16::from_f32(a.to_f32() + b.to_f32())),
        DType::F32 => add(out, updates, places, |a: f32, b| a + b),
        DType::F64 => add(out, updates, places, |a: f64, b| a + b),
    }
}

fn add<T: Element>(
    out: &mut HostTensor,
    updates: &HostTensor,
    places: impl Iterator<Item = (usize, usize)>,
    sum: impl Fn(T, T) -> T,
) -> Result<(), KernelError> {
    let (out, updates) = (out.as_mut_slice::<T>()?, updates.as_slice::<T>()?);
    places.for_each(|(to, from)| out[to] = sum(out[to], updates[from]));
    Ok(())
}
