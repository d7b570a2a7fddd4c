//! Published models by name: the sizes of their `config.json`, for programs with random weights.

pub mod tiny;

use crate::architectures::{
    Architecture, Gemma3, Gemma4, LayerKind, Llama, PerLayerInputs, Qwen, every_nth_full, family,
};
use crate::blocks::{Activation, Llama3Scaling, RopeScaling, RopeSettings};
use crate::config::{Config, ConfigError};
use serde_json::json;

/// A published model's sizes.
pub struct Shape {
    /// As the command line knows it.
    pub name: &'static str,
    /// In words.
    pub title: &'static str,
    make: fn() -> Result<Box<dyn Architecture>, ConfigError>,
}

impl Shape {
    /// The architecture with these sizes.
    ///
    /// # Errors
    /// None that is known: sizes that are said as a configuration says them are read as one.
    pub fn architecture(&self) -> Result<Box<dyn Architecture>, ConfigError> {
        (self.make)()
    }
}

/// All shapes, small ones first.
pub const SHAPES: [Shape; 12] = [
    Shape { name: "smollm2-135m", title: "SmolLM2 135M", make: || Ok(Box::new(smollm2_135m())) },
    Shape { name: "gemma-3-270m", title: "Gemma 3 270M", make: || Ok(Box::new(gemma3_270m())) },
    Shape { name: "qwen2.5-0.5b", title: "Qwen 2.5 0.5B", make: || Ok(Box::new(qwen2_5_0_5b())) },
    Shape { name: "qwen3-0.6b", title: "Qwen 3 0.6B", make: || Ok(Box::new(qwen3_0_6b())) },
    Shape { name: "gemma-3-1b", title: "Gemma 3 1B", make: || Ok(Box::new(gemma3_1b())) },
    Shape { name: "llama-3.2-1b", title: "Llama 3.2 1B", make: || Ok(Box::new(llama3_2_1b())) },
    Shape { name: "qwen3-moe-3b", title: "Qwen 3 30B-A3B, a tenth of it", make: qwen3_moe_3b },
    Shape { name: "gemma-4-e2b", title: "Gemma 4 E2B", make: || Ok(Box::new(gemma4_e2b())) },
    Shape { name: "gemma-4-e4b", title: "Gemma 4 E4B", make: || Ok(Box::new(gemma4_e4b())) },
    Shape { name: "mistral-7b", title: "Mistral 7B v0.1", make: || Ok(Box::new(mistral_7b())) },
    Shape { name: "llama-3.1-8b", title: "Llama 3.1 8B", make: || Ok(Box::new(llama3_1_8b())) },
    Shape { name: "gemma-4-31b", title: "Gemma 4 31B", make: || Ok(Box::new(gemma4_31b())) },
];

/// The shape of that name.
pub fn find(name: &str) -> Option<&'static Shape> {
    SHAPES.iter().find(|shape| shape.name == name)
}

fn smollm2_135m() -> Llama {
    Llama {
        vocab_size: 49152,
        hidden_size: 576,
        intermediate_size: 1536,
        num_hidden_layers: 30,
        num_attention_heads: 9,
        num_key_value_heads: 3,
        head_dim: 64,
        rms_norm_eps: 1e-5,
        rope: RopeSettings::plain(100_000.0),
        sliding_window: None,
        hidden_act: Activation::Silu,
        attention_bias: false,
        mlp_bias: false,
        max_position_embeddings: 8192,
        tie_word_embeddings: true,
        bos_token_id: Some(1),
        eos_token_id: vec![2],
    }
}

/// How Llama 3.1 and 3.2 stretch wavelengths, but for the factor.
const LLAMA3: Llama3Scaling = Llama3Scaling {
    factor: 8.0,
    low_frequency_factor: 1.0,
    high_frequency_factor: 4.0,
    original_context: 8192,
};

fn llama3_2_1b() -> Llama {
    Llama {
        vocab_size: 128_256,
        hidden_size: 2048,
        intermediate_size: 8192,
        num_hidden_layers: 16,
        num_attention_heads: 32,
        num_key_value_heads: 8,
        head_dim: 64,
        rms_norm_eps: 1e-5,
        rope: RopeSettings {
            theta: 500_000.0,
            scaling: RopeScaling::Llama3(Llama3Scaling { factor: 32.0, ..LLAMA3 }),
        },
        sliding_window: None,
        hidden_act: Activation::Silu,
        attention_bias: false,
        mlp_bias: false,
        max_position_embeddings: 131_072,
        tie_word_embeddings: true,
        bos_token_id: Some(128_000),
        eos_token_id: vec![128_001, 128_008, 128_009],
    }
}

fn llama3_1_8b() -> Llama {
    Llama {
        hidden_size: 4096,
        intermediate_size: 14336,
        num_hidden_layers: 32,
        head_dim: 128,
        rope: RopeSettings { theta: 500_000.0, scaling: RopeScaling::Llama3(LLAMA3) },
        tie_word_embeddings: false,
        ..llama3_2_1b()
    }
}

fn mistral_7b() -> Llama {
    Llama {
        vocab_size: 32_000,
        hidden_size: 4096,
        intermediate_size: 14336,
        num_hidden_layers: 32,
        num_attention_heads: 32,
        num_key_value_heads: 8,
        head_dim: 128,
        rms_norm_eps: 1e-5,
        rope: RopeSettings::plain(10_000.0),
        sliding_window: Some(4096),
        hidden_act: Activation::Silu,
        attention_bias: false,
        mlp_bias: false,
        max_position_embeddings: 32_768,
        tie_word_embeddings: false,
        bos_token_id: Some(1),
        eos_token_id: vec![2],
    }
}

fn qwen2_5_0_5b() -> Qwen {
    Qwen {
        head_norms: false,
        vocab_size: 151_936,
        hidden_size: 896,
        intermediate_size: 4864,
        num_attention_heads: 14,
        num_key_value_heads: 2,
        head_dim: 64,
        rms_norm_eps: 1e-6,
        rope: RopeSettings::plain(1_000_000.0),
        sliding_window: None,
        layer_types: vec![LayerKind::Full; 24],
        hidden_act: Activation::Silu,
        attention_bias: false,
        max_position_embeddings: 32_768,
        tie_word_embeddings: true,
        bos_token_id: None,
        eos_token_id: vec![151_645, 151_643],
    }
}

fn qwen3_0_6b() -> Qwen {
    Qwen {
        head_norms: true,
        hidden_size: 1024,
        intermediate_size: 3072,
        layer_types: vec![LayerKind::Full; 28],
        num_attention_heads: 16,
        num_key_value_heads: 8,
        head_dim: 128,
        max_position_embeddings: 40_960,
        ..qwen2_5_0_5b()
    }
}

/// Of Qwen 3 30B-A3B every sixth layer and half of the experts: what a token meets of a layer is as in the original.
fn qwen3_moe_3b() -> Result<Box<dyn Architecture>, ConfigError> {
    let config = Config::new(json!({
        "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 8,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0, "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "norm_topk_prob": true, "max_position_embeddings": 40_960, "tie_word_embeddings": false,
        "bos_token_id": 151_643, "eos_token_id": [151_645, 151_643],
    }))?;
    let family = family("qwen3_moe").ok_or_else(|| ConfigError("there is no such family".into()))?;
    family.read(&config)
}

fn gemma3_270m() -> Gemma3 {
    Gemma3 {
        vocab_size: 262_144,
        hidden_size: 640,
        intermediate_size: 2048,
        num_attention_heads: 4,
        num_key_value_heads: 1,
        head_dim: 256,
        query_pre_attn_scalar: 256.0,
        rms_norm_eps: 1e-6,
        rope: RopeSettings::plain(1_000_000.0),
        local_rope: RopeSettings::plain(10_000.0),
        sliding_window: 512,
        layer_types: every_nth_full(18, 6),
        hidden_activation: Activation::GeluTanh,
        attention_bias: false,
        final_logit_softcapping: None,
        max_position_embeddings: 32_768,
        tie_word_embeddings: true,
        bos_token_id: Some(2),
        eos_token_id: vec![1, 106],
    }
}

fn gemma3_1b() -> Gemma3 {
    Gemma3 { hidden_size: 1152, intermediate_size: 6912, layer_types: every_nth_full(26, 6), ..gemma3_270m() }
}

fn gemma4_e2b() -> Gemma4 {
    Gemma4 {
        vocab_size: 262_144,
        hidden_size: 1536,
        intermediate_size: 6144,
        num_attention_heads: 8,
        num_key_value_heads: 1,
        num_global_key_value_heads: 1,
        head_dim: 256,
        global_head_dim: 512,
        attention_k_eq_v: false,
        rms_norm_eps: 1e-6,
        local_rope: RopeSettings::plain(10_000.0),
        rope: RopeSettings {
            theta: 1_000_000.0,
            scaling: RopeScaling::Proportional { part: 0.25, factor: 1.0 },
        },
        sliding_window: 512,
        layer_types: every_nth_full(35, 5),
        num_kv_shared_layers: 20,
        use_double_wide_mlp: true,
        per_layer_inputs: Some(PerLayerInputs { vocab_size: 262_144, size: 256 }),
        hidden_activation: Activation::GeluTanh,
        attention_bias: false,
        final_logit_softcapping: Some(30.0),
        max_position_embeddings: 131_072,
        tie_word_embeddings: true,
        bos_token_id: Some(2),
        eos_token_id: vec![1, 106],
        pad_token_id: 0,
    }
}

fn gemma4_e4b() -> Gemma4 {
    Gemma4 {
        hidden_size: 2560,
        intermediate_size: 10_240,
        num_key_value_heads: 2,
        num_global_key_value_heads: 2,
        layer_types: every_nth_full(42, 6),
        num_kv_shared_layers: 18,
        use_double_wide_mlp: false,
        ..gemma4_e2b()
    }
}

fn gemma4_31b() -> Gemma4 {
    Gemma4 {
        hidden_size: 5376,
        intermediate_size: 21_504,
        num_attention_heads: 32,
        num_key_value_heads: 16,
        num_global_key_value_heads: 4,
        attention_k_eq_v: true,
        sliding_window: 1024,
        layer_types: every_nth_full(60, 6),
        num_kv_shared_layers: 0,
        use_double_wide_mlp: false,
        per_layer_inputs: None,
        ..gemma4_e2b()
    }
}
