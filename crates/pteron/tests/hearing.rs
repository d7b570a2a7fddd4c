//! Transcripts: what is heard, what cannot be, and an end before the end.

#![allow(clippy::unwrap_used)] // a test may panic

use pteron::{Audio, Cancel, Error, Heard, Lack, Model, OpenOptions, TranscribeOptions, Transcriber};
use std::path::Path;
use tempfile::TempDir;

fn transcriber() -> (TempDir, Transcriber) {
    let folder = tempfile::tempdir().unwrap();
    let model = pteron::tiny::hearing(folder.path()).unwrap();
    let transcriber = Transcriber::open(model.as_path(), OpenOptions::default().home(folder.path())).unwrap();
    (folder, transcriber)
}

fn sound(folder: &Path, seconds: f64) -> std::path::PathBuf {
    let path = folder.join("sound.wav");
    std::fs::write(&path, pteron::tiny::sound(seconds)).unwrap();
    path
}

#[test]
fn files_samples_and_streams_say_the_same() {
    let (folder, mut transcriber) = transcriber();
    let path = sound(folder.path(), 40.0);
    // What a model of random weights says at first, and without what it said before.
    let options = TranscribeOptions::default().temperatures(vec![0.0]).forget(true);
    let mut told = Vec::new();
    let written = transcriber.transcribe(path.as_path(), &options, |heard| {
        told.push(match heard {
            Heard::Begins(seconds) => format!("begins {seconds:?}"),
            Heard::Language(code) => code.to_owned(),
            Heard::Segment(segment) => format!("{} {}", segment.start, segment.text),
            _ => String::new(),
        });
    });
    let written = written.unwrap();
    assert_eq!((written.text().as_str(), written.duration, written.is_cut_off), ("AA", 40.0, false));
    told.retain(|line| !line.is_empty());
    assert_eq!(told, ["begins Some(40.0)", "en", "0 A", "30 A"]);
    let content = Audio::Encoded(std::fs::read(&path).unwrap().into());
    assert_eq!(transcriber.transcribe(content, &options, |_| {}).unwrap(), written);
    let pcm = &pteron::tiny::sound(40.0)[44..];
    let samples = pcm.chunks(2).map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32768.0);
    let samples = Audio::Samples { samples: samples.collect(), rate: 16_000 };
    assert_eq!(transcriber.transcribe(samples, &options, |_| {}).unwrap().text(), "AA");
    let format = pteron::RawFormat { kind: pteron::SampleKind::I16, rate: 16_000, channels: 1 };
    let stream = Audio::Stream(Box::new(std::io::Cursor::new(pcm.to_vec())), format);
    assert_eq!(transcriber.transcribe(stream, &options, |_| {}).unwrap().text(), "AA");
}

#[test]
fn texts_beside_each_other_are_among_what_a_model_needs() {
    let folder = tempfile::tempdir().unwrap();
    let model = pteron::tiny::hearing(folder.path()).unwrap();
    let options = OpenOptions::default().home(folder.path());
    Transcriber::open(model.as_path(), options.clone()).unwrap();
    let needs = pteron::requirements(model.as_path(), &options).unwrap();
    // Of one layer: keys and values of 448 places, 32 floats each.
    let text = 2 * 448 * 32 * 4;
    assert_eq!((needs.state, needs.is_estimate), (5 * text, false));
}

#[test]
fn what_cannot_be_heard_is_told_by_its_kind() {
    let (folder, mut transcriber) = transcriber();
    let path = sound(folder.path(), 1.0);
    let text = folder.path().join("notes.wav");
    std::fs::write(&text, b"Dear reader,\n").unwrap();
    let own = TranscribeOptions::default;
    let mut hear =
        |path: &Path, options: TranscribeOptions| transcriber.transcribe(path, &options, |_| {}).unwrap_err();
    assert!(matches!(hear(&folder.path().join("none.wav"), own()), Error::NotFound(_)));
    assert!(matches!(hear(&text, own()), Error::Damaged(_)));
    assert!(matches!(hear(&path, own().language("tlh")), Error::Invalid(_)));
    assert!(matches!(hear(&path, own().translate(true)), Error::Unsupported(_)));
    let words = hear(&path, own().words(true));
    let cause = words.reason().and_then(|reason| reason.cause()?.downcast_ref());
    assert!(matches!(words, Error::Unsupported(_)) && cause == Some(&Lack::WordTimes), "{words:?}");
    let talking = pteron::tiny::talking(folder.path()).unwrap();
    let silent = Transcriber::open(talking.as_path(), OpenOptions::default()).unwrap_err();
    assert!(matches!(silent, Error::Unsupported(_)), "{silent:?}");
    let hearing = folder.path().join("hearing");
    let mute = Model::open(hearing.as_path(), OpenOptions::default().home(folder.path())).unwrap_err();
    assert!(matches!(mute, Error::Unsupported(_)), "{mute:?}");
}

#[test]
fn a_transcript_ends_soon_where_nobody_waits_for_it() {
    let (folder, mut transcriber) = transcriber();
    let path = sound(folder.path(), 200.0);
    let cancel = Cancel::default();
    let options = TranscribeOptions::default().cancel(&cancel);
    let mut segments = 0;
    let ended = transcriber.transcribe(path.as_path(), &options, |heard| {
        if let Heard::Segment(_) = heard {
            segments += 1;
            cancel.cancel();
        }
    });
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    assert!(segments <= 3, "{segments} windows after it was cancelled");
}

/// Tiny Parakeets, and what transformers hears in the same sound with them (`make_parakeet.py`).
mod parakeet {
    use super::*;
    use pteron_checkpoint::{Checkpoint, ExportOptions};
    use pteron_tensor::DType;
    use std::path::PathBuf;

    const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../checkpoint/tests/data");

    /// Saws of changing height and length, as the script makes them.
    fn saws() -> Audio {
        let sample = |at: i64| (at * at / 640 % 4096 - 2048) * (at / 1600 % 7 + 1);
        let samples = (0..51_360).map(|at| sample(at) as f32 / 32768.0).collect();
        Audio::Samples { samples, rate: 16_000 }
    }

    fn open(folder: &Path, name: &str) -> Transcriber {
        // In 32 bits: near ties of random weights fall otherwise in 8.
        let options = ExportOptions { activations: DType::F32, ..ExportOptions::default() };
        let program = folder.join(format!("{name}.pte"));
        let checkpoint = Checkpoint::open(&Path::new(DATA).join(name)).unwrap();
        pteron_checkpoint::export(&checkpoint, &options, &program, &mut |_| ()).unwrap();
        Transcriber::open(program.as_path(), OpenOptions::default().home(folder)).unwrap()
    }

    /// Token, place and length of what is said in the saws.
    fn said(name: &str) -> Vec<[i64; 3]> {
        let bytes = std::fs::read(PathBuf::from(DATA).join("parakeet_expected.safetensors")).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        let range = &header[format!("{name}.sound")]["data_offsets"];
        let at = |end: usize| 8 + length + range[end].as_u64().unwrap() as usize;
        let numbers: Vec<i64> =
            bytes[at(0)..at(1)].as_chunks::<8>().0.iter().map(|number| i64::from_le_bytes(*number)).collect();
        numbers.as_chunks::<3>().0.to_vec()
    }

    #[test]
    fn all_three_heads_say_what_transformers_says() {
        let folder = tempfile::tempdir().unwrap();
        for (source, name) in [
            ("parakeet_tdt", "parakeet_tdt"),
            ("parakeet_tdt.nemo", "parakeet_tdt"),
            ("parakeet_rnnt", "parakeet_rnnt"),
            ("parakeet_ctc", "parakeet_ctc"),
            ("parakeet_ctc.nemo", "parakeet_ctc"),
        ] {
            let mut transcriber = open(folder.path(), source);
            assert!(transcriber.tells_word_times());
            let options = TranscribeOptions::default().words(true);
            let heard = transcriber.transcribe(saws(), &options, |_| {}).unwrap();
            let tokens: Vec<i64> =
                heard.segments.iter().flat_map(|segment| &segment.tokens).map(|&id| id.into()).collect();
            let wanted = said(name);
            assert_eq!(tokens, wanted.iter().map(|[token, ..]| *token).collect::<Vec<_>>(), "{source}");
            let first = &heard.segments[0].words[0];
            assert!((first.start - wanted[0][1] as f64 * 0.08).abs() < 1e-9, "{first:?}");
            assert_eq!(heard.duration, 3.21);
            // Words are told only where they are asked for.
            let plain = transcriber.transcribe(saws(), &TranscribeOptions::default(), |_| {}).unwrap();
            assert!(plain.segments.iter().all(|segment| segment.words.is_empty()));
            assert_eq!(plain.text(), heard.text());
        }
    }

    /// `encoder`, `decoder_step` and `joint` of ExecuTorch's exporter, its sizes in metadata, the vocabulary beside it.
    #[test]
    fn what_executorch_exports_runs_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let program = Path::new(DATA).join("parakeet_executorch/model.pte");
        let options = OpenOptions::default().home(folder.path());
        let mut transcriber = Transcriber::open(program.as_path(), options).unwrap();
        let heard = transcriber.transcribe(saws(), &TranscribeOptions::default(), |_| {}).unwrap();
        let tokens: Vec<i64> =
            heard.segments.iter().flat_map(|segment| &segment.tokens).map(|&id| id.into()).collect();
        assert_eq!(tokens, said("parakeet_tdt").iter().map(|[token, ..]| *token).collect::<Vec<_>>());
    }

    #[test]
    fn published_files_are_converted_once() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["parakeet_tdt", "parakeet_ctc.nemo"] {
            let path = Path::new(DATA).join(name);
            let options = || OpenOptions::default().home(folder.path());
            let first = Transcriber::open(path.as_path(), options()).unwrap();
            assert!(first.tells_word_times());
            let mut second = Transcriber::open(path.as_path(), options()).unwrap();
            assert!(!second.transcribe(saws(), &Default::default(), |_| {}).unwrap().text().is_empty());
        }
    }

    #[test]
    fn what_it_cannot_do_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let mut transcriber = open(folder.path(), "parakeet_ctc");
        let mut refused = |options: TranscribeOptions| {
            transcriber.transcribe(saws(), &options, |_| {}).unwrap_err().to_string()
        };
        assert!(refused(TranscribeOptions::default().translate(true)).contains("translates nothing"));
        assert!(refused(TranscribeOptions::default().prompt("names")).contains("takes no prompt"));
        // The language is not needed, and told on.
        let options = TranscribeOptions::default().language("de");
        assert_eq!(transcriber.transcribe(saws(), &options, |_| {}).unwrap().language, "de");
        for samples in [0, 1, 159, 160, 200, 1281] {
            let sound = Audio::Samples { samples: vec![0.0; samples], rate: 16_000 };
            transcriber.transcribe(sound, &TranscribeOptions::default(), |_| {}).unwrap();
        }
    }
}

/// A tiny Voxtral, with a vocabulary that has the marks of the published one.
mod voxtral {
    use super::*;
    use serde_json::{Map, Value, json};

    fn folder() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../checkpoint/tests/data/voxtral"));
        for name in ["config.json", "model.safetensors"] {
            std::fs::copy(data.join(name), folder.path().join(name)).unwrap();
        }
        let marks = [
            (1, "<s>"),
            (11, "</s>"),
            (3, "[INST]"),
            (4, "[/INST]"),
            (25, "[BEGIN_AUDIO]"),
            (34, "[TRANSCRIBE]"),
        ];
        let is_mark = |id: &u32| marks.iter().any(|(mark, _)| mark == id);
        let letters = (0..48u32).filter(|id| !is_mark(id)).zip(('a'..='z').chain('A'..='Z'));
        let vocabulary: Map<String, Value> = letters
            .map(|(id, letter)| (letter.to_string(), id))
            .chain(marks.map(|(id, mark)| (mark.to_owned(), id)))
            .map(|(token, id)| (token, id.into()))
            .collect();
        let added: Vec<Value> = marks
            .map(|(id, mark)| {
                json!({
                    "id": id, "content": mark, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true
                })
            })
            .to_vec();
        let level =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
            "pre_tokenizer": level, "post_processor": null, "decoder": level,
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": vocabulary, "merges": []
            }
        });
        std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
        folder
    }

    #[test]
    fn it_writes_down_and_answers() {
        let (folder, home) = (folder(), tempfile::tempdir().unwrap());
        let options = OpenOptions::default().home(home.path());
        let mut transcriber = Transcriber::open(folder.path(), options).unwrap();
        assert!(!transcriber.tells_word_times());
        // Its windows are 16 frames long.
        let sound = |seconds: f64| {
            let samples = (0..(16_000.0 * seconds) as u32).map(|n| (n * 7919 % 2000) as f32 / 1000.0 - 1.0);
            Audio::Samples { samples: samples.collect(), rate: 16_000 }
        };
        let plain = TranscribeOptions::default();
        let heard = transcriber.transcribe(sound(0.15), &plain, |_| {}).unwrap();
        assert_eq!(heard.duration, 0.15);
        let said = &heard.segments[0];
        assert!(said.start == 0.0 && said.end == 0.15 && !said.text.trim().is_empty(), "{said:?}");
        // The same again: nothing of the last one is left.
        assert_eq!(transcriber.transcribe(sound(0.15), &plain, |_| {}).unwrap(), heard);
        let asked = plain.clone().ask("who");
        let answer = transcriber.transcribe(sound(0.15), &asked, |_| {}).unwrap();
        assert_ne!(answer.text(), heard.text());
        let silence = Audio::Samples { samples: vec![0.0; 16_000], rate: 16_000 };
        assert_eq!(transcriber.transcribe(silence, &plain, |_| {}).unwrap().text(), "");
        let refused = transcriber.transcribe(sound(0.15), &plain.clone().words(true), |_| {});
        assert!(matches!(refused, Err(Error::Unsupported(_) | Error::Invalid(_))), "{refused:?}");
    }
}
