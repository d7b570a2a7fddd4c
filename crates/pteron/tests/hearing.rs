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
