//! One small file a family: its configuration, under the names of the published `config.json`, how that file is read,
//! and how its layers are put together from the shared blocks.
//!
//! # Adding an architecture
//!
//! 1. A file here with a struct of the sizes, named as `config.json` names them, and `impl Architecture`: `facts` for
//!    runners, `build` for the graph. Blocks (`attention`, `gated_mlp`, `embed`, `head`, `Norm`, `Rope`) take what
//!    differs between families as fields; weights are asked for under the names of the published checkpoints, with
//!    `model.` in front whatever wrapper they come in. Tensors that nobody asks for are left alone, and told to the user.
//! 2. Its `read`, from a [`Config`] with the defaults that the family's own code has, and its row in [`FAMILIES`].
//! 3. Its test: a small one with its twin in plain loops in `tests/small`, so that every chunking and dtype is tried.
//!
//! For checkpoints in folders nothing else changes: export, metadata, quantisation and runners know no architecture. GGUF has
//! names of its own for tensors and settings, so that a family needs its entries in `checkpoint/src/gguf` too.

mod gemma3;
mod gemma4;
mod llama;
mod qwen;
#[cfg(test)]
mod tests;
mod whisper;

use pteron_ir::ValueId;

use crate::{Config, ConfigError, ModelError, Net};

pub use gemma3::Gemma3;
pub use gemma4::{Gemma4, PerLayerInputs};
pub use llama::Llama;
pub use qwen::Qwen;
pub use whisper::Whisper;

/// A model that can be built.
pub trait Architecture: Send + Sync {
    /// What runners want to know.
    fn facts(&self) -> Facts;

    /// Appends the whole model; its logits.
    fn build(&self, net: &mut Net) -> Result<ValueId, ModelError>;

    /// The program's methods, where they are others than `forward`.
    fn parts(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Appends one of those, inputs included; its outputs by name.
    fn build_part(&self, part: &str, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        let logits = self.build(net)?;
        Ok(vec![(part.to_owned(), logits)])
    }

    /// Weights that published files hold although the model has no use for them.
    fn spare(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A family by the names that published files give it.
pub struct Family {
    /// `model_type`, and the names in `architectures`.
    pub names: &'static [&'static str],
    read: fn(&Config) -> Result<Box<dyn Architecture>, ConfigError>,
}

impl Family {
    /// The architecture that a configuration describes.
    pub fn read(&self, config: &Config) -> Result<Box<dyn Architecture>, ConfigError> {
        (self.read)(config)
    }
}

/// All families.
pub const FAMILIES: [Family; 7] = [
    Family { names: &["llama", "LlamaForCausalLM"], read: |config| Ok(Box::new(Llama::read(config)?)) },
    Family {
        names: &["mistral", "MistralForCausalLM"],
        read: |config| Ok(Box::new(Llama::read_mistral(config)?)),
    },
    Family { names: &["qwen2", "Qwen2ForCausalLM"], read: |config| Ok(Box::new(Qwen::read(config, false)?)) },
    Family { names: &["qwen3", "Qwen3ForCausalLM"], read: |config| Ok(Box::new(Qwen::read(config, true)?)) },
    Family {
        names: &["gemma3_text", "gemma3", "Gemma3ForCausalLM"],
        read: |config| Ok(Box::new(Gemma3::read(config)?)),
    },
    Family {
        names: &["gemma4_text", "gemma4", "Gemma4ForCausalLM"],
        read: |config| Ok(Box::new(Gemma4::read(config)?)),
    },
    Family {
        names: &["whisper", "WhisperForConditionalGeneration"],
        read: |config| Ok(Box::new(Whisper::read(config)?)),
    },
];

/// The family of that name.
pub fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.names.contains(&name))
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
