//! Indices that put rows in order.

use super::{Axes, Lowering};
use crate::dispatch::View;
use crate::kernel::Kernel;

/// The indices that sort each row along the last axis.
pub(crate) fn order(on: &mut Lowering, out: View, x: View) {
    let lead = x.layout.rank().saturating_sub(1);
    let count = x.sizes().last().copied().unwrap_or(1);
    let rows = x.layout.len() / count.max(1);
    let step = x.layout.strides().last().copied().unwrap_or(0);
    let mut params = vec![rows as u32, on.first_word(&out), count as u32, step as i32 as u32];
    let axes = Axes::of(&x.sizes()[..lead], &[&x.layout.strides()[..lead]]);
    axes.push(&mut params, &[on.first(&x)]);
    on.emit(Kernel::Order { input: x.dtype, rank: axes.rank() }, &out, &[x], false, params, rows);
}
