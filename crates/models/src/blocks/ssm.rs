//! State spaces as Mamba 2 has them: heads of features that share one decay, whose states fade and take up what comes. The tokens
//! of a call are computed at once, as attention whose scores fade with distance, beside what the state holds of earlier calls;
//! products of matrices do nearly all of it, and a single token is the same with sizes of one.

use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::conv::{CausalConv, features};
use super::{Activation, projected, unweighted_norm};
use crate::net::{literal, value};
use crate::{ModelError, Net};

/// What a layer's state space is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ssm {
    /// Heads.
    pub heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Groups of heads that are written and read by the same vectors.
    pub groups: usize,
    /// Features of those vectors.
    pub state: usize,
    /// Tokens that the convolution before sees.
    pub taps: usize,
    /// Whether the convolution has a bias.
    pub conv_bias: bool,
    /// What follows it.
    pub activation: Activation,
    /// Whether the first projection has a bias, and whether the last has one.
    pub biases: (bool, bool),
    /// The norm of what comes out, where there is one.
    pub norm: Option<GatedNorm>,
    /// The least step of time.
    pub least_step: f32,
    /// What the input is multiplied by.
    pub factor: f32,
    /// What parts of the first projection are multiplied by: gate, features, vectors that write, vectors that read, steps.
    pub factors: [f32; 5],
}

/// A norm beside a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatedNorm {
    /// Added to the mean square.
    pub eps: f32,
    /// Parts that are normed by themselves.
    pub groups: usize,
    /// Whether the gate comes behind it.
    pub before_gate: bool,
}

impl Ssm {
    /// Features of all heads.
    pub fn inner(&self) -> usize {
        self.heads * self.head_dim
    }

    /// What the convolution goes over: features, vectors that write, vectors that read.
    fn convolved(&self) -> usize {
        self.inner() + 2 * self.groups * self.state
    }
}

/// What the layer adds to `x`.
pub fn state_space(
    net: &mut Net,
    x: ValueId,
    name: &str,
    hidden: usize,
    of: &Ssm,
) -> Result<ValueId, ModelError> {
    net.enter(name);
    let (inner, convolved) = (of.inner(), of.convolved());
    let x = net.scaled(x, of.factor)?;
    let rows = inner + convolved + of.heads;
    let projected_all = projected(net, x, &format!("{name}.in_proj"), rows, hidden, of.biases.0)?;
    let [of_gate, of_features, of_writes, of_reads, of_steps] = of.factors;
    let gate = features(net, projected_all, 0, inner)?;
    let gate = net.scaled(gate, of_gate)?;
    let mut mixed = features(net, projected_all, inner, inner + convolved)?;
    let vectors = of.groups * of.state;
    if [of_features, of_writes, of_reads] != [1.0; 3] {
        let each = [(of_features, inner), (of_writes, vectors), (of_reads, vectors)];
        let factors: Vec<f32> = each.iter().flat_map(|&(factor, count)| vec![factor; count]).collect();
        let factors = net.vector(&format!("{name}.factors"), &factors);
        let dtype = net.activations();
        let factors = net.cast(factors, dtype)?;
        mixed = net.multiply(mixed, factors)?;
    }
    let steps = features(net, projected_all, inner + convolved, rows)?;
    let steps = net.scaled(steps, of_steps)?;

    let conv = CausalConv { features: convolved, taps: of.taps, bias: of.conv_bias };
    let mixed = conv.apply(net, mixed, &format!("{name}.conv1d"))?;
    let mixed = of.activation.apply(net, mixed)?;
    let mixed = net.cast(mixed, DType::F32)?;
    let x = features(net, mixed, 0, inner)?;
    let writes = features(net, mixed, inner, inner + vectors)?;
    let reads = features(net, mixed, inner + vectors, convolved)?;
    let mut steps = positive_steps(net, steps, &format!("{name}.dt_bias"), of.heads)?;
    if of.least_step > 0.0 {
        let least = net.scalar(of.least_step, DType::F32);
        steps = net.op(Op::Maximum { a: steps, b: least })?;
    }
    let y = scan(net, name, of, (x, steps, writes, reads))?;
    let y = gated(net, y, gate, name, inner, of.norm)?;
    let dtype = net.activations();
    let y = net.cast(y, dtype)?;
    projected(net, y, &format!("{name}.out_proj"), hidden, inner, of.biases.1)
}

/// Steps of time: `softplus(x + bias)`, in f32.
pub(super) fn positive_steps(
    net: &mut Net,
    x: ValueId,
    bias: &str,
    size: usize,
) -> Result<ValueId, ModelError> {
    let x = net.cast(x, DType::F32)?;
    let bias = net.floats(bias, &[size], DType::F32, 0.0)?;
    let x = net.add(x, bias)?;
    let zero = net.scalar(0.0, DType::F32);
    net.op(Op::LogAddExp { a: x, b: zero })
}

/// What fades in a step of time 1: minus the exponential of what is stored.
pub(super) fn fading(net: &mut Net, logarithms: ValueId) -> Result<ValueId, ModelError> {
    let rates = net.op(Op::Exp { x: logarithms })?;
    net.op(Op::Neg { x: rates })
}

/// All tokens of the call: features `[1, T, inner]`, steps `[1, T, heads]`, vectors `[1, T, groups * state]`, all in f32. With
/// `f[t]` the sum of what fades up to token `t`,
/// `y[t] = exp(f[t]) * read[t] . S + sum over s <= t of exp(f[t] - f[s]) * (read[t] . write[s]) * step[s] * x[s] + D * x[t]`.
fn scan(
    net: &mut Net,
    name: &str,
    of: &Ssm,
    (x, steps, writes, reads): (ValueId, ValueId, ValueId, ValueId),
) -> Result<ValueId, ModelError> {
    let Ssm { heads, head_dim, groups, state, .. } = *of;
    let (inner, shared) = (of.inner(), heads / groups);
    let tokens = value(net.length());
    let logarithms = net.floats(&format!("{name}.A_log"), &[heads], DType::F32, 0.0)?;
    let rates = fading(net, logarithms)?;
    let faded = net.multiply(steps, rates)?;
    let faded = net.op(Op::Transpose { x: faded, perm: vec![0, 2, 1] })?;
    let faded = net.op(Op::Cumsum { x: faded, axis: 2, reverse: false, inclusive: true })?;

    let by_head = net.split_tokens(x, &[heads, head_dim])?;
    let step = net.op(Op::ExpandDims { x: steps, axis: 3 })?;
    let taken = net.multiply(by_head, step)?;

    // Among the tokens of the call.
    let writes = net.split_tokens(writes, &[groups, state])?;
    let writes = net.swap_heads(writes)?;
    let reads = net.split_tokens(reads, &[groups, state])?;
    let reads = net.swap_heads(reads)?;
    let across = net.op(Op::Transpose { x: writes, perm: vec![0, 1, 3, 2] })?;
    let scores = times(net, reads, across)?;
    let scores =
        net.op(Op::Reshape { x: scores, shape: vec![literal(groups), literal(1), tokens, tokens] })?;
    let fades = fades(net, faded)?;
    let shape = vec![literal(groups), literal(shared), tokens, tokens];
    let fades = net.op(Op::Reshape { x: fades, shape })?;
    let scores = net.multiply(fades, scores)?;
    let shape = vec![literal(1), literal(heads), tokens, tokens];
    let scores = net.op(Op::Reshape { x: scores, shape })?;
    let taken_by_head = net.swap_heads(taken)?;
    let y = times(net, scores, taken_by_head)?;
    let y = net.swap_heads(y)?;

    // What the state holds of earlier calls; all heads of a group stand side by side in it.
    let width = shared * head_dim;
    let (before, buffer) = net.state(&format!("{name}.state"), DType::F32, &[1, groups, state, width])?;
    let held = times(net, reads, before)?;
    let held = net.swap_heads(held)?;
    let held = net.split_tokens(held, &[heads, head_dim])?;
    let left = net.op(Op::Exp { x: faded })?;
    let by_token = net.op(Op::Transpose { x: left, perm: vec![0, 2, 1] })?;
    let by_token = net.op(Op::ExpandDims { x: by_token, axis: 3 })?;
    let held = net.multiply(held, by_token)?;
    let y = net.add(y, held)?;
    let skip = net.floats(&format!("{name}.D"), &[heads], DType::F32, 0.0)?;
    let skip = net.op(Op::ExpandDims { x: skip, axis: 1 })?;
    let passed = net.multiply(by_head, skip)?;
    let y = net.add(y, passed)?;

    // What it holds for the next one.
    let last = net.pick(faded, -1, 2)?;
    let last = net.op(Op::ExpandDims { x: last, axis: 2 })?;
    let to_the_end = net.op(Op::Subtract { a: last, b: faded })?;
    let to_the_end = net.op(Op::Exp { x: to_the_end })?;
    let to_the_end = net.op(Op::Transpose { x: to_the_end, perm: vec![0, 2, 1] })?;
    let to_the_end = net.op(Op::ExpandDims { x: to_the_end, axis: 3 })?;
    let kept = net.multiply(taken, to_the_end)?;
    let kept = net.split_tokens(kept, &[groups, width])?;
    let kept = net.swap_heads(kept)?;
    let new = times(net, across, kept)?;
    let left = net.op(Op::Exp { x: last })?;
    let left = net.op(Op::Reshape { x: left, shape: [1, groups, 1, shared, 1].map(literal).to_vec() })?;
    let by_head = [1, groups, state, shared, head_dim].map(literal).to_vec();
    let old = net.op(Op::Reshape { x: before, shape: by_head })?;
    let old = net.multiply(old, left)?;
    let old = net.op(Op::Reshape { x: old, shape: [1, groups, state, width].map(literal).to_vec() })?;
    let after = net.add(old, new)?;
    net.update(buffer, after);
    net.op(Op::Reshape { x: y, shape: vec![literal(1), tokens, literal(inner)] })
}

/// `[1, heads, T, T]`: what is left at token `t` of what came at token `s`, nothing where that is later.
fn fades(net: &mut Net, faded: ValueId) -> Result<ValueId, ModelError> {
    let to = net.op(Op::ExpandDims { x: faded, axis: 3 })?;
    let from = net.op(Op::ExpandDims { x: faded, axis: 2 })?;
    let between = net.op(Op::Subtract { a: to, b: from })?;
    let is_past = net.once("tokens that are past", |net| {
        let tokens = value(net.length());
        net.op(Op::Tri { n: tokens, m: tokens, k: 0, scalar_type: DType::Bool })
    })?;
    // Before the exponential, which has no bound above the diagonal.
    let nothing = net.scalar(f32::NEG_INFINITY, DType::F32);
    let between = net.op(Op::Where { condition: is_past, x: between, y: nothing })?;
    net.op(Op::Exp { x: between })
}

/// The gate and the norm of what comes out, in f32.
fn gated(
    net: &mut Net,
    y: ValueId,
    gate: ValueId,
    name: &str,
    inner: usize,
    norm: Option<GatedNorm>,
) -> Result<ValueId, ModelError> {
    let gate = net.cast(gate, DType::F32)?;
    let gate = net.op(Op::Silu { x: gate })?;
    let Some(GatedNorm { eps, groups, before_gate }) = norm else { return net.multiply(y, gate) };
    let y = if before_gate { y } else { net.multiply(y, gate)? };
    let by_group = net.split_tokens(y, &[groups, inner / groups])?;
    let normed = unweighted_norm(net, by_group, eps)?;
    let normed = net.split_tokens(normed, &[inner])?;
    let weight = net.floats(&format!("{name}.norm.weight"), &[inner], DType::F32, 0.0)?;
    let y = net.multiply(normed, weight)?;
    if before_gate { net.multiply(y, gate) } else { Ok(y) }
}

/// A product of matrices.
fn times(net: &mut Net, mat1: ValueId, mat2: ValueId) -> Result<ValueId, ModelError> {
    net.op(Op::Addmm { mat1, mat2, bias: None, alpha: 1.0, beta: 1.0 })
}
