//! Families that keep states of all tokens so far, by what makes them differ from ones that only attend.

use super::near::{GEMMA, GRANITE};
use crate::architectures::decoder::row::*;
use crate::architectures::decoder::{hybrid, layouts};
use crate::blocks::{Activation, NormKind};
use crate::config::RopeKeys;

/// Positions of a text for models that have none: a bound for runners.
const UNBOUNDED: usize = 1 << 20;

pub(super) const LFM2: Row = Row {
    names: &["lfm2", "Lfm2ForCausalLM"],
    sizes: Sizes {
        vocab: 65_536,
        hidden: 2560,
        inner: Some(12_288),
        kv_heads: Some(8),
        head_dim: HeadDim::Shared,
        context: 128_000,
        ..LLAMA.sizes
    },
    layout: &layouts::LFM2,
    eps: ("norm_eps", 1e-5),
    qkv_bias: NEVER,
    out_bias: NEVER,
    head_norms: BY_HEAD,
    rope: RopeRow::usual(1_000_000.0),
    mlp_bias: NEVER,
    tied: true,
    finish: hybrid::lfm2,
    ..LLAMA
};

pub(super) const LFM2_MOE: Row = Row {
    names: &["lfm2_moe", "Lfm2MoeForCausalLM"],
    sizes: Sizes { hidden: 2048, inner: Some(7168), ..LFM2.sizes },
    layout: &layouts::LFM2_MOE,
    finish: hybrid::lfm2_moe,
    ..LFM2
};

/// Models without attention have sizes of heads under other keys, and no positions.
const NO_HEADS: Keys = Keys { heads: &[""], kv_heads: &[""], inner: &[""], context: &[""], ..KEYS };

pub(super) const MAMBA2: Row = Row {
    names: &["mamba2", "Mamba2ForCausalLM"],
    sizes: Sizes {
        vocab: 32_768,
        layers: 64,
        heads: 1,
        head_dim: HeadDim::Shared,
        context: UNBOUNDED,
        ..LLAMA.sizes
    },
    keys: &NO_HEADS,
    layout: &layouts::MAMBA,
    eps: ("layer_norm_epsilon", 1e-5),
    rope: RopeRow::None,
    mlp_bias: NEVER,
    ends: (Some(0), Some(2)),
    wide_sums: true,
    finish: hybrid::mamba2,
    ..LLAMA
};

pub(super) const MAMBA: Row = Row {
    names: &["mamba", "MambaForCausalLM"],
    sizes: Sizes { vocab: 50_280, hidden: 768, layers: 32, ..MAMBA2.sizes },
    tied: true,
    ends: (Some(0), Some(0)),
    finish: hybrid::mamba,
    ..MAMBA2
};

pub(super) const FALCON_MAMBA: Row =
    Row { names: &["falcon_mamba", "FalconMambaForCausalLM"], finish: hybrid::falcon_mamba, ..MAMBA };

pub(super) const JAMBA: Row = Row {
    names: &["jamba", "JambaForCausalLM"],
    sizes: Sizes {
        vocab: 65_536,
        inner: Some(14_336),
        kv_heads: Some(8),
        head_dim: HeadDim::Shared,
        context: 262_144,
        ..LLAMA.sizes
    },
    layout: &layouts::JAMBA,
    norms: crate::architectures::decoder::LayerNorms { before_feed: Some("pre_ff_layernorm"), ..TWO_NORMS },
    qkv_bias: NEVER,
    out_bias: NEVER,
    rope: RopeRow::None,
    mlp_bias: NEVER,
    finish: hybrid::jamba,
    ..LLAMA
};

pub(super) const GRANITE_HYBRID: Row = Row {
    names: &["granitemoehybrid", "GraniteMoeHybridForCausalLM"],
    layout: &layouts::GRANITE_HYBRID,
    mlp_bias: NEVER,
    finish: hybrid::granite_hybrid,
    ..GRANITE
};

pub(super) const BAMBA: Row = Row {
    names: &["bamba", "BambaForCausalLM"],
    sizes: Sizes { vocab: 128_000, ..JAMBA.sizes },
    layout: &layouts::BAMBA,
    eps: ("rms_norm_eps", 1e-5),
    qkv_bias: LLAMA.qkv_bias,
    out_bias: LLAMA.out_bias,
    mlp_bias: LLAMA.mlp_bias,
    // Half of each head, whatever the file says.
    rope: RopeRow::partial("", 0.5, false),
    finish: hybrid::bamba,
    ..JAMBA
};

pub(super) const FALCON_H1: Row = Row {
    names: &["falcon_h1", "FalconH1ForCausalLM"],
    sizes: Sizes { context: 8192, head_dim: HeadDim::Said, ..BAMBA.sizes },
    rope: LLAMA.rope,
    embedding: Factor::Key("embedding_multiplier", 1.0),
    logits: Factor::Key("lm_head_multiplier", 1.0),
    finish: hybrid::falcon_h1,
    ..BAMBA
};

pub(super) const NEMOTRON_H: Row = Row {
    names: &["nemotron_h", "NemotronHForCausalLM"],
    sizes: Sizes {
        vocab: 131_072,
        inner: Some(21_504),
        layers: 4,
        kv_heads: Some(8),
        head_dim: HeadDim::Usual(128),
        context: 4096,
        ..LLAMA.sizes
    },
    layout: &layouts::NEMOTRON_H,
    eps: ("layer_norm_epsilon", 1e-5),
    rope: RopeRow::None,
    activation: ("mlp_hidden_act", Activation::SquaredRelu),
    gated: false,
    finish: hybrid::nemotron_h,
    ..LLAMA
};

pub(super) const QWEN3_NEXT: Row = Row {
    names: &["qwen3_next", "Qwen3NextForCausalLM"],
    sizes: Sizes {
        vocab: 151_936,
        hidden: 2048,
        inner: Some(5632),
        layers: 48,
        heads: 16,
        kv_heads: Some(2),
        head_dim: HeadDim::Usual(256),
        context: 32_768,
    },
    layout: &layouts::QWEN3_NEXT,
    norm: NormKind::RmsAroundOne,
    head_norms: Some(HeadNormRow { kind: NormKind::RmsAroundOne, ..HEAD_NORMS }),
    rope: RopeRow::partial("partial_rotary_factor", 0.25, false),
    mlp_bias: NEVER,
    ends: (None, None),
    finish: hybrid::qwen3_next,
    ..LLAMA
};

pub(super) const QWEN3_5: Row = Row {
    names: &["qwen3_5_text", "qwen3_5", "Qwen3_5ForCausalLM"],
    sizes: Sizes {
        vocab: 248_320,
        hidden: 4096,
        inner: Some(12_288),
        layers: 32,
        kv_heads: Some(4),
        ..QWEN3_NEXT.sizes
    },
    layout: &layouts::QWEN3_5,
    finish: hybrid::qwen3_5,
    ..QWEN3_NEXT
};

pub(super) const QWEN3_5_MOE: Row = Row {
    names: &["qwen3_5_moe_text", "qwen3_5_moe", "Qwen3_5MoeForCausalLM"],
    sizes: Sizes { hidden: 2048, layers: 40, kv_heads: Some(2), ..QWEN3_5.sizes },
    finish: hybrid::qwen3_5_moe,
    ..QWEN3_5
};

pub(super) const RECURRENT_GEMMA: Row = Row {
    names: &["recurrent_gemma", "RecurrentGemmaForCausalLM"],
    sizes: Sizes {
        hidden: 2560,
        inner: Some(7680),
        layers: 26,
        heads: 10,
        kv_heads: None,
        head_dim: HeadDim::Said,
        context: 8192,
        ..GEMMA.sizes
    },
    layout: &layouts::RECURRENT_GEMMA,
    out_bias: ALWAYS,
    rope: RopeRow::One {
        keys: RopeKeys { partial: Some(("partial_rotary_factor", 0.5)), ..RopeKeys::usual(10_000.0) },
        interleaved: false,
        backwards: false,
    },
    activation: ("hidden_activation", Activation::GeluTanh),
    refused: &[],
    finish: hybrid::recurrent_gemma,
    ..GEMMA
};
