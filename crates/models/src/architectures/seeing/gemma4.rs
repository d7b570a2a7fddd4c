//! Gemma 4's eyes: images as large as their form allows, patches with learned places by column and by row that turn by both,
//! squares of patches averaged to rows, a norm, one matrix.

use pteron_ir::op::{IndexArg, IntArg};
use pteron_ir::{Dim, Op, ValueId};
use pteron_tensor::DType;
use serde_json::Value;

use super::tower;
use crate::architectures::Gemma4;
use crate::blocks::{Activation, Norm, NormKind, product_of, turned_by, unpacked, unweighted_norm};
use crate::net::{Ahead, literal, value};
use crate::{Config, ConfigError, ModelError, Net};

/// The key under which a folder's image processor says how many rows an image becomes at most.
pub const SOFT_TOKENS: &str = "max_soft_tokens";
/// More layers than any tower has.
const MOST_LAYERS: usize = 1 << 10;
/// More patches than any image becomes, of which each sees all others.
const MOST_PATCHES: usize = 1 << 14;

/// Gemma 4's eyes.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the published configuration
pub struct Gemma4Eyes {
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub head_dim: usize,
    pub hidden_activation: Activation,
    pub rms_norm_eps: f32,
    pub patch_size: usize,
    pub pooling_kernel_size: usize,
    /// Learned places along a side.
    pub position_embedding_size: usize,
    /// Whether what goes into and comes out of matrices is cut to ranges that the checkpoint has.
    pub use_clipped_linears: bool,
    /// Whether averages are moved and scaled by what the checkpoint has.
    pub standardize: bool,
    /// The base of positions in the tower.
    pub theta: f32,
    /// Rows that an image becomes at most.
    pub rows: usize,
    /// Whether rows of an image see each other on layers that slide.
    pub see_each_other: bool,
    /// Stands in a prompt before an image, for each of its rows, and behind it.
    pub marks: [u32; 3],
}

impl Gemma4Eyes {
    /// What a wrapper's `config.json` says, around that text model.
    pub fn read(config: &Config, text: &Gemma4) -> Result<Gemma4Eyes, ConfigError> {
        let of = tower(config)?;
        let token = |key: &str, usual: u32| {
            config.get_anywhere(key).map_or(Ok(usual), |value| crate::config::token(key, value))
        };
        let rows = [SOFT_TOKENS, "vision_soft_tokens_per_image"];
        let rows = rows.into_iter().find_map(|key| Some((key, config.get_anywhere(key)?)));
        let ahead = config.get("use_bidirectional_attention").and_then(Value::as_str);
        let eyes = Gemma4Eyes {
            hidden_size: of.size("hidden_size", Some(768))?,
            intermediate_size: of.size("intermediate_size", Some(3072))?,
            num_hidden_layers: of.layers(16)?,
            num_attention_heads: of.size("num_attention_heads", Some(12))?,
            num_key_value_heads: of.size("num_key_value_heads", Some(12))?,
            head_dim: of.size("head_dim", Some(64))?,
            hidden_activation: of.activation("hidden_activation", Activation::GeluTanh)?,
            rms_norm_eps: of.number("rms_norm_eps", 1e-6)?,
            patch_size: of.size("patch_size", Some(16))?,
            pooling_kernel_size: of.size("pooling_kernel_size", Some(3))?,
            position_embedding_size: of.size("position_embedding_size", Some(10_240))?,
            use_clipped_linears: of.flag("use_clipped_linears", false)?,
            standardize: of.flag("standardize", false)?,
            theta: theta(&of)?,
            rows: rows.map_or(Ok(280), |(key, rows)| crate::config::size(key, rows))?,
            see_each_other: ahead == Some("vision"),
            marks: [
                token("boi_token_id", 255_999)?,
                token("image_token_id", 258_880)?,
                token("eoi_token_id", 258_882)?,
            ],
        };
        let wrong = |problem: String| Err(ConfigError(format!("the vision tower: {problem}")));
        let (heads, keys, head_dim) = (eyes.num_attention_heads, eyes.num_key_value_heads, eyes.head_dim);
        if eyes.num_hidden_layers > MOST_LAYERS {
            return wrong(format!("`num_hidden_layers` is {}", eyes.num_hidden_layers));
        }
        if !head_dim.is_multiple_of(4) {
            return wrong(format!("heads of {head_dim} features cannot turn by row and column"));
        }
        if !heads.is_multiple_of(keys) {
            return wrong(format!("{heads} heads of queries over {keys} of keys"));
        }
        let (patch, square) = (eyes.patch_size, eyes.pooling_kernel_size);
        let patches = square.saturating_mul(square).saturating_mul(eyes.rows);
        if patch.saturating_mul(square) > 1 << 12 || patches > MOST_PATCHES {
            return wrong(format!(
                "`patch_size` is {patch}, `pooling_kernel_size` {square}, for {} rows of an image",
                eyes.rows
            ));
        }
        let (pad, known) =
            (text.pad_token_id, text.per_layer_inputs.map_or(usize::MAX, |inputs| inputs.vocab_size));
        match pad as usize >= known {
            true => Err(ConfigError(format!(
                "`pad_token_id` is {pad}, of {known} tokens whose layers have inputs of their own"
            ))),
            false => Ok(eyes),
        }
    }

    /// Whether what is seen fits into a program with inputs of that many tokens: rows that see each other are read at once. An image
    /// that is a single line of squares has a place for each of its patches.
    pub(super) fn fits(&self, chunk: usize) -> bool {
        let is_read = !self.see_each_other || self.rows <= chunk;
        is_read && self.rows * self.pooling_kernel_size <= self.position_embedding_size
    }

    /// On which layers of the text model rows see those behind them.
    pub(super) fn ahead(&self) -> Ahead {
        if self.see_each_other { Ahead::InWindows } else { Ahead::Nowhere }
    }

    /// Patches to rows, `[1, rows, width]`: patches of a square follow each other.
    pub(super) fn look(&self, net: &mut Net, width: usize) -> Result<ValueId, ModelError> {
        let (hidden, square) = (self.hidden_size, self.pooling_kernel_size.pow(2));
        let inputs = 3 * self.patch_size.pow(2);
        let count = net.symbol("N", self.rows * square);
        let pixels = net.input("pixel_values", DType::F32, vec![count.clone(), Dim::known(inputs as i64)]);
        let places = net.input("places", DType::I64, vec![Dim::known(3), count]);
        net.enter("vision_tower.patch_embedder");
        let length = net.op(Op::SymSize { a: pixels, dim: 0 })?;
        let [rows, columns] = [net.pick(places, 0, 0)?, net.pick(places, 1, 0)?];
        // From -1 to 1.
        let pixels = net.scaled(pixels, 2.0)?;
        let one = net.scalar(1.0, DType::F32);
        let pixels = net.op(Op::Subtract { a: pixels, b: one })?;
        let pixels = net.cast(pixels, net.activations())?;
        let shape = vec![literal(1), value(length), literal(inputs)];
        let pixels = net.op(Op::Reshape { x: pixels, shape })?;
        let mut x = unpacked(net, pixels, "vision_tower.patch_embedder.input_proj", hidden, inputs, false)?;
        let learned = self.places(net, rows, columns)?;
        x = net.add(x, learned)?;
        let turn = [self.turn(net, columns)?, self.turn(net, rows)?];
        for layer in 0..self.num_hidden_layers {
            let name = format!("vision_tower.encoder.layers.{layer}");
            net.enter(name.as_str());
            let normed = self.norm(net, x, &format!("{name}.input_layernorm"), hidden)?;
            let attended = self.attention(net, normed, &name, length, turn)?;
            let attended = self.norm(net, attended, &format!("{name}.post_attention_layernorm"), hidden)?;
            x = net.add(x, attended)?;
            let normed = self.norm(net, x, &format!("{name}.pre_feedforward_layernorm"), hidden)?;
            let inner = self.intermediate_size;
            let gate = self.linear(net, normed, &format!("{name}.mlp.gate_proj"), inner, hidden)?;
            let gate = self.hidden_activation.apply(net, gate)?;
            let up = self.linear(net, normed, &format!("{name}.mlp.up_proj"), inner, hidden)?;
            let wide = net.multiply(gate, up)?;
            let fed = self.linear(net, wide, &format!("{name}.mlp.down_proj"), hidden, inner)?;
            let fed = self.norm(net, fed, &format!("{name}.post_feedforward_layernorm"), hidden)?;
            x = net.add(x, fed)?;
        }
        net.enter("embed_vision");
        // In f32, as what is scaled by this may be more than f16 holds.
        let x = net.cast(x, DType::F32)?;
        let shape = vec![literal(1), IntArg::Literal(-1), literal(square), literal(hidden)];
        let x = net.op(Op::Reshape { x, shape })?;
        let x = net.op(Op::Mean { x, axes: Some(vec![2]), keepdims: false })?;
        let mut x = net.scaled(x, (hidden as f32).sqrt())?;
        if self.standardize {
            let bias = net.floats("vision_tower.std_bias", &[hidden], DType::F32, 0.0)?;
            let scale = net.floats("vision_tower.std_scale", &[hidden], DType::F32, 0.0)?;
            let moved = net.op(Op::Subtract { a: x, b: bias })?;
            x = net.multiply(moved, scale)?;
        }
        let x = unweighted_norm(net, x, self.rms_norm_eps)?;
        let x = net.cast(x, net.activations())?;
        unpacked(net, x, "embed_vision.embedding_projection", width, hidden, false)
    }

    fn norm(&self, net: &mut Net, x: ValueId, name: &str, size: usize) -> Result<ValueId, ModelError> {
        let (name, eps) = (format!("{name}.weight"), self.rms_norm_eps);
        Norm { name, size, eps, kind: NormKind::Rms }.apply(net, x)
    }

    /// The product with a matrix, cut to a range before and behind it where the tower does that.
    fn linear(
        &self,
        net: &mut Net,
        x: ValueId,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<ValueId, ModelError> {
        let x = self.cut(net, x, name, "input")?;
        let dtype = net.activations();
        let weight = net.floats(&format!("{name}.linear.weight"), &[rows, columns], dtype, 0.0)?;
        let x = product_of(net, x, weight, None)?;
        self.cut(net, x, name, "output")
    }

    fn cut(&self, net: &mut Net, x: ValueId, name: &str, which: &str) -> Result<ValueId, ModelError> {
        if !self.use_clipped_linears {
            return Ok(x);
        }
        let dtype = net.activations();
        let a_min = Some(net.floats(&format!("{name}.{which}_min"), &[], dtype, 0.0)?);
        let a_max = Some(net.floats(&format!("{name}.{which}_max"), &[], dtype, 0.0)?);
        net.op(Op::Clip { x, a_min, a_max })
    }

    /// Learned places, `[N, hidden]`: that of the column and that of the row.
    fn places(&self, net: &mut Net, rows: ValueId, columns: ValueId) -> Result<ValueId, ModelError> {
        let (side, hidden) = (self.position_embedding_size, self.hidden_size);
        let name = "vision_tower.patch_embedder.position_embedding_table";
        let table = net.floats_as(name, &[2, side, hidden], &[2 * side, hidden], net.activations())?;
        let first = net.scalar(side as f32, DType::I64);
        let rows = net.add(rows, first)?;
        let by_column = net.op(Op::Take { x: table, index: IndexArg::Tensor(columns), axis: 0 })?;
        let by_row = net.op(Op::Take { x: table, index: IndexArg::Tensor(rows), axis: 0 })?;
        net.add(by_column, by_row)
    }

    /// Cosines and sines of positions along one axis, `[N, head_dim / 2]` in f32.
    fn turn(&self, net: &mut Net, along: ValueId) -> Result<[ValueId; 2], ModelError> {
        let half = self.head_dim / 2;
        let frequency = |pair: usize| self.theta.powf(-2.0 * pair as f32 / half as f32);
        let frequencies: Vec<f32> = (0..half / 2).map(frequency).collect();
        let frequencies = net.vector("vision_tower.frequencies", &frequencies);
        let along = net.cast(along, DType::F32)?;
        let along = net.op(Op::ExpandDims { x: along, axis: 1 })?;
        let angles = net.multiply(along, frequencies)?;
        let angles = net.op(Op::Concatenate { tensors: vec![angles, angles], axis: 1 })?;
        Ok([net.op(Op::Cos { x: angles })?, net.op(Op::Sin { x: angles })?])
    }

    /// Attention of all patches: the first half of a head turns by column, the second by row.
    fn attention(
        &self,
        net: &mut Net,
        x: ValueId,
        name: &str,
        length: ValueId,
        turn: [[ValueId; 2]; 2],
    ) -> Result<ValueId, ModelError> {
        let (hidden, head_dim, half) = (self.hidden_size, self.head_dim, self.head_dim / 2);
        let by_head = |net: &mut Net, which: &str, heads: usize| {
            let name = format!("{name}.self_attn.{which}");
            let x = self.linear(net, x, &name, heads * head_dim, hidden)?;
            let shape = vec![literal(1), value(length), literal(heads), literal(head_dim)];
            net.op(Op::Reshape { x, shape })
        };
        let turned = |net: &mut Net, which: &str, heads: usize| {
            let x = by_head(net, &format!("{which}_proj"), heads)?;
            let x = self.norm(net, x, &format!("{name}.self_attn.{which}_norm"), head_dim)?;
            let x = net.swap_heads(x)?;
            let mut halves = Vec::new();
            for (number, [cos, sin]) in turn.into_iter().enumerate() {
                let (start, stop) = (literal(number * half), literal((number + 1) * half));
                let part = net.op(Op::Slice { x, axis: literal(3), start, stop, step: 1 })?;
                halves.push(turned_by(net, part, half, cos, sin)?);
            }
            net.op(Op::Concatenate { tensors: halves, axis: 3 })
        };
        let (heads, kv_heads) = (self.num_attention_heads, self.num_key_value_heads);
        let (q, k) = (turned(net, "q", heads)?, turned(net, "k", kv_heads)?);
        let v = by_head(net, "v_proj", kv_heads)?;
        let v = unweighted_norm(net, v, self.rms_norm_eps)?;
        let v = net.swap_heads(v)?;
        let attended = net.op(Op::Sdpa { q, k, v, scale: 1.0, mask: None, causal: false })?;
        let attended = net.cast(attended, net.activations())?;
        let x = net.swap_heads(attended)?;
        let shape = vec![literal(1), value(length), literal(heads * head_dim)];
        let x = net.op(Op::Reshape { x, shape })?;
        self.linear(net, x, &format!("{name}.self_attn.o_proj"), hidden, heads * head_dim)
    }
}

/// The base of positions in the tower, which are of one kind.
fn theta(tower: &Config) -> Result<f32, ConfigError> {
    let Some(rope) = tower.get("rope_parameters") else { return Ok(100.0) };
    match rope.get("rope_type").and_then(Value::as_str) {
        None | Some("axial" | "default") => {}
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            let problem = format!("the vision tower: `rope_type` is {other:?}, which is not supported");
            return Err(ConfigError(problem));
        }
    }
    let theta = rope.get("rope_theta").and_then(Value::as_f64).unwrap_or(100.0) as f32;
    match theta > 0.0 && theta.is_finite() {
        true => Ok(theta),
        false => Err(ConfigError(format!("the vision tower: `rope_theta` is {theta}"))),
    }
}
