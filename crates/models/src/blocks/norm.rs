//! RMS norms as one op, and the head: norm, logits, soft cap.

use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::{Matrix, matrix, product};
use crate::{ModelError, Net};

/// An RMS norm of that name.
#[derive(Clone, Debug)]
pub struct Norm {
    /// The weight.
    pub name: String,
    /// Features.
    pub size: usize,
    /// Added to the mean square.
    pub eps: f32,
    /// Whether the stored weight is the distance from 1 (Gemma 3). It is then kept in f32, where that distance
    /// survives, and the result is rounded once.
    pub around_one: bool,
}

impl Norm {
    /// Applies it to the last axis.
    pub fn apply(&self, net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
        self.apply_in(net, x, net.activations())
    }

    /// The same with the result in that dtype.
    pub fn apply_in(&self, net: &mut Net, x: ValueId, result: DType) -> Result<ValueId, ModelError> {
        let (dtype, plus) = if self.around_one { (DType::F32, 1.0) } else { (net.activations(), 0.0) };
        let weight = net.floats(&self.name, &[self.size], dtype, plus)?;
        let y = net.op(Op::RMSNorm { x, weight: Some(weight), eps: self.eps })?;
        net.cast(y, result)
    }
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
    net.enter("head");
    // Before the norm: the other positions are needed by nobody.
    let x = net.wanted_rows(x)?;
    let x = norm.apply(net, x)?;
    // Not by way of the activations' dtype, where the product is wider already.
    let logits = product(net, x, matrix, None)?;
    let logits = net.cast(logits, DType::F32)?;
    let Some(cap) = soft_cap else { return Ok(logits) };
    let cap = net.scalar(cap, DType::F32);
    let small = net.op(Op::Divide { a: logits, b: cap })?;
    let small = net.op(Op::Tanh { x: small })?;
    net.multiply(small, cap)
}
