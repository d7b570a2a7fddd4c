//! One small file a family: its configuration, under the names of the published `config.json`, and how its layers are
//! put together from the shared blocks. To add one: its file here, its line in this list, its test.

mod gemma3;
mod gemma4;
mod llama;
mod qwen;

use pteron_ir::ValueId;

use crate::{ModelError, Net};

pub use gemma3::Gemma3;
pub use gemma4::{Gemma4, PerLayerInputs};
pub use llama::Llama;
pub use qwen::Qwen;

/// A decoder that can be built.
pub trait Architecture: Send + Sync {
    /// What runners want to know.
    fn facts(&self) -> Facts;

    /// Appends the whole model; its logits.
    fn build(&self, net: &mut Net) -> Result<ValueId, ModelError>;
}

/// What runners want to know of a model, whatever its architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Token ids there are.
    pub vocab_size: usize,
    /// Layers.
    pub layers: usize,
    /// The id that begins a text, where there is one.
    pub bos: Option<u32>,
    /// The ids that end one.
    pub eos: Vec<u32>,
    /// The longest context that it was made for.
    pub context: usize,
}

/// Whether a layer sees all positions or a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// All positions.
    Full,
    /// The last few.
    Sliding,
}

/// Every `period`-th layer full, the others sliding.
pub fn every_nth_full(layers: usize, period: usize) -> Vec<LayerKind> {
    let kind =
        |layer: usize| if (layer + 1).is_multiple_of(period) { LayerKind::Full } else { LayerKind::Sliding };
    (0..layers).map(kind).collect()
}
