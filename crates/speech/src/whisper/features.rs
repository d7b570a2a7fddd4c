//! Windows of features, scaled by the loudest of their sound.

use crate::Result;
use crate::mel::frames::{Behind, Frames};
use crate::mel::{MelSettings, scale};
use crate::sound::{RATE, Samples};

/// Frames a second.
pub const FRAMES_A_SECOND: f64 = 100.0;
/// Silence behind the last sample, so that frames at the end are whole.
const TAIL: usize = 400;

/// Features of a sound, window by window.
pub struct Features<'s> {
    frames: Frames<'s>,
    ceiling: Ceiling,
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
        while features.total().is_none() && features.frames.samples() < most {
            features.read_on()?;
            features.frames.forget(usize::MAX);
        }
        Ok(match (features.ceiling, features.total()) {
            (Ceiling::SoFar(loudest), Some(_)) => Ceiling::Known(loudest),
            (ceiling, _) => ceiling,
        })
    }
}

impl<'s> Features<'s> {
    /// Features of a sound from its beginning.
    pub fn new(samples: &'s mut dyn Samples, mels: usize, ceiling: Ceiling) -> Features<'s> {
        Features { frames: Frames::new(samples, MelSettings::whisper(mels), Behind::Silence(TAIL)), ceiling }
    }

    /// The window from a frame on, band by band, filled up with zeros; and how many of its frames there are. Windows never
    /// go back.
    pub fn window(&mut self, from: usize, width: usize) -> Result<(Vec<f32>, usize)> {
        while self.frames.lacks(from + width) {
            self.read_on()?;
            self.frames.forget(from);
        }
        let mels = self.frames.mels();
        let mut frames = self.frames.window(from, width).to_vec();
        let (Ceiling::Known(most) | Ceiling::SoFar(most)) = self.ceiling;
        scale::whisper(&mut frames, most);
        Ok((scale::by_band(&frames, mels, width), frames.len() / mels))
    }

    /// How many frames there are, once that is known.
    pub fn total(&self) -> Option<usize> {
        self.frames.total()
    }

    /// Seconds of sound that have been read.
    pub fn seconds(&self) -> f64 {
        self.frames.samples() as f64 / f64::from(RATE)
    }

    fn read_on(&mut self) -> Result<()> {
        let new = self.frames.read_on()?;
        if let Ceiling::SoFar(most) = &mut self.ceiling {
            *most = new.iter().copied().fold(*most, f32::max);
        }
        Ok(())
    }
}
