//! The families, each by what makes it differ from Llama or from another row.
//!
//! To add one: its row here, its layout in `layouts` where its files keep weights otherwise, and its case in
//! `conformance/family_configs.py`.

use super::layouts;
use super::row::*;
use super::{LayerNorms, finish, sparse};
use crate::blocks::{Activation, NormKind, Span};
use crate::config::RopeKeys;

pub use super::row::Row;

const MISTRAL: Row = Row {
    names: &["mistral", "MistralForCausalLM"],
    sizes: Sizes { inner: Some(14_336), kv_heads: Some(8), context: 131_072, ..LLAMA.sizes },
    qkv_bias: NEVER,
    out_bias: NEVER,
    mlp_bias: NEVER,
    windows: Windows::All(Some(4096)),
    ..LLAMA
};

const QWEN2: Row = Row {
    names: &["qwen2", "Qwen2ForCausalLM"],
    sizes: Sizes { vocab: 151_936, inner: Some(22_016), kv_heads: Some(32), context: 32_768, ..LLAMA.sizes },
    qkv_bias: ALWAYS,
    out_bias: NEVER,
    mlp_bias: NEVER,
    windows: Windows::Switched(4096),
    ends: (None, None),
    ..LLAMA
};

const QWEN3: Row = Row {
    names: &["qwen3", "Qwen3ForCausalLM"],
    sizes: Sizes { head_dim: HeadDim::Usual(128), ..QWEN2.sizes },
    qkv_bias: LLAMA.qkv_bias,
    out_bias: LLAMA.out_bias,
    head_norms: BY_HEAD,
    ..QWEN2
};

const GEMMA: Row = Row {
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

const GEMMA2: Row = Row {
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

const VAULT_GEMMA: Row = Row {
    names: &["vaultgemma", "VaultGemmaForCausalLM"],
    norms: LayerNorms { before_feed: Some("pre_feedforward_layernorm"), ..TWO_NORMS },
    refused: &[],
    ..GEMMA2
};

const GEMMA3: Row = Row {
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

const PHI: Row = Row {
    names: &["phi", "PhiForCausalLM"],
    sizes: Sizes { vocab: 51_200, hidden: 2048, inner: Some(8192), layers: 24, ..LLAMA.sizes },
    layout: &layouts::PHI,
    norm: NormKind::Layer,
    eps: ("layer_norm_eps", 1e-5),
    norms: ONE_NORM,
    parallel: ALWAYS,
    qkv_bias: ALWAYS,
    out_bias: ALWAYS,
    head_norms: Some(HeadNormRow {
        when: Flag::Key("qk_layernorm", false),
        kind: NormKind::Layer,
        span: Span::Head,
        after_rope: false,
    }),
    rope: RopeRow::partial("partial_rotary_factor", 0.5, false),
    activation: ("hidden_act", Activation::GeluTanh),
    gated: false,
    mlp_bias: ALWAYS,
    head_bias: ALWAYS,
    ..LLAMA
};

const PHI3: Row = Row {
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

const SMOLLM3: Row = Row {
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

const OLMO: Row = Row {
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

const OLMO2: Row = Row {
    names: &["olmo2", "Olmo2ForCausalLM"],
    norm: NormKind::Rms,
    eps: ("rms_norm_eps", 1e-5),
    norms: NORMS_AFTER,
    head_norms: WHOLE,
    clip: None,
    ..OLMO
};

const OLMO3: Row = Row {
    names: &["olmo3", "Olmo3ForCausalLM"],
    rope: RopeRow::ByKind(500_000.0, 500_000.0),
    windows: Windows::Types(4096, None, 4),
    ..OLMO2
};

const GRANITE: Row = Row {
    names: &["granite", "GraniteForCausalLM"],
    scale: Scale::Key("attention_multiplier", 1.0),
    embedding: Factor::Key("embedding_multiplier", 1.0),
    residual: Factor::Key("residual_multiplier", 1.0),
    logits: Factor::By("logits_scaling", 1.0),
    ..LLAMA
};

const COHERE: Row = Row {
    names: &["cohere", "CohereForCausalLM"],
    sizes: Sizes {
        vocab: 256_000,
        hidden: 8192,
        inner: Some(22_528),
        layers: 40,
        heads: 64,
        context: 8192,
        ..LLAMA.sizes
    },
    norm: NormKind::LayerUnbiased,
    eps: ("layer_norm_eps", 1e-5),
    norms: ONE_NORM,
    parallel: ALWAYS,
    head_norms: Some(HeadNormRow {
        when: Flag::Key("use_qk_norm", false),
        kind: NormKind::LayerUnbiased,
        span: Span::EachHead,
        after_rope: false,
    }),
    rope: RopeRow::interleaved(500_000.0),
    mlp_bias: NEVER,
    logits: Factor::Key("logit_scale", 0.0625),
    tied: true,
    ends: (Some(5), Some(255_001)),
    ..LLAMA
};

const COHERE2: Row = Row {
    names: &["cohere2", "Cohere2ForCausalLM"],
    sizes: Sizes { head_dim: HeadDim::Shared, ..COHERE.sizes },
    head_norms: None,
    rope: RopeRow::interleaved(10_000.0),
    still: Still::Full,
    windows: Windows::Types(4096, Some("sliding_window_pattern"), 4),
    ..COHERE
};

const STABLELM: Row = Row {
    names: &["stablelm", "StableLmForCausalLM"],
    sizes: Sizes {
        vocab: 50_304,
        hidden: 2560,
        inner: Some(6912),
        kv_heads: Some(32),
        head_dim: HeadDim::Shared,
        context: 4096,
        ..LLAMA.sizes
    },
    layout: &layouts::STABLELM,
    norm: NormKind::Layer,
    eps: ("layer_norm_eps", 1e-5),
    parallel: Flag::Key("use_parallel_residual", false),
    qkv_bias: Flag::Key("use_qkv_bias", false),
    out_bias: NEVER,
    head_norms: Some(HeadNormRow {
        when: Flag::Key("qk_layernorm", false),
        kind: NormKind::LayerUnbiased,
        span: Span::EachHead,
        after_rope: false,
    }),
    rope: RopeRow::partial("partial_rotary_factor", 0.25, false),
    mlp_bias: NEVER,
    ends: (Some(0), Some(0)),
    finish: finish::one_norm_in_parallel,
    ..LLAMA
};

const STARCODER2: Row = Row {
    names: &["starcoder2", "Starcoder2ForCausalLM"],
    sizes: Sizes {
        vocab: 49_152,
        hidden: 3072,
        inner: Some(12_288),
        layers: 30,
        heads: 24,
        kv_heads: Some(2),
        context: 4096,
        ..LLAMA.sizes
    },
    layout: &layouts::STARCODER2,
    norm: NormKind::Layer,
    eps: ("norm_epsilon", 1e-5),
    qkv_bias: Flag::Key("use_bias", true),
    out_bias: Flag::Key("use_bias", true),
    windows: Windows::All(None),
    activation: ("hidden_act", Activation::GeluTanh),
    gated: false,
    mlp_bias: Flag::Key("use_bias", true),
    tied: true,
    ends: (Some(50_256), Some(50_256)),
    ..LLAMA
};

const GPT_KEYS: Keys = Keys {
    hidden: &["n_embd", "hidden_size"],
    inner: &["n_inner"],
    layers: &["n_layer", "num_hidden_layers"],
    heads: &["n_head", "num_attention_heads"],
    kv_heads: &[],
    context: &["n_positions", "max_position_embeddings"],
};

const GPT2: Row = Row {
    names: &["gpt2", "GPT2LMHeadModel", "gpt-sw3"],
    sizes: Sizes {
        vocab: 50_257,
        hidden: 768,
        inner: None,
        layers: 12,
        heads: 12,
        kv_heads: None,
        head_dim: HeadDim::Shared,
        context: 1024,
    },
    keys: &GPT_KEYS,
    layout: &layouts::GPT2,
    norm: NormKind::Layer,
    eps: ("layer_norm_epsilon", 1e-5),
    qkv_bias: ALWAYS,
    out_bias: ALWAYS,
    rope: RopeRow::None,
    activation: ("activation_function", Activation::GeluTanh),
    gated: false,
    mlp_bias: ALWAYS,
    tied: true,
    ends: (Some(50_256), Some(50_256)),
    refused: &["add_cross_attention"],
    finish: finish::gpt2,
    ..LLAMA
};

const BIGCODE: Row = Row {
    names: &["gpt_bigcode", "GPTBigCodeForCausalLM"],
    layout: &layouts::BIGCODE,
    refused: &["add_cross_attention"],
    finish: finish::bigcode,
    ..GPT2
};

const GPT_NEO: Row = Row {
    names: &["gpt_neo", "GPTNeoForCausalLM"],
    sizes: Sizes { hidden: 2048, layers: 24, heads: 16, context: 2048, ..GPT2.sizes },
    keys: &Keys {
        hidden: &["hidden_size"],
        inner: &["intermediate_size"],
        layers: &["num_layers", "num_hidden_layers"],
        heads: &["num_heads", "num_attention_heads"],
        kv_heads: &[],
        context: &["max_position_embeddings"],
    },
    layout: &layouts::GPT_NEO,
    qkv_bias: NEVER,
    refused: &[],
    finish: finish::gpt_neo,
    ..GPT2
};

const GPTJ: Row = Row {
    names: &["gptj", "GPTJForCausalLM"],
    sizes: Sizes { vocab: 50_400, hidden: 4096, layers: 28, heads: 16, context: 2048, ..GPT2.sizes },
    layout: &layouts::GPTJ,
    norms: ONE_NORM,
    parallel: ALWAYS,
    qkv_bias: NEVER,
    out_bias: NEVER,
    rope: RopeRow::interleaved(10_000.0),
    tied: false,
    head_bias: ALWAYS,
    refused: &[],
    finish: finish::gptj,
    ..GPT2
};

const NEOX: Row = Row {
    names: &["gpt_neox", "GPTNeoXForCausalLM"],
    sizes: Sizes {
        vocab: 50_432,
        hidden: 6144,
        inner: Some(24_576),
        layers: 44,
        heads: 64,
        kv_heads: None,
        head_dim: HeadDim::Shared,
        context: 2048,
    },
    keys: &Keys { kv_heads: &[], ..KEYS },
    layout: &layouts::NEOX,
    norm: NormKind::Layer,
    eps: ("layer_norm_eps", 1e-5),
    parallel: Flag::Key("use_parallel_residual", true),
    qkv_bias: Flag::Key("attention_bias", true),
    out_bias: Flag::Key("attention_bias", true),
    rope: RopeRow::One {
        keys: RopeKeys {
            theta: ("rotary_emb_base", 10_000.0),
            partial: Some(("rotary_pct", 0.25)),
            original: None,
            is_long: false,
        },
        interleaved: false,
        backwards: false,
    },
    activation: ("hidden_act", Activation::Gelu),
    gated: false,
    mlp_bias: ALWAYS,
    ends: (Some(0), Some(2)),
    ..LLAMA
};

const OPT: Row = Row {
    names: &["opt", "OPTForCausalLM"],
    sizes: Sizes {
        vocab: 50_272,
        hidden: 768,
        inner: Some(3072),
        layers: 12,
        heads: 12,
        kv_heads: None,
        head_dim: HeadDim::Shared,
        context: 2048,
    },
    keys: &Keys { inner: &["ffn_dim"], kv_heads: &[], ..KEYS },
    layout: &layouts::OPT,
    norm: NormKind::Layer,
    eps: ("", 1e-5),
    qkv_bias: Flag::Key("enable_bias", true),
    out_bias: Flag::Key("enable_bias", true),
    rope: RopeRow::None,
    activation: ("activation_function", Activation::Relu),
    gated: false,
    mlp_bias: Flag::Key("enable_bias", true),
    tied: true,
    ends: (Some(2), Some(2)),
    finish: finish::opt,
    ..LLAMA
};

const BLOOM: Row = Row {
    names: &["bloom", "BloomForCausalLM"],
    sizes: Sizes {
        vocab: 250_880,
        hidden: 64,
        inner: None,
        layers: 2,
        heads: 8,
        kv_heads: None,
        head_dim: HeadDim::Shared,
        context: 2048,
    },
    keys: &Keys {
        hidden: &["n_embed", "hidden_size"],
        inner: &[],
        layers: &["n_layer", "num_hidden_layers"],
        heads: &["n_head", "num_attention_heads"],
        kv_heads: &[],
        context: &["seq_length"],
    },
    layout: &layouts::BLOOM,
    norm: NormKind::Layer,
    eps: ("layer_norm_epsilon", 1e-5),
    qkv_bias: ALWAYS,
    out_bias: ALWAYS,
    rope: RopeRow::None,
    activation: ("", Activation::GeluTanh),
    gated: false,
    mlp_bias: ALWAYS,
    embedding_norm: Some(NormKind::Layer),
    tied: true,
    refused: &["apply_residual_connection_post_layernorm"],
    finish: finish::bloom,
    ..LLAMA
};

const FALCON: Row = Row {
    names: &["falcon", "FalconForCausalLM"],
    sizes: Sizes {
        vocab: 65_024,
        hidden: 4544,
        inner: None,
        layers: 32,
        heads: 71,
        kv_heads: None,
        head_dim: HeadDim::Shared,
        context: 2048,
    },
    keys: &Keys {
        hidden: &["n_embed", "hidden_size"],
        inner: &["ffn_hidden_size"],
        kv_heads: &["num_kv_heads"],
        ..KEYS
    },
    layout: &layouts::BLOOM,
    norm: NormKind::Layer,
    eps: ("layer_norm_epsilon", 1e-5),
    parallel: Flag::Key("parallel_attn", true),
    qkv_bias: Flag::Key("bias", false),
    out_bias: Flag::Key("bias", false),
    activation: ("activation", Activation::Gelu),
    gated: false,
    mlp_bias: Flag::Key("bias", false),
    tied: true,
    ends: (Some(11), Some(11)),
    finish: finish::falcon,
    ..LLAMA
};

const GLM: Row = Row {
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

const GLM4: Row = Row {
    names: &["glm4", "Glm4ForCausalLM"],
    norms: LayerNorms {
        after_attention: Some("post_self_attn_layernorm"),
        after_feed: Some("post_mlp_layernorm"),
        ..TWO_NORMS
    },
    ..GLM
};

const EXAONE4: Row = Row {
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

const NEMOTRON: Row = Row {
    names: &["nemotron", "NemotronForCausalLM"],
    sizes: Sizes {
        vocab: 256_000,
        hidden: 6144,
        inner: Some(24_576),
        heads: 48,
        context: 4096,
        ..LLAMA.sizes
    },
    norm: NormKind::LayerAroundOne,
    eps: ("norm_eps", 1e-5),
    rope: RopeRow::partial("partial_rotary_factor", 0.5, false),
    activation: ("hidden_act", Activation::SquaredRelu),
    gated: false,
    ends: (Some(2), Some(3)),
    ..LLAMA
};

const HELIUM: Row = Row {
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

const HUNYUAN: Row = Row {
    names: &["hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"],
    sizes: Sizes { vocab: 290_943, ..LLAMA.sizes },
    layout: &layouts::HUNYUAN,
    eps: ("rms_norm_eps", 1e-5),
    head_norms: Some(HeadNormRow { when: ALWAYS, kind: NormKind::Rms, span: Span::Head, after_rope: true }),
    mlp_bias: NEVER,
    finish: finish::hunyuan,
    ..LLAMA
};

const SEED_OSS: Row = Row {
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

const APERTUS: Row = Row {
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

const ARCEE: Row = Row {
    names: &["arcee", "ArceeForCausalLM"],
    sizes: Sizes { hidden: 2560, inner: Some(18_432), context: 4096, ..LLAMA.sizes },
    eps: ("rms_norm_eps", 1e-5),
    activation: ("hidden_act", Activation::SquaredRelu),
    gated: false,
    ends: (Some(128_000), Some(128_001)),
    ..LLAMA
};

const ERNIE: Row = Row {
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

const NANOCHAT: Row = Row {
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

const BITNET: Row = Row {
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

const MINISTRAL: Row =
    Row { names: &["ministral", "MinistralForCausalLM"], windows: Windows::AllTypes(4096), ..MISTRAL };

const MINISTRAL3: Row = Row {
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

const MIXTRAL: Row = Row {
    names: &["mixtral", "MixtralForCausalLM"],
    layout: &layouts::MIXTRAL,
    eps: ("rms_norm_eps", 1e-5),
    rope: RopeRow::usual(1_000_000.0),
    windows: Windows::All(None),
    finish: sparse::mixtral,
    ..MISTRAL
};

const QWEN2_MOE: Row = Row {
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

const QWEN3_MOE: Row = Row {
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

const OLMOE: Row = Row {
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

const PHIMOE: Row = Row {
    names: &["phimoe", "PhimoeForCausalLM"],
    sizes: Sizes { vocab: 32_064, inner: Some(6400), ..MIXTRAL.sizes },
    norm: NormKind::Layer,
    qkv_bias: Flag::Key("attention_bias", false),
    out_bias: Flag::Key("attention_bias", false),
    head_bias: Flag::Key("lm_head_bias", false),
    finish: sparse::phimoe,
    ..MIXTRAL
};

const GRANITE_MOE: Row = Row {
    names: &["granitemoe", "GraniteMoeForCausalLM"],
    layout: &layouts::GRANITE_MOE,
    mlp_bias: NEVER,
    finish: sparse::granite_moe,
    ..GRANITE
};

const GPT_OSS: Row = Row {
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

const DEEPSEEK_V2: Row = Row {
    names: &["deepseek_v2", "DeepseekV2ForCausalLM"],
    sizes: Sizes { vocab: 102_400, head_dim: HeadDim::Shared, ..LLAMA.sizes },
    layout: &layouts::DEEPSEEK,
    rope: RopeRow::None,
    finish: sparse::deepseek_v2,
    ..LLAMA
};

const DEEPSEEK_V3: Row = Row {
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

const GLM4_MOE: Row = Row {
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

const LLAMA4: Row = Row {
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

/// All families of one decoder.
pub const ROWS: &[Row] = &[
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    GEMMA,
    GEMMA2,
    VAULT_GEMMA,
    GEMMA3,
    PHI,
    PHI3,
    SMOLLM3,
    OLMO,
    OLMO2,
    OLMO3,
    GRANITE,
    COHERE,
    COHERE2,
    STABLELM,
    STARCODER2,
    GPT2,
    BIGCODE,
    GPT_NEO,
    GPTJ,
    NEOX,
    OPT,
    BLOOM,
    FALCON,
    GLM,
    GLM4,
    EXAONE4,
    NEMOTRON,
    HELIUM,
    HUNYUAN,
    SEED_OSS,
    APERTUS,
    ARCEE,
    ERNIE,
    NANOCHAT,
    BITNET,
    MINISTRAL,
    MINISTRAL3,
    MIXTRAL,
    QWEN2_MOE,
    QWEN3_MOE,
    OLMOE,
    PHIMOE,
    GRANITE_MOE,
    GPT_OSS,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    GLM4_MOE,
    LLAMA4,
];
