//! Voxtral Realtime: an encoder that hears sound as it comes, and a language model that writes a token for each place of it, some
//! places behind.
//!
//! A program of several methods, named as in ExecuTorch's streaming export: `encode_audio_chunk` (features behind those of calls before
//! to one row a place), `token_embedding` (tokens to rows), `text_decoder` (sums of both to logits of the last).

use pteron_ir::{Dim, Op, ValueId};

use super::decoder::{Decoder, Feed, Layer, LayerNorms, Mixing, Places, ROWS, plain_layer};
use super::{Architecture, Facts};
use crate::blocks::{Activation, Biases, Heads, MlpKind, NormKind, bias, linear, matrix};
use crate::config::RopeKeys;
use crate::net::{literal, value};
use crate::{Config, ConfigError, ModelError, Net};

/// Frames that the encoder makes one of its positions.
const STRIDE: usize = 2;
/// Frames that each of its convolutions looks at.
const TAPS: usize = 3;
/// Places of the largest call of the encoder: what comes before the first token is heard in a few calls.
const PLACES: usize = 16;
/// Norms of the encoder's layers.
const NORMS: LayerNorms = LayerNorms {
    before_attention: Some("self_attn_layer_norm"),
    after_attention: None,
    before_feed: Some("final_layer_norm"),
    after_feed: None,
    of_sums: false,
};
/// Whatever published model there is has fewer.
const MOST_DELAY: usize = 100;

/// A Voxtral Realtime.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the published configuration
pub struct Realtime {
    pub text: Decoder,
    pub encoder: Decoder,
    pub num_mel_bins: usize,
    pub activation: Activation,
    pub projector_hidden_act: Activation,
    /// Positions of the encoder that become one place.
    pub downsample_factor: usize,
    /// Places that the text is behind the sound.
    pub delay: usize,
}

impl Realtime {
    /// What a `config.json` says.
    pub fn read(config: &Config) -> Result<Realtime, ConfigError> {
        let missing = |key: &str| ConfigError(format!("`{key}` is missing"));
        let audio = config.get_anywhere("audio_config").cloned().ok_or_else(|| missing("audio_config"))?;
        let audio = Config::new(audio)?;
        let size = |key: &str, usual: usize, most: usize| {
            let size = config.get_anywhere(key).map_or(Ok(usual), |value| crate::config::size(key, value))?;
            match (1..=most).contains(&size) {
                true => Ok(size),
                false => Err(ConfigError(format!("`{key}` is {size}"))),
            }
        };
        let row = ROWS.iter().find(|row| row.names.contains(&"mistral"));
        let row = row.ok_or_else(|| ConfigError("no text model of that kind is known".to_owned()))?;
        let mut text = row.read(config)?;
        if config.get_anywhere("tie_word_embeddings").is_none() {
            text.head.tied = true;
        }
        let delay = size("default_num_delay_tokens", 6, MOST_DELAY)?;
        if text.hidden_size % 2 != 0 {
            return Err(ConfigError(format!("`hidden_size` is {}, which is odd", text.hidden_size)));
        }
        text.delay = Some(delay);
        let downsample_factor = size("downsample_factor", 4, 64)?;
        let frames = size("audio_length_per_tok", STRIDE * downsample_factor, 1024)?;
        if frames != STRIDE * downsample_factor {
            return Err(ConfigError(format!("`audio_length_per_tok` is {frames}, which fits no place")));
        }
        Ok(Realtime {
            encoder: encoder(&audio)?,
            num_mel_bins: audio.size("num_mel_bins", Some(128))?,
            activation: Activation::Gelu,
            projector_hidden_act: config.wrapped_activation("projector_hidden_act", Activation::Gelu)?,
            downsample_factor,
            delay,
            text,
        })
    }

    /// Frames of a place.
    pub fn frames(&self) -> usize {
        STRIDE * self.downsample_factor
    }

    fn encode(&self, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        let (width, wide) = (self.encoder.hidden_size, self.text.hidden_size);
        let joined = self.downsample_factor * width;
        let unbounded = || ModelError::configuration("a place has too many frames");
        let frames = net.symbol("K", PLACES).scale(self.frames() as i64).ok_or_else(unbounded)?;
        let shape = vec![Dim::known(1), Dim::known(self.num_mel_bins as i64), frames];
        let features = net.input("input_features", net.activations(), shape);
        let context = net.options().context.saturating_mul(self.downsample_factor).min(i32::MAX as usize);
        net.goes_on(context, PLACES * self.downsample_factor);
        net.enter("audio_tower.embedder");
        let frames = net.op(Op::SymSize { a: features, dim: 2 })?;
        let places = net.op(Op::FloorDivideInt { a: value(frames), b: literal(self.frames()) })?;
        let x = net.op(Op::Transpose { x: features, perm: vec![0, 2, 1] })?;
        let x = self.convolution(net, x, "conv1", self.num_mel_bins, 1)?;
        let x = self.convolution(net, x, "conv2", width, STRIDE)?;
        net.reads(x)?;
        let x = self.encoder.all_layers(net, x)?;
        let x = self.encoder.last_norm(net, x)?;
        net.enter("multi_modal_projector");
        let shape = vec![literal(1), value(places), literal(joined)];
        let x = net.op(Op::Reshape { x, shape })?;
        let first = matrix(net, "multi_modal_projector.linear_1.weight", wide, joined)?;
        let x = linear(net, x, first, None)?;
        let x = self.projector_hidden_act.apply(net, x)?;
        let second = matrix(net, "multi_modal_projector.linear_2.weight", wide, wide)?;
        Ok(vec![("rows".to_owned(), linear(net, x, second, None)?)])
    }

    /// Frames up to its own, then the activation; what it needs of them the next time is kept.
    fn convolution(
        &self,
        net: &mut Net,
        x: ValueId,
        which: &str,
        inputs: usize,
        stride: usize,
    ) -> Result<ValueId, ModelError> {
        let (name, width, dtype) =
            (format!("audio_tower.embedder.{which}"), self.encoder.hidden_size, net.activations());
        let kept = TAPS - stride;
        let (before, past) = net.state(&format!("{name}.state"), dtype, &[1, kept, inputs])?;
        let count = net.op(Op::SymSize { a: x, dim: 1 })?;
        let all = net.op(Op::Concatenate { tensors: vec![before, x], axis: 1 })?;
        let end = net.add_int(value(count), literal(kept))?;
        let (axis, start, stop) = (literal(1), value(count), value(end));
        let last = net.op(Op::Slice { x: all, axis, start, stop, step: 1 })?;
        net.update(past, last);
        let weight = net.floats(&format!("{name}.weight"), &[width, inputs, TAPS], dtype, 0.0)?;
        // Channels are last here and in the middle in checkpoints.
        let w = net.op(Op::Transpose { x: weight, perm: vec![0, 2, 1] })?;
        let stride = stride as i32;
        let y = net.op(Op::Conv1D { x: all, w, stride, padding: 0, dilation: 1, groups: 1 })?;
        let bias = bias(net, &format!("{name}.bias"), width)?;
        let y = net.add(y, bias)?;
        self.activation.apply(net, y)
    }
}

/// The encoder's layers, which are those of a decoder with biases here and there.
fn encoder(audio: &Config) -> Result<Decoder, ConfigError> {
    let width = audio.size("hidden_size", Some(1280))?;
    let count = audio.size("num_attention_heads", Some(32))?;
    let head_dim = audio.size("head_dim", Some(64))?;
    let places = audio.size("max_position_embeddings", Some(1500))?;
    let window = match audio.is_null("sliding_window") {
        true => None,
        false => Some(audio.size("sliding_window", Some(750))?),
    };
    let (rope, _) = audio.rope_of(&RopeKeys::usual(10_000.0), places)?;
    let heads = Heads { biases: Biases::AllButKeys, window, ..Heads::new(count, count, head_dim) };
    let gate = audio.activation("hidden_act", Activation::Silu)?;
    let inner = audio.size("intermediate_size", Some(5120))?;
    let mlp = MlpKind { out_bias: true, ..MlpKind::gated(inner, gate) };
    let mut encoder = Decoder::plain(NormKind::Rms, true).turned("audio", head_dim, &rope);
    encoder.stem = "audio_tower";
    encoder.hidden_size = width;
    encoder.eps = audio.number("rms_norm_eps", 1e-5)?;
    encoder.max_position_embeddings = places;
    let layer = || Layer { norms: NORMS, ..plain_layer(Mixing::Heads(heads, Some(0)), Feed::Mlp(mlp)) };
    encoder.layers = (0..audio.layers(32)?).map(|_| layer()).collect();
    Ok(encoder)
}

impl Architecture for Realtime {
    fn facts(&self) -> Facts {
        self.text.facts()
    }

    fn parts(&self) -> Vec<&'static str> {
        // The first is the one whose caches metadata describe.
        vec!["text_decoder", "token_embedding", "encode_audio_chunk"]
    }

    fn build_part(&self, part: &str, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        match part {
            "text_decoder" => self.text.text_decoder(net),
            "token_embedding" => self.text.token_embedding(net),
            _ => self.encode(net),
        }
    }

    fn build(&self, _: &mut Net) -> Result<ValueId, ModelError> {
        Err(ModelError::configuration("a Voxtral Realtime is built part by part"))
    }

    fn places(&self) -> Places {
        self.text.places()
    }

    fn keeps_caches_in_graph(&self) -> bool {
        self.text.keeps_caches_in_graph()
    }
}
