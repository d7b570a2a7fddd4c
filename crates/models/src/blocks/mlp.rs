//! Feed-forward networks: gated, or one activation between two matrices.

use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::{Activation, Norm, NormKind, bias, linear, matrix};
use crate::{ModelError, Net};

/// One layer's feed-forward network.
#[derive(Clone, Copy, Debug)]
pub struct Mlp<'a> {
    /// Prefix of its weights, such as `model.layers.0.mlp`.
    pub name: &'a str,
    /// Features of the residual stream.
    pub hidden: usize,
    /// What it is like.
    pub kind: MlpKind,
}

/// What a feed-forward network is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MlpKind {
    /// Features inside.
    pub inner: usize,
    /// Whether what is activated is a gate, beside the features that pass it.
    pub gated: bool,
    /// What the gate, or the features themselves, go through.
    pub activation: Activation,
    /// Whether its matrices have biases.
    pub biases: bool,
    /// Whether the last of them has one, where the others have none.
    pub out_bias: bool,
    /// What an RMS norm of the features inside adds to the mean square, where there is one (BitNet).
    pub sub_norm: Option<f32>,
    /// What the gate is multiplied by before it is activated, and what comes out.
    pub factors: (f32, f32),
    /// How many standard deviations above the mean of all gates one begins to let through, where that is asked for (Gemma 3n).
    pub cutoff: Option<f32>,
}

impl MlpKind {
    /// A gated one without biases.
    pub const fn gated(inner: usize, activation: Activation) -> MlpKind {
        MlpKind {
            inner,
            gated: true,
            activation,
            biases: false,
            out_bias: false,
            sub_norm: None,
            factors: (1.0, 1.0),
            cutoff: None,
        }
    }
}

impl Mlp<'_> {
    fn project(
        &self,
        net: &mut Net,
        x: ValueId,
        which: &str,
        rows: usize,
        columns: usize,
    ) -> Result<ValueId, ModelError> {
        let weight = matrix(net, &format!("{}.{which}.weight", self.name), rows, columns)?;
        let bias = match self.kind.biases || self.kind.out_bias && which == "down_proj" {
            true => Some(bias(net, &format!("{}.{which}.bias", self.name), rows)?),
            false => None,
        };
        linear(net, x, weight, bias)
    }

    fn activated(&self, net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
        match self.kind.activation {
            Activation::Xielu => xielu(net, x, &format!("{}.act_fn", self.name)),
            activation => activation.apply(net, x),
        }
    }
}

/// `down(activation(gate(x)) * up(x))`, or `down(activation(up(x)))` where there is no gate.
pub fn mlp(net: &mut Net, x: ValueId, mlp: &Mlp<'_>) -> Result<ValueId, ModelError> {
    net.enter(mlp.name);
    let (inner, hidden) = (mlp.kind.inner, mlp.hidden);
    let mut features = match mlp.kind.gated {
        true => {
            let gate = mlp.project(net, x, "gate_proj", inner, hidden)?;
            let gate = net.scaled(gate, mlp.kind.factors.0)?;
            let gate = match mlp.kind.cutoff {
                Some(deviations) => above(net, gate, deviations)?,
                None => gate,
            };
            let gate = mlp.activated(net, gate)?;
            let up = mlp.project(net, x, "up_proj", inner, hidden)?;
            net.multiply(gate, up)?
        }
        false => {
            let up = mlp.project(net, x, "up_proj", inner, hidden)?;
            mlp.activated(net, up)?
        }
    };
    if let Some(eps) = mlp.kind.sub_norm {
        let name = format!("{}.ffn_sub_norm.weight", mlp.name);
        features = Norm { name, size: inner, eps, kind: NormKind::Rms }.apply(net, features)?;
    }
    let out = mlp.project(net, features, "down_proj", hidden, inner)?;
    net.scaled(out, mlp.kind.factors.1)
}

/// By how much each element of the last axis is above so many standard deviations more than the mean of all; 0 where it is not.
fn above(net: &mut Net, x: ValueId, deviations: f32) -> Result<ValueId, ModelError> {
    let dtype = net.dtype(x).unwrap_or(DType::F32);
    let x = net.cast(x, DType::F32)?;
    let axes = || Some(vec![-1]);
    let mean = net.op(Op::Mean { x, axes: axes(), keepdims: true })?;
    let deviation = net.op(Op::Std { x, axes: axes(), keepdims: true, ddof: 0 })?;
    let deviation = net.scaled(deviation, deviations)?;
    let border = net.add(mean, deviation)?;
    let x = net.op(Op::Subtract { a: x, b: border })?;
    let x = Activation::Relu.apply(net, x)?;
    net.cast(x, dtype)
}

/// The activation xIELU, which has four weights of its own: a square above zero, an exponential below, both beside a line.
/// In f32, where the weights are softened.
fn xielu(net: &mut Net, x: ValueId, name: &str) -> Result<ValueId, ModelError> {
    let dtype = net.dtype(x).unwrap_or(DType::F32);
    let mut weight = |which: &str| net.floats(&format!("{name}.{which}"), &[1], DType::F32, 0.0);
    let (above, below) = (weight("alpha_p")?, weight("alpha_n")?);
    let (beta, eps) = (weight("beta")?, weight("eps")?);
    let zero = net.scalar(0.0, DType::F32);
    let above = net.op(Op::LogAddExp { a: above, b: zero })?;
    let below = net.op(Op::LogAddExp { a: below, b: zero })?;
    let below = net.add(below, beta)?;
    let x = net.cast(x, DType::F32)?;
    let line = net.multiply(x, beta)?;
    let square = net.multiply(x, x)?;
    let square = net.multiply(square, above)?;
    let least = net.op(Op::Minimum { a: x, b: eps })?;
    let curve = net.op(Op::Expm1 { x: least })?;
    let curve = net.op(Op::Subtract { a: curve, b: x })?;
    let curve = net.multiply(curve, below)?;
    let is_above = net.op(Op::Greater { a: x, b: zero })?;
    let curve = net.op(Op::Where { condition: is_above, x: square, y: curve })?;
    let y = net.add(curve, line)?;
    net.cast(y, dtype)
}
