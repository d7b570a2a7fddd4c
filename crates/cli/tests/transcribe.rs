//! `pteron transcribe` from end to end, with a Whisper that has no weights to speak of: what it says is nonsense, how it is
//! said is not.

#![allow(clippy::unwrap_used)] // a test may panic

mod support;

use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};
use support::*;

const VOCABULARY: usize = 51_864;
const WIDTH: usize = 32;

/// A published shape with weights of zero, but for a decoder that says the same of every window.
fn whisper(folder: &Folder) -> String {
    let config = json!({
        "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "vocab_size": VOCABULARY,
        "num_mel_bins": 80, "d_model": WIDTH, "encoder_layers": 1, "encoder_attention_heads": 1, "encoder_ffn_dim": 32,
        "decoder_layers": 1, "decoder_attention_heads": 1, "decoder_ffn_dim": 32, "max_source_positions": 1500,
        "max_target_positions": 448,
    });
    std::fs::create_dir(folder.path("tiny")).unwrap();
    folder.write("tiny/config.json", config.to_string().as_bytes());
    let tokens = (0..=255u32).map(|byte| {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let (high, low) =
            (alphabet[(byte >> 2) as usize] as char, alphabet[((byte & 3) << 4) as usize] as char);
        format!("{high}{low}== {byte}\n")
    });
    folder.write("tiny/tokenizer.tiktoken", tokens.collect::<String>().as_bytes());
    let mut tensors: Vec<(String, Vec<usize>)> = vec![
        ("encoder.conv1.weight".into(), vec![WIDTH, 80, 3]),
        ("encoder.conv1.bias".into(), vec![WIDTH]),
        ("encoder.conv2.weight".into(), vec![WIDTH, WIDTH, 3]),
        ("encoder.conv2.bias".into(), vec![WIDTH]),
        ("encoder.embed_positions.weight".into(), vec![1500, WIDTH]),
        ("decoder.embed_positions.weight".into(), vec![448, WIDTH]),
        ("decoder.embed_tokens.weight".into(), vec![VOCABULARY, WIDTH]),
    ];
    let mut norm = |name: &str| {
        tensors.push((format!("{name}.weight"), vec![WIDTH]));
        tensors.push((format!("{name}.bias"), vec![WIDTH]));
    };
    for half in ["encoder", "decoder"] {
        norm(&format!("{half}.layer_norm"));
        norm(&format!("{half}.layers.0.self_attn_layer_norm"));
        norm(&format!("{half}.layers.0.final_layer_norm"));
    }
    norm("decoder.layers.0.encoder_attn_layer_norm");
    for module in
        ["encoder.layers.0.self_attn", "decoder.layers.0.self_attn", "decoder.layers.0.encoder_attn"]
    {
        for projection in ["q_proj", "k_proj", "v_proj", "out_proj"] {
            tensors.push((format!("{module}.{projection}.weight"), vec![WIDTH, WIDTH]));
            if projection != "k_proj" {
                tensors.push((format!("{module}.{projection}.bias"), vec![WIDTH]));
            }
        }
    }
    for half in ["encoder", "decoder"] {
        for layer in ["fc1", "fc2"] {
            tensors.push((format!("{half}.layers.0.{layer}.weight"), vec![32, WIDTH]));
            tensors.push((format!("{half}.layers.0.{layer}.bias"), vec![32]));
        }
    }
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape) in tensors {
        let start = data.len();
        let count: usize = shape.iter().product();
        let mut values = vec![0f32; count];
        // Each position looks at a feature of its own, and there one token is far ahead of all others: the time 0, a word,
        // the time 2 s, the end.
        match name.as_str() {
            "decoder.layer_norm.weight" => values.fill(1.0),
            "decoder.embed_positions.weight" => (0..4).for_each(|at| values[at * WIDTH + at] = 100.0),
            "decoder.embed_tokens.weight" => {
                for (at, token) in [50_363, usize::from(b'A'), 50_463, 50_256].into_iter().enumerate() {
                    values[token * WIDTH + at] = 4.0;
                }
            }
            _ => {}
        }
        data.extend(values.iter().flat_map(|value| half::f16::from_f32(*value).to_le_bytes()));
        header.insert(
            format!("model.{name}"),
            json!({"dtype": "F16", "shape": shape, "data_offsets": [start, data.len()]}),
        );
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    folder.write("tiny/model.safetensors", &file);
    folder.at("tiny")
}

fn wav(seconds: f64) -> Vec<u8> {
    let count = (16_000.0 * seconds) as u32;
    let mut file = Vec::new();
    file.extend(b"RIFF");
    file.extend((36 + 2 * count).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data");
    file.extend((2 * count).to_le_bytes());
    file.extend((0..count).flat_map(|n| ((n % 2000 * 7919 % 2000) as i16 - 1000).to_le_bytes()));
    file
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
