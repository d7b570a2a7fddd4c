//! Gemma 4, text: dense as 31B (values that are keys on full layers), and E2B and E4B (per-layer embeddings, layers
//! that share keys and values).

use pteron_ir::{TensorType, ValueId};
use pteron_tensor::{Bytes, DType};
use serde_json::Value;

use super::{Architecture, Facts, LayerKind, spare_keys};
use crate::blocks::{
    Activation, Attention, Biases, HeadNorms, Heads, KeyValues, Keys, Matrix, Mlp, MlpKind, Norm, NormKind,
    PerLayer, PerLayerInputs, Rope, RopeScaling, RopeSettings, attention, embed, head, matrix, mlp,
    output_matrix,
};
use crate::config::{size, token};
use crate::net::{literal, value};
use crate::weights::Recipe;
use crate::{Config, ConfigError, ModelError, Net};

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
    pub local_rope: RopeSettings,
    /// Of full layers.
    pub rope: RopeSettings,
    pub sliding_window: usize,
    /// One a layer.
    pub layer_types: Vec<LayerKind>,
    /// How many layers at the end use keys and values of earlier ones.
    pub num_kv_shared_layers: usize,
    /// Whether those have an MLP of twice the width.
    pub use_double_wide_mlp: bool,
    pub per_layer_inputs: Option<PerLayerInputs>,
    pub hidden_activation: Activation,
    /// Whether q, k, v and o have biases.
    pub attention_bias: bool,
    pub final_logit_softcapping: Option<f32>,
    pub max_position_embeddings: usize,
    pub tie_word_embeddings: bool,
    pub bos_token_id: Option<u32>,
    pub eos_token_id: Vec<u32>,
    /// Fills texts up, and stands for the rows of images where layers get inputs of their own.
    pub pad_token_id: u32,
}

impl Gemma4 {
    pub(super) fn read(config: &Config) -> Result<Gemma4, ConfigError> {
        config.refuse("enable_moe_block")?;
        // Images see both ways in some models; texts do in none that is built here.
        if config.get("use_bidirectional_attention").and_then(Value::as_str) == Some("all") {
            return Err(ConfigError(
                "`use_bidirectional_attention` is \"all\", which is not supported".into(),
            ));
        }
        let layers = config.layers(30)?;
        let mut layer_types = config.layer_types_by_pattern(layers, 6)?;
        if let Some(last) = layer_types.last_mut() {
            *last = LayerKind::Full;
        }
        let max_position_embeddings = config.size("max_position_embeddings", Some(131_072))?;
        let full = RopeSettings {
            theta: 1_000_000.0,
            scaling: RopeScaling::Proportional { part: 0.25, factor: 1.0 },
        };
        let local = RopeSettings::plain(10_000.0);
        let num_kv_shared_layers = config.count("num_kv_shared_layers", 0)?;
        if num_kv_shared_layers >= layers {
            return Err(ConfigError(format!(
                "`num_kv_shared_layers` is {num_kv_shared_layers} of {layers} layers, which leaves none with keys"
            )));
        }
        let vocab_size = config.size("vocab_size", Some(262_144))?;
        let pad_token_id = config.get("pad_token_id").map_or(Ok(0), |id| token("pad_token_id", id))?;
        let per_layer = match config.is_null("hidden_size_per_layer_input") {
            true => 0,
            false => config.count("hidden_size_per_layer_input", 256)?,
        };
        let per_layer_inputs = match per_layer {
            0 => None,
            size => Some(PerLayerInputs {
                vocab_size: config.size("vocab_size_per_layer_input", Some(262_144))?,
                size,
            }),
        };
        let num_key_value_heads = config.size("num_key_value_heads", Some(4))?;
        let attention_k_eq_v = config.flag("attention_k_eq_v", false)?;
        let head_dim = config.size("head_dim", Some(256))?;
        let (global_head_dim, num_global_key_value_heads) = match config.get("per_layer_config") {
            Some(overrides) => full_layers(overrides, &layer_types, (head_dim, num_key_value_heads))?,
            None => {
                let kv_heads = config.size("num_global_key_value_heads", Some(num_key_value_heads))?;
                let kv_heads = if attention_k_eq_v { kv_heads } else { num_key_value_heads };
                (config.size("global_head_dim", Some(512))?, kv_heads)
            }
        };
        Ok(Gemma4 {
            vocab_size,
            hidden_size: config.size("hidden_size", Some(2304))?,
            intermediate_size: config.size("intermediate_size", Some(9216))?,
            num_attention_heads: config.size("num_attention_heads", Some(8))?,
            num_key_value_heads,
            num_global_key_value_heads,
            head_dim,
            global_head_dim,
            attention_k_eq_v,
            rms_norm_eps: config.number("rms_norm_eps", 1e-6)?,
            local_rope: config.rope_by_kind(LayerKind::Sliding, local, max_position_embeddings)?,
            rope: config.rope_by_kind(LayerKind::Full, full, max_position_embeddings)?,
            sliding_window: config.size("sliding_window", Some(512))?,
            layer_types,
            num_kv_shared_layers,
            use_double_wide_mlp: config.flag("use_double_wide_mlp", false)?,
            per_layer_inputs,
            hidden_activation: config.activation("hidden_activation", Activation::GeluTanh)?,
            attention_bias: config.flag("attention_bias", false)?,
            final_logit_softcapping: config.optional_number("final_logit_softcapping")?,
            max_position_embeddings,
            tie_word_embeddings: config.tied(true)?,
            bos_token_id: config.bos(Some(2))?,
            eos_token_id: config.eos(Some(1))?,
            pad_token_id,
        })
    }
}

/// Features of a head and key heads of full layers, from what `per_layer_config` says by layer number or kind. Other
/// layers must stay as they are.
fn full_layers(
    overrides: &Value,
    layer_types: &[LayerKind],
    plain: (usize, usize),
) -> Result<(usize, usize), ConfigError> {
    let object = overrides.as_object();
    let object = object.ok_or_else(|| ConfigError("`per_layer_config` is no object".into()))?;
    let of = |layer: usize, kind: LayerKind| {
        let name = if kind == LayerKind::Full { "full_attention" } else { "sliding_attention" };
        let entry = object.get(&layer.to_string()).or_else(|| object.get(name));
        let value = |key: &str, plain| {
            entry.and_then(|entry| entry.get(key)).map_or(Ok(plain), |value| size(key, value))
        };
        Ok::<_, ConfigError>((value("head_dim", plain.0)?, value("num_key_value_heads", plain.1)?))
    };
    let mut full = None;
    for (layer, kind) in layer_types.iter().enumerate() {
        let sizes = of(layer, *kind)?;
        let wanted = if *kind == LayerKind::Full { *full.get_or_insert(sizes) } else { plain };
        if sizes != wanted {
            let problem = format!("`per_layer_config` makes layer {layer} unlike others of its kind");
            return Err(ConfigError(problem));
        }
    }
    Ok(full.unwrap_or(plain))
}

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

    /// Layers that share keys and values are published with projections of their own.
    fn spare(&self) -> Vec<String> {
        spare_keys(self.layer_types.len(), self.num_kv_shared_layers)
    }

    fn build(&self, net: &mut Net) -> Result<ValueId, ModelError> {
        net.enter("embedding");
        let table = self.table(net)?;
        let rows = embed(net, table, net.tokens())?;
        let x = net.scaled(rows, (self.hidden_size as f32).sqrt())?;
        let per_layer = self.per_layer().map(|per_layer| {
            net.enter("per-layer inputs");
            let said = per_layer.said(net, net.tokens(), value(net.length()))?;
            per_layer.inputs(net, x, said)
        });
        self.layers(net, x, per_layer.transpose()?)
    }
}

impl Gemma4 {
    /// What follows from rows in place of tokens, as their embedding gives them. For themselves they say what the token says that
    /// fills texts up.
    pub(super) fn over(&self, net: &mut Net, rows: ValueId) -> Result<ValueId, ModelError> {
        let per_layer = self.per_layer().map(|per_layer| {
            net.enter("per-layer inputs");
            let id = TensorType::known(DType::I64, &[1, 1]);
            let bytes = || Recipe::Literal(Bytes::copy_of(&i64::from(self.pad_token_id).to_le_bytes()));
            let token = net.constant("pad_token", id, bytes);
            let said = per_layer.said(net, token, literal(1))?;
            per_layer.inputs(net, rows, said)
        });
        self.layers(net, rows, per_layer.transpose()?)
    }

    fn per_layer(&self) -> Option<PerLayer> {
        self.per_layer_inputs.map(|sizes| PerLayer {
            sizes,
            layers: self.layer_types.len(),
            hidden: self.hidden_size,
            eps: self.rms_norm_eps,
            activation: self.hidden_activation,
        })
    }

    fn table(&self, net: &mut Net) -> Result<Matrix, ModelError> {
        matrix(net, "model.embed_tokens.weight", self.vocab_size, self.hidden_size)
    }

    /// Everything behind the embedding.
    fn layers(
        &self,
        net: &mut Net,
        mut x: ValueId,
        per_layer: Option<ValueId>,
    ) -> Result<ValueId, ModelError> {
        let hidden = self.hidden_size;
        let table = self.table(net)?;
        let context = net.options().context;
        let local = Rope::new("local_rope", self.head_dim, &self.local_rope, context)?;
        let global = Rope::new("rope", self.global_head_dim, &self.rope, context)?;
        // By kind, the last keys and values of a layer that has its own.
        let (mut full, mut sliding): (Option<KeyValues>, Option<KeyValues>) = (None, None);
        let first_shared = self.layer_types.len().saturating_sub(self.num_kv_shared_layers);
        for (layer, kind) in self.layer_types.iter().enumerate() {
            let prefix = format!("model.layers.{layer}");
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
            if let (Some(inputs), Some(spec)) = (per_layer, self.per_layer()) {
                let input = net.pick(inputs, layer as i64, 2)?;
                let mixed = spec.let_in(net, x, &prefix, input)?;
                x = net.add(x, mixed)?;
            }
            let dtype = net.activations();
            let scalar = net.floats(&format!("{prefix}.layer_scalar"), &[1], dtype, 0.0)?;
            x = net.multiply(x, scalar)?;
        }
        let output = output_matrix(net, table, self.tie_word_embeddings, self.vocab_size, hidden)?;
        let norm = self.norm("model.norm.weight".to_owned(), hidden);
        head(net, x, norm, output, self.final_logit_softcapping)
    }

    fn norm(&self, name: String, size: usize) -> Norm {
        Norm { name, size, eps: self.rms_norm_eps, kind: NormKind::Rms }
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
        let kv_heads = if is_full { self.num_global_key_value_heads } else { self.num_key_value_heads };
        let head_dim = if is_full { self.global_head_dim } else { self.head_dim };
        let norms = HeadNorms::by_head(NormKind::Rms, self.rms_norm_eps);
        let heads = Heads {
            scale: 1.0,
            biases: Biases::of(self.attention_bias, self.attention_bias),
            norms: Some(HeadNorms { values: true, ..norms }),
            window: (!is_full).then_some(self.sliding_window),
            ..Heads::new(self.num_attention_heads, kv_heads, head_dim)
        };
        let name = format!("{prefix}.self_attn");
        let spec = Attention { name: &name, hidden: self.hidden_size, heads, rope: Some(rope), keys };
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
        let name = format!("{prefix}.mlp");
        let kind = MlpKind::gated(inner, self.hidden_activation);
        let fed = mlp(net, normed, &Mlp { name: &name, hidden, kind })?;
        let fed = self.norm(format!("{prefix}.post_feedforward_layernorm.weight"), hidden).apply(net, fed)?;
        net.add(x, fed)
    }
}
