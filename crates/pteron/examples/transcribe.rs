//! What is said in a sound file, stretch by stretch with its times.
//!
//! `cargo run --release -p pteron --example transcribe -- MODEL FOLDER SOUND`: MODEL is a file, a folder or a name such as
//! `whisper-tiny.en`.

use pteron::{Heard, OpenOptions, TranscribeOptions, Transcriber};
use std::error::Error;
use std::io::Write;
use std::path::Path;

pub(crate) fn run(model: &str, home: &str, sound: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let mut transcriber = Transcriber::open(model, OpenOptions::default().home(home))?;
    let mut trouble = Ok(());
    let transcript = transcriber.transcribe(sound, &TranscribeOptions::default(), |heard| {
        if let (Heard::Segment(segment), Ok(())) = (heard, &trouble) {
            trouble = writeln!(out, "{:6.1} s {}", segment.start, segment.text.trim());
        }
    })?;
    trouble?;
    writeln!(out, "{:.1} s of {}", transcript.duration, transcript.language)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, home, sound] = arguments.as_slice() else {
        return Err("usage: transcribe MODEL FOLDER SOUND".into());
    };
    run(model, home, Path::new(sound), &mut std::io::stdout())
}
