//! Qwen 2 and 2.5 (biases on q, k and v) and Qwen 3 (norms by head instead), by their sizes: for published shapes and tests.

use pteron_ir::ValueId;

use super::decoder::{Decoder, Feed, Mixing, plain_layer};
use super::{Architecture, Facts, LayerKind};
use crate::blocks::{Activation, Biases, HeadNorms, Heads, MlpKind, NormKind, RopeSettings};
use crate::{ModelError, Net};

/// A Qwen.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the published configuration
pub struct Qwen {
    /// Norms of queries and keys (Qwen 3) in place of biases (Qwen 2).
    pub head_norms: bool,
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub head_dim: usize,
    pub rms_norm_eps: f32,
    pub rope: RopeSettings,
    /// Of layers that slide; without, none does.
    pub sliding_window: Option<usize>,
    /// One a layer.
    pub layer_types: Vec<LayerKind>,
    pub hidden_act: Activation,
    /// Whether q, k, v and o have biases (Qwen 3; Qwen 2 always has those of q, k and v).
    pub attention_bias: bool,
    pub max_position_embeddings: usize,
    pub tie_word_embeddings: bool,
    pub bos_token_id: Option<u32>,
    pub eos_token_id: Vec<u32>,
}

impl Qwen {
    fn decoder(&self) -> Decoder {
        let norms = HeadNorms::by_head(NormKind::Rms, self.rms_norm_eps);
        let plain = Heads {
            biases: Biases::of(self.attention_bias || !self.head_norms, self.attention_bias),
            norms: self.head_norms.then_some(norms),
            ..Heads::new(self.num_attention_heads, self.num_key_value_heads, self.head_dim)
        };
        let mlp = MlpKind::gated(self.intermediate_size, self.hidden_act);
        let layer = |kind: &LayerKind| {
            let window = self.sliding_window.filter(|_| *kind == LayerKind::Sliding);
            plain_layer(Mixing::Heads(Heads { window, ..plain }, Some(0)), Feed::Mlp(mlp))
        };
        Decoder {
            vocab_size: self.vocab_size,
            hidden_size: self.hidden_size,
            eps: self.rms_norm_eps,
            layers: self.layer_types.iter().map(layer).collect(),
            max_position_embeddings: self.max_position_embeddings,
            bos_token_id: self.bos_token_id,
            eos_token_id: self.eos_token_id.clone(),
            ..Decoder::plain(NormKind::Rms, self.tie_word_embeddings).turned(
                "rope",
                self.head_dim,
                &self.rope,
            )
        }
    }
}

impl Architecture for Qwen {
    fn facts(&self) -> Facts {
        self.decoder().facts()
    }

    fn build(&self, net: &mut Net) -> Result<ValueId, ModelError> {
        self.decoder().build(net)
    }
}
