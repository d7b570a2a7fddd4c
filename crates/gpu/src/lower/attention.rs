//! Positions and attention.

use super::{Axes, Lowering, groups};
use crate::dispatch::View;
use crate::kernel::{
    Decode, Kernel, MOST_FOURS, MOST_TILED_FEATURES, TILED_QUERIES, Tiled, per_vector, per_word,
};
use pteron_plan::Layout;
use pteron_tensor::DType;
use std::sync::Arc;

/// Queries up to which a group has many threads: elsewhere there are groups enough.
const FEW_QUERIES: usize = 512;

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
    if by_vectors(on, out, [q, k, v], mask, (scale, causal, keys), ring).is_some() {
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
        Some(mask) => Some(mask_of(mask, &[batch, heads, queries, keys])?),
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

/// A mask with an element for each score.
fn mask_of(mask: View, scores: &[usize]) -> Option<View> {
    let layout: Layout = mask.layout.broadcast_to(scores)?;
    Some(mask.with(layout))
}

/// Steps by batch, head and position in vectors of 16 bytes, where rows lie in whole ones.
fn vectored(view: &View) -> Option<[u32; 3]> {
    let per = per_vector(view.dtype) as usize;
    let strides = view.layout.strides();
    let mut steps = strides[..3].iter().zip(&view.sizes()[..3]);
    let whole = |(&stride, &size): (&isize, &usize)| size == 1 || stride % per as isize == 0;
    let row = view.sizes()[3];
    let fits =
        strides[3] == 1 && row.is_multiple_of(per) && view.offset.is_multiple_of(16) && steps.all(whole);
    fits.then(|| [0, 1, 2].map(|axis| (strides[axis] / per as isize) as i32 as u32))
}

/// Attention over keys and values whose rows are whole vectors; `None` where they are not, and nothing is emitted.
fn by_vectors(
    on: &mut Lowering,
    out: View,
    [q, k, v]: [View; 3],
    mask: Option<View>,
    (scale, causal, keys): (f32, bool, usize),
    ring: Ring,
) -> Option<()> {
    let (&[batch, heads, queries, features], &[_, shared, ..]) = (q.sizes(), k.sizes()) else { return None };
    let values = *v.sizes().last()?;
    let float = |dtype: DType| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    if !float(q.dtype) || !float(k.dtype) || !float(out.dtype) || k.dtype != v.dtype || keys == 0 {
        return None;
    }
    let per = per_vector(k.dtype) as usize;
    let (k_steps, v_steps) = (vectored(&k)?, vectored(&v)?);
    let mask = match mask {
        Some(mask) => Some(mask_of(mask, &[batch, heads, queries, keys])?),
        None => None,
    };
    // A tile that is half empty costs as much as a full one.
    let is_tiled = queries >= TILED_QUERIES && features.max(values) <= MOST_TILED_FEATURES;
    let (kernel, groups, q_first, q_steps) = match vectored(&q).filter(|_| is_tiled) {
        Some(steps) => {
            let mask = mask.map(|mask| mask.dtype);
            let tiled =
                Tiled { q: q.dtype, kv: k.dtype, mask, out: out.dtype, chunks: Tiled::chunks(values) };
            let tiles = queries.div_ceil(TILED_QUERIES);
            (Kernel::Tiled(tiled), batch * heads * tiles, on.first_word(&q) / 4, steps)
        }
        None => {
            let count = batch * heads * queries;
            let most = on.features.max_threads.min(256);
            let threads = if count <= FEW_QUERIES { most } else { most.min(64) };
            let strides = q.layout.strides();
            let fits = mask.is_none()
                && features <= MOST_FOURS as usize * 4
                && values / per <= threads as usize
                && strides[3] == 1;
            if !fits {
                return None;
            }
            let subgroups = on.features.subgroups;
            let decode = Decode { q: q.dtype, kv: k.dtype, out: out.dtype, threads, subgroups };
            let steps = [0, 1, 2].map(|axis| strides[axis] as i32 as u32);
            (Kernel::Decode(decode), count, on.first(&q), steps)
        }
    };
    let mut params = vec![
        groups as u32,
        on.first_word(&out),
        heads as u32,
        queries as u32,
        keys as u32,
        (features / per) as u32,
        (values / per) as u32,
        scale.to_bits(),
        (heads / shared.max(1)) as u32,
        u32::from(causal),
        q_first,
    ];
    params.extend(q_steps);
    params.push(on.first_word(&k) / 4);
    params.extend(k_steps);
    params.push(on.first_word(&v) / 4);
    params.extend(v_steps);
    params.extend([ring.slots as u32, ring.first as u32, ring.window as u32]);
    let mut reads = vec![q, k, v];
    if let Some(mask) = mask {
        params.push(on.first(&mask));
        params.extend(mask.layout.strides().iter().map(|&stride| stride as i32 as u32));
        reads.push(mask);
    }
    on.emit(kernel, &out, &reads, false, params, groups);
    Some(())
}

/// A rope that was emitted, so that it can be done where its result is written elsewhere.
#[derive(Clone)]
pub(crate) struct Turned {
    /// The number of its dispatch, where it has one already.
    pub(crate) dispatch: Option<usize>,
    /// Its step.
    pub(crate) step: usize,
    pub(crate) x: View,
    pub(crate) out: View,
    pub(crate) dims: usize,
    pub(crate) offset: i64,
    pub(crate) freqs: Option<View>,
    pub(crate) traditional: bool,
    pub(crate) radians: Arc<[f32]>,
    pub(crate) scale: f32,
}

impl Turned {
    pub(super) fn is_like(&self, other: &Turned) -> bool {
        let place = |view: &View| (view.region, view.offset, view.dtype);
        (self.dims, self.offset, self.traditional) == (other.dims, other.offset, other.traditional)
            && self.freqs.as_ref().map(place) == other.freqs.as_ref().map(place)
            && self.radians == other.radians
            && self.scale.to_bits() == other.scale.to_bits()
    }
}

/// Keys, and what goes with them into a cache.
pub(crate) struct Cacheable<'a> {
    /// Queries whose rope is taken back, where it was emitted.
    pub(crate) q: Option<&'a Turned>,
    pub(crate) k: &'a Turned,
    pub(crate) v: Option<View>,
}
