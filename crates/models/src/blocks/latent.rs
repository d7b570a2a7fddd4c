//! Latent attention (DeepSeek's MLA): queries, keys and values by way of few features, and one part of a head that turns with
//! the position, which all keys share. Keys and values are kept as heads, so that any cache holds them.

use pteron_ir::{Op, ValueId};

use super::attention::{Biases, Heads, joined, project_back, remember};
use super::{Norm, NormKind, Rope, projected};
use crate::net::{literal, value};
use crate::{ModelError, Net};

/// What latent attention is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latent {
    /// Heads.
    pub heads: usize,
    /// Features that queries pass through, where they do.
    pub q_rank: Option<usize>,
    /// Features that keys and values pass through.
    pub kv_rank: usize,
    /// Features of a query or key that do not turn.
    pub still: usize,
    /// Those that do, behind them.
    pub turning: usize,
    /// Features of a value.
    pub value: usize,
    /// What scores are multiplied by.
    pub scale: f32,
    /// Whether the first projections and the last have biases.
    pub biases: bool,
    /// What the norms inside add to the mean square.
    pub eps: f32,
}

/// What the layer adds to `x`.
pub fn latent_attention(
    net: &mut Net,
    x: ValueId,
    name: &str,
    hidden: usize,
    of: &Latent,
    rope: &Rope,
) -> Result<ValueId, ModelError> {
    net.enter(name);
    let Latent { heads, still, turning, .. } = *of;
    let features = still + turning;
    let queries = match of.q_rank {
        None => projected(net, x, &format!("{name}.q_proj"), heads * features, hidden, false)?,
        Some(rank) => {
            let few = projected(net, x, &format!("{name}.q_a_proj"), rank, hidden, of.biases)?;
            let few = norm(format!("{name}.q_a_layernorm.weight"), rank, of.eps).apply(net, few)?;
            projected(net, few, &format!("{name}.q_b_proj"), heads * features, rank, false)?
        }
    };
    let queries = net.split_tokens(queries, &[heads, features])?;
    let queries = net.swap_heads(queries)?;
    let [q_still, q_turning] = cut(net, queries, still, features)?;
    let q_turning = rope.apply_to_part(net, q_turning)?;
    let queries = net.op(Op::Concatenate { tensors: vec![q_still, q_turning], axis: 3 })?;

    let rank = of.kv_rank;
    let few = projected(net, x, &format!("{name}.kv_a_proj_with_mqa"), rank + turning, hidden, of.biases)?;
    let few = net.split_tokens(few, &[1, rank + turning])?;
    let few = net.swap_heads(few)?;
    let [few, k_turning] = cut(net, few, rank, rank + turning)?;
    let k_turning = rope.apply_to_part(net, k_turning)?;
    let shape = vec![literal(1), literal(heads), value(net.length()), literal(turning)];
    let k_turning = net.op(Op::BroadcastTo { x: k_turning, shape })?;
    let few = joined(net, few, rank)?;
    let few = norm(format!("{name}.kv_a_layernorm.weight"), rank, of.eps).apply(net, few)?;
    let both = projected(net, few, &format!("{name}.kv_b_proj"), heads * (still + of.value), rank, false)?;
    let both = net.split_tokens(both, &[heads, still + of.value])?;
    let both = net.swap_heads(both)?;
    let [k_still, values] = cut(net, both, still, still + of.value)?;
    let keys = net.op(Op::Concatenate { tensors: vec![k_still, k_turning], axis: 3 })?;

    // Caches hold keys and values of one size: the smaller ones are filled up with zeros, which change nothing.
    let size = features.max(of.value);
    let (queries, keys) = (filled(net, queries, features, size)?, filled(net, keys, features, size)?);
    let values = filled(net, values, of.value, size)?;
    let seen_as = Heads { scale: of.scale, ..Heads::new(heads, heads, size) };
    let seen = remember(net, name, &seen_as, keys, values)?;
    let attended = seen.attend(net, name, &seen_as, queries, of.scale)?;
    let attended = match of.value == size {
        true => attended,
        false => {
            let stop = literal(of.value);
            net.op(Op::Slice { x: attended, axis: literal(3), start: literal(0), stop, step: 1 })?
        }
    };
    let width = heads * of.value;
    let attended = joined(net, attended, width)?;
    let biases = if of.biases { Biases::All } else { Biases::None };
    project_back(net, attended, name, width, hidden, biases)
}

fn norm(name: String, size: usize, eps: f32) -> Norm {
    Norm { name, size, eps, kind: NormKind::Rms }
}

/// The first features of the last of four axes, and the others.
fn cut(net: &mut Net, x: ValueId, first: usize, all: usize) -> Result<[ValueId; 2], ModelError> {
    let axis = literal(3);
    let (start, border, end) = (literal(0), literal(first), literal(all));
    Ok([
        net.op(Op::Slice { x, axis, start, stop: border, step: 1 })?,
        net.op(Op::Slice { x, axis, start: border, stop: end, step: 1 })?,
    ])
}

/// The last of four axes with zeros behind it, up to that size.
pub(super) fn filled(net: &mut Net, x: ValueId, from: usize, to: usize) -> Result<ValueId, ModelError> {
    if from == to {
        return Ok(x);
    }
    let mut pad_width = vec![literal(0); 7];
    pad_width.push(literal(to - from));
    net.op(Op::Pad { x, pad_width, mode: "constant".to_owned(), constant_value: 0.0 })
}
