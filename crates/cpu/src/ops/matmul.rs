//! Products of dense matrices.

use super::lowering::{Compiled, Lowering, Numbered, Planner, Sums};
use super::quantized::{list_sources, list_targets};
use super::rows::{Contiguous, floats};
use crate::fault::invalid;
use crate::joint::Joint;
use crate::run::Run;
use pteron_ir::{Node, Op, ValueId};
use pteron_kernels::dense::packed::{self, Panels};
use pteron_kernels::dense::{FEW_ROWS, Product, product, scratch_bytes};
use pteron_kernels::epilogue::Epilogue;
use pteron_kernels::path::Path;
use pteron_kernels::view::{View, ViewMut};
use pteron_plan::{Layout, Storage, Types};
use pteron_runtime::NodeError;
use pteron_tensor::DType;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

/// A product, and what is added to it.
struct Addmm {
    mat1: ValueId,
    mat2: ValueId,
    bias: Option<ValueId>,
    alpha: f32,
    beta: f32,
    result: ValueId,
    /// Axes of both operands: a vector on the left is one row, one on the right one column.
    ranks: (usize, usize),
    path: Path,
    scratch: usize,
    /// Room for rows of the left one that do not lie evenly.
    dense: usize,
    /// Whether rows must give what they give beside others: only few are multiplied at once then.
    by_few: bool,
}

/// A product with a matrix of f32 that is packed once: of many rows, whose number is the same in every run, so that it is
/// worth the memory.
struct Packed {
    mat1: ValueId,
    bias: Option<ValueId>,
    /// The constant, and whether it is its transpose that is multiplied.
    matrix: (usize, bool),
    rows: usize,
    inner: usize,
}

impl Packed {
    fn of(lower: &Lowering, types: &Types, node: &Node) -> Option<Packed> {
        let Op::Addmm { mat1, mat2, bias, alpha, beta } = node.op else { return None };
        let &result = node.results.first()?;
        let is_f32 = |value: ValueId| types.tensor(value).is_some_and(|ty| ty.dtype == DType::F32);
        let mut values = [Some(mat1), Some(mat2), bias, Some(result)].into_iter().flatten();
        if !lower.is_fixed() || lower.invariant_rows || !values.all(is_f32) {
            return None;
        }
        let (left, right) = (types.sizes(mat1)?, types.sizes(mat2)?);
        let (&[inner, columns], true) = (right.as_slice(), left.len() >= 2) else { return None };
        let rows = left[..left.len() - 1].iter().product::<usize>();
        let plain = bias.is_none() || alpha == 1.0 && beta == 1.0;
        let is_a_row = |bias: ValueId| {
            let sizes = types.sizes(bias);
            sizes.is_some_and(|sizes| {
                sizes.last() == Some(&columns) && sizes.iter().product::<usize>() == columns
            }) && lower.constant_index(bias).is_some()
        };
        let matrix = lower.matrix(mat2)?;
        let fits = rows > FEW_ROWS && inner > 0 && plain && bias.is_none_or(is_a_row);
        (fits && lower.prepared.constants.get(matrix.0).is_some()).then_some(Packed {
            mat1,
            bias,
            matrix,
            rows,
            inner,
        })
    }
}

/// Whether the matrix of a node is packed once.
pub(super) fn is_packed(lower: &Lowering, types: &Types, node: &Node) -> bool {
    Packed::of(lower, types, node).is_some()
}

/// The panels of a constant: made once, found afterwards.
fn panels(lower: &Lowering, matrix: (usize, bool)) -> Option<Arc<Panels>> {
    let mut packed = lower.prepared.panels.lock().unwrap_or_else(PoisonError::into_inner);
    match packed.entry(matrix) {
        Entry::Occupied(packed) => Some(packed.get().clone()),
        Entry::Vacant(place) => {
            let data = lower.prepared.constants.get(matrix.0)?;
            let layout = Layout::row_major(data.shape())?;
            // Columns of the product first.
            let layout = if matrix.1 { layout } else { layout.permute([1, 0].into_iter())? };
            let view = View::new(data.bytes(), data.dtype(), 0, layout.sizes(), layout.strides())?;
            Some(place.insert(Arc::new(Panels::pack(lower.path, &view)?)).clone())
        }
    }
}

/// The sums of such a node, in the step of that number.
pub(super) fn packed(planner: &mut Planner<'_>, number: usize, node: &Node) -> Option<Sums> {
    let lower = &planner.lower;
    let Packed { mat1, bias, matrix, rows, inner } = Packed::of(lower, planner.types, node)?;
    let panels = panels(lower, matrix)?;
    let scratch = panels.scratch_bytes(rows, lower.threads);
    let scratch = planner.reserve(number, scratch);
    let mat1 = Contiguous::plan_at(planner, number, mat1)?;
    let (of_a, of_out) = (Layout::row_major(&[rows, inner])?, Layout::row_major(&[rows, panels.columns()])?);
    Some(Box::new(move |run, target, epilogue| {
        let mut layout = Layout::SCALAR;
        let a = mat1.view(run, &mut layout)?;
        let bias = bias.map(|bias| run.view(bias)).transpose()?;
        let bias = bias.as_ref().map(floats).transpose()?;
        if a.len() != of_a.len() || target.len() != of_out.len() || !target.is_contiguous() {
            return Err(invalid("shapes do not fit"));
        }
        // SAFETY: the operand's and the result's own elements under other sizes, without gaps.
        let (a, mut out) = unsafe {
            (
                View::from_raw(a.data(), a.dtype(), of_a.sizes(), of_a.strides()),
                ViewMut::from_raw(target.data(), target.dtype(), of_out.sizes(), of_out.strides()),
            )
        };
        let epilogue = Epilogue { bias: bias.or(epilogue.bias), ..*epilogue };
        let mut scratch = run.lend(scratch)?;
        packed::product(run.pool, &mut out, &a, &panels, &epilogue, &mut scratch);
        Ok(())
    }))
}

pub(super) fn addmm(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
    if is_packed(&planner.lower, planner.types, &node.node) {
        let &result = node.node.results.first()?;
        let sums = packed(planner, node.number, &node.node)?;
        return Some(Compiled::Compute(Box::new(move |run| {
            sums(run, &mut run.target(result)?, &Epilogue::default())
        })));
    }
    let Op::Addmm { mat1, mat2, bias, alpha, beta } = node.node.op else { return None };
    let &result = node.node.results.first()?;
    let floats = [Some(mat1), Some(mat2), bias, Some(result)].into_iter().flatten();
    if !floats
        .into_iter()
        .all(|value| planner.dtype(value).is_some_and(|dtype| dtype.is_float() && dtype.size() <= 4))
    {
        return None;
    }
    let most = |planner: &Planner<'_>, value: ValueId, back: usize| {
        let shape = &planner.types.tensor(value)?.shape;
        let dim = shape.len().checked_sub(back).and_then(|axis| shape.get(axis));
        dim.map_or(Some(1), |dim| usize::try_from(planner.types.symbols.upper(dim)?).ok())
    };
    // A vector on the left is one row, one on the right one column.
    let rank = |planner: &Planner<'_>, value: ValueId| planner.types.tensor(value).map(|ty| ty.shape.len());
    let (left_rank, right_rank) = (rank(planner, mat1)?, rank(planner, mat2)?);
    let rows = if left_rank > 1 { most(planner, mat1, 2)? } else { 1 };
    let inner = most(planner, mat1, 1)?;
    let columns = if right_rank > 1 { most(planner, mat2, 1)? } else { 1 };
    // Rows of a batch that shares one weight are rows of one product.
    let all_rows = planner.most_elements(mat1)? / inner.max(1);
    let folds = right_rank <= 2;
    let scratch =
        scratch_bytes(if folds { all_rows.max(rows) } else { rows }, inner, columns, planner.lower.threads);
    let scratch = planner.reserve(node.number, scratch);
    // Without a bias there is nothing that alpha is said of.
    let (alpha, beta) = if bias.is_some() { (alpha, beta) } else { (1.0, 0.0) };
    let (ranks, path) = ((left_rank, right_rank), planner.lower.path);
    let is_constant = |value: ValueId| {
        matches!(planner.storage[planner.lifetimes.root(value).0 as usize], Storage::Constant(_))
    };
    let is_a_row = |value: ValueId| rank(planner, value).is_some_and(|rank| rank <= 1);
    let joins = left_rank > 1
        && right_rank == 2
        && is_constant(mat2)
        && bias.is_none_or(|bias| is_constant(bias) && is_a_row(bias));
    let dense = if joins { planner.types.most_bytes(mat1)? } else { 0 };
    let dense = planner.reserve(node.number, dense);
    let by_few = joins && planner.lower.invariant_rows;
    let addmm = Addmm { mat1, mat2, bias, alpha, beta, result, ranks, path, scratch, dense, by_few };
    let addmm = Arc::new(addmm);
    if !joins {
        return Some(Compiled::Compute(Box::new(move |run| addmm.alone(run))));
    }
    let joint = addmm.clone();
    Some(Compiled::Joint(Box::new(move |run| addmm.alone(run)), Box::new(move |lanes| joint.together(lanes))))
}

impl Addmm {
    fn alone(&self, run: &Run<'_>) -> Result<(), NodeError> {
        let &Addmm { mat1, mat2, bias, alpha, beta, result, ranks, path, .. } = self;
        let (left_rank, right_rank) = ranks;
        let folds = right_rank <= 2;
        let mut scratch = run.lend(self.scratch)?;
        let none = || invalid("shapes do not fit");
        let target = run.target(result)?;
        let (mut a, mut b) = (run.slot(mat1).layout, run.slot(mat2).layout);
        let mut out = Layout::from_parts(target.sizes(), target.strides()).ok_or_else(none)?;
        if left_rank == 1 {
            a = a.insert_axis(0).ok_or_else(none)?;
            let at = if right_rank == 1 { 0 } else { out.rank() - 1 };
            out = out.insert_axis(at).ok_or_else(none)?;
        }
        if right_rank == 1 {
            b = b.insert_axis(1).ok_or_else(none)?;
            out = out.insert_axis(out.rank()).ok_or_else(none)?;
        }
        let mut spread_bias = match bias {
            Some(bias) => Some(run.slot(bias).layout.broadcast_to(target.sizes()).ok_or_else(none)?),
            None => None,
        };
        if let (Some(layout), true) = (&mut spread_bias, out.rank() != target.sizes().len()) {
            *layout = layout.reshape(out.sizes()).ok_or_else(none)?;
        }
        // Rows of a batch that shares one weight are rows of one product.
        if folds && out.rank() > 2 {
            let (n, k) = (out.sizes()[out.rank() - 1], a.sizes()[a.rank() - 1]);
            let m = out.len() / n.max(1);
            let folded = (a.reshape(&[m, k]), out.reshape(&[m, n]));
            let folded_bias = spread_bias.map(|bias| bias.reshape(&[m, n]));
            if let ((Some(rows), Some(whole)), true) = (folded, folded_bias.is_none_or(|bias| bias.is_some()))
            {
                (a, out) = (rows, whole);
                spread_bias = folded_bias.flatten();
            }
        }
        let with_batch = |layout: Layout| {
            let (rank, inner) = (out.rank(), layout.rank() - 2);
            let mut sizes = [0; pteron_kernels::view::MAX_RANK];
            sizes[..rank].copy_from_slice(out.sizes());
            sizes[rank - 2..rank].copy_from_slice(&layout.sizes()[inner..]);
            layout.broadcast_to(&sizes[..rank])
        };
        let (a, b) = (with_batch(a).ok_or_else(none)?, with_batch(b).ok_or_else(none)?);
        let (left, right) = (run.view(mat1)?, run.view(mat2)?);
        // SAFETY: the operands' own elements under other sizes, some of them more than once.
        let (a, b) = unsafe {
            (
                View::from_raw(left.data(), left.dtype(), a.sizes(), a.strides()),
                View::from_raw(right.data(), right.dtype(), b.sizes(), b.strides()),
            )
        };
        let bias = match (bias, &spread_bias) {
            (Some(bias), Some(layout)) => {
                let view = run.view(bias)?;
                // SAFETY: as above.
                Some(unsafe { View::from_raw(view.data(), view.dtype(), layout.sizes(), layout.strides()) })
            }
            _ => None,
        };
        // SAFETY: the result's own elements under other sizes.
        let mut target =
            unsafe { ViewMut::from_raw(target.data(), target.dtype(), out.sizes(), out.strides()) };
        let whole = Product { a, b, bias, alpha, beta };
        match *target.sizes() {
            [rows, _] if self.by_few && rows > FEW_ROWS => {
                for from in (0..rows).step_by(FEW_ROWS) {
                    few_rows(&whole, &target, from..rows.min(from + FEW_ROWS), |part, target| {
                        product(run.pool, path, target, part, &mut scratch);
                    });
                }
            }
            _ => product(run.pool, path, &mut target, &whole, &mut scratch),
        }
        Ok(())
    }

    /// Few rows give each what it gives alone, to the last bit, however many they are; so that no more are taken at once.
    fn together(&self, lanes: &mut Joint<'_, '_>) -> Result<(), NodeError> {
        let &Addmm { mat1, mat2, bias, alpha, beta, result, path, .. } = self;
        let none = || invalid("shapes do not fit");
        let columns = |run: &Run<'_>| run.slot(mat2).layout.sizes()[1];
        let rows = |run: &Run<'_>| run.slot(result).layout.len() / columns(run).max(1);
        lanes.by_rows(FEW_ROWS, rows, |part, batch| {
            let (run, rows) = (part.first(), part.rows);
            if part.runs().len() == 1 || rows == 0 {
                return part.runs().try_for_each(|run| self.alone(run));
            }
            let (&[k, n], of_left, of_result) =
                (run.slot(mat2).layout.sizes(), run.dtype(mat1)?, run.dtype(result)?)
            else {
                return Err(none());
            };
            let (row, out_row) = (k * of_left.size(), n * of_result.size());
            let sizes = [rows * row, rows * out_row, scratch_bytes(rows, k, n, run.pool.threads())];
            let (sources, targets, mut pieces) = batch.begin(sizes);
            for run in part.runs() {
                list_sources(run, mat1, k, self.dense, sources)?;
                list_targets(run, result, n, targets)?;
            }
            if (sources.len(), targets.len()) != (rows, rows) {
                return Err(none());
            }
            let [left, out, scratch] = sizes.map(|bytes| pieces.next(bytes));
            for (to, &from) in left.chunks_exact_mut(row.max(1)).zip(&*sources) {
                // SAFETY: a row of a lane's value, which nobody writes while the step runs.
                to.copy_from_slice(unsafe { std::slice::from_raw_parts(from, row) });
            }
            let layouts = (Layout::row_major(&[rows, k]), Layout::row_major(&[rows, n]));
            let (Some(of_a), Some(of_out)) = layouts else { return Err(none()) };
            let spread = bias.map(|bias| run.slot(bias).layout.broadcast_to(&[rows, n]).ok_or_else(none));
            let spread = spread.transpose()?;
            let bias = match (bias, &spread) {
                (Some(bias), Some(layout)) => {
                    let view = run.view(bias)?;
                    // SAFETY: the bias' own elements, some of them more than once.
                    Some(unsafe {
                        View::from_raw(view.data(), view.dtype(), layout.sizes(), layout.strides())
                    })
                }
                _ => None,
            };
            // SAFETY: pieces that hold as many elements, in aligned memory of this step.
            let (a, mut to) = unsafe {
                (
                    View::from_raw(left.as_ptr().cast_mut(), of_left, of_a.sizes(), of_a.strides()),
                    ViewMut::from_raw(out.as_mut_ptr(), of_result, of_out.sizes(), of_out.strides()),
                )
            };
            let b = run.view(mat2)?;
            product(run.pool, path, &mut to, &Product { a, b, bias, alpha, beta }, scratch);
            for (from, &to) in out.chunks_exact(out_row.max(1)).zip(&*targets) {
                // SAFETY: a row of a lane's result, which only this step touches.
                unsafe { std::slice::from_raw_parts_mut(to, out_row) }.copy_from_slice(from);
            }
            Ok(())
        })
    }
}

/// Calls `work` with some rows of a product of two axes.
fn few_rows(
    whole: &Product<'_>,
    target: &ViewMut<'_>,
    rows: Range<usize>,
    work: impl FnOnce(&Product<'_>, &mut ViewMut<'_>),
) {
    let sizes = |sizes: &[usize]| [rows.len(), sizes[1]];
    let offset = |strides: &[isize], dtype: DType| strides[0] * rows.start as isize * dtype.size() as isize;
    let (of_a, of_target) = (sizes(whole.a.sizes()), sizes(target.sizes()));
    let part = |view: &View<'_>| view.data().wrapping_offset(offset(view.strides(), view.dtype()));
    // SAFETY: rows of the operand, of the bias, which is as large as the result, and of the result.
    unsafe {
        let a = View::from_raw(part(&whole.a), whole.a.dtype(), &of_a, whole.a.strides());
        let bias = whole
            .bias
            .as_ref()
            .map(|bias| View::from_raw(part(bias), bias.dtype(), &of_target, bias.strides()));
        let to = target.data().wrapping_offset(offset(target.strides(), target.dtype()));
        let mut to = ViewMut::from_raw(to, target.dtype(), &of_target, target.strides());
        work(&Product { a, bias, ..*whole }, &mut to);
    }
}
