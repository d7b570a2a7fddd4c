//! The product of rows of the weight with rows of activations, summed along the row in lanes.
//!
//! One shape for every path: a block of codes is unpacked once and multiplied with a few rows of
//! activations; each lane then holds the sum of a few neighbouring values of one group, so that one
//! multiply-add with a vector of scales finishes the block. Biases are a dot product of their own with the
//! groups' sums. With one row of activations this reads each byte of the weight once, in order, with about a
//! dozen instructions to 64 bytes, which is faster than memory delivers them; each further row adds five.
//!
//! What a row of activations gives does not depend on the rows that are multiplied beside it, nor on how many rows
//! of the weight are: the terms of a sum are added in one order, to the last bit.

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
    /// Rows of the weight that share a block of activations where several rows of these are multiplied, 1 or 2: as many
    /// as registers hold the sums of.
    const BESIDE: usize = 1;

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
    /// As [`Dot::sum`] for four, to the last bit.
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
            let (fours, rest) = lanes.as_chunks::<4>();
            let (to_fours, to_rest) = to.as_chunks_mut::<4>();
            for (to, &lanes) in to_fours.iter_mut().zip(fours) {
                *to = self.four_sums(lanes);
            }
            for (to, &lanes) in to_rest.iter_mut().zip(rest) {
                *to = self.sum(lanes);
            }
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
    /// Whether every row must give what it gives alone.
    pub(super) invariant: bool,
}

/// A row of activations, the matrix that it meets, and the row of the output.
#[derive(Clone, Copy)]
pub(super) struct Pick {
    pub(super) input: usize,
    pub(super) output: usize,
}

impl Product<'_> {
    /// Whether so many rows of activations are multiplied by panels, which add up in another order: where they are used for one
    /// row already, all are multiplied by them.
    fn uses_panels(&self, count: usize) -> bool {
        let least = least_rows_of_panels(self.weight, self.layout, self.path);
        least.is_some_and(|least| least == 1 || !self.invariant && count >= least)
    }

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
        if self.uses_panels(count) {
            // SAFETY: the caller's promises; the path was checked when the linear was made.
            return unsafe { panels::compute(self, matrix, columns, picks, count) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        debug_assert!(!self.uses_panels(count), "panels are written for x86 alone");
        let step = if count == 1 { columns.len().max(1) } else { WEIGHT_ROWS_AT_ONCE };
        for from in columns.clone().step_by(step) {
            let columns = from..columns.end.min(from + step);
            let span = Span { product: self, first_row: matrix * self.weight.n, columns, picks, count };
            // SAFETY: the caller's promises; the path was checked when the linear was made.
            unsafe { span.dispatch() };
        }
    }
}

/// From how many rows of activations on products are computed by panels, where they ever are.
pub(super) fn least_rows_of_panels(weight: &QuantWeight, layout: &InputLayout, path: Path) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    return panels::least_rows(weight, layout, path);
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (weight, layout, path);
        None
    }
}

/// Some rows of the weight against all rows of activations.
struct Span<'a> {
    product: &'a Product<'a>,
    first_row: usize,
    columns: Range<usize>,
    picks: &'a dyn Fn(usize) -> Pick,
    count: usize,
}

/// Functions that run a span: by the type of its scales, by blocks of rows of activations, and one block, which enables
/// the path's instructions. Each size of a block is code of its own; any number of rows is made of few of them.
macro_rules! entry {
    ($stored:ident, $rows:ident, $block:ident $(, #[$instructions:meta])?) => {
        unsafe fn $stored<D: Dot>(span: &Span<'_>, dot: D) {
            // SAFETY: the caller's promises.
            unsafe {
                match span.product.weight.stored {
                    Stored::F32 => $rows::<D, AsF32>(span, dot),
                    Stored::F16 => $rows::<D, AsF16>(span, dot),
                    Stored::BF16 => $rows::<D, AsBf16>(span, dot),
                }
            }
        }

        unsafe fn $rows<D: Dot, S: StoredAs>(span: &Span<'_>, dot: D) {
            let mut row = 0;
            while row < span.count {
                // SAFETY: the caller's promises.
                row += unsafe {
                    match span.count - row {
                        1 => $block::<D, S, 1>(span, dot, row),
                        2 => $block::<D, S, 2>(span, dot, row),
                        3 => $block::<D, S, 3>(span, dot, row),
                        // More than four at once, and registers no longer hold the sums of two rows of the weight.
                        _ => $block::<D, S, 4>(span, dot, row),
                    }
                };
            }
        }

        $(#[$instructions])?
        unsafe fn $block<D: Dot, S: StoredAs, const M: usize>(span: &Span<'_>, dot: D, row: usize) -> usize {
            // SAFETY: the caller's promises.
            unsafe { span.multiply::<D, S, M>(dot, row) };
            M
        }
    };
}
use entry;

impl Span<'_> {
    unsafe fn dispatch(&self) {
        let product = self.product;
        // SAFETY: each arm runs on a path that has its instructions; the rest is the caller's promise.
        unsafe {
            match product.path {
                #[cfg(target_arch = "x86_64")]
                Path::Avx512Bw | Path::Avx512 | Path::Amx => avx512::span(self),
                #[cfg(target_arch = "x86_64")]
                Path::Avx2 | Path::AvxVnni => avx2::span(self),
                #[cfg(target_arch = "aarch64")]
                Path::Neon | Path::NeonDotprod | Path::NeonI8mm => neon::span(self),
                _ => portable::span(self),
            }
        }
    }

    /// All columns with `M` rows of activations; inlined into every path's functions.
    #[inline(always)]
    unsafe fn multiply<D: Dot, S: StoredAs, const M: usize>(&self, dot: D, row: usize) {
        let Product { weight, layout, x, .. } = self.product;
        let row_bytes = layout.lane_row_bytes();
        let picks: [Pick; M] = std::array::from_fn(|m| (self.picks)(row + m));
        // SAFETY: the layout's row bytes times the picked rows lie in `x`, and the weight's parts have their
        // checked sizes, so every pointer below stays inside its slice; blocks that would reach beyond a row
        // are read in part.
        unsafe {
            let inputs = picks.map(|pick| x.as_ptr().add(pick.input * row_bytes));
            let source = Source::<D, M>::new(dot, weight, layout, inputs);
            if M > 1 && D::BESIDE == 2 {
                self.columns::<D, S, M, 2>(dot, &source, &picks);
            } else if M == 1 && source.row_bytes <= LONGEST_SIDE_BY_SIDE {
                self.columns::<D, S, M, SHORT_SIDE_BY_SIDE>(dot, &source, &picks);
            } else if M == 1 && source.blocks * D::X_BYTES > LARGE_INPUT {
                self.columns::<D, S, M, LONG_SIDE_BY_SIDE>(dot, &source, &picks);
            } else {
                self.columns::<D, S, M, 1>(dot, &source, &picks);
            }
        }
    }

    /// The one loop, with so many rows of the weight side by side.
    #[inline(always)]
    unsafe fn columns<D: Dot, S: StoredAs, const M: usize, const R: usize>(
        &self,
        dot: D,
        source: &Source<D, M>,
        picks: &[Pick; M],
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
                    Self::keep(dot, &sums, at, &mut values);
                    at += R;
                }
                for at in at..len {
                    let sums = source.rows::<S, 1>(dot, self.first_row + from + at, ahead_of_one);
                    Self::keep(dot, &sums, at, &mut values);
                }
                for (pick, values) in picks.iter().zip(&values) {
                    self.product.out.write(pick.output, from, &values[..len]);
                }
            }
        }
    }

    /// Puts what lanes add up to into its place: all rows of activations at once, or of one all rows of the weight.
    #[inline(always)]
    unsafe fn keep<D: Dot, const M: usize, const R: usize>(
        dot: D,
        sums: &[[D::Lanes; M]; R],
        at: usize,
        values: &mut [[f32; WEIGHT_ROWS_AT_ONCE]; M],
    ) {
        // SAFETY: the caller's promises.
        unsafe {
            if let [values] = &mut values[..] {
                return dot.sums(sums.as_flattened(), &mut values[at..at + R]);
            }
            for (r, sums) in sums.iter().enumerate() {
                let mut of_row = [0.0; M];
                dot.sums(sums, &mut of_row);
                for (values, sum) in values.iter_mut().zip(of_row) {
                    values[at + r] = sum;
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
                    let (code, scale) = (block * step, group * S::SIZE);
                    if M == 1 {
                        for (r, sums) in sums.iter_mut().enumerate() {
                            let weights =
                                self.unpacked::<S>(dot, codes[r].add(code), scales[r].add(scale), ahead);
                            self.add(dot, block, [weights], [sums]);
                        }
                        continue;
                    }
                    let first = self.unpacked::<S>(dot, codes[0].add(code), scales[0].add(scale), ahead);
                    let mut weights = [first; R];
                    for (r, weights) in weights.iter_mut().enumerate().skip(1) {
                        *weights = self.unpacked::<S>(dot, codes[r].add(code), scales[r].add(scale), ahead);
                    }
                    self.add(dot, block, weights, sums.each_mut());
                }
            }
            for block in whole..self.blocks {
                let group = self.group_of(block);
                let count = self.per_block.min(self.groups - group);
                for r in 0..R {
                    let from = codes[r].add(block * step);
                    let unpacked = dot.codes_of(from, step.min(self.row_bytes - block * step));
                    let scale = dot.scales::<S>(scales[r].add(group * S::SIZE), count, self.spread);
                    self.add(dot, block, [(unpacked, scale)], [&mut sums[r]]);
                }
            }
            if let Some((biases, factor)) = self.biases {
                self.add_biases::<S, R>(dot, biases.add(row * self.groups * S::SIZE), factor, &mut sums);
            }
            sums
        }
    }

    /// A whole block of codes of a row, with its scales.
    #[inline(always)]
    unsafe fn unpacked<S: StoredAs>(
        &self,
        dot: D,
        codes: *const u8,
        scales: *const u8,
        ahead: Ahead,
    ) -> (D::Codes, D::Lanes) {
        // SAFETY: the caller's promise.
        unsafe {
            dot.prefetch(codes.wrapping_add(ahead.codes));
            (dot.codes(codes), dot.whole_scales::<S>(scales, self.per_block, self.spread))
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

    /// Adds a block of codes of some rows of the weight, with their scales. What a row of activations has there is
    /// loaded once for all of them.
    #[inline(always)]
    unsafe fn add<const R: usize>(
        &self,
        dot: D,
        block: usize,
        weights: [(D::Codes, D::Lanes); R],
        mut sums: [&mut [D::Lanes; M]; R],
    ) {
        for (m, input) in self.inputs.iter().enumerate() {
            for (sums, (codes, scale)) in sums.iter_mut().zip(weights) {
                // SAFETY: the row of activations has the block.
                unsafe {
                    let products = dot.products(codes, input.add(block * D::X_BYTES));
                    sums[m] = dot.multiply_add(products, scale, sums[m]);
                }
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
