//! Llama 2 and 3, and what is built like them, by their sizes: for published shapes and tests.

use pteron_ir::ValueId;

use super::decoder::{Decoder, Feed, Mixing, plain_layer};
use super::{Architecture, Facts};
use crate::blocks::{Activation, Biases, Heads, MlpKind, NormKind, RopeSettings};
use crate::{ModelError, Net};

/// A Llama.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the published configuration
pub struct Llama {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub head_dim: usize,
    pub rms_norm_eps: f32,
    pub rope: RopeSettings,
    /// Of every layer.
    pub sliding_window: Option<usize>,
    pub hidden_act: Activation,
    /// Whether q, k, v and o have biases.
    pub attention_bias: bool,
    /// Whether the matrices of the MLP have biases.
    pub mlp_bias: bool,
    pub max_position_embeddings: usize,
    pub tie_word_embeddings: bool,
    pub bos_token_id: Option<u32>,
    pub eos_token_id: Vec<u32>,
}

impl Llama {
    fn decoder(&self) -> Decoder {
        let heads = Heads {
            biases: Biases::of(self.attention_bias, self.attention_bias),
            window: self.sliding_window,
            ..Heads::new(self.num_attention_heads, self.num_key_value_heads, self.head_dim)
        };
        let mlp =
            MlpKind { biases: self.mlp_bias, ..MlpKind::gated(self.intermediate_size, self.hidden_act) };
        let layer = plain_layer(Mixing::Heads(heads, Some(0)), Feed::Mlp(mlp));
        Decoder {
            vocab_size: self.vocab_size,
            hidden_size: self.hidden_size,
            eps: self.rms_norm_eps,
            layers: vec![layer; self.num_hidden_layers],
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

impl Architecture for Llama {
    fn facts(&self) -> Facts {
        self.decoder().facts()
    }

    fn build(&self, net: &mut Net) -> Result<ValueId, ModelError> {
        self.decoder().build(net)
    }
}
