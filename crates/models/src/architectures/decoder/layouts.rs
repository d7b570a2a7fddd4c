//! The layouts of families whose files differ from what graphs ask for.

use super::layout::{ExpertFiles, Fused, Fusion, Layout, USUAL};

const QKV: &[&str] = &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
const GATE_UP: &[&str] = &["mlp.gate_proj", "mlp.up_proj"];

const fn qkv(published: &'static str, fusion: Fusion) -> Fused {
    Fused { parts: QKV, published, fusion }
}

const FUSED_GATE: Fused = Fused { parts: GATE_UP, published: "mlp.gate_up_proj", fusion: Fusion::Stacked };

pub(super) const PHI: Layout = Layout {
    modules: &[
        ("self_attn.o_proj", "self_attn.dense"),
        ("self_attn.q_norm", "self_attn.q_layernorm"),
        ("self_attn.k_norm", "self_attn.k_layernorm"),
        ("mlp.up_proj", "mlp.fc1"),
        ("mlp.down_proj", "mlp.fc2"),
        ("norm", "final_layernorm"),
    ],
    ..USUAL
};

pub(super) const PHI3: Layout =
    Layout { fused: &[qkv("self_attn.qkv_proj", Fusion::Stacked), FUSED_GATE], ..USUAL };

pub(super) const GLM: Layout = Layout { fused: &[FUSED_GATE], ..USUAL };

pub(super) const STABLELM: Layout = Layout {
    modules: &[
        ("self_attn.q_norm", "self_attn.q_layernorm.norms.{}"),
        ("self_attn.k_norm", "self_attn.k_layernorm.norms.{}"),
    ],
    ..USUAL
};

pub(super) const STARCODER2: Layout =
    Layout { modules: &[("mlp.up_proj", "mlp.c_fc"), ("mlp.down_proj", "mlp.c_proj")], ..USUAL };

pub(super) const FC: Layout =
    Layout { modules: &[("mlp.up_proj", "mlp.fc1"), ("mlp.down_proj", "mlp.fc2")], ..USUAL };

pub(super) const HUNYUAN: Layout = Layout {
    modules: &[
        ("self_attn.q_norm", "self_attn.query_layernorm"),
        ("self_attn.k_norm", "self_attn.key_layernorm"),
    ],
    ..USUAL
};

pub(super) const GPT2: Layout = Layout {
    prefixes: &["transformer.", ""],
    layers: "h",
    modules: &[
        ("embed_tokens", "wte"),
        ("embed_positions", "wpe"),
        ("norm", "ln_f"),
        ("input_layernorm", "ln_1"),
        ("post_attention_layernorm", "ln_2"),
        ("self_attn.o_proj", "attn.c_proj"),
        ("mlp.up_proj", "mlp.c_fc"),
        ("mlp.down_proj", "mlp.c_proj"),
    ],
    fused: &[qkv("attn.c_attn", Fusion::Stacked)],
    transposed: true,
    ..USUAL
};

/// GPT-2 with plain matrices, and one key head for all queries.
pub(super) const BIGCODE: Layout = Layout { transposed: false, ..GPT2 };

/// The same with as many key heads as queries.
pub(super) const BIGCODE_HEADS: Layout = Layout { fused: &[qkv("attn.c_attn", Fusion::ByGroup)], ..BIGCODE };

pub(super) const GPTJ: Layout = Layout {
    prefixes: &["transformer.", ""],
    layers: "h",
    modules: &[
        ("embed_tokens", "wte"),
        ("norm", "ln_f"),
        ("input_layernorm", "ln_1"),
        ("self_attn.q_proj", "attn.q_proj"),
        ("self_attn.k_proj", "attn.k_proj"),
        ("self_attn.v_proj", "attn.v_proj"),
        ("self_attn.o_proj", "attn.out_proj"),
        ("mlp.up_proj", "mlp.fc_in"),
        ("mlp.down_proj", "mlp.fc_out"),
    ],
    ..USUAL
};

pub(super) const GPT_NEO: Layout = Layout {
    prefixes: &["transformer.", ""],
    layers: "h",
    modules: &[
        ("embed_tokens", "wte"),
        ("embed_positions", "wpe"),
        ("norm", "ln_f"),
        ("input_layernorm", "ln_1"),
        ("post_attention_layernorm", "ln_2"),
        ("self_attn.q_proj", "attn.attention.q_proj"),
        ("self_attn.k_proj", "attn.attention.k_proj"),
        ("self_attn.v_proj", "attn.attention.v_proj"),
        ("self_attn.o_proj", "attn.attention.out_proj"),
        ("mlp.up_proj", "mlp.c_fc"),
        ("mlp.down_proj", "mlp.c_proj"),
    ],
    ..USUAL
};

pub(super) const NEOX: Layout = Layout {
    prefixes: &["gpt_neox.", ""],
    modules: &[
        ("embed_tokens", "embed_in"),
        ("norm", "final_layer_norm"),
        ("self_attn.o_proj", "attention.dense"),
        ("mlp.up_proj", "mlp.dense_h_to_4h"),
        ("mlp.down_proj", "mlp.dense_4h_to_h"),
    ],
    fused: &[qkv("attention.query_key_value", Fusion::ByGroup)],
    ..USUAL
};

pub(super) const OPT: Layout = Layout {
    prefixes: &["model.decoder.", "decoder.", ""],
    modules: &[
        ("norm", "final_layer_norm"),
        ("input_layernorm", "self_attn_layer_norm"),
        ("post_attention_layernorm", "final_layer_norm"),
        ("self_attn.o_proj", "self_attn.out_proj"),
        ("mlp.up_proj", "fc1"),
        ("mlp.down_proj", "fc2"),
    ],
    ..USUAL
};

pub(super) const BLOOM: Layout = Layout {
    prefixes: &["transformer.", ""],
    layers: "h",
    modules: &[
        ("embed_tokens", "word_embeddings"),
        ("embed_norm", "word_embeddings_layernorm"),
        ("norm", "ln_f"),
        ("self_attn.o_proj", "self_attention.dense"),
        ("mlp.up_proj", "mlp.dense_h_to_4h"),
        ("mlp.down_proj", "mlp.dense_4h_to_h"),
    ],
    fused: &[qkv("self_attention.query_key_value", Fusion::ByGroup)],
    ..USUAL
};

pub(super) const CODEGEN: Layout = Layout { fused: &[qkv("attn.qkv_proj", Fusion::ByQuarter)], ..GPTJ };

pub(super) const NEOX_JAPANESE: Layout = Layout {
    prefixes: &["gpt_neox_japanese.", ""],
    modules: &[
        ("embed_tokens", "embed_in"),
        ("norm", "final_layer_norm"),
        ("self_attn.o_proj", "attention.dense"),
        ("self_attn.o_proj.bias", "attention.dense_bias"),
        ("mlp.up_proj", "mlp.dense_h_to_4h"),
        ("mlp.down_proj", "mlp.dense_4h_to_h"),
    ],
    ..NEOX
};

pub(super) const PERSIMMON: Layout = Layout {
    modules: &[
        ("norm", "final_layernorm"),
        ("self_attn.o_proj", "self_attn.dense"),
        ("self_attn.q_norm", "self_attn.q_layernorm"),
        ("self_attn.k_norm", "self_attn.k_layernorm"),
        ("mlp.up_proj", "mlp.dense_h_to_4h"),
        ("mlp.down_proj", "mlp.dense_4h_to_h"),
    ],
    fused: &[qkv("self_attn.query_key_value", Fusion::ByGroup)],
    ..USUAL
};

pub(super) const MPT: Layout = Layout {
    prefixes: &["transformer.", ""],
    layers: "blocks",
    modules: &[
        ("embed_tokens", "wte"),
        ("norm", "norm_f"),
        ("input_layernorm", "norm_1"),
        ("post_attention_layernorm", "norm_2"),
        ("self_attn.o_proj", "attn.out_proj"),
        ("mlp.up_proj", "ffn.up_proj"),
        ("mlp.down_proj", "ffn.down_proj"),
    ],
    fused: &[qkv("attn.Wqkv", Fusion::Stacked)],
    ..USUAL
};

/// OPT's layers with another name of the last norm.
pub(super) const BIOGPT: Layout = Layout {
    prefixes: &["biogpt.", "model.", ""],
    modules: &[
        ("norm", "layer_norm"),
        ("input_layernorm", "self_attn_layer_norm"),
        ("post_attention_layernorm", "final_layer_norm"),
        ("self_attn.o_proj", "self_attn.out_proj"),
        ("mlp.up_proj", "fc1"),
        ("mlp.down_proj", "fc2"),
    ],
    ..USUAL
};

pub(super) const OPENAI_GPT: Layout = Layout {
    modules: &[
        ("embed_tokens", "tokens_embed"),
        ("embed_positions", "positions_embed"),
        ("post_attention_layernorm", "ln_1"),
        ("post_feedforward_layernorm", "ln_2"),
        ("self_attn.o_proj", "attn.c_proj"),
        ("mlp.up_proj", "mlp.c_fc"),
        ("mlp.down_proj", "mlp.c_proj"),
    ],
    ..GPT2
};

pub(super) const MIXTRAL: Layout = Layout {
    modules: &[("mlp.gate", "block_sparse_moe.gate")],
    experts: ExpertFiles::Each("block_sparse_moe.experts.", [".w1", ".w3", ".w2"]),
    ..USUAL
};

pub(super) const GRANITE_MOE: Layout = Layout {
    modules: &[("mlp.gate", "block_sparse_moe.router.layer")],
    experts: ExpertFiles::Together(
        "block_sparse_moe.input_linear.weight",
        "block_sparse_moe.output_linear.weight",
        false,
    ),
    ..USUAL
};

pub(super) const GPT_OSS: Layout = Layout {
    modules: &[("mlp.gate", "mlp.router")],
    experts: ExpertFiles::InTurns("mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
    ..USUAL
};

pub(super) const DEEPSEEK: Layout = Layout {
    modules: &[
        ("mlp.shared_expert.gate_proj", "mlp.shared_experts.gate_proj"),
        ("mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj"),
        ("mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj"),
    ],
    ..USUAL
};

pub(super) const ERNIE_MOE: Layout = Layout {
    modules: &[
        ("mlp.gate.e_score_correction_bias", "mlp.moe_statics.e_score_correction_bias"),
        ("mlp.shared_expert.gate_proj", "mlp.shared_experts.gate_proj"),
        ("mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj"),
        ("mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj"),
    ],
    ..USUAL
};

pub(super) const EXAONE_MOE: Layout = Layout {
    modules: &[
        ("mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias"),
        ("mlp.shared_expert.gate_proj", "mlp.shared_experts.gate_proj"),
        ("mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj"),
        ("mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj"),
    ],
    ..USUAL
};

pub(super) const AFMOE: Layout = Layout {
    modules: &[
        ("mlp.gate", "mlp.router.gate"),
        ("mlp.gate.e_score_correction_bias", "mlp.expert_bias"),
        ("mlp.shared_expert.gate_proj", "mlp.shared_experts.gate_proj"),
        ("mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj"),
        ("mlp.shared_expert.down_proj", "mlp.shared_experts.down_proj"),
    ],
    ..USUAL
};

pub(super) const HUNYUAN_MOE: Layout = Layout {
    modules: &[
        ("self_attn.q_norm", "self_attn.query_layernorm"),
        ("self_attn.k_norm", "self_attn.key_layernorm"),
        ("mlp.gate", "mlp.gate.wg"),
        ("mlp.shared_expert.gate_proj", "mlp.shared_mlp.gate_proj"),
        ("mlp.shared_expert.up_proj", "mlp.shared_mlp.up_proj"),
        ("mlp.shared_expert.down_proj", "mlp.shared_mlp.down_proj"),
    ],
    ..USUAL
};

pub(super) const MINIMAX_M2: Layout = Layout {
    modules: &[
        ("mlp.gate", "block_sparse_moe.gate"),
        ("mlp.gate.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias"),
    ],
    ..MIXTRAL
};

pub(super) const LLAMA4: Layout = Layout {
    modules: &[
        ("mlp.gate", "feed_forward.router"),
        ("mlp.gate_proj", "feed_forward.gate_proj"),
        ("mlp.up_proj", "feed_forward.up_proj"),
        ("mlp.down_proj", "feed_forward.down_proj"),
        ("mlp.shared_expert.gate_proj", "feed_forward.shared_expert.gate_proj"),
        ("mlp.shared_expert.up_proj", "feed_forward.shared_expert.up_proj"),
        ("mlp.shared_expert.down_proj", "feed_forward.shared_expert.down_proj"),
    ],
    experts: ExpertFiles::Together(
        "feed_forward.experts.gate_up_proj",
        "feed_forward.experts.down_proj",
        true,
    ),
    ..USUAL
};

const LFM2_MODULES: &[(&str, &str)] = &[
    ("norm", "embedding_norm"),
    ("input_layernorm", "operator_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.o_proj", "self_attn.out_proj"),
    ("self_attn.q_norm", "self_attn.q_layernorm"),
    ("self_attn.k_norm", "self_attn.k_layernorm"),
    ("mlp.gate_proj", "feed_forward.w1"),
    ("mlp.up_proj", "feed_forward.w3"),
    ("mlp.down_proj", "feed_forward.w2"),
    ("mlp.gate", "feed_forward.gate"),
    ("mlp.gate.e_score_correction_bias", "feed_forward.expert_bias"),
];

pub(super) const LFM2: Layout = Layout { modules: LFM2_MODULES, ..USUAL };

pub(super) const LFM2_MOE: Layout =
    Layout { experts: ExpertFiles::Each("feed_forward.experts.", [".w1", ".w3", ".w2"]), ..LFM2 };

pub(super) const MAMBA: Layout = Layout {
    prefixes: &["backbone.", "model.", ""],
    modules: &[
        ("embed_tokens", "embeddings"),
        ("norm", "norm_f"),
        ("input_layernorm", "norm"),
        ("mamba", "mixer"),
        ("mamba.in_proj", "mixer.in_proj"),
        ("mamba.conv1d", "mixer.conv1d"),
        ("mamba.x_proj", "mixer.x_proj"),
        ("mamba.dt_proj", "mixer.dt_proj"),
        ("mamba.norm", "mixer.norm"),
        ("mamba.out_proj", "mixer.out_proj"),
    ],
    ..USUAL
};

pub(super) const JAMBA: Layout = Layout {
    modules: &[
        ("norm", "final_layernorm"),
        ("mlp.gate", "feed_forward.router"),
        ("mlp.gate_proj", "feed_forward.gate_proj"),
        ("mlp.up_proj", "feed_forward.up_proj"),
        ("mlp.down_proj", "feed_forward.down_proj"),
    ],
    experts: ExpertFiles::Each("feed_forward.experts.", [".gate_proj", ".up_proj", ".down_proj"]),
    ..USUAL
};

pub(super) const BAMBA: Layout = JAMBA;

const SHARED_GATE: &[&str] = &["mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"];

/// What all tokens go through is there without experts too.
pub(super) const GRANITE_HYBRID: Layout = Layout {
    modules: &[
        ("mlp.gate", "block_sparse_moe.router.layer"),
        ("mlp.down_proj", "shared_mlp.output_linear"),
        ("mlp.shared_expert.down_proj", "shared_mlp.output_linear"),
    ],
    fused: &[
        Fused { parts: GATE_UP, published: "shared_mlp.input_linear", fusion: Fusion::Stacked },
        Fused { parts: SHARED_GATE, published: "shared_mlp.input_linear", fusion: Fusion::Stacked },
    ],
    ..GRANITE_MOE
};

/// The same with other names of experts and what chooses among them.
pub(super) const GRANITE_MOE_SWA: Layout = Layout {
    modules: &[
        ("mlp.gate", "block_sparse_moe.router"),
        ("mlp.down_proj", "shared_mlp.output_linear"),
        ("mlp.shared_expert.down_proj", "shared_mlp.output_linear"),
    ],
    experts: ExpertFiles::Together(
        "block_sparse_moe.experts.gate_up_proj",
        "block_sparse_moe.experts.down_proj",
        false,
    ),
    ..GRANITE_HYBRID
};

pub(super) const NEMOTRON_H: Layout = Layout {
    prefixes: &["backbone.", "model.", ""],
    modules: &[
        ("embed_tokens", "embeddings"),
        ("norm", "norm_f"),
        ("input_layernorm", "norm"),
        ("post_attention_layernorm", "norm"),
        ("mamba", "mixer"),
        ("mamba.in_proj", "mixer.in_proj"),
        ("mamba.conv1d", "mixer.conv1d"),
        ("mamba.norm", "mixer.norm"),
        ("mamba.out_proj", "mixer.out_proj"),
        ("self_attn.q_proj", "mixer.q_proj"),
        ("self_attn.k_proj", "mixer.k_proj"),
        ("self_attn.v_proj", "mixer.v_proj"),
        ("self_attn.o_proj", "mixer.o_proj"),
        ("mlp.up_proj", "mixer.up_proj"),
        ("mlp.down_proj", "mixer.down_proj"),
    ],
    ..USUAL
};

/// Queries, and the gates of what attention adds.
const GATED_QUERIES: Fused = Fused {
    parts: &["self_attn.q_proj", "self_attn.gate_proj"],
    published: "self_attn.q_proj",
    fusion: Fusion::ByHead,
};

pub(super) const QWEN3_NEXT: Layout = Layout {
    fused: &[
        GATED_QUERIES,
        Fused {
            parts: &["linear_attn.q_proj", "linear_attn.k_proj", "linear_attn.v_proj", "linear_attn.z_proj"],
            published: "linear_attn.in_proj_qkvz",
            fusion: Fusion::DeltaByHead,
        },
        Fused {
            parts: &["linear_attn.b_proj", "linear_attn.a_proj"],
            published: "linear_attn.in_proj_ba",
            fusion: Fusion::DeltaByHead,
        },
    ],
    ..USUAL
};

pub(super) const QWEN3_5: Layout = Layout {
    modules: &[
        ("linear_attn.z_proj", "linear_attn.in_proj_z"),
        ("linear_attn.b_proj", "linear_attn.in_proj_b"),
        ("linear_attn.a_proj", "linear_attn.in_proj_a"),
    ],
    fused: &[
        GATED_QUERIES,
        Fused {
            parts: &["linear_attn.q_proj", "linear_attn.k_proj", "linear_attn.v_proj"],
            published: "linear_attn.in_proj_qkv",
            fusion: Fusion::Delta,
        },
    ],
    ..USUAL
};

pub(super) const QWEN3_5_MOE: Layout = Layout {
    experts: ExpertFiles::Together("mlp.experts.gate_up_proj", "mlp.experts.down_proj", false),
    ..QWEN3_5
};

pub(super) const RECURRENT_GEMMA: Layout = Layout {
    modules: &[
        ("norm", "final_norm"),
        ("input_layernorm", "temporal_pre_norm"),
        ("self_attn.q_proj", "temporal_block.q_proj"),
        ("self_attn.k_proj", "temporal_block.k_proj"),
        ("self_attn.v_proj", "temporal_block.v_proj"),
        ("self_attn.o_proj", "temporal_block.o_proj"),
        ("recurrent.x_proj", "temporal_block.linear_x"),
        ("recurrent.y_proj", "temporal_block.linear_y"),
        ("recurrent.out_proj", "temporal_block.linear_out"),
        ("recurrent.conv1d", "temporal_block.conv_1d"),
        ("recurrent.rg_lru", "temporal_block.rg_lru"),
        ("mlp.gate_proj", "mlp_block.gate_proj"),
        ("mlp.up_proj", "mlp_block.up_proj"),
        ("mlp.down_proj", "mlp_block.down_proj"),
    ],
    ..USUAL
};
