//! `bench` on a small model that was made on the spot: what it reports, what it refuses.

#![allow(clippy::unwrap_used)] // a test may panic

mod support;

use pteron_format::WriteOptions;
use pteron_models::shapes::tiny;
use pteron_models::{KvCache, Model, ModelOptions, Quantization, RandomWeights};
use std::sync::Arc;
use support::*;

fn model(folder: &Folder) -> String {
    model_with(folder, KvCache::InGraph)
}

fn model_with(folder: &Folder, kv: KvCache) -> String {
    let options = ModelOptions {
        kv,
        context: 32,
        chunk: 8,
        quantization: Quantization::of("4w".parse().unwrap()),
        ..ModelOptions::default()
    };
    let model = Model::build(&tiny::llama(), Arc::new(RandomWeights::new(1)), options).unwrap();
    let mut file = Vec::new();
    model.program(|_| ()).unwrap().write(&WriteOptions::default(), &mut file).unwrap();
    folder.write(&format!("{kv:?}.pte"), &file)
}

#[test]
fn bench_measures_prefill_and_decode_at_every_depth() {
    let folder = Folder::new();
    let model = model(&folder);
    let picture = folder.at("token.svg");
    let common = ["bench", &model, "--backend", "reference", "--threads", "1", "--repeats", "2"];
    let sizes = ["--prompt", "20", "--new", "6", "--context", "0,24"];
    let json =
        pteron(&[&common[..], &sizes[..], &["--profile", "--timeline", &picture, "--json"]].concat()).ok();
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["backend"], &report["precision"]), (&"reference".into(), &"fast".into()));
    assert_eq!(report["prefill"]["tokens"], 20);
    assert_eq!(report["prefill"]["tok_s"]["all"].as_array().unwrap().len(), 2);
    let depths: Vec<_> =
        report["decode"].as_array().unwrap().iter().map(|row| row["context"].clone()).collect();
    assert_eq!(depths, [0, 24]);
    // A deeper context reads more: two layers, keys and values of 2 heads by 16 features in bf16, 24 positions.
    let bytes = |row: usize| report["decode"][row]["bytes_per_token"].as_u64().unwrap();
    assert_eq!(bytes(1) - bytes(0), 2 * 2 * 2 * 16 * 2 * 24);
    // The same outside the graph.
    let outside = model_with(&folder, KvCache::OffGraph);
    let options = ["--prompt", "0", "--new", "6", "--repeats", "1", "--context", "24", "--json"];
    let json = pteron(&[&["bench", &outside], &options[..]].concat()).ok();
    let outside: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(outside["decode"][0]["bytes_per_token"].as_u64().unwrap(), bytes(1));
    let kinds = report["profile"].as_array().unwrap();
    assert!(kinds.iter().any(|kind| kind["kind"] == "QuantizedMatmul" && kind["steps"] == 15));
    assert!(std::fs::read_to_string(&picture).unwrap().starts_with("<svg"));

    // The CPU backend tells of what it really does: projections of the same input as one step.
    let json = pteron(&["bench", &model, "--prompt", "0", "--new", "0", "--profile", "--json"]).ok();
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let kinds = report["profile"].as_array().unwrap();
    assert!(kinds.iter().any(|kind| kind["kind"] == "Projections"), "{kinds:?}");

    let text = pteron(&[&common[..], &sizes[..]].concat()).ok();
    for wanted in ["on reference (", "read limit", "prefill", "decode        24       6"] {
        assert!(text.contains(wanted), "{wanted:?} in\n{text}");
    }
}

#[test]
fn bench_times_any_program() {
    let folder = Folder::new();
    let other = folder.write("scaled.pte", &delegated(SCALED, &weights()));
    let common = ["bench", &other, "--backend", "reference", "--threads", "1"];
    let picture = folder.at("run.svg");
    let asked = ["--repeats", "4", "--profile", "--timeline", &picture, "--json"];
    let json = pteron(&[&common[..], &asked].concat()).ok();
    assert!(std::fs::read_to_string(&picture).unwrap().starts_with("<svg"));
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["method"], &report["precision"]), (&"forward".into(), &"exact".into()));
    let times = &report["run_ms"];
    assert_eq!(times["all"].as_array().unwrap().len(), 4);
    let [low, median, high] = ["low", "median", "high"].map(|key| times[key].as_f64().unwrap());
    assert!(0.0 < low && low <= median && median <= high && report["first_run_ms"].as_f64().unwrap() > 0.0);
    assert!(!report["profile"].as_array().unwrap().is_empty());
    let text = pteron(&common).ok();
    for wanted in ["on reference (", "forward(", "first run", "ms with 1 threads"] {
        assert!(text.contains(wanted), "{wanted:?} in\n{text}");
    }
}

#[test]
fn bench_refuses_what_it_cannot_measure() {
    let folder = Folder::new();
    let model = model(&folder);
    let other = folder.write("scaled.pte", &delegated(SCALED, &weights()));
    let refused: [(&[&str], &str); 5] = [
        (&[&model, "--prompt", "33", "--new", "1"], "has room for 32 positions, not 33"),
        (&[&other, "--input", "x.txt"], "`x.txt` is not an input"),
        (&["--shape", "llama-5"], "no shape is called `llama-5`"),
        (&["--shape", "smollm2-135m", "--quantize", "7w"], "\"7w\" is no quantisation"),
        (
            &["--shape", "smollm2-135m", "--quantize", "4w", "--group-size", "128"],
            "do not divide into groups of 128",
        ),
    ];
    for (arguments, wanted) in refused {
        let run = pteron(&[&["bench", "--backend", "reference"], arguments].concat());
        assert_eq!(run.code, 2, "{}", run.stderr);
        assert!(run.stderr.contains(wanted), "{wanted:?} in {}", run.stderr);
    }
}
