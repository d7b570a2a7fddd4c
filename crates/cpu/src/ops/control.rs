//! Branches and loops: nested steps over the same values.

use super::lowering::{Compiled, Numbered, Planner};
use crate::copy;
use crate::fault::{invalid, of_run};
use crate::frame::Slot;
use crate::run::Run;
use crate::step::{Step, run_all};
use pteron_ir::rules::SliceRange;
use pteron_ir::{Op, ValueId};
use pteron_kernels::copy::copy as kernels_copy;
use pteron_kernels::view::ViewMut;
use pteron_plan::{Layout, counted};
use pteron_runtime::NodeError;

/// Copies a value into another one's own storage, or its number.
fn assign(run: &mut Run<'_>, to: ValueId, from: ValueId) -> Result<(), NodeError> {
    if run.plan.dtypes[to.0 as usize].is_none() {
        let number = run.number(from);
        run.set_number(to, number);
        return Ok(());
    }
    let layout = run.slot(from).layout;
    run.place(to, layout.sizes())?;
    kernels_copy(run.pool, &mut run.target(to)?, &run.view(from)?);
    Ok(())
}

pub(super) fn branch(node: &Numbered, blocks: Vec<Vec<Step>>) -> Compiled {
    let (Op::If { cond, then_chain_idx, else_chain_idx }, Ok([then, otherwise])) =
        (&node.node.op, <[Vec<Step>; 2]>::try_from(blocks))
    else {
        return Compiled::Whole(Box::new(|_| Err(invalid("not a branch"))));
    };
    let branches = [(then, then_chain_idx.results.clone()), (otherwise, else_chain_idx.results.clone())];
    let (cond, results) = (*cond, node.node.results.clone());
    Compiled::Whole(Box::new(move |run| {
        let (steps, given) = &branches[usize::from(run.int(&cond) == 0)];
        run_all(run, steps).map_err(of_run)?;
        for (&to, &from) in results.iter().zip(given) {
            assign(run, to, from)?;
        }
        Ok(())
    }))
}

/// A loop over slices of one axis.
struct Loop {
    steps: Vec<Step>,
    axis: i32,
    originals: Vec<ValueId>,
    /// By original: the parameter that is its slice.
    slices: Vec<ValueId>,
    /// What goes in, the parameter that holds it, what the next step is given, where that waits, the result.
    carried: Vec<Carried>,
    /// What each step gives, and the result that stacks them.
    stacked: Vec<(ValueId, ValueId)>,
}

struct Carried {
    start: ValueId,
    param: ValueId,
    next: ValueId,
    staging: usize,
    result: ValueId,
}

pub(super) fn scan(planner: &mut Planner<'_>, node: &Numbered, blocks: Vec<Vec<Step>>) -> Compiled {
    let (Op::Scan { originals, carry, body_chain_idx: body, scan_axis, .. }, Ok([nested])) =
        (&node.node.op, <[Vec<Step>; 1]>::try_from(blocks))
    else {
        return Compiled::Whole(Box::new(|_| Err(invalid("not a loop"))));
    };
    let results = &node.node.results;
    let fits = body.params.len() == originals.len() + carry.len()
        && body.results.len() >= carry.len()
        && results.len() == body.results.len();
    if !fits {
        return Compiled::Whole(Box::new(|_| Err(invalid("the body does not take what the loop gives"))));
    }
    let outputs = body.results.len() - carry.len();
    let (slices, params) = body.params.split_at(originals.len());
    let carried = (carry.iter().zip(params))
        .zip(body.results[outputs..].iter().zip(&results[outputs..]))
        .map(|((&start, &param), (&next, &result))| {
            let bytes = planner.types.most_bytes(param).unwrap_or(0);
            // It waits while the body's values are read, so it is held for the whole loop.
            let last = planner.lifetimes.behind(node.number);
            let staging = planner.reserve_until(node.number, last, bytes);
            Carried { start, param, next, staging, result }
        })
        .collect();
    let looped = Loop {
        steps: nested,
        axis: *scan_axis,
        originals: originals.clone(),
        slices: slices.to_vec(),
        carried,
        stacked: body.results[..outputs].iter().copied().zip(results.iter().copied()).collect(),
    };
    Compiled::Whole(Box::new(move |run| looped.run(run)))
}

impl Loop {
    fn run(&self, run: &mut Run<'_>) -> Result<(), NodeError> {
        let count = self.count(run)?;
        if count == 0 && !self.stacked.is_empty() {
            return Err(invalid("a loop over an empty axis has nothing to stack"));
        }
        for carried in &self.carried {
            assign(run, carried.param, carried.start)?;
        }
        for step in 0..count {
            run.control.charge(1).map_err(of_run)?;
            for (&original, &slice) in self.originals.iter().zip(&self.slices) {
                let slot = slice_of(run, original, self.axis, step)?;
                run.set(slice, slot);
            }
            run_all(run, &self.steps).map_err(of_run)?;
            for &(given, result) in &self.stacked {
                self.stack(run, given, result, step, count)?;
            }
            // What is passed on may lie in what was carried: all of it is put aside before any of it is placed.
            for carried in &self.carried {
                put_aside(run, carried)?;
            }
            for carried in &self.carried {
                let layout = run.slot(carried.next).layout;
                run.place(carried.param, layout.sizes())?;
                let mut target = run.target(carried.param)?;
                let (data, bytes) = run.scratch(carried.staging);
                let len = target.len() * target.dtype().size();
                if len > 0 && len <= bytes {
                    // SAFETY: `put_aside` wrote that many bytes there, and the plan keeps them apart.
                    copy::from_bytes(run.pool, unsafe { std::slice::from_raw_parts(data, len) }, &mut target);
                }
            }
        }
        for carried in &self.carried {
            assign(run, carried.result, carried.param)?;
        }
        Ok(())
    }

    fn count(&self, run: &Run<'_>) -> Result<usize, NodeError> {
        let mut count = None;
        for &original in &self.originals {
            let sizes = run.slot(original).layout.sizes();
            let axis = counted(self.axis, sizes.len()).ok_or_else(|| invalid("no such axis"))?;
            if count.is_some_and(|count| count != sizes[axis]) {
                return Err(invalid(format!("tensors of a loop have {count:?} and {} steps", sizes[axis])));
            }
            count = Some(sizes[axis]);
        }
        count.ok_or_else(|| invalid("nothing to loop over"))
    }

    /// Writes what one step gives into its place among all of them.
    fn stack(
        &self,
        run: &mut Run<'_>,
        given: ValueId,
        result: ValueId,
        step: usize,
        count: usize,
    ) -> Result<(), NodeError> {
        let layout = run.slot(given).layout;
        let axis = counted(self.axis, layout.rank() + 1).ok_or_else(|| invalid("no such axis"))?;
        let mut sizes = layout.sizes().to_vec();
        sizes.insert(axis, count);
        if step == 0 {
            run.place(result, &sizes)?;
        } else if run.slot(result).layout.sizes() != sizes {
            return Err(invalid("the steps of a loop give tensors of different types"));
        }
        let slot = slice_of(run, result, self.axis, step)?;
        let dtype = run.dtype(result)?;
        // SAFETY: one slice of the result, which nobody else uses now.
        let mut target =
            unsafe { ViewMut::from_raw(slot.data, dtype, slot.layout.sizes(), slot.layout.strides()) };
        kernels_copy(run.pool, &mut target, &run.view(given)?);
        Ok(())
    }
}

/// What the next step is given, in memory of its own.
fn put_aside(run: &mut Run<'_>, carried: &Carried) -> Result<(), NodeError> {
    let view = run.view(carried.next)?;
    let len = view.len() * view.dtype().size();
    let (data, bytes) = run.scratch(carried.staging);
    if len > bytes {
        return Err(invalid("a carried value grows beyond what was planned"));
    }
    if len > 0 {
        // SAFETY: the arena holds these bytes, and the plan gives them to this loop alone.
        copy::to_bytes(run.pool, &view, unsafe { std::slice::from_raw_parts_mut(data, len) });
    }
    Ok(())
}

/// One slice of a tensor, without the axis.
fn slice_of(run: &Run<'_>, value: ValueId, axis: i32, step: usize) -> Result<Slot, NodeError> {
    let slot = run.slot(value);
    let axis = counted(axis, slot.layout.rank()).ok_or_else(|| invalid("no such axis"))?;
    let range = SliceRange { start: step, step: 1, count: 1 };
    let parts = slot.layout.slice(axis, range);
    let sliced: Option<(isize, Layout)> =
        parts.and_then(|(offset, layout)| Some((offset, layout.remove_axis(axis)?)));
    let (offset, layout) = sliced.ok_or_else(|| invalid("no such axis"))?;
    let bytes = offset * run.dtype(value)?.size() as isize;
    Ok(Slot { data: slot.data.wrapping_offset(bytes), layout })
}
