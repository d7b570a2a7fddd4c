//! Voices: the network against its published form, and sound with its silences left out.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use pteron_speech::sound::Samples;
use pteron_speech::sound::SoundError;
use pteron_speech::voice::{Border, CHUNK, Judge, Silero, Spoken, TimeMap, VoiceOptions};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

const FEATURES: &[u8] = include_bytes!("data/features.safetensors");
const SAID: &str = include_str!("data/silero.txt");

/// Sines for weights, as `make_data.py` has them.
fn waves(number: usize, shape: &[usize], scale: f64) -> Vec<u8> {
    let count: usize = shape.iter().product();
    let fan_in = if shape.len() > 1 { count / shape[0] } else { 100 };
    let wave = |at: usize| (12.9898 * (at + 1) as f64 + 78.233 * number as f64).sin();
    (0..count).flat_map(|at| ((scale * wave(at) / (fan_in as f64).sqrt()) as f32).to_le_bytes()).collect()
}

/// A windowed transform as a convolution.
fn transform() -> Vec<u8> {
    let angle = |n: usize| 2.0 * std::f64::consts::PI * n as f64 / 256.0;
    let window = |n: usize| 0.5 - 0.5 * angle(n).cos();
    let row = |row: usize| {
        (0..256).flat_map(move |n| {
            let (bin, phase) = (row % 129, angle((row % 129) * n));
            let wave = if row == bin { phase.cos() } else { -phase.sin() };
            ((wave * window(n)) as f32).to_le_bytes()
        })
    };
    (0..258).flat_map(row).collect()
}

fn file() -> Vec<u8> {
    let mut tensors: Vec<(&str, Vec<usize>, Vec<u8>)> =
        vec![("stft_conv.weight", vec![258, 1, 256], transform())];
    let shapes: [(&str, usize, &[usize], f64); 14] = [
        ("conv1.weight", 1, &[128, 129, 3], 9.0),
        ("conv1.bias", 2, &[128], 1.0),
        ("conv2.weight", 3, &[64, 128, 3], 9.0),
        ("conv2.bias", 4, &[64], 1.0),
        ("conv3.weight", 5, &[64, 64, 3], 9.0),
        ("conv3.bias", 6, &[64], 1.0),
        ("conv4.weight", 7, &[128, 64, 3], 9.0),
        ("conv4.bias", 8, &[128], 1.0),
        ("lstm_cell.weight_ih", 9, &[512, 128], 9.0),
        ("lstm_cell.weight_hh", 10, &[512, 128], 9.0),
        ("lstm_cell.bias_ih", 11, &[512], 1.0),
        ("lstm_cell.bias_hh", 12, &[512], 1.0),
        ("final_conv.weight", 13, &[1, 128, 1], 9.0),
        ("final_conv.bias", 14, &[1], 1.0),
    ];
    for (name, number, shape, scale) in shapes {
        // One row of 128 weights is spread like a row, however many axes it has.
        let made = if number == 13 { waves(13, &[1, 128], scale) } else { waves(number, shape, scale) };
        tensors.push((name, shape.to_vec(), made));
    }
    let views: HashMap<&str, TensorView<'_>> = tensors
        .iter()
        .map(|(name, shape, bytes)| (*name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()))
        .collect();
    safetensors::serialize(views, None).unwrap()
}

#[test]
fn the_network_says_what_its_published_form_does() {
    let samples = SafeTensors::deserialize(FEATURES).unwrap();
    let samples = samples.tensor("samples").unwrap().data().as_chunks::<2>().0.to_vec();
    let samples: Vec<f32> = samples.iter().map(|x| f32::from(i16::from_le_bytes(*x)) / 32768.0).collect();
    let wanted: Vec<f32> = SAID.lines().map(|line| line.parse().unwrap()).collect();
    let mut silero = Silero::read(&file()).unwrap();
    for round in 0..2 {
        silero.reset();
        for (number, (chunk, wanted)) in samples.chunks(CHUNK).zip(&wanted).enumerate() {
            let mut whole = [0.0; CHUNK];
            whole[..chunk.len()].copy_from_slice(chunk);
            let said = silero.probability(&whole);
            assert!((said - wanted).abs() < 1e-4, "round {round}, chunk {number}: {said}, not {wanted}");
        }
    }
    // The judge would be no judge if all were alike.
    let spread = |f: fn(f32, f32) -> f32| wanted.iter().copied().reduce(f).unwrap();
    assert!(spread(f32::max) - spread(f32::min) > 0.1);
}

#[test]
fn other_files_are_no_network() {
    assert!(Silero::read(b"").is_err() && Silero::read(b"{}").is_err());
    let mut broken = file();
    let end = broken.len();
    broken.truncate(end - 4);
    assert!(Silero::read(&broken).is_err());
}

/// Loud is speech.
struct Loudness;

impl Judge for Loudness {
    fn probability(&mut self, chunk: &[f32; CHUNK]) -> f32 {
        chunk.iter().copied().fold(0.0, f32::max)
    }

    fn reset(&mut self) {}
}

/// Stretches of a loudness, in chunks; every sample says where it is by what is behind its point.
struct Stretches {
    loud: Vec<f32>,
    /// How many have been read.
    at: Rc<Cell<usize>>,
    block: usize,
}

impl Stretches {
    fn new(stretches: &[(f32, usize)], block: usize) -> Stretches {
        let stretch = |&(level, chunks): &(f32, usize)| std::iter::repeat_n(level, chunks * CHUNK);
        Stretches { loud: stretches.iter().flat_map(stretch).collect(), at: Rc::default(), block }
    }
}

impl Samples for Stretches {
    fn read(&mut self, out: &mut Vec<f32>) -> Result<bool, SoundError> {
        let end = (self.at.get() + self.block).min(self.loud.len());
        out.extend(&self.loud[self.at.get()..end]);
        self.at.set(end);
        Ok(out.len() < usize::MAX && end < self.loud.len())
    }
}

fn spoken(stretches: &[(f32, usize)], block: usize) -> (usize, TimeMap, Vec<f32>) {
    let mut source = Stretches::new(stretches, block);
    let mut judge = Loudness;
    let mut spoken = Spoken::new(&mut source, &mut judge, VoiceOptions::default());
    let map = spoken.map();
    let mut out = Vec::new();
    while spoken.read(&mut out).unwrap() {}
    let map = map.borrow().clone();
    (out.len(), map, out)
}

const SECOND: f64 = 16_000.0;

#[test]
fn silence_is_left_out_and_times_lead_back() {
    // 6.4 s of silence, 3.2 s of speech, 9.6 s of silence, 1.6 s of speech, and silence to the end.
    let stretches = [(0.1, 200), (0.9, 100), (0.1, 300), (0.9, 50), (0.1, 100)];
    let (whole, map, _) = spoken(&stretches, 4096);
    // 0.4 s are kept on each side.
    let first = 100 * CHUNK + 2 * 6400;
    let second = 50 * CHUNK + 2 * 6400;
    assert_eq!(whole, first + second);
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a}, not {b}");
    close(map.original(0.0, Border::Start), 6.0);
    close(map.original(0.4, Border::Start), 6.4);
    // Where two stretches meet, an end is the first's and a beginning the second's.
    let border = first as f64 / SECOND;
    close(map.original(border, Border::End), 6.4 + 3.2 + 0.4);
    close(map.original(border, Border::Start), 6.4 + 3.2 + 9.6 - 0.4);
    close(map.original(border + 1.0, Border::End), 19.2 - 0.4 + 1.0);
}

#[test]
fn words_and_sentences_do_not_reach_over_silence_that_was_left_out() {
    // As above: the first stretch is 6.0 to 10.0 s of the sound, the second 18.8 to 21.2 s.
    let (_, map, _) = spoken(&[(0.1, 200), (0.9, 100), (0.1, 300), (0.9, 50), (0.1, 100)], 4096);
    let close = |(a, b): (f64, f64), (c, d): (f64, f64)| {
        assert!((a - c).abs() < 1e-9 && (b - d).abs() < 1e-9, "{a} to {b}, not {c} to {d}");
    };
    let border = 4.0;
    close(map.word(1.0, 2.0), (7.0, 8.0));
    close(map.word(border - 0.5, border + 0.1), (9.5, 10.0));
    close(map.word(border - 0.1, border + 0.5), (18.8, 19.3));
    // A sentence begins with its first sound, and ends with its last.
    close(map.sentence(border - 0.3, border + 1.0), (18.8, 19.8));
    close(map.sentence(1.0, border + 0.2), (7.0, 10.0));
    close(map.sentence(1.0, border + 1.0), (7.0, 19.8));
    close(map.sentence(border - 0.3, border + 0.2), (18.8, 19.0));
    close(map.sentence(border, border + 1.0), (18.8, 19.8));
    close(map.sentence(1.0, border), (7.0, 10.0));
    // Without any stretch, times are what they are.
    close(TimeMap::default().word(1.0, 2.0), (1.0, 2.0));
    close(TimeMap::default().sentence(1.0, 2.0), (1.0, 2.0));
}

#[test]
fn blocks_make_no_difference_to_speech() {
    let stretches = [(0.1, 30), (0.9, 10), (0.4, 20), (0.1, 30), (0.6, 4), (0.1, 90), (0.9, 3)];
    let whole = spoken(&stretches, 1 << 20);
    for block in [100, 512, 5000] {
        let parts = spoken(&stretches, block);
        assert_eq!((parts.0, &parts.1), (whole.0, &whole.1), "{block}");
        assert!(parts.2 == whole.2, "{block}");
    }
}

#[test]
fn pauses_belong_to_speech_and_silence_alone_to_nobody() {
    // A pause of 1.6 s is heard, and so is what is said before the end.
    let (whole, map, _) = spoken(&[(0.9, 20), (0.1, 50), (0.9, 20)], 1000);
    assert_eq!(whole, 90 * CHUNK);
    assert_eq!(map.original(1.0, Border::Start), 1.0);
    assert_eq!(spoken(&[(0.1, 500)], 1000).0, 0);
    assert_eq!(spoken(&[], 1000).0, 0);
    // What never ends is passed on as it comes.
    assert_eq!(spoken(&[(0.9, 1000)], 1000).0, 1000 * CHUNK);
}

#[test]
fn whoever_has_long_been_speaking_need_only_take_a_breath() {
    let count = |chunks: usize| {
        let mut source = Stretches::new(&[(0.9, chunks), (0.1, 8), (0.9, 20), (0.1, 60)], 512);
        let mut judge = Loudness;
        let mut spoken = Spoken::new(&mut source, &mut judge, VoiceOptions::live());
        let (mut pieces, mut all) = (0, 0);
        while !spoken.is_over() {
            let mut out = Vec::new();
            while spoken.read(&mut out).unwrap() {}
            pieces += usize::from(!out.is_empty());
            all += out.len();
        }
        // Nothing of it is lost, and nothing is heard twice.
        assert_eq!(all, (chunks + 8 + 20) * CHUNK + 6400, "{chunks}");
        pieces
    };
    // 0.26 s of silence behind 1 s, 4 s and 9 s of speech.
    assert_eq!([30, 125, 280].map(count), [1, 1, 2]);
}

#[test]
fn a_stretch_of_speech_is_given_before_more_is_waited_for() {
    let stretches = [(0.1, 10), (0.9, 30), (0.1, 30), (0.9, 20), (0.1, 40)];
    let kept = 6400;
    for block in [100, 512, 1 << 20] {
        let mut source = Stretches::new(&stretches, block);
        let at = source.at.clone();
        let mut judge = Loudness;
        let mut spoken = Spoken::new(&mut source, &mut judge, VoiceOptions::live());
        let (mut pieces, mut read) = (Vec::new(), Vec::new());
        while !spoken.is_over() {
            let mut out = Vec::new();
            while spoken.read(&mut out).unwrap() {}
            pieces.push(out.len());
            read.push(at.get());
        }
        // The sound begins less than what is kept before the first; behind the last there is nothing more.
        assert_eq!(pieces, [10 * CHUNK + 30 * CHUNK + kept, 20 * CHUNK + 2 * kept, 0], "{block}");
        assert_eq!(spoken.passed() as usize, pieces.iter().sum::<usize>());
        assert!(!spoken.read(&mut Vec::new()).unwrap() && spoken.is_over());
        // Little more than half a second of silence is enough.
        let end = 40 * CHUNK;
        assert!(block > 1000 || read[0] <= end + 9600 + 2 * CHUNK + block, "{block}: {read:?}");
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a}, not {b}");
        let second = pieces[0] as f64 / SECOND;
        close(spoken.map().borrow().original(second, Border::Start), (70 * CHUNK - kept) as f64 / SECOND);
    }
}
