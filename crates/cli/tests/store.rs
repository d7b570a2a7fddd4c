//! What `run` and `perplexity` convert and keep: weights once, small programs beside them, mended when damaged, shown when
//! no longer used; and what `doctor` says of sources that cannot be converted. No network.

#![allow(clippy::unwrap_used)] // a test may panic

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::*;

/// Runs `pteron` with models in a folder of the test's own.
fn at_home(folder: &Folder, arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pteron"));
    let output = command.env("PTERON_HOME", folder.path("home")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// One token after two, of a model; what was said on the way.
fn answer(folder: &Folder, model: &str, more: &[&str]) -> (String, String) {
    let fixed = [
        "run",
        "--model",
        model,
        "--tokens",
        "5,9",
        "--max-new",
        "3",
        "--temperature",
        "0",
        "--json",
        "--quiet",
    ];
    let run = at_home(folder, &[&fixed, more].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    (report["tokens"].to_string(), run.stderr)
}

/// Converted files of that name, in order.
fn kept(folder: &Folder, name: &str) -> Vec<PathBuf> {
    fn below(folder: &Path, name: &str, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => below(&path, name, found),
                path if path.ends_with(name) => found.push(path),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    below(&folder.path("home/converted"), name, &mut found);
    found.sort();
    found
}

fn list(folder: &Folder) -> Value {
    serde_json::from_str(&at_home(folder, &["list", "--json"]).ok()).unwrap()
}

/// Whoever names a model is told of that name, not of the places where its files and what was made of them lie.
#[test]
fn models_are_called_as_the_user_calls_them() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "smollm2-bf16");
    let broken = folder.at("broken");
    std::fs::create_dir(&broken).unwrap();
    folder.write("broken/config.json", b"{\"model_type\": \"nonesuch\", \"architectures\": [\"Nonesuch\"]}");
    folder.write("broken/model.safetensors", b"\x02\0\0\0\0\0\0\0{}");
    std::fs::create_dir(folder.path("home")).unwrap();
    let entry = |name: &str, from: &str| {
        format!(
            "[models.{name}]\nlicence = \"MIT\"\n[[models.{name}.variants]]\nname = \"bf16\"\nkind = \"folder\"\n\
             sources = ['path:{from}']\n"
        )
    };
    folder.write("home/models.toml", (entry("tiny", &source) + &entry("worn", &broken)).as_bytes());
    let home = folder.at("home");
    let said = |arguments: &[&str], code: i32| {
        let run = at_home(&folder, arguments);
        assert_eq!(run.code, code, "{arguments:?}: {}", run.stderr);
        assert!(!run.stderr.contains(&home), "{arguments:?}: {}", run.stderr);
        run.stderr
    };
    let (_, converting) = answer(&folder, "tiny", &[]);
    assert!(converting.ends_with("\nconverting tiny; this is done once\n"), "{converting}");
    assert!(!converting.contains(&home), "{converting}");
    let limited = said(&["run", "--model", "tiny", "--memory-limit", "1K", "hi"], 1);
    assert!(limited.starts_with("error: tiny needs "), "{limited}");
    let weights = kept(&folder, "weights.ptd").remove(0);
    std::fs::write(&weights, b"").unwrap();
    let (_, damaged) = answer(&folder, "tiny", &[]);
    assert!(damaged.starts_with("what was converted from tiny is damaged"), "{damaged}");
    for arguments in [&["run", "--model", "worn", "hi"][..], &["export", "worn", "-o", &folder.at("x.pte")]] {
        let refused = said(arguments, 1);
        assert!(refused.contains("nonesuch") && !refused.contains("converting"), "{refused}");
    }
    // A folder of one's own is called by its path, also where the fault is in what was made of it.
    let own = said(&["run", "--model", &source, "--memory-limit", "1K", "hi"], 1);
    assert!(own.contains(&format!("error: {source} needs ")), "{own}");
}

#[test]
fn every_context_and_perplexity_share_one_copy_of_the_weights() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "smollm2-bf16");
    let (first, said) = answer(&folder, &source, &[]);
    assert!(said.contains("this is done once"), "{said}");
    let [weights] = &kept(&folder, "weights.ptd")[..] else { panic!("no weights, or several") };
    let before = std::fs::metadata(weights).unwrap();
    assert_eq!(
        answer(&folder, &source, &[]),
        (first.clone(), String::new()),
        "the second start makes nothing"
    );
    for context in ["32", "64", "200"] {
        let answered = answer(&folder, &source, &["--context", context]);
        assert_eq!(answered, (first.clone(), String::new()), "{context}");
    }
    let text = folder.write("text", b"the sky is blue, and the grass is green, and so it is");
    let run = at_home(&folder, &["perplexity", &source, &text, "--window", "8", "--tokens", "16"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    assert_eq!(kept(&folder, "weights.ptd"), std::slice::from_ref(weights));
    // Caches grow with the text, and a call says of which tokens it wants logits: one program serves every context, and
    // perplexity.
    assert_eq!(kept(&folder, "model.pte").len(), 1);
    let after = std::fs::metadata(weights).unwrap();
    assert_eq!((after.len(), after.modified().unwrap()), (before.len(), before.modified().unwrap()));
    let run = at_home(&folder, &["run", "--model", &source, "--tokens", "5", "--context", "513"]);
    assert!(run.code == 2 && run.stderr.contains("made for 512"), "{}", run.stderr);
    let run = at_home(
        &folder,
        &["run", "--model", &source, "--context", "4", "--raw", "much longer than four tokens"],
    );
    assert!(run.code == 1 && run.stderr.contains("4"), "{}", run.stderr);
    // The words are no debug text of ours, and a limit on memory counts the weights too.
    let options: Vec<String> = list(&folder)["other_conversions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["options"].to_string())
        .collect();
    assert!(options.iter().all(|words| !words.contains('{')), "{options:?}");
    let run = at_home(&folder, &["run", "--model", &source, "--tokens", "5", "--memory-limit", "1k"]);
    assert!(run.code == 1 && run.stderr.contains("the limit is 1.0 KiB"), "{}", run.stderr);
}

#[test]
fn a_damaged_conversion_is_made_again_with_a_word() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "smollm2-bf16");
    let (whole, _) = answer(&folder, &source, &[]);
    for name in ["weights.ptd", "model.pte"] {
        let path = kept(&folder, name).remove(0);
        let bytes = std::fs::read(&path).unwrap();
        let mut flipped = bytes.clone();
        flipped.iter_mut().skip(bytes.len() / 3).step_by(97).take(2000).for_each(|byte| *byte ^= 0xff);
        for damaged in [&bytes[..bytes.len() / 2], &[], &flipped] {
            std::fs::write(&path, damaged).unwrap();
            let (answered, said) = answer(&folder, &source, &[]);
            assert_eq!(answered, whole, "{name}");
            assert!(said.contains("is damaged; converting it again"), "{said}");
            assert!(std::fs::read(&path).unwrap() == bytes, "{name} is another");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(answer(&folder, &source, &[]).0, whole);
    }
    assert_eq!(answer(&folder, &source, &[]), (whole, String::new()));
}

#[test]
fn conversions_of_another_version_are_made_anew_and_do_not_stay() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "smollm2-bf16");
    let (answered, _) = answer(&folder, &source, &[]);
    // As versions before this one kept them: one whole program a folder, without a number.
    let place = kept(&folder, "model.pte").remove(0);
    let place = place.parent().unwrap().parent().unwrap();
    std::fs::remove_dir_all(place).unwrap();
    let earlier = place.join("0123456789abcdef");
    std::fs::create_dir_all(&earlier).unwrap();
    std::fs::write(earlier.join("model.pte"), vec![0; 100_000]).unwrap();
    let origin = r#"{"from": "somewhere", "options": "pteron 0.1.0 ExportOptions { .. }"}"#;
    std::fs::write(earlier.join("origin.json"), origin).unwrap();
    assert_eq!(list(&folder)["unused"][0]["why"], "converted by another version");
    let (again, said) = answer(&folder, &source, &[]);
    assert_eq!(again, answered);
    assert!(said.contains("another version has converted"), "{said}");
    assert!(!earlier.exists() && list(&folder)["unused"].as_array().unwrap().is_empty());
}

#[test]
fn what_is_no_longer_used_is_listed_and_removed() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "smollm2-bf16");
    answer(&folder, &source, &[]);
    let config = folder.path("smollm2-bf16/config.json");
    let good = std::fs::read_to_string(&config).unwrap();
    for edit in 1..=3 {
        std::fs::write(&config, format!("{good}{}", " ".repeat(edit))).unwrap();
        answer(&folder, &source, &[]);
    }
    assert_eq!((kept(&folder, "weights.ptd").len(), kept(&folder, "model.pte").len()), (1, 1));
    std::fs::write(&config, &good).unwrap();
    let unused = list(&folder)["unused"].clone();
    assert_eq!(unused.as_array().unwrap().len(), 2, "{unused}");
    assert_eq!(unused[0]["why"], "converted, its source has changed");
    let text = at_home(&folder, &["list"]).ok();
    assert!(text.contains("no longer used (`pteron rm --unused` removes it)"), "{text}");
    std::fs::remove_dir_all(folder.path("smollm2-bf16")).unwrap();
    assert_eq!(list(&folder)["unused"][1]["why"], "converted, its source is gone");
    assert!(at_home(&folder, &["rm", "--unused"]).ok().starts_with("no longer used: removed "));
    assert_eq!(kept(&folder, "weights.ptd").len(), 0);
    assert!(list(&folder)["unused"].as_array().unwrap().is_empty());
    assert_eq!(at_home(&folder, &["rm", "--unused"]).ok(), "no longer used: removed 0 B\n");
}

#[test]
fn looking_makes_no_folder_and_a_home_that_cannot_be_written_is_told() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "smollm2-bf16");
    for arguments in
        [&["list"][..], &["list", "--json"], &["doctor"], &["doctor", &source], &["rm", "--unused"]]
    {
        at_home(&folder, arguments).ok();
    }
    assert_eq!(folder.names(), ["smollm2-bf16"]);
    // Nobody can make a folder below a file.
    folder.write("home", b"a file");
    let run = at_home(&folder, &["run", "--model", &source, "--tokens", "5"]);
    assert!(run.code == 1 && run.stderr.contains("hint: PTERON_HOME names another folder"), "{}", run.stderr);
}

#[test]
fn doctor_says_no_to_what_cannot_run() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "smollm2-bf16");
    let (config, weights) =
        (folder.path("smollm2-bf16/config.json"), folder.path("smollm2-bf16/model.safetensors"));
    let (good, tensors) = (std::fs::read_to_string(&config).unwrap(), std::fs::read(&weights).unwrap());
    let text = at_home(&folder, &["doctor", &source]).ok();
    assert!(text.contains("not yet; the first run does it") && text.contains("fits"), "{text}");
    let refused = |model: &str, problem: &str| {
        let run = at_home(&folder, &["doctor", model, "--json"]);
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        let found = report["model"]["problem"].as_str().unwrap_or_default();
        assert!(run.code == 1 && found.contains(problem), "{problem:?} should be in {found:?}");
        assert!(report["model"]["fits"].is_null(), "{report}");
    };
    std::fs::write(&config, good.replace("\"llama\"", "\"zamba2\"")).unwrap();
    refused(&source, "the architecture `zamba2` is not known");
    let quantised =
        good.replacen('{', r#"{"quantization_config": {"quant_method": "quanto", "bits": 4},"#, 1);
    std::fs::write(&config, quantised).unwrap();
    // Such checkpoints have codes in the place of weights.
    let mut codes = tensors.clone();
    let name = b"0.mlp.down_proj.weight";
    let at = codes.windows(name.len()).position(|window| window == name).unwrap();
    codes[at + name.len() - 6..at + name.len()].copy_from_slice(b"qweigh");
    std::fs::write(&weights, &codes).unwrap();
    refused(&source, "quanto");
    std::fs::write(&weights, &tensors).unwrap();
    std::fs::write(&config, good.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3")).unwrap();
    refused(&source, "the checkpoint has no such tensor");
    std::fs::write(&config, &good).unwrap();
    std::fs::write(&weights, &tensors[..tensors.len() / 2]).unwrap();
    refused(&source, "the download may be incomplete");
    std::fs::rename(&weights, weights.with_file_name("pytorch_model.bin")).unwrap();
    refused(&source, "pytorch_model.bin only");
    std::fs::create_dir(folder.path("empty")).unwrap();
    refused(&folder.at("empty"), "it has no config.json");
    let text = at_home(&folder, &["doctor", &folder.at("empty")]);
    assert!(
        text.code == 1 && text.stdout.contains("problem") && !text.stdout.contains("fits"),
        "{}",
        text.stdout
    );
    refused(&folder.write("cut.gguf", b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0"), "cut short");
}

#[test]
fn doctor_describes_the_program_that_run_takes() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "smollm2-bf16");
    let text = folder.write("text", b"the sky is blue, and the grass is green, and so it is");
    let model = || -> Value {
        let report = at_home(&folder, &["doctor", &source, "--json"]).ok();
        serde_json::from_str::<Value>(&report).unwrap()["model"].clone()
    };
    assert_eq!(model()["program"], Value::Null, "nothing is converted yet");
    let run = at_home(&folder, &["perplexity", &source, &text, "--window", "8", "--tokens", "16"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    // One program serves both.
    let of_perplexity = kept(&folder, "model.pte");
    answer(&folder, &source, &[]);
    assert_eq!(kept(&folder, "model.pte"), of_perplexity);
    let report = model();
    assert_eq!(report["program"], of_perplexity[0].to_str().unwrap());
    assert_eq!((&report["need"]["is_estimate"], &report["fits"]), (&false.into(), &true.into()), "{report}");
    let weights = std::fs::metadata(kept(&folder, "weights.ptd").remove(0)).unwrap().len();
    let need = &report["need"];
    assert!(
        need["mapped_bytes"].as_u64().unwrap() + need["packed_bytes"].as_u64().unwrap() > weights / 2,
        "{report}"
    );
}
