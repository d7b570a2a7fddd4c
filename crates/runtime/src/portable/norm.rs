//! Softmax and normalisations, in f64.

use super::lanes;
use super::walk::{around, axis};
use super::{Call, Operator, Outs, PortableError, Results, invalid, one, whole};
use crate::Value;
use pteron_tensor::{DType, HostTensor};

pub(super) const TABLE: &[Operator] = &[
    whole("aten::_softmax.out", 3, |call| softmax(call, |_, exp, sum| exp / sum)),
    whole("aten::_log_softmax.out", 3, |call| softmax(call, |shifted, _, sum| shifted - sum.ln())),
    whole("aten::glu.out", 2, glu),
    several("aten::native_layer_norm.out", 5, layer_norm),
    several("aten::native_group_norm.out", 8, group_norm),
    several("aten::_native_batch_norm_legit_no_training.out", 7, |call| {
        batch_norm(call, Some((call.tensor(3)?, call.tensor(4)?)), call.float(6)?)
    }),
    several("aten::_native_batch_norm_legit.out", 8, |call| match call.bool(5)? {
        false => batch_norm(call, Some((call.tensor(3)?, call.tensor(4)?)), call.float(7)?),
        true => {
            invalid("running statistics are updated only in training, which is not what programs are for")
        }
    }),
    several("aten::_native_batch_norm_legit.no_stats_out", 6, |call| batch_norm(call, None, call.float(5)?)),
    Operator { outs: Outs::Tensors(2), ..whole("aten::native_dropout.out", 3, dropout) },
];

const fn several(name: &'static str, inputs: usize, kernel: fn(&Call<'_>) -> Results) -> Operator {
    Operator { outs: Outs::Tensors(3), ..whole(name, inputs, kernel) }
}

fn softmax(call: &Call<'_>, finish: fn(f64, f64, f64) -> f64) -> Results {
    let x = call.tensor(0)?;
    let (outer, size, inner) = around(x, axis(call.int(1)?, x.rank())?);
    let mut values = lanes::floats(x);
    for block in 0..outer {
        for lane in 0..inner {
            let place = |index: usize| (block * size + index) * inner + lane;
            let high = (0..size).map(|index| values[place(index)]).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..size).map(|index| (values[place(index)] - high).exp()).sum();
            for index in 0..size {
                let shifted = values[place(index)] - high;
                values[place(index)] = finish(shifted, shifted.exp(), sum);
            }
        }
    }
    one(lanes::from_floats(call.out_dtype(), x.shape().to_vec(), values))
}

/// The first half times the sigmoid of the second.
fn glu(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let at = axis(call.int(1)?, x.rank())?;
    let (outer, size, inner) = around(x, at);
    if size % 2 != 0 || x.rank() == 0 {
        return invalid(format!("an axis of size {size} cannot be halved"));
    }
    let values = lanes::floats(x);
    let (half, mut shape) = (size / 2, x.shape().to_vec());
    shape[at] = half;
    let halves = (0..outer).flat_map(|block| (0..half * inner).map(move |lane| block * size * inner + lane));
    let gated = halves.map(|place| values[place] * super::unary::sigmoid(values[place + half * inner]));
    one(lanes::from_floats(call.out_dtype(), shape, gated.collect::<Vec<_>>()))
}

/// Mean and reciprocal deviation of some elements.
fn statistics(values: impl Iterator<Item = f64> + Clone, eps: f64) -> (f64, f64) {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|value| (value - mean) * (value - mean)).sum::<f64>() / count;
    (mean, (variance + eps).sqrt().recip())
}

/// The dtype of an out argument.
fn out(call: &Call<'_>, index: usize) -> DType {
    call.outs.get(index).map_or(DType::F32, |out| out.dtype)
}

fn parameters(tensor: Option<&HostTensor>, count: usize, absent: f64) -> Result<Vec<f64>, PortableError> {
    match tensor {
        Some(tensor) if tensor.len() == count => Ok(lanes::floats(tensor)),
        Some(tensor) => invalid(format!("{:?} parameters for {count} features", tensor.shape())),
        None => Ok(vec![absent; count]),
    }
}

fn layer_norm(call: &Call<'_>) -> Results {
    let (x, normalized, eps) = (call.tensor(0)?, call.sizes(1)?, call.float(4)?);
    let lead = x.rank().checked_sub(normalized.len()).filter(|&lead| x.shape()[lead..] == normalized[..]);
    let Some(lead) = lead else {
        return invalid(format!("{normalized:?} are not the last axes of {:?}", x.shape()));
    };
    let size: usize = normalized.iter().product();
    let weight = parameters(call.maybe_tensor(2)?, size, 1.0)?;
    let bias = parameters(call.maybe_tensor(3)?, size, 0.0)?;
    let mut values = lanes::floats(x);
    let (mut means, mut scales) = (Vec::new(), Vec::new());
    for row in values.chunks_mut(size.max(1)) {
        let (mean, scale) = statistics(row.iter().copied(), eps);
        for ((value, weight), bias) in row.iter_mut().zip(&weight).zip(&bias) {
            *value = (*value - mean) * scale * weight + bias;
        }
        means.push(mean);
        scales.push(scale);
    }
    let mut shape = x.shape()[..lead].to_vec();
    shape.extend(normalized.iter().map(|_| 1));
    let rows: usize = shape.iter().product();
    means.resize(rows, f64::NAN);
    scales.resize(rows, f64::NAN);
    Ok(vec![
        Value::Tensor(lanes::from_floats(out(call, 0), x.shape().to_vec(), values)?),
        Value::Tensor(lanes::from_floats(out(call, 1), shape.clone(), means)?),
        Value::Tensor(lanes::from_floats(out(call, 2), shape, scales)?),
    ])
}

fn group_norm(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let sizes = [3, 4, 5, 6].map(|index| call.int(index).and_then(super::call::as_size));
    let [batch, channels, pixels, group] = sizes;
    let (batch, channels, pixels, group) = (batch?, channels?, pixels?, group?);
    let eps = call.float(7)?;
    let count = batch.checked_mul(channels).and_then(|count| count.checked_mul(pixels));
    if group == 0 || channels % group != 0 || count != Some(x.len()) {
        return invalid(format!("{group} groups of {channels} channels in {:?}", x.shape()));
    }
    let weight = parameters(call.maybe_tensor(1)?, channels, 1.0)?;
    let bias = parameters(call.maybe_tensor(2)?, channels, 0.0)?;
    let mut values = lanes::floats(x);
    let size = channels / group * pixels;
    let (mut means, mut scales) = (Vec::new(), Vec::new());
    for (number, block) in values.chunks_mut(size.max(1)).enumerate() {
        let (mean, scale) = statistics(block.iter().copied(), eps);
        for (index, value) in block.iter_mut().enumerate() {
            let channel = number % group * (channels / group) + index / pixels;
            *value = (*value - mean) * scale * weight[channel] + bias[channel];
        }
        means.push(mean);
        scales.push(scale);
    }
    means.resize(batch * group, f64::NAN);
    scales.resize(batch * group, f64::NAN);
    Ok(vec![
        Value::Tensor(lanes::from_floats(out(call, 0), x.shape().to_vec(), values)?),
        Value::Tensor(lanes::from_floats(out(call, 1), vec![batch, group], means)?),
        Value::Tensor(lanes::from_floats(out(call, 2), vec![batch, group], scales)?),
    ])
}

/// Each channel (axis 1) by its running statistics, or by its own where there are none.
fn batch_norm(call: &Call<'_>, running: Option<(&HostTensor, &HostTensor)>, eps: f64) -> Results {
    let x = call.tensor(0)?;
    if x.rank() < 2 {
        return invalid(format!("{:?} has no channels", x.shape()));
    }
    let (outer, channels, inner) = around(x, 1);
    let weight = parameters(call.maybe_tensor(1)?, channels, 1.0)?;
    let bias = parameters(call.maybe_tensor(2)?, channels, 0.0)?;
    let mut values = lanes::floats(x);
    let statistics: Vec<(f64, f64)> = match running {
        Some((mean, variance)) => {
            let (mean, variance) =
                (parameters(Some(mean), channels, 0.0)?, parameters(Some(variance), channels, 0.0)?);
            mean.into_iter()
                .zip(variance)
                .map(|(mean, variance)| (mean, (variance + eps).sqrt().recip()))
                .collect()
        }
        None => (0..channels)
            .map(|channel| {
                let places = (0..outer).flat_map(move |block| {
                    (0..inner).map(move |lane| (block * channels + channel) * inner + lane)
                });
                statistics(places.map(|place| values[place]), eps)
            })
            .collect(),
    };
    for (number, row) in values.chunks_mut(inner.max(1)).enumerate() {
        let channel = number % channels;
        let (mean, scale) = statistics[channel];
        row.iter_mut().for_each(|value| *value = (*value - mean) * scale * weight[channel] + bias[channel]);
    }
    // With running statistics nothing is saved: the other results are empty.
    let saved = |pick: fn(&(f64, f64)) -> f64, index: usize| match running {
        Some(_) => lanes::from_floats(out(call, index), vec![0], []),
        None => lanes::from_floats(out(call, index), vec![channels], statistics.iter().map(pick)),
    };
    Ok(vec![
        Value::Tensor(lanes::from_floats(out(call, 0), x.shape().to_vec(), values)?),
        Value::Tensor(saved(|pair| pair.0, 1)?),
        Value::Tensor(saved(|pair| pair.1, 2)?),
    ])
}

/// Outside training nothing is dropped.
fn dropout(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    if call.float(1)? != 0.0 && call.args.get(2).is_some_and(|train| !matches!(train, Value::Bool(false))) {
        return invalid("dropout in training draws random numbers, which programs are not run for");
    }
    let mask = lanes::from_bools(x.shape().to_vec(), std::iter::repeat_n(true, x.len()))?;
    Ok(vec![Value::Tensor(x.clone()), Value::Tensor(mask)])
}
