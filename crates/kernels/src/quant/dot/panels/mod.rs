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
mod inputs;
mod unpack;

use super::{Pick, Product};
use crate::path::Path;
use crate::quant::layout::{INPUT_GROUP, InputLayout, Numbers};
use crate::quant::weight::{QuantWeight, Stored};
use crate::quant::woven::PanelAt;
use inputs::{Alone, Arranged, Beside, Inputs};
use std::cell::RefCell;
use std::ops::Range;
use unpack::Panel;

/// Values along the row that are unpacked at a time: 8 kB of a panel of sixteen rows, which leaves as much of the innermost
/// cache to activations.
const PART: usize = 512;

/// Least rows of activations for which unpacking pays, by measurement of each path, or 1 where nothing need be unpacked; `None` where there are no panels for
/// the product, which is not of bytes or not on a path that is written for it.
pub(super) fn least_rows(weight: &QuantWeight, layout: &InputLayout, path: Path) -> Option<usize> {
    if layout.lanes.numbers == Numbers::F32 {
        return None;
    }
    match path {
        _ if weight.woven.is_some() => Some(1),
        // Four or five rows would gain less than a tenth, and as lanes they stay what each is alone.
        Path::Avx2 | Path::AvxVnni | Path::Avx512Bw | Path::Avx512 | Path::Amx => Some(6),
        _ => None,
    }
}

/// Most rows of activations for which nibbles of a woven weight are taken apart again for each block of them; for more, a
/// part at a time is, and kept.
const MOST_DIRECT: usize = 24;

/// Rows of activations that are arranged at a time.
const CHUNK_ROWS: usize = 512;

/// How far ahead of its use a woven weight is asked for, in bytes.
const WOVEN_AHEAD: usize = 4096;

/// How products of bytes are added up.
mod how {
    /// By the int8 dot product.
    pub(super) const DOTS: u8 = 0;
    /// In 16 bits, where all of 32 values fit: 32 products of at most 15 * 127, two by two in each of them.
    pub(super) const NARROW: u8 = 1;
    /// In 16 bits for four values, then in 32.
    pub(super) const PAIRS: u8 = 2;
    /// Codes have eight bits, so that not even two products fit 16.
    pub(super) const HALVES: u8 = 3;
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
    unsafe fn zero(self) -> Self::Float;
    unsafe fn codes(self, from: *const u8) -> Self::Whole;
    /// Adds to every lane the products of its four codes in each of two vectors with the four bytes at each `x`.
    unsafe fn add_eight(self, sum: Self::Whole, codes: [Self::Whole; 2], x: [*const u8; 2]) -> Self::Whole;
    unsafe fn load(self, from: *const f32) -> Self::Float;
    /// A stored float for every lane.
    unsafe fn load_stored(self, stored: Stored, from: *const u8) -> Self::Float;
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
    /// Of eight rows, each so many bytes on, as many words as there are, one by one: of each the first `ROWS` rows', side by side,
    /// every `step` bytes.
    unsafe fn beside(self, rows: &[*const u8; 8], at: usize, words: usize, to: *mut u8, step: usize);
    unsafe fn store_codes(self, codes: Self::Whole, to: *mut u8);
    /// The even nibbles of a vector and the odd ones, as numbers of the weight.
    unsafe fn nibbles(self, packed: Self::Whole) -> [Self::Whole; 2];
    /// The lower and the upper half of every lane, or in the first place its only float.
    unsafe fn floats(self, stored: Stored, words: Self::Whole) -> [Self::Float; 2];
    /// Writes a vector of codes of another width as bytes, from as many bytes as are left of them.
    unsafe fn widen(self, from: *const u8, left: usize, to: *mut u8);
    /// Asks for memory that is read a while later.
    unsafe fn prefetch(self, from: *const u8);
    /// Asks for memory that is read soon.
    unsafe fn prefetch_near(self, from: *const u8);
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
        static SCRATCH: RefCell<Scratch> = RefCell::default();
    }
    SCRATCH.with_borrow_mut(|scratch| {
        for first in (0..count).step_by(CHUNK_ROWS) {
            let (picks, count) = (|row: usize| picks(first + row), CHUNK_ROWS.min(count - first));
            let work = Work {
                product,
                matrix,
                columns: columns.clone(),
                picks: &picks,
                count,
                block_bytes: product.layout.lanes.block_bytes(),
                sums_at: product.layout.lane_sums_at(),
            };
            scratch.panel.fit(product, &picks, count);
            // SAFETY: the caller's promises.
            unsafe {
                match product.path {
                    Path::Avx512Bw | Path::Avx512 | Path::Amx => avx512::run(&work, scratch),
                    _ => avx2::run(&work, scratch),
                }
            }
        }
    });
}

/// What a thread works in.
#[derive(Default)]
struct Scratch {
    panel: Panel,
    arranged: Arranged,
    left: amx::Left,
}

/// Rows of the weight and the activations that they meet.
struct Work<'a> {
    product: &'a Product<'a>,
    matrix: usize,
    columns: Range<usize>,
    picks: &'a dyn Fn(usize) -> Pick,
    count: usize,
    /// Of a prepared row: bytes of a block, and where the sums are.
    block_bytes: usize,
    sums_at: usize,
}

/// Calls a method with the number of rows of a block as a constant: those up to four, or up to eight where a path has
/// registers for them. No closures: instructions are enabled where all is inlined.
macro_rules! by_rows {
    ($lanes:ident, $len:expr, $self:ident.$method:ident::<$inputs:ty, $eights:ident>$arguments:tt) => {
        match $len {
            8.. if $lanes::ROWS == 8 => $self.$method::<$lanes, $inputs, 8, $eights>$arguments,
            7 if $lanes::ROWS == 8 => $self.$method::<$lanes, $inputs, 7, $eights>$arguments,
            6 if $lanes::ROWS == 8 => $self.$method::<$lanes, $inputs, 6, $eights>$arguments,
            5 if $lanes::ROWS == 8 => $self.$method::<$lanes, $inputs, 5, $eights>$arguments,
            4.. => $self.$method::<$lanes, $inputs, 4, $eights>$arguments,
            3 => $self.$method::<$lanes, $inputs, 3, $eights>$arguments,
            2 => $self.$method::<$lanes, $inputs, 2, $eights>$arguments,
            _ => $self.$method::<$lanes, $inputs, 1, $eights>$arguments,
        }
    };
}

impl Work<'_> {
    /// All panels; inlined into every path's functions. `NIBBLES`: a lane of activations has eight values, the even ones
    /// apart from the odd ones. `STRIDE` is the path's [`Lanes::ROWS`].
    #[inline(always)]
    unsafe fn run<L: Lanes, const NIBBLES: bool, const STRIDE: usize>(
        &self,
        lanes: L,
        scratch: &mut Scratch,
    ) {
        // SAFETY: the caller's promises.
        unsafe {
            match self.product.weight.scheme.group() < INPUT_GROUP {
                true => self.panels::<L, NIBBLES, STRIDE, 2>(lanes, scratch),
                false => self.panels::<L, NIBBLES, STRIDE, 4>(lanes, scratch),
            }
        }
    }

    /// Rows of activations in blocks that are as even as can be: a short one at the end would take nearly as long as a long
    /// one.
    fn blocks(&self, most: usize) -> impl Iterator<Item = Range<usize>> + Clone {
        let (count, blocks) = (self.count, self.count.div_ceil(most));
        (0..blocks).map(move |block| count * block / blocks..count * (block + 1) / blocks)
    }

    /// All panels, where so many times eight values have one scale of the weight and one of the activations.
    #[inline(always)]
    unsafe fn panels<L: Lanes, const NIBBLES: bool, const STRIDE: usize, const EIGHTS: usize>(
        &self,
        lanes: L,
        scratch: &mut Scratch,
    ) {
        let Scratch { panel, arranged, .. } = scratch;
        let end = self.columns.end;
        let woven = self.product.weight.woven.as_deref().filter(|_| NIBBLES);
        // One row is read where it was prepared; for more there are no registers for their addresses.
        let is_alone = woven.is_some() && self.count == 1;
        // SAFETY: the caller's promises.
        unsafe {
            if !is_alone {
                let starts = self.blocks(L::ROWS).map(|rows| rows.start);
                arranged.fill(lanes, self.product, panel.all_inputs(), starts);
            }
            for first in self.columns.clone().step_by(L::LANES) {
                let columns = first..end.min(first + L::LANES);
                if let Some(woven) = woven.filter(|_| self.count <= MOST_DIRECT) {
                    let at = woven.panel(self.matrix, first);
                    if is_alone {
                        let inputs = Alone::new(self, panel.input(0));
                        self.direct::<L, _, 1, EIGHTS>(lanes, inputs, at, 0, &columns);
                        continue;
                    }
                    for (block, rows) in self.blocks(L::ROWS).enumerate() {
                        let inputs = arranged.block::<STRIDE>(block);
                        by_rows!(
                            L,
                            rows.len(),
                            self.direct::<Beside<STRIDE>, EIGHTS>(lanes, inputs, at, rows.start, &columns)
                        );
                    }
                    continue;
                }
                panel.begin(lanes, self.product, self.matrix, columns.clone(), self.count);
                panel.expect(first > self.columns.start, columns.end < end);
                for start in (0..self.product.weight.k).step_by(PART) {
                    let part = start..self.product.weight.k.min(start + PART);
                    panel.unpack(lanes, self.product, part.clone());
                    for (block, rows) in self.blocks(L::ROWS).enumerate() {
                        let inputs = arranged.block::<STRIDE>(block);
                        by_rows!(
                            L,
                            rows.len(),
                            self.add::<Beside<STRIDE>, EIGHTS>(lanes, inputs, panel, &part, rows.start)
                        );
                    }
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

    /// Adds a part's products with a block of rows of activations.
    #[inline(always)]
    unsafe fn add<L: Lanes, I: Inputs, const ROWS: usize, const EIGHTS: usize>(
        &self,
        lanes: L,
        inputs: I,
        panel: &mut Panel,
        part: &Range<usize>,
        row: usize,
    ) {
        let Product { weight, layout, .. } = self.product;
        let sharing = 8 * EIGHTS;
        let of_group = (weight.scheme.group() / sharing).trailing_zeros();
        let vector = 4 * L::LANES;
        let is_shifted = matches!(layout.lanes.numbers, Numbers::Int8Shifted { .. });
        // SAFETY: the panel has the part's codes, and scales, biases and sums in every lane; rows of activations have values
        // and sums.
        unsafe {
            let mut sums = [lanes.load(panel.sums(row)); ROWS];
            for (i, sum) in sums.iter_mut().enumerate().skip(1) {
                *sum = lanes.load(panel.sums(row + i));
            }
            let mut codes = panel.codes();
            for shared in part.start / sharing..part.end / sharing {
                if row == 0 {
                    panel.prefetch(lanes, shared * sharing, sharing);
                }
                let place = inputs.place(shared * sharing);
                let mut whole = [lanes.no_sum(); ROWS];
                for eight in 0..EIGHTS {
                    let both = [lanes.codes(codes), lanes.codes(codes.add(vector))];
                    for (i, whole) in whole.iter_mut().enumerate() {
                        *whole = lanes.add_eight(*whole, both, inputs.bytes(i, place, eight));
                    }
                    codes = codes.add(2 * vector);
                }
                let scale = lanes.load(panel.scales((shared >> of_group) * L::LANES));
                for (i, (sum, whole)) in sums.iter_mut().zip(whole).enumerate() {
                    let shift = is_shifted.then_some(inputs.sum(i, shared));
                    *sum = lanes.scaled(*sum, whole, scale, inputs.scale(i, place, shared), shift);
                }
            }
            if let Some((biases, factor)) = panel.biases(self.product) {
                for group in part.start / weight.scheme.group()..part.end / weight.scheme.group() {
                    let bias = lanes.times(lanes.load(biases.add(group * L::LANES)), factor);
                    for (i, sum) in sums.iter_mut().enumerate() {
                        *sum = lanes.add_multiple(*sum, bias, inputs.sum(i, group));
                    }
                }
            }
            for (i, sum) in sums.into_iter().enumerate() {
                lanes.store(sum, panel.sums(row + i).cast());
            }
        }
    }

    /// One panel of a woven weight with a block of rows of activations: what [`Work::add`] adds, in the same order.
    #[inline(always)]
    unsafe fn direct<L: Lanes, I: Inputs, const ROWS: usize, const EIGHTS: usize>(
        &self,
        lanes: L,
        inputs: I,
        at: PanelAt,
        row: usize,
        columns: &Range<usize>,
    ) {
        let Product { weight, layout, .. } = self.product;
        let (sharing, group) = (8 * EIGHTS, weight.scheme.group());
        let of_group = (group / sharing).trailing_zeros();
        let vector = 4 * L::LANES;
        let stored = weight.stored;
        let step = L::LANES * stored.size();
        let is_shifted = matches!(layout.lanes.numbers, Numbers::Int8Shifted { .. });
        let factor = if at.biases == at.scales { weight.centre } else { Some(1.0) };
        let factor = factor.filter(|_| !is_shifted);
        // SAFETY: the panel has the codes of a row in every lane, and scales and biases; rows of activations have values and
        // sums.
        unsafe {
            let mut sums = [lanes.zero(); ROWS];
            let mut codes = at.codes;
            for start in (0..weight.k).step_by(PART) {
                let end = weight.k.min(start + PART);
                for shared in start / sharing..end / sharing {
                    let place = inputs.place(shared * sharing);
                    let mut whole = [lanes.no_sum(); ROWS];
                    for eight in 0..EIGHTS {
                        let both = lanes.nibbles(lanes.codes(codes));
                        if row == 0 {
                            lanes.prefetch_near(codes.wrapping_add(WOVEN_AHEAD));
                        }
                        for (i, whole) in whole.iter_mut().enumerate() {
                            *whole = lanes.add_eight(*whole, both, inputs.bytes(i, place, eight));
                        }
                        codes = codes.add(vector);
                    }
                    let scale = lanes.load_stored(stored, at.scales.add((shared >> of_group) * step));
                    for (i, (sum, whole)) in sums.iter_mut().zip(whole).enumerate() {
                        let shift = is_shifted.then_some(inputs.sum(i, shared));
                        *sum = lanes.scaled(*sum, whole, scale, inputs.scale(i, place, shared), shift);
                    }
                }
                let Some(factor) = factor else { continue };
                for group in start / group..end / group {
                    let bias = lanes.times(lanes.load_stored(stored, at.biases.add(group * step)), factor);
                    for (i, sum) in sums.iter_mut().enumerate() {
                        *sum = lanes.add_multiple(*sum, bias, inputs.sum(i, group));
                    }
                }
            }
            let mut values = [0.0; 16];
            for (i, sum) in sums.into_iter().enumerate() {
                lanes.store(sum, &raw mut values);
                self.product.out.write((self.picks)(row + i).output, columns.start, &values[..columns.len()]);
            }
        }
    }
}
