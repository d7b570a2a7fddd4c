//! Scaled dot-product attention, and the core that attention over the off-graph cache shares with it: one head's
//! queries against its keys and values, softmax in f32. A query that may see no key gives zeros, as in PyTorch;
//! MLX gives the mean of the values (bool masks on a CPU), NaN (added -inf) or zeros (its Metal kernels).

use super::matmul::dot;
use super::offsets::Offsets;
use super::{Computed, KernelError, Operands, floats};
use pteron_ir::ValueId;
use pteron_tensor::DType;

/// The op's fields besides the three tensors.
pub(super) struct SdpaFields {
    pub(super) scale: f32,
    pub(super) mask: Option<ValueId>,
    pub(super) causal: bool,
}

pub(super) fn sdpa(
    operands: &Operands<'_>,
    (q, k, v): (ValueId, ValueId, ValueId),
    fields: &SdpaFields,
) -> Computed {
    let (q, k, v) = (operands.tensor(q)?, operands.tensor(k)?, operands.tensor(v)?);
    let out = operands.out();
    let &[batch, heads, queries, _] = out.shape.as_slice() else {
        return Err(KernelError::Invalid("attention needs four axes".into()));
    };
    let (shared, keys) = (k.shape()[1], k.shape()[2]);
    let sizes = HeadSizes { keys, features: q.shape()[3], values: v.shape()[3] };
    // Bool: whether to attend. Anything else is converted to q's dtype and added.
    let mask = operands.maybe(fields.mask)?;
    let additive = mask.is_some_and(|mask| mask.dtype() != DType::Bool);
    let mut bias = mask.map(floats::all).transpose()?.map(|values| values.into_owned());
    if let Some(bias) = bias.as_mut().filter(|_| additive) {
        floats::round_to(q.dtype(), bias);
    }
    let mut at = mask.map(|mask| Offsets::broadcast(mask.shape(), &[batch, heads, queries, keys]));
    let (q, k, v) = (floats::all(q)?, floats::all(k)?, floats::all(v)?);
    let mut result = vec![0.0; out.shape.iter().product()];
    for head in 0..batch * heads {
        // Query heads share key heads in runs.
        let shared_head = head / heads * shared + head % heads * shared / heads;
        attend_head(
            sizes,
            part(&q, head, queries * sizes.features),
            part(&k, shared_head, keys * sizes.features),
            part(&v, shared_head, keys * sizes.values),
            fields.scale,
            |query, scores| {
                if let (Some(bias), Some(at)) = (&bias, &mut at) {
                    for score in scores.iter_mut() {
                        let bias = bias[at.next_one()];
                        if additive {
                            *score += bias;
                        } else if bias == 0.0 {
                            *score = f32::NEG_INFINITY;
                        }
                    }
                }
                if fields.causal {
                    // The last query sees all keys; PyTorch aligns the first ones instead, and the exporter
                    // slices so that both are the same.
                    let visible = (query + 1 + keys).saturating_sub(queries);
                    scores.iter_mut().skip(visible).for_each(|score| *score = f32::NEG_INFINITY);
                }
            },
            &mut result[head * queries * sizes.values..][..queries * sizes.values],
        );
    }
    floats::rounded(out, &result)
}

/// Sizes of one head.
#[derive(Clone, Copy)]
pub(super) struct HeadSizes {
    /// Keys, and as many values.
    pub(super) keys: usize,
    /// Features of a query and a key.
    pub(super) features: usize,
    /// Features of a value.
    pub(super) values: usize,
}

/// Attention of one head. `mask` is called for every query in order, with its scaled scores: it adds to them,
/// or makes them -inf where the query must not look.
pub(super) fn attend_head(
    sizes: HeadSizes,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    scale: f32,
    mut mask: impl FnMut(usize, &mut [f32]),
    out: &mut [f32],
) {
    if sizes.features == 0 || sizes.values == 0 {
        return;
    }
    let mut scores = vec![0.0; sizes.keys];
    let queries = q.chunks_exact(sizes.features).zip(out.chunks_exact_mut(sizes.values));
    for (index, (query, out)) in queries.enumerate() {
        for (score, key) in scores.iter_mut().zip(k.chunks_exact(sizes.features)) {
            *score = dot(query, key) * scale;
        }
        mask(index, &mut scores);
        out.fill(0.0);
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if scores.iter().all(|&score| score == f32::NEG_INFINITY) {
            continue;
        }
        let mut sum = 0.0;
        for (score, value) in scores.iter().zip(v.chunks_exact(sizes.values)) {
            let weight = (score - largest).exp();
            sum += weight;
            // A key that is out of sight must not leak NaN or infinities out of its value.
            if weight != 0.0 {
                out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value);
            }
        }
        out.iter_mut().for_each(|out| *out /= sum);
    }
}

fn part(values: &[f32], index: usize, len: usize) -> &[f32] {
    &values[index * len..][..len]
}

#[cfg(test)]
mod tests {
    use super::super::trial::{as_f64, assert_close, f32s, random, run, v};
    use super::*;
    use pteron_tensor::HostTensor;

    /// Softmax attention of [1, heads, queries, 4] over [1, shared, keys, 4], `score` changes the scores.
    fn formula([q, k, values]: [&HostTensor; 3], score: impl Fn(usize, usize, f64) -> f64) -> Vec<f64> {
        let (heads, queries) = (q.shape()[1], q.shape()[2]);
        let (shared, keys) = (k.shape()[1], k.shape()[2]);
        let (q, k, values) = (as_f64(q), as_f64(k), as_f64(values));
        let mut out = Vec::new();
        for (head, query) in (0..heads).flat_map(|head| (0..queries).map(move |query| (head, query))) {
            let first = head / (heads / shared) * keys;
            let row = &q[(head * queries + query) * 4..][..4];
            let weights: Vec<f64> = (0..keys)
                .map(|key| {
                    let dot: f64 = row.iter().zip(&k[(first + key) * 4..]).map(|(a, b)| a * b).sum();
                    score(query, key, 0.5 * dot).exp()
                })
                .collect();
            let sum: f64 = weights.iter().sum();
            out.extend((0..4).map(|feature| {
                let value = |key: usize| weights[key] * values[(first + key) * 4 + feature];
                if sum == 0.0 { 0.0 } else { (0..keys).map(value).sum::<f64>() / sum }
            }));
        }
        out
    }

    fn attended(tensors: &[&HostTensor], causal: bool) -> Computed {
        let shape = tensors[0].shape();
        let mask = (tensors.len() > 3).then_some(v(3));
        run(tensors, &[(DType::F32, shape)], |operands| {
            sdpa(operands, (v(0), v(1), v(2)), &SdpaFields { scale: 0.5, mask, causal })
        })
    }

    #[test]
    fn heads_are_shared_in_runs_and_causal_is_aligned_at_the_end() {
        let (q, k, values) = (random(1, &[1, 4, 3, 4]), random(2, &[1, 2, 5, 4]), random(3, &[1, 2, 5, 4]));
        let all = [&q, &k, &values];
        assert_close(attended(&all, false), &formula(all, |_, _, score| score));
        let want = formula(all, |query, key, score| if key <= query + 2 { score } else { f64::NEG_INFINITY });
        assert_close(attended(&all, true), &want);
    }

    #[test]
    fn masks_hide_or_add() {
        let (q, k, values) = (random(1, &[1, 2, 2, 4]), random(2, &[1, 2, 3, 4]), random(3, &[1, 2, 3, 4]));
        let all = [&q, &k, &values];
        let bools = [true, false, true, false, false, false];
        let mask = HostTensor::from_bools(vec![2, 3], &bools).unwrap();
        let hidden =
            |query: usize, key: usize, score| if bools[query * 3 + key] { score } else { f64::NEG_INFINITY };
        // The second query sees nothing: zeros.
        let want = formula(all, hidden);
        assert_eq!(want[4..8], [0.0; 4]);
        assert_close(attended(&[&q, &k, &values, &mask], false), &want);
        let ints = HostTensor::from_slice(vec![1, 1, 1, 3], &[0i32, 1, 2]).unwrap();
        assert_close(
            attended(&[&q, &k, &values, &ints], false),
            &formula(all, |_, key, score| score + key as f64),
        );
        let floats = f32s(&[3], &[0.0, -1.0, f32::NEG_INFINITY]);
        let added = |_, key: usize, score| score + [0.0, -1.0, f64::NEG_INFINITY][key];
        assert_close(attended(&[&q, &k, &values, &floats], false), &formula(all, added));
    }

    #[test]
    fn what_is_out_of_sight_does_not_leak() {
        let (q, k) = (random(1, &[1, 1, 1, 4]), random(2, &[1, 1, 2, 4]));
        let values = f32s(&[1, 1, 2, 4], &[1.0, 2.0, 3.0, 4.0, f32::NAN, f32::NAN, f32::INFINITY, f32::NAN]);
        let mask = HostTensor::from_bools(vec![2], &[true, false]).unwrap();
        assert_close(attended(&[&q, &k, &values, &mask], false), &[1.0, 2.0, 3.0, 4.0]);
    }
}
