//! Convolutions: which of their ops is which, and how their sizes become parameters.

use super::{Lowering, groups};
use crate::dispatch::View;
use crate::kernel::{Conv, Kernel, per_word};
use pteron_ir::{Op, Ssa, ValueId};

/// Filters of a group up to which threads compute by themselves: most of a tile would be empty.
const FEW_FILTERS: usize = 8;

/// Large tiles that keep a device busy: with fewer, more of them are under way when they are small.
const MANY_TILES: usize = 64;

/// Elements beside an image, at most, so that places beside it are 32 bits wide too.
const MOST_PADDING: i32 = 1 << 24;

/// A convolution of any kind.
pub(crate) struct Convolution {
    pub(crate) x: ValueId,
    pub(crate) w: ValueId,
    /// By axis: what one position, the border and one tap move by.
    axes: Vec<[i32; 3]>,
    groups: i32,
    transposed: bool,
}

impl Convolution {
    /// Of an op that is one.
    pub(crate) fn of(op: &Op<Ssa>) -> Option<Convolution> {
        let made = |x: ValueId, w: ValueId, axes: &[[i32; 3]], groups: i32, transposed: bool| {
            Some(Convolution { x, w, axes: axes.to_vec(), groups, transposed })
        };
        #[rustfmt::skip]
        let found = match *op {
            Op::Conv1D { x, w, stride, padding, dilation, groups } => {
                made(x, w, &[[stride, padding, dilation]], groups, false)
            }
            Op::Conv2D {
                x, w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups,
            } => made(x, w, &[[stride_h, padding_h, dilation_h], [stride_w, padding_w, dilation_w]], groups, false),
            Op::Conv3D {
                x, w, stride_d, stride_h, stride_w, padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w,
                groups,
            } => {
                let depth = [stride_d, padding_d, dilation_d];
                let plane = [[stride_h, padding_h, dilation_h], [stride_w, padding_w, dilation_w]];
                made(x, w, &[depth, plane[0], plane[1]], groups, false)
            }
            Op::ConvTranspose1D { x, w, stride, padding, dilation, groups, .. } => {
                made(x, w, &[[stride, padding, dilation]], groups, true)
            }
            Op::ConvTranspose2D {
                x, w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups, ..
            } => made(x, w, &[[stride_h, padding_h, dilation_h], [stride_w, padding_w, dilation_w]], groups, true),
            Op::ConvTranspose3D {
                x, w, stride_d, stride_h, stride_w, padding_d, padding_h, padding_w, dilation_d, dilation_h, dilation_w,
                groups, ..
            } => {
                let depth = [stride_d, padding_d, dilation_d];
                let plane = [[stride_h, padding_h, dilation_h], [stride_w, padding_w, dilation_w]];
                made(x, w, &[depth, plane[0], plane[1]], groups, true)
            }
            _ => None,
        };
        found
    }

    /// Whether all places fit the integers of kernels.
    pub(crate) fn fits(&self) -> bool {
        self.axes.iter().all(|&[_, padding, _]| padding <= MOST_PADDING)
    }
}

/// Writes the convolution of `x` with the filters `w`.
pub(crate) fn convolution(
    on: &mut Lowering,
    out: View,
    (x, w): (View, View),
    what: &Convolution,
) -> Option<()> {
    if out.layout.is_empty() {
        return Some(());
    }
    let (&[_, ref spatial @ .., filters], &[_, ref taps @ .., depth]) = (out.sizes(), w.sizes()) else {
        return None;
    };
    let parts = usize::try_from(what.groups).ok().filter(|&parts| parts > 0)?;
    let fits = spatial.len() == what.axes.len() && x.sizes().len() == out.sizes().len();
    if !fits || !filters.is_multiple_of(parts) || x.sizes().last() != Some(&(depth * parts)) {
        return None;
    }
    let w = on.plain(w);
    let filters = filters / parts;
    let positions: usize = spatial.iter().product();
    let rows = out.sizes()[0] * positions;
    let count = |tile: usize| parts * filters.div_ceil(tile) * rows.div_ceil(tile);
    let tile = match filters {
        0..FEW_FILTERS => None,
        _ if count(64) >= MANY_TILES && on.features.max_threads >= Conv::threads(64) => Some(64),
        _ => Some(32),
    };
    let target = if tile.is_some() { on.row_target(out, filters) } else { out };
    let stride = |axis: usize| x.layout.strides()[axis] as i32 as u32;
    let across = |size: usize| tile.map_or(0, |tile| size.div_ceil(tile as usize) as u32);
    let mut params = vec![
        if tile.is_some() { rows } else { out.layout.len() } as u32,
        on.first_word(&target),
        filters as u32,
        depth as u32,
        taps.iter().product::<usize>() as u32,
        parts as u32,
        positions as u32,
        across(filters),
        across(rows),
        on.first(&x),
        stride(0),
        stride(spatial.len() + 1),
        on.first(&w),
    ];
    for (axis, &[step, padding, dilation]) in what.axes.iter().enumerate() {
        params.extend([x.sizes()[axis + 1], taps[axis], spatial[axis]].map(|size| size as u32));
        params.extend([step as u32, padding as u32, dilation as u32, stride(axis + 1)]);
    }
    let kernel = Kernel::Conv(Conv {
        input: x.dtype,
        weight: w.dtype,
        out: target.dtype,
        axes: spatial.len() as u32,
        transposed: what.transposed,
        tile,
    });
    let threads = out.layout.len().div_ceil(per_word(out.dtype) as usize);
    let groups = tile.map_or(groups(threads), |tile| count(tile as usize));
    on.emit(kernel, &target, &[x, w], false, params, groups);
    on.settle(target, out);
    Some(())
}
