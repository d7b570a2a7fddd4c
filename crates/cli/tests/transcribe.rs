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

/// A WAV file of that rate and number of channels; sample by sample, channels side by side.
fn wav_of(rate: u32, channels: u16, samples: &[f32]) -> Vec<u8> {
    let (frame, bytes) = (4 * u32::from(channels), 4 * samples.len() as u32);
    let mut file = b"RIFF".to_vec();
    file.extend((36 + bytes).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x03\0");
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate * frame).to_le_bytes());
    file.extend((frame as u16).to_le_bytes());
    file.extend(b"\x20\0data");
    file.extend(bytes.to_le_bytes());
    file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    file
}

fn parakeet(name: &str) -> String {
    format!("{}/../checkpoint/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Whatever comes in, an answer comes out, or an error in one line; never a panic.
#[test]
fn strange_sound_has_an_answer_or_a_clear_error() {
    let folder = Folder::new();
    let noise =
        |count: usize| (0..count).map(|n| ((n * 7919 % 1000) as f32 / 500.0 - 1.0) * 0.3).collect::<Vec<_>>();
    let loud: Vec<f32> = noise(16_000).iter().map(|sample| sample * 1e30).collect();
    let mut broken = noise(16_000);
    broken.iter_mut().step_by(7).for_each(|sample| *sample = f32::NAN);
    broken.iter_mut().skip(3).step_by(11).for_each(|sample| *sample = f32::INFINITY);
    let good: [(&str, Vec<u8>); 10] = [
        ("silence.wav", wav_of(16_000, 1, &vec![0.0; 16_000])),
        ("noise.wav", wav_of(16_000, 1, &noise(16_000))),
        ("hundredth.wav", wav_of(16_000, 1, &noise(160))),
        ("one.wav", wav_of(16_000, 1, &noise(1))),
        ("none.wav", wav_of(16_000, 1, &[])),
        ("nan.wav", wav_of(16_000, 1, &broken)),
        ("loud.wav", wav_of(16_000, 1, &loud)),
        ("fast.wav", wav_of(192_000, 1, &noise(192_000))),
        ("wide.wav", wav_of(48_000, 8, &noise(8 * 48_000))),
        ("wrong.mp3", wav_of(8_000, 2, &noise(16_000))),
    ];
    let models = [whisper(&folder), parakeet("parakeet_tdt"), parakeet("parakeet_ctc")];
    for model in &models {
        let run = |file: &str| {
            let arguments = ["--model", model, "--temperature", "0", "--quiet", "--format", "json", file];
            let run = transcribe(&folder, &arguments, b"");
            assert!(!run.stderr.contains("panicked"), "{file}: {}", run.stderr);
            run
        };
        for (name, bytes) in &good {
            let said = run(&folder.write(name, bytes));
            assert_eq!(said.code, 0, "{name}: {}", said.stderr);
            let json: Value = serde_json::from_str(&said.stdout).unwrap();
            let wanted = match *name {
                "hundredth.wav" => 0.01,
                "one.wav" | "none.wav" => 0.0,
                _ => 1.0,
            };
            assert!((json["duration"].as_f64().unwrap() - wanted).abs() < 0.011, "{name}: {json}");
        }
    }
    let whole = wav(2.0);
    let mut cases: Vec<(String, Vec<u8>)> = vec![
        ("empty.wav".to_owned(), Vec::new()),
        ("half-header.wav".to_owned(), whole[..20].to_vec()),
        ("letters.mp3".to_owned(), b"ID3 but then only words".to_vec()),
        ("zeros.flac".to_owned(), vec![0; 10_000]),
    ];
    // Every byte of the header spoiled in two ways, and the file cut in several places.
    for at in 0..44 {
        for flip in [0xff, 0x80] {
            let mut spoiled = whole.clone();
            spoiled[at] ^= flip;
            cases.push((format!("spoiled-{at}-{flip}.wav"), spoiled));
        }
    }
    cases.extend([30, 44, 45, 1000].map(|length| (format!("cut-{length}.wav"), whole[..length].to_vec())));
    let paths: Vec<String> = cases.iter().map(|(name, bytes)| folder.write(name, bytes)).collect();
    for (path, (name, _)) in paths.iter().zip(&cases) {
        let run = transcribe(&folder, &["--model", &models[2], "--quiet", path], b"");
        assert!(!run.stderr.contains("panicked"), "{name}: {}", run.stderr);
        match run.code {
            0 => {}
            1 => assert!(run.stderr.starts_with("error: ") && run.stderr.contains(name), "{}", run.stderr),
            code => panic!("{name}: {code}: {}", run.stderr),
        }
    }
    // Those that are no sound at all are refused.
    for path in &paths[..4] {
        assert_eq!(transcribe(&folder, &["--model", &models[2], "--quiet", path], b"").code, 1, "{path}");
    }
}

#[test]
fn a_stream_that_stops_is_heard_as_far_as_it_came() {
    let folder = Folder::new();
    let (whisper, parakeet) = (whisper(&folder), parakeet("parakeet_ctc"));
    for model in [&whisper, &parakeet] {
        // In the middle of a sample.
        let said = transcribe(&folder, &["--model", model, "--mic", "i16"], &wav(3.0)[44..64_001]);
        assert_eq!(said.code, 0, "{}", said.stderr);
        assert!(said.stderr.contains("2.0 s of sound"), "{}", said.stderr);
        let nothing = transcribe(&folder, &["--model", model, "--mic", "f32"], b"");
        assert_eq!((nothing.code, nothing.stdout.as_str()), (0, ""), "{}", nothing.stderr);
        let file = folder.write("stops.wav", &wav(3.0)[..64_000]);
        let said = transcribe(&folder, &["--model", model, &file], b"");
        assert!(said.code == 0 && said.stderr.contains("2.0 s of sound"), "{}", said.stderr);
    }
}
