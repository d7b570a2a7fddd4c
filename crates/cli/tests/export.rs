//! `pteron export`, and `conformance --from checkpoint` over the packed checkpoints of the repository.

#![allow(clippy::unwrap_used)] // a test may panic

mod support;

use std::io::Read;
use support::*;

#[test]
fn packed_checkpoints_give_what_transformers_gives() {
    for backend in ["cpu", "reference"] {
        let run = pteron(&["conformance", &packed(), "--from", "checkpoint", "--backend", backend]);
        assert_eq!(run.code, 0, "{backend}: {}{}", run.stdout, run.stderr);
        assert_eq!(run.stdout, "0 without a checkpoint\n18 passed, 0 failed\n", "{backend}");
    }
}

#[test]
fn a_checkpoint_that_differs_fails() {
    let folder = Folder::new();
    let path = checkpoint(&folder, "qwen2-untied-bf16");
    std::fs::create_dir(folder.path("case")).unwrap();
    std::fs::rename(&path, folder.path("case/checkpoint")).unwrap();
    let mut archive = zip::ZipArchive::new(std::fs::File::open(packed()).unwrap()).unwrap();
    for name in ["case.json", "io.safetensors"] {
        let mut bytes = Vec::new();
        archive.by_name(&format!("qwen2-untied-bf16/{name}")).unwrap().read_to_end(&mut bytes).unwrap();
        std::fs::write(folder.path("case").join(name), bytes).unwrap();
    }
    let case = folder.at("case");
    let run = |arguments: &[&str]| pteron(&[&["conformance", &case], arguments].concat());
    assert_eq!(
        run(&["--from", "checkpoint", "--chunk", "7"]).ok(),
        "0 without a checkpoint\n1 passed, 0 failed\n"
    );
    let plain = run(&[]);
    assert!(plain.stdout.contains("`--from checkpoint` exports and runs it"), "{}", plain.stdout);
    let usage = run(&["--chunk", "3"]);
    assert!(usage.code == 2 && usage.stderr.contains("add `--from checkpoint`"), "{}", usage.stderr);
    let config = folder.path("case/checkpoint/config.json");
    let text = std::fs::read_to_string(&config).unwrap().replace("1000000.0", "500.0");
    std::fs::write(config, text).unwrap();
    let wrong = run(&["--from", "checkpoint"]);
    assert_eq!(wrong.code, 1);
    assert!(wrong.stdout.contains("FAIL case: inputs of 20: logits.prefill: "), "{}", wrong.stdout);
}

#[test]
fn export_writes_a_sound_program_and_says_what_it_did() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "smollm2-bf16");
    let out = folder.at("model.pte");
    let told = pteron(&["export", &source, "-o", &out, "--quantize", "4w", "--group-size", "16", "--report"]);
    assert_eq!(told.code, 1, "groups of 16 are not made: {}", told.stdout);
    let rule = ["--rule", "*.down_proj=8w", "--rule", "*=none"];
    let told = pteron(&[&["export", &source, "-o", &out, "--report"], &rule[..]].concat()).ok();
    for part in
        ["model.layers.0.mlp.down_proj", "8w in groups of 32", "smollm2-bf16 (llama)", "with chat template"]
    {
        assert!(told.contains(part), "{part:?} is missing in\n{told}");
    }
    assert_eq!(pteron(&["verify", &out]).code, 0);
    let shown = pteron(&["inspect", &out]).ok();
    for part in ["get_max_context_len", "get_eos_ids"] {
        assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
    }
    let first = std::fs::read(&out).unwrap();
    pteron(&[&["export", &source, "-o", &out], &rule[..]].concat()).ok();
    assert_eq!(std::fs::read(&out).unwrap(), first, "the same input gives the same bytes");
    let options =
        ["--kv", "off-graph", "--all-logits", "--activations", "f16", "--context", "64", "--chunk", "8"];
    pteron(&[&["export", &source, "-o", &out], &options[..]].concat()).ok();
    let shown = pteron(&["inspect", &out]).ok();
    for part in ["method forward_all", "get_n_caches", "get_windows", "UpdateAndAttend"] {
        assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
    }
}

#[test]
fn what_cannot_be_exported_leaves_nothing_behind() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "llama3-untied-bf16-sharded");
    let out = folder.at("model.pte");
    let config = folder.path("llama3-untied-bf16-sharded/config.json");
    let good = std::fs::read_to_string(&config).unwrap();
    let refused = |arguments: &[&str], message: &str| {
        let run = pteron(&[&["export", &source, "-o", &out], arguments].concat());
        assert!(run.code != 0 && run.stderr.contains(message), "{message:?} should be in {}", run.stderr);
        assert_eq!(folder.names(), ["llama3-untied-bf16-sharded"]);
    };
    refused(&["--quantize", "9w"], "is no quantisation");
    refused(&["--context", "513"], "made for 512");
    refused(&["--rule", "*.mpl.*=4w"], "fits no module");
    refused(&["--chunk", "0"], "inputs of 0 tokens");
    refused(&["--quantize", "4w", "--group-size", "128"], "do not divide into groups of 128");
    std::fs::write(&config, good.replace("\"llama\"", "\"mamba\"")).unwrap();
    refused(&[], "the architecture `mamba` is not known");
    std::fs::write(&config, good.replace("\"intermediate_size\": 64", "\"intermediate_size\": 65")).unwrap();
    refused(&[], "the configuration asks for [65, 32]");
    std::fs::write(&config, &good).unwrap();
    std::fs::remove_file(folder.path("llama3-untied-bf16-sharded/model-00002-of-00003.safetensors")).unwrap();
    refused(&[], "model-00002-of-00003.safetensors");
}
