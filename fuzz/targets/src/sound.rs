//! Any bytes as a sound file, and as samples without a header: an error, or samples that are numbers, within memory that does
//! not grow with what the file claims.

use crate::memory::within;
use pteron_speech::sound::{RawFormat, SampleKind, Sound, SoundError};
use std::io::Cursor;
use std::sync::Once;

/// Samples read of a sound; more only take longer.
const MOST_SAMPLES: usize = 1 << 22;
/// What tables of codecs, packets and resamplers may take beside the file.
const MEMORY: usize = 256 << 20;

static HOOK: Once = Once::new();

fn read(sound: Result<Sound, SoundError>) {
    let Ok(mut sound) = sound else { return };
    let (mut block, mut count) = (Vec::new(), 0);
    while count < MOST_SAMPLES && sound.read(&mut block).unwrap_or(false) {
        assert!(block.iter().all(|sample| sample.is_finite()), "a sample is no number");
        count += block.len();
        block.clear();
    }
    let _ = (sound.seconds(), sound.is_cut_off());
}

/// One input.
pub fn run(data: &[u8]) {
    // What a decoder trips over is caught where it is called; what is not caught still ends the run.
    HOOK.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    within(MEMORY + 8 * data.len(), "reading", || read(Sound::encoded(data.into())));
    let Some(([kind, channels, rate @ ..], samples)) = data.split_first_chunk::<6>() else { return };
    let kind = if kind % 2 == 0 { SampleKind::F32 } else { SampleKind::I16 };
    let format = RawFormat { kind, rate: u32::from_le_bytes(*rate), channels: usize::from(*channels) };
    within(MEMORY + 8 * data.len(), "reading samples", || {
        read(Sound::raw(Cursor::new(samples.to_vec()), format))
    });
}
