//! `inspect` on archives that torch wrote; the reader itself is tested in `pteron-import`.

#![allow(clippy::unwrap_used)] // a test may panic

mod support;

use support::*;

fn archive(name: &str) -> String {
    root().join("crates/import/tests/data").join(name).display().to_string()
}

#[test]
fn inspect_shows_what_an_exported_program_takes_gives_and_changes() {
    let text = pteron(&["inspect", &archive("mutated.pt2")]).ok();
    let expected = [
        "mutated.pt2: pt2, ",
        "1 program\n",
        "\nprogram model: torch 2.15.0",
        "schema 8.20",
        "\n  in.0   f32  [1, 2]  x\n",
        "\n  out.0  f32  [2]",
        "\nweights\n",
        "\nbuffers\n  cache  mutated\n  steps  mutated\n",
        "out  an input that is written to",
    ];
    for part in expected {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    let text = pteron(&["inspect", &archive("intx.pt2")]).ok();
    assert!(text.contains("IntxUnpackedToInt8Tensor  1 weight"), "{text}");
    let text = pteron(&["inspect", &archive("dynamic.pt2")]).ok();
    assert!(text.contains("f32   [8..=128, 4]") || text.contains("f32  [8..=128, 4]"), "{text}");
}

#[test]
fn inspect_json_of_a_pt2_has_the_documented_keys() {
    let text = pteron(&["inspect", &archive("two.pt2"), "--json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["kind"], json["programs"].as_array().unwrap().len()), (&"pt2".into(), 2));
    let program = &json["programs"][0];
    assert_eq!(program["name"], "first");
    assert_eq!(program["buffers"], serde_json::json!(["cache", "steps"]));
    let documented = std::fs::read_to_string(root().join("docs/json.md")).unwrap();
    for key in json.as_object().unwrap().keys().chain(program.as_object().unwrap().keys()) {
        assert!(documented.contains(&format!("`{key}`")), "docs/json.md does not know `{key}`");
    }
}

#[test]
fn what_is_wrong_with_a_pt2_is_said() {
    let folder = Folder::new();
    let whole = std::fs::read(archive("mutated.pt2")).unwrap();
    let cut = folder.write("cut.pt2", &whole[..whole.len() / 2]);
    let run = pteron(&["inspect", &cut]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("is the file complete?"), "{}", run.stderr);
    let run = pteron(&["inspect", &archive("mutated.pt2"), "--graph"]);
    assert_eq!(run.code, 2);
}
