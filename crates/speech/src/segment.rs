//! What flows out of every loop: stretches of text with their times, as they are found.

use crate::whisper::fallback::Measures;

/// A stretch of what was said.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Where it begins, in seconds.
    pub start: f64,
    /// Where it ends, in seconds.
    pub end: f64,
    /// What was said, with the space in front that the model gives.
    pub text: String,
    /// Its words and times as the model gave them.
    pub tokens: Vec<u32>,
    /// The temperature that it was found at.
    pub temperature: f32,
    /// What is known of the window's text, where the model tells.
    pub measures: Option<Measures>,
    /// Its words, where their times are asked for.
    pub words: Vec<Word>,
}

/// A word with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// What is said, with the space in front of it.
    pub text: String,
    /// Where it begins, in seconds.
    pub start: f64,
    /// Where it ends, in seconds.
    pub end: f64,
}

/// What happens on the way.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'e> {
    /// The language is known, with how sure the model is of it; a language that was told is sure.
    Language(&'e str, f32),
    /// A segment.
    Segment(&'e Segment),
    /// All has been heard up to this many seconds.
    Heard(f64),
}
