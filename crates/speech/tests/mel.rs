//! Front ends against the features that an independent extractor gives (`make_data.py`).

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use pteron_speech::mel::{Mel, MelSettings, scale};
use safetensors::SafeTensors;

const DATA: &[u8] = include_bytes!("data/features.safetensors");
/// What the extractors' own arithmetic leaves open.
const CLOSE: f32 = 1e-4;

fn bytes<const N: usize>(name: &str) -> Vec<[u8; N]> {
    let file = SafeTensors::deserialize(DATA).unwrap();
    file.tensor(name).unwrap().data().as_chunks::<N>().0.to_vec()
}

fn wanted(name: &str) -> Vec<f32> {
    bytes::<4>(name).into_iter().map(f32::from_le_bytes).collect()
}

fn samples() -> Vec<f32> {
    bytes::<2>("samples").into_iter().map(|bytes| f32::from(i16::from_le_bytes(bytes)) / 32768.0).collect()
}

fn frames(settings: MelSettings, samples: &[f32], block: usize) -> Vec<f32> {
    let (mut mel, mut frames) = (Mel::new(settings), Vec::new());
    samples.chunks(block).for_each(|block| mel.push(block, &mut frames));
    mel.finish(&mut frames);
    frames
}

fn largest_difference(made: &[f32], wanted: &[f32]) -> f32 {
    assert_eq!(made.len(), wanted.len());
    made.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn whisper_features_are_the_published_ones() {
    let samples = samples();
    let count = samples.len() / 160;
    // The extractor fills thirty seconds up with silence.
    let filled: Vec<f32> = samples.iter().copied().chain(std::iter::repeat_n(0.0, 8000)).collect();
    for mels in [80, 128] {
        let mut frames = frames(MelSettings::whisper(mels), &filled, 777);
        let ceiling = frames.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        scale::whisper(&mut frames, ceiling);
        let bands = scale::by_band(&frames, mels, count);
        let difference = largest_difference(&bands, &wanted(&format!("whisper{mels}")));
        assert!(difference < CLOSE, "{mels} bands: {difference}");
    }
}

#[test]
fn a_fixed_ceiling_changes_the_floor_alone() {
    let mut frames = frames(MelSettings::whisper(128), &samples(), 777);
    let bare = frames.clone();
    scale::whisper(&mut frames, scale::REALTIME_CEILING);
    for (scaled, bare) in frames.iter().zip(bare) {
        assert_eq!(*scaled, (bare.max(-6.5) + 4.0) / 4.0);
    }
}

#[test]
fn parakeet_features_are_the_published_ones() {
    let samples = samples();
    for mels in [80, 128] {
        let mut frames = frames(MelSettings::parakeet(mels), &samples, 777);
        scale::parakeet(&mut frames, mels);
        let bands = scale::by_band(&frames, mels, samples.len() / 160);
        let difference = largest_difference(&bands, &wanted(&format!("parakeet{mels}")));
        assert!(difference < CLOSE, "{mels} bands: {difference}");
    }
}

#[test]
fn blocks_make_no_difference() {
    let samples = samples();
    for settings in [MelSettings::whisper(80), MelSettings::parakeet(80)] {
        let whole = frames(settings.clone(), &samples, samples.len());
        for block in [1, 160, 4001] {
            assert_eq!(frames(settings.clone(), &samples, block), whole);
        }
    }
}

#[test]
fn short_sounds_have_the_frames_that_fit() {
    for settings in [MelSettings::whisper(80), MelSettings::parakeet(80)] {
        for count in [0, 1, 159, 160, 199, 200, 201, 400] {
            let frames = frames(settings.clone(), &vec![0.1; count], 50);
            assert_eq!(frames.len(), count / 160 * 80, "{count} samples");
            assert!(frames.iter().all(|value| value.is_finite()));
            let mut scaled = frames.clone();
            scale::parakeet(&mut scaled, 80);
            assert!(scaled.iter().all(|value| value.is_finite()));
        }
    }
}
