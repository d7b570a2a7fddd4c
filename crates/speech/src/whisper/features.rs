//! Windows of features over sound that is read as they need it: what lies before a window is forgotten.

use crate::Result;
use crate::mel::{HOP, Mel, MelSettings, scale};
use crate::sound::{RATE, Sound, SoundError};

/// Frames a second.
pub const FRAMES_A_SECOND: f64 = 100.0;
/// Silence behind the last sample, so that frames at the end are whole.
const TAIL: usize = 400;

/// Samples in blocks, one channel at 16,000 a second.
pub trait Samples {
    /// Appends the next block; false when there are no more.
    fn read(&mut self, out: &mut Vec<f32>) -> std::result::Result<bool, SoundError>;
}

impl Samples for Sound {
    fn read(&mut self, out: &mut Vec<f32>) -> std::result::Result<bool, SoundError> {
        Sound::read(self, out)
    }
}

/// Features of a sound, window by window.
pub struct Features<'s> {
    samples: &'s mut dyn Samples,
    mel: Mel,
    /// Logarithms of the frames from `first` on.
    frames: Vec<f32>,
    first: usize,
    /// How many frames there are, once the end has been read.
    total: Option<usize>,
    ceiling: Ceiling,
    block: Vec<f32>,
}

/// The loudest of a sound, which everything is scaled by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ceiling {
    /// Of the whole sound, which has been heard before.
    Known(f32),
    /// Of what has been heard so far, for sound that comes but once.
    SoFar(f32),
}

impl Ceiling {
    /// Of a stream.
    pub fn of_stream() -> Ceiling {
        Ceiling::SoFar(f32::NEG_INFINITY)
    }

    /// Of a sound that can be heard twice: of all of it, or, where it has more samples than so many, of those, and of what
    /// comes behind them as it comes.
    pub fn of_beginning(samples: &mut dyn Samples, mels: usize, most: u64) -> Result<Ceiling> {
        let mut features = Features::new(samples, mels, Ceiling::of_stream());
        while features.total.is_none() && features.mel.samples() < most {
            features.read_on()?;
            features.forget(usize::MAX);
        }
        Ok(match (features.ceiling, features.total) {
            (Ceiling::SoFar(loudest), Some(_)) => Ceiling::Known(loudest),
            (ceiling, _) => ceiling,
        })
    }
}

impl<'s> Features<'s> {
    /// Features of a sound from its beginning.
    pub fn new(samples: &'s mut dyn Samples, mels: usize, ceiling: Ceiling) -> Features<'s> {
        Features {
            samples,
            mel: Mel::new(MelSettings::whisper(mels)),
            frames: Vec::new(),
            first: 0,
            total: None,
            ceiling,
            block: Vec::new(),
        }
    }

    /// The window from a frame on, band by band, filled up with zeros; and how many of its frames there are. Windows never
    /// go back.
    pub fn window(&mut self, from: usize, width: usize) -> Result<(Vec<f32>, usize)> {
        let mels = self.mel.mels();
        while self.total.is_none() && self.first + self.frames.len() / mels < from + width {
            self.read_on()?;
            self.forget(from);
        }
        self.forget(from);
        let end = self.total.unwrap_or(usize::MAX).min(from + width);
        let count = end.saturating_sub(from).min(self.frames.len() / mels);
        let mut frames = self.frames[..count * mels].to_vec();
        let (Ceiling::Known(most) | Ceiling::SoFar(most)) = self.ceiling;
        scale::whisper(&mut frames, most);
        Ok((scale::by_band(&frames, mels, width), count))
    }

    /// How many frames there are, once that is known.
    pub fn total(&self) -> Option<usize> {
        self.total
    }

    /// Seconds of sound that have been read.
    pub fn seconds(&self) -> f64 {
        let tail = if self.total.is_some() { TAIL as u64 } else { 0 };
        (self.mel.samples() - tail) as f64 / f64::from(RATE)
    }

    fn read_on(&mut self) -> Result<()> {
        self.block.clear();
        let before = self.frames.len();
        if self.samples.read(&mut self.block)? {
            self.mel.push(&self.block, &mut self.frames);
        } else {
            self.total = Some((self.mel.samples() / HOP as u64) as usize);
            self.mel.push(&[0.0; TAIL], &mut self.frames);
        }
        if let Ceiling::SoFar(most) = &mut self.ceiling {
            *most = self.frames[before..].iter().copied().fold(*most, f32::max);
        }
        Ok(())
    }

    /// Lets go of frames before one.
    fn forget(&mut self, from: usize) {
        let mels = self.mel.mels();
        let gone = from.saturating_sub(self.first).min(self.frames.len() / mels);
        self.frames.drain(..gone * mels);
        self.first += gone;
    }
}
