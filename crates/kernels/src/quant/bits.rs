//! Codes of any width in AVX-512 registers, and what e4m3 codes stand for.

use std::arch::x86_64::*;

/// How 64 codes of any width become 64 bytes. With VBMI every eight codes, which are as many bytes as a code has bits,
/// are brought into a quadword of their own by one permutation and apart by one shift of bits.
pub(super) struct Bits {
    width: usize,
    bytes: [u8; 64],
    shifts: [u8; 64],
    words: Words,
}

/// The same without VBMI: every sixteen codes are brought into a quarter of the vector, there each with the byte after it
/// into sixteen bits of its own, those at even places apart from those at odd ones, and shifted into their byte of these.
struct Words {
    quarters: [u32; 16],
    even: [u8; 64],
    odd: [u8; 64],
    down: [u16; 32],
    up: [u16; 32],
}

impl Words {
    fn new(width: usize) -> Words {
        // The first bit of one of a quarter's codes; quarters begin with a whole lane of 32 bits.
        let bit = |quarter: usize, code: usize| quarter * 2 * width % 4 * 8 + code * width;
        let shuffle = |odd: usize| {
            std::array::from_fn(|i| {
                let at = bit(i / 16, i % 16 / 2 * 2 + odd) / 8 + i % 2;
                // A code that ends with the quarter has no byte after it; the top bit gives zero.
                if at < 16 { at as u8 } else { 0x80 }
            })
        };
        let shift = |i: usize, odd: usize| (bit(i / 8, i % 8 * 2 + odd) % 8) as u16;
        Words {
            quarters: std::array::from_fn(|i| (i / 4 * 2 * width / 4 + i % 4).min(15) as u32),
            even: shuffle(0),
            odd: shuffle(1),
            down: std::array::from_fn(|i| shift(i, 0)),
            up: std::array::from_fn(|i| 8 - shift(i, 1)),
        }
    }

    /// What belongs to neighbouring codes is above each of them.
    #[inline(always)]
    unsafe fn apart(&self, packed: __m512i) -> __m512i {
        // SAFETY: the path has AVX-512; the tables have 64 bytes each.
        unsafe {
            let table = |from: *const u8| _mm512_loadu_si512(from.cast());
            let quarters = _mm512_permutexvar_epi32(table(self.quarters.as_ptr().cast()), packed);
            let even = _mm512_shuffle_epi8(quarters, table(self.even.as_ptr()));
            let odd = _mm512_shuffle_epi8(quarters, table(self.odd.as_ptr()));
            let even = _mm512_srlv_epi16(even, table(self.down.as_ptr().cast()));
            let odd = _mm512_sllv_epi16(odd, table(self.up.as_ptr().cast()));
            _mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, even, odd)
        }
    }
}

impl Bits {
    pub(super) fn new(width: u32) -> Bits {
        let width = width as usize;
        Bits {
            width,
            // Bytes beyond the eight codes' own are shifted out or masked away.
            bytes: std::array::from_fn(|i| (i / 8 * width + (i % 8).min(width - 1)) as u8),
            shifts: std::array::from_fn(|i| (i % 8 * width) as u8),
            words: Words::new(width),
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
    /// The machine has AVX-512, and VBMI where it is asked for, and so many bytes (1 to 64) are readable.
    #[inline(always)]
    pub(super) unsafe fn unpack<const VBMI: bool>(&self, from: *const u8, bytes: usize) -> __m512i {
        // SAFETY: the masked load touches `bytes` bytes only; the tables have 64 bytes each.
        unsafe {
            let packed = _mm512_maskz_loadu_epi8(first(bytes), from.cast());
            let codes = if VBMI {
                let apart = _mm512_permutexvar_epi8(_mm512_loadu_si512(self.bytes.as_ptr().cast()), packed);
                _mm512_multishift_epi64_epi8(_mm512_loadu_si512(self.shifts.as_ptr().cast()), apart)
            } else if self.width == 8 {
                return packed;
            } else {
                self.words.apart(packed)
            };
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
