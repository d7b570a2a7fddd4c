//! Integers of the program: sizes, elements read from tensors, and arithmetic on both.

use super::call::{Arg, Call, Int};
use super::context::{Bound, Lowerer, Outs};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use pteron_ir::Op;

pub(super) const TABLE: Table = &[
    ("aten.sym_size.int", |l, call| {
        let x = call.tensor("self")?;
        let axis = l.axis(x, call.int("dim", 0)?)?;
        Ok(vec![Bound::Int(l.size(x, axis)?)])
    }),
    ("aten.sym_numel.default", |l, call| {
        let sizes = l.sizes(call.tensor("self")?)?;
        let mut product = Int::Literal(1);
        for size in sizes {
            product = l.multiply_ints(product, size)?;
        }
        Ok(vec![Bound::Int(product)])
    }),
    ("aten.item.default", item),
    ("aten._local_scalar_dense.default", item),
    ("_operator.add", |l, call| {
        let (a, b) = operands(call)?;
        Ok(vec![Bound::Int(l.add_ints(a, b)?)])
    }),
    ("_operator.sub", |l, call| {
        let (a, b) = operands(call)?;
        Ok(vec![Bound::Int(l.subtract_ints(a, b)?)])
    }),
    ("_operator.mul", |l, call| {
        let (a, b) = operands(call)?;
        Ok(vec![Bound::Int(l.multiply_ints(a, b)?)])
    }),
    ("_operator.floordiv", |l, call| {
        let (a, b) = operands(call)?;
        Ok(vec![Bound::Int(l.emit_int(Op::FloorDivideInt { a, b })?)])
    }),
    ("_operator.mod", |l, call| {
        let (a, b) = operands(call)?;
        Ok(vec![Bound::Int(l.emit_int(Op::ModInt { a, b })?)])
    }),
    ("_operator.neg", |l, call| {
        let a = integer(call.at(0)?)?;
        Ok(vec![Bound::Int(l.multiply_ints(a, Int::Literal(-1))?)])
    }),
];

fn item(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    if l.dtype(x)?.is_float() {
        return Err(Refusal::because("a float read from a tensor"));
    }
    Ok(vec![Bound::Int(l.emit_int(Op::ItemInt { x })?)])
}

fn integer(arg: &Arg) -> Lowered<Int> {
    match arg {
        Arg::Int(value) => Ok(*value),
        Arg::Bool(value) => Ok(Int::Literal(i64::from(*value))),
        _ => Err(Refusal::because("arithmetic of something else than integers")),
    }
}

fn operands(call: &Call<'_>) -> Lowered<(Int, Int)> {
    Ok((integer(call.at(0)?)?, integer(call.at(1)?)?))
}
