//! Element-wise ops that run in the step of the product or convolution before them: while sums are in registers where all that
//! follows is a bias, a residual sum and bounds, else over rows that were just written and are still near.

use super::elementwise::{self, Fused, MOST_OPERANDS, apply_to, fuse};
use super::lowering::{Compiled, Lowering, Numbered, Planner, Sums, constant};
use super::rows::{Contiguous, floats};
use super::{convolution, matmul};
use crate::constants::Form;
use crate::fault::invalid;
use crate::run::Run;
use pteron_ir::{Node, Op, Ssa, ValueId};
use pteron_kernels::elementwise::Chain;
use pteron_kernels::epilogue::Epilogue;
use pteron_kernels::view::{View, ViewMut};
use pteron_plan::{Layout, Types};
use pteron_runtime::NodeError;
use pteron_tensor::DType;
use std::collections::HashMap;
use std::ops::Range;

/// Whether the step of a node can go on with element-wise ones.
pub(super) fn can_begin(lower: &Lowering, types: &Types, node: &Node) -> bool {
    lower.form == Form::Fused
        && (convolution::is_packed(lower, types, node) || matmul::is_packed(lower, types, node))
}

/// Whether an op is one that could.
pub(super) fn begins(op: &Op<Ssa>) -> bool {
    matches!(op, Op::Addmm { .. }) || convolution::is_convolution(op)
}

/// The one that begins a group.
pub(super) fn begun<'n>(inner: &HashMap<ValueId, &'n Node>) -> Option<&'n Node> {
    inner.values().copied().find(|node| begins(&node.op))
}

/// Whether a node can end a group: sums are written where its result is.
pub(super) fn fits(types: &Types, node: &Node, inner: &HashMap<ValueId, &Node>) -> bool {
    let is_f32 = |value: &ValueId| types.tensor(*value).is_some_and(|ty| ty.dtype == DType::F32);
    begun(inner).is_none() || node.results.iter().all(is_f32)
}

/// What follows in registers.
#[derive(Default)]
struct InRegisters {
    bias: Option<ValueId>,
    residual: Option<Contiguous>,
    low: Option<f32>,
    high: Option<f32>,
}

/// What follows.
enum Behind {
    Registers(InRegisters),
    /// The sums are the chain's operand of this number, in the very place of its result.
    Chain(Chain, Vec<ValueId>, usize),
}

/// The step of an element-wise node, with what runs inside.
pub(super) fn compile(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let groups = planner.groups;
    let Some((inner, first)) = groups.inner(node.number).and_then(|inner| Some((inner, begun(inner)?)))
    else {
        return elementwise::compile(planner, node);
    };
    // Nobody else computes what runs inside: where the step cannot be made, it fails and does not leave that out.
    let refused = || Compiled::Compute(Box::new(|_| Err(invalid("a group that cannot be made"))));
    Some(begin(planner, node, inner, first).unwrap_or_else(refused))
}

/// The step of a group that a product or a convolution begins.
fn begin(
    planner: &mut Planner<'_>,
    node: &Numbered,
    inner: &HashMap<ValueId, &Node>,
    first: &Node,
) -> Option<Compiled> {
    let (&result, &sum) = (node.node.results.first()?, first.results.first()?);
    let sums = match first.op {
        Op::Addmm { .. } => matmul::packed(planner, node.number, first)?,
        _ => convolution::packed(planner, node.number, first)?,
    };
    let takes_bias = !matches!(first.op, Op::Addmm { bias: Some(_), .. });
    let behind = match in_registers(planner, node, inner, sum, takes_bias) {
        Some(registers) => Behind::Registers(registers),
        None => {
            let Fused { chain, operands } = fuse(&node.node, inner, planner.types, planner.lower.path)?;
            let at = operands.iter().position(|&operand| operand == sum)?;
            Behind::Chain(chain, operands, at)
        }
    };
    Some(Compiled::Compute(Box::new(move |run| {
        let mut target = run.target(result)?;
        match &behind {
            Behind::Registers(registers) => registers.run(run, &sums, &mut target),
            Behind::Chain(chain, operands, at) => chained(run, &sums, &mut target, (chain, operands, *at)),
        }
    })))
}

/// A number that a constant of one element holds.
fn number(planner: &Planner<'_>, value: ValueId) -> Option<f32> {
    let tensor = constant(planner, value)?;
    match tensor.as_slice::<f32>().ok()? {
        [number] if !number.is_nan() => Some(*number),
        _ => None,
    }
}

/// Reads a group from its last node to its first: bounds, a residual sum, a bias, in that order.
fn in_registers(
    planner: &mut Planner<'_>,
    node: &Numbered,
    inner: &HashMap<ValueId, &Node>,
    sum: ValueId,
    takes_bias: bool,
) -> Option<InRegisters> {
    let sizes = planner.types.sizes(sum)?;
    let columns = *sizes.last()?;
    let mut found = InRegisters::default();
    let mut residual = None;
    let mut at: &Node = &node.node;
    loop {
        let x = match at.op {
            Op::Clip { x, a_min, a_max } => {
                let open = found.low.is_none() && found.high.is_none() && residual.is_none();
                if !open || found.bias.is_some() {
                    return None;
                }
                found.low = a_min.map(|low| number(planner, low).ok_or(())).transpose().ok()?;
                found.high = a_max.map(|high| number(planner, high).ok_or(())).transpose().ok()?;
                x
            }
            Op::Minimum { a, b } => {
                if found.low.is_some() || found.high.is_some() || residual.is_some() || found.bias.is_some() {
                    return None;
                }
                found.high = Some(number(planner, b)?);
                a
            }
            Op::Maximum { a, b } => {
                if found.low.is_some() || residual.is_some() || found.bias.is_some() {
                    return None;
                }
                found.low = Some(number(planner, b)?);
                a
            }
            Op::Add { a, b } => {
                let leads = |value: ValueId| value == sum || inner.contains_key(&value);
                let (x, other) = match (leads(a), leads(b)) {
                    (true, false) => (a, b),
                    (false, true) => (b, a),
                    _ => return None,
                };
                let shape = planner.types.sizes(other)?;
                let is_row = shape.last() == Some(&columns) && shape.iter().product::<usize>() == columns;
                if planner.dtype(other) != Some(DType::F32) || found.bias.is_some() {
                    return None;
                }
                match is_row && constant(planner, other).is_some() && takes_bias {
                    true => found.bias = Some(other),
                    false if shape == sizes && residual.is_none() => residual = Some(other),
                    false => return None,
                }
                x
            }
            _ => return None,
        };
        if x == sum {
            break;
        }
        at = inner.get(&x)?;
    }
    if let Some(residual) = residual {
        found.residual = Some(Contiguous::plan(planner, node, residual)?);
    }
    Some(found)
}

impl InRegisters {
    fn run(&self, run: &Run<'_>, sums: &Sums, target: &mut ViewMut<'_>) -> Result<(), NodeError> {
        let mut layout = Layout::SCALAR;
        let bias = self.bias.map(|bias| run.view(bias)).transpose()?;
        let bias = bias.as_ref().map(floats).transpose()?;
        let residual = self.residual.as_ref().map(|residual| residual.view(run, &mut layout)).transpose()?;
        let residual = residual.as_ref().map(floats).transpose()?;
        sums(run, target, &Epilogue { bias, residual, low: self.low, high: self.high, then: None })
    }
}

/// An operand of a chain as rows of the target's last axis.
#[derive(Clone, Copy)]
struct Plane {
    data: *const u8,
    dtype: DType,
    strides: [isize; 2],
}

// SAFETY: a part of a view that the step holds; tasks read it, and write disjoint parts of the target.
unsafe impl Sync for Plane {}

impl Plane {
    /// Where an element lies.
    fn at(&self, row: usize, column: usize) -> *const u8 {
        let at = row as isize * self.strides[0] + column as isize * self.strides[1];
        self.data.wrapping_offset(at * self.dtype.size() as isize)
    }
}

/// Sums, and a chain over each part of them that was written.
fn chained(
    run: &Run<'_>,
    sums: &Sums,
    target: &mut ViewMut<'_>,
    (chain, operands, sum): (&Chain, &[ValueId], usize),
) -> Result<(), NodeError> {
    let columns = target.sizes().last().copied().unwrap_or(1);
    let rows = target.len() / columns.max(1);
    let out = Plane { data: target.data(), dtype: target.dtype(), strides: [columns as isize, 1] };
    let mut planes = [out; MOST_OPERANDS];
    for (number, (&operand, plane)) in operands.iter().zip(&mut planes).enumerate() {
        if number == sum {
            continue;
        }
        let view = run.view(operand)?;
        let spread = run.slot(operand).layout.broadcast_to(target.sizes());
        let Some(layout) = spread.and_then(|spread| spread.reshape(&[rows, columns])) else {
            // It does not lie in even rows: the whole chain comes behind all sums.
            sums(run, target, &Epilogue::default())?;
            return apply_to(run, chain, operands, target, Some(sum));
        };
        let strides = [layout.strides()[0], layout.strides()[1]];
        *plane = Plane { data: view.data(), dtype: view.dtype(), strides };
    }
    let planes = &planes[..operands.len()];
    let then = |rows: Range<usize>, columns: Range<usize>| {
        let sizes = [rows.len(), columns.len()];
        let at = |plane: &Plane| plane.at(rows.start, columns.start);
        // SAFETY: parts of the target and of operands that were spread to its sizes; this part of the target was written by
        // this task, and nobody else touches it.
        unsafe {
            let mut views = [View::from_raw(at(&out), out.dtype, &sizes, &out.strides); MOST_OPERANDS];
            for (plane, to) in planes.iter().zip(&mut views) {
                *to = View::from_raw(at(plane), plane.dtype, &sizes, &plane.strides);
            }
            let mut to = ViewMut::from_raw(at(&out).cast_mut(), out.dtype, &sizes, &out.strides);
            chain.run_alone(&mut to, &views[..planes.len()]);
        }
    };
    sums(run, target, &Epilogue { then: Some(&then), ..Epilogue::default() })
}
