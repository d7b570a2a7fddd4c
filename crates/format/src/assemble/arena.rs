//! Where tensors lie in an arena: those that are needed at the same time lie apart, others may share bytes.

use crate::pte::Instruction;

/// First and last step that uses a value.
pub(super) type Span = (usize, usize);

/// A tensor that wants room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor {
    pub(super) value: usize,
    pub(super) bytes: u64,
    /// The first step that needs it.
    pub(super) first: usize,
    /// The last step that needs it.
    pub(super) last: usize,
}

const ALIGNMENT: u64 = 16;

/// For each value the steps between which it must keep its memory. Step 0 is before the first instruction; outputs are
/// needed past the last. `members` gives the tensors of a list.
pub(super) fn spans<'l>(
    values: usize,
    steps: &[Instruction],
    inputs: &[i32],
    outputs: &[i32],
    members: impl Fn(i32) -> &'l [i32],
) -> Vec<Option<Span>> {
    let mut spans: Vec<Option<Span>> = vec![None; values];
    let mut touch = |value: i32, step: usize| {
        for &value in members(value).iter().chain([&value]) {
            let Some(span) = usize::try_from(value).ok().and_then(|value| spans.get_mut(value)) else {
                continue;
            };
            let (first, last) = span.unwrap_or((step, step));
            *span = Some((first.min(step), last.max(step)));
        }
    };
    inputs.iter().for_each(|&value| touch(value, 0));
    outputs.iter().for_each(|&value| touch(value, steps.len() + 1));
    let mut aliases = Vec::new();
    for (step, instruction) in steps.iter().enumerate() {
        let step = step + 1;
        match instruction {
            Instruction::Kernel(call) => call.args.iter().for_each(|&value| touch(value, step)),
            Instruction::Delegate(call) => call.args.iter().for_each(|&value| touch(value, step)),
            Instruction::Move(call) => {
                touch(call.move_from, step);
                touch(call.move_to, step);
                aliases.push((call.move_from as usize, call.move_to as usize));
            }
            Instruction::JumpFalse(call) => touch(call.cond_value_index, step),
            Instruction::Free(call) => touch(call.value_index, step),
        }
    }
    // A value that stands for another keeps that one's memory in use for as long as itself.
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for &(from, to) in &aliases {
            if let (Some(&Some(a)), Some(&Some(b))) = (spans.get(from), spans.get(to)) {
                let both = Some((a.0.min(b.0), a.1.max(b.1)));
                changed |= spans[from] != both || spans[to] != both;
                (spans[from], spans[to]) = (both, both);
            }
        }
    }
    spans
}

/// Offsets of the tensors, and the bytes of the arena; `None` when it cannot be counted. The largest is placed first,
/// each at the lowest place that is free while it is needed.
pub(super) fn place(tensors: &[Tensor]) -> Option<(Vec<u64>, u64)> {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(tensors[at].bytes), tensors[at].value));
    let mut offsets = vec![0u64; tensors.len()];
    let mut placed: Vec<usize> = Vec::new(); // by offset
    let mut end = 0u64;
    for at in order {
        let tensor = tensors[at];
        let mut offset = 0u64;
        for &other in &placed {
            let theirs = tensors[other];
            let apart_in_time = theirs.last < tensor.first || tensor.last < theirs.first;
            if apart_in_time {
                continue;
            }
            if offset.checked_add(tensor.bytes)? <= offsets[other] {
                break;
            }
            let after = offsets[other].checked_add(theirs.bytes)?.checked_next_multiple_of(ALIGNMENT)?;
            offset = offset.max(after);
        }
        offsets[at] = offset;
        end = end.max(offset.checked_add(tensor.bytes)?.checked_next_multiple_of(ALIGNMENT)?);
        let position = placed.partition_point(|&other| offsets[other] <= offset);
        placed.insert(position, at);
    }
    i64::try_from(end).ok()?;
    Some((offsets, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_share_bytes_only_when_apart_in_time() {
        let tensor = |value, bytes, first, last| Tensor { value, bytes, first, last };
        let tensors = [
            tensor(0, 100, 0, 2),
            tensor(1, 40, 1, 3),
            tensor(2, 90, 3, 4),
            tensor(3, 0, 0, 9),
            tensor(4, 10, 0, usize::MAX),
        ];
        let (offsets, bytes) = place(&tensors).unwrap();
        for (a, one) in tensors.iter().enumerate() {
            for (b, other) in tensors.iter().enumerate().skip(a + 1) {
                let in_time = one.first <= other.last && other.first <= one.last;
                let in_place = offsets[a] < offsets[b] + other.bytes && offsets[b] < offsets[a] + one.bytes;
                assert!(!(in_time && in_place && one.bytes.min(other.bytes) > 0), "{one:?} {other:?}");
            }
            assert!(offsets[a] + one.bytes <= bytes && offsets[a].is_multiple_of(ALIGNMENT));
        }
        assert!(bytes < 100 + 48 + 90, "values 0 and 2 share: {bytes}");
        assert_eq!(place(&[tensor(0, u64::MAX, 0, 1), tensor(1, 1, 0, 1)]), None);
    }
}
