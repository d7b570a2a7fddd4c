//! The architectures that are read, a row each: how llama.cpp calls and changes their tensors, and which keys of theirs say
//! what a `config.json` says.

use serde_json::{Map, Value};

use super::configuration::Keys;

/// What files of one architecture have.
#[derive(Debug)]
pub(super) struct Row {
    /// `general.architecture`.
    pub(super) name: &'static str,
    /// The family as published files name it, where files say no more.
    pub(super) model_type: &'static str,
    /// Modules of a layer beside those of attention and of a plain feed-forward network: as graphs know them, in files.
    pub(super) modules: &'static [&'static [Named]],
    /// The same outside of layers, beside the embedding, the last norm and the head.
    pub(super) top: &'static [Named],
    /// Modules in files that may have biases.
    pub(super) biased: &'static [&'static str],
    /// Whether the output of attention has a switch of its own for its bias.
    pub(super) own_output_switch: bool,
    /// Modules that lie one behind another in one tensor.
    pub(super) fused: &'static [Fused],
    /// Whether rows of queries and keys lie in neighbouring pairs.
    pub(super) pairs_rows: bool,
    /// Whether norms have 1 added.
    pub(super) adds_one: bool,
    /// Numbers: the key in files, and the one of the configuration.
    pub(super) numbers: &'static [Named],
    /// Other keys that are read, or that say what is done anyway.
    pub(super) read: &'static [&'static str],
    /// Whether a part of a head may turn, and the rest not.
    pub(super) turns_a_part: bool,
    /// What only the files of this architecture say, or leave to their readers.
    pub(super) finish: Finish,
}

/// Two names of one thing.
pub(super) type Named = (&'static str, &'static str);

/// Sets keys of a configuration by what a file says.
pub(super) type Finish = fn(&Keys<'_>, &mut Map<String, Value>) -> Result<(), String>;

/// Modules that lie one behind another in one tensor.
#[derive(Debug)]
pub(super) struct Fused {
    /// As graphs know them.
    pub(super) parts: &'static [&'static str],
    /// In files.
    pub(super) stored: &'static str,
}

const TWO_NORMS: &[Named] = &[("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm")];
const FOUR_NORMS: &[Named] = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];
/// Norms of what attention and the feed-forward network give, and none before.
const NORMS_AFTER: &[Named] =
    &[("post_attention_layernorm", "post_attention_norm"), ("post_feedforward_layernorm", "post_ffw_norm")];
/// Two, of which the second is named for its place.
const NAMED_BY_PLACE: &[Named] =
    &[("input_layernorm", "attn_norm"), ("post_attention_layernorm", "post_attention_norm")];
const GLM_NORMS: &[Named] = &[
    ("post_self_attn_layernorm", "post_attention_norm"),
    ("post_mlp_layernorm", "post_ffw_norm"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
];
const HEAD_NORMS: &[Named] = &[("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm")];
const EXPERTS: &[Named] = &[
    ("mlp.gate", "ffn_gate_inp"),
    ("mlp.experts.gate_proj", "ffn_gate_exps"),
    ("mlp.experts.up_proj", "ffn_up_exps"),
    ("mlp.experts.down_proj", "ffn_down_exps"),
];
const SHARED_EXPERT: &[Named] = &[
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
];

const QKV: &[&str] = &["attn_q", "attn_k", "attn_v"];
const ATTENTION: &[&str] = &["attn_q", "attn_k", "attn_v", "attn_output"];
const ATTENTION_AND_MLP: &[&str] =
    &["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
const OF_EXPERTS: &[&str] = &["expert_count", "expert_used_count", "expert_feed_forward_length"];
const GATE_AND_UP: Fused = Fused { parts: &["mlp.gate_proj", "mlp.up_proj"], stored: "ffn_up" };
const LAYER_NORM_EPS: Named = ("attention.layer_norm_epsilon", "layer_norm_eps");

/// Files of plain Llamas, but for how they order rows.
const PLAIN: Row = Row {
    name: "",
    model_type: "",
    modules: &[TWO_NORMS],
    top: &[],
    biased: &[],
    own_output_switch: false,
    fused: &[],
    pairs_rows: false,
    adds_one: false,
    numbers: &[],
    read: &[],
    turns_a_part: false,
    finish: |_, _| Ok(()),
};

const GRANITE: Row = Row {
    name: "granite",
    model_type: "granite",
    biased: ATTENTION_AND_MLP,
    pairs_rows: true,
    numbers: &[
        ("attention.scale", "attention_multiplier"),
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("logit_scale", "logits_scaling"),
    ],
    finish: |keys, config| {
        keys.set_biases(config, "attention_bias", "mlp_bias");
        Ok(())
    },
    ..PLAIN
};

/// All of them.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "llama",
        model_type: "llama",
        modules: &[TWO_NORMS, EXPERTS],
        biased: ATTENTION_AND_MLP,
        pairs_rows: true,
        read: &["attention.sliding_window", "expert_count", "expert_used_count"],
        finish: |keys, config| keys.llama(config),
        ..PLAIN
    },
    Row { name: "qwen2", model_type: "qwen2", biased: QKV, ..PLAIN },
    Row { name: "qwen3", model_type: "qwen3", modules: &[TWO_NORMS, HEAD_NORMS], ..PLAIN },
    Row {
        name: "qwen2moe",
        model_type: "qwen2_moe",
        modules: &[TWO_NORMS, EXPERTS, SHARED_EXPERT],
        biased: QKV,
        read: &[
            "expert_count",
            "expert_used_count",
            "expert_feed_forward_length",
            "expert_shared_feed_forward_length",
        ],
        finish: |keys, config| keys.experts(config),
        ..PLAIN
    },
    Row {
        name: "qwen3moe",
        model_type: "qwen3_moe",
        modules: &[TWO_NORMS, HEAD_NORMS, EXPERTS],
        read: OF_EXPERTS,
        finish: |keys, config| {
            config.insert("norm_topk_prob".into(), true.into());
            keys.experts(config)
        },
        ..PLAIN
    },
    Row { name: "gemma", model_type: "gemma", adds_one: true, ..PLAIN },
    Row {
        name: "gemma2",
        model_type: "gemma2",
        modules: &[FOUR_NORMS],
        adds_one: true,
        numbers: &[
            ("attn_logit_softcapping", "attn_logit_softcapping"),
            ("final_logit_softcapping", "final_logit_softcapping"),
        ],
        read: &["attention.sliding_window", "attention.scale"],
        finish: |keys, config| keys.gemma2(config),
        ..PLAIN
    },
    Row {
        name: "gemma3",
        model_type: "gemma3_text",
        modules: &[FOUR_NORMS, HEAD_NORMS],
        adds_one: true,
        numbers: &[("final_logit_softcapping", "final_logit_softcapping")],
        read: &[
            "attention.scale",
            "attention.sliding_window",
            "attention.sliding_window_pattern",
            "rope.freq_base_swa",
        ],
        finish: |keys, config| keys.gemma3(config),
        ..PLAIN
    },
    Row {
        name: "gemma4",
        model_type: "gemma4_text",
        modules: &[
            FOUR_NORMS,
            HEAD_NORMS,
            &[
                ("layer_scalar", "layer_output_scale"),
                ("per_layer_input_gate", "inp_gate"),
                ("per_layer_projection", "proj"),
                ("post_per_layer_input_norm", "post_norm"),
            ],
        ],
        top: &[
            ("embed_tokens_per_layer", "per_layer_token_embd"),
            ("per_layer_model_projection", "per_layer_model_proj"),
            ("per_layer_projection_norm", "per_layer_proj_norm"),
        ],
        numbers: &[("final_logit_softcapping", "final_logit_softcapping")],
        read: &[
            "attention.key_length_swa",
            "attention.shared_kv_layers",
            "attention.sliding_window",
            "attention.sliding_window_pattern",
            "attention.value_length_swa",
            "embedding_length_per_layer_input",
            "rope.dimension_count_swa",
            "rope.freq_base_swa",
        ],
        finish: |keys, config| keys.gemma4(config),
        ..PLAIN
    },
    Row {
        name: "phi3",
        model_type: "phi3",
        fused: &[
            Fused {
                parts: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
                stored: "attn_qkv",
            },
            GATE_AND_UP,
        ],
        read: &["attention.sliding_window", "rope.scaling.attn_factor"],
        turns_a_part: true,
        finish: |keys, config| keys.phi3(config),
        ..PLAIN
    },
    Row {
        name: "olmo2",
        model_type: "olmo2",
        modules: &[NORMS_AFTER, HEAD_NORMS],
        biased: ATTENTION,
        read: &["attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa"],
        finish: |keys, config| keys.olmo2(config),
        ..PLAIN
    },
    Row {
        name: "olmoe",
        model_type: "olmoe",
        modules: &[TWO_NORMS, HEAD_NORMS, EXPERTS],
        read: OF_EXPERTS,
        finish: |keys, config| keys.experts(config),
        ..PLAIN
    },
    GRANITE,
    Row {
        name: "granitemoe",
        model_type: "granitemoe",
        modules: &[TWO_NORMS, EXPERTS],
        biased: ATTENTION,
        read: OF_EXPERTS,
        finish: |keys, config| {
            keys.set_biases(config, "attention_bias", "mlp_bias");
            keys.experts(config)
        },
        ..GRANITE
    },
    Row { name: "smollm3", model_type: "smollm3", pairs_rows: true, ..PLAIN },
    Row {
        name: "arcee",
        model_type: "arcee",
        biased: ATTENTION_AND_MLP,
        pairs_rows: true,
        finish: |keys, config| {
            keys.set_biases(config, "attention_bias", "mlp_bias");
            Ok(())
        },
        ..PLAIN
    },
    Row {
        name: "glm4",
        model_type: "glm4",
        modules: &[GLM_NORMS],
        biased: QKV,
        fused: &[GATE_AND_UP],
        turns_a_part: true,
        finish: |keys, config| {
            config.insert("attention_bias".into(), keys.has("blk.0.attn_q.bias").into());
            Ok(())
        },
        ..PLAIN
    },
    Row {
        name: "starcoder2",
        model_type: "starcoder2",
        biased: &["attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"],
        numbers: &[("attention.layer_norm_epsilon", "norm_epsilon")],
        finish: |keys, config| {
            config.insert("use_bias".into(), keys.has("blk.0.attn_output.bias").into());
            Ok(())
        },
        ..PLAIN
    },
    Row {
        name: "stablelm",
        model_type: "stablelm",
        biased: &["attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v"],
        numbers: &[LAYER_NORM_EPS],
        read: &["use_parallel_residual"],
        turns_a_part: true,
        finish: |keys, config| {
            config.insert("use_qkv_bias".into(), keys.has("blk.0.attn_q.bias").into());
            config.insert("use_parallel_residual".into(), keys.flag("use_parallel_residual").into());
            Ok(())
        },
        ..PLAIN
    },
    Row {
        name: "command-r",
        model_type: "cohere",
        modules: &[&[("input_layernorm", "attn_norm")], HEAD_NORMS],
        numbers: &[LAYER_NORM_EPS, ("logit_scale", "logit_scale")],
        finish: |keys, config| {
            config.insert("use_qk_norm".into(), keys.has("blk.0.attn_q_norm.weight").into());
            Ok(())
        },
        ..PLAIN
    },
    Row {
        name: "nemotron",
        model_type: "nemotron",
        biased: &["attn_norm", "ffn_norm"],
        adds_one: true,
        numbers: &[("attention.layer_norm_epsilon", "norm_eps")],
        turns_a_part: true,
        ..PLAIN
    },
    Row {
        name: "exaone4",
        model_type: "exaone4",
        modules: &[NORMS_AFTER, HEAD_NORMS],
        read: &["attention.sliding_window", "attention.sliding_window_pattern"],
        finish: |keys, config| keys.exaone4(config),
        ..PLAIN
    },
    Row {
        name: "ernie4_5",
        model_type: "ernie4_5",
        biased: ATTENTION_AND_MLP,
        finish: |keys, config| {
            config.insert("use_bias".into(), keys.has("blk.0.attn_q.bias").into());
            Ok(())
        },
        ..PLAIN
    },
    Row {
        name: "seed_oss",
        model_type: "seed_oss",
        modules: &[NAMED_BY_PLACE],
        biased: ATTENTION,
        own_output_switch: true,
        finish: |keys, config| {
            config.insert("attention_bias".into(), keys.has("blk.0.attn_q.bias").into());
            config.insert("attention_out_bias".into(), keys.has("blk.0.attn_output.bias").into());
            Ok(())
        },
        ..PLAIN
    },
    Row {
        name: "gpt-oss",
        model_type: "gpt_oss",
        modules: &[NAMED_BY_PLACE, EXPERTS, &[("self_attn.sinks", "attn_sinks")]],
        biased: &[
            "attn_q",
            "attn_k",
            "attn_v",
            "attn_output",
            "ffn_gate_inp",
            "ffn_gate_exps",
            "ffn_up_exps",
            "ffn_down_exps",
        ],
        read: &[
            "attention.sliding_window",
            "expert_count",
            "expert_used_count",
            "expert_feed_forward_length",
        ],
        finish: |keys, config| keys.gpt_oss(config),
        ..PLAIN
    },
];
