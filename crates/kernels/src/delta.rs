//! The gated delta rule over the tokens of a call. Rows of a head's state know nothing of each other, so that each is gone through
//! all tokens while it lies in L1: two passes over it a token, one that asks what the key finds, one that fades, writes and reads.

use crate::path::Path;
use crate::pool::Pool;
use crate::simd::{Kernel, Simd, on};
use crate::split::{Shared, in_parts};

/// Sizes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaSizes {
    /// Texts.
    pub batch: usize,
    /// Tokens of each.
    pub tokens: usize,
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values, a multiple of those.
    pub value_heads: usize,
    /// Features of a query or key.
    pub key_dim: usize,
    /// Features of a value.
    pub value_dim: usize,
}

/// What goes in, all without gaps: queries and keys `[batch, tokens, key heads, key features]`, values `[batch, tokens, value heads,
/// value features]`, what is left of the state at each token and the rates at which it learns `[batch, tokens, value heads]`.
#[derive(Clone, Copy, Debug)]
pub struct DeltaInputs<'a> {
    /// Queries.
    pub queries: &'a [f32],
    /// Keys.
    pub keys: &'a [f32],
    /// Values.
    pub values: &'a [f32],
    /// What is left of the state.
    pub left: &'a [f32],
    /// Rates.
    pub rates: &'a [f32],
}

/// Rows that one task goes through, so that keys and queries are read from a near cache.
const ROWS: usize = 8;

/// Goes through all tokens: `state`, `[batch, value heads, value features, key features]`, becomes the next one, and `out` gets what
/// queries find, in the shape of values.
///
/// # Panics
/// When a slice is not as long as the sizes say.
pub fn gated_delta(
    pool: &Pool,
    path: Path,
    sizes: DeltaSizes,
    inputs: DeltaInputs<'_>,
    state: &mut [f32],
    out: &mut [f32],
) {
    let DeltaSizes { batch, tokens, key_heads, value_heads, key_dim, value_dim } = sizes;
    let (heads, steps) = (batch * value_heads, batch * tokens);
    assert!(key_heads > 0 && value_heads.is_multiple_of(key_heads), "heads of values by heads of keys");
    assert!(inputs.queries.len() == steps * key_heads * key_dim && inputs.keys.len() == inputs.queries.len());
    assert!(inputs.values.len() == steps * value_heads * value_dim && out.len() == inputs.values.len());
    assert!(inputs.left.len() == steps * value_heads && inputs.rates.len() == inputs.left.len());
    assert!(state.len() == heads * value_dim * key_dim);
    let (state, out) = (Shared::new(state.as_mut_ptr()), Shared::new(out.as_mut_ptr()));
    let blocks = value_dim.div_ceil(ROWS);
    // About what two passes over the rows take.
    let cost = (ROWS * key_dim * tokens / 8).max(1);
    in_parts(pool, heads * blocks, 1, cost, &|range| {
        for task in range {
            let (head, block) = (task / blocks, task % blocks);
            let rows = block * ROWS..((block + 1) * ROWS).min(value_dim);
            on(path, Walk { sizes, inputs, state: state.get(), out: out.get(), head, rows });
        }
    });
}

/// Some rows of one head: no other task touches them, nor these features of what comes out.
struct Walk<'a> {
    sizes: DeltaSizes,
    inputs: DeltaInputs<'a>,
    state: *mut f32,
    out: *mut f32,
    /// Of all texts.
    head: usize,
    rows: std::ops::Range<usize>,
}

impl Kernel for Walk<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Walk { sizes, inputs, state, out, head, rows } = self;
        let DeltaSizes { tokens, key_heads, value_heads, key_dim, value_dim, .. } = sizes;
        let (text, value_head) = (head / value_heads, head % value_heads);
        let key_head = value_head * key_heads / value_heads;
        for token in 0..tokens {
            let now = text * tokens + token;
            let at = (now * key_heads + key_head) * key_dim;
            let (key, query) = (&inputs.keys[at..at + key_dim], &inputs.queries[at..at + key_dim]);
            let gate = now * value_heads + value_head;
            let (left, rate) = (inputs.left[gate], inputs.rates[gate]);
            for row in rows.clone() {
                let value = inputs.values[gate * value_dim + row];
                // SAFETY: the slices that these point to have rows for all heads, as `gated_delta` has asserted.
                unsafe {
                    let state = state.add((head * value_dim + row) * key_dim);
                    let found = left * dot::<S>(state, key);
                    let seen = learn::<S>(state, key, query, left, (value - found) * rate);
                    out.add(gate * value_dim + row).write(seen);
                }
            }
        }
    }
}

/// The product of a row of the state with a key.
#[inline(always)]
unsafe fn dot<S: Simd>(state: *const f32, key: &[f32]) -> f32 {
    let (key, len) = (key.as_ptr(), key.len());
    // SAFETY: the row is as long as the key.
    unsafe {
        let mut sums = [S::splat(0.0); 2];
        let mut at = 0;
        while at + 2 * S::LANES <= len {
            for (i, sum) in sums.iter_mut().enumerate() {
                let at = at + i * S::LANES;
                *sum = S::fma(S::load(state.add(at)), S::load(key.add(at)), *sum);
            }
            at += 2 * S::LANES;
        }
        while at < len {
            let count = (len - at).min(S::LANES);
            let product = S::mul(S::load_first(state.add(at), count), S::load_first(key.add(at), count));
            sums[0] = S::add(sums[0], product);
            at += count;
        }
        S::sum(S::add(sums[0], sums[1]))
    }
}

/// Fades a row, adds a multiple of the key, and gives its product with the query.
#[inline(always)]
unsafe fn learn<S: Simd>(state: *mut f32, key: &[f32], query: &[f32], left: f32, change: f32) -> f32 {
    let (key, query, len) = (key.as_ptr(), query.as_ptr(), key.len());
    // SAFETY: the row is as long as key and query.
    unsafe {
        let (left, change) = (S::splat(left), S::splat(change));
        let mut sums = [S::splat(0.0); 2];
        let mut at = 0;
        while at + 2 * S::LANES <= len {
            for (i, sum) in sums.iter_mut().enumerate() {
                let at = at + i * S::LANES;
                let faded = S::mul(S::load(state.add(at)), left);
                let new = S::fma(S::load(key.add(at)), change, faded);
                S::store(state.add(at), new);
                *sum = S::fma(new, S::load(query.add(at)), *sum);
            }
            at += 2 * S::LANES;
        }
        while at < len {
            let count = (len - at).min(S::LANES);
            let faded = S::mul(S::load_first(state.add(at), count), left);
            let new = S::fma(S::load_first(key.add(at), count), change, faded);
            S::store_first(state.add(at), new, count);
            sums[0] = S::fma(new, S::load_first(query.add(at), count), sums[0]);
            at += count;
        }
        S::sum(S::add(sums[0], sums[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{Random, assert_close, on_every_path};

    /// The rule token by token, in f64.
    fn rule(sizes: DeltaSizes, inputs: DeltaInputs<'_>, state: &[f32]) -> (Vec<f64>, Vec<f64>) {
        let DeltaSizes { batch, tokens, key_heads, value_heads, key_dim, value_dim } = sizes;
        let mut state: Vec<f64> = state.iter().map(|&x| f64::from(x)).collect();
        let mut out = vec![0.0; inputs.values.len()];
        for text in 0..batch {
            for token in 0..tokens {
                for head in 0..value_heads {
                    let now = text * tokens + token;
                    let key_at = (now * key_heads + head / (value_heads / key_heads)) * key_dim;
                    let gate = now * value_heads + head;
                    for row in 0..value_dim {
                        let at = ((text * value_heads + head) * value_dim + row) * key_dim;
                        let own = &mut state[at..at + key_dim];
                        own.iter_mut().for_each(|s| *s *= f64::from(inputs.left[gate]));
                        let feature = |list: &[f32], i: usize| f64::from(list[key_at + i]);
                        let found: f64 =
                            own.iter().enumerate().map(|(i, s)| s * feature(inputs.keys, i)).sum();
                        let change = (f64::from(inputs.values[gate * value_dim + row]) - found)
                            * f64::from(inputs.rates[gate]);
                        own.iter_mut().enumerate().for_each(|(i, s)| *s += change * feature(inputs.keys, i));
                        out[gate * value_dim + row] =
                            own.iter().enumerate().map(|(i, s)| s * feature(inputs.queries, i)).sum();
                    }
                }
            }
        }
        (out, state)
    }

    #[test]
    fn states_and_results_are_those_of_the_rule() {
        let mut random = Random::new(3);
        on_every_path(|path| {
            for (batch, tokens, key_heads, value_heads, key_dim, value_dim) in
                [(1, 1, 1, 1, 32, 1), (1, 5, 2, 4, 32, 9), (2, 3, 1, 2, 40, 16), (1, 0, 1, 1, 32, 4)]
            {
                let sizes = DeltaSizes { batch, tokens, key_heads, value_heads, key_dim, value_dim };
                let steps = batch * tokens;
                // Keys of length about one, as models have them: with longer ones the state grows without bound.
                let mut short = |count: usize| -> Vec<f32> {
                    random.floats(count).iter().map(|x| x / (key_dim as f32).sqrt()).collect()
                };
                let (queries, keys) =
                    (short(steps * key_heads * key_dim), short(steps * key_heads * key_dim));
                let values = random.floats(steps * value_heads * value_dim);
                let mut share = |count: usize| -> Vec<f32> {
                    random.floats(count).iter().map(|x| x.abs().min(1.0)).collect()
                };
                let (left, rates) = (share(steps * value_heads), share(steps * value_heads));
                let mut state = random.floats(batch * value_heads * value_dim * key_dim);
                let inputs = DeltaInputs {
                    queries: &queries,
                    keys: &keys,
                    values: &values,
                    left: &left,
                    rates: &rates,
                };
                let (wanted, next) = rule(sizes, inputs, &state);
                let mut out = vec![0.0; values.len()];
                gated_delta(&Pool::new(2), path, sizes, inputs, &mut state, &mut out);
                assert_close(&out, &wanted, 1e-5, 1e-5, &format!("{sizes:?} {path}"));
                assert_close(&state, &next, 1e-5, 1e-5, &format!("state, {sizes:?} {path}"));
            }
        });
    }
}
