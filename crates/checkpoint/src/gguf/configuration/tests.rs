//! What files of each family say, in the words of a `config.json`.

use pteron_gguf::{Gguf, Limits, TensorType, Value as Stored, ValueType, Writer};
use pteron_tensor::Bytes;
use serde_json::{Value, json};

use super::Configuration;
use crate::gguf::names::Family;

/// Keys under the architecture's prefix, and vectors of that many zeros or those numbers.
fn read(
    architecture: &str,
    keys: &[(&str, Stored<'_>)],
    lists: &[(&str, ValueType, &[Stored<'_>])],
    tensors: &[(&str, &[usize])],
) -> Result<Value, String> {
    let mut writer = Writer::new();
    let name = |key: &str| format!("{architecture}.{key}");
    for (key, value) in keys {
        writer.put(&name(key), *value).unwrap();
    }
    for (key, ty, values) in lists {
        writer.put_array(&name(key), *ty, values).unwrap();
    }
    let floats = TensorType::from_name("F32").unwrap();
    for (tensor, shape) in tensors {
        let count = shape.iter().product();
        let numbers: Vec<u8> = (0..count).flat_map(|at| (at as f32 + 1.0).to_le_bytes()).collect();
        writer.tensor(tensor, shape, floats, numbers).unwrap();
    }
    let file = Gguf::read(Bytes::copy_of(&writer.finish()), &Limits::default()).unwrap();
    let family = Family::of(architecture).unwrap();
    Configuration::read(&file.into(), architecture, family).map(|configuration| configuration.json)
}

const COMMON: [(&str, Stored<'static>); 6] = [
    ("context_length", Stored::U32(128)),
    ("embedding_length", Stored::U32(32)),
    ("block_count", Stored::U32(4)),
    ("feed_forward_length", Stored::U32(64)),
    ("attention.head_count", Stored::U32(4)),
    ("attention.head_count_kv", Stored::U32(2)),
];

const TENSORS: [(&str, &[usize]); 4] = [
    ("token_embd.weight", &[10, 4]),
    ("blk.0.attn_v.weight", &[1]),
    ("blk.1.attn_v.weight", &[1]),
    ("blk.3.ffn_gate.weight", &[128, 1]),
];

/// The common keys with others.
fn with(others: &[(&'static str, Stored<'static>)]) -> Vec<(&'static str, Stored<'static>)> {
    let is_new = |key: &str| !others.iter().any(|(other, _)| *other == key);
    COMMON.into_iter().filter(|(key, _)| is_new(key)).chain(others.iter().copied()).collect()
}

#[test]
fn a_plain_llama_needs_few_keys() {
    let config = read("llama", &COMMON, &[], &TENSORS).unwrap();
    let want = json!({
        "model_type": "llama", "vocab_size": 10, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 128, "tie_word_embeddings": true, "eos_token_id": [],
        "attention_bias": false, "mlp_bias": false,
    });
    assert_eq!(config, want);
}

#[test]
fn a_window_makes_a_mistral_and_a_head_of_its_own_unties() {
    let keys =
        with(&[("attention.sliding_window", Stored::U32(7)), ("attention.key_length", Stored::U32(16))]);
    let tensors = [&TENSORS[..], &[("output.weight", &[10, 4][..])]].concat();
    let config = read("llama", &keys, &[], &tensors).unwrap();
    assert_eq!(config["model_type"], "mistral");
    assert_eq!((&config["sliding_window"], &config["head_dim"]), (&json!(7), &json!(16)));
    assert_eq!(config["tie_word_embeddings"], false);
}

#[test]
fn rope_is_scaled_by_divisors_or_by_a_factor() {
    let divided = [&TENSORS[..], &[("rope_freqs.weight", &[4][..])]].concat();
    let config = read("llama", &COMMON, &[], &divided).unwrap();
    assert_eq!(config["rope_scaling"], json!({"rope_type": "divisors", "divisors": [1.0, 2.0, 3.0, 4.0]}));
    let factor = ("rope.scaling.factor", Stored::F32(8.0));
    let linear = with(&[("rope.scaling.type", Stored::String(b"linear")), factor]);
    let config = read("qwen2", &linear, &[], &TENSORS).unwrap();
    assert_eq!(config["rope_scaling"], json!({"rope_type": "linear", "factor": 8.0}));
    let yarn = with(&[
        ("rope.scaling.type", Stored::String(b"yarn")),
        factor,
        ("rope.scaling.original_context_length", Stored::U32(32)),
    ]);
    assert_eq!(
        read("qwen2", &yarn, &[], &TENSORS).unwrap()["rope_scaling"],
        json!({"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32})
    );
    let odd = with(&[
        ("rope.scaling.type", Stored::String(b"yarn")),
        ("rope.scaling.yarn_log_multiplier", Stored::F32(0.1)),
    ]);
    assert!(read("qwen2", &odd, &[], &TENSORS).unwrap_err().contains("yarn_log_multiplier"));
    let unknown = with(&[("rope.scaling.type", Stored::String(b"spiral")), factor]);
    let config = read("qwen2", &unknown, &[], &TENSORS).unwrap();
    assert_eq!(config["rope_scaling"], json!({"rope_type": "spiral"}));
    let none = with(&[("rope.scaling.type", Stored::String(b"none")), factor]);
    assert_eq!(read("qwen2", &none, &[], &TENSORS).unwrap().get("rope_scaling"), None);
}

#[test]
fn gemma_3_leaves_much_to_its_readers() {
    let window = ("attention.sliding_window", Stored::U32(512));
    let config = read("gemma3", &with(&[window, ("block_count", Stored::U32(4))]), &[], &TENSORS).unwrap();
    assert_eq!(config["layer_types"], json!(vec!["sliding_attention"; 4]));
    assert_eq!(config["rope_local_base_freq"], 10_000.0);
    assert_eq!(config["query_pre_attn_scalar"], 8);
    let said = [
        window,
        ("attention.sliding_window_pattern", Stored::U32(2)),
        ("rope.freq_base_swa", Stored::F32(5000.0)),
        ("attention.scale", Stored::F32(0.125)),
    ];
    let config = read("gemma3", &with(&said), &[], &TENSORS).unwrap();
    let (slides, full) = ("sliding_attention", "full_attention");
    assert_eq!(config["layer_types"], json!([slides, full, slides, full]));
    assert_eq!(
        (&config["rope_local_base_freq"], &config["query_pre_attn_scalar"]),
        (&json!(5000.0), &json!(64.0))
    );
}

#[test]
fn gemma_4_says_things_by_layer() {
    let keys = with(&[
        ("attention.sliding_window", Stored::U32(8)),
        ("attention.key_length", Stored::U32(16)),
        ("attention.key_length_swa", Stored::U32(8)),
        ("attention.shared_kv_layers", Stored::U32(1)),
        ("rope.freq_base", Stored::F32(1e6)),
    ]);
    let keys: Vec<_> = keys.into_iter().filter(|(key, _)| *key != "attention.head_count_kv").collect();
    let kv_heads = [4, 4, 1, 9].map(Stored::U32);
    let sliding = [true, true, false, true].map(Stored::Bool);
    let lists = [
        ("attention.head_count_kv", ValueType::U32, &kv_heads[..]),
        ("attention.sliding_window_pattern", ValueType::Bool, &sliding[..]),
    ];
    let tensors = [&TENSORS[..], &[("rope_freqs.weight", &[2][..])]].concat();
    let config = read("gemma4", &keys, &lists, &tensors).unwrap();
    let picked = |key: &str| config.get(key).cloned().unwrap_or_default();
    for (key, want) in [
        ("num_key_value_heads", json!(4)),
        ("num_global_key_value_heads", json!(1)),
        ("head_dim", json!(8)),
        ("global_head_dim", json!(16)),
        // The full layer has no values of its own.
        ("attention_k_eq_v", json!(true)),
        ("num_kv_shared_layers", json!(1)),
        // The last layer's gate has twice the rows.
        ("use_double_wide_mlp", json!(true)),
        ("hidden_size_per_layer_input", json!(0)),
        (
            "rope_parameters",
            json!({
                "full_attention": {"rope_type": "divisors", "divisors": [1.0, 2.0], "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            }),
        ),
    ] {
        assert_eq!(picked(key), want, "{key}");
    }
    let error = read("gemma4", &keys, &lists, &TENSORS).unwrap_err();
    assert!(error.contains("rope_freqs"), "{error}");
}

#[test]
fn layers_that_differ_where_they_must_not_are_refused() {
    let keys: Vec<_> = COMMON.into_iter().filter(|(key, _)| *key != "attention.head_count_kv").collect();
    let kv_heads = [4, 4, 1, 4].map(Stored::U32);
    let lists = [("attention.head_count_kv", ValueType::U32, &kv_heads[..])];
    let error = read("llama", &keys, &lists, &TENSORS).unwrap_err();
    assert!(error.contains("head_count_kv") && error.contains("4 in one layer and 1"), "{error}");
    let lists = [("attention.head_count_kv", ValueType::U32, &kv_heads[..2])];
    let error = read("llama", &keys, &lists, &TENSORS).unwrap_err();
    assert!(error.contains("a list of 4 numbers"), "{error}");
}
