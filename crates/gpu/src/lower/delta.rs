//! The gated delta rule over the tokens of a call.

use super::{Lowering, cast};
use crate::dispatch::{Region, View};
use crate::kernel::{DELTA_ROWS, Delta, Kernel};
use pteron_plan::{Access, Layout};
use pteron_tensor::DType;

/// Queries and keys `[batch, tokens, key heads, key features]`, values `[batch, tokens, value heads, value features]`, what is left of
/// the state at each token and the rates at which it learns `[batch, tokens, value heads]`, the state `[batch, value heads, value
/// features, key features]`: what queries find, in the shape of values, and the next state.
pub(crate) fn delta(on: &mut Lowering, (y, next): (View, View), inputs: [View; 6]) -> Option<()> {
    let (&[batch, tokens, key_heads, features], &[.., heads, values]) =
        (inputs[0].sizes(), inputs[2].sizes())
    else {
        return None;
    };
    if key_heads == 0 || !heads.is_multiple_of(key_heads) || features == 0 {
        return None;
    }
    let keys = [batch, tokens, key_heads, features];
    let (rows, gates, state) =
        ([batch, tokens, heads, values], [batch, tokens, heads], [batch, heads, values, features]);
    let wanted: [&[usize]; 6] = [&keys, &keys, &rows, &gates, &gates, &state];
    let fits = inputs.iter().zip(wanted).all(|(view, sizes)| view.sizes() == sizes);
    if !fits || y.sizes() != rows || next.sizes() != state {
        return None;
    }
    if next.layout.is_empty() {
        return Some(());
    }
    let plain = inputs.map(|view| on.plain(view));
    // Both results share a binding.
    let straight = [y, next].iter().all(|view| view.dtype == DType::F32 && view.region == Region::Arena);
    let [found, after] = match straight && !on.windowed {
        true => [y, next],
        false => {
            let (first, second) = (y.layout.len(), next.layout.len());
            let both = on.scratch(DType::F32, &[first + second]);
            let part = |layout: Layout, at: usize| both.with(layout).moved(at as isize);
            [part(Layout::row_major(&rows)?, 0), part(Layout::row_major(&state)?, first)]
        }
    };
    let blocks = values.div_ceil(DELTA_ROWS as usize);
    let groups = batch * heads * blocks;
    let mut params = [tokens, key_heads, heads, values, blocks, groups].map(|size| size as u32).to_vec();
    // Both are counted from where the first of them is seen from.
    let seen_from = on.first_word(&found);
    params.push(seen_from);
    params.push(seen_from.wrapping_add_signed(((after.offset as isize - found.offset as isize) / 4) as i32));
    params.extend(plain.iter().map(|view| on.first(view)));
    let kernel = Kernel::Delta(Delta { inputs: plain.map(|view| view.dtype), key_features: features as u32 });
    let operands: Vec<View> = [found].into_iter().chain(plain).collect();
    let access = Access {
        reads: plain.iter().map(|view| view.storage).collect(),
        writes: vec![found.storage, after.storage],
        has_effect: false,
    };
    on.emit_over(kernel, &operands, access, params, groups);
    if !straight || on.windowed {
        cast(on, y, found);
        cast(on, next, after);
    }
    Some(())
}
