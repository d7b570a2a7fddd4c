//! Norms as one op each, in the kinds that families have, and the head: norm, logits, factor, soft cap.

use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::{Matrix, matrix, product};
use crate::{ModelError, Net};

/// What a norm does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Divides by the root of the mean square, times a weight.
    Rms,
    /// The same with a weight that is stored as its distance from 1 (Gemma). It is kept in f32, where that distance
    /// survives, and the result is rounded once.
    RmsAroundOne,
    /// The same without a weight.
    RmsBare,
    /// Mean 0 and variance 1 (LayerNorm), times a weight, plus a bias.
    Layer,
    /// The same without a bias.
    LayerUnbiased,
    /// The same without weight and bias.
    LayerBare,
    /// The same with a weight that is stored as its distance from 1, and a bias (Nemotron).
    LayerAroundOne,
}

/// A norm of that name.
#[derive(Clone, Debug)]
pub struct Norm {
    /// The weight, such as `model.norm.weight`.
    pub name: String,
    /// Features.
    pub size: usize,
    /// Added to the mean square, or to the variance.
    pub eps: f32,
    /// What it does.
    pub kind: NormKind,
}

impl Norm {
    /// Applies it to the last axis.
    pub fn apply(&self, net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
        self.apply_in(net, x, net.activations())
    }

    /// The same with the result in that dtype.
    pub fn apply_in(&self, net: &mut Net, x: ValueId, result: DType) -> Result<ValueId, ModelError> {
        let (plus, dtype) = match self.kind {
            NormKind::RmsAroundOne | NormKind::LayerAroundOne => (1.0, DType::F32),
            _ => (0.0, net.activations()),
        };
        let eps = self.eps;
        let y = match self.kind {
            NormKind::RmsBare => net.op(Op::RMSNorm { x, weight: None, eps })?,
            NormKind::LayerBare => net.op(Op::LayerNorm { x, weight: None, bias: None, eps })?,
            NormKind::Rms | NormKind::RmsAroundOne => {
                let weight = net.floats(&self.name, &[self.size], dtype, plus)?;
                net.op(Op::RMSNorm { x, weight: Some(weight), eps })?
            }
            NormKind::Layer | NormKind::LayerAroundOne => {
                let weight = net.floats(&self.name, &[self.size], dtype, plus)?;
                let stem = self.name.strip_suffix("weight").unwrap_or(&self.name);
                let bias = net.floats(&format!("{stem}bias"), &[self.size], dtype, 0.0)?;
                net.op(Op::LayerNorm { x, weight: Some(weight), bias: Some(bias), eps })?
            }
            NormKind::LayerUnbiased => {
                let weight = net.floats(&self.name, &[self.size], dtype, plus)?;
                net.op(Op::LayerNorm { x, weight: Some(weight), bias: None, eps })?
            }
        };
        net.cast(y, result)
    }
}

/// A layer norm with the weight and the bias of that module.
pub fn layer_norm(
    net: &mut Net,
    x: ValueId,
    module: &str,
    size: usize,
    eps: f32,
) -> Result<ValueId, ModelError> {
    Norm { name: format!("{module}.weight"), size, eps, kind: NormKind::Layer }.apply(net, x)
}

/// An RMS norm of the last axis without a weight.
pub fn unweighted_norm(net: &mut Net, x: ValueId, eps: f32) -> Result<ValueId, ModelError> {
    net.op(Op::RMSNorm { x, weight: None, eps })
}

/// The matrix that gives logits: the embedding's own where they are tied, so that it is stored once.
pub fn output_matrix(
    net: &mut Net,
    embedding: Matrix,
    tied: bool,
    vocab_size: usize,
    hidden: usize,
) -> Result<Matrix, ModelError> {
    net.enter("head");
    if tied { Ok(embedding) } else { matrix(net, "lm_head.weight", vocab_size, hidden) }
}

/// Logits in f32: of the last position `[1, V]`, of all `[1, T, V]` or of some `[1, R, V]`, as the method asks. A soft cap works in f32.
pub fn head(
    net: &mut Net,
    x: ValueId,
    norm: Norm,
    matrix: Matrix,
    soft_cap: Option<f32>,
) -> Result<ValueId, ModelError> {
    let x = asked_for(net, x)?;
    let x = norm.apply(net, x)?;
    logits(net, x, &Logits { matrix, bias: None, factor: 1.0, soft_cap })
}

/// The positions whose logits the method gives. Before the last norm: the others are needed by nobody.
pub fn asked_for(net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
    net.enter("head");
    net.wanted_rows(x)
}

/// How the last hidden states become logits.
#[derive(Clone, Copy, Debug)]
pub struct Logits {
    /// The matrix.
    pub matrix: Matrix,
    /// Added to the product.
    pub bias: Option<ValueId>,
    /// What logits are multiplied by.
    pub factor: f32,
    /// The magnitude that they stay below.
    pub soft_cap: Option<f32>,
}

/// Logits of hidden states, in f32.
pub fn logits(net: &mut Net, x: ValueId, of: &Logits) -> Result<ValueId, ModelError> {
    // Not by way of the activations' dtype, where the product is wider already.
    let logits = product(net, x, of.matrix, of.bias)?;
    let mut logits = net.cast(logits, DType::F32)?;
    if of.factor != 1.0 {
        logits = net.scaled(logits, of.factor)?;
    }
    match of.soft_cap {
        Some(cap) => capped(net, logits, cap),
        None => Ok(logits),
    }
}

/// Numbers of f32 that stay below a magnitude: `cap * tanh(x / cap)`.
pub fn capped(net: &mut Net, x: ValueId, cap: f32) -> Result<ValueId, ModelError> {
    let cap = net.scalar(cap, DType::F32);
    let small = net.op(Op::Divide { a: x, b: cap })?;
    let small = net.op(Op::Tanh { x: small })?;
    net.multiply(small, cap)
}
