//! Attention over a cache: projections, norms of heads, rotation, the cache's update, one op with grouped heads, or its scores
//! spelled out where a family changes them.

use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::cache::{append, append_to_ring, ring_slots, ring_view};
use super::difference::{Pairs, difference, doubled};
use super::latent::filled;
use super::scores::{Scores, spelled_out};
use super::{Norm, NormKind, Rope, bias, linear, matrix, unweighted_norm};
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
    /// What it is like.
    pub heads: Heads,
    /// Rotary positions, where it has any.
    pub rope: Option<&'a Rope>,
    /// Where keys and values come from.
    pub keys: Keys,
}

/// What a layer's attention is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heads {
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
    /// Norms of heads.
    pub norms: Option<HeadNorms>,
    /// How many positions a query sees, with its own; all of them without.
    pub window: Option<usize>,
    /// The magnitude that projections are cut to.
    pub clip: Option<f32>,
    /// What is done to scores beside their scale.
    pub scores: Scores,
    /// How queries grow with their position.
    pub warmth: Option<Warmth>,
    /// What an RMS norm before the last projection adds to the mean square, where there is one (BitNet).
    pub sub_norm: Option<f32>,
    /// Whether what comes out passes a gate that is projected like queries are.
    pub gated: bool,
    /// How heads are taken from each other, where they come in pairs (DiffLlama).
    pub pairs: Option<Pairs>,
    /// What queries see.
    pub reach: Reach,
}

impl Heads {
    /// Plain attention: scores by the root of a head's size, nothing else.
    pub fn new(heads: usize, kv_heads: usize, head_dim: usize) -> Heads {
        Heads {
            heads,
            kv_heads,
            head_dim,
            scale: (head_dim as f32).powf(-0.5),
            biases: Biases::None,
            norms: None,
            window: None,
            clip: None,
            scores: Scores::PLAIN,
            warmth: None,
            sub_norm: None,
            gated: false,
            pairs: None,
            reach: Reach::Past,
        }
    }

    /// The same as caches know them: pairs of heads keep the values of two.
    fn cached(&self) -> Heads {
        let times = if self.pairs.is_some() { 2 } else { 1 };
        Heads { head_dim: times * self.head_dim, ..*self }
    }
}

/// What queries see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// What came up to their own position, in this call or before.
    Past,
    /// All of the call, which is the whole text.
    Text,
    /// What of it is at most so many positions away.
    Near(usize),
}

/// Which projections have biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Biases {
    /// None.
    None,
    /// Those of queries, keys and values.
    QueriesKeysValues,
    /// That of the output.
    Output,
    /// Those of queries, values and the output.
    AllButKeys,
    /// All of them.
    All,
}

impl Biases {
    /// By projection.
    pub const fn of(queries_keys_values: bool, output: bool) -> Biases {
        match (queries_keys_values, output) {
            (false, false) => Biases::None,
            (true, false) => Biases::QueriesKeysValues,
            (false, true) => Biases::Output,
            (true, true) => Biases::All,
        }
    }

    fn input(self, which: &str) -> bool {
        match self {
            Biases::QueriesKeysValues | Biases::All => true,
            Biases::AllButKeys => which != "k_proj",
            Biases::None | Biases::Output => false,
        }
    }

    fn output(self) -> bool {
        matches!(self, Biases::Output | Biases::AllButKeys | Biases::All)
    }
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadNorms {
    /// Added to the mean square, or to the variance.
    pub eps: f32,
    /// What they do.
    pub kind: NormKind,
    /// What they go over.
    pub span: Span,
    /// Whether positions turn queries and keys before.
    pub after_rope: bool,
    /// Whether values are normed too, without a weight.
    pub values: bool,
}

impl HeadNorms {
    /// Of each head, before positions turn it.
    pub const fn by_head(kind: NormKind, eps: f32) -> HeadNorms {
        HeadNorms { eps, kind, span: Span::Head, after_rope: false, values: false }
    }
}

/// What a norm of queries or keys goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Each head, with one weight for all of them.
    Head,
    /// Each head, with a weight of its own.
    EachHead,
    /// All heads at once.
    Whole,
}

/// How queries grow with their position: by `1 + amount * ln(1 + floor((position + ahead) / step))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warmth {
    /// How much for each e-fold.
    pub amount: f32,
    /// Positions of a step.
    pub step: f32,
    /// Added to the position.
    pub ahead: f32,
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
    /// Those of the whole text, and which of them each query sees, where it does not see all.
    Text { keys: ValueId, values: ValueId, mask: Option<ValueId> },
}

impl Attention<'_> {
    /// A projection as `[1, T, heads, head_dim]`, normed as a whole where that is asked for.
    fn project(
        &self,
        net: &mut Net,
        x: ValueId,
        which: &str,
        heads: usize,
        norm: Option<&str>,
    ) -> Result<ValueId, ModelError> {
        let Heads { head_dim, biases, clip, norms, .. } = self.heads;
        let width = heads * head_dim;
        let weight = matrix(net, &format!("{}.{which}.weight", self.name), width, self.hidden)?;
        let bias = match biases.input(which) {
            false => None,
            true => Some(bias(net, &format!("{}.{which}.bias", self.name), width)?),
        };
        let mut y = linear(net, x, weight, bias)?;
        if let (Some(HeadNorms { eps, kind, span: Span::Whole, .. }), Some(norm)) = (norms, norm) {
            let name = format!("{}.{norm}.weight", self.name);
            y = Norm { name, size: width, eps, kind }.apply(net, y)?;
        }
        if let Some(most) = clip {
            let dtype = net.dtype(y).unwrap_or(DType::F32);
            let (least, most) = (net.scalar(-most, dtype), net.scalar(most, dtype));
            y = net.op(Op::Clip { x: y, a_min: Some(least), a_max: Some(most) })?;
        }
        net.split_tokens(y, &[heads, head_dim])
    }

    /// Norms of `[1, T, heads, head_dim]`, where they go by head.
    fn normed(&self, net: &mut Net, x: ValueId, which: &str, heads: usize) -> Result<ValueId, ModelError> {
        let Some(HeadNorms { eps, kind, span, .. }) = self.heads.norms else { return Ok(x) };
        let (name, size) = (format!("{}.{which}.weight", self.name), self.heads.head_dim);
        match span {
            Span::Whole => Ok(x),
            Span::Head => Norm { name, size, eps, kind }.apply(net, x),
            Span::EachHead => {
                let bare = match kind {
                    NormKind::Rms | NormKind::RmsAroundOne | NormKind::RmsBare => NormKind::RmsBare,
                    _ => NormKind::LayerBare,
                };
                let y = Norm { name: name.clone(), size, eps, kind: bare }.apply(net, x)?;
                let dtype = net.activations();
                let weight = net.floats(&name, &[heads, size], dtype, 0.0)?;
                net.multiply(y, weight)
            }
        }
    }

    /// Norms and rotation of a projection, in the family's order; `[1, heads, T, head_dim]`.
    fn turned(&self, net: &mut Net, x: ValueId, norm: &str, heads: usize) -> Result<ValueId, ModelError> {
        let after = self.heads.norms.is_some_and(|norms| norms.after_rope);
        let x = if after { x } else { self.normed(net, x, norm, heads)? };
        let x = net.swap_heads(x)?;
        let x = match self.rope {
            Some(rope) => rope.apply(net, x)?,
            None => x,
        };
        // Norms by head go over the last axis, wherever the heads are.
        if after { self.normed(net, x, norm, heads) } else { Ok(x) }
    }

    fn keys_and_values(&self, net: &mut Net, x: ValueId) -> Result<KeyValues, ModelError> {
        let kv_heads = self.heads.kv_heads;
        let raw = self.project(net, x, "k_proj", kv_heads, Some("k_norm"))?;
        let values = match self.keys {
            Keys::AsValues => raw,
            _ => self.project(net, x, "v_proj", kv_heads, None)?,
        };
        // In the order in which they have always been written: the norm of keys before that of values.
        let after = self.heads.norms.is_some_and(|norms| norms.after_rope);
        let keys = if after { raw } else { self.normed(net, raw, "k_norm", kv_heads)? };
        let values = match self.heads.norms {
            Some(HeadNorms { eps, values: true, .. }) => unweighted_norm(net, values, eps)?,
            _ => values,
        };
        let (keys, values) = (net.swap_heads(keys)?, net.swap_heads(values)?);
        let keys = match self.rope {
            Some(rope) => rope.apply(net, keys)?,
            None => keys,
        };
        let keys = if after { self.normed(net, keys, "k_norm", kv_heads)? } else { keys };
        let cached = self.heads.cached();
        let values = match self.heads.pairs {
            Some(_) => doubled(net, values, kv_heads)?,
            None => values,
        };
        let keys = filled(net, keys, self.heads.head_dim, cached.head_dim)?;
        remember(net, self.name, &cached, keys, values)
    }

    /// The queries, `[1, heads, T, head_dim]`.
    fn queries(&self, net: &mut Net, x: ValueId) -> Result<ValueId, ModelError> {
        let queries = self.project(net, x, "q_proj", self.heads.heads, Some("q_norm"))?;
        let queries = self.turned(net, queries, "q_norm", self.heads.heads)?;
        let queries = filled(net, queries, self.heads.head_dim, self.heads.cached().head_dim)?;
        match self.heads.warmth {
            Some(warmth) => warmed(net, queries, warmth),
            None => Ok(queries),
        }
    }
}

/// Queries `[1, heads, T, head_dim]`, each times what its position makes of it.
fn warmed(net: &mut Net, queries: ValueId, warmth: Warmth) -> Result<ValueId, ModelError> {
    let positions = net.positions()?;
    let positions = net.cast(positions, DType::F32)?;
    let ahead = net.scalar(warmth.ahead, DType::F32);
    let positions = net.add(positions, ahead)?;
    let step = net.scalar(warmth.step, DType::F32);
    let steps = net.op(Op::Divide { a: positions, b: step })?;
    let steps = net.op(Op::Floor { x: steps })?;
    let growth = net.op(Op::Log1p { x: steps })?;
    let growth = net.scaled(growth, warmth.amount)?;
    let one = net.scalar(1.0, DType::F32);
    let factors = net.add(growth, one)?;
    let shape = vec![literal(1), literal(1), value(net.length()), literal(1)];
    let factors = net.op(Op::Reshape { x: factors, shape })?;
    let dtype = net.dtype(queries).unwrap_or(DType::F32);
    let factors = net.cast(factors, dtype)?;
    net.multiply(queries, factors)
}

/// Puts new keys and values where the next call finds them.
pub(super) fn remember(
    net: &mut Net,
    name: &str,
    of: &Heads,
    keys: ValueId,
    values: ValueId,
) -> Result<KeyValues, ModelError> {
    let Heads { kv_heads, head_dim, window, .. } = *of;
    if of.reach != Reach::Past {
        let mask = match of.reach {
            Reach::Near(distance) => Some(near(net, distance)?),
            _ => None,
        };
        return Ok(KeyValues(Seen::Text { keys, values, mask }));
    }
    let options = net.options();
    // Scores that are spelled out need all keys in the graph.
    if options.kv == KvCache::OffGraph && of.scores.is_plain() {
        let cache = net.session_cache(CacheLayer { kv_heads, head_dim, window });
        return Ok(KeyValues(Seen::OffGraph { keys, values, cache }));
    }
    let (context, chunk, dtype) = (options.context, options.chunk, options.cache);
    let sliding = window.filter(|&window| window < context);
    let slots = sliding.map_or(context, |window| ring_slots(window, chunk, context));
    let shape = [1, kv_heads, slots, head_dim];
    let key_cache = net.buffer(&format!("{name}.k_cache"), dtype, &shape);
    let value_cache = net.buffer(&format!("{name}.v_cache"), dtype, &shape);
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

impl KeyValues {
    /// What queries make of values, `[1, heads, T, head_dim]`.
    pub(super) fn attend(
        self,
        net: &mut Net,
        name: &str,
        of: &Heads,
        q: ValueId,
        scale: f32,
    ) -> Result<ValueId, ModelError> {
        let activations = net.activations();
        let attended = match self.0 {
            Seen::InGraph { keys, values, mask } if !of.scores.is_plain() => {
                spelled_out(net, name, of, (q, keys, values, mask), scale)?
            }
            Seen::InGraph { keys: k, values: v, mask } => {
                net.op(Op::Sdpa { q, k, v, scale, mask, causal: mask.is_none() })?
            }
            Seen::Text { keys: k, values: v, mask } => {
                net.op(Op::Sdpa { q, k, v, scale, mask, causal: false })?
            }
            // A layer that shares keys writes them again: cells are addressed by position.
            Seen::OffGraph { keys: k, values: v, cache } => {
                let position = net.cache_position(of.window.is_some())?;
                let (layer_id, scale, out_dtype) = (Some(cache), Some(scale), Some(activations));
                net.op(Op::UpdateAndAttend { q, k, v, position, layer_id, scale, out_dtype })?
            }
        };
        net.cast(attended, activations)
    }
}

/// `[1, 1, T, T]`: 0 where a key is at most so many positions away, else minus infinity.
fn near(net: &mut Net, distance: usize) -> Result<ValueId, ModelError> {
    net.once(&format!("at most {distance} away"), |net| {
        let keys = net.positions()?;
        let queries = net.op(Op::ExpandDims { x: keys, axis: 1 })?;
        let between = net.op(Op::Subtract { a: queries, b: keys })?;
        let between = net.op(Op::Abs { x: between })?;
        let most = net.scalar(distance as f32, DType::I64);
        let is_near = net.op(Op::LessEqual { a: between, b: most })?;
        let dtype = net.activations();
        let (open, closed) = (net.scalar(0.0, dtype), net.scalar(f32::NEG_INFINITY, dtype));
        let mask = net.op(Op::Where { condition: is_near, x: open, y: closed })?;
        let mask = net.op(Op::ExpandDims { x: mask, axis: 0 })?;
        net.op(Op::ExpandDims { x: mask, axis: 0 })
    })
}

/// What the layer adds to `x`, and its keys and values for layers that share them.
pub fn attention(
    net: &mut Net,
    x: ValueId,
    spec: &Attention<'_>,
) -> Result<(ValueId, KeyValues), ModelError> {
    net.enter(spec.name);
    let q = spec.queries(net, x)?;
    let seen = match spec.keys {
        Keys::Shared(seen) => seen,
        Keys::Own | Keys::AsValues => spec.keys_and_values(net, x)?,
    };
    // Norms behind the rope take its factor away again.
    let is_normed = spec.heads.norms.is_some_and(|norms| norms.after_rope);
    let factor = spec.rope.filter(|_| !is_normed).map_or(1.0, Rope::score_factor);
    let attended = seen.attend(net, spec.name, &spec.heads.cached(), q, spec.heads.scale * factor)?;
    let attended = match spec.heads.pairs {
        Some(pairs) => difference(net, attended, spec.name, &spec.heads, pairs)?,
        None => attended,
    };
    let width = spec.heads.heads * spec.heads.head_dim;
    let attended = joined(net, attended, width)?;
    let attended = match spec.heads.sub_norm {
        Some(eps) => {
            let name = format!("{}.attn_sub_norm.weight", spec.name);
            Norm { name, size: width, eps, kind: NormKind::Rms }.apply(net, attended)?
        }
        None => attended,
    };
    let attended = match spec.heads.gated {
        true => {
            let gate = spec.project(net, x, "gate_proj", spec.heads.heads, None)?;
            let gate = net.split_tokens(gate, &[width])?;
            let gate = net.op(Op::Sigmoid { x: gate })?;
            net.multiply(attended, gate)?
        }
        false => attended,
    };
    Ok((project_back(net, attended, spec.name, width, spec.hidden, spec.heads.biases)?, seen))
}

/// `[1, heads, T, head_dim]` as `[1, T, width]`.
pub(super) fn joined(net: &mut Net, attended: ValueId, width: usize) -> Result<ValueId, ModelError> {
    let attended = net.swap_heads(attended)?;
    let shape = vec![literal(1), value(net.length()), literal(width)];
    net.op(Op::Reshape { x: attended, shape })
}

/// The last projection.
pub(super) fn project_back(
    net: &mut Net,
    attended: ValueId,
    name: &str,
    width: usize,
    hidden: usize,
    biases: Biases,
) -> Result<ValueId, ModelError> {
    let weight = matrix(net, &format!("{name}.o_proj.weight"), hidden, width)?;
    let bias = match biases.output() {
        true => Some(bias(net, &format!("{name}.o_proj.bias"), hidden)?),
        false => None,
    };
    linear(net, attended, weight, bias)
}
