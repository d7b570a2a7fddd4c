//! Products with matrices that rows pick by number: experts, of which each token meets a few. Rows that pick the same matrix
//! are multiplied together, so that it is read once, and matrices that nobody picks are not read at all.

use super::index::is_index;
use super::lowering::{Compiled, Numbered, Planner, constant};
use super::quantized::{Fields, bound, even_rows, list_sources, list_targets, most_rows, rows_of};
use crate::constants::Bound;
use crate::fault::{invalid, out_of_range};
use crate::joint::Joint;
use crate::run::Run;
use pteron_ir::{Op, ValueId};
use pteron_kernels::dense::{Product, product, scratch_bytes};
use pteron_kernels::index::{IndexError, integer_at};
use pteron_kernels::path::Path;
use pteron_kernels::quant::{Picked, Rows, RowsMut};
use pteron_kernels::view::{View, ViewMut};
use pteron_plan::Layout;
use pteron_runtime::NodeError;
use std::sync::Arc;

/// The most rows of one dense matrix that are gathered at a time; it is read once for so many, which is seldom enough.
const MOST_GATHERED: usize = 256;

/// Which matrix on the left meets which on the right: by index tensors that spread over each other, or in turn.
struct Picks {
    /// `[.., rows, inner]`.
    x: ValueId,
    lhs: Option<ValueId>,
    rhs: Option<ValueId>,
    /// Axes of the matrices on the right.
    matrices: Vec<usize>,
    /// `[picks.., rows, columns]`.
    result: ValueId,
}

impl Picks {
    /// `None` where there is nothing to pick by, or not by integers.
    fn of(
        planner: &Planner<'_>,
        (x, result): (ValueId, ValueId),
        (lhs, rhs): (Option<ValueId>, Option<ValueId>),
        matrices: &[usize],
    ) -> Option<Picks> {
        let mut indices = [lhs, rhs].into_iter().flatten().peekable();
        indices.peek()?;
        indices.all(|value| is_index(planner, value)).then(|| Picks {
            x,
            lhs,
            rhs,
            matrices: matrices.to_vec(),
            result,
        })
    }

    /// Writes the input row and the matrix of every row of the result.
    fn list(&self, run: &Run<'_>, inputs: &mut [usize], matrices: &mut [usize]) -> Result<(), NodeError> {
        let (out, x) = (run.slot(self.result).layout, run.slot(self.x).layout);
        let ([shape @ .., rows, _], [batch @ .., _, _]) = (out.sizes(), x.sizes()) else {
            return Err(invalid("picked matrices need two axes each"));
        };
        let left = Side::new(run, self.lhs, batch, shape)?;
        let right = Side::new(run, self.rhs, &self.matrices, shape)?;
        let places = inputs.chunks_exact_mut((*rows).max(1)).zip(matrices.chunks_exact_mut((*rows).max(1)));
        for (pick, (inputs, matrices)) in places.enumerate() {
            let (first, matrix) = (left.number(pick)? * rows, right.number(pick)?);
            inputs.iter_mut().zip(first..).for_each(|(place, row)| *place = row);
            matrices.fill(matrix);
        }
        Ok(())
    }
}

/// The numbers of one side's matrices, spread over all picks.
struct Side<'r> {
    indices: Option<View<'r>>,
    spread: Layout,
    count: usize,
}

impl<'r> Side<'r> {
    fn new(
        run: &'r Run<'_>,
        indices: Option<ValueId>,
        batch: &[usize],
        shape: &[usize],
    ) -> Result<Side<'r>, NodeError> {
        let layout = match indices {
            Some(value) => Some(run.slot(value).layout),
            None => Layout::row_major(batch),
        };
        let spread = layout.and_then(|layout| layout.broadcast_to(shape));
        Ok(Side {
            indices: indices.map(|value| run.view(value)).transpose()?,
            spread: spread.ok_or_else(|| invalid("picks do not fit"))?,
            count: batch.iter().product(),
        })
    }

    /// The matrix of a pick.
    fn number(&self, pick: usize) -> Result<usize, NodeError> {
        let Some(indices) = &self.indices else {
            let mut left = pick;
            let axes = self.spread.sizes().iter().zip(self.spread.strides()).rev();
            return Ok(axes.fold(0, |at, (&size, &stride)| {
                let index = left % size.max(1);
                left /= size.max(1);
                at + index * stride.unsigned_abs()
            }));
        };
        let (sizes, strides) = (self.spread.sizes(), self.spread.strides());
        // SAFETY: the tensor's own elements, some of them more than once.
        let spread = unsafe { View::from_raw(indices.data(), indices.dtype(), sizes, strides) };
        let index = integer_at(&spread, pick).unwrap_or(i64::MAX);
        match usize::try_from(index) {
            Ok(number) if number < self.count => Ok(number),
            _ => Err(out_of_range(&IndexError { index, size: self.count })),
        }
    }
}

/// A product with picked matrices that are bound to their kernel.
struct GatherQmm {
    picks: Picks,
    linear: Bound,
    /// Room for activations in the form that the kernel wants, for rows that do not lie evenly, and for the picks.
    prepared: usize,
    dense: usize,
    numbers: usize,
}

/// Bytes of the picks of so many rows: an input row, a matrix and a place in the order of work each.
fn pick_bytes(rows: usize) -> usize {
    rows.saturating_mul(3 * size_of::<usize>())
}

/// Input rows, matrices and the order of work.
fn pick_lists(room: &mut [u8], rows: usize) -> Result<[&mut [usize]; 3], NodeError> {
    let room = room.get_mut(..pick_bytes(rows)).ok_or_else(|| invalid("more picks than planned"))?;
    let numbers: &mut [usize] = bytemuck::cast_slice_mut(room);
    let (inputs, rest) = numbers.split_at_mut(rows);
    let (matrices, order) = rest.split_at_mut(rows);
    Ok([inputs, matrices, order])
}

pub(super) fn gather_qmm(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::GatherQmm {
        x,
        w,
        scales,
        mode,
        biases,
        lhs_indices,
        rhs_indices,
        transpose: true,
        group_size,
        bits,
        ..
    } = &node.node.op
    else {
        return None;
    };
    let (&result, &x) = (node.node.results.first()?, x);
    let [matrices @ .., _, _] = constant(planner, *w)?.shape() else { return None };
    let picks = Picks::of(planner, (x, result), (*lhs_indices, *rhs_indices), matrices)?;
    let fields =
        Fields { w: *w, scales: *scales, biases: *biases, group_size: *group_size, bits: *bits, mode };
    let linear = bound(planner, fields, planner.dtype(x)?)?;
    let (n, k) = (linear.alone.weight().n(), linear.alone.weight().k());
    let inputs = planner.most_elements(x)? / k.max(1);
    let rows = planner.most_elements(result)? / n.max(1);
    let prepared = planner.reserve(node.number, linear.alone.picked_input_bytes(inputs));
    let dense = planner.reserve(node.number, planner.types.most_bytes(x)?);
    let numbers = planner.reserve(node.number, pick_bytes(rows));
    planner.lower.bound.insert(node.number);
    let gather = Arc::new(GatherQmm { picks, linear, prepared, dense, numbers });
    let joint = gather.clone();
    Some(Compiled::Joint(
        Box::new(move |run| gather.alone(run)),
        Box::new(move |lanes| joint.together(lanes)),
    ))
}

impl GatherQmm {
    fn alone(&self, run: &Run<'_>) -> Result<(), NodeError> {
        let (linear, result) = (&self.linear.alone, self.picks.result);
        let (n, k) = (linear.weight().n(), linear.weight().k());
        let rows = run.slot(result).layout.len() / n.max(1);
        if rows == 0 {
            return Ok(());
        }
        let mut numbers = run.lend(self.numbers)?;
        let [inputs, matrices, order] = pick_lists(&mut numbers, rows)?;
        self.picks.list(run, inputs, matrices)?;
        let (mut prepared, mut dense) = (run.lend(self.prepared)?, run.lend(self.dense)?);
        let source = even_rows(run, self.picks.x, k, &mut dense)?;
        let count = source.len();
        let prepare = linear.prepare_picked_input(run.pool, source.rows()?, &mut prepared);
        let out = rows_of(run, result, n)?;
        let picked = Picked { inputs, matrices, order };
        let done = prepare.and_then(|()| linear.run_picked(run.pool, count, &prepared, picked, out));
        done.map_err(|error| invalid(error.to_string()))
    }

    fn together(&self, lanes: &mut Joint<'_, '_>) -> Result<(), NodeError> {
        let (linear, Picks { x, result, .. }) = (&self.linear.together, &self.picks);
        let (n, k) = (linear.weight().n(), linear.weight().k());
        let rows = |run: &Run<'_>| run.slot(*result).layout.len() / n.max(1);
        let most = most_rows(lanes, rows, [&self.linear]);
        lanes.by_rows(most, rows, |part, batch| {
            if let Some(run) = part.only() {
                return self.alone(run);
            }
            let first = part.first();
            let inputs: usize = part.runs().map(|run| run.slot(*x).layout.len() / k.max(1)).sum();
            let sizes = [linear.picked_input_bytes(inputs), pick_bytes(part.rows)];
            let (sources, targets, mut pieces) = batch.begin(sizes);
            let [prepared, numbers] = sizes.map(|bytes| pieces.next(bytes));
            let [picked_inputs, matrices, order] = pick_lists(numbers, part.rows)?;
            let mut from = 0;
            for run in part.runs() {
                let (own, before) = (from..from + rows(run), sources.len());
                from = own.end;
                self.picks.list(run, &mut picked_inputs[own.clone()], &mut matrices[own.clone()])?;
                picked_inputs[own].iter_mut().for_each(|row| *row += before);
                list_sources(run, *x, k, self.dense, sources)?;
                list_targets(run, *result, n, targets)?;
            }
            // SAFETY: rows of the lanes' own values, which nobody writes while the step runs.
            let given = unsafe { Rows::listed(sources, first.dtype(*x)?, k) };
            // SAFETY: rows of the lanes' own results, which only this step touches.
            let wanted = unsafe { RowsMut::listed(targets, first.dtype(*result)?, n) };
            let picked = Picked { inputs: picked_inputs, matrices, order };
            let done = given.and_then(|given| linear.prepare_picked_input(first.pool, given, prepared));
            let done = done.and_then(|()| linear.run_picked(first.pool, inputs, prepared, picked, wanted?));
            done.map_err(|error| invalid(error.to_string()))
        })
    }
}

/// A product with picked matrices of plain floats.
struct GatherMm {
    picks: Picks,
    b: ValueId,
    path: Path,
    /// Rows that are gathered at a time.
    most: usize,
    /// Room for rows that do not lie evenly, for the picks, for the rows of a matrix, their products, and the kernel.
    dense: usize,
    numbers: usize,
    gathered: usize,
    products: usize,
    scratch: usize,
}

pub(super) fn gather_mm(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    let Op::GatherMm { a, b, lhs_indices, rhs_indices, .. } = node.node.op else { return None };
    let &result = node.node.results.first()?;
    let is_float = |&value: &ValueId| planner.dtype(value).is_some_and(|it| it.is_float() && it.size() <= 4);
    if ![a, b, result].iter().all(is_float) {
        return None;
    }
    let shape = &planner.types.tensor(b)?.shape;
    let sizes = shape.iter().map(|dim| usize::try_from(planner.types.symbols.upper(dim)?).ok());
    let [matrices, inner, columns] = sizes.collect::<Option<Vec<_>>>()?[..] else { return None };
    let picks = Picks::of(planner, (a, result), (lhs_indices, rhs_indices), &[matrices])?;
    let rows = planner.most_elements(result)? / columns.max(1);
    let (most, path) = (rows.min(MOST_GATHERED), planner.lower.path);
    let row_bytes = |value: ValueId, len: usize| Some(planner.dtype(value)?.size() * len * most);
    let (gathered, products) = (row_bytes(a, inner)?, row_bytes(result, columns)?);
    let dense = planner.types.most_bytes(a)?;
    let scratch = scratch_bytes(most, inner, columns, planner.lower.threads);
    let [dense, numbers, gathered, products, scratch] =
        [dense, pick_bytes(rows), gathered, products, scratch]
            .map(|bytes| planner.reserve(node.number, bytes));
    let gather = GatherMm { picks, b, path, most, dense, numbers, gathered, products, scratch };
    Some(Compiled::Compute(Box::new(move |run| gather.run(run))))
}

impl GatherMm {
    fn run(&self, run: &Run<'_>) -> Result<(), NodeError> {
        let Picks { x, result, .. } = self.picks;
        let all = run.view(self.b)?;
        let (&[_, k, n], &[apart, down, across]) = (all.sizes(), all.strides()) else {
            return Err(invalid("matrices to pick from have three axes"));
        };
        let rows = run.slot(result).layout.len() / n.max(1);
        if rows == 0 {
            return Ok(());
        }
        let mut numbers = run.lend(self.numbers)?;
        let [inputs, matrices, order] = pick_lists(&mut numbers, rows)?;
        self.picks.list(run, inputs, matrices)?;
        order.iter_mut().zip(0..).for_each(|(place, row)| *place = row);
        order.sort_unstable_by_key(|&row| (matrices[row], row));
        let mut dense = run.lend(self.dense)?;
        let source = even_rows(run, x, k, &mut dense)?;
        let (mut gathered, mut products) = (run.lend(self.gathered)?, run.lend(self.products)?);
        let mut scratch = run.lend(self.scratch)?;
        let (taken, given) = (run.dtype(x)?, run.dtype(result)?);
        let target = run.target(result)?;
        let (row, out_row) = (k * taken.size(), n * given.size());
        for alike in order.chunk_by(|&a, &b| matrices[a] == matrices[b]) {
            for part in alike.chunks(self.most.max(1)) {
                for (place, &at) in gathered.chunks_exact_mut(row.max(1)).zip(part) {
                    place.copy_from_slice(source.row(inputs[at])?);
                }
                let matrix = all
                    .data()
                    .wrapping_offset(apart * matrices[part[0]] as isize * all.dtype().size() as isize);
                let m = part.len();
                let sizes = ([m, k], [k, n], [m, n]);
                let strides = ([k as isize, 1], [down, across], [n as isize, 1]);
                // SAFETY: a matrix of the operand, and rows that the scratch of this step holds.
                let (a, b, mut out) = unsafe {
                    (
                        View::from_raw(gathered.as_ptr(), taken, &sizes.0, &strides.0),
                        View::from_raw(matrix, all.dtype(), &sizes.1, &strides.1),
                        ViewMut::from_raw(products.as_mut_ptr(), given, &sizes.2, &strides.2),
                    )
                };
                product(run.pool, self.path, &mut out, &Product::new(a, b), &mut scratch);
                for (from, &at) in products.chunks_exact(out_row.max(1)).zip(part) {
                    // SAFETY: a row of the result, which is row-major in storage of its own.
                    let to =
                        unsafe { std::slice::from_raw_parts_mut(target.data().add(at * out_row), out_row) };
                    to.copy_from_slice(from);
                }
            }
        }
        Ok(())
    }
}
