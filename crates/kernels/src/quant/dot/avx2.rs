//! Eight lanes of AVX2, with or without its int8 dot product.

use super::{Dot, Span, entry};
use crate::path::Path;
use crate::quant::layout::{Numbers, e2m1_codes};
use crate::quant::weight::{AsBf16, AsF16, AsF32, Elements, Stored, StoredAs};
use std::arch::x86_64::*;

/// Runs a span with the operations that its weight and layout ask for.
///
/// # Safety
/// The machine has what the product's path says, and the span's rows exist.
pub(super) unsafe fn span(span: &Span<'_>) {
    let (weight, lanes) = (span.product.weight, span.product.layout.lanes);
    let vnni = span.product.path == Path::AvxVnni;
    let signed = weight.elements == Elements::DoubledE2M1;
    let bits = || Bits::new(weight.scheme.bits());
    // SAFETY: the caller's promises.
    unsafe {
        match (lanes.per_lane, lanes.numbers, vnni) {
            (8, Numbers::Int8, false) => stored(span, IntNibbles::<false, false, false>),
            (8, Numbers::Int8, true) => stored_vnni(span, IntNibbles::<false, false, true>),
            (8, Numbers::Int8Shifted { .. }, false) if signed => {
                stored(span, IntNibbles::<true, true, false>);
            }
            (8, Numbers::Int8Shifted { .. }, true) if signed => {
                stored_vnni(span, IntNibbles::<true, true, true>);
            }
            (8, Numbers::Int8Shifted { .. }, false) => {
                stored(span, IntNibbles::<false, true, false>);
            }
            (8, Numbers::Int8Shifted { .. }, true) => {
                stored_vnni(span, IntNibbles::<false, true, true>);
            }
            (8, Numbers::F32, _) => stored(span, FloatNibbles { signed }),
            (_, Numbers::F32, _) => {
                stored(span, FloatBits { bits: &bits(), small: weight.elements == Elements::E4M3 });
            }
            (_, Numbers::Int8, false) => stored(span, IntBits::<false, false> { bits: &bits() }),
            (_, Numbers::Int8, true) => stored_vnni(span, IntBits::<false, true> { bits: &bits() }),
            (_, Numbers::Int8Shifted { .. }, false) => {
                stored(span, IntBits::<true, false> { bits: &bits() });
            }
            (_, Numbers::Int8Shifted { .. }, true) => {
                stored_vnni(span, IntBits::<true, true> { bits: &bits() });
            }
        }
    }
}

entry!(stored, rows, block, #[target_feature(enable = "avx2,fma,f16c")]);
entry!(stored_vnni, rows_vnni, block_vnni, #[target_feature(enable = "avx2,fma,f16c,avxvnni")]);

/// Reads up to four floats.
#[inline(always)]
unsafe fn four<S: StoredAs>(from: *const u8, count: usize) -> __m128 {
    // SAFETY: `count` floats are readable, and no more are read.
    unsafe {
        let raw = match count * S::SIZE {
            2 => _mm_cvtsi32_si128(i32::from(from.cast::<u16>().read_unaligned())),
            4 => _mm_cvtsi32_si128(from.cast::<i32>().read_unaligned()),
            8 => _mm_loadl_epi64(from.cast()),
            16 => _mm_loadu_si128(from.cast()),
            bytes => {
                let mut copy = [0u8; 16];
                std::ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), bytes);
                _mm_loadu_si128(copy.as_ptr().cast())
            }
        };
        match S::STORED {
            Stored::F32 => _mm_castsi128_ps(raw),
            Stored::F16 => _mm_cvtph_ps(raw),
            Stored::BF16 => _mm_castsi128_ps(_mm_slli_epi32::<16>(_mm_cvtepu16_epi32(raw))),
        }
    }
}

/// What all of AVX2's operations share.
macro_rules! lanes {
    () => {
        type Lanes = __m256;
        type Spread = __m256i;
        const LANES: usize = 8;

        #[inline(always)]
        unsafe fn spread(self, group_shift: u32) -> __m256i {
            let group_of = |lane: usize| ((lane * Self::PER_LANE) >> group_shift) as i32;
            let groups: [i32; 8] = std::array::from_fn(group_of);
            // SAFETY: reads the array's 32 bytes.
            unsafe { _mm256_loadu_si256(groups.as_ptr().cast()) }
        }

        #[inline(always)]
        unsafe fn scales<S: StoredAs>(self, from: *const u8, count: usize, spread: __m256i) -> __m256 {
            // SAFETY: as promised by the caller; a block of at most 64 values has at most four groups.
            unsafe { _mm256_permutevar8x32_ps(_mm256_castps128_ps256(four::<S>(from, count)), spread) }
        }

        const SCALES_READ: usize = 4;

        #[inline(always)]
        unsafe fn whole_scales<S: StoredAs>(self, from: *const u8, _: usize, spread: __m256i) -> __m256 {
            // SAFETY: four scales are readable, as promised by the caller.
            unsafe { self.scales::<S>(from, 4, spread) }
        }

        #[inline(always)]
        unsafe fn floats<S: StoredAs>(self, from: *const u8, count: usize) -> __m256 {
            // SAFETY: reads `count` floats only.
            unsafe {
                let low = four::<S>(from, count.min(4));
                let high =
                    if count > 4 { four::<S>(from.add(4 * S::SIZE), count - 4) } else { _mm_setzero_ps() };
                _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high)
            }
        }

        #[inline(always)]
        unsafe fn every(self, value: f32) -> __m256 {
            // SAFETY: the path has AVX2.
            unsafe { _mm256_set1_ps(value) }
        }

        #[inline(always)]
        unsafe fn zero(self) -> __m256 {
            // SAFETY: the path has AVX2.
            unsafe { _mm256_setzero_ps() }
        }

        #[inline(always)]
        unsafe fn multiply_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
            // SAFETY: the path has FMA.
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }

        #[inline(always)]
        unsafe fn sum(self, lanes: __m256) -> f32 {
            // SAFETY: the path has AVX2. The order is that of `four_sums`.
            unsafe {
                let pairs = _mm256_add_ps(lanes, _mm256_movehdup_ps(lanes));
                let fours = _mm256_add_ps(pairs, _mm256_shuffle_ps::<0b01_00_11_10>(pairs, pairs));
                _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps::<1>(fours)))
            }
        }

        #[inline(always)]
        unsafe fn four_sums(self, [a, b, c, d]: [__m256; 4]) -> [f32; 4] {
            let mut sums = [0.0; 4];
            // SAFETY: the path has AVX2; the array has 16 bytes.
            unsafe {
                let halves = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
                let whole = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves));
                _mm_storeu_ps(sums.as_mut_ptr(), whole);
            }
            sums
        }

        #[inline(always)]
        unsafe fn prefetch(self, from: *const u8) {
            // SAFETY: a prefetch of any address is harmless.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
        }
    };
}

/// A copy of a few bytes, with zeros after them.
#[inline(always)]
pub(super) unsafe fn padded(from: *const u8, bytes: usize) -> [u8; 32] {
    let mut copy = [0u8; 32];
    // SAFETY: so many bytes are readable, and a block has at most 32.
    unsafe { std::ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), bytes) };
    copy
}

/// Nibbles against bytes: low ones with the even values, high ones with the odd ones. `E2M1` looks up such
/// numbers; `STARTS` takes what sums begin with from the activations.
#[derive(Clone, Copy)]
struct IntNibbles<const E2M1: bool, const STARTS: bool, const VNNI: bool>;

impl<const E2M1: bool, const STARTS: bool, const VNNI: bool> Dot for IntNibbles<E2M1, STARTS, VNNI> {
    type Codes = (__m256i, __m256i);
    const PER_LANE: usize = 8;
    const X_BYTES: usize = if STARTS { 128 } else { 96 };
    lanes!();

    #[inline(always)]
    fn code_bytes(self) -> usize {
        32
    }

    #[inline(always)]
    fn read_bytes(self) -> usize {
        32
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> Self::Codes {
        // SAFETY: 32 bytes are readable.
        unsafe {
            let packed = _mm256_loadu_si256(from.cast());
            let mask = _mm256_set1_epi8(15);
            let low = _mm256_and_si256(packed, mask);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(packed), mask);
            if !E2M1 {
                return (low, high);
            }
            let table = e2m1_codes();
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            (_mm256_shuffle_epi8(table, low), _mm256_shuffle_epi8(table, high))
        }
    }

    #[inline(always)]
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> Self::Codes {
        // SAFETY: so many bytes are readable, and the copy has 32.
        unsafe { self.codes(padded(from, bytes).as_ptr()) }
    }

    #[inline(always)]
    unsafe fn products(self, (low, high): Self::Codes, x: *const u8) -> __m256 {
        // SAFETY: a block of activations has two vectors of bytes, one of scales and perhaps one of starts.
        unsafe {
            let (even, odd) = (_mm256_loadu_si256(x.cast()), _mm256_loadu_si256(x.add(32).cast()));
            let start = if STARTS { _mm256_loadu_si256(x.add(96).cast()) } else { _mm256_setzero_si256() };
            let sums = if VNNI {
                _mm256_dpbusd_avx_epi32(_mm256_dpbusd_avx_epi32(start, low, even), high, odd)
            } else {
                // Four products of at most 24 * 127 fit 16 bits.
                let pairs =
                    _mm256_add_epi16(_mm256_maddubs_epi16(low, even), _mm256_maddubs_epi16(high, odd));
                let sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
                if STARTS { _mm256_add_epi32(sums, start) } else { sums }
            };
            _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_loadu_ps(x.add(64).cast()))
        }
    }
}

/// Nibbles against f32. `signed` looks up e2m1 numbers.
#[derive(Clone, Copy)]
struct FloatNibbles {
    signed: bool,
}

impl Dot for FloatNibbles {
    type Codes = __m256i;
    const PER_LANE: usize = 8;
    const X_BYTES: usize = 256;
    lanes!();

    #[inline(always)]
    fn code_bytes(self) -> usize {
        32
    }

    #[inline(always)]
    fn read_bytes(self) -> usize {
        32
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> __m256i {
        // SAFETY: 32 bytes are readable.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> __m256i {
        // SAFETY: so many bytes are readable, and the copy has 32.
        unsafe { self.codes(padded(from, bytes).as_ptr()) }
    }

    #[inline(always)]
    unsafe fn products(self, codes: __m256i, x: *const u8) -> __m256 {
        // SAFETY: a block of activations has eight vectors.
        unsafe {
            let magnitudes = _mm256_setr_ps(0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0);
            let value = |codes: __m256i| {
                if self.signed {
                    // The permutation looks at three bits, the fourth is the sign.
                    let sign = _mm256_and_si256(_mm256_slli_epi32::<28>(codes), _mm256_set1_epi32(i32::MIN));
                    let magnitude = _mm256_permutevar8x32_ps(magnitudes, codes);
                    _mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign))
                } else {
                    _mm256_cvtepi32_ps(_mm256_and_si256(codes, _mm256_set1_epi32(15)))
                }
            };
            let x = |plane: usize| _mm256_loadu_ps(x.add(32 * plane).cast());
            let mut even = _mm256_mul_ps(value(codes), x(0));
            let mut odd = _mm256_mul_ps(value(_mm256_srli_epi32::<4>(codes)), x(1));
            even = _mm256_fmadd_ps(value(_mm256_srli_epi32::<8>(codes)), x(2), even);
            odd = _mm256_fmadd_ps(value(_mm256_srli_epi32::<12>(codes)), x(3), odd);
            even = _mm256_fmadd_ps(value(_mm256_srli_epi32::<16>(codes)), x(4), even);
            odd = _mm256_fmadd_ps(value(_mm256_srli_epi32::<20>(codes)), x(5), odd);
            even = _mm256_fmadd_ps(value(_mm256_srli_epi32::<24>(codes)), x(6), even);
            odd = _mm256_fmadd_ps(value(_mm256_srli_epi32::<28>(codes)), x(7), odd);
            _mm256_add_ps(even, odd)
        }
    }
}

/// How 32 codes of any width become 32 bytes: each is shuffled with its neighbouring byte into 16 bits of its
/// own, moved up by a multiplication until it ends at the top, and moved down.
pub(super) struct Bits {
    width: usize,
    /// For the 16 bytes from the start of 16 codes.
    bytes: [u8; 32],
    factors: [u16; 16],
}

impl Bits {
    pub(super) fn new(width: u32) -> Bits {
        let width = width as usize;
        let byte = |i: usize| {
            let at = i / 2 * width / 8 + i % 2;
            // Codes do not reach into a byte that is not theirs; all ones in the top bit gives zero.
            if at < 16 { at as u8 } else { 0x80 }
        };
        Bits {
            width,
            bytes: std::array::from_fn(byte),
            factors: std::array::from_fn(|j| 1 << (16 - width - j * width % 8)),
        }
    }

    #[inline(always)]
    unsafe fn sixteen(&self, from: *const u8) -> __m256i {
        // SAFETY: 16 bytes are readable; the tables have 32 bytes each.
        unsafe {
            let packed = _mm256_broadcastsi128_si256(_mm_loadu_si128(from.cast()));
            let apart = _mm256_shuffle_epi8(packed, _mm256_loadu_si256(self.bytes.as_ptr().cast()));
            let up = _mm256_mullo_epi16(apart, _mm256_loadu_si256(self.factors.as_ptr().cast()));
            _mm256_srl_epi16(up, _mm_cvtsi64_si128(16 - self.width as i64))
        }
    }

    #[inline(always)]
    pub(super) unsafe fn unpack(&self, from: *const u8) -> __m256i {
        // SAFETY: `read_bytes` bytes are readable.
        unsafe {
            let packed = _mm256_packus_epi16(self.sixteen(from), self.sixteen(from.add(2 * self.width)));
            _mm256_permute4x64_epi64::<0b11_01_10_00>(packed)
        }
    }

    #[inline(always)]
    pub(super) fn read_bytes(&self) -> usize {
        2 * self.width + 16
    }
}

/// Codes of any width against bytes. `STARTS` takes what sums begin with from the activations.
#[derive(Clone, Copy)]
struct IntBits<'a, const STARTS: bool, const VNNI: bool> {
    bits: &'a Bits,
}

impl<const STARTS: bool, const VNNI: bool> Dot for IntBits<'_, STARTS, VNNI> {
    type Codes = __m256i;
    const PER_LANE: usize = 4;
    const X_BYTES: usize = if STARTS { 96 } else { 64 };
    lanes!();

    #[inline(always)]
    fn code_bytes(self) -> usize {
        4 * self.bits.width
    }

    #[inline(always)]
    fn read_bytes(self) -> usize {
        self.bits.read_bytes()
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> __m256i {
        // SAFETY: as promised by the caller.
        unsafe { self.bits.unpack(from) }
    }

    #[inline(always)]
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> __m256i {
        // SAFETY: so many bytes are readable, and the copy has 32.
        unsafe { self.bits.unpack(padded(from, bytes).as_ptr()) }
    }

    #[inline(always)]
    unsafe fn products(self, codes: __m256i, x: *const u8) -> __m256 {
        // SAFETY: a block of activations has a vector of bytes, one of scales and perhaps one of starts.
        unsafe {
            let quants = _mm256_loadu_si256(x.cast());
            let start = if STARTS { _mm256_loadu_si256(x.add(64).cast()) } else { _mm256_setzero_si256() };
            let sums = if VNNI {
                _mm256_dpbusd_avx_epi32(start, codes, quants)
            } else if self.bits.width < 8 {
                // Two products of at most 63 * 127 fit 16 bits.
                _mm256_madd_epi16(_mm256_maddubs_epi16(codes, quants), _mm256_set1_epi16(1))
            } else {
                // Two products of 255 * 127 do not: halves of the codes, the upper ones counted sixteenfold.
                let mask = _mm256_set1_epi8(15);
                let low = _mm256_and_si256(codes, mask);
                let high = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), mask);
                let low = _mm256_madd_epi16(_mm256_maddubs_epi16(low, quants), _mm256_set1_epi16(1));
                let high = _mm256_madd_epi16(_mm256_maddubs_epi16(high, quants), _mm256_set1_epi16(16));
                _mm256_add_epi32(low, high)
            };
            let sums = if STARTS && !VNNI { _mm256_add_epi32(sums, start) } else { sums };
            _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_loadu_ps(x.add(32).cast()))
        }
    }
}

/// Codes of any width, or e4m3 numbers, against f32.
#[derive(Clone, Copy)]
struct FloatBits<'a> {
    bits: &'a Bits,
    small: bool,
}

impl Dot for FloatBits<'_> {
    type Codes = __m256i;
    const PER_LANE: usize = 4;
    const X_BYTES: usize = 128;
    lanes!();

    #[inline(always)]
    fn code_bytes(self) -> usize {
        4 * self.bits.width
    }

    #[inline(always)]
    fn read_bytes(self) -> usize {
        self.bits.read_bytes()
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> __m256i {
        // SAFETY: as promised by the caller.
        unsafe { self.bits.unpack(from) }
    }

    #[inline(always)]
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> __m256i {
        // SAFETY: so many bytes are readable, and the copy has 32.
        unsafe { self.bits.unpack(padded(from, bytes).as_ptr()) }
    }

    #[inline(always)]
    unsafe fn products(self, codes: __m256i, x: *const u8) -> __m256 {
        // SAFETY: a block of activations has four vectors.
        unsafe {
            let value = |codes| {
                let code = _mm256_and_si256(codes, _mm256_set1_epi32(255));
                if self.small { e4m3(code) } else { _mm256_cvtepi32_ps(code) }
            };
            let x = |plane: usize| _mm256_loadu_ps(x.add(32 * plane).cast());
            let even = _mm256_mul_ps(value(codes), x(0));
            let odd = _mm256_mul_ps(value(_mm256_srli_epi32::<8>(codes)), x(1));
            let even = _mm256_fmadd_ps(value(_mm256_srli_epi32::<16>(codes)), x(2), even);
            let odd = _mm256_fmadd_ps(value(_mm256_srli_epi32::<24>(codes)), x(3), odd);
            _mm256_add_ps(even, odd)
        }
    }
}

/// e4m3fn numbers from their codes in 32 bits: exponent and mantissa moved to their places in f32, whose
/// exponent has a bias larger by 120.
#[inline(always)]
unsafe fn e4m3(code: __m256i) -> __m256 {
    // SAFETY: the path has AVX2.
    unsafe {
        let magnitude = _mm256_and_si256(code, _mm256_set1_epi32(0x7f));
        let sign = _mm256_slli_epi32::<24>(_mm256_and_si256(code, _mm256_set1_epi32(0x80)));
        let number = _mm256_castsi256_ps(_mm256_slli_epi32::<20>(magnitude));
        let number = _mm256_mul_ps(number, _mm256_set1_ps(f32::from_bits((127 + 120) << 23)));
        // All ones where the code is that of NaN, which is a NaN.
        let is_nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x7f));
        _mm256_or_ps(number, _mm256_castsi256_ps(_mm256_or_si256(is_nan, sign)))
    }
}
