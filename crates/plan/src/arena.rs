//! One region of memory for all that a run computes: every value gets an offset such that no two that live at the same
//! time overlap.

use pteron_ir::liveness::Tick;

/// Something that needs memory for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: Tick,
    /// Still needed there.
    pub(crate) to: Tick,
    pub(crate) bytes: usize,
}

/// Offsets of all spans, multiples of `alignment`, and how large the region is.
pub(crate) fn place(spans: &[Span], alignment: usize) -> (Vec<usize>, usize) {
    // The largest first: small ones fill the gaps.
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|&index| (std::cmp::Reverse(spans[index].bytes), spans[index].from));
    let mut offsets = vec![0; spans.len()];
    let mut placed: Vec<usize> = Vec::with_capacity(spans.len());
    let mut total = 0;
    for index in order {
        let span = spans[index];
        let bytes = span.bytes.next_multiple_of(alignment);
        let mut taken: Vec<(usize, usize)> = (placed.iter())
            .filter(|&&other| spans[other].from <= span.to && span.from <= spans[other].to)
            .map(|&other| (offsets[other], offsets[other] + spans[other].bytes.next_multiple_of(alignment)))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (start, end) in taken {
            if offset + bytes <= start {
                break;
            }
            offset = offset.max(end);
        }
        offsets[index] = offset;
        total = total.max(offset + bytes);
        placed.push(index);
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_meet_never_overlap_and_others_share() {
        let span = |from, to, bytes| Span { from: Tick(from), to: Tick(to), bytes };
        let spans = [span(0, 1, 100), span(1, 2, 64), span(2, 3, 128), span(3, 4, 1), span(0, 4, 10)];
        let (offsets, total) = place(&spans, 64);
        for (a, x) in spans.iter().enumerate() {
            for (b, y) in spans.iter().enumerate().skip(a + 1) {
                if x.from <= y.to && y.from <= x.to {
                    let apart = offsets[a] + x.bytes <= offsets[b] || offsets[b] + y.bytes <= offsets[a];
                    assert!(apart, "{a} and {b}: {offsets:?}");
                }
            }
        }
        assert_eq!(total, 128 + 64 + 64);
    }
}
