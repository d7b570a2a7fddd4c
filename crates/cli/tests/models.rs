//! `pull`, `list`, `rm` and `doctor` on a store of their own, with models that a settings file names. No network.

#![allow(clippy::unwrap_used)] // a test may panic

mod support;

use serde_json::Value;
use std::process::Command;
use support::*;

/// A folder for models and settings, with a program `tiny` in its registry that lies beside it.
fn home() -> Folder {
    let folder = Folder::new();
    let program = folder.write("there.pte", &delegated(SCALED, &weights()));
    let gone = folder.at("gone.gguf");
    let settings = format!(
        r#"
        [models.tiny]
        description = "a small program"
        licence = "MIT"
        aliases = ["small"]
        [[models.tiny.variants]]
        name = "elsewhere"
        backends = ["quantum"]
        kind = "folder"
        sources = ['path:{gone}']
        [[models.tiny.variants]]
        name = "f32"
        kind = "pte"
        file = "tiny.pte"
        sources = ['path:{gone}', 'path:{program}']
        [models.lost]
        licence = "MIT"
        [[models.lost.variants]]
        name = "only"
        kind = "gguf"
        file = "lost.gguf"
        sources = ['path:{gone}']
        "#
    );
    std::fs::create_dir(folder.path("home")).unwrap();
    folder.write("home/models.toml", settings.as_bytes());
    folder
}

fn at_home(folder: &Folder, arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pteron"));
    let output = command.env("PTERON_HOME", folder.path("home")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn json(folder: &Folder, arguments: &[&str]) -> Value {
    serde_json::from_str(&at_home(folder, arguments).ok()).unwrap()
}

fn variant(list: &Value, model: &str, at: usize) -> Value {
    let models = list["models"].as_array().unwrap();
    models.iter().find(|row| row["name"] == model).unwrap()["variants"][at].clone()
}

#[test]
fn a_model_is_pulled_listed_and_removed() {
    let folder = home();
    let run = at_home(&folder, &["pull", "SMALL"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("gone.gguf did not give tiny/f32"), "{}", run.stderr);
    assert!(run.stderr.contains("recorded as found"), "{}", run.stderr);
    let path = run.stdout.lines().last().unwrap().to_owned();
    assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(folder.path("there.pte")).unwrap());
    // The second time there is nothing to do, and nothing to say but where it is.
    assert!(at_home(&folder, &["pull", "tiny", "--check"]).ok().contains("was here, hash checked"));
    let list = json(&folder, &["list", "--json"]);
    assert_eq!(variant(&list, "tiny", 1)["installed"]["path"], path);
    assert_eq!(variant(&list, "tiny", 0)["installed"], Value::Null);
    assert_eq!(variant(&list, "smollm2-135m", 0)["size"], 98_362_432);
    assert!(at_home(&folder, &["list"]).ok().contains("\ndefault: qwen2.5-coder-1.5b\n"));
    let here = at_home(&folder, &["list", "--here"]).ok();
    assert!(here.contains("tiny") && !here.contains("smollm2"), "{here}");
    // What changed under the same size is found when it is looked for.
    std::fs::write(&path, vec![0; std::fs::metadata(&path).unwrap().len() as usize]).unwrap();
    let run = at_home(&folder, &["pull", "tiny", "--check"]);
    assert!(run.code == 1 && run.stdout.contains("changed since it was fetched: tiny.pte"), "{}", run.stdout);
    assert!(at_home(&folder, &["rm", "tiny"]).ok().starts_with("tiny: removed "));
    assert!(!std::path::Path::new(&path).exists());
    let run = at_home(&folder, &["rm", "tiny"]);
    assert_eq!((run.code, run.stderr.as_str()), (1, "error: nothing of tiny is here\n"));
}

#[test]
fn list_counts_what_belongs_to_the_store() {
    let folder = home();
    assert_eq!(at_home(&folder, &["pull", "tiny"]).code, 0);
    let bytes = || json(&folder, &["list", "--json"])["bytes"].as_u64().unwrap();
    let before = bytes();
    assert!(before >= std::fs::metadata(folder.path("there.pte")).unwrap().len());
    std::fs::create_dir(folder.path("home/cases")).unwrap();
    folder.write("home/cases/other", &[0; 100_000]);
    assert_eq!(bytes(), before);
}

#[test]
fn tokenize_takes_names() {
    let folder = home();
    // The model is found and fetched; that it has no tokenizer is told of its program.
    let run = at_home(&folder, &["tokenize", "small", "Hello"]);
    assert!(
        run.code == 1 && run.stderr.contains("tiny.pte: the program carries no tokenizer"),
        "{}",
        run.stderr
    );
    let run = at_home(&folder, &["tokenize", "tinny", "Hello"]);
    assert!(run.code == 2 && run.stderr.contains("hint: `pteron list`"), "{}", run.stderr);
    let run = at_home(&folder, &["tokenize", "./tiny", "Hello"]);
    assert!(run.code == 1 && run.stderr.contains("./tiny"), "{}", run.stderr);
}

#[test]
fn what_cannot_be_had_is_named_with_what_would_help() {
    let folder = home();
    let run = at_home(&folder, &["pull", "tinny"]);
    assert!(
        run.code == 2 && run.stderr.contains("tiny") && run.stderr.contains("hint: `pteron list`"),
        "{}",
        run.stderr
    );
    assert_eq!(at_home(&folder, &["rm", "tinny"]).code, 2);
    let run = at_home(&folder, &["pull", "lost"]);
    assert!(run.code == 1 && run.stderr.contains("lost/only could not be fetched"), "{}", run.stderr);
    assert!(run.stderr.contains("gone.gguf") && run.stderr.contains("hint: "), "{}", run.stderr);
    folder.write("home/models.toml", b"[models.broken]");
    let run = at_home(&folder, &["list"]);
    assert!(
        run.code == 1 && run.stderr.contains("models.toml") && run.stderr.contains("licence"),
        "{}",
        run.stderr
    );
}

#[test]
fn doctor_says_what_would_run_and_whether_it_fits() {
    let folder = home();
    let report = json(&folder, &["doctor", "--json"]);
    let backends = report["backends"].as_array().unwrap();
    let taken: Vec<&Value> = backends.iter().filter(|row| row["taken"] == true).collect();
    assert_eq!(taken.len(), 1);
    let mlx = backends.iter().find(|row| row["name"] == "mlx").unwrap();
    assert_eq!(mlx["present"], false);
    assert!(mlx["why"].as_str().unwrap().contains("built without MLX"), "{mlx}");
    assert!(report["machine"]["paths"].as_array().unwrap().contains(&"scalar".into()));
    assert_eq!(report["model"], Value::Null);
    let named = json(&folder, &["doctor", "--json", "--backend", "reference"]);
    let reference = named["backends"].as_array().unwrap().iter().find(|row| row["taken"] == true).unwrap();
    assert_eq!((&reference["name"], &reference["why"]), (&"reference".into(), &"it was named".into()));

    let model = json(&folder, &["doctor", &folder.at("there.pte"), "--json"])["model"].clone();
    let need = &model["need"];
    assert_eq!((&model["fits"], &need["is_estimate"]), (&true.into(), &false.into()));
    let sum =
        ["mapped_bytes", "packed_bytes", "state_bytes", "run_bytes"].map(|part| need[part].as_u64().unwrap());
    assert_eq!(sum.iter().sum::<u64>(), need["total_bytes"].as_u64().unwrap());
    let text = at_home(&folder, &["doctor", "smollm2-135m"]).ok();
    assert!(text.contains("`pteron pull smollm2-135m` fetches it") && text.contains("fits"), "{text}");
    let broken = folder.write("broken.pte", b"not a program");
    assert_eq!(at_home(&folder, &["doctor", &broken]).code, 1);
}
