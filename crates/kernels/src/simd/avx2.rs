//! Eight f32 in a register of AVX2, with FMA and F16C.

use super::Simd;
use std::arch::x86_64::*;

/// AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

// SAFETY (all functions): the trait's contract is that of the intrinsics: the instruction set is there, and
// `LANES` elements lie at the pointer; masked loads and stores touch only the elements of their mask.
impl Simd for Avx2 {
    const LANES: usize = 8;
    const ACCUMULATORS: usize = 12;
    type F = __m256;

    #[inline(always)]
    unsafe fn load(at: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(at) }
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const half::f16) -> __m256 {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const half::bf16) -> __m256 {
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn store(at: *mut f32, value: __m256) {
        unsafe { _mm256_storeu_ps(at, value) }
    }
    #[inline(always)]
    unsafe fn store_f16(at: *mut half::f16, value: __m256) {
        unsafe { _mm_storeu_si128(at.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value)) }
    }
    #[inline(always)]
    unsafe fn store_bf16(at: *mut half::bf16, value: __m256) {
        unsafe {
            let bits = _mm256_castps_si256(value);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(value, value));
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
            let kept = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan));
            let packed = _mm256_packus_epi32(kept, kept);
            let packed = _mm256_permute4x64_epi64::<0b1000>(packed);
            _mm_storeu_si128(at.cast(), _mm256_castsi256_si128(packed));
        }
    }
    #[inline(always)]
    unsafe fn load_first(at: *const f32, count: usize) -> __m256 {
        unsafe { _mm256_maskload_ps(at, mask(count)) }
    }
    #[inline(always)]
    unsafe fn store_first(at: *mut f32, value: __m256, count: usize) {
        unsafe { _mm256_maskstore_ps(at, mask(count), value) }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> __m256 {
        unsafe { _mm256_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sum(a: __m256) -> f32 {
        unsafe {
            let halves = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let pairs = _mm_add_ps(halves, _mm_movehl_ps(halves, halves));
            _mm_cvtss_f32(_mm_add_ss(pairs, _mm_movehdup_ps(pairs)))
        }
    }
    #[inline(always)]
    unsafe fn sum4(a: [__m256; 4]) -> [f32; 4] {
        unsafe {
            let pairs = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
            let sums = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
            let mut out = [0.0; 4];
            _mm_storeu_ps(out.as_mut_ptr(), sums);
            out
        }
    }
    #[inline(always)]
    unsafe fn largest(a: __m256) -> f32 {
        unsafe {
            let halves = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let pairs = _mm_max_ps(halves, _mm_movehl_ps(halves, halves));
            _mm_cvtss_f32(_mm_max_ss(pairs, _mm_movehdup_ps(pairs)))
        }
    }
    #[inline(always)]
    unsafe fn power_of_two(a: __m256) -> __m256 {
        unsafe {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        }
    }
    #[inline(always)]
    unsafe fn round(a: __m256) -> __m256 {
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
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
    unsafe fn at_least(x: __m256, bound: __m256) -> __m256 {
        unsafe { _mm256_blendv_ps(bound, x, _mm256_cmp_ps::<_CMP_NLE_UQ>(x, bound)) }
    }
    #[inline(always)]
    unsafe fn at_most(x: __m256, bound: __m256) -> __m256 {
        unsafe { _mm256_blendv_ps(bound, x, _mm256_cmp_ps::<_CMP_NGE_UQ>(x, bound)) }
    }
    #[inline(always)]
    unsafe fn zero_below(x: __m256, limit: __m256, value: __m256) -> __m256 {
        unsafe { _mm256_and_ps(_mm256_cmp_ps::<_CMP_NLT_UQ>(x, limit), value) }
    }
}

#[inline(always)]
unsafe fn mask(count: usize) -> __m256i {
    // SAFETY: as the caller's.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(count.min(8) as i32), lanes)
    }
}
