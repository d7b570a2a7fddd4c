//! Folding axes, and rows to rows.

use super::{Axes, Lowering};
use crate::dispatch::View;
use crate::kernel::{Greatest, Kernel, per_word};
use pteron_ir::OpKind;
use pteron_tensor::DType;

/// Threads that look for the greatest: a group may have more, and gains nothing.
const MOST_THREADS: u32 = 1024;

/// Folds the axes for which `is_folded` holds.
pub(crate) fn reduce(on: &mut Lowering, out: View, x: View, kind: OpKind, folded: &[bool], divisor: f32) {
    let part = |wanted: bool| {
        let axes = x.layout.sizes().iter().zip(x.layout.strides()).zip(folded);
        let (sizes, strides): (Vec<usize>, Vec<isize>) =
            axes.filter(|(_, folded)| **folded == wanted).map(|((&size, &stride), _)| (size, stride)).unzip();
        Axes::of(&sizes, &[&strides])
    };
    let (kept, inner) = (part(false), part(true));
    let (count, each) = (out.layout.len(), inner.sizes.iter().product::<usize>());
    let mut params = vec![count as u32, on.first_word(&out), each as u32, divisor.to_bits()];
    kept.push(&mut params, &[on.first(&x)]);
    params.extend(inner.sizes.iter().map(|&size| size as u32));
    params.extend(inner.strides[0].iter().map(|&stride| stride as i32 as u32));
    let kernel =
        Kernel::Reduce { kind, input: x.dtype, out: out.dtype, kept: kept.rank(), folded: inner.rank() };
    on.emit(kernel, &out, &[x], false, params, count.div_ceil(per_word(out.dtype) as usize));
}

/// Softmax or a norm along the last axis.
pub(crate) fn rows(
    on: &mut Lowering,
    out: View,
    x: View,
    kind: OpKind,
    (weight, bias): (Option<View>, Option<View>),
    eps: f32,
) {
    if out.layout.is_empty() {
        return;
    }
    let (features, stride) = match (x.sizes().last(), x.layout.strides().last()) {
        (Some(&features), Some(&stride)) => (features, stride),
        _ => (1, 0),
    };
    let rank = x.layout.rank().saturating_sub(1);
    let axes = Axes::of(&x.sizes()[..rank], &[&x.layout.strides()[..rank]]);
    let weight = weight.map(|view| on.plain(view));
    let bias = bias.map(|view| on.plain(view));
    let target = on.row_target(out, features);
    let first = |view: Option<&View>| view.map_or(0, |view| on.first(view));
    let count = out.layout.len() / features;
    let mut params = vec![
        count as u32,
        on.first_word(&target),
        features as u32,
        stride as i32 as u32,
        eps.to_bits(),
        first(weight.as_ref()),
        first(bias.as_ref()),
    ];
    axes.push(&mut params, &[on.first(&x)]);
    let kernel = Kernel::Rows {
        kind,
        input: x.dtype,
        out: target.dtype,
        weight: weight.map(|view| view.dtype),
        bias: bias.map(|view| view.dtype),
        rank: axes.rank(),
    };
    let mut reads = vec![x];
    reads.extend(weight);
    reads.extend(bias);
    on.emit(kernel, &target, &reads, false, params, count);
    on.settle(target, out);
}

/// Where the greatest of a row of so many numbers is that begins at a byte of `x`'s region, as a number of 64 bits in `out`, and in
/// the run's report from a word on; false where parts are not whole, and nothing is emitted.
pub(crate) fn greatest(
    on: &mut Lowering,
    out: View,
    x: View,
    (first, row): (usize, usize),
    told: usize,
) -> bool {
    let bytes = row * x.dtype.size();
    let floats = matches!(x.dtype, DType::F32 | DType::F16 | DType::BF16);
    let is_seen = (first + bytes) as u64 <= on.features.max_binding;
    if !floats || !first.is_multiple_of(16) || !bytes.is_multiple_of(16) || !is_seen {
        return false;
    }
    let threads = 1 << on.features.max_threads.clamp(1, MOST_THREADS).ilog2();
    let params = vec![(bytes / 16) as u32, (first / 16) as u32, on.first_word(&out), told as u32];
    let kernel = Kernel::Greatest(Greatest { dtype: x.dtype, threads });
    on.emit(kernel, &out, &[x], true, params, 1);
    true
}
