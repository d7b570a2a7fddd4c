//! Several rows of activations in bytes. A panel is as many rows of the weight as a vector has lanes; its codes are
//! unpacked once so that a vector holds four neighbouring values of every row, and each four bytes of an activation, in
//! all lanes, meet it in one dot product. Sums stay in the lanes of their rows from the first value to the last, so that
//! nothing is added across lanes, and 32 values of sixteen rows take 11 operations of a vector where `Dot` takes 20; to
//! unpack them takes 28.
//!
//! A panel is unpacked and multiplied a part at a time, which stays in the innermost cache while all rows of
//! activations pass; meanwhile memory delivers the next panel.

mod amx;
mod avx2;
mod avx512;
mod unpack;

use super::{Pick, Product};
use crate::path::Path;
use crate::quant::layout::{INPUT_GROUP, InputLayout, Numbers};
use crate::quant::weight::Stored;
use std::cell::RefCell;
use std::ops::Range;
use unpack::Panel;

/// Values along the row that are unpacked at a time: 8 kB of a panel of sixteen rows, which leaves as much of the innermost
/// cache to activations.
const PART: usize = 512;

/// Least rows of activations for which unpacking pays, by measurement of each path; `None` where there are no panels for
/// the product, which is not of bytes or not on a path that is written for it.
pub(super) fn least_rows(layout: &InputLayout, path: Path) -> Option<usize> {
    if layout.lanes.numbers == Numbers::F32 {
        return None;
    }
    match path {
        // Four or five rows would gain less than a tenth, and as lanes they stay what each is alone.
        Path::Avx2 | Path::AvxVnni | Path::Avx512 | Path::Amx => Some(6),
        _ => None,
    }
}

/// What a vector path does; all is inlined into functions that enable its instructions.
///
/// # Safety
/// Every method needs the path's instructions and readable memory where it reads.
trait Lanes: Copy {
    /// Codes, or products of them added up in every lane.
    type Whole: Copy;
    /// A float in every lane.
    type Float: Copy;
    /// As many vectors as there are lanes.
    type Words: AsRef<[Self::Whole]>;
    /// Lanes of a vector.
    const LANES: usize;
    /// Most rows of activations whose sums, whole and scaled, fit into the registers: 4 or 8.
    const ROWS: usize;

    unsafe fn no_sum(self) -> Self::Whole;
    unsafe fn codes(self, from: *const u8) -> Self::Whole;
    /// Adds to every lane the products of its four codes in each of two vectors with the four bytes at each `x`.
    unsafe fn add_eight(self, sum: Self::Whole, codes: [Self::Whole; 2], x: [*const u8; 2]) -> Self::Whole;
    unsafe fn load(self, from: *const f32) -> Self::Float;
    /// `values * factor`.
    unsafe fn times(self, values: Self::Float, factor: f32) -> Self::Float;
    /// `to + sum * *x * scale`, or where there is a shift `to + (sum * *x + *shift) * scale`.
    unsafe fn scaled(
        self,
        to: Self::Float,
        sum: Self::Whole,
        scale: Self::Float,
        x: *const f32,
        shift: Option<*const f32>,
    ) -> Self::Float;
    /// `to + factor * *x`.
    unsafe fn add_multiple(self, to: Self::Float, factor: Self::Float, x: *const f32) -> Self::Float;
    /// Writes the lanes; those that a vector does not have are left.
    unsafe fn store(self, values: Self::Float, to: *mut [f32; 16]);

    /// A vector for each of `LANES` words of four bytes, which has that word of every row. Of the rows only the first
    /// `words` (1 to `LANES`) are read; vectors of the others mean nothing.
    unsafe fn words(self, rows: &[*const u8; 16], words: usize) -> Self::Words;
    unsafe fn store_codes(self, codes: Self::Whole, to: *mut u8);
    /// The even nibbles of a vector and the odd ones, as numbers of the weight.
    unsafe fn nibbles(self, packed: Self::Whole) -> [Self::Whole; 2];
    /// The lower and the upper half of every lane, or in the first place its only float.
    unsafe fn floats(self, stored: Stored, words: Self::Whole) -> [Self::Float; 2];
    /// Writes a vector of codes of another width as bytes, from as many bytes as are left of them.
    unsafe fn widen(self, from: *const u8, left: usize, to: *mut u8);
    /// Asks for memory that is read a while later.
    unsafe fn prefetch(self, from: *const u8);
}

/// Multiplies rows `columns` of a matrix with the picked rows of activations, which are bytes.
///
/// # Safety
/// As for [`Product::compute`]; the machine has what the product's path says.
pub(super) unsafe fn compute(
    product: &Product<'_>,
    matrix: usize,
    columns: Range<usize>,
    picks: &dyn Fn(usize) -> Pick,
    count: usize,
) {
    thread_local! {
        // Its memory is kept from call to call.
        static PANEL: RefCell<(Panel, amx::Left)> = RefCell::default();
    }
    let work = Work {
        product,
        first_row: matrix * product.weight.n,
        columns,
        picks,
        count,
        block_bytes: product.layout.lanes.block_bytes(),
        sums_at: product.layout.lane_sums_at(),
    };
    PANEL.with_borrow_mut(|(panel, left)| {
        panel.fit(product, picks, count);
        // SAFETY: the caller's promises.
        unsafe {
            match product.path {
                Path::Avx512 | Path::Amx if product.layout.lanes.lanes == 16 => {
                    avx512::run(&work, panel, left)
                }
                _ => avx2::run(&work, panel),
            }
        }
    });
}

/// Rows of the weight and the activations that they meet.
struct Work<'a> {
    product: &'a Product<'a>,
    first_row: usize,
    columns: Range<usize>,
    picks: &'a dyn Fn(usize) -> Pick,
    count: usize,
    /// Of a prepared row: bytes of a block, and where the sums are.
    block_bytes: usize,
    sums_at: usize,
}

impl Work<'_> {
    /// All panels; inlined into every path's functions. `NIBBLES`: a lane of activations has eight values, the even ones
    /// apart from the odd ones.
    #[inline(always)]
    unsafe fn run<L: Lanes, const NIBBLES: bool>(&self, lanes: L, panel: &mut Panel) {
        // SAFETY: the caller's promises.
        unsafe {
            match self.product.weight.scheme.group() < INPUT_GROUP {
                true => self.panels::<L, NIBBLES, 2>(lanes, panel),
                false => self.panels::<L, NIBBLES, 4>(lanes, panel),
            }
        }
    }

    /// All panels, where so many times eight values have one scale of the weight and one of the activations.
    #[inline(always)]
    unsafe fn panels<L: Lanes, const NIBBLES: bool, const EIGHTS: usize>(&self, lanes: L, panel: &mut Panel) {
        let end = self.columns.end;
        for first in self.columns.clone().step_by(L::LANES) {
            let columns = first..end.min(first + L::LANES);
            // SAFETY: the caller's promises.
            unsafe {
                panel.begin(lanes, self.product, self.first_row, columns.clone(), self.count);
                panel.expect(first > self.columns.start, columns.end < end);
                for start in (0..self.product.weight.k).step_by(PART) {
                    let part = start..self.product.weight.k.min(start + PART);
                    panel.unpack(lanes, self.product, part.clone());
                    self.rows::<L, NIBBLES, EIGHTS>(lanes, panel, &part);
                }
                let mut values = [0.0; 16];
                for row in 0..self.count {
                    lanes.store(lanes.load(panel.sums(row)), &raw mut values);
                    let to = (self.picks)(row).output;
                    self.product.out.write(to, first, &values[..columns.len()]);
                }
            }
        }
    }

    /// Adds a part's products with all rows of activations, in blocks that are as even as can be: a short one at the end
    /// would take nearly as long as a long one.
    #[inline(always)]
    unsafe fn rows<L: Lanes, const NIBBLES: bool, const EIGHTS: usize>(
        &self,
        lanes: L,
        panel: &mut Panel,
        part: &Range<usize>,
    ) {
        let (mut row, mut blocks) = (0, self.count.div_ceil(L::ROWS));
        while row < self.count {
            // SAFETY: the caller's promises. No closures: instructions are enabled where all is inlined.
            row += unsafe {
                match (self.count - row).div_ceil(blocks) {
                    8.. if L::ROWS == 8 => self.add::<L, 8, NIBBLES, EIGHTS>(lanes, panel, part, row),
                    7 if L::ROWS == 8 => self.add::<L, 7, NIBBLES, EIGHTS>(lanes, panel, part, row),
                    6 if L::ROWS == 8 => self.add::<L, 6, NIBBLES, EIGHTS>(lanes, panel, part, row),
                    5 if L::ROWS == 8 => self.add::<L, 5, NIBBLES, EIGHTS>(lanes, panel, part, row),
                    4.. => self.add::<L, 4, NIBBLES, EIGHTS>(lanes, panel, part, row),
                    3 => self.add::<L, 3, NIBBLES, EIGHTS>(lanes, panel, part, row),
                    2 => self.add::<L, 2, NIBBLES, EIGHTS>(lanes, panel, part, row),
                    _ => self.add::<L, 1, NIBBLES, EIGHTS>(lanes, panel, part, row),
                }
            };
            blocks -= 1;
        }
    }

    /// Adds a part's products with some rows of activations.
    #[inline(always)]
    unsafe fn add<L: Lanes, const ROWS: usize, const NIBBLES: bool, const EIGHTS: usize>(
        &self,
        lanes: L,
        panel: &mut Panel,
        part: &Range<usize>,
        row: usize,
    ) -> usize {
        let Product { weight, layout, .. } = self.product;
        let sharing = 8 * EIGHTS;
        let of_group = (weight.scheme.group() / sharing).trailing_zeros();
        let vector = 4 * L::LANES;
        // How far it is to the bytes that meet the next vector, and to those after both.
        let (second, step) = if NIBBLES { (vector, 4) } else { (4, 8) };
        let per_lane = if NIBBLES { 8 } else { 4 };
        let block = per_lane * L::LANES;
        let (block_bytes, sums_at) = (self.block_bytes, self.sums_at);
        let is_shifted = matches!(layout.lanes.numbers, Numbers::Int8Shifted { .. });
        // SAFETY: the panel has the part's codes, and scales, biases and sums in every lane; a prepared row has blocks of
        // `LANES` times `per_lane` values, of which those that share a scale never lie in two, and sums behind them.
        unsafe {
            let inputs: [*const u8; ROWS] = panel.inputs(row);
            let mut sums = [lanes.load(panel.sums(row)); ROWS];
            for (i, sum) in sums.iter_mut().enumerate().skip(1) {
                *sum = lanes.load(panel.sums(row + i));
            }
            let mut codes = panel.codes();
            for shared in part.start / sharing..part.end / sharing {
                if row == 0 {
                    panel.prefetch(lanes, shared * sharing, sharing);
                }
                let value = shared * sharing;
                let at = value / block * block_bytes + value % block / per_lane * 4;
                let mut whole = [lanes.no_sum(); ROWS];
                for eight in 0..EIGHTS {
                    let both = [lanes.codes(codes), lanes.codes(codes.add(vector))];
                    let at = at + eight * step;
                    for (whole, input) in whole.iter_mut().zip(inputs) {
                        *whole = lanes.add_eight(*whole, both, [input.add(at), input.add(at + second)]);
                    }
                    codes = codes.add(2 * vector);
                }
                let scale = lanes.load(panel.scales((shared >> of_group) * L::LANES));
                // Scales lie behind the block's bytes, one a lane.
                let scale_at = at + block;
                for ((sum, whole), input) in sums.iter_mut().zip(whole).zip(inputs) {
                    let shift = is_shifted.then_some(input.add(sums_at + 4 * shared).cast());
                    *sum = lanes.scaled(*sum, whole, scale, input.add(scale_at).cast(), shift);
                }
            }
            if let Some((biases, factor)) = panel.biases(self.product) {
                for group in part.start / weight.scheme.group()..part.end / weight.scheme.group() {
                    let bias = lanes.times(lanes.load(biases.add(group * L::LANES)), factor);
                    for (sum, input) in sums.iter_mut().zip(inputs) {
                        *sum = lanes.add_multiple(*sum, bias, input.add(sums_at + 4 * group).cast());
                    }
                }
            }
            for (i, sum) in sums.into_iter().enumerate() {
                lanes.store(sum, panel.sums(row + i).cast());
            }
        }
        ROWS
    }
}
