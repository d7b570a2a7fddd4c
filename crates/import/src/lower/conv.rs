//! Convolutions: torch has channels second, the catalogue last, so that inputs are turned and weights are stored
//! turned.

use super::call::{Arg, Call, Int};
use super::context::{Lowerer, Outs, countable, one};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use pteron_ir::op::IndexArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::HostTensor;

pub(super) const TABLE: Table = &[
    ("aten.conv1d.default", |l, call| one(forward(l, call)?)),
    ("aten.conv2d.default", |l, call| one(forward(l, call)?)),
    ("aten.conv3d.default", |l, call| one(forward(l, call)?)),
    ("aten.conv1d.padding", |l, call| one(forward(l, call)?)),
    ("aten.conv2d.padding", |l, call| one(forward(l, call)?)),
    ("aten.conv3d.padding", |l, call| one(forward(l, call)?)),
    ("aten.conv_transpose1d.default", |l, call| one(backward(l, call)?)),
    ("aten.conv_transpose2d.input", |l, call| one(backward(l, call)?)),
    ("aten.conv_transpose3d.input", |l, call| one(backward(l, call)?)),
    ("aten.convolution.default", |l, call| match call.flag("transposed", false)? {
        true => one(backward(l, call)?),
        false => one(forward(l, call)?),
    }),
    ("aten.upsample_nearest1d.vec", nearest),
    ("aten.upsample_nearest2d.vec", nearest),
    ("aten.upsample_nearest3d.vec", nearest),
    ("aten.upsample_nearest1d.default", nearest),
    ("aten.upsample_nearest2d.default", nearest),
    ("aten.upsample_nearest3d.default", nearest),
];

struct Window {
    stride: Vec<i32>,
    padding: Vec<i32>,
    dilation: Vec<i32>,
    groups: i32,
}

fn small(values: Vec<i64>) -> Lowered<Vec<i32>> {
    let small = values.into_iter().map(i32::try_from).collect::<Result<Vec<_>, _>>();
    small.map_err(|_| Refusal::because("a number beyond 32 bits"))
}

fn window(call: &Call<'_>, dims: usize) -> Lowered<Window> {
    if call.int("groups", 1)? < 1 {
        return Err(Refusal::because("no groups of channels"));
    }
    Ok(Window {
        stride: small(call.spatial("stride", dims, 1)?)?,
        padding: small(call.spatial("padding", dims, 0)?)?,
        dilation: small(call.spatial("dilation", dims, 1)?)?,
        groups: small(vec![call.int("groups", 1)?])?[0],
    })
}

/// The input with a batch axis, and whether it had none.
fn batched(l: &mut Lowerer<'_>, call: &Call<'_>, weight: ValueId) -> Lowered<(ValueId, usize, bool)> {
    let x = call.tensor("input")?;
    let dims = l.rank(weight)?.checked_sub(2).filter(|dims| (1..=3).contains(dims));
    let dims = dims.ok_or_else(|| Refusal::because("a convolution over that many axes"))?;
    match l.rank(x)? {
        rank if rank == dims + 2 => Ok((x, dims, false)),
        rank if rank == dims + 1 => Ok((l.emit(Op::ExpandDims { x, axis: 0 })?, dims, true)),
        rank => Err(Refusal::because(format!("an input of rank {rank} over {dims} axes"))),
    }
}

fn channels_last(dims: usize) -> Vec<usize> {
    [0].into_iter().chain(2..dims + 2).chain([1]).collect()
}

fn channels_second(dims: usize) -> Vec<usize> {
    [0, dims + 1].into_iter().chain(1..=dims).collect()
}

fn finish(
    l: &mut Lowerer<'_>,
    call: &Call<'_>,
    found: ValueId,
    dims: usize,
    single: bool,
) -> Lowered<ValueId> {
    let mut found = found;
    if let Some(bias) = call.maybe_tensor("bias")? {
        found = l.emit(Op::Add { a: found, b: bias })?;
    }
    found = l.transpose(found, &channels_second(dims))?;
    match single {
        true => l.emit(Op::Squeeze { x: found, dims: Some(vec![0]) }),
        false => Ok(found),
    }
}

fn forward(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<ValueId> {
    let weight = call.tensor("weight")?;
    let (mut x, dims, single) = batched(l, call, weight)?;
    let window = match call.raw("padding") {
        Ok(Arg::Text(mode)) => {
            let dilation = call.spatial("dilation", dims, 1)?;
            let mut padding = vec![0; dims];
            if mode == "same" {
                let mut grow = vec![Int::Literal(0); 2 * (dims + 2)];
                let mut uneven = false;
                for axis in 0..dims {
                    let kernel = l.known_dim(weight, axis + 2)?;
                    let total = dilation[axis].saturating_mul(kernel - 1).clamp(0, i64::from(i32::MAX));
                    padding[axis] = (total / 2) as i32;
                    // What is left over goes behind.
                    grow[2 * (axis + 2) + 1] = Int::Literal(total % 2);
                    uneven |= total % 2 != 0;
                }
                if uneven {
                    x =
                        l.emit(Op::Pad { x, pad_width: grow, mode: "constant".into(), constant_value: 0.0 })?;
                }
            }
            Window {
                stride: small(call.spatial("stride", dims, 1)?)?,
                padding,
                dilation: small(dilation)?,
                groups: small(vec![call.int("groups", 1)?])?[0],
            }
        }
        _ => window(call, dims)?,
    };
    let w = l.transposed_weight(weight, &channels_last(dims), "channel_last")?;
    let x = l.transpose(x, &channels_last(dims))?;
    let Window { stride: s, padding: p, dilation: d, groups } = window;
    let found = l.emit(match dims {
        1 => Op::Conv1D { x, w, stride: s[0], padding: p[0], dilation: d[0], groups },
        2 => Op::Conv2D {
            x,
            w,
            stride_h: s[0],
            stride_w: s[1],
            padding_h: p[0],
            padding_w: p[1],
            dilation_h: d[0],
            dilation_w: d[1],
            groups,
        },
        _ => Op::Conv3D {
            x,
            w,
            stride_d: s[0],
            stride_h: s[1],
            stride_w: s[2],
            padding_d: p[0],
            padding_h: p[1],
            padding_w: p[2],
            dilation_d: d[0],
            dilation_h: d[1],
            dilation_w: d[2],
            groups,
        },
    })?;
    finish(l, call, found, dims, single)
}

/// Torch stores [in, out / groups, kernel]; the op takes [out, kernel, in / groups].
fn turned_weight(l: &mut Lowerer<'_>, weight: ValueId, dims: usize, groups: i32) -> Lowered<ValueId> {
    if groups == 1 {
        let perm: Vec<usize> = [1].into_iter().chain(2..dims + 2).chain([0]).collect();
        return l.transposed_weight(weight, &perm, "transposed_channel_last");
    }
    let shape = l.known_shape(weight)?.ok_or_else(|| Refusal::because("a weight of unknown size"))?;
    let (each, of_all) = (Int::Literal(i64::from(groups)), |size: usize| Int::Literal(size as i64));
    let mut split = vec![each, of_all(shape[0] / groups as usize)];
    split.extend(shape[1..].iter().map(|&size| of_all(size)));
    let x = l.reshape(weight, split)?;
    let perm: Vec<usize> = [0, 2].into_iter().chain(3..dims + 3).chain([1]).collect();
    let x = l.transpose(x, &perm)?;
    let mut joined = vec![of_all(shape[1] * groups as usize)];
    joined.extend(shape[2..].iter().map(|&size| of_all(size)));
    joined.push(of_all(shape[0] / groups as usize));
    l.reshape(x, joined)
}

fn backward(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<ValueId> {
    let weight = call.tensor("weight")?;
    let (x, dims, single) = batched(l, call, weight)?;
    let Window { stride: s, padding: p, dilation: d, groups } = window(call, dims)?;
    let o = small(call.spatial("output_padding", dims, 0)?)?;
    let w = turned_weight(l, weight, dims, groups)?;
    let x = l.transpose(x, &channels_last(dims))?;
    let found = l.emit(match dims {
        1 => Op::ConvTranspose1D {
            x,
            w,
            stride: s[0],
            padding: p[0],
            dilation: d[0],
            output_padding: o[0],
            groups,
        },
        2 => Op::ConvTranspose2D {
            x,
            w,
            stride_h: s[0],
            stride_w: s[1],
            padding_h: p[0],
            padding_w: p[1],
            dilation_h: d[0],
            dilation_w: d[1],
            output_padding_h: o[0],
            output_padding_w: o[1],
            groups,
        },
        _ => Op::ConvTranspose3D {
            x,
            w,
            stride_d: s[0],
            stride_h: s[1],
            stride_w: s[2],
            padding_d: p[0],
            padding_h: p[1],
            padding_w: p[2],
            dilation_d: d[0],
            dilation_h: d[1],
            dilation_w: d[2],
            output_padding_d: o[0],
            output_padding_h: o[1],
            output_padding_w: o[2],
            groups,
        },
    })?;
    finish(l, call, found, dims, single)
}

/// Each axis by itself: whole factors repeat elements, others pick them.
fn nearest(l: &mut Lowerer<'_>, call: &Call<'_>) -> Lowered<Outs> {
    let mut x = call.tensor(if call.has("input") { "input" } else { "self" })?;
    let meta = call.results.first().ok_or_else(|| Refusal::because("it gives nothing"))?;
    let sizes: Vec<_> = meta.sizes.iter().map(|size| l.dim(size)).collect();
    for (axis, size) in sizes.iter().enumerate().skip(2) {
        let (from, to) = (l.known_dim(x, axis)?, size.as_known());
        let to = to.ok_or_else(|| Refusal::because("the size depends on the input"))?;
        if from == to {
            continue;
        }
        if from > 0 && to % from == 0 {
            x = l.emit(Op::Repeat { x, repeats: Int::Literal(to / from), axis: axis as i32 })?;
            continue;
        }
        countable(Some(to))?;
        countable(Some(from))?;
        let indices: Vec<i64> = (0..to).map(|at| (at * from / to.max(1)).min(from - 1)).collect();
        let tensor = HostTensor::from_slice(vec![indices.len()], &indices);
        let tensor = tensor.map_err(|error| Refusal::because(error.to_string()))?;
        let index = l.constant(&format!("_nearest_{from}_{to}"), tensor)?;
        x = l.emit(Op::Take { x, index: IndexArg::Tensor(index), axis: axis as i32 })?;
    }
    one(x)
}
