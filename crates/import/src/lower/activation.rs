//! Activation functions and softmax.

use super::call::{Call, Int};
use super::context::{Lowerer, Outs, axis_of, one};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use super::shape::cut;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

pub(super) const TABLE: Table = &[
    ("aten.relu.default", |l, call| {
        let x = call.tensor("self")?;
        let zero = l.whole_number(0, l.dtype(x)?)?;
        one(l.emit(Op::Maximum { a: x, b: zero })?)
    }),
    ("aten.relu6.default", |l, call| one(limited(l, call.tensor("self")?, 0.0, 6.0)?)),
    ("aten.hardtanh.default", |l, call| {
        let (low, high) = (call.float("min_val", -1.0)?, call.float("max_val", 1.0)?);
        one(limited(l, call.tensor("self")?, low, high)?)
    }),
    ("aten.leaky_relu.default", |l, call| {
        let slope = call.float("negative_slope", 0.01)?;
        one(leaky(l, call.tensor("self")?, slope)?)
    }),
    ("aten.prelu.default", prelu),
    ("aten._prelu_kernel.default", prelu),
    ("aten.threshold.default", |l, call| {
        let x = call.tensor("self")?;
        let dtype = l.dtype(x)?;
        let (bound, value) =
            (l.number(call.float("threshold", 0.0)?, dtype)?, l.number(call.float("value", 0.0)?, dtype)?);
        let condition = l.emit(Op::Greater { a: x, b: bound })?;
        one(l.emit(Op::Where { condition, x, y: value })?)
    }),
    ("aten.gelu.default", |l, call| {
        let approximate = call.text("approximate", "none")?;
        one(l.emit(Op::Gelu { x: call.tensor("self")?, approximate })?)
    }),
    ("aten.silu.default", |l, call| one(l.emit(Op::Silu { x: call.tensor("self")? })?)),
    ("aten.mish.default", |l, call| {
        let x = call.tensor("self")?;
        let soft = softplus(l, x, 1.0)?;
        let b = l.emit(Op::Tanh { x: soft })?;
        one(l.emit(Op::Multiply { a: x, b })?)
    }),
    ("aten.softplus.default", |l, call| {
        let (beta, threshold) = (call.float("beta", 1.0)?, call.float("threshold", 20.0)?);
        let x = call.tensor("self")?;
        let soft = softplus(l, x, beta)?;
        if threshold >= 20.0 {
            // Beyond 20 the difference from the identity is less than f32 can hold.
            return one(soft);
        }
        let bound = l.number(threshold / beta, l.dtype(x)?)?;
        let condition = l.emit(Op::Greater { a: x, b: bound })?;
        one(l.emit(Op::Where { condition, x, y: soft })?)
    }),
    ("aten.log_sigmoid.default", |l, call| {
        let x = l.emit(Op::Neg { x: call.tensor("self")? })?;
        let soft = softplus(l, x, 1.0)?;
        one(l.emit(Op::Neg { x: soft })?)
    }),
    ("aten.log_sigmoid_forward.default", |l, call| {
        let x = l.emit(Op::Neg { x: call.tensor("self")? })?;
        let soft = softplus(l, x, 1.0)?;
        one(l.emit(Op::Neg { x: soft })?)
    }),
    ("aten.softsign.default", |l, call| {
        let x = call.tensor("self")?;
        let (size, unit) = (l.emit(Op::Abs { x })?, l.number(1.0, l.dtype(x)?)?);
        let below = l.emit(Op::Add { a: size, b: unit })?;
        one(l.emit(Op::Divide { a: x, b: below })?)
    }),
    ("aten.hardsigmoid.default", |l, call| one(hard_sigmoid(l, call.tensor("self")?)?)),
    ("aten.hardswish.default", |l, call| {
        let x = call.tensor("self")?;
        let gate = hard_sigmoid(l, x)?;
        one(l.emit(Op::Multiply { a: x, b: gate })?)
    }),
    ("aten.elu.default", |l, call| {
        let (alpha, scale) = (call.float("alpha", 1.0)?, call.float("scale", 1.0)?);
        one(elu(l, call.tensor("self")?, alpha, scale, call.float("input_scale", 1.0)?)?)
    }),
    ("aten.celu.default", |l, call| {
        let alpha = call.float("alpha", 1.0)?;
        one(elu(l, call.tensor("self")?, alpha, 1.0, 1.0 / alpha)?)
    }),
    ("aten.selu.default", |l, call| {
        one(elu(l, call.tensor("self")?, 1.673_263_242_354_377_2, 1.050_700_987_355_480_5, 1.0)?)
    }),
    ("aten.glu.default", glu),
    ("aten.softmax.int", softmax),
    ("aten._softmax.default", softmax),
    ("aten._safe_softmax.default", softmax),
    ("aten.log_softmax.int", log_softmax),
    ("aten._log_softmax.default", log_softmax),
];

fn limited(l: &mut Lowerer<'_>, x: ValueId, low: f64, high: f64) -> Lowered<ValueId> {
    let dtype = l.dtype(x)?;
    let (low, high) = (l.number(low, dtype)?, l.number(high, dtype)?);
    l.emit(Op::Clip { x, a_min: Some(low), a_max: Some(high) })
}

fn leaky(l: &mut Lowerer<'_>, x: ValueId, slope: f64) -> Lowered<ValueId> {
    let slope_value = l.number(slope, l.dtype(x)?)?;
    let leaked = l.emit(Op::Multiply { a: x, b: slope_value })?;
    if (0.0..=1.0).contains(&slope) {
        return l.emit(Op::Maximum { a: x, b: leaked });
    }
    let zero = l.number(0.0, l.dtype(x)?)?;
    let condition = l.emit(Op::Greater { a: x, b: zero })?;
    l.emit(Op::Where { condition, x, y: leaked })
}

/// Slopes by channel, which is the second axis.
fn prelu(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (x, mut weight) = (call.tensor("self")?, call.tensor("weight")?);
    let rank = l.rank(x)?;
    if l.rank(weight)? == 1 && rank > 2 {
        let mut shape = vec![Int::Literal(1); rank];
        shape[1] = Int::Literal(-1);
        weight = l.reshape(weight, shape)?;
    }
    let leaked = l.emit(Op::Multiply { a: x, b: weight })?;
    let zero = l.number(0.0, l.dtype(x)?)?;
    let condition = l.emit(Op::Greater { a: x, b: zero })?;
    one(l.emit(Op::Where { condition, x, y: leaked })?)
}

/// `log(1 + exp(beta * x)) / beta`.
fn softplus(l: &mut Lowerer<'_>, x: ValueId, beta: f64) -> Lowered<ValueId> {
    let dtype = l.dtype(x)?;
    let zero = l.number(0.0, dtype)?;
    if beta == 1.0 {
        return l.emit(Op::LogAddExp { a: x, b: zero });
    }
    let beta = l.number(beta, dtype)?;
    let scaled = l.emit(Op::Multiply { a: x, b: beta })?;
    let soft = l.emit(Op::LogAddExp { a: scaled, b: zero })?;
    l.emit(Op::Divide { a: soft, b: beta })
}

fn hard_sigmoid(l: &mut Lowerer<'_>, x: ValueId) -> Lowered<ValueId> {
    let dtype = l.dtype(x)?;
    let three = l.number(3.0, dtype)?;
    let moved = l.emit(Op::Add { a: x, b: three })?;
    let cut = limited(l, moved, 0.0, 6.0)?;
    let sixth = l.number(1.0 / 6.0, dtype)?;
    l.emit(Op::Multiply { a: cut, b: sixth })
}

fn elu(l: &mut Lowerer<'_>, x: ValueId, alpha: f64, scale: f64, input_scale: f64) -> Lowered<ValueId> {
    let dtype = l.dtype(x)?;
    let zero = l.number(0.0, dtype)?;
    let condition = l.emit(Op::Greater { a: x, b: zero })?;
    let scaled = |l: &mut Lowerer<'_>, x: ValueId, by: f64| match by == 1.0 {
        true => Ok(x),
        false => {
            let by = l.number(by, dtype)?;
            l.emit(Op::Multiply { a: x, b: by })
        }
    };
    let inside = scaled(l, x, input_scale)?;
    let below = l.emit(Op::Expm1 { x: inside })?;
    let below = scaled(l, below, alpha * scale)?;
    let above = scaled(l, x, scale)?;
    l.emit(Op::Where { condition, x: above, y: below })
}

fn glu(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let x = call.tensor("self")?;
    let axis = l.axis(x, call.int("dim", -1)?)?;
    let size = l.known_dim(x, axis)?;
    if size % 2 != 0 {
        return Err(Refusal::because("an axis of odd size cannot be halved"));
    }
    let half = Int::Literal(size / 2);
    let a = cut(l, x, axis, Int::Literal(0), half)?;
    let gate = cut(l, x, axis, half, Int::Literal(size))?;
    let b = l.emit(Op::Sigmoid { x: gate })?;
    one(l.emit(Op::Multiply { a, b })?)
}

/// The argument in the dtype of the result, and the axis.
fn along(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<(ValueId, i32)> {
    let x = l.cast(call.tensor("self")?, call.result_dtype(0)?)?;
    let axis = axis_of(call.int("dim", -1)?, l.rank(x)?)? as i32;
    Ok((x, axis))
}

fn softmax(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (x, axis) = along(l, call)?;
    // Torch adds up in f32 whatever the dtype.
    let precise = l.dtype(x)? != DType::F32;
    one(l.emit(Op::Softmax { x, axis, precise })?)
}

fn log_softmax(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let (x, axis) = along(l, call)?;
    if l.rank(x)? == 0 {
        return one(l.emit(Op::Subtract { a: x, b: x })?);
    }
    let sum = l.emit(Op::LogSumExp { x, axes: Some(vec![axis]), keepdims: true })?;
    one(l.emit(Op::Subtract { a: x, b: sum })?)
}
