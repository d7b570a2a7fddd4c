//! Gemma 3n, text (E2B and E4B): several residual streams of which layers compute with one (AltUp), a path of few features beside
//! attention (Laurel), per-layer embeddings, gates of which few let through, layers that share keys and values.

use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;
use serde_json::Value;

use super::{Architecture, Facts, LayerKind, spare_keys};
use crate::blocks::{
    Activation, Attention, Biases, HeadNorms, Heads, KeyValues, Keys, Logits, Mlp, MlpKind, Norm, NormKind,
    PerLayer, PerLayerInputs, Rope, RopeSettings, Streams, attention, embed, linear, logits, matrix, mlp,
    output_matrix,
};
use crate::config::size;
use crate::net::value;
use crate::{Config, ConfigError, ModelError, Net};

/// More streams than any model has.
const MOST_STREAMS: usize = 64;
/// Layers with few open gates, and how few, where the file does not say it.
const SPARSE_LAYERS: usize = 10;
const SPARSITY: f64 = 0.95;

/// A Gemma 3n.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the published configuration
pub struct Gemma3n {
    pub vocab_size: usize,
    pub hidden_size: usize,
    /// By layer: features inside, and the share of gates that stay closed.
    pub networks: Vec<(usize, f32)>,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub head_dim: usize,
    pub rms_norm_eps: f32,
    /// Of sliding layers.
    pub local_rope: RopeSettings,
    /// Of full layers.
    pub rope: RopeSettings,
    pub sliding_window: usize,
    /// One a layer.
    pub layer_types: Vec<LayerKind>,
    /// How many layers at the end use keys and values of earlier ones.
    pub num_kv_shared_layers: usize,
    pub per_layer_inputs: PerLayerInputs,
    pub altup_num_inputs: usize,
    pub altup_active_idx: usize,
    pub altup_correct_scale: bool,
    pub laurel_rank: usize,
    pub hidden_activation: Activation,
    /// Whether q, k, v and o have biases.
    pub attention_bias: bool,
    pub final_logit_softcapping: Option<f32>,
    pub max_position_embeddings: usize,
    pub tie_word_embeddings: bool,
    pub bos_token_id: Option<u32>,
    pub eos_token_id: Vec<u32>,
}

impl Gemma3n {
    pub(super) fn read(config: &Config) -> Result<Gemma3n, ConfigError> {
        config.refuse("use_bidirectional_attention")?;
        let layers = config.layers(35)?;
        let max_position_embeddings = config.size("max_position_embeddings", Some(32_768))?;
        let num_kv_shared_layers = config.count("num_kv_shared_layers", 15)?;
        if num_kv_shared_layers >= layers {
            return Err(ConfigError(format!(
                "`num_kv_shared_layers` is {num_kv_shared_layers} of {layers} layers, which leaves none with keys"
            )));
        }
        let altup_num_inputs = config.size("altup_num_inputs", Some(4))?;
        let altup_active_idx = config.count("altup_active_idx", 0)?;
        if altup_num_inputs > MOST_STREAMS || altup_active_idx >= altup_num_inputs {
            return Err(ConfigError(format!(
                "`altup_num_inputs` is {altup_num_inputs} (at most {MOST_STREAMS} are built) and `altup_active_idx` {altup_active_idx}"
            )));
        }
        let final_logit_softcapping = match config.is_null("final_logit_softcapping") {
            true => None,
            false => Some(config.number("final_logit_softcapping", 30.0)?),
        };
        let (full, local) = (RopeSettings::plain(1_000_000.0), RopeSettings::plain(10_000.0));
        let inner = inner_sizes(config, layers)?;
        Ok(Gemma3n {
            vocab_size: config.size("vocab_size", Some(262_400))?,
            hidden_size: config.size("hidden_size", Some(2048))?,
            networks: inner.into_iter().zip(closed_shares(config, layers)?).collect(),
            num_attention_heads: config.size("num_attention_heads", Some(8))?,
            num_key_value_heads: config.size("num_key_value_heads", Some(2))?,
            head_dim: config.size("head_dim", Some(256))?,
            rms_norm_eps: config.number("rms_norm_eps", 1e-6)?,
            local_rope: config.rope_by_kind(LayerKind::Sliding, local, max_position_embeddings)?,
            rope: config.rope_by_kind(LayerKind::Full, full, max_position_embeddings)?,
            sliding_window: config.size("sliding_window", Some(512))?,
            layer_types: config.layer_types_by_pattern(layers, 5)?,
            num_kv_shared_layers,
            per_layer_inputs: PerLayerInputs {
                vocab_size: config.size("vocab_size_per_layer_input", Some(262_144))?,
                size: config.size("hidden_size_per_layer_input", Some(256))?,
            },
            altup_num_inputs,
            altup_active_idx,
            altup_correct_scale: config.flag("altup_correct_scale", true)?,
            laurel_rank: config.size("laurel_rank", Some(64))?,
            hidden_activation: config.activation("hidden_activation", Activation::GeluTanh)?,
            attention_bias: config.flag("attention_bias", false)?,
            final_logit_softcapping,
            max_position_embeddings,
            tie_word_embeddings: config.tied(true)?,
            bos_token_id: config.bos(Some(2))?,
            eos_token_id: config.eos(Some(1))?,
        })
    }

    fn streams(&self) -> Streams {
        Streams {
            count: self.altup_num_inputs,
            active: self.altup_active_idx,
            hidden: self.hidden_size,
            eps: self.rms_norm_eps,
        }
    }

    fn per_layer(&self) -> PerLayer {
        PerLayer {
            sizes: self.per_layer_inputs,
            layers: self.layer_types.len(),
            hidden: self.hidden_size,
            eps: self.rms_norm_eps,
            activation: self.hidden_activation,
        }
    }

    fn norm(&self, name: String) -> Norm {
        Norm { name, size: self.hidden_size, eps: self.rms_norm_eps, kind: NormKind::Rms }
    }

    /// The inputs of all layers. Tokens behind the end of their table say what its first one says.
    fn layer_inputs(&self, net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
        net.enter("per-layer inputs");
        let mut tokens = net.tokens();
        let known = self.per_layer_inputs.vocab_size;
        if known < self.vocab_size {
            let (end, first) = (net.scalar(known as f32, DType::I64), net.scalar(0.0, DType::I64));
            let is_known = net.op(Op::Less { a: tokens, b: end })?;
            tokens = net.op(Op::Where { condition: is_known, x: tokens, y: first })?;
        }
        let length = value(net.length());
        let said = self.per_layer().said(net, tokens, length)?;
        self.per_layer().inputs(net, x, said)
    }

    /// What a layer makes of the stream that it computes with.
    fn layer(
        &self,
        net: &mut Net,
        x: ValueId,
        layer: usize,
        rope: &Rope,
        keys: Keys,
    ) -> Result<(ValueId, KeyValues), ModelError> {
        let (prefix, hidden) = (format!("model.layers.{layer}"), self.hidden_size);
        let norm = |name: &str| self.norm(format!("{prefix}.{name}.weight"));
        let normed = norm("input_layernorm").apply(net, x)?;
        let norms = HeadNorms::by_head(NormKind::Rms, self.rms_norm_eps);
        let heads = Heads {
            scale: 1.0,
            biases: Biases::of(self.attention_bias, self.attention_bias),
            norms: Some(HeadNorms { values: true, ..norms }),
            window: (self.layer_types[layer] == LayerKind::Sliding).then_some(self.sliding_window),
            ..Heads::new(self.num_attention_heads, self.num_key_value_heads, self.head_dim)
        };
        let name = format!("{prefix}.self_attn");
        let spec = Attention { name: &name, hidden, heads, rope: Some(rope), keys };
        let (attended, seen) = attention(net, normed, &spec)?;
        let attended = norm("post_attention_layernorm").apply(net, attended)?;
        let attended = net.add(x, attended)?;

        net.enter(format!("{prefix}.laurel"));
        let left = matrix(net, &format!("{prefix}.laurel.linear_left.weight"), self.laurel_rank, hidden)?;
        let right = matrix(net, &format!("{prefix}.laurel.linear_right.weight"), hidden, self.laurel_rank)?;
        let few = linear(net, normed, left, None)?;
        let beside = linear(net, few, right, None)?;
        let beside = norm("laurel.post_laurel_norm").apply(net, beside)?;
        let beside = net.add(normed, beside)?;
        let x = net.add(attended, beside)?;
        let x = net.scaled(x, 0.5f32.sqrt())?;

        let normed = norm("pre_feedforward_layernorm").apply(net, x)?;
        let (inner, closed) = self.networks[layer];
        let cutoff = (closed > 0.0).then(|| normal_quantile(f64::from(closed)) as f32);
        let kind = MlpKind { cutoff, ..MlpKind::gated(inner, self.hidden_activation) };
        let fed = mlp(net, normed, &Mlp { name: &format!("{prefix}.mlp"), hidden, kind })?;
        let fed = norm("post_feedforward_layernorm").apply(net, fed)?;
        Ok((net.add(x, fed)?, seen))
    }

    /// All streams behind all layers.
    fn layers(&self, net: &mut Net, mut streams: ValueId, inputs: ValueId) -> Result<ValueId, ModelError> {
        let of = self.streams();
        let context = net.options().context;
        let local = Rope::new("local_rope", self.head_dim, &self.local_rope, context)?;
        let global = Rope::new("rope", self.head_dim, &self.rope, context)?;
        // By kind, the last keys and values of a layer that has its own.
        let (mut full, mut sliding): (Option<KeyValues>, Option<KeyValues>) = (None, None);
        let first_shared = self.layer_types.len().saturating_sub(self.num_kv_shared_layers);
        for (layer, kind) in self.layer_types.iter().enumerate() {
            let prefix = format!("model.layers.{layer}");
            let altup = format!("{prefix}.altup");
            net.enter(altup.as_str());
            let predicted = of.predict(net, streams, &altup)?;
            let active = of.active(net, predicted)?;
            let (rope, own) = match kind {
                LayerKind::Full => (&global, &mut full),
                LayerKind::Sliding => (&local, &mut sliding),
            };
            let shares = layer >= first_shared;
            let keys = match shares {
                true => Keys::Shared(own.ok_or_else(|| {
                    ModelError::configuration(format!(
                        "layer {layer} shares keys, and no earlier one has its kind"
                    ))
                })?),
                false => Keys::Own,
            };
            let (given, seen) = self.layer(net, active, layer, rope, keys)?;
            if !shares {
                *own = Some(seen);
            }
            net.enter(altup.as_str());
            streams = of.correct(net, predicted, given, &altup)?;
            let mut first = of.active(net, streams)?;
            if self.altup_correct_scale {
                let dtype = net.activations();
                let name = format!("{altup}.correct_output_scale");
                let scale = net.floats(&name, &[self.hidden_size], dtype, 0.0)?;
                first = net.multiply(first, scale)?;
            }
            let input = net.pick(inputs, layer as i64, 2)?;
            let mixed = self.per_layer().let_in(net, first, &prefix, input)?;
            streams = of.add_to_others(net, streams, mixed)?;
        }
        Ok(streams)
    }
}

impl Architecture for Gemma3n {
    fn facts(&self) -> Facts {
        Facts {
            vocab_size: self.vocab_size,
            layers: self.layer_types.len(),
            bos: self.bos_token_id,
            eos: self.eos_token_id.clone(),
            context: self.max_position_embeddings,
        }
    }

    /// Layers that share keys and values are published with projections of their own; scales may be there without being used.
    fn spare(&self) -> Vec<String> {
        let layers = self.layer_types.len();
        let scale = |layer| format!("model.layers.{layer}.altup.correct_output_scale");
        let scales = (0..layers).filter(|_| !self.altup_correct_scale).map(scale);
        spare_keys(layers, self.num_kv_shared_layers).into_iter().chain(scales).collect()
    }

    fn build(&self, net: &mut Net) -> Result<ValueId, ModelError> {
        net.enter("embedding");
        let table = matrix(net, "model.embed_tokens.weight", self.vocab_size, self.hidden_size)?;
        let rows = embed(net, table, net.tokens())?;
        let x = net.scaled(rows, (self.hidden_size as f32).sqrt())?;
        let inputs = self.layer_inputs(net, x)?;
        net.enter("streams");
        let streams = self.streams().enter(net, x)?;
        let streams = self.layers(net, streams, inputs)?;
        net.enter("head");
        let x = self.streams().leave(net, streams)?;
        let x = self.norm("model.norm.weight".to_owned()).apply(net, x)?;
        let matrix = output_matrix(net, table, self.tie_word_embeddings, self.vocab_size, self.hidden_size)?;
        let soft_cap = self.final_logit_softcapping;
        logits(net, x, &Logits { matrix, bias: None, factor: 1.0, soft_cap })
    }
}

/// Features inside each layer's network: one number, or a list.
fn inner_sizes(config: &Config, layers: usize) -> Result<Vec<usize>, ConfigError> {
    let key = "intermediate_size";
    match config.get(key) {
        Some(Value::Array(list)) if list.len() == layers => {
            list.iter().map(|inner| size(key, inner)).collect()
        }
        Some(Value::Array(list)) => {
            Err(ConfigError(format!("`{key}` has {} numbers for {layers} layers", list.len())))
        }
        _ => Ok(vec![config.size(key, Some(16_384))?; layers]),
    }
}

/// The share of each layer's gates that stays closed; 0 where all let through.
fn closed_shares(config: &Config, layers: usize) -> Result<Vec<f32>, ConfigError> {
    let key = "activation_sparsity_pattern";
    let Some(value) = config.get(key) else {
        let sparse = if layers > SPARSE_LAYERS { SPARSE_LAYERS } else { 0 };
        return Ok((0..layers).map(|layer| if layer < sparse { SPARSITY as f32 } else { 0.0 }).collect());
    };
    let list = value.as_array().filter(|list| list.len() == layers);
    let list = list.ok_or_else(|| ConfigError(format!("`{key}` is no list of {layers} numbers")))?;
    let share = |value: &Value| {
        let share = value.as_f64().filter(|share| (0.0..1.0).contains(share) && (*share as f32) < 1.0);
        share.map(|share| share as f32).ok_or_else(|| ConfigError(format!("`{key}` has {value}, no share")))
    };
    list.iter().map(share).collect()
}

/// Where so large a share of a normal distribution lies below, in standard deviations: by halving, with the series of its integral.
fn normal_quantile(share: f64) -> f64 {
    let below = |x: f64| {
        let (mut term, mut sum, mut odd) = (x, x, 1.0);
        while term.abs() > 1e-18 {
            odd += 2.0;
            term *= x * x / odd;
            sum += term;
        }
        0.5 + sum * (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt()
    };
    let (mut least, mut most) = (-9.0, 9.0);
    for _ in 0..80 {
        let middle = 0.5 * (least + most);
        if below(middle) < share { least = middle } else { most = middle }
    }
    0.5 * (least + most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        let known = [
            (0.5, 0.0),
            (0.95, 1.644_853_626_951_472),
            (0.01, -2.326_347_874_040_841),
            (0.999_999, 4.753_424_308_822_899),
        ];
        for (share, wanted) in known {
            assert!((normal_quantile(share) - wanted).abs() < 1e-8, "{share}: {}", normal_quantile(share));
        }
    }
}
