//! Models as graphs. Decoders of one kind are rows of one table (`decoder`): a family is what makes it differ from another, as
//! data, and one builder makes the graph. Families that are built otherwise have a file of their own here.
//!
//! # Adding a family
//!
//! 1. Its row in `decoder/table/`: names, defaults, and what differs from a row that is there. What no column can say is a
//!    function in `decoder/finish.rs`; what no block can do is a new field of a block.
//! 2. Its layout in `decoder/layouts.rs`, where published files keep weights otherwise than graphs ask for them. Tensors that
//!    nobody asks for are left alone, and told to the user.
//! 3. Its case in `conformance/family_configs.py`: tiny weights and what transformers makes of them.
//!
//! For checkpoints in folders nothing else changes: export, metadata, quantisation and runners know no architecture. GGUF has
//! names of its own for tensors and settings, so that a family needs its entries in `checkpoint/src/gguf` too.

mod decoder;
mod encoder;
mod gemma3;
mod gemma3n;
mod gemma4;
mod llama;
mod parakeet;
mod qwen;
mod realtime;
mod seeing;
#[cfg(test)]
mod tests;
mod voxtral;
mod whisper;

use pteron_ir::ValueId;

use crate::{Config, ConfigError, ModelError, ModelOptions, Net};

pub use crate::blocks::PerLayerInputs;

pub use decoder::{
    Decoder, Embedding, Feed, Head, Layer, LayerNorms, Layout, Mixing, Place, Places, ROWS, RopeSpec, Row,
    Rows,
};
pub use encoder::{Encoder, NORMALISED, POOLING, Pooling};
pub use gemma3::Gemma3;
pub use gemma3n::Gemma3n;
pub use gemma4::Gemma4;
pub use llama::Llama;
pub use parakeet::{Parakeet, ParakeetHead};
pub use qwen::Qwen;
pub use realtime::Realtime;
pub use seeing::{
    Eyes, Gemma3Eyes, Gemma4Eyes, IMAGE_ROWS, LOOK, Qwen3Eyes, QwenEyes, SOFT_TOKENS, Seeing, Siglip, Text,
};
pub use voxtral::Voxtral;
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

    /// Methods beside `forward` that read something else than tokens into the same caches, as far as the options have room for
    /// them.
    fn beside(&self, _options: &ModelOptions) -> Vec<&'static str> {
        Vec::new()
    }

    /// Where published files keep its weights.
    fn places(&self) -> Places {
        Places::usual()
    }

    /// Whether keys and values have to lie in the graph, because its scores are spelled out there.
    fn keeps_caches_in_graph(&self) -> bool {
        false
    }

    /// What an encoder makes of a text; nothing of a model that writes.
    fn encodes(&self) -> Option<Encodes> {
        None
    }

    /// Weights that published files hold although the model has no use for them.
    fn spare(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What an encoder makes of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encodes {
    /// The method that does it: `embed`, or `score`.
    pub method: &'static str,
    /// How many numbers it gives.
    pub numbers: usize,
}

/// A family by the names that published files give it.
pub struct Family {
    /// `model_type`, and the names in `architectures`.
    pub names: &'static [&'static str],
    kind: Kind,
}

/// How a family is read.
#[derive(Clone, Copy)]
enum Kind {
    /// By its row of the table.
    Row(&'static Row),
    /// By itself.
    Own(fn(&Config) -> Result<Box<dyn Architecture>, ConfigError>),
    /// As an encoder.
    Encoder(fn(&Config) -> Result<Encoder, ConfigError>),
}

impl Family {
    /// The architecture that a configuration describes.
    pub fn read(&self, config: &Config) -> Result<Box<dyn Architecture>, ConfigError> {
        match self.kind {
            Kind::Row(row) => Ok(Box::new(row.read(config)?)),
            Kind::Own(read) => read(config),
            Kind::Encoder(read) => Ok(Box::new(read(config)?)),
        }
    }

    /// Whether its models read texts and write none.
    pub fn is_encoder(&self) -> bool {
        matches!(self.kind, Kind::Encoder(_))
    }
}

/// Families that are no rows of the table.
const OWN: [Family; 13] = [
    Family {
        names: &["gemma3n_text", "gemma3n", "Gemma3nForCausalLM"],
        kind: Kind::Own(|config| Ok(Box::new(Gemma3n::read(config)?))),
    },
    Family {
        names: &["gemma4_text", "gemma4", "Gemma4ForCausalLM"],
        kind: Kind::Own(|config| Ok(Box::new(Gemma4::read(config)?))),
    },
    Family {
        names: &["whisper", "WhisperForConditionalGeneration"],
        kind: Kind::Own(|config| Ok(Box::new(Whisper::read(config)?))),
    },
    Family { names: seeing::GEMMA3, kind: Kind::Own(|config| Ok(Box::new(Seeing::gemma3(config)?))) },
    Family { names: seeing::GEMMA4, kind: Kind::Own(|config| Ok(Box::new(Seeing::gemma4(config)?))) },
    Family { names: seeing::QWEN2_5_VL, kind: Kind::Own(|config| Ok(Box::new(Seeing::qwen2_5_vl(config)?))) },
    Family { names: seeing::QWEN3_VL, kind: Kind::Own(|config| Ok(Box::new(Seeing::qwen3_vl(config)?))) },
    Family {
        names: &["voxtral", "VoxtralForConditionalGeneration"],
        kind: Kind::Own(|config| Ok(Box::new(Voxtral::read(config)?))),
    },
    Family {
        names: &["voxtral_realtime", "VoxtralRealtimeForConditionalGeneration"],
        kind: Kind::Own(|config| Ok(Box::new(Realtime::read(config)?))),
    },
    Family {
        names: &[
            "parakeet_tdt",
            "ParakeetForTDT",
            "parakeet_rnnt",
            "ParakeetForRNNT",
            "parakeet_ctc",
            "ParakeetForCTC",
        ],
        kind: Kind::Own(|config| Ok(Box::new(Parakeet::read(config)?))),
    },
    Family { names: decoder::BERT.names, kind: Kind::Encoder(Encoder::bert) },
    Family { names: decoder::ROBERTA.names, kind: Kind::Encoder(Encoder::roberta) },
    Family { names: decoder::MODERNBERT.names, kind: Kind::Encoder(Encoder::modernbert) },
];

/// All families.
pub fn families() -> impl Iterator<Item = Family> {
    let rows = ROWS.iter().map(|row| Family { names: row.names, kind: Kind::Row(row) });
    rows.chain(OWN)
}

/// The family of that name.
pub fn family(name: &str) -> Option<Family> {
    families().find(|family| family.names.contains(&name))
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

/// What published files hold in layers that share keys and values with earlier ones, so many at the end, and that no model needs.
fn spare_keys(layers: usize, sharing: usize) -> Vec<String> {
    let modules = ["k_proj", "v_proj", "k_norm", "v_norm"];
    let weight = |layer, module| format!("model.layers.{layer}.self_attn.{module}.weight");
    let sharing = layers.saturating_sub(sharing)..layers;
    sharing.flat_map(|layer| modules.map(|module| weight(layer, module))).collect()
}
