//! Families near GPT: norms around the mean, networks without a gate, layers whose halves stand side by side.

use crate::architectures::decoder::row::*;
use crate::architectures::decoder::{finish, layouts};
use crate::blocks::{Activation, NormKind, Span};
use crate::config::RopeKeys;

const GPT_KEYS: Keys = Keys {
    hidden: &["n_embd", "hidden_size"],
    inner: &["n_inner"],
    layers: &["n_layer", "num_hidden_layers"],
    heads: &["n_head", "num_attention_heads"],
    kv_heads: &[],
    context: &["n_positions", "max_position_embeddings"],
};

pub(super) const GPT2: Row = Row {
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

pub(super) const BIGCODE: Row = Row {
    names: &["gpt_bigcode", "GPTBigCodeForCausalLM"],
    layout: &layouts::BIGCODE,
    refused: &["add_cross_attention"],
    finish: finish::bigcode,
    ..GPT2
};

pub(super) const GPT_NEO: Row = Row {
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

pub(super) const GPTJ: Row = Row {
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

pub(super) const NEOX: Row = Row {
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

pub(super) const OPT: Row = Row {
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

pub(super) const BLOOM: Row = Row {
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

pub(super) const FALCON: Row = Row {
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

pub(super) const PHI: Row = Row {
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

pub(super) const STABLELM: Row = Row {
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

pub(super) const STARCODER2: Row = Row {
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

pub(super) const COHERE: Row = Row {
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

pub(super) const COHERE2: Row = Row {
    names: &["cohere2", "Cohere2ForCausalLM"],
    sizes: COHERE.sizes,
    head_norms: None,
    rope: RopeRow::interleaved(10_000.0),
    still: Still::Full,
    windows: Windows::Types(4096, Some("sliding_window_pattern"), 4),
    ..COHERE
};

pub(super) const NEMOTRON: Row = Row {
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

pub(super) const CODEGEN: Row = Row {
    names: &["codegen", "CodeGenForCausalLM"],
    layout: &layouts::CODEGEN,
    finish: finish::codegen,
    ..GPTJ
};

pub(super) const NEOX_JAPANESE: Row = Row {
    names: &["gpt_neox_japanese", "GPTNeoXJapaneseForCausalLM"],
    sizes: Sizes { vocab: 32_000, hidden: 2560, inner: None, layers: 32, heads: 32, ..NEOX.sizes },
    keys: &Keys { inner: &[""], kv_heads: &[], ..KEYS },
    layout: &layouts::NEOX_JAPANESE,
    parallel: NEVER,
    qkv_bias: NEVER,
    out_bias: NEVER,
    rope: RopeRow::One {
        keys: RopeKeys {
            theta: ("rotary_emb_base", 10_000.0),
            partial: Some(("rotary_pct", 1.0)),
            original: None,
            is_long: false,
        },
        interleaved: false,
        backwards: false,
    },
    mlp_bias: NEVER,
    tied: true,
    ends: (Some(31_996), Some(31_999)),
    finish: finish::neox_japanese,
    ..NEOX
};

pub(super) const PERSIMMON: Row = Row {
    names: &["persimmon", "PersimmonForCausalLM"],
    sizes: Sizes {
        vocab: 262_144,
        hidden: 4096,
        inner: Some(16_384),
        layers: 36,
        context: 16_384,
        ..NEOX.sizes
    },
    layout: &layouts::PERSIMMON,
    parallel: NEVER,
    qkv_bias: ALWAYS,
    out_bias: ALWAYS,
    head_norms: Some(HeadNormRow {
        when: Flag::Key("qk_layernorm", true),
        kind: NormKind::Layer,
        span: Span::Head,
        after_rope: false,
    }),
    rope: RopeRow::partial("partial_rotary_factor", 0.5, false),
    activation: ("hidden_act", Activation::SquaredRelu),
    ends: (Some(1), Some(2)),
    ..NEOX
};

pub(super) const MPT: Row = Row {
    names: &["mpt", "MptForCausalLM"],
    sizes: Sizes {
        vocab: 50_368,
        hidden: 2048,
        inner: None,
        layers: 24,
        heads: 16,
        kv_heads: None,
        head_dim: HeadDim::Shared,
        context: 2048,
    },
    keys: &Keys {
        hidden: &["d_model", "hidden_size"],
        inner: &[""],
        layers: &["n_layers", "num_hidden_layers"],
        heads: &["n_heads", "num_attention_heads"],
        kv_heads: &[],
        context: &["max_seq_len"],
    },
    layout: &layouts::MPT,
    norm: NormKind::LayerUnbiased,
    eps: ("layer_norm_epsilon", 1e-5),
    qkv_bias: NEVER,
    out_bias: NEVER,
    rope: RopeRow::None,
    activation: ("", Activation::Gelu),
    gated: false,
    mlp_bias: NEVER,
    tied: true,
    ends: (None, None),
    finish: finish::mpt,
    ..LLAMA
};

pub(super) const BIOGPT: Row = Row {
    names: &["biogpt", "BioGptForCausalLM"],
    sizes: Sizes {
        vocab: 42_384,
        hidden: 1024,
        inner: Some(4096),
        layers: 24,
        heads: 16,
        context: 1024,
        ..OPT.sizes
    },
    keys: &Keys { kv_heads: &[], ..KEYS },
    layout: &layouts::BIOGPT,
    qkv_bias: ALWAYS,
    out_bias: ALWAYS,
    activation: ("hidden_act", Activation::Gelu),
    mlp_bias: ALWAYS,
    ends: (Some(0), Some(2)),
    finish: finish::biogpt,
    ..OPT
};

pub(super) const XGLM: Row = Row {
    names: &["xglm", "XGLMForCausalLM"],
    sizes: Sizes { vocab: 256_008, context: 2048, ..BIOGPT.sizes },
    keys: &Keys {
        hidden: &["d_model", "hidden_size"],
        inner: &["ffn_dim"],
        layers: &["num_layers", "num_hidden_layers"],
        heads: &["attention_heads", "num_attention_heads"],
        kv_heads: &[],
        context: &["max_position_embeddings"],
    },
    activation: ("activation_function", Activation::Gelu),
    refused: &["add_cross_attention"],
    finish: finish::xglm,
    ..BIOGPT
};

pub(super) const OPENAI_GPT: Row = Row {
    names: &["openai-gpt", "OpenAIGPTLMHeadModel"],
    sizes: Sizes { vocab: 40_478, context: 512, ..GPT2.sizes },
    keys: &Keys { inner: &[""], ..GPT_KEYS },
    layout: &layouts::OPENAI_GPT,
    norms: crate::architectures::decoder::LayerNorms { of_sums: true, ..NORMS_AFTER },
    activation: ("", Activation::GeluTanh),
    ends: (None, None),
    refused: &[],
    finish: finish::openai_gpt,
    ..GPT2
};
