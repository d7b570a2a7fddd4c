//! Positions and attention.

use super::{Axes, Lowering, groups};
use crate::dispatch::View;
use crate::kernel::{Kernel, per_word};
use pteron_plan::Layout;

/// What a rope turns by.
pub(crate) struct Turns<'a> {
    pub(crate) dims: usize,
    pub(crate) offset: Result<View, i64>,
    pub(crate) freqs: Option<View>,
    pub(crate) traditional: bool,
    /// Radians by pair, where no periods are given.
    pub(crate) radians: &'a [f32],
    pub(crate) scale: f32,
}

/// Turns pairs of features by their positions.
pub(crate) fn rope(on: &mut Lowering, out: View, x: View, turns: &Turns<'_>) -> Option<()> {
    let &[batch, .., length, features] = x.sizes() else { return None };
    let count = out.layout.len();
    if count == 0 {
        return Some(());
    }
    let freqs = turns.freqs.map(|view| on.plain(view));
    let (offset, offsets) = match turns.offset {
        Ok(view) => (0, Some(on.plain(view))),
        Err(number) => (number as i32 as u32, None),
    };
    let axes = Axes::of(x.sizes(), &[x.layout.strides()]);
    let mut params = vec![
        count as u32,
        on.first_word(&out),
        features as u32,
        turns.dims.min(features) as u32,
        length as u32,
        offset,
        turns.scale.to_bits(),
        0,
        freqs.map_or(0, |view| on.first(&view)),
        offsets.map_or(0, |view| on.first(&view)),
        (count / batch.max(1)) as u32,
        offsets.map_or(1, |view| view.layout.len() as u32),
    ];
    axes.push(&mut params, &[on.first(&x)]);
    if freqs.is_none() {
        params.extend(turns.radians.iter().map(|radians| radians.to_bits()));
    }
    let kernel = Kernel::Rope {
        dtype: x.dtype,
        freqs: freqs.map(|view| view.dtype),
        offsets: offsets.map(|view| view.dtype),
        traditional: turns.traditional,
        rank: axes.rank(),
    };
    let mut reads = vec![x];
    reads.extend(freqs);
    reads.extend(offsets);
    on.emit(kernel, &out, &reads, false, params, groups(count.div_ceil(per_word(out.dtype) as usize)));
    Some(())
}

/// Keys in a ring of slots.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ring {
    /// Slots; 0 where keys lie in order.
    pub(crate) slots: usize,
    /// The position of the first key.
    pub(crate) first: usize,
    /// Positions that a query sees, where there is a bound.
    pub(crate) window: usize,
}

/// Attention of `[batch, heads, queries, features]` over keys and values.
pub(crate) fn sdpa(
    on: &mut Lowering,
    out: View,
    [q, k, v]: [View; 3],
    mask: Option<View>,
    (scale, causal): (f32, bool),
) -> Option<()> {
    let keys = *k.sizes().get(2)?;
    attend(on, out, [q, k, v], mask, (scale, causal, keys), Ring::default())
}

/// The same over so many keys, which may lie in a ring.
pub(crate) fn attend(
    on: &mut Lowering,
    out: View,
    [q, k, v]: [View; 3],
    mask: Option<View>,
    (scale, causal, keys): (f32, bool, usize),
    ring: Ring,
) -> Option<()> {
    let (&[batch, heads, queries, features], &[_, shared, ..]) = (q.sizes(), k.sizes()) else { return None };
    let values = *v.sizes().last()?;
    let count = batch * heads * queries;
    if out.layout.is_empty() {
        return Some(());
    }
    let target = on.row_target(out, values);
    let mut params = vec![
        count as u32,
        on.first_word(&target),
        heads as u32,
        queries as u32,
        keys as u32,
        features as u32,
        values as u32,
        scale.to_bits(),
        (heads / shared.max(1)) as u32,
        u32::from(causal),
    ];
    let mask = match mask {
        Some(mask) => {
            let layout: Layout = mask.layout.broadcast_to(&[batch, heads, queries, keys])?;
            Some(mask.with(layout))
        }
        None => None,
    };
    for view in [Some(q), Some(k), Some(v), mask] {
        match view {
            Some(view) => {
                params.push(on.first(&view));
                params.extend(view.layout.strides().iter().map(|&stride| stride as i32 as u32));
            }
            None => params.extend([0; 5]),
        }
    }
    params.extend([ring.slots as u32, ring.first as u32, ring.window as u32]);
    let mask_dtype = mask.map(|mask| mask.dtype);
    let kernel = Kernel::Attention { q: q.dtype, kv: k.dtype, mask: mask_dtype, out: target.dtype };
    let mut reads = vec![q, k, v];
    reads.extend(mask);
    on.emit(kernel, &target, &reads, false, params, count);
    on.settle(target, out);
    Some(())
}
