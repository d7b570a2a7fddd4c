//! Elements picked and placed by index tensors.

use super::call::{Arg, Call, Int};
use super::context::{Lowerer, Outs, one};
use super::error::{Lowered, Refusal};
use super::quantised;
use super::registry::Table;
use super::shape::cut;
use pteron_ir::op::IndexArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

pub(super) const TABLE: Table = &[
    ("aten.embedding.default", embedding),
    ("aten.index_select.default", |l, call| {
        let (x, index) = (call.tensor("self")?, call.tensor("index")?);
        let axis = l.axis(x, call.int("dim", 0)?)? as i32;
        one(l.emit(Op::Take { x, index: IndexArg::Tensor(index), axis })?)
    }),
    ("aten.take_along_dim.default", |l, call| {
        let (x, indices) = (call.tensor("self")?, call.tensor("indices")?);
        let axis = l.axis(x, call.int("dim", 0)?)? as i32;
        one(l.emit(Op::TakeAlongAxis { x, indices, axis })?)
    }),
    ("aten.gather.default", gather),
    ("aten.index.Tensor", index),
    ("aten.index_copy.default", index_copy),
    ("aten.scatter_add.default", scatter_add),
    ("aten.index_add.default", index_add),
    ("aten.one_hot.default", one_hot),
];

fn embedding(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let indices = call.tensor("indices")?;
    if let Arg::Weight(weight) = call.raw("weight")? {
        return one(quantised::embedding(l, weight, indices, call.result_dtype(0)?)?);
    }
    let x = call.tensor("weight")?;
    one(l.emit(Op::Take { x, index: IndexArg::Tensor(indices), axis: 0 })?)
}

/// Torch looks only at the part of the tensor that the index covers on other axes; the op broadcasts.
fn gather(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (mut x, indices) = (call.tensor("self")?, call.tensor("index")?);
    let axis = l.axis(x, call.int("dim", 0)?)?;
    same_rank(l, x, indices)?;
    for at in 0..l.rank(x)? {
        let (size, covered) = (l.ty(x)?.shape[at].clone(), l.ty(indices)?.shape[at].clone());
        if at != axis && size != covered {
            let stop = l.size(indices, at)?;
            x = cut(l, x, at, Int::Literal(0), stop)?;
        }
    }
    one(l.emit(Op::TakeAlongAxis { x, indices, axis: axis as i32 })?)
}

fn same_rank(l: &Lowerer<'_>, a: ValueId, b: ValueId) -> Lowered<()> {
    match l.rank(a)? == l.rank(b)? {
        true => Ok(()),
        false => Err(Refusal::because("a tensor and its indices have different ranks")),
    }
}

/// The indices that are there, with their axes; a mask of bools has no size before it runs.
pub(super) fn picks(l: &Lowerer<'_>, call: &Call<'_>, x: ValueId) -> Lowered<Vec<(usize, ValueId)>> {
    let given = call.maybe_tensors("indices")?;
    let picks: Vec<(usize, ValueId)> =
        given.iter().enumerate().filter_map(|(axis, index)| Some((axis, (*index)?))).collect();
    if picks.last().is_some_and(|pick| l.rank(x).is_ok_and(|rank| pick.0 >= rank)) {
        return Err(Refusal::because("more indices than axes"));
    }
    for (_, index) in &picks {
        if !l.dtype(*index)?.is_int() {
            return Err(Refusal::because("indexing by a mask gives a size that depends on the data"));
        }
    }
    Ok(picks)
}

fn index(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let picks = picks(l, call, x)?;
    match picks.as_slice() {
        [] => one(x),
        [(axis, index)] => {
            one(l.emit(Op::Take { x, index: IndexArg::Tensor(*index), axis: *axis as i32 })?)
        }
        _ => one(gather_many(l, x, &picks)?),
    }
}

/// Several indices meet by broadcasting: windows of size 1 on their axes and of full size on the others.
fn gather_many(l: &mut Lowerer<'_>, x: ValueId, picks: &[(usize, ValueId)]) -> Lowered<ValueId> {
    let rank = l.rank(x)?;
    let axes: Vec<i32> = picks.iter().map(|(axis, _)| *axis as i32).collect();
    let indices: Vec<ValueId> = picks.iter().map(|(_, index)| *index).collect();
    let picked = |axis: usize| picks.iter().any(|(at, _)| *at == axis);
    let mut slice_sizes = Vec::with_capacity(rank);
    for axis in 0..rank {
        let size = if picked(axis) { 1 } else { l.known_dim(x, axis)? };
        slice_sizes.push(i32::try_from(size).map_err(|_| Refusal::because("an axis beyond 32 bits"))?);
    }
    let found = l.emit(Op::Gather { x, indices, axes, slice_sizes: slice_sizes.clone() })?;
    let lead = l.rank(found)? - rank;
    let dims: Vec<i32> = picks.iter().map(|(axis, _)| (lead + axis) as i32).collect();
    let found = l.emit(Op::Squeeze { x: found, dims: Some(dims) })?;
    // Indices on neighbouring axes leave their result in place; otherwise it comes first.
    let first = picks.first().map_or(0, |pick| pick.0);
    let adjacent = picks.iter().enumerate().all(|(number, pick)| pick.0 == first + number);
    if !adjacent || first == 0 {
        return Ok(found);
    }
    let mut perm: Vec<usize> = (lead..lead + first).collect();
    perm.extend(0..lead);
    perm.extend(lead + first..l.rank(found)?);
    l.transpose(found, &perm)
}

fn index_copy(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (dst, update, indices) = (call.tensor("self")?, call.tensor("source")?, call.tensor("index")?);
    let axis = l.axis(dst, call.int("dim", 0)?)? as i32;
    let update = l.cast(update, l.dtype(dst)?)?;
    let indices = l.cast(indices, DType::I64)?;
    let indices = if l.rank(indices)? == 0 { l.reshape(indices, vec![Int::Literal(1)])? } else { indices };
    one(l.emit(Op::IndexCopy { dst, update, indices, axis })?)
}

/// A vector of indices in the rank of the rows that it names.
pub(super) fn spread(l: &mut Lowerer<'_>, index: ValueId, like: ValueId, axis: usize) -> Lowered<ValueId> {
    let shape = (0..l.rank(like)?).map(|at| if at == axis { Int::Literal(-1) } else { Int::Literal(1) });
    let index = l.reshape(index, shape.collect())?;
    let shape = l.sizes(like)?;
    l.emit(Op::BroadcastTo { x: index, shape })
}

fn scatter_add(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (x, indices, mut updates) = (call.tensor("self")?, call.tensor("index")?, call.tensor("src")?);
    let axis = l.axis(x, call.int("dim", 0)?)?;
    same_rank(l, updates, indices)?;
    // Only as much of the source counts as the index covers.
    for at in 0..l.rank(updates)? {
        if l.ty(updates)?.shape[at] != l.ty(indices)?.shape[at] {
            let stop = l.size(indices, at)?;
            updates = cut(l, updates, at, Int::Literal(0), stop)?;
        }
    }
    one(l.emit(Op::ScatterAdd { x, indices, updates, axis: axis as i32 })?)
}

fn index_add(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (x, index, mut updates) = (call.tensor("self")?, call.tensor("index")?, call.tensor("source")?);
    let axis = l.axis(x, call.int("dim", 0)?)?;
    let dtype = l.dtype(x)?;
    updates = l.cast(updates, dtype)?;
    if let Some(alpha) = call.maybe_float("alpha")?
        && alpha != 1.0
    {
        let alpha = l.number(alpha, dtype)?;
        updates = l.emit(Op::Multiply { a: updates, b: alpha })?;
    }
    let indices = spread(l, index, updates, axis)?;
    one(l.emit(Op::ScatterAdd { x, indices, updates, axis: axis as i32 })?)
}

fn one_hot(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (x, classes) = (call.tensor("self")?, call.int("num_classes", -1)?);
    if classes < 0 {
        return Err(Refusal::because("the number of classes depends on the data"));
    }
    let range = l.emit(Op::ARange {
        start: Int::Literal(0),
        stop: Int::Literal(classes),
        step: Int::Literal(1),
        scalar_type: Some(DType::I64),
    })?;
    let axis = l.rank(x)? as i32;
    let x = l.emit(Op::ExpandDims { x, axis })?;
    one(l.emit(Op::Equal { a: x, b: range })?)
}
