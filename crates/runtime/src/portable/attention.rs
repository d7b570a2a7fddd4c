//! Attention over caches that the program keeps: what ExecuTorch's language models call beside their delegates. Caches are
//! `[batch, positions, heads, features]`; a call writes its own keys and values at the position where it begins.

use super::call::as_size;
use super::lanes;
use super::{Call, Kernel, Operator, Outs, PortableError, Results, invalid, whole};
use crate::Value;
use pteron_tensor::HostTensor;
use std::ops::Range;

pub(super) const TABLE: &[Operator] = &[
    writing("llama::update_cache.out", 3, &[1], |call| {
        let cache = updated(call.tensor(1)?, call.tensor(0)?, call.int(2)?)?;
        Ok(vec![Value::Tensor(cache), nothing(call)?])
    }),
    writing("llama::update_cache_with_indices.out", 4, &[1], |call| {
        let cache = scattered(call.tensor(1)?, call.tensor(0)?, call.tensor(3)?)?;
        Ok(vec![Value::Tensor(cache), nothing(call)?])
    }),
    whole("llama::custom_sdpa.out", 8, |call| {
        let (q, k, v) = (rows(call, 0)?, rows(call, 1)?, rows(call, 2)?);
        Ok(vec![attend(call, (&q, &k, &v), 3)?])
    }),
    whole("llama::custom_quantized_sdpa.out", 15, |call| {
        let side = |index: usize| -> Result<Rows, PortableError> {
            let mut rows = coded_rows(call, index, 8 + 2 * index)?;
            if call.bool(14)? {
                rows.heads_first = true;
            }
            Ok(rows)
        };
        Ok(vec![attend(call, (&side(0)?, &side(1)?, &side(2)?), 3)?])
    }),
    writing("llama::sdpa_with_kv_cache.out", 11, &[3, 4], |call| {
        let keys = updated(call.tensor(3)?, call.tensor(1)?, call.int(5)?)?;
        let values = updated(call.tensor(4)?, call.tensor(2)?, call.int(5)?)?;
        let (q, k, v) = (rows(call, 0)?, rows_of(&keys)?, rows_of(&values)?);
        let out = attend_at(call, (&q, &k, &v), call.int(5)?, 7)?;
        Ok(vec![Value::Tensor(keys), Value::Tensor(values), out])
    }),
];

/// A row that writes some of its inputs, and one tensor.
const fn writing(
    name: &'static str,
    inputs: usize,
    places: &'static [usize],
    kernel: fn(&Call<'_>) -> Results,
) -> Operator {
    Operator { name, inputs, outs: Outs::Inputs(places), kernel: Kernel::Whole(kernel) }
}

/// The out argument of an operator that only writes a cache: nobody reads it.
fn nothing(call: &Call<'_>) -> Result<Value, PortableError> {
    match call.outs.last() {
        Some(out) => Ok(Value::Tensor(HostTensor::zeros(out.dtype, out.sizes.clone())?)),
        None => invalid("there is no out argument"),
    }
}

/// Sizes of a cache and of what is written to it, where all but the positions agree: batches, positions of both, bytes of one.
fn sizes(cache: &HostTensor, new: &HostTensor) -> Result<(usize, usize, usize, usize), PortableError> {
    match (cache.shape(), new.shape()) {
        (&[batches, most, heads, width], &[b, count, h, w])
            if (b, h, w, new.dtype()) == (batches, heads, width, cache.dtype()) =>
        {
            Ok((batches, most, count, heads * width * cache.dtype().size()))
        }
        (cache, new) => invalid(format!("{new:?} does not go into a cache of {cache:?}")),
    }
}

fn updated(cache: &HostTensor, new: &HostTensor, start: i64) -> Result<HostTensor, PortableError> {
    let (batches, most, count, bytes) = sizes(cache, new)?;
    let start = as_size(start)?;
    if start.checked_add(count).is_none_or(|end| end > most) {
        return invalid(format!("{count} positions from {start} on go beyond a cache of {most}"));
    }
    let mut cache = cache.clone();
    let (to, from) = (cache.bytes_mut(), new.bytes());
    for batch in 0..batches {
        let own = &from[batch * count * bytes..][..count * bytes];
        to[(batch * most + start) * bytes..][..count * bytes].copy_from_slice(own);
    }
    Ok(cache)
}

fn scattered(
    cache: &HostTensor,
    new: &HostTensor,
    positions: &HostTensor,
) -> Result<HostTensor, PortableError> {
    let (batches, most, count, bytes) = sizes(cache, new)?;
    if positions.shape() != [batches, count] || !positions.dtype().is_int() {
        return invalid(format!("positions of shape {:?} for {:?}", positions.shape(), new.shape()));
    }
    let mut cache = cache.clone();
    let (to, from) = (cache.bytes_mut(), new.bytes());
    for (row, index) in lanes::ints(positions).into_iter().enumerate() {
        let position = usize::try_from(index).ok().filter(|&position| position < most);
        let position = position.ok_or(PortableError::Index { index, size: most })?;
        let at = (row / count.max(1) * most + position) * bytes;
        to[at..][..bytes].copy_from_slice(&from[row * bytes..][..bytes]);
    }
    Ok(cache)
}

/// Queries, keys or values as numbers.
struct Rows {
    numbers: Vec<f64>,
    shape: [usize; 4],
    /// Whether heads come before positions.
    heads_first: bool,
}

impl Rows {
    fn heads(&self) -> usize {
        self.shape[if self.heads_first { 1 } else { 2 }]
    }

    fn positions(&self) -> usize {
        self.shape[if self.heads_first { 2 } else { 1 }]
    }

    fn place(&self, batch: usize, head: usize, position: usize) -> Range<usize> {
        let [_, second, third, width] = self.shape;
        let (a, b) = if self.heads_first { (head, position) } else { (position, head) };
        let start = ((batch * second + a) * third + b) * width;
        start..start + width
    }

    fn row(&self, batch: usize, head: usize, position: usize) -> &[f64] {
        &self.numbers[self.place(batch, head, position)]
    }
}

fn rows(call: &Call<'_>, index: usize) -> Result<Rows, PortableError> {
    rows_of(call.tensor(index)?)
}

fn rows_of(tensor: &HostTensor) -> Result<Rows, PortableError> {
    match (<[usize; 4]>::try_from(tensor.shape()), tensor.dtype().is_float()) {
        (Ok(shape), true) => Ok(Rows { numbers: lanes::floats(tensor), shape, heads_first: false }),
        _ => invalid(format!("{} of shape {:?} has no heads", tensor.dtype(), tensor.shape())),
    }
}

/// Rows of codes, with zero points and scales for each; or of floats, without.
fn coded_rows(call: &Call<'_>, index: usize, parameters: usize) -> Result<Rows, PortableError> {
    let tensor = call.tensor(index)?;
    if tensor.dtype().is_float() {
        return rows_of(tensor);
    }
    let (zeros, scales) = (call.tensor(parameters)?, call.tensor(parameters + 1)?);
    let Ok(shape) = <[usize; 4]>::try_from(tensor.shape()) else { return invalid("codes without heads") };
    let width = shape[3].max(1);
    if zeros.len() != scales.len() || zeros.len() * width != tensor.len() {
        return invalid(format!("{} scales for codes of shape {shape:?}", scales.len()));
    }
    let (zeros, scales) = (lanes::ints(zeros), lanes::floats(scales));
    let codes = lanes::ints(tensor).into_iter().enumerate();
    let numbers = codes.map(|(at, code)| code.saturating_sub(zeros[at / width]) as f64 * scales[at / width]);
    Ok(Rows { numbers: numbers.collect(), shape, heads_first: false })
}

/// Attention whose position is an argument, and whose mask, dropout, causality and scale follow it.
fn attend(call: &Call<'_>, qkv: (&Rows, &Rows, &Rows), position: usize) -> Result<Value, PortableError> {
    attend_at(call, qkv, call.int(position)?, position + 1)
}

/// Without a mask, queries see the keys up to where their call ends; causal ones up to themselves. A mask is added to the
/// scores of all keys that the cache has room for.
fn attend_at(
    call: &Call<'_>,
    (q, k, v): (&Rows, &Rows, &Rows),
    start: i64,
    rest: usize,
) -> Result<Value, PortableError> {
    let (mask, causal) = (call.maybe_tensor(rest)?, call.bool(rest + 2)?);
    let ([batches, .., width], heads, own) = (q.shape, q.heads(), k.heads());
    let (count, start) = (q.positions(), as_size(start)?);
    let fits = k.shape == v.shape && k.shape[0] == batches && k.shape[3] == width;
    if !fits || own == 0 || !heads.is_multiple_of(own) {
        return invalid(format!("queries of {:?}, keys of {:?}, values of {:?}", q.shape, k.shape, v.shape));
    }
    let seen = match mask {
        Some(_) => k.positions(),
        None => start.saturating_add(count),
    };
    if seen > k.positions()
        || mask.is_some_and(|mask| mask.shape() != [count, seen])
        || mask.is_some() && causal
    {
        let mask = mask.map(HostTensor::shape);
        return invalid(format!(
            "{count} queries at {start}, {} keys, a mask of {mask:?}, causal {causal}",
            k.positions()
        ));
    }
    call.admit(&q.shape)?;
    call.charge(&[batches, heads, count, seen, width])?;
    let scale = call.maybe_float(rest + 3)?.unwrap_or(1.0 / (width as f64).sqrt());
    let mask = mask.map(lanes::floats);
    let mut out = vec![0.0; q.numbers.len()];
    for (batch, head) in (0..batches).flat_map(|batch| (0..heads).map(move |head| (batch, head))) {
        let shared = head / (heads / own);
        for position in 0..count {
            let last = if causal { start + position + 1 } else { seen };
            let query = q.row(batch, head, position);
            let mut scores: Vec<f64> = (0..last)
                .map(|key| {
                    let pairs = query.iter().zip(k.row(batch, shared, key));
                    let score = scale * pairs.map(|(q, k)| q * k).sum::<f64>();
                    score + mask.as_ref().map_or(0.0, |mask| mask[position * seen + key])
                })
                .collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            scores.iter_mut().for_each(|score| *score = (*score - most).exp());
            let sum: f64 = scores.iter().sum();
            let row = &mut out[q.place(batch, head, position)];
            for (key, score) in scores.into_iter().enumerate() {
                let values = v.row(batch, shared, key);
                row.iter_mut().zip(values).for_each(|(slot, value)| *slot += score / sum * value);
            }
        }
    }
    let dtype = call.outs.last().map_or(call.out_dtype(), |out| out.dtype);
    Ok(Value::Tensor(lanes::from_floats(dtype, q.shape.to_vec(), out)?))
}
