//! Published configurations, read with the defaults of their families.

use super::{Decoder, Feed, Gemma4, LayerKind, Mixing, PerLayerInputs, ROWS, every_nth_full};
use crate::blocks::{Activation, Heads, Llama3Scaling, MlpKind, RopeScaling, RopeSettings};
use crate::{Config, ConfigError};
use serde_json::{Value, json};

fn config(file: Value) -> Config {
    Config::new(file).unwrap()
}

fn read(family: &str, file: Value) -> Result<Decoder, ConfigError> {
    ROWS.iter().find(|row| row.names[0] == family).unwrap().read(&config(file))
}

fn heads(decoder: &Decoder) -> Vec<Heads> {
    let of = |layer: &super::Layer| match layer.mixing {
        Mixing::Heads(heads, _) => heads,
        _ => panic!("no heads"),
    };
    decoder.layers.iter().map(of).collect()
}

fn mlp(decoder: &Decoder) -> MlpKind {
    match decoder.layers[0].feed {
        Feed::Mlp(kind) => kind,
        _ => panic!("no single network"),
    }
}

/// Layers that slide.
fn sliding(decoder: &Decoder) -> Vec<LayerKind> {
    let kind = |heads: &Heads| if heads.window.is_some() { LayerKind::Sliding } else { LayerKind::Full };
    heads(decoder).iter().map(kind).collect()
}

#[test]
fn no_two_families_have_a_name_in_common() {
    let mut names: Vec<&str> = super::families().flat_map(|family| family.names.iter().copied()).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn every_family_has_a_model_where_a_file_says_nothing() {
    for row in ROWS {
        // What a family's own code has no default for.
        let file = json!({"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_routed_experts": 8, "n_shared_experts": 1});
        let decoder = match row.read(&config(file)) {
            // Which layers it has, only a file can say.
            Err(error) if row.names[0] == "nemotron_h" => {
                assert!(error.to_string().contains("layers_block_type"), "{error}");
                continue;
            }
            read => read.unwrap_or_else(|error| panic!("{}: {error}", row.names[0])),
        };
        assert!(!decoder.layers.is_empty() && decoder.max_position_embeddings > 0, "{}", row.names[0]);
    }
}

#[test]
fn gemma_3_files_leave_out_nearly_everything() {
    let file = json!({
        "model_type": "gemma3", "eos_token_id": [1, 106],
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 34, "sliding_window": 1024, "rope_scaling": {"rope_type": "linear", "factor": 8.0}
        }
    });
    let gemma = read("gemma3_text", file).unwrap();
    let first = heads(&gemma)[0];
    assert_eq!((first.heads, first.kv_heads, first.head_dim, first.window), (8, 4, 256, Some(1024)));
    assert_eq!((gemma.vocab_size, first.scale), (262_208, 1.0 / 16.0));
    let settings: Vec<RopeSettings> = gemma.ropes.iter().map(|rope| rope.settings.clone()).collect();
    let full = RopeSettings { theta: 1_000_000.0, scaling: RopeScaling::Linear(8.0) };
    assert_eq!(settings, [RopeSettings::plain(10_000.0), full]);
    assert_eq!(sliding(&gemma), every_nth_full(34, 6));
    assert_eq!((gemma.bos_token_id, &gemma.eos_token_id), (Some(2), &vec![1, 106]));
    assert!(gemma.head.tied && mlp(&gemma).activation == Activation::GeluTanh);
}

#[test]
fn gemma_3_has_two_spellings_of_rope() {
    let by_kind = json!({"rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}});
    let by_key = json!({"rope_theta": 5e5, "rope_local_base_freq": 2e4,
        "rope_scaling": {"type": "linear", "factor": 8.0}});
    assert_eq!(read("gemma3_text", by_kind).unwrap(), read("gemma3_text", by_key).unwrap());
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
    let window = |file: Value| heads(&read("mistral", file).unwrap())[0].window;
    assert_eq!(window(json!({"sliding_window": 8})), Some(8));
    assert_eq!(window(json!({"sliding_window": null})), None);
    assert_eq!(window(json!({})), Some(4096));
    assert_eq!(heads(&read("llama", json!({"sliding_window": 8})).unwrap())[0].window, None);
}

#[test]
fn qwen_2_slides_only_where_it_is_told_to() {
    let read = |file: Value| {
        let heads = heads(&read("qwen2", file).unwrap());
        let windows: Vec<usize> = heads.iter().filter_map(|heads| heads.window).collect();
        (windows.first().copied(), windows.len())
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
        let llama = read("llama", file).unwrap();
        let wanted = RopeSettings { theta: 500_000.0, scaling: stretched.clone() };
        assert_eq!(llama.ropes[0].settings, wanted);
    }
}

#[test]
fn what_is_not_built_is_refused() {
    let gemma4 = |file: Value| Gemma4::read(&config(file)).unwrap_err();
    let [llama, qwen, gemma3] =
        ["llama", "qwen2", "gemma3_text"].map(|family| move |file: Value| read(family, file).unwrap_err());
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

#[test]
fn settings_of_a_family_that_are_not_built_are_refused_by_name() {
    let slides = json!(["sliding_attention", "full_attention"]);
    let cases = [
        ("smollm3", json!({"use_sliding_window": true}), "`use_sliding_window` is true"),
        ("smollm3", json!({"num_hidden_layers": 2, "layer_types": slides}), "names layers that slide"),
        ("qwen3_moe", json!({"use_sliding_window": true}), "`use_sliding_window` is true"),
        ("gemma", json!({"use_bidirectional_attention": true}), "use_bidirectional_attention"),
        ("bloom", json!({"apply_residual_connection_post_layernorm": true}), "post_layernorm` is true"),
        ("gpt2", json!({"add_cross_attention": true}), "`add_cross_attention` is true"),
        ("gptj", json!({"rotary_dim": null}), "`rotary_dim` is null"),
        (
            "gptj",
            json!({"n_embd": 32, "n_head": 4, "rotary_dim": 64}),
            "`rotary_dim` is 64 where heads have 8",
        ),
        ("gpt_neo", json!({"num_layers": 3}), "does not name 3 layers"),
        (
            "gpt_neo",
            json!({"num_layers": 2, "attention_types": [[["far"], 2]]}),
            "`attention_types` is no list",
        ),
        (
            "falcon",
            json!({"new_decoder_architecture": true, "parallel_attn": false}),
            "`parallel_attn` is false",
        ),
        ("falcon", json!({"num_ln_in_parallel_attn": 2}), "`num_ln_in_parallel_attn` is 2 without"),
        ("mixtral", json!({"num_local_experts": 2, "num_experts_per_tok": 3}), "there are 2 experts"),
        ("phimoe", json!({"num_experts_per_tok": 1}), "where this family has 2"),
        ("phimoe", json!({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}), "other than longrope"),
        ("gpt_oss", json!({"swiglu_alpha": 1.5}), "`swiglu_alpha` is 1.5"),
        (
            "deepseek_v2",
            json!({"num_experts_per_tok": 2, "topk_method": "noaux_tc"}),
            "`topk_method` is \"noaux_tc\"",
        ),
        ("deepseek_v2", json!({}), "`num_experts_per_tok` is missing"),
        ("deepseek_v3", json!({"n_group": 7}), "256 experts in 7 groups"),
        ("llama4_text", json!({"attention_chunk_size": null}), "`attention_chunk_size` is null"),
        ("llama4_text", json!({"num_hidden_layers": 2, "layer_types": slides}), "`layer_types` names"),
        ("ministral3", json!({"rope_parameters": {"rope_type": "default"}}), "lack `llama_4_scaling_beta`"),
        ("phi", json!({"partial_rotary_factor": 1.5}), "more than a head"),
    ];
    for (family, file, message) in cases {
        match read(family, file.clone()) {
            Ok(_) => panic!("{family} reads {file}"),
            Err(error) => {
                assert!(error.to_string().contains(message), "{family}: {error} should say {message:?}")
            }
        }
    }
}
