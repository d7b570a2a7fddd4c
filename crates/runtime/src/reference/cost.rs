//! An estimate of an op's work from the sizes of its operands and results, so that a run can be refused before
//! it takes forever. Only products matter; everything else counts as the elements it touches.

use super::interpret::extent;
use pteron_ir::{Node, Op, ValueId};

/// Multiply-adds of products, elements read and written of everything else. `shape_of` knows the operands;
/// `written` is the extent of all results.
pub fn work<'a>(node: &Node, shape_of: &dyn Fn(ValueId) -> &'a [usize], written: u64) -> u64 {
    let shape = |value: ValueId| shape_of(value);
    let last = |value: ValueId| shape(value).last().copied().unwrap_or(1);
    let mut touched = written;
    node.for_each_operand(|value| touched = touched.saturating_add(extent(shape(value))));
    let inner = match &node.op {
        Op::Addmm { mat1, .. } => last(*mat1),
        Op::GatherMm { a, .. } => last(*a),
        Op::QuantizedMatmul { x, .. } | Op::GatherQmm { x, .. } | Op::Projections { x, .. } => last(*x),
        // Two products for each element that is given.
        Op::GatedProjection { x, .. } => last(*x).saturating_mul(2),
        // Each output sums over one kernel, each kernel element over one group of channels.
        Op::Conv1D { w, .. } | Op::Conv2D { w, .. } | Op::Conv3D { w, .. } => product(tail(shape(*w))),
        Op::ConvTranspose1D { w, .. } | Op::ConvTranspose2D { w, .. } | Op::ConvTranspose3D { w, .. } => {
            product(tail(shape(*w)))
        }
        Op::Sdpa { k, .. } => shape(*k).get(2).copied().unwrap_or(1).saturating_mul(2),
        Op::MetalKernel { inputs, .. } => inputs.iter().map(|&input| last(input)).max().unwrap_or(1),
        Op::Sort { x, axis } | Op::Argsort { x, axis } => logarithm(along(shape(*x), *axis)),
        Op::Partition { x, axis, .. } | Op::ArgPartition { x, axis, .. } => {
            logarithm(along(shape(*x), *axis))
        }
        Op::Median { x, .. } => logarithm(product(shape(*x))),
        _ => 1,
    };
    touched.saturating_add(written.saturating_mul(inner as u64))
}

fn along(shape: &[usize], axis: i32) -> usize {
    let at = if axis < 0 { i64::from(axis) + shape.len() as i64 } else { axis.into() };
    usize::try_from(at).ok().and_then(|at| shape.get(at)).copied().unwrap_or(1)
}

fn logarithm(size: usize) -> usize {
    size.max(1).ilog2() as usize + 1
}

/// All dims but the first.
fn tail(shape: &[usize]) -> &[usize] {
    shape.get(1..).unwrap_or_default()
}

fn product(dims: &[usize]) -> usize {
    dims.iter().fold(1, |product: usize, &dim| product.saturating_mul(dim))
}
