//! Whisper's loop: windows of 30 seconds in, segments with times out.
//!
//! Each part is a machine that takes what the model gives and knows no model: [`rules`] say which tokens may follow,
//! [`beams`] finds the likeliest text of a window and [`draws`] draws some, both by [`search`], [`fallback`] judges them, [`cut`] makes segments of
//! its times and says where the next window begins, [`words`] finds the times of words, [`transcribe`] drives them all over
//! an [`Engine`]. [`program`] is the engine over programs.

pub mod beams;
pub mod cut;
pub mod draws;
pub mod fallback;
pub mod features;
pub mod program;
pub mod rules;
pub mod search;
pub mod transcribe;
pub mod words;

use crate::Result;
use search::Branch;

pub use program::WhisperProgram;
pub use transcribe::{Language, Settings, Task, Transcriber, USUAL_TEXTS};

/// What runs a model of this kind.
pub trait Engine {
    /// Takes a window of features, band by band; texts are about it from now on.
    fn hear(&mut self, features: &[f32]) -> Result<()>;

    /// Puts tokens at a position of the text, and gives the logits behind the last of them. What was behind that position is
    /// forgotten.
    fn read(&mut self, tokens: &[u32], position: usize, logits: &mut Vec<f32>) -> Result<()>;

    /// Makes texts that go on from those of the call before, each by a token at this position, and gives the logits behind
    /// each. [`Engine::read`] leaves one text. Several searches may begin behind it, one after another, each by texts that go on
    /// from number 0 at the same position: all texts have in common what was read before.
    fn follow(&mut self, branches: &[Branch], position: usize, logits: &mut Vec<Vec<f32>>) -> Result<()>;

    /// What heads that follow the sound see in it at each token of a text; nothing where the model cannot say.
    fn align(&mut self, tokens: &[u32]) -> Result<Option<words::Scores>> {
        let _ = tokens;
        Ok(None)
    }
}
