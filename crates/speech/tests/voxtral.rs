//! Voxtral's loop without a model: prompts mark by mark, and long sounds over an engine that says what it is told to.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use pteron_companion::{TokenizerConfig, TokenizerFormat, Voxtral};
use pteron_llm::tokenizer::Tokenizer;
use pteron_speech::Result;
use pteron_speech::segment::Event;
use pteron_speech::sound::{Samples, SoundError};
use pteron_speech::voxtral::prompt::Wanted;
use pteron_speech::voxtral::{Engine, Part, Settings, Transcriber};
use serde_json::json;

const MARKS: [&str; 6] = ["<s>", "</s>", "[INST]", "[/INST]", "[BEGIN_AUDIO]", "[TRANSCRIBE]"];

/// The letters from a to z, a colon, a space, and the marks.
fn tokenizer() -> Tokenizer {
    let letters = ('a'..='z').chain([':', 'Ġ']).map(String::from);
    let vocabulary: serde_json::Map<_, _> =
        letters.zip(0..).map(|(letter, id)| (letter, json!(id))).collect();
    let mark = |(id, mark): (usize, &&str)| {
        json!({
            "id": 28 + id, "content": mark, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true
        })
    };
    let added: Vec<_> = MARKS.iter().enumerate().map(mark).collect();
    let level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocabulary, "merges": []
        }
    });
    let config = TokenizerConfig::default();
    Tokenizer::load(TokenizerFormat::TokenizerJson, file.to_string().as_bytes(), &config).unwrap()
}

/// Says one letter of each prompt, the next of the alphabet every time.
#[derive(Default)]
struct Parrot {
    windows: Vec<usize>,
    prompts: Vec<Vec<Part>>,
    /// Never ends by itself.
    endless: bool,
    read: usize,
    context: usize,
}

impl Parrot {
    fn say(&self, token: u32, logits: &mut Vec<f32>) {
        *logits = vec![0.0; 110];
        logits[token as usize] = 1.0;
    }
}

impl Engine for Parrot {
    fn hear(&mut self, windows: &[Vec<f32>]) -> Result<()> {
        assert!(windows.iter().all(|window| window.len() == 4 * 100));
        self.windows.push(windows.len());
        Ok(())
    }

    fn begin(&mut self, prompt: &[Part], logits: &mut Vec<f32>) -> Result<()> {
        self.prompts.push(prompt.to_vec());
        self.read = 0;
        self.say(self.prompts.len() as u32 - 1, logits);
        Ok(())
    }

    fn read(&mut self, token: u32, logits: &mut Vec<f32>) -> Result<()> {
        self.read += 1;
        self.say(if self.endless { token } else { 29 }, logits);
        Ok(())
    }

    fn context(&self) -> usize {
        self.context
    }

    fn left(&self) -> usize {
        self.context - self.read
    }
}

/// So many samples: noise, or nothing at all.
struct Block(usize, f32);

impl Samples for Block {
    fn read(&mut self, out: &mut Vec<f32>) -> std::result::Result<bool, SoundError> {
        let count = self.0.min(16_000);
        out.extend((0..count).map(|n| ((n * 7919 % 1000) as f32 / 500.0 - 1.0) * self.1));
        self.0 -= count;
        Ok(count > 0)
    }
}

/// Windows of a second.
fn run(parrot: &mut Parrot, seconds: usize, loud: f32, wanted: Wanted) -> Result<Vec<(f64, f64, String)>> {
    let info = Voxtral { mels: 4, frames: 100 };
    let (tokenizer, mut told) = (tokenizer(), Vec::new());
    let settings = Settings { wanted, rows: 10 };
    Transcriber::new(parrot, &info, &tokenizer, settings)?
        .run(&mut Block(16_000 * seconds, loud), &mut |event| {
            if let Event::Segment(segment) = event {
                told.push((segment.start, segment.end, segment.text.clone()));
            }
        })
        .map(|()| told)
}

fn parrot() -> Parrot {
    Parrot { context: 1000, ..Parrot::default() }
}

#[test]
fn prompts_are_those_of_the_training() {
    let mut transcript = parrot();
    let told = run(&mut transcript, 3, 0.3, Wanted::Transcript(Some("de".to_owned()))).unwrap();
    assert_eq!(told, [(0.0, 3.0, " a".to_owned())]);
    let before = Part::Tokens(vec![28, 30, 32]);
    let language = [11, 0, 13, 6, 26, 3, 4]; // lang:de
    let behind = Part::Tokens([&[31][..], &language, &[33]].concat());
    assert_eq!(transcript.prompts, [vec![before.clone(), Part::Sound, behind]]);
    assert_eq!(transcript.windows, [3]);
    let mut silent = parrot();
    run(&mut silent, 3, 0.3, Wanted::Transcript(None)).unwrap();
    assert_eq!(silent.prompts[0][2], Part::Tokens(vec![31, 33]));
    // Marks in a question are words.
    let mut answer = parrot();
    run(&mut answer, 3, 0.3, Wanted::Answer("who</s>".to_owned())).unwrap();
    let Part::Tokens(question) = &answer.prompts[0][2] else { panic!() };
    assert!(question.starts_with(&[22, 7, 14]) && question.ends_with(&[31]), "{question:?}");
    assert!(!question.contains(&29));
}

#[test]
fn long_sounds_are_parted_and_silence_is_left_alone() {
    let mut long = parrot();
    let told = run(&mut long, 35, 0.3, Wanted::Transcript(None)).unwrap();
    assert!(long.windows.iter().all(|&count| (1..=10).contains(&count)), "{:?}", long.windows);
    assert!(told.len() >= 4 && told[0].0 == 0.0 && told.last().unwrap().1 == 35.0, "{told:?}");
    assert!(told.windows(2).all(|pair| pair[0].1 == pair[1].0), "nothing is lost between them");
    let mut silent = parrot();
    assert_eq!(run(&mut silent, 35, 0.0, Wanted::Transcript(None)).unwrap(), []);
    assert_eq!(silent.prompts.len(), 0);
    assert_eq!(run(&mut parrot(), 0, 0.3, Wanted::Transcript(None)).unwrap(), []);
    let asked = run(&mut parrot(), 35, 0.3, Wanted::Answer("who".to_owned()));
    assert!(asked.unwrap_err().to_string().contains("minutes of sound at most"));
}

#[test]
fn a_model_that_does_not_stop_is_stopped() {
    let mut endless = Parrot { endless: true, ..parrot() };
    let told = run(&mut endless, 1, 0.3, Wanted::Transcript(None)).unwrap();
    assert_eq!(told[0].2.trim().len(), 76);
    // So it is where its positions end.
    let mut short = Parrot { endless: true, context: 20, ..Parrot::default() };
    assert_eq!(run(&mut short, 1, 0.3, Wanted::Transcript(None)).unwrap()[0].2.trim().len(), 21);
}
