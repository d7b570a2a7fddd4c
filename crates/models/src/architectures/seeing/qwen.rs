//! Qwen2.5-VL's eyes: images near their own size, patches that turn by row and column, windows between layers that see
//! everything, squares of patches merged to one row. In the text model rows have three positions: time, row and column.

use pteron_ir::op::IntArg;
use pteron_ir::{Dim, Op, ValueId};
use pteron_tensor::DType;
use serde_json::{Map, Value};

use super::tower;
use crate::blocks::{Activation, Norm, NormKind, product_of, turned_by, unpacked};
use crate::net::{literal, value};
use crate::{Config, ConfigError, ModelError, Net};

/// More layers than any tower has.
const MOST_LAYERS: usize = 1 << 10;
/// Patches of the largest image: windows are told apart by a number for each pair of them.
const MOST_PATCHES: usize = 1 << 12;
/// Its norms add this to the mean square.
const EPS: f32 = 1e-6;

/// Qwen2.5-VL's eyes.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the published configuration
pub struct QwenEyes {
    pub depth: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_heads: usize,
    pub hidden_act: Activation,
    pub patch_size: usize,
    pub temporal_patch_size: usize,
    pub spatial_merge_size: usize,
    pub window_size: usize,
    pub fullatt_block_indexes: Vec<usize>,
    /// The base of positions in the tower.
    pub theta: f32,
    /// Pairs of a head of the text model that turn by time, by row and by column.
    pub mrope_section: Vec<usize>,
    /// Stands in a prompt for each row.
    pub image_token_id: u32,
}

impl QwenEyes {
    /// What a wrapper's `config.json` says.
    pub fn read(config: &Config) -> Result<QwenEyes, ConfigError> {
        let of = tower(config)?;
        let full = match of.get("fullatt_block_indexes") {
            None => vec![7, 15, 23, 31],
            Some(list) => numbers("fullatt_block_indexes", list)?,
        };
        let eyes = QwenEyes {
            depth: of.size("depth", Some(32))?,
            hidden_size: of.size("hidden_size", Some(3584))?,
            intermediate_size: of.size("intermediate_size", Some(3420))?,
            num_heads: of.size("num_heads", Some(16))?,
            hidden_act: of.activation("hidden_act", Activation::Silu)?,
            patch_size: of.size("patch_size", Some(14))?,
            temporal_patch_size: of.size("temporal_patch_size", Some(2))?,
            spatial_merge_size: of.size("spatial_merge_size", Some(2))?,
            window_size: of.size("window_size", Some(112))?,
            fullatt_block_indexes: full,
            theta: theta(&of),
            mrope_section: sections(config, &[16, 24, 24])?,
            image_token_id: image_token(config)?,
        };
        let QwenEyes { hidden_size, num_heads, patch_size, spatial_merge_size, window_size, .. } = eyes;
        let wrong = |problem: String| Err(ConfigError(format!("the vision tower: {problem}")));
        if eyes.depth > MOST_LAYERS {
            return wrong(format!("`depth` is {}", eyes.depth));
        }
        if !hidden_size.is_multiple_of(4 * num_heads) {
            return wrong(format!(
                "{num_heads} heads of `hidden_size` {hidden_size} cannot turn by row and column"
            ));
        }
        if of.size("in_channels", Some(3))? != 3 {
            return wrong("`in_channels` is not 3, as images have".to_owned());
        }
        let cell = patch_size.saturating_mul(spatial_merge_size);
        if cell > 1 << 12 || window_size < cell || eyes.temporal_patch_size > 1 << 8 {
            return wrong(format!(
                "`window_size` is {window_size}, `patch_size` {patch_size}, `spatial_merge_size` {spatial_merge_size}"
            ));
        }
        Ok(eyes)
    }

    /// Patches of the largest image.
    pub fn most_patches(&self) -> usize {
        let square = self.spatial_merge_size.pow(2);
        (MOST_PATCHES / square).max(1) * square
    }

    /// The axis by which each pair of a head of the text model turns.
    pub(super) fn axes(&self) -> Vec<usize> {
        let sections = self.mrope_section.iter().enumerate();
        sections.flat_map(|(number, &pairs)| std::iter::repeat_n(number % 3, pairs)).collect()
    }

    /// Merged cells along the side of a window.
    pub fn window(&self) -> usize {
        self.window_size / self.spatial_merge_size / self.patch_size
    }

    /// Numbers of a patch.
    fn inputs(&self) -> usize {
        3 * self.temporal_patch_size * self.patch_size.pow(2)
    }

    /// Patches to rows, `[1, rows, width]`.
    pub(super) fn look(&self, net: &mut Net, width: usize) -> Result<ValueId, ModelError> {
        let (hidden, inputs) = (self.hidden_size, self.inputs());
        let count = net.symbol("N", self.most_patches());
        let pixels = net.input("pixel_values", DType::F32, vec![count.clone(), Dim::known(inputs as i64)]);
        let places = net.input("places", DType::I64, vec![Dim::known(3), count]);
        net.enter("visual.patch_embed");
        let length = net.op(Op::SymSize { a: pixels, dim: 0 })?;
        let pixels = net.cast(pixels, net.activations())?;
        let shape = vec![literal(1), value(length), literal(inputs)];
        let pixels = net.op(Op::Reshape { x: pixels, shape })?;
        let kernel = [hidden, 3, self.temporal_patch_size, self.patch_size, self.patch_size];
        let dtype = net.activations();
        let weight = net.floats_as("visual.patch_embed.proj.weight", &kernel, &[hidden, inputs], dtype)?;
        let mut x = product_of(net, pixels, weight, None)?;
        let heads = Heads { hidden, heads: self.num_heads, theta: self.theta };
        let (turn, windows) = (heads.turn(net, places)?, self.windows(net, places, length)?);
        for layer in 0..self.depth {
            let name = format!("visual.blocks.{layer}");
            net.enter(name.as_str());
            let mask = (!self.fullatt_block_indexes.contains(&layer)).then_some(windows);
            let normed = rms(net, x, &format!("{name}.norm1"), hidden)?;
            let attended = heads.attention(net, normed, &name, length, turn, mask)?;
            x = net.add(x, attended)?;
            let normed = rms(net, x, &format!("{name}.norm2"), hidden)?;
            let inner = self.intermediate_size;
            let gate = unpacked(net, normed, &format!("{name}.mlp.gate_proj"), inner, hidden, true)?;
            let gate = self.hidden_act.apply(net, gate)?;
            let up = unpacked(net, normed, &format!("{name}.mlp.up_proj"), inner, hidden, true)?;
            let wide = net.multiply(gate, up)?;
            let fed = unpacked(net, wide, &format!("{name}.mlp.down_proj"), hidden, inner, true)?;
            x = net.add(x, fed)?;
        }
        net.enter("visual.merger");
        let x = rms(net, x, "visual.merger.ln_q", hidden)?;
        let wide = hidden * self.spatial_merge_size.pow(2);
        let x = net.op(Op::Reshape { x, shape: vec![literal(1), IntArg::Literal(-1), literal(wide)] })?;
        let x = unpacked(net, x, "visual.merger.mlp.0", wide, wide, true)?;
        let x = Activation::Gelu.apply(net, x)?;
        unpacked(net, x, "visual.merger.mlp.2", width, wide, true)
    }

    /// `[1, 1, N, N]`: which patches are in one window.
    fn windows(&self, net: &mut Net, places: ValueId, length: ValueId) -> Result<ValueId, ModelError> {
        let numbers = net.pick(places, 2, 0)?;
        let shape = vec![literal(1), literal(1), value(length), literal(1)];
        let rows = net.op(Op::Reshape { x: numbers, shape })?;
        let shape = vec![literal(1), literal(1), literal(1), value(length)];
        let columns = net.op(Op::Reshape { x: numbers, shape })?;
        net.op(Op::Equal { a: rows, b: columns })
    }
}

/// Heads of a tower whose patches turn by row and column.
pub(super) struct Heads {
    pub(super) hidden: usize,
    pub(super) heads: usize,
    /// The base of positions.
    pub(super) theta: f32,
}

impl Heads {
    /// Cosines and sines by which patches turn, `[N, head_dim]` in f32: half of the pairs by row, half by column.
    pub(super) fn turn(&self, net: &mut Net, places: ValueId) -> Result<[ValueId; 2], ModelError> {
        let half = self.hidden / self.heads / 2;
        let frequency = |pair: usize| self.theta.powf(-2.0 * pair as f32 / half as f32);
        let frequencies: Vec<f32> = (0..half / 2).map(frequency).collect();
        let frequencies = net.vector("visual.frequencies", &frequencies);
        let mut angles = Vec::new();
        for axis in 0..2 {
            let along = net.pick(places, axis, 0)?;
            let along = net.cast(along, DType::F32)?;
            let along = net.op(Op::ExpandDims { x: along, axis: 1 })?;
            angles.push(net.multiply(along, frequencies)?);
        }
        let angles = [angles[0], angles[1], angles[0], angles[1]].to_vec();
        let angles = net.op(Op::Concatenate { tensors: angles, axis: 1 })?;
        Ok([net.op(Op::Cos { x: angles })?, net.op(Op::Sin { x: angles })?])
    }

    /// Attention of all patches, or of those that a mask lets see each other.
    pub(super) fn attention(
        &self,
        net: &mut Net,
        x: ValueId,
        name: &str,
        length: ValueId,
        [cos, sin]: [ValueId; 2],
        mask: Option<ValueId>,
    ) -> Result<ValueId, ModelError> {
        let (hidden, heads) = (self.hidden, self.heads);
        let head_dim = hidden / heads;
        let all = unpacked(net, x, &format!("{name}.attn.qkv"), 3 * hidden, hidden, true)?;
        let shape = vec![literal(1), value(length), literal(3 * heads), literal(head_dim)];
        let all = net.op(Op::Reshape { x: all, shape })?;
        let all = net.swap_heads(all)?;
        let part = |net: &mut Net, at: usize| {
            let (start, stop) = (literal(at * heads), literal((at + 1) * heads));
            net.op(Op::Slice { x: all, axis: literal(1), start, stop, step: 1 })
        };
        let (q, k, v) = (part(net, 0)?, part(net, 1)?, part(net, 2)?);
        let (q, k) = (turned_by(net, q, head_dim, cos, sin)?, turned_by(net, k, head_dim, cos, sin)?);
        let scale = (head_dim as f32).powf(-0.5);
        let attended = net.op(Op::Sdpa { q, k, v, scale, mask, causal: false })?;
        let attended = net.cast(attended, net.activations())?;
        let x = net.swap_heads(attended)?;
        let shape = vec![literal(1), value(length), literal(hidden)];
        let x = net.op(Op::Reshape { x, shape })?;
        unpacked(net, x, &format!("{name}.attn.proj"), hidden, hidden, true)
    }
}

fn rms(net: &mut Net, x: ValueId, name: &str, size: usize) -> Result<ValueId, ModelError> {
    Norm { name: format!("{name}.weight"), size, eps: EPS, kind: NormKind::Rms }.apply(net, x)
}

/// The base of positions in a tower.
pub(super) fn theta(tower: &Config) -> f32 {
    let theta = tower.get("rope_parameters").and_then(|rope| rope.get("rope_theta")).and_then(Value::as_f64);
    theta.map_or(10_000.0, |theta| theta as f32)
}

/// Pairs of a head of the text model that turn by time, by row and by column.
pub(super) fn sections(config: &Config, usual: &[usize]) -> Result<Vec<usize>, ConfigError> {
    let sections = config.rope_parameters()?.and_then(|rope| rope.get("mrope_section"));
    sections.map_or(Ok(usual.to_vec()), |list| numbers("mrope_section", list))
}

/// What stands in a prompt for each row of an image.
pub(super) fn image_token(config: &Config) -> Result<u32, ConfigError> {
    let token = config.get_anywhere("image_token_id");
    token.map_or(Ok(151_655), |token| crate::config::token("image_token_id", token))
}

/// A short list of counts.
pub(super) fn numbers(key: &str, value: &Value) -> Result<Vec<usize>, ConfigError> {
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    let list = value.as_array().filter(|list| list.len() <= MOST_LAYERS);
    let list: Option<Vec<usize>> = list.and_then(|list| list.iter().map(number).collect());
    list.ok_or_else(|| ConfigError(format!("`{key}` is no list of counts")))
}

/// The text model's configuration as its family without eyes has it: positions of one axis.
pub(super) fn one_axis(config: &Config) -> Result<Config, ConfigError> {
    let mut text = config.clone();
    let Some(rope) = config.rope_parameters()? else { return Ok(text) };
    let mut plain: Map<String, Value> = rope.clone();
    plain.remove("mrope_section");
    for key in ["type", "rope_type"] {
        if plain.get(key).and_then(Value::as_str) == Some("mrope") {
            plain.insert(key.to_owned(), "default".into());
        }
    }
    text.set("rope_scaling", Value::Null);
    text.set("rope_parameters", Value::Object(plain));
    Ok(text)
}
