//! Operators of one tensor, element by element.

use super::call::Call;
use super::context::{Lowerer, Outs, one};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use pteron_ir::{Op, Ssa, ValueId};
use pteron_tensor::DType;

/// A row for an operator that is one op of its argument.
macro_rules! direct {
    ($operator:literal, $Op:ident) => {
        ($operator, |l, call| {
            let x = float_or_kept(l, call)?;
            one(l.emit(Op::$Op { x })?)
        })
    };
}

pub(super) const TABLE: Table = &[
    direct!("aten.abs.default", Abs),
    direct!("aten.acos.default", Arccos),
    direct!("aten.acosh.default", Arccosh),
    direct!("aten.asin.default", Arcsin),
    direct!("aten.asinh.default", Arcsinh),
    direct!("aten.atan.default", Arctan),
    direct!("aten.atanh.default", Arctanh),
    direct!("aten.arccos.default", Arccos),
    direct!("aten.arccosh.default", Arccosh),
    direct!("aten.arcsin.default", Arcsin),
    direct!("aten.arcsinh.default", Arcsinh),
    direct!("aten.arctan.default", Arctan),
    direct!("aten.arctanh.default", Arctanh),
    direct!("aten.absolute.default", Abs),
    direct!("aten.ceil.default", Ceil),
    direct!("aten.cos.default", Cos),
    direct!("aten.cosh.default", Cosh),
    direct!("aten.erf.default", Erf),
    direct!("aten.special_erf.default", Erf),
    direct!("aten.exp.default", Exp),
    direct!("aten.expm1.default", Expm1),
    direct!("aten.floor.default", Floor),
    direct!("aten.log.default", Log),
    direct!("aten.log10.default", Log10),
    direct!("aten.log1p.default", Log1p),
    direct!("aten.log2.default", Log2),
    direct!("aten.neg.default", Neg),
    direct!("aten.negative.default", Neg),
    direct!("aten.reciprocal.default", Reciprocal),
    direct!("aten.rsqrt.default", Rsqrt),
    direct!("aten.sigmoid.default", Sigmoid),
    direct!("aten.special_expit.default", Sigmoid),
    direct!("aten.sign.default", Sign),
    direct!("aten.sgn.default", Sign),
    direct!("aten.sin.default", Sin),
    direct!("aten.sinh.default", Sinh),
    direct!("aten.sqrt.default", Sqrt),
    direct!("aten.square.default", Square),
    direct!("aten.tan.default", Tan),
    direct!("aten.tanh.default", Tanh),
    direct!("aten.trunc.default", Trunc),
    direct!("aten.fix.default", Trunc),
    ("aten.round.default", |l, call| one(round(l, call, 0)?)),
    ("aten.round.decimals", |l, call| one(round(l, call, call.int("decimals", 0)?)?)),
    ("aten.frac.default", |l, call| {
        let x = call.tensor("self")?;
        let whole = l.emit(Op::Trunc { x })?;
        one(l.emit(Op::Subtract { a: x, b: whole })?)
    }),
    ("aten.exp2.default", |l, call| {
        let x = float_or_kept(l, call)?;
        let two = l.number(2.0, l.dtype(x)?)?;
        one(l.emit(Op::Power { a: two, b: x })?)
    }),
    ("aten.erfc.default", |l, call| {
        let x = float_or_kept(l, call)?;
        let erf = l.emit(Op::Erf { x })?;
        let unit = l.number(1.0, l.dtype(erf)?)?;
        one(l.emit(Op::Subtract { a: unit, b: erf })?)
    }),
    ("aten.logical_not.default", |l, call| one(l.emit(Op::LogicalNot { x: call.tensor("self")? })?)),
    ("aten.bitwise_not.default", |l, call| one(l.emit(Op::BitwiseInvert { x: call.tensor("self")? })?)),
    ("aten.isnan.default", |l, call| {
        let x = call.tensor("self")?;
        one(l.emit(Op::NotEqual { a: x, b: x })?)
    }),
    ("aten.isinf.default", isinf),
    ("aten.isfinite.default", |l, call| {
        let x = call.tensor("self")?;
        if !l.dtype(x)?.is_float() {
            return one(l.emit(Op::Equal { a: x, b: x })?);
        }
        let size = l.emit(Op::Abs { x })?;
        let infinity = l.number(f64::INFINITY, l.dtype(x)?)?;
        one(l.emit(Op::Less { a: size, b: infinity })?)
    }),
    ("aten.positive.default", |_, call| one(call.tensor("self")?)),
    ("aten.clone.default", copy),
    ("aten.lift_fresh_copy.default", copy),
    ("aten.alias_copy.default", copy),
    ("aten.detach_copy.default", copy),
    ("aten.alias.default", copy),
    ("aten.detach.default", copy),
    ("aten.contiguous.default", copy),
    ("aten.dropout.default", dropout),
    ("aten.feature_dropout.default", dropout),
    ("aten.to.dtype", convert),
    ("aten.to.dtype_layout", convert),
    ("aten.to.device", convert),
    ("aten.to.other", convert),
    ("aten.to.prim_Device", convert),
    ("aten.type_as.default", convert),
    ("aten._to_copy.default", convert),
    ("aten.float.default", convert),
    ("dim_order_ops._to_dim_order_copy.default", convert),
    ("dim_order_ops._clone_dim_order.default", copy),
];

/// The argument; integers become floats where the result is one.
fn float_or_kept(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<ValueId> {
    let (x, wanted) = (call.tensor("self")?, call.result_dtype(0)?);
    match wanted.is_float() && !l.dtype(x)?.is_float() {
        true => l.cast(x, wanted),
        false => Ok(x),
    }
}

/// A copy: values do not change here, so that the tensor itself will do.
fn copy(_: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    one(call.tensor("self")?)
}

/// The result's dtype is the whole of it; whoever binds the result converts.
fn convert(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    one(l.cast(x, call.result_dtype(0)?)?)
}

fn dropout(_: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    if call.flag("train", false)? && call.float("p", 0.5)? > 0.0 {
        return Err(Refusal::because("dropout in training mode; call model.eval() before export"));
    }
    let name = if call.has("input") { "input" } else { "self" };
    one(call.tensor(name)?)
}

fn round(l: &mut Lowerer<'_>, call: &Call<'_>, decimals: i64) -> Lowered<ValueId> {
    let decimals = i32::try_from(decimals).map_err(|_| Refusal::because("that many decimals"))?;
    let x = call.tensor("self")?;
    l.emit(Op::<Ssa>::Round { x, decimals })
}

fn isinf(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let dtype = l.dtype(x)?;
    if !dtype.is_float() {
        return one(l.emit(Op::NotEqual { a: x, b: x })?);
    }
    let size = l.emit(Op::Abs { x })?;
    let infinity = l.number(f64::INFINITY, if dtype == DType::Bool { DType::F32 } else { dtype })?;
    one(l.emit(Op::Equal { a: size, b: infinity })?)
}
