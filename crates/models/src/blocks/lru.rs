//! A gated linear recurrence (the RG-LRU of Griffin and RecurrentGemma): each feature is one number that fades at a rate which the token
//! chooses, beside a gate as wide.

use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::conv::CausalConv;
use super::{Activation, projected};
use crate::net::{literal, value};
use crate::{ModelError, Net};

/// What a layer's recurrence is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lru {
    /// Features.
    pub width: usize,
    /// Parts of them whose gates see each other.
    pub heads: usize,
    /// Tokens that the convolution before sees.
    pub taps: usize,
    /// What the gate beside goes through.
    pub activation: Activation,
}

/// How fast the fastest fades.
const RATE: f32 = -8.0;

/// What the layer adds to `x`.
pub fn linear_recurrence(
    net: &mut Net,
    x: ValueId,
    name: &str,
    hidden: usize,
    of: &Lru,
) -> Result<ValueId, ModelError> {
    net.enter(name);
    let Lru { width, taps, .. } = *of;
    let gate = projected(net, x, &format!("{name}.y_proj"), width, hidden, true)?;
    let gate = of.activation.apply(net, gate)?;
    let x = projected(net, x, &format!("{name}.x_proj"), width, hidden, true)?;
    let conv = CausalConv { features: width, taps, bias: true };
    let x = conv.apply(net, x, &format!("{name}.conv1d"))?;
    let x = net.cast(x, DType::F32)?;

    let module = format!("{name}.rg_lru");
    let taken = of.gate(net, x, &module, "input_gate")?;
    let fading = of.gate(net, x, &module, "recurrent_gate")?;
    let rates = net.floats(&format!("{module}.recurrent_param"), &[width], DType::F32, 0.0)?;
    let zero = net.scalar(0.0, DType::F32);
    let rates = net.op(Op::LogAddExp { a: rates, b: zero })?;
    let rates = net.scaled(rates, RATE)?;
    let faded = net.multiply(fading, rates)?;
    let left = net.op(Op::Exp { x: faded })?;
    let taken = net.multiply(x, taken)?;
    let share = share_of_new(net, faded)?;
    let taken = net.multiply(taken, share)?;

    let (before, buffer) = net.state(&format!("{name}.state"), DType::F32, &[1, width])?;
    let [y, after] = net.scan(vec![left, taken], before, |net, slices, state| {
        let &[left, taken] = slices else {
            return Err(ModelError::configuration("a scan over two tensors"));
        };
        let old = net.multiply(state, left)?;
        let state = net.add(old, taken)?;
        Ok([state, state])
    })?;
    net.update(buffer, after);
    let dtype = net.activations();
    let y = net.cast(y, dtype)?;
    let y = net.multiply(y, gate)?;
    projected(net, y, &format!("{name}.out_proj"), hidden, width, true)
}

/// What new numbers are multiplied by, so that the state keeps its size: `sqrt(1 - left^2)`, and 1 at the beginning of a text.
fn share_of_new(net: &mut Net, faded: ValueId) -> Result<ValueId, ModelError> {
    let twice = net.scaled(faded, 2.0)?;
    let square = net.op(Op::Expm1 { x: twice })?;
    let rest = net.op(Op::Neg { x: square })?;
    let share = net.op(Op::Sqrt { x: rest })?;
    let is_first = net.once("tokens that begin a text", |net| {
        let positions = net.positions()?;
        let zero = net.scalar(0.0, DType::I64);
        let is_first = net.op(Op::Equal { a: positions, b: zero })?;
        net.op(Op::Reshape { x: is_first, shape: vec![literal(1), value(net.length()), literal(1)] })
    })?;
    let one = net.scalar(1.0, DType::F32);
    net.op(Op::Where { condition: is_first, x: one, y: share })
}

impl Lru {
    /// A gate of `[1, T, width]`, each part by a matrix of its own.
    fn gate(&self, net: &mut Net, x: ValueId, module: &str, which: &str) -> Result<ValueId, ModelError> {
        let (heads, size) = (self.heads, self.width / self.heads);
        let weights =
            net.floats(&format!("{module}.{which}_weight"), &[heads, size, size], DType::F32, 0.0)?;
        let biases = net.floats(&format!("{module}.{which}_bias"), &[heads, size], DType::F32, 0.0)?;
        let parts = net.split_tokens(x, &[heads, size])?;
        let parts = net.swap_heads(parts)?;
        let y = net.op(Op::Addmm { mat1: parts, mat2: weights, bias: None, alpha: 1.0, beta: 1.0 })?;
        let y = net.swap_heads(y)?;
        let y = net.add(y, biases)?;
        let y = net.split_tokens(y, &[self.width])?;
        net.op(Op::Sigmoid { x: y })
    }
}
