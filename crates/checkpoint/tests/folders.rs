//! Hugging Face folders in every form that is read: floats, shards, prefixes, heads, tokenizers, provenance.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_checkpoint::{Checkpoint, Export, ExportOptions, export};
use pteron_companion::TokenizerFormat;
use pteron_format::pte::Pte;
use pteron_format::{Limits, WriteOptions};
use pteron_models::{KvCache, Logits};
use pteron_runtime::{DataFile, Options, Program, Value};
use pteron_tensor::{Bytes, DType, HostTensor};
use safetensors::tensor::Dtype;
use serde_json::json;
use std::collections::BTreeMap;
use support::*;

#[test]
fn float_types_and_shards_mean_the_same() {
    let wanted = logits(folder(&llama_config(), &plain_llama()).path());
    for dtype in [Dtype::F16, Dtype::BF16] {
        let tensors = llama(dtype, |_, _, values| values);
        assert_eq!(logits(folder(&llama_config(), &tensors).path()), wanted, "{dtype}");
    }
    let folder = folder(&llama_config(), &BTreeMap::new());
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let tensors = plain_llama();
    let shard = |at: usize| format!("model-0000{}-of-00003.safetensors", at % 3 + 1);
    for number in 0..3 {
        let part = tensors.clone().into_iter().enumerate().filter(|(at, _)| at % 3 == number);
        save(&folder.path().join(shard(number)), &part.map(|(_, tensor)| tensor).collect(), None);
    }
    let map: BTreeMap<&String, String> =
        tensors.keys().enumerate().map(|(at, name)| (name, shard(at))).collect();
    let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
    std::fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    assert_eq!(logits(folder.path()), wanted);
    std::fs::remove_file(folder.path().join(shard(1))).unwrap();
    assert!(exported(folder.path(), &options()).unwrap_err().contains("model-00002-of-00003"));
}

#[test]
fn a_text_model_is_found_under_every_wrapper() {
    let wanted = logits(folder(&llama_config(), &plain_llama()).path());
    for prefixes in [
        ("model.language_model.", "lm_head."),
        ("language_model.model.", "language_model.lm_head."),
        ("", "lm_head."),
    ] {
        let rename = |name: String| match (name.strip_prefix("model."), name.strip_prefix("lm_head.")) {
            (Some(rest), _) => format!("{}{rest}", prefixes.0),
            (_, Some(rest)) => format!("{}{rest}", prefixes.1),
            _ => name,
        };
        let mut tensors: Tensors =
            plain_llama().into_iter().map(|(name, tensor)| (rename(name), tensor)).collect();
        tensors.insert("vision_tower.patch.weight".to_owned(), floats(Dtype::F32, &[2, 2], &[1.0; 4]));
        let config = json!({"model_type": "wrapper", "text_config": llama_config(), "vision_config": {}});
        assert_eq!(logits(folder(&config, &tensors).path()), wanted, "{prefixes:?}");
    }
}

#[test]
fn older_and_newer_spellings_mean_the_same() {
    let scaling = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 16});
    let mut older = llama_config();
    older["rope_scaling"] = scaling.clone();
    let mut newer = llama_config();
    newer.as_object_mut().unwrap().remove("rope_theta");
    newer["rope_parameters"] = scaling;
    newer["rope_parameters"]["rope_theta"] = json!(10000.0);
    let tensors = plain_llama();
    let scaled = logits(folder(&older, &tensors).path());
    assert_eq!(logits(folder(&newer, &tensors).path()), scaled);
    assert_ne!(logits(folder(&llama_config(), &tensors).path()), scaled);
}

#[test]
fn a_head_is_stored_once_where_it_is_the_embedding() {
    let names = |tensors: &Tensors, tied: bool| {
        let mut config = llama_config();
        config["tie_word_embeddings"] = json!(tied);
        let file = exported(folder(&config, tensors).path(), &options()).unwrap();
        let pte = Pte::read(file, &Limits::default()).unwrap();
        pte.named("lm_head.weight").is_some()
    };
    let own = plain_llama();
    let mut copy = own.clone();
    copy.insert("lm_head.weight".to_owned(), own["model.embed_tokens.weight"].clone());
    let mut none = own.clone();
    none.remove("lm_head.weight");
    assert!(names(&own, false));
    assert!(names(&own, true), "a head that differs is the one that is meant");
    assert!(!names(&copy, false) && !names(&copy, true));
    assert!(!names(&none, true));
}

#[test]
fn tokenizer_templates_and_provenance_travel_inside() {
    let folder = folder(&llama_config(), &plain_llama());
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("tokenizer.json", r#"{"version": "1.0"}"#);
    let templates = json!([{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]);
    write(
        "tokenizer_config.json",
        &json!({"add_bos_token": true, "bos_token": {"content": "<s>"}, "eos_token": "</s>",
            "unk_token": null, "chat_template": templates})
        .to_string(),
    );
    write("special_tokens_map.json", r#"{"pad_token": "<pad>"}"#);
    let generation = r#"{"eos_token_id":  [7, 9], "temperature": 0.6}"#;
    write("generation_config.json", generation);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(checkpoint.architecture.facts().eos, [7, 9]);
    assert_eq!(checkpoint.architecture.facts().bos, Some(1));
    let pte = Pte::read(exported(folder.path(), &options()).unwrap(), &Limits::default()).unwrap();
    let text = |key: &str| pte.named(key).map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
    assert_eq!(text("pteron.tokenizer").as_deref(), Some(r#"{"version": "1.0"}"#));
    assert_eq!(text("pteron.tokenizer.format").as_deref(), Some("tokenizer.json"));
    let config: serde_json::Value = serde_json::from_str(&text("pteron.tokenizer.config").unwrap()).unwrap();
    let tokens = json!({"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"});
    assert_eq!(config, json!({"add_bos": true, "add_eos": null, "tokens": tokens}));
    assert_eq!(text("pteron.chat_template").as_deref(), Some("D"));
    assert_eq!(text("pteron.chat_template.tool_use").as_deref(), Some("T"));
    assert_eq!(text("generation_config.json").as_deref(), Some(generation), "as it was published");
    let provenance: serde_json::Value = serde_json::from_str(&text("pteron.provenance").unwrap()).unwrap();
    assert_eq!(provenance["source"]["architecture"], "llama");
    assert_eq!(provenance["options"]["context"], 16);
    write("chat_template.jinja", "J");
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(checkpoint.chat_templates.default.as_deref(), Some("J"));
}

#[test]
fn a_generation_config_is_an_object_of_sane_size() {
    let folder = folder(&llama_config(), &plain_llama());
    let write = |text: &str| std::fs::write(folder.path().join("generation_config.json"), text).unwrap();
    write("[1]");
    assert_eq!(Checkpoint::open(folder.path()).unwrap().generation_config, None);
    for (text, problem) in
        [("{", "generation_config.json"), (&" ".repeat(2 << 20), "more than 1048576 bytes")]
    {
        write(text);
        let error = Checkpoint::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn tensors_that_nobody_asks_for_are_told() {
    let told = |more: &[&str]| {
        let mut tensors = plain_llama();
        let norm = tensors["model.norm.weight"].clone();
        tensors.extend(more.iter().map(|name| ((*name).to_owned(), norm.clone())));
        let checkpoint = Checkpoint::open(folder(&llama_config(), &tensors).path()).unwrap();
        Export::new(&checkpoint, &options()).unwrap().remarks().to_vec()
    };
    assert!(told(&[]).is_empty());
    // Old files have these; the configuration says the same.
    assert!(told(&["model.layers.0.self_attn.rotary_emb.inv_freq"]).is_empty());
    let bias = "model.layers.0.self_attn.q_proj.bias";
    let fifth = "model.layers.4.input_layernorm.weight";
    let said = told(&[fifth, bias]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with("2 tensors ") && said[0].ends_with(&format!(": {bias}, {fifth}")),
        "{said:?}"
    );
    let said = told(&[bias, "vision_tower.encoder.norm.weight", "multi_modal_projector.linear_1.bias"]);
    assert!(said[0].contains("vision part is left out (2 tensors)") && said[1].contains(bias), "{said:?}");
}

#[test]
fn tokenizer_files_are_told_apart() {
    let cases: [(&str, &[u8], TokenizerFormat); 4] = [
        ("tokenizer.model", b"\x0a\x09\x0a\x05<unk>", TokenizerFormat::SentencePiece),
        ("tokenizer.model", b"IQ== 0\nIg== 1\n", TokenizerFormat::Tiktoken),
        ("tekken.json", b"{\"vocab\": [{\"token_bytes\": \"IQ==\"}]}", TokenizerFormat::Tekken),
        ("tokenizer.json", b"{}", TokenizerFormat::TokenizerJson),
    ];
    for (name, bytes, format) in cases {
        let folder = folder(&llama_config(), &plain_llama());
        std::fs::write(folder.path().join(name), bytes).unwrap();
        let tokenizer = Checkpoint::open(folder.path()).unwrap().tokenizer.unwrap();
        assert_eq!((tokenizer.format, tokenizer.bytes.as_slice()), (format, bytes), "{name}");
    }
}

#[test]
fn the_same_checkpoint_gives_the_same_bytes() {
    let folder = folder(&llama_config(), &plain_llama());
    for (kv, logits) in [
        (KvCache::InGraph, Logits::Last),
        (KvCache::InGraph, Logits::All),
        (KvCache::InGraph, Logits::Selected),
        (KvCache::OffGraph, Logits::Selected),
    ] {
        let mut options = ExportOptions { kv, logits, activations: DType::BF16, ..ExportOptions::default() };
        options.quantization.scheme = Some("4w".parse().unwrap());
        let file = exported(folder.path(), &options).unwrap();
        assert_eq!(file, exported(folder.path(), &options).unwrap());
    }
}

#[test]
fn weights_apart_are_the_same_for_every_context_and_choice_of_logits() {
    let folder = folder(&llama_config(), &plain_llama());
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let parts = |context, logits| {
        let mut options = ExportOptions { logits, context: Some(context), ..ExportOptions::default() };
        options.quantization.scheme = Some("4w".parse().unwrap());
        let export = Export::new(&checkpoint, &options).unwrap();
        let mut progress = |_| ();
        let (program, weights) = export.apart(&mut progress).unwrap();
        let (mut files, write) = ([Vec::new(), Vec::new()], WriteOptions::default());
        weights.write(&write, &mut files[1]).unwrap();
        program.write(&write, &mut files[0]).unwrap();
        files
    };
    let [program, weights] = parts(16, Logits::Last);
    for (context, logits) in [(8, Logits::Last), (16, Logits::All), (12, Logits::Selected)] {
        let [other, same] = parts(context, logits);
        assert!(other != program && same == weights, "{context} {logits:?}");
    }
    // Together they are what the one file is.
    let logits = Logits::Last;
    let mut options = ExportOptions { logits, context: Some(16), ..ExportOptions::default() };
    options.quantization.scheme = Some("4w".parse().unwrap());
    let whole = exported(folder.path(), &options).unwrap();
    let answer = |program: Bytes, data: &[DataFile]| {
        let program = Program::load("model.pte", program, data, &Options::default()).unwrap();
        let tokens = HostTensor::from_slice(vec![1, 3], &[3i64, 17, 5]).unwrap();
        let outputs = program.session().unwrap().run("forward", &[tokens.into(), Value::Int(0)]).unwrap();
        outputs[0].to_tensor().unwrap().unwrap().bytes().to_vec()
    };
    let data = DataFile { name: "weights.ptd".to_owned(), bytes: Bytes::copy_of(&weights) };
    assert!(!weights.is_empty() && program.len() < whole.len());
    assert_eq!(answer(Bytes::copy_of(&program), &[data]), answer(whole, &[]));
    assert!(Program::load("model.pte", Bytes::copy_of(&program), &[], &Options::default()).is_err());
}

#[test]
fn writing_reports_how_far_it_is_and_lands_whole() {
    let folder = folder(&llama_config(), &plain_llama());
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.pte");
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let mut seen = Vec::new();
    let bytes = export(&checkpoint, &options(), &path, &mut |progress| seen.push(progress)).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
    assert!(seen.is_sorted_by_key(|progress| progress.written));
    assert_eq!(seen.last().map(|progress| progress.written), seen.last().map(|progress| progress.total));
    // The file shrinks under the reader: an error, and nothing but the old program is there.
    let old = std::fs::read(&path).unwrap();
    let weights = folder.path().join("model.safetensors");
    let file = std::fs::OpenOptions::new().write(true).open(&weights).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    let error = export(&checkpoint, &options(), &path, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("model.safetensors"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), old);
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 1);
}
