//! Codes, scales and biases of a panel, lane by lane: words of four bytes of all rows are transposed together, and then
//! taken apart.

use super::super::Product;
use super::{Lanes, PART};
use crate::convert::f16_to_f32;
use crate::quant::layout::Numbers;
use crate::quant::weight::{QuantWeight, Stored};
use std::ops::Range;

/// A cache line, so that no vector lies in two.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// An unpacked panel: the codes of a part of it four by four, then a scale and perhaps a bias for every group, and the sums
/// of every row of activations, all lane by lane.
#[derive(Default)]
pub(super) struct Panel {
    codes: Vec<Line>,
    scales: Vec<Line>,
    /// Empty where there are none of their own.
    biases: Vec<Line>,
    sums: Vec<Line>,
    /// Codes of a width that is no part of a byte, as bytes, row by row.
    bytes: Vec<Line>,
    /// Where the rows' codes start in the weight, and those of the panel after it.
    rows: Rows,
    next: isize,
}

/// Where the rows of a panel start; the lanes that are left repeat the last one.
struct Rows([*const u8; 16]);

impl Default for Rows {
    fn default() -> Rows {
        Rows([std::ptr::null(); 16])
    }
}

/// Words of a vector that are transposed beyond the last one of a row.
const SLACK: usize = 16;

impl Panel {
    /// Makes room for a product with so many rows of activations.
    pub(super) fn fit(&mut self, product: &Product<'_>, count: usize) {
        let (weight, lanes) = (product.weight, product.layout.lanes.lanes);
        let lines = |vectors: usize| (vectors * lanes * 4).div_ceil(64);
        let grow = |to: &mut Vec<Line>, len: usize| {
            if to.len() < len {
                to.resize(len, Line([0; 64]));
            }
        };
        grow(&mut self.codes, lines(PART / 4 + 2 * SLACK));
        grow(&mut self.scales, lines(weight.groups() + 2 * SLACK));
        if weight.biases.is_some() {
            grow(&mut self.biases, lines(weight.groups() + 2 * SLACK));
        }
        grow(&mut self.sums, count);
        if !matches!(weight.scheme.bits(), 4 | 8) {
            grow(&mut self.bytes, lanes * PART / 64);
        }
    }

    pub(super) fn codes(&self) -> *const u8 {
        self.codes.as_ptr().cast()
    }

    /// The scale at an index.
    pub(super) fn scales(&self, at: usize) -> *const f32 {
        self.scales.as_ptr().cast::<f32>().wrapping_add(at)
    }

    /// The sums of a row of activations.
    pub(super) fn sums(&mut self, row: usize) -> *mut f32 {
        self.sums.as_mut_ptr().wrapping_add(row).cast()
    }

    /// What is to be added for every group, and times what: biases, or the scales where codes are larger than what they
    /// stand for.
    pub(super) fn biases(&self, product: &Product<'_>) -> Option<(*const f32, f32)> {
        match (product.layout.lanes.numbers, &product.weight.biases, product.weight.centre) {
            (Numbers::Int8Shifted { by }, ..) => Some((self.scales(0), -f32::from(by))),
            (_, Some(_), _) => Some((self.biases.as_ptr().cast(), 1.0)),
            (_, None, centre) => centre.map(|centre| (self.scales(0), centre)),
        }
    }

    /// Begins with other rows of the weight, at most one a lane: unpacks their scales and biases, and clears the sums of
    /// `count` rows of activations.
    ///
    /// # Safety
    /// The machine has the path's instructions, the rows exist, and [`Panel::fit`] made room.
    #[inline(always)]
    pub(super) unsafe fn begin<L: Lanes>(
        &mut self,
        lanes: L,
        product: &Product<'_>,
        first_row: usize,
        columns: Range<usize>,
        count: usize,
    ) {
        let weight = product.weight;
        let row = |lane: usize| first_row + (columns.start + lane).min(columns.end - 1);
        self.sums[..count].fill(Line([0; 64]));
        let codes = weight.codes.as_ptr();
        self.rows = Rows(std::array::from_fn(|lane| codes.wrapping_add(row(lane) * weight.row_bytes())));
        self.next = (L::LANES * weight.row_bytes()) as isize;
        let of_row = weight.groups() * weight.stored.size();
        let starts = |from: &[u8]| std::array::from_fn(|lane| from.as_ptr().wrapping_add(row(lane) * of_row));
        // SAFETY: the caller's promises; all rows have their groups.
        unsafe {
            let scales = starts(&weight.scales);
            floats(lanes, weight, &scales, self.scales.as_mut_ptr().cast());
            for ahead in (0..L::LANES * of_row).step_by(64) {
                lanes.prefetch(scales[0].wrapping_add(L::LANES * of_row + ahead));
            }
            if let Some(biases) = &weight.biases {
                floats(lanes, weight, &starts(biases), self.biases.as_mut_ptr().cast());
            }
        }
    }

    /// Unpacks the codes of a part of the rows, and asks for those of the next one.
    ///
    /// # Safety
    /// As for [`Panel::begin`], which was called; a part starts at a multiple of [`PART`].
    #[inline(always)]
    pub(super) unsafe fn unpack<L: Lanes>(&mut self, lanes: L, product: &Product<'_>, part: Range<usize>) {
        let weight = product.weight;
        let bits = weight.scheme.bits() as usize;
        let (first, len) = (part.start * bits / 8, part.len() * bits / 8);
        // Behind the last part comes the first one of the next panel.
        let ahead = if part.end < weight.k { len as isize } else { self.next - first as isize };
        let vector = 4 * L::LANES;
        let to: *mut u8 = self.codes.as_mut_ptr().cast();
        let Rows(mut rows) = self.rows;
        // SAFETY: the caller's promises; codes of a row are whole words, and no more of them are read.
        unsafe {
            for row in &mut rows[..L::LANES] {
                *row = row.add(first);
                for at in (0..len).step_by(64) {
                    lanes.prefetch(row.wrapping_offset(ahead + at as isize));
                }
            }
            if bits != 4 && bits != 8 {
                self.widen(lanes, &mut rows, len, bits);
            }
            let words = if bits == 4 { len / 4 } else { part.len() / 4 };
            for word in (0..words).step_by(L::LANES) {
                let left = L::LANES.min(words - word);
                let mut from = rows;
                from[..L::LANES].iter_mut().for_each(|row| *row = row.add(4 * word));
                if bits != 4 {
                    lanes.transpose(&from, left, to.add(word * vector));
                    continue;
                }
                let mut packed = [Line([0; 64]); 16];
                let packed: *mut u8 = packed.as_mut_ptr().cast();
                lanes.transpose(&from, left, packed);
                for i in 0..L::LANES {
                    lanes.nibbles(packed.add(i * vector), to.add(2 * (word + i) * vector));
                }
            }
        }
    }

    /// Makes bytes of codes of another width, and rows of them.
    #[inline(always)]
    unsafe fn widen<L: Lanes>(&mut self, lanes: L, rows: &mut [*const u8; 16], len: usize, bits: usize) {
        let to: *mut u8 = self.bytes.as_mut_ptr().cast();
        // A vector of codes, and the bytes that they are.
        let (codes, packed) = (4 * L::LANES, L::LANES * bits / 2);
        for (lane, row) in rows[..L::LANES].iter_mut().enumerate() {
            // SAFETY: the row has so many bytes from there on; a lane has room for the bytes of a part.
            unsafe {
                let to = to.add(lane * PART);
                for (i, at) in (0..len).step_by(packed).enumerate() {
                    lanes.widen(row.add(at), len - at, to.add(i * codes));
                }
                *row = to;
            }
        }
    }
}

/// Stored floats of all groups as f32, lane by lane.
#[inline(always)]
unsafe fn floats<L: Lanes>(lanes: L, weight: &QuantWeight, rows: &[*const u8; 16], to: *mut f32) {
    let groups = weight.groups();
    let per_word = 4 / weight.stored.size();
    let words = groups / per_word;
    let mut both = [Line([0; 64]); 16];
    let both: *mut u32 = both.as_mut_ptr().cast();
    // SAFETY: rows have so many groups, and of each only whole words are read; there is room for the vectors of a few more.
    unsafe {
        for word in (0..words).step_by(L::LANES) {
            let left = L::LANES.min(words - word);
            let mut from = *rows;
            from[..L::LANES].iter_mut().for_each(|row| *row = row.add(4 * word));
            let to = to.add(word * per_word * L::LANES);
            if weight.stored == Stored::F32 {
                lanes.transpose(&from, left, to.cast());
                continue;
            }
            lanes.transpose(&from, left, both.cast());
            for i in 0..left {
                for lane in 0..L::LANES {
                    let both = *both.add(i * L::LANES + lane);
                    let (low, high) = match weight.stored {
                        Stored::F16 => (f16_to_f32(both as u16), f16_to_f32((both >> 16) as u16)),
                        _ => (f32::from_bits(both << 16), f32::from_bits(both & 0xffff_0000)),
                    };
                    *to.add(2 * i * L::LANES + lane) = low;
                    *to.add((2 * i + 1) * L::LANES + lane) = high;
                }
            }
        }
        // Of an odd number of halves the last one.
        for group in words * per_word..groups {
            for (lane, row) in rows[..L::LANES].iter().enumerate() {
                let bytes = std::slice::from_raw_parts(row.add(2 * group), 2);
                *to.add(group * L::LANES + lane) = weight.stored.get(bytes, 0);
            }
        }
    }
}
