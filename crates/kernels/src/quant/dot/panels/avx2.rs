//! Eight rows of the weight in the lanes of AVX2, with or without its int8 dot product.

use super::{Lanes, Work};
use std::arch::x86_64::*;

/// Rows of activations whose sums, whole and scaled, fit into the registers.
const ROWS: usize = 4;

/// Runs all rows of activations.
///
/// # Safety
/// The machine has AVX2 with FMA, and the work's rows exist.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run(work: &Work<'_>) {
    // SAFETY: the caller's promises.
    unsafe {
        if work.product.weight.scheme.bits() == 8 {
            work.rows::<Eight<false, true>, ROWS>(Eight);
        } else {
            work.rows::<Eight<false, false>, ROWS>(Eight);
        }
    }
}

/// As [`run`] with AVX-VNNI.
///
/// # Safety
/// As for [`run`], and the machine has AVX-VNNI.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(super) unsafe fn run_vnni(work: &Work<'_>) {
    // SAFETY: the caller's promises.
    unsafe { work.rows::<Eight<true, false>, ROWS>(Eight) }
}

/// `BYTES`: codes have eight bits, so that two products of them do not fit 16 bits.
#[derive(Clone, Copy)]
struct Eight<const VNNI: bool, const BYTES: bool>;

impl<const VNNI: bool, const BYTES: bool> Lanes for Eight<VNNI, BYTES> {
    type Whole = __m256i;
    type Float = __m256;
    const LANES: usize = 8;

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
    unsafe fn add_four(self, sum: __m256i, codes: *const u8, x: *const u8) -> __m256i {
        // SAFETY: a vector of codes and four bytes are readable.
        unsafe {
            let x = _mm256_set1_epi32(x.cast::<i32>().read_unaligned());
            let codes = _mm256_loadu_si256(codes.cast());
            if VNNI {
                return _mm256_dpbusd_avx_epi32(sum, codes, x);
            }
            let ones = _mm256_set1_epi16(1);
            if !BYTES {
                return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), ones));
            }
            // Halves of the codes, the upper ones counted sixteenfold.
            let mask = _mm256_set1_epi8(15);
            let low = _mm256_and_si256(codes, mask);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), mask);
            let low = _mm256_madd_epi16(_mm256_maddubs_epi16(low, x), ones);
            let high = _mm256_madd_epi16(_mm256_maddubs_epi16(high, x), _mm256_set1_epi16(16));
            _mm256_add_epi32(sum, _mm256_add_epi32(low, high))
        }
    }

    #[inline(always)]
    unsafe fn add_eight(self, sum: __m256i, codes: [*const u8; 2], x: [*const u8; 2]) -> __m256i {
        // SAFETY: two vectors of codes and twice four bytes are readable.
        unsafe {
            if VNNI {
                return self.add_four(self.add_four(sum, codes[0], x[0]), codes[1], x[1]);
            }
            let products = |i: usize| {
                let x = _mm256_set1_epi32(x[i].cast::<i32>().read_unaligned());
                _mm256_maddubs_epi16(_mm256_loadu_si256(codes[i].cast()), x)
            };
            // Four products of at most 24 * 127 fit 16 bits.
            let pairs = _mm256_add_epi16(products(0), products(1));
            _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m256 {
        // SAFETY: eight floats are readable.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn scaled(self, to: __m256, sum: __m256i, scale: __m256, x: *const f32) -> __m256 {
        // SAFETY: a float is readable.
        unsafe { _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(*x)), to) }
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
}
