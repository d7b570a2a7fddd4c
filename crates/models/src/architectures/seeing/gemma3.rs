//! Gemma 3's eyes: SigLIP, its patches averaged in squares to as many rows as the configuration says, a norm, one matrix.

use pteron_ir::{Op, ValueId};

use super::{Siglip, tower};
use crate::blocks::{Norm, NormKind};
use crate::net::literal;
use crate::{Config, ConfigError, ModelError, Net};

/// Gemma 3's eyes.
#[derive(Clone, Debug, PartialEq)]
pub struct Gemma3Eyes {
    /// The tower.
    pub tower: Siglip,
    /// Rows that an image becomes.
    pub rows: usize,
    /// Stands in a prompt before an image, for each of its rows, and behind it.
    pub marks: [u32; 3],
}

impl Gemma3Eyes {
    /// What a wrapper's `config.json` says.
    pub fn read(config: &Config) -> Result<Gemma3Eyes, ConfigError> {
        let token = |keys: [&str; 2], usual: u32| {
            let found = keys.into_iter().find_map(|key| Some((key, config.get_anywhere(key)?)));
            found.map_or(Ok(usual), |(key, value)| crate::config::token(key, value))
        };
        let rows = config.get_anywhere("mm_tokens_per_image");
        let rows = rows.map_or(Ok(256), |rows| crate::config::size("mm_tokens_per_image", rows))?;
        let eyes = Gemma3Eyes {
            tower: Siglip::read(&tower(config)?)?,
            rows,
            marks: [
                token(["boi_token_index", "boi_token_id"], 255_999)?,
                token(["image_token_index", "image_token_id"], 262_144)?,
                token(["eoi_token_index", "eoi_token_id"], 256_000)?,
            ],
        };
        let side = eyes.tower.side();
        match eyes.square().filter(|square| (side / square).pow(2) == rows) {
            Some(_) => Ok(eyes),
            None => Err(ConfigError(format!(
                "`mm_tokens_per_image` is {rows}, which {side} times {side} patches cannot be averaged to"
            ))),
        }
    }

    /// Patches along the side of a square that becomes one row.
    fn square(&self) -> Option<usize> {
        Some(self.tower.side() / self.rows.isqrt().max(1)).filter(|&square| square > 0)
    }

    /// Pixels to rows, `[1, rows, width]`.
    pub(super) fn look(&self, net: &mut Net, width: usize) -> Result<ValueId, ModelError> {
        let Siglip { hidden_size, layer_norm_eps: eps, .. } = self.tower;
        let mut x = self.tower.build(net, "vision_tower")?;
        net.enter("multi_modal_projector");
        let square = self.square().unwrap_or(1);
        let (side, rows) = (self.tower.side(), self.tower.side() / square);
        if rows * square < side {
            x = net.op(Op::Reshape { x, shape: [side, side, hidden_size].map(literal).to_vec() })?;
            for axis in [0, 1] {
                let (start, stop) = (literal(0), literal(rows * square));
                x = net.op(Op::Slice { x, axis: literal(axis), start, stop, step: 1 })?;
            }
        }
        let shape = [rows, square, rows, square, hidden_size].map(literal).to_vec();
        let x = net.op(Op::Reshape { x, shape })?;
        let x = net.op(Op::Mean { x, axes: Some(vec![1, 3]), keepdims: false })?;
        let x = net.op(Op::Reshape { x, shape: [1, rows * rows, hidden_size].map(literal).to_vec() })?;
        let name = "multi_modal_projector.mm_soft_emb_norm.weight".to_owned();
        let x = Norm { name, size: hidden_size, eps, kind: NormKind::RmsAroundOne }.apply(net, x)?;
        // Stored with its inputs as rows.
        let name = "multi_modal_projector.mm_input_projection_weight";
        let mat2 = net.floats(name, &[hidden_size, width], net.activations(), 0.0)?;
        let x = net.op(Op::Addmm { mat1: x, mat2, bias: None, alpha: 1.0, beta: 1.0 })?;
        net.cast(x, net.activations())
    }
}
