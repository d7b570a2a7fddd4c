//! Reading sound: every container, every shape, and files that are broken.

#![allow(clippy::unwrap_used)] // whatever cannot be had fails its test

use std::fs;
use std::io::{Cursor, Read};
use std::path::Path;

use pteron_speech::sound::{RawFormat, SampleKind, Sound, SoundError};

fn read(mut sound: Sound) -> Result<Vec<f32>, SoundError> {
    let mut samples = Vec::new();
    while sound.read(&mut samples)? {
        assert!(samples.len() < 1 << 24, "more than the file can hold");
    }
    assert!(samples.iter().all(|sample| sample.abs() <= 1.5), "samples are tame");
    Ok(samples)
}

fn open(path: &Path) -> Result<Vec<f32>, SoundError> {
    read(Sound::open(path)?)
}

/// The same tone in every container and codec.
const TONES: [&str; 7] =
    ["tone.flac", "tone.mp3", "tone.ogg", "tone.m4a", "tone.opus", "tone.webm", "tone-opus.mp4"];

/// A WAV file of samples that lie interleaved.
fn wav(rate: u32, channels: u16, kind: u16, bits: u16, data: &[u8]) -> Vec<u8> {
    let block = channels * bits / 8;
    let mut file = Vec::new();
    file.extend(b"RIFF");
    file.extend((36 + data.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(16u32.to_le_bytes());
    file.extend(kind.to_le_bytes());
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate * u32::from(block)).to_le_bytes());
    file.extend(block.to_le_bytes());
    file.extend(bits.to_le_bytes());
    file.extend(b"data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

fn tone(rate: u32, seconds: f64) -> Vec<f32> {
    let count = (f64::from(rate) * seconds) as usize;
    (0..count)
        .map(|n| (n as f64 * 440.0 * std::f64::consts::TAU / f64::from(rate)).sin() as f32 * 0.5)
        .collect()
}

/// How loud 440 Hz is in it, and how loud everything.
fn loudness(samples: &[f32]) -> (f64, f64) {
    let (mut cosine, mut sine, mut all) = (0.0, 0.0, 0.0);
    for (n, &sample) in samples.iter().enumerate() {
        let angle = n as f64 * 440.0 * std::f64::consts::TAU / 16_000.0;
        let sample = f64::from(sample);
        cosine += sample * angle.cos();
        sine += sample * angle.sin();
        all += sample * sample;
    }
    let count = samples.len() as f64;
    (2.0 * (cosine * cosine + sine * sine).sqrt() / count, (2.0 * all / count).sqrt())
}

#[test]
fn every_container_gives_the_same_tone() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for name in TONES {
        let samples = open(&data.join(name)).unwrap();
        // Codecs with windows may leave their own silence at both ends.
        assert!((7_500..11_000).contains(&samples.len()), "{name}: {} samples", samples.len());
        let (tone, all) = loudness(&samples[2500..6500]);
        assert!((tone - 0.5).abs() < 0.05 && (all - tone).abs() < 0.02, "{name}: {tone} of {all}");
    }
}

#[test]
fn opus_is_what_its_own_decoder_makes_of_it() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for name in ["voice-silk", "voice-hybrid", "voice-celt"] {
        let [given, wanted] =
            ["opus", "flac"].map(|ending| open(&data.join(format!("{name}.{ending}"))).unwrap());
        assert_eq!(given.len(), 11_200, "{name}: 0.7 s");
        assert!(wanted.len().abs_diff(given.len()) <= 1, "{name}: {} of {}", given.len(), wanted.len());
        let power = |samples: &mut dyn Iterator<Item = f32>| samples.map(|x| f64::from(x * x)).sum::<f64>();
        let error = power(&mut given.iter().zip(&wanted).map(|(a, b)| a - b));
        let share = error / power(&mut wanted.iter().copied());
        assert!(share < 1e-5, "{name}: {:.1} dB apart", 10.0 * share.log10());
    }
}

#[test]
fn rates_channels_and_sample_kinds_are_one_sound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sound.mp3"); // told by its content, not by its name
    for rate in [8_000u32, 16_000, 44_100, 48_000, 192_000] {
        for channels in [1u16, 2, 8] {
            let spread =
                |sample: &f32| std::iter::repeat_n(*sample, usize::from(channels)).collect::<Vec<_>>();
            let samples: Vec<f32> = tone(rate, 0.5).iter().flat_map(spread).collect();
            let floats: Vec<u8> = samples.iter().flat_map(|x| x.to_le_bytes()).collect();
            let shorts: Vec<u8> = samples.iter().flat_map(|x| ((x * 32767.0) as i16).to_le_bytes()).collect();
            for (kind, bits, data) in [(3, 32, floats), (1, 16, shorts)] {
                fs::write(&path, wav(rate, channels, kind, bits, &data)).unwrap();
                let heard = open(&path).unwrap();
                assert_eq!(heard.len(), 8_000, "{rate} Hz, {channels} channels");
                let (tone, all) = loudness(&heard[1000..7000]);
                assert!((tone - 0.5).abs() < 0.01 && (all - tone).abs() < 0.01, "{rate}: {tone} of {all}");
            }
        }
    }
}

#[test]
fn what_is_no_number_or_too_loud_is_tamed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.wav");
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -7.0, f32::MIN_POSITIVE, 0.25, -0.0];
    let data: Vec<u8> = odd.iter().flat_map(|x| x.to_le_bytes()).collect();
    fs::write(&path, wav(16_000, 1, 3, 32, &data)).unwrap();
    assert_eq!(open(&path).unwrap(), [0.0, 1.0, -1.0, 1.0, -1.0, f32::MIN_POSITIVE, 0.25, 0.0]);
}

#[test]
fn silence_and_next_to_nothing_are_sound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("short.wav");
    for count in [0usize, 1, 160] {
        fs::write(&path, wav(16_000, 1, 1, 16, &vec![0; 2 * count])).unwrap();
        match open(&path) {
            Ok(samples) => assert_eq!(samples.len(), count),
            Err(error) => assert!(count == 0, "{error}"),
        }
    }
}

#[test]
fn what_is_no_sound_says_so() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(Sound::open(folder.path()), Err(SoundError::Unknown(_) | SoundError::Io(_))));
    assert!(matches!(Sound::open(&folder.path().join("nothing")), Err(SoundError::Io(_))));
    let path = folder.path().join("text.wav");
    for content in [&b""[..], b"R", b"RIFF", b"once upon a time there was a file", &[0; 5000], &[0xff; 5000]]
    {
        fs::write(&path, content).unwrap();
        let error = open(&path).err();
        assert!(error.is_some(), "{:?}", &content[..content.len().min(20)]);
    }
}

#[test]
fn a_file_that_stops_in_the_middle_gives_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let path = folder.path().join("cut");
    let whole: Vec<u8> = tone(16_000, 0.5).iter().flat_map(|x| x.to_le_bytes()).collect();
    fs::write(&path, &wav(16_000, 1, 3, 32, &whole)[..20_000]).unwrap();
    let heard = open(&path).unwrap();
    assert!((4_000..=5_000).contains(&heard.len()), "{}", heard.len());
    for name in ["tone.flac", "tone.mp3"] {
        let bytes = fs::read(data.join(name)).unwrap();
        fs::write(&path, &bytes[..bytes.len() * 2 / 3]).unwrap();
        let heard = open(&path).unwrap();
        assert!((1_000..8_000).contains(&heard.len()), "{name}: {}", heard.len());
    }
}

/// Every byte of a header, and some of the rest, with other values in turn.
#[test]
fn broken_files_are_an_answer_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let path = folder.path().join("broken");
    let mut files: Vec<Vec<u8>> = TONES.map(|name| fs::read(data.join(name)).unwrap()).into();
    files.push(fs::read(data.join("voice-silk.opus")).unwrap());
    files.push(wav(44_100, 2, 1, 16, &[7; 4000]));
    for file in files {
        for at in (0..48).chain((48..file.len()).step_by(file.len() / 20)) {
            for value in [0u8, 0xff] {
                let mut broken = file.clone();
                broken[at] = value;
                fs::write(&path, broken).unwrap();
                // Neither a panic nor a hang is an answer; which of the two it is depends on the byte.
                let _ = open(&path);
            }
        }
    }
}

/// Gives its bytes a few at a time, as pipes do.
struct Drops(Cursor<Vec<u8>>);

impl Read for Drops {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let few = out.len().min(3);
        self.0.read(&mut out[..few])
    }
}

#[test]
fn raw_samples_come_as_they_come() {
    let shorts: Vec<u8> = [0i16, 16_384, -32_768].iter().flat_map(|x| x.to_le_bytes()).collect();
    let raw = |bytes: Vec<u8>, kind, rate, channels| {
        read(Sound::raw(Drops(Cursor::new(bytes)), RawFormat { kind, rate, channels })?)
    };
    assert_eq!(raw(shorts.clone(), SampleKind::I16, 16_000, 1).unwrap(), [0.0, 0.5, -1.0]);
    // A frame that is cut off is none.
    assert_eq!(raw(shorts[..5].to_vec(), SampleKind::I16, 16_000, 1).unwrap(), [0.0, 0.5]);
    let floats: Vec<u8> = [0.5f32, 0.25, -1.0, 0.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(raw(floats.clone(), SampleKind::F32, 16_000, 2).unwrap(), [0.375, -0.5]);
    for (rate, channels) in [(0, 1), (16_000, 0), (u32::MAX, 1), (16_000, 1000)] {
        assert!(matches!(raw(floats.clone(), SampleKind::F32, rate, channels), Err(SoundError::Spec { .. })));
    }
}
