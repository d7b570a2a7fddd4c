//! Frames of a sound that is read as they are needed: what lies before a window is forgotten.

use super::{HOP, Mel, MelSettings};
use crate::Result;
use crate::sound::Samples;

/// What frames at the end of a sound see behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// What the front end has there by itself.
    Padding,
    /// So many samples of silence; frames that begin in them do not count.
    Silence(usize),
}

/// Logarithms of a sound's frames.
pub struct Frames<'s> {
    samples: &'s mut dyn Samples,
    mel: Mel,
    behind: Behind,
    /// Those of the frames from `first` on.
    logarithms: Vec<f32>,
    first: usize,
    /// How many frames there are, once the end has been read.
    total: Option<usize>,
    /// Samples of the sound, without what is behind it.
    heard: u64,
    block: Vec<f32>,
}

impl<'s> Frames<'s> {
    /// Frames of a sound from its beginning.
    pub fn new(samples: &'s mut dyn Samples, settings: MelSettings, behind: Behind) -> Frames<'s> {
        Frames {
            samples,
            mel: Mel::new(settings),
            behind,
            logarithms: Vec::new(),
            first: 0,
            total: None,
            heard: 0,
            block: Vec::new(),
        }
    }

    /// Bands of a frame.
    pub fn mels(&self) -> usize {
        self.mel.mels()
    }

    /// How many frames there are, once that is known.
    pub fn total(&self) -> Option<usize> {
        self.total
    }

    /// Samples that have been read.
    pub fn samples(&self) -> u64 {
        self.heard
    }

    /// Whether more has to be read for the frames before one.
    pub fn lacks(&self, end: usize) -> bool {
        self.total.is_none() && self.first + self.logarithms.len() / self.mels() < end
    }

    /// Reads one block further; what its frames are.
    pub fn read_on(&mut self) -> Result<&[f32]> {
        self.block.clear();
        let before = self.logarithms.len();
        if self.samples.read(&mut self.block)? {
            self.heard += self.block.len() as u64;
            self.mel.push(&self.block, &mut self.logarithms);
        } else if self.total.is_none() {
            self.total = Some((self.mel.samples() / HOP as u64) as usize);
            match self.behind {
                Behind::Padding => self.mel.finish(&mut self.logarithms),
                Behind::Silence(count) => self.mel.push(&vec![0.0; count], &mut self.logarithms),
            }
        }
        Ok(&self.logarithms[before..])
    }

    /// Lets go of frames before one.
    pub fn forget(&mut self, from: usize) {
        let mels = self.mels();
        let gone = from.saturating_sub(self.first).min(self.logarithms.len() / mels);
        self.logarithms.drain(..gone * mels);
        self.first += gone;
    }

    /// The frames of a window that have been read, one after another. Windows never go back.
    pub fn window(&mut self, from: usize, width: usize) -> &[f32] {
        self.forget(from);
        let end = self.total.unwrap_or(usize::MAX).min(from.saturating_add(width));
        let mels = self.mels();
        let count = end.saturating_sub(from).min(self.logarithms.len() / mels);
        &self.logarithms[..count * mels]
    }
}
