//! Unpacking a block of a panel of the weight into tiles of bf16.

use super::super::bits::{Bits, e4m3};
use super::super::weight::{AsBf16, AsF16, AsF32, Elements, QuantWeight, Stored, StoredAs, element};
use super::input::halved;
use super::{BLOCK, PANEL, TILE, TILE_BYTES, UNIT};
use std::arch::x86_64::*;
use std::ops::Range;

/// What is written for a code.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Values {
    /// The number, scale and bias included, rounded to bf16.
    Numbers,
    /// What the code stands for before it is scaled; bf16 holds it exactly.
    Elements,
}

/// Unpacks values `at` of the panel's rows from `first` on. Tiles of 16 rows and 32 values lie one after
/// another along the row; those of the second 16 rows follow those of the first. Rows and values beyond the
/// weight are left as finite numbers.
///
/// # Safety
/// The machine has what the AMX path asks for; the panel's first row exists; `at` starts at a multiple of 64
/// inside the row; `to` has room for the tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi,f16c")]
pub(super) unsafe fn unpack(
    weight: &QuantWeight,
    first: usize,
    at: Range<usize>,
    values: Values,
    to: *mut u8,
) {
    // SAFETY: the caller's promises.
    unsafe {
        match weight.stored {
            Stored::F32 => unpack_stored::<AsF32>(weight, first, at, values, to),
            Stored::F16 => unpack_stored::<AsF16>(weight, first, at, values, to),
            Stored::BF16 => unpack_stored::<AsBf16>(weight, first, at, values, to),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi,f16c")]
unsafe fn unpack_stored<S: StoredAs>(
    weight: &QuantWeight,
    first: usize,
    at: Range<usize>,
    values: Values,
    to: *mut u8,
) {
    let rows = PANEL.min(weight.n - first);
    let (codes, scales) = (weight.codes.as_ptr(), weight.scales.as_ptr());
    let biases = weight.biases.as_ref().map(|biases| biases.as_ptr());
    // SAFETY: the caller's promises.
    unsafe {
        let row_at = |row: usize| {
            let groups = (first + row) * weight.groups() * S::SIZE;
            Row {
                codes: codes.add((first + row) * weight.row_bytes()),
                scales: scales.add(groups),
                biases: biases.map(|biases| biases.add(groups)),
                len: weight.k,
                group: weight.scheme.group(),
                group_shift: weight.scheme.group().trailing_zeros(),
            }
        };
        let half_bytes = half_bytes(weight, at.len(), values);
        let place = |row: usize| to.add(row / TILE * half_bytes + row % TILE * 64);
        // Counted from the middle, a code times its scale is the number, rounded once as with a bias.
        let centre = if values == Values::Numbers { weight.centre.unwrap_or(0.0) } else { 0.0 };
        let table: [f32; 16] = std::array::from_fn(|code| element(weight.elements, code as u8) + centre);
        let table = _mm512_loadu_ps(table.as_ptr());
        if weight.scheme.bits() == 4 && values == Values::Numbers {
            for row in 0..rows {
                nibbles::<S>(&row_at(row), at.clone(), table, place(row));
            }
        } else {
            let bits = Bits::new(weight.scheme.bits());
            let lookup = match weight.elements {
                Elements::E4M3 => Lookup::E4M3,
                Elements::Unsigned => Lookup::Code(_mm512_set1_ps(centre)),
                Elements::DoubledE2M1 => Lookup::Table(table),
            };
            for row in 0..rows {
                bytes::<S>(&row_at(row), at.clone(), values, &bits, lookup, place(row));
            }
        }
    }
}

/// How a code of 32 bits becomes an element.
#[derive(Clone, Copy)]
enum Lookup {
    /// The code itself and this number.
    Code(__m512),
    E4M3,
    Table(__m512),
}

/// Bytes of the tiles of 16 rows of the panel, so many values along the row. Elements of groups of 16 have a
/// tile for each group, half of it zero, so that tiles can add up one group.
pub(super) fn half_bytes(weight: &QuantWeight, values: usize, of: Values) -> usize {
    let tiles = if of == Values::Elements && weight.scheme.group() == 16 { 4 } else { 2 };
    values.div_ceil(UNIT) * tiles * TILE_BYTES
}

/// A scale or bias in all lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
unsafe fn spread<S: StoredAs>(from: *const u8, index: usize) -> __m512 {
    // SAFETY: the caller's promise that the float exists.
    unsafe {
        match S::STORED {
            Stored::F32 => _mm512_set1_ps(from.cast::<f32>().add(index).read_unaligned()),
            Stored::F16 => {
                let half = from.cast::<i16>().add(index).read_unaligned();
                _mm512_cvtph_ps(_mm256_set1_epi16(half))
            }
            Stored::BF16 => {
                let half = from.cast::<i16>().add(index).read_unaligned();
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_set1_epi16(half)))
            }
        }
    }
}

/// A row of the weight.
struct Row {
    codes: *const u8,
    scales: *const u8,
    biases: Option<*const u8>,
    /// Values of the row.
    len: usize,
    /// Values of a group, which is a power of two, and which one.
    group: usize,
    group_shift: u32,
}

impl Row {
    /// Elements of a group as the numbers that they stand for. Beyond the last group, which only happens
    /// where there are no activations, it is the last one's.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
    unsafe fn scaled<S: StoredAs>(&self, elements: __m512, value: usize) -> __m512 {
        let index = value.min(self.len - 1) >> self.group_shift;
        // SAFETY: the group exists, so its scale and bias do.
        unsafe {
            let scale = spread::<S>(self.scales, index);
            match self.biases {
                Some(biases) => _mm512_fmadd_ps(elements, scale, spread::<S>(biases, index)),
                None => _mm512_mul_ps(elements, scale),
            }
        }
    }
}

impl Row {
    /// As [`Row::scaled`] for two groups of 32, rounded to bf16 one after the other.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,f16c")]
    unsafe fn pair<S: StoredAs>(&self, elements: __m512, value: usize) -> __m512i {
        // SAFETY: both groups exist where their values do, so their scales lie side by side.
        unsafe {
            if S::STORED == Stored::BF16 && self.biases.is_none() && value + UNIT <= self.len {
                // A bf16 is the upper half of a float: one load serves both, and nothing is shuffled.
                let both = self.scales.cast::<i16>().add(value / 32).cast::<i32>().read_unaligned();
                let both = _mm512_set1_epi32(both);
                let first = _mm512_slli_epi32::<16>(both);
                let second = _mm512_and_si512(both, _mm512_set1_epi32(-1 << 16));
                let times = |scale| _mm512_mul_ps(elements, _mm512_castsi512_ps(scale));
                return halved(times(first), times(second));
            }
            halved(self.scaled::<S>(elements, value), self.scaled::<S>(elements, value + 32))
        }
    }
}

/// One row of nibbles: each group has but sixteen numbers, which a permutation looks up for 32 codes at once.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")]
unsafe fn nibbles<S: StoredAs>(row: &Row, at: Range<usize>, table: __m512, to: *mut u8) {
    // Which half of a table each of the 32 pairs of codes uses, where the halves are two groups of 32; and
    // which quarter of two tables, where there are four groups of 16.
    let half: [i16; 32] = std::array::from_fn(|i| (i as i16 / 16) << 4);
    let quarter: [i16; 32] = std::array::from_fn(|i| (i as i16 / 8) << 4);
    let nibble = _mm512_set1_epi16(15);
    // SAFETY: values inside the row have their codes and groups; loads of the last unit are masked.
    unsafe {
        let (half, quarter) =
            (_mm512_loadu_si512(half.as_ptr().cast()), _mm512_loadu_si512(quarter.as_ptr().cast()));
        for (unit, start) in at.step_by(UNIT).enumerate() {
            // A block of a row is too short for the machine to guess that the next one will follow.
            _mm_prefetch::<_MM_HINT_T1>(row.codes.wrapping_add((start + BLOCK) / 2).cast());
            let codes = row.codes.add(start / 2).cast();
            let left = row.len - start;
            let packed = if left >= UNIT {
                _mm256_loadu_si256(codes)
            } else {
                _mm256_maskz_loadu_epi8(u32::MAX >> (32 - left / 2), codes.cast())
            };
            let pairs = _mm512_cvtepu8_epi16(packed);
            let high = _mm512_srli_epi16::<4>(pairs);
            let (even, odd) = if row.group >= UNIT {
                let numbers = row.scaled::<S>(table, start);
                // Both halves are the same, so the fifth bit of an index does not matter.
                let numbers = halved(numbers, numbers);
                (_mm512_permutexvar_epi16(pairs, numbers), _mm512_permutexvar_epi16(high, numbers))
            } else if row.group == 32 {
                let numbers = row.pair::<S>(table, start);
                let even = _mm512_or_si512(_mm512_and_si512(pairs, nibble), half);
                let odd = _mm512_or_si512(high, half);
                (_mm512_permutexvar_epi16(even, numbers), _mm512_permutexvar_epi16(odd, numbers))
            } else {
                let of = |i: usize| row.scaled::<S>(table, start + 16 * i);
                let (low, top) = (halved(of(0), of(1)), halved(of(2), of(3)));
                let even = _mm512_or_si512(_mm512_and_si512(pairs, nibble), quarter);
                let odd = _mm512_or_si512(high, quarter);
                (_mm512_permutex2var_epi16(low, even, top), _mm512_permutex2var_epi16(low, odd, top))
            };
            let to = to.add(unit * 2 * TILE_BYTES);
            _mm512_storeu_si512(to.cast(), even);
            _mm512_storeu_si512(to.add(TILE_BYTES).cast(), odd);
        }
    }
}

/// One row of codes of any width, in their order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi,f16c")]
unsafe fn bytes<S: StoredAs>(
    row: &Row,
    at: Range<usize>,
    values: Values,
    bits: &Bits,
    lookup: Lookup,
    to: *mut u8,
) {
    let width = bits.width();
    // SAFETY: values inside the row have their codes and groups; loads of the last unit are masked.
    unsafe {
        for (unit, start) in at.step_by(UNIT).enumerate() {
            let len = UNIT.min(row.len - start);
            _mm_prefetch::<_MM_HINT_T1>(row.codes.wrapping_add((start + BLOCK) * width / 8).cast());
            let unpacked = bits.unpack::<true>(row.codes.add(start * width / 8), len * width / 8);
            let numbers = |i: usize, quarter: __m128i| {
                let code = _mm512_cvtepu8_epi32(quarter);
                let elements = match lookup {
                    Lookup::Code(centre) => _mm512_add_ps(_mm512_cvtepi32_ps(code), centre),
                    Lookup::E4M3 => e4m3(code),
                    Lookup::Table(table) => _mm512_permutexvar_ps(code, table),
                };
                match values {
                    Values::Elements => elements,
                    Values::Numbers => row.scaled::<S>(elements, start + 16 * i),
                }
            };
            let low = halved(
                numbers(0, _mm512_castsi512_si128(unpacked)),
                numbers(1, _mm512_extracti32x4_epi32::<1>(unpacked)),
            );
            let high = halved(
                numbers(2, _mm512_extracti32x4_epi32::<2>(unpacked)),
                numbers(3, _mm512_extracti32x4_epi32::<3>(unpacked)),
            );
            if values == Values::Elements && row.group == 16 {
                let to = to.add(unit * 4 * TILE_BYTES);
                for (tile, both) in [(0, low), (2, high)] {
                    let first = _mm512_maskz_mov_epi16(0x0000_ffff, both);
                    let second = _mm512_maskz_mov_epi16(0xffff_0000, both);
                    _mm512_storeu_si512(to.add(tile * TILE_BYTES).cast(), first);
                    _mm512_storeu_si512(to.add((tile + 1) * TILE_BYTES).cast(), second);
                }
            } else {
                let to = to.add(unit * 2 * TILE_BYTES);
                _mm512_storeu_si512(to.cast(), low);
                _mm512_storeu_si512(to.add(TILE_BYTES).cast(), high);
            }
        }
    }
}
