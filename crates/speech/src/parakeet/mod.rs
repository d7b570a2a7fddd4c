//! Parakeet's loop: windows of up to two minutes in, segments with the times of all words out.
//!
//! Each part is a machine that takes what the model gives and knows no model: [`decode`] makes tokens with places of a window,
//! [`merge`] joins those of windows that overlap, [`words`] makes words and segments of them, [`transcribe`] drives them all
//! over an [`Engine`]. [`program`] is the engine over programs.

pub mod decode;
pub mod merge;
pub mod program;
pub mod transcribe;
pub mod words;

use crate::Result;

pub use program::ParakeetProgram;
pub use transcribe::Transcriber;

/// What may be said in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guess {
    /// The likeliest token, or the one that says that there is none.
    pub token: u32,
    /// Places from here to the one that is looked at next, where the model tells.
    pub lasts: Option<usize>,
}

/// A token in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// The token.
    pub token: u32,
    /// The place that it begins in.
    pub place: usize,
    /// How many places it lasts; none where it shares its place with the one behind it.
    pub lasts: usize,
}

/// What runs a model of this kind.
pub trait Engine {
    /// Takes a window of features, band by band; how many places it has.
    fn hear(&mut self, features: &[f32], frames: usize) -> Result<usize>;

    /// Begins a text anew.
    fn begin(&mut self) -> Result<()>;

    /// Takes a token into the text.
    fn say(&mut self, token: u32) -> Result<()>;

    /// What may follow the text in places from one of the window on, in place of what `out` holds: of at least that one.
    fn guess(&mut self, place: usize, out: &mut Vec<Guess>) -> Result<()>;

    /// Whether every place is guessed by itself, so that a token that goes on is guessed again.
    fn repeats(&self) -> bool;
}
