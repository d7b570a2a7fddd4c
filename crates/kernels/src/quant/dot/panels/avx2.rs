//! Eight rows of the weight in the lanes of AVX2, with or without its int8 dot product.

use super::super::avx2::{Bits, padded};
use super::{Lanes, Scratch, Work, how};
use crate::path::Path;
use crate::quant::layout::e2m1_codes;
use crate::quant::weight::{Elements, Stored};
use std::arch::x86_64::*;

/// Runs all rows of activations.
///
/// # Safety
/// The machine has AVX2 with FMA, and AVX-VNNI where the product's path says so; the work's rows exist.
pub(super) unsafe fn run(work: &Work<'_>, scratch: &mut Scratch) {
    let weight = work.product.weight;
    let numbers = (weight.elements == Elements::DoubledE2M1).then(e2m1_codes);
    let bits = Bits::new(weight.scheme.bits());
    let (numbers, bits) = (numbers.as_ref(), &bits);
    let nibbles = work.product.layout.lanes.per_lane == 8;
    // SAFETY: the caller's promises.
    unsafe {
        match (work.product.path == Path::AvxVnni, nibbles) {
            (true, true) => dots::<true>(work, scratch, Eight { numbers, bits }),
            (true, false) => dots::<false>(work, scratch, Eight { numbers, bits }),
            (_, true) if numbers.is_none() => {
                plain::<{ how::NARROW }, true>(work, scratch, Eight { numbers, bits });
            }
            (_, true) => plain::<{ how::PAIRS }, true>(work, scratch, Eight { numbers, bits }),
            (_, false) if weight.scheme.bits() == 8 => {
                plain::<{ how::HALVES }, false>(work, scratch, Eight { numbers, bits });
            }
            (_, false) => plain::<{ how::PAIRS }, false>(work, scratch, Eight { numbers, bits }),
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
unsafe fn dots<const NIBBLES: bool>(work: &Work<'_>, scratch: &mut Scratch, lanes: Eight<'_, { how::DOTS }>) {
    // SAFETY: the caller's promises.
    unsafe { work.run::<_, NIBBLES, 4>(lanes, scratch) }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn plain<const HOW: u8, const NIBBLES: bool>(
    work: &Work<'_>,
    scratch: &mut Scratch,
    lanes: Eight<'_, HOW>,
) {
    // SAFETY: the caller's promises.
    unsafe { work.run::<_, NIBBLES, 4>(lanes, scratch) }
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
    type Words = [__m256i; 8];
    const LANES: usize = 8;
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn no_sum(self) -> __m256i {
        // SAFETY: the path has AVX2.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn zero(self) -> __m256 {
        // SAFETY: the path has AVX2.
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn load_stored(self, stored: Stored, from: *const u8) -> __m256 {
        // SAFETY: eight stored floats are readable.
        unsafe {
            match stored {
                Stored::F32 => _mm256_loadu_ps(from.cast()),
                Stored::F16 => _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
                Stored::BF16 => {
                    let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> __m256i {
        // SAFETY: a vector of codes is readable.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn add_eight(self, sum: __m256i, codes: [__m256i; 2], x: [*const u8; 2]) -> __m256i {
        // SAFETY: twice four bytes are readable.
        unsafe {
            let first = _mm256_set1_epi32(x[0].cast::<i32>().read_unaligned());
            let second = _mm256_set1_epi32(x[1].cast::<i32>().read_unaligned());
            if HOW == how::DOTS {
                return _mm256_dpbusd_avx_epi32(
                    _mm256_dpbusd_avx_epi32(sum, codes[0], first),
                    codes[1],
                    second,
                );
            }
            let ones = _mm256_set1_epi16(1);
            if HOW == how::HALVES {
                // The upper halves count sixteenfold; four products of nibbles fit 16 bits.
                let mask = _mm256_set1_epi8(15);
                let low = _mm256_add_epi16(
                    _mm256_maddubs_epi16(_mm256_and_si256(codes[0], mask), first),
                    _mm256_maddubs_epi16(_mm256_and_si256(codes[1], mask), second),
                );
                let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(codes[0]), mask);
                let upper_second = _mm256_and_si256(_mm256_srli_epi16::<4>(codes[1]), mask);
                let high = _mm256_add_epi16(
                    _mm256_maddubs_epi16(upper, first),
                    _mm256_maddubs_epi16(upper_second, second),
                );
                let (low, high) =
                    (_mm256_madd_epi16(low, ones), _mm256_madd_epi16(high, _mm256_set1_epi16(16)));
                return _mm256_add_epi32(sum, _mm256_add_epi32(low, high));
            }
            let (first, second) =
                (_mm256_maddubs_epi16(codes[0], first), _mm256_maddubs_epi16(codes[1], second));
            match HOW {
                how::NARROW => _mm256_add_epi16(_mm256_add_epi16(sum, first), second),
                // Four products of at most 63 * 127 fit 16 bits.
                _ => _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_add_epi16(first, second), ones)),
            }
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
    unsafe fn scaled(
        self,
        to: __m256,
        sum: __m256i,
        scale: __m256,
        x: *const f32,
        shift: Option<*const f32>,
    ) -> __m256 {
        // SAFETY: the floats are readable.
        unsafe {
            let sum = if HOW == how::NARROW { _mm256_madd_epi16(sum, _mm256_set1_epi16(1)) } else { sum };
            let (sum, x) = (_mm256_cvtepi32_ps(sum), _mm256_set1_ps(*x));
            let sum = match shift {
                Some(shift) => _mm256_fmadd_ps(sum, x, _mm256_set1_ps(*shift)),
                None => _mm256_mul_ps(sum, x),
            };
            _mm256_fmadd_ps(sum, scale, to)
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
    unsafe fn words(self, rows: &[*const u8; 16], words: usize) -> [__m256i; 8] {
        let [first, _] = rows.as_chunks::<8>().0 else { unreachable!("twice eight rows") };
        // SAFETY: the caller's promises.
        unsafe { words_of_eight(first, 0, words) }
    }

    #[inline(always)]
    unsafe fn beside(self, rows: &[*const u8; 8], at: usize, words: usize, to: *mut u8, step: usize) {
        // SAFETY: the caller's promises.
        unsafe {
            for word in (0..words).step_by(8) {
                let left = 8.min(words - word);
                let columns = words_of_eight(rows, at + 4 * word, left);
                for (i, &column) in columns[..left].iter().enumerate() {
                    _mm_storeu_si128(to.add((word + i) * step).cast(), _mm256_castsi256_si128(column));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn store_codes(self, codes: __m256i, to: *mut u8) {
        // SAFETY: there is room for a vector.
        unsafe { _mm256_storeu_si256(to.cast(), codes) }
    }

    #[inline(always)]
    unsafe fn nibbles(self, packed: __m256i) -> [__m256i; 2] {
        // SAFETY: the path has AVX2.
        unsafe {
            let mask = _mm256_set1_epi8(15);
            let low = _mm256_and_si256(packed, mask);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(packed), mask);
            let Some(numbers) = self.numbers else { return [low, high] };
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(numbers.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, low), _mm256_shuffle_epi8(table, high)]
        }
    }

    #[inline(always)]
    unsafe fn floats(self, stored: Stored, words: __m256i) -> [__m256; 2] {
        // SAFETY: the path has AVX2 with F16C.
        unsafe {
            let upper = _mm256_set1_epi32(-1 << 16);
            match stored {
                Stored::F32 => [_mm256_castsi256_ps(words); 2],
                Stored::BF16 => [
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words)),
                    _mm256_castsi256_ps(_mm256_and_si256(words, upper)),
                ],
                Stored::F16 => {
                    // Lower halves, then upper ones, of the first four lanes and of the last.
                    let both = _mm256_packus_epi32(
                        _mm256_andnot_si256(upper, words),
                        _mm256_srli_epi32::<16>(words),
                    );
                    let both = _mm256_permute4x64_epi64::<0b11_01_10_00>(both);
                    [
                        _mm256_cvtph_ps(_mm256_castsi256_si128(both)),
                        _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(both)),
                    ]
                }
            }
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

    #[inline(always)]
    unsafe fn prefetch_near(self, from: *const u8) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
}

/// For each of eight words of four bytes, that word of eight rows, each so many bytes on. Of the rows only the first `words` (1 to 8)
/// are read; vectors of the others mean nothing.
///
/// # Safety
/// The machine has AVX2, and so many words of every row are readable.
#[inline(always)]
pub(super) unsafe fn words_of_eight(rows: &[*const u8; 8], at: usize, words: usize) -> [__m256i; 8] {
    let masks: [i32; 16] = std::array::from_fn(|i| if i < 8 { -1 } else { 0 });
    // SAFETY: the loads touch so many words of each row.
    unsafe {
        let mask = _mm256_loadu_si256(masks.as_ptr().add(8 - words).cast());
        let mut r = [_mm256_setzero_ps(); 8];
        for (vector, row) in r.iter_mut().zip(rows) {
            let row = row.add(at);
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
        let mut columns = [_mm256_setzero_si256(); 8];
        for i in 0..4 {
            let low = _mm256_permute2f128_ps::<0x20>(fours[i], fours[i + 4]);
            let high = _mm256_permute2f128_ps::<0x31>(fours[i], fours[i + 4]);
            (columns[i], columns[i + 4]) = (_mm256_castps_si256(low), _mm256_castps_si256(high));
        }
        columns
    }
}
