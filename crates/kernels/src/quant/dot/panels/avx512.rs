//! Sixteen rows of the weight in the lanes of AVX-512.

use super::{Lanes, Work};
use std::arch::x86_64::*;

/// Rows of activations whose sums, whole and scaled, fit into the registers.
const ROWS: usize = 8;

/// Runs all rows of activations.
///
/// # Safety
/// The machine has AVX-512 with VNNI, and the work's rows exist.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn run(work: &Work<'_>) {
    // SAFETY: the caller's promises.
    unsafe { work.rows::<Sixteen, ROWS>(Sixteen) }
}

#[derive(Clone, Copy)]
struct Sixteen;

impl Lanes for Sixteen {
    type Whole = __m512i;
    type Float = __m512;
    const LANES: usize = 16;

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
    unsafe fn add_four(self, sum: __m512i, codes: *const u8, x: *const u8) -> __m512i {
        // SAFETY: a vector of codes and four bytes are readable.
        unsafe {
            let x = _mm512_set1_epi32(x.cast::<i32>().read_unaligned());
            _mm512_dpbusd_epi32(sum, _mm512_loadu_si512(codes.cast()), x)
        }
    }

    #[inline(always)]
    unsafe fn add_eight(self, sum: __m512i, codes: [*const u8; 2], x: [*const u8; 2]) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { self.add_four(self.add_four(sum, codes[0], x[0]), codes[1], x[1]) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: sixteen floats are readable.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn scaled(self, to: __m512, sum: __m512i, scale: __m512, x: *const f32) -> __m512 {
        // SAFETY: a float is readable.
        unsafe { _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, _mm512_set1_ps(*x)), to) }
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
}
