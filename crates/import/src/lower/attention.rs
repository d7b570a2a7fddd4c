//! Attention and rotary positions.

use super::call::{Call, Int};
use super::context::{Lowerer, Outs, one};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use super::shape::cut;
use pteron_ir::op::OffsetArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

pub(super) const TABLE: Table = &[
    ("aten.scaled_dot_product_attention.default", attention),
    ("aten._scaled_dot_product_flash_attention_for_cpu.default", attention),
    ("mlx.custom_sdpa.default", cached_attention),
    ("kvcache.update_and_attend.default", off_graph),
    ("mlx.rope.default", rope),
    ("mlx.kv_cache_update.functional", cache_update),
];

/// `1 / sqrt(features)` unless the model says otherwise.
fn scale(l: &Lowerer<'_>, call: &Call<'_>, q: ValueId) -> Lowered<f32> {
    let features = l.rank(q)?.checked_sub(1).ok_or_else(|| Refusal::because("a query without dims"))?;
    match call.maybe_float("scale")? {
        Some(scale) => Ok(scale as f32),
        None => Ok((l.known_dim(q, features)? as f64).sqrt().recip() as f32),
    }
}

/// A mask in the form that the op takes: truth values, or numbers of the query's dtype.
fn mask(l: &mut Lowerer<'_>, call: &Call<'_>, q: ValueId) -> Lowered<Option<ValueId>> {
    let Some(mask) = call.maybe_tensor("attn_mask")? else { return Ok(None) };
    match l.dtype(mask)? {
        DType::Bool => Ok(Some(mask)),
        _ => Ok(Some(l.cast(mask, l.dtype(q)?)?)),
    }
}

fn attention(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    if call.float("dropout_p", 0.0)? != 0.0 {
        return Err(Refusal::because("attention with dropout; call model.eval() before export"));
    }
    let (mut q, mut k, mut v) = (call.tensor("query")?, call.tensor("key")?, call.tensor("value")?);
    let scale = scale(l, call, q)?;
    let mut mask = mask(l, call, q)?;
    let rank = l.rank(q)?;
    let lift = 4usize.checked_sub(rank).ok_or_else(|| Refusal::because(format!("queries of rank {rank}")))?;
    for _ in 0..lift {
        q = l.emit(Op::ExpandDims { x: q, axis: 0 })?;
        k = l.emit(Op::ExpandDims { x: k, axis: 0 })?;
        v = l.emit(Op::ExpandDims { x: v, axis: 0 })?;
        if let Some(value) = mask.filter(|value| l.rank(*value).is_ok_and(|rank| rank > 2)) {
            mask = Some(l.emit(Op::ExpandDims { x: value, axis: 0 })?);
        }
    }
    if l.rank(k)? != 4 || l.rank(v)? != 4 {
        return Err(Refusal::because("keys and values of another rank than queries"));
    }
    let causal = call.flag("is_causal", false)?;
    if causal {
        // Torch aligns the triangle to the upper left, the op to the lower right: later keys are never seen.
        let (queries, keys) = (l.ty(q)?.shape[2].clone(), l.ty(k)?.shape[2].clone());
        if queries != keys {
            match (queries.as_known(), keys.as_known()) {
                (Some(queries), Some(keys)) if queries > keys => {
                    return Err(Refusal::because("a causal mask with more queries than keys"));
                }
                _ => {
                    let stop = l.size(q, 2)?;
                    k = cut(l, k, 2, Int::Literal(0), stop)?;
                    v = cut(l, v, 2, Int::Literal(0), stop)?;
                }
            }
        }
    }
    let mut found = l.emit(Op::Sdpa { q, k, v, scale, mask, causal })?;
    if lift > 0 {
        found = l.emit(Op::Squeeze { x: found, dims: Some((0..lift as i32).collect()) })?;
    }
    one(found)
}

/// Attention over the part of a cache that is filled, up to the last query.
fn cached_attention(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (q, k, v) = (call.tensor("query")?, call.tensor("key")?, call.tensor("value")?);
    let scale = scale(l, call, q)?;
    let causal = call.flag("is_causal", false)?;
    let mask = if causal { None } else { mask(l, call, q)? };
    let (start, queries) = (call.any_int("start_pos", 0)?, l.size(q, 2)?);
    let stop = l.add_ints(start, queries)?;
    let k = cut(l, k, 2, Int::Literal(0), stop)?;
    let v = cut(l, v, 2, Int::Literal(0), stop)?;
    one(l.emit(Op::Sdpa { q, k, v, scale, mask, causal })?)
}

fn off_graph(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let first = |names: &[&str]| {
        let name = names.iter().find(|name| call.has(name)).copied().unwrap_or(names[0]);
        call.tensor(name)
    };
    let (q, k, v) = (first(&["q", "query"])?, first(&["k", "key"])?, first(&["v", "value"])?);
    let position = first(&["position", "start_pos", "pos", "input_pos"])?;
    let layer =
        ["layer_id", "cache_id", "layer_idx"].into_iter().find(|name| call.has(name)).unwrap_or("layer_id");
    let layer_id = i32::try_from(call.int(layer, 0)?).map_err(|_| Refusal::because("that many layers"))?;
    let scale = scale(l, call, q)?;
    let dtype = call.result_dtype(0)?;
    let out_dtype = (dtype != l.dtype(q)?).then_some(dtype);
    one(l.emit(Op::UpdateAndAttend {
        q,
        k,
        v,
        position,
        layer_id: Some(layer_id),
        scale: Some(scale),
        out_dtype,
    })?)
}

fn rope(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("x")?;
    let dims = i32::try_from(call.int("dims", 0)?).map_err(|_| Refusal::because("that many features"))?;
    let offset = match call.any_int("pos", 0)? {
        Int::Value(value) => OffsetArg::Value(value),
        Int::Literal(value) => OffsetArg::Tensor(l.whole_number(value, DType::I32)?),
    };
    let freqs = call.maybe_tensor("freqs")?;
    let (traditional, scale) = (call.flag("traditional", false)?, call.float("scale", 1.0)?);
    if let Some(angles) = freqs
        && l.rank(angles)? != 1
    {
        return one(rotate(l, x, angles, i64::from(dims), traditional)?);
    }
    let base = if freqs.is_some() { 0.0 } else { call.float("base", 500_000.0)? as f32 };
    one(l.emit(Op::Rope { x, dims, offset, freqs, traditional, base, scale: scale as f32 })?)
}

/// Rotation by angles that are given for every position.
fn rotate(
    l: &mut Lowerer<'_>,
    x: ValueId,
    angles: ValueId,
    dims: i64,
    traditional: bool,
) -> Lowered<ValueId> {
    let (rank, dtype, half) = (l.at_least(x, 2)?, l.dtype(x)?, dims / 2);
    let last = rank - 1;
    let angles = l.cast(angles, DType::F32)?;
    let steps = l.size(x, rank - 2)?;
    let angles = l.reshape(angles, vec![steps, Int::Literal(half)])?;
    let (cos, sin) = (l.emit(Op::Cos { x: angles })?, l.emit(Op::Sin { x: angles })?);
    let (cos, sin) = (l.cast(cos, dtype)?, l.cast(sin, dtype)?);
    let size = l.known_dim(x, last)?;
    let axis = Int::Literal(last as i64);
    let part = |start: i64, stop: i64, step: i32| Op::Slice {
        x,
        axis,
        start: Int::Literal(start),
        stop: Int::Literal(stop),
        step,
    };
    let (a, b) = match traditional {
        true => (l.emit(part(0, dims, 2))?, l.emit(part(1, dims, 2))?),
        false => (l.emit(part(0, half, 1))?, l.emit(part(half, dims, 1))?),
    };
    let times = |l: &mut Lowerer<'_>, a, b| l.emit(Op::Multiply { a, b });
    let (ac, bs) = (times(l, a, cos)?, times(l, b, sin)?);
    let (as_, bc) = (times(l, a, sin)?, times(l, b, cos)?);
    let first = l.emit(Op::Subtract { a: ac, b: bs })?;
    let second = l.emit(Op::Add { a: as_, b: bc })?;
    let rotated = match traditional {
        true => {
            let pairs = l.emit(Op::Stack { tensors: vec![first, second], axis: rank as i32 })?;
            let mut shape = l.sizes(x)?;
            shape[last] = Int::Literal(dims);
            l.reshape(pairs, shape)?
        }
        false => l.emit(Op::Concatenate { tensors: vec![first, second], axis: last as i32 })?,
    };
    if dims == size {
        return Ok(rotated);
    }
    let rest = l.emit(part(dims, size, 1))?;
    l.emit(Op::Concatenate { tensors: vec![rotated, rest], axis: last as i32 })
}

/// New keys or values written into a cache at a position; a ring begins again at its end.
fn cache_update(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (dst, update) = (call.tensor("cache")?, call.tensor("new_values")?);
    let update = l.cast(update, l.dtype(dst)?)?;
    let (start, ring) = (call.any_int("start_pos", 0)?, call.int("ring_size", 0)?);
    let (axis, length) = (Int::Literal(2), l.size(update, 2)?);
    if ring <= 0 {
        let stop = l.add_ints(start, length)?;
        return one(l.emit(Op::SliceUpdate { dst, update, axis, start, stop, step: 1 })?);
    }
    let ring = Int::Literal(ring);
    let at = l.emit_int(Op::ModInt { a: start, b: ring })?;
    let room = l.subtract_ints(ring, at)?;
    let first = cut(l, update, 2, Int::Literal(0), room)?;
    let written = l.size(first, 2)?;
    let stop = l.add_ints(at, written)?;
    let dst = l.emit(Op::SliceUpdate { dst, update: first, axis, start: at, stop, step: 1 })?;
    // What did not fit, if anything, goes to the front.
    let rest = cut(l, update, 2, written, length)?;
    let stop = l.subtract_ints(length, written)?;
    one(l.emit(Op::SliceUpdate { dst, update: rest, axis, start: Int::Literal(0), stop, step: 1 })?)
}
