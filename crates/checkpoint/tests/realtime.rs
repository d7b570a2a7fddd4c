//! A tiny Voxtral Realtime from a Hugging Face folder, held to what transformers computes and writes (`make_realtime.py`).

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

mod speech;

use pteron_checkpoint::{Checkpoint, ExportOptions};
use pteron_companion::{Realtime, Speech, TokenizerConfig, TokenizerFormat};
use pteron_llm::tokenizer::Tokenizer;
use pteron_runtime::{Program, Session, Value};
use pteron_speech::realtime::{RealtimeProgram, Transcriber};
use pteron_speech::segment::Event;
use pteron_speech::sound::{Samples, SoundError};
use pteron_tensor::{DType, HostTensor};
use speech::{Expected, data, difference, exported, floats};

const EXPECTED: Expected = Expected(include_bytes!("data/realtime_expected.safetensors"));
const CLOSE: f32 = 2e-4;
const MELS: usize = 16;
const FRAMES: usize = 8;
const WIDTH: usize = 32;
/// Sounds of the script, by their samples.
const SOUNDS: [(&str, usize); 2] = [("short", 20_000), ("long", 51_360)];

fn info() -> Realtime {
    Realtime { mels: MELS, frames: FRAMES, delay: 3, silence: 4 }
}

/// Our own form, told positions as numbers, and the one that ExecuTorch's runners drive.
fn forms() -> [(Program, bool); 2] {
    let own = ExportOptions { activations: DType::F32, ..ExportOptions::default() };
    let theirs = ExportOptions { activations: DType::F32, ..ExportOptions::for_executorch() };
    [(own, true), (theirs, false)].map(|(options, is_number)| {
        let checkpoint = Checkpoint::open(&data("realtime")).unwrap();
        assert_eq!(checkpoint.speech, Some(Speech::Realtime(info())));
        (exported(&checkpoint, &options), is_number)
    })
}

fn position(at: usize, is_number: bool) -> Value {
    match is_number {
        true => Value::Int(at as i64),
        false => HostTensor::from_slice(vec![1], &[at as i64]).unwrap().into(),
    }
}

/// Rows of some places of a sound behind those that were heard before.
fn heard(session: &mut Session, name: &str, from: usize, count: usize, is_number: bool) -> Vec<f32> {
    let features = EXPECTED.floats(&format!("{name}.features"));
    let frames = features.len() / MELS;
    let band = |band: usize| &features[band * frames..][from * FRAMES..(from + count) * FRAMES];
    let part: Vec<f32> = (0..MELS).flat_map(|at| band(at).to_vec()).collect();
    let part = HostTensor::from_slice(vec![1, MELS, count * FRAMES], &part).unwrap();
    floats(&session.run("encode_audio_chunk", &[part.into(), position(4 * from, is_number)]).unwrap()[0])
}

#[test]
fn sound_in_pieces_of_any_size_becomes_the_rows_of_transformers() {
    for (program, is_number) in forms() {
        for (name, _) in SOUNDS {
            let wanted = EXPECTED.floats(&format!("{name}.rows"));
            let places = wanted.len() / WIDTH;
            // Windows of 22 positions slide over many calls of one place, and within one of many.
            for sizes in [&[1][..], &[16], &[3, 1, 7, 2, 16]] {
                let mut session = program.session().unwrap();
                let (mut rows, mut sizes) = (Vec::new(), sizes.iter().cycle());
                while rows.len() < wanted.len() {
                    let at = rows.len() / WIDTH;
                    let count = (*sizes.next().unwrap()).min(places - at);
                    rows.extend(heard(&mut session, name, at, count, is_number));
                }
                let off = difference(&rows, &wanted);
                assert!(off < CLOSE, "{name}: off by {off}");
            }
        }
    }
}

#[test]
fn every_place_has_the_logits_of_transformers() {
    for (program, is_number) in forms() {
        for (name, _) in SOUNDS {
            let tokens = EXPECTED.integers(&format!("{name}.tokens"));
            let rows = EXPECTED.floats(&format!("{name}.rows"));
            let logits = EXPECTED.floats(&format!("{name}.logits"));
            let mut session = program.session().unwrap();
            let prompt = 1 + 4 + 3;
            let mut at = 0;
            for wanted in logits.chunks(64) {
                let count = if at == 0 { prompt } else { 1 };
                let ids = HostTensor::from_slice(vec![1, count], &tokens[at..at + count]).unwrap();
                let mut sums = floats(&session.run("token_embedding", &[ids.into()]).unwrap()[0]);
                sums.iter_mut().zip(&rows[at * WIDTH..]).for_each(|(sum, row)| *sum += row);
                let sums = HostTensor::from_slice(vec![1, count, WIDTH], &sums).unwrap();
                let given = session.run("text_decoder", &[sums.into(), position(at, is_number)]).unwrap();
                let off = difference(&floats(&given[0]), wanted);
                assert!(off < CLOSE, "{name}: place {at} is off by {off}");
                at += count;
            }
        }
    }
}

/// The saws of the script, so many samples at a time.
struct Saws {
    at: i64,
    end: i64,
    block: i64,
}

impl Samples for Saws {
    fn read(&mut self, out: &mut Vec<f32>) -> Result<bool, SoundError> {
        let end = (self.at + self.block).min(self.end);
        out.extend(
            (self.at..end).map(|at| ((at * at / 640 % 4096 - 2048) * (at / 1600 % 7 + 1)) as f32 / 32768.0),
        );
        let goes_on = end > self.at;
        self.at = end;
        Ok(goes_on)
    }
}

fn tokenizer() -> Tokenizer {
    let file = std::fs::read(data("realtime/tokenizer.json")).unwrap();
    Tokenizer::load(TokenizerFormat::TokenizerJson, &file, &TokenizerConfig::default()).unwrap()
}

#[test]
fn a_stream_and_a_file_say_what_transformers_writes() {
    let tokenizer = tokenizer();
    for (program, _) in forms() {
        let mut engine = RealtimeProgram::new(&program, Some(info())).unwrap();
        for (name, samples) in SOUNDS {
            let wanted = EXPECTED.integers(&format!("{name}.tokens"));
            let is_text = |token: &&i64| ![0, 1, 2, 32, 33].contains(*token);
            let wanted: Vec<i64> = wanted[8..].iter().filter(is_text).copied().collect();
            assert!(wanted.len() > 5, "the script's model says too little: {wanted:?}");
            for block in [1_280, 160, 7_001, 1 << 20] {
                let mut saws = Saws { at: 0, end: samples as i64, block };
                let (mut tokens, mut seconds) = (Vec::new(), 0.0);
                let mut transcriber = Transcriber::new(&mut engine, &info(), &tokenizer, true).unwrap();
                let mut tell = |event: Event<'_>| match event {
                    Event::Segment(segment) => {
                        assert!(
                            segment.start <= segment.end && segment.end <= samples as f64 / 16_000.0 + 2.0
                        );
                        tokens.extend(segment.tokens.iter().map(|&token| i64::from(token)));
                    }
                    Event::Heard(until) => seconds = until,
                    Event::Language(..) => {}
                };
                transcriber.run(&mut saws, &mut tell).unwrap();
                assert_eq!(tokens, wanted, "{name} in blocks of {block}");
                assert_eq!(seconds, samples as f64 / 16_000.0);
            }
        }
        // Nothing to hear is nothing said.
        let mut told = 0;
        let mut transcriber = Transcriber::new(&mut engine, &info(), &tokenizer, false).unwrap();
        let nothing = &mut Saws { at: 0, end: 0, block: 1 };
        transcriber
            .run(nothing, &mut |event| told += usize::from(matches!(event, Event::Segment(_))))
            .unwrap();
        assert_eq!(told, 0);
    }
}
