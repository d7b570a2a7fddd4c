//! The product of rows of the weight with rows of activations, summed along the row in lanes.
//!
//! One shape for every path: a block of codes is unpacked once and multiplied with up to four rows of
//! activations; each lane then holds the sum of a few neighbouring values of one group, so that one
//! multiply-add with a vector of scales finishes the block. Biases are a dot product of their own with the
//! groups' sums. With one row of activations this reads each byte of the weight once, in order, with about a
//! dozen instructions to 64 bytes, which is faster than memory delivers them.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

use super::layout::InputLayout;
use super::rows::Sink;
use super::weight::{AsF32, QuantWeight, StoredAs};
use crate::path::Path;
use std::ops::Range;

/// Rows of activations that share an unpacked block.
const ROWS_AT_ONCE: usize = 4;

/// Rows of the weight that stay in the innermost cache while rows of activations pass.
const WEIGHT_ROWS_AT_ONCE: usize = 16;

/// How far ahead of its use the weight is asked for.
const PREFETCH_BYTES: usize = 4096;

/// The few operations in which paths, widths of codes and kinds of activations differ. All are inlined into a
/// function that enables the path's instructions.
///
/// # Safety
/// Every method needs the path's instructions and readable memory for what it says it reads.
trait Dot: Copy {
    /// An unpacked block of codes.
    type Codes: Copy;
    /// A vector of f32.
    type Lanes: Copy;
    /// Which scale of a block belongs to which lane.
    type Spread: Copy;
    /// Lanes of the vector.
    const LANES: usize;
    /// Values of a block that a lane takes.
    const PER_LANE: usize;
    /// Bytes of a block of activations.
    const X_BYTES: usize;

    /// Bytes of a block of codes.
    fn code_bytes(self) -> usize;
    /// Bytes that [`Dot::codes`] reads, no fewer than [`Dot::code_bytes`].
    fn read_bytes(self) -> usize;
    /// Unpacks a block.
    unsafe fn codes(self, from: *const u8) -> Self::Codes;
    /// Unpacks a block of which only so many bytes may be read; the rest counts as zero.
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> Self::Codes;
    /// Each lane's sum of products, with the activations' own scale.
    unsafe fn products(self, codes: Self::Codes, x: *const u8) -> Self::Lanes;
    /// For groups of `1 << group_shift` values.
    unsafe fn spread(self, group_shift: u32) -> Self::Spread;
    /// Reads `count` scales (1, 2, 4 or 8; of the last block perhaps fewer than it has groups) and gives
    /// every lane its own.
    unsafe fn scales<S: StoredAs>(self, from: *const u8, count: usize, spread: Self::Spread) -> Self::Lanes;
    /// Reads `count` floats, at most one a lane; the other lanes are zero.
    unsafe fn floats<S: StoredAs>(self, from: *const u8, count: usize) -> Self::Lanes;
    unsafe fn zero(self) -> Self::Lanes;
    /// One number in every lane.
    unsafe fn every(self, value: f32) -> Self::Lanes;
    /// `a * b + c`.
    unsafe fn multiply_add(self, a: Self::Lanes, b: Self::Lanes, c: Self::Lanes) -> Self::Lanes;
    unsafe fn sum(self, lanes: Self::Lanes) -> f32;
    unsafe fn prefetch(self, from: *const u8);
}

/// A product to compute: all of it but the choice of rows.
#[derive(Clone, Copy)]
pub(super) struct Product<'a> {
    pub(super) weight: &'a QuantWeight,
    pub(super) layout: &'a InputLayout,
    pub(super) path: Path,
    /// Prepared rows of activations.
    pub(super) x: &'a [u8],
    pub(super) out: Sink,
}

/// A row of activations, the matrix that it meets, and the row of the output.
#[derive(Clone, Copy)]
pub(super) struct Pick {
    pub(super) input: usize,
    pub(super) output: usize,
}

impl Product<'_> {
    /// Multiplies rows `columns` of a matrix with the picked rows of activations; `columns` are the output's.
    ///
    /// # Safety
    /// The rows and picks exist, and nobody else uses these elements of the output now.
    pub(super) unsafe fn compute(
        &self,
        matrix: usize,
        columns: Range<usize>,
        picks: &(impl Fn(usize) -> Pick + Sync),
        count: usize,
    ) {
        let first = columns.start;
        let mut from = first;
        while from < columns.end {
            let to = columns.end.min(from + WEIGHT_ROWS_AT_ONCE);
            let mut row = 0;
            while row < count {
                let many = count - row >= ROWS_AT_ONCE;
                let rows = if many { ROWS_AT_ONCE } else { 1 };
                let picked: [Pick; ROWS_AT_ONCE] =
                    std::array::from_fn(|i| picks(if i < rows { row + i } else { row }));
                let span =
                    Span { product: self, first_row: matrix * self.weight.n, columns: from..to, picked };
                // SAFETY: the caller's promises; the path was checked when the linear was made.
                unsafe { span.dispatch(many) };
                row += rows;
            }
            from = to;
        }
    }
}

/// Some rows of the weight against one row of activations, or against four.
struct Span<'a> {
    product: &'a Product<'a>,
    first_row: usize,
    columns: Range<usize>,
    picked: [Pick; ROWS_AT_ONCE],
}

impl Span<'_> {
    unsafe fn dispatch(&self, many: bool) {
        let product = self.product;
        // SAFETY: each arm runs on a path that has its instructions; the rest is the caller's promise.
        unsafe {
            match product.path {
                #[cfg(target_arch = "x86_64")]
                Path::Avx512 | Path::Amx if product.layout.lanes.lanes == 16 => avx512::span(self, many),
                #[cfg(target_arch = "x86_64")]
                Path::Avx2 | Path::AvxVnni | Path::Avx512 | Path::Amx => avx2::span(self, many),
                #[cfg(target_arch = "aarch64")]
                Path::Neon | Path::NeonDotprod | Path::NeonI8mm => neon::span(self, many),
                _ => portable::span(self, many),
            }
        }
    }

    /// The one loop; inlined into every path's functions.
    #[inline(always)]
    unsafe fn multiply<D: Dot, S: StoredAs, const M: usize>(&self, dot: D) {
        let Product { weight, layout, x, out, .. } = self.product;
        let row_bytes = layout.lane_row_bytes();
        // SAFETY: the layout's row bytes times the picked rows lie in `x`, and the weight's parts have their
        // checked sizes, so every pointer below stays inside its slice; blocks that would reach beyond a row
        // are read in part.
        unsafe {
            let inputs: [*const u8; M] =
                std::array::from_fn(|m| x.as_ptr().add(self.picked[m].input * row_bytes));
            let (groups, code_bytes) = (weight.groups(), weight.row_bytes());
            let group_shift = weight.scheme.group().trailing_zeros();
            let spread = dot.spread(group_shift);
            // Asked for once: a shared region answers through its owner.
            let (all_codes, all_scales) = (weight.codes.as_ptr(), weight.scales.as_ptr());
            // Biases that are a multiple of the scales are not read: the scales are in the nearest cache.
            let all_biases = weight.biases.as_ref().map(|biases| match weight.centre {
                Some(centre) => (all_scales, dot.every(centre)),
                None => (biases.as_ptr(), dot.every(1.0)),
            });
            // Written together: rounding to the output's dtype is then done by vectors.
            let mut values = [[0.0; WEIGHT_ROWS_AT_ONCE]; M];
            for (at, column) in self.columns.clone().enumerate() {
                let row = self.first_row + column;
                let codes = all_codes.add(row * code_bytes);
                let scales = all_scales.add(row * groups * S::SIZE);
                let mut sums = [dot.zero(); M];
                self.add_blocks::<D, S, M>(dot, spread, codes, scales, inputs, &mut sums);
                if let Some((biases, factor)) = all_biases {
                    let biases = biases.add(row * groups * S::SIZE);
                    let mut group = 0;
                    while group < groups {
                        let bias = dot.floats::<S>(biases.add(group * S::SIZE), D::LANES.min(groups - group));
                        let bias = dot.multiply_add(bias, factor, dot.zero());
                        for m in 0..M {
                            let of_group = inputs[m].add(layout.lane_sums_at() + 4 * group);
                            // Sums are padded to whole vectors.
                            let of_group = dot.floats::<AsF32>(of_group, D::LANES);
                            sums[m] = dot.multiply_add(bias, of_group, sums[m]);
                        }
                        group += D::LANES;
                    }
                }
                for (values, lanes) in values.iter_mut().zip(sums) {
                    values[at] = dot.sum(lanes);
                }
            }
            for (pick, values) in self.picked.iter().zip(&values) {
                out.write(pick.output, self.columns.start, &values[..self.columns.len()]);
            }
        }
    }

    #[inline(always)]
    unsafe fn add_blocks<D: Dot, S: StoredAs, const M: usize>(
        &self,
        dot: D,
        spread: D::Spread,
        codes: *const u8,
        scales: *const u8,
        inputs: [*const u8; M],
        sums: &mut [D::Lanes; M],
    ) {
        let weight = self.product.weight;
        let block_len = D::LANES * D::PER_LANE;
        let group_shift = weight.scheme.group().trailing_zeros();
        let (row_bytes, step) = (weight.row_bytes(), dot.code_bytes());
        let per_block = (block_len >> group_shift).max(1);
        let blocks = weight.k.div_ceil(block_len);
        let whole = if row_bytes < dot.read_bytes() { 0 } else { (row_bytes - dot.read_bytes()) / step + 1 };
        // SAFETY: as in `multiply`: whole blocks lie inside the row, the others say how much of them does.
        unsafe {
            for block in 0..whole {
                let from = codes.add(block * step);
                dot.prefetch(from.wrapping_add(PREFETCH_BYTES));
                let unpacked = dot.codes(from);
                let group = (block * block_len) >> group_shift;
                let scale = dot.scales::<S>(scales.add(group * S::SIZE), per_block, spread);
                for m in 0..M {
                    let products = dot.products(unpacked, inputs[m].add(block * D::X_BYTES));
                    sums[m] = dot.multiply_add(products, scale, sums[m]);
                }
            }
            for block in whole..blocks {
                let unpacked = dot.codes_of(codes.add(block * step), step.min(row_bytes - block * step));
                let group = (block * block_len) >> group_shift;
                let count = per_block.min(weight.groups() - group);
                let scale = dot.scales::<S>(scales.add(group * S::SIZE), count, spread);
                for m in 0..M {
                    let products = dot.products(unpacked, inputs[m].add(block * D::X_BYTES));
                    sums[m] = dot.multiply_add(products, scale, sums[m]);
                }
            }
        }
    }
}
