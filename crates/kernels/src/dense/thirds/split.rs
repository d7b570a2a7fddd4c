//! A vector of f32 as three of bf16.

use super::PARTS;
use std::arch::x86_64::*;

/// Three vectors whose upper halves are the parts; what is below them is anything.
type Halves = [__m512i; PARTS];

/// Each part is what is left, without its lower half; of the last nothing is left.
///
/// # Safety
/// AVX-512 is there.
#[inline(always)]
pub(crate) unsafe fn halves(value: __m512) -> Halves {
    // SAFETY: the caller's promise.
    unsafe {
        let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
        let rest = |value: __m512| {
            let part = _mm512_and_si512(_mm512_castps_si512(value), upper);
            _mm512_sub_ps(value, _mm512_castsi512_ps(part))
        };
        let second = rest(value);
        [value, second, rest(second)].map(|part| _mm512_castps_si512(part))
    }
}

/// The upper halves of two vectors as pairs, as tiles have them.
///
/// # Safety
/// AVX-512 is there.
#[inline(always)]
pub(crate) unsafe fn pair(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(a), b) }
}
