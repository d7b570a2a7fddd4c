//! Gemma 3, text: sliding layers between full ones, four norms a layer, scaled embeddings.

use pteron_ir::ValueId;

use super::{Architecture, Facts, LayerKind};
use crate::blocks::{
    Activation, Attention, HeadNorms, Keys, Norm, Rope, attention, embed, gated_mlp, head, matrix,
};
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
    pub rope_theta: f32,
    /// By which positions of full layers are divided.
    pub rope_scaling_factor: Option<f32>,
    /// Of sliding layers.
    pub rope_local_base_freq: f32,
    pub sliding_window: usize,
    /// One a layer.
    pub layer_types: Vec<LayerKind>,
    pub final_logit_softcapping: Option<f32>,
    pub max_position_embeddings: usize,
    pub bos_token_id: Option<u32>,
    pub eos_token_id: Vec<u32>,
}

impl Architecture for Gemma3 {
    fn facts(&self) -> Facts {
        Facts {
            vocab_size: self.vocab_size,
            layers: self.layer_types.len(),
            bos: self.bos_token_id,
            eos: self.eos_token_id.clone(),
            context: self.max_position_embeddings,
        }
    }

    fn build(&self, net: &mut Net) -> Result<ValueId, ModelError> {
        let (hidden, eps) = (self.hidden_size, self.rms_norm_eps);
        let norm = |name: String| Norm { name, size: hidden, eps, around_one: true };
        let local = Rope::plain(self.head_dim, self.rope_local_base_freq);
        let global = Rope::linear(self.head_dim, self.rope_theta, self.rope_scaling_factor.unwrap_or(1.0));
        net.enter("embedding");
        let table = matrix(net, "model.embed_tokens.weight", self.vocab_size, hidden)?;
        let rows = embed(net, table, net.tokens())?;
        let mut x = net.scaled(rows, (hidden as f32).sqrt())?;
        for (layer, kind) in self.layer_types.iter().enumerate() {
            let prefix = format!("model.layers.{layer}");
            let normed = norm(format!("{prefix}.input_layernorm.weight")).apply(net, x)?;
            let spec = Attention {
                name: &format!("{prefix}.self_attn"),
                hidden,
                heads: self.num_attention_heads,
                kv_heads: self.num_key_value_heads,
                head_dim: self.head_dim,
                scale: self.query_pre_attn_scalar.powf(-0.5),
                qkv_bias: false,
                norms: HeadNorms::QueriesAndKeys { eps, around_one: true },
                rope: if *kind == LayerKind::Full { &global } else { &local },
                window: (*kind == LayerKind::Sliding).then_some(self.sliding_window),
                keys: Keys::Own,
            };
            let (attended, _) = attention(net, normed, &spec)?;
            let attended = norm(format!("{prefix}.post_attention_layernorm.weight")).apply(net, attended)?;
            x = net.add(x, attended)?;
            let normed = norm(format!("{prefix}.pre_feedforward_layernorm.weight")).apply(net, x)?;
            let mlp = format!("{prefix}.mlp");
            let fed = gated_mlp(net, normed, &mlp, hidden, self.intermediate_size, Activation::GeluTanh)?;
            let fed = norm(format!("{prefix}.post_feedforward_layernorm.weight")).apply(net, fed)?;
            x = net.add(x, fed)?;
        }
        head(net, x, norm("model.norm.weight".to_owned()), table, self.final_logit_softcapping)
    }
}
