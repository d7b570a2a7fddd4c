//! The loop over a sound: some minutes of it at a time, each with a prompt of its own.

use pteron_companion::Voxtral;
use pteron_llm::tokenizer::Tokenizer;

use super::cut::cut;
use super::prompt::{Marks, Wanted};
use super::{Engine, best};
use crate::mel::{HOP, Mel, MelSettings, scale};
use crate::segment::{Event, Segment};
use crate::sound::{RATE, Samples};
use crate::{Result, SpeechError};

/// Windows of 30 seconds in one prompt: five minutes.
const MOST_WINDOWS: usize = 10;
/// Positions that are kept for the answer.
const LEAST_LEFT: usize = 256;
/// Below this nothing is heard, in shares of the loudest that a sample can be.
const SILENCE: f32 = 1e-4;
/// Tokens that are said in a second at most, and those of a short sound.
const TOKENS_A_SECOND: usize = 12;
const LEAST_TOKENS: usize = 64;
/// Tokens of an answer at most.
const ANSWER_TOKENS: usize = 1024;

/// How sound becomes text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What is wanted of it.
    pub wanted: Wanted,
    /// Rows that a window becomes.
    pub rows: usize,
}

/// The loop over an engine.
pub struct Transcriber<'m, E> {
    engine: &'m mut E,
    info: Voxtral,
    tokenizer: &'m Tokenizer,
    marks: Marks,
    settings: Settings,
}

impl<'m, E: Engine> Transcriber<'m, E> {
    /// A loop with its settings; an error where the vocabulary lacks the model's marks.
    pub fn new(
        engine: &'m mut E,
        info: &Voxtral,
        tokenizer: &'m Tokenizer,
        settings: Settings,
    ) -> Result<Transcriber<'m, E>> {
        let marks = Marks::of(tokenizer)?;
        Ok(Transcriber { engine, info: info.clone(), tokenizer, marks, settings })
    }

    /// Hears a sound to its end. Events come in the order of the sound; a stretch has the times of what was heard at once.
    pub fn run(&mut self, samples: &mut dyn Samples, tell: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let window = self.info.frames * HOP;
        let room = self.engine.context().saturating_sub(LEAST_LEFT) / self.settings.rows.max(1);
        let most = room.clamp(1, MOST_WINDOWS) * window;
        let (mut held, mut begins, mut goes_on) = (Vec::new(), 0u64, true);
        loop {
            // Somewhat more than is heard at once tells that there is more.
            while goes_on && held.len() <= most {
                goes_on = samples.read(&mut held)?;
            }
            if held.is_empty() {
                return Ok(());
            }
            if held.len() > most && matches!(self.settings.wanted, Wanted::Answer(_)) {
                let minutes = most as f64 / f64::from(RATE) / 60.0;
                let problem = format!("a question is about {minutes:.1} minutes of sound at most");
                return Err(SpeechError::Model(problem));
            }
            let count = cut(&held, most);
            let (start, end) = (seconds(begins), seconds(begins + count as u64));
            let (text, tokens) = self.text(&held[..count])?;
            if !text.trim().is_empty() {
                let text = format!(" {}", text.trim());
                let (temperature, measures, words) = (0.0, None, Vec::new());
                tell(Event::Segment(&Segment { start, end, text, tokens, temperature, measures, words }));
            }
            tell(Event::Heard(end));
            held.drain(..count);
            begins += count as u64;
        }
    }

    /// What the model says of a sound.
    fn text(&mut self, samples: &[f32]) -> Result<(String, Vec<u32>)> {
        let is_transcript = matches!(self.settings.wanted, Wanted::Transcript(_));
        if is_transcript && samples.iter().all(|sample| sample.abs() < SILENCE) {
            return Ok((String::new(), Vec::new()));
        }
        self.engine.hear(&windows(samples, &self.info))?;
        let prompt = self.marks.prompt(self.tokenizer, &self.settings.wanted)?;
        let mut logits = Vec::new();
        self.engine.begin(&prompt, &mut logits)?;
        let spoken = samples.len() * TOKENS_A_SECOND / RATE as usize + LEAST_TOKENS;
        let most = if is_transcript { spoken } else { ANSWER_TOKENS };
        let mut tokens = Vec::new();
        while tokens.len() < most {
            let best = best(&logits);
            if best == self.marks.end {
                break;
            }
            tokens.push(best);
            if self.engine.left() == 0 {
                break;
            }
            self.engine.read(best, &mut logits)?;
        }
        Ok((self.tokenizer.decode(&tokens), tokens))
    }
}

/// Features of a sound that is filled up with silence to whole windows, scaled by the loudest of all.
fn windows(samples: &[f32], info: &Voxtral) -> Vec<Vec<f32>> {
    let mels = info.mels;
    let mut mel = Mel::new(MelSettings::whisper(mels));
    let (mut frames, window) = (Vec::new(), info.frames * HOP);
    mel.push(samples, &mut frames);
    mel.push(&vec![0.0; samples.len().next_multiple_of(window) - samples.len()], &mut frames);
    mel.finish(&mut frames);
    let loudest = frames.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scale::whisper(&mut frames, loudest);
    frames.chunks(info.frames * mels).map(|window| scale::by_band(window, mels, info.frames)).collect()
}

fn seconds(samples: u64) -> f64 {
    samples as f64 / f64::from(RATE)
}
