//! `inspect`, `verify`, `diff` and `rewrite` on programs that were made on the spot.

#![allow(clippy::unwrap_used)] // a test may panic

mod support;

use pteron_format::ptd::{self, NamedTensor, TensorLayout};
use pteron_format::{Segment, WriteOptions};
use pteron_tensor::DType;
use support::*;

fn scaled(folder: &Folder) -> String {
    folder.write("model.pte", &delegated(SCALED, &weights()))
}

fn external(folder: &Folder, name: &str, data: &[u8]) -> String {
    let layout =
        TensorLayout { scalar_type: DType::F32.into(), sizes: vec![2].into(), dim_order: vec![0].into() };
    let named = NamedTensor { key: "w".into(), segment_index: 0, tensor_layout: Some(layout) };
    let mut file = Vec::new();
    ptd::write(&[named], &[Segment::borrowed(data)], &WriteOptions::default(), &mut file).unwrap();
    folder.write(name, &file)
}

#[test]
fn inspect_shows_what_a_program_takes_gives_and_holds() {
    let folder = Folder::new();
    let model = scaled(&folder);
    let text = pteron(&["inspect", &model]).ok();
    let expected = [
        "model.pte: pte, ",
        "1 method, 1 delegate",
        "\nmethod forward\n  in.0   f32  [2..=8, 2]  x\n  out.0  f32  [2..=8, 2]  y\n",
        "\n  delegate 0: MLXBackend, 3 nodes, payload ",
        "\n    Add       2  \u{2588}",
        "\n    Multiply  1  \u{2588}",
        "\nmetadata\n  get_answer  42\n",
        "\nstate of a session\n",
        "count  i32  [1]  4 B\n",
        "\nmemory on cpu (",
    ];
    for part in expected {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    assert!(!text.contains("multiply(a=%0, b=%1)"), "{text}");
    let text = pteron(&["inspect", &model, "--graph"]).ok();
    assert!(text.contains("; method forward, delegate 0\ngraph \"forward\""), "{text}");
    assert!(text.contains("= multiply(a=%2, b=%0)"), "{text}");
}

#[test]
fn inspect_json_has_the_documented_keys() {
    let folder = Folder::new();
    let model = scaled(&folder);
    let text = pteron(&["inspect", &model, "--json", "--graph"]).ok();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let keys = |value: &serde_json::Value| {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(
        keys(&json),
        [
            "bytes",
            "file",
            "graphs",
            "kind",
            "memory",
            "metadata",
            "methods",
            "named_data",
            "problem",
            "weights"
        ]
    );
    assert_eq!(keys(&json["methods"][0]), ["delegates", "inputs", "name", "outputs", "portable"]);
    assert_eq!(
        json["methods"][0]["inputs"][0],
        serde_json::json!({"name": "x", "kind": "tensor", "dtype": "f32",
                           "dims": [{"min": 2, "max": 8}, {"min": 2, "max": 2}]})
    );
    assert_eq!(json["methods"][0]["delegates"][0]["ops"]["Add"], 2);
    assert_eq!(json["metadata"]["get_answer"], 42);
    assert_eq!(json["named_data"], serde_json::json!({"keys": 2, "bytes": 12}));
    assert_eq!(json["memory"]["state_bytes"], 4);
    assert_eq!(json["problem"], serde_json::Value::Null);
    let documented = std::fs::read_to_string(root().join("docs/json.md")).unwrap();
    for key in keys(&json).iter().chain(&keys(&json["memory"])).chain(&keys(&json["methods"][0])) {
        assert!(documented.contains(&format!("`{key}`")), "docs/json.md does not know `{key}`");
    }
}

#[test]
fn inspect_shows_the_tables_of_what_cannot_be_run() {
    let folder = Folder::new();
    let model = folder.write("foreign.pte", &portable("custom::secret", "out", DType::F32));
    let text = pteron(&["inspect", &model]).ok();
    assert!(text.contains("cannot be run here: "), "{text}");
    assert!(text.contains("\nmethod run\n  in.0   f32  [3]\n  out.0  f32  [3]\n"), "{text}");
    assert!(text.contains("custom::secret.out  1"), "{text}");
    let data = external(&folder, "w.ptd", &[0; 8]);
    let text = pteron(&["inspect", &data]).ok();
    assert!(text.contains("w.ptd: ptd, ") && text.contains("\ndata\n  w  f32  [2]  8 B\n"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&pteron(&["inspect", &data, "--json"]).ok()).unwrap();
    assert_eq!(json["entries"], serde_json::json!([{"key": "w", "dtype": "f32", "shape": [2], "bytes": 8}]));
}

#[test]
fn verify_passes_sound_files_and_lists_what_is_wrong() {
    let folder = Folder::new();
    let model = scaled(&folder);
    let sound = pteron(&["verify", &model]).ok();
    assert_eq!(sound, format!("{model}: sound (2 methods, 1 delegate, 3 nodes)\n"));
    let data = external(&folder, "w.ptd", &[0; 8]);
    assert_eq!(pteron(&["verify", &data]).ok(), format!("{data}: sound (1 key)\n"));

    let whole = std::fs::read(&model).unwrap();
    let cases = [
        (folder.write("cut.pte", &whole[..whole.len() - 100]), "cut.pte: "),
        (folder.write("empty.pte", b""), "the file is empty"),
        (folder.write("op.pte", &portable("custom::secret", "out", DType::F32)), "`custom::secret.out`"),
        (folder.write("bare.pte", &delegated(SCALED, &[])), "`w`"),
    ];
    for (file, message) in cases {
        let run = pteron(&["verify", &file]);
        assert_eq!((run.code, run.stderr.as_str()), (1, ""), "{file}: {}", run.stdout);
        assert!(run.stdout.contains(message), "{file}: {}", run.stdout);
        assert!(run.stdout.ends_with("1 problem\n"), "{}", run.stdout);
    }
    let operators = [("custom::one", "out"), ("aten::abs", "out"), ("custom::two", "")];
    let several = folder.write("several.pte", &portable_calls(&operators, DType::F32));
    let run = pteron(&["verify", &several]);
    let line = |name| format!("{several}: method `run` calls operator `{name}`, which is not implemented\n");
    assert_eq!(run.stdout, format!("{}{}2 problems\n", line("custom::one.out"), line("custom::two")));

    let missing = pteron(&["verify", &folder.at("none.pte")]);
    assert_eq!((missing.code, missing.stdout.as_str()), (1, ""));
    assert!(missing.stderr.contains("none.pte: cannot open"), "{}", missing.stderr);
}

#[test]
fn rewrite_keeps_every_table_and_through_the_graph_every_meaning() {
    let folder = Folder::new();
    let model = scaled(&folder);
    let (copy, again) = (folder.at("copy.pte"), folder.at("again.pte"));
    assert_eq!(pteron(&["rewrite", &model, &copy]).ok(), "");
    assert_eq!(pteron(&["rewrite", &model, &again, "--through-graph"]).ok(), "");
    assert_eq!(std::fs::read(&model).unwrap(), std::fs::read(&copy).unwrap());
    let x = folder.write("x.npy", &npy("(2, 2)", &[1.0, 2.0, 3.0, 4.0]));
    for file in [&model, &copy, &again] {
        let shown = pteron(&["exec", file, "--input", &x]).ok();
        assert!(shown.starts_with("out.0  f32 [2, 2]  [11, 202, 33, 404]\n"), "{file}: {shown}");
    }
    // In place, which reads and replaces the same file.
    assert_eq!(pteron(&["rewrite", &copy, &copy]).ok(), "");
    assert_eq!(pteron(&["diff", &model, &copy]).ok(), "");
    let data = external(&folder, "w.ptd", &[7; 8]);
    assert_eq!(pteron(&["rewrite", &data, &folder.at("v.ptd")]).ok(), "");
    assert_eq!(pteron(&["diff", &data, &folder.at("v.ptd")]).ok(), "");
}

#[test]
fn rewrite_leaves_nothing_behind_when_it_fails() {
    let folder = Folder::new();
    let model = scaled(&folder);
    let cut = folder.write("cut.pte", &std::fs::read(&model).unwrap()[..500]);
    let data = external(&folder, "w.ptd", &[7; 8]);
    let before = folder.names();
    let (out, nowhere) = (folder.at("out.pte"), folder.at("no/folder/out.pte"));
    let cases: [(&[&str], &str); 4] = [
        (&[&cut, &out], "cut.pte: "),
        (&[&data, &out, "--through-graph"], "has no graph"),
        (&[&model, &nowhere], "there is no such folder"),
        (&[&folder.at("none.pte"), &out], "cannot open"),
    ];
    for (arguments, message) in cases {
        let run = pteron(&[&["rewrite"], arguments].concat());
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(message), "{arguments:?}: {}", run.stderr);
        assert_eq!(folder.names(), before);
    }
}

#[test]
fn diff_names_the_node_the_weight_and_the_table() {
    let folder = Folder::new();
    let model = scaled(&folder);
    assert_eq!(pteron(&["diff", &model, &model]).ok(), "");

    let subtracts = SCALED.replace("add(a=%3, b=%0)", "subtract(a=%3, b=%0)");
    let mut heavier = weights();
    heavier[0].1[3] ^= 1;
    let other = folder.write("other.pte", &delegated(&subtracts, &heavier));
    let run = pteron(&["diff", &model, &other]);
    assert_eq!((run.code, run.stderr.as_str()), (1, ""));
    let expected = [
        "method `forward`, delegate 0\n  - %5: f32[s0, 2] = add(a=%4, b=%2)  ; chain 0 #1\n",
        "\n  + %5: f32[s0, 2] = subtract(a=%4, b=%2)  ; chain 0 #1\n",
        "named data `w`: 1 of 8 bytes differ, from byte 3 on\n",
        "\n2 differences\n",
    ];
    for part in expected {
        assert!(run.stdout.contains(part), "{part:?} is missing in\n{}", run.stdout);
    }

    let fewer = folder.write("fewer.pte", &delegated(SCALED, &weights()[..1]));
    let run = pteron(&["diff", &model, &fewer]);
    assert_eq!(run.stdout, "named data `one`: only in the first\n\n1 difference\n");
    let portable = folder.write("portable.pte", &portable("aten::abs", "out", DType::F32));
    let run = pteron(&["diff", &model, &portable]);
    assert!(run.stdout.contains("method `forward`: only in the first\n"), "{}", run.stdout);
    assert!(run.stdout.contains("method `run`: only in the second\n"), "{}", run.stdout);

    let data = external(&folder, "w.ptd", &[7; 8]);
    for (arguments, message) in [
        ([model.as_str(), &data], "compare two files of the same kind"),
        ([model.as_str(), &folder.at("none.pte")], "cannot open"),
    ] {
        let run = pteron(&["diff", arguments[0], arguments[1]]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""));
        assert!(run.stderr.contains(message), "{}", run.stderr);
    }
}

#[test]
fn usage_errors_and_help_answer() {
    let help = pteron(&["--help"]).ok();
    for word in ["inspect", "exec", "verify", "diff", "rewrite", "conformance", "Examples:", "Exit status:"] {
        assert!(help.contains(word), "{word} is missing in\n{help}");
    }
    for command in ["inspect", "exec", "verify", "diff", "rewrite", "conformance"] {
        assert!(pteron(&[command, "--help"]).ok().contains("Examples:"), "{command}");
    }
    for arguments in [&["frobnicate"][..], &["inspect"], &["diff", "a"], &["exec", "a", "--context", "x"]] {
        let run = pteron(arguments);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(
            run.stderr.contains("Usage: pteron") || run.stderr.contains("invalid value"),
            "{}",
            run.stderr
        );
    }
}
