//! Folders that cannot be read: which file, which key or tensor, and what would help.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use safetensors::tensor::Dtype;
use serde_json::json;
use support::*;

#[test]
fn what_a_checkpoint_lacks_is_named() {
    type Change = fn(&mut serde_json::Value, &mut Tensors);
    let cases: [(Change, &str); 12] = [
        (
            |config, _| config["model_type"] = json!("zamba"),
            "architecture `zamba` is not known; known are llama",
        ),
        (|config, _| *config = json!([1]), "config.json: it is not a JSON object"),
        (|config, _| *config = json!({}), "neither `model_type` nor `architectures`"),
        (|config, _| config["hidden_size"] = json!(-3), "`hidden_size` is -3, not a size"),
        (|config, _| config["hidden_size"] = json!(1u64 << 60), "not a size"),
        (|config, _| config["hidden_act"] = json!("prelu"), "`hidden_act` is \"prelu\"; known are silu"),
        (
            |config, _| config["rope_scaling"] = json!({"rope_type": "su", "factor": 2.0}),
            "rope of type `su` is not supported",
        ),
        (|config, _| config["num_hidden_layers"] = json!(2), "model.layers.1.input_layernorm.weight"),
        (|_, tensors| drop(tensors.remove("model.norm.weight")), "model.norm.weight: the checkpoint has no"),
        (
            |_, tensors| {
                tensors.insert("model.norm.weight".into(), floats(Dtype::F32, &[3], &[1.0; 3]));
            },
            "model.norm.weight: the checkpoint has shape [3], the configuration asks for [64]",
        ),
        (|config, _| config["num_attention_heads"] = json!(3), "heads of 21 features cannot turn"),
        (|config, _| config["eos_token_id"] = json!("</s>"), "`eos_token_id` is \"</s>\", not a token id"),
    ];
    for (change, message) in cases {
        let (mut config, mut tensors) = (llama_config(), plain_llama());
        change(&mut config, &mut tensors);
        let error = exported(folder(&config, &tensors).path(), &options()).unwrap_err();
        assert!(error.contains(message), "{error:?} should say {message:?}");
    }
}

/// A folder of which only `architectures` and the kind of head differ.
fn of_class(classes: &serde_json::Value, tied: bool) -> Result<pteron_tensor::Bytes, String> {
    let (mut config, mut tensors) = (llama_config(), plain_llama());
    config["architectures"] = classes.clone();
    config["tie_word_embeddings"] = json!(tied);
    tensors.remove("lm_head.weight");
    exported(folder(&config, &tensors).path(), &options())
}

#[test]
fn a_classifier_is_no_language_model() {
    for class in [
        "LlamaForSequenceClassification",
        "LlamaForTokenClassification",
        "LlamaForQuestionAnswering",
        "LlamaForMaskedLM",
        "Qwen2ForProcessRewardModel",
        "LlamaRewardModel",
    ] {
        let error = of_class(&json!([class]), true).unwrap_err();
        assert!(error.contains(class) && error.contains("no language model"), "{error}");
    }
    for classes in [
        json!(["LlamaForCausalLM"]),
        json!(["LlavaForConditionalGeneration"]),
        json!(["LlamaForSequenceClassification", "LlamaForCausalLM"]),
        json!(["LlamaModel"]),
        json!(["Informer"]),
        json!([]),
        json!(null),
    ] {
        assert!(of_class(&classes, true).is_ok(), "{classes}");
    }
    let error = of_class(&json!(["LlamaModel"]), false).unwrap_err();
    assert!(error.contains("lm_head.weight"), "{error}");
}

#[test]
fn paths_that_hold_no_checkpoint_say_what_would() {
    let empty = tempfile::tempdir().unwrap();
    let refused = |path: &std::path::Path| exported(path, &options()).unwrap_err();
    assert!(refused(empty.path()).contains("it has no config.json"));
    assert!(refused(&empty.path().join("nowhere")).contains("nowhere"));
    let text = empty.path().join("notes.txt");
    std::fs::write(&text, "hello").unwrap();
    assert!(refused(&text).contains("it is no GGUF file"));
    let bare = folder(&llama_config(), &plain_llama());
    std::fs::remove_file(bare.path().join("model.safetensors")).unwrap();
    assert!(refused(bare.path()).contains("neither model.safetensors nor"));
    std::fs::write(bare.path().join("pytorch_model.bin"), "").unwrap();
    assert!(refused(bare.path()).contains("save it again as safetensors"));
    let index = bare.path().join("model.safetensors.index.json");
    for name in ["../../etc/passwd", "/etc/passwd", "", ".hidden"] {
        std::fs::write(&index, json!({"weight_map": {"x": name}}).to_string()).unwrap();
        assert!(refused(bare.path()).contains("is not a file beside it"), "{name}");
    }
}

#[test]
fn a_longer_context_than_the_model_has_is_refused() {
    let folder = folder(&llama_config(), &plain_llama());
    let options = pteron_checkpoint::ExportOptions { context: Some(65), ..options() };
    assert!(exported(folder.path(), &options).unwrap_err().contains("made for 64"));
}

#[test]
fn damaged_weight_files_are_errors() {
    let folder = folder(&llama_config(), &plain_llama());
    let path = folder.path().join("model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    let header = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize + 8;
    for cut in [0, 1, 7, 8, header / 2, header, header + 1, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let error = exported(folder.path(), &options()).unwrap_err();
        assert!(error.contains("model.safetensors"), "{cut}: {error}");
    }
    for size in [u64::MAX, 1 << 63, 1 << 40, whole.len() as u64] {
        let mut damaged = whole.clone();
        damaged[..8].copy_from_slice(&size.to_le_bytes());
        std::fs::write(&path, damaged).unwrap();
        assert!(exported(folder.path(), &options()).unwrap_err().contains("no safetensors file"));
    }
    // Every byte of the header, flipped: an error, or a file that still means something; never a panic.
    for at in (0..header).step_by(3) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x15;
        std::fs::write(&path, damaged).unwrap();
        let _ = exported(folder.path(), &options());
    }
    let deep = "[".repeat(100_000);
    std::fs::write(folder.path().join("config.json"), deep).unwrap();
    assert!(exported(folder.path(), &options()).unwrap_err().contains("config.json"));
}
