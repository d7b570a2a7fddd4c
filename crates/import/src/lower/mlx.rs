//! ExecuTorch's custom operators for MLX that are recurrences or codes of cached keys and values.

use super::call::{Call, Int};
use super::context::{Bound, Lowerer, Outs, one};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use pteron_ir::op::{FloatArg, IndexArg};
use pteron_ir::{Op, Type, ValueId};
use pteron_models::blocks::DeltaDims;
use pteron_tensor::DType;

pub(super) const TABLE: Table = &[
    ("mlx.gated_delta_rule.functional", gated_delta_rule),
    ("mlx.tq_norm.default", tq_norm),
    ("mlx.tq4_compress.default", tq4_compress),
    ("mlx.tq_dequant.default", tq_dequant),
];

/// Sizes that a kernel is made for.
struct Heads {
    keys: i64,
    values: i64,
    key_features: i64,
    value_features: i64,
}

fn gated_delta_rule(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let names = ["q", "k", "v", "g", "beta", "state"];
    let inputs = names.iter().map(|name| call.tensor(name)).collect::<Lowered<Vec<_>>>()?;
    let (q, v) = (inputs[0], inputs[2]);
    let heads = Heads {
        keys: l.known_dim(q, 2)?,
        values: l.known_dim(v, 2)?,
        key_features: l.known_dim(q, 3)?,
        value_features: l.known_dim(v, 3)?,
    };
    let kernel = call.flag("use_custom_kernel", true)? && heads.key_features % 32 == 0;
    let outs = match kernel {
        true => by_kernel(l, &inputs, &heads)?,
        false => by_scan(l, &inputs, &heads)?,
    };
    Ok(outs.into_iter().map(Bound::Tensor).collect())
}

fn by_kernel(l: &mut Lowerer<'_>, inputs: &[ValueId], heads: &Heads) -> Lowered<Vec<ValueId>> {
    let beyond = || Refusal::because("a size beyond 32 bits");
    let size = |size: i64| usize::try_from(size).map_err(|_| beyond());
    let &[q, k, v, g, beta, state] = inputs else { return Err(Refusal::because("six inputs are needed")) };
    let dtype = l.dtype(q)?;
    let (batch, tokens) = (l.size(q, 0)?, l.size(q, 1)?);
    let dims = DeltaDims {
        batch,
        tokens,
        states: l.multiply_ints(batch, Int::Literal(heads.values))?,
        key_heads: size(heads.keys)?,
        value_heads: size(heads.values)?,
        key_dim: size(heads.key_features)?,
        value_dim: size(heads.value_features)?,
    };
    let count = match tokens {
        Int::Literal(tokens) => FloatArg::Literal(tokens as f64),
        Int::Value(tokens) => FloatArg::Value(tokens),
    };
    let count = l.emit(Op::Full { shape: Vec::new(), v: count, scalar_type: DType::I32 })?;
    l.emit_all(dims.op([q, k, v, g, beta, state], count, dtype).ok_or_else(beyond)?)
}

/// The same step by step, in ops.
fn by_scan(l: &mut Lowerer<'_>, inputs: &[ValueId], heads: &Heads) -> Lowered<Vec<ValueId>> {
    let &[mut q, mut k, v, g, beta, state] = inputs else {
        return Err(Refusal::because("six inputs are needed"));
    };
    if heads.keys != heads.values {
        let repeats = Int::Literal(heads.values / heads.keys.max(1));
        q = l.emit(Op::Repeat { x: q, repeats, axis: 2 })?;
        k = l.emit(Op::Repeat { x: k, repeats, axis: 2 })?;
    }
    let originals = vec![q, k, v, g, beta];
    let mut params = Vec::new();
    for &original in &originals {
        let mut ty = l.ty(original)?;
        ty.shape.remove(1);
        params.push(Type::Tensor(ty));
    }
    params.push(Type::Tensor(l.ty(state)?));
    let params = l.builder().open_block(params);
    let body = step(l, &params);
    let body_chain_idx = l.builder().close_block(body.clone().unwrap_or_default());
    body?;
    l.emit_all(Op::Scan { originals, sliced: (), carry: vec![state], body_chain_idx, scan_axis: 1 })
}

/// One step: what is seen, and the next state.
fn step(l: &mut Lowerer<'_>, params: &[ValueId]) -> Lowered<Vec<ValueId>> {
    let &[q, k, v, g, beta, state] = params else { return Err(Refusal::because("six values are needed")) };
    let dtype = l.dtype(state)?;
    let column = |l: &mut Lowerer<'_>, x: ValueId, axis: i32| l.emit(Op::ExpandDims { x, axis });
    let row_sum =
        |l: &mut Lowerer<'_>, x: ValueId| l.emit(Op::Sum { x, axes: Some(vec![-1]), keepdims: false });
    let fade = column(l, g, -1)?;
    let fade = column(l, fade, -1)?;
    let state = l.emit(Op::Multiply { a: state, b: fade })?;
    let key = column(l, k, -2)?;
    let met = l.emit(Op::Multiply { a: state, b: key })?;
    let met = row_sum(l, met)?;
    let gap = l.emit(Op::Subtract { a: v, b: met })?;
    let rate = column(l, beta, -1)?;
    let change = l.emit(Op::Multiply { a: gap, b: rate })?;
    let change = column(l, change, -1)?;
    let change = l.emit(Op::Multiply { a: key, b: change })?;
    let state = l.emit(Op::Add { a: state, b: change })?;
    let state = l.cast(state, dtype)?;
    let query = column(l, q, -2)?;
    let seen = l.emit(Op::Multiply { a: state, b: query })?;
    Ok(vec![row_sum(l, seen)?, state])
}

/// The length of every row, added up in f32.
fn tq_norm(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("x")?;
    let x = l.cast(x, DType::F32)?;
    let squares = l.emit(Op::Square { x })?;
    let sum = l.emit(Op::Sum { x: squares, axes: Some(vec![-1]), keepdims: true })?;
    one(l.emit(Op::Sqrt { x: sum })?)
}

/// A code counts the boundaries below its value; of two codes the first is in the high nibble.
fn tq4_compress(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (values, boundaries) = (call.tensor("values")?, call.tensor("boundaries")?);
    let axis = l.at_least(values, 1)?;
    let apart = l.emit(Op::ExpandDims { x: values, axis: axis as i32 })?;
    let above = l.emit(Op::Greater { a: apart, b: boundaries })?;
    let codes = l.emit(Op::Sum { x: above, axes: Some(vec![-1]), keepdims: false })?;
    let codes = l.cast(codes, DType::U8)?;
    let last = Int::Literal(axis as i64 - 1);
    let size = Int::Literal(l.known_dim(values, axis - 1)?);
    let half =
        |start: i64| Op::Slice { x: codes, axis: last, start: Int::Literal(start), stop: size, step: 2 };
    let (high, low) = (l.emit(half(0))?, l.emit(half(1))?);
    let sixteen = l.whole_number(16, DType::U8)?;
    let high = l.emit(Op::Multiply { a: high, b: sixteen })?;
    one(l.emit(Op::BitwiseOr { a: high, b: low })?)
}

/// Codes to centroids, times the row's length.
fn tq_dequant(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (packed, norms, centroids) =
        (call.tensor("packed")?, call.tensor("norms")?, call.tensor("centroids")?);
    let axis = l.at_least(packed, 1)?;
    let sixteen = l.whole_number(16, DType::U8)?;
    let fifteen = l.whole_number(15, DType::U8)?;
    let high = l.emit(Op::FloorDivide { a: packed, b: sixteen })?;
    let low = l.emit(Op::BitwiseAnd { a: packed, b: fifteen })?;
    let pairs = l.emit(Op::Stack { tensors: vec![high, low], axis: axis as i32 })?;
    let mut shape = l.sizes(packed)?;
    shape[axis - 1] = l.multiply_ints(shape[axis - 1], Int::Literal(2))?;
    let codes = l.reshape(pairs, shape)?;
    let found = l.emit(Op::Take { x: centroids, index: IndexArg::Tensor(codes), axis: 0 })?;
    one(l.emit(Op::Multiply { a: found, b: norms })?)
}
