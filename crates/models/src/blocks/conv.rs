//! Convolutions over the last few tokens, each feature by itself, and layers that are nothing but one between two gates (LFM2). What
//! the next call needs of this one's tokens is state of the session.

use pteron_ir::op::IntArg;
use pteron_ir::{Op, ValueId};

use super::{bias, projected};
use crate::net::{literal, value};
use crate::{ModelError, Net};

/// A slice to the end.
const END: IntArg<ValueId> = IntArg::Literal(i32::MAX as i64);

/// A causal convolution with a kernel for each feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CausalConv {
    /// Features.
    pub features: usize,
    /// Tokens that one result is made of, its own among them.
    pub taps: usize,
    /// Whether it has a bias.
    pub bias: bool,
}

impl CausalConv {
    /// `[1, T, features]` of as much; its weights are called `name.weight` and `name.bias`.
    pub(super) fn apply(&self, net: &mut Net, x: ValueId, name: &str) -> Result<ValueId, ModelError> {
        let CausalConv { features, taps, .. } = *self;
        let dtype = net.activations();
        let (before, past) = net.state(&format!("{name}.state"), dtype, &[1, taps - 1, features])?;
        let all = net.op(Op::Concatenate { tensors: vec![before, x], axis: 1 })?;
        let start = value(net.length());
        let last = net.op(Op::Slice { x: all, axis: literal(1), start, stop: END, step: 1 })?;
        net.update(past, last);
        let stored = [features, taps, 1];
        let w = net.floats_as(&format!("{name}.weight"), &[features, 1, taps], &stored, dtype)?;
        let y =
            net.op(Op::Conv1D { x: all, w, stride: 1, padding: 0, dilation: 1, groups: features as i32 })?;
        match self.bias {
            true => {
                let bias = bias(net, &format!("{name}.bias"), features)?;
                net.add(y, bias)
            }
            false => Ok(y),
        }
    }
}

/// A convolution of a gated part of the projected stream, gated once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortConv {
    /// Tokens that one result is made of.
    pub taps: usize,
    /// Whether the convolution and both projections have biases.
    pub biases: bool,
}

/// What the layer adds to `x`.
pub fn short_conv(
    net: &mut Net,
    x: ValueId,
    name: &str,
    hidden: usize,
    of: &ShortConv,
) -> Result<ValueId, ModelError> {
    net.enter(name);
    let three = projected(net, x, &format!("{name}.in_proj"), 3 * hidden, hidden, of.biases)?;
    let inwards = features(net, three, 0, hidden)?;
    let outwards = features(net, three, hidden, 2 * hidden)?;
    let x = features(net, three, 2 * hidden, 3 * hidden)?;
    let x = net.multiply(inwards, x)?;
    let conv = CausalConv { features: hidden, taps: of.taps, bias: of.biases };
    let x = conv.apply(net, x, &format!("{name}.conv"))?;
    let x = net.multiply(outwards, x)?;
    projected(net, x, &format!("{name}.out_proj"), hidden, hidden, of.biases)
}

/// Some features of `[1, T, features]`.
pub(super) fn features(net: &mut Net, x: ValueId, from: usize, to: usize) -> Result<ValueId, ModelError> {
    net.op(Op::Slice { x, axis: literal(2), start: literal(from), stop: literal(to), step: 1 })
}
