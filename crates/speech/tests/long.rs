//! Long sounds with long silences, as they come from a stream: nothing is said in the silences, nothing is lost, and memory does
//! not grow with the length.

#![allow(clippy::unwrap_used, unsafe_code)] // helpers fail their test; an allocator is unsafe by nature

use pteron_companion::{Parakeet, TokenizerConfig, TokenizerFormat, Whisper, WhisperTokens};
use pteron_llm::tokenizer::Tokenizer;
use pteron_speech::Result;
use pteron_speech::parakeet::{self, Guess};
use pteron_speech::segment::Event;
use pteron_speech::sound::{RawFormat, SampleKind, Samples, Sound};
use pteron_speech::voice::{Border, CHUNK, Judge, Spoken, VoiceOptions};
use pteron_speech::whisper::features::{Ceiling, Features};
use pteron_speech::whisper::search::Branch;
use pteron_speech::whisper::{self, Settings};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, with a count of the bytes that are held.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(data, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const RATE: usize = 16_000;
/// Twenty minutes; somebody speaks in the first 40 seconds of every two minutes.
const SECONDS: usize = 20 * 60;
const PERIOD: usize = 120;
const SPOKEN: usize = 40;

fn is_spoken(second: f64) -> bool {
    second.rem_euclid(PERIOD as f64) < SPOKEN as f64
}

/// Samples as a microphone gives them, made when they are read.
struct Microphone(usize);

impl Read for Microphone {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = (out.len() / 2).min(SECONDS * RATE - self.0);
        for pair in out.chunks_exact_mut(2).take(count) {
            let sample = match is_spoken(self.0 as f64 / RATE as f64) {
                true => (self.0 * 7919 % 20_000) as i16 - 10_000,
                false => 0,
            };
            pair.copy_from_slice(&sample.to_le_bytes());
            self.0 += 1;
        }
        Ok(2 * count)
    }
}

/// Loud is speech.
struct Loud;

impl Judge for Loud {
    fn probability(&mut self, chunk: &[f32; CHUNK]) -> f32 {
        if chunk.iter().any(|sample| sample.abs() > 0.01) { 1.0 } else { 0.0 }
    }

    fn reset(&mut self) {}
}

/// Bytes per token, then the marks of `WhisperTokens` behind ten words.
fn tokenizer() -> Tokenizer {
    let lines: String = (b'a'..=b'j').map(|letter| format!("{}\n", spelled(letter))).collect();
    let numbered: String = lines.lines().enumerate().map(|(id, line)| format!("{line} {id}\n")).collect();
    Tokenizer::load(TokenizerFormat::Tiktoken, numbered.as_bytes(), &TokenizerConfig::default()).unwrap()
}

/// A letter in base 64.
fn spelled(letter: u8) -> String {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (high, low) =
        (alphabet[(letter >> 2) as usize] as char, alphabet[((letter & 3) << 4) as usize] as char);
    format!("{high}{low}==")
}

const FIRST_TIME: u32 = 20;

fn tokens() -> WhisperTokens {
    WhisperTokens {
        end: 10,
        start: 11,
        languages: Vec::new(),
        translate: 14,
        transcribe: 15,
        previous: 17,
        no_speech: 18,
        no_times: 19,
        first_time: FIRST_TIME,
    }
}

/// Says a word for every two seconds of a window that there are, another one each time.
#[derive(Default)]
struct Parrot {
    /// Where texts begin.
    begun: usize,
    windows: usize,
    words: u32,
}

impl whisper::Engine for Parrot {
    fn hear(&mut self, features: &[f32]) -> Result<()> {
        self.windows += 1;
        // What is behind the end of a sound is zero.
        let frames = features[..3000].iter().rposition(|&value| value != 0.0).map_or(0, |last| last + 1);
        self.words = frames as u32 / 200;
        Ok(())
    }

    fn read(&mut self, tokens: &[u32], position: usize, logits: &mut Vec<f32>) -> Result<()> {
        self.begun = position + tokens.len();
        self.say(0, logits);
        Ok(())
    }

    fn follow(&mut self, texts: &[Branch], position: usize, logits: &mut Vec<Vec<f32>>) -> Result<()> {
        logits.resize_with(texts.len(), Vec::new);
        logits.iter_mut().for_each(|logits| self.say(position + 1 - self.begun, logits));
        Ok(())
    }
}

impl Parrot {
    fn say(&self, at: usize, logits: &mut Vec<f32>) {
        // Time, word, time, time, word, time, and so on.
        let (number, part) = (at as u32 / 3, at % 3);
        let next = match part {
            _ if number >= self.words => 10,
            0 => FIRST_TIME + 100 * number,
            1 => (number + self.windows as u32) % 10,
            _ => FIRST_TIME + 100 * (number + 1),
        };
        *logits = vec![-10.0; FIRST_TIME as usize + 1501];
        logits[next as usize] = 20.0;
    }
}

/// Says a word in every sixth place.
struct Metronome(usize);

impl parakeet::Engine for Metronome {
    fn hear(&mut self, _: &[f32], frames: usize) -> Result<usize> {
        self.0 = frames.div_ceil(8);
        Ok(self.0)
    }

    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    fn say(&mut self, _: u32) -> Result<()> {
        Ok(())
    }

    fn guess(&mut self, place: usize, out: &mut Vec<Guess>) -> Result<()> {
        let token = if place.is_multiple_of(6) { (place / 6 % 10) as u32 } else { 99 };
        *out = vec![Guess { token, lasts: Some(1) }];
        Ok(())
    }

    fn repeats(&self) -> bool {
        false
    }
}

/// What is told with its times, and the most bytes held in the first five minutes and in all.
fn run(
    transcribe: impl FnOnce(&mut dyn Samples, &mut dyn FnMut(Event<'_>)) -> Result<()>,
) -> (Vec<(f64, f64)>, [usize; 2]) {
    let format = RawFormat { kind: SampleKind::I16, rate: RATE as u32, channels: 1 };
    let (mut sound, mut judge) = (Sound::raw(Microphone(0), format).unwrap(), Loud);
    let mut spoken = Spoken::new(&mut sound, &mut judge, VoiceOptions::default());
    let map = spoken.map();
    // Room for all that is told, so that it does not count.
    let mut told = Vec::with_capacity(10_000);
    let (before, mut early) = (HELD.load(Ordering::Relaxed), 0);
    MOST.store(before, Ordering::Relaxed);
    transcribe(&mut spoken, &mut |event| match event {
        Event::Segment(segment) => {
            let map = map.borrow();
            told.push((map.original(segment.start, Border::Start), map.original(segment.end, Border::End)));
        }
        Event::Heard(seconds) if map.borrow().original(seconds, Border::End) < 300.0 => {
            early = MOST.load(Ordering::Relaxed) - before;
        }
        _ => {}
    })
    .unwrap();
    (told, [early, MOST.load(Ordering::Relaxed) - before])
}

/// One test: allocations of another one would count.
#[test]
fn twenty_minutes_take_the_memory_of_five_and_silences_stay_silent() {
    let tokenizer = tokenizer();
    let info =
        Whisper { mels: 80, frames: 3000, positions: 200, tokens: tokens(), alignment_heads: Vec::new() };
    let mut parrot = Parrot::default();
    let by_whisper = run(|samples, tell| {
        let mut features = Features::new(samples, info.mels, Ceiling::of_stream());
        let settings = Settings { temperatures: vec![0.0], conditioned: false, ..Settings::default() };
        whisper::Transcriber::new(&mut parrot, &info, &tokenizer, settings)?.run(&mut features, tell)
    });
    let info = Parakeet {
        mels: 80,
        frames: 3000,
        subsampling: 8,
        blank: 99,
        durations: vec![0, 1, 2, 3, 4],
        most_symbols: 10,
    };
    let by_parakeet = run(|samples, tell| {
        parakeet::Transcriber::new(&mut Metronome(0), &info, &tokenizer, true).run(samples, tell)
    });
    for (name, (told, [early, all]), least) in [("whisper", by_whisper, 150), ("parakeet", by_parakeet, 10)] {
        assert!(told.len() >= least, "{name}: {} segments", told.len());
        assert!(told.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{name}: out of order");
        // What is kept around speech is silent, too.
        let near = |time: f64| is_spoken(time - 0.6) || is_spoken(time + 0.6);
        let lost = told.iter().find(|(start, end)| !near(*start) || !near(*end));
        assert!(lost.is_none(), "{name}: {lost:?} is in a silence");
        assert!(told.last().unwrap().1 > (SECONDS - PERIOD) as f64, "{name}: the end is lost");
        assert!(
            early > 0 && all as f64 <= 1.01 * early as f64,
            "{name}: {early} bytes at first, {all} in the end"
        );
    }
}
