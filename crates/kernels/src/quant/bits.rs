//! Codes of any width in AVX-512 registers, and what e4m3 codes stand for.

use std::arch::x86_64::*;

/// How 64 codes of any width become 64 bytes: every eight codes are as many bytes as a code has bits, which
/// one permutation brings into a quadword of their own and one shift by bits brings apart.
pub(super) struct Bits {
    width: usize,
    bytes: [u8; 64],
    shifts: [u8; 64],
}

impl Bits {
    pub(super) fn new(width: u32) -> Bits {
        let width = width as usize;
        Bits {
            width,
            // Bytes beyond the eight codes' own are shifted out or masked away.
            bytes: std::array::from_fn(|i| (i / 8 * width + (i % 8).min(width - 1)) as u8),
            shifts: std::array::from_fn(|i| (i % 8 * width) as u8),
        }
    }

    /// Bits of a code.
    #[inline(always)]
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Unpacks as many codes as so many bytes hold; the rest are zero.
    ///
    /// # Safety
    /// The machine has AVX-512 with VBMI, and so many bytes (1 to 64) are readable.
    #[inline(always)]
    pub(super) unsafe fn unpack(&self, from: *const u8, bytes: usize) -> __m512i {
        // SAFETY: the masked load touches `bytes` bytes only; the tables have 64 bytes each.
        unsafe {
            let packed = _mm512_maskz_loadu_epi8(first(bytes), from.cast());
            let apart = _mm512_permutexvar_epi8(_mm512_loadu_si512(self.bytes.as_ptr().cast()), packed);
            let codes = _mm512_multishift_epi64_epi8(_mm512_loadu_si512(self.shifts.as_ptr().cast()), apart);
            _mm512_and_si512(codes, _mm512_set1_epi8((0xffu32 >> (8 - self.width)) as i8))
        }
    }
}

/// A mask of the first so many bytes of 64.
#[inline(always)]
pub(super) fn first(bytes: usize) -> __mmask64 {
    u64::MAX >> (64 - bytes)
}

/// e4m3fn numbers from their codes in 32 bits: exponent and mantissa moved to their places in f32, whose
/// exponent has a bias larger by 120.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
pub(super) unsafe fn e4m3(code: __m512i) -> __m512 {
    // SAFETY: the path has AVX-512.
    unsafe {
        let magnitude = _mm512_and_si512(code, _mm512_set1_epi32(0x7f));
        let sign = _mm512_slli_epi32::<24>(_mm512_and_si512(code, _mm512_set1_epi32(0x80)));
        let number = _mm512_castsi512_ps(_mm512_slli_epi32::<20>(magnitude));
        let number = _mm512_mul_ps(number, _mm512_set1_ps(f32::from_bits((127 + 120) << 23)));
        let is_nan = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(0x7f));
        let number = _mm512_mask_mov_ps(number, is_nan, _mm512_set1_ps(f32::NAN));
        _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(number), sign))
    }
}
