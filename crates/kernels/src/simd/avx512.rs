//! Sixteen f32 in a register of AVX-512.

use super::Simd;
use std::arch::x86_64::*;

/// AVX-512 F, BW, DQ and VL.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

// SAFETY (all functions): the trait's contract is that of the intrinsics: the instruction set is there, and
// `LANES` elements lie at the pointer; masked loads and stores touch only the elements of their mask.
impl Simd for Avx512 {
    const LANES: usize = 16;
    const ACCUMULATORS: usize = 24;
    type F = __m512;

    #[inline(always)]
    unsafe fn load(at: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(at) }
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const half::f16) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const half::bf16) -> __m512 {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn store(at: *mut f32, value: __m512) {
        unsafe { _mm512_storeu_ps(at, value) }
    }
    #[inline(always)]
    unsafe fn store_f16(at: *mut half::f16, value: __m512) {
        unsafe { _mm256_storeu_si256(at.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value)) }
    }
    #[inline(always)]
    unsafe fn store_bf16(at: *mut half::bf16, value: __m512) {
        unsafe {
            let bits = _mm512_castps_si512(value);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
            let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x40_0000));
            let kept = _mm512_mask_mov_epi32(rounded, nan, quiet);
            _mm256_storeu_si256(at.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(kept)));
        }
    }
    #[inline(always)]
    unsafe fn load_first(at: *const f32, count: usize) -> __m512 {
        unsafe { _mm512_maskz_loadu_ps(mask(count), at) }
    }
    #[inline(always)]
    unsafe fn store_first(at: *mut f32, value: __m512, count: usize) {
        unsafe { _mm512_mask_storeu_ps(at, mask(count), value) }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sum(a: __m512) -> f32 {
        unsafe { _mm512_reduce_add_ps(a) }
    }
    #[inline(always)]
    unsafe fn sum4(a: [__m512; 4]) -> [f32; 4] {
        unsafe {
            // Sums of neighbours, then of pairs: each quarter ends with one partial sum of every vector.
            let ab = _mm512_add_ps(_mm512_unpacklo_ps(a[0], a[1]), _mm512_unpackhi_ps(a[0], a[1]));
            let cd = _mm512_add_ps(_mm512_unpacklo_ps(a[2], a[3]), _mm512_unpackhi_ps(a[2], a[3]));
            let low = _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd);
            let high = _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd);
            let quarters = _mm512_add_ps(low, high);
            let halves =
                _mm256_add_ps(_mm512_castps512_ps256(quarters), _mm512_extractf32x8_ps::<1>(quarters));
            let sums = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves));
            let mut out = [0.0; 4];
            _mm_storeu_ps(out.as_mut_ptr(), sums);
            out
        }
    }
    #[inline(always)]
    unsafe fn largest(a: __m512) -> f32 {
        unsafe { _mm512_reduce_max_ps(a) }
    }
    #[inline(always)]
    unsafe fn power_of_two(a: __m512) -> __m512 {
        unsafe { _mm512_scalef_ps(_mm512_set1_ps(1.0), a) }
    }
    #[inline(always)]
    unsafe fn round(a: __m512) -> __m512 {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn fma1(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    fn fma64(a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    fn prefetch(at: *const f32) {
        // SAFETY: a prefetch of any address is harmless; the instruction is there on every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }
    #[inline(always)]
    #[allow(clippy::pointers_in_nomem_asm_block)] // nothing is read there
    fn opaque(at: *const f32) -> *const f32 {
        let mut at = at;
        // SAFETY: no instruction at all.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) at, options(pure, nomem, nostack, preserves_flags))
        };
        at
    }
    #[inline(always)]
    unsafe fn at_least(x: __m512, bound: __m512) -> __m512 {
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_NLE_UQ>(x, bound), bound, x) }
    }
    #[inline(always)]
    unsafe fn at_most(x: __m512, bound: __m512) -> __m512 {
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_NGE_UQ>(x, bound), bound, x) }
    }
    #[inline(always)]
    unsafe fn zero_below(x: __m512, limit: __m512, value: __m512) -> __m512 {
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, limit), value) }
    }
}

#[inline(always)]
fn mask(count: usize) -> __mmask16 {
    if count >= 16 { 0xffff } else { (1u16 << count) - 1 }
}

/// Sixteen rows of sixteen elements become columns.
///
/// # Safety
/// AVX-512 is there.
#[inline(always)]
pub(crate) unsafe fn transpose_16(rows: [__m512; 16]) -> [__m512; 16] {
    // SAFETY: the caller's promise.
    unsafe {
        // Pairs of neighbouring rows, then fours: each quarter holds four rows of one column.
        let mut fours = [_mm512_setzero_pd(); 16];
        for i in 0..4 {
            let [a, b, c, d] = [rows[4 * i], rows[4 * i + 1], rows[4 * i + 2], rows[4 * i + 3]];
            let (low_ab, high_ab) =
                (_mm512_castps_pd(_mm512_unpacklo_ps(a, b)), _mm512_castps_pd(_mm512_unpackhi_ps(a, b)));
            let (low_cd, high_cd) =
                (_mm512_castps_pd(_mm512_unpacklo_ps(c, d)), _mm512_castps_pd(_mm512_unpackhi_ps(c, d)));
            fours[4 * i] = _mm512_unpacklo_pd(low_ab, low_cd);
            fours[4 * i + 1] = _mm512_unpackhi_pd(low_ab, low_cd);
            fours[4 * i + 2] = _mm512_unpacklo_pd(high_ab, high_cd);
            fours[4 * i + 3] = _mm512_unpackhi_pd(high_ab, high_cd);
        }
        // Then quarters: even ones and odd ones, twice.
        let mut columns = [_mm512_setzero_ps(); 16];
        for j in 0..4 {
            let a = _mm512_castpd_ps(fours[j]);
            let b = _mm512_castpd_ps(fours[4 + j]);
            let c = _mm512_castpd_ps(fours[8 + j]);
            let d = _mm512_castpd_ps(fours[12 + j]);
            let (even_ab, odd_ab) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
            let (even_cd, odd_cd) = (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
            columns[j] = _mm512_shuffle_f32x4::<0x88>(even_ab, even_cd);
            columns[j + 4] = _mm512_shuffle_f32x4::<0x88>(odd_ab, odd_cd);
            columns[j + 8] = _mm512_shuffle_f32x4::<0xdd>(even_ab, even_cd);
            columns[j + 12] = _mm512_shuffle_f32x4::<0xdd>(odd_ab, odd_cd);
        }
        columns
    }
}
