//! Whisper: an encoder of 30 seconds of sound, and a decoder of text that looks at it.
//!
//! A program of several methods, called as ExecuTorch's export of it is: `encoder` (features to hidden states), `cross_kv`
//! (those to keys and values, all keys first), `decoder` (tokens and position behind a cache, with those keys and values, to
//! logits of the last token). `alignment` gives the scores of the heads that follow the sound, one output each, for the times
//! of words; it has no cache.

use pteron_ir::op::IntArg;
use pteron_ir::{Dim, Op, ValueId};
use pteron_tensor::DType;

use super::{Architecture, Facts};
use crate::blocks::{Activation, Matrix, bias, embed, layer_norm, matrix, product, projected};
use crate::net::{literal, value};
use crate::{Config, ConfigError, ModelError, Net};

/// Its norms add this to the variance.
const EPS: f32 = 1e-5;
/// More heads than any list names.
const MOST_ALIGNED: usize = 256;

/// A Whisper.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the published configuration
pub struct Whisper {
    pub vocab_size: usize,
    pub num_mel_bins: usize,
    pub d_model: usize,
    pub encoder_layers: usize,
    pub encoder_attention_heads: usize,
    pub encoder_ffn_dim: usize,
    pub decoder_layers: usize,
    pub decoder_attention_heads: usize,
    pub decoder_ffn_dim: usize,
    pub max_source_positions: usize,
    pub max_target_positions: usize,
    pub activation_function: Activation,
    pub tie_word_embeddings: bool,
    /// Layers and heads of the decoder that follow the sound.
    pub alignment_heads: Vec<[usize; 2]>,
    pub eos_token_id: Vec<u32>,
}

impl Whisper {
    /// What a `config.json` says, with the list of heads that `generation_config.json` has put into it.
    pub fn read(config: &Config) -> Result<Whisper, ConfigError> {
        // `scale_embedding` is in these files and read by nobody, those who train such models included.
        let layers = |key: &str| -> Result<usize, ConfigError> {
            let layers = config.size(key, None)?;
            match layers <= 1 << 10 {
                true => Ok(layers),
                false => Err(ConfigError(format!("`{key}` is {layers}, more than any model has"))),
            }
        };
        let whisper = Whisper {
            vocab_size: config.size("vocab_size", Some(51_865))?,
            num_mel_bins: config.size("num_mel_bins", Some(80))?,
            d_model: config.size("d_model", None)?,
            encoder_layers: layers("encoder_layers")?,
            encoder_attention_heads: config.size("encoder_attention_heads", None)?,
            encoder_ffn_dim: config.size("encoder_ffn_dim", None)?,
            decoder_layers: layers("decoder_layers")?,
            decoder_attention_heads: config.size("decoder_attention_heads", None)?,
            decoder_ffn_dim: config.size("decoder_ffn_dim", None)?,
            max_source_positions: config.size("max_source_positions", Some(1500))?,
            max_target_positions: config.size("max_target_positions", Some(448))?,
            activation_function: config.activation("activation_function", Activation::Gelu)?,
            tie_word_embeddings: config.tied(true)?,
            alignment_heads: alignment_heads(config)?,
            eos_token_id: config.eos(Some(50_256))?,
        };
        for heads in [whisper.encoder_attention_heads, whisper.decoder_attention_heads] {
            if !whisper.d_model.is_multiple_of(heads) {
                let width = whisper.d_model;
                return Err(ConfigError(format!("`d_model` is {width}, no multiple of {heads} heads")));
            }
        }
        let is_there = |&[layer, head]: &[usize; 2]| {
            layer < whisper.decoder_layers && head < whisper.decoder_attention_heads
        };
        match whisper.alignment_heads.iter().all(is_there) {
            true => Ok(whisper),
            false => Err(ConfigError("`alignment_heads` names a head that is not there".to_owned())),
        }
    }

    fn encoder(&self, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        let encoder = SoundEncoder {
            name: "model.encoder",
            mels: self.num_mel_bins,
            width: self.d_model,
            layers: self.encoder_layers,
            heads: self.encoder_attention_heads,
            inner: self.encoder_ffn_dim,
            places: self.max_source_positions,
            activation: self.activation_function,
        };
        Ok(vec![("hidden".to_owned(), encoder.build(net)?)])
    }

    fn cross_kv(&self, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        let (width, places) = (self.d_model, self.max_source_positions);
        let shape = [1, places, width].map(|size| Dim::known(size as i64));
        let hidden = net.input("hidden", net.activations(), shape.to_vec());
        let attention = Attention { width, heads: self.decoder_attention_heads, length: literal(places) };
        let mut outputs = Vec::new();
        for (which, biased, letter) in [("k_proj", false, 'k'), ("v_proj", true, 'v')] {
            for layer in 0..self.decoder_layers {
                let name = format!("model.decoder.layers.{layer}.encoder_attn.{which}");
                net.enter(name.as_str());
                outputs.push((format!("{letter}{layer}"), attention.heads(net, hidden, &name, biased)?));
            }
        }
        Ok(outputs)
    }

    fn decoder(&self, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        let mut text = self.text(net)?;
        let head_dim = self.d_model / self.decoder_attention_heads;
        let shape = [1, self.decoder_attention_heads, net.options().context, head_dim];
        let dtype = net.options().cache;
        let start = net.op(Op::ItemInt { x: text.position })?;
        let end = net.op(Op::AddInt { a: value(start), b: text.attention.length })?;
        for layer in 0..self.decoder_layers {
            self.decoder_layer(net, &mut text, layer, |net, name, keys, values| {
                let mut remembered = |letter: char, new: ValueId| -> Result<ValueId, ModelError> {
                    let cache = net.buffer(&format!("{name}.{letter}_cache"), dtype, &shape);
                    let new = net.cast(new, dtype)?;
                    let (axis, start, stop) = (literal(2), value(start), value(end));
                    let updated =
                        net.op(Op::SliceUpdate { dst: cache, update: new, axis, start, stop, step: 1 })?;
                    net.update(cache, updated);
                    net.op(Op::Slice { x: updated, axis, start: literal(0), stop, step: 1 })
                };
                Ok((remembered('k', keys)?, remembered('v', values)?))
            })?;
        }
        let last = net.pick(text.x, -1, 1)?;
        let last = layer_norm(net, last, "model.decoder.layer_norm", self.d_model, EPS)?;
        let head = match self.tie_word_embeddings {
            true => text.table,
            false => matrix(net, "proj_out.weight", self.vocab_size, self.d_model)?,
        };
        let logits = product(net, last, head, None)?;
        Ok(vec![("logits".to_owned(), net.cast(logits, DType::F32)?)])
    }

    /// The scores of the heads that follow the sound: `[T, places]`, before any softmax.
    fn alignment(&self, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        let mut text = self.text(net)?;
        let last = self.alignment_heads.iter().map(|[layer, _]| *layer).max().unwrap_or(0);
        let mut scores = Vec::new();
        for layer in 0..=last {
            let queries =
                self.decoder_layer(net, &mut text, layer, |_, _, keys, values| Ok((keys, values)))?;
            for [_, head] in self.alignment_heads.iter().filter(|[at, _]| *at == layer) {
                let mut one = |all: ValueId| -> Result<ValueId, ModelError> {
                    let one = net.pick(all, *head as i64, 1)?;
                    net.pick(one, 0, 0)
                };
                let (queries, keys) = (one(queries)?, one(text.keys[layer])?);
                let mat1 = net.scaled(queries, text.attention.scale())?;
                let mat2 = net.op(Op::Transpose { x: keys, perm: vec![1, 0] })?;
                let score = net.op(Op::Addmm { mat1, mat2, bias: None, alpha: 1.0, beta: 1.0 })?;
                scores.push((format!("head.{layer}.{head}"), net.cast(score, DType::F32)?));
            }
        }
        // In the order of the list, which may go by anything.
        let at = |[layer, head]: &[usize; 2]| {
            scores.iter().find(|(name, _)| *name == format!("head.{layer}.{head}")).cloned()
        };
        Ok(self.alignment_heads.iter().filter_map(at).collect())
    }

    /// What decoders begin with: tokens at their positions, and the sound's keys and values.
    fn text(&self, net: &mut Net) -> Result<TextState, ModelError> {
        let (width, context) = (self.d_model, self.max_target_positions);
        let length = net.symbol("T", net.options().chunk);
        let tokens = net.input("tokens", DType::I64, vec![Dim::known(1), length]);
        let position = net.input("position", DType::I64, vec![Dim::known(1)]);
        let heads = self.decoder_attention_heads;
        let shape = [1, heads, self.max_source_positions, width / heads].map(|size| Dim::known(size as i64));
        let dtype = net.activations();
        let mut given = |letter: char| -> Vec<ValueId> {
            let name = |layer: usize| format!("{letter}{layer}");
            (0..self.decoder_layers).map(|layer| net.input(&name(layer), dtype, shape.to_vec())).collect()
        };
        let (keys, values) = (given('k'), given('v'));
        net.enter("embedding");
        let length = net.op(Op::SymSize { a: tokens, dim: 1 })?;
        let table = matrix(net, "model.decoder.embed_tokens.weight", self.vocab_size, width)?;
        let words = embed(net, table, tokens)?;
        let all = net.floats("model.decoder.embed_positions.weight", &[context, width], dtype, 0.0)?;
        let numbers = net.range(value(length))?;
        let numbers = net.add(numbers, position)?;
        let places = net.rows(all, numbers)?;
        let x = net.add(words, places)?;
        let attention = Attention { width, heads, length: value(length) };
        Ok(TextState { x, position, table, keys, values, attention })
    }

    /// One layer; the queries that it puts to the sound.
    fn decoder_layer(
        &self,
        net: &mut Net,
        text: &mut TextState,
        layer: usize,
        remember: impl FnOnce(&mut Net, &str, ValueId, ValueId) -> Result<(ValueId, ValueId), ModelError>,
    ) -> Result<ValueId, ModelError> {
        let (name, width) = (format!("model.decoder.layers.{layer}"), self.d_model);
        net.enter(name.as_str());
        let attention = text.attention;
        let own = format!("{name}.self_attn");
        let normed = layer_norm(net, text.x, &format!("{own}_layer_norm"), width, EPS)?;
        let queries = attention.heads(net, normed, &format!("{own}.q_proj"), true)?;
        let keys = attention.heads(net, normed, &format!("{own}.k_proj"), false)?;
        let values = attention.heads(net, normed, &format!("{own}.v_proj"), true)?;
        let (keys, values) = remember(net, &own, keys, values)?;
        let seen = Seen { keys, values, causal: true };
        let x = attention.add(net, text.x, queries, seen, &own)?;
        let cross = format!("{name}.encoder_attn");
        let normed = layer_norm(net, x, &format!("{cross}_layer_norm"), width, EPS)?;
        let queries = attention.heads(net, normed, &format!("{cross}.q_proj"), true)?;
        let seen = Seen { keys: text.keys[layer], values: text.values[layer], causal: false };
        let x = attention.add(net, x, queries, seen, &cross)?;
        text.x = feed_forward(net, x, &name, [self.decoder_ffn_dim, width], self.activation_function)?;
        Ok(queries)
    }
}

/// What hears: a window of features to hidden states, one for every two frames.
pub(super) struct SoundEncoder {
    /// Where its weights are.
    pub(super) name: &'static str,
    pub(super) mels: usize,
    pub(super) width: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    /// Features of its feed-forward networks.
    pub(super) inner: usize,
    pub(super) places: usize,
    pub(super) activation: Activation,
}

impl SoundEncoder {
    /// All of it, with the features as an input.
    pub(super) fn build(&self, net: &mut Net) -> Result<ValueId, ModelError> {
        let SoundEncoder { name, width, heads, places, .. } = *self;
        let shape = [1, self.mels, 2 * places].map(|size| Dim::known(size as i64));
        let features = net.input("input_features", net.activations(), shape.to_vec());
        net.enter("encoder");
        let x = net.op(Op::Transpose { x: features, perm: vec![0, 2, 1] })?;
        let x = self.convolution(net, x, "conv1", self.mels, 1)?;
        let x = self.convolution(net, x, "conv2", width, 2)?;
        let positions = format!("{name}.embed_positions.weight");
        let positions = net.floats(&positions, &[places, width], net.activations(), 0.0)?;
        let mut x = net.add(x, positions)?;
        let attention = Attention { width, heads, length: literal(places) };
        for layer in 0..self.layers {
            let name = format!("{name}.layers.{layer}");
            let normed = layer_norm(net, x, &format!("{name}.self_attn_layer_norm"), width, EPS)?;
            let queries = attention.heads(net, normed, &format!("{name}.self_attn.q_proj"), true)?;
            let keys = attention.heads(net, normed, &format!("{name}.self_attn.k_proj"), false)?;
            let values = attention.heads(net, normed, &format!("{name}.self_attn.v_proj"), true)?;
            let seen = Seen { keys, values, causal: false };
            x = attention.add(net, x, queries, seen, &format!("{name}.self_attn"))?;
            x = feed_forward(net, x, &name, [self.inner, width], self.activation)?;
        }
        layer_norm(net, x, &format!("{name}.layer_norm"), width, EPS)
    }

    /// Three frames at a time, then GELU, whatever the layers behind it have.
    fn convolution(
        &self,
        net: &mut Net,
        x: ValueId,
        which: &str,
        channels: usize,
        stride: i32,
    ) -> Result<ValueId, ModelError> {
        let (dtype, name) = (net.activations(), format!("{}.{which}", self.name));
        let weight = net.floats(&format!("{name}.weight"), &[self.width, channels, 3], dtype, 0.0)?;
        // Channels are last here and in the middle in checkpoints.
        let w = net.op(Op::Transpose { x: weight, perm: vec![0, 2, 1] })?;
        let y = net.op(Op::Conv1D { x, w, stride, padding: 1, dilation: 1, groups: 1 })?;
        let bias = bias(net, &format!("{name}.bias"), self.width)?;
        let y = net.add(y, bias)?;
        Activation::Gelu.apply(net, y)
    }
}

/// A norm, two matrices with an activation between them, and what was there before.
fn feed_forward(
    net: &mut Net,
    x: ValueId,
    name: &str,
    [inner, width]: [usize; 2],
    activation: Activation,
) -> Result<ValueId, ModelError> {
    let normed = layer_norm(net, x, &format!("{name}.final_layer_norm"), width, EPS)?;
    let wide = projected(net, normed, &format!("{name}.fc1"), inner, width, true)?;
    let wide = activation.apply(net, wide)?;
    let narrow = projected(net, wide, &format!("{name}.fc2"), width, inner, true)?;
    net.add(x, narrow)
}

/// A decoder's text on its way through the layers.
struct TextState {
    x: ValueId,
    position: ValueId,
    table: Matrix,
    keys: Vec<ValueId>,
    values: Vec<ValueId>,
    attention: Attention,
}

/// Attention over rows of one length.
#[derive(Clone, Copy)]
struct Attention {
    width: usize,
    heads: usize,
    length: IntArg<ValueId>,
}

/// What queries look at.
struct Seen {
    keys: ValueId,
    values: ValueId,
    causal: bool,
}

impl Attention {
    fn scale(&self) -> f32 {
        ((self.width / self.heads) as f32).powf(-0.5)
    }

    /// A projection by head: `[1, heads, length, head_dim]`.
    fn heads(&self, net: &mut Net, x: ValueId, name: &str, biased: bool) -> Result<ValueId, ModelError> {
        let y = projected(net, x, name, self.width, self.width, biased)?;
        let shape = vec![literal(1), self.length, literal(self.heads), literal(self.width / self.heads)];
        let y = net.op(Op::Reshape { x: y, shape })?;
        net.swap_heads(y)
    }

    /// `x` and what the queries see.
    fn add(
        &self,
        net: &mut Net,
        x: ValueId,
        q: ValueId,
        seen: Seen,
        name: &str,
    ) -> Result<ValueId, ModelError> {
        let Seen { keys: k, values: v, causal } = seen;
        let attended = net.op(Op::Sdpa { q, k, v, scale: self.scale(), mask: None, causal })?;
        let attended = net.cast(attended, net.activations())?;
        let attended = net.swap_heads(attended)?;
        let shape = vec![literal(1), self.length, literal(self.width)];
        let attended = net.op(Op::Reshape { x: attended, shape })?;
        let out = projected(net, attended, &format!("{name}.out_proj"), self.width, self.width, true)?;
        net.add(x, out)
    }
}

/// Pairs of layer and head.
fn alignment_heads(config: &Config) -> Result<Vec<[usize; 2]>, ConfigError> {
    let wrong = || ConfigError("`alignment_heads` is no list of pairs of layer and head".to_owned());
    let Some(value) = config.get("alignment_heads") else { return Ok(Vec::new()) };
    let pairs = value.as_array().filter(|pairs| pairs.len() <= MOST_ALIGNED).ok_or_else(wrong)?;
    let number = |value: Option<&serde_json::Value>| value?.as_u64().map(|number| number as usize);
    let pair = |pair: &serde_json::Value| Some([number(pair.get(0))?, number(pair.get(1))?]);
    pairs.iter().map(|value| pair(value).ok_or_else(wrong)).collect()
}

impl Architecture for Whisper {
    fn facts(&self) -> Facts {
        Facts {
            vocab_size: self.vocab_size,
            layers: self.decoder_layers,
            bos: None,
            eos: self.eos_token_id.clone(),
            context: self.max_target_positions,
        }
    }

    fn parts(&self) -> Vec<&'static str> {
        let mut parts = vec!["encoder", "cross_kv", "decoder"];
        if !self.alignment_heads.is_empty() {
            parts.push("alignment");
        }
        parts
    }

    fn build_part(&self, part: &str, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        match part {
            "encoder" => self.encoder(net),
            "cross_kv" => self.cross_kv(net),
            "decoder" => self.decoder(net),
            _ => self.alignment(net),
        }
    }

    fn build(&self, _: &mut Net) -> Result<ValueId, ModelError> {
        Err(ModelError::configuration("a Whisper is built part by part"))
    }

    fn spare(&self) -> Vec<String> {
        vec!["proj_out.weight".to_owned()]
    }
}
