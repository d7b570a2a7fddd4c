//! Attention over a cache: projections, norms by head, rotation, the cache's update, one op with grouped heads.

use pteron_ir::{Op, ValueId};

use super::cache::{append, append_to_ring, ring_slots, ring_view};
use super::{Matrix, Norm, Rope, bias, linear, matrix, unweighted_norm};
use crate::model::{CacheLayer, KvCache};
use crate::net::{literal, value};
use crate::{ModelError, Net};

/// One layer's attention.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Prefix of its weights, such as `model.layers.0.self_attn`.
    pub name: &'a str,
    /// Features of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// What scores are multiplied by.
    pub scale: f32,
    /// Which projections have biases.
    pub biases: Biases,
    /// Norms by head.
    pub norms: HeadNorms,
    /// Rotary positions.
    pub rope: &'a Rope,
    /// How many positions a query sees, with its own; all of them without.
    pub window: Option<usize>,
    /// Where keys and values come from.
    pub keys: Keys,
}

/// Which projections have biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Biases {
    /// None.
    None,
    /// Those of queries, keys and values.
    QueriesKeysValues,
    /// Those and the output's.
    All,
}

/// Norms by head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HeadNorms {
    /// None.
    None,
    /// Of queries and keys.
    QueriesAndKeys {
        /// Added to the mean square.
        eps: f32,
        /// As in [`Norm::around_one`].
        around_one: bool,
    },
    /// Of queries and keys, and of values without a weight.
    All {
        /// Added to the mean square.
        eps: f32,
    },
}

/// Where keys and values come from.
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    /// Projections of their own.
    Own,
    /// Values are the projected keys, before norm and rotation.
    AsValues,
    /// Those of an earlier layer.
    Shared(KeyValues),
}

/// Keys and values as attention sees them.
#[derive(Clone, Copy, Debug)]
pub struct KeyValues(Seen);

#[derive(Clone, Copy, Debug)]
enum Seen {
    /// All that the graph's caches hold.
    InGraph {
        keys: ValueId,
        values: ValueId,
        /// Which of them each query sees; without one, all up to its own position.
        mask: Option<ValueId>,
    },
    /// The new ones; the session's cache of that number holds the others.
    OffGraph { keys: ValueId, values: ValueId, cache: i32 },
}

impl Attention<'_> {
    fn project(&self, net: &mut Net, x: ValueId, which: &str, heads: usize) -> Result<ValueId, ModelError> {
        let width = heads * self.head_dim;
        let weight: Matrix = matrix(net, &format!("{}.{which}.weight", self.name), width, self.hidden)?;
        let bias = match self.biases {
            Biases::None => None,
            Biases::QueriesKeysValues | Biases::All => {
                Some(bias(net, &format!("{}.{which}.bias", self.name), width)?)
            }
        };
        let y = linear(net, x, weight, bias)?;
        net.split_tokens(y, &[heads, self.head_dim])
    }

    fn normed(&self, net: &mut Net, x: ValueId, which: &str) -> Result<ValueId, ModelError> {
        let (eps, around_one) = match self.norms {
            HeadNorms::None => return Ok(x),
            HeadNorms::QueriesAndKeys { eps, around_one } => (eps, around_one),
            HeadNorms::All { eps } => (eps, false),
        };
        let name = format!("{}.{which}.weight", self.name);
        Norm { name, size: self.head_dim, eps, around_one }.apply(net, x)
    }

    fn keys_and_values(&self, net: &mut Net, x: ValueId) -> Result<KeyValues, ModelError> {
        let raw = self.project(net, x, "k_proj", self.kv_heads)?;
        let values = match self.keys {
            Keys::AsValues => raw,
            _ => self.project(net, x, "v_proj", self.kv_heads)?,
        };
        let keys = self.normed(net, raw, "k_norm")?;
        let values = match self.norms {
            HeadNorms::All { eps } => unweighted_norm(net, values, eps)?,
            _ => values,
        };
        let (keys, values) = (net.swap_heads(keys)?, net.swap_heads(values)?);
        let keys = self.rope.apply(net, keys)?;
        self.remember(net, keys, values)
    }

    /// Puts new keys and values where the next call finds them.
    fn remember(&self, net: &mut Net, keys: ValueId, values: ValueId) -> Result<KeyValues, ModelError> {
        let options = net.options();
        if options.kv == KvCache::OffGraph {
            let (kv_heads, head_dim) = (self.kv_heads, self.head_dim);
            let cache = net.session_cache(CacheLayer { kv_heads, head_dim, window: self.window });
            return Ok(KeyValues(Seen::OffGraph { keys, values, cache }));
        }
        let (context, chunk, dtype) = (options.context, options.chunk, options.cache);
        let sliding = self.window.filter(|&window| window < context);
        let slots = sliding.map_or(context, |window| ring_slots(window, chunk, context));
        let shape = [1, self.kv_heads, slots, self.head_dim];
        let key_cache = net.buffer(&format!("{}.k_cache", self.name), dtype, &shape);
        let value_cache = net.buffer(&format!("{}.v_cache", self.name), dtype, &shape);
        Ok(KeyValues(match sliding {
            None => Seen::InGraph {
                keys: append(net, key_cache, keys)?,
                values: append(net, value_cache, values)?,
                mask: None,
            },
            Some(window) => {
                let view = ring_view(net, slots, window)?;
                Seen::InGraph {
                    keys: append_to_ring(net, key_cache, view, keys)?,
                    values: append_to_ring(net, value_cache, view, values)?,
                    mask: Some(view.mask),
                }
            }
        }))
    }
}

impl KeyValues {
    fn attend(self, net: &mut Net, q: ValueId, scale: f32) -> Result<ValueId, ModelError> {
        let activations = net.activations();
        let attended = match self.0 {
            Seen::InGraph { keys: k, values: v, mask } => {
                net.op(Op::Sdpa { q, k, v, scale, mask, causal: mask.is_none() })?
            }
            // A layer that shares keys writes them again: cells are addressed by position.
            Seen::OffGraph { keys: k, values: v, cache } => {
                let position = net.input_pos()?;
                let (layer_id, scale, out_dtype) = (Some(cache), Some(scale), Some(activations));
                net.op(Op::UpdateAndAttend { q, k, v, position, layer_id, scale, out_dtype })?
            }
        };
        net.cast(attended, activations)
    }
}

/// What the layer adds to `x`, and its keys and values for layers that share them.
pub fn attention(
    net: &mut Net,
    x: ValueId,
    spec: &Attention<'_>,
) -> Result<(ValueId, KeyValues), ModelError> {
    net.enter(spec.name);
    let queries = spec.project(net, x, "q_proj", spec.heads)?;
    let queries = spec.normed(net, queries, "q_norm")?;
    let queries = net.swap_heads(queries)?;
    let q = spec.rope.apply(net, queries)?;
    let seen = match spec.keys {
        Keys::Shared(seen) => seen,
        Keys::Own | Keys::AsValues => spec.keys_and_values(net, x)?,
    };
    let attended = seen.attend(net, q, spec.scale * spec.rope.score_factor())?;
    let attended = net.swap_heads(attended)?;
    let width = spec.heads * spec.head_dim;
    let shape = vec![literal(1), value(net.length()), literal(width)];
    let attended = net.op(Op::Reshape { x: attended, shape })?;
    let weight = matrix(net, &format!("{}.o_proj.weight", spec.name), spec.hidden, width)?;
    let bias = match spec.biases {
        Biases::All => Some(bias(net, &format!("{}.o_proj.bias", spec.name), spec.hidden)?),
        Biases::None | Biases::QueriesKeysValues => None,
    };
    Ok((linear(net, attended, weight, bias)?, seen))
}
