//! Other shapes of the same elements: views, permutations, axes of size 1.

use super::call::{Call, Int};
use super::context::{Lowerer, Outs, axis_of, one};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use pteron_ir::{Op, ValueId};

pub(super) const TABLE: Table = &[
    ("aten.view.default", |l, call| one(view(l, call.tensor("self")?, call.any_ints("size")?)?)),
    ("aten.view_copy.default", |l, call| one(view(l, call.tensor("self")?, call.any_ints("size")?)?)),
    ("aten._unsafe_view.default", |l, call| one(view(l, call.tensor("self")?, call.any_ints("size")?)?)),
    ("aten.reshape.default", |l, call| one(view(l, call.tensor("self")?, call.any_ints("shape")?)?)),
    ("aten._reshape_copy.default", |l, call| one(view(l, call.tensor("self")?, call.any_ints("size")?)?)),
    ("aten.view_as.default", like),
    ("aten.reshape_as.default", like),
    ("aten.flatten.using_ints", flatten),
    ("aten.unflatten.int", unflatten),
    ("aten.permute.default", permute),
    ("aten.permute_copy.default", permute),
    ("aten.transpose.int", transpose),
    ("aten.transpose_copy.int", transpose),
    ("aten.swapaxes.default", transpose),
    ("aten.swapdims.default", transpose),
    ("aten.t.default", reversed),
    ("aten.t_copy.default", reversed),
    ("aten.numpy_T.default", reversed),
    ("aten.mT.default", |l, call| one(l.swapped(call.tensor("self")?)?)),
    ("aten.adjoint.default", |l, call| one(l.swapped(call.tensor("self")?)?)),
    ("aten.movedim.int", movedim),
    ("aten.movedim.intlist", movedim),
    ("aten.unsqueeze.default", unsqueeze),
    ("aten.unsqueeze_copy.default", unsqueeze),
    ("aten.squeeze.default", squeeze),
    ("aten.squeeze.dim", squeeze),
    ("aten.squeeze.dims", squeeze),
    ("aten.squeeze_copy.default", squeeze),
    ("aten.squeeze_copy.dim", squeeze),
    ("aten.squeeze_copy.dims", squeeze),
    ("aten.expand.default", |l, call| one(expand(l, call.tensor("self")?, call.any_ints("size")?)?)),
    ("aten.expand_copy.default", |l, call| one(expand(l, call.tensor("self")?, call.any_ints("size")?)?)),
    ("aten.broadcast_to.default", |l, call| one(expand(l, call.tensor("self")?, call.any_ints("size")?)?)),
    ("aten.expand_as.default", |l, call| {
        let shape = l.sizes(call.tensor("other")?)?;
        one(expand(l, call.tensor("self")?, shape)?)
    }),
    ("aten.atleast_1d.default", at_least),
    ("aten.atleast_2d.default", at_least),
    ("aten.pixel_shuffle.default", |l, call| one(pixel_shuffle(l, call)?)),
    ("aten.pixel_unshuffle.default", |l, call| one(pixel_unshuffle(l, call)?)),
    ("aten.channel_shuffle.default", |l, call| one(channel_shuffle(l, call)?)),
];

/// Another shape, unless it is the one that the tensor has.
pub(super) fn view(l: &mut Lowerer<'_>, x: ValueId, shape: Vec<Int>) -> Lowered<ValueId> {
    let known: Option<Vec<usize>> = shape
        .iter()
        .map(|size| match size {
            Int::Literal(size) => usize::try_from(*size).ok(),
            Int::Value(_) => None,
        })
        .collect();
    if known.is_some() && l.known_shape(x)? == known {
        return Ok(x);
    }
    l.reshape(x, shape)
}

fn like(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let shape = l.sizes(call.tensor("other")?)?;
    one(view(l, call.tensor("self")?, shape)?)
}

fn flatten(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let rank = l.rank(x)?;
    if rank == 0 {
        return one(l.reshape(x, vec![Int::Literal(1)])?);
    }
    let (start, end) = (l.axis(x, call.int("start_dim", 0)?)?, l.axis(x, call.int("end_dim", -1)?)?);
    if start >= end {
        return one(x);
    }
    let mut shape = Vec::new();
    for axis in 0..rank {
        if axis == start {
            shape.push(Int::Literal(-1));
        } else if axis < start || axis > end {
            shape.push(l.size(x, axis)?);
        }
    }
    // A -1 beside unknown sizes is still the only one that is left open.
    one(l.reshape(x, shape)?)
}

fn unflatten(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let axis = l.axis(x, call.int("dim", 0)?)?;
    let mut shape = Vec::new();
    for at in 0..l.rank(x)? {
        match at == axis {
            true => shape.extend(call.any_ints("sizes")?),
            false => shape.push(l.size(x, at)?),
        }
    }
    one(l.reshape(x, shape)?)
}

fn permute(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let perm = call.ints("dims")?.iter().map(|&dim| l.axis(x, dim)).collect::<Lowered<Vec<_>>>()?;
    one(l.transpose(x, &perm)?)
}

fn transpose(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let names = if call.has("dim0") { ("dim0", "dim1") } else { ("axis0", "axis1") };
    let (a, b) = (l.axis(x, call.int(names.0, 0)?)?, l.axis(x, call.int(names.1, 0)?)?);
    let mut perm: Vec<usize> = (0..l.rank(x)?).collect();
    if !perm.is_empty() {
        perm.swap(a, b);
    }
    one(l.transpose(x, &perm)?)
}

fn reversed(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let perm: Vec<usize> = (0..l.rank(x)?).rev().collect();
    one(l.transpose(x, &perm)?)
}

fn movedim(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let rank = l.rank(x)?;
    let from = call.ints("source")?.iter().map(|&dim| l.axis(x, dim)).collect::<Lowered<Vec<_>>>()?;
    let to = call.ints("destination")?.iter().map(|&dim| l.axis(x, dim)).collect::<Lowered<Vec<_>>>()?;
    if from.len() != to.len() {
        return Err(Refusal::because("as many sources as destinations are needed"));
    }
    let mut perm = vec![None; rank];
    for (&from, &to) in from.iter().zip(&to) {
        perm[to] = Some(from);
    }
    let mut rest = (0..rank).filter(|axis| !from.contains(axis));
    let perm: Option<Vec<usize>> = perm.into_iter().map(|axis| axis.or_else(|| rest.next())).collect();
    let perm = perm.ok_or_else(|| Refusal::because("an axis is moved twice"))?;
    one(l.transpose(x, &perm)?)
}

fn unsqueeze(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let axis = axis_of(call.int("dim", 0)?, l.rank(x)? + 1)? as i32;
    one(l.emit(Op::ExpandDims { x, axis })?)
}

/// Only sizes that are known to be 1 go, as torch has it.
fn squeeze(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let shape = l.ty(x)?.shape;
    let listed: Vec<usize> = match call.maybe_ints("dim")? {
        Some(dims) if !shape.is_empty() => dims.iter().map(|&dim| l.axis(x, dim)).collect::<Lowered<_>>()?,
        Some(_) => return one(x),
        None => (0..shape.len()).collect(),
    };
    let dims: Vec<i32> = (0..shape.len())
        .filter(|axis| listed.contains(axis) && shape[*axis].as_known() == Some(1))
        .map(|axis| axis as i32)
        .collect();
    match dims.is_empty() {
        true => one(x),
        false => one(l.emit(Op::Squeeze { x, dims: Some(dims) })?),
    }
}

/// Axes of size 1 repeated; -1 keeps a size.
pub(super) fn expand(l: &mut Lowerer<'_>, x: ValueId, shape: Vec<Int>) -> Lowered<ValueId> {
    let from = l.ty(x)?.shape;
    let lead = shape.len().saturating_sub(from.len());
    let same = lead == 0
        && shape.iter().zip(&from).all(|(to, from)| match to {
            Int::Literal(-1) => true,
            Int::Literal(size) => from.as_known() == Some(*size),
            Int::Value(_) => false,
        });
    if same {
        return Ok(x);
    }
    l.emit(Op::BroadcastTo { x, shape })
}

fn at_least(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let mut x = call.tensor("self")?;
    let wanted = call.results.first().map_or(0, |meta| meta.sizes.len());
    while l.rank(x)? < wanted {
        x = l.emit(Op::ExpandDims { x, axis: 0 })?;
    }
    one(x)
}

fn image(l: &mut Lowerer<'_>, x: ValueId) -> Lowered<(Vec<Int>, i64, Int, Int)> {
    let rank = l.rank(x)?;
    if rank < 3 {
        return Err(Refusal::because("channels and two axes are needed"));
    }
    let mut batch = Vec::new();
    for axis in 0..rank - 3 {
        batch.push(l.size(x, axis)?);
    }
    Ok((batch, l.known_dim(x, rank - 3)?, l.size(x, rank - 2)?, l.size(x, rank - 1)?))
}

/// Channels become blocks of pixels.
fn pixel_shuffle(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<ValueId> {
    let (x, factor) = (call.tensor("self")?, call.int("upscale_factor", 1)?.clamp(1, 1 << 15));
    let (batch, channels, height, width) = image(l, x)?;
    let (lead, each) = (batch.len(), Int::Literal(factor));
    let out = Int::Literal(channels / (factor * factor).max(1));
    let mut shape = batch.clone();
    shape.extend([out, each, each, height, width]);
    let x = l.reshape(x, shape)?;
    let mut perm: Vec<usize> = (0..lead).collect();
    perm.extend([0, 3, 1, 4, 2].map(|axis| axis + lead));
    let x = l.transpose(x, &perm)?;
    let mut shape = batch;
    shape.extend([out, l.multiply_ints(height, each)?, l.multiply_ints(width, each)?]);
    l.reshape(x, shape)
}

/// Blocks of pixels become channels.
fn pixel_unshuffle(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<ValueId> {
    let (x, factor) = (call.tensor("self")?, call.int("downscale_factor", 1)?.clamp(1, 1 << 15));
    let rank = l.rank(x)?;
    let (batch, channels, ..) = image(l, x)?;
    let (height, width) = (l.known_dim(x, rank - 2)?, l.known_dim(x, rank - 1)?);
    let (lead, each) = (batch.len(), Int::Literal(factor));
    let (height, width) = (Int::Literal(height / factor.max(1)), Int::Literal(width / factor.max(1)));
    let mut shape = batch.clone();
    shape.extend([Int::Literal(channels), height, each, width, each]);
    let x = l.reshape(x, shape)?;
    let mut perm: Vec<usize> = (0..lead).collect();
    perm.extend([0, 2, 4, 1, 3].map(|axis| axis + lead));
    let x = l.transpose(x, &perm)?;
    let mut shape = batch;
    shape.extend([Int::Literal(channels.saturating_mul(factor * factor)), height, width]);
    l.reshape(x, shape)
}

fn channel_shuffle(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<ValueId> {
    let (x, groups) = (call.tensor("self")?, call.int("groups", 1)?);
    l.at_least(x, 2)?;
    let (whole, channels) = (l.sizes(x)?, l.known_dim(x, 1)?);
    let mut shape = vec![whole[0], Int::Literal(groups), Int::Literal(channels / groups.max(1))];
    shape.extend_from_slice(&whole[2..]);
    let x = l.reshape(x, shape)?;
    let mut perm: Vec<usize> = (0..l.rank(x)?).collect();
    perm.swap(1, 2);
    let x = l.transpose(x, &perm)?;
    l.reshape(x, whole)
}
