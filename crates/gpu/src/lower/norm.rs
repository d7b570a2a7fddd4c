//! RMS norms, and sums before them.

use super::Lowering;
use crate::dispatch::View;
use crate::kernel::{Kernel, Norm, per_word};
use pteron_plan::Access;

/// Whether rows are normed a word at a time: without gaps, in whole words.
pub(crate) fn is_normed_by_words(
    on: &Lowering,
    (sum, out): (Option<View>, View),
    a: View,
    b: Option<View>,
) -> bool {
    let features = a.sizes().last().copied().unwrap_or(1);
    let whole = |view: &View| features.is_multiple_of(per_word(view.dtype) as usize) && view.is_plain();
    let same = |view: Option<View>| view.is_none_or(|view| view.dtype == a.dtype && view.is_plain());
    !a.layout.is_empty()
        && whole(&out)
        && whole(&a)
        && same(b)
        && same(sum)
        && (sum.is_none() || !on.windowed)
}

/// Norms rows of `a`, or of `a + b`, which then goes into `sum`. [`is_normed_by_words`] holds.
pub(crate) fn norm(
    on: &mut Lowering,
    (sum, out): (Option<View>, View),
    a: View,
    b: Option<View>,
    (weight, eps): (Option<View>, f32),
) {
    let features = a.sizes().last().copied().unwrap_or(1);
    let rows = a.layout.len() / features.max(1);
    let weight = weight.map(|view| on.plain(view));
    let first = |view: Option<View>| view.map_or(0, |view| on.first(&view));
    let params = vec![
        rows as u32,
        features as u32,
        on.first_word(&out),
        sum.map_or(0, |view| on.first_word(&view)),
        on.first(&a),
        first(b),
        first(weight),
        eps.to_bits(),
    ];
    // A row of a word for each thread, or a few of them.
    let most = on.features.max_threads.min(256);
    let mut threads = 64;
    while threads < most && threads as usize * 4 < features {
        threads *= 2;
    }
    let kernel = Kernel::Norm(Norm {
        input: a.dtype,
        out: out.dtype,
        weight: weight.map(|view| view.dtype),
        adds: b.is_some(),
        threads,
        subgroups: on.features.subgroups,
    });
    let mut operands = vec![out, a];
    operands.extend(b);
    operands.extend(weight);
    let mut writes = vec![out.storage];
    writes.extend(sum.map(|view| view.storage));
    let access =
        Access { reads: operands[1..].iter().map(|view| view.storage).collect(), writes, has_effect: false };
    on.emit_over(kernel, &operands, access, params, rows);
}
