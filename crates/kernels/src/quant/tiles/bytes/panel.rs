//! Unpacking a block of some panels of the weight into tiles of bytes: each row's numbers as multiples of the
//! 127th part of the largest that a code of the block can stand for.

use super::super::super::bits::Bits;
use super::super::super::weight::{AsBf16, AsF16, AsF32, Elements, QuantWeight, Stored, StoredAs, element};
use super::super::{BLOCK, PANEL, TILE, TILE_BYTES, UNIT};
use super::{PANELS_AT_ONCE, narrow, scale_and_inverse};
use std::arch::x86_64::*;
use std::ops::Range;

/// Most groups of a block.
const GROUPS: usize = BLOCK / 16;

/// A block of some panels, unpacked row by row while the tiles work on another.
pub(super) struct Unpacking<'a> {
    source: &'a Source<'a>,
    /// The first row of the weight, and how many follow; those beyond the weight are left as they come.
    first: usize,
    rows: usize,
    at: Range<usize>,
    to: *mut u8,
    done: usize,
    /// The scale of each row.
    pub(super) scales: [[f32; PANEL]; PANELS_AT_ONCE],
}

impl<'a> Unpacking<'a> {
    /// Values `at`, which are a block, of so many panels from one on. Tiles of 16 rows and 64 values lie one
    /// after another along the row, those of the next 16 rows behind them.
    pub(super) fn new(
        source: &'a Source<'a>,
        panels: Range<usize>,
        at: Range<usize>,
        to: *mut u8,
    ) -> Unpacking<'a> {
        let scales = [[0.0; PANEL]; PANELS_AT_ONCE];
        let rows = panels.len() * PANEL;
        Unpacking { source, first: panels.start * PANEL, rows, at, to, done: 0, scales }
    }

    /// Unpacks so many rows more, if there are.
    ///
    /// # Safety
    /// The machine has what the AMX path asks for; the panels exist; `at` lies in the row; `to` has room for
    /// the tiles.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,f16c")]
    pub(super) unsafe fn advance(&mut self, rows: usize) {
        let end = self.rows.min(self.done + rows);
        let half_bytes = self.at.len().div_ceil(UNIT) * TILE_BYTES;
        for row in self.done..end.min(self.source.weight.n.saturating_sub(self.first)) {
            let to = self.to.wrapping_add(row / TILE * half_bytes + row % TILE * 64);
            // SAFETY: the row exists, and the caller's promises.
            self.scales[row / PANEL][row % PANEL] =
                unsafe { self.source.unpack(self.first + row, self.at.clone(), to) };
        }
        self.done = end;
    }

    /// Unpacks the rows that are left.
    ///
    /// # Safety
    /// As for [`Unpacking::advance`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,f16c")]
    pub(super) unsafe fn finish(&mut self) {
        // SAFETY: the caller's promise.
        unsafe { self.advance(self.rows) };
    }
}

/// The parts of a weight, asked for once: a shared region answers through its owner.
pub(super) struct Source<'a> {
    weight: &'a QuantWeight,
    bits: Bits,
    /// What nibbles stand for.
    table: [f32; 16],
    codes: *const u8,
    scales: *const u8,
    biases: Option<*const u8>,
    centre: Option<f32>,
    /// The least and the largest element.
    range: (f32, f32),
    row_bytes: usize,
    groups: usize,
    group_shift: u32,
}

/// What turns elements of a block of a row into bytes. It is written in place and aligned: a copy would read
/// across what was just stored, and wait until the tiles before it are done.
#[repr(C, align(64))]
struct Factors {
    /// Scales and biases of the groups, as multiples of the scale.
    scales: [f32; GROUPS],
    biases: [f32; GROUPS],
    /// What the bytes are multiples of.
    scale: f32,
    groups: usize,
    group_shift: u32,
}

impl<'a> Source<'a> {
    pub(super) fn new(weight: &'a QuantWeight) -> Source<'a> {
        let range = match weight.elements {
            Elements::Unsigned => (0.0, ((1u32 << weight.scheme.bits()) - 1) as f32),
            Elements::DoubledE2M1 | Elements::E4M3 => {
                let largest = weight.element_table()[..16].iter().fold(0.0f32, |most, of| most.max(*of));
                (-largest, largest)
            }
        };
        Source {
            weight,
            bits: Bits::new(weight.scheme.bits()),
            table: std::array::from_fn(|code| element(weight.elements, code as u8)),
            codes: weight.codes.as_ptr(),
            scales: weight.scales.as_ptr(),
            biases: weight.biases.as_ref().map(|biases| biases.as_ptr()),
            centre: weight.centre,
            range,
            row_bytes: weight.row_bytes(),
            groups: weight.groups(),
            group_shift: weight.scheme.group().trailing_zeros(),
        }
    }

    /// Unpacks values `at` of a row, 64 to a tile; their scale.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,f16c")]
    unsafe fn unpack(&self, row: usize, at: Range<usize>, to: *mut u8) -> f32 {
        let width = self.bits.width();
        let len = at.len();
        // SAFETY: the row exists, and the block lies in it.
        unsafe {
            let codes = self.codes.add(row * self.row_bytes + at.start * width / 8);
            let mut factors = Factors::new(self.group_shift, len);
            match self.weight.stored {
                Stored::F32 => self.put_factors::<AsF32>(row, at, &mut factors),
                Stored::F16 => self.put_factors::<AsF16>(row, at, &mut factors),
                Stored::BF16 => self.put_factors::<AsBf16>(row, at, &mut factors),
            }
            if width == 4 {
                nibbles(&factors, _mm512_loadu_ps(self.table.as_ptr()), codes, len, to);
            } else {
                others(&factors, &self.bits, codes, len, to);
            }
            factors.scale
        }
    }

    /// Writes the factors of a block of a row.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
    unsafe fn put_factors<S: StoredAs>(&self, row: usize, at: Range<usize>, factors: &mut Factors) {
        let mask = ((1u32 << factors.groups) - 1) as __mmask16;
        let from = (row * self.groups + (at.start >> self.group_shift)) * S::SIZE;
        // SAFETY: the block's groups exist, and the mask names no others.
        let (scales, biases) = unsafe {
            let scales = floats::<S>(self.scales.add(from), mask);
            let biases = match (self.biases, self.centre) {
                (None, _) => _mm512_setzero_ps(),
                (_, Some(centre)) => _mm512_mul_ps(scales, _mm512_set1_ps(centre)),
                (Some(biases), None) => floats::<S>(biases.add(from), mask),
            };
            (scales, biases)
        };
        let magnitude = |element: f32| {
            let number = _mm512_fmadd_ps(scales, _mm512_set1_ps(element), biases);
            _mm512_castps_si512(_mm512_abs_ps(number))
        };
        // Magnitudes order as their bits do, and NaN above all.
        let largest = _mm512_max_epu32(magnitude(self.range.0), magnitude(self.range.1));
        let (scale, inverse) = scale_and_inverse(f32::from_bits(_mm512_reduce_max_epu32(largest)));
        let inverse = _mm512_set1_ps(inverse);
        factors.scale = scale;
        // SAFETY: the arrays have 64 bytes each and are aligned to as many.
        unsafe {
            _mm512_store_ps(factors.scales.as_mut_ptr(), _mm512_mul_ps(scales, inverse));
            _mm512_store_ps(factors.biases.as_mut_ptr(), _mm512_mul_ps(biases, inverse));
        }
    }
}

impl Factors {
    /// For so many values in groups of `1 << group_shift`.
    #[inline(always)]
    fn new(group_shift: u32, len: usize) -> Factors {
        let groups = len.div_ceil(1 << group_shift);
        Factors { scales: [0.0; GROUPS], biases: [0.0; GROUPS], scale: 0.0, groups, group_shift }
    }

    /// Elements of a group as whole multiples of the scale.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn rounded(&self, elements: __m512, group: usize) -> __m512i {
        let (scale, bias) = (_mm512_set1_ps(self.scales[group]), _mm512_set1_ps(self.biases[group]));
        _mm512_cvtps_epi32(_mm512_fmadd_ps(elements, scale, bias))
    }
}

/// The floats that the mask names.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
unsafe fn floats<S: StoredAs>(from: *const u8, mask: __mmask16) -> __m512 {
    // SAFETY: masked loads touch the named elements only.
    unsafe {
        match S::STORED {
            Stored::F32 => _mm512_maskz_loadu_ps(mask, from.cast()),
            Stored::F16 => _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast())),
            Stored::BF16 => {
                let wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from.cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
            }
        }
    }
}

/// A table of 16 bytes for each group of a block.
#[repr(C, align(64))]
struct Tables([[u8; 16]; GROUPS]);

impl Tables {
    fn of(&self, group: usize) -> *const u8 {
        self.0[group].as_ptr()
    }
}

/// One row of nibbles: each group has but sixteen numbers, which a shuffle looks up for 64 codes at once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn nibbles(factors: &Factors, elements: __m512, codes: *const u8, len: usize, to: *mut u8) {
    let mut tables = Tables([[0; 16]; GROUPS]);
    // SAFETY: tables are written four at a time, of which there are four fours; the codes of `len` values are
    // readable, of the last unit perhaps half, and the tiles have room for whole units.
    unsafe {
        let transposed = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        for four in (0..factors.groups).step_by(4) {
            let of = |i: usize| factors.rounded(elements, four + i);
            let bytes = _mm512_permutexvar_epi32(transposed, narrow(of(0), of(1), of(2), of(3)));
            _mm512_store_si512(tables.0[four].as_mut_ptr().cast(), bytes);
        }
        let shift = _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4);
        let nibble = _mm512_set1_epi8(15);
        for unit in 0..len.div_ceil(UNIT) {
            let from = codes.add(unit * UNIT / 2);
            // A block of a row is too short for the machine to guess that the next one will follow.
            _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(BLOCK / 2).cast());
            let packed = if len - unit * UNIT >= UNIT {
                _mm256_loadu_si256(from.cast())
            } else {
                _mm256_castsi128_si256(_mm_loadu_si128(from.cast()))
            };
            let codes = _mm512_srlv_epi64(_mm512_broadcast_i64x4(packed), shift);
            let codes = _mm512_and_si512(codes, nibble);
            let group = (unit * UNIT) >> factors.group_shift;
            let bytes = match factors.group_shift {
                4 => {
                    let four = _mm512_load_si512(tables.of(group).cast());
                    let even = _mm512_shuffle_i32x4::<0b10_00_10_00>(four, four);
                    let odd = _mm512_shuffle_i32x4::<0b11_01_11_01>(four, four);
                    let bytes = _mm512_shuffle_epi8(even, codes);
                    _mm512_mask_shuffle_epi8(bytes, 0xff00_ff00_ff00_ff00, odd, codes)
                }
                5 => {
                    let two = _mm256_load_si256(tables.of(group).cast());
                    _mm512_shuffle_epi8(_mm512_broadcast_i64x4(two), codes)
                }
                _ => {
                    let one = _mm_load_si128(tables.of(group).cast());
                    _mm512_shuffle_epi8(_mm512_broadcast_i32x4(one), codes)
                }
            };
            _mm512_storeu_si512(to.add(unit * TILE_BYTES).cast(), bytes);
        }
    }
}

/// One row of unsigned codes of another width, in their order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
unsafe fn others(factors: &Factors, bits: &Bits, codes: *const u8, len: usize, to: *mut u8) {
    let width = bits.width();
    // SAFETY: the codes of `len` values are readable, and the tiles have room for whole units.
    unsafe {
        let transposed = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        for unit in 0..len.div_ceil(UNIT) {
            let from = codes.add(unit * UNIT * width / 8);
            _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(BLOCK * width / 8).cast());
            let unpacked = bits.unpack(from, UNIT.min(len - unit * UNIT) * width / 8);
            let rounded = |i: usize, codes: __m128i| {
                let elements = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes));
                factors.rounded(elements, (unit * UNIT + 16 * i) >> factors.group_shift)
            };
            let bytes = narrow(
                rounded(0, _mm512_castsi512_si128(unpacked)),
                rounded(1, _mm512_extracti32x4_epi32::<1>(unpacked)),
                rounded(2, _mm512_extracti32x4_epi32::<2>(unpacked)),
                rounded(3, _mm512_extracti32x4_epi32::<3>(unpacked)),
            );
            let bytes = _mm512_permutexvar_epi32(transposed, bytes);
            _mm512_storeu_si512(to.add(unit * TILE_BYTES).cast(), bytes);
        }
    }
}
