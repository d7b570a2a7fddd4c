//! The loop over a sound: window after window, each with the end of the one before it, segment by segment.

use pteron_companion::Parakeet;
use pteron_llm::tokenizer::Tokenizer;

use super::decode::decode;
use super::merge::merge;
use super::words::{begins, segments, words};
use super::{Engine, Said};
use crate::Result;
use crate::mel::frames::{Behind, Frames};
use crate::mel::{HOP, MelSettings, scale};
use crate::segment::{Event, Segment};
use crate::sound::{RATE, Samples};

/// The share of a window that the next one hears again: 15 of 120 seconds.
const OVERLAP: usize = 8;

/// The loop over an engine.
pub struct Transcriber<'m, E> {
    engine: &'m mut E,
    info: Parakeet,
    tokenizer: &'m Tokenizer,
    /// Whether words are told with their times.
    words: bool,
}

impl<'m, E: Engine> Transcriber<'m, E> {
    /// A loop.
    pub fn new(
        engine: &'m mut E,
        info: &Parakeet,
        tokenizer: &'m Tokenizer,
        words: bool,
    ) -> Transcriber<'m, E> {
        Transcriber { engine, info: info.clone(), tokenizer, words }
    }

    /// Hears a sound to its end. Events come in the order of the sound.
    pub fn run(&mut self, samples: &mut dyn Samples, tell: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let Parakeet { mels, frames: width, subsampling, .. } = self.info;
        let mut frames = Frames::new(samples, MelSettings::parakeet(mels), Behind::Padding);
        // Windows begin where a place does.
        let stride = ((width - width / OVERLAP) / subsampling).max(1) * subsampling;
        // What is not told yet, in places of the sound.
        let mut said: Vec<Said> = Vec::new();
        let mut from = 0;
        loop {
            while frames.lacks(from + width) {
                frames.read_on()?;
                frames.forget(from);
            }
            let mut window = frames.window(from, width).to_vec();
            let count = window.len() / mels;
            let is_last = frames.total().is_some_and(|total| total <= from + width);
            if count > 0 {
                scale::parakeet(&mut window, mels);
                let places = self.engine.hear(&scale::by_band(&window, mels, count), count)?;
                let mut new = decode(self.engine, &self.info, places)?;
                let start = from / subsampling;
                new.iter_mut().for_each(|said| said.place += start);
                // The window before reached this far.
                let end = if from == 0 { 0 } else { start + (width - stride) / subsampling };
                merge(&mut said, &new, start..end, |token| begins(self.tokenizer, token));
            }
            from += stride;
            let told = if is_last { usize::MAX } else { from / subsampling };
            self.tell(&mut said, told, tell);
            let heard = if is_last { frames.samples() as f64 / f64::from(RATE) } else { seconds(from) };
            tell(Event::Heard(heard));
            if is_last {
                return Ok(());
            }
        }
    }

    /// Tells what no window will change any more, and forgets it: segments with nothing at or behind a place, and with another
    /// behind them.
    fn tell(&self, said: &mut Vec<Said>, until: usize, tell: &mut dyn FnMut(Event<'_>)) {
        let words = words(self.tokenizer, said, seconds(self.info.subsampling));
        let mut segments: Vec<Segment> = segments(&words, said);
        if until < usize::MAX {
            segments.pop();
        }
        let mut told = 0;
        for mut segment in segments {
            let end = told + segment.tokens.len();
            if said[told..end].iter().any(|said| said.place >= until) {
                break;
            }
            told = end;
            if !self.words {
                segment.words.clear();
            }
            if !segment.text.trim().is_empty() {
                tell(Event::Segment(&segment));
            }
        }
        said.drain(..told);
    }
}

/// Seconds of so many frames.
fn seconds(frames: usize) -> f64 {
    (frames * HOP) as f64 / f64::from(RATE)
}
