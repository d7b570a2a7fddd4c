//! Qwen3-VL's eyes: images near their own size, patches with learned places between those of a square grid, layers that see
//! everything, squares of patches merged to rows behind several layers. In the text model rows have three positions, and those of
//! earlier layers are added behind its first ones.

use pteron_ir::op::IntArg;
use pteron_ir::{Dim, Op, ValueId};
use pteron_tensor::DType;

use super::qwen::{Heads, image_token, numbers, sections, theta};
use super::tower;
use crate::blocks::{Activation, Norm, NormKind, product_of, unpacked};
use crate::net::{literal, value};
use crate::{Config, ConfigError, ModelError, Net};

/// More layers than any tower has.
const MOST_LAYERS: usize = 1 << 10;
/// Patches of the largest image, of which each sees all others.
const MOST_PATCHES: usize = 1 << 14;
/// Its norms add this to the variance.
const EPS: f32 = 1e-6;

/// Qwen3-VL's eyes.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the published configuration
pub struct Qwen3Eyes {
    pub depth: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_heads: usize,
    pub hidden_act: Activation,
    pub patch_size: usize,
    pub temporal_patch_size: usize,
    pub spatial_merge_size: usize,
    /// Learned places along a side of their grid.
    pub grid: usize,
    /// The layers behind which rows are made for the first layers of the text model, in their order.
    pub deepstack_visual_indexes: Vec<usize>,
    /// The base of positions in the tower.
    pub theta: f32,
    /// Pairs of a head of the text model that turn by time, by row and by column, which take turns.
    pub mrope_section: Vec<usize>,
    /// Pairs of a head of the text model.
    pub pairs: usize,
    /// Stands in a prompt for each row.
    pub image_token_id: u32,
}

impl Qwen3Eyes {
    /// What a wrapper's `config.json` says.
    pub fn read(config: &Config) -> Result<Qwen3Eyes, ConfigError> {
        let of = tower(config)?;
        let wrong = |problem: String| Err(ConfigError(format!("the vision tower: {problem}")));
        let places = of.size("num_position_embeddings", Some(2304))?;
        let levels = of.get("deepstack_visual_indexes");
        let heads = config.size("num_attention_heads", None)?;
        let head_dim = config.size("head_dim", Some(config.size("hidden_size", None)? / heads.max(1)))?;
        let eyes = Qwen3Eyes {
            depth: of.size("depth", Some(27))?,
            hidden_size: of.size("hidden_size", Some(1152))?,
            intermediate_size: of.size("intermediate_size", Some(4304))?,
            num_heads: of.size("num_heads", Some(16))?,
            hidden_act: of.activation("hidden_act", Activation::GeluTanh)?,
            patch_size: of.size("patch_size", Some(16))?,
            temporal_patch_size: of.size("temporal_patch_size", Some(2))?,
            spatial_merge_size: of.size("spatial_merge_size", Some(2))?,
            grid: places.isqrt(),
            deepstack_visual_indexes: levels
                .map_or(Ok(vec![8, 16, 24]), |list| numbers("deepstack_visual_indexes", list))?,
            theta: theta(&of),
            mrope_section: sections(config, &[24, 20, 20])?,
            pairs: head_dim / 2,
            image_token_id: image_token(config)?,
        };
        let Qwen3Eyes { depth, hidden_size, num_heads, patch_size, spatial_merge_size, .. } = eyes;
        if depth > MOST_LAYERS {
            return wrong(format!("`depth` is {depth}"));
        }
        if !hidden_size.is_multiple_of(4 * num_heads) {
            return wrong(format!(
                "{num_heads} heads of `hidden_size` {hidden_size} cannot turn by row and column"
            ));
        }
        if of.size("in_channels", Some(3))? != 3 {
            return wrong("`in_channels` is not 3, as images have".to_owned());
        }
        if eyes.grid == 0 || eyes.grid.saturating_pow(2) != places {
            return wrong(format!("`num_position_embeddings` is {places}, which is no square"));
        }
        if patch_size.saturating_mul(spatial_merge_size) > 1 << 12 || eyes.temporal_patch_size > 1 << 8 {
            return wrong(format!("`patch_size` is {patch_size}, `spatial_merge_size` {spatial_merge_size}"));
        }
        let levels = &eyes.deepstack_visual_indexes;
        if !levels.is_sorted_by(|a, b| a < b) || levels.last().is_some_and(|&last| last >= depth) {
            return wrong(format!("`deepstack_visual_indexes` are {levels:?}, of {depth} layers"));
        }
        let sections = &eyes.mrope_section;
        if sections.len() != 3 || sections[1..].iter().any(|&pairs| pairs > eyes.pairs) {
            return wrong(format!("`mrope_section` is {sections:?}, for {} pairs of a head", eyes.pairs));
        }
        Ok(eyes)
    }

    /// How many of the text model's first layers get rows of their own.
    pub(super) fn levels(&self) -> usize {
        self.deepstack_visual_indexes.len()
    }

    /// The axis by which each pair of a head of the text model turns: time, row and column take turns as long as they last.
    pub(super) fn axes(&self) -> Vec<usize> {
        let axis = |pair: usize| match pair % 3 {
            axis @ 1.. if pair < 3 * self.mrope_section[axis] => axis,
            _ => 0,
        };
        (0..self.pairs).map(axis).collect()
    }

    /// Patches of the largest image.
    pub fn most_patches(&self) -> usize {
        let square = self.spatial_merge_size.pow(2);
        (MOST_PATCHES / square).max(1) * square
    }

    /// Patches to rows, `[1, rows, width]`, and behind each, along its features, those of earlier layers.
    pub(super) fn look(&self, net: &mut Net, width: usize) -> Result<ValueId, ModelError> {
        let hidden = self.hidden_size;
        let inputs = 3 * self.temporal_patch_size * self.patch_size.pow(2);
        let count = net.symbol("N", self.most_patches());
        let pixels = net.input("pixel_values", DType::F32, vec![count.clone(), Dim::known(inputs as i64)]);
        let places = net.input("places", DType::I64, vec![Dim::known(3), count]);
        net.enter("visual.patch_embed");
        let dtype = net.activations();
        let length = net.op(Op::SymSize { a: pixels, dim: 0 })?;
        let pixels = net.cast(pixels, dtype)?;
        let shape = vec![literal(1), value(length), literal(inputs)];
        let pixels = net.op(Op::Reshape { x: pixels, shape })?;
        let kernel = [hidden, 3, self.temporal_patch_size, self.patch_size, self.patch_size];
        let weight = net.floats_as("visual.patch_embed.proj.weight", &kernel, &[hidden, inputs], dtype)?;
        let bias = net.floats("visual.patch_embed.proj.bias", &[hidden], dtype, 0.0)?;
        let mut x = product_of(net, pixels, weight, Some(bias))?;
        let learned = self.places(net, places)?;
        x = net.add(x, learned)?;
        let heads = Heads { hidden, heads: self.num_heads, theta: self.theta };
        let turn = heads.turn(net, places)?;
        let mut more = Vec::new();
        for layer in 0..self.depth {
            let name = format!("visual.blocks.{layer}");
            net.enter(name.as_str());
            let normed = self.norm(net, x, &format!("{name}.norm1"), hidden)?;
            let attended = heads.attention(net, normed, &name, length, turn, None)?;
            x = net.add(x, attended)?;
            let normed = self.norm(net, x, &format!("{name}.norm2"), hidden)?;
            let inner = self.intermediate_size;
            let wide = unpacked(net, normed, &format!("{name}.mlp.linear_fc1"), inner, hidden, true)?;
            let wide = self.hidden_act.apply(net, wide)?;
            let fed = unpacked(net, wide, &format!("{name}.mlp.linear_fc2"), hidden, inner, true)?;
            x = net.add(x, fed)?;
            if let Some(level) = self.deepstack_visual_indexes.iter().position(|&own| own == layer) {
                let merger = format!("visual.deepstack_merger_list.{level}");
                net.enter(merger.as_str());
                let merged = self.merged(net, x)?;
                let normed = self.norm(net, merged, &format!("{merger}.norm"), self.wide())?;
                more.push(self.row(net, normed, &merger, width)?);
            }
        }
        net.enter("visual.merger");
        let normed = self.norm(net, x, "visual.merger.norm", hidden)?;
        let merged = self.merged(net, normed)?;
        let mut rows = vec![self.row(net, merged, "visual.merger", width)?];
        rows.append(&mut more);
        match rows.as_slice() {
            &[only] => Ok(only),
            _ => net.op(Op::Concatenate { tensors: rows, axis: 2 }),
        }
    }

    /// Features of a square of patches.
    fn wide(&self) -> usize {
        self.hidden_size * self.spatial_merge_size.pow(2)
    }

    /// Squares of patches, one behind the other.
    fn merged(&self, net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
        net.op(Op::Reshape { x, shape: vec![literal(1), IntArg::Literal(-1), literal(self.wide())] })
    }

    /// A row of each square.
    fn row(&self, net: &mut Net, x: ValueId, merger: &str, width: usize) -> Result<ValueId, ModelError> {
        let wide = self.wide();
        let x = unpacked(net, x, &format!("{merger}.linear_fc1"), wide, wide, true)?;
        let x = Activation::Gelu.apply(net, x)?;
        unpacked(net, x, &format!("{merger}.linear_fc2"), width, wide, true)
    }

    fn norm(&self, net: &mut Net, x: ValueId, name: &str, size: usize) -> Result<ValueId, ModelError> {
        Norm { name: format!("{name}.weight"), size, eps: EPS, kind: NormKind::Layer }.apply(net, x)
    }

    /// Learned places, `[N, hidden]`: the image's corners are those of their grid, and between its places they are mixed.
    fn places(&self, net: &mut Net, places: ValueId) -> Result<ValueId, ModelError> {
        let dtype = net.activations();
        let side = self.grid;
        let table = net.floats("visual.pos_embed.weight", &[side * side, self.hidden_size], dtype, 0.0)?;
        let last = net.scalar(side as f32 - 1.0, DType::F32);
        let one = net.scalar(1.0, DType::F32);
        // Of rows, then of columns: the place before, the one behind, and how near the latter is.
        let mut axes = Vec::new();
        for axis in 0..2 {
            let along = net.pick(places, axis, 0)?;
            let along = net.cast(along, DType::F32)?;
            let most = net.op(Op::Max { x: along, axes: Some(vec![0]), keepdims: true })?;
            // An image of one patch lies at the first place.
            let most = net.op(Op::Maximum { a: most, b: one })?;
            let step = net.op(Op::Divide { a: last, b: most })?;
            let at = net.multiply(along, step)?;
            let at = net.op(Op::Minimum { a: at, b: last })?;
            let before = net.op(Op::Floor { x: at })?;
            let near = net.op(Op::Subtract { a: at, b: before })?;
            let behind = net.add(before, one)?;
            let behind = net.op(Op::Minimum { a: behind, b: last })?;
            axes.push((before, behind, near));
        }
        let width = net.scalar(side as f32, DType::F32);
        let mut sum = None;
        for (row_is_behind, column_is_behind) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let part =
                |net: &mut Net, (before, behind, near): (ValueId, ValueId, ValueId), is_behind: bool| {
                    Ok::<_, ModelError>(match is_behind {
                        true => (behind, near),
                        false => (before, net.op(Op::Subtract { a: one, b: near })?),
                    })
                };
            let (row, row_weight) = part(net, axes[0], row_is_behind)?;
            let (column, column_weight) = part(net, axes[1], column_is_behind)?;
            let first = net.multiply(row, width)?;
            let number = net.add(first, column)?;
            let number = net.cast(number, DType::I64)?;
            let index = pteron_ir::op::IndexArg::Tensor(number);
            let learned = net.op(Op::Take { x: table, index, axis: 0 })?;
            let weight = net.multiply(row_weight, column_weight)?;
            let weight = net.op(Op::ExpandDims { x: weight, axis: 1 })?;
            let weight = net.cast(weight, dtype)?;
            let weighted = net.multiply(learned, weight)?;
            sum = Some(match sum {
                Some(sum) => net.add(sum, weighted)?,
                None => weighted,
            });
        }
        sum.ok_or_else(|| ModelError::configuration("patches have no places"))
    }
}
