//! Adapters (LoRA): what is exported with one is the model whose weights it was added to; one for another model is refused with all
//! that does not fit.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod support;

use pteron_checkpoint::{Checkpoint, Export};
use pteron_tensor::Bytes;
use safetensors::tensor::Dtype;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use support::*;

const RANK: usize = 4;
const ALPHA: f32 = 8.0;
const MODULES: [(&str, usize, usize); 2] =
    [("model.layers.0.self_attn.q_proj", HIDDEN, HIDDEN), ("model.layers.0.mlp.down_proj", HIDDEN, INNER)];

fn config() -> Json {
    json!({"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", "target_modules": ["q_proj", "down_proj"]})
}

/// The tensors of an adapter, and by module what it adds where its product is scaled so.
fn adapter(scale: f32) -> (Tensors, BTreeMap<String, Vec<f32>>) {
    let (mut tensors, mut added) = (Tensors::new(), BTreeMap::new());
    for (at, (module, rows, columns)) in MODULES.into_iter().enumerate() {
        let small = |seed: usize, count: usize| -> Vec<f32> {
            numbers(seed, count).iter().map(|x| x / 8.0).collect()
        };
        let (down, up) = (small(50 + at, RANK * columns), small(60 + at, rows * RANK));
        let product = |row: usize, column: usize| -> f32 {
            (0..RANK).map(|i| up[row * RANK + i] * down[i * columns + column] * scale).sum()
        };
        let sums = (0..rows * columns).map(|element| product(element / columns, element % columns)).collect();
        added.insert(format!("{module}.weight"), sums);
        let name = |part: &str| format!("base_model.model.{module}.lora_{part}.weight");
        tensors.insert(name("A"), floats(Dtype::F32, &[RANK, columns], &down));
        tensors.insert(name("B"), floats(Dtype::F32, &[rows, RANK], &up));
    }
    (tensors, added)
}

fn written(config: &Json, tensors: &Tensors) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("adapter_config.json"), config.to_string()).unwrap();
    save(&folder.path().join("adapter_model.safetensors"), tensors, None);
    folder
}

fn refusal(config: &Json, tensors: &Tensors) -> String {
    let model = folder(&llama_config(), &plain_llama());
    let adapter = written(config, tensors);
    Checkpoint::open_adapted(model.path(), adapter.path()).err().unwrap().to_string()
}

#[test]
fn a_model_with_an_adapter_is_the_model_that_it_was_added_to() {
    let rooted = {
        let mut config = config();
        config["use_rslora"] = json!(true);
        config
    };
    for (config, scale) in [(config(), ALPHA / RANK as f32), (rooted, ALPHA / 2.0)] {
        let (tensors, added) = adapter(scale);
        let merged = llama(Dtype::F32, |name, _, values| match added.get(name) {
            Some(added) => values.iter().zip(added).map(|(value, added)| value + added).collect(),
            None => values,
        });
        let wanted = logits(folder(&llama_config(), &merged).path());
        let model = folder(&llama_config(), &plain_llama());
        assert!(logits(model.path()) != wanted, "the adapter matters");
        let adapter = written(&config, &tensors);
        let checkpoint = Checkpoint::open_adapted(model.path(), adapter.path()).unwrap();
        let mut bytes = Vec::new();
        Export::new(&checkpoint, &options()).unwrap().write(&mut bytes, &mut |_| ()).unwrap();
        assert_close(&logits_of(Bytes::copy_of(&bytes)), &wanted, "adapted");
        assert!(checkpoint.origin.adapter.is_some());
    }
}

#[test]
fn magnitudes_set_the_lengths_of_rows() {
    let (mut tensors, added) = adapter(ALPHA / RANK as f32);
    let magnitudes: BTreeMap<String, Vec<f32>> = MODULES
        .into_iter()
        .map(|(module, rows, _)| {
            let lengths = numbers(70, rows).iter().map(|x| 1.0 + x.abs()).collect();
            (format!("{module}.weight"), lengths)
        })
        .collect();
    for (module, rows, _) in MODULES {
        let lengths = &magnitudes[&format!("{module}.weight")];
        let name = format!("base_model.model.{module}.lora_magnitude_vector");
        tensors.insert(name, floats(Dtype::F32, &[rows], lengths));
    }
    let merged = llama(Dtype::F32, |name, _, values| {
        let Some(added) = added.get(name) else { return values };
        let sum: Vec<f32> = values.iter().zip(added).map(|(value, added)| value + added).collect();
        let (lengths, columns) = (&magnitudes[name], sum.len() / magnitudes[name].len());
        let rows = sum.chunks(columns).zip(lengths);
        rows.flat_map(|(row, length)| {
            let own = row.iter().map(|x| x * x).sum::<f32>().sqrt();
            row.iter().map(move |x| x * length / own).collect::<Vec<f32>>()
        })
        .collect()
    });
    let wanted = logits(folder(&llama_config(), &merged).path());
    let model = folder(&llama_config(), &plain_llama());
    let mut config = config();
    config["use_dora"] = json!(true);
    let made = written(&config, &tensors);
    let checkpoint = Checkpoint::open_adapted(model.path(), made.path()).unwrap();
    let mut bytes = Vec::new();
    Export::new(&checkpoint, &options()).unwrap().write(&mut bytes, &mut |_| ()).unwrap();
    assert_close(&logits_of(Bytes::copy_of(&bytes)), &wanted, "with magnitudes");
    // Magnitudes and what the configuration says of them go together.
    let error = refusal(&self::config(), &tensors);
    assert!(error.contains("does not say `use_dora`"), "{error}");
    let name = format!("base_model.model.{}.lora_magnitude_vector", MODULES[0].0);
    tensors.insert(name, floats(Dtype::F32, &[HIDDEN - 1], &[1.0; HIDDEN - 1]));
    let error = refusal(&config, &tensors);
    assert!(error.contains("lora_magnitude_vector [63] is not of 64 rows"), "{error}");
}

#[test]
fn an_adapter_for_another_model_is_refused_with_all_that_does_not_fit() {
    let (mut tensors, _) = adapter(1.0);
    tensors.insert(
        "base_model.model.other.q_proj.lora_A.weight".to_owned(),
        floats(Dtype::F32, &[RANK, 8], &[0.0; 32]),
    );
    tensors.insert(
        "base_model.model.other.q_proj.lora_B.weight".to_owned(),
        floats(Dtype::F32, &[8, RANK], &[0.0; 32]),
    );
    let wide = "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight";
    tensors.insert(wide.to_owned(), floats(Dtype::F32, &[RANK, 8], &[0.0; 32]));
    tensors.insert("base_model.model.lm_head.weight".to_owned(), floats(Dtype::F32, &[8], &[0.0; 8]));
    let error = refusal(&config(), &tensors);
    for what in [
        "the model has no other.q_proj.weight",
        "up_proj has one of lora_A and lora_B",
        "lm_head.weight: nothing that is added",
    ] {
        assert!(error.contains(what), "{error}");
    }
    let (mut tensors, _) = adapter(1.0);
    let name = format!("base_model.model.{}.lora_A.weight", MODULES[0].0);
    tensors.insert(name, floats(Dtype::F32, &[RANK, HIDDEN + 1], &[0.0; RANK * (HIDDEN + 1)]));
    assert!(refusal(&config(), &tensors).contains("lora_B [64, 4] by lora_A [4, 65] is not [64, 64]"));
}

#[test]
fn what_an_adapter_asks_for_beyond_a_product_is_named() {
    let (tensors, _) = adapter(1.0);
    for (key, value, said) in [
        ("use_dora", json!(true), "no lora_magnitude_vector"),
        ("lora_bias", json!(true), "`lora_bias`"),
        ("peft_type", json!("IA3"), "type IA3"),
        ("modules_to_save", json!(["lm_head"]), "modules_to_save"),
        ("bias", json!("all"), "`bias`"),
        ("r", json!(8), "its rank is 4"),
        ("lora_alpha", Json::Null, "lora_alpha"),
    ] {
        let mut config = config();
        config[key] = value;
        let error = refusal(&config, &tensors);
        assert!(error.contains(said), "{key}: {error}");
    }
    let model = folder(&llama_config(), &plain_llama());
    let error = Checkpoint::open_adapted(model.path(), model.path()).err().unwrap().to_string();
    assert!(error.contains("adapter_config.json"), "{error}");
}
