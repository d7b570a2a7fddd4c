//! Operators that repeat, join and cut tensors. Blind to the dtype.

use super::call::as_size;
use super::lanes::{self, pick_elements};
use super::promote::{self, Operand};
use super::shape::{permuted, same, strided_along};
use super::walk::{Walk, around, axis, row_major};
use super::{Call, Kernel, Operator, Outs, PortableError, Results, invalid, one, whole};
use crate::Value;
use pteron_tensor::HostTensor;

pub(super) const TABLE: &[Operator] = &[
    whole("aten::repeat.out", 2, repeat),
    whole("aten::cat.out", 2, concatenate),
    whole("aten::stack.out", 2, stack),
    whole("aten::pixel_shuffle.out", 2, pixel_shuffle),
    whole("aten::pixel_unshuffle.out", 2, pixel_unshuffle),
    list("aten::split_copy.Tensor_out", 3, split),
    list("aten::unsafe_split.Tensor_out", 3, split),
    list("aten::split_with_sizes_copy.out", 3, split_with_sizes),
    list("aten::unbind_copy.int_out", 2, unbind),
];

const fn list(name: &'static str, inputs: usize, kernel: fn(&Call<'_>) -> Results) -> Operator {
    Operator { name, inputs, outs: Outs::List, kernel: Kernel::Whole(kernel) }
}

/// The whole tensor several times along each axis.
fn repeat(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let repeats = call.sizes(1)?;
    let Some(lead) = repeats.len().checked_sub(x.rank()) else {
        return invalid(format!("{} repeats for rank {}", repeats.len(), x.rank()));
    };
    let padded: Vec<usize> = std::iter::repeat_n(1, lead).chain(x.shape().iter().copied()).collect();
    let strides: Vec<isize> = std::iter::repeat_n(0, lead).chain(row_major(x.shape())).collect();
    let overflow = || PortableError::Invalid(format!("{repeats:?} repeats overflow"));
    let shape = padded.iter().zip(&repeats).map(|(&dim, &times)| dim.checked_mul(times).ok_or_else(overflow));
    let shape = shape.collect::<Result<Vec<usize>, _>>()?;
    call.admit(&shape)?;
    // Each axis as [times, size] with a stride of 0 for the times.
    let pairs = padded.iter().zip(&repeats).zip(&strides);
    let (split, steps): (Vec<usize>, Vec<isize>) =
        pairs.flat_map(|((&dim, &times), &stride)| [(times, 0), (dim, stride)]).unzip();
    one(pick_elements(x, shape, Walk::new(&split, &steps, 0)))
}

fn concatenate(call: &Call<'_>) -> Results {
    let tensors = call.tensors(0)?;
    // Torch skips empty tensors of rank 1, whatever the rank of the others.
    let parts: Vec<&HostTensor> = tensors.iter().copied().filter(|x| x.shape() != [0]).collect();
    let Some(first) = parts.first() else { return one(HostTensor::zeros(call.out_dtype(), vec![0])) };
    join(call, &parts, axis(call.int(1)?, first.rank())?)
}

fn stack(call: &Call<'_>) -> Results {
    let tensors = call.tensors(0)?;
    let Some(first) = tensors.first() else { return invalid("nothing to stack") };
    let at = axis(call.int(1)?, first.rank() + 1)?;
    let lifted = tensors.into_iter().map(|x| {
        let mut shape = x.shape().to_vec();
        shape.insert(at.min(shape.len()), 1);
        x.clone().reshaped(shape)
    });
    let lifted = lifted.collect::<Result<Vec<_>, _>>()?;
    join(call, &lifted.iter().collect::<Vec<_>>(), at)
}

/// Joins tensors along one axis in their common dtype.
fn join(call: &Call<'_>, parts: &[&HostTensor], at: usize) -> Results {
    let operands: Vec<Operand> = parts.iter().map(|x| Operand::of(x)).collect();
    let dtype = promote::common(&operands);
    let mut shape = parts[0].shape().to_vec();
    if shape.is_empty() {
        return invalid("tensors of rank 0 cannot be joined");
    }
    shape[at] = 0;
    for part in parts {
        let agree = part.rank() == shape.len()
            && part.shape().iter().zip(&shape).enumerate().all(|(axis, (a, b))| axis == at || a == b);
        if !agree {
            return invalid(format!(
                "{:?} and {:?} do not join along axis {at}",
                parts[0].shape(),
                part.shape()
            ));
        }
        shape[at] += part.shape()[at];
    }
    call.admit(&shape)?;
    let mut out = HostTensor::zeros(dtype, shape)?;
    let (outer, total, inner) = around(&out, at);
    let size = dtype.size();
    let mut done = 0;
    for part in parts {
        let part = lanes::cast(part, dtype)?;
        let run = part.shape()[at] * inner * size;
        for block in 0..outer {
            let to = block * total * inner * size + done;
            let from = block * run;
            out.bytes_mut()[to..to + run].copy_from_slice(&part.bytes()[from..from + run]);
        }
        done += run;
    }
    one(Ok(out))
}

fn pixel_shuffle(call: &Call<'_>) -> Results {
    let (x, factor) = (call.tensor(0)?, as_size(call.int(1)?)?);
    let &[ref lead @ .., channels, height, width] = x.shape() else {
        return invalid("pixels need at least three axes");
    };
    if factor == 0 || channels % factor.saturating_mul(factor) != 0 {
        return invalid(format!("{channels} channels do not spread over {factor} by {factor} pixels"));
    }
    let outer: usize = lead.iter().product();
    let split = x.clone().reshaped(vec![outer, channels / factor / factor, factor, factor, height, width])?;
    let shape = [lead, &[channels / factor / factor, height * factor, width * factor]].concat();
    reshaped(permuted(&split, &[0, 1, 4, 2, 5, 3])?, shape)
}

fn pixel_unshuffle(call: &Call<'_>) -> Results {
    let (x, factor) = (call.tensor(0)?, as_size(call.int(1)?)?);
    let &[ref lead @ .., channels, height, width] = x.shape() else {
        return invalid("pixels need at least three axes");
    };
    if factor == 0 || height % factor != 0 || width % factor != 0 {
        return invalid(format!("{height} by {width} pixels do not group by {factor}"));
    }
    let outer: usize = lead.iter().product();
    let (rows, columns) = (height / factor, width / factor);
    let split = x.clone().reshaped(vec![outer, channels, rows, factor, columns, factor])?;
    let shape = [lead, &[channels * factor * factor, rows, columns]].concat();
    reshaped(permuted(&split, &[0, 1, 3, 5, 2, 4])?, shape)
}

fn reshaped(results: Vec<Value>, shape: Vec<usize>) -> Results {
    results
        .into_iter()
        .map(|value| match value {
            Value::Tensor(tensor) => Ok(Value::Tensor(tensor.reshaped(shape.clone())?)),
            other => Ok(other),
        })
        .collect()
}

fn split(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let at = axis(call.int(2)?, x.rank())?;
    let size = x.shape().get(at).copied().unwrap_or(1);
    let piece = as_size(call.int(1)?)?;
    if piece == 0 {
        return if size == 0 { same(call) } else { invalid("pieces of size 0") };
    }
    let lengths = (0..size.div_ceil(piece).max(1)).map(|index| piece.min(size - index * piece)).collect();
    cut(x, at, lengths)
}

fn split_with_sizes(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    cut(x, axis(call.int(2)?, x.rank())?, call.sizes(1)?)
}

fn cut(x: &HostTensor, at: usize, lengths: Vec<usize>) -> Results {
    let size = x.shape().get(at).copied().unwrap_or(1);
    if lengths.iter().try_fold(0usize, |sum, &length| sum.checked_add(length)) != Some(size) {
        return invalid(format!("pieces {lengths:?} of an axis of size {size}"));
    }
    let mut start = 0;
    let mut pieces = Vec::with_capacity(lengths.len());
    for length in lengths {
        pieces.extend(strided_along(x, at, start, 1, length)?);
        start += length;
    }
    Ok(pieces)
}

fn unbind(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let at = axis(call.int(1)?, x.rank())?;
    let size = x.shape().get(at).copied().unwrap_or(1);
    let mut shape = x.shape().to_vec();
    if !shape.is_empty() {
        shape.remove(at);
    }
    reshaped(cut(x, at, vec![1; size])?, shape)
}
