//! Published configurations, read with the defaults of their families.

use super::{Gemma3, Gemma4, LayerKind, Llama, PerLayerInputs, Qwen, every_nth_full};
use crate::blocks::{Activation, Llama3Scaling, RopeScaling, RopeSettings};
use crate::{Config, ConfigError};
use serde_json::{Value, json};

fn config(file: Value) -> Config {
    Config::new(file).unwrap()
}

#[test]
fn gemma_3_files_leave_out_nearly_everything() {
    let gemma = Gemma3::read(&config(json!({
        "model_type": "gemma3", "eos_token_id": [1, 106],
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 34, "sliding_window": 1024, "rope_scaling": {"rope_type": "linear", "factor": 8.0}
        }
    })))
    .unwrap();
    assert_eq!((gemma.num_attention_heads, gemma.num_key_value_heads, gemma.head_dim), (8, 4, 256));
    assert_eq!((gemma.vocab_size, gemma.query_pre_attn_scalar), (262_208, 256.0));
    assert_eq!(gemma.rope, RopeSettings { theta: 1_000_000.0, scaling: RopeScaling::Linear(8.0) });
    assert_eq!(gemma.local_rope, RopeSettings::plain(10_000.0));
    assert_eq!(gemma.layer_types, every_nth_full(34, 6));
    assert_eq!((gemma.bos_token_id, gemma.eos_token_id), (Some(2), vec![1, 106]));
    assert!(gemma.tie_word_embeddings && gemma.hidden_activation == Activation::GeluTanh);
}

#[test]
fn gemma_3_has_two_spellings_of_rope() {
    let by_kind = json!({"rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}});
    let by_key = json!({"rope_theta": 5e5, "rope_local_base_freq": 2e4,
        "rope_scaling": {"type": "linear", "factor": 8.0}});
    assert_eq!(Gemma3::read(&config(by_kind)).unwrap(), Gemma3::read(&config(by_key)).unwrap());
}

#[test]
fn gemma_4_has_two_spellings_of_its_full_layers() {
    let kinds = json!(["sliding_attention", "full_attention"]);
    let by_key = json!({"num_hidden_layers": 2, "layer_types": kinds, "head_dim": 16, "global_head_dim": 32,
        "num_key_value_heads": 4, "num_global_key_value_heads": 1, "attention_k_eq_v": true});
    let by_layer = json!({"num_hidden_layers": 2, "layer_types": kinds, "head_dim": 16, "num_key_value_heads": 4,
        "attention_k_eq_v": true, "per_layer_config": {"1": {"head_dim": 32, "num_key_value_heads": 1}}});
    let wanted = Gemma4::read(&config(by_key.clone())).unwrap();
    assert_eq!((wanted.global_head_dim, wanted.num_global_key_value_heads), (32, 1));
    assert_eq!(wanted.rope.scaling, RopeScaling::Proportional { part: 0.25, factor: 1.0 });
    assert_eq!(wanted.per_layer_inputs, Some(PerLayerInputs { vocab_size: 262_144, size: 256 }));
    assert_eq!(Gemma4::read(&config(by_layer)).unwrap(), wanted);
    // Heads of full layers are counted apart only where values are keys.
    let mut plain = by_key.clone();
    plain["attention_k_eq_v"] = json!(false);
    assert_eq!(Gemma4::read(&config(plain)).unwrap().num_global_key_value_heads, 4);
    for off in [json!(0), json!(null)] {
        let mut without = by_key.clone();
        without["hidden_size_per_layer_input"] = off;
        assert_eq!(Gemma4::read(&config(without)).unwrap().per_layer_inputs, None);
    }
}

#[test]
fn gemma_4_ends_with_a_full_layer() {
    let kinds = json!(["full_attention", "sliding_attention"]);
    let gemma = Gemma4::read(&config(json!({"num_hidden_layers": 2, "layer_types": kinds}))).unwrap();
    assert_eq!(gemma.layer_types, [LayerKind::Full, LayerKind::Full]);
}

#[test]
fn mistral_slides_unless_it_says_null() {
    let window = |file: Value| Llama::read_mistral(&config(file)).unwrap().sliding_window;
    assert_eq!(window(json!({"sliding_window": 8})), Some(8));
    assert_eq!(window(json!({"sliding_window": null})), None);
    assert_eq!(window(json!({})), Some(4096));
    assert_eq!(Llama::read(&config(json!({"sliding_window": 8}))).unwrap().sliding_window, None);
}

#[test]
fn qwen_2_slides_only_where_it_is_told_to() {
    let read = |file: Value| {
        let qwen = Qwen::read(&config(file), false).unwrap();
        let sliding = qwen.layer_types.iter().filter(|kind| **kind == LayerKind::Sliding).count();
        (qwen.sliding_window, sliding)
    };
    let off = json!({"num_hidden_layers": 4, "sliding_window": 8, "max_window_layers": 1});
    assert_eq!(read(off.clone()), (None, 0));
    let mut on = off;
    on["use_sliding_window"] = json!(true);
    assert_eq!(read(on.clone()), (Some(8), 3));
    on["layer_types"] = json!(["full_attention", "full_attention", "sliding_attention", "full_attention"]);
    assert_eq!(read(on), (Some(8), 1));
}

#[test]
fn llama_3_scaling_is_read_in_both_spellings() {
    let scaling = json!({"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_theta": 5e5});
    let stretched = RopeScaling::Llama3(Llama3Scaling {
        factor: 32.0,
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
        original_context: 8192,
    });
    for file in [json!({"rope_parameters": scaling}), json!({"rope_theta": 5e5, "rope_scaling": scaling})] {
        let llama = Llama::read(&config(file)).unwrap();
        assert_eq!(llama.rope, RopeSettings { theta: 500_000.0, scaling: stretched.clone() });
    }
}

#[test]
fn what_is_not_built_is_refused() {
    let gemma4 = |file: Value| Gemma4::read(&config(file)).unwrap_err();
    let llama = |file: Value| Llama::read(&config(file)).unwrap_err();
    let qwen = |file: Value| Qwen::read(&config(file), false).unwrap_err();
    let gemma3 = |file: Value| Gemma3::read(&config(file)).unwrap_err();
    let slides = json!(["sliding_attention", "full_attention"]);
    let cases: [(ConfigError, &str); 13] = [
        (qwen(json!({"num_hidden_layers": 2, "layer_types": slides})), "`use_sliding_window` switches"),
        (gemma3(json!({"sliding_window": null})), "`sliding_window` is null"),
        (gemma4(json!({"num_hidden_layers": 2, "num_kv_shared_layers": 2})), "leaves none with keys"),
        (llama(json!({"hidden_act": "prelu"})), "known are silu, swish"),
        (gemma4(json!({"enable_moe_block": true})), "`enable_moe_block` is true"),
        (gemma4(json!({"use_bidirectional_attention": "all"})), "use_bidirectional_attention"),
        (gemma4(json!({"per_layer_config": {"0": {"head_dim": 8}}})), "makes layer 0 unlike"),
        (gemma4(json!({"num_hidden_layers": 3, "layer_types": ["full_attention"]})), "kinds of 3 layers"),
        (llama(json!({"num_hidden_layers": 1_000_000})), "at most 16384 are built"),
        (llama(json!({"rope_scaling": {"rope_type": "llama3"}})), "lack `factor`"),
        (llama(json!({"rope_scaling": {"type": "linear", "factor": 0}})), "not a positive number"),
        (
            llama(json!({"rope_scaling": {"type": "linear", "factor": 2, "partial_rotary_factor": 0.5}})),
            "`partial_rotary_factor` is 0.5",
        ),
        (llama(json!({"tie_word_embeddings": "yes"})), "neither true nor false"),
    ];
    for (error, message) in cases {
        assert!(error.to_string().contains(message), "{error} should say {message:?}");
    }
}
