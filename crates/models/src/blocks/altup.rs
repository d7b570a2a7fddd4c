//! Several residual streams of which a layer computes with one (AltUp, Gemma 3n): the others are predicted before it, and all are
//! corrected behind it, by small matrices that the layer's own stream makes for each token. Streams are `[1, T, streams, hidden]`.

use pteron_ir::op::IntArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::experts::deciding;
use super::{Norm, NormKind, linear, matrix};
use crate::net::{literal, value};
use crate::{ModelError, Net};

/// The least mean square that a stream is divided by the root of, when it is made as large as another.
const LEAST_SQUARE: f32 = 1e-5;

/// Streams of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Streams {
    /// How many there are.
    pub count: usize,
    /// The one that layers compute with.
    pub active: usize,
    /// Features of each.
    pub hidden: usize,
    /// What norms add to the mean square.
    pub eps: f32,
}

impl Streams {
    /// All streams of what enters the first layer, `[1, T, hidden]`: itself, and matrices of it that are made as large as it is.
    pub fn enter(&self, net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
        let size = root_mean_square(net, x, None)?;
        let mut all = vec![x];
        for number in 1..self.count {
            let name = format!("model.altup_projections.{}.weight", number - 1);
            all.push(self.as_large(net, x, &name, size)?);
        }
        let all = net.op(Op::Concatenate { tensors: all, axis: -1 })?;
        net.split_tokens(all, &[self.count, self.hidden])
    }

    /// The mean of all streams behind the last layer, where the first stays as it is and matrices of the others are made as large;
    /// of the positions whose logits are wanted.
    pub fn leave(&self, net: &mut Net, streams: ValueId) -> Result<ValueId, ModelError> {
        let all = net.split_tokens(streams, &[self.count * self.hidden])?;
        let all = net.wanted_rows(all)?;
        let axis = IntArg::Literal(-1);
        let one = |net: &mut Net, number: usize| {
            let (start, stop) = (literal(number * self.hidden), literal((number + 1) * self.hidden));
            net.op(Op::Slice { x: all, axis, start, stop, step: 1 })
        };
        let mut sum = one(net, 0)?;
        let size = root_mean_square(net, sum, None)?;
        for number in 1..self.count {
            let x = one(net, number)?;
            let name = format!("model.altup_unembed_projections.{}.weight", number - 1);
            let x = self.as_large(net, x, &name, size)?;
            sum = net.add(sum, x)?;
        }
        net.scaled(sum, (self.count as f32).recip())
    }

    /// The product of `x` with a matrix, made as large as that root of a mean square.
    fn as_large(&self, net: &mut Net, x: ValueId, name: &str, size: ValueId) -> Result<ValueId, ModelError> {
        let weight = matrix(net, name, self.hidden, self.hidden)?;
        let x = linear(net, x, weight, None)?;
        let own = root_mean_square(net, x, Some(LEAST_SQUARE))?;
        let factor = net.op(Op::Divide { a: size, b: own })?;
        let wide = net.cast(x, DType::F32)?;
        let wide = net.multiply(wide, factor)?;
        let dtype = net.activations();
        net.cast(wide, dtype)
    }

    /// The stream that a layer computes with, `[1, T, hidden]`.
    pub fn active(&self, net: &mut Net, streams: ValueId) -> Result<ValueId, ModelError> {
        net.pick(streams, self.active as i64, 2)
    }

    /// What a stream says of all of them, `[1, T, count]` in f32.
    fn routed(&self, net: &mut Net, x: ValueId, name: &str) -> Result<ValueId, ModelError> {
        let norm = format!("{name}.router_norm.weight");
        let norm = Norm { name: norm, size: self.hidden, eps: self.eps, kind: NormKind::Rms };
        let normed = norm.apply(net, x)?;
        // Wide before it is made small: a share of a stream is below what f16 has all digits for.
        let normed = net.cast(normed, DType::F32)?;
        let normed = net.scaled(normed, (self.hidden as f32).recip())?;
        let module = format!("{name}.modality_router");
        let routed = deciding(net, normed, &module, self.count, self.hidden, false)?;
        net.op(Op::Tanh { x: routed })
    }

    /// All streams before a layer, each with what the others say of it.
    pub fn predict(&self, net: &mut Net, streams: ValueId, name: &str) -> Result<ValueId, ModelError> {
        let active = self.active(net, streams)?;
        let routed = self.routed(net, active, name)?;
        let module = format!("{name}.prediction_coefs");
        let shares = deciding(net, routed, &module, self.count * self.count, self.count, false)?;
        let dtype = net.activations();
        let shares = net.cast(shares, dtype)?;
        let mat1 = net.split_tokens(shares, &[self.count, self.count])?;
        let more = net.op(Op::Addmm { mat1, mat2: streams, bias: None, alpha: 1.0, beta: 1.0 })?;
        net.add(more, streams)
    }

    /// All streams behind a layer: each gets its share of how far what the layer gave is from what was predicted.
    pub fn correct(
        &self,
        net: &mut Net,
        predicted: ValueId,
        given: ValueId,
        name: &str,
    ) -> Result<ValueId, ModelError> {
        let routed = self.routed(net, given, name)?;
        let module = format!("{name}.correction_coefs");
        let shares = deciding(net, routed, &module, self.count, self.count, false)?;
        let one = net.scalar(1.0, DType::F32);
        let shares = net.add(shares, one)?;
        let dtype = net.activations();
        let shares = net.cast(shares, dtype)?;
        let shares = net.split_tokens(shares, &[self.count, 1])?;
        let active = self.active(net, predicted)?;
        let distance = net.op(Op::Subtract { a: given, b: active })?;
        let distance = net.split_tokens(distance, &[1, self.hidden])?;
        let more = net.multiply(distance, shares)?;
        net.add(predicted, more)
    }

    /// All streams, with `x` added to all but the first.
    pub fn add_to_others(&self, net: &mut Net, streams: ValueId, x: ValueId) -> Result<ValueId, ModelError> {
        let axis = literal(2);
        let (first, border, end) = (literal(0), literal(1), literal(self.count));
        let kept = net.op(Op::Slice { x: streams, axis, start: first, stop: border, step: 1 })?;
        if self.count == 1 {
            return Ok(kept);
        }
        let others = net.op(Op::Slice { x: streams, axis, start: border, stop: end, step: 1 })?;
        let shape = vec![literal(1), value(net.length()), literal(1), literal(self.hidden)];
        let x = net.op(Op::Reshape { x, shape })?;
        let others = net.add(others, x)?;
        net.op(Op::Concatenate { tensors: vec![kept, others], axis: 2 })
    }
}

/// The root of the mean square of the last axis in f32, of at least that mean.
fn root_mean_square(net: &mut Net, x: ValueId, least: Option<f32>) -> Result<ValueId, ModelError> {
    let x = net.cast(x, DType::F32)?;
    let squares = net.multiply(x, x)?;
    let mut mean = net.op(Op::Mean { x: squares, axes: Some(vec![-1]), keepdims: true })?;
    if let Some(least) = least {
        let least = net.scalar(least, DType::F32);
        mean = net.op(Op::Maximum { a: mean, b: least })?;
    }
    net.op(Op::Sqrt { x: mean })
}
