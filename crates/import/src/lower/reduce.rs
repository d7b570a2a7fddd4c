//! Operators that fold axes: sums, means, extremes, norms, running sums.

use super::call::Call;
use super::context::{Bound, Lowerer, Outs, one};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

/// A row for an operator that is one op over axes, in the dtype of the result.
macro_rules! fold {
    ($operator:literal, $Op:ident) => {
        ($operator, |l, call| {
            let x = in_result_dtype(l, call)?;
            let (axes, keepdims) = (axes(l, call, x)?, call.flag("keepdim", false)?);
            one(l.emit(Op::$Op { x, axes, keepdims })?)
        })
    };
}

/// A row for an op that keeps the argument's dtype.
macro_rules! keep {
    ($operator:literal, $Op:ident) => {
        ($operator, |l, call| {
            let x = call.tensor("self")?;
            let (axes, keepdims) = (axes(l, call, x)?, call.flag("keepdim", false)?);
            one(l.emit(Op::$Op { x, axes, keepdims })?)
        })
    };
}

pub(super) const TABLE: Table = &[
    fold!("aten.sum.default", Sum),
    fold!("aten.sum.dim_IntList", Sum),
    fold!("aten.mean.default", Mean),
    fold!("aten.mean.dim", Mean),
    fold!("aten.prod.default", Prod),
    fold!("aten.prod.dim_int", Prod),
    fold!("aten.logsumexp.default", LogSumExp),
    keep!("aten.amax.default", Max),
    keep!("aten.amin.default", Min),
    keep!("aten.max.default", Max),
    keep!("aten.min.default", Min),
    keep!("aten.any.default", Any),
    keep!("aten.any.dim", Any),
    keep!("aten.any.dims", Any),
    keep!("aten.all.default", All),
    keep!("aten.all.dim", All),
    keep!("aten.all.dims", All),
    ("aten.max.dim", |l, call| extreme(l, call, true)),
    ("aten.min.dim", |l, call| extreme(l, call, false)),
    ("aten.argmax.default", |l, call| one(position(l, call, true)?)),
    ("aten.argmin.default", |l, call| one(position(l, call, false)?)),
    ("aten.var.correction", |l, call| one(spread(l, call, false)?)),
    ("aten.var.dim", |l, call| one(spread(l, call, false)?)),
    ("aten.var.default", |l, call| one(spread(l, call, false)?)),
    ("aten.std.correction", |l, call| one(spread(l, call, true)?)),
    ("aten.std.dim", |l, call| one(spread(l, call, true)?)),
    ("aten.std.default", |l, call| one(spread(l, call, true)?)),
    ("aten.var_mean.correction", var_mean),
    ("aten.var_mean.dim", var_mean),
    ("aten.cumsum.default", |l, call| {
        let x = in_result_dtype(l, call)?;
        let axis = l.axis(x, call.int("dim", 0)?)? as i32;
        one(l.emit(Op::Cumsum { x, axis, reverse: false, inclusive: true })?)
    }),
    ("aten.logcumsumexp.default", |_, _| Err(Refusal::Unknown)),
    ("aten.linalg_vector_norm.default", norm),
    ("aten.norm.ScalarOpt_dim", norm),
    ("aten.norm.Scalar", norm),
    ("aten.norm.ScalarOpt_dim_dtype", norm),
    ("aten.count_nonzero.dim_IntList", count_nonzero),
    ("aten.count_nonzero.default", count_nonzero),
];

/// The argument in the dtype of the result, in which torch adds up.
fn in_result_dtype(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<ValueId> {
    let x = call.tensor("self")?;
    l.cast(x, call.result_dtype(0)?)
}

/// The axes that `dim` lists; none is all.
fn axes(l: &Lowerer<'_>, call: &Call<'_>, x: ValueId) -> Lowered<Option<Vec<i32>>> {
    let Some(dims) = call.maybe_ints("dim")? else { return Ok(None) };
    if dims.is_empty() {
        return Ok(None);
    }
    let axes = dims.iter().map(|&dim| Ok(l.axis(x, dim)? as i32));
    let mut axes = axes.collect::<Lowered<Vec<i32>>>()?;
    axes.sort_unstable();
    Ok(Some(axes))
}

fn extreme(l: &mut Lowerer<'_>, call: &Call<'_>, largest: bool) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let axis = l.axis(x, call.int("dim", 0)?)? as i32;
    let keepdims = call.flag("keepdim", false)?;
    let axes = Some(vec![axis]);
    let (value, index) = match largest {
        true => (l.emit(Op::Max { x, axes, keepdims })?, l.emit(Op::Argmax { x, axis, keepdims })?),
        false => (l.emit(Op::Min { x, axes, keepdims })?, l.emit(Op::Argmin { x, axis, keepdims })?),
    };
    Ok(vec![Bound::Tensor(value), Bound::Tensor(index)])
}

fn position(l: &mut Lowerer<'_>, call: &Call<'_>, largest: bool) -> Lowered<ValueId> {
    let mut x = call.tensor("self")?;
    let (mut keepdims, mut shape) = (call.flag("keepdim", false)?, None);
    let axis = match call.maybe_int("dim")? {
        Some(dim) => l.axis(x, dim)? as i32,
        None => {
            if keepdims {
                shape = Some(vec![super::call::Int::Literal(1); l.rank(x)?]);
                keepdims = false;
            }
            x = l.reshape(x, vec![super::call::Int::Literal(-1)])?;
            0
        }
    };
    let found = match largest {
        true => l.emit(Op::Argmax { x, axis, keepdims })?,
        false => l.emit(Op::Argmin { x, axis, keepdims })?,
    };
    match shape {
        Some(shape) => l.reshape(found, shape),
        None => Ok(found),
    }
}

/// Variance or deviation; torch divides by the count less one unless told otherwise.
fn spread(l: &mut Lowerer<'_>, call: &Call<'_>, root: bool) -> Lowered<ValueId> {
    let x = call.tensor("self")?;
    let (axes, keepdims) = (axes(l, call, x)?, call.flag("keepdim", false)?);
    let correction = match call.has("correction") {
        true => call.float("correction", 1.0)?,
        false => f64::from(u8::from(call.flag("unbiased", true)?)),
    };
    if correction.fract() != 0.0 {
        return Err(Refusal::because(format!("a correction of {correction}")));
    }
    let ddof = correction as i32;
    match root {
        true => l.emit(Op::Std { x, axes, keepdims, ddof }),
        false => l.emit(Op::Var { x, axes, keepdims, ddof }),
    }
}

fn var_mean(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let variance = spread(l, call, false)?;
    let x = call.tensor("self")?;
    let (axes, keepdims) = (axes(l, call, x)?, call.flag("keepdim", false)?);
    let mean = l.emit(Op::Mean { x, axes, keepdims })?;
    Ok(vec![Bound::Tensor(variance), Bound::Tensor(mean)])
}

fn norm(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = in_result_dtype(l, call)?;
    let (axes, keepdims) = (axes(l, call, x)?, call.flag("keepdim", false)?);
    let order = if call.has("ord") { call.float("ord", 2.0)? } else { call.float("p", 2.0)? };
    // Squares of f16 overflow at 256; torch adds them up in f32.
    let wide = if l.dtype(x)? == DType::F32 { x } else { l.cast(x, DType::F32)? };
    let found = if order == 2.0 {
        let squares = l.emit(Op::Square { x: wide })?;
        let sum = l.emit(Op::Sum { x: squares, axes, keepdims })?;
        l.emit(Op::Sqrt { x: sum })?
    } else {
        let size = l.emit(Op::Abs { x: wide })?;
        if order == f64::INFINITY {
            l.emit(Op::Max { x: size, axes, keepdims })?
        } else if order == f64::NEG_INFINITY {
            l.emit(Op::Min { x: size, axes, keepdims })?
        } else if order == 1.0 {
            l.emit(Op::Sum { x: size, axes, keepdims })?
        } else if order == 0.0 {
            let zero = l.number(0.0, DType::F32)?;
            let there = l.emit(Op::NotEqual { a: size, b: zero })?;
            let there = l.cast(there, DType::F32)?;
            l.emit(Op::Sum { x: there, axes, keepdims })?
        } else {
            let exponent = l.number(order, DType::F32)?;
            let powers = l.emit(Op::Power { a: size, b: exponent })?;
            let sum = l.emit(Op::Sum { x: powers, axes, keepdims })?;
            let root = l.number(1.0 / order, DType::F32)?;
            l.emit(Op::Power { a: sum, b: root })?
        }
    };
    one(found)
}

fn count_nonzero(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let axes = axes(l, call, x)?;
    let there = l.cast(x, DType::Bool)?;
    let there = l.cast(there, DType::I64)?;
    one(l.emit(Op::Sum { x: there, axes, keepdims: false })?)
}
