//! Norms of models whose text is behind the sound that it hears (Voxtral Realtime): their networks are told by how much, by a weight
//! that two small matrices make of it. How much is known when the program is made, so that the weight is made once, at load.

use pteron_ir::{Op, TensorType, ValueId};
use pteron_tensor::DType;

use super::Decoder;
use crate::blocks::Activation;
use crate::net::literal;
use crate::{ModelError, Net};

/// Features between the two matrices.
const INNER: usize = 32;
/// The base of the angles that tell the delay.
const THETA: f64 = 10_000.0;

/// An RMS norm whose weight is multiplied by what a delay makes of it.
pub(super) fn norm(
    of: &Decoder,
    net: &mut Net,
    x: ValueId,
    prefix: &str,
    name: &str,
    delay: usize,
) -> Result<ValueId, ModelError> {
    let (width, dtype) = (of.hidden_size, net.activations());
    let ty = TensorType::known(dtype, &[width]);
    let weight = net.at_load(&format!("{prefix}.{name}.delayed"), ty, |net| {
        let own = net.floats(&format!("{prefix}.{name}.weight"), &[width], DType::F32, 0.0)?;
        let factors = factors(net, &format!("{prefix}.ada_rms_norm"), width, delay)?;
        let weight = net.multiply(own, factors)?;
        net.cast(weight, dtype)
    })?;
    let normed = net.op(Op::RMSNorm { x, weight: Some(weight), eps: of.eps })?;
    net.cast(normed, dtype)
}

/// What each feature is multiplied by: near 1.
fn factors(net: &mut Net, name: &str, width: usize, delay: usize) -> Result<ValueId, ModelError> {
    let told = net.vector(&format!("delay.{delay}.{width}"), &angles(width, delay));
    let told = net.op(Op::Reshape { x: told, shape: vec![literal(1), literal(width)] })?;
    let inner = product(net, told, &format!("{name}.linear1.weight"), [INNER, width])?;
    let inner = Activation::Gelu.apply(net, inner)?;
    let more = product(net, inner, &format!("{name}.linear2.weight"), [width, INNER])?;
    let more = net.op(Op::Reshape { x: more, shape: vec![literal(width)] })?;
    let one = net.scalar(1.0, DType::F32);
    net.add(more, one)
}

fn product(net: &mut Net, mat1: ValueId, name: &str, shape: [usize; 2]) -> Result<ValueId, ModelError> {
    let weight = net.floats(name, &shape, DType::F32, 0.0)?;
    let mat2 = net.op(Op::Transpose { x: weight, perm: vec![1, 0] })?;
    net.op(Op::Addmm { mat1, mat2, bias: None, alpha: 1.0, beta: 1.0 })
}

/// The delay as cosines and sines of angles that grow ever slower with it.
fn angles(width: usize, delay: usize) -> Vec<f32> {
    let half = width / 2;
    let angle = |at: usize| delay as f64 * THETA.powf(-(at as f64) / half as f64);
    let cosines = (0..half).map(|at| angle(at).cos() as f32);
    cosines.chain((0..half).map(|at| angle(at).sin() as f32)).collect()
}
