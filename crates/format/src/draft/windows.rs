//! Windows over rows and columns, channels last, and resizing. Windows are a strided view of the padded input; sizes that
//! are known at run time only stay integers of the graph.

use pteron_ir::op::{FloatArg, IndexArg, IntArg};
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::{Draft, Int, Part, Step, problem};

/// How windows lie on rows and columns.
pub(crate) struct Windows {
    /// Above, below, at the left, at the right.
    pub(crate) frame: [u32; 4],
    pub(crate) kernel: [u32; 2],
    pub(crate) stride: [u32; 2],
    pub(crate) dilation: [u32; 2],
}

/// Where the elements of a resized axis come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resize {
    /// Corners keep their places.
    Corners,
    /// Elements are areas with a middle.
    HalfPixels,
    /// TensorFlow's old way: no half pixels.
    Plain,
}

impl Draft<'_> {
    /// A frame of one number around rows and columns.
    pub(crate) fn framed(&mut self, x: ValueId, frame: [u32; 4], fill: f32) -> Step<ValueId> {
        if frame == [0; 4] {
            return Ok(x);
        }
        let [top, bottom, left, right] = frame;
        let pad_width =
            [0, 0, top, bottom, left, right, 0, 0].map(|width| IntArg::Literal(width.into())).to_vec();
        self.emit(Op::Pad { x, pad_width, mode: "constant".into(), constant_value: fill })
    }

    /// Every window: [batch, rows, columns, height, width, channels].
    pub(crate) fn windows(&mut self, x: ValueId, windows: &Windows, fill: f32) -> Step<ValueId> {
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
            let room = self.plus(sizes[axis + 1], IntArg::Literal(-reach))?;
            if matches!(room, IntArg::Literal(room) if room < 0) {
                return problem("windows that do not fit");
            }
            let count = self.divided(room, stride)?;
            shape.push(self.plus(count, IntArg::Literal(1))?);
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

    /// The mean of what lies inside the input: padding does not count.
    pub(crate) fn mean_of_windows(&mut self, x: ValueId, windows: &Windows) -> Step<ValueId> {
        let axes = || Some(vec![3, 4]);
        let seen = self.windows(x, windows, 0.0)?;
        if windows.frame == [0; 4] {
            return self.emit(Op::Mean { x: seen, axes: axes(), keepdims: false });
        }
        let sum = self.emit(Op::Sum { x: seen, axes: axes(), keepdims: false })?;
        let shape = vec![IntArg::Literal(1), self.size(x, 1)?, self.size(x, 2)?, IntArg::Literal(1)];
        let dtype = self.dtype(x)?;
        let ones = self.emit(Op::Full { shape, v: FloatArg::Literal(1.0), scalar_type: dtype })?;
        let seen = self.windows(ones, windows, 0.0)?;
        let count = self.emit(Op::Sum { x: seen, axes: axes(), keepdims: false })?;
        self.emit(Op::Divide { a: sum, b: count })
    }

    /// The same with rows and columns at their largest, where nothing says which sizes are free: mostly the batch alone is. What
    /// has others is refused when it runs: no smaller image has as many elements.
    pub(crate) fn at_its_largest(&mut self, x: ValueId, axes: [usize; 2]) -> Step<ValueId> {
        let mut shape = self.sizes(x)?;
        let mut is_free = false;
        for axis in axes {
            if !matches!(shape.get(axis), Some(IntArg::Value(_))) {
                continue;
            }
            let dim = self.ty(Part::Main, x)?.shape[axis].clone();
            let Some(most) = self.main.graph().symbols.upper(&dim) else {
                return problem("resizing what has a size without a bound");
            };
            (shape[axis], is_free) = (IntArg::Literal(most), true);
        }
        if is_free { self.emit(Op::Reshape { x, shape }) } else { Ok(x) }
    }

    /// An axis of `size` elements as one of `wanted`: each lies between two of the input. A `ratio` of sizes may be given.
    pub(crate) fn interpolated(
        &mut self,
        x: ValueId,
        axis: usize,
        (size, wanted): (i64, u32),
        way: Resize,
        ratio: Option<f32>,
    ) -> Step<ValueId> {
        let rank = self.rank(x)?;
        if size <= 0 || wanted == 0 || axis >= rank || u64::from(wanted) * 8 > self.limits.decoded_bytes {
            return problem(format!("{size} elements resized to {wanted}"));
        }
        let scale = match way {
            Resize::Corners if wanted > 1 => (size - 1) as f32 / (wanted - 1) as f32,
            Resize::Corners => 0.0,
            Resize::HalfPixels | Resize::Plain => ratio.unwrap_or(size as f32 / wanted as f32),
        };
        let place = |at: u32| match way {
            Resize::HalfPixels => ((at as f32 + 0.5) * scale - 0.5).max(0.0),
            Resize::Corners | Resize::Plain => at as f32 * scale,
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
        let name = |what: &str| format!("resize_{axis}_{rank}_{size}_{wanted}_{way:?}_{ratio:?}_{what}");
        let low = self.written(Part::Main, &name("low"), DType::I32, &[count], &low)?;
        let high = self.written(Part::Main, &name("high"), DType::I32, &[count], &high)?;
        let mut shape = vec![1; rank.saturating_sub(axis)];
        shape[0] = count;
        let parts = self.written(Part::Main, &name("parts"), DType::F32, &shape, &parts)?;
        let mut take = |index| self.emit(Op::Take { x, index: IndexArg::Tensor(index), axis: axis as i32 });
        let (below, above) = (take(low)?, take(high)?);
        let rise = self.emit(Op::Subtract { a: above, b: below })?;
        let dtype = self.dtype(rise)?;
        let parts = self.cast(parts, dtype)?;
        let rise = self.emit(Op::Multiply { a: rise, b: parts })?;
        self.emit(Op::Add { a: below, b: rise })
    }
}
