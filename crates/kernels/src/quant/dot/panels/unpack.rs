//! Codes, scales and biases of a panel, lane by lane: words of four bytes of all rows are transposed together, and then
//! taken apart.

use super::super::{Pick, Product};
use super::{Lanes, PART};
use crate::quant::layout::Numbers;
use crate::quant::weight::QuantWeight;
use crate::quant::woven::PanelAt;
use std::ops::Range;

/// A cache line, so that no vector lies in two.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([u8; 64]);

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
    /// Where the rows of activations start.
    inputs: Vec<*const u8>,
    /// Where the rows' codes start in the weight.
    rows: Rows,
    /// What comes after the panel, and whether that was asked for while the one before it was multiplied.
    next: Next,
    is_expected: bool,
}

/// Where the panel after this one lies, whose rows follow: asked for in order, a bit with every few values, memory delivers it
/// as one stream while this one is multiplied.
#[derive(Default)]
struct Next {
    /// Codes, scales and biases; `None` where nothing follows.
    parts: Option<[*const u8; 3]>,
    /// Bytes that a value has of each, times the lanes, as a fraction: so many of `1 << shift` values.
    codes: usize,
    scales: usize,
    shift: u32,
}

impl Next {
    fn new(weight: &QuantWeight, lanes: usize, parts: [*const u8; 3]) -> Next {
        Next {
            parts: Some(parts),
            codes: lanes * weight.scheme.bits() as usize,
            scales: lanes * weight.stored.size(),
            shift: weight.scheme.group().trailing_zeros(),
        }
    }
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
    /// Makes room for a product with so many picked rows of activations, and finds them.
    pub(super) fn fit(&mut self, product: &Product<'_>, picks: &dyn Fn(usize) -> Pick, count: usize) {
        let row_bytes = product.layout.lane_row_bytes();
        self.inputs.clear();
        self.inputs
            .extend((0..count).map(|row| product.x.as_ptr().wrapping_add(picks(row).input * row_bytes)));
        let (weight, lanes) = (product.weight, product.layout.lanes.lanes);
        let lines = |vectors: usize| (vectors * lanes * 4).div_ceil(64);
        grow(&mut self.codes, lines(PART / 4 + 2 * SLACK));
        grow(&mut self.scales, lines(weight.groups() + 2 * SLACK));
        if weight.biases.is_some() {
            grow(&mut self.biases, lines(weight.groups() + 2 * SLACK));
        }
        // Tiles take whole blocks of rows.
        grow(&mut self.sums, count.next_multiple_of(16) + 16);
        if !matches!(weight.scheme.bits(), 4 | 8) {
            grow(&mut self.bytes, lanes * PART / 64);
        }
    }

    /// Where a row of activations starts.
    pub(super) fn input(&self, row: usize) -> *const u8 {
        self.inputs[row]
    }

    /// Where all rows of activations start.
    pub(super) fn all_inputs(&self) -> &[*const u8] {
        &self.inputs
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

    /// What is to be added for every group, and times what: biases, or the scales where codes count from the middle. Where
    /// activations are shifted, it is in the sums already.
    pub(super) fn biases(&self, product: &Product<'_>) -> Option<(*const f32, f32)> {
        match (product.layout.lanes.numbers, &product.weight.biases, product.weight.centre) {
            (Numbers::Int8Shifted { .. }, ..) => None,
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
        matrix: usize,
        columns: Range<usize>,
        count: usize,
    ) {
        let weight = product.weight;
        if let Some(woven) = &weight.woven {
            // SAFETY: the caller's promises.
            unsafe { self.begin_woven(lanes, weight, woven.panel(matrix, columns.start), count) };
            return;
        }
        let first_row = matrix * weight.n;
        let row = |lane: usize| first_row + (columns.start + lane).min(columns.end - 1);
        self.sums[..count].fill(Line([0; 64]));
        let codes = weight.codes.as_ptr();
        self.rows = Rows(std::array::from_fn(|lane| codes.wrapping_add(row(lane) * weight.row_bytes())));
        let of_row = weight.groups() * weight.stored.size();
        let starts = |from: &[u8]| std::array::from_fn(|lane| from.as_ptr().wrapping_add(row(lane) * of_row));
        // SAFETY: the caller's promises; all rows have their groups.
        unsafe {
            let scales = starts(&weight.scales);
            floats(lanes, weight, &scales, self.scales.as_mut_ptr().cast());
            let mut parts = [codes.wrapping_add((row(0) + L::LANES) * weight.row_bytes()); 3];
            parts[1..].fill(scales[0].wrapping_add(L::LANES * of_row));
            if let Some(biases) = &weight.biases {
                let biases = starts(biases);
                floats(lanes, weight, &biases, self.biases.as_mut_ptr().cast());
                parts[2] = biases[0].wrapping_add(L::LANES * of_row);
            }
            self.next = Next::new(weight, L::LANES, parts);
        }
    }

    /// As [`Panel::begin`], where the rows lie woven.
    #[inline(always)]
    unsafe fn begin_woven<L: Lanes>(&mut self, lanes: L, weight: &QuantWeight, at: PanelAt, count: usize) {
        self.sums[..count].fill(Line([0; 64]));
        self.rows = Rows([at.codes; 16]);
        let (groups, step) = (weight.groups(), L::LANES * weight.stored.size());
        // SAFETY: the caller's promises; the panel has so many groups.
        unsafe {
            for group in 0..groups {
                let scale = lanes.load_stored(weight.stored, at.scales.add(group * step));
                lanes.store(scale, self.scales.as_mut_ptr().cast::<f32>().add(group * L::LANES).cast());
            }
            if weight.biases.is_some() {
                for group in 0..groups {
                    let bias = lanes.load_stored(weight.stored, at.biases.add(group * step));
                    lanes.store(bias, self.biases.as_mut_ptr().cast::<f32>().add(group * L::LANES).cast());
                }
            }
        }
        let (codes, floats) = (weight.row_bytes() * L::LANES, groups * step);
        let parts = [(at.codes, codes), (at.scales, floats), (at.biases, floats)];
        self.next = Next::new(weight, L::LANES, parts.map(|(from, len)| from.wrapping_add(len)));
    }

    /// Whether memory was asked for these rows before, and whether to ask for those that follow.
    pub(super) fn expect(&mut self, is_expected: bool, is_followed: bool) {
        self.is_expected = is_expected;
        self.next.parts.take_if(|_| !is_followed);
    }

    /// Asks for what the panel after this one has in the place of so many values from one on.
    #[inline(always)]
    pub(super) unsafe fn prefetch<L: Lanes>(&self, lanes: L, value: usize, count: usize) {
        let Some([codes, scales, biases]) = self.next.parts else { return };
        let first = codes.wrapping_add(value * self.next.codes / 8);
        let of_group = (value * self.next.scales) >> self.next.shift;
        // SAFETY: a prefetch of any address is harmless.
        unsafe {
            for at in (0..count * self.next.codes / 8).step_by(64) {
                lanes.prefetch(first.wrapping_add(at));
            }
            lanes.prefetch(scales.wrapping_add(of_group));
            if biases != scales {
                lanes.prefetch(biases.wrapping_add(of_group));
            }
        }
    }

    /// Unpacks the codes of a part of the rows.
    ///
    /// # Safety
    /// As for [`Panel::begin`], which was called; a part starts at a multiple of [`PART`].
    #[inline(always)]
    pub(super) unsafe fn unpack<L: Lanes>(&mut self, lanes: L, product: &Product<'_>, part: Range<usize>) {
        let weight = product.weight;
        let bits = weight.scheme.bits() as usize;
        if weight.woven.is_some() {
            let Rows([codes, ..]) = self.rows;
            let vector = 4 * L::LANES;
            let (to, first): (*mut u8, _) = (self.codes.as_mut_ptr().cast(), part.start / 8);
            // SAFETY: the caller's promises; the panel has eight values of every row in a vector.
            unsafe {
                for word in 0..part.len() / 8 {
                    let [even, odd] = lanes.nibbles(lanes.codes(codes.add((first + word) * vector)));
                    lanes.store_codes(even, to.add(2 * word * vector));
                    lanes.store_codes(odd, to.add((2 * word + 1) * vector));
                }
            }
            return;
        }
        let (first, len) = (part.start * bits / 8, part.len() * bits / 8);
        let vector = 4 * L::LANES;
        let to: *mut u8 = self.codes.as_mut_ptr().cast();
        let Rows(mut rows) = self.rows;
        // SAFETY: the caller's promises; codes of a row are whole words, and no more of them are read.
        unsafe {
            for row in &mut rows[..L::LANES] {
                *row = row.add(first);
                // The first panel comes unannounced: its next part is asked for at least.
                for at in (0..if self.is_expected { 0 } else { len }).step_by(64) {
                    lanes.prefetch(row.wrapping_add(len + at));
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
                let of_rows = lanes.words(&from, left);
                for (i, &codes) in of_rows.as_ref().iter().enumerate() {
                    if bits != 4 {
                        lanes.store_codes(codes, to.add((word + i) * vector));
                        continue;
                    }
                    let [even, odd] = lanes.nibbles(codes);
                    let to = to.add(2 * (word + i) * vector);
                    lanes.store_codes(even, to);
                    lanes.store_codes(odd, to.add(vector));
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

/// Makes room for so many lines.
pub(super) fn grow(to: &mut Vec<Line>, len: usize) {
    if to.len() < len {
        to.resize(len, Line([0; 64]));
    }
}

/// Stored floats of all groups as f32, lane by lane.
#[inline(always)]
unsafe fn floats<L: Lanes>(lanes: L, weight: &QuantWeight, rows: &[*const u8; 16], to: *mut f32) {
    let groups = weight.groups();
    let per_word = 4 / weight.stored.size();
    let words = groups / per_word;
    // SAFETY: rows have so many groups, and of each only whole words are read; there is room for the vectors of a few more.
    unsafe {
        for word in (0..words).step_by(L::LANES) {
            let mut from = *rows;
            from[..L::LANES].iter_mut().for_each(|row| *row = row.add(4 * word));
            let of_rows = lanes.words(&from, L::LANES.min(words - word));
            for (i, &both) in of_rows.as_ref().iter().enumerate() {
                let to = to.add((word + i) * per_word * L::LANES);
                let [low, high] = lanes.floats(weight.stored, both);
                lanes.store(low, to.cast());
                if per_word == 2 {
                    lanes.store(high, to.add(L::LANES).cast());
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
