//! Axes folded to one number, and norms.

use pteron_ir::op::IntArg;
use pteron_ir::{Op, Ssa, ValueId};
use pteron_tensor::DType;

use super::arguments::axis_of;
use super::{Call, Given, Lifter, Table, one};
use crate::draft::{Step, problem};

pub(super) const TABLE: Table = &[
    ("aten.mean.dim", |l, call| folded(l, call, |x, axes, keepdims| Op::Mean { x, axes, keepdims })),
    ("aten.sum.dim_IntList", |l, call| folded(l, call, |x, axes, keepdims| Op::Sum { x, axes, keepdims })),
    ("aten.amax.default", |l, call| folded(l, call, |x, axes, keepdims| Op::Max { x, axes, keepdims })),
    ("aten.amin.default", |l, call| folded(l, call, |x, axes, keepdims| Op::Min { x, axes, keepdims })),
    ("aten.var.dim", |l, call| {
        let x = l.tensor(call, 0)?;
        let (axes, ddof, keepdims) = (l.axes(call, 1, x)?, i32::from(l.flag(call, 2)?), l.flag(call, 3)?);
        one(l.emit(Op::Var { x, axes, keepdims, ddof })?)
    }),
    ("aten.argmax.default", |l, call| found(l, call, |x, axis, keepdims| Op::Argmax { x, axis, keepdims })),
    ("aten.argmin.default", |l, call| found(l, call, |x, axis, keepdims| Op::Argmin { x, axis, keepdims })),
    ("aten._softmax.default", |l, call| {
        let (x, axis) = l.along(call)?;
        one(l.emit(Op::Softmax { x, axis, precise: true })?)
    }),
    ("aten._log_softmax.default", |l, call| {
        let (x, axis) = l.along(call)?;
        let all = l.emit(Op::LogSumExp { x, axes: Some(vec![axis]), keepdims: true })?;
        one(l.emit(Op::Subtract { a: x, b: all })?)
    }),
    ("aten.native_layer_norm.default", layer_norm),
    ("aten.native_group_norm.default", group_norm),
    ("aten._native_batch_norm_legit_no_training.default", batch_norm),
    ("et_vk.rms_norm.default", |l, call| {
        let (x, weight, eps) = (l.tensor(call, 0)?, l.maybe_tensor(call, 1)?, l.float(call, 2)? as f32);
        one(l.emit(Op::RMSNorm { x, weight, eps })?)
    }),
];

fn folded(
    l: &mut Lifter<'_>,
    call: &Call<'_>,
    op: impl FnOnce(ValueId, Option<Vec<i32>>, bool) -> Op<Ssa>,
) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    let axes = l.axes(call, 1, x)?;
    let keepdims = l.flag(call, 2)?;
    one(l.emit(op(x, axes, keepdims))?)
}

/// The place of an extreme; without an axis, in the row of all elements.
fn found(l: &mut Lifter<'_>, call: &Call<'_>, op: impl FnOnce(ValueId, i32, bool) -> Op<Ssa>) -> Step<Given> {
    let mut x = l.tensor(call, 0)?;
    let keepdims = l.flag(call, 2)?;
    if l.has(call, 1) {
        let rank = l.rank(x)?;
        let axis = l.axis(call, 1, rank)? as i32;
        return one(l.emit(op(x, axis, keepdims))?);
    }
    if keepdims {
        return problem("the place among all elements, with all axes kept");
    }
    x = l.emit(Op::Reshape { x, shape: vec![IntArg::Literal(-1)] })?;
    one(l.emit(op(x, 0, false))?)
}

fn layer_norm(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    let (axes, rank) = (l.ints(call, 1)?.len(), l.rank(x)?);
    let (mut weight, mut bias) = (l.maybe_tensor(call, 2)?, l.maybe_tensor(call, 3)?);
    let eps = l.float(call, 4)? as f32;
    if axes == 0 || axes > rank {
        return problem(format!("{axes} normalised axes of {rank}"));
    }
    if axes == 1 {
        return Ok(Given::Tensors(vec![l.emit(Op::LayerNorm { x, weight, bias, eps })?]));
    }
    let shape = l.sizes(x)?;
    let mut flat = shape[..rank - axes].to_vec();
    flat.push(IntArg::Literal(-1));
    let x = l.emit(Op::Reshape { x, shape: flat })?;
    for side in [&mut weight, &mut bias].into_iter().flatten() {
        *side = l.emit(Op::Reshape { x: *side, shape: vec![IntArg::Literal(-1)] })?;
    }
    let x = l.emit(Op::LayerNorm { x, weight, bias, eps })?;
    Ok(Given::Tensors(vec![l.emit(Op::Reshape { x, shape })?]))
}

/// Groups of channels as rows, normalised, then scaled by channel.
fn group_norm(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    let (weight, bias) = (l.maybe_tensor(call, 1)?, l.maybe_tensor(call, 2)?);
    let (groups, eps) = (l.int(call, 6)?, l.float(call, 7)? as f32);
    let shape = l.sizes(x)?;
    let Some(&batch) = shape.first() else { return problem("groups of channels of a tensor without dims") };
    let rows = l.emit(Op::Reshape { x, shape: vec![batch, groups, IntArg::Literal(-1)] })?;
    let rows = l.emit(Op::LayerNorm { x: rows, weight: None, bias: None, eps })?;
    let mut value = l.emit(Op::Reshape { x: rows, shape })?;
    if let Some(weight) = weight {
        let weight = l.by_channel(weight, value)?;
        value = l.emit(Op::Multiply { a: value, b: weight })?;
    }
    if let Some(bias) = bias {
        let bias = l.by_channel(bias, value)?;
        value = l.emit(Op::Add { a: value, b: bias })?;
    }
    Ok(Given::Tensors(vec![value]))
}

fn batch_norm(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    let (weight, bias) = (l.maybe_tensor(call, 1)?, l.maybe_tensor(call, 2)?);
    let (mean, variance) = (l.tensor(call, 3)?, l.tensor(call, 4)?);
    let eps = l.float(call, 6)?;
    let wide = l.cast(x, DType::F32)?;
    let mut side = |side: ValueId| -> Step<ValueId> {
        let side = l.cast(side, DType::F32)?;
        l.by_channel(side, wide)
    };
    let (mean, variance) = (side(mean)?, side(variance)?);
    let (weight, bias) = (weight.map(&mut side).transpose()?, bias.map(&mut side).transpose()?);
    let eps = l.number(eps, DType::F32)?;
    let variance = l.emit(Op::Add { a: variance, b: eps })?;
    let mut scale = l.emit(Op::Rsqrt { x: variance })?;
    if let Some(weight) = weight {
        scale = l.emit(Op::Multiply { a: scale, b: weight })?;
    }
    let centred = l.emit(Op::Subtract { a: wide, b: mean })?;
    let mut value = l.emit(Op::Multiply { a: centred, b: scale })?;
    if let Some(bias) = bias {
        value = l.emit(Op::Add { a: value, b: bias })?;
    }
    Ok(Given::Tensors(vec![value]))
}

impl Lifter<'_> {
    /// Axes from the front; an empty list is all of them.
    fn axes(&mut self, call: &Call<'_>, at: usize, x: ValueId) -> Step<Option<Vec<i32>>> {
        let (axes, rank) = (self.known_ints(call, at)?, self.rank(x)?);
        if axes.is_empty() {
            return Ok(None);
        }
        let axes = axes.into_iter().map(|axis| axis_of(axis, rank).map(|axis| axis as i32));
        axes.collect::<Step<Vec<i32>>>().map(Some)
    }

    /// A tensor and one of its axes.
    fn along(&mut self, call: &Call<'_>) -> Step<(ValueId, i32)> {
        let x = self.tensor(call, 0)?;
        let rank = self.rank(x)?;
        Ok((x, self.axis(call, 1, rank)? as i32))
    }

    /// Numbers of channels against a tensor with channels second.
    fn by_channel(&mut self, side: ValueId, x: ValueId) -> Step<ValueId> {
        let rank = self.rank(x)?;
        if rank < 2 {
            return problem(format!("channels of a tensor of {rank} dims"));
        }
        let mut shape = vec![IntArg::Literal(1); rank];
        shape[1] = IntArg::Literal(-1);
        self.emit(Op::Reshape { x: side, shape })
    }
}
