//! Qwen 2 and 2.5 (biases on q, k and v) and Qwen 3 (norms by head instead).

use pteron_ir::ValueId;

use super::{Architecture, Facts};
use crate::blocks::{
    Activation, Attention, HeadNorms, Keys, Norm, Rope, attention, embed, gated_mlp, head, matrix,
};
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
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub head_dim: usize,
    pub rms_norm_eps: f32,
    pub rope_theta: f32,
    /// The window, and the first layer that has it.
    pub sliding_window: Option<(usize, usize)>,
    pub max_position_embeddings: usize,
    pub tie_word_embeddings: bool,
    pub bos_token_id: Option<u32>,
    pub eos_token_id: Vec<u32>,
}

impl Architecture for Qwen {
    fn facts(&self) -> Facts {
        Facts {
            vocab_size: self.vocab_size,
            layers: self.num_hidden_layers,
            bos: self.bos_token_id,
            eos: self.eos_token_id.clone(),
            context: self.max_position_embeddings,
        }
    }

    fn build(&self, net: &mut Net) -> Result<ValueId, ModelError> {
        let (hidden, eps) = (self.hidden_size, self.rms_norm_eps);
        let norm = |name: String| Norm { name, size: hidden, eps, around_one: false };
        let rope = Rope::plain(self.head_dim, self.rope_theta);
        net.enter("embedding");
        let table = matrix(net, "model.embed_tokens.weight", self.vocab_size, hidden)?;
        let mut x = embed(net, table, net.tokens())?;
        for layer in 0..self.num_hidden_layers {
            let prefix = format!("model.layers.{layer}");
            let normed = norm(format!("{prefix}.input_layernorm.weight")).apply(net, x)?;
            let spec = Attention {
                name: &format!("{prefix}.self_attn"),
                hidden,
                heads: self.num_attention_heads,
                kv_heads: self.num_key_value_heads,
                head_dim: self.head_dim,
                scale: (self.head_dim as f32).powf(-0.5),
                qkv_bias: !self.head_norms,
                norms: match self.head_norms {
                    true => HeadNorms::QueriesAndKeys { eps, around_one: false },
                    false => HeadNorms::None,
                },
                rope: &rope,
                window: self.sliding_window.and_then(|(window, from)| (layer >= from).then_some(window)),
                keys: Keys::Own,
            };
            let (attended, _) = attention(net, normed, &spec)?;
            x = net.add(x, attended)?;
            let normed = norm(format!("{prefix}.post_attention_layernorm.weight")).apply(net, x)?;
            let mlp = format!("{prefix}.mlp");
            let fed = gated_mlp(net, normed, &mlp, hidden, self.intermediate_size, Activation::Silu)?;
            x = net.add(x, fed)?;
        }
        let output = match self.tie_word_embeddings {
            true => table,
            false => matrix(net, "lm_head.weight", self.vocab_size, hidden)?,
        };
        head(net, x, norm("model.norm.weight".to_owned()), output, None)
    }
}
