//! Sound as models take it: one channel of 16,000 samples a second, block by block, whatever the file has.
//!
//! Files of any kind, streams and raw samples flow in; blocks of a second or so flow out, so that memory does not grow with
//! the length. Samples stay where they were in time: the resampler has no delay. Knows nothing of models.

mod container;
mod opus;
mod raw;
mod resample;

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Arc;

pub use raw::{RawFormat, SampleKind};
pub use resample::Resampler;

use container::Container;
use raw::Raw;

/// Samples a second that all models here take.
pub const RATE: u32 = 16_000;
/// More samples a second than any recorder has.
const HIGHEST_RATE: u32 = 1 << 20;
/// More channels than any recorder has.
const MOST_CHANNELS: usize = 256;

/// Why sound cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SoundError {
    /// The file or stream itself.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// No container that is known.
    #[error("this is no sound file that is known: {0}")]
    Unknown(String),
    /// The container holds nothing that could be heard.
    #[error("there is no sound in it")]
    NoTrack,
    /// Its codec is not known.
    #[error("its codec is not known: {0}")]
    Codec(String),
    /// Nothing of it could be decoded.
    #[error("nothing of it can be decoded: {0}")]
    Broken(String),
    /// A rate or a number of channels that makes no sense.
    #[error("{channels} channels of {rate} samples a second")]
    Spec {
        /// Samples a second.
        rate: u32,
        /// Channels.
        channels: usize,
    },
}

/// Rate and channels of a stretch of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) rate: u32,
    pub(crate) channels: usize,
}

impl Spec {
    pub(crate) fn new(rate: u32, channels: usize) -> Result<Spec, SoundError> {
        match (1..=HIGHEST_RATE).contains(&rate) && (1..=MOST_CHANNELS).contains(&channels) {
            true => Ok(Spec { rate, channels }),
            false => Err(SoundError::Spec { rate, channels }),
        }
    }
}

/// Something that gives interleaved samples, a packet at a time.
pub(crate) trait Packets: Send {
    /// Puts the next packet's samples in place of what `out` holds; nothing at the end.
    fn next(&mut self, out: &mut Vec<f32>) -> Result<Option<Spec>, SoundError>;

    /// Whether the end came before it should have.
    fn is_cut_off(&self) -> bool {
        false
    }
}

/// Sound on its way.
pub struct Sound {
    packets: Box<dyn Packets>,
    packet: Vec<f32>,
    mono: Vec<f32>,
    current: Option<(Spec, Resampler)>,
    seconds: Option<f64>,
    ended: bool,
}

impl Sound {
    /// A sound file; what it is is told by its content, not by its name.
    pub fn open(path: &Path) -> Result<Sound, SoundError> {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(SoundError::Unknown("it is a folder".to_owned()));
        }
        Ok(Sound::contained(Container::open(Box::new(file))?))
    }

    /// The content of a sound file.
    pub fn encoded(bytes: Arc<[u8]>) -> Result<Sound, SoundError> {
        Ok(Sound::contained(Container::open(Box::new(Cursor::new(bytes)))?))
    }

    fn contained(container: Container) -> Sound {
        let seconds = container.seconds();
        Sound::of(Box::new(container), seconds)
    }

    /// Samples without a header, as microphones give them.
    pub fn raw(stream: impl Read + Send + 'static, format: RawFormat) -> Result<Sound, SoundError> {
        Ok(Sound::of(Box::new(Raw::new(Box::new(stream), format)?), None))
    }

    fn of(packets: Box<dyn Packets>, seconds: Option<f64>) -> Sound {
        Sound { packets, packet: Vec::new(), mono: Vec::new(), current: None, seconds, ended: false }
    }

    /// How long it is, where the file says so.
    pub fn seconds(&self) -> Option<f64> {
        self.seconds
    }

    /// Whether it ended in mid-file, as far as it has been read.
    pub fn is_cut_off(&self) -> bool {
        self.packets.is_cut_off()
    }

    /// Appends the next samples, each from -1 to 1; false when there are no more.
    pub fn read(&mut self, out: &mut Vec<f32>) -> Result<bool, SoundError> {
        if self.ended {
            return Ok(false);
        }
        let Some(spec) = self.packets.next(&mut self.packet)? else {
            self.ended = true;
            if let Some((_, mut resampler)) = self.current.take() {
                resampler.finish(out);
            }
            return Ok(true);
        };
        self.mono.clear();
        let share = 1.0 / spec.channels as f32;
        let mixed = self.packet.chunks_exact(spec.channels);
        self.mono
            .extend(mixed.map(|samples| samples.iter().map(|&sample| tame(sample)).sum::<f32>() * share));
        if self.current.as_ref().is_none_or(|(known, _)| known.rate != spec.rate)
            && let Some((_, mut before)) = self.current.replace((spec, Resampler::new(spec.rate, RATE)))
        {
            before.finish(out);
        }
        if let Some((_, resampler)) = &mut self.current {
            resampler.push(&self.mono, out);
        }
        Ok(true)
    }
}

/// Samples in blocks, one channel at 16,000 a second.
pub trait Samples {
    /// Appends the next block; false when there are no more.
    fn read(&mut self, out: &mut Vec<f32>) -> Result<bool, SoundError>;
}

impl Samples for Sound {
    fn read(&mut self, out: &mut Vec<f32>) -> Result<bool, SoundError> {
        Sound::read(self, out)
    }
}

/// What is no number is silence; what is louder than loudest is clipped.
fn tame(sample: f32) -> f32 {
    if sample.is_nan() { 0.0 } else { sample.clamp(-1.0, 1.0) }
}
