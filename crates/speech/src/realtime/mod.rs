//! Voxtral Realtime's loop: sound comes in by places of 80 ms, and for each of them a token comes out, some places behind.
//!
//! [`transcribe`] puts the silence around the sound that the model was trained with and drives an [`Engine`] place by place, so that a
//! stream is heard as a file is. [`program`] is the engine over programs.

pub mod marks;
pub mod program;
pub mod transcribe;

use crate::Result;

pub use marks::Marks;
pub use program::RealtimeProgram;
pub use transcribe::Transcriber;

/// What runs a model of this kind.
pub trait Engine {
    /// Begins a sound and its text.
    fn begin(&mut self) -> Result<()>;

    /// Takes the features of so many further places, band by band.
    fn hear(&mut self, features: &[f32], places: usize) -> Result<()>;

    /// Reads tokens, each together with the first place that none was read with yet, and gives the logits behind the last.
    fn read(&mut self, tokens: &[u32], logits: &mut Vec<f32>) -> Result<()>;

    /// Places of one call at most.
    fn most_places(&self) -> usize;

    /// Places of a text at most.
    fn context(&self) -> usize;
}
