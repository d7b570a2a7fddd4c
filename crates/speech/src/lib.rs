//! From sound to text: reading sound, mel front ends, and the loops that turn what speech models give into text with times.
//!
//! Files and programs flow in, segments with times flow out. What a model takes and which rules its tokens follow is data
//! that travels with it; nothing here knows a model by its name, prints, or reads the environment.

mod error;
pub mod mel;
pub mod parakeet;
mod part;
pub mod realtime;
pub mod segment;
pub mod sound;
pub mod transcript;
pub mod voice;
pub mod voxtral;
pub mod whisper;

pub use error::{Result, SpeechError};
