//! Convolutions, pools and resizing. Torch has channels second, the catalogue last: inputs are turned, and weights that are
//! constants are stored turned.

use pteron_ir::op::{IndexArg, IntArg};
use pteron_ir::{Dim, Op, ValueId};
use pteron_tensor::DType;

use super::arguments::int_tensor;
use super::elements::clip;
use super::{Call, Given, Lifter, Table, one};
use crate::draft::{Int, Part, Resize, Step, Windows, literals, problem, small};

pub(super) const TABLE: Table = &[
    ("aten.convolution.default", |l, call| one(convolution(l, call)?)),
    ("et_vk.conv_with_clamp.default", clamped),
    ("conv_with_clamp.default", clamped),
    ("et_vk.q8ta_conv2d.default", |l, call| eight_bits(l, call, Kernels::Rows)),
    ("et_vk.q8ta_conv2d_pw.default", |l, call| eight_bits(l, call, Kernels::Rows)),
    ("et_vk.q8ta_conv2d_dw.default", |l, call| eight_bits(l, call, Kernels::Depthwise)),
    ("et_vk.q8ta_conv2d_transposed.default", |l, call| eight_bits(l, call, Kernels::Transposed)),
    ("aten.max_pool2d.default", |l, call| {
        let (largest, _) = max_pool(l, call, false)?;
        one(largest)
    }),
    ("aten.max_pool2d_with_indices.default", |l, call| {
        let (largest, index) = max_pool(l, call, true)?;
        Ok(Given::Tensors([largest].into_iter().chain(index).collect()))
    }),
    ("aten.avg_pool2d.default", average_pool),
    ("aten.upsample_nearest2d.vec", nearest),
    ("aten.upsample_bilinear2d.vec", bilinear),
    ("aten.grid_sampler_2d.default", sampled),
    ("et_vk.grid_priors.default", priors),
];

/// How the codes of kernels lie.
#[derive(Clone, Copy, PartialEq)]
enum Kernels {
    /// `[outputs, height * width * inputs]`.
    Rows,
    /// `[height, width, outputs]`, a channel by itself.
    Depthwise,
    /// Like rows, for a transposed convolution.
    Transposed,
}

/// How kernels go over an input.
struct Way {
    stride: [i32; 2],
    padding: [i32; 2],
    dilation: [i32; 2],
    /// Of transposed ones only.
    more: Option<[i32; 2]>,
    groups: i32,
}

fn both(what: &str, numbers: [i64; 2]) -> Step<[i32; 2]> {
    Ok([small(what, numbers[0])?, small(what, numbers[1])?])
}

/// Channels last, of a convolution over so many axes.
fn channels_last(dims: usize) -> Vec<i32> {
    [0].into_iter().chain(2..dims as i32 + 2).chain([1]).collect()
}

fn channels_second(dims: usize) -> Vec<i32> {
    [0, dims as i32 + 1].into_iter().chain(1..=dims as i32).collect()
}

fn clamped(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let value = convolution(l, call)?;
    let (least, most) = (l.maybe_float(call, 9)?, l.maybe_float(call, 10)?);
    one(clip(l, value, least, most)?)
}

fn convolution(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<ValueId> {
    let x = l.tensor(call, 0)?;
    let rank = l.rank(x)?;
    let dims = match rank {
        3 | 4 => rank - 2,
        _ => return problem(format!("a convolution of a tensor of {rank} dims")),
    };
    let transposed = l.flag(call, 6)?;
    let way = Way {
        stride: both("a stride", l.pair(call, 3, [1, 1])?)?,
        padding: both("padding", l.pair(call, 4, [0, 0])?)?,
        dilation: both("a dilation", l.pair(call, 5, [1, 1])?)?,
        more: match transposed {
            true => Some(both("output padding", l.pair(call, 7, [0, 0])?)?),
            false => None,
        },
        groups: small("groups", l.known_int(call, 8)?)?,
    };
    let kernels = l.kernels(call, dims, transposed.then_some(way.groups))?;
    let x = l.emit(Op::Transpose { x, perm: channels_last(dims) })?;
    let bias = l.maybe_tensor(call, 2)?;
    let value = l.convolved(x, kernels, bias, &way, dims)?;
    l.emit(Op::Transpose { x: value, perm: channels_second(dims) })
}

fn eight_bits(l: &mut Lifter<'_>, call: &Call<'_>, kind: Kernels) -> Step<Given> {
    let x = l.decoded(call, 0, 1)?;
    l.of_rank(x, 4)?;
    let transposed = kind == Kernels::Transposed;
    let behind = usize::from(transposed);
    let way = Way {
        stride: both("a stride", l.pair(call, 10, [1, 1])?)?,
        padding: both("padding", l.pair(call, 11, [0, 0])?)?,
        more: if transposed { Some(both("output padding", l.pair(call, 12, [0, 0])?)?) } else { None },
        dilation: both("a dilation", l.pair(call, 12 + behind, [1, 1])?)?,
        groups: small("groups", l.known_int(call, 13 + behind)?)?,
    };
    let Ok(outputs) = usize::try_from(l.result(call)?.dims.get(1).copied().unwrap_or(0)) else {
        return problem("channels without end");
    };
    let [height, width] = l.pair(call, 9, [1, 1])?;
    let table = l.tensor_table(call, 3)?;
    let codes = l.constant_value(Part::Init, table)?;
    let codes = match (kind, &table.dims[..]) {
        (Kernels::Depthwise, [_, _, _]) => {
            let x = l.append(Part::Init, Op::Transpose { x: codes, perm: vec![2, 0, 1] })?;
            let x = l.front(x, outputs)?;
            l.append(Part::Init, Op::ExpandDims { x, axis: 3 })?
        }
        (Kernels::Rows | Kernels::Transposed, &[_, columns]) => {
            let area = height.checked_mul(width).filter(|area| *area > 0 && way.groups > 0);
            let IntArg::Literal(channels) = l.size(x, 1)? else {
                return problem("an unknown number of channels");
            };
            let inputs = channels / i64::from(way.groups.max(1));
            let used = area.and_then(|area| area.checked_mul(inputs)).filter(|used| *used <= columns.into());
            let Some(used) = used else { return problem("kernels that are larger than their codes") };
            let x = l.front(codes, outputs)?;
            // Columns are padded to a multiple of four.
            let [axis, start, stop] = [1, 0, used].map(IntArg::Literal);
            let x = l.append(Part::Init, Op::Slice { x, axis, start, stop, step: 1 })?;
            let shape = [outputs as i64, height, width, inputs].map(IntArg::Literal).to_vec();
            l.append(Part::Init, Op::Reshape { x, shape })?
        }
        _ => return problem(format!("kernels of {} dims", table.dims.len())),
    };
    let codes = l.append(Part::Init, Op::AsType { x: codes, scalar_type: DType::F32 })?;
    let scales = l.scales_in_init(l.tensor_table(call, 5)?, outputs)?;
    let scales = l.append(Part::Init, Op::Reshape { x: scales, shape: literals(&[outputs, 1, 1, 1]) })?;
    let kernels = l.append(Part::Init, Op::Multiply { a: codes, b: scales })?;
    let kernels = l.made_of(call, 3, "kernels", kernels)?;
    let bias = match l.maybe_tensor(call, 8)? {
        Some(bias) => Some(l.cut(bias, 0, IntArg::Literal(0), IntArg::Literal(outputs as i64), 1)?),
        None => None,
    };
    let x = l.emit(Op::Transpose { x, perm: channels_last(2) })?;
    let value = l.convolved(x, kernels, bias, &way, 2)?;
    let value = l.emit(Op::Transpose { x: value, perm: channels_second(2) })?;
    let value = l.activated(call, 14 + behind, value)?;
    one(l.encoded(call, 6, value)?)
}

/// A pool's windows over its input, channels last. What rounding up adds behind is told apart from padding.
fn pooled(
    l: &mut Lifter<'_>,
    call: &Call<'_>,
    dilation: [i64; 2],
    ceil: bool,
) -> Step<(ValueId, Windows, [u32; 2])> {
    let mut x = l.tensor(call, 0)?;
    if l.rank(x)? == 3 {
        x = l.emit(Op::ExpandDims { x, axis: 0 })?;
    }
    l.of_rank(x, 4)?;
    let x = l.emit(Op::Transpose { x, perm: channels_last(2) })?;
    let kernel = l.pair(call, 1, [1, 1])?;
    let (stride, padding) = (l.pair(call, 2, kernel)?, l.pair(call, 3, [0, 0])?);
    let counts = [kernel, stride, padding, dilation];
    if counts.as_flattened().iter().any(|count| !(0..=i64::from(u16::MAX)).contains(count)) {
        return problem(format!("windows of {kernel:?} by {stride:?}, {padding:?} and {dilation:?}"));
    }
    let mut behind = [0; 2];
    if ceil && !stride.contains(&0) {
        for axis in 0..2 {
            let reach = dilation[axis] * (kernel[axis] - 1) + 1;
            behind[axis] = match l.size(x, axis + 1)? {
                IntArg::Literal(size) => {
                    let room = size + 2 * padding[axis] - reach;
                    let mut count = (room.max(0) + stride[axis] - 1) / stride[axis] + 1;
                    // The last window begins inside the input or its padding before it.
                    if (count - 1) * stride[axis] >= size + padding[axis] {
                        count -= 1;
                    }
                    u32::try_from(((count - 1) * stride[axis] - room).max(0)).unwrap_or(0)
                }
                // Whatever the size, the last window begins inside: what is behind it makes no window more.
                IntArg::Value(_) if stride[axis] + padding[axis] <= reach => (stride[axis] - 1) as u32,
                IntArg::Value(_) => {
                    return problem(
                        "windows rounded up that may begin behind an input of a size known at run time only",
                    );
                }
            };
        }
    }
    let narrow = |numbers: [i64; 2]| numbers.map(|number| number as u32);
    let [rows, columns] = narrow(padding);
    let windows = Windows {
        frame: [rows, rows, columns, columns],
        kernel: narrow(kernel),
        stride: narrow(stride),
        dilation: narrow(dilation),
    };
    Ok((x, windows, behind))
}

fn max_pool(l: &mut Lifter<'_>, call: &Call<'_>, with_index: bool) -> Step<(ValueId, Option<ValueId>)> {
    let (dilation, ceil) = (l.pair(call, 4, [1, 1])?, l.flag(call, 5)?);
    let (x, mut windows, behind) = pooled(l, call, dilation, ceil)?;
    windows.frame[1] += behind[0];
    windows.frame[3] += behind[1];
    let seen = l.windows(x, &windows, f32::NEG_INFINITY)?;
    let axes = Some(vec![3, 4]);
    let largest = l.emit(Op::Max { x: seen, axes, keepdims: false })?;
    let largest = as_given(l, call, largest)?;
    if !with_index {
        return Ok((largest, None));
    }
    // Places in the input seen through the same windows; the largest of a window picks one.
    let (rows, columns) = (l.size(x, 1)?, l.size(x, 2)?);
    let all = l.times(rows, columns)?;
    let [start, step] = [0, 1].map(IntArg::Literal);
    let places = l.emit(Op::ARange { start, stop: all, step, scalar_type: Some(DType::I32) })?;
    let shape = vec![IntArg::Literal(1), rows, columns, IntArg::Literal(1)];
    let places = l.emit(Op::Reshape { x: places, shape })?;
    let places = l.windows(places, &windows, 0.0)?;
    let area = IntArg::Literal(i64::from(windows.kernel[0]) * i64::from(windows.kernel[1]));
    let flat = |l: &mut Lifter<'_>, x: ValueId| -> Step<ValueId> {
        let sizes = l.sizes(x)?;
        l.emit(Op::Reshape { x, shape: vec![sizes[0], sizes[1], sizes[2], area, sizes[5]] })
    };
    let (seen, places) = (flat(l, seen)?, flat(l, places)?);
    let indices = l.emit(Op::Argmax { x: seen, axis: 3, keepdims: true })?;
    let shape = l.sizes(seen)?;
    let places = l.emit(Op::BroadcastTo { x: places, shape })?;
    let index = l.emit(Op::TakeAlongAxis { x: places, indices, axis: 3 })?;
    let index = l.emit(Op::Squeeze { x: index, dims: Some(vec![3]) })?;
    Ok((largest, Some(as_given(l, call, index)?)))
}

/// What a pool gives, channels second, without a batch where its input has none.
fn as_given(l: &mut Lifter<'_>, call: &Call<'_>, x: ValueId) -> Step<ValueId> {
    let x = l.emit(Op::Transpose { x, perm: channels_second(2) })?;
    match l.tensor_table(call, 0)?.dims.len() {
        3 => l.emit(Op::Squeeze { x, dims: Some(vec![0]) }),
        _ => Ok(x),
    }
}

fn average_pool(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let (ceil, counts_padding) = (l.flag(call, 4)?, l.flag(call, 5)?);
    let (mut x, mut windows, behind) = pooled(l, call, [1, 1], ceil)?;
    if counts_padding {
        x = l.framed(x, windows.frame, 0.0)?;
        windows.frame = [0; 4];
    }
    windows.frame[1] += behind[0];
    windows.frame[3] += behind[1];
    let value = match l.has(call, 6) {
        true => {
            let by = l.float(call, 6)?;
            let seen = l.windows(x, &windows, 0.0)?;
            let sum = l.emit(Op::Sum { x: seen, axes: Some(vec![3, 4]), keepdims: false })?;
            let by = l.number_like(sum, by)?;
            l.emit(Op::Divide { a: sum, b: by })?
        }
        false => l.mean_of_windows(x, &windows)?,
    };
    one(as_given(l, call, value)?)
}

/// How rows or columns are resized.
#[derive(Clone, Copy)]
struct Side {
    size: i64,
    wanted: u32,
    /// The ratio of both, where it is given.
    ratio: Option<f32>,
}

/// The image that is resized, its rows and its columns; argument `at` has the factors.
fn resized(l: &mut Lifter<'_>, call: &Call<'_>, at: usize) -> Step<(ValueId, [Side; 2])> {
    let x = l.tensor(call, 0)?;
    l.of_rank(x, 4)?;
    let &[_, _, rows, columns] = &l.result(call)?.dims[..] else { return problem("it gives no image") };
    let factors = l.floats(call, at)?;
    let x = l.at_its_largest(x, [2, 3])?;
    let mut sides = [rows, columns].map(|wanted| Side { size: 0, wanted, ratio: None });
    for (axis, side) in sides.iter_mut().enumerate() {
        let IntArg::Literal(size) = l.size(x, axis + 2)? else {
            return problem("resizing what has a size that is known at run time only");
        };
        side.size = size;
        side.ratio = factors.get(axis).filter(|factor| **factor > 0.0).map(|factor| (1.0 / factor) as f32);
    }
    Ok((x, sides))
}

fn nearest(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let (mut x, sides) = resized(l, call, 2)?;
    for (axis, Side { size, wanted, ratio }) in sides.into_iter().enumerate() {
        if size < 1 || u64::from(wanted) * 4 > l.limits.decoded_bytes {
            return problem(format!("{size} elements resized to {wanted}"));
        }
        let ratio = ratio.unwrap_or(size as f32 / wanted as f32);
        let place = |at: u32| ((at as f32 * ratio) as i64).min(size - 1) as i32;
        let bytes: Vec<u8> = (0..wanted).flat_map(|at| place(at).to_le_bytes()).collect();
        let name = format!("nearest_{size}_{wanted}_{ratio}");
        let index = l.written(Part::Main, &name, DType::I32, &[wanted as usize], &bytes)?;
        x = l.emit(Op::Take { x, index: IndexArg::Tensor(index), axis: axis as i32 + 2 })?;
    }
    one(x)
}

fn bilinear(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let way = if l.flag(call, 2)? { Resize::Corners } else { Resize::HalfPixels };
    let (mut x, sides) = resized(l, call, 3)?;
    for (axis, Side { size, wanted, ratio }) in sides.into_iter().enumerate() {
        x = l.interpolated(x, axis + 2, (size, wanted), way, ratio)?;
    }
    one(x)
}

/// Elements between four of the input, at places that a grid gives; beyond the border lies the border.
fn sampled(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let (x, grid) = (l.tensor(call, 0)?, l.tensor(call, 1)?);
    l.of_rank(x, 4)?;
    l.of_rank(grid, 4)?;
    if (l.known_int(call, 2)?, l.known_int(call, 3)?, l.flag(call, 4)?) != (0, 1, true) {
        return problem("a grid other than bilinear, with borders and aligned corners");
    }
    let [batch, channels, rows, columns] = [0, 1, 2, 3].map(|axis| l.size(x, axis));
    let (batch, channels, rows, columns) = (batch?, channels?, rows?, columns?);
    let sizes = [1, 2].map(|axis| l.size(grid, axis));
    let [high, wide] = sizes;
    let (high, wide) = (high?, wide?);
    let grid = l.cast(grid, DType::F32)?;
    let place = |l: &mut Lifter<'_>, index, last: Int| -> Step<[ValueId; 3]> {
        let at = l.emit(Op::Take { x: grid, index: IndexArg::Literal(index), axis: 3 })?;
        let [zero, half, one] = [0.0, 0.5, 1.0].map(|number| l.number(number, DType::F32));
        let (zero, half, one) = (zero?, half?, one?);
        let last = int_tensor(l, last, DType::F32)?;
        let half = l.emit(Op::Multiply { a: last, b: half })?;
        let at = l.emit(Op::Add { a: at, b: one })?;
        let at = l.emit(Op::Multiply { a: at, b: half })?;
        let at = l.emit(Op::Clip { x: at, a_min: Some(zero), a_max: Some(last) })?;
        let low = l.emit(Op::Floor { x: at })?;
        let part = l.emit(Op::Subtract { a: at, b: low })?;
        let high = l.emit(Op::Add { a: low, b: one })?;
        let high = l.emit(Op::Minimum { a: high, b: last })?;
        Ok([low, high, part])
    };
    let one_less = IntArg::Literal(-1);
    let (last_row, last_column) = (l.plus(rows, one_less)?, l.plus(columns, one_less)?);
    let ([left, right, across], [above, below, down]) = (place(l, 0, last_column)?, place(l, 1, last_row)?);
    let all = l.times(rows, columns)?;
    let flat = l.emit(Op::Reshape { x, shape: vec![batch, channels, all] })?;
    let count = l.times(high, wide)?;
    let by = int_tensor(l, columns, DType::I32)?;
    let take = |l: &mut Lifter<'_>, row: ValueId, column: ValueId| -> Step<ValueId> {
        let (row, column) = (l.cast(row, DType::I32)?, l.cast(column, DType::I32)?);
        let row = l.emit(Op::Multiply { a: row, b: by })?;
        let at = l.emit(Op::Add { a: row, b: column })?;
        let indices = l.emit(Op::Reshape { x: at, shape: vec![batch, IntArg::Literal(1), count] })?;
        let indices = l.emit(Op::BroadcastTo { x: indices, shape: vec![batch, channels, count] })?;
        let x = l.emit(Op::TakeAlongAxis { x: flat, indices, axis: 2 })?;
        l.emit(Op::Reshape { x, shape: vec![batch, channels, high, wide] })
    };
    let corners =
        [take(l, above, left)?, take(l, above, right)?, take(l, below, left)?, take(l, below, right)?];
    let dtype = l.dtype(x)?;
    let between = |l: &mut Lifter<'_>, a: ValueId, b: ValueId, part: ValueId| -> Step<ValueId> {
        let part = l.emit(Op::ExpandDims { x: part, axis: 1 })?;
        let part = l.cast(part, dtype)?;
        let rise = l.emit(Op::Subtract { a: b, b: a })?;
        let rise = l.emit(Op::Multiply { a: rise, b: part })?;
        l.emit(Op::Add { a, b: rise })
    };
    let (top, bottom) =
        (between(l, corners[0], corners[1], across)?, between(l, corners[2], corners[3], across)?);
    one(between(l, top, bottom, down)?)
}

/// The columns and rows of an image's cells, shifted and scaled.
fn priors(l: &mut Lifter<'_>, call: &Call<'_>) -> Step<Given> {
    let x = l.tensor(call, 0)?;
    let Some(first) = l.rank(x)?.checked_sub(2) else { return problem("cells of no image") };
    let (rows, columns) = (l.size(x, first)?, l.size(x, first + 1)?);
    let (stride, offset) = (l.float(call, 1)?, l.float(call, 2)?);
    let places = |l: &mut Lifter<'_>, stop: Int, column: bool| -> Step<ValueId> {
        let [start, step] = [0, 1].map(IntArg::Literal);
        let at = l.emit(Op::ARange { start, stop, step, scalar_type: Some(DType::F32) })?;
        let (offset, stride) = (l.number(offset, DType::F32)?, l.number(stride, DType::F32)?);
        let at = l.emit(Op::Add { a: at, b: offset })?;
        let at = l.emit(Op::Multiply { a: at, b: stride })?;
        let shape = if column { vec![IntArg::Literal(1), stop] } else { vec![stop, IntArg::Literal(1)] };
        let at = l.emit(Op::Reshape { x: at, shape })?;
        let at = l.emit(Op::BroadcastTo { x: at, shape: vec![rows, columns] })?;
        l.emit(Op::Reshape { x: at, shape: vec![IntArg::Literal(-1)] })
    };
    let tensors = vec![places(l, columns, true)?, places(l, rows, false)?];
    one(l.emit(Op::Stack { tensors, axis: 1 })?)
}

impl Lifter<'_> {
    /// Kernels as the catalogue has them: `[outputs, ..., inputs of a group]`; turned once where they are constants.
    fn kernels(&mut self, call: &Call<'_>, dims: usize, transposed: Option<i32>) -> Step<ValueId> {
        let table = self.tensor_table(call, 1)?;
        if table.dims.len() != dims + 2 {
            return problem(format!("kernels of {} dims", table.dims.len()));
        }
        let (id, _) = self.argument(call, 1)?;
        let is_constant =
            table.constant_id >= 0 && !usize::try_from(id).is_ok_and(|id| self.states.contains_key(&id));
        let part = if is_constant { Part::Init } else { Part::Main };
        let x = match part {
            Part::Init => self.constant_value(part, table)?,
            Part::Main => self.tensor(call, 1)?,
        };
        let turned = self.turned(part, x, dims, transposed)?;
        match part {
            Part::Main => Ok(turned),
            Part::Init => {
                let turned = self.append(part, Op::Contiguous { x: turned })?;
                let what =
                    transposed.map_or_else(|| "kernels".into(), |groups| format!("transposed_{groups}"));
                self.made_of(call, 1, &what, turned)
            }
        }
    }

    /// Torch has `[outputs, inputs of a group, ...]`, and for transposed ones `[inputs, outputs of a group, ...]`.
    fn turned(&mut self, part: Part, x: ValueId, dims: usize, transposed: Option<i32>) -> Step<ValueId> {
        let Some(groups) = transposed else {
            return self.append(part, Op::Transpose { x, perm: channels_last(dims) });
        };
        let shape = self.ty(part, x)?.shape.iter().map(Dim::as_known).collect::<Option<Vec<_>>>();
        let Some(shape) = shape.filter(|_| groups > 0) else { return problem("kernels of an unknown size") };
        let groups = i64::from(groups);
        let mut split = vec![groups, shape[0] / groups];
        split.extend(&shape[1..]);
        let literal = |sizes: Vec<i64>| sizes.into_iter().map(IntArg::Literal).collect::<Vec<Int>>();
        let x = self.append(part, Op::Reshape { x, shape: literal(split) })?;
        let perm = [0, 2].into_iter().chain(3..dims as i32 + 3).chain([1]).collect();
        let x = self.append(part, Op::Transpose { x, perm })?;
        let mut joined = vec![shape[1].saturating_mul(groups)];
        joined.extend(&shape[2..]);
        joined.push(shape[0] / groups);
        self.append(part, Op::Reshape { x, shape: literal(joined) })
    }

    /// Channels last all through.
    fn convolved(
        &mut self,
        x: ValueId,
        w: ValueId,
        bias: Option<ValueId>,
        way: &Way,
        dims: usize,
    ) -> Step<ValueId> {
        let Way { stride: s, padding: p, dilation: d, more, groups } = way;
        let groups = *groups;
        let op = match (dims, more) {
            (1, None) => Op::Conv1D { x, w, stride: s[0], padding: p[0], dilation: d[0], groups },
            (1, Some(o)) => Op::ConvTranspose1D {
                x,
                w,
                stride: s[0],
                padding: p[0],
                dilation: d[0],
                output_padding: o[0],
                groups,
            },
            (_, None) => Op::Conv2D {
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
            (_, Some(o)) => Op::ConvTranspose2D {
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
        };
        let value = self.emit(op)?;
        match bias {
            Some(bias) => self.emit(Op::Add { a: value, b: bias }),
            None => Ok(value),
        }
    }
}
