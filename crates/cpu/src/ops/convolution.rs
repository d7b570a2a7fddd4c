//! Convolutions over one to three axes, channels last.

use super::lowering::{Compiled, Numbered, Planner};
use super::rows::Contiguous;
use pteron_ir::{Op, ValueId};
use pteron_kernels::convolution::{Axis, Direction, Shape, convolution, scratch_bytes};
use pteron_plan::Layout;

/// What an op says of its axes.
struct Fields {
    x: ValueId,
    w: ValueId,
    axes: Vec<[i32; 3]>,
    groups: i32,
    direction: Direction,
}

#[rustfmt::skip]
fn fields(op: &Op<pteron_ir::Ssa>) -> Option<Fields> {
    use Direction::{Plain, Transposed};
    let (x, w, axes, groups, direction) = match *op {
        Op::Conv1D { x, w, stride, padding, dilation, groups } => (x, w, vec![[stride, padding, dilation]], groups, Plain),
        Op::Conv2D { x, w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups } => {
            (x, w, vec![[stride_h, padding_h, dilation_h], [stride_w, padding_w, dilation_w]], groups, Plain)
        }
        Op::Conv3D {
            x, w, stride_d, stride_h, stride_w, padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w, groups,
        } => {
            let axes = vec![
                [stride_d, padding_d, dilation_d], [stride_h, padding_h, dilation_h], [stride_w, padding_w, dilation_w],
            ];
            (x, w, axes, groups, Plain)
        }
        Op::ConvTranspose1D { x, w, stride, padding, dilation, groups, .. } => {
            (x, w, vec![[stride, padding, dilation]], groups, Transposed)
        }
        Op::ConvTranspose2D { x, w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups, .. } => {
            (x, w, vec![[stride_h, padding_h, dilation_h], [stride_w, padding_w, dilation_w]], groups, Transposed)
        }
        Op::ConvTranspose3D {
            x, w, stride_d, stride_h, stride_w, padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w, groups, ..
        } => {
            let axes = vec![
                [stride_d, padding_d, dilation_d], [stride_h, padding_h, dilation_h], [stride_w, padding_w, dilation_w],
            ];
            (x, w, axes, groups, Transposed)
        }
        _ => return None,
    };
    Some(Fields { x, w, axes, groups, direction })
}

/// Whether an op is one of these.
pub(super) fn is_convolution(op: &Op<pteron_ir::Ssa>) -> bool {
    fields(op).is_some()
}

/// Sizes that are all known; others are left to the reference backend.
pub(super) fn compile(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Fields { x, w, axes, groups, direction } = fields(&node.node.op)?;
    let &result = node.node.results.first()?;
    let float = |value: ValueId| planner.dtype(value).filter(|dtype| dtype.is_float() && dtype.size() <= 4);
    let (of_x, of_w, of_out) = (float(x)?, float(w)?, float(result)?);
    if of_x != of_w || of_x != of_out || !node.is_static {
        return None;
    }
    let (input, kernel, output) =
        (planner.types.sizes(x)?, planner.types.sizes(w)?, planner.types.sizes(result)?);
    let number = |value: i32| usize::try_from(value).ok();
    let axes: Vec<Axis> = axes
        .into_iter()
        .map(|[stride, padding, dilation]| {
            Some(Axis {
                stride: number(stride)?.max(1),
                padding: number(padding)?,
                dilation: number(dilation)?,
            })
        })
        .collect::<Option<_>>()?;
    let groups = number(groups).filter(|&groups| groups > 0)?;
    let spatial = 1..1 + axes.len();
    let shape = move |scratch: &mut dyn FnMut(&Shape<'_>)| {
        scratch(&Shape {
            batch: input[0],
            input: &input[spatial.clone()],
            kernel: &kernel[spatial.clone()],
            output: &output[spatial.clone()],
            axes: &axes,
            channels: input[axes.len() + 1],
            filters: kernel[0],
            groups,
            direction,
        });
    };
    let mut bytes = 0;
    let threads = planner.lower.threads;
    shape(&mut |shape| bytes = scratch_bytes(shape, threads));
    let scratch = planner.reserve(node.number, bytes);
    let (x, w) = (Contiguous::plan(planner, node, x)?, Contiguous::plan(planner, node, w)?);
    let path = planner.lower.path;
    Some(Compiled::Compute(Box::new(move |run| {
        let (mut of_x, mut of_w) = (Layout::SCALAR, Layout::SCALAR);
        let (x, w, mut target) = (x.view(run, &mut of_x)?, w.view(run, &mut of_w)?, run.target(result)?);
        let mut scratch = run.lend(scratch)?;
        shape(&mut |shape| convolution(run.pool, path, &mut target, &x, &w, shape, &mut scratch));
        Ok(())
    })))
}
