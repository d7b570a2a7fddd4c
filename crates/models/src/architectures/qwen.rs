//! Qwen 2 and 2.5 (biases on q, k and v) and Qwen 3 (norms by head instead).

use pteron_ir::ValueId;

use super::{Architecture, Facts, LayerKind};
use crate::blocks::{
    Activation, Attention, Biases, HeadNorms, Keys, Mlp, Norm, Rope, RopeSettings, attention, embed,
    gated_mlp, head, matrix, output_matrix,
};
use crate::{Config, ConfigError, ModelError, Net};

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
    /// Qwen 3 has norms by head, Qwen 2 has not.
    pub(super) fn read(config: &Config, head_norms: bool) -> Result<Qwen, ConfigError> {
        let hidden_size = config.size("hidden_size", Some(4096))?;
        let num_attention_heads = config.size("num_attention_heads", Some(32))?;
        let head_dim = if head_norms { 128 } else { hidden_size / num_attention_heads };
        let kv_heads = if config.is_null("num_key_value_heads") { num_attention_heads } else { 32 };
        let max_position_embeddings = config.size("max_position_embeddings", Some(32_768))?;
        let slides = config.flag("use_sliding_window", false)? && !config.is_null("sliding_window");
        let sliding_window = if slides { Some(config.size("sliding_window", Some(4096))?) } else { None };
        let first_sliding = config.count("max_window_layers", 28)?;
        let kind = |layer| match slides && layer >= first_sliding {
            true => LayerKind::Sliding,
            false => LayerKind::Full,
        };
        let layer_types = config.layer_types(config.layers(32)?, kind)?;
        if sliding_window.is_none() && layer_types.contains(&LayerKind::Sliding) {
            return Err(ConfigError(
                "`layer_types` names layers that slide, and `use_sliding_window` switches the window off"
                    .into(),
            ));
        }
        Ok(Qwen {
            head_norms,
            vocab_size: config.size("vocab_size", Some(151_936))?,
            hidden_size,
            intermediate_size: config.size("intermediate_size", Some(22_016))?,
            num_attention_heads,
            num_key_value_heads: config.size("num_key_value_heads", Some(kv_heads))?,
            head_dim: config.size("head_dim", Some(head_dim))?,
            rms_norm_eps: config.number("rms_norm_eps", 1e-6)?,
            rope: config.rope(10_000.0, max_position_embeddings)?,
            sliding_window,
            layer_types,
            hidden_act: config.activation("hidden_act", Activation::Silu)?,
            attention_bias: head_norms && config.flag("attention_bias", false)?,
            max_position_embeddings,
            tie_word_embeddings: config.tied(false)?,
            bos_token_id: config.bos(None)?,
            eos_token_id: config.eos(None)?,
        })
    }
}

impl Architecture for Qwen {
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
        let norm = |name: String| Norm { name, size: hidden, eps, around_one: false };
        let rope = Rope::new("rope", self.head_dim, &self.rope, net.options().context)?;
        let biases = match (self.head_norms, self.attention_bias) {
            (true, true) => Biases::All,
            (true, false) => Biases::None,
            (false, _) => Biases::QueriesKeysValues,
        };
        net.enter("embedding");
        let table = matrix(net, "model.embed_tokens.weight", self.vocab_size, hidden)?;
        let mut x = embed(net, table, net.tokens())?;
        for (layer, kind) in self.layer_types.iter().enumerate() {
            let prefix = format!("model.layers.{layer}");
            let normed = norm(format!("{prefix}.input_layernorm.weight")).apply(net, x)?;
            let spec = Attention {
                name: &format!("{prefix}.self_attn"),
                hidden,
                heads: self.num_attention_heads,
                kv_heads: self.num_key_value_heads,
                head_dim: self.head_dim,
                scale: (self.head_dim as f32).powf(-0.5),
                biases,
                norms: match self.head_norms {
                    true => HeadNorms::QueriesAndKeys { eps, around_one: false },
                    false => HeadNorms::None,
                },
                rope: &rope,
                window: self.sliding_window.filter(|_| *kind == LayerKind::Sliding),
                keys: Keys::Own,
            };
            let (attended, _) = attention(net, normed, &spec)?;
            x = net.add(x, attended)?;
            let normed = norm(format!("{prefix}.post_attention_layernorm.weight")).apply(net, x)?;
            let mlp = Mlp {
                name: &format!("{prefix}.mlp"),
                hidden,
                inner: self.intermediate_size,
                activation: self.hidden_act,
                biases: false,
            };
            let fed = gated_mlp(net, normed, &mlp)?;
            x = net.add(x, fed)?;
        }
        let output = output_matrix(net, table, self.tie_word_embeddings, self.vocab_size, hidden)?;
        head(net, x, norm("model.norm.weight".to_owned()), output, None)
    }
}
