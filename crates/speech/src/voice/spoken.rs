//! Sound with its silences left out, as it comes, and where its samples were before.
//!
//! Speech begins with a chunk above one threshold and ends where chunks stay below another for two seconds; a little of what
//! is around it is kept. What may still turn out to be a pause is held back until that is known, so that memory is bounded by
//! it, however long the sound.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::{CHUNK, Judge};
use crate::sound::{RATE, Samples, SoundError};

/// When sound is speech.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VoiceOptions {
    /// A probability from here on begins speech.
    pub begins: f32,
    /// One below this may end it.
    pub ends: f32,
    /// Samples that have to be below before it has ended.
    pub silence: u64,
    /// Samples that are kept on each side.
    pub around: u64,
    /// Whether what is read ends with every stretch of speech, and goes on with the next one when it is read again: what was
    /// said can be written down before more is.
    pub one_by_one: bool,
}

impl VoiceOptions {
    /// For sound that comes as it is said: a short pause ends a stretch, and a shorter one where somebody has long been speaking.
    pub fn live() -> VoiceOptions {
        VoiceOptions { silence: u64::from(RATE) * 6 / 10, one_by_one: true, ..VoiceOptions::default() }
    }
}

impl Default for VoiceOptions {
    fn default() -> VoiceOptions {
        let rate = u64::from(RATE);
        VoiceOptions { begins: 0.5, ends: 0.35, silence: 2 * rate, around: rate * 4 / 10, one_by_one: false }
    }
}

/// After so many samples of speech, all that is waited for is a breath.
const LONG: u64 = 12 * RATE as u64;
/// That part of a pause is a breath.
const BREATH: u64 = 5;

/// Stretches of speech: where each began in what was passed on and in the sound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeMap {
    pieces: Vec<(u64, u64)>,
    /// Samples of silence that each stretch has at its ends, at most.
    around: u64,
}

/// Which side of a stretch of time is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Border {
    /// Its beginning: where two stretches meet, that of the second.
    Start,
    /// Its end: there, that of the first.
    End,
}

impl TimeMap {
    /// A time in the sound, in seconds, of one in what was passed on.
    pub fn original(&self, seconds: f64, border: Border) -> f64 {
        let rate = f64::from(RATE);
        let sample = (seconds * rate).round() as u64;
        let before = |&&(passed, _): &&(u64, u64)| match border {
            Border::Start => passed <= sample,
            Border::End => passed < sample,
        };
        let piece = self.pieces.iter().take_while(before).last().or(self.pieces.first());
        piece.map_or(seconds, |&(passed, original)| seconds + (original as f64 - passed as f64) / rate)
    }

    /// Where a word was: a word lies in one stretch, that of its middle, though its times may reach into the next one.
    pub fn word(&self, start: f64, end: f64) -> (f64, f64) {
        let (from, to) = self.stretch((start + end) / 2.0);
        let within = |seconds: f64| seconds.max(from).min(to);
        (self.original(within(start), Border::Start), self.original(within(end), Border::End))
    }

    /// Where a sentence was, which may go over several stretches: it neither begins in the silence behind one nor ends in
    /// that before another.
    pub fn sentence(&self, start: f64, end: f64) -> (f64, f64) {
        let around = self.around as f64 / f64::from(RATE);
        let (_, first_end) = self.stretch(start);
        let (last_start, _) = self.stretch(end);
        let (mut from, mut to) = (start, end);
        if first_end < end && start + around >= first_end {
            from = first_end;
        }
        if from < last_start && end - around <= last_start {
            to = last_start;
        }
        (self.original(from, Border::Start), self.original(to, Border::End))
    }

    /// From where to where what was passed on is of one stretch.
    fn stretch(&self, seconds: f64) -> (f64, f64) {
        let begins = |&(passed, _): &(u64, u64)| passed as f64 / f64::from(RATE);
        let next = self.pieces.partition_point(|piece| begins(piece) <= seconds);
        let start = next.checked_sub(1).map_or(0.0, |at| begins(&self.pieces[at]));
        (start, self.pieces.get(next).map_or(f64::INFINITY, begins))
    }
}

/// A sound of which only speech is passed on.
pub struct Spoken<'s> {
    samples: &'s mut dyn Samples,
    judge: &'s mut dyn Judge,
    options: VoiceOptions,
    /// Samples that are not decided on; the last come last.
    held: VecDeque<f32>,
    /// The sample that `held` begins with.
    first: u64,
    /// Samples of the sound that have been judged.
    judged: u64,
    state: State,
    /// The sample that the stretch begins with which is passed on now, or was last.
    begun: u64,
    passed: u64,
    map: Rc<RefCell<TimeMap>>,
    block: Vec<f32>,
    /// Whether a stretch of speech has ended that is to be taken by itself.
    between: bool,
    /// Whether the sound has been read to its end.
    is_read: bool,
    ended: bool,
}

/// What is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Silence,
    Speech,
    /// Speech, which may have ended at a sample.
    Pause(u64),
}

impl<'s> Spoken<'s> {
    /// The speech of a sound from its beginning.
    pub fn new(samples: &'s mut dyn Samples, judge: &'s mut dyn Judge, options: VoiceOptions) -> Spoken<'s> {
        judge.reset();
        Spoken {
            samples,
            judge,
            options,
            held: VecDeque::new(),
            first: 0,
            judged: 0,
            state: State::Silence,
            begun: 0,
            passed: 0,
            map: Rc::new(RefCell::new(TimeMap { pieces: Vec::new(), around: options.around })),
            block: Vec::new(),
            between: false,
            is_read: false,
            ended: false,
        }
    }

    /// Where what is passed on was; it grows as that does.
    pub fn map(&self) -> Rc<RefCell<TimeMap>> {
        self.map.clone()
    }

    /// Samples that have been passed on.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// Whether there is no more, and no stretch of speech behind the one that was read.
    pub fn is_over(&self) -> bool {
        self.ended
    }

    fn unjudged(&self) -> u64 {
        self.first + self.held.len() as u64 - self.judged
    }

    /// Judges the next chunk of what is held.
    fn decide(&mut self, out: &mut Vec<f32>) {
        let at = (self.judged - self.first) as usize;
        let mut chunk = [0.0; CHUNK];
        chunk.iter_mut().zip(self.held.range(at..)).for_each(|(to, sample)| *to = *sample);
        let probability = self.judge.probability(&chunk);
        let start = self.judged;
        self.judged += (self.held.len() - at).min(CHUNK) as u64;
        let VoiceOptions { begins, ends, around, .. } = self.options;
        match self.state {
            State::Silence if probability >= begins => {
                self.skip_to(start.saturating_sub(around));
                self.begun = self.first;
                self.map.borrow_mut().pieces.push((self.passed, self.first));
                self.state = State::Speech;
            }
            State::Silence => self.skip_to(self.judged.saturating_sub(around)),
            State::Speech | State::Pause(_) if probability >= begins => self.state = State::Speech,
            State::Speech if probability < ends => self.state = State::Pause(start),
            State::Pause(end) if probability < ends && start - end >= self.patience(end) => {
                self.pass_to((end + around).min(self.judged), out);
                self.state = State::Silence;
                self.between = self.options.one_by_one;
                self.skip_to(self.judged.saturating_sub(around));
            }
            State::Speech | State::Pause(_) => {}
        }
        match self.state {
            State::Speech => self.pass_to(self.judged, out),
            State::Pause(end) => self.pass_to(end, out),
            State::Silence => {}
        }
    }

    /// Samples of silence that end the stretch which may have ended at one.
    fn patience(&self, end: u64) -> u64 {
        let VoiceOptions { silence, one_by_one, .. } = self.options;
        match one_by_one {
            false => silence,
            true => silence * LONG.saturating_sub(end - self.begun).max(LONG / BREATH) / LONG,
        }
    }

    /// Passes samples on up to one.
    fn pass_to(&mut self, sample: u64, out: &mut Vec<f32>) {
        let count = (sample.saturating_sub(self.first) as usize).min(self.held.len());
        out.extend(self.held.drain(..count));
        self.first += count as u64;
        self.passed += count as u64;
    }

    /// Lets go of samples up to one.
    fn skip_to(&mut self, sample: u64) {
        let count = (sample.saturating_sub(self.first) as usize).min(self.held.len());
        self.held.drain(..count);
        self.first += count as u64;
    }
}

impl Samples for Spoken<'_> {
    fn read(&mut self, out: &mut Vec<f32>) -> Result<bool, SoundError> {
        if std::mem::take(&mut self.between) || self.ended {
            return Ok(false);
        }
        if !self.is_read {
            self.block.clear();
            self.is_read = !self.samples.read(&mut self.block)?;
            self.held.extend(&self.block);
        }
        while self.unjudged() >= CHUNK as u64 && !self.between {
            self.decide(out);
        }
        if self.is_read && !self.between {
            self.ended = true;
            if self.unjudged() > 0 {
                self.decide(out);
            }
            // Speech that has not ended goes on to the end.
            if self.state != State::Silence {
                self.pass_to(u64::MAX, out);
            }
        }
        Ok(true)
    }
}
