//! Elements placed at positions that data names. One vector of indices on one axis is an op; whatever else is a copy of
//! rows into the tensor with the indexed axes seen as one.

use super::call::{Call, Int};
use super::context::{Lowerer, Outs, countable, one};
use super::error::{Lowered, Refusal};
use super::index::{picks, spread};
use super::registry::Table;
use super::shape::cut;
use pteron_ir::{Dim, Op, ValueId};
use pteron_tensor::{DType, HostTensor};

pub(super) const TABLE: Table = &[
    ("aten.index_put.default", index_put),
    ("aten.index_fill.int_Scalar", index_fill),
    ("aten.scatter.src", scatter),
    ("aten.scatter.value", scatter),
];

fn index_put(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let dst = call.tensor("self")?;
    if let Some(mask) = only_mask(l, call)? {
        return masked(l, call, dst, mask);
    }
    let picks = picks(l, call, dst)?;
    match picks.as_slice() {
        [] => Err(Refusal::because("placing without an index")),
        [(axis, index)] if l.rank(*index)? == 1 => put_rows(l, call, dst, *axis, *index),
        _ => put_at(l, call, dst, &picks),
    }
}

/// A mask over the first axes, if that is all the index there is.
fn only_mask(l: &Lowerer<'_>, call: &Call<'_>) -> Lowered<Option<ValueId>> {
    let given = call.maybe_tensors("indices")?;
    Ok(match given.as_slice() {
        [Some(mask)] if l.dtype(*mask)? == DType::Bool => Some(*mask),
        _ => None,
    })
}

/// One number wherever the mask is set.
fn masked(l: &mut Lowerer<'_>, call: &Call<'_>, dst: ValueId, mask: ValueId) -> Lowered<Outs> {
    let values = call.tensor("values")?;
    let single = l.ty(values)?.shape.iter().all(|dim| dim.as_known() == Some(1));
    if !single || call.flag("accumulate", false)? {
        return Err(Refusal::because("placing by a mask takes as many values as the data says"));
    }
    let (rank, covered) = (l.rank(dst)?, l.rank(mask)?);
    if covered > rank || covered == 0 {
        return Err(Refusal::because("a mask of another rank"));
    }
    let mut shape = l.sizes(mask)?;
    shape.extend(std::iter::repeat_n(Int::Literal(1), rank - covered));
    let condition = if covered == rank { mask } else { l.reshape(mask, shape)? };
    let values = l.reshape(values, Vec::new())?;
    let values = l.cast(values, l.dtype(dst)?)?;
    one(l.emit(Op::Where { condition, x: values, y: dst })?)
}

/// Rows of one axis.
fn put_rows(
    l: &mut Lowerer<'_>,
    call: &Call<'_>,
    dst: ValueId,
    axis: usize,
    index: ValueId,
) -> Lowered<Outs> {
    let mut shape = l.sizes(dst)?;
    shape[axis] = l.size(index, 0)?;
    let update = values_as(l, call, dst, shape)?;
    one(place(l, dst, index, update, axis, call.flag("accumulate", false)?)?)
}

fn place(
    l: &mut Lowerer<'_>,
    dst: ValueId,
    index: ValueId,
    update: ValueId,
    axis: usize,
    accumulate: bool,
) -> Lowered<ValueId> {
    let axis_field = axis as i32;
    if accumulate {
        let indices = spread(l, index, update, axis)?;
        return l.emit(Op::ScatterAdd { x: dst, indices, updates: update, axis: axis_field });
    }
    let indices = l.cast(index, DType::I64)?;
    l.emit(Op::IndexCopy { dst, update, indices, axis: axis_field })
}

/// The values, broadcast to a shape.
fn values_as(l: &mut Lowerer<'_>, call: &Call<'_>, dst: ValueId, shape: Vec<Int>) -> Lowered<ValueId> {
    let values = call.tensor("values")?;
    let values = l.cast(values, l.dtype(dst)?)?;
    let same = |have: &Dim, want: &Int| matches!(want, Int::Literal(size) if have.as_known() == Some(*size));
    let ty = l.ty(values)?;
    match ty.shape.len() == shape.len() && ty.shape.iter().zip(&shape).all(|(have, want)| same(have, want)) {
        true => Ok(values),
        false => l.emit(Op::BroadcastTo { x: values, shape }),
    }
}

/// Several indices, which meet by broadcasting, or one of any rank: the indexed axes come first and are seen as one.
fn put_at(l: &mut Lowerer<'_>, call: &Call<'_>, dst: ValueId, picks: &[(usize, ValueId)]) -> Lowered<Outs> {
    let rank = l.rank(dst)?;
    let is_picked = |axis: usize| picks.iter().any(|(at, _)| *at == axis);
    let rest: Vec<usize> = (0..rank).filter(|axis| !is_picked(*axis)).collect();
    let perm: Vec<usize> = picks.iter().map(|pick| pick.0).chain(rest.iter().copied()).collect();
    let all_sizes = l.sizes(dst)?;
    let rest_sizes: Vec<Int> = rest.iter().map(|&axis| all_sizes[axis]).collect();
    let mut rows = 1i64;
    let mut position = None;
    for &(axis, index) in picks.iter().rev() {
        let size = l.known_dim(dst, axis)?;
        let index = from_front(l, index, size)?;
        let stride = l.whole_number(rows, DType::I64)?;
        let part = if rows == 1 { index } else { l.emit(Op::Multiply { a: index, b: stride })? };
        position = Some(match position {
            None => part,
            Some(sum) => l.emit(Op::Add { a: sum, b: part })?,
        });
        rows = rows.checked_mul(size).ok_or_else(|| Refusal::because("a product of sizes overflows"))?;
    }
    let position = position.ok_or_else(|| Refusal::because("placing without an index"))?;
    let found = l.sizes(position)?;
    let update = many_values(l, call, dst, picks, &found, &rest_sizes)?;
    let mut count = Int::Literal(1);
    for size in &found {
        count = l.multiply_ints(count, *size)?;
    }
    let flat = |first: Int| std::iter::once(first).chain(rest_sizes.iter().copied()).collect::<Vec<Int>>();
    let position = l.reshape(position, vec![count])?;
    let update = l.reshape(update, flat(count))?;
    let moved = l.transpose(dst, &perm)?;
    let table = l.reshape(moved, flat(Int::Literal(rows)))?;
    let placed = place(l, table, position, update, 0, call.flag("accumulate", false)?)?;
    let placed = l.reshape(placed, perm.iter().map(|&axis| all_sizes[axis]).collect())?;
    let mut back = vec![0; rank];
    perm.iter().enumerate().for_each(|(at, &axis)| back[axis] = at);
    one(l.transpose(placed, &back)?)
}

/// The values with the axes of the indices first. Torch has them where the indexed axes were, if those are neighbours.
fn many_values(
    l: &mut Lowerer<'_>,
    call: &Call<'_>,
    dst: ValueId,
    picks: &[(usize, ValueId)],
    found: &[Int],
    rest: &[Int],
) -> Lowered<ValueId> {
    let first = picks.first().map_or(0, |pick| pick.0);
    let adjacent = picks.iter().enumerate().all(|(number, pick)| pick.0 == first + number);
    let before = if adjacent { first } else { 0 };
    let shape = rest[..before].iter().chain(found).chain(&rest[before..]).copied().collect();
    let values = values_as(l, call, dst, shape)?;
    let mut perm: Vec<usize> = (before..before + found.len()).collect();
    perm.extend(0..before);
    perm.extend(before + found.len()..found.len() + rest.len());
    l.transpose(values, &perm)
}

/// Indices that count from the end, from the front.
fn from_front(l: &mut Lowerer<'_>, index: ValueId, size: i64) -> Lowered<ValueId> {
    let index = l.cast(index, DType::I64)?;
    let (zero, size) = (l.whole_number(0, DType::I64)?, l.whole_number(size, DType::I64)?);
    let condition = l.emit(Op::Less { a: index, b: zero })?;
    let turned = l.emit(Op::Add { a: index, b: size })?;
    l.emit(Op::Where { condition, x: turned, y: index })
}

fn index_fill(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (dst, index) = (call.tensor("self")?, call.tensor("index")?);
    let axis = l.axis(dst, call.int("dim", 0)?)?;
    let index = if l.rank(index)? == 0 { l.reshape(index, vec![Int::Literal(1)])? } else { index };
    let number = l.scalar_tensor(call.scalar("value")?, l.dtype(dst)?)?;
    let mut shape = l.sizes(dst)?;
    if shape.is_empty() {
        return Err(Refusal::because("filling a tensor without axes"));
    }
    shape[axis] = l.size(index, 0)?;
    let update = l.emit(Op::BroadcastTo { x: number, shape })?;
    one(place(l, dst, index, update, axis, false)?)
}

/// Elements along one axis, each by an index of its own: the tensor seen as one vector.
fn scatter(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (dst, index) = (call.tensor("self")?, call.tensor("index")?);
    let known = |l: &Lowerer<'_>, value| {
        l.known_shape(value)?.ok_or_else(|| Refusal::because("scattering where a size depends on the input"))
    };
    let (sizes, covered) = (known(l, dst)?, known(l, index)?);
    if sizes.len() != covered.len() || sizes.is_empty() {
        return Err(Refusal::because("a tensor and its indices have different ranks"));
    }
    let axis = l.axis(dst, call.int("dim", 0)?)?;
    let dtype = l.dtype(dst)?;
    let shape: Vec<Int> = covered.iter().map(|&size| Int::Literal(size as i64)).collect();
    let updates = match call.has("src") {
        true => {
            let mut source = call.tensor("src")?;
            // Only as much of the source counts as the index covers.
            for (at, size) in shape.iter().enumerate() {
                source = cut(l, source, at, Int::Literal(0), *size)?;
            }
            l.cast(source, dtype)?
        }
        false => {
            let number = l.scalar_tensor(call.scalar("value")?, dtype)?;
            l.emit(Op::BroadcastTo { x: number, shape: shape.clone() })?
        }
    };
    let strides = strides(&sizes);
    let others = other_axes(l, &covered, &strides, axis)?;
    let stride = l.whole_number(strides[axis] as i64, DType::I64)?;
    let index = l.cast(index, DType::I64)?;
    let along = l.emit(Op::Multiply { a: index, b: stride })?;
    let position = l.emit(Op::Add { a: along, b: others })?;
    let flat = |l: &mut Lowerer<'_>, value| l.reshape(value, vec![Int::Literal(-1)]);
    let (table, update, position) = (flat(l, dst)?, flat(l, updates)?, flat(l, position)?);
    let placed = l.emit(Op::IndexCopy { dst: table, update, indices: position, axis: 0 })?;
    one(l.reshape(placed, sizes.iter().map(|&size| Int::Literal(size as i64)).collect())?)
}

fn strides(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; sizes.len()];
    for axis in (0..sizes.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1].saturating_mul(sizes[axis + 1]);
    }
    strides
}

/// What the axes beside the indexed one add to a position: known now.
fn other_axes(l: &mut Lowerer<'_>, covered: &[usize], strides: &[usize], axis: usize) -> Lowered<ValueId> {
    let shape: Vec<usize> =
        covered.iter().enumerate().map(|(at, &size)| if at == axis { 1 } else { size }).collect();
    let count = shape.iter().try_fold(1i64, |count, &size| count.checked_mul(i64::try_from(size).ok()?));
    let count = countable(count)?;
    let position = |mut number: usize| {
        let mut sum = 0usize;
        for (size, stride) in shape.iter().zip(strides).rev() {
            sum = sum.saturating_add((number % size).saturating_mul(*stride));
            number /= size;
        }
        sum as i64
    };
    let positions: Vec<i64> = (0..count).map(position).collect();
    let name = format!("_positions_{shape:?}_by_{strides:?}").replace(' ', "");
    let tensor =
        HostTensor::from_slice(shape, &positions).map_err(|error| Refusal::because(error.to_string()))?;
    l.constant(&name, tensor)
}
