//! Families of experts, by what makes them differ from one without.

use super::near::{ERNIE, EXAONE4, GRANITE, GRANITE_SWA, HUNYUAN, MISTRAL, OLMO, OLMO2, QWEN2, QWEN3};
use crate::architectures::decoder::row::*;
use crate::architectures::decoder::{LayerNorms, corrected, layouts, sparse};
use crate::blocks::{NormKind, Span};
use crate::config::RopeKeys;

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
    finish: corrected::deepseek_v2,
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
    finish: corrected::deepseek_v3,
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
    finish: corrected::glm4_moe,
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

pub(super) const GRANITE_MOE_SHARED: Row = Row {
    names: &["granitemoeshared", "GraniteMoeSharedForCausalLM"],
    layout: &layouts::GRANITE_HYBRID,
    finish: sparse::granite_shared,
    ..GRANITE_MOE
};

pub(super) const GRANITE_MOE_SWA: Row = Row {
    names: &["granitemoe_swa", "GraniteMoeSWAForCausalLM"],
    layout: &layouts::GRANITE_MOE_SWA,
    windows: GRANITE_SWA.windows,
    finish: sparse::granite_moe_swa,
    ..GRANITE_MOE
};

pub(super) const ERNIE_MOE: Row = Row {
    names: &["ernie4_5_moe", "Ernie4_5_MoeForCausalLM"],
    sizes: Sizes {
        hidden: 2560,
        inner: Some(12_288),
        layers: 28,
        heads: 20,
        kv_heads: Some(4),
        head_dim: HeadDim::Said,
        ..ERNIE.sizes
    },
    layout: &layouts::ERNIE_MOE,
    head_bias: Flag::Key("use_bias", false),
    finish: sparse::ernie_moe,
    ..ERNIE
};

pub(super) const HUNYUAN_MOE: Row = Row {
    names: &["hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM"],
    layout: &layouts::HUNYUAN_MOE,
    finish: sparse::hunyuan_moe,
    ..HUNYUAN
};

pub(super) const MINIMAX_M2: Row = Row {
    names: &["minimax_m2", "MiniMaxM2ForCausalLM"],
    sizes: Sizes {
        vocab: 200_064,
        hidden: 3072,
        inner: Some(1536),
        layers: 62,
        heads: 48,
        kv_heads: Some(8),
        head_dim: HeadDim::Usual(128),
        context: 196_608,
    },
    layout: &layouts::MINIMAX_M2,
    eps: ("rms_norm_eps", 1e-6),
    head_norms: OLMO2.head_norms,
    rope: RopeRow::One {
        keys: RopeKeys { partial: Some(("partial_rotary_factor", 1.0)), ..RopeKeys::usual(5_000_000.0) },
        interleaved: false,
        backwards: false,
    },
    windows: Windows::None,
    ends: (Some(200_034), Some(200_020)),
    finish: sparse::minimax_m2,
    ..MIXTRAL
};

pub(super) const FLEX_OLMO: Row = Row {
    names: &["flex_olmo", "FlexOlmoForCausalLM"],
    sizes: Sizes { vocab: 100_352, context: 4096, ..LLAMA.sizes },
    eps: ("rms_norm_eps", 1e-6),
    rope: RopeRow::usual(500_000.0),
    ends: (None, Some(100_257)),
    finish: sparse::flex_olmo,
    ..OLMO2
};

pub(super) const MELLUM: Row = Row {
    names: &["mellum", "MellumForCausalLM"],
    sizes: Sizes {
        vocab: 98_304,
        hidden: 2304,
        inner: Some(7168),
        layers: 28,
        context: 131_072,
        ..QWEN3_MOE.sizes
    },
    rope: RopeRow::ByKind(500_000.0, 10_000.0),
    windows: Windows::Types(1024, None, 1),
    refused: &[],
    finish: sparse::mellum,
    ..QWEN3_MOE
};

pub(super) const YOUTU: Row = Row {
    names: &["youtu", "YoutuForCausalLM"],
    sizes: Sizes {
        vocab: 128_256,
        hidden: 2048,
        inner: Some(6144),
        heads: 16,
        kv_heads: Some(16),
        context: 131_072,
        ..DEEPSEEK_V3.sizes
    },
    tied: true,
    ends: (Some(128_000), Some(128_001)),
    finish: corrected::youtu,
    ..DEEPSEEK_V3
};

pub(super) const MINICPM3: Row = Row {
    names: &["minicpm3", "MiniCPM3ForCausalLM"],
    sizes: Sizes {
        vocab: 73_448,
        hidden: 2560,
        inner: Some(6400),
        layers: 62,
        heads: 40,
        kv_heads: Some(40),
        context: 32_768,
        ..DEEPSEEK_V3.sizes
    },
    eps: ("rms_norm_eps", 1e-5),
    mlp_bias: LLAMA.mlp_bias,
    embedding: Factor::Key("scale_emb", 12.0),
    tied: true,
    ends: LLAMA.ends,
    finish: corrected::minicpm3,
    ..DEEPSEEK_V3
};

pub(super) const GLM4_MOE_LITE: Row = Row {
    names: &["glm4_moe_lite", "Glm4MoeLiteForCausalLM"],
    sizes: Sizes {
        vocab: 154_880,
        hidden: 2048,
        inner: Some(10_240),
        layers: 47,
        heads: 20,
        kv_heads: Some(20),
        context: 202_752,
        ..DEEPSEEK_V3.sizes
    },
    eps: ("rms_norm_eps", 1e-5),
    finish: corrected::glm4_moe_lite,
    ..DEEPSEEK_V3
};

pub(super) const DOTS1: Row = Row {
    names: &["dots1", "Dots1ForCausalLM"],
    sizes: Sizes {
        vocab: 152_064,
        hidden: 4608,
        inner: Some(10_944),
        layers: 62,
        kv_heads: Some(32),
        ..LLAMA.sizes
    },
    layout: &layouts::DEEPSEEK,
    head_norms: BY_HEAD,
    windows: Windows::From(4096, 62),
    mlp_bias: NEVER,
    ends: (None, None),
    finish: corrected::dots1,
    ..LLAMA
};

pub(super) const SOLAR_OPEN: Row = Row {
    names: &["solar_open", "SolarOpenForCausalLM"],
    sizes: Sizes { vocab: 196_608, layers: 48, heads: 64, head_dim: HeadDim::Usual(128), ..GLM4_MOE.sizes },
    head_norms: None,
    rope: RopeRow::One {
        keys: RopeKeys { partial: Some(("partial_rotary_factor", 1.0)), ..RopeKeys::usual(1_000_000.0) },
        interleaved: false,
        backwards: false,
    },
    finish: corrected::solar_open,
    ..GLM4_MOE
};

pub(super) const EXAONE_MOE: Row = Row {
    names: &["exaone_moe", "ExaoneMoeForCausalLM"],
    layout: &layouts::EXAONE_MOE,
    norms: TWO_NORMS,
    ends: (Some(1), Some(53)),
    finish: corrected::exaone_moe,
    ..EXAONE4
};

pub(super) const AFMOE: Row = Row {
    names: &["afmoe", "AfmoeForCausalLM"],
    sizes: Sizes {
        vocab: 200_192,
        hidden: 2048,
        inner: Some(6144),
        layers: 32,
        heads: 16,
        kv_heads: None,
        head_dim: HeadDim::Usual(128),
        context: 16_384,
    },
    layout: &layouts::AFMOE,
    eps: ("rms_norm_eps", 1e-5),
    norms: LayerNorms {
        after_attention: Some("post_attention_layernorm"),
        before_feed: Some("pre_mlp_layernorm"),
        after_feed: Some("post_mlp_layernorm"),
        ..TWO_NORMS
    },
    head_norms: BY_HEAD,
    windows: Windows::Types(1024, Some("global_attn_every_n_layers"), 4),
    mlp_bias: NEVER,
    ends: (None, None),
    refused: &["attention_bias"],
    finish: corrected::afmoe,
    ..LLAMA
};
