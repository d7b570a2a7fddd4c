//! Keys and values from call to call: a cache as long as the context, or a ring where attention slides. What all
//! layers with the same ring share (places and mask) is built once.

use pteron_ir::op::FloatArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use crate::net::{literal, value};
use crate::{ModelError, Net};

/// What layers with the same ring share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingView {
    /// The slot of the first new token.
    slot: ValueId,
    /// Slots from there to the end of the ring.
    room: ValueId,
    /// Which keys a query sees: 0 where it does, else minus infinity.
    pub(crate) mask: ValueId,
}

/// Slots of a ring: all that the first token of the largest input sees stays until its last token is written.
pub(crate) fn ring_slots(window: usize, chunk: usize, context: usize) -> usize {
    (window + chunk - 1).min(context)
}

/// Writes new keys or values `[1, heads, T, head_dim]` behind the old ones; all of them up to now.
pub(crate) fn append(net: &mut Net, cache: ValueId, new: ValueId) -> Result<ValueId, ModelError> {
    let (start, end) = (value(net.start()?), value(net.end()?));
    let axis = literal(2);
    let updated = net.op(Op::SliceUpdate { dst: cache, update: new, axis, start, stop: end, step: 1 })?;
    net.update(cache, updated);
    net.op(Op::Slice { x: updated, axis, start: literal(0), stop: end, step: 1 })
}

/// Writes new keys or values into a ring; the whole ring. What does not fit before its end goes to its beginning.
pub(crate) fn append_to_ring(
    net: &mut Net,
    ring: ValueId,
    view: RingView,
    new: ValueId,
) -> Result<ValueId, ModelError> {
    let axis = literal(2);
    let (slot, length) = (value(view.slot), value(net.length()));
    let first = net.op(Op::Slice { x: new, axis, start: literal(0), stop: value(view.room), step: 1 })?;
    let fitted = net.op(Op::SymSize { a: first, dim: 2 })?;
    let rest = net.op(Op::Slice { x: new, axis, start: value(fitted), stop: length, step: 1 })?;
    let stop = net.add_int(slot, value(fitted))?;
    let left = net.subtract_int(length, value(fitted))?;
    let once =
        net.op(Op::SliceUpdate { dst: ring, update: first, axis, start: slot, stop: value(stop), step: 1 })?;
    let start = literal(0);
    let twice =
        net.op(Op::SliceUpdate { dst: once, update: rest, axis, start, stop: value(left), step: 1 })?;
    net.update(ring, twice);
    Ok(twice)
}

/// Places and mask of rings of that many slots under that window.
pub(crate) fn ring_view(net: &mut Net, slots: usize, window: usize) -> Result<RingView, ModelError> {
    if let Some(&view) = net.rings.get(&(slots, window)) {
        return Ok(view);
    }
    let start = value(net.start()?);
    let slot = net.op(Op::ModInt { a: start, b: literal(slots) })?;
    let room = net.subtract_int(literal(slots), value(slot))?;
    let mask = ring_mask(net, slots, window)?;
    let view = RingView { slot, room, mask };
    net.rings.insert((slots, window), view);
    Ok(view)
}

/// `[1, 1, T, slots]` in the activations' dtype. A slot up to that of the last token holds a position of this round, one
/// behind it a position of the round before; a query sees the `window` positions that end with its own.
fn ring_mask(net: &mut Net, slots: usize, window: usize) -> Result<ValueId, ModelError> {
    let end = value(net.end()?);
    let last = net.subtract_int(end, literal(1))?;
    let last_slot = net.op(Op::ModInt { a: value(last), b: literal(slots) })?;
    let round = net.subtract_int(value(last), value(last_slot))?;
    let round_before = net.subtract_int(value(round), literal(slots))?;
    let all_slots = net.range(literal(slots))?;
    let (round, round_before) = (net.int_tensor(round)?, net.int_tensor(round_before)?);
    let (this_round, before) = (net.add(all_slots, round)?, net.add(all_slots, round_before)?);
    let last_slot = net.int_tensor(last_slot)?;
    let written = net.op(Op::LessEqual { a: all_slots, b: last_slot })?;
    let held = net.op(Op::Where { condition: written, x: this_round, y: before })?;

    let tokens = net.range(value(net.length()))?;
    let first = net.input_pos()?;
    let queries = net.add(tokens, first)?;
    let queries = net.op(Op::Reshape { x: queries, shape: vec![value(net.length()), literal(1)] })?;
    let distance = net.op(Op::Subtract { a: queries, b: held })?;
    let (zero, width) = (net.scalar(0.0, DType::I64), net.scalar(window as f32, DType::I64));
    let exists = net.op(Op::GreaterEqual { a: held, b: zero })?;
    let past = net.op(Op::GreaterEqual { a: distance, b: zero })?;
    let near = net.op(Op::Less { a: distance, b: width })?;
    let seen = net.op(Op::BitwiseAnd { a: exists, b: past })?;
    let seen = net.op(Op::BitwiseAnd { a: seen, b: near })?;
    let mut constant = |number| {
        let scalar_type = net.activations();
        net.op(Op::Full { shape: vec![literal(1)], v: FloatArg::Literal(number), scalar_type })
    };
    let (open, closed) = (constant(0.0)?, constant(f64::NEG_INFINITY)?);
    let mask = net.op(Op::Where { condition: seen, x: open, y: closed })?;
    let mask = net.op(Op::ExpandDims { x: mask, axis: 0 })?;
    net.op(Op::ExpandDims { x: mask, axis: 0 })
}
