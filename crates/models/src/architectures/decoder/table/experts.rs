//! Families of experts, by what makes them differ from one without.

use super::near::{GRANITE, MISTRAL, OLMO, OLMO2, QWEN2, QWEN3};
use crate::architectures::decoder::row::*;
use crate::architectures::decoder::{layouts, sparse};
use crate::blocks::{NormKind, Span};

pub(super) const MIXTRAL: Row = Row {
    names: &["mixtral", "MixtralForCausalLM"],
    layout: &layouts::MIXTRAL,
    eps: ("rms_norm_eps", 1e-5),
    rope: RopeRow::usual(1_000_000.0),
    windows: Windows::All(None),
    finish: sparse::mixtral,
    ..MISTRAL
};

pub(super) const QWEN2_MOE: Row = Row {
    names: &["qwen2_moe", "Qwen2MoeForCausalLM"],
    sizes: Sizes {
        hidden: 2048,
        inner: Some(5632),
        layers: 24,
        heads: 16,
        kv_heads: Some(16),
        ..QWEN2.sizes
    },
    qkv_bias: Flag::Key("qkv_bias", true),
    windows: Windows::None,
    refused: &["use_sliding_window"],
    finish: sparse::qwen2_moe,
    ..QWEN2
};

pub(super) const QWEN3_MOE: Row = Row {
    names: &["qwen3_moe", "Qwen3MoeForCausalLM"],
    sizes: Sizes {
        inner: Some(6144),
        heads: 32,
        kv_heads: Some(4),
        head_dim: HeadDim::Said,
        ..QWEN2_MOE.sizes
    },
    windows: Windows::None,
    refused: &["use_sliding_window"],
    finish: sparse::qwen3_moe,
    ..QWEN3
};

pub(super) const OLMOE: Row = Row {
    names: &["olmoe", "OlmoeForCausalLM"],
    sizes: Sizes {
        hidden: 2048,
        inner: Some(2048),
        layers: 16,
        heads: 16,
        head_dim: HeadDim::Shared,
        context: 4096,
        ..OLMO.sizes
    },
    norms: TWO_NORMS,
    clip: Some("clip_qkv"),
    finish: sparse::olmoe,
    ..OLMO2
};

pub(super) const PHIMOE: Row = Row {
    names: &["phimoe", "PhimoeForCausalLM"],
    sizes: Sizes { vocab: 32_064, inner: Some(6400), ..MIXTRAL.sizes },
    norm: NormKind::Layer,
    qkv_bias: Flag::Key("attention_bias", false),
    out_bias: Flag::Key("attention_bias", false),
    head_bias: Flag::Key("lm_head_bias", false),
    finish: sparse::phimoe,
    ..MIXTRAL
};

pub(super) const GRANITE_MOE: Row = Row {
    names: &["granitemoe", "GraniteMoeForCausalLM"],
    layout: &layouts::GRANITE_MOE,
    mlp_bias: NEVER,
    finish: sparse::granite_moe,
    ..GRANITE
};

pub(super) const GPT_OSS: Row = Row {
    names: &["gpt_oss", "GptOssForCausalLM"],
    sizes: Sizes {
        vocab: 201_088,
        hidden: 2880,
        inner: Some(2880),
        layers: 36,
        heads: 64,
        kv_heads: Some(8),
        head_dim: HeadDim::Usual(64),
        context: 131_072,
    },
    layout: &layouts::GPT_OSS,
    eps: ("rms_norm_eps", 1e-5),
    qkv_bias: Flag::Key("attention_bias", true),
    out_bias: Flag::Key("attention_bias", true),
    rope: RopeRow::usual(150_000.0),
    windows: Windows::Types(128, None, 2),
    mlp_bias: NEVER,
    ends: (None, None),
    finish: sparse::gpt_oss,
    ..LLAMA
};

pub(super) const DEEPSEEK_V2: Row = Row {
    names: &["deepseek_v2", "DeepseekV2ForCausalLM"],
    sizes: Sizes { vocab: 102_400, head_dim: HeadDim::Shared, ..LLAMA.sizes },
    layout: &layouts::DEEPSEEK,
    rope: RopeRow::None,
    finish: sparse::deepseek_v2,
    ..LLAMA
};

pub(super) const DEEPSEEK_V3: Row = Row {
    names: &["deepseek_v3", "DeepseekV3ForCausalLM"],
    sizes: Sizes {
        vocab: 129_280,
        hidden: 7168,
        inner: Some(18_432),
        layers: 61,
        heads: 128,
        kv_heads: Some(128),
        head_dim: HeadDim::Shared,
        context: 4096,
    },
    mlp_bias: NEVER,
    ends: (Some(0), Some(1)),
    finish: sparse::deepseek_v3,
    ..DEEPSEEK_V2
};

pub(super) const GLM4_MOE: Row = Row {
    names: &["glm4_moe", "Glm4MoeForCausalLM"],
    sizes: Sizes {
        vocab: 151_552,
        hidden: 4096,
        inner: Some(10_944),
        layers: 46,
        heads: 96,
        kv_heads: Some(8),
        head_dim: HeadDim::Said,
        context: 131_072,
    },
    layout: &layouts::DEEPSEEK,
    eps: ("rms_norm_eps", 1e-5),
    out_bias: NEVER,
    head_norms: Some(HeadNormRow {
        when: Flag::Key("use_qk_norm", false),
        kind: NormKind::Rms,
        span: Span::Head,
        after_rope: false,
    }),
    rope: RopeRow::partial("partial_rotary_factor", 0.5, false),
    mlp_bias: NEVER,
    ends: (None, None),
    finish: sparse::glm4_moe,
    ..LLAMA
};

pub(super) const LLAMA4: Row = Row {
    names: &["llama4_text", "llama4", "Llama4ForCausalLM"],
    sizes: Sizes {
        vocab: 202_048,
        hidden: 5120,
        inner: Some(8192),
        layers: 48,
        heads: 40,
        kv_heads: Some(8),
        head_dim: HeadDim::Usual(128),
        context: 131_072,
    },
    layout: &layouts::LLAMA4,
    eps: ("rms_norm_eps", 1e-5),
    head_norms: Some(HeadNormRow {
        when: Flag::Key("use_qk_norm", true),
        kind: NormKind::RmsBare,
        span: Span::Head,
        after_rope: true,
    }),
    rope: RopeRow::interleaved(500_000.0),
    still: Still::Listed,
    mlp_bias: NEVER,
    finish: sparse::llama4,
    ..LLAMA
};
