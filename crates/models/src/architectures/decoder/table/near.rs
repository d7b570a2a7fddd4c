//! Families near Llama: RMS norms, gates, rotary positions.

use crate::architectures::decoder::row::*;
use crate::architectures::decoder::{LayerNorms, finish, layouts};
use crate::blocks::{Activation, NormKind, Span};
use crate::config::RopeKeys;

pub(super) const MISTRAL: Row = Row {
    names: &["mistral", "MistralForCausalLM"],
    sizes: Sizes { inner: Some(14_336), kv_heads: Some(8), context: 131_072, ..LLAMA.sizes },
    qkv_bias: NEVER,
    out_bias: NEVER,
    mlp_bias: NEVER,
    windows: Windows::All(Some(4096)),
    ..LLAMA
};

pub(super) const QWEN2: Row = Row {
    names: &["qwen2", "Qwen2ForCausalLM"],
    sizes: Sizes { vocab: 151_936, inner: Some(22_016), kv_heads: Some(32), context: 32_768, ..LLAMA.sizes },
    qkv_bias: ALWAYS,
    out_bias: NEVER,
    mlp_bias: NEVER,
    windows: Windows::Switched(4096),
    ends: (None, None),
    ..LLAMA
};

pub(super) const QWEN3: Row = Row {
    names: &["qwen3", "Qwen3ForCausalLM"],
    sizes: Sizes { head_dim: HeadDim::Usual(128), ..QWEN2.sizes },
    qkv_bias: LLAMA.qkv_bias,
    out_bias: LLAMA.out_bias,
    head_norms: BY_HEAD,
    ..QWEN2
};

pub(super) const GEMMA: Row = Row {
    names: &["gemma", "GemmaForCausalLM"],
    sizes: Sizes {
        vocab: 256_000,
        hidden: 3072,
        inner: Some(24_576),
        layers: 28,
        heads: 16,
        kv_heads: Some(16),
        head_dim: HeadDim::Usual(256),
        context: 8192,
    },
    norm: NormKind::RmsAroundOne,
    activation: ("hidden_act", Activation::GeluTanh),
    mlp_bias: NEVER,
    embedding: Factor::RootOfHidden,
    tied: true,
    ends: (Some(2), Some(1)),
    wide_sums: true,
    refused: &["use_bidirectional_attention"],
    finish: finish::gemma,
    ..LLAMA
};

pub(super) const GEMMA2: Row = Row {
    names: &["gemma2", "Gemma2ForCausalLM"],
    sizes: Sizes { hidden: 2304, inner: Some(9216), layers: 26, heads: 8, kv_heads: Some(4), ..GEMMA.sizes },
    norms: FOUR_NORMS,
    scale: Scale::RootOfKey("query_pre_attn_scalar", 256.0),
    score_cap: Some(Some(50.0)),
    logit_cap: Some(Some(30.0)),
    windows: Windows::Types(4096, None, 2),
    activation: ("hidden_activation", Activation::GeluTanh),
    finish: LLAMA.finish,
    ..GEMMA
};

pub(super) const VAULT_GEMMA: Row = Row {
    names: &["vaultgemma", "VaultGemmaForCausalLM"],
    norms: LayerNorms { before_feed: Some("pre_feedforward_layernorm"), ..TWO_NORMS },
    refused: &[],
    ..GEMMA2
};

pub(super) const GEMMA3: Row = Row {
    names: &["gemma3_text", "gemma3", "Gemma3ForCausalLM"],
    sizes: Sizes { vocab: 262_208, context: 131_072, ..GEMMA2.sizes },
    head_norms: Some(HeadNormRow {
        when: ALWAYS,
        kind: NormKind::RmsAroundOne,
        span: Span::Head,
        after_rope: false,
    }),
    score_cap: None,
    logit_cap: Some(None),
    rope: RopeRow::ByKind(1_000_000.0, 10_000.0),
    windows: Windows::Types(4096, Some("sliding_window_pattern"), 6),
    refused: &["use_bidirectional_attention", "attn_logit_softcapping"],
    ..GEMMA2
};

pub(super) const PHI3: Row = Row {
    names: &["phi3", "Phi3ForCausalLM"],
    sizes: Sizes { vocab: 32_064, hidden: 3072, inner: Some(8192), context: 4096, ..LLAMA.sizes },
    layout: &layouts::PHI3,
    eps: ("rms_norm_eps", 1e-5),
    qkv_bias: NEVER,
    out_bias: NEVER,
    mlp_bias: NEVER,
    rope: RopeRow::One {
        keys: RopeKeys {
            partial: Some(("partial_rotary_factor", 1.0)),
            original: Some(4096),
            is_long: true,
            ..RopeKeys::usual(10_000.0)
        },
        interleaved: false,
        backwards: false,
    },
    windows: Windows::All(None),
    ends: (Some(1), Some(32_000)),
    ..LLAMA
};

pub(super) const SMOLLM3: Row = Row {
    names: &["smollm3", "SmolLM3ForCausalLM"],
    sizes: Sizes {
        vocab: 128_256,
        hidden: 2048,
        layers: 36,
        heads: 16,
        kv_heads: Some(4),
        context: 32_768,
        ..LLAMA.sizes
    },
    rope: RopeRow::usual(2_000_000.0),
    still: Still::Listed,
    tied: true,
    ends: (Some(128_000), Some(128_001)),
    refused: &["use_sliding_window"],
    finish: finish::only_full,
    ..LLAMA
};

pub(super) const OLMO: Row = Row {
    names: &["olmo", "OlmoForCausalLM"],
    sizes: Sizes { vocab: 50_304, ..LLAMA.sizes },
    norm: NormKind::LayerBare,
    eps: ("", 1e-5),
    clip: Some("clip_qkv"),
    mlp_bias: NEVER,
    ends: (None, Some(50_279)),
    ..LLAMA
};

const WHOLE: Option<HeadNormRow> =
    Some(HeadNormRow { when: ALWAYS, kind: NormKind::Rms, span: Span::Whole, after_rope: false });

pub(super) const OLMO2: Row = Row {
    names: &["olmo2", "Olmo2ForCausalLM"],
    norm: NormKind::Rms,
    eps: ("rms_norm_eps", 1e-5),
    norms: NORMS_AFTER,
    head_norms: WHOLE,
    clip: None,
    ..OLMO
};

pub(super) const OLMO3: Row = Row {
    names: &["olmo3", "Olmo3ForCausalLM"],
    rope: RopeRow::ByKind(500_000.0, 500_000.0),
    windows: Windows::Types(4096, None, 4),
    ..OLMO2
};

pub(super) const GRANITE: Row = Row {
    names: &["granite", "GraniteForCausalLM"],
    scale: Scale::Key("attention_multiplier", 1.0),
    embedding: Factor::Key("embedding_multiplier", 1.0),
    residual: Factor::Key("residual_multiplier", 1.0),
    logits: Factor::By("logits_scaling", 1.0),
    ..LLAMA
};

pub(super) const GRANITE_SWA: Row = Row {
    names: &["granite_swa", "GraniteSWAForCausalLM"],
    sizes: Sizes {
        vocab: 100_352,
        hidden: 2560,
        inner: Some(8192),
        layers: 24,
        heads: 20,
        kv_heads: Some(4),
        context: 8192,
        ..LLAMA.sizes
    },
    eps: ("rms_norm_eps", 1e-5),
    windows: Windows::AllButFirst(128, 4),
    tied: true,
    ends: (Some(100_257), Some(100_257)),
    finish: finish::granite_swa,
    ..GRANITE
};

pub(super) const HYPERCLOVAX: Row = Row {
    names: &["hyperclovax", "HyperCLOVAXForCausalLM"],
    scale: Scale::RootOfHead,
    logits: Factor::Key("logits_scaling", 1.0),
    finish: finish::hyperclovax,
    ..GRANITE
};

pub(super) const CWM: Row = Row {
    names: &["cwm", "CwmForCausalLM"],
    sizes: Sizes {
        vocab: 128_256,
        hidden: 6144,
        inner: Some(21_504),
        layers: 64,
        heads: 48,
        kv_heads: Some(8),
        head_dim: HeadDim::Usual(128),
        context: 131_072,
    },
    eps: ("rms_norm_eps", 1e-5),
    qkv_bias: NEVER,
    out_bias: NEVER,
    rope: RopeRow::usual(1_000_000.0),
    windows: Windows::AllButFirst(8192, 4),
    ends: (Some(128_000), None),
    finish: finish::cwm,
    ..LLAMA
};

pub(super) const DIFFLLAMA: Row = Row {
    names: &["diffllama", "DiffLlamaForCausalLM"],
    sizes: Sizes { hidden: 2048, inner: Some(8192), layers: 16, ..LLAMA.sizes },
    eps: ("rms_norm_eps", 1e-5),
    mlp_bias: NEVER,
    finish: finish::diffllama,
    ..LLAMA
};

/// Llama with norms around the mean and without gates.
pub(super) const JAIS2: Row = Row {
    names: &["jais2", "Jais2ForCausalLM"],
    sizes: Sizes {
        vocab: 150_272,
        hidden: 3328,
        inner: Some(26_624),
        heads: 26,
        context: 8192,
        ..LLAMA.sizes
    },
    norm: NormKind::Layer,
    eps: ("layer_norm_eps", 1e-5),
    qkv_bias: Flag::Key("attention_bias", true),
    out_bias: Flag::Key("attention_bias", true),
    activation: ("hidden_act", Activation::SquaredRelu),
    gated: false,
    mlp_bias: Flag::Key("mlp_bias", true),
    ends: (Some(0), Some(150_024)),
    ..LLAMA
};

pub(super) const GLM: Row = Row {
    names: &["glm", "GlmForCausalLM"],
    sizes: Sizes {
        vocab: 151_552,
        hidden: 4096,
        inner: Some(13_696),
        layers: 40,
        heads: 32,
        kv_heads: Some(2),
        head_dim: HeadDim::Usual(128),
        context: 131_072,
    },
    layout: &layouts::GLM,
    eps: ("rms_norm_eps", 1.5625e-7),
    qkv_bias: Flag::Key("attention_bias", true),
    out_bias: NEVER,
    rope: RopeRow::partial("partial_rotary_factor", 0.5, true),
    mlp_bias: NEVER,
    ends: (None, None),
    finish: finish::glm,
    ..LLAMA
};

pub(super) const GLM4: Row = Row {
    names: &["glm4", "Glm4ForCausalLM"],
    norms: LayerNorms {
        after_attention: Some("post_self_attn_layernorm"),
        after_feed: Some("post_mlp_layernorm"),
        ..TWO_NORMS
    },
    ..GLM
};

pub(super) const EXAONE4: Row = Row {
    names: &["exaone4", "Exaone4ForCausalLM"],
    sizes: Sizes { vocab: 102_400, inner: Some(16_384), kv_heads: Some(32), ..LLAMA.sizes },
    eps: ("rms_norm_eps", 1e-5),
    norms: NORMS_AFTER,
    qkv_bias: NEVER,
    out_bias: NEVER,
    head_norms: BY_HEAD,
    still: Still::Full,
    windows: Windows::Types(4096, Some("sliding_window_pattern"), 4),
    mlp_bias: NEVER,
    ends: (Some(0), Some(2)),
    ..LLAMA
};

pub(super) const HELIUM: Row = Row {
    names: &["helium", "HeliumForCausalLM"],
    sizes: Sizes {
        vocab: 48_000,
        hidden: 2560,
        inner: Some(7040),
        layers: 24,
        heads: 20,
        kv_heads: Some(20),
        head_dim: HeadDim::Usual(128),
        context: 4096,
    },
    eps: ("rms_norm_eps", 1e-8),
    out_bias: NEVER,
    rope: RopeRow::interleaved(100_000.0),
    ..LLAMA
};

pub(super) const HUNYUAN: Row = Row {
    names: &["hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"],
    sizes: Sizes { vocab: 290_943, ..LLAMA.sizes },
    layout: &layouts::HUNYUAN,
    eps: ("rms_norm_eps", 1e-5),
    head_norms: Some(HeadNormRow { when: ALWAYS, kind: NormKind::Rms, span: Span::Head, after_rope: true }),
    mlp_bias: NEVER,
    finish: finish::hunyuan,
    ..LLAMA
};

pub(super) const SEED_OSS: Row = Row {
    names: &["seed_oss", "SeedOssForCausalLM"],
    sizes: Sizes {
        vocab: 155_136,
        inner: Some(27_648),
        layers: 64,
        heads: 80,
        kv_heads: Some(8),
        head_dim: HeadDim::Usual(128),
        context: 524_288,
        ..LLAMA.sizes
    },
    qkv_bias: Flag::Key("attention_bias", true),
    out_bias: Flag::Key("attention_out_bias", false),
    ends: (Some(0), Some(2)),
    ..LLAMA
};

pub(super) const APERTUS: Row = Row {
    names: &["apertus", "ApertusForCausalLM"],
    sizes: Sizes { vocab: 131_072, inner: Some(14_336), context: 65_536, ..LLAMA.sizes },
    eps: ("rms_norm_eps", 1e-5),
    norms: LayerNorms {
        before_attention: Some("attention_layernorm"),
        before_feed: Some("feedforward_layernorm"),
        ..TWO_NORMS
    },
    head_norms: BY_HEAD,
    rope: RopeRow::usual(12_000_000.0),
    activation: ("hidden_act", Activation::Xielu),
    gated: false,
    mlp_bias: NEVER,
    finish: finish::apertus,
    ..LLAMA
};

pub(super) const ARCEE: Row = Row {
    names: &["arcee", "ArceeForCausalLM"],
    sizes: Sizes { hidden: 2560, inner: Some(18_432), context: 4096, ..LLAMA.sizes },
    eps: ("rms_norm_eps", 1e-5),
    activation: ("hidden_act", Activation::SquaredRelu),
    gated: false,
    ends: (Some(128_000), Some(128_001)),
    ..LLAMA
};

pub(super) const ERNIE: Row = Row {
    names: &["ernie4_5", "Ernie4_5ForCausalLM"],
    sizes: Sizes {
        vocab: 103_424,
        hidden: 1024,
        inner: Some(3072),
        layers: 18,
        heads: 16,
        kv_heads: Some(2),
        head_dim: HeadDim::Usual(128),
        context: 131_072,
    },
    eps: ("rms_norm_eps", 1e-5),
    qkv_bias: Flag::Key("use_bias", false),
    out_bias: Flag::Key("use_bias", false),
    rope: RopeRow::interleaved(500_000.0),
    mlp_bias: Flag::Key("use_bias", false),
    tied: true,
    ..LLAMA
};

pub(super) const NANOCHAT: Row = Row {
    names: &["nanochat", "NanoChatForCausalLM"],
    sizes: Sizes { vocab: 50_304, hidden: 768, inner: Some(8192), layers: 12, heads: 6, ..LLAMA.sizes },
    layout: &layouts::FC,
    norm: NormKind::RmsBare,
    head_norms: Some(HeadNormRow {
        when: ALWAYS,
        kind: NormKind::RmsBare,
        span: Span::Head,
        after_rope: true,
    }),
    rope: RopeRow::One { keys: RopeKeys::usual(10_000.0), interleaved: false, backwards: true },
    activation: ("hidden_act", Activation::SquaredRelu),
    gated: false,
    mlp_bias: NEVER,
    embedding_norm: Some(NormKind::RmsBare),
    logit_cap: Some(Some(15.0)),
    ends: (Some(0), Some(1)),
    ..LLAMA
};

pub(super) const BITNET: Row = Row {
    names: &["bitnet", "BitNetForCausalLM"],
    sizes: Sizes {
        vocab: 128_256,
        hidden: 2560,
        inner: Some(6912),
        layers: 30,
        heads: 20,
        kv_heads: Some(5),
        ..LLAMA.sizes
    },
    eps: ("rms_norm_eps", 1e-5),
    rope: RopeRow::usual(500_000.0),
    activation: ("hidden_act", Activation::SquaredRelu),
    mlp_bias: NEVER,
    ends: (Some(128_000), Some(128_001)),
    finish: finish::bitnet,
    ..LLAMA
};

pub(super) const MINISTRAL: Row =
    Row { names: &["ministral", "MinistralForCausalLM"], windows: Windows::AllTypes(4096), ..MISTRAL };

pub(super) const MINISTRAL3: Row = Row {
    names: &["ministral3", "Ministral3ForCausalLM"],
    sizes: Sizes {
        vocab: 131_072,
        layers: 34,
        head_dim: HeadDim::Usual(128),
        context: 262_144,
        ..MISTRAL.sizes
    },
    eps: ("rms_norm_eps", 1e-5),
    rope: RopeRow::usual(1_000_000.0),
    windows: Windows::All(None),
    finish: finish::ministral3,
    ..MISTRAL
};
