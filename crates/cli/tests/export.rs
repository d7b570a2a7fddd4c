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
    let options = ["--all-logits", "--activations", "f16", "--context", "64", "--chunk", "8"];
    let told = pteron(&[&["export", &source, "-o", &out], &options[..]].concat()).ok();
    assert!(told.contains("context 64 (up to 512 when it runs), inputs of up to 8 tokens"), "{told}");
    let shown = pteron(&["inspect", &out]).ok();
    for part in ["get_logits_to_keep_mode", "get_n_caches", "get_windows", "UpdateAndAttend"] {
        assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
    }
    // Other runners find caches in the graph, as many positions as were asked for, and a tensor for the position.
    let told = pteron(&[&["export", &source, "-o", &out, "--for", "executorch"], &options[..]].concat()).ok();
    assert!(told.contains("context 64, inputs of up to 8 tokens"), "{told}");
    let shown = pteron(&["inspect", &out]).ok();
    assert!(!shown.contains("UpdateAndAttend") && !shown.contains("get_longest_context_len"), "{shown}");
}

#[test]
fn exec_takes_numbers_for_single_elements_and_refuses_ids_below_zero() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "smollm2-bf16");
    let (model, ours) = (folder.at("model.pte"), folder.at("ours.pte"));
    pteron(&["export", &source, "-o", &model, "--for", "executorch"]).ok();
    pteron(&["export", &source, "-o", &ours]).ok();
    let ids = |name: &str, ids: &[i64]| {
        let tensor = pteron_tensor::HostTensor::from_slice(vec![1, ids.len()], ids).unwrap();
        folder.write(name, &pteron_tensor::npy::write(&tensor).unwrap())
    };
    let (tokens, below) = (ids("tokens.npy", &[3, 5]), ids("below.npy", &[3, -1]));
    let run =
        |tokens: &str, position: &str| pteron(&["exec", &model, "--input", tokens, "--input", position]);
    assert!(run(&tokens, "int:0").ok().starts_with("out.0  f32 [1, "));
    let one = folder.write(
        "one.npy",
        &pteron_tensor::npy::write(&pteron_tensor::HostTensor::from_slice(vec![1], &[0i64]).unwrap())
            .unwrap(),
    );
    assert_eq!(run(&tokens, "int:0").stdout, run(&tokens, &one).stdout);
    for (tokens, position, message) in [
        (&tokens, "int:-5", "input 1 holds -5; token ids and positions are 0 or more"),
        (&below, "int:0", "input 0 holds -1"),
    ] {
        let refused = run(tokens, position);
        assert!(refused.code == 1 && refused.stderr.contains(message), "{}", refused.stderr);
    }
    // What takes the position as a number gives the same, and refuses the same.
    let last = pteron_tensor::HostTensor::from_slice(vec![1], &[1i64]).unwrap();
    let last = folder.write("last.npy", &pteron_tensor::npy::write(&last).unwrap());
    let run_ours =
        |position: &str| pteron(&["exec", &ours, "--input", &tokens, "--input", position, "--input", &last]);
    // The same numbers, in a dim for the rows that were asked for.
    let theirs = run(&tokens, "int:0").ok().replacen("[1, ", "[1, 1, ", 1);
    assert_eq!(run_ours("int:0").stdout, theirs);
    assert_eq!(run_ours(&one).stdout, theirs);
    let refused = run_ours("int:-5");
    assert!(refused.code == 1 && refused.stderr.contains("input 1 holds -5"), "{}", refused.stderr);
    let wrong = run(&tokens, "float:0.5");
    assert!(wrong.code == 1 && wrong.stderr.contains("wanted i64 [1], given float 0.5"), "{}", wrong.stderr);
}

#[test]
fn batched_programs_take_a_position_for_each_token_and_the_rows_that_want_logits() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "smollm2-bf16");
    let model = folder.at("model.pte");
    let options = ["--context", "64", "--chunk", "8"];
    pteron(&[&["export", &source, "-o", &model, "--batched"], &options[..]].concat()).ok();
    assert_eq!(pteron(&["verify", &model]).code, 0);
    let shown = pteron(&["inspect", &model]).ok();
    // A whole chunk, and a token each of 64 others.
    for part in
        ["[1, 1..=72]", "[1..=72]", "get_logits_to_keep_mode  2", "get_max_prefill_chunk", "UpdateAndAttend"]
    {
        assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
    }
    let input = |name: &str, shape: Vec<usize>, numbers: &[i64]| {
        let tensor = pteron_tensor::HostTensor::from_slice(shape, numbers).unwrap();
        folder.write(name, &pteron_tensor::npy::write(&tensor).unwrap())
    };
    let tokens = input("tokens.npy", vec![1, 3], &[3, 5, 7]);
    let run = |positions: &str, rows: &str| {
        pteron(&["exec", &model, "--input", &tokens, "--input", positions, "--input", rows])
    };
    let rows = input("rows.npy", vec![2], &[2, 0]);
    let positions = input("positions.npy", vec![3], &[0, 1, 2]);
    assert!(run(&positions, &rows).ok().starts_with("out.0  f32 [1, 2, "));
    let gap = input("gap.npy", vec![3], &[0, 1, 3]);
    let refused = run(&gap, &rows);
    assert!(
        refused.code == 1 && refused.stderr.contains("positions of a call follow each other"),
        "{}",
        refused.stderr
    );
    for other in [&["--kv", "in-graph"][..], &["--all-logits"]] {
        let refused = pteron(&[&["export", &source, "-o", &model, "--batched"], other].concat());
        assert_eq!(refused.code, 2, "{}", refused.stderr);
    }
}

#[test]
fn longrope_turns_short_inputs_by_the_short_list_whatever_the_context() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "smollm2-bf16");
    let config = folder.path("smollm2-bf16/config.json");
    let mut text: serde_json::Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    let pairs = text["hidden_size"].as_u64().unwrap() / text["num_attention_heads"].as_u64().unwrap() / 2;
    let factors = |by: f64| (0..pairs).map(|pair| 1.0 + by * pair as f64).collect::<Vec<_>>();
    text["rope_parameters"] = serde_json::Value::Null;
    text["rope_scaling"] = serde_json::json!({"rope_type": "longrope", "factor": 4.0, "short_factor": factors(0.1),
        "long_factor": factors(2.0), "original_max_position_embeddings": 8});
    std::fs::write(&config, text.to_string()).unwrap();
    let (wide, narrow) = (folder.at("wide.pte"), folder.at("narrow.pte"));
    for (file, context) in [(&wide, "64"), (&narrow, "8")] {
        let options = ["--for", "executorch", "--activations", "f32", "--context", context];
        pteron(&[&["export", &source, "-o", file], &options[..]].concat()).ok();
    }
    let ids = |count: usize| {
        let ids: Vec<i64> = (0..count as i64).map(|at| at * 7 % 50).collect();
        let tensor = pteron_tensor::HostTensor::from_slice(vec![1, count], &ids).unwrap();
        folder.write(&format!("{count}.npy"), &pteron_tensor::npy::write(&tensor).unwrap())
    };
    let start = pteron_tensor::HostTensor::from_slice(vec![1], &[0i64]).unwrap();
    let start = folder.write("start.npy", &pteron_tensor::npy::write(&start).unwrap());
    let logits = |file: &str, tokens: &str, backend: &str| {
        let out = folder.at("out");
        let fixed = ["--input", &start, "--backend", backend, "--output", &out];
        pteron(&[&["exec", file, "--input", tokens], &fixed[..]].concat()).ok();
        let file = std::fs::read(folder.path("out/out.0.npy")).unwrap();
        pteron_tensor::npy::read(&pteron_tensor::Bytes::copy_of(&file))
            .unwrap()
            .as_slice::<f32>()
            .unwrap()
            .to_vec()
    };
    let difference =
        |a: &[f32], b: &[f32]| a.iter().zip(b).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
    let (short, long) = (ids(8), ids(9));
    let wanted = logits(&narrow, &short, "reference");
    let beyond = logits(&wide, &long, "reference");
    assert!(difference(&logits(&wide, &short, "reference"), &wanted) < 1e-5);
    assert!(difference(&logits(&wide, &short, "cpu"), &wanted) < 1e-4);
    assert!(difference(&logits(&wide, &long, "cpu"), &beyond) < 1e-4);
    // The list counts for something here: with one list the ninth token has other logits.
    text["rope_scaling"]["long_factor"] = text["rope_scaling"]["short_factor"].clone();
    std::fs::write(&config, text.to_string()).unwrap();
    let options = ["--for", "executorch", "--activations", "f32", "--context", "64"];
    pteron(&[&["export", &source, "-o", &wide], &options[..]].concat()).ok();
    assert!(difference(&logits(&wide, &long, "cpu"), &beyond) > 1e-3);
}

#[test]
fn tensors_and_keys_that_count_for_nothing_are_told() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "gemma3-wrapped-bf16");
    let out = folder.at("model.pte");
    let run = pteron(&["export", &source, "-o", &out]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "it sees");
    // Runners of ExecuTorch show it nothing.
    let run = pteron(&["export", &source, "-o", &out, "--for", "executorch"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("note: the model's vision part is left out ("), "{}", run.stderr);
    let plain = checkpoint(&folder, "smollm2-bf16");
    let run = pteron(&["export", &plain, "-o", &out]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
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
    refused(&["--group-size", "64"], "`--group-size` says how matrices are quantised, and nothing asks for");
    refused(&["--group-size", "64", "--rule", "*=none"], "`--group-size`");
    refused(&["--method", "hqq"], "`--method`");
    refused(&["--quantize", "4w", "--group-size", "128"], "do not divide into groups of 128");
    std::fs::write(&config, good.replace("\"llama\"", "\"zamba\"")).unwrap();
    refused(&[], "the architecture `zamba` is not known");
    std::fs::write(&config, good.replace("\"intermediate_size\": 64", "\"intermediate_size\": 65")).unwrap();
    refused(&[], "the configuration asks for [65, 32]");
    std::fs::write(&config, &good).unwrap();
    std::fs::remove_file(folder.path("llama3-untied-bf16-sharded/model-00002-of-00003.safetensors")).unwrap();
    refused(&[], "model-00002-of-00003.safetensors");
}

#[test]
fn no_command_writes_over_what_it_reads() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "smollm2-bf16");
    let archive = folder.at("layers.pt2");
    std::fs::copy(root().join("crates/import/tests/data/layers.pt2"), &archive).unwrap();
    std::fs::create_dir(folder.path("empty")).unwrap();
    for part in 1..=2 {
        folder.write(&format!("m-{part:05}-of-00002.gguf"), b"GGUF");
    }
    let (tensors, config) = (format!("{source}/model.safetensors"), format!("{source}/config.json"));
    let first = folder.at("m-00001-of-00002.gguf");
    let second = folder.at("m-00002-of-00002.gguf");
    let program = folder.write("large.pte", &delegated(SCALED, &weights()));
    let kept = |path: &str| std::fs::read(path).unwrap();
    let cases: [&[&str]; 7] = [
        &["export", &source, "-o", &tensors],
        &["export", &source, "-o", &config],
        &["export", &first, "-o", &first],
        &["export", &first, "-o", &second],
        &["compile", &archive, "-o", &archive],
        &["compile", &format!("forward={archive}"), "-o", &archive],
        &["bench", &program, "--profile", "--timeline", &program],
    ];
    for arguments in cases {
        let read = arguments.last().unwrap();
        let before = kept(read);
        let run = pteron(arguments);
        assert!(run.code == 2 && run.stderr.contains("one of the files that are read"), "{}", run.stderr);
        assert!(kept(read) == before, "{read} was changed");
    }
    for command in [vec!["export", &source, "-o"], vec!["compile", &archive, "-o"], vec!["rewrite", &program]]
    {
        for place in [folder.at("empty"), folder.at("none/")] {
            let run = pteron(&[&command[..], &[&place]].concat());
            assert!(run.code == 2 && run.stderr.contains("it is a folder"), "{}", run.stderr);
        }
    }
    // In place, a rewrite lands by rename once all of it was read.
    let before = kept(&program);
    assert_eq!(pteron(&["rewrite", &program, &program]).code, 0);
    assert!(kept(&program) == before);
    // A program beside the weights, and another over it, are nobody's loss.
    let beside = format!("{source}/model.pte");
    pteron(&["export", &source, "-o", &beside]).ok();
    pteron(&["export", &source, "-o", &beside]).ok();
}
