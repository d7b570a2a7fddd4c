//! `pteron conformance`: the sample set in the repository, and what a failing case looks like.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and says which path it did not run

mod support;

use pteron_cpu::Path;
use pteron_tensor::DType;
use safetensors::tensor::{Dtype, TensorView};
use std::io::Write;
use support::*;

#[test]
fn the_sample_passes() {
    let sample = root().join("conformance/sample.zip");
    let run = pteron(&["conformance", sample.to_str().unwrap()]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    let line = run.stdout.strip_suffix(" passed, 0 failed\n").unwrap();
    assert!(line.parse::<u32>().unwrap() > 250, "{line}");
}

#[test]
fn the_sample_passes_on_the_reference_backend() {
    let sample = root().join("conformance/sample.zip");
    let run = pteron(&["conformance", sample.to_str().unwrap(), "--backend", "reference"]);
    assert!(run.ok().ends_with(" passed, 0 failed\n"));
}

#[test]
fn the_sample_passes_on_every_vector_path_in_both_precisions() {
    let sample = root().join("conformance/sample.zip");
    for path in Path::ALL {
        let arguments = ["conformance", sample.to_str().unwrap(), "--backend", "cpu", "--cpu", path.name()];
        if !path.is_available() {
            let run = pteron(&arguments);
            assert_eq!(run.code, 2);
            assert!(run.stderr.contains(path.name()), "{}", run.stderr);
            println!("{path}: not run, this machine lacks it");
            continue;
        }
        for precision in ["exact", "fast"] {
            let run = pteron(&[&arguments[..], &["--precision", precision]].concat());
            assert!(run.stdout.ends_with(" passed, 0 failed\n"), "{path} {precision}: {}", run.stdout);
        }
    }
}

#[test]
fn an_unknown_vector_path_lists_those_that_exist() {
    let sample = root().join("conformance/sample.zip");
    let run = pteron(&["conformance", sample.to_str().unwrap(), "--cpu", "abacus"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("abacus") && run.stderr.contains("scalar"), "{}", run.stderr);
}

#[test]
fn the_sample_passes_after_a_round_trip_through_the_graph() {
    let sample = root().join("conformance/sample.zip");
    let run = pteron(&["conformance", sample.to_str().unwrap(), "--round-trip"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    assert!(run.stdout.ends_with(" passed, 0 failed\n"), "{}", run.stdout);
}

/// A case of `abs` over three numbers that expects `want`.
fn case(folder: &Folder, name: &str, want: [f32; 3], rule: &str) {
    let at = folder.path(name);
    std::fs::create_dir(&at).unwrap();
    std::fs::write(at.join("model.pte"), portable("aten::abs", "out", DType::F32)).unwrap();
    let description = format!(
        r#"{{"name": "{name}", "kind": "op", "source": "here", "atol": 0.5, "rtol": 0, "nodes": {{}}, "portable": {{}},
            "steps": [{{"method": "run", "inputs": ["tensor"], "outputs": ["tensor"], "rule": "{rule}"}}]}}"#
    );
    std::fs::write(at.join("case.json"), description).unwrap();
    let bytes = |values: [f32; 3]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let (x, y) = (bytes([-1.0, 2.0, -3.0]), bytes(want));
    let tensors = [("0.in.0", &x), ("0.out.0", &y)]
        .map(|(key, data)| (key, TensorView::new(Dtype::F32, vec![3], data).unwrap()));
    std::fs::write(at.join("io.safetensors"), safetensors::serialize(tensors, None).unwrap()).unwrap();
}

fn set() -> Folder {
    let folder = Folder::new();
    case(&folder, "good", [1.0, 2.25, 3.0], "close");
    case(&folder, "off", [1.0, 2.0, 5.0], "close");
    case(&folder, "strict", [1.0, 2.25, 3.0], "exact");
    folder
}

#[test]
fn failing_cases_get_a_line_each_and_the_last_line_counts() {
    let folder = set();
    let run = pteron(&["conformance", &folder.at(""), "--jobs", "2"]);
    assert_eq!((run.code, run.stderr.as_str()), (1, ""));
    assert_eq!(
        run.stdout,
        "FAIL off: [2]: got 3, want 5, off by 2.000e0, 4.000 times the allowed 5.000e-1 (1 of 3 elements differ)\n\
         FAIL strict: [1]: got 2, want 2.25, off by 2.500e-1 where nothing is allowed (1 of 3 elements differ)\n\
         1 passed, 2 failed\n"
    );
    assert_eq!(pteron(&["conformance", &folder.at(""), "--filter", "go*"]).ok(), "1 passed, 0 failed\n");
    assert_eq!(pteron(&["conformance", &folder.at("good")]).ok(), "1 passed, 0 failed\n");
}

#[test]
fn json_is_the_documented_object_before_the_last_line() {
    let folder = set();
    let run = pteron(&["conformance", &folder.at(""), "--json"]);
    assert_eq!(run.code, 1);
    let (object, last) = run.stdout.trim_end().split_once('\n').unwrap();
    assert_eq!(last, "1 passed, 2 failed");
    let json: serde_json::Value = serde_json::from_str(object).unwrap();
    assert_eq!((&json["passed"], &json["failed"]), (&1.into(), &2.into()));
    assert_eq!(
        json["cases"][0],
        serde_json::json!({"name": "good", "status": "passed", "detail": null, "used": 0.5})
    );
    assert_eq!(json["cases"][1]["used"], 4.0);
    assert_eq!(json["cases"][2]["used"], serde_json::Value::Null);
}

#[test]
fn quality_says_what_fast_costs() {
    let sample = root().join("conformance/sample.zip");
    let set = sample.to_str().unwrap();
    let run = pteron(&["conformance", set, "--filter", "llama_{f32,4w_tied}", "--quality"]).ok();
    let row = |name: &str| -> Vec<String> {
        let row = run.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap();
        row.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    // Without quantised weights there is nothing to be fast about.
    assert_eq!(row("llama_f32")[2..4], ["0.00e0", "0.00e0"]);
    let [largest, mean] = [2, 3].map(|column| row("llama_4w_tied")[column].parse::<f64>().unwrap());
    assert!(largest < 0.02 && mean < 0.02, "{run}");
    let tokens = row("llama_4w_tied")[4].clone();
    let (equal, picked) = tokens.split_once(" of ").unwrap();
    assert!(equal.parse::<u32>().unwrap() <= picked.parse().unwrap(), "{tokens}");
}

/// Rows and columns of a packed matrix that is large enough to be rounded for, and how often it is multiplied by.
const SIDE: usize = 256;
const PRODUCTS: usize = 24;

/// A case of many products in a row with one matrix of 4 bits; one element of what it expects is off by that share of the
/// largest.
fn deep_case(folder: &Folder, name: &str, off_by: f64) {
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let words: Vec<u32> = (0..SIDE * SIDE / 8).map(|_| (random() & 0xffff) | (random() << 16)).collect();
    // Products keep the size of what they multiply.
    let step = 1.0 / (4.61 * (SIDE as f32).sqrt());
    let scales: Vec<f32> =
        (0..SIDE * SIDE / 32).map(|_| if random() & 1 == 0 { step } else { -step }).collect();
    let biases: Vec<f32> = scales.iter().map(|scale| -7.5 * scale).collect();
    let x: Vec<f32> = (0..SIDE).map(|_| f32::from((random() & 0xff) as u8) / 128.0 - 1.0).collect();
    let mut want: Vec<f64> = x.iter().map(|&x| x.into()).collect();
    for _ in 0..PRODUCTS {
        let row = |row: usize| -> f64 {
            let weight = |column: usize| {
                let code = words[row * SIDE / 8 + column / 8] >> (4 * (column % 8)) & 15;
                let group = row * SIDE / 32 + column / 32;
                f64::from(scales[group]) * f64::from(code) + f64::from(biases[group])
            };
            (0..SIDE).map(|column| weight(column) * want[column]).sum()
        };
        want = (0..SIDE).map(row).collect();
    }
    let largest = want.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    want[3] += off_by * largest;

    let mut graph = format!(
        "graph \"forward\"\n  input %0 \"x\": f32[1, {SIDE}]\n  constant %1 \"w\": u32[{SIDE}, {}]\n  \
         constant %2 \"scales\": f32[{SIDE}, 8]\n  constant %3 \"biases\": f32[{SIDE}, 8]\n{{\n",
        SIDE / 8
    );
    let mut last = 0;
    for result in 4..4 + PRODUCTS {
        graph += &format!(
            "  %{result}: f32[1, {SIDE}] = quantized_matmul(x=%{last}, w=%1, scales=%2, biases=%3, group_size=32, \
             bits=4, mode=\"affine\", transpose=true)\n"
        );
        last = result;
    }
    graph += &format!("}}\noutput %{last} \"y\": f32[1, {SIDE}]\n");
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let weights = [
        ("w", words.iter().flat_map(|word| word.to_le_bytes()).collect()),
        ("scales", floats(&scales)),
        ("biases", floats(&biases)),
    ];
    let at = folder.path(name);
    std::fs::create_dir(&at).unwrap();
    std::fs::write(at.join("model.pte"), delegated(&graph, &weights)).unwrap();
    let description = format!(
        r#"{{"name": "{name}", "kind": "op", "source": "here", "atol": 1e-3, "rtol": 1e-3, "nodes": {{}}, "portable": {{}},
            "steps": [{{"method": "forward", "inputs": ["tensor"], "outputs": ["tensor"], "rule": "close"}}]}}"#
    );
    std::fs::write(at.join("case.json"), description).unwrap();
    let (x, y) = (floats(&x), floats(&want.iter().map(|&value| value as f32).collect::<Vec<f32>>()));
    let tensors = [("0.in.0", &x), ("0.out.0", &y)]
        .map(|(key, data)| (key, TensorView::new(Dtype::F32, vec![1, SIDE], data).unwrap()));
    std::fs::write(at.join("io.safetensors"), safetensors::serialize(tensors, None).unwrap()).unwrap();
}

#[test]
fn fast_is_held_to_what_rounding_costs_a_case_and_to_no_more() {
    let folder = Folder::new();
    deep_case(&folder, "deep", 0.0);
    deep_case(&folder, "deep-and-wrong", 0.12);
    let run = pteron(&["conformance", &folder.at("deep"), "--quality"]).ok();
    let row = run.lines().find(|line| line.starts_with("| deep |")).unwrap();
    let largest: f64 = row.split('|').nth(2).unwrap().trim().parse().unwrap();
    assert!(largest > 0.022, "the case is too shallow to be beyond the bar that all cases have: {run}");
    let run = pteron(&["conformance", &folder.at("deep"), "--precision", "fast", "--json"]).ok();
    let (object, last) = run.trim_end().split_once('\n').unwrap();
    assert_eq!(last, "1 passed, 0 failed");
    // What was allowed: more than it took, and not much more.
    let json: serde_json::Value = serde_json::from_str(object).unwrap();
    let allowed = largest / json["cases"][0]["used"].as_f64().unwrap();
    assert!((0.02..0.08).contains(&allowed), "{allowed} of the largest magnitude: {run}");
    let wrong = pteron(&["conformance", &folder.at("deep-and-wrong"), "--precision", "fast"]);
    assert!(wrong.code == 1 && wrong.stdout.contains("[0, 3]: "), "{}", wrong.stdout);
    // The wider bar is for `fast` alone.
    assert_eq!(pteron(&["conformance", &folder.at("deep")]).ok(), "1 passed, 0 failed\n");
    let exact = pteron(&["conformance", &folder.at("deep-and-wrong")]);
    assert!(exact.code == 1 && exact.stdout.contains("(1 of 256 elements differ)"), "{}", exact.stdout);
}

#[test]
fn broken_cases_fail_and_leave_the_others_alone() {
    let folder = set();
    std::fs::remove_file(folder.path("off/model.pte")).unwrap();
    std::fs::write(folder.path("strict/case.json"), "{").unwrap();
    case(&folder, "cut", [1.0, 2.0, 3.0], "close");
    std::fs::write(folder.path("cut/io.safetensors"), "cut").unwrap();
    let run = pteron(&["conformance", &folder.at("")]);
    assert_eq!(run.code, 1);
    for part in ["FAIL cut: io.safetensors: not a sound", "FAIL off: ", "FAIL strict: case.json: "] {
        assert!(run.stdout.contains(part), "{part:?} is missing in\n{}", run.stdout);
    }
    assert!(run.stdout.ends_with("\n1 passed, 3 failed\n"), "{}", run.stdout);
}

#[test]
fn a_zip_is_read_where_it_lies_and_bad_usage_is_told_from_failure() {
    let folder = set();
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for file in ["case.json", "model.pte", "io.safetensors"] {
        writer.start_file(format!("set/good/{file}"), zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(&std::fs::read(folder.path("good").join(file)).unwrap()).unwrap();
    }
    let packed = folder.write("set.zip", writer.finish().unwrap().get_ref());
    assert_eq!(pteron(&["conformance", &packed]).ok(), "1 passed, 0 failed\n");
    let whole = std::fs::read(&packed).unwrap();
    let cut = folder.write("cut.zip", &whole[..whole.len() - 30]);
    let empty = Folder::new();
    let cases: [(&[&str], &str); 5] = [
        (&[&folder.at("nowhere")], "cannot open"),
        (&[&empty.at("")], "there is no case in it"),
        (&[&cut], "not a sound zip"),
        (&[&packed, "--filter", "bad*"], "no case matches `bad*`"),
        (&[&packed, "--backend", "quantum"], "no backend is called `quantum`"),
    ];
    for (arguments, message) in cases {
        let run = pteron(&[&["conformance"], arguments].concat());
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(message), "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn every_family_passes_from_its_checkpoint() {
    let families = root().join("conformance/families.zip");
    let run = pteron(&["conformance", families.to_str().unwrap(), "--from", "checkpoint"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    let last = run.stdout.lines().next_back().unwrap();
    let passed = last.strip_suffix(" passed, 0 failed").unwrap();
    assert!(passed.parse::<u32>().unwrap() > 60, "{last}");
}
