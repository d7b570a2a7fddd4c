//! Padding: a constant, a mirror image or the edge. Pads are listed from the last axis on, before and after.

use super::lanes::{self, pick_elements};
use super::walk::{Walk, row_major};
use super::{Call, Operator, PortableError, Results, invalid, one, whole};
use pteron_tensor::{HostTensor, Scalar, element_count};

pub(super) const TABLE: &[Operator] = &[
    whole("aten::constant_pad_nd.out", 3, constant),
    whole("aten::reflection_pad1d.out", 2, |call| mirrored(call, reflect)),
    whole("aten::reflection_pad2d.out", 2, |call| mirrored(call, reflect)),
    whole("aten::reflection_pad3d.out", 2, |call| mirrored(call, reflect)),
    whole("aten::replication_pad1d.out", 2, |call| mirrored(call, replicate)),
    whole("aten::replication_pad2d.out", 2, |call| mirrored(call, replicate)),
    whole("aten::replication_pad3d.out", 2, |call| mirrored(call, replicate)),
];

/// By axis from the front: how many elements come before, and the size afterwards.
fn extents(call: &Call<'_>, x: &HostTensor) -> Result<Vec<(i64, usize)>, PortableError> {
    let pads = call.ints(1)?;
    if !pads.len().is_multiple_of(2) || pads.len() / 2 > x.rank() {
        return invalid(format!("{} pads for rank {}", pads.len(), x.rank()));
    }
    let mut extents: Vec<(i64, usize)> = x.shape().iter().map(|&dim| (0, dim)).collect();
    for (pair, extent) in pads.chunks_exact(2).zip(extents.iter_mut().rev()) {
        let size =
            i64::try_from(extent.1).ok().and_then(|size| size.checked_add(pair[0])?.checked_add(pair[1]));
        let size = size.and_then(|size| usize::try_from(size).ok());
        let Some(size) = size else { return invalid(format!("pads {pads:?} of {:?}", x.shape())) };
        *extent = (pair[0], size);
    }
    Ok(extents)
}

fn constant(call: &Call<'_>) -> Results {
    let x = call.tensor(0)?;
    let extents = extents(call, x)?;
    let shape: Vec<usize> = extents.iter().map(|extent| extent.1).collect();
    call.admit(&shape)?;
    let value = call.maybe_scalar(2)?.unwrap_or(Scalar::Int(0));
    let mut out = lanes::filled(x.dtype(), shape.clone(), value)?;
    // Negative pads cut, so only the part that is left is copied.
    let (to, from) = (row_major(&shape), row_major(x.shape()));
    let (mut kept, mut to_start, mut from_start) = (Vec::new(), 0, 0);
    for (axis, &(before, size)) in extents.iter().enumerate() {
        let (first, last) = (before.max(0), (before + x.shape()[axis] as i64).min(size as i64));
        kept.push(usize::try_from(last - first).unwrap_or(0));
        to_start += first as isize * to[axis];
        from_start += (first - before) as isize * from[axis];
    }
    if element_count(&kept) != Some(0) {
        let size = x.dtype().size();
        let places = Walk::new(&kept, &to, to_start).zip(Walk::new(&kept, &from, from_start));
        let target = out.bytes_mut();
        for (to, from) in places {
            target[to * size..][..size].copy_from_slice(&x.bytes()[from * size..][..size]);
        }
    }
    one(Ok(out))
}

/// The element that stands for one outside: `None` when the axis is too short for it.
fn reflect(index: i64, size: i64) -> Option<i64> {
    let folded = index.saturating_abs();
    let folded = if folded >= size { 2 * (size - 1) - folded } else { folded };
    (0..size).contains(&folded).then_some(folded)
}

fn replicate(index: i64, size: i64) -> Option<i64> {
    (size > 0).then(|| index.clamp(0, size - 1))
}

fn mirrored(call: &Call<'_>, stand_in: fn(i64, i64) -> Option<i64>) -> Results {
    let x = call.tensor(0)?;
    let extents = extents(call, x)?;
    let shape: Vec<usize> = extents.iter().map(|extent| extent.1).collect();
    call.admit(&shape)?;
    let strides = row_major(x.shape());
    // Offsets axis by axis, outermost first; the places are all their sums.
    let mut places: Vec<usize> = vec![0];
    for (axis, &(before, size)) in extents.iter().enumerate() {
        let dim = x.shape()[axis] as i64;
        let offsets = (0..size as i64).map(|index| stand_in(index.saturating_sub(before), dim));
        let Some(offsets) = offsets.collect::<Option<Vec<i64>>>() else {
            return invalid(format!("an axis of size {dim} is too short for its pads"));
        };
        let stride = strides[axis] as usize;
        places = places
            .iter()
            .flat_map(|place| offsets.iter().map(move |&offset| place + offset as usize * stride))
            .collect();
    }
    one(pick_elements(x, shape, places.into_iter()))
}
