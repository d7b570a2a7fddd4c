//! `pteron transcribe` from end to end, with a Whisper that has no weights to speak of: what it says is nonsense, how it is
//! said is not.

#![allow(clippy::unwrap_used)] // a test may panic

mod support;

use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};
use support::*;

/// A published shape with weights of zero, but for a decoder that says the same of every window.
fn whisper(folder: &Folder) -> String {
    pteron::tiny::hearing(&folder.path("")).unwrap().to_str().unwrap().to_owned()
}

fn wav(seconds: f64) -> Vec<u8> {
    pteron::tiny::sound(seconds)
}

fn transcribe(folder: &Folder, arguments: &[&str], input: &[u8]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pteron"));
    command.env("PTERON_HOME", folder.path("home")).arg("transcribe").args(arguments).arg("--no-vad");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A child that refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn sound_becomes_text_in_every_form() {
    let folder = Folder::new();
    let model = whisper(&folder);
    // Forty seconds are two windows.
    let sound = folder.write("sound.mp3", &wav(40.0));
    let model = ["--model", &model, "--temperature", "0", "--no-previous-text"];
    let run = |more: &[&str]| transcribe(&folder, &[&model[..], more].concat(), b"");
    let said = run(&[&sound]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "A\nA\n"), "{}", said.stderr);
    assert!(said.stderr.contains("40.0 s of sound") && said.stderr.contains("converting"), "{}", said.stderr);
    // The second time nothing is converted, and nothing is told if nobody asks.
    let again = run(&["--quiet", &sound]);
    assert_eq!((again.stdout.as_str(), again.stderr.as_str()), ("A\nA\n", ""));
    for (form, wanted) in [
        ("srt", "1\n00:00:00,000 --> 00:00:02,000\nA\n\n2\n00:00:30,000 --> 00:00:32,000\nA\n\n"),
        ("vtt", "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\nA\n\n00:00:30.000 --> 00:00:32.000\nA\n\n"),
        ("tsv", "start\tend\ttext\n0\t2000\tA\n30000\t32000\tA\n"),
        ("txt", "A\nA\n"),
    ] {
        assert_eq!(run(&["--quiet", "--format", form, &sound]).ok(), wanted, "{form}");
        let place = folder.at(&format!("out.{form}"));
        assert_eq!(run(&["--quiet", "-o", &place, &sound]).ok(), "");
        assert_eq!(std::fs::read_to_string(&place).unwrap(), wanted, "{form}");
    }
    let json: Value = serde_json::from_str(&run(&["--quiet", "--format", "json", &sound]).ok()).unwrap();
    assert_eq!(
        (&json["duration"], &json["language"], &json["text"]),
        (&json!(40.0), &json!("en"), &json!("AA"))
    );
    // Samples from a microphone are the same sound.
    let raw = transcribe(&folder, &[&model[..], &["--quiet", "--mic", "i16"]].concat(), &wav(40.0)[44..]);
    assert_eq!(raw.ok(), "A\nA\n");
    // So are several files, each under its name.
    let short = folder.write("short.wav", &wav(0.01));
    let both = run(&["--quiet", &sound, &short]).ok();
    assert!(both.starts_with(&format!("{sound}:\nA\nA\n{short}:\n")), "{both}");
}

#[test]
fn what_cannot_be_transcribed_says_why() {
    let folder = Folder::new();
    let model = whisper(&folder);
    let sound = folder.write("sound.wav", &wav(1.0));
    let (text, missing) = (folder.write("notes.wav", b"Dear reader,\n"), folder.at("nothing.wav"));
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let run = transcribe(&folder, &[&["--model", model.as_str()][..], arguments].concat(), b"");
        assert_eq!(run.code, code, "{}", run.stderr);
        assert!(run.stderr.contains(words), "{words:?} is not in {}", run.stderr);
        assert_eq!(run.stdout, "");
    };
    refused(&[&text], 1, "no sound file that is known");
    refused(&[&missing], 1, "nothing.wav");
    refused(&[&sound, "--language", "tlh"], 2, "does not know the language `tlh`");
    refused(&[&sound, "--translate"], 1, "English alone");
    refused(&[&sound, "--words"], 2, "times of words");
    refused(&[&sound, "-o", &folder.at("out.doc")], 2, "none of txt");
    refused(&[&sound, "-o", &sound], 2, "would be lost");
    refused(&[&sound, &sound, "-o", &folder.at("out.srt")], 2, "several sound files");
    refused(&[&sound, "--temperature", "3"], 2, "no temperature");
    refused(&[], 2, "FILE");
}
