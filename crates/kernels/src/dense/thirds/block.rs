//! Two tiles of a left operand times two of a right one. Four tiles of sums, two of each operand are all that there are: of the six
//! products of parts each shares an operand with the one before it.

use super::{PARTS, SUMS, TILE};
use crate::amx::Few;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
use std::ops::Range;

/// Memory that is prefetched while tiles are multiplied: no line of it need be there.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    pub(crate) from: *const u8,
    pub(crate) lines: usize,
}

impl Ahead {
    /// One of some equal parts.
    pub(super) fn part(self, part: usize, parts: usize) -> Ahead {
        let Range { start, end } = self.lines * part / parts..self.lines * (part + 1) / parts;
        Ahead { from: self.from.wrapping_add(start * 64), lines: end - start }
    }

    /// Asks for the lines of a step.
    #[inline(always)]
    fn prefetch(&self, step: usize, steps: usize) {
        for line in self.lines * step / steps..self.lines * (step + 1) / steps {
            // SAFETY: a prefetch reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.from.wrapping_add(line * 64).cast()) };
        }
    }
}

/// `R` tiles on the left times `C` on the right over some steps, each three parts long. The sums lie tile behind tile, those of the
/// first on the left first, at every place of two; they are added to where this does not begin.
///
/// # Safety
/// Operands have so many steps, and sums have room for four tiles.
#[inline(always)]
pub(crate) unsafe fn block<const R: usize, const C: usize>(
    tiles: &Few,
    left: [*const u8; 2],
    right: [*const u8; 2],
    steps: usize,
    begins: bool,
    sums: *mut f32,
    ahead: Ahead,
) {
    // SAFETY: the caller's promise; sums are tiles 0 to 3, the left operand 4 and 5, the right one 6 and 7.
    unsafe {
        let at = |tile: usize| sums.wrapping_add(tile * SUMS).cast::<u8>();
        macro_rules! load {
            ($($tile:literal)*) => { $(
                if $tile / 2 < R && $tile % 2 < C {
                    if begins { tiles.zero::<$tile>() } else { tiles.load::<$tile>(at($tile)) }
                }
            )* };
        }
        load!(0 1 2 3);
        for step in 0..steps {
            ahead.prefetch(step, steps);
            let step = step * PARTS * TILE;
            let on_left = |part: usize| {
                tiles.load::<4>(left[0].add(step + part * TILE));
                if R > 1 {
                    tiles.load::<5>(left[1].add(step + part * TILE));
                }
            };
            let on_right = |part: usize| {
                tiles.load::<6>(right[0].add(step + part * TILE));
                if C > 1 {
                    tiles.load::<7>(right[1].add(step + part * TILE));
                }
            };
            let multiply = || {
                tiles.multiply_bf16::<0, 4, 6>();
                if C > 1 {
                    tiles.multiply_bf16::<1, 4, 7>();
                }
                if R > 1 {
                    tiles.multiply_bf16::<2, 5, 6>();
                }
                if R > 1 && C > 1 {
                    tiles.multiply_bf16::<3, 5, 7>();
                }
            };
            on_left(0);
            on_right(2);
            multiply();
            on_right(1);
            multiply();
            on_left(1);
            multiply();
            on_right(0);
            multiply();
            on_left(0);
            multiply();
            on_left(2);
            multiply();
        }
        macro_rules! store {
            ($($tile:literal)*) => { $(
                if $tile / 2 < R && $tile % 2 < C {
                    tiles.store::<$tile>(at($tile).cast());
                }
            )* };
        }
        store!(0 1 2 3);
    }
}
