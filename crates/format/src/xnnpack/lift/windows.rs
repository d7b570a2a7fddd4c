//! Pools and resizing, channels last. Windows are a strided view of the padded input, folded; sizes that are known at
//! run time only stay integers of the graph.

use pteron_ir::op::{FloatArg, IndexArg, IntArg};
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::{Int, Lifter, Part, Step, problem};
use crate::xnnpack::node::{ArgMaxPooling, Node, Pooling, StaticResizeBilinear2D};

/// Corners keep their places.
const ALIGN_CORNERS: u32 = 8;
/// TensorFlow's old way: no half pixels.
const LEGACY: u32 = 4;

/// How windows lie on rows and columns.
struct Windows {
    /// Above, below, at the left, at the right.
    frame: [u32; 4],
    kernel: [u32; 2],
    stride: [u32; 2],
    dilation: [u32; 2],
}

impl Lifter<'_> {
    pub(super) fn max_pool(&mut self, node: &Node, pool: &Pooling) -> Step<()> {
        let x = self.value(pool.input_id)?;
        let windows = pooled(pool, [pool.dilation_height, pool.dilation_width]);
        let seen = self.view(x, &windows, f32::NEG_INFINITY)?;
        let value = self.emit(Op::Max { x: seen, axes: Some(vec![3, 4]), keepdims: false })?;
        self.pass(node, &[pool.input_id], pool.output_id, value)
    }

    /// The mean of what lies inside the input: padding does not count.
    pub(super) fn average_pool(&mut self, node: &Node, pool: &Pooling) -> Step<()> {
        let x = self.value(pool.input_id)?;
        let windows = pooled(pool, [1, 1]);
        let axes = || Some(vec![3, 4]);
        let seen = self.view(x, &windows, 0.0)?;
        let value = match windows.frame {
            [0, 0, 0, 0] => self.emit(Op::Mean { x: seen, axes: axes(), keepdims: false })?,
            _ => {
                let sum = self.emit(Op::Sum { x: seen, axes: axes(), keepdims: false })?;
                let shape = vec![IntArg::Literal(1), self.size(x, 1)?, self.size(x, 2)?, IntArg::Literal(1)];
                let dtype = self.dtype(x)?;
                let ones = self.emit(Op::Full { shape, v: FloatArg::Literal(1.0), scalar_type: dtype })?;
                let seen = self.view(ones, &windows, 0.0)?;
                let count = self.emit(Op::Sum { x: seen, axes: axes(), keepdims: false })?;
                self.emit(Op::Divide { a: sum, b: count })?
            }
        };
        self.give(node, pool.output_id, value)
    }

    /// Windows side by side: the largest of each, and its index row by row.
    pub(super) fn arg_max_pool(&mut self, node: &Node, pool: &ArgMaxPooling) -> Step<()> {
        let x = self.value(pool.input_id)?;
        let kernel = [pool.pooling_height, pool.pooling_width];
        let frame = [pool.padding_top, pool.padding_bottom, pool.padding_left, pool.padding_right];
        let windows = Windows { frame, kernel, stride: kernel, dilation: [1, 1] };
        let seen = self.view(x, &windows, f32::NEG_INFINITY)?;
        let shape = (0..3).map(|axis| self.size(seen, axis)).collect::<Step<Vec<Int>>>()?;
        let mut shape = shape;
        shape.push(IntArg::Literal(i64::from(kernel[0]) * i64::from(kernel[1])));
        shape.push(self.size(seen, 5)?);
        let flat = self.emit(Op::Reshape { x: seen, shape })?;
        let largest = self.emit(Op::Max { x: flat, axes: Some(vec![3]), keepdims: false })?;
        let index = self.emit(Op::Argmax { x: flat, axis: 3, keepdims: false })?;
        self.pass(node, &[pool.input_id], pool.output_value_id, largest)?;
        let index = self.rounded(pool.output_index_id, index)?;
        self.set(pool.output_index_id, index)
    }

    /// A frame of one number around rows and columns.
    pub(super) fn framed(&mut self, x: ValueId, frame: [u32; 4], fill: f32) -> Step<ValueId> {
        if frame == [0; 4] {
            return Ok(x);
        }
        let [top, bottom, left, right] = frame;
        let pad_width =
            [0, 0, top, bottom, left, right, 0, 0].map(|width| IntArg::Literal(width.into())).to_vec();
        self.emit(Op::Pad { x, pad_width, mode: "constant".into(), constant_value: fill })
    }

    /// Every window: [batch, rows, columns, height, width, channels].
    fn view(&mut self, x: ValueId, windows: &Windows, fill: f32) -> Step<ValueId> {
        self.of_rank(x, 4)?;
        let positive = [windows.kernel, windows.stride, windows.dilation];
        if positive.as_flattened().contains(&0) {
            return problem("windows of no size");
        }
        let x = self.framed(x, windows.frame, fill)?;
        let sizes = (0..4).map(|axis| self.size(x, axis)).collect::<Step<Vec<Int>>>()?;
        let row = self.times(sizes[2], sizes[3])?;
        let whole = self.times(sizes[1], row)?;
        let (mut shape, mut strides) = (vec![sizes[0]], vec![whole]);
        let steps = [row, sizes[3]];
        for (axis, &step) in steps.iter().enumerate() {
            let [kernel, stride, dilation] =
                [windows.kernel, windows.stride, windows.dilation].map(|list| i64::from(list[axis]));
            let reach = dilation * (kernel - 1) + 1;
            let room = self.plus(sizes[axis + 1], -reach)?;
            if matches!(room, IntArg::Literal(room) if room < 0) {
                return problem("windows that do not fit");
            }
            let count = self.divided(room, stride)?;
            shape.push(self.plus(count, 1)?);
            strides.push(self.times(step, IntArg::Literal(stride))?);
        }
        for (axis, &step) in steps.iter().enumerate() {
            shape.push(IntArg::Literal(windows.kernel[axis].into()));
            strides.push(self.times(step, IntArg::Literal(windows.dilation[axis].into()))?);
        }
        shape.push(sizes[3]);
        strides.push(IntArg::Literal(1));
        self.emit(Op::AsStrided { x, shape, strides, offset: 0 })
    }

    /// A size, as a literal where it is known.
    fn size(&mut self, x: ValueId, axis: usize) -> Step<Int> {
        let dim = self.ty(Part::Main, x)?.shape.get(axis);
        match dim.map(pteron_ir::Dim::as_known) {
            Some(Some(size)) => Ok(IntArg::Literal(size)),
            Some(None) => self.emit(Op::SymSize { a: x, dim: axis as i32 }).map(IntArg::Value),
            None => problem(format!("there is no axis {axis}")),
        }
    }

    fn times(&mut self, a: Int, b: Int) -> Step<Int> {
        match (a, b) {
            (IntArg::Literal(a), IntArg::Literal(b)) => match a.checked_mul(b) {
                Some(product) => Ok(IntArg::Literal(product)),
                None => problem("sizes that overflow"),
            },
            (a, b) => self.emit(Op::MultiplyInt { a, b }).map(IntArg::Value),
        }
    }

    fn plus(&mut self, a: Int, b: i64) -> Step<Int> {
        match a {
            IntArg::Literal(a) => Ok(IntArg::Literal(a.saturating_add(b))),
            a => self.emit(Op::AddInt { a, b: IntArg::Literal(b) }).map(IntArg::Value),
        }
    }

    fn divided(&mut self, a: Int, b: i64) -> Step<Int> {
        match a {
            IntArg::Literal(a) => Ok(IntArg::Literal(a.div_euclid(b))),
            a => self.emit(Op::FloorDivideInt { a, b: IntArg::Literal(b) }).map(IntArg::Value),
        }
    }

    /// Rows, then columns: each of the result lies between two of the input.
    pub(super) fn resize(&mut self, node: &Node, resize: &StaticResizeBilinear2D) -> Step<()> {
        let mut x = self.value(resize.input_id)?;
        self.of_rank(x, 4)?;
        for (axis, wanted) in [(1, resize.new_height), (2, resize.new_width)] {
            let IntArg::Literal(size) = self.size(x, axis)? else {
                return problem("resizing what has a size that is known at run time only");
            };
            if size <= 0 || wanted == 0 || u64::from(wanted) * 8 > self.limits.decoded_bytes {
                return problem(format!("{size} elements resized to {wanted}"));
            }
            x = self.interpolated(x, axis, size, wanted, resize.flags)?;
        }
        self.give(node, resize.output_id, x)
    }

    fn interpolated(&mut self, x: ValueId, axis: usize, size: i64, wanted: u32, flags: u32) -> Step<ValueId> {
        let scale = match flags & ALIGN_CORNERS {
            0 => size as f32 / wanted as f32,
            _ if wanted > 1 => (size - 1) as f32 / (wanted - 1) as f32,
            _ => 0.0,
        };
        let place = |at: u32| match flags & (ALIGN_CORNERS | LEGACY) {
            0 => ((at as f32 + 0.5) * scale - 0.5).max(0.0),
            _ => at as f32 * scale,
        };
        let last = size - 1;
        let (mut low, mut high, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for at in 0..wanted {
            let place = place(at);
            let before = (place as i64).clamp(0, last);
            low.extend_from_slice(&(before as i32).to_le_bytes());
            high.extend_from_slice(&((before + 1).min(last) as i32).to_le_bytes());
            parts.extend_from_slice(&(place - before as f32).to_le_bytes());
        }
        let count = wanted as usize;
        let name = |what: &str| format!("resize_{axis}_{size}_{wanted}_{flags}_{what}");
        let low = self.written(Part::Main, &name("low"), DType::I32, &[count], &low)?;
        let high = self.written(Part::Main, &name("high"), DType::I32, &[count], &high)?;
        let shape: &[usize] = if axis == 1 { &[count, 1, 1] } else { &[count, 1] };
        let parts = self.written(Part::Main, &name("parts"), DType::F32, shape, &parts)?;
        let mut take = |index| self.emit(Op::Take { x, index: IndexArg::Tensor(index), axis: axis as i32 });
        let (below, above) = (take(low)?, take(high)?);
        let way = self.emit(Op::Subtract { a: above, b: below })?;
        let way = self.emit(Op::Multiply { a: way, b: parts })?;
        self.emit(Op::Add { a: below, b: way })
    }
}

fn pooled(pool: &Pooling, dilation: [u32; 2]) -> Windows {
    Windows {
        frame: [pool.padding_top, pool.padding_bottom, pool.padding_left, pool.padding_right],
        kernel: [pool.pooling_height, pool.pooling_width],
        stride: [pool.stride_height, pool.stride_width],
        dilation,
    }
}
