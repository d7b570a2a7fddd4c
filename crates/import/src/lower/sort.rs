//! Order along an axis.

use super::call::{Call, Int};
use super::context::{Bound, Lowerer, Outs, one};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

pub(super) const TABLE: Table = &[
    ("aten.sort.default", sort),
    ("aten.sort.stable", sort),
    ("aten.argsort.default", |l, call| one(order(l, call)?)),
    ("aten.argsort.stable", |l, call| one(order(l, call)?)),
    ("aten.topk.default", topk),
];

fn sort(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let axis = l.axis(x, call.int("dim", -1)?)? as i32;
    let mut sorted = l.emit(Op::Sort { x, axis })?;
    if call.flag("descending", false)? {
        sorted = l.emit(Op::Flip { x: sorted, axes: vec![axis] })?;
    }
    let indices = order(l, call)?;
    Ok(vec![Bound::Tensor(sorted), Bound::Tensor(indices)])
}

/// Indices that sort, equal elements in their own order. Downward: the mirrored tensor is sorted upward and the
/// result mirrored back, so that equal elements keep their order and NaN comes first, as in torch.
fn order(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<ValueId> {
    let x = call.tensor("self")?;
    let axis = l.axis(x, call.int("dim", -1)?)?;
    let at = axis as i32;
    if !call.flag("descending", false)? {
        return l.emit(Op::Argsort { x, axis: at });
    }
    let mirrored = l.emit(Op::Flip { x, axes: vec![at] })?;
    let up = l.emit(Op::Argsort { x: mirrored, axis: at })?;
    let down = l.emit(Op::Flip { x: up, axes: vec![at] })?;
    let size = if l.rank(x)? == 0 { Int::Literal(1) } else { l.size(x, axis)? };
    let last = l.subtract_ints(size, Int::Literal(1))?;
    let last = match last {
        Int::Literal(last) => l.whole_number(last, DType::I64)?,
        Int::Value(last) => l.scalar_tensor(super::call::Scalar::Value(last), DType::I64)?,
    };
    let down = l.cast(down, DType::I64)?;
    l.emit(Op::Subtract { a: last, b: down })
}

/// The order of all elements, cut: equal ones may come in any order.
fn topk(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let axis = l.axis(x, call.int("dim", -1)?)?;
    let k = call.any_int("k", 1)?;
    if l.rank(x)? == 0 {
        return Err(Refusal::because("the largest of a tensor without dims"));
    }
    let up = l.emit(Op::Argsort { x, axis: axis as i32 })?;
    let at = Int::Literal(axis as i64);
    let indices = match call.flag("largest", true)? {
        true => {
            // From the last element down to the k-th from the end.
            let minus = l.multiply_ints(k, Int::Literal(-1))?;
            let stop = l.add_ints(minus, Int::Literal(-1))?;
            l.emit(Op::Slice { x: up, axis: at, start: Int::Literal(-1), stop, step: -1 })?
        }
        false => l.emit(Op::Slice { x: up, axis: at, start: Int::Literal(0), stop: k, step: 1 })?,
    };
    let values = l.emit(Op::TakeAlongAxis { x, indices, axis: axis as i32 })?;
    Ok(vec![Bound::Tensor(values), Bound::Tensor(indices)])
}
