//! Attention over caches that a program keeps, as nodes. A call that begins at a negative position, or that ends behind its
//! cache, is an error of the operators; here negative ones count from the end.

use super::{Nodes, Operand, int};
use crate::Value;
use pteron_ir::op::IntArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

/// Positions, and heads, of queries and caches `[batch, positions, heads, features]`.
const POSITIONS: i32 = 1;
const HEADS_FIRST: [i32; 4] = [0, 2, 1, 3];

/// One behind the last position of a call whose tokens begin at `start`.
fn end(nodes: &mut Nodes<'_>, tokens: ValueId, start: IntArg<ValueId>) -> Option<IntArg<ValueId>> {
    let count = nodes.append(Op::SymSize { a: tokens, dim: POSITIONS })?;
    let end = nodes.append(Op::AddInt { a: start, b: IntArg::Value(count) })?;
    Some(IntArg::Value(end))
}

/// A cache with what a call adds to it.
pub(super) fn update(
    nodes: &mut Nodes<'_>,
    cache: ValueId,
    new: ValueId,
    start: &Operand,
) -> Option<ValueId> {
    if nodes.dtype(cache)? != nodes.dtype(new)? || nodes.rank(cache)? != 4 || nodes.rank(new)? != 4 {
        return None;
    }
    // The operator takes no other sizes, and a node would repeat what has one.
    let is_alike = |axis| Some(nodes.size(cache, axis)? == nodes.size(new, axis)?);
    if ![is_alike(0)?, is_alike(2)?, is_alike(3)?].iter().all(|alike| *alike) {
        return None;
    }
    let start = int(start)?;
    let stop = end(nodes, new, start)?;
    let axis = IntArg::Literal(POSITIONS.into());
    nodes.append(Op::SliceUpdate { dst: cache, update: new, axis, start, stop, step: 1 })
}

/// What queries find in caches: mask, whether it is causal, and scale are the operator's.
pub(super) fn attend(
    nodes: &mut Nodes<'_>,
    [q, k, v]: [ValueId; 3],
    start: &Operand,
    (mask, causal, scale): (&Operand, &Value, &Operand),
) -> Option<ValueId> {
    let dtype = nodes.dtype(q)?;
    let is_float = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    if !is_float || [k, v].iter().any(|&side| nodes.dtype(side) != Some(dtype)) {
        return None;
    }
    let scale = match scale {
        Operand::Fixed(Value::Float(scale)) => *scale as f32,
        Operand::Fixed(Value::None) => 1.0 / (nodes.size(q, 3)? as f32).sqrt(),
        _ => return None,
    };
    let (mask, causal) = match (mask, causal) {
        (Operand::Fixed(Value::None), Value::Bool(causal)) => (None, *causal),
        (Operand::Tensor(mask), Value::Bool(false)) => (Some(*mask), false),
        _ => return None,
    };
    let stop = match mask {
        None => Some(end(nodes, q, int(start)?)?),
        Some(_) => None,
    };
    let mut seen = |x: ValueId| {
        let axis = IntArg::Literal(POSITIONS.into());
        let x = match stop {
            Some(stop) => nodes.append(Op::Slice { x, axis, start: IntArg::Literal(0), stop, step: 1 })?,
            None => x,
        };
        nodes.append(Op::Transpose { x, perm: HEADS_FIRST.to_vec() })
    };
    let (k, v) = (seen(k)?, seen(v)?);
    let q = nodes.append(Op::Transpose { x: q, perm: HEADS_FIRST.to_vec() })?;
    let x = nodes.append(Op::Sdpa { q, k, v, scale, mask, causal })?;
    nodes.append(Op::Transpose { x, perm: HEADS_FIRST.to_vec() })
}
