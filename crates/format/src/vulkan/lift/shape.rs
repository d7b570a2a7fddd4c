//! Operators that move elements: views, cuts, joins, and elements picked by indices.

use pteron_ir::op::{IndexArg, IntArg};
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::arguments::axis_of;
use super::{Call, Given, Lifter, Table, one};
use crate::draft::{Int, Part, Step, problem, small};

pub(super) const TABLE: Table = &[
    ("aten.view_copy.default", |l, call| {
        let (x, shape) = (l.tensor(call, 0)?, l.ints(call, 1)?);
        one(l.emit(Op::Reshape { x, shape })?)
    }),
    ("aten.squeeze_copy.dims", |l, call| {
        let (x, axes) = l.tensor_and_axes(call)?;
        // An axis that is not of size 1 stays.
        let shape = &l.ty(Part::Main, x)?.shape;
        let is_one = |axis: &i32| shape.get(*axis as usize).is_some_and(|dim| dim.as_known() == Some(1));
        let dims: Vec<i32> = axes.into_iter().filter(is_one).collect();
        if dims.is_empty() { one(x) } else { one(l.emit(Op::Squeeze { x, dims: Some(dims) })?) }
    }),
    ("aten.unsqueeze_copy.default", |l, call| {
        let x = l.tensor(call, 0)?;
        let rank = l.rank(x)?;
        let axis = l.axis(call, 1, rank + 1)? as i32;
        one(l.emit(Op::ExpandDims { x, axis })?)
    }),
    ("aten.permute.default", permute),
    ("aten.permute_copy.default", permute),
    ("aten.t_copy.default", |l, call| {
        let x = l.tensor(call, 0)?;
        if l.rank(x)? < 2 { one(x) } else { one(l.swapped(x)?) }
    }),
    ("aten.expand_copy.default", expand),
    ("aten.repeat.default", |l, call| {
        let (x, reps) = (l.tensor(call, 0)?, l.ints(call, 1)?);
        one(l.emit(Op::Tile { x, reps })?)
    }),
    ("aten.repeat_interleave.self_int", |l, call| {
        let x = l.tensor(call, 0)?;
        let rank = l.rank(x)?;
        let (repeats, axis) = (l.int(call, 1)?, l.axis(call, 2, rank)? as i32);
        one(l.emit(Op::Repeat { x, repeats, axis })?)
    }),
    ("aten.flip.default", |l, call| {
        let (x, axes) = l.tensor_and_axes(call)?;
        one(l.emit(Op::Flip { x, axes })?)
    }),
    ("aten.cat.default", |l, call| {
        let tensors = l.tensors(call, 0)?.into_iter().flatten().collect::<Vec<_>>();
        let Some(&first) = tensors.first() else { return problem("nothing is joined") };
        let rank = l.rank(first)?;
        let axis = l.axis(call, 1, rank)? as i32;
        one(l.emit(Op::Concatenate { tensors, axis })?)
    }),
    ("aten.select.int", select),
    ("aten.select_copy.int", select),
    ("et_vk.select_as_symint.default", |l, call| {
        let Given::Tensor(x) = select(l, call)? else { return problem("it selects no tensor") };
        Ok(Given::Int(l.integer(Op::ItemInt { x })?))
    }),
    ("aten.slice.Tensor", slice),
    ("aten.slice_copy.Tensor", slice),
    ("aten.split_with_sizes_copy.default", |l, call| {
        let x = l.tensor(call, 0)?;
        let (sizes, rank) = (l.ints(call, 1)?, l.rank(x)?);
        let axis = l.axis(call, 2, rank)?;
        split(l, x, &sizes, axis)
    }),
    ("aten.unfold_copy.default", unfold),
    ("aten.constant_pad_nd.default", pad),
    ("aten.embedding.default", |l, call| {
        let (x, index) = (l.tensor(call, 0)?, l.tensor(call, 1)?);
        one(l.emit(Op::Take { x, index: IndexArg::Tensor(index), axis: 0 })?)
    }),
    ("aten.index_select.default", |l, call| {
        let (x, index) = (l.tensor(call, 0)?, l.tensor(call, 2)?);
        let rank = l.rank(x)?;
        let axis = l.axis(call, 1, rank)? as i32;
        one(l.emit(Op::Take { x, index: IndexArg::Tensor(index), axis })?)
    }),
    ("aten.index.Tensor", |l, call| {
        let (x, indices) = (l.tensor(call, 0)?, l.tensors(call, 1)?);
        let mut given = indices.into_iter().enumerate().filter_map(|(axis, index)| Some((axis, index?)));
        match (given.next(), given.next()) {
            (None, _) => one(x),
            (Some((axis, index)), None) if l.dtype(index)? != DType::Bool => {
                one(l.emit(Op::Take { x, index: IndexArg::Tensor(index), axis: axis as i32 })?)
            }
            (Some(_), None) => problem("elements picked by truth values"),
            _ => problem("elements picked along several axes"),
        }
    }),
    ("aten.gather.default", gather),
    ("aten.pixel_shuffle.default", |l, call| {
        let (x, factor) = (l.tensor(call, 0)?, l.known_int(call, 1)?);
        one(l.shuffled(x, factor)?)
    }),
];

fn permute(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let (x, perm) = l.tensor_and_axes(call)?;
    one(l.emit(Op::Transpose { x, perm })?)
}

/// -1 keeps a size, which counts from the last axis.
fn expand(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let (x, mut shape) = (l.tensor(call, 0)?, l.ints(call, 1)?);
    let rank = l.rank(x)?;
    let Some(new) = shape.len().checked_sub(rank) else {
        return problem(format!("{rank} dims expanded to {}", shape.len()));
    };
    for axis in 0..rank {
        if shape[new + axis] == IntArg::Literal(-1) {
            shape[new + axis] = l.size(x, axis)?;
        }
    }
    one(l.emit(Op::BroadcastTo { x, shape })?)
}

fn select(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    let rank = l.rank(x)?;
    let axis = l.axis(call, 1, rank)?;
    let index = match l.int(call, 2)? {
        IntArg::Literal(index) if index < 0 => l.counted_back(x, axis, index)?,
        index => index,
    };
    let index = match index {
        IntArg::Literal(index) => IndexArg::Literal(index),
        IntArg::Value(value) => IndexArg::Value(value),
    };
    one(l.emit(Op::Take { x, index, axis: axis as i32 })?)
}

fn slice(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    let rank = l.rank(x)?;
    let axis = if l.has(call, 1) { l.axis(call, 1, rank)? } else { 0 };
    let start = if l.has(call, 2) { l.int(call, 2)? } else { IntArg::Literal(0) };
    let stop = if l.has(call, 3) { l.int(call, 3)? } else { IntArg::Literal(i64::MAX) };
    let step = if l.has(call, 4) { small("a step", l.known_int(call, 4)?)? } else { 1 };
    if step < 1 {
        return problem(format!("a step of {step}"));
    }
    one(l.cut(x, axis, start, stop, step)?)
}

fn split(l: &mut Lifter<'_>, x: ValueId, sizes: &[Int], axis: usize) -> Step<Given> {
    let (mut start, mut pieces) = (IntArg::Literal(0), Vec::with_capacity(sizes.len()));
    for &size in sizes {
        let stop = l.plus(start, size)?;
        pieces.push(l.cut(x, axis, start, stop, 1)?);
        start = stop;
    }
    Ok(Given::Tensors(pieces))
}

/// Windows along one axis, which go behind all others.
fn unfold(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    let rank = l.rank(x)?;
    let axis = l.axis(call, 1, rank)?;
    let (size, step) = (l.known_int(call, 2)?, l.known_int(call, 3)?);
    let whole = l.size(x, axis)?;
    let is_too_wide = matches!(whole, IntArg::Literal(whole) if size > whole);
    let is_countable = (size as u64).saturating_mul(4) <= l.limits.decoded_bytes;
    if size < 1 || step < 1 || is_too_wide || !is_countable {
        return problem(format!("windows of {size} elements by {step} that do not fit"));
    }
    let end = l.plus(whole, IntArg::Literal(1 - size))?;
    let firsts = counted(l, end, step)?;
    let firsts = l.emit(Op::ExpandDims { x: firsts, axis: 1 })?;
    let within = counted(l, IntArg::Literal(size), 1)?;
    let index = l.emit(Op::Add { a: firsts, b: within })?;
    let picked = l.emit(Op::Take { x, index: IndexArg::Tensor(index), axis: axis as i32 })?;
    let mut perm: Vec<i32> = (0..=rank as i32).collect();
    let window = perm.remove(axis + 1);
    perm.push(window);
    one(l.emit(Op::Transpose { x: picked, perm })?)
}

/// From 0 to `stop` by `step`.
fn counted(l: &mut Lifter<'_>, stop: Int, step: i64) -> Step<ValueId> {
    let [start, step] = [0, step].map(IntArg::Literal);
    l.emit(Op::ARange { start, stop, step, scalar_type: Some(DType::I32) })
}

/// Widths come in pairs from the last axis on; negative ones cut.
fn pad(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let (mut x, widths) = (l.tensor(call, 0)?, l.known_ints(call, 1)?);
    let rank = l.rank(x)?;
    let number = l.maybe_float(call, 2)?.unwrap_or(0.0);
    if widths.len() % 2 != 0 || widths.len() / 2 > rank {
        return problem(format!("{} widths for {rank} dims", widths.len()));
    }
    let mut pad_width = vec![IntArg::Literal(0); 2 * rank];
    for (from_end, pair) in widths.chunks(2).enumerate() {
        let axis = rank - 1 - from_end;
        if pair.iter().any(|width| *width < 0) {
            let start = IntArg::Literal(pair[0].min(0).saturating_neg());
            let stop = if pair[1] < 0 { IntArg::Literal(pair[1]) } else { IntArg::Literal(i64::MAX) };
            x = l.cut(x, axis, start, stop, 1)?;
        }
        for (side, &width) in pair.iter().enumerate() {
            pad_width[2 * axis + side] = IntArg::Literal(small("padding", width.max(0))?.into());
        }
    }
    if pad_width.iter().all(|width| *width == IntArg::Literal(0)) {
        return one(x);
    }
    one(l.emit(Op::Pad { x, pad_width, mode: "constant".into(), constant_value: number as f32 })?)
}

/// Torch looks only at the part of the tensor that the index covers on other axes; the op broadcasts.
fn gather(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let (mut x, indices) = (l.tensor(call, 0)?, l.tensor(call, 2)?);
    let rank = l.rank(x)?;
    let axis = l.axis(call, 1, rank)?;
    l.of_rank(indices, rank)?;
    for at in (0..rank).filter(|at| *at != axis) {
        let (whole, covered) = (l.size(x, at)?, l.size(indices, at)?);
        if whole != covered {
            x = l.cut(x, at, IntArg::Literal(0), covered, 1)?;
        }
    }
    one(l.emit(Op::TakeAlongAxis { x, indices, axis: axis as i32 })?)
}

impl Lifter<'_> {
    fn tensor_and_axes(&mut self, call: &Call<'_>) -> Step<(ValueId, Vec<i32>)> {
        let x = self.tensor(call, 0)?;
        let (axes, rank) = (self.known_ints(call, 1)?, self.rank(x)?);
        let axes = axes.into_iter().map(|axis| axis_of(axis, rank).map(|axis| axis as i32));
        Ok((x, axes.collect::<Step<_>>()?))
    }

    /// A place that counts from the end of an axis.
    fn counted_back(&mut self, x: ValueId, axis: usize, place: i64) -> Step<Int> {
        let size = self.size(x, axis)?;
        self.plus(size, IntArg::Literal(place))
    }

    /// A range of an axis.
    pub(super) fn cut(&mut self, x: ValueId, axis: usize, start: Int, stop: Int, step: i32) -> Step<ValueId> {
        // Beyond the end is the end.
        let near = |place: Int| match place {
            IntArg::Literal(place) => IntArg::Literal(place.clamp(i32::MIN.into(), i32::MAX.into())),
            place => place,
        };
        let (start, stop) = (near(start), near(stop));
        if (start, stop, step) == (IntArg::Literal(0), IntArg::Literal(i32::MAX.into()), 1) {
            return Ok(x);
        }
        self.emit(Op::Slice { x, axis: IntArg::Literal(axis as i64), start, stop, step })
    }

    /// Channels as squares of `factor` by `factor` elements.
    pub(super) fn shuffled(&mut self, x: ValueId, factor: i64) -> Step<ValueId> {
        let rank = self.rank(x)?;
        let Some(first) = rank.checked_sub(3) else { return problem(format!("channels of {rank} dims")) };
        if !(1..=i64::from(i32::MAX)).contains(&factor) {
            return problem(format!("a factor of {factor}"));
        }
        let sizes = self.sizes(x)?;
        let (batch, [channels, rows, columns]) = (&sizes[..first], [0, 1, 2].map(|at| sizes[first + at]));
        let (f, squares) = (IntArg::Literal(factor), factor.saturating_mul(factor));
        let channels = self.divided(channels, squares)?;
        let mut shape = batch.to_vec();
        shape.extend([channels, f, f, rows, columns]);
        let x = self.emit(Op::Reshape { x, shape })?;
        let mut perm: Vec<i32> = (0..first as i32).collect();
        perm.extend([0, 3, 1, 4, 2].map(|axis| axis + first as i32));
        let x = self.emit(Op::Transpose { x, perm })?;
        let mut shape = batch.to_vec();
        shape.extend([channels, self.times(rows, f)?, self.times(columns, f)?]);
        self.emit(Op::Reshape { x, shape })
    }
}
