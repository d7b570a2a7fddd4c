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
#[cfg(target_arch = "x86_64")]
mod panels;
mod portable;

use super::layout::{InputLayout, Numbers};
use super::rows::Sink;
use super::weight::{AsF32, QuantWeight, StoredAs};
use crate::path::Path;
use std::ops::Range;

/// Rows of activations that share an unpacked block.
const ROWS_AT_ONCE: usize = 4;

/// Rows of the weight that stay in the innermost cache while rows of activations pass, and whose sums are
/// written together.
const WEIGHT_ROWS_AT_ONCE: usize = 16;

/// Short rows of the weight that are added up side by side for one row of activations: what waits for one is done
/// for the others, activations are loaded once, and their last sums take few operations together.
const SHORT_SIDE_BY_SIDE: usize = 4;

/// Longest rows, in bytes, for which that is worth it: memory delivers one long stream faster than four.
const LONGEST_SIDE_BY_SIDE: usize = 512;

/// Long rows of the weight that are added up side by side.
const LONG_SIDE_BY_SIDE: usize = 2;

/// Bytes of a row of activations from which on long rows of the weight share its reading: it no longer stays in the
/// innermost cache while the weight streams through, and what it waits for there costs more than a second stream.
const LARGE_INPUT: usize = 8 << 10;

/// What memory delivers at once.
const CACHE_LINE: usize = 64;

/// How far ahead of its use a single row of the weight is asked for: further ahead, what has come is displaced again.
const PREFETCH_BYTES: usize = 3072;

/// How far ahead rows side by side are asked for, at least.
const PREFETCH_BYTES_OF_ROWS: usize = 4096;

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
    /// Scales that [`Dot::whole_scales`] reads, where they are more than a block has.
    const SCALES_READ: usize = 0;
    /// As [`Dot::scales`] for the `count` groups of a whole block. At least [`Dot::SCALES_READ`] scales are readable there, so
    /// that none need be counted; those beyond the block are in no lane.
    #[inline(always)]
    unsafe fn whole_scales<S: StoredAs>(
        self,
        from: *const u8,
        count: usize,
        spread: Self::Spread,
    ) -> Self::Lanes {
        // SAFETY: the caller's promise.
        unsafe { self.scales::<S>(from, count, spread) }
    }
    /// Reads `count` floats, at most one a lane; the other lanes are zero.
    unsafe fn floats<S: StoredAs>(self, from: *const u8, count: usize) -> Self::Lanes;
    unsafe fn zero(self) -> Self::Lanes;
    /// One number in every lane.
    unsafe fn every(self, value: f32) -> Self::Lanes;
    /// `a * b + c`.
    unsafe fn multiply_add(self, a: Self::Lanes, b: Self::Lanes, c: Self::Lanes) -> Self::Lanes;
    unsafe fn sum(self, lanes: Self::Lanes) -> f32;
    /// As [`Dot::sum`] for four.
    #[inline(always)]
    unsafe fn four_sums(self, lanes: [Self::Lanes; 4]) -> [f32; 4] {
        // SAFETY: the caller's promise.
        lanes.map(|lanes| unsafe { self.sum(lanes) })
    }
    /// As [`Dot::sum`] for any number, each into its place.
    #[inline(always)]
    unsafe fn sums(self, lanes: &[Self::Lanes], to: &mut [f32]) {
        // SAFETY: the caller's promise.
        unsafe {
            if let &[a, b, c, d] = lanes {
                return to.copy_from_slice(&self.four_sums([a, b, c, d]));
            }
            to.iter_mut().zip(lanes).for_each(|(to, &lanes)| *to = self.sum(lanes));
        }
    }
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
        #[cfg(target_arch = "x86_64")]
        if count >= panels::LEAST_ROWS && panels::serves(self) {
            // SAFETY: the caller's promises; the path was checked when the linear was made.
            return unsafe { panels::compute(self, matrix, columns, picks, count) };
        }
        let spans = |columns: Range<usize>, row: usize| {
            let many = count - row >= ROWS_AT_ONCE;
            let rows = if many { ROWS_AT_ONCE } else { 1 };
            let picked = std::array::from_fn(|i| picks(if i < rows { row + i } else { row }));
            let span = Span { product: self, first_row: matrix * self.weight.n, columns, picked };
            // SAFETY: the caller's promises; the path was checked when the linear was made.
            unsafe { span.dispatch(many) };
            rows
        };
        if count == 1 {
            spans(columns, 0);
            return;
        }
        for from in columns.clone().step_by(WEIGHT_ROWS_AT_ONCE) {
            let to = columns.end.min(from + WEIGHT_ROWS_AT_ONCE);
            let mut row = 0;
            while row < count {
                row += spans(from..to, row);
            }
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

    /// All columns; inlined into every path's functions.
    #[inline(always)]
    unsafe fn multiply<D: Dot, S: StoredAs, const M: usize>(&self, dot: D) {
        let Product { weight, layout, x, .. } = self.product;
        let row_bytes = layout.lane_row_bytes();
        // SAFETY: the layout's row bytes times the picked rows lie in `x`, and the weight's parts have their
        // checked sizes, so every pointer below stays inside its slice; blocks that would reach beyond a row
        // are read in part.
        unsafe {
            let inputs = std::array::from_fn(|m| x.as_ptr().add(self.picked[m].input * row_bytes));
            let source = Source::<D, M>::new(dot, weight, layout, inputs);
            if M == 1 && source.row_bytes <= LONGEST_SIDE_BY_SIDE {
                self.columns::<D, S, M, SHORT_SIDE_BY_SIDE>(dot, &source);
            } else if M == 1 && source.blocks * D::X_BYTES > LARGE_INPUT {
                self.columns::<D, S, M, LONG_SIDE_BY_SIDE>(dot, &source);
            } else {
                self.columns::<D, S, M, 1>(dot, &source);
            }
        }
    }

    /// The one loop, with so many rows of the weight side by side.
    #[inline(always)]
    unsafe fn columns<D: Dot, S: StoredAs, const M: usize, const R: usize>(
        &self,
        dot: D,
        source: &Source<D, M>,
    ) {
        let (ahead, ahead_of_one) = (source.ahead::<S, R>(), source.ahead::<S, 1>());
        // SAFETY: the caller's promises; the rows of these columns exist.
        unsafe {
            for from in self.columns.clone().step_by(WEIGHT_ROWS_AT_ONCE) {
                let len = WEIGHT_ROWS_AT_ONCE.min(self.columns.end - from);
                // Written together: rounding to the output's dtype is then done by vectors.
                let mut values = [[0.0; WEIGHT_ROWS_AT_ONCE]; M];
                let mut at = 0;
                while R > 1 && at + R <= len {
                    let sums = source.rows::<S, R>(dot, self.first_row + from + at, ahead);
                    dot.sums(&sums.map(|of_row| of_row[0]), &mut values[0][at..at + R]);
                    at += R;
                }
                for at in at..len {
                    let [sums] = source.rows::<S, 1>(dot, self.first_row + from + at, ahead_of_one);
                    for (values, lanes) in values.iter_mut().zip(sums) {
                        values[at] = dot.sum(lanes);
                    }
                }
                for (pick, values) in self.picked.iter().zip(&values) {
                    self.product.out.write(pick.output, from, &values[..len]);
                }
            }
        }
    }
}

/// The parts of a weight and the activations that it meets, asked for once: a shared region answers through
/// its owner.
struct Source<D: Dot, const M: usize> {
    codes: *const u8,
    scales: *const u8,
    /// Biases and what to multiply them with, where the sums do not begin with them. Those that are a multiple
    /// of the scales are not read: the scales are in the nearest cache.
    biases: Option<(*const u8, D::Lanes)>,
    inputs: [*const u8; M],
    /// Where the sums of the groups are in a row of activations.
    sums_at: usize,
    row_bytes: usize,
    groups: usize,
    /// Bytes of all scales.
    scales_len: usize,
    group_shift: u32,
    /// Blocks of a row, how many of them are read whole, and the groups of one.
    blocks: usize,
    whole: usize,
    per_block: usize,
    spread: D::Spread,
}

/// How many bytes ahead of their use parts of a weight are asked for.
#[derive(Clone, Copy)]
struct Ahead {
    codes: usize,
    scales: usize,
}

impl<D: Dot, const M: usize> Source<D, M> {
    /// # Safety
    /// The machine has the path's instructions.
    #[inline(always)]
    unsafe fn new(dot: D, weight: &QuantWeight, layout: &InputLayout, inputs: [*const u8; M]) -> Self {
        let block_len = D::LANES * D::PER_LANE;
        let group_shift = weight.scheme.group().trailing_zeros();
        let (row_bytes, step) = (weight.row_bytes(), dot.code_bytes());
        let scales = weight.scales.as_ptr();
        // SAFETY: the caller's promise.
        unsafe {
            let biases = match (layout.lanes.numbers, &weight.biases, weight.centre) {
                (Numbers::Int8Shifted { .. }, ..) | (_, None, None) => None,
                (_, Some(biases), _) => Some((biases.as_ptr(), dot.every(1.0))),
                (_, None, Some(centre)) => Some((scales, dot.every(centre))),
            };
            let whole = match row_bytes.checked_sub(dot.read_bytes()) {
                Some(before_last) => before_last / step + 1,
                None => 0,
            };
            Source {
                codes: weight.codes.as_ptr(),
                scales,
                biases,
                inputs,
                sums_at: layout.lane_sums_at(),
                row_bytes,
                groups: weight.groups(),
                scales_len: weight.scales.len(),
                group_shift,
                blocks: weight.k.div_ceil(block_len),
                whole,
                per_block: (block_len >> group_shift).max(1),
                spread: dot.spread(group_shift),
            }
        }
    }

    /// How far ahead `R` rows side by side are asked for: the rows that come next, as many of them further on as makes the
    /// distance large enough.
    #[inline(always)]
    fn ahead<S: StoredAs, const R: usize>(&self) -> Ahead {
        let row_bytes = self.row_bytes.max(1);
        let codes =
            if R == 1 { PREFETCH_BYTES } else { PREFETCH_BYTES_OF_ROWS.next_multiple_of(R * row_bytes) };
        Ahead { codes, scales: codes * self.groups * S::SIZE / row_bytes }
    }

    /// What the lanes of `R` rows of the weight from one on add up to, for each row of activations.
    ///
    /// # Safety
    /// The rows exist, and the machine has the path's instructions.
    #[inline(always)]
    unsafe fn rows<S: StoredAs, const R: usize>(
        &self,
        dot: D,
        row: usize,
        ahead: Ahead,
    ) -> [[D::Lanes; M]; R] {
        let step = dot.code_bytes();
        // Blocks whose scales share a line of the cache.
        let together = (CACHE_LINE / (self.per_block * S::SIZE)).max(1);
        let whole = self.whole_blocks::<S>(row + R - 1);
        // SAFETY: the rows' codes, scales and biases exist; whole blocks lie inside the row, with as many scales from
        // theirs on as are read, and the others say how much of them does.
        unsafe {
            let codes: [*const u8; R] = std::array::from_fn(|r| self.codes.add((row + r) * self.row_bytes));
            let scales: [*const u8; R] =
                std::array::from_fn(|r| self.scales.add((row + r) * self.groups * S::SIZE));
            let mut sums = [[dot.zero(); M]; R];
            for first in (0..whole).step_by(together) {
                for scales in scales {
                    dot.prefetch(scales.wrapping_add(self.group_of(first) * S::SIZE + ahead.scales));
                }
                for block in first..whole.min(first + together) {
                    let group = self.group_of(block);
                    for r in 0..R {
                        let from = codes[r].add(block * step);
                        dot.prefetch(from.wrapping_add(ahead.codes));
                        let unpacked = dot.codes(from);
                        let scale = dot.whole_scales::<S>(
                            scales[r].add(group * S::SIZE),
                            self.per_block,
                            self.spread,
                        );
                        self.add(dot, block, unpacked, scale, &mut sums[r]);
                    }
                }
            }
            for block in whole..self.blocks {
                let group = self.group_of(block);
                let count = self.per_block.min(self.groups - group);
                for r in 0..R {
                    let from = codes[r].add(block * step);
                    let unpacked = dot.codes_of(from, step.min(self.row_bytes - block * step));
                    let scale = dot.scales::<S>(scales[r].add(group * S::SIZE), count, self.spread);
                    self.add(dot, block, unpacked, scale, &mut sums[r]);
                }
            }
            if let Some((biases, factor)) = self.biases {
                self.add_biases::<S, R>(dot, biases.add(row * self.groups * S::SIZE), factor, &mut sums);
            }
            sums
        }
    }

    /// How many blocks of a row are read whole: of the last rows fewer, where scales beyond them would be none.
    #[inline(always)]
    fn whole_blocks<S: StoredAs>(&self, row: usize) -> usize {
        let left = self.scales_len / S::SIZE - row * self.groups;
        let mut whole = self.whole;
        while D::SCALES_READ > self.per_block && whole > 0 && self.group_of(whole - 1) + D::SCALES_READ > left
        {
            whole -= 1;
        }
        whole
    }

    /// The first group of a block.
    #[inline(always)]
    fn group_of(&self, block: usize) -> usize {
        (block * D::LANES * D::PER_LANE) >> self.group_shift
    }

    #[inline(always)]
    unsafe fn add(&self, dot: D, block: usize, codes: D::Codes, scale: D::Lanes, sums: &mut [D::Lanes; M]) {
        for (input, sum) in self.inputs.iter().zip(sums) {
            // SAFETY: the row of activations has the block.
            unsafe {
                let products = dot.products(codes, input.add(block * D::X_BYTES));
                *sum = dot.multiply_add(products, scale, *sum);
            }
        }
    }

    /// Adds the biases of `R` rows times the sums of the groups.
    #[inline(always)]
    unsafe fn add_biases<S: StoredAs, const R: usize>(
        &self,
        dot: D,
        biases: *const u8,
        factor: D::Lanes,
        sums: &mut [[D::Lanes; M]; R],
    ) {
        for group in (0..self.groups).step_by(D::LANES) {
            let count = D::LANES.min(self.groups - group);
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the row has these groups; sums of groups are padded to whole vectors.
                unsafe {
                    let bias = dot.floats::<S>(biases.add((r * self.groups + group) * S::SIZE), count);
                    let bias = dot.multiply_add(bias, factor, dot.zero());
                    for (input, sum) in self.inputs.iter().zip(sums) {
                        let of_groups = dot.floats::<AsF32>(input.add(self.sums_at + 4 * group), D::LANES);
                        *sum = dot.multiply_add(bias, of_groups, *sum);
                    }
                }
            }
        }
    }
}
