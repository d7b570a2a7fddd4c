//! Pools and resizing, channels last. Windows are a strided view of the padded input, folded; sizes that are known at
//! run time only stay integers of the graph.

use pteron_ir::Op;
use pteron_ir::op::IntArg;

use super::Lifter;
use crate::draft::{Int, Resize, Step, Windows, problem};
use crate::xnnpack::node::{ArgMaxPooling, Node, Pooling, StaticResizeBilinear2D};

/// Corners keep their places.
const ALIGN_CORNERS: u32 = 8;
/// TensorFlow's old way: no half pixels.
const LEGACY: u32 = 4;

impl Lifter<'_> {
    pub(super) fn max_pool(&mut self, node: &Node, pool: &Pooling) -> Step<()> {
        let x = self.value(pool.input_id)?;
        let windows = pooled(pool, [pool.dilation_height, pool.dilation_width]);
        let seen = self.windows(x, &windows, f32::NEG_INFINITY)?;
        let value = self.emit(Op::Max { x: seen, axes: Some(vec![3, 4]), keepdims: false })?;
        self.pass(node, &[pool.input_id], pool.output_id, value)
    }

    /// The mean of what lies inside the input: padding does not count.
    pub(super) fn average_pool(&mut self, node: &Node, pool: &Pooling) -> Step<()> {
        let x = self.value(pool.input_id)?;
        let windows = pooled(pool, [1, 1]);
        let value = self.mean_of_windows(x, &windows)?;
        self.give(node, pool.output_id, value)
    }

    /// Windows side by side: the largest of each, and its index row by row.
    pub(super) fn arg_max_pool(&mut self, node: &Node, pool: &ArgMaxPooling) -> Step<()> {
        let x = self.value(pool.input_id)?;
        let kernel = [pool.pooling_height, pool.pooling_width];
        let frame = [pool.padding_top, pool.padding_bottom, pool.padding_left, pool.padding_right];
        let windows = Windows { frame, kernel, stride: kernel, dilation: [1, 1] };
        let seen = self.windows(x, &windows, f32::NEG_INFINITY)?;
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

    /// Rows, then columns: each of the result lies between two of the input.
    pub(super) fn resize(&mut self, node: &Node, resize: &StaticResizeBilinear2D) -> Step<()> {
        let x = self.value(resize.input_id)?;
        self.of_rank(x, 4)?;
        let mut x = self.at_its_largest(x, [1, 2])?;
        for (axis, wanted) in [(1, resize.new_height), (2, resize.new_width)] {
            let IntArg::Literal(size) = self.size(x, axis)? else {
                return problem("resizing what has a size that is known at run time only");
            };
            let way = match resize.flags & (ALIGN_CORNERS | LEGACY) {
                0 => Resize::HalfPixels,
                LEGACY => Resize::Plain,
                _ => Resize::Corners,
            };
            x = self.interpolated(x, axis, (size, wanted), way, None)?;
        }
        self.give(node, resize.output_id, x)
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
