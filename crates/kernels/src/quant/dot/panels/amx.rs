//! Panels on matrix tiles. The codes of a group of sixteen rows of the weight, unpacked for vectors, are a right operand as they lie.
//! Activations are the left one, so that a product of nine rows takes less than one of sixteen. A group's sums are whole
//! numbers, the same that vectors would add up; scales meet them outside the tiles, in the same order, so that both give
//! the same to the last bit.
//!
//! A group takes a tile 13 ns, half of it to store its sums, where vectors take 3.5 ns for each row of activations.

use super::avx512::Sixteen;
use super::unpack::{Line, Panel, grow};
use super::{Lanes as _, PART, Work, how};
use crate::amx::{Few, TILE_ROWS};
use crate::quant::layout::{INPUT_GROUP, Numbers};
use std::arch::x86_64::*;
use std::ops::Range;

/// What unpacks panels beside tiles.
type OnTiles<'a> = Sixteen<'a, { how::DOTS }, true>;

/// Rows of activations as left operands, block by block, group by group.
#[derive(Default)]
pub(super) struct Left {
    bytes: Vec<Line>,
    /// Their scales, and what is added to a group's product before the weight's scale, or times its bias.
    scales: Vec<Line>,
    sums: Vec<Line>,
    /// What tiles have added up: twice two groups of up to sixteen rows.
    products: Vec<Line>,
}

/// Least rows for which tiles are quicker than vectors, by measurement.
pub(super) const LEAST_ROWS: usize = 9;

/// Rows of activations that tiles take at a time, as even as can be; the sums of so many stay in registers.
fn block_rows(count: usize) -> usize {
    match count.div_ceil(count.div_ceil(TILE_ROWS)) {
        ..=8 => 8,
        9..=12 => 12,
        _ => TILE_ROWS,
    }
}

/// Runs all rows of activations, or says that there are no tiles.
///
/// # Safety
/// The machine has what the AMX path asks for, and the work's rows exist.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma,f16c")]
pub(super) unsafe fn run(work: &Work<'_>, panel: &mut Panel, left: &mut Left, lanes: OnTiles<'_>) -> bool {
    let (layout, k) = (work.product.layout, work.product.weight.k);
    let depth = layout.group.min(INPUT_GROUP);
    let rows = block_rows(work.count);
    let of = Sizes {
        rows,
        blocks: work.count.div_ceil(rows),
        depth,
        groups: k / depth,
        sums: k / layout.summed(),
    };
    let ran = Few::with(rows, depth, |tiles| {
        // SAFETY: the caller's promises.
        unsafe {
            left.arrange(work, panel, of);
            let each = Each {
                work,
                tiles,
                of,
                bytes: left.bytes.as_ptr().cast(),
                scales: left.scales.as_ptr().cast(),
                sums: left.sums.as_ptr().cast(),
                products: left.products.as_mut_ptr().cast(),
            };
            match rows {
                8 => each.panels::<8>(panel, lanes),
                12 => each.panels::<12>(panel, lanes),
                _ => each.panels::<TILE_ROWS>(panel, lanes),
            }
        }
    });
    ran.is_some()
}

/// How activations lie as left operands: in blocks of rows, of which those that are left over are zero.
#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    blocks: usize,
    /// Values that share a scale of the weight and one of the activations, and how many times so many a row has.
    depth: usize,
    groups: usize,
    /// Sums of a row.
    sums: usize,
}

impl Sizes {
    /// The place of a row in a list of so many of each block.
    fn place(self, row: usize, each: usize, index: usize) -> usize {
        (row / self.rows * each + index) * self.rows + row % self.rows
    }
}

impl Left {
    /// Brings prepared rows of activations into the order of the codes.
    #[inline(always)]
    unsafe fn arrange(&mut self, work: &Work<'_>, panel: &Panel, of: Sizes) {
        let lanes = work.product.layout.lanes;
        let (block, depth) = (lanes.block(), of.depth);
        let rows = of.blocks * of.rows;
        grow(&mut self.bytes, (rows * of.groups * depth).div_ceil(64));
        grow(&mut self.scales, (rows * of.groups * 4).div_ceil(64));
        grow(&mut self.sums, (rows * of.sums * 4).div_ceil(64));
        grow(&mut self.products, 4 * TILE_ROWS);
        let bytes: *mut u8 = self.bytes.as_mut_ptr().cast();
        let scales: *mut f32 = self.scales.as_mut_ptr().cast();
        let sums: *mut f32 = self.sums.as_mut_ptr().cast();
        // SAFETY: rows have blocks of values with their scales behind them, then sums; there is room for all.
        unsafe {
            for row in 0..work.count {
                let from = panel.input(row);
                for group in 0..of.groups {
                    let value = group * depth;
                    let from =
                        from.add(value / block * work.block_bytes + value % block / lanes.per_lane * 4);
                    let at = of.place(row, of.groups, group);
                    let to = bytes.add(at * depth);
                    if lanes.per_lane == 8 {
                        // Even values lie apart from odd ones; codes alternate between four of each.
                        let both = [from, from.add(64)].map(|from| _mm_loadu_si128(from.cast()));
                        _mm_storeu_si128(to.cast(), _mm_unpacklo_epi32(both[0], both[1]));
                        if depth == 32 {
                            _mm_storeu_si128(to.add(16).cast(), _mm_unpackhi_epi32(both[0], both[1]));
                        }
                    } else {
                        std::ptr::copy_nonoverlapping(from, to, depth);
                    }
                    *scales.add(at) = from.add(block).cast::<f32>().read();
                }
                let from: *const f32 = from.add(work.sums_at).cast();
                for sum in 0..of.sums {
                    *sums.add(of.place(row, of.sums, sum)) = *from.add(sum);
                }
            }
            for row in work.count..rows {
                for group in 0..of.groups {
                    let at = of.place(row, of.groups, group);
                    bytes.add(at * depth).write_bytes(0, depth);
                    *scales.add(at) = 0.0;
                }
                for sum in 0..of.sums {
                    *sums.add(of.place(row, of.sums, sum)) = 0.0;
                }
            }
        }
    }
}

/// Panels with all blocks of activations.
struct Each<'a> {
    work: &'a Work<'a>,
    tiles: &'a Few,
    of: Sizes,
    bytes: *const u8,
    scales: *const f32,
    sums: *const f32,
    products: *mut i32,
}

impl Each<'_> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma,f16c")]
    unsafe fn panels<const ROWS: usize>(&self, panel: &mut Panel, lanes: OnTiles<'_>) {
        let Work { product, columns, count, .. } = self.work;
        for first in columns.clone().step_by(OnTiles::LANES) {
            let those = first..columns.end.min(first + OnTiles::LANES);
            // SAFETY: the caller's promises.
            unsafe {
                panel.begin(lanes, product, self.work.matrix, those.clone(), self.of.blocks * ROWS);
                panel.expect(first > columns.start, those.end < columns.end);
                for start in (0..product.weight.k).step_by(PART) {
                    let part = start..product.weight.k.min(start + PART);
                    panel.unpack(lanes, product, part.clone());
                    for block in 0..self.of.blocks {
                        match product.layout.lanes.numbers {
                            Numbers::Int8Shifted { .. } => {
                                self.part::<ROWS, true>(panel, lanes, &part, block)
                            }
                            _ => self.part::<ROWS, false>(panel, lanes, &part, block),
                        }
                    }
                }
                let mut values = [0.0; 16];
                for row in 0..*count {
                    _mm512_storeu_ps(values.as_mut_ptr(), _mm512_loadu_ps(panel.sums(row)));
                    product.out.write((self.work.picks)(row).output, first, &values[..those.len()]);
                }
            }
        }
    }

    /// Adds a part's products with a block of rows of activations.
    #[inline(always)]
    unsafe fn part<const ROWS: usize, const SHIFTED: bool>(
        &self,
        panel: &mut Panel,
        lanes: OnTiles<'_>,
        part: &Range<usize>,
        block: usize,
    ) {
        let Each { work, tiles, products, of: Sizes { depth, groups, sums, .. }, .. } = *self;
        let weight = work.product.weight;
        let of_group = (weight.scheme.group() / depth).trailing_zeros();
        let (first, last) = (part.start / depth, part.end / depth);
        let codes = panel.codes();
        // SAFETY: the panel has the part's codes, scales, biases and sums; so have the arranged activations.
        unsafe {
            let bytes = self.bytes.add(block * groups * ROWS * depth);
            let x_scales = self.scales.add(block * groups * ROWS);
            let x_sums = self.sums.add(block * sums * ROWS);
            let mut sums = [_mm512_setzero_ps(); ROWS];
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum = _mm512_loadu_ps(panel.sums(block * ROWS + row));
            }
            // A product is begun four groups before its sums are read and stored two before: it takes long, and what is
            // stored is not to be had at once.
            macro_rules! multiply {
                ($group:expr, $tile:literal, $left:literal, $right:literal) => {
                    if $group < last {
                        tiles.multiply::<$tile, $left, $right>(
                            bytes.add($group * ROWS * depth),
                            depth,
                            codes.add(($group - first) * depth * 16),
                        );
                    }
                };
            }
            macro_rules! store {
                ($group:expr, $tile:literal) => {
                    if $group < last {
                        tiles.store::<$tile>(products.add($tile * TILE_ROWS * 16));
                    }
                };
            }
            macro_rules! add {
                ($group:expr, $tile:literal) => {
                    if $group < last {
                        if block == 0 {
                            panel.prefetch(lanes, $group * depth, depth);
                        }
                        let scale = _mm512_loadu_ps(panel.scales(($group >> of_group) * 16));
                        for (row, sum) in sums.iter_mut().enumerate() {
                            let whole =
                                _mm512_loadu_si512(products.add(($tile * TILE_ROWS + row) * 16).cast());
                            let (whole, x) = (
                                _mm512_cvtepi32_ps(whole),
                                _mm512_set1_ps(*x_scales.add($group * ROWS + row)),
                            );
                            let whole = match SHIFTED {
                                true => _mm512_fmadd_ps(
                                    whole,
                                    x,
                                    _mm512_set1_ps(*x_sums.add($group * ROWS + row)),
                                ),
                                false => _mm512_mul_ps(whole, x),
                            };
                            *sum = _mm512_fmadd_ps(whole, scale, *sum);
                        }
                    }
                };
            }
            multiply!(first, 0, 4, 6);
            multiply!(first + 1, 1, 5, 7);
            multiply!(first + 2, 2, 4, 6);
            multiply!(first + 3, 3, 5, 7);
            store!(first, 0);
            store!(first + 1, 1);
            for group in (first..last).step_by(4) {
                multiply!(group + 4, 0, 4, 6);
                multiply!(group + 5, 1, 5, 7);
                store!(group + 2, 2);
                store!(group + 3, 3);
                add!(group, 0);
                add!(group + 1, 1);
                multiply!(group + 6, 2, 4, 6);
                multiply!(group + 7, 3, 5, 7);
                store!(group + 4, 0);
                store!(group + 5, 1);
                add!(group + 2, 2);
                add!(group + 3, 3);
            }
            if let Some((biases, factor)) = panel.biases(work.product) {
                let factor = _mm512_set1_ps(factor);
                for group in part.start / weight.scheme.group()..part.end / weight.scheme.group() {
                    let bias = _mm512_mul_ps(_mm512_loadu_ps(biases.add(group * 16)), factor);
                    for (row, sum) in sums.iter_mut().enumerate() {
                        *sum = _mm512_fmadd_ps(bias, _mm512_set1_ps(*x_sums.add(group * ROWS + row)), *sum);
                    }
                }
            }
            for (row, sum) in sums.into_iter().enumerate() {
                _mm512_storeu_ps(panel.sums(block * ROWS + row), sum);
            }
        }
    }
}
