//! Products with matrices that rows pick by number (mixture of experts): few rows read their matrices one by one, many are sorted by
//! matrix first, so that each is read for all of its rows at once; what fits neither goes in tiles, batch by batch. A number
//! outside the stack is told as indices are.

use super::linear::{PackedRows, Stack, gemm, tiles};
use super::products::{Picks, Products, gemv};
use super::{Lowering, expanded};
use crate::dispatch::View;
use crate::kernel::Kernel;
use pteron_plan::Layout;
use pteron_tensor::DType;

/// Rows up to which each reads its matrix by itself, however few matrices there are; and rows a matrix up to which they do.
const FEW_PICKS: usize = 32;
const FEW_A_MATRIX: usize = 2;

/// What is multiplied, spread over the picks.
struct Spread {
    batch: Vec<usize>,
    rows: usize,
    columns: usize,
    inner: usize,
    /// Of `x`.
    over: Layout,
    /// By batch, with strides.
    picks: View,
}

impl Spread {
    fn of(out: View, x: View, picks: View) -> Option<Spread> {
        let &[ref batch @ .., rows, columns] = out.sizes() else { return None };
        let inner = *x.sizes().last()?;
        let over = x.layout.broadcast_to(&[batch, &[rows, inner]].concat())?;
        let picks = picks.with(picks.layout.broadcast_to(batch)?);
        Some(Spread { batch: batch.to_vec(), rows, columns, inner, over, picks })
    }

    fn shape(&self) -> (usize, usize, usize) {
        (self.rows, self.columns, self.inner)
    }
}

/// `x` times the matrix `[inner, columns]` that each batch of the result picks: `[batch.., rows, inner]`.
pub(crate) fn gather(on: &mut Lowering, out: View, x: View, matrices: View, picks: View) -> Option<()> {
    if out.layout.is_empty() {
        return Some(());
    }
    let spread = Spread::of(out, x, picks)?;
    let &[ref lead @ .., inner, columns] = matrices.sizes() else { return None };
    let count = lead.iter().product();
    let sizes = [count, inner, columns];
    // Matrices that lie evenly apart are one axis.
    let (matrices, whole) = match matrices.layout.reshape(&sizes) {
        Some(layout) => (matrices, layout),
        None => (on.plain(matrices), Layout::row_major(&sizes)?),
    };
    let stack = Stack { picks: on.plain(spread.picks), count, step: whole.strides()[0], rows: 0 };
    let one = whole.remove_axis(0)?;
    let zeros = vec![0isize; spread.batch.len()];
    let right = Layout::from_parts(
        &[&spread.batch[..], one.sizes()].concat(),
        &[&zeros[..], one.strides()].concat(),
    )?;
    let target = on.row_target(out, spread.columns);
    let operands = [(x, spread.over), (matrices, right)];
    tiles(on, target, &spread.batch, spread.shape(), &operands, (1.0, 0.0), None, Some(&stack));
    on.settle(target, out);
    Some(())
}

/// The same with packed rows, which are columns of the matrices or, not transposed, rows.
pub(crate) fn gather_packed(
    on: &mut Lowering,
    out: View,
    x: View,
    (packed, transposed): (PackedRows, bool),
    picks: View,
) -> Option<()> {
    if out.layout.is_empty() {
        return Some(());
    }
    let spread = Spread::of(out, x, picks)?;
    let packed = packed.plain(on);
    if transposed && by_rows(on, out, x.with(spread.over), &packed, spread.picks).is_some() {
        return Some(());
    }
    let stack = Stack {
        picks: on.plain(spread.picks),
        count: packed.matrices(),
        step: (packed.rows() * packed.words()) as isize,
        rows: packed.rows(),
    };
    let target = on.row_target(out, spread.columns);
    let (operands, right) = ([(x, spread.over)], Some((&packed, transposed)));
    tiles(on, target, &spread.batch, spread.shape(), &operands, (1.0, 0.0), right, Some(&stack));
    on.settle(target, out);
    Some(())
}

/// Packed rows that are columns, by kernels that take rows of activations one by one; `None` where they do not fit, and nothing is
/// emitted.
fn by_rows(on: &mut Lowering, out: View, x: View, packed: &PackedRows, picks: View) -> Option<()> {
    let &[ref batch @ .., rows, columns] = out.sizes() else { return None };
    let inner = *x.sizes().last()?;
    let floats = |dtype: DType| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let count = batch.iter().product::<usize>() * rows;
    let shape = (count, columns, inner);
    if ![x.dtype, out.dtype].into_iter().all(floats) {
        return None;
    }
    let before = (on.cursor(), on.dispatches.len());
    let (x, turns) = rows_of(on, x)?;
    // Each row's own pick.
    let each = picks.layout.insert_axis(batch.len())?.broadcast_to(&out.sizes()[..=batch.len()])?;
    let picks = on.plain(picks.with(each));
    let is_few = count <= FEW_PICKS.max(FEW_A_MATRIX * packed.matrices());
    let picked = Picks { view: picks, turns };
    let done = match is_few {
        true => {
            let packed = vec![*packed];
            gemv(on, Products { outs: vec![out], packed, picks: Some(picked), ..Products::new(x) })
        }
        false => sorted(on, out, x, packed, &picked, shape),
    };
    if !done {
        on.begin_at(before.0);
        on.dispatches.truncate(before.1);
        return None;
    }
    Some(())
}

/// Rows of activations without gaps, and how many rows of the result in turn have one of them.
fn rows_of(on: &mut Lowering, x: View) -> Option<(View, usize)> {
    let (mut one, mut turns) = (x.layout, 1);
    // Axes that step nowhere, from the back.
    for axis in (0..x.layout.rank() - 1).rev() {
        if one.sizes()[axis] != 1 && one.strides()[axis] != 0 {
            break;
        }
        turns *= one.sizes()[axis];
        one = one.remove_axis(axis)?;
    }
    let rows = x.with(one);
    if Lowering::is_vectored(&rows) {
        return Some((rows, turns));
    }
    let whole = on.scratch(rows.dtype, rows.sizes());
    expanded(on, whole, rows);
    Some((whole, turns))
}

/// Rows sorted by their matrices, then tiles over them.
fn sorted(
    on: &mut Lowering,
    out: View,
    x: View,
    packed: &PackedRows,
    picks: &Picks,
    (count, columns, inner): (usize, usize, usize),
) -> bool {
    let matrices = packed.matrices();
    let table = on.scratch(DType::U32, &[matrices + count]);
    let params =
        vec![count as u32, on.first(&picks.view), matrices as u32, on.first_word(&table), on.fault()];
    let kernel = Kernel::Sorted { picks: picks.view.dtype };
    on.emit(kernel, &table, &[picks.view], true, params, matrices);
    gemm(on, out, x, packed, (count, columns, inner), Some((table, picks.turns)))
}
