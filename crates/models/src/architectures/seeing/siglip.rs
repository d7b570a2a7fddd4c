//! SigLIP's image tower: square images of one size, patches as tokens with learned places, layers that see everything.

use pteron_ir::{Dim, Op, ValueId};
use pteron_tensor::DType;

use crate::blocks::{Activation, bias, layer_norm, product_of, unpacked};
use crate::net::literal;
use crate::{Config, ConfigError, ModelError, Net};

/// More layers than any tower has.
const MOST_LAYERS: usize = 1 << 10;

/// SigLIP's image tower.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the published configuration
pub struct Siglip {
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_channels: usize,
    pub image_size: usize,
    pub patch_size: usize,
    pub hidden_act: Activation,
    pub layer_norm_eps: f32,
}

impl Siglip {
    /// What a `vision_config` says.
    pub fn read(config: &Config) -> Result<Siglip, ConfigError> {
        let siglip = Siglip {
            hidden_size: config.size("hidden_size", Some(768))?,
            intermediate_size: config.size("intermediate_size", Some(3072))?,
            num_hidden_layers: config.layers(12)?,
            num_attention_heads: config.size("num_attention_heads", Some(12))?,
            num_channels: config.size("num_channels", Some(3))?,
            image_size: config.size("image_size", Some(224))?,
            patch_size: config.size("patch_size", Some(16))?,
            hidden_act: config.activation("hidden_act", Activation::GeluTanh)?,
            layer_norm_eps: config.number("layer_norm_eps", 1e-6)?,
        };
        let Siglip { hidden_size, num_attention_heads, num_channels, image_size, patch_size, .. } = siglip;
        let wrong = |problem: String| Err(ConfigError(format!("the vision tower: {problem}")));
        if siglip.num_hidden_layers > MOST_LAYERS {
            return wrong(format!("`num_hidden_layers` is {}", siglip.num_hidden_layers));
        }
        if !hidden_size.is_multiple_of(num_attention_heads) {
            return wrong(format!(
                "`hidden_size` is {hidden_size}, no multiple of {num_attention_heads} heads"
            ));
        }
        if num_channels != 3 {
            return wrong(format!("`num_channels` is {num_channels}, and images have 3"));
        }
        if patch_size > image_size || image_size > 1 << 14 {
            return wrong(format!("`image_size` is {image_size} and `patch_size` {patch_size}"));
        }
        Ok(siglip)
    }

    /// Patches along a side.
    pub fn side(&self) -> usize {
        self.image_size / self.patch_size
    }

    /// The whole tower with the pixels as an input: `[1, patches, hidden_size]`.
    pub(super) fn build(&self, net: &mut Net, name: &str) -> Result<ValueId, ModelError> {
        let Siglip { hidden_size: width, layer_norm_eps: eps, .. } = *self;
        net.enter(name);
        let shape =
            [1, self.num_channels, self.image_size, self.image_size].map(|size| Dim::known(size as i64));
        let pixels = net.input("pixel_values", DType::F32, shape.to_vec());
        let pixels = net.cast(pixels, net.activations())?;
        let mut x = self.patches(net, pixels, &format!("{name}.embeddings"))?;
        for layer in 0..self.num_hidden_layers {
            let name = format!("{name}.encoder.layers.{layer}");
            net.enter(name.as_str());
            let normed = layer_norm(net, x, &format!("{name}.layer_norm1"), width, eps)?;
            let attended = self.attention(net, normed, &format!("{name}.self_attn"))?;
            x = net.add(x, attended)?;
            let normed = layer_norm(net, x, &format!("{name}.layer_norm2"), width, eps)?;
            let inner = self.intermediate_size;
            let wide = unpacked(net, normed, &format!("{name}.mlp.fc1"), inner, width, true)?;
            let wide = self.hidden_act.apply(net, wide)?;
            let fed = unpacked(net, wide, &format!("{name}.mlp.fc2"), width, inner, true)?;
            x = net.add(x, fed)?;
        }
        layer_norm(net, x, &format!("{name}.post_layernorm"), width, eps)
    }

    /// Pixels `[1, channels, height, width]` as embedded patches, row by row. Patches do not overlap, so that their convolution
    /// is a product; what is left at the right and below is cut off.
    fn patches(&self, net: &mut Net, pixels: ValueId, name: &str) -> Result<ValueId, ModelError> {
        let (width, patch, side, channels) =
            (self.hidden_size, self.patch_size, self.side(), self.num_channels);
        let mut x = pixels;
        if side * patch < self.image_size {
            for axis in [2, 3] {
                let (start, stop) = (literal(0), literal(side * patch));
                x = net.op(Op::Slice { x, axis: literal(axis), start, stop, step: 1 })?;
            }
        }
        let shape = [channels, side, patch, side, patch].map(literal).to_vec();
        let x = net.op(Op::Reshape { x, shape })?;
        let x = net.op(Op::Transpose { x, perm: vec![1, 3, 0, 2, 4] })?;
        let inputs = channels * patch * patch;
        let x = net.op(Op::Reshape { x, shape: [1, side * side, inputs].map(literal).to_vec() })?;
        let kernel = [width, channels, patch, patch];
        let dtype = net.activations();
        let weight = format!("{name}.patch_embedding.weight");
        let weight = net.floats_as(&weight, &kernel, &[width, inputs], dtype)?;
        let bias = bias(net, &format!("{name}.patch_embedding.bias"), width)?;
        let x = product_of(net, x, weight, Some(bias))?;
        let places = format!("{name}.position_embedding.weight");
        let places = net.floats(&places, &[side * side, width], dtype, 0.0)?;
        net.add(x, places)
    }

    fn attention(&self, net: &mut Net, x: ValueId, name: &str) -> Result<ValueId, ModelError> {
        let (width, heads, places) = (self.hidden_size, self.num_attention_heads, self.side() * self.side());
        let head_dim = width / heads;
        let by_head = |net: &mut Net, which: &str| -> Result<ValueId, ModelError> {
            let x = unpacked(net, x, &format!("{name}.{which}"), width, width, true)?;
            let x = net.op(Op::Reshape { x, shape: [1, places, heads, head_dim].map(literal).to_vec() })?;
            net.swap_heads(x)
        };
        let (q, k, v) = (by_head(net, "q_proj")?, by_head(net, "k_proj")?, by_head(net, "v_proj")?);
        let scale = (head_dim as f32).powf(-0.5);
        let attended = net.op(Op::Sdpa { q, k, v, scale, mask: None, causal: false })?;
        let attended = net.cast(attended, net.activations())?;
        let x = net.swap_heads(attended)?;
        let x = net.op(Op::Reshape { x, shape: [1, places, width].map(literal).to_vec() })?;
        unpacked(net, x, &format!("{name}.out_proj"), width, width, true)
    }
}
