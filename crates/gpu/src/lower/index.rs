//! Elements picked and rows placed by index tensors. Indices are looked at by the kernels: one outside its axis leaves the step's
//! number behind, and the run fails.

use super::{Axes, Lowering, groups};
use crate::dispatch::View;
use crate::kernel::{Kernel, per_word};
use pteron_plan::Layout;

/// An index tensor laid over the result.
struct Index {
    view: View,
    /// Of its axis.
    size: usize,
    /// Positions to begin at.
    starts: usize,
    /// Of its axis.
    stride: isize,
    /// Whether negative ones count from the end.
    wraps: bool,
}

fn pick(on: &mut Lowering, out: View, x: View, indices: &[Index]) {
    let count = out.layout.len();
    if count == 0 {
        return;
    }
    let mut params = vec![count as u32, on.first_word(&out), on.fault()];
    for &Index { size, starts, stride, wraps, .. } in indices {
        params.extend([
            size as u32,
            starts as u32,
            stride as i32 as u32,
            if wraps { size as u32 } else { 0 },
        ]);
    }
    let mut views = vec![x];
    views.extend(indices.iter().map(|index| index.view));
    let strides: Vec<&[isize]> = views.iter().map(|view| view.layout.strides()).collect();
    let axes = Axes::of(out.sizes(), &strides);
    let firsts: Vec<u32> = views.iter().map(|view| on.first(view)).collect();
    axes.push(&mut params, &firsts);
    let indices = indices.iter().map(|index| index.view.dtype).collect();
    let kernel = Kernel::Pick { dtype: out.dtype, indices, rank: axes.rank() };
    on.emit(kernel, &out, &views, true, params, groups(count.div_ceil(per_word(out.dtype) as usize)));
}

/// Picks along one axis. `around` is the layout of `x` over the result without the axis, `over` that of the indices.
pub(crate) fn pick_along(
    on: &mut Lowering,
    out: View,
    (x, around): (View, Layout),
    (indices, over): (View, Layout),
    axis: usize,
) {
    let (size, stride) = match (x.sizes().get(axis), x.layout.strides().get(axis)) {
        (Some(&size), Some(&stride)) => (size, stride),
        _ => (1, 0),
    };
    let index = Index { view: indices.with(over), size, starts: size, stride, wraps: true };
    pick(on, out, x.with(around), &[index]);
}

/// Slices that begin at index tensors on some axes: the result is the indices' axes, then those of a slice.
pub(crate) fn pick_slices(on: &mut Lowering, out: View, x: View, indices: &[(View, usize)], slice: &[usize]) {
    let batch = out.sizes().len() - slice.len();
    let mut strides = vec![0; batch];
    strides.extend(x.layout.strides());
    let Some(around) = Layout::from_parts(out.sizes(), &strides) else { return };
    let lead = &out.sizes()[..batch];
    let placed: Vec<Index> = indices
        .iter()
        .filter_map(|&(view, axis)| {
            let mut strides = view.layout.broadcast_to(lead)?.strides().to_vec();
            strides.resize(out.sizes().len(), 0);
            let over = Layout::from_parts(out.sizes(), &strides)?;
            let size = x.sizes()[axis];
            let (starts, stride) = ((size + 1).saturating_sub(slice[axis]), x.layout.strides()[axis]);
            Some(Index { view: view.with(over), size, starts, stride, wraps: true })
        })
        .collect();
    pick(on, out, x.with(around), &placed);
}

/// The matrices `[rows, columns]` of a stack `[matrices, rows, columns]` that indices pick, none of which counts from the end.
pub(crate) fn pick_matrices(on: &mut Lowering, out: View, x: View, indices: View) -> Option<()> {
    let (&[count, rows, columns], &[step, down, along]) = (x.sizes(), x.layout.strides()) else {
        return None;
    };
    let lead = indices.layout.rank();
    let mut strides = vec![0; lead];
    let around = [&strides[..], &[down, along]].concat();
    strides.clear();
    strides.extend(indices.layout.strides());
    strides.extend([0, 0]);
    if out.sizes() != [indices.sizes(), &[rows, columns]].concat() {
        return None;
    }
    let (around, over) =
        (Layout::from_parts(out.sizes(), &around)?, Layout::from_parts(out.sizes(), &strides)?);
    let index = Index { view: indices.with(over), size: count, starts: count, stride: step, wraps: false };
    pick(on, out, x.with(around), &[index]);
    Some(())
}

/// Places the rows of `update` at indices of one axis of `target`.
pub(crate) fn index_copy(on: &mut Lowering, target: View, update: View, indices: View, axis: usize) {
    let (Some(to), Some(from)) = (target.layout.remove_axis(axis), update.layout.remove_axis(axis)) else {
        return;
    };
    let axes = Axes::of(from.sizes(), &[to.strides(), from.strides()]);
    let count = from.len();
    let stride = |view: &View| view.layout.strides()[axis] as i32 as u32;
    let mut params = vec![
        count as u32,
        on.fault(),
        indices.layout.len() as u32,
        on.first(&indices),
        indices.layout.strides().first().map_or(0, |&stride| stride as i32 as u32),
        target.sizes()[axis] as u32,
        stride(&target),
        stride(&update),
    ];
    axes.push(&mut params, &[on.first(&target), on.first(&update)]);
    let size = target.dtype.size() as u32;
    let kernel = Kernel::Place { size, indices: indices.dtype, rank: axes.rank() };
    on.emit(kernel, &target, &[update, indices], true, params, groups(count));
}
