//! The op over the off-graph cache: keys and values into the cache of the session whose tokens they are of, and attention
//! over what that holds. A flat batch has tokens of several sessions, each with a cache of its own.

use super::effects::Effects;
use super::interpret::{Machine, extent};
use super::kernels::{Datum, KernelError, ResultType};
use crate::backend::RunControl;
use crate::error::NodeError;
use crate::portable::lanes;
use crate::{Error, Result};
use pteron_ir::{Op, Ssa, ValueId};
use pteron_tensor::{Bytes, HostTensor, element_count};
use std::ops::Range;

/// Positions that the cache makes room for at once.
const PAGE: u64 = 64;

/// What a run of several sessions' tokens knows besides its own state, which is the first one's.
pub(super) struct Flat<'a> {
    /// Tokens of the first session.
    pub(super) tokens: usize,
    pub(super) control: &'a RunControl,
    pub(super) others: Vec<Beside<'a>>,
}

/// Another session of a flat batch.
pub(super) struct Beside<'a> {
    pub(super) effects: &'a mut Effects,
    pub(super) tokens: usize,
    pub(super) control: &'a RunControl,
}

fn invalid<T>(message: impl Into<String>) -> Result<T, NodeError> {
    Err(NodeError::Kernel(KernelError::Invalid(message.into())))
}

fn of_run(error: Error) -> NodeError {
    NodeError::Run(Box::new(error))
}

/// Queries, keys and values, and where they belong.
struct Attending<'t> {
    tensors: [&'t HostTensor; 3],
    layer: usize,
    scale: f32,
    out: &'t ResultType,
}

impl Machine<'_> {
    pub(super) fn update_and_attend(
        &mut self,
        op: &Op<Ssa>,
        results: &[ResultType],
    ) -> Result<HostTensor, NodeError> {
        let Op::UpdateAndAttend { q, k, v, position, layer_id, scale, .. } = op else {
            return invalid("not an op over the cache");
        };
        let (Some(layer), Some(scale), [out]) = (layer_id, scale, results) else {
            return invalid("the node has no layer or no scale");
        };
        let Ok(layer) = usize::try_from(*layer) else { return invalid("the layer is negative") };
        let get = |value: ValueId| match self.values.data.get(value.0 as usize) {
            Some(Some(Datum::Tensor(tensor))) => Ok(tensor),
            _ => Err(NodeError::Kernel(KernelError::Unset)),
        };
        let place = get(*position)?;
        let (positions, is_column) = (lanes::ints(place), place.shape() == [2, 1]);
        let tensors = [get(*q)?, get(*k)?, get(*v)?];
        let length = tensors[1].shape().get(2).copied().unwrap_or(0);
        let (charged, held, effects) = (self.context.control, &self.held, &mut *self.context.effects);
        let admit = |bytes| held.admit(0, bytes).map_err(of_run);
        let whole = Attending { tensors, layer, scale: *scale, out };
        let Some(flat) = &mut self.context.flat else {
            let start = match is_column {
                true => (column(&positions, length)?, true),
                false => (start_of(&positions, 0..length)?, false),
            };
            return whole.attend(start, effects, charged, &admit);
        };
        let first = Beside { effects, tokens: flat.tokens, control: flat.control };
        let others = flat.others.iter_mut();
        let others =
            others.map(|Beside { effects, tokens, control }| Beside { effects, tokens: *tokens, control });
        let mut result = HostTensor::zeros(out.dtype, out.shape.clone()).map_err(KernelError::Tensor)?;
        let mut from = 0;
        for (span, Beside { effects, tokens, control }) in std::iter::once(first).chain(others).enumerate() {
            let rows = from..from + tokens;
            let of_span = |error: NodeError| {
                let source = match error {
                    NodeError::Run(error) => error,
                    other => Box::new(Error::Invalid(other.to_string())),
                };
                of_run(Error::Span { span, source })
            };
            if rows.end > length {
                return invalid(format!("{length} tokens for more of a batch"));
            }
            let attended = control.check().map_err(of_run).and_then(|()| {
                let [q, k, v] = tensors.map(|tensor| part(tensor, rows.clone()));
                let (q, k, v) = (q?, k?, v?);
                let mut shape = out.shape.clone();
                shape[2] = tokens;
                let part = Attending {
                    tensors: [&q, &k, &v],
                    layer,
                    scale: *scale,
                    out: &ResultType { dtype: out.dtype, shape },
                };
                part.attend((start_of(&positions, rows.clone())?, false), effects, charged, &admit)
            });
            put(&mut result, rows.clone(), &attended.map_err(of_span)?);
            from = rows.end;
        }
        if from == length {
            Ok(result)
        } else {
            invalid(format!("{length} tokens, {from} of them in the batch"))
        }
    }
}

impl Attending<'_> {
    fn attend(
        &self,
        (start, is_ahead): (i64, bool),
        effects: &mut Effects,
        control: &RunControl,
        admit: &dyn Fn(u64) -> Result<(), NodeError>,
    ) -> Result<HostTensor, NodeError> {
        let Some(cache) = &mut effects.cache else {
            return invalid(
                "the program keeps keys and values in a cache of the session, and its metadata do not say how \
                 long that is: open the session with a context or a cache",
            );
        };
        let [q, k, v] = self.tensors;
        let length = k.shape().get(2).copied().unwrap_or(1) as u64;
        let (pages, row) = (length / PAGE + 2, extent(k.shape()) / length.max(1));
        // Keys and values, of at most eight bytes.
        let growth = pages.saturating_mul(PAGE).saturating_mul(row).saturating_mul(2 * 8);
        admit(growth.saturating_add(cache.bytes()))?;
        let reach = cache.len().max(usize::try_from(start).unwrap_or(0)) as u64;
        let queries = element_count(&self.out.shape).unwrap_or(usize::MAX) as u64;
        control.charge(queries.saturating_mul(reach.saturating_mul(2))).map_err(of_run)?;
        Ok(cache.update_and_attend(self.layer, (start, is_ahead), (q, k, v), self.scale, self.out)?)
    }
}

/// The position of the first of tokens that all see up to the last of them.
fn column(positions: &[i64], length: usize) -> Result<i64, NodeError> {
    match *positions {
        [first, last] if first.checked_add(length as i64 - 1) == Some(last) => Ok(first),
        _ => invalid(format!("{length} tokens with the positions {positions:?}")),
    }
}

/// The position of the first of these tokens. Where each has one, they follow each other: a text has no gaps inside a call.
fn start_of(positions: &[i64], tokens: Range<usize>) -> Result<i64, NodeError> {
    // One position is that of the first of all tokens.
    let given = if positions.len() == 1 && tokens.start == 0 {
        positions
    } else {
        match positions.get(tokens.clone()) {
            Some(given) => given,
            None => return invalid(format!("{} positions for {} tokens", positions.len(), tokens.end)),
        }
    };
    let Some(&start) = given.first() else {
        return if positions.is_empty() { invalid("there is no position") } else { Ok(positions[0]) };
    };
    for (at, &position) in given.iter().enumerate() {
        if start.checked_add(at as i64) != Some(position) {
            return invalid(format!(
                "position {position} is that of token {at} of a text that begins at {start}: positions of a call follow \
                 each other"
            ));
        }
    }
    Ok(start)
}

/// Rows of `[1, heads, T, features]`.
fn part(tensor: &HostTensor, rows: Range<usize>) -> Result<HostTensor, NodeError> {
    let &[1, heads, length, features] = tensor.shape() else {
        return invalid(format!("{:?} where tokens of several sessions lie", tensor.shape()));
    };
    let row = features * tensor.dtype().size();
    let mut bytes = Vec::with_capacity(heads * rows.len() * row);
    for head in 0..heads {
        let from = (head * length + rows.start) * row;
        bytes.extend_from_slice(&tensor.bytes()[from..from + rows.len() * row]);
    }
    let shape = vec![1, heads, rows.len(), features];
    Ok(HostTensor::new(tensor.dtype(), shape, Bytes::copy_of(&bytes)).map_err(KernelError::Tensor)?)
}

/// Writes rows of `[1, heads, T, features]`.
fn put(tensor: &mut HostTensor, rows: Range<usize>, part: &HostTensor) {
    let &[1, heads, length, features] = tensor.shape() else { return };
    let row = features * tensor.dtype().size();
    for head in 0..heads {
        let (to, from, bytes) =
            ((head * length + rows.start) * row, head * rows.len() * row, rows.len() * row);
        tensor.bytes_mut()[to..to + bytes].copy_from_slice(&part.bytes()[from..from + bytes]);
    }
}
