//! The gated delta rule (Qwen 3.5, Qwen3-Next): each head keeps a matrix from keys to values, which fades, and in which each token
//! replaces a part of what its key finds by its own value. One op goes through the tokens of a call.

use pteron_ir::op::{FloatArg, IntArg};
use pteron_ir::{Op, Ssa, ValueId};
use pteron_tensor::DType;

use super::conv::{CausalConv, features};
use super::experts::deciding;
use super::ssm::{fading, positive_steps};
use super::{Activation, projected, unweighted_norm};
use crate::net::{literal, value};
use crate::{ModelError, Net};

/// What a layer's delta rule is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delta {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values.
    pub value_heads: usize,
    /// Features of a query or key, a multiple of 32.
    pub key_dim: usize,
    /// Features of a value.
    pub value_dim: usize,
    /// Tokens that the convolution before sees.
    pub taps: usize,
    /// What the convolution's results go through.
    pub activation: Activation,
    /// What the norm of what comes out adds to the mean square.
    pub eps: f32,
}

/// What is added to the squares of queries and keys before they are divided by their root.
const SMALL: f32 = 1e-6;

/// What the layer adds to `x`.
pub fn delta_rule(
    net: &mut Net,
    x: ValueId,
    name: &str,
    hidden: usize,
    of: &Delta,
) -> Result<ValueId, ModelError> {
    net.enter(name);
    let Delta { key_heads, value_heads, key_dim, value_dim, .. } = *of;
    let (keys, values) = (key_heads * key_dim, value_heads * value_dim);
    let mut project = |which: &str, rows| projected(net, x, &format!("{name}.{which}"), rows, hidden, false);
    let all = vec![project("q_proj", keys)?, project("k_proj", keys)?, project("v_proj", values)?];
    let gate = project("z_proj", values)?;
    let rates = deciding(net, x, &format!("{name}.b_proj"), value_heads, hidden, false)?;
    let steps = deciding(net, x, &format!("{name}.a_proj"), value_heads, hidden, false)?;
    let mixed = net.op(Op::Concatenate { tensors: all, axis: 2 })?;
    let conv = CausalConv { features: 2 * keys + values, taps: of.taps, bias: false };
    let mixed = conv.apply(net, mixed, &format!("{name}.conv1d"))?;
    let mixed = of.activation.apply(net, mixed)?;
    let mixed = net.cast(mixed, DType::F32)?;

    let queries = features(net, mixed, 0, keys)?;
    // Of length one, and by the root of their features as in other attention.
    let queries = of.direction(net, queries, (key_dim as f32).recip())?;
    let found_by = features(net, mixed, keys, 2 * keys)?;
    let found_by = of.direction(net, found_by, (key_dim as f32).powf(-0.5))?;
    let replaced_by = features(net, mixed, 2 * keys, 2 * keys + values)?;
    let replaced_by = net.split_tokens(replaced_by, &[value_heads, value_dim])?;
    let rates = net.op(Op::Sigmoid { x: rates })?;
    let steps = positive_steps(net, steps, &format!("{name}.dt_bias"), value_heads)?;
    let logarithms = net.floats(&format!("{name}.A_log"), &[value_heads], DType::F32, 0.0)?;
    let fades = fading(net, logarithms)?;
    let left = net.multiply(steps, fades)?;
    let left = net.op(Op::Exp { x: left })?;

    let shape = [1, value_heads, value_dim, key_dim];
    let (before, buffer) = net.state(&format!("{name}.state"), DType::F32, &shape)?;
    let step = of.step(net, [queries, found_by, replaced_by, left, rates, before])?;
    let [y, after] = net.pair(step)?;
    net.update(buffer, after);

    let y = unweighted_norm(net, y, of.eps)?;
    let weight = net.floats(&format!("{name}.norm.weight"), &[value_dim], DType::F32, 0.0)?;
    let y = net.multiply(y, weight)?;
    let gate = net.split_tokens(gate, &[value_heads, value_dim])?;
    let gate = net.cast(gate, DType::F32)?;
    let gate = net.op(Op::Silu { x: gate })?;
    let y = net.multiply(y, gate)?;
    let dtype = net.activations();
    let y = net.cast(y, dtype)?;
    let y = net.split_tokens(y, &[values])?;
    projected(net, y, &format!("{name}.out_proj"), hidden, values, false)
}

impl Delta {
    /// Queries or keys by head, each of that length times the root of its features.
    fn direction(&self, net: &mut Net, x: ValueId, length: f32) -> Result<ValueId, ModelError> {
        let x = net.split_tokens(x, &[self.key_heads, self.key_dim])?;
        // The mean of squares is their sum by the number of features.
        let x = unweighted_norm(net, x, SMALL / self.key_dim as f32)?;
        net.scaled(x, length)
    }

    /// The op that goes through the tokens: queries, keys, values, what is left of the state, rates, the state, all in f32.
    fn step(&self, net: &mut Net, inputs: [ValueId; 6]) -> Result<Op<Ssa>, ModelError> {
        let v = FloatArg::Value(net.length());
        let count = net.op(Op::Full { shape: Vec::new(), v, scalar_type: DType::I32 })?;
        let dims = DeltaDims {
            batch: literal(1),
            tokens: value(net.length()),
            states: literal(self.value_heads),
            key_heads: self.key_heads,
            value_heads: self.value_heads,
            key_dim: self.key_dim,
            value_dim: self.value_dim,
        };
        dims.op(inputs, count, DType::F32)
            .ok_or_else(|| ModelError::configuration("a delta rule of more than 32 bits"))
    }
}

/// Sizes of the op `gated_delta_step`.
#[derive(Clone, Debug)]
pub struct DeltaDims {
    /// Texts.
    pub batch: IntArg<ValueId>,
    /// Tokens of each.
    pub tokens: IntArg<ValueId>,
    /// Heads of values of all texts.
    pub states: IntArg<ValueId>,
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values.
    pub value_heads: usize,
    /// Features of a query or key, a multiple of 32.
    pub key_dim: usize,
    /// Features of a value.
    pub value_dim: usize,
}

impl DeltaDims {
    /// The op, of queries and keys `[B, T, key heads, key features]`, values `[B, T, value heads, value features]`, what is left of the
    /// state and rates `[B, T, value heads]`, the state `[B, value heads, value features, key features]`, and the number of tokens as
    /// a tensor: what comes out, in the shape of values, and the next state. `None` for sizes beyond 32 bits.
    pub fn op(&self, inputs: [ValueId; 6], count: ValueId, dtype: DType) -> Option<Op<Ssa>> {
        let texts = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        let small = |size: usize| i32::try_from(size).ok();
        let (batch, tokens) = (self.batch, self.tokens);
        let [dk, dv, hv] = [self.key_dim, self.value_dim, self.value_heads].map(literal);
        Some(Op::MetalKernel {
            name: "gated_delta_step".into(),
            source: GATED_DELTA_STEP.into(),
            inputs: inputs.into_iter().chain([count]).collect(),
            grid: vec![literal(32), dv, self.states],
            threadgroup: [32, 4, 1].map(literal).to_vec(),
            header: None,
            input_names: texts(&["q", "k", "v", "g", "beta", "state_in", "T"]),
            output_names: texts(&["y", "state_out"]),
            ensure_row_contiguous: true,
            atomic_outputs: false,
            output_shapes_flat: Some(vec![batch, tokens, hv, dv, batch, hv, dv, dk]),
            output_shape_lengths: Some(vec![4, 4]),
            output_dtypes: Some(vec![dtype, dtype]),
            template_arg_names: texts(&["InT", "Dk", "Dv", "Hk", "Hv"]),
            template_arg_kinds: Some(vec![2, 0, 0, 0, 0]),
            template_arg_values: Some(vec![
                i32::from(dtype.code()),
                small(self.key_dim)?,
                small(self.value_dim)?,
                small(self.key_heads)?,
                small(self.value_heads)?,
            ]),
            init_value: None,
        })
    }
}

/// What MLX compiles for the kernel `gated_delta_step`. One group of 32 threads owns a row of a head's state and
/// walks through time; each thread holds every 32nd feature of the key.
const GATED_DELTA_STEP: &str = "
    const uint head = thread_position_in_grid.z;
    const uint row = thread_position_in_grid.y;
    const uint lane = thread_position_in_threadgroup.x;
    const uint batch = head / Hv;
    const uint value_head = head % Hv;
    const uint key_head = value_head * Hk / Hv;
    const uint steps = uint(T);
    const uint state_at = (head * Dv + row) * Dk;
    float own[Dk / 32];
    for (uint part = 0; part < Dk / 32; part++) {
        own[part] = float(state_in[state_at + part * 32 + lane]);
    }
    for (uint step = 0; step < steps; step++) {
        const uint now = batch * steps + step;
        const uint key_at = (now * Hk + key_head) * Dk;
        const uint gate_at = now * Hv + value_head;
        const float fade = float(g[gate_at]);
        float met = 0.0f;
        for (uint part = 0; part < Dk / 32; part++) {
            own[part] *= fade;
            met += own[part] * float(k[key_at + part * 32 + lane]);
        }
        met = simd_sum(met);
        const float change = (float(v[gate_at * Dv + row]) - met) * float(beta[gate_at]);
        float seen = 0.0f;
        for (uint part = 0; part < Dk / 32; part++) {
            own[part] += change * float(k[key_at + part * 32 + lane]);
            seen += own[part] * float(q[key_at + part * 32 + lane]);
        }
        seen = simd_sum(seen);
        if (lane == 0) {
            y[gate_at * Dv + row] = InT(seen);
        }
    }
    for (uint part = 0; part < Dk / 32; part++) {
        state_out[state_at + part * 32 + lane] = InT(own[part]);
    }
";
