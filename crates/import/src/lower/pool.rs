//! Pooling: windows are taken as strided views of the padded input and folded. The largest element of a small window is found axis by
//! axis, as the largest of a few shifted slices, which backends compute as they compute all element-wise ops.

use super::call::{Call, Int};
use super::context::{Lowerer, countable, one};
use super::error::{Lowered, Refusal};
use super::registry::Table;
use pteron_ir::{Op, ValueId};
use pteron_tensor::HostTensor;

pub(super) const TABLE: Table = &[
    ("aten.max_pool1d.default", |l, call| one(max(l, call, 1)?)),
    ("aten.max_pool2d.default", |l, call| one(max(l, call, 2)?)),
    ("aten.max_pool3d.default", |l, call| one(max(l, call, 3)?)),
    ("aten.max_pool1d_with_indices.default", |l, call| one(max(l, call, 1)?)),
    ("aten.max_pool2d_with_indices.default", |l, call| one(max(l, call, 2)?)),
    ("aten.max_pool3d_with_indices.default", |l, call| one(max(l, call, 3)?)),
    ("aten.avg_pool1d.default", |l, call| one(average(l, call, 1)?)),
    ("aten.avg_pool2d.default", |l, call| one(average(l, call, 2)?)),
    ("aten.avg_pool3d.default", |l, call| one(average(l, call, 3)?)),
    ("aten.adaptive_avg_pool1d.default", |l, call| one(adaptive(l, call, 1)?)),
    ("aten.adaptive_avg_pool2d.default", |l, call| one(adaptive(l, call, 2)?)),
    ("aten.adaptive_avg_pool3d.default", |l, call| one(adaptive(l, call, 3)?)),
    ("aten._adaptive_avg_pool2d.default", |l, call| one(adaptive(l, call, 2)?)),
    ("aten._adaptive_avg_pool3d.default", |l, call| one(adaptive(l, call, 3)?)),
];

/// The most elements of a window along an axis that are compared as slices: their number is that of the ops.
const MOST_SLICES: i64 = 5;

/// How windows lie on the axes.
struct Windows {
    kernel: Vec<i64>,
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
    ceil: bool,
}

fn windows(call: &Call<'_>, dims: usize) -> Lowered<Windows> {
    let kernel = call.spatial("kernel_size", dims, 1)?;
    let mut stride = call.spatial("stride", dims, 0)?;
    if stride.contains(&0) {
        stride.clone_from(&kernel);
    }
    let padding = call.spatial("padding", dims, 0)?;
    let dilation = call.spatial("dilation", dims, 1)?;
    let sizes = kernel.iter().chain(&stride).chain(&padding).chain(&dilation);
    if sizes.into_iter().any(|size| *size > i64::from(i16::MAX)) {
        return Err(Refusal::because("a window beyond 32767 elements"));
    }
    if kernel.iter().chain(&stride).chain(&dilation).any(|size| *size <= 0)
        || padding.iter().any(|size| *size < 0)
    {
        return Err(Refusal::because("a window of no size"));
    }
    Ok(Windows { kernel, stride, padding, dilation, ceil: call.flag("ceil_mode", false)? })
}

impl Windows {
    /// How many windows an axis of that size has, and how many elements are missing behind it for the last one.
    fn count(&self, axis: usize, size: i64) -> (i64, i64) {
        let reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
        let (stride, padding) = (self.stride[axis], self.padding[axis]);
        let room = size + 2 * padding - reach;
        let mut count = room.div_euclid(stride) + 1;
        if self.ceil && room.rem_euclid(stride) != 0 && count * stride < size + padding {
            // The last window must begin inside the input or the padding before it.
            count += 1;
        }
        let missing = ((count - 1) * stride + reach - size - 2 * padding).max(0);
        (count, missing)
    }
}

/// An input with room for all windows.
struct Padded {
    x: ValueId,
    /// Axes before those of the windows.
    lead: usize,
    /// Windows along each axis.
    counts: Vec<i64>,
    sizes: Vec<i64>,
}

fn padded(l: &mut Lowerer<'_>, x: ValueId, windows: &Windows, fill: f32) -> Lowered<Padded> {
    let (rank, dims) = (l.rank(x)?, windows.kernel.len());
    let lead = rank.checked_sub(dims).filter(|lead| *lead > 0);
    let lead = lead.ok_or_else(|| Refusal::because(format!("an input of rank {rank} over {dims} axes")))?;
    let mut counts = Vec::new();
    let mut grow = vec![Int::Literal(0); 2 * rank];
    let mut sizes = Vec::new();
    for axis in 0..dims {
        let size = countable(Some(l.known_dim(x, lead + axis)?))? as i64;
        let (count, missing) = windows.count(axis, size);
        if count <= 0 {
            return Err(Refusal::because("windows that do not fit"));
        }
        counts.push(count);
        let (before, after) = (windows.padding[axis], windows.padding[axis] + missing);
        grow[2 * (lead + axis)] = Int::Literal(before);
        grow[2 * (lead + axis) + 1] = Int::Literal(after);
        sizes.push(size + before + after);
    }
    let x = match grow.iter().all(|width| *width == Int::Literal(0)) {
        true => x,
        false => l.emit(Op::Pad { x, pad_width: grow, mode: "constant".into(), constant_value: fill })?,
    };
    Ok(Padded { x, lead, counts, sizes })
}

/// Every window as the last axes of a view: [lead.., counts.., kernel..].
fn view(l: &mut Lowerer<'_>, x: ValueId, windows: &Windows, fill: f32) -> Lowered<ValueId> {
    let dims = windows.kernel.len();
    let Padded { x, lead, counts, sizes } = padded(l, x, windows, fill)?;
    let whole = sizes.iter().try_fold(1i64, |product, size| product.checked_mul(*size));
    let whole = whole.ok_or_else(|| Refusal::because("an input of too many elements"))?;
    let mut steps = vec![1i64; dims];
    for axis in (0..dims.saturating_sub(1)).rev() {
        steps[axis] = steps[axis + 1] * sizes[axis + 1];
    }
    let mut shape: Vec<Int> = (0..lead).map(|axis| l.size(x, axis)).collect::<Lowered<_>>()?;
    let mut step = Int::Literal(whole);
    let mut strides = vec![Int::Literal(0); lead];
    for axis in (0..lead).rev() {
        strides[axis] = step;
        step = l.multiply_ints(step, shape[axis])?;
    }
    shape.extend(counts.into_iter().map(Int::Literal));
    strides.extend(windows.stride.iter().zip(&steps).map(|(stride, step)| Int::Literal(stride * step)));
    shape.extend(windows.kernel.iter().copied().map(Int::Literal));
    strides.extend(windows.dilation.iter().zip(&steps).map(|(dilation, step)| Int::Literal(dilation * step)));
    l.emit(Op::AsStrided { x, shape, strides, offset: 0 })
}

fn last_axes(l: &Lowerer<'_>, x: ValueId, count: usize) -> Lowered<Option<Vec<i32>>> {
    let rank = l.rank(x)?;
    Ok(Some((rank - count..rank).map(|axis| axis as i32).collect()))
}

fn max(l: &mut Lowerer<'_>, call: &Call<'_>, dims: usize) -> Lowered<ValueId> {
    let x = call.tensor("self")?;
    if !l.dtype(x)?.is_float() {
        return Err(Refusal::because("the largest of integers; convert to floats first"));
    }
    let windows = windows(call, dims)?;
    if windows.kernel.iter().any(|&size| size > MOST_SLICES) {
        let seen = view(l, x, &windows, f32::NEG_INFINITY)?;
        let axes = last_axes(l, seen, dims)?;
        return l.emit(Op::Max { x: seen, axes, keepdims: false });
    }
    let Padded { mut x, lead, counts, .. } = padded(l, x, &windows, f32::NEG_INFINITY)?;
    for (axis, count) in counts.into_iter().enumerate() {
        let (stride, reach) = (windows.stride[axis], (count - 1) * windows.stride[axis] + 1);
        let step = stride as i32; // at most 32767, as all sizes of a window
        let mut largest = None;
        for tap in 0..windows.kernel[axis] {
            let start = tap * windows.dilation[axis];
            let (at, stop) = (Int::Literal((lead + axis) as i64), Int::Literal(start + reach));
            let slice = l.emit(Op::Slice { x, axis: at, start: Int::Literal(start), stop, step })?;
            largest = Some(match largest {
                Some(before) => l.emit(Op::Maximum { a: before, b: slice })?,
                None => slice,
            });
        }
        x = largest.unwrap_or(x);
    }
    Ok(x)
}

fn average(l: &mut Lowerer<'_>, call: &Call<'_>, dims: usize) -> Lowered<ValueId> {
    let x = call.tensor("self")?;
    let windows = windows(call, dims)?;
    let include_padding = call.flag("count_include_pad", true)?;
    let divisor = call.maybe_int("divisor_override")?;
    let lead = l.rank(x)?.saturating_sub(dims);
    let sizes = (0..dims).map(|axis| l.known_dim(x, lead + axis)).collect::<Lowered<Vec<i64>>>()?;
    let seen = view(l, x, &windows, 0.0)?;
    let numbers = (0..dims).try_fold(1i64, |all, axis| all.checked_mul(windows.count(axis, sizes[axis]).0));
    let axes = last_axes(l, seen, dims)?;
    let padded = windows.padding.iter().any(|size| *size > 0);
    let whole = (0..dims).all(|axis| windows.count(axis, sizes[axis]).1 == 0);
    if divisor.is_none() && whole && (include_padding || !padded) {
        return l.emit(Op::Mean { x: seen, axes, keepdims: false });
    }
    let sum = l.emit(Op::Sum { x: seen, axes, keepdims: false })?;
    let dtype = l.dtype(x)?;
    let below = match divisor {
        Some(divisor) => l.number(divisor as f64, dtype)?,
        None => {
            countable(numbers)?;
            let counts = counts(&windows, &sizes, include_padding);
            let shape = (0..dims).map(|axis| windows.count(axis, sizes[axis]).0 as usize).collect();
            let tensor = HostTensor::from_slice(shape, &counts);
            let tensor = tensor.map_err(|error| Refusal::because(error.to_string()))?;
            let name = format!(
                "_counts_{sizes:?}_{:?}_{:?}_{:?}_{include_padding}",
                windows.kernel, windows.stride, windows.padding
            );
            let counts = l.constant(&name.replace([' ', ','], "_"), tensor)?;
            l.cast(counts, dtype)?
        }
    };
    l.emit(Op::Divide { a: sum, b: below })
}

/// How many elements each window averages over: those inside the input, or inside the padding too.
fn counts(windows: &Windows, sizes: &[i64], include_padding: bool) -> Vec<f32> {
    let of_axis = |axis: usize| -> Vec<f32> {
        let (size, padding) = (sizes[axis], windows.padding[axis]);
        let (count, _) = windows.count(axis, size);
        (0..count)
            .map(|at| {
                let start = at * windows.stride[axis] - padding;
                let end = (start + windows.kernel[axis]).min(size + padding);
                match include_padding {
                    true => (end - start) as f32,
                    false => (end.min(size) - start.max(0)) as f32,
                }
            })
            .collect()
    };
    (0..sizes.len()).map(of_axis).fold(vec![1.0], |all, axis| {
        all.iter().flat_map(|before| axis.iter().map(move |count| before * count)).collect()
    })
}

fn adaptive(l: &mut Lowerer<'_>, call: &Call<'_>, dims: usize) -> Lowered<ValueId> {
    let x = call.tensor("self")?;
    let rank = l.at_least(x, dims)?;
    let wanted = call.spatial("output_size", dims, 1)?;
    if wanted.iter().all(|size| *size == 1) {
        let axes = Some((rank - dims..rank).map(|axis| axis as i32).collect());
        return l.emit(Op::Mean { x, axes, keepdims: true });
    }
    let mut kernel = Vec::new();
    for (axis, wanted) in wanted.iter().enumerate() {
        let size = l.known_dim(x, rank - dims + axis)?;
        if *wanted <= 0 || size % wanted != 0 {
            return Err(Refusal::because(format!(
                "{size} elements averaged to {wanted}, which is no whole factor"
            )));
        }
        kernel.push(size / wanted);
    }
    let windows = Windows {
        stride: kernel.clone(),
        padding: vec![0; dims],
        dilation: vec![1; dims],
        kernel,
        ceil: false,
    };
    let seen = view(l, x, &windows, 0.0)?;
    let axes = last_axes(l, seen, dims)?;
    l.emit(Op::Mean { x: seen, axes, keepdims: false })
}
