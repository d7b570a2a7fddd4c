//! Gemma 3, text: sliding layers between full ones, four norms a layer, scaled embeddings.

use pteron_ir::ValueId;
use pteron_tensor::DType;

use super::{Architecture, Facts, LayerKind};
use crate::blocks::{
    Activation, Attention, Biases, HeadNorms, Keys, Mlp, Norm, Rope, RopeSettings, attention, embed,
    gated_mlp, head, matrix, output_matrix,
};
use crate::{Config, ConfigError, ModelError, Net};

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
    pub(super) fn read(config: &Config) -> Result<Gemma3, ConfigError> {
        config.refuse("use_bidirectional_attention")?;
        let layers = config.layers(26)?;
        let pattern = config.size("sliding_window_pattern", Some(6))?;
        let layer_types = config.layer_types_by_pattern(layers, pattern)?;
        if config.is_null("sliding_window") && layer_types.contains(&LayerKind::Sliding) {
            return Err(ConfigError("`sliding_window` is null, and there are layers that slide".into()));
        }
        let max_position_embeddings = config.size("max_position_embeddings", Some(131_072))?;
        let full = RopeSettings::plain(1_000_000.0);
        let local = RopeSettings::plain(10_000.0);
        Ok(Gemma3 {
            vocab_size: config.size("vocab_size", Some(262_208))?,
            hidden_size: config.size("hidden_size", Some(2304))?,
            intermediate_size: config.size("intermediate_size", Some(9216))?,
            num_attention_heads: config.size("num_attention_heads", Some(8))?,
            num_key_value_heads: config.size("num_key_value_heads", Some(4))?,
            head_dim: config.size("head_dim", Some(256))?,
            query_pre_attn_scalar: config.number("query_pre_attn_scalar", 256.0)?,
            rms_norm_eps: config.number("rms_norm_eps", 1e-6)?,
            rope: config.rope_by_kind(LayerKind::Full, full, max_position_embeddings)?,
            local_rope: config.rope_by_kind(LayerKind::Sliding, local, max_position_embeddings)?,
            sliding_window: config.size("sliding_window", Some(4096))?,
            layer_types,
            hidden_activation: config.activation("hidden_activation", Activation::GeluTanh)?,
            attention_bias: config.flag("attention_bias", false)?,
            final_logit_softcapping: config.optional_number("final_logit_softcapping")?,
            max_position_embeddings,
            tie_word_embeddings: config.tied(true)?,
            bos_token_id: config.bos(Some(2))?,
            eos_token_id: config.eos(Some(1))?,
        })
    }
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
        let context = net.options().context;
        let local = Rope::new("local_rope", self.head_dim, &self.local_rope, context)?;
        let global = Rope::new("rope", self.head_dim, &self.rope, context)?;
        net.enter("embedding");
        let table = matrix(net, "model.embed_tokens.weight", self.vocab_size, hidden)?;
        let rows = embed(net, table, net.tokens())?;
        let rows = net.scaled(rows, (hidden as f32).sqrt())?;
        // What layers add up passes the largest number that f16 has.
        let residual = if net.activations() == DType::F16 { DType::F32 } else { net.activations() };
        let mut x = net.cast(rows, residual)?;
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
                biases: if self.attention_bias { Biases::All } else { Biases::None },
                norms: HeadNorms::QueriesAndKeys { eps, around_one: true },
                rope: if *kind == LayerKind::Full { &global } else { &local },
                window: (*kind == LayerKind::Sliding).then_some(self.sliding_window),
                keys: Keys::Own,
            };
            let (attended, _) = attention(net, normed, &spec)?;
            let attended = norm(format!("{prefix}.post_attention_layernorm.weight"))
                .apply_in(net, attended, residual)?;
            x = net.add(x, attended)?;
            let normed = norm(format!("{prefix}.pre_feedforward_layernorm.weight")).apply(net, x)?;
            let mlp = Mlp {
                name: &format!("{prefix}.mlp"),
                hidden,
                inner: self.intermediate_size,
                activation: self.hidden_activation,
                biases: false,
            };
            let fed = gated_mlp(net, normed, &mlp)?;
            let fed =
                norm(format!("{prefix}.post_feedforward_layernorm.weight")).apply_in(net, fed, residual)?;
            x = net.add(x, fed)?;
        }
        let output = output_matrix(net, table, self.tie_word_embeddings, self.vocab_size, hidden)?;
        head(net, x, norm("model.norm.weight".to_owned()), output, self.final_logit_softcapping)
    }
}
