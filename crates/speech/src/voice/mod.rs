//! Where somebody speaks: Silero's published network, and a stream of sound with the silence left out.
//!
//! Samples flow in; [`Silero`] says of every 32 ms how likely they are speech, [`Spoken`] passes on what is, and the
//! [`TimeMap`] leads from times in that back to times in the sound. Knows nothing of what is said.

mod silero;
mod spoken;

pub use silero::Silero;
/// Samples that one probability is about.
pub const CHUNK: usize = 512;

/// What tells speech from silence, chunk after chunk.
pub trait Judge {
    /// How likely the next samples are speech.
    fn probability(&mut self, chunk: &[f32; CHUNK]) -> f32;

    /// Forgets what came before.
    fn reset(&mut self);
}

pub use spoken::{Border, Spoken, TimeMap, VoiceOptions};
