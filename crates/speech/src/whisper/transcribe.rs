//! The loop over a sound: which language, window after window, one temperature after another, segment by segment.

use pteron_companion::{Whisper, WhisperTokens};
use pteron_llm::tokenizer::{Ends, Tokenizer};

use super::Engine;
use super::beams::Beams;
use super::cut::{Piece, cut};
use super::draws::Draws;
use super::fallback::{Measures, Thresholds, compression};
use super::features::{FRAMES_A_SECOND, Features};
use super::rules::{Rules, log_sum};
use super::search::{self, Text};
use super::words;
use crate::segment::{Event, Segment};
use crate::{Result, SpeechError};

/// Beginnings that are kept unless somebody says otherwise: as few errors as with five in half the time (docs/speech.md).
pub const USUAL_BEAMS: usize = 3;
/// Texts that are drawn where the likeliest will not do.
const USUAL_DRAWS: usize = 5;
/// Texts that the model has beside each other at most, unless somebody says otherwise.
pub const USUAL_TEXTS: usize = if USUAL_BEAMS > USUAL_DRAWS { USUAL_BEAMS } else { USUAL_DRAWS };
/// Above this temperature a text is not what the next window goes on from.
pub const RESET_ABOVE: f32 = 0.5;

/// What is done with what is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Task {
    /// It is written down.
    #[default]
    Transcribe,
    /// It is translated into English.
    Translate,
}

/// The language that is spoken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// The model tells by the first window.
    #[default]
    Detected,
    /// By its code, such as `en`.
    Known(String),
}

/// How sound becomes text.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What is done with what is said.
    pub task: Task,
    /// The language that is spoken.
    pub language: Language,
    /// What came before the sound, or names that are in it.
    pub prompt: Option<String>,
    /// Whether a window goes on from the text of the one before.
    pub conditioned: bool,
    /// What is tried one after another until a text will do.
    pub temperatures: Vec<f32>,
    /// Beginnings of a text that are kept beside each other at temperature 0; with 1 the likeliest token is taken each time.
    pub beams: usize,
    /// Texts at a temperature above 0, of which the likeliest is taken.
    pub best_of: usize,
    /// When a text will not do.
    pub thresholds: Thresholds,
    /// Whether the times of words are found too.
    pub words: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            task: Task::Transcribe,
            language: Language::Detected,
            prompt: None,
            conditioned: true,
            temperatures: vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
            beams: USUAL_BEAMS,
            best_of: USUAL_DRAWS,
            thresholds: Thresholds::default(),
            words: false,
        }
    }
}

/// The loop over an engine.
pub struct Transcriber<'m, E> {
    engine: &'m mut E,
    info: Whisper,
    tokenizer: &'m Tokenizer,
    rules: Rules,
    settings: Settings,
}

/// A text with what is known of it.
#[derive(Clone)]
struct Candidate {
    text: Text,
    temperature: f32,
    measures: Measures,
}

impl<'m, E: Engine> Transcriber<'m, E> {
    /// A loop with its settings; an error where the model does not have the language.
    pub fn new(
        engine: &'m mut E,
        info: &Whisper,
        tokenizer: &'m Tokenizer,
        settings: Settings,
    ) -> Result<Transcriber<'m, E>> {
        let rules = Rules::new(&info.tokens, tokenizer, true)?;
        if let Language::Known(code) = &settings.language {
            check_language(&info.tokens, code)?;
        }
        if settings.task == Task::Translate && info.tokens.languages.is_empty() {
            return Err(SpeechError::Model(
                "the model knows English alone, and translates nothing".to_owned(),
            ));
        }
        Ok(Transcriber { engine, info: info.clone(), tokenizer, rules, settings })
    }

    /// Hears a sound to its end. Events come in the order of the sound; times are those of the features.
    pub fn run(&mut self, features: &mut Features<'_>, tell: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let width = self.info.frames;
        // Text that the next window goes on from.
        let mut past: Vec<u32> = Vec::new();
        if let Some(prompt) = &self.settings.prompt {
            past = self.tokenizer.encode(&format!(" {}", prompt.trim()), Ends::None)?;
            past.retain(|&id| id < self.info.tokens.end);
        }
        let mut task = None;
        let mut seek = 0;
        // Where the last word ended.
        let mut last_end = 0.0;
        loop {
            let (window, count) = features.window(seek, width)?;
            if count == 0 {
                return Ok(());
            }
            self.engine.hear(&window)?;
            let task = match &task {
                Some(task) => task,
                None => task.insert(self.task(tell)?),
            };
            let found = self.window_text(&past, task)?;
            if self.settings.thresholds.is_silent(&found.measures) {
                seek += count;
                tell(Event::Heard(seek as f64 / FRAMES_A_SECOND));
                continue;
            }
            let offset = seek as f64 / FRAMES_A_SECOND;
            let cut = cut(&found.text.tokens, self.info.tokens.first_time, count);
            let ends_open = cut.ends_open;
            let mut advance = cut.advance;
            let pieces = cut.pieces.into_iter();
            let segment =
                |piece: Piece| self.segment(piece.tokens, (offset + piece.start, offset + piece.end), &found);
            let mut segments: Vec<Segment> = pieces.map(segment).collect();
            if self.settings.words {
                self.find_words(&mut segments, task, count, offset, &mut last_end)?;
                // What follows the last word is heard again.
                let end = segments.iter().rev().find_map(|segment| Some(segment.words.last()?.end));
                let heard = end.map_or(0.0, |end| ((end - offset) * FRAMES_A_SECOND).round());
                if ends_open && heard >= 1.0 {
                    advance = (heard as usize).min(count);
                }
            }
            for segment in segments {
                // What has no length or no words is no segment.
                if segment.start < segment.end && !segment.text.trim().is_empty() {
                    tell(Event::Segment(&segment));
                    past.extend(&segment.tokens);
                }
            }
            if !self.settings.conditioned || found.temperature > RESET_ABOVE {
                past.clear();
            }
            let kept = self.info.positions / 2 - 1;
            past.drain(..past.len().saturating_sub(kept));
            seek += advance;
            tell(Event::Heard(seek as f64 / FRAMES_A_SECOND));
        }
    }

    fn segment(&self, tokens: Vec<u32>, (start, end): (f64, f64), found: &Candidate) -> Segment {
        Segment {
            start,
            end,
            text: self.text_of(&tokens),
            tokens,
            temperature: found.temperature,
            measures: Some(found.measures),
            words: Vec::new(),
        }
    }

    /// Gives segments of the window that was heard last their words.
    fn find_words(
        &mut self,
        segments: &mut [Segment],
        task: &[u32],
        frames: usize,
        offset: f64,
        last_end: &mut f64,
    ) -> Result<()> {
        let tokens = &self.info.tokens;
        let text = segments.iter().flat_map(|segment| &segment.tokens).copied();
        let text: Vec<u32> = text.filter(|&id| id < tokens.end).collect();
        if text.is_empty() {
            return Ok(());
        }
        let mut all = vec![tokens.start];
        all.extend(task);
        let first = all.len();
        all.push(tokens.no_times);
        all.extend(&text);
        all.push(tokens.end);
        let Some(scores) = self.engine.align(&all)? else { return Ok(()) };
        let places = words::token_places(&scores, all.len(), first, frames / 2);
        let language = task.first().and_then(|id| tokens.languages.get((id - tokens.start - 1) as usize));
        let words = words::split(self.tokenizer, &text, language.map_or("en", String::as_str));
        words::place(segments, words::timed(words, &places), tokens.end, offset, last_end);
        Ok(())
    }

    fn text_of(&self, tokens: &[u32]) -> String {
        let words: Vec<u32> = tokens.iter().copied().filter(|&id| id < self.info.tokens.end).collect();
        self.tokenizer.decode(&words)
    }

    /// The tokens behind the start: language and task, where the model has several.
    fn task(&mut self, tell: &mut dyn FnMut(Event<'_>)) -> Result<Vec<u32>> {
        let tokens = self.info.tokens.clone();
        if tokens.languages.is_empty() {
            tell(Event::Language("en", 1.0));
            return Ok(Vec::new());
        }
        let (code, share) = match &self.settings.language {
            Language::Known(code) => (code.clone(), 1.0),
            Language::Detected => self.detect()?,
        };
        tell(Event::Language(&code, share));
        let language = check_language(&tokens, &code)?;
        let task = match self.settings.task {
            Task::Transcribe => tokens.transcribe,
            Task::Translate => tokens.translate,
        };
        Ok(language.into_iter().chain([task]).collect())
    }

    /// The likeliest language of the window that was heard last, and its share.
    fn detect(&mut self) -> Result<(String, f32)> {
        let WhisperTokens { start, languages, .. } = &self.info.tokens;
        let mut logits = Vec::new();
        self.engine.read(&[*start], 0, &mut logits)?;
        let first = *start as usize + 1;
        let logits = logits.get(first..first + languages.len()).unwrap_or_default();
        let total = log_sum(logits);
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap_or(0);
        let share = logits.get(best).map_or(0.0, |logit| (logit - total).exp());
        Ok((languages[best].clone(), share))
    }

    /// The text of the window that was heard last, at the first temperature that gives one that will do.
    fn window_text(&mut self, past: &[u32], task: &[u32]) -> Result<Candidate> {
        let tokens = &self.info.tokens;
        let mut prompt = Vec::new();
        if !past.is_empty() {
            let kept = self.info.positions / 2 - 1;
            prompt.push(tokens.previous);
            prompt.extend(&past[past.len().saturating_sub(kept)..]);
        }
        prompt.push(tokens.start);
        let mut logits = Vec::new();
        self.engine.read(&prompt, 0, &mut logits)?;
        // Silence is told where the transcript begins.
        let no_speech = logits.get(tokens.no_speech as usize).copied().unwrap_or(f32::NEG_INFINITY);
        let no_speech = (no_speech - log_sum(&logits)).exp();
        if !task.is_empty() {
            self.engine.read(task, prompt.len(), &mut logits)?;
        }
        let position = prompt.len() + task.len();
        let mut tried = Vec::new();
        for &temperature in &self.settings.temperatures.clone() {
            let text = self.likeliest(&logits, position, temperature)?;
            let measures = Measures {
                compression: compression(&self.text_of(&text.tokens)),
                log_probability: text.mean_log_probability(),
                no_speech,
            };
            let candidate = Candidate { text, temperature, measures };
            if self.settings.thresholds.accept(&measures) {
                return Ok(candidate);
            }
            tried.push(candidate);
        }
        let best = self.settings.thresholds.least_bad(&tried, |candidate| candidate.measures);
        // Without any temperature nothing is tried.
        best.cloned().ok_or_else(|| SpeechError::Model("no temperature to decode at".to_owned()))
    }

    /// The likeliest text at a temperature.
    fn likeliest(&mut self, first: &[f32], position: usize, temperature: f32) -> Result<Text> {
        let most = (self.info.positions / 2).min(self.info.positions - position);
        let Settings { beams, best_of, .. } = self.settings;
        if temperature > 0.0 {
            let seeds =
                (0..best_of.max(1) as u64).map(|number| u64::from(temperature.to_bits()) << 32 | number);
            return search::run(
                self.engine,
                Draws::new(&self.rules, temperature, seeds, most),
                first,
                position,
            );
        }
        search::run(self.engine, Beams::new(&self.rules, beams, most), first, position)
    }
}

/// The token of a language; none where the model has only one, and that is asked for.
fn check_language(tokens: &WhisperTokens, code: &str) -> Result<Option<u32>> {
    if tokens.languages.is_empty() && code == "en" {
        return Ok(None);
    }
    let known = match tokens.languages.is_empty() {
        true => "English alone (en)".to_owned(),
        false => tokens.languages.join(", "),
    };
    let code = code.chars().take(40).collect::<String>();
    tokens.language(&code).map(Some).ok_or(SpeechError::Language { code, known })
}
