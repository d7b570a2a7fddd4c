//! Rows of activations as panels read them: one where it was prepared, or a block of them word by word, so that one address and
//! small distances from it name all.

use super::super::Product;
use super::unpack::{Line, grow};
use super::{Lanes, Work};
use crate::quant::layout::{INPUT_GROUP, Numbers};

/// Where some rows of activations lie.
///
/// # Safety
/// Every method needs a row of the block, and values that it has.
pub(super) trait Inputs: Copy {
    /// Where a value begins that a scale begins with.
    fn place(self, value: usize) -> usize;
    /// The four bytes of a row that meet each of two vectors of codes; so many times eight values behind a place.
    unsafe fn bytes(self, row: usize, place: usize, eight: usize) -> [*const u8; 2];
    /// The scale of the values at a place, which is the `shared`th.
    unsafe fn scale(self, row: usize, place: usize, shared: usize) -> *const f32;
    unsafe fn sum(self, row: usize, index: usize) -> *const f32;
}

/// One row where it was prepared.
#[derive(Clone, Copy)]
pub(super) struct Alone {
    row: *const u8,
    /// Values of a block, its bytes, and how many values a lane has of it.
    block: usize,
    block_bytes: usize,
    per_lane: usize,
    /// How far it is to the bytes that meet the next vector, and to those after both.
    second: usize,
    step: usize,
    sums_at: usize,
}

impl Alone {
    #[inline(always)]
    pub(super) fn new(work: &Work<'_>, row: *const u8) -> Alone {
        let lanes = work.product.layout.lanes;
        let nibbles = lanes.per_lane == 8;
        Alone {
            row,
            block: lanes.block(),
            block_bytes: work.block_bytes,
            per_lane: lanes.per_lane,
            second: if nibbles { 4 * lanes.lanes } else { 4 },
            step: if nibbles { 4 } else { 8 },
            sums_at: work.sums_at,
        }
    }
}

impl Inputs for Alone {
    #[inline(always)]
    fn place(self, value: usize) -> usize {
        value / self.block * self.block_bytes + value % self.block / self.per_lane * 4
    }

    #[inline(always)]
    unsafe fn bytes(self, _row: usize, place: usize, eight: usize) -> [*const u8; 2] {
        let first = self.row.wrapping_add(place + eight * self.step);
        [first, first.wrapping_add(self.second)]
    }

    #[inline(always)]
    unsafe fn scale(self, _row: usize, place: usize, _shared: usize) -> *const f32 {
        // Scales lie behind the block's bytes, one a lane.
        self.row.wrapping_add(place + self.block).cast()
    }

    #[inline(always)]
    unsafe fn sum(self, _row: usize, index: usize) -> *const f32 {
        self.row.wrapping_add(self.sums_at + 4 * index).cast()
    }
}

/// A block of `STRIDE` rows: the first word of each, the second word of each, and so on, in the order in which they meet codes.
#[derive(Clone, Copy)]
pub(super) struct Beside<const STRIDE: usize> {
    words: *const u8,
    scales: *const f32,
    sums: *const f32,
}

impl<const STRIDE: usize> Inputs for Beside<STRIDE> {
    #[inline(always)]
    fn place(self, value: usize) -> usize {
        value * STRIDE
    }

    #[inline(always)]
    unsafe fn bytes(self, row: usize, place: usize, eight: usize) -> [*const u8; 2] {
        let first = self.words.wrapping_add(place + (8 * eight * STRIDE) + 4 * row);
        [first, first.wrapping_add(4 * STRIDE)]
    }

    #[inline(always)]
    unsafe fn scale(self, row: usize, _place: usize, shared: usize) -> *const f32 {
        self.scales.wrapping_add(shared * STRIDE + row)
    }

    #[inline(always)]
    unsafe fn sum(self, row: usize, index: usize) -> *const f32 {
        self.sums.wrapping_add(index * STRIDE + row)
    }
}

/// Memory for blocks of rows side by side; of the last one, rows that are not there repeat the last.
#[derive(Default)]
pub(super) struct Arranged {
    words: Vec<Line>,
    scales: Vec<Line>,
    sums: Vec<Line>,
    /// Lines of a block of each.
    of_block: [usize; 3],
}

impl Arranged {
    /// Arranges blocks, each from a row on.
    ///
    /// # Safety
    /// The machine has the path's instructions; rows were prepared for the product.
    #[inline(always)]
    pub(super) unsafe fn fill<L: Lanes>(
        &mut self,
        lanes: L,
        product: &Product<'_>,
        rows: &[*const u8],
        starts: impl Iterator<Item = usize> + Clone,
    ) {
        let layout = product.layout;
        let sharing = layout.group.min(INPUT_GROUP);
        let (scales, sums) = (layout.k / sharing, layout.k / layout.summed());
        self.of_block = [layout.k, 4 * scales, 4 * sums].map(|bytes| (bytes * L::ROWS).div_ceil(64));
        let blocks = starts.clone().count();
        grow(&mut self.words, self.of_block[0] * blocks + SLACK);
        grow(&mut self.scales, self.of_block[1] * blocks + SLACK);
        grow(&mut self.sums, self.of_block[2] * blocks + SLACK);
        let form = layout.lanes;
        let (block_bytes, sums_at) = (form.block_bytes(), layout.lane_sums_at());
        for (block, start) in starts.enumerate() {
            let from: [*const u8; 8] = std::array::from_fn(|i| rows[(start + i).min(rows.len() - 1)]);
            let to: *mut u8 = self.words.as_mut_ptr().wrapping_add(block * self.of_block[0]).cast();
            let to_scales: *mut f32 = self.scales.as_mut_ptr().wrapping_add(block * self.of_block[1]).cast();
            let to_sums: *mut f32 = self.sums.as_mut_ptr().wrapping_add(block * self.of_block[2]).cast();
            // SAFETY: rows have blocks of values with their scales behind them, then sums; there is room for all.
            unsafe {
                let (values, plane) = (form.block(), 4 * form.lanes);
                for (index, first) in (0..layout.k).step_by(values).enumerate() {
                    let len = values.min(layout.k - first);
                    let at = index * block_bytes;
                    let to = to.add(first * L::ROWS);
                    if form.per_lane == 8 {
                        // The even values' words alternate with the odd ones'.
                        lanes.beside(&from, at, len / 8, to, 8 * L::ROWS);
                        lanes.beside(&from, at + plane, len / 8, to.add(4 * L::ROWS), 8 * L::ROWS);
                    } else {
                        lanes.beside(&from, at, len / 4, to, 4 * L::ROWS);
                    }
                    for shared in 0..len / sharing {
                        let scale = at + values + shared * sharing / form.per_lane * 4;
                        for (row, from) in from[..L::ROWS].iter().enumerate() {
                            let scale = from.add(scale).cast::<f32>().read();
                            *to_scales.add((first / sharing + shared) * L::ROWS + row) = scale;
                        }
                    }
                }
                if layout.lanes.numbers == Numbers::Int8 && !product.weight.has_biases() {
                    continue;
                }
                lanes.beside(&from, sums_at, sums, to_sums.cast(), 4 * L::ROWS);
            }
        }
    }

    /// A block that was arranged.
    pub(super) fn block<const STRIDE: usize>(&self, block: usize) -> Beside<STRIDE> {
        Beside {
            words: self.words.as_ptr().wrapping_add(block * self.of_block[0]).cast(),
            scales: self.scales.as_ptr().wrapping_add(block * self.of_block[1]).cast(),
            sums: self.sums.as_ptr().wrapping_add(block * self.of_block[2]).cast(),
        }
    }
}

/// Lines behind the last block, over which vectors may be written.
const SLACK: usize = 16;
