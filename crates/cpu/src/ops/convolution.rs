//! Convolutions over one to three axes, channels last. Filters of f32 that are constants are packed once, when the first plan is
//! made; all plans of a program share them.

use super::lowering::{Compiled, Lowering, Numbered, Planner, Sums};
use super::rows::Contiguous;
use pteron_ir::{Node, Op, ValueId};
use pteron_kernels::convolution::packed::{self, Filters};
use pteron_kernels::convolution::{Axis, Direction, Shape, convolution, scratch_bytes};
use pteron_kernels::epilogue::Epilogue;
use pteron_kernels::view::View;
use pteron_plan::{Layout, Types};
use pteron_tensor::DType;
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError};

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

/// Sizes and settings of a convolution whose sizes are all known.
struct Known {
    input: Vec<usize>,
    kernel: Vec<usize>,
    output: Vec<usize>,
    axes: Vec<Axis>,
    groups: usize,
    direction: Direction,
}

impl Known {
    fn of(types: &Types, node: &Node) -> Option<Known> {
        let Fields { x, w, axes, groups, direction } = fields(&node.op)?;
        let &result = node.results.first()?;
        let number = |value: i32| usize::try_from(value).ok();
        let axes = axes.into_iter().map(|[stride, padding, dilation]| {
            let stride = number(stride)?.max(1);
            Some(Axis { stride, padding: number(padding)?, dilation: number(dilation)? })
        });
        Some(Known {
            input: types.sizes(x)?,
            kernel: types.sizes(w)?,
            output: types.sizes(result)?,
            axes: axes.collect::<Option<_>>()?,
            groups: number(groups).filter(|&groups| groups > 0)?,
            direction,
        })
    }

    fn shape(&self) -> Shape<'_> {
        let spatial = 1..1 + self.axes.len();
        Shape {
            batch: self.input[0],
            input: &self.input[spatial.clone()],
            kernel: &self.kernel[spatial.clone()],
            output: &self.output[spatial],
            axes: &self.axes,
            channels: self.input[self.axes.len() + 1],
            filters: self.kernel[0],
            groups: self.groups,
            direction: self.direction,
        }
    }
}

/// Whether the filters of a node are packed once.
pub(super) fn is_packed(lower: &Lowering, types: &Types, node: &Node) -> bool {
    let Some(Fields { x, w, .. }) = fields(&node.op) else { return false };
    let is_f32 = |value: ValueId| types.tensor(value).is_some_and(|ty| ty.dtype == DType::F32);
    let has_data = |index: usize| lower.prepared.constants.get(index).is_some();
    is_f32(x)
        && is_f32(w)
        && node.results.iter().all(|&result| is_f32(result))
        && Known::of(types, node).is_some()
        && lower.constant_index(w).is_some_and(has_data)
}

/// The packed filters of a constant: made once, found afterwards.
fn filters(lower: &Lowering, w: ValueId, known: &Known) -> Option<Arc<Filters>> {
    let index = lower.constant_index(w)?;
    let mut packed = lower.prepared.filters.lock().unwrap_or_else(PoisonError::into_inner);
    match packed.entry((index, known.groups)) {
        Entry::Occupied(packed) => Some(packed.get().clone()),
        Entry::Vacant(place) => {
            let data = lower.prepared.constants.get(index)?;
            let layout = Layout::row_major(data.shape())?;
            let view = View::new(data.bytes(), data.dtype(), 0, layout.sizes(), layout.strides())?;
            Some(place.insert(Arc::new(Filters::pack(lower.path, &view, &known.shape())?)).clone())
        }
    }
}

/// The sums of a node whose filters are packed, in the step of that number.
pub(super) fn packed(planner: &mut Planner<'_>, number: usize, node: &Node) -> Option<Sums> {
    let Fields { x, w, .. } = fields(&node.op)?;
    let known = Known::of(planner.types, node)?;
    let filters = filters(&planner.lower, w, &known)?;
    let bytes = filters.scratch_bytes(&known.shape(), planner.lower.threads);
    let scratch = planner.reserve(number, bytes);
    let x = Contiguous::plan_at(planner, number, x)?;
    Some(Box::new(move |run, target, epilogue| {
        let mut layout = Layout::SCALAR;
        let x = x.view(run, &mut layout)?;
        let mut scratch = run.lend(scratch)?;
        packed::convolution(run.pool, target, &x, &filters, &known.shape(), epilogue, &mut scratch);
        Ok(())
    }))
}

/// Sizes that are all known; others are left to the reference backend.
pub(super) fn compile(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Fields { x, w, .. } = fields(&node.node.op)?;
    let &result = node.node.results.first()?;
    let float = |value: ValueId| planner.dtype(value).filter(|dtype| dtype.is_float() && dtype.size() <= 4);
    let (of_x, of_w, of_out) = (float(x)?, float(w)?, float(result)?);
    if of_x != of_w || of_x != of_out || !node.is_static {
        return None;
    }
    if is_packed(&planner.lower, planner.types, &node.node) {
        let sums = packed(planner, node.number, &node.node)?;
        return Some(Compiled::Compute(Box::new(move |run| {
            sums(run, &mut run.target(result)?, &Epilogue::default())
        })));
    }
    let known = Known::of(planner.types, &node.node)?;
    let scratch = planner.reserve(node.number, scratch_bytes(&known.shape(), planner.lower.threads));
    let (x, w) = (Contiguous::plan(planner, node, x)?, Contiguous::plan(planner, node, w)?);
    let path = planner.lower.path;
    Some(Compiled::Compute(Box::new(move |run| {
        let (mut of_x, mut of_w) = (Layout::SCALAR, Layout::SCALAR);
        let (x, w, mut target) = (x.view(run, &mut of_x)?, w.view(run, &mut of_w)?, run.target(result)?);
        let mut scratch = run.lend(scratch)?;
        convolution(run.pool, path, &mut target, &x, &w, &known.shape(), &mut scratch);
        Ok(())
    })))
}
