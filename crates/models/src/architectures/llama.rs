//! Llama 2 and 3, and what is built like them: Mistral, SmolLM2, TinyLlama.

use pteron_ir::ValueId;

use super::{Architecture, Facts};
use crate::blocks::{
    Activation, Attention, Biases, HeadNorms, Keys, Mlp, Norm, Rope, RopeSettings, attention, embed,
    gated_mlp, head, matrix, output_matrix,
};
use crate::{Config, ConfigError, ModelError, Net};

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
    pub(super) fn read(config: &Config) -> Result<Llama, ConfigError> {
        Llama::read_with(config, 2048)
    }

    fn read_with(config: &Config, default_context: usize) -> Result<Llama, ConfigError> {
        let hidden_size = config.size("hidden_size", Some(4096))?;
        let num_attention_heads = config.size("num_attention_heads", Some(32))?;
        let max_position_embeddings = config.size("max_position_embeddings", Some(default_context))?;
        Ok(Llama {
            vocab_size: config.size("vocab_size", Some(32_000))?,
            hidden_size,
            intermediate_size: config.size("intermediate_size", Some(11_008))?,
            num_hidden_layers: config.layers(32)?,
            num_attention_heads,
            num_key_value_heads: config.size("num_key_value_heads", Some(num_attention_heads))?,
            head_dim: config.size("head_dim", Some(hidden_size / num_attention_heads))?,
            rms_norm_eps: config.number("rms_norm_eps", 1e-6)?,
            rope: config.rope(10_000.0, max_position_embeddings)?,
            sliding_window: None,
            hidden_act: config.activation("hidden_act", Activation::Silu)?,
            attention_bias: config.flag("attention_bias", false)?,
            mlp_bias: config.flag("mlp_bias", false)?,
            max_position_embeddings,
            tie_word_embeddings: config.tied(false)?,
            bos_token_id: config.bos(Some(1))?,
            eos_token_id: config.eos(Some(2))?,
        })
    }

    /// A Llama whose every layer slides, unless the window is null.
    pub(super) fn read_mistral(config: &Config) -> Result<Llama, ConfigError> {
        let sliding_window = match config.is_null("sliding_window") {
            true => None,
            false => Some(config.size("sliding_window", Some(4096))?),
        };
        let kv_heads = if config.is_null("num_key_value_heads") { None } else { Some(8) };
        let llama = Llama::read_with(config, 131_072)?;
        Ok(Llama {
            intermediate_size: config.size("intermediate_size", Some(14_336))?,
            num_key_value_heads: config
                .size("num_key_value_heads", kv_heads.or(Some(llama.num_attention_heads)))?,
            sliding_window,
            attention_bias: false,
            mlp_bias: false,
            ..llama
        })
    }
}

impl Architecture for Llama {
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
        let rope = Rope::new("rope", self.head_dim, &self.rope, net.options().context)?;
        let biases = if self.attention_bias { Biases::All } else { Biases::None };
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
                biases,
                norms: HeadNorms::None,
                rope: &rope,
                window: self.sliding_window,
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
                biases: self.mlp_bias,
            };
            let fed = gated_mlp(net, normed, &mlp)?;
            x = net.add(x, fed)?;
        }
        let output = output_matrix(net, table, self.tie_word_embeddings, self.vocab_size, hidden)?;
        head(net, x, norm("model.norm.weight".to_owned()), output, None)
    }
}
