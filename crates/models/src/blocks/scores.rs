//! Attention whose scores are spelled out, where a family changes them before the softmax: soft caps, sinks, slopes by
//! distance (ALiBi), chunks of positions that do not see each other. Keys and values lie in the graph then.

use pteron_ir::op::FloatArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::{Heads, capped};
use crate::net::{literal, value};
use crate::{ModelError, Net};

/// What is done to scores beside their scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// The magnitude that they stay below.
    pub cap: Option<f32>,
    /// Whether each head has a score that takes its share and gives nothing (a sink).
    pub sinks: bool,
    /// What they lose by distance.
    pub alibi: Option<Alibi>,
    /// Positions of a chunk, where queries see no other.
    pub chunk: Option<usize>,
}

/// How slopes by distance are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alibi {
    /// In f32, behind the scale (BLOOM).
    Exact,
    /// In bf16, before the scale (Falcon).
    Rounded,
}

impl Scores {
    /// Nothing.
    pub const PLAIN: Scores = Scores { cap: None, sinks: false, alibi: None, chunk: None };

    /// Whether nothing is done to them.
    pub fn is_plain(&self) -> bool {
        *self == Scores::PLAIN
    }
}

/// What queries make of values, both of heads in the graph: `[1, heads, T, head_dim]`.
pub(super) fn spelled_out(
    net: &mut Net,
    name: &str,
    of: &Heads,
    (q, k, v, mask): (ValueId, ValueId, ValueId, Option<ValueId>),
    scale: f32,
) -> Result<ValueId, ModelError> {
    let Heads { heads, kv_heads, head_dim, scores: changes, .. } = *of;
    // Queries that share keys are rows of one matrix.
    let (tokens, seen) = (net.length(), net.op(Op::SymSize { a: k, dim: 2 })?);
    let rows = net.op(Op::MultiplyInt { a: literal(heads / kv_heads.max(1)), b: value(tokens) })?;
    let shape = vec![literal(1), literal(kv_heads), value(rows), literal(head_dim)];
    let q = net.op(Op::Reshape { x: q, shape })?;
    let keys = net.op(Op::Transpose { x: k, perm: vec![0, 1, 3, 2] })?;
    let scores = net.op(Op::Addmm { mat1: q, mat2: keys, bias: None, alpha: 1.0, beta: 1.0 })?;
    let by_head = vec![literal(1), literal(heads), value(tokens), value(seen)];
    let scores = net.op(Op::Reshape { x: scores, shape: by_head })?;
    let scores = net.cast(scores, DType::F32)?;
    let mut scores = net.scaled(scores, scale)?;
    if let Some(cap) = changes.cap {
        scores = capped(net, scores, cap)?;
    }
    if let Some(alibi) = changes.alibi {
        let slopes = slopes(net, heads, alibi, scale)?;
        scores = net.add(scores, slopes)?;
    }
    let mask = match mask {
        Some(mask) => net.cast(mask, DType::F32)?,
        None => causal_mask(net, changes.chunk)?,
    };
    let scores = net.add(scores, mask)?;
    let shares = match changes.sinks {
        true => with_sinks(net, name, heads, scores)?,
        false => net.op(Op::Softmax { x: scores, axis: -1, precise: true })?,
    };
    let dtype = net.dtype(v).unwrap_or(DType::F32);
    let shares = net.cast(shares, dtype)?;
    let shape = vec![literal(1), literal(kv_heads), value(rows), value(seen)];
    let shares = net.op(Op::Reshape { x: shares, shape })?;
    let attended = net.op(Op::Addmm { mat1: shares, mat2: v, bias: None, alpha: 1.0, beta: 1.0 })?;
    let shape = vec![literal(1), literal(heads), value(tokens), literal(head_dim)];
    net.op(Op::Reshape { x: attended, shape })
}

/// The softmax of scores and one more for each head, without the latter.
fn with_sinks(net: &mut Net, name: &str, heads: usize, scores: ValueId) -> Result<ValueId, ModelError> {
    let sinks = net.floats(&format!("{name}.sinks"), &[heads], DType::F32, 0.0)?;
    let shape = vec![literal(1), literal(heads), literal(1), literal(1)];
    let sinks = net.op(Op::Reshape { x: sinks, shape })?;
    let shape = vec![literal(1), literal(heads), value(net.length()), literal(1)];
    let sinks = net.op(Op::BroadcastTo { x: sinks, shape })?;
    let seen = net.op(Op::SymSize { a: scores, dim: 3 })?;
    let all = net.op(Op::Concatenate { tensors: vec![scores, sinks], axis: 3 })?;
    let shares = net.op(Op::Softmax { x: all, axis: -1, precise: true })?;
    net.op(Op::Slice { x: shares, axis: literal(3), start: literal(0), stop: value(seen), step: 1 })
}

/// `[1, 1, T, S]` in f32: 0 where a query sees a position, else minus infinity. The same for all layers with such chunks.
fn causal_mask(net: &mut Net, chunk: Option<usize>) -> Result<ValueId, ModelError> {
    net.once(&format!("causal mask, {chunk:?}"), |net| {
        let keys = key_positions(net)?;
        let queries = net.positions()?;
        let shape = vec![value(net.length()), literal(1)];
        let queries = net.op(Op::Reshape { x: queries, shape })?;
        let mut seen = net.op(Op::LessEqual { a: keys, b: queries })?;
        if let Some(chunk) = chunk {
            let chunk = net.scalar(chunk as f32, DType::I64);
            let of_keys = net.op(Op::FloorDivide { a: keys, b: chunk })?;
            let of_queries = net.op(Op::FloorDivide { a: queries, b: chunk })?;
            let same = net.op(Op::Equal { a: of_keys, b: of_queries })?;
            seen = net.op(Op::BitwiseAnd { a: seen, b: same })?;
        }
        let mut constant = |number| {
            let v = FloatArg::Literal(number);
            net.op(Op::Full { shape: vec![literal(1)], v, scalar_type: DType::F32 })
        };
        let (open, closed) = (constant(0.0)?, constant(f64::NEG_INFINITY)?);
        let mask = net.op(Op::Where { condition: seen, x: open, y: closed })?;
        let mask = net.op(Op::ExpandDims { x: mask, axis: 0 })?;
        net.op(Op::ExpandDims { x: mask, axis: 0 })
    })
}

/// Positions of all keys, `[S]`. Cut from those of the whole context, so that a plan knows how many there can be.
fn key_positions(net: &mut Net) -> Result<ValueId, ModelError> {
    net.once("positions of keys", |net| {
        let (context, end) = (net.options().context, net.end()?);
        let x = net.range(literal(context))?;
        net.op(Op::Slice { x, axis: literal(0), start: literal(0), stop: value(end), step: 1 })
    })
}

/// `[1, heads, 1, S]` in f32: each head's slope times the position of a key. That differs from what is lost by distance by a
/// number for each query, which a softmax does not see.
fn slopes(net: &mut Net, heads: usize, alibi: Alibi, scale: f32) -> Result<ValueId, ModelError> {
    net.once(&format!("slopes by distance, {heads}, {scale}"), |net| {
        let positions = key_positions(net)?;
        let slopes = net.vector("alibi.slopes", &alibi_slopes(heads));
        let shape = vec![literal(1), literal(heads), literal(1), literal(1)];
        let slopes = net.op(Op::Reshape { x: slopes, shape })?;
        let dtype = if alibi == Alibi::Rounded { DType::BF16 } else { DType::F32 };
        let (positions, slopes) = (net.cast(positions, dtype)?, net.cast(slopes, dtype)?);
        let lost = net.multiply(slopes, positions)?;
        let lost = net.cast(lost, DType::F32)?;
        if alibi == Alibi::Rounded { net.scaled(lost, scale) } else { Ok(lost) }
    })
}

/// Powers of one base for a power of two of heads; for others those of the next lower one, and every other power of the root
/// of that base.
fn alibi_slopes(heads: usize) -> Vec<f32> {
    let whole = 1usize << heads.max(1).ilog2();
    let base = |heads: usize| (-(-((heads as f64).log2() - 3.0)).exp2()).exp2() as f32;
    let first = (1..=whole).map(|power| base(whole).powi(power as i32));
    let rest = (0..heads - whole).map(|at| base(2 * whole).powi(2 * at as i32 + 1));
    first.chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::alibi_slopes;

    #[test]
    fn slopes_are_those_of_the_paper() {
        assert_eq!(alibi_slopes(8), [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]);
        let six = alibi_slopes(6);
        assert_eq!(six[..4], [0.25, 0.0625, 0.015625, 0.00390625]);
        assert_eq!(six[4..], [0.5, 0.125]);
        assert_eq!(alibi_slopes(1), [0.00390625]);
    }
}
