//! Gemma 3, text (sliding layers between full ones, four norms a layer, scaled embeddings), by its sizes: for published shapes
//! and tests.

use pteron_ir::ValueId;

use super::decoder::{Decoder, Embedding, FOUR_NORMS, Feed, Head, Layer, Mixing, plain_layer};
use super::{Architecture, Facts, LayerKind};
use crate::blocks::{Activation, Biases, HeadNorms, Heads, MlpKind, NormKind, RopeSettings};
use crate::{ModelError, Net};

/// A Gemma 3.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the published configuration
pub struct Gemma3 {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub head_dim: usize,
    pub query_pre_attn_scalar: f32,
    pub rms_norm_eps: f32,
    /// Of full layers.
    pub rope: RopeSettings,
    /// Of sliding layers.
    pub local_rope: RopeSettings,
    pub sliding_window: usize,
    /// One a layer.
    pub layer_types: Vec<LayerKind>,
    pub hidden_activation: Activation,
    /// Whether q, k, v and o have biases.
    pub attention_bias: bool,
    pub final_logit_softcapping: Option<f32>,
    pub max_position_embeddings: usize,
    pub tie_word_embeddings: bool,
    pub bos_token_id: Option<u32>,
    pub eos_token_id: Vec<u32>,
}

impl Gemma3 {
    fn decoder(&self) -> Decoder {
        let plain = Heads {
            scale: self.query_pre_attn_scalar.powf(-0.5),
            biases: Biases::of(self.attention_bias, self.attention_bias),
            norms: Some(HeadNorms::by_head(NormKind::RmsAroundOne, self.rms_norm_eps)),
            ..Heads::new(self.num_attention_heads, self.num_key_value_heads, self.head_dim)
        };
        let mlp = MlpKind::gated(self.intermediate_size, self.hidden_activation);
        let layer = |kind: &LayerKind| {
            let (window, rope) = match kind {
                LayerKind::Full => (None, 1),
                LayerKind::Sliding => (Some(self.sliding_window), 0),
            };
            let mixing = Mixing::Heads(Heads { window, ..plain }, Some(rope));
            Layer { norms: FOUR_NORMS, ..plain_layer(mixing, Feed::Mlp(mlp)) }
        };
        let plain = Decoder::plain(NormKind::RmsAroundOne, self.tie_word_embeddings)
            .turned("local_rope", self.head_dim, &self.local_rope)
            .turned("rope", self.head_dim, &self.rope);
        Decoder {
            vocab_size: self.vocab_size,
            hidden_size: self.hidden_size,
            embedding: Embedding { factor: Some((self.hidden_size as f32).sqrt()), ..plain.embedding },
            eps: self.rms_norm_eps,
            layers: self.layer_types.iter().map(layer).collect(),
            head: Head { soft_cap: self.final_logit_softcapping, ..plain.head },
            wide_sums: true,
            max_position_embeddings: self.max_position_embeddings,
            bos_token_id: self.bos_token_id,
            eos_token_id: self.eos_token_id.clone(),
            ..plain
        }
    }
}

impl Architecture for Gemma3 {
    fn facts(&self) -> Facts {
        self.decoder().facts()
    }

    fn build(&self, net: &mut Net) -> Result<ValueId, ModelError> {
        self.decoder().build(net)
    }
}
