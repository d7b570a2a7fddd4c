//! The programs in `examples/`, each on a model of a few thousand weights.

#![allow(clippy::unwrap_used, dead_code)] // a test may panic; nobody calls their `main`

use std::path::Path;
use tempfile::TempDir;

#[path = "../examples/chat.rs"]
mod chat;
#[path = "../examples/program.rs"]
mod program;
#[path = "../examples/schema.rs"]
mod schema;
#[path = "../examples/several.rs"]
mod several;
#[path = "../examples/stream.rs"]
mod stream;
#[path = "../examples/transcribe.rs"]
mod transcribe;

/// A folder, a model in it, and both as text.
fn talking() -> (TempDir, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let model = text(&pteron::tiny::talking(folder.path()).unwrap());
    let home = text(folder.path());
    (folder, model, home)
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_readme_shows_a_program_that_builds() {
    let (readme, example) = (include_str!("../../../README.md"), include_str!("../examples/ten_lines.rs"));
    let program = &example[example.find("use pteron").unwrap()..];
    assert!(
        readme.contains(&format!("```rust\n{program}```")),
        "the README shows another one than:\n{program}"
    );
}

#[test]
fn chat_answers_every_line() {
    let (_folder, model, home) = talking();
    let mut out = Vec::new();
    chat::run(&model, &home, &b"Hello\nWhy?\n"[..], &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out.matches(" of Some(512) tokens)\n").count(), 2, "{out}");
}

#[test]
fn stream_shows_what_it_needs_the_answer_and_what_it_took() {
    let (_folder, model, home) = talking();
    let mut out = Vec::new();
    stream::run(&model, &home, "Why?", &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.starts_with("0 MiB of weights\n") && out.contains(" written"), "{out}");
}

#[test]
fn schema_gives_json() {
    let (_folder, model, home) = talking();
    let value = schema::run(&model, &home, "How was it?").unwrap();
    assert!(["good", "bad"].contains(&value["mood"].as_str().unwrap()), "{value}");
    assert!((1..=5).contains(&value["stars"].as_i64().unwrap()), "{value}");
}

#[test]
fn several_answer_each_question_as_if_it_were_alone() {
    let (_folder, model, home) = talking();
    let questions = ["Hello", "Why?", "Who are you?"];
    let together = several::run(&model, &home, &questions).unwrap();
    for (question, answer) in questions.iter().zip(&together) {
        assert_eq!(&several::run(&model, &home, &[question]).unwrap()[0], answer, "{question}");
    }
}

#[test]
fn program_shows_what_goes_in_and_out() {
    let (_folder, model, _) = talking();
    let mut out = Vec::new();
    program::run(Path::new(&model), "forward", &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("takes i64 [1, ") && out.contains("gives f32 ") && out.contains("262"), "{out}");
}

#[test]
fn transcribe_writes_down_what_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let model = text(&pteron::tiny::hearing(folder.path()).unwrap());
    let (sound, mut out) = (folder.path().join("sound.wav"), Vec::new());
    std::fs::write(&sound, pteron::tiny::sound(40.0)).unwrap();
    transcribe::run(&model, &text(folder.path()), &sound, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    // What a model of random weights says behind its own words is anybody's guess.
    assert!(out.starts_with("   0.0 s A\n") && out.ends_with("\n40.0 s of en\n"), "{out}");
}
