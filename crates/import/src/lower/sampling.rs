//! Sampling a token by Gumbel noise, with the k best and the p likeliest kept.

use super::call::{Call, Int};
use super::context::{Lowerer, Outs, one};
use super::error::Lowered;
use super::registry::Table;
use pteron_ir::op::IndexArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

pub(super) const TABLE: Table = &[("mlx.sample.default", sample)];

/// At temperature 0 the best token, otherwise a random one.
fn sample(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (logits, temperature) = (call.tensor("logits")?, call.tensor("temperature")?);
    let zero = l.number(0.0, l.dtype(temperature)?)?;
    let warm = l.emit(Op::Greater { a: temperature, b: zero })?;
    let cond = l.emit_int(Op::ItemInt { x: warm })?;
    l.builder().open_block(Vec::new());
    let random = random_token(l, call, logits, temperature);
    let then_chain_idx = l.builder().close_block(random.clone().into_iter().collect());
    random?;
    l.builder().open_block(Vec::new());
    let best = l.emit(Op::Argmax { x: logits, axis: -1, keepdims: false });
    let else_chain_idx = l.builder().close_block(best.clone().into_iter().collect());
    best?;
    one(l.emit(Op::If { cond, then_chain_idx, else_chain_idx })?)
}

/// All in f32: half precision takes likelihoods that differ for equal.
fn random_token(
    l: &mut Lowerer<'_>,
    call: &Call<'_>,
    logits: ValueId,
    temperature: ValueId,
) -> Lowered<ValueId> {
    let noise = gumbel(l, call, logits)?;
    let scaled = l.cast(logits, DType::F32)?;
    let temperature = l.cast(temperature, DType::F32)?;
    let scaled = l.emit(Op::Divide { a: scaled, b: temperature })?;
    let scaled = best_k(l, call, scaled)?;
    let kept = likeliest(l, call, scaled)?;
    let x = l.emit(Op::Add { a: kept, b: noise })?;
    l.emit(Op::Argmax { x, axis: -1, keepdims: false })
}

/// `-log(-log(u))` of uniform numbers below 1.
fn gumbel(l: &mut Lowerer<'_>, call: &Call<'_>, logits: ValueId) -> Lowered<ValueId> {
    let shape = l.sizes(logits)?;
    let seed = match call.maybe_tensor("seed")? {
        Some(x) => Some(l.emit(Op::ItemInt { x })?),
        None => None,
    };
    let bits = l.emit(Op::RandomBits { shape, seed, width: 4 })?;
    let bits = l.cast(bits, DType::F32)?;
    let most = l.number(f64::from(u32::MAX), DType::F32)?;
    let uniform = l.emit(Op::Divide { a: bits, b: most })?;
    let below_one = l.number(f64::from(1.0f32.next_down()), DType::F32)?;
    let x = l.emit(Op::Minimum { a: uniform, b: below_one })?;
    let x = l.emit(Op::Log { x })?;
    let x = l.emit(Op::Neg { x })?;
    let x = l.emit(Op::Log { x })?;
    l.emit(Op::Neg { x })
}

/// From the largest down.
fn descending(l: &mut Lowerer<'_>, x: ValueId) -> Lowered<ValueId> {
    let x = l.emit(Op::Neg { x })?;
    let x = l.emit(Op::Sort { x, axis: -1 })?;
    l.emit(Op::Neg { x })
}

/// Everything below the k-th largest is out.
fn best_k(l: &mut Lowerer<'_>, call: &Call<'_>, scaled: ValueId) -> Lowered<ValueId> {
    let top_k = call.tensor("top_k")?;
    let last = l.at_least(scaled, 1)? - 1;
    let vocabulary = l.whole_number(l.known_dim(scaled, last)?, l.dtype(top_k)?)?;
    let x = l.emit(Op::Minimum { a: top_k, b: vocabulary })?;
    let k = l.emit_int(Op::ItemInt { x })?;
    let at = match l.subtract_ints(k, Int::Literal(1))? {
        Int::Literal(at) => IndexArg::Literal(at),
        Int::Value(at) => IndexArg::Value(at),
    };
    let sorted = descending(l, scaled)?;
    let bound = l.emit(Op::Take { x: sorted, index: at, axis: -1 })?;
    let bound = l.emit(Op::ExpandDims { x: bound, axis: -1 })?;
    without(l, scaled, scaled, bound)
}

/// Tokens are kept as long as those before them have not more than `top_p` of the mass.
fn likeliest(l: &mut Lowerer<'_>, call: &Call<'_>, scaled: ValueId) -> Lowered<ValueId> {
    let top_p = call.tensor("top_p")?;
    let chances = l.emit(Op::Softmax { x: scaled, axis: -1, precise: false })?;
    let sorted = descending(l, chances)?;
    let sums = l.emit(Op::Cumsum { x: sorted, axis: -1, reverse: false, inclusive: true })?;
    let before = l.emit(Op::Subtract { a: sums, b: sorted })?;
    let condition = l.emit(Op::Greater { a: before, b: top_p })?;
    let infinity = l.number(f64::INFINITY, DType::F32)?;
    let kept = l.emit(Op::Where { condition, x: infinity, y: sorted })?;
    let least = l.emit(Op::Min { x: kept, axes: Some(vec![-1]), keepdims: true })?;
    without(l, scaled, chances, least)
}

/// `-inf` where `measure` is below `bound`.
fn without(l: &mut Lowerer<'_>, x: ValueId, measure: ValueId, bound: ValueId) -> Lowered<ValueId> {
    let condition = l.emit(Op::Less { a: measure, b: bound })?;
    let nothing = l.number(f64::NEG_INFINITY, DType::F32)?;
    l.emit(Op::Where { condition, x: nothing, y: x })
}
