//! Models of a few thousand weights, for tests: one an architecture, with everything in it that the family has.

use crate::architectures::{Gemma3, Gemma4, LayerKind, Llama, PerLayerInputs, Qwen, every_nth_full};
use crate::blocks::{Activation, RopeScaling, RopeSettings};

const VOCAB: usize = 40;
const HIDDEN: usize = 32;

/// Heads wider than their share of the hidden features, a tied head.
pub fn llama() -> Llama {
    Llama {
        vocab_size: VOCAB,
        hidden_size: HIDDEN,
        intermediate_size: 64,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 16,
        rms_norm_eps: 1e-5,
        rope: RopeSettings::plain(10_000.0),
        sliding_window: None,
        hidden_act: Activation::Silu,
        attention_bias: false,
        mlp_bias: false,
        max_position_embeddings: 64,
        tie_word_embeddings: true,
        bos_token_id: Some(1),
        eos_token_id: vec![2, 3],
    }
}

/// Qwen 3 has norms by head, Qwen 2 has not; all layers but the first slide.
pub fn qwen(head_norms: bool) -> Qwen {
    Qwen {
        head_norms,
        vocab_size: VOCAB,
        hidden_size: HIDDEN,
        intermediate_size: 64,
        num_attention_heads: 4,
        num_key_value_heads: 1,
        head_dim: 8,
        rms_norm_eps: 1e-6,
        rope: RopeSettings::plain(1_000_000.0),
        sliding_window: Some(5),
        layer_types: vec![LayerKind::Full, LayerKind::Sliding, LayerKind::Sliding],
        hidden_act: Activation::Silu,
        attention_bias: false,
        max_position_embeddings: 64,
        tie_word_embeddings: false,
        bos_token_id: None,
        eos_token_id: vec![2],
    }
}

/// Every third layer full, positions stretched there, a soft cap.
pub fn gemma3() -> Gemma3 {
    Gemma3 {
        vocab_size: VOCAB,
        hidden_size: HIDDEN,
        intermediate_size: 64,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 16,
        query_pre_attn_scalar: 20.0,
        rms_norm_eps: 1e-6,
        rope: RopeSettings { theta: 1_000_000.0, scaling: RopeScaling::Linear(8.0) },
        local_rope: RopeSettings::plain(10_000.0),
        sliding_window: 6,
        layer_types: every_nth_full(4, 3),
        hidden_activation: Activation::GeluTanh,
        attention_bias: false,
        final_logit_softcapping: Some(5.0),
        max_position_embeddings: 64,
        tie_word_embeddings: true,
        bos_token_id: Some(2),
        eos_token_id: vec![1],
    }
}

/// As 31B: values that are keys on full layers.
pub fn gemma4() -> Gemma4 {
    Gemma4 {
        vocab_size: VOCAB,
        hidden_size: HIDDEN,
        intermediate_size: 64,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        num_global_key_value_heads: 1,
        head_dim: 16,
        global_head_dim: 32,
        attention_k_eq_v: true,
        rms_norm_eps: 1e-6,
        local_rope: RopeSettings::plain(10_000.0),
        rope: RopeSettings {
            theta: 1_000_000.0,
            scaling: RopeScaling::Proportional { part: 0.25, factor: 1.0 },
        },
        sliding_window: 6,
        layer_types: every_nth_full(6, 3),
        num_kv_shared_layers: 0,
        use_double_wide_mlp: false,
        per_layer_inputs: None,
        hidden_activation: Activation::GeluTanh,
        attention_bias: false,
        final_logit_softcapping: Some(30.0),
        max_position_embeddings: 64,
        tie_word_embeddings: true,
        bos_token_id: Some(2),
        eos_token_id: vec![1],
        pad_token_id: 0,
    }
}

/// As E2B: per-layer embeddings, layers that share keys and values.
pub fn gemma4_small() -> Gemma4 {
    Gemma4 {
        attention_k_eq_v: false,
        num_kv_shared_layers: 3,
        use_double_wide_mlp: true,
        per_layer_inputs: Some(PerLayerInputs { vocab_size: VOCAB, size: 32 }),
        ..gemma4()
    }
}
