//! Sixteen rows of the weight in the lanes of AVX-512, with or without its int8 dot product.

use super::avx2::words_of_eight;
use super::{Lanes, Scratch, Work, amx, how};
use crate::path::Path;
use crate::quant::bits::Bits;
use crate::quant::layout::e2m1_codes;
use crate::quant::weight::{Elements, Stored};
use crate::simd::transpose_16;
use std::arch::x86_64::*;

/// Runs all rows of activations.
///
/// # Safety
/// The machine has what the product's path says, and the work's rows exist.
pub(super) unsafe fn run(work: &Work<'_>, scratch: &mut Scratch) {
    let (weight, path) = (work.product.weight, work.product.path);
    let numbers = (weight.elements == Elements::DoubledE2M1).then(e2m1_codes);
    let bits = Bits::new(weight.scheme.bits());
    let (numbers, bits) = (numbers.as_ref(), &bits);
    let nibbles = work.product.layout.lanes.per_lane == 8;
    // SAFETY: the caller's promises.
    unsafe {
        let by_tiles = path == Path::Amx && work.count >= amx::LEAST_ROWS;
        if by_tiles && amx::run(work, &mut scratch.panel, &mut scratch.left, Sixteen { numbers, bits }) {
            return;
        }
        match (path == Path::Avx512Bw, nibbles) {
            (false, true) => dots::<true>(work, scratch, Sixteen { numbers, bits }),
            (false, false) if path.has_vbmi() => dots_vbmi(work, scratch, Sixteen { numbers, bits }),
            (false, false) => dots::<false>(work, scratch, Sixteen { numbers, bits }),
            (true, true) if numbers.is_none() => {
                plain::<{ how::NARROW }, true>(work, scratch, Sixteen { numbers, bits });
            }
            (true, false) if weight.scheme.bits() == 8 => {
                plain::<{ how::HALVES }, false>(work, scratch, Sixteen { numbers, bits });
            }
            (true, true) => plain::<{ how::PAIRS }, true>(work, scratch, Sixteen { numbers, bits }),
            (true, false) => plain::<{ how::PAIRS }, false>(work, scratch, Sixteen { numbers, bits }),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn dots<const NIBBLES: bool>(
    work: &Work<'_>,
    scratch: &mut Scratch,
    lanes: Sixteen<'_, { how::DOTS }, false>,
) {
    // SAFETY: the caller's promises.
    unsafe { work.run::<_, NIBBLES, 8>(lanes, scratch) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma,f16c")]
unsafe fn dots_vbmi(work: &Work<'_>, scratch: &mut Scratch, lanes: Sixteen<'_, { how::DOTS }, true>) {
    // SAFETY: the caller's promises.
    unsafe { work.run::<_, false, 8>(lanes, scratch) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn plain<const HOW: u8, const NIBBLES: bool>(
    work: &Work<'_>,
    scratch: &mut Scratch,
    lanes: Sixteen<'_, HOW, false>,
) {
    // SAFETY: the caller's promises.
    unsafe { work.run::<_, NIBBLES, 8>(lanes, scratch) }
}

#[derive(Clone, Copy)]
pub(super) struct Sixteen<'a, const HOW: u8, const VBMI: bool> {
    /// What nibbles stand for, where that is not themselves.
    numbers: Option<&'a [u8; 16]>,
    bits: &'a Bits,
}

impl<const HOW: u8, const VBMI: bool> Lanes for Sixteen<'_, HOW, VBMI> {
    type Whole = __m512i;
    type Float = __m512;
    type Words = [__m512i; 16];
    const LANES: usize = 16;
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn no_sum(self) -> __m512i {
        // SAFETY: the path has AVX-512.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn zero(self) -> __m512 {
        // SAFETY: the path has AVX-512.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn load_stored(self, stored: Stored, from: *const u8) -> __m512 {
        // SAFETY: sixteen stored floats are readable.
        unsafe {
            match stored {
                Stored::F32 => _mm512_loadu_ps(from.cast()),
                Stored::F16 => _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())),
                Stored::BF16 => {
                    let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> __m512i {
        // SAFETY: a vector of codes is readable.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn add_eight(self, sum: __m512i, codes: [__m512i; 2], x: [*const u8; 2]) -> __m512i {
        // SAFETY: twice four bytes are readable.
        unsafe {
            let first = _mm512_set1_epi32(x[0].cast::<i32>().read_unaligned());
            let second = _mm512_set1_epi32(x[1].cast::<i32>().read_unaligned());
            if HOW == how::DOTS {
                return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, codes[0], first), codes[1], second);
            }
            let ones = _mm512_set1_epi16(1);
            if HOW == how::HALVES {
                // The upper halves count sixteenfold; four products of nibbles fit 16 bits.
                let mask = _mm512_set1_epi8(15);
                let low = _mm512_add_epi16(
                    _mm512_maddubs_epi16(_mm512_and_si512(codes[0], mask), first),
                    _mm512_maddubs_epi16(_mm512_and_si512(codes[1], mask), second),
                );
                let upper = _mm512_and_si512(_mm512_srli_epi16::<4>(codes[0]), mask);
                let upper_second = _mm512_and_si512(_mm512_srli_epi16::<4>(codes[1]), mask);
                let high = _mm512_add_epi16(
                    _mm512_maddubs_epi16(upper, first),
                    _mm512_maddubs_epi16(upper_second, second),
                );
                let (low, high) =
                    (_mm512_madd_epi16(low, ones), _mm512_madd_epi16(high, _mm512_set1_epi16(16)));
                return _mm512_add_epi32(sum, _mm512_add_epi32(low, high));
            }
            let (first, second) =
                (_mm512_maddubs_epi16(codes[0], first), _mm512_maddubs_epi16(codes[1], second));
            match HOW {
                how::NARROW => _mm512_add_epi16(_mm512_add_epi16(sum, first), second),
                // Four products of at most 63 * 127 fit 16 bits.
                _ => _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_add_epi16(first, second), ones)),
            }
        }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: sixteen floats are readable.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn times(self, values: __m512, factor: f32) -> __m512 {
        // SAFETY: the path has AVX-512.
        unsafe { _mm512_mul_ps(values, _mm512_set1_ps(factor)) }
    }

    #[inline(always)]
    unsafe fn scaled(
        self,
        to: __m512,
        sum: __m512i,
        scale: __m512,
        x: *const f32,
        shift: Option<*const f32>,
    ) -> __m512 {
        // SAFETY: the floats are readable.
        unsafe {
            let sum = if HOW == how::NARROW { _mm512_madd_epi16(sum, _mm512_set1_epi16(1)) } else { sum };
            let (sum, x) = (_mm512_cvtepi32_ps(sum), _mm512_set1_ps(*x));
            let sum = match shift {
                Some(shift) => _mm512_fmadd_ps(sum, x, _mm512_set1_ps(*shift)),
                None => _mm512_mul_ps(sum, x),
            };
            _mm512_fmadd_ps(sum, scale, to)
        }
    }

    #[inline(always)]
    unsafe fn add_multiple(self, to: __m512, factor: __m512, x: *const f32) -> __m512 {
        // SAFETY: a float is readable.
        unsafe { _mm512_fmadd_ps(factor, _mm512_set1_ps(*x), to) }
    }

    #[inline(always)]
    unsafe fn store(self, values: __m512, to: *mut [f32; 16]) {
        // SAFETY: there is room for sixteen floats.
        unsafe { _mm512_storeu_ps(to.cast(), values) }
    }

    #[inline(always)]
    unsafe fn words(self, rows: &[*const u8; 16], words: usize) -> [__m512i; 16] {
        let mask = (0xffffu32 >> (16 - words)) as __mmask16;
        // SAFETY: the loads touch so many words of each row.
        unsafe {
            let mut vectors = [_mm512_setzero_ps(); 16];
            for (vector, row) in vectors.iter_mut().zip(rows) {
                *vector = match words {
                    16 => _mm512_loadu_ps(row.cast()),
                    _ => _mm512_maskz_loadu_ps(mask, row.cast()),
                };
            }
            // Sixteen vectors of 64 bytes, whatever is in them; a closure would be compiled without the path's instructions.
            std::mem::transmute::<[__m512; 16], [__m512i; 16]>(transpose_16(vectors))
        }
    }

    #[inline(always)]
    unsafe fn beside(self, rows: &[*const u8; 8], at: usize, words: usize, to: *mut u8, step: usize) {
        // SAFETY: the caller's promises; AVX-512 has AVX2.
        unsafe {
            for word in (0..words).step_by(8) {
                let left = 8.min(words - word);
                let columns = words_of_eight(rows, at + 4 * word, left);
                for (i, &column) in columns[..left].iter().enumerate() {
                    _mm256_storeu_si256(to.add((word + i) * step).cast(), column);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn store_codes(self, codes: __m512i, to: *mut u8) {
        // SAFETY: there is room for a vector.
        unsafe { _mm512_storeu_si512(to.cast(), codes) }
    }

    #[inline(always)]
    unsafe fn nibbles(self, packed: __m512i) -> [__m512i; 2] {
        // SAFETY: the path has AVX-512.
        unsafe {
            let mask = _mm512_set1_epi8(15);
            let low = _mm512_and_si512(packed, mask);
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(packed), mask);
            let Some(numbers) = self.numbers else { return [low, high] };
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(numbers.as_ptr().cast()));
            [_mm512_shuffle_epi8(table, low), _mm512_shuffle_epi8(table, high)]
        }
    }

    #[inline(always)]
    unsafe fn floats(self, stored: Stored, words: __m512i) -> [__m512; 2] {
        // SAFETY: the path has AVX-512.
        unsafe {
            let upper = _mm512_set1_epi32(-1 << 16);
            match stored {
                Stored::F32 => [_mm512_castsi512_ps(words); 2],
                Stored::BF16 => [
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)),
                    _mm512_castsi512_ps(_mm512_and_si512(words, upper)),
                ],
                Stored::F16 => [
                    _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)),
                    _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(words))),
                ],
            }
        }
    }

    #[inline(always)]
    unsafe fn widen(self, from: *const u8, left: usize, to: *mut u8) {
        // SAFETY: so many bytes are readable, and there is room for 64.
        unsafe {
            let codes = self.bits.unpack::<VBMI>(from, left.min(8 * self.bits.width()));
            _mm512_storeu_si512(to.cast(), codes);
        }
    }

    #[inline(always)]
    unsafe fn prefetch(self, from: *const u8) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
    }

    #[inline(always)]
    unsafe fn prefetch_near(self, from: *const u8) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
}
