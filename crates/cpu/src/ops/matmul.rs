//! Products of dense matrices.

use super::lowering::{Compiled, Numbered, Planner};
use crate::fault::invalid;
use pteron_ir::{Op, ValueId};
use pteron_kernels::dense::{Product, product, scratch_bytes};
use pteron_kernels::view::{View, ViewMut};
use pteron_plan::Layout;

pub(super) fn addmm(planner: &mut Planner<'_>, node: &Numbered) -> Option<Compiled> {
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
    let path = planner.lower.path;
    // Without a bias there is nothing that alpha is said of.
    let (alpha, beta) = if bias.is_some() { (alpha, beta) } else { (1.0, 0.0) };
    Some(Compiled::Compute(Box::new(move |run| {
        let mut scratch = run.lend(scratch)?;
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
        product(run.pool, path, &mut target, &Product { a, b, bias, alpha, beta }, &mut scratch);
        Ok(())
    })))
}
