//! Gemma 4, text: dense as 31B (values that are keys on full layers), and E2B and E4B (per-layer embeddings, layers
//! that share keys and values).

use pteron_ir::ValueId;

use super::{Architecture, Facts, LayerKind};
use crate::blocks::{
    Activation, Attention, HeadNorms, KeyValues, Keys, Norm, Rope, attention, embed, gated_mlp, head, linear,
    matrix,
};
use crate::{ModelError, Net};

/// A Gemma 4.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the published configuration
pub struct Gemma4 {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_attention_heads: usize,
    /// Of sliding layers.
    pub num_key_value_heads: usize,
    /// Of full layers.
    pub num_global_key_value_heads: usize,
    /// Of sliding layers.
    pub head_dim: usize,
    /// Of full layers.
    pub global_head_dim: usize,
    /// Whether full layers have no values but their keys.
    pub attention_k_eq_v: bool,
    pub rms_norm_eps: f32,
    /// Of sliding layers.
    pub rope_local_base_freq: f32,
    /// Of full layers.
    pub rope_theta: f32,
    /// How much of a full layer's head turns.
    pub partial_rotary_factor: f32,
    pub sliding_window: usize,
    /// One a layer.
    pub layer_types: Vec<LayerKind>,
    /// How many layers at the end use keys and values of earlier ones.
    pub num_kv_shared_layers: usize,
    /// Whether those have an MLP of twice the width.
    pub use_double_wide_mlp: bool,
    pub per_layer_inputs: Option<PerLayerInputs>,
    pub final_logit_softcapping: Option<f32>,
    pub max_position_embeddings: usize,
    pub bos_token_id: Option<u32>,
    pub eos_token_id: Vec<u32>,
}

/// Embeddings that every layer gets anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerLayerInputs {
    /// Token ids that have a row.
    pub vocab_size: usize,
    /// Features a layer.
    pub size: usize,
}

const PREFIX: &str = "model.language_model";

impl Architecture for Gemma4 {
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
        let hidden = self.hidden_size;
        net.enter("embedding");
        let table = matrix(net, &format!("{PREFIX}.embed_tokens.weight"), self.vocab_size, hidden)?;
        let rows = embed(net, table, net.tokens())?;
        let mut x = net.scaled(rows, (hidden as f32).sqrt())?;
        let per_layer = self.per_layer_inputs.map(|spec| self.per_layer(net, x, spec)).transpose()?;
        let local = Rope::plain(self.head_dim, self.rope_local_base_freq);
        let global = Rope::proportional(self.global_head_dim, self.rope_theta, self.partial_rotary_factor);
        // By kind, the last keys and values of a layer that has its own.
        let (mut full, mut sliding): (Option<KeyValues>, Option<KeyValues>) = (None, None);
        let first_shared = self.layer_types.len().saturating_sub(self.num_kv_shared_layers);
        for (layer, kind) in self.layer_types.iter().enumerate() {
            let prefix = format!("{PREFIX}.layers.{layer}");
            let shares = layer >= first_shared && first_shared > 0;
            let (rope, own) = match kind {
                LayerKind::Full => (&global, &mut full),
                LayerKind::Sliding => (&local, &mut sliding),
            };
            let keys = match (shares, *kind) {
                (true, _) => Keys::Shared(own.ok_or_else(|| {
                    ModelError::configuration(format!(
                        "layer {layer} shares keys, and no earlier one has its kind"
                    ))
                })?),
                (false, LayerKind::Full) if self.attention_k_eq_v => Keys::AsValues,
                (false, _) => Keys::Own,
            };
            let (attended, seen) = self.attention(net, x, &prefix, *kind, rope, keys)?;
            if !shares {
                *own = Some(seen);
            }
            x = net.add(x, attended)?;
            let wide = self.use_double_wide_mlp && shares;
            x = self.feed_forward(net, x, &prefix, self.intermediate_size * if wide { 2 } else { 1 })?;
            if let (Some(inputs), Some(spec)) = (per_layer, self.per_layer_inputs) {
                let input = net.pick(inputs, layer as i64, 2)?;
                x = self.mix_in(net, x, &prefix, input, spec)?;
            }
            let dtype = net.activations();
            let scalar = net.floats(&format!("{prefix}.layer_scalar"), &[1], dtype, 0.0)?;
            x = net.multiply(x, scalar)?;
        }
        let name = format!("{PREFIX}.norm.weight");
        head(net, x, self.norm(name, hidden), table, self.final_logit_softcapping)
    }
}

impl Gemma4 {
    fn norm(&self, name: String, size: usize) -> Norm {
        Norm { name, size, eps: self.rms_norm_eps, around_one: false }
    }

    fn attention(
        &self,
        net: &mut Net,
        x: ValueId,
        prefix: &str,
        kind: LayerKind,
        rope: &Rope,
        keys: Keys,
    ) -> Result<(ValueId, KeyValues), ModelError> {
        let is_full = kind == LayerKind::Full;
        let normed = self.norm(format!("{prefix}.input_layernorm.weight"), self.hidden_size).apply(net, x)?;
        let spec = Attention {
            name: &format!("{prefix}.self_attn"),
            hidden: self.hidden_size,
            heads: self.num_attention_heads,
            kv_heads: if is_full { self.num_global_key_value_heads } else { self.num_key_value_heads },
            head_dim: if is_full { self.global_head_dim } else { self.head_dim },
            scale: 1.0,
            qkv_bias: false,
            norms: HeadNorms::All { eps: self.rms_norm_eps },
            rope,
            window: (!is_full).then_some(self.sliding_window),
            keys,
        };
        let (attended, seen) = attention(net, normed, &spec)?;
        let name = format!("{prefix}.post_attention_layernorm.weight");
        Ok((self.norm(name, self.hidden_size).apply(net, attended)?, seen))
    }

    fn feed_forward(
        &self,
        net: &mut Net,
        x: ValueId,
        prefix: &str,
        inner: usize,
    ) -> Result<ValueId, ModelError> {
        let hidden = self.hidden_size;
        let normed = self.norm(format!("{prefix}.pre_feedforward_layernorm.weight"), hidden).apply(net, x)?;
        let fed = gated_mlp(net, normed, &format!("{prefix}.mlp"), hidden, inner, Activation::GeluTanh)?;
        let fed = self.norm(format!("{prefix}.post_feedforward_layernorm.weight"), hidden).apply(net, fed)?;
        net.add(x, fed)
    }

    /// The inputs of all layers, `[1, T, layers, size]`: what a token says by itself, and what its embedding says.
    fn per_layer(&self, net: &mut Net, x: ValueId, spec: PerLayerInputs) -> Result<ValueId, ModelError> {
        let layers = self.layer_types.len();
        net.enter("per-layer inputs");
        let name = format!("{PREFIX}.embed_tokens_per_layer.weight");
        let table = matrix(net, &name, spec.vocab_size, layers * spec.size)?;
        let rows = embed(net, table, net.tokens())?;
        let rows = net.scaled(rows, (spec.size as f32).sqrt())?;
        let rows = net.split_tokens(rows, &[layers, spec.size])?;
        let name = format!("{PREFIX}.per_layer_model_projection.weight");
        let projection = matrix(net, &name, layers * spec.size, self.hidden_size)?;
        let projected = linear(net, x, projection, None)?;
        let projected = net.scaled(projected, (self.hidden_size as f32).powf(-0.5))?;
        let projected = net.split_tokens(projected, &[layers, spec.size])?;
        let name = format!("{PREFIX}.per_layer_projection_norm.weight");
        let projected = self.norm(name, spec.size).apply(net, projected)?;
        let both = net.add(projected, rows)?;
        net.scaled(both, 0.5f32.sqrt())
    }

    fn mix_in(
        &self,
        net: &mut Net,
        x: ValueId,
        prefix: &str,
        input: ValueId,
        spec: PerLayerInputs,
    ) -> Result<ValueId, ModelError> {
        let hidden = self.hidden_size;
        let gate = matrix(net, &format!("{prefix}.per_layer_input_gate.weight"), spec.size, hidden)?;
        let projection = matrix(net, &format!("{prefix}.per_layer_projection.weight"), hidden, spec.size)?;
        let gate = linear(net, x, gate, None)?;
        let gate = Activation::GeluTanh.apply(net, gate)?;
        let gated = net.multiply(gate, input)?;
        let mixed = linear(net, gated, projection, None)?;
        let name = format!("{prefix}.post_per_layer_input_norm.weight");
        let mixed = self.norm(name, hidden).apply(net, mixed)?;
        net.add(x, mixed)
    }
}
