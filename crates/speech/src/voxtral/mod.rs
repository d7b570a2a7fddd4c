//! Voxtral's loop: minutes of sound in, what is said in them or an answer to a question about them out.
//!
//! [`prompt`] puts the marks around the sound that the model was trained with, [`cut`] finds where a long sound may be parted,
//! [`transcribe`] drives both over an [`Engine`]. [`program`] is the engine over programs.

pub mod cut;
pub mod program;
pub mod prompt;
pub mod transcribe;

use crate::Result;

pub use program::VoxtralProgram;
pub use transcribe::{Settings, Transcriber};

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Tokens.
    Tokens(Vec<u32>),
    /// What was heard.
    Sound,
}

/// What runs a model of this kind.
pub trait Engine {
    /// Takes features of windows, one after another and each band by band; prompts are about them from now on.
    fn hear(&mut self, windows: &[Vec<f32>]) -> Result<()>;

    /// Begins a text with a prompt, and gives the logits behind it.
    fn begin(&mut self, prompt: &[Part], logits: &mut Vec<f32>) -> Result<()>;

    /// Reads one token further.
    fn read(&mut self, token: u32, logits: &mut Vec<f32>) -> Result<()>;

    /// Positions that a text has.
    fn context(&self) -> usize;

    /// Those that the text has left.
    fn left(&self) -> usize;
}

/// The likeliest, the first of equals; what is no number is as unlikely as can be.
pub(crate) fn best(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, &logit) in logits.iter().enumerate() {
        if logit > best.1 {
            best = (id as u32, logit);
        }
    }
    best.0
}
