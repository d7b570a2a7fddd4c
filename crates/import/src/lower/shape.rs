//! Pieces and joins: slices, concatenation, padding, repetition, triangles.

use super::call::{Arg, Call, Int};
use super::context::{Bound, Lowerer, Outs, axis_of, countable, one};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use pteron_ir::op::IndexArg;
use pteron_ir::{Dim, Op, ValueId};
use pteron_tensor::DType;

pub(super) const TABLE: Table = &[
    ("aten.slice.Tensor", slice),
    ("aten.slice_copy.Tensor", slice),
    ("aten.slice_scatter.default", slice_scatter),
    ("aten.select.int", select),
    ("aten.select_copy.int", select),
    ("aten.select_scatter.default", select_scatter),
    ("aten.narrow.default", narrow),
    ("aten.narrow_copy.default", narrow),
    ("aten.split.Tensor", split),
    ("aten.split_copy.Tensor", split),
    ("aten.split.sizes", split),
    ("aten.split_with_sizes.default", split),
    ("aten.split_with_sizes_copy.default", split),
    ("aten.chunk.default", split),
    ("aten.unsafe_chunk.default", split),
    ("aten.unsafe_split.Tensor", split),
    ("aten.tensor_split.sections", split),
    ("aten.unbind.int", unbind),
    ("aten.unbind_copy.int", unbind),
    ("aten.cat.default", concatenate),
    ("aten.concat.default", concatenate),
    ("aten.concatenate.default", concatenate),
    ("aten.stack.default", stack),
    ("aten.hstack.default", |l, call| {
        let tensors = call.tensors("tensors")?;
        let axis = i32::from(tensors.first().is_some_and(|&x| l.rank(x).is_ok_and(|rank| rank > 1)));
        one(l.emit(Op::Concatenate { tensors, axis })?)
    }),
    ("aten.repeat.default", |l, call| one(tile(l, call, "repeats")?)),
    ("aten.tile.default", |l, call| one(tile(l, call, "dims")?)),
    ("aten.repeat_interleave.self_int", repeat_interleave),
    ("aten.flip.default", |l, call| {
        let x = call.tensor("self")?;
        let axes =
            call.ints("dims")?.iter().map(|&dim| Ok(l.axis(x, dim)? as i32)).collect::<Lowered<Vec<_>>>()?;
        if axes.is_empty() || l.rank(x)? == 0 {
            return one(x);
        }
        one(l.emit(Op::Flip { x, axes })?)
    }),
    ("aten.roll.default", roll),
    ("aten.tril.default", |l, call| {
        let k = diagonal(call)?;
        one(l.emit(Op::Tril { x: call.tensor("self")?, k })?)
    }),
    ("aten.triu.default", |l, call| {
        let k = diagonal(call)?;
        one(l.emit(Op::Triu { x: call.tensor("self")?, k })?)
    }),
    ("aten.constant_pad_nd.default", pad),
    ("aten.pad.default", pad),
    ("aten.replication_pad1d.default", pad),
    ("aten.replication_pad2d.default", pad),
    ("aten.replication_pad3d.default", pad),
    ("aten.reflection_pad1d.default", pad),
    ("aten.reflection_pad2d.default", pad),
    ("aten.diff.default", diff),
    ("aten.unfold.default", unfold),
    ("aten.meshgrid.indexing", meshgrid),
    ("aten.meshgrid.default", meshgrid),
];

fn diagonal(call: &Call<'_>) -> Lowered<i32> {
    i32::try_from(call.int("diagonal", 0)?).map_err(|_| Refusal::because("a diagonal beyond 32 bits"))
}

fn step(call: &Call<'_>) -> Lowered<i32> {
    i32::try_from(call.int("step", 1)?).map_err(|_| Refusal::because("a step beyond 32 bits"))
}

/// A range of one axis.
pub(super) fn cut(l: &mut Lowerer<'_>, x: ValueId, axis: usize, start: Int, stop: Int) -> Lowered<ValueId> {
    l.emit(Op::Slice { x, axis: Int::Literal(axis as i64), start, stop, step: 1 })
}

fn slice(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let axis = l.axis(x, call.int("dim", 0)?)?;
    let (start, step) = (call.any_int("start", 0)?, step(call)?);
    let stop = call.any_int("end", i64::MAX)?;
    let size = l.ty(x)?.shape.get(axis).and_then(Dim::as_known);
    let reaches_end = match (stop, size) {
        (Int::Literal(i64::MAX), _) => true,
        (Int::Literal(stop), Some(size)) => stop >= size,
        _ => false,
    };
    if start == Int::Literal(0) && reaches_end && step == 1 {
        return one(x);
    }
    let stop = match (stop, size) {
        (Int::Literal(stop), Some(size)) => Int::Literal(stop.min(size)),
        (Int::Literal(i64::MAX), None) => l.size(x, axis)?,
        (stop, _) => stop,
    };
    one(l.emit(Op::Slice { x, axis: Int::Literal(axis as i64), start, stop, step })?)
}

fn slice_scatter(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (dst, update) = (call.tensor("self")?, call.tensor("src")?);
    let axis = l.axis(dst, call.int("dim", 0)?)?;
    let start = call.any_int("start", 0)?;
    let stop = match (call.any_int("end", i64::MAX)?, l.ty(dst)?.shape.get(axis).and_then(Dim::as_known)) {
        (Int::Literal(stop), Some(size)) => Int::Literal(stop.min(size)),
        (Int::Literal(i64::MAX), None) => l.size(dst, axis)?,
        (stop, _) => stop,
    };
    let update = l.cast(update, l.dtype(dst)?)?;
    one(l.emit(Op::SliceUpdate {
        dst,
        update,
        axis: Int::Literal(axis as i64),
        start,
        stop,
        step: step(call)?,
    })?)
}

fn select(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let axis = l.axis(x, call.int("dim", 0)?)?;
    let index = match call.any_int("index", 0)? {
        Int::Literal(index) => IndexArg::Literal(index),
        Int::Value(value) => IndexArg::Value(value),
    };
    one(l.emit(Op::Take { x, index, axis: axis as i32 })?)
}

fn select_scatter(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (dst, src) = (call.tensor("self")?, call.tensor("src")?);
    let axis = l.axis(dst, call.int("dim", 0)?)?;
    let start = match (call.any_int("index", 0)?, l.ty(dst)?.shape.get(axis).and_then(Dim::as_known)) {
        (Int::Literal(index), Some(size)) if index < 0 => Int::Literal(index + size),
        (Int::Literal(index), None) if index < 0 => {
            let size = l.size(dst, axis)?;
            l.add_ints(size, Int::Literal(index))?
        }
        (index, _) => index,
    };
    let stop = l.add_ints(start, Int::Literal(1))?;
    let update = l.cast(src, l.dtype(dst)?)?;
    let update = l.emit(Op::ExpandDims { x: update, axis: axis as i32 })?;
    one(l.emit(Op::SliceUpdate { dst, update, axis: Int::Literal(axis as i64), start, stop, step: 1 })?)
}

fn narrow(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let axis = l.axis(x, call.int("dim", 0)?)?;
    let (start, length) = (call.any_int("start", 0)?, call.any_int("length", 0)?);
    let stop = l.add_ints(start, length)?;
    one(cut(l, x, axis, start, stop)?)
}

/// Pieces by the sizes that torch recorded of them, which all overloads agree on.
fn split(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let axis = l.axis(x, call.int("dim", 0)?)?;
    if call.results.len() == 1 {
        return one(x);
    }
    let mut sizes = Vec::new();
    let results = call.results.clone();
    for meta in results {
        let size = meta.sizes.get(axis).ok_or_else(|| Refusal::because("pieces of another rank"))?;
        let dim = l.dim(size);
        sizes.push(dim);
    }
    let known: Option<Vec<Int>> = sizes.iter().map(|dim| dim.as_known().map(Int::Literal)).collect();
    let pieces = match known {
        Some(sizes) => l.emit_all(Op::Split { x, sizes, axis: axis as i32 })?,
        None => symbolic_pieces(l, call, x, axis, &sizes)?,
    };
    Ok(pieces.into_iter().map(Bound::Tensor).collect())
}

/// Pieces whose lengths depend on the input: each is a slice behind the one before.
fn symbolic_pieces(
    l: &mut Lowerer<'_>,
    call: &Call<'_>,
    x: ValueId,
    axis: usize,
    sizes: &[Dim],
) -> Lowered<Vec<ValueId>> {
    let name = if call.has("split_sizes") { "split_sizes" } else { "split_size" };
    let given = match call.raw(name) {
        Ok(Arg::Ints(given)) if given.len() == sizes.len() => given.clone(),
        Ok(Arg::Int(size)) => vec![*size; sizes.len()],
        _ => return Err(Refusal::because("pieces whose lengths depend on the input")),
    };
    let mut start = Int::Literal(0);
    let mut pieces = Vec::new();
    for size in given {
        let stop = l.add_ints(start, size)?;
        pieces.push(cut(l, x, axis, start, stop)?);
        start = stop;
    }
    Ok(pieces)
}

fn unbind(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let axis = l.axis(x, call.int("dim", 0)?)?;
    let mut outs = Vec::new();
    if usize::try_from(l.known_dim(x, axis)?) != Ok(call.results.len()) {
        return Err(Refusal::because("another number of results than slices"));
    }
    for index in 0..call.results.len() as i64 {
        outs.push(Bound::Tensor(l.emit(Op::Take {
            x,
            index: IndexArg::Literal(index),
            axis: axis as i32,
        })?));
    }
    Ok(outs)
}

fn concatenate(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let dtype = call.result_dtype(0)?;
    let given = call.tensors("tensors")?;
    let mut tensors = Vec::new();
    let rank = call.results.first().map_or(0, |meta| meta.sizes.len());
    for &x in &given {
        // Torch lets empty vectors stand among tensors of any rank.
        let empty = l.known_shape(x)?.is_some_and(|shape| shape == [0]);
        if empty && (rank != 1 || given.len() > 1) {
            continue;
        }
        tensors.push(l.cast(x, dtype)?);
    }
    let axis = axis_of(call.int("dim", 0)?, rank)? as i32;
    match tensors.as_slice() {
        [] => one(given[0]),
        [only] => one(*only),
        _ => one(l.emit(Op::Concatenate { tensors, axis })?),
    }
}

fn stack(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let dtype = call.result_dtype(0)?;
    let given = call.tensors("tensors")?;
    let tensors = given.iter().map(|&x| l.cast(x, dtype)).collect::<Lowered<Vec<_>>>()?;
    let rank = call.results.first().map_or(1, |meta| meta.sizes.len());
    let axis = axis_of(call.int("dim", 0)?, rank)? as i32;
    one(l.emit(Op::Stack { tensors, axis })?)
}

fn tile(l: &mut Lowerer<'_>, call: &Call<'_>, name: &str) -> Lowered<ValueId> {
    let (x, reps) = (call.tensor("self")?, call.any_ints(name)?);
    l.emit(Op::Tile { x, reps })
}

fn repeat_interleave(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (mut x, repeats) = (call.tensor("self")?, call.any_int("repeats", 1)?);
    let axis = match call.maybe_int("dim")? {
        Some(dim) => l.axis(x, dim)?,
        None => {
            x = l.reshape(x, vec![Int::Literal(-1)])?;
            0
        }
    };
    one(l.emit(Op::Repeat { x, repeats, axis: axis as i32 })?)
}

fn roll(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (x, shift) = (call.tensor("self")?, call.any_ints("shifts")?);
    let dims = call.maybe_ints("dims")?.unwrap_or_default();
    if dims.is_empty() {
        // Without axes the elements move as one row.
        let shape = l.sizes(x)?;
        let flat = l.reshape(x, vec![Int::Literal(-1)])?;
        let rolled = l.emit(Op::Roll { x: flat, shift, axes: vec![0] })?;
        return one(l.reshape(rolled, shape)?);
    }
    let axes = dims.iter().map(|&dim| Ok(l.axis(x, dim)? as i32)).collect::<Lowered<Vec<_>>>()?;
    one(l.emit(Op::Roll { x, shift, axes })?)
}

/// Torch lists widths from the last axis on; negative ones cut.
fn pad(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let mut x = call.tensor("self")?;
    let name = if call.has("pad") { "pad" } else { "padding" };
    let widths = call.any_ints(name)?;
    let operator = call.operator();
    let mode = match operator {
        _ if operator.contains("replication") => "replicate".to_owned(),
        _ if operator.contains("reflection") => "reflect".to_owned(),
        _ => call.text("mode", "constant")?,
    };
    let rank = l.rank(x)?;
    if widths.len() > 2 * rank || !widths.len().is_multiple_of(2) {
        return Err(Refusal::because(format!("{} widths for rank {rank}", widths.len())));
    }
    let mut grow = vec![Int::Literal(0); 2 * rank];
    for (pair, width) in widths.chunks_exact(2).enumerate() {
        let axis = rank - 1 - pair;
        for (end, width) in width.iter().enumerate() {
            match width {
                Int::Literal(width) if *width < 0 => {
                    let size = l.size(x, axis)?;
                    let (start, stop) = match end {
                        0 => (Int::Literal(width.saturating_neg()), size),
                        _ => (Int::Literal(0), l.add_ints(size, Int::Literal(*width))?),
                    };
                    x = cut(l, x, axis, start, stop)?;
                }
                width => grow[2 * axis + end] = *width,
            }
        }
    }
    if grow.iter().all(|width| *width == Int::Literal(0)) {
        return one(x);
    }
    match mode.as_str() {
        "constant" => {
            let constant_value = call.float("value", 0.0)? as f32;
            one(l.emit(Op::Pad { x, pad_width: grow, mode: "constant".into(), constant_value })?)
        }
        "replicate" => {
            one(l.emit(Op::Pad { x, pad_width: grow, mode: "edge".into(), constant_value: 0.0 })?)
        }
        "reflect" => {
            for axis in 0..rank {
                let (Int::Literal(before), Int::Literal(after)) = (grow[2 * axis], grow[2 * axis + 1]) else {
                    return Err(Refusal::because("reflected widths that depend on the input"));
                };
                x = reflect(l, x, axis, before, after)?;
            }
            one(x)
        }
        other => Err(Refusal::because(format!("padding mode {other:?}"))),
    }
}

/// Elements mirrored at both ends of an axis, without the edge itself.
fn reflect(l: &mut Lowerer<'_>, x: ValueId, axis: usize, before: i64, after: i64) -> Lowered<ValueId> {
    if before == 0 && after == 0 {
        return Ok(x);
    }
    let size = l.known_dim(x, axis)?;
    countable(size.checked_add(before).and_then(|sum| sum.checked_add(after)))?;
    let index = |at: i64| {
        if at < 0 {
            -at
        } else if at >= size {
            2 * (size - 1) - at
        } else {
            at
        }
    };
    let indices: Vec<i64> = (-before..size + after).map(index).collect();
    if indices.iter().any(|index| !(0..size).contains(index)) {
        return Err(Refusal::because("reflected widths reach beyond the axis"));
    }
    let tensor = pteron_tensor::HostTensor::from_slice(vec![indices.len()], &indices);
    let tensor = tensor.map_err(|error| Refusal::because(error.to_string()))?;
    let index = l.constant(&format!("_reflect_{size}_{before}_{after}"), tensor)?;
    l.emit(Op::Take { x, index: IndexArg::Tensor(index), axis: axis as i32 })
}

fn diff(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let mut x = call.tensor("self")?;
    let axis = l.axis(x, call.int("dim", -1)?)?;
    let (before, after) = (call.maybe_tensor("prepend")?, call.maybe_tensor("append")?);
    let tensors: Vec<ValueId> = before.into_iter().chain([x]).chain(after).collect();
    if tensors.len() > 1 {
        x = l.emit(Op::Concatenate { tensors, axis: axis as i32 })?;
    }
    let times = call.int("n", 1)?;
    if times > 16 {
        return Err(Refusal::because(format!("differences of order {times}")));
    }
    for _ in 0..times {
        let size = l.size(x, axis)?;
        let most = l.subtract_ints(size, Int::Literal(1))?;
        let later = cut(l, x, axis, Int::Literal(1), size)?;
        let earlier = cut(l, x, axis, Int::Literal(0), most)?;
        x = match l.dtype(x)? {
            DType::Bool => l.emit(Op::NotEqual { a: later, b: earlier })?,
            _ => l.emit(Op::Subtract { a: later, b: earlier })?,
        };
    }
    one(x)
}

/// Windows along an axis as a new last axis.
fn unfold(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let axis = l.axis(x, call.int("dimension", 0)?)?;
    let (size, step) = (call.int("size", 1)?, call.int("step", 1)?.max(1));
    let length = l.size(x, axis)?;
    if size < 0 || matches!(length, Int::Literal(length) if size > length) {
        return Err(Refusal::because("windows that do not fit"));
    }
    countable(Some(size))?;
    let end = l.add_ints(length, Int::Literal(1 - size))?;
    let mut counted = |stop, step| {
        let (start, step) = (Int::Literal(0), Int::Literal(step));
        l.emit(Op::ARange { start, stop, step, scalar_type: Some(DType::I32) })
    };
    let (firsts, within) = (counted(end, step)?, counted(Int::Literal(size), 1)?);
    let firsts = l.emit(Op::ExpandDims { x: firsts, axis: 1 })?;
    let index = l.emit(Op::Add { a: firsts, b: within })?;
    let taken = l.emit(Op::Take { x, index: IndexArg::Tensor(index), axis: axis as i32 })?;
    let mut perm: Vec<usize> = (0..l.rank(taken)?).collect();
    let window = perm.remove(axis + 1);
    perm.push(window);
    one(l.transpose(taken, &perm)?)
}

fn meshgrid(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let tensors = call.tensors("tensors")?;
    let turned = call.text("indexing", "ij")? == "xy" && tensors.len() > 1;
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    if turned {
        order.swap(0, 1);
    }
    let mut sizes = Vec::new();
    for &at in &order {
        sizes.push(match l.rank(tensors[at])? {
            0 => Int::Literal(1),
            _ => l.size(tensors[at], 0)?,
        });
    }
    let mut outs = Vec::new();
    for (number, &x) in tensors.iter().enumerate() {
        let own = order.iter().position(|&at| at == number).unwrap_or(number);
        let shape = (0..sizes.len()).map(|axis| if axis == own { Int::Literal(-1) } else { Int::Literal(1) });
        let x = l.reshape(x, shape.collect())?;
        outs.push(Bound::Tensor(l.emit(Op::BroadcastTo { x, shape: sizes.clone() })?));
    }
    Ok(outs)
}
