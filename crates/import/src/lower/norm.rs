//! Normalisation over features, channels or groups of channels.

use super::call::{Call, Int};
use super::context::{Bound, Lowerer, Outs, one};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use pteron_ir::{Op, ValueId};
use pteron_tensor::{DType, HostTensor};

pub(super) const TABLE: Table = &[
    ("aten.layer_norm.default", layer_norm),
    ("aten.native_layer_norm.default", layer_norm),
    ("aten.rms_norm.default", rms_norm),
    ("aten._fused_rms_norm.default", rms_norm),
    ("aten.batch_norm.default", batch_norm),
    ("aten._native_batch_norm_legit_no_training.default", batch_norm),
    ("aten._batch_norm_no_update.default", batch_norm),
    ("aten.group_norm.default", group_norm),
    ("aten.native_group_norm.default", group_norm),
    ("aten.instance_norm.default", instance_norm),
];

/// The tensor with its last axes as one, and what gives its shape back.
fn flat_features(l: &mut Lowerer<'_>, x: ValueId, axes: usize) -> Lowered<(ValueId, Option<Vec<Int>>)> {
    let rank = l.rank(x)?;
    if axes == 0 || axes > rank {
        return Err(Refusal::because(format!("{axes} normalised axes of {rank}")));
    }
    if axes == 1 {
        return Ok((x, None));
    }
    let shape = l.sizes(x)?;
    let mut flat = shape[..rank - axes].to_vec();
    flat.push(Int::Literal(-1));
    Ok((l.reshape(x, flat)?, Some(shape)))
}

fn flat_weight(l: &mut Lowerer<'_>, weight: Option<ValueId>) -> Lowered<Option<ValueId>> {
    match weight {
        Some(weight) if l.rank(weight)? != 1 => Ok(Some(l.reshape(weight, vec![Int::Literal(-1)])?)),
        other => Ok(other),
    }
}

fn input(call: &Call<'_>) -> Lowered<ValueId> {
    call.tensor(if call.has("input") { "input" } else { "self" })
}

fn layer_norm(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = input(call)?;
    let axes = call.ints("normalized_shape")?.len();
    let (weight, bias) = (call.maybe_tensor("weight")?, call.maybe_tensor("bias")?);
    let (flat, shape) = flat_features(l, x, axes)?;
    let (weight, bias) = (flat_weight(l, weight)?, flat_weight(l, bias)?);
    let eps = call.float("eps", 1e-5)? as f32;
    let mut found = l.emit(Op::LayerNorm { x: flat, weight, bias, eps })?;
    if let Some(shape) = shape {
        found = l.reshape(found, shape)?;
    }
    one(found)
}

fn rms_norm(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = input(call)?;
    let axes = call.ints("normalized_shape")?.len();
    let (flat, shape) = flat_features(l, x, axes)?;
    let weight = flat_weight(l, call.maybe_tensor("weight")?)?;
    // Without an epsilon torch takes the least difference from 1 of the type that it computes in.
    let least = match l.dtype(x)? {
        DType::F16 | DType::BF16 | DType::F32 => f64::from(f32::EPSILON),
        _ => f64::EPSILON,
    };
    let eps = call.float("eps", least)? as f32;
    let mut found = l.emit(Op::RMSNorm { x: flat, weight, eps })?;
    if let Some(shape) = shape {
        found = l.reshape(found, shape)?;
    }
    one(found)
}

/// Floats of a value that is known now.
fn known_floats(l: &Lowerer<'_>, value: Option<ValueId>) -> Option<Vec<f32>> {
    let tensor = l.data_of(value?)?;
    tensor.as_slice::<f32>().ok().map(<[f32]>::to_vec)
}

/// With known statistics a norm by channel is one product and one sum.
fn batch_norm(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    if call.flag("training", false)? {
        return Err(Refusal::because("batch norm in training mode; call model.eval() before export"));
    }
    let x = input(call)?;
    let eps = call.float("eps", 1e-5)?;
    let (mean, variance) = (call.tensor("running_mean")?, call.tensor("running_var")?);
    let (weight, bias) = (call.maybe_tensor("weight")?, call.maybe_tensor("bias")?);
    let rank = l.at_least(x, 2)?;
    let channels = |rank: usize| {
        let mut shape = vec![1usize; rank];
        shape[1] = 0;
        shape
    };
    let dtype = l.dtype(x)?;
    let wide = l.cast(x, DType::F32)?;
    let known = known_floats(l, Some(mean)).zip(known_floats(l, Some(variance)));
    let parts = (weight.is_none() || known_floats(l, weight).is_some())
        && (bias.is_none() || known_floats(l, bias).is_some());
    let (scale, shift) = match (known, l.name_of(mean).map(str::to_owned)) {
        (Some((mean, variance)), Some(name)) if parts && mean.len() == variance.len() => {
            let (weight, bias) = (known_floats(l, weight), known_floats(l, bias));
            let at = |values: &Option<Vec<f32>>, index: usize, default: f64| {
                values
                    .as_ref()
                    .and_then(|values| values.get(index))
                    .map_or(default, |value| f64::from(*value))
            };
            let scale: Vec<f64> = (0..mean.len())
                .map(|c| at(&weight, c, 1.0) / (f64::from(variance[c]) + eps).sqrt())
                .collect();
            let shift: Vec<f32> =
                (0..mean.len()).map(|c| (at(&bias, c, 0.0) - f64::from(mean[c]) * scale[c]) as f32).collect();
            let scale: Vec<f32> = scale.iter().map(|value| *value as f32).collect();
            let mut shape = channels(rank);
            shape[1] = mean.len();
            let tensor = |values: &[f32]| {
                HostTensor::from_slice(shape.clone(), values)
                    .map_err(|error| Refusal::because(error.to_string()))
            };
            (
                l.constant(&format!("{name}_scale_{rank}"), tensor(&scale)?)?,
                l.constant(&format!("{name}_shift_{rank}"), tensor(&shift)?)?,
            )
        }
        _ => {
            let shape: Vec<Int> =
                channels(rank).iter().map(|&size| Int::Literal(if size == 0 { -1 } else { 1 })).collect();
            let by_channel = |l: &mut Lowerer<'_>, value: ValueId| -> Lowered<ValueId> {
                let value = l.cast(value, DType::F32)?;
                l.reshape(value, shape.clone())
            };
            let (mean, variance) = (by_channel(l, mean)?, by_channel(l, variance)?);
            let eps = l.number(eps, DType::F32)?;
            let variance = l.emit(Op::Add { a: variance, b: eps })?;
            let mut scale = l.emit(Op::Rsqrt { x: variance })?;
            if let Some(weight) = weight {
                let weight = by_channel(l, weight)?;
                scale = l.emit(Op::Multiply { a: scale, b: weight })?;
            }
            let moved = l.emit(Op::Multiply { a: mean, b: scale })?;
            let shift = match bias {
                Some(bias) => {
                    let bias = by_channel(l, bias)?;
                    l.emit(Op::Subtract { a: bias, b: moved })?
                }
                None => l.emit(Op::Neg { x: moved })?,
            };
            (scale, shift)
        }
    };
    let scaled = l.emit(Op::Multiply { a: wide, b: scale })?;
    let found = l.emit(Op::Add { a: scaled, b: shift })?;
    one(l.cast(found, dtype)?)
}

/// Groups of channels as rows, normalised, then scaled by channel.
fn by_groups(
    l: &mut Lowerer<'_>,
    x: ValueId,
    groups: Int,
    weight: Option<ValueId>,
    bias: Option<ValueId>,
    eps: f32,
) -> Lowered<ValueId> {
    let rank = l.at_least(x, 2)?;
    let shape = l.sizes(x)?;
    let flat = l.reshape(x, vec![shape[0], groups, Int::Literal(-1)])?;
    let normal = l.emit(Op::LayerNorm { x: flat, weight: None, bias: None, eps })?;
    let mut found = l.reshape(normal, shape)?;
    let mut channels = vec![Int::Literal(1); rank];
    channels[1] = Int::Literal(-1);
    if let Some(weight) = weight {
        let weight = l.reshape(weight, channels.clone())?;
        found = l.emit(Op::Multiply { a: found, b: weight })?;
    }
    if let Some(bias) = bias {
        let bias = l.reshape(bias, channels)?;
        found = l.emit(Op::Add { a: found, b: bias })?;
    }
    Ok(found)
}

fn group_norm(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = input(call)?;
    let groups =
        if call.has("num_groups") { call.any_int("num_groups", 1)? } else { call.any_int("group", 1)? };
    let (weight, bias) = (call.maybe_tensor("weight")?, call.maybe_tensor("bias")?);
    Ok(vec![Bound::Tensor(by_groups(l, x, groups, weight, bias, call.float("eps", 1e-5)? as f32)?)])
}

fn instance_norm(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    if !call.flag("use_input_stats", true)? {
        return batch_norm(l, call);
    }
    let x = input(call)?;
    let groups = l.size(x, 1)?;
    let (weight, bias) = (call.maybe_tensor("weight")?, call.maybe_tensor("bias")?);
    one(by_groups(l, x, groups, weight, bias, call.float("eps", 1e-5)? as f32)?)
}
