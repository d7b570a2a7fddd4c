//! The loop over a sound: silence, the sound, silence; a token for each place, and segments where sentences end.

use pteron_companion::Realtime;
use pteron_llm::tokenizer::Tokenizer;

use super::{Engine, Marks};
use crate::mel::{HOP, Mel, MelSettings, scale};
use crate::parakeet::Said;
use crate::parakeet::words::{SENTENCE_ENDS, segments, words};
use crate::segment::{Event, Segment};
use crate::sound::{RATE, Samples};
use crate::voxtral::best;
use crate::{Result, SpeechError};

/// Places behind the sound in which a long word may end, beside those that the text is behind.
const BEHIND: usize = 11;
/// Places without a word that end a segment, behind a mark that ends a sentence and elsewhere: a quarter of a second, and a second.
const SHORT_PAUSE: usize = 3;
const PAUSE: usize = 13;
/// Places after which everybody is told how far the sound has been heard: ten seconds.
const TOLD: usize = 125;

/// The loop over an engine.
pub struct Transcriber<'m, E> {
    engine: &'m mut E,
    info: Realtime,
    tokenizer: &'m Tokenizer,
    marks: Marks,
    /// Whether words are told with their times.
    words: bool,
}

/// A sound on its way to places, with the silence around it.
struct Stream<'s> {
    samples: &'s mut dyn Samples,
    /// Samples that a new text would hear again, the number of the first, and how many of them have gone to `mel`.
    held: Vec<f32>,
    first: u64,
    taken: usize,
    mel: Mel,
    /// Logarithms of frames that are no place yet.
    frames: Vec<f32>,
    /// Whether the sound has ended, and whether the silence behind it is among the frames.
    has_ended: bool,
    is_closed: bool,
}

impl<'s> Stream<'s> {
    fn new(samples: &'s mut dyn Samples, mels: usize) -> Stream<'s> {
        let mel = Mel::new(MelSettings::whisper(mels));
        let (held, frames) = (Vec::new(), Vec::new());
        Stream { samples, held, first: 0, taken: 0, mel, frames, has_ended: false, is_closed: false }
    }

    /// Samples that have been read.
    fn heard(&self) -> u64 {
        self.first + self.held.len() as u64
    }

    /// Begins anew at a sample that is still held, with silence before it.
    fn restart(&mut self, at: u64, silence: usize) {
        self.forget(at);
        self.mel = Mel::new(MelSettings::whisper(self.mel.mels()));
        self.frames.clear();
        (self.taken, self.is_closed) = (0, false);
        self.mel.push(&vec![0.0; silence], &mut self.frames);
    }

    /// Lets go of samples before one.
    fn forget(&mut self, at: u64) {
        let gone = at.saturating_sub(self.first).min(self.held.len() as u64) as usize;
        self.held.drain(..gone);
        self.first += gone as u64;
        self.taken = self.taken.saturating_sub(gone);
    }

    /// Takes one block further; false where nothing comes any more. Behind the sound comes as much silence as fills up its last
    /// place, and some places more.
    fn take(&mut self, place: usize, places: usize) -> Result<bool> {
        if self.taken == self.held.len() && !self.has_ended {
            self.has_ended = !self.samples.read(&mut self.held)?;
        }
        if self.taken < self.held.len() {
            self.mel.push(&self.held[self.taken..], &mut self.frames);
            self.taken = self.held.len();
            return Ok(true);
        }
        if !self.has_ended {
            return Ok(true);
        }
        if self.is_closed {
            return Ok(false);
        }
        let rest = self.mel.samples().next_multiple_of(place as u64) - self.mel.samples();
        self.mel.push(&vec![0.0; rest as usize + places * place], &mut self.frames);
        self.mel.finish(&mut self.frames);
        self.is_closed = true;
        Ok(true)
    }
}

/// What a text has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The end of the sound, or what the model takes for it.
    Sound,
    /// The end of its context.
    Context,
}

impl<'m, E: Engine> Transcriber<'m, E> {
    /// A loop; an error where the vocabulary lacks the model's marks, or texts have too few places.
    pub fn new(
        engine: &'m mut E,
        info: &Realtime,
        tokenizer: &'m Tokenizer,
        words: bool,
    ) -> Result<Transcriber<'m, E>> {
        let marks = Marks::of(tokenizer)?;
        let (info, context) = (info.clone(), engine.context());
        if context <= 2 * (1 + info.silence + info.delay) || info.frames == 0 {
            return Err(SpeechError::Model(format!(
                "texts of {context} places are too short for its silence"
            )));
        }
        Ok(Transcriber { engine, info, tokenizer, marks, words })
    }

    /// Hears a sound to its end, or to where the model ends its text. Events come in the order of the sound. Where a text has no
    /// places left, the next one begins with what it had not yet written of.
    pub fn run(&mut self, samples: &mut dyn Samples, tell: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let mut stream = Stream::new(samples, self.info.mels);
        // The place of the sound that a text begins with.
        let mut begins = 0;
        loop {
            stream.restart((begins * self.place()) as u64, self.info.silence * self.place());
            let (ending, places) = self.text(&mut stream, begins, tell)?;
            begins += places;
            if ending == Ending::Sound {
                tell(Event::Heard(stream.heard() as f64 / f64::from(RATE)));
                return Ok(());
            }
        }
    }

    /// Samples of a place.
    fn place(&self) -> usize {
        self.info.frames * HOP
    }

    /// One text from a place of the sound on, and how many places it has written of.
    fn text(
        &mut self,
        stream: &mut Stream<'_>,
        begins: usize,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(Ending, usize)> {
        let Realtime { delay, silence, .. } = self.info;
        self.engine.begin()?;
        // Nothing is said in the silence, and nothing can be known before the delay has passed.
        let mut tokens = vec![self.marks.nothing; 1 + silence + delay];
        tokens[0] = self.marks.start;
        let (mut said, mut logits) = (Vec::new(), Vec::new());
        // Places that were heard, and those of them that were read with a token.
        let (mut heard, mut read) = (0, 0);
        loop {
            let wanted = read + tokens.len();
            while heard < wanted {
                match self.hear(stream, wanted - heard)? {
                    0 => break,
                    places => heard += places,
                }
            }
            // A token behind the last place would be of no sound.
            let is_last = heard == wanted
                && stream.is_closed
                && stream.frames.len() < self.info.frames * self.info.mels;
            let written = read.saturating_sub(silence + delay);
            let ending = if stream.heard() == 0 || heard < wanted || is_last {
                Some(Ending::Sound)
            } else if wanted >= self.engine.context() {
                Some(Ending::Context)
            } else {
                None
            };
            if let Some(ending) = ending {
                self.tell(&mut said, usize::MAX, tell);
                return Ok((ending, written));
            }
            self.engine.read(&tokens, &mut logits)?;
            read = wanted;
            let token = best(&logits);
            if token == self.marks.end {
                self.tell(&mut said, usize::MAX, tell);
                return Ok((Ending::Sound, written));
            }
            let written = read - silence - delay - 1;
            if self.marks.is_text(token) {
                said.push(Said { token, place: begins + written, lasts: 1 });
            }
            tokens.clear();
            tokens.push(token);
            if !said.is_empty() && !self.marks.is_text(token) {
                self.tell(&mut said, begins + written, tell);
            }
            if written % TOLD == TOLD - 1 {
                let until = ((begins + written) * self.place()) as u64;
                stream.forget(until);
                tell(Event::Heard(until as f64 / f64::from(RATE)));
            }
        }
    }

    /// Lets the engine hear what there is of so many places, at least one unless the sound is at its end.
    fn hear(&mut self, stream: &mut Stream<'_>, most: usize) -> Result<usize> {
        let Realtime { mels, frames, delay, .. } = self.info;
        let size = frames * mels;
        while stream.frames.len() < size {
            if !stream.take(frames * HOP, delay + BEHIND)? {
                return Ok(0);
            }
        }
        let places = (stream.frames.len() / size).min(most).min(self.engine.most_places()).max(1);
        let mut window: Vec<f32> = stream.frames.drain(..places * size).collect();
        scale::whisper(&mut window, scale::REALTIME_CEILING);
        self.engine.hear(&scale::by_band(&window, mels, places * frames), places)?;
        Ok(places)
    }

    /// Tells segments that are at their end: those with another behind them, and the last one where nothing has followed it up to
    /// a place.
    fn tell(&self, said: &mut Vec<Said>, until: usize, tell: &mut dyn FnMut(Event<'_>)) {
        let words = words(self.tokenizer, said, self.place() as f64 / f64::from(RATE));
        let mut segments: Vec<Segment> = segments(&words, said);
        let quiet = said.last().map_or(0, |said| until.saturating_sub(said.place));
        let ends = segments.last().is_some_and(|segment| segment.text.ends_with(SENTENCE_ENDS));
        if quiet < if ends { SHORT_PAUSE } else { PAUSE } {
            segments.pop();
        }
        let mut told = 0;
        for mut segment in segments {
            told += segment.tokens.len();
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
