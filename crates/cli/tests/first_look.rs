//! What people meet first: help, the version, errors in words and as JSON, files of the wrong kind, models by name.

#![allow(clippy::unwrap_used)] // a test may panic

mod support;

use pteron_gguf::{TensorType, Value as GgufValue, Writer};
use serde_json::Value;
use std::process::{Command, Stdio};
use support::*;

/// Runs with a folder of its own for models, and nothing to read.
fn at_home(folder: &Folder, arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pteron"));
    let command = command.env("PTERON_HOME", folder.path("home")).args(arguments).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A small GGUF file of an architecture that nobody knows.
fn strange_gguf() -> Vec<u8> {
    let mut writer = Writer::new();
    writer.put("general.architecture", GgufValue::String(b"nonesuch")).unwrap();
    writer.put("nonesuch.block_count", GgufValue::U32(3)).unwrap();
    writer.tensor("token_embd.weight", &[2, 4], TensorType::from_name("F32").unwrap(), vec![0; 32]).unwrap();
    writer.finish()
}

#[test]
fn files_of_the_wrong_kind_are_called_what_they_are() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("repository")).unwrap();
    folder.write("repository/config.json", b"{\"model_type\": \"llama\"}");
    folder.write("repository/model.safetensors", b"\x02\0\0\0\0\0\0\0{}");
    let onnx = b"\x08\x08\x12\x07pytorch\x1a\x052.1.0";
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n";
    let cases = [
        (folder.write("notes.txt", b"Dear reader,\n"), "this is a text; wanted is ", ""),
        (folder.write("empty.gguf", b""), "the file is empty", "copy it again"),
        (folder.at("repository/model.safetensors"), "weights without their configuration", "repository\n"),
        (folder.at("repository/config.json"), "the configuration of a checkpoint", "repository\n"),
        (folder.write("old.bin", b"\x80\x02}q\0."), "a pickled PyTorch checkpoint", "safetensors or GGUF"),
        (folder.write("model.onnx", onnx), "an ONNX model", "torch.export"),
        (folder.write("page.gguf", b"<!DOCTYPE html>"), "a web page", "fetch it again"),
        (folder.write("pointer.gguf", pointer), "a Git LFS pointer", "`git lfs pull`"),
    ];
    let (tokenizer, out) = (character_tokenizer(&folder), folder.at("out.pte"));
    let tokenizer = (tokenizer, "a tokenizer; wanted is ", "has a config.json");
    for (file, words, hint) in cases.into_iter().chain([tokenizer]) {
        let commands: [&[&str]; 8] = [
            &["run", "--model", &file, "hi"],
            &["chat", &file],
            &["perplexity", &file, &file],
            &["doctor", &file],
            &["inspect", &file],
            &["exec", &file],
            &["diff", &file, &file],
            &["export", &file, "-o", &out],
        ];
        for arguments in commands {
            // Of a text that is read first more is wrong than its model.
            if arguments[0] == "perplexity" && !words.contains("text") {
                continue;
            }
            let run = at_home(&folder, arguments);
            assert!(run.code != 0 && run.stdout.is_empty(), "{arguments:?}: {}", run.stdout);
            assert!(run.stderr.contains(words), "{arguments:?}: {}", run.stderr);
            assert!(hint.is_empty() || run.stderr.contains("\nhint: "), "{arguments:?}: {}", run.stderr);
            assert!(run.stderr.contains(hint), "{arguments:?}: {}", run.stderr);
        }
        let verified = at_home(&folder, &["verify", &file]);
        assert!(verified.code == 1 && verified.stdout.contains(words), "{}", verified.stdout);
    }
    let archive = root().join("crates/import/tests/data/layers.pt2").display().to_string();
    let run = at_home(&folder, &["run", "--model", &archive, "hi"]);
    assert!(run.stderr.contains(&format!("hint: `pteron compile {archive} -o model.pte`")), "{}", run.stderr);
    let cut = folder.write("cut.gguf", &strange_gguf()[..100]);
    for arguments in [&["inspect", &cut][..], &["run", "--model", &cut, "hi"]] {
        let run = at_home(&folder, arguments);
        assert!(run.code == 1 && run.stderr.contains("it was cut short or is damaged"), "{}", run.stderr);
    }
    let gguf = folder.write("a.gguf", &strange_gguf());
    let run = at_home(&folder, &["exec", &gguf]);
    assert!(
        run.stderr.contains("this is a GGUF file") && run.stderr.contains("pteron export"),
        "{}",
        run.stderr
    );
}

#[test]
fn inspect_shows_what_is_published_also_where_it_cannot_run() {
    let folder = Folder::new();
    let text = at_home(&folder, &["inspect", &checkpoint(&folder, "smollm2-bf16")]).ok();
    for part in
        ["smollm2-bf16: checkpoint, ", ", llama, ", " parameters\n", "\nweights\n  BF16  ", "hidden_size"]
    {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    let gguf = folder.write("strange.gguf", &strange_gguf());
    let shown: Value = serde_json::from_str(&at_home(&folder, &["inspect", &gguf, "--json"]).ok()).unwrap();
    assert_eq!((&shown["kind"], &shown["architecture"]), (&"gguf".into(), &"nonesuch".into()));
    assert_eq!(
        (&shown["parameters"], &shown["configuration"]["nonesuch.block_count"]),
        (&8.into(), &3.into())
    );
    assert!(shown["problem"].as_str().unwrap().contains("nonesuch"), "{shown}");
    assert_eq!(shown["weights"], serde_json::json!([{"dtype": "F32", "tensors": 1, "bytes": 32}]));
    let text = at_home(&folder, &["inspect", &gguf]).ok();
    assert!(text.contains("\ncannot be run here: "), "{text}");
}

#[test]
fn inspect_and_export_take_names() {
    let folder = Folder::new();
    let source = checkpoint(&folder, "smollm2-bf16");
    std::fs::create_dir(folder.path("home")).unwrap();
    let settings = format!(
        "[models.tiny]\nlicence = \"MIT\"\n[[models.tiny.variants]]\nname = \"bf16\"\nkind = \"folder\"\n\
         sources = ['path:{source}']\n"
    );
    folder.write("home/models.toml", settings.as_bytes());
    let out = folder.at("out.pte");
    let run = at_home(&folder, &["export", "tiny", "-o", &out]);
    assert!(run.code == 0 && std::fs::metadata(&out).unwrap().len() > 1000, "{}", run.stderr);
    assert!(at_home(&folder, &["inspect", "tiny"]).ok().contains(": checkpoint, "));
    for command in [&["inspect", "tinny"][..], &["export", "tinny", "-o", &out]] {
        let run = at_home(&folder, command);
        assert!(run.code == 2 && run.stderr.contains("did you mean tiny?"), "{}", run.stderr);
    }
}

#[test]
fn errors_of_commands_that_speak_json_are_json() {
    let folder = Folder::new();
    let (missing, text) = (folder.at("none.pte"), folder.write("notes.txt", b"Dear reader,\n"));
    let cases: [(&[&str], i32, &str, &str); 7] = [
        (&["inspect", &missing, "--json"], 1, "failed", "cannot open"),
        (&["inspect", &text, "--json"], 1, "failed", "this is a text"),
        (&["inspect", "--json"], 2, "usage", "required arguments"),
        (&["list", "--json", "--nonsense"], 2, "usage", "unexpected argument '--nonsense'"),
        (&["run", "--json", "--model", &missing, "hi"], 2, "usage", "there is no file or folder"),
        (&["tokenize", "nope", "hi", "--json"], 2, "usage", "no model is called `nope`"),
        (&["doctor", &text, "--json"], 1, "failed", "this is a text"),
    ];
    for (arguments, code, kind, message) in cases {
        let run = at_home(&folder, arguments);
        assert_eq!((run.code, run.stderr.as_str()), (code, ""), "{arguments:?}: {}", run.stdout);
        let told: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(told["error"]["kind"], kind, "{arguments:?}");
        assert!(told["error"]["message"].as_str().unwrap().contains(message), "{arguments:?}: {told}");
        assert!(told["error"].as_object().unwrap().contains_key("hint"), "{told}");
    }
    let named = at_home(&folder, &["tokenize", "nope", "hi", "--json"]).stdout;
    assert!(named.contains("`pteron list` shows every model"), "{named}");
    // A text that looks like the option is none.
    let run = at_home(&folder, &["inspect", "--nonsense", "--", "--json"]);
    assert!(run.code == 2 && run.stdout.is_empty() && run.stderr.starts_with("error: "), "{}", run.stderr);
}

#[test]
fn help_and_version_have_commands_of_their_own() {
    let run = |arguments: &[&str]| pteron(arguments).ok();
    assert_eq!(run(&["help", "run"]), run(&["run", "--help"]));
    assert!(run(&["help"]).contains("completions") && run(&["help"]).contains("Exit status:"));
    let number = env!("CARGO_PKG_VERSION");
    let version = run(&["--version"]);
    assert_eq!(run(&["version"]), version);
    let lines: Vec<&str> = version.lines().collect();
    assert!(lines[0].starts_with(&format!("pteron {number}")) && lines.len() == 3, "{version}");
    assert!(lines[1].starts_with("target: ") && lines[2].starts_with("features: "), "{version}");
    assert_eq!(run(&["-V"]), format!("{}\n", lines[0]));
    let told: Value = serde_json::from_str(&run(&["version", "--json"])).unwrap();
    assert_eq!(told["version"], number);
    if let Some(commit) = told["commit"].as_str() {
        assert_eq!(lines[0], format!("pteron {number} ({commit})"));
    }
}

#[test]
fn help_wraps_by_words_at_the_width_of_the_terminal() {
    let at_width = |command: &str, columns: &str| {
        let mut pteron = Command::new(env!("CARGO_BIN_EXE_pteron"));
        // No stream is a terminal here, so that the variable counts.
        let output =
            pteron.args([command, "--help"]).env("COLUMNS", columns).stdin(Stdio::null()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let commands =
        ["run", "chat", "perplexity", "list", "doctor", "exec", "export", "compile", "conformance"];
    for command in commands {
        let narrow = at_width(command, "60");
        // How a command is called stands on one line, always.
        for line in narrow.lines().filter(|line| line.trim().contains(' ') && !line.starts_with("Usage:")) {
            assert!(line.chars().count() <= 60, "{command}: {line}");
        }
        let wide = at_width(command, "200");
        assert!(narrow.lines().count() > wide.lines().count(), "{command}: {narrow}");
        assert!(narrow.split_whitespace().eq(wide.split_whitespace()), "{command}: words differ");
    }
}

#[test]
fn shells_and_man_get_what_they_need() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = pteron(&["completions", shell]).ok();
        assert!(script.contains("perplexity") && script.contains("max-new"), "{shell}");
    }
    assert_eq!(pteron(&["completions", "cmd"]).code, 2);
    assert!(pteron(&["man"]).ok().contains("pteron\\-run(1)"));
    let folder = Folder::new();
    std::fs::create_dir(folder.path("man1")).unwrap();
    assert_eq!(pteron(&["man", &folder.at("man1")]).ok(), "");
    let page = std::fs::read_to_string(folder.path("man1/pteron-run.1")).unwrap();
    assert!(page.contains("temperature") && folder.path("man1/pteron.1").is_file());
    assert!(pteron(&["man", &folder.at("none")]).stderr.contains("there is no such folder"));
}

#[test]
fn slips_of_the_command_line_get_a_hint() {
    let cases: [(&[&str], &str); 5] = [
        (&["run", "hello", "world"], "hint: a prompt of several words stands between quotes"),
        (&["run", "--max-new", "-1", "hi"], "a whole number is wanted, 0 or more"),
        (&["run", "--context", "-5", "hi"], "a whole number is wanted, 0 or more"),
        (&["chat", "--top-k", "many"], "a whole number is wanted, 0 or more"),
        (&["pull", "nope"], "error: no model is called `nope`\nhint: "),
    ];
    for (arguments, wanted) in cases {
        let run = pteron(arguments);
        assert!(run.code == 2 && run.stderr.contains(wanted), "{arguments:?}: {}", run.stderr);
        assert!(!run.stderr.contains("-- -"), "{}", run.stderr);
    }
}

/// Where nothing more can be written that is an error, also of what clap prints.
#[cfg(target_os = "linux")]
#[test]
fn help_that_nobody_got_is_an_error() {
    for arguments in [&["--help"][..], &["run", "--help"], &["--version"], &["version"], &["help"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_pteron")).args(arguments).stdout(full).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(1) && told.contains("cannot write to standard output"),
            "{told}"
        );
    }
}

#[test]
fn an_answer_is_bytes_in_a_pipe_and_an_error_in_it_starts_a_line() {
    let folder = Folder::new();
    let tokenizer = std::fs::read_to_string(character_tokenizer(&folder)).unwrap();
    // The greedy answer is `hVV`; here its first token is the escape character.
    let escaped = folder.write("escaped.json", tokenizer.replace("\"h\":7", "\"\u{11b}\":7").as_bytes());
    let model = folder.write("model.pte", &sample("llama_f32", "model.pte"));
    let common = ["run", "-q", "--model", &model, "--max-new", "3", "drQiDlf8", "--temperature"];
    let run = pteron(&[&common[..], &["0", "--tokenizer", &escaped]].concat());
    assert_eq!(run.ok(), "\u{1b}VV\n");
    // No token can go on behind the first letter.
    let grammar = folder.write("stuck.lark", "start: \"h\u{e9}\"".as_bytes());
    std::fs::create_dir(folder.path("plain")).unwrap();
    folder.write("plain/tokenizer.json", tokenizer.as_bytes());
    folder.write("plain/tokenizer_config.json", b"{\"eos_token\": \"Z\"}");
    let plain = folder.at("plain");
    let run = pteron(&[&common[..], &["0", "--tokenizer", &plain, "--grammar", &grammar]].concat());
    assert!(
        run.code == 1 && run.stdout == "h\n" && run.stderr.starts_with("error: "),
        "{}{}",
        run.stdout,
        run.stderr
    );
    let run = pteron(&[&common[..], &["inf", "--tokenizer", &plain]].concat());
    assert!(run.code == 2 && run.stderr.contains("must be a finite number, 0 or more"), "{}", run.stderr);
}
