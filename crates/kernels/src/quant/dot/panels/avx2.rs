//! Eight rows of the weight in the lanes of AVX2, with or without its int8 dot product.

use super::super::avx2::{Bits, padded};
use super::unpack::Panel;
use super::{Lanes, Work};
use crate::path::Path;
use crate::quant::layout::e2m1_codes;
use crate::quant::weight::Elements;
use std::arch::x86_64::*;

/// How products of bytes are added up.
mod how {
    /// By the int8 dot product.
    pub(super) const DOTS: u8 = 0;
    /// In 16 bits, where all of 32 values fit: 32 products of at most 15 * 127, two by two in each of them.
    pub(super) const NARROW: u8 = 1;
    /// In 16 bits for two or four values, then in 32.
    pub(super) const PAIRS: u8 = 2;
    /// Codes have eight bits, so that not even two products fit 16.
    pub(super) const HALVES: u8 = 3;
}

/// Runs all rows of activations.
///
/// # Safety
/// The machine has AVX2 with FMA, and AVX-VNNI where the product's path says so; the work's rows exist.
pub(super) unsafe fn run(work: &Work<'_>, panel: &mut Panel) {
    let weight = work.product.weight;
    let numbers = (weight.elements == Elements::DoubledE2M1).then(e2m1_codes);
    let bits = Bits::new(weight.scheme.bits());
    let (numbers, bits) = (numbers.as_ref(), &bits);
    let nibbles = work.product.layout.lanes.per_lane == 8;
    // SAFETY: the caller's promises.
    unsafe {
        match (work.product.path == Path::AvxVnni, nibbles) {
            (true, true) => dots::<true>(work, panel, Eight { numbers, bits }),
            (true, false) => dots::<false>(work, panel, Eight { numbers, bits }),
            (_, true) if numbers.is_none() => {
                plain::<{ how::NARROW }, true>(work, panel, Eight { numbers, bits });
            }
            (_, true) => plain::<{ how::PAIRS }, true>(work, panel, Eight { numbers, bits }),
            (_, false) if weight.scheme.bits() == 8 => {
                plain::<{ how::HALVES }, false>(work, panel, Eight { numbers, bits });
            }
            (_, false) => plain::<{ how::PAIRS }, false>(work, panel, Eight { numbers, bits }),
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
unsafe fn dots<const NIBBLES: bool>(work: &Work<'_>, panel: &mut Panel, lanes: Eight<'_, { how::DOTS }>) {
    // SAFETY: the caller's promises.
    unsafe { work.run::<_, NIBBLES>(lanes, panel) }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn plain<const HOW: u8, const NIBBLES: bool>(
    work: &Work<'_>,
    panel: &mut Panel,
    lanes: Eight<'_, HOW>,
) {
    // SAFETY: the caller's promises.
    unsafe { work.run::<_, NIBBLES>(lanes, panel) }
}

#[derive(Clone, Copy)]
struct Eight<'a, const HOW: u8> {
    /// What nibbles stand for, where that is not themselves.
    numbers: Option<&'a [u8; 16]>,
    bits: &'a Bits,
}

impl<const HOW: u8> Lanes for Eight<'_, HOW> {
    type Whole = __m256i;
    type Float = __m256;
    const LANES: usize = 8;
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn no_sum(self) -> __m256i {
        // SAFETY: the path has AVX2.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> __m256i {
        // SAFETY: a vector of codes is readable.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn add_four(self, sum: __m256i, codes: __m256i, x: *const u8) -> __m256i {
        // SAFETY: four bytes are readable.
        unsafe {
            let x = _mm256_set1_epi32(x.cast::<i32>().read_unaligned());
            let ones = _mm256_set1_epi16(1);
            match HOW {
                how::DOTS => _mm256_dpbusd_avx_epi32(sum, codes, x),
                how::NARROW => _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, x)),
                how::PAIRS => _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), ones)),
                _ => {
                    // Halves of the codes, the upper ones counted sixteenfold.
                    let mask = _mm256_set1_epi8(15);
                    let low = _mm256_and_si256(codes, mask);
                    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), mask);
                    let low = _mm256_madd_epi16(_mm256_maddubs_epi16(low, x), ones);
                    let high = _mm256_madd_epi16(_mm256_maddubs_epi16(high, x), _mm256_set1_epi16(16));
                    _mm256_add_epi32(sum, _mm256_add_epi32(low, high))
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn add_eight(self, sum: __m256i, codes: [__m256i; 2], x: [*const u8; 2]) -> __m256i {
        // SAFETY: twice four bytes are readable.
        unsafe {
            if HOW != how::PAIRS {
                return self.add_four(self.add_four(sum, codes[0], x[0]), codes[1], x[1]);
            }
            let first = _mm256_set1_epi32(x[0].cast::<i32>().read_unaligned());
            let second = _mm256_set1_epi32(x[1].cast::<i32>().read_unaligned());
            // Four products of at most 24 * 127 fit 16 bits.
            let pairs = _mm256_add_epi16(
                _mm256_maddubs_epi16(codes[0], first),
                _mm256_maddubs_epi16(codes[1], second),
            );
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m256 {
        // SAFETY: eight floats are readable.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn times(self, values: __m256, factor: f32) -> __m256 {
        // SAFETY: the path has AVX2.
        unsafe { _mm256_mul_ps(values, _mm256_set1_ps(factor)) }
    }

    #[inline(always)]
    unsafe fn scaled(self, to: __m256, sum: __m256i, scale: __m256, x: *const f32) -> __m256 {
        // SAFETY: a float is readable.
        unsafe {
            let sum = if HOW == how::NARROW { _mm256_madd_epi16(sum, _mm256_set1_epi16(1)) } else { sum };
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(*x)), to)
        }
    }

    #[inline(always)]
    unsafe fn add_multiple(self, to: __m256, factor: __m256, x: *const f32) -> __m256 {
        // SAFETY: a float is readable.
        unsafe { _mm256_fmadd_ps(factor, _mm256_set1_ps(*x), to) }
    }

    #[inline(always)]
    unsafe fn store(self, values: __m256, to: *mut [f32; 16]) {
        // SAFETY: there is room for sixteen floats.
        unsafe { _mm256_storeu_ps(to.cast(), values) }
    }

    #[inline(always)]
    unsafe fn transpose(self, rows: &[*const u8; 16], words: usize, to: *mut u8) {
        let masks: [i32; 16] = std::array::from_fn(|i| if i < 8 { -1 } else { 0 });
        // SAFETY: the masked loads touch so many words of each row; there is room for eight vectors.
        unsafe {
            let mask = _mm256_loadu_si256(masks.as_ptr().add(8 - words).cast());
            let mut r = [_mm256_setzero_ps(); 8];
            for (vector, row) in r.iter_mut().zip(rows) {
                *vector = match words {
                    8 => _mm256_loadu_ps(row.cast()),
                    _ => _mm256_maskload_ps(row.cast(), mask),
                };
            }
            // Pairs of neighbouring rows, then fours, then both halves.
            let mut fours = [_mm256_setzero_ps(); 8];
            for i in [0, 4] {
                let low_a = _mm256_unpacklo_ps(r[i], r[i + 1]);
                let high_a = _mm256_unpackhi_ps(r[i], r[i + 1]);
                let low_b = _mm256_unpacklo_ps(r[i + 2], r[i + 3]);
                let high_b = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
                fours[i] = _mm256_shuffle_ps::<0b01_00_01_00>(low_a, low_b);
                fours[i + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(low_a, low_b);
                fours[i + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(high_a, high_b);
                fours[i + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(high_a, high_b);
            }
            for i in 0..4 {
                let low = _mm256_permute2f128_ps::<0x20>(fours[i], fours[i + 4]);
                let high = _mm256_permute2f128_ps::<0x31>(fours[i], fours[i + 4]);
                _mm256_storeu_ps(to.add(32 * i).cast(), low);
                _mm256_storeu_ps(to.add(32 * (i + 4)).cast(), high);
            }
        }
    }

    #[inline(always)]
    unsafe fn nibbles(self, packed: *const u8, to: *mut u8) {
        // SAFETY: a vector is readable, and there is room for two.
        unsafe {
            let (packed, mask) = (_mm256_loadu_si256(packed.cast()), _mm256_set1_epi8(15));
            let mut low = _mm256_and_si256(packed, mask);
            let mut high = _mm256_and_si256(_mm256_srli_epi16::<4>(packed), mask);
            if let Some(numbers) = self.numbers {
                let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(numbers.as_ptr().cast()));
                (low, high) = (_mm256_shuffle_epi8(table, low), _mm256_shuffle_epi8(table, high));
            }
            _mm256_storeu_si256(to.cast(), low);
            _mm256_storeu_si256(to.add(32).cast(), high);
        }
    }

    #[inline(always)]
    unsafe fn widen(self, from: *const u8, left: usize, to: *mut u8) {
        // SAFETY: so many bytes are readable, or a copy has 32; there is room for 32.
        unsafe {
            let codes = if left >= self.bits.read_bytes() {
                self.bits.unpack(from)
            } else {
                self.bits.unpack(padded(from, left.min(32)).as_ptr())
            };
            _mm256_storeu_si256(to.cast(), codes);
        }
    }

    #[inline(always)]
    unsafe fn prefetch(self, from: *const u8) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
    }
}
