//! Parakeet: a FastConformer over any length of sound, and one of three heads that say what was said in which place.
//!
//! A program of several methods, called as ExecuTorch's export of it is: `encoder` (features to what the joint network takes,
//! a row for every eight frames), `decoder_step` (the last token and the state of the prediction network to its next output
//! and state), `joint` (places of the sound and the text so far to the token of each place and, of transducers that tell
//! durations, the number of the one that follows). With a CTC head there is one method, `ctc`: features to scores of the
//! vocabulary.

use pteron_ir::op::{FloatArg, IntArg};
use pteron_ir::{Dim, Op, ValueId};
use pteron_tensor::DType;

use super::{Architecture, Facts};
use crate::blocks::{Activation, bias, embed, layer_norm, linear, matrix, projected};
use crate::net::{literal, value};
use crate::{Config, ConfigError, ModelError, Net};

/// Its norms add this to the variance.
const EPS: f32 = 1e-5;
/// The period of the slowest of its positions is this many times 2 pi.
const SLOWEST: f32 = 10_000.0;
/// Frames of the longest window, 120 seconds: attention looks from every place to every other.
const MOST_FRAMES: usize = 12_000;
/// Places that one call of `joint` takes.
const MOST_PLACES: usize = 16;
/// More layers of a prediction network than any has.
const MOST_LAYERS: usize = 16;

/// What stands behind the encoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParakeetHead {
    /// A token, or nothing, for every place.
    Ctc,
    /// A prediction network of the text so far, and a joint network that gives tokens and, where there are durations, how
    /// many places each lasts.
    Transducer {
        /// Width of both networks.
        width: usize,
        /// Layers of the prediction network.
        layers: usize,
        /// What the joint network goes through.
        activation: Activation,
        /// Places that a token may last; none where tokens have no length of their own.
        durations: Vec<usize>,
        /// Tokens in one place before the next one is looked at.
        most_symbols: usize,
    },
}

/// A Parakeet.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the published configuration
pub struct Parakeet {
    pub vocab_size: usize,
    /// The token that says that there is none.
    pub blank: u32,
    pub head: ParakeetHead,
    pub num_mel_bins: usize,
    pub hidden_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub intermediate_size: usize,
    pub hidden_act: Activation,
    pub attention_bias: bool,
    pub convolution_bias: bool,
    pub conv_kernel_size: usize,
    pub subsampling_factor: usize,
    pub subsampling_conv_channels: usize,
    pub scale_input: bool,
}

impl Parakeet {
    /// What a `config.json` says.
    pub fn read(config: &Config) -> Result<Parakeet, ConfigError> {
        let encoder = config.get("encoder_config").cloned();
        let encoder = encoder.ok_or_else(|| ConfigError("`encoder_config` is missing".to_owned()))?;
        let encoder = Config::new(encoder)?;
        for (key, only) in [("subsampling_conv_kernel_size", 3), ("subsampling_conv_stride", 2)] {
            if encoder.size(key, Some(only))? != only {
                return Err(ConfigError(format!("`{key}` is not {only}, and no other is built")));
            }
        }
        let family = config.family()?;
        let is_ctc = matches!(family, "parakeet_ctc" | "ParakeetForCTC");
        let is_tdt = matches!(family, "parakeet_tdt" | "ParakeetForTDT");
        let vocab_size = config.size("vocab_size", Some(if is_ctc { 1025 } else { 8193 }))?;
        let blank = config.count(if is_ctc { "pad_token_id" } else { "blank_token_id" }, vocab_size - 1)?;
        let head = match is_ctc {
            true => ParakeetHead::Ctc,
            false => ParakeetHead::Transducer {
                width: config.size("decoder_hidden_size", Some(640))?,
                layers: config.size("num_decoder_layers", Some(2))?,
                activation: config.activation("hidden_act", Activation::Relu)?,
                durations: if is_tdt { durations(config)? } else { Vec::new() },
                most_symbols: config.size("max_symbols_per_step", Some(10))?,
            },
        };
        let parakeet = Parakeet {
            vocab_size,
            blank: blank as u32,
            head,
            num_mel_bins: encoder.size("num_mel_bins", Some(80))?,
            hidden_size: encoder.size("hidden_size", Some(1024))?,
            num_hidden_layers: encoder.layers(24)?,
            num_attention_heads: encoder.size("num_attention_heads", Some(8))?,
            intermediate_size: encoder.size("intermediate_size", Some(4096))?,
            hidden_act: encoder.activation("hidden_act", Activation::Silu)?,
            attention_bias: encoder.flag("attention_bias", true)?,
            convolution_bias: encoder.flag("convolution_bias", true)?,
            conv_kernel_size: encoder.size("conv_kernel_size", Some(9))?,
            subsampling_factor: encoder.size("subsampling_factor", Some(8))?,
            subsampling_conv_channels: encoder.size("subsampling_conv_channels", Some(256))?,
            scale_input: encoder.flag("scale_input", true)?,
        };
        parakeet.check()?;
        Ok(parakeet)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let wrong = |problem: String| Err(ConfigError(problem));
        let (width, heads, factor) = (self.hidden_size, self.num_attention_heads, self.subsampling_factor);
        if !width.is_multiple_of(heads) || !width.is_multiple_of(2) {
            return wrong(format!("`hidden_size` is {width}, no multiple of 2 and of {heads} heads"));
        }
        if !factor.is_power_of_two() || !(2..=64).contains(&factor) {
            return wrong(format!("`subsampling_factor` is {factor}, no power of two from 2 to 64"));
        }
        if self.num_mel_bins < factor {
            return wrong(format!(
                "{} mel bands are too few to be halved to 1 in {factor}",
                self.num_mel_bins
            ));
        }
        if self.conv_kernel_size.is_multiple_of(2) {
            return wrong(format!("`conv_kernel_size` is {}, not odd", self.conv_kernel_size));
        }
        if self.blank as usize >= self.vocab_size {
            return wrong(format!("token {} of a vocabulary of {}", self.blank, self.vocab_size));
        }
        match &self.head {
            ParakeetHead::Transducer { layers, .. } if *layers > MOST_LAYERS => {
                wrong(format!("`num_decoder_layers` is {layers}, at most {MOST_LAYERS} are built"))
            }
            _ => Ok(()),
        }
    }

    /// Frames of the longest window.
    pub fn frames(&self) -> usize {
        MOST_FRAMES
    }

    /// Features to hidden states of the encoder: `[1, places, hidden_size]`.
    fn hear(&self, net: &mut Net) -> Result<ValueId, ModelError> {
        let frames = net.symbol("T", MOST_FRAMES);
        let shape = vec![Dim::known(1), Dim::known(self.num_mel_bins as i64), frames];
        let features = net.input("input_features", net.activations(), shape);
        net.enter("encoder.subsampling");
        let mut x = self.subsample(net, features)?;
        let places = net.op(Op::SymSize { a: x, dim: 1 })?;
        let sound = Sound { places: value(places), positions: self.positions(net, places)? };
        for layer in 0..self.num_hidden_layers {
            x = self.layer(net, x, &sound, &format!("encoder.layers.{layer}"))?;
        }
        Ok(x)
    }

    /// Frames and bands are halved until `subsampling_factor` frames are one place.
    fn subsample(&self, net: &mut Net, features: ValueId) -> Result<ValueId, ModelError> {
        let channels = self.subsampling_conv_channels;
        let name = |at: usize| format!("encoder.subsampling.layers.{at}");
        let x = net.op(Op::Transpose { x: features, perm: vec![0, 2, 1] })?;
        let x = net.op(Op::ExpandDims { x, axis: 3 })?;
        let mut x = self.convolution(net, x, &name(0), Kernel { inputs: 1, size: 3, groups: 1 })?;
        x = Activation::Relu.apply(net, x)?;
        let mut bands = self.num_mel_bins.div_ceil(2);
        // Activations count as layers in the names, and have no weights.
        for stage in 1..self.subsampling_factor.ilog2() as usize {
            let at = 3 * stage - 1;
            x = self.convolution(net, x, &name(at), Kernel { inputs: 1, size: 3, groups: channels })?;
            x = self.convolution(net, x, &name(at + 1), Kernel { inputs: channels, size: 1, groups: 1 })?;
            x = Activation::Relu.apply(net, x)?;
            bands = bands.div_ceil(2);
        }
        // A place is all its channels, band by band.
        let x = net.op(Op::Transpose { x, perm: vec![0, 1, 3, 2] })?;
        let places = net.op(Op::SymSize { a: x, dim: 1 })?;
        let shape = vec![literal(1), value(places), literal(channels * bands)];
        let x = net.op(Op::Reshape { x, shape })?;
        let x = projected(net, x, "encoder.subsampling.linear", self.hidden_size, channels * bands, true)?;
        match self.scale_input {
            true => net.scaled(x, (self.hidden_size as f32).sqrt()),
            false => Ok(x),
        }
    }

    /// A convolution over frames and bands, of every second of both where it looks at more than one.
    fn convolution(
        &self,
        net: &mut Net,
        x: ValueId,
        name: &str,
        kernel: Kernel,
    ) -> Result<ValueId, ModelError> {
        let (dtype, channels) = (net.activations(), self.subsampling_conv_channels);
        let Kernel { inputs, size, groups } = kernel;
        let weight = net.floats(&format!("{name}.weight"), &[channels, inputs, size, size], dtype, 0.0)?;
        // Channels are last here and second in checkpoints.
        let w = net.op(Op::Transpose { x: weight, perm: vec![0, 2, 3, 1] })?;
        let (stride, padding) = if size > 1 { (2, 1) } else { (1, 0) };
        let y = net.op(Op::Conv2D {
            x,
            w,
            stride_h: stride,
            stride_w: stride,
            padding_h: padding,
            padding_w: padding,
            dilation_h: 1,
            dilation_w: 1,
            groups: groups as i32,
        })?;
        let bias = bias(net, &format!("{name}.bias"), channels)?;
        net.add(y, bias)
    }

    /// Sines and cosines of how far places are apart, from the farthest ahead to the farthest behind: `[1, 2n - 1, width]`.
    fn positions(&self, net: &mut Net, places: ValueId) -> Result<ValueId, ModelError> {
        let width = self.hidden_size;
        net.enter("encoder.encode_positions");
        let last = net.subtract_int(value(places), literal(1))?;
        let count = net.add_int(value(places), value(last))?;
        let numbers = net.range(value(count))?;
        let numbers = net.cast(numbers, DType::F32)?;
        let farthest =
            net.op(Op::Full { shape: vec![], v: FloatArg::Value(last), scalar_type: DType::F32 })?;
        let apart = net.op(Op::Subtract { a: farthest, b: numbers })?;
        let apart = net.op(Op::ExpandDims { x: apart, axis: 1 })?;
        let frequency = |at: usize| 1.0 / SLOWEST.powf((2 * at) as f32 / width as f32);
        let frequencies: Vec<f32> = (0..width / 2).map(frequency).collect();
        let frequencies = net.vector("encoder.frequencies", &frequencies);
        let angles = net.multiply(apart, frequencies)?;
        let (sines, cosines) = (net.op(Op::Sin { x: angles })?, net.op(Op::Cos { x: angles })?);
        let pairs = net.op(Op::Stack { tensors: vec![sines, cosines], axis: 2 })?;
        let positions =
            net.op(Op::Reshape { x: pairs, shape: vec![literal(1), value(count), literal(width)] })?;
        net.cast(positions, net.activations())
    }

    fn layer(&self, net: &mut Net, x: ValueId, sound: &Sound, name: &str) -> Result<ValueId, ModelError> {
        net.enter(name);
        let width = self.hidden_size;
        let x = self.half_feed_forward(net, x, name, '1')?;
        let normed = layer_norm(net, x, &format!("{name}.norm_self_att"), width, EPS)?;
        let attended = self.attention(net, normed, sound, &format!("{name}.self_attn"))?;
        let x = net.add(x, attended)?;
        let normed = layer_norm(net, x, &format!("{name}.norm_conv"), width, EPS)?;
        let mixed = self.neighbours(net, normed, &format!("{name}.conv"))?;
        let x = net.add(x, mixed)?;
        let x = self.half_feed_forward(net, x, name, '2')?;
        layer_norm(net, x, &format!("{name}.norm_out"), width, EPS)
    }

    /// Half of a feed-forward network is added; there is one at both ends of a layer.
    fn half_feed_forward(
        &self,
        net: &mut Net,
        x: ValueId,
        layer: &str,
        which: char,
    ) -> Result<ValueId, ModelError> {
        let (width, inner, biased) = (self.hidden_size, self.intermediate_size, self.attention_bias);
        let name = format!("{layer}.feed_forward{which}");
        let normed = layer_norm(net, x, &format!("{layer}.norm_feed_forward{which}"), width, EPS)?;
        let wide = projected(net, normed, &format!("{name}.linear1"), inner, width, biased)?;
        let wide = self.hidden_act.apply(net, wide)?;
        let narrow = projected(net, wide, &format!("{name}.linear2"), width, inner, biased)?;
        let half = net.scaled(narrow, 0.5)?;
        net.add(x, half)
    }

    /// Attention over all places, with scores of what is there and of how far away it is (Transformer-XL).
    fn attention(&self, net: &mut Net, x: ValueId, sound: &Sound, name: &str) -> Result<ValueId, ModelError> {
        let (width, heads) = (self.hidden_size, self.num_attention_heads);
        let size = width / heads;
        let scale = (size as f32).powf(-0.5);
        let by_head = |net: &mut Net, x: ValueId, length: IntArg<ValueId>| -> Result<ValueId, ModelError> {
            net.op(Op::Reshape { x, shape: vec![literal(1), length, literal(heads), literal(size)] })
        };
        let part = |net: &mut Net, which: &str| -> Result<ValueId, ModelError> {
            let name = format!("{name}.{which}_proj");
            let y = projected(net, x, &name, width, width, self.attention_bias)?;
            by_head(net, y, sound.places)
        };
        let queries = part(net, "q")?;
        let (keys, values) = (part(net, "k")?, part(net, "v")?);
        let (k, v) = (net.swap_heads(keys)?, net.swap_heads(values)?);
        let dtype = net.activations();
        let biased = |net: &mut Net, which: &str| -> Result<ValueId, ModelError> {
            let bias = net.floats(&format!("{name}.{which}"), &[heads, size], dtype, 0.0)?;
            let queries = net.add(queries, bias)?;
            net.swap_heads(queries)
        };
        let (q, asking) = (biased(net, "bias_u")?, biased(net, "bias_v")?);
        let relative = matrix(net, &format!("{name}.relative_k_proj.weight"), width, width)?;
        let relative = linear(net, sound.positions, relative, None)?;
        let relative = by_head(net, relative, IntArg::Literal(-1))?;
        let relative = net.op(Op::Transpose { x: relative, perm: vec![0, 2, 3, 1] })?;
        let asking = net.scaled(asking, scale)?;
        let scores = net.op(Op::Addmm { mat1: asking, mat2: relative, bias: None, alpha: 1.0, beta: 1.0 })?;
        let mask = self.shifted(net, scores, sound.places)?;
        let attended = net.op(Op::Sdpa { q, k, v, scale, mask: Some(mask), causal: false })?;
        let attended = net.cast(attended, dtype)?;
        let attended = net.swap_heads(attended)?;
        let attended =
            net.op(Op::Reshape { x: attended, shape: vec![literal(1), sound.places, literal(width)] })?;
        projected(net, attended, &format!("{name}.o_proj"), width, width, self.attention_bias)
    }

    /// Scores by distance, `[1, heads, n, 2n - 1]`, as scores by place, `[1, heads, n, n]`: each row is one further to the
    /// left than the row above. With a column in front, rows of 2n are read as twice as many of n, without the first.
    fn shifted(
        &self,
        net: &mut Net,
        scores: ValueId,
        places: IntArg<ValueId>,
    ) -> Result<ValueId, ModelError> {
        let heads = literal(self.num_attention_heads);
        let mut pad_width = vec![literal(0); 8];
        pad_width[6] = literal(1);
        let mode = "constant".to_owned();
        let padded = net.op(Op::Pad { x: scores, pad_width, mode, constant_value: 0.0 })?;
        let twice = net.add_int(places, places)?;
        let tall = net.op(Op::Reshape { x: padded, shape: vec![literal(1), heads, value(twice), places] })?;
        let (start, stop) = (literal(1), value(twice));
        let tall = net.op(Op::Slice { x: tall, axis: literal(2), start, stop, step: 1 })?;
        let count = net.subtract_int(value(twice), literal(1))?;
        let wide = net.op(Op::Reshape { x: tall, shape: vec![literal(1), heads, places, value(count)] })?;
        net.op(Op::Slice { x: wide, axis: literal(3), start: literal(0), stop: places, step: 1 })
    }

    /// Each place with its neighbours, channel by channel.
    fn neighbours(&self, net: &mut Net, x: ValueId, name: &str) -> Result<ValueId, ModelError> {
        let (width, kernel, dtype) = (self.hidden_size, self.conv_kernel_size, net.activations());
        let wide =
            projected(net, x, &format!("{name}.pointwise_conv1"), 2 * width, width, self.convolution_bias)?;
        let mut half = |start: usize| {
            let (start, stop) = (literal(start), literal(start + width));
            net.op(Op::Slice { x: wide, axis: literal(2), start, stop, step: 1 })
        };
        let (signal, gate) = (half(0)?, half(width)?);
        let gate = net.op(Op::Sigmoid { x: gate })?;
        let x = net.multiply(signal, gate)?;
        let weight = net.floats(&format!("{name}.depthwise_conv.weight"), &[width, 1, kernel], dtype, 0.0)?;
        let w = net.op(Op::Transpose { x: weight, perm: vec![0, 2, 1] })?;
        let padding = (kernel / 2) as i32;
        let mut x = net.op(Op::Conv1D { x, w, stride: 1, padding, dilation: 1, groups: width as i32 })?;
        if self.convolution_bias {
            let bias = bias(net, &format!("{name}.depthwise_conv.bias"), width)?;
            x = net.add(x, bias)?;
        }
        let x = self.batch_norm(net, x, &format!("{name}.norm"))?;
        let x = self.hidden_act.apply(net, x)?;
        projected(net, x, &format!("{name}.pointwise_conv2"), width, width, self.convolution_bias)
    }

    /// Each channel by the mean and the variance that training saw.
    fn batch_norm(&self, net: &mut Net, x: ValueId, name: &str) -> Result<ValueId, ModelError> {
        let dtype = net.activations();
        let mut stored = |what: &str, plus: f32| {
            net.floats(&format!("{name}.{what}"), &[self.hidden_size], DType::F32, plus)
        };
        let (mean, variance) = (stored("running_mean", 0.0)?, stored("running_var", EPS)?);
        let (weight, bias) = (stored("weight", 0.0)?, stored("bias", 0.0)?);
        let by = net.op(Op::Rsqrt { x: variance })?;
        let factor = net.multiply(weight, by)?;
        let centre = net.multiply(mean, factor)?;
        let shift = net.op(Op::Subtract { a: bias, b: centre })?;
        let (factor, shift) = (net.cast(factor, dtype)?, net.cast(shift, dtype)?);
        let x = net.multiply(x, factor)?;
        net.add(x, shift)
    }

    fn encoder(&self, net: &mut Net, width: usize) -> Result<Vec<(String, ValueId)>, ModelError> {
        let x = self.hear(net)?;
        net.enter("encoder_projector");
        let x = projected(net, x, "encoder_projector", width, self.hidden_size, true)?;
        Ok(vec![("places".to_owned(), net.cast(x, DType::F32)?)])
    }

    fn ctc(&self, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        let x = self.hear(net)?;
        net.enter("ctc_head");
        let scores = projected(net, x, "ctc_head", self.vocab_size, self.hidden_size, true)?;
        Ok(vec![("logits".to_owned(), net.cast(scores, DType::F32)?)])
    }

    /// One token further in the prediction network: a stack of LSTMs.
    fn decoder_step(
        &self,
        net: &mut Net,
        width: usize,
        layers: usize,
    ) -> Result<Vec<(String, ValueId)>, ModelError> {
        let token = net.input("token", DType::I64, vec![Dim::known(1), Dim::known(1)]);
        let state = || [layers, 1, width].map(|size| Dim::known(size as i64)).to_vec();
        let hidden = net.input("hidden", DType::F32, state());
        let cells = net.input("cells", DType::F32, state());
        net.enter("decoder");
        let table = matrix(net, "decoder.embedding.weight", self.vocab_size, width)?;
        let x = embed(net, table, token)?;
        let mut x = net.op(Op::Reshape { x, shape: vec![literal(1), literal(width)] })?;
        let (mut new_hidden, mut new_cells) = (Vec::new(), Vec::new());
        for layer in 0..layers {
            let (h, c) = (net.pick(hidden, layer as i64, 0)?, net.pick(cells, layer as i64, 0)?);
            let h = net.cast(h, net.activations())?;
            let mut part = |x: ValueId, which: &str| {
                let weight = matrix(net, &format!("decoder.lstm.weight_{which}_l{layer}"), 4 * width, width)?;
                let bias = bias(net, &format!("decoder.lstm.bias_{which}_l{layer}"), 4 * width)?;
                linear(net, x, weight, Some(bias))
            };
            let (from_input, from_state) = (part(x, "ih")?, part(h, "hh")?);
            let gates = net.add(from_input, from_state)?;
            let gates = net.cast(gates, DType::F32)?;
            // Input, forget, cell, output.
            let mut gate = |at: usize| {
                let (start, stop) = (literal(at * width), literal((at + 1) * width));
                net.op(Op::Slice { x: gates, axis: literal(1), start, stop, step: 1 })
            };
            let (input, forget, cell, output) = (gate(0)?, gate(1)?, gate(2)?, gate(3)?);
            let input = net.op(Op::Sigmoid { x: input })?;
            let forget = net.op(Op::Sigmoid { x: forget })?;
            let output = net.op(Op::Sigmoid { x: output })?;
            let cell = net.op(Op::Tanh { x: cell })?;
            let (kept, added) = (net.multiply(forget, c)?, net.multiply(input, cell)?);
            let c = net.add(kept, added)?;
            let shown = net.op(Op::Tanh { x: c })?;
            let h = net.multiply(output, shown)?;
            new_hidden.push(h);
            new_cells.push(c);
            x = net.cast(h, net.activations())?;
        }
        let text = projected(net, x, "decoder.decoder_projector", width, width, true)?;
        let text = net.cast(text, DType::F32)?;
        let text = net.op(Op::ExpandDims { x: text, axis: 1 })?;
        let hidden = net.op(Op::Stack { tensors: new_hidden, axis: 0 })?;
        let cells = net.op(Op::Stack { tensors: new_cells, axis: 0 })?;
        Ok(vec![("text".to_owned(), text), ("hidden".to_owned(), hidden), ("cells".to_owned(), cells)])
    }

    /// What follows the text in each of some places.
    fn joint(
        &self,
        net: &mut Net,
        width: usize,
        activation: Activation,
        durations: usize,
    ) -> Result<Vec<(String, ValueId)>, ModelError> {
        let count = net.symbol("N", MOST_PLACES);
        let places = net.input("places", DType::F32, vec![Dim::known(1), count, Dim::known(width as i64)]);
        let shape = [1, 1, width].map(|size| Dim::known(size as i64)).to_vec();
        let text = net.input("text", DType::F32, shape);
        net.enter("joint");
        let both = net.add(places, text)?;
        let both = activation.apply(net, both)?;
        let both = net.cast(both, net.activations())?;
        let all = self.vocab_size + durations;
        let scores = projected(net, both, "joint.head", all, width, true)?;
        let scores = net.cast(scores, DType::F32)?;
        let mut best = |from: usize, to: usize| {
            let (start, stop) = (literal(from), literal(to));
            let part = net.op(Op::Slice { x: scores, axis: literal(2), start, stop, step: 1 })?;
            let best = net.op(Op::Argmax { x: part, axis: 2, keepdims: false })?;
            net.cast(best, DType::I64)
        };
        let mut outputs = vec![("tokens".to_owned(), best(0, self.vocab_size)?)];
        if durations > 0 {
            outputs.push(("durations".to_owned(), best(self.vocab_size, all)?));
        }
        Ok(outputs)
    }
}

/// What layers of the encoder share.
struct Sound {
    /// How many places there are.
    places: IntArg<ValueId>,
    /// How far they are apart, as sines and cosines.
    positions: ValueId,
}

/// A kernel as wide as it is high.
#[derive(Clone, Copy)]
struct Kernel {
    /// Channels that an output looks at.
    inputs: usize,
    size: usize,
    groups: usize,
}

/// Places that a token may last, in the order of their scores.
fn durations(config: &Config) -> Result<Vec<usize>, ConfigError> {
    let Some(list) = config.get("durations") else { return Ok(vec![0, 1, 2, 3, 4]) };
    let wrong = || ConfigError("`durations` is no list of 1 to 64 small numbers".to_owned());
    let list = list.as_array().filter(|list| (1..=64).contains(&list.len())).ok_or_else(wrong)?;
    let number = |value: &serde_json::Value| {
        let number = value.as_u64().filter(|&number| number <= 1000);
        number.map(|number| number as usize).ok_or_else(wrong)
    };
    list.iter().map(number).collect()
}

impl Architecture for Parakeet {
    fn facts(&self) -> Facts {
        Facts {
            vocab_size: self.vocab_size,
            layers: self.num_hidden_layers,
            bos: None,
            eos: Vec::new(),
            context: MOST_FRAMES,
        }
    }

    fn parts(&self) -> Vec<&'static str> {
        match self.head {
            ParakeetHead::Ctc => vec!["ctc"],
            ParakeetHead::Transducer { .. } => vec!["encoder", "decoder_step", "joint"],
        }
    }

    fn build_part(&self, part: &str, net: &mut Net) -> Result<Vec<(String, ValueId)>, ModelError> {
        match (&self.head, part) {
            (ParakeetHead::Ctc, _) => self.ctc(net),
            (ParakeetHead::Transducer { width, .. }, "encoder") => self.encoder(net, *width),
            (ParakeetHead::Transducer { width, layers, .. }, "decoder_step") => {
                self.decoder_step(net, *width, *layers)
            }
            (ParakeetHead::Transducer { width, activation, durations, .. }, _) => {
                self.joint(net, *width, *activation, durations.len())
            }
        }
    }

    fn build(&self, _: &mut Net) -> Result<ValueId, ModelError> {
        Err(ModelError::configuration("a Parakeet is built part by part"))
    }

    fn spare(&self) -> Vec<String> {
        let counted = |layer| format!("encoder.layers.{layer}.conv.norm.num_batches_tracked");
        (0..self.num_hidden_layers).map(counted).collect()
    }
}
