//! Tensors made of numbers, and tensors joined from others.

use super::lowering::{Compiled, Numbered, Planner};
use crate::fault::invalid;
use crate::step::Kernel;
use pteron_ir::op::{FloatArg, IntArg};
use pteron_ir::rules::SliceRange;
use pteron_ir::{Op, Type, TypeSource, ValueId};
use pteron_kernels::copy::copy;
use pteron_kernels::elementwise::{Chain, ChainBuilder};
use pteron_kernels::view::ViewMut;
use pteron_plan::counted;
use pteron_tensor::{DType, Scalar};

pub(super) fn compile(planner: &Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let &result = node.node.results.first()?;
    let dtype = planner.dtype(result)?;
    let kernel: Kernel = match node.node.op.clone() {
        Op::Full { v: FloatArg::Literal(number), .. } | Op::FullLike { v: FloatArg::Literal(number), .. } => {
            let mut builder = ChainBuilder::new(planner.lower.path);
            let value = builder.constant(Scalar::Float(number), dtype)?;
            let chain = builder.finish(value)?;
            Box::new(move |run| {
                chain.run(run.pool, &mut run.target(result)?, &[]);
                Ok(())
            })
        }
        // A number that is read from the data.
        Op::Full { v: FloatArg::Value(number), .. } | Op::FullLike { v: FloatArg::Value(number), .. } => {
            let is_integer = matches!(planner.types.type_of(number), Some(Type::Int(_)));
            if !is_integer || !matches!(dtype, DType::I32 | DType::I64 | DType::F32) {
                return None;
            }
            // The number is open when the plan is made, but the sizes are not.
            let (sizes, whole) = (planner.types.sizes(result)?, node.node.clone());
            return Some(Compiled::Whole(Box::new(move |run| {
                run.place_result(&whole, result, &sizes)?;
                let (number, target) = (run.int(&IntArg::Value(number)), run.target(result)?);
                for index in 0..target.len() {
                    // SAFETY: the result is row-major in storage of its own.
                    unsafe {
                        match dtype {
                            DType::I32 => target.data().cast::<i32>().add(index).write(number as i32),
                            DType::I64 => target.data().cast::<i64>().add(index).write(number),
                            _ => target.data().cast::<f32>().add(index).write(number as f32),
                        }
                    }
                }
                Ok(())
            })));
        }
        Op::ARange { start, step, .. } => {
            if !matches!(dtype, DType::I32 | DType::I64) {
                return None;
            }
            Box::new(move |run| {
                let (start, step, target) = (run.int(&start), run.int(&step), run.target(result)?);
                for index in 0..target.len() {
                    let value = start.wrapping_add(step.wrapping_mul(index as i64));
                    // SAFETY: the result is row-major in storage of its own.
                    unsafe {
                        match dtype {
                            DType::I32 => target.data().cast::<i32>().add(index).write(value as i32),
                            _ => target.data().cast::<i64>().add(index).write(value),
                        }
                    }
                }
                Ok(())
            })
        }
        Op::Concatenate { tensors, axis } => {
            let axis = counted(axis, planner.types.tensor(result)?.shape.len())?;
            joined(planner, result, &tensors, axis, false)?
        }
        Op::Stack { tensors, axis } => {
            let axis = counted(axis, planner.types.tensor(result)?.shape.len())?;
            joined(planner, result, &tensors, axis, true)?
        }
        Op::Pad { x, pad_width, mode, constant_value } if mode == "constant" => {
            padded(planner, result, x, pad_width, constant_value)?
        }
        _ => return None,
    };
    Some(Compiled::Compute(kernel))
}

/// Tensors side by side along an axis; with `stacked`, each is one step of a new axis.
fn joined(
    planner: &Planner<'_>,
    result: ValueId,
    tensors: &[ValueId],
    axis: usize,
    stacked: bool,
) -> Option<Kernel> {
    let dtype = planner.dtype(result)?;
    let parts = tensors.iter().map(|&value| {
        let from = planner.dtype(value)?;
        let cast = if from == dtype { None } else { Some(Chain::cast(from, dtype, planner.lower.path)?) };
        Some((value, cast))
    });
    let parts: Vec<(ValueId, Option<Chain>)> = parts.collect::<Option<_>>()?;
    Some(Box::new(move |run| {
        let target = run.target(result)?;
        let whole = run.slot(result).layout;
        let mut start = 0;
        for (value, cast) in &parts {
            let source = run.view(*value)?;
            let count = if stacked { 1 } else { source.sizes()[axis] };
            let part = whole.slice(axis, SliceRange { start, step: 1, count });
            let (offset, mut layout) = part.ok_or_else(|| invalid("no such axis"))?;
            if stacked {
                layout = layout.remove_axis(axis).ok_or_else(|| invalid("no such axis"))?;
            }
            let data = target.data().wrapping_offset(offset * dtype.size() as isize);
            // SAFETY: a part of the result, by its rule as large as the operand.
            let mut part = unsafe { ViewMut::from_raw(data, dtype, layout.sizes(), layout.strides()) };
            match cast {
                Some(cast) => cast.run(run.pool, &mut part, &[source]),
                None => copy(run.pool, &mut part, &source),
            }
            start += count;
        }
        Ok(())
    }))
}

/// A tensor with a number around it.
fn padded(
    planner: &Planner<'_>,
    result: ValueId,
    x: ValueId,
    widths: Vec<IntArg<ValueId>>,
    number: f32,
) -> Option<Kernel> {
    let dtype = planner.dtype(result)?;
    let mut builder = ChainBuilder::new(planner.lower.path);
    let value = builder.constant(Scalar::Float(number.into()), dtype)?;
    let fill = builder.finish(value)?;
    Some(Box::new(move |run| {
        let (source, target) = (run.view(x)?, run.target(result)?);
        let no_axis = || invalid("widths that do not fit");
        let at = |offset: isize| target.data().wrapping_offset(offset * dtype.size() as isize);
        let (mut inside, mut offset) = (run.slot(result).layout, 0);
        for (axis, &size) in source.sizes().iter().enumerate() {
            let width = widths.get(2 * axis).ok_or_else(no_axis)?;
            let before = usize::try_from(run.int(width)).map_err(|_| no_axis())?;
            let all = inside.sizes()[axis];
            let behind = before.checked_add(size).filter(|&end| end <= all).ok_or_else(no_axis)?;
            // What lies before and behind along this axis, within what earlier axes have left.
            for (start, end) in [(0, before), (behind, all)] {
                let part = inside.slice(axis, SliceRange { start, step: 1, count: end - start });
                let (from, layout) = part.ok_or_else(no_axis)?;
                // SAFETY: a part of the result.
                let mut part =
                    unsafe { ViewMut::from_raw(at(offset + from), dtype, layout.sizes(), layout.strides()) };
                fill.run(run.pool, &mut part, &[]);
            }
            let middle = inside.slice(axis, SliceRange { start: before, step: 1, count: size });
            let (from, layout) = middle.ok_or_else(no_axis)?;
            (inside, offset) = (layout, offset + from);
        }
        // SAFETY: a part of the result, as large as the operand.
        let mut part = unsafe { ViewMut::from_raw(at(offset), dtype, inside.sizes(), inside.strides()) };
        copy(run.pool, &mut part, &source);
        Ok(())
    }))
}
