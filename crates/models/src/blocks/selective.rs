//! State spaces as Mamba has them first: each feature has states of its own, which fade at rates of their own, so that tokens are
//! gone through one by one.

use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::conv::{CausalConv, features};
use super::experts::deciding;
use super::ssm::{fading, positive_steps};
use super::{Activation, Norm, NormKind, projected, unweighted_norm};
use crate::{ModelError, Net};

/// What a layer's selective state space is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Selective {
    /// Features.
    pub inner: usize,
    /// States of each.
    pub state: usize,
    /// Features that steps of time pass through.
    pub rank: usize,
    /// Tokens that the convolution before sees.
    pub taps: usize,
    /// Whether the convolution has a bias.
    pub conv_bias: bool,
    /// What follows it.
    pub activation: Activation,
    /// Whether the first and the last projection have biases.
    pub biases: bool,
    /// Norms of steps and vectors, where there are any.
    pub norms: Option<SelectiveNorms>,
}

/// Norms of steps, and of the vectors that write and read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectiveNorms {
    /// Added to the mean square.
    pub eps: f32,
    /// Whether they have weights.
    pub weighted: bool,
}

/// What the layer adds to `x`.
pub fn selective_scan(
    net: &mut Net,
    x: ValueId,
    name: &str,
    hidden: usize,
    of: &Selective,
) -> Result<ValueId, ModelError> {
    net.enter(name);
    let Selective { inner, state, rank, .. } = *of;
    let both = projected(net, x, &format!("{name}.in_proj"), 2 * inner, hidden, of.biases)?;
    let x = features(net, both, 0, inner)?;
    let gate = features(net, both, inner, 2 * inner)?;
    let conv = CausalConv { features: inner, taps: of.taps, bias: of.conv_bias };
    let x = conv.apply(net, x, &format!("{name}.conv1d"))?;
    let x = of.activation.apply(net, x)?;

    let few = projected(net, x, &format!("{name}.x_proj"), rank + 2 * state, inner, false)?;
    let steps = features(net, few, 0, rank)?;
    let steps = of.normed(net, steps, &format!("{name}.dt_layernorm"), rank)?;
    let writes = features(net, few, rank, rank + state)?;
    let writes = of.normed(net, writes, &format!("{name}.b_layernorm"), state)?;
    let reads = features(net, few, rank + state, rank + 2 * state)?;
    let reads = of.normed(net, reads, &format!("{name}.c_layernorm"), state)?;
    let steps = deciding(net, steps, &format!("{name}.dt_proj"), inner, rank, false)?;
    let steps = positive_steps(net, steps, &format!("{name}.dt_proj.bias"), inner)?;

    let x = net.cast(x, DType::F32)?;
    let taken = net.multiply(steps, x)?;
    let (writes, reads) = (net.cast(writes, DType::F32)?, net.cast(reads, DType::F32)?);
    let y = of.scan(net, name, [steps, taken, writes, reads])?;
    let skip = net.floats(&format!("{name}.D"), &[inner], DType::F32, 0.0)?;
    let passed = net.multiply(x, skip)?;
    let y = net.add(y, passed)?;
    let gate = net.cast(gate, DType::F32)?;
    let gate = net.op(Op::Silu { x: gate })?;
    let y = net.multiply(y, gate)?;
    let dtype = net.activations();
    let y = net.cast(y, dtype)?;
    projected(net, y, &format!("{name}.out_proj"), hidden, inner, of.biases)
}

impl Selective {
    fn normed(&self, net: &mut Net, x: ValueId, module: &str, size: usize) -> Result<ValueId, ModelError> {
        match self.norms {
            None => Ok(x),
            Some(SelectiveNorms { eps, weighted: false }) => unweighted_norm(net, x, eps),
            Some(SelectiveNorms { eps, weighted: true }) => {
                Norm { name: format!("{module}.weight"), size, eps, kind: NormKind::Rms }.apply(net, x)
            }
        }
    }

    /// Token by token, `S = exp(step * A) * S + write * (step * x)` and `y = read . S`. States of one number lie side by side
    /// for all features, which is how vectors take them.
    fn scan(&self, net: &mut Net, name: &str, originals: [ValueId; 4]) -> Result<ValueId, ModelError> {
        let shape = [1, self.state, self.inner];
        let (before, buffer) = net.state(&format!("{name}.state"), DType::F32, &shape)?;
        let logarithms = net.floats(&format!("{name}.A_log"), &[self.inner, self.state], DType::F32, 0.0)?;
        let logarithms = net.op(Op::Transpose { x: logarithms, perm: vec![1, 0] })?;
        let rates = fading(net, logarithms)?;
        let [y, after] = net.scan(originals.to_vec(), before, |net, slices, state| {
            let &[step, taken, write, read] = slices else {
                return Err(ModelError::configuration("a scan over four tensors"));
            };
            let step = net.op(Op::ExpandDims { x: step, axis: 1 })?;
            let faded = net.multiply(step, rates)?;
            let left = net.op(Op::Exp { x: faded })?;
            let old = net.multiply(state, left)?;
            let taken = net.op(Op::ExpandDims { x: taken, axis: 1 })?;
            let write = net.op(Op::ExpandDims { x: write, axis: 2 })?;
            let new = net.multiply(write, taken)?;
            let state = net.add(old, new)?;
            let read = net.op(Op::ExpandDims { x: read, axis: 2 })?;
            let seen = net.multiply(state, read)?;
            let seen = net.op(Op::Sum { x: seen, axes: Some(vec![1]), keepdims: false })?;
            Ok([seen, state])
        })?;
        net.update(buffer, after);
        Ok(y)
    }
}
