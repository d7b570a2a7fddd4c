//! What stands between a layer's projections and its attention: queries and keys are turned, keys and values go into the cache; of one
//! token the attention itself runs in the same dispatch.

use super::attention::{Cacheable, Ring};
use super::{Lowering, groups};
use crate::dispatch::View;
use crate::kernel::{Kernel, MOST_FEATURES, Token, Turn, per_vector, per_word};
use pteron_plan::Access;
use pteron_tensor::DType;

/// Threads of a group that attends over few keys; over more, it has more.
const FEW_THREADS: usize = 256;

/// The dispatches of ropes that can be done where their results are written: everything lies in one region, nobody has written over what
/// they read, and the cache keeps what they give. `None` where that is not so.
fn taken_back(on: &Lowering, Cacheable { q, k, v }: &Cacheable<'_>, keys: &View) -> Option<Vec<usize>> {
    let &[1, _, length, features] = k.x.sizes() else { return None };
    let dtype = k.x.dtype;
    let near = |view: &View| {
        view.region == k.x.region && view.dtype == dtype && view.layout.strides().get(3) == Some(&1)
    };
    let q_fits = q.is_none_or(|q| {
        let like = matches!(q.x.sizes(), &[1, _, q_length, q_features] if (q_length, q_features) == (length, features));
        like && q.is_like(k) && near(&q.x) && q.out.region == k.x.region
    });
    let emitted: Vec<usize> = q.iter().filter_map(|q| q.dispatch).chain(k.dispatch).collect();
    let fits = !on.windowed
        && q_fits
        && near(&k.x)
        && v.is_none_or(|v| near(&v) && v.sizes() == k.x.sizes())
        && emitted.iter().all(|&at| at < on.dispatches.len())
        && emitted.is_sorted()
        && keys.dtype == dtype
        && features.is_multiple_of(per_word(dtype) as usize);
    let mut reads = vec![k.x.storage];
    reads.extend(q.map(|q| q.x.storage));
    let reads = Access { reads, ..Access::default() };
    let first = emitted.first().copied().unwrap_or(on.dispatches.len());
    let mut others = on.dispatches.iter().enumerate().skip(first);
    let is_free = |(at, other): (usize, &crate::dispatch::Dispatch)| {
        emitted.contains(&at) || !other.access.holds_up(&reads)
    };
    (fits && others.all(is_free)).then_some(emitted)
}

fn sources(Cacheable { q, k, v, .. }: &Cacheable<'_>) -> Vec<pteron_plan::Storage> {
    let views = [Some(k.x), q.map(|q| q.x), *v, k.freqs];
    views.into_iter().flatten().map(|view| view.storage).collect()
}

/// Attention of one token over a cache of so many rows a head, its own key and value included, which go into row `start`, of a ring or
/// not. `None` where that cannot be, and nothing is changed.
pub(crate) fn token(
    on: &mut Lowering,
    new: &Cacheable<'_>,
    [keys, values]: [View; 2],
    out: View,
    (start, seen, scale): (usize, usize, f32),
    ring: Ring,
) -> Option<()> {
    let Cacheable { q: Some(q), k, v: Some(v), .. } = new else { return None };
    let (&[1, shared, 1, features], &[1, heads, ..]) = (k.x.sizes(), q.x.sizes()) else { return None };
    let &[_, _, rows, _] = keys.sizes() else { return None };
    let dtype = k.x.dtype;
    let emitted = taken_back(on, new, &keys)?;
    let few = (on.features.max_threads as usize).min(FEW_THREADS);
    let most = (on.features.max_threads as usize).min(4 * FEW_THREADS);
    let mut threads = seen.next_power_of_two().clamp(few, most) as u32;
    let shares = |threads: u32| Token::shared_bytes(dtype, features as u32, threads);
    while shares(threads) > on.features.shared_bytes && threads > 64 {
        threads /= 2;
    }
    let fits = matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
        && (out.dtype, out.region) == (dtype, k.x.region)
        && out.is_plain()
        && v.sizes() == k.x.sizes()
        && values.sizes() == keys.sizes()
        && features <= MOST_FEATURES
        && features.is_multiple_of(per_vector(dtype) as usize)
        && features / per_vector(dtype) as usize <= threads as usize
        && shares(threads) <= on.features.shared_bytes
        && heads.is_multiple_of(shared.max(1))
        && seen > 0;
    if !fits {
        return None;
    }
    for &at in emitted.iter().rev() {
        on.dispatches.remove(at);
    }
    let begin = if ring.window > 0 { seen.saturating_sub(ring.window) } else { 0 };
    let row = if ring.slots > 0 { start % ring.slots } else { start };
    let mut params = vec![
        (heads / shared.max(1)) as u32,
        (seen - 1) as u32,
        begin as u32,
        ring.slots as u32,
        ring.first as u32,
        rows as u32,
        row as u32,
        k.dims.min(features) as u32,
        k.offset as i32 as u32,
        k.scale.to_bits(),
        scale.to_bits(),
        on.first_word(&out),
    ];
    for view in [&q.x, &k.x, v] {
        params.extend([on.first(view), view.layout.strides()[1] as i32 as u32]);
    }
    match k.freqs {
        Some(freqs) => params.push(on.first(&freqs)),
        None => params.extend(k.radians.iter().map(|radians| radians.to_bits())),
    }
    let kernel = Kernel::Token(Token {
        dtype,
        features: features as u32,
        freqs: k.freqs.map(|view| view.dtype),
        traditional: k.traditional,
        threads,
        subgroups: on.features.subgroups,
    });
    let mut operands = vec![out, keys, values, k.x];
    operands.extend(k.freqs);
    let mut reads = sources(new);
    reads.extend([keys.storage, values.storage]);
    let writes = vec![keys.storage, values.storage, out.storage];
    let access = Access { reads, writes, has_effect: false };
    on.emit_over(kernel, &operands, access, params, heads);
    Some(())
}

/// Turns queries and keys and writes keys and values into a cache of so many rows a head, from row `start` on of a ring of so many
/// slots, or of none. `None` where that cannot be, and nothing is changed.
pub(crate) fn turn(
    on: &mut Lowering,
    new: &Cacheable<'_>,
    [keys, values]: [View; 2],
    (start, slots): (usize, usize),
) -> Option<()> {
    let Cacheable { q, k, v, .. } = new;
    let &[1, shared, length, features] = k.x.sizes() else { return None };
    let &[_, _, rows, _] = keys.sizes() else { return None };
    let dtype = k.x.dtype;
    let per = per_word(dtype) as usize;
    let emitted = taken_back(on, new, &keys)?;
    let mut sources = sources(new);
    for &at in emitted.iter().rev() {
        on.dispatches.remove(at);
    }
    let k_words = shared * length * features / per;
    let q_words = q.map_or(0, |q| q.x.layout.len() / per);
    let v_words = if v.is_some() { k_words } else { 0 };
    let (out, v) = (q.map_or(k.x, |q| q.out), v.unwrap_or(k.x));
    let mut params = vec![
        q_words as u32,
        k_words as u32,
        v_words as u32,
        features as u32,
        k.dims.min(features) as u32,
        length as u32,
        k.offset as i32 as u32,
        k.scale.to_bits(),
        on.first_word(&out),
        rows as u32,
        slots as u32,
        start as u32,
        k.freqs.map_or(0, |view| on.first(&view)),
    ];
    for view in [&q.map_or(k.x, |q| q.x), &k.x, &v] {
        let strides = view.layout.strides();
        params.push(on.first(view));
        params.extend([strides[1] as i32 as u32, strides[2] as i32 as u32]);
    }
    params.extend(k.radians.iter().map(|radians| radians.to_bits()));
    let kernel =
        Kernel::Turn(Turn { dtype, freqs: k.freqs.map(|view| view.dtype), traditional: k.traditional });
    let mut operands = vec![out, keys, values, k.x];
    operands.extend(k.freqs);
    sources.push(v.storage);
    let mut writes = vec![keys.storage, values.storage];
    writes.extend(q.map(|q| q.out.storage));
    let access = Access { reads: sources, writes, has_effect: false };
    on.emit_over(kernel, &operands, access, params, groups(q_words + k_words + v_words));
    Some(())
}
