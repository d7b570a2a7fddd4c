//! Attention whose heads come in pairs, of which one is taken from the other (Differential Transformer, DiffLlama): both heads of a
//! pair see the values of two key heads side by side. Caches hold keys and values of one size, so that keys are filled up.

use pteron_ir::{Op, TensorType, ValueId};
use pteron_tensor::DType;

use super::{Heads, unweighted_norm};
use crate::net::literal;
use crate::{ModelError, Net};

/// How heads are taken from each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pairs {
    /// What the learned factor of the second head begins with.
    pub start: f32,
    /// What the norm of the difference adds to the mean square.
    pub eps: f32,
}

/// Values `[1, kv heads, T, features]` as each key head finds them: those of the head of its number in the first half, then in the
/// second.
pub(super) fn doubled(net: &mut Net, values: ValueId, kv_heads: usize) -> Result<ValueId, ModelError> {
    let (axis, step, half) = (literal(1), 1, kv_heads / 2);
    let first = net.op(Op::Slice { x: values, axis, start: literal(0), stop: literal(half), step })?;
    let second =
        net.op(Op::Slice { x: values, axis, start: literal(half), stop: literal(kv_heads), step })?;
    let both = net.op(Op::Concatenate { tensors: vec![first, second], axis: 3 })?;
    net.op(Op::Concatenate { tensors: vec![both, both], axis: 1 })
}

/// The second half of all heads, times a learned factor, taken from the first: `[1, heads / 2, T, features]`, normed.
pub(super) fn difference(
    net: &mut Net,
    attended: ValueId,
    name: &str,
    of: &Heads,
    pairs: Pairs,
) -> Result<ValueId, ModelError> {
    let dtype = net.activations();
    let size = of.head_dim;
    let factor = net.at_load(&format!("{name}.lambda"), TensorType::known(dtype, &[1]), |net| {
        let mut grown = |which: [&str; 2]| {
            let [a, b] = which.map(|which| net.floats(&format!("{name}.{which}"), &[size], DType::F32, 0.0));
            let product = net.multiply(a?, b?)?;
            let sum = net.op(Op::Sum { x: product, axes: Some(vec![0]), keepdims: true })?;
            net.op(Op::Exp { x: sum })
        };
        let (first, second) = (grown(["lambda_q1", "lambda_k1"])?, grown(["lambda_q2", "lambda_k2"])?);
        let factor = net.op(Op::Subtract { a: first, b: second })?;
        let start = net.scalar(pairs.start, DType::F32);
        let factor = net.add(factor, start)?;
        net.cast(factor, dtype)
    })?;
    let (axis, step, half) = (literal(1), 1, of.heads / 2);
    let first = net.op(Op::Slice { x: attended, axis, start: literal(0), stop: literal(half), step })?;
    let second =
        net.op(Op::Slice { x: attended, axis, start: literal(half), stop: literal(of.heads), step })?;
    let second = net.multiply(second, factor)?;
    let apart = net.op(Op::Subtract { a: first, b: second })?;
    let apart = unweighted_norm(net, apart, pairs.eps)?;
    net.scaled(apart, 1.0 - pairs.start)
}
