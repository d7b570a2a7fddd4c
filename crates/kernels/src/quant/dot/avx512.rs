//! Sixteen lanes of AVX-512, with or without its int8 dot product and its byte permutations.

use super::{Dot, Span, entry};
use crate::path::Path;
use crate::quant::bits::{Bits, e4m3, first};
use crate::quant::layout::{Numbers, e2m1_codes};
use crate::quant::weight::{AsBf16, AsF16, AsF32, Elements, Stored, StoredAs, element};
use std::arch::x86_64::*;

/// Runs a span with the operations that its weight and layout ask for.
///
/// # Safety
/// The machine has what the product's path says, and the span's rows exist.
pub(super) unsafe fn span(span: &Span<'_>) {
    let path = span.product.path;
    // SAFETY: the caller's promises; only the narrowest path has no int8 dot product.
    unsafe {
        match (path == Path::Avx512Bw, path.has_vbmi()) {
            (true, _) => on_bw(span),
            (_, false) => on_vnni(span),
            (_, true) => on_vbmi(span),
        }
    }
}

/// Functions that choose the operations for a span on one path.
macro_rules! choice {
    ($choice:ident, $stored:ident, $vnni:literal, $vbmi:literal) => {
        unsafe fn $choice(span: &Span<'_>) {
            let (weight, lanes) = (span.product.weight, span.product.layout.lanes);
            let bits = || Bits::new(weight.scheme.bits());
            // SAFETY: the caller's promises.
            unsafe {
                match (lanes.per_lane, lanes.numbers) {
                    (8, Numbers::Int8) => $stored(span, IntNibbles::<false, false, $vnni>),
                    (8, Numbers::Int8Shifted { .. }) if weight.elements == Elements::Unsigned => {
                        $stored(span, IntNibbles::<false, true, $vnni>);
                    }
                    (8, Numbers::Int8Shifted { .. }) => $stored(span, IntNibbles::<true, true, $vnni>),
                    (8, Numbers::F32) => {
                        let table = std::array::from_fn(|code| element(weight.elements, code as u8));
                        $stored(span, FloatNibbles { table: &table });
                    }
                    (_, Numbers::F32) => {
                        let small = weight.elements == Elements::E4M3;
                        $stored(span, FloatBits::<$vbmi> { bits: &bits(), small });
                    }
                    (_, Numbers::Int8) => $stored(span, IntBits::<false, $vnni, $vbmi> { bits: &bits() }),
                    (_, Numbers::Int8Shifted { .. }) => {
                        $stored(span, IntBits::<true, $vnni, $vbmi> { bits: &bits() });
                    }
                }
            }
        }
    };
}

choice!(on_bw, stored_bw, false, false);
choice!(on_vnni, stored_vnni, true, false);
choice!(on_vbmi, stored_vbmi, true, true);

entry!(stored_bw, rows_bw, block_bw, #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]);
entry!(stored_vnni, rows_vnni, block_vnni, #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]);
entry!(stored_vbmi, rows_vbmi, block_vbmi, #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma,f16c")]);

/// Reads up to eight floats.
#[inline(always)]
unsafe fn eight<S: StoredAs>(from: *const u8, count: usize) -> __m256 {
    let mask = ((1u32 << count) - 1) as __mmask8;
    // SAFETY: masked loads touch `count` elements only, which the caller says are readable.
    unsafe {
        match S::STORED {
            Stored::F32 => _mm256_maskz_loadu_ps(mask, from.cast()),
            Stored::F16 => _mm256_cvtph_ps(_mm_maskz_loadu_epi16(mask, from.cast())),
            Stored::BF16 => {
                let wide = _mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(mask, from.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            }
        }
    }
}

/// Which scale of a block belongs to which lane: by its number, and as the bytes of bf16 in the upper half of
/// a lane.
#[derive(Clone, Copy)]
struct Spread {
    groups: __m512i,
    bytes: __m512i,
}

impl Spread {
    #[inline(always)]
    unsafe fn new(per_lane: usize, group_shift: u32) -> Spread {
        let groups: [i32; 16] = std::array::from_fn(|lane| ((lane * per_lane) >> group_shift) as i32);
        let bytes: [u8; 64] = std::array::from_fn(|at| match at % 4 {
            0 | 1 => 0x80,
            half => (2 * groups[at / 4]) as u8 + half as u8 - 2,
        });
        // SAFETY: reads the arrays' 64 bytes.
        unsafe {
            Spread {
                groups: _mm512_loadu_si512(groups.as_ptr().cast()),
                bytes: _mm512_loadu_si512(bytes.as_ptr().cast()),
            }
        }
    }

    /// The `count` scales at a place, each in its lanes.
    #[inline(always)]
    unsafe fn scales<S: StoredAs>(self, from: *const u8, count: usize) -> __m512 {
        // SAFETY: `count` scales are readable, and no more are read.
        unsafe { _mm512_permutexvar_ps(self.groups, _mm512_castps256_ps512(eight::<S>(from, count))) }
    }

    /// The first of eight scales at a place, each in its lanes. Loads that repeat what they read cost no operation, so that
    /// bf16 takes one.
    #[inline(always)]
    unsafe fn of_eight<S: StoredAs>(self, from: *const u8) -> __m512 {
        // SAFETY: eight scales are readable.
        unsafe {
            let eight = match S::STORED {
                Stored::F32 => _mm256_loadu_ps(from.cast()),
                Stored::F16 => _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
                Stored::BF16 => {
                    let repeated = _mm512_broadcast_i32x4(_mm_loadu_si128(from.cast()));
                    return _mm512_castsi512_ps(_mm512_shuffle_epi8(repeated, self.bytes));
                }
            };
            _mm512_permutexvar_ps(self.groups, _mm512_castps256_ps512(eight))
        }
    }
}

/// What all of AVX-512's operations share.
macro_rules! lanes {
    () => {
        type Lanes = __m512;
        type Spread = Spread;
        const LANES: usize = 16;
        const BESIDE: usize = 2;

        #[inline(always)]
        unsafe fn spread(self, group_shift: u32) -> Spread {
            // SAFETY: the path has AVX-512.
            unsafe { Spread::new(Self::PER_LANE, group_shift) }
        }

        #[inline(always)]
        unsafe fn scales<S: StoredAs>(self, from: *const u8, count: usize, spread: Spread) -> __m512 {
            // SAFETY: as promised by the caller.
            unsafe { spread.scales::<S>(from, count) }
        }

        const SCALES_READ: usize = 8;

        #[inline(always)]
        unsafe fn whole_scales<S: StoredAs>(self, from: *const u8, _: usize, spread: Spread) -> __m512 {
            // SAFETY: eight scales are readable, as promised by the caller.
            unsafe { spread.of_eight::<S>(from) }
        }

        #[inline(always)]
        unsafe fn floats<S: StoredAs>(self, from: *const u8, count: usize) -> __m512 {
            let mask = ((1u32 << count) - 1) as __mmask16;
            // SAFETY: masked loads touch `count` elements only.
            unsafe {
                match S::STORED {
                    Stored::F32 => _mm512_maskz_loadu_ps(mask, from.cast()),
                    Stored::F16 => _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast())),
                    Stored::BF16 => {
                        let wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from.cast()));
                        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
                    }
                }
            }
        }

        #[inline(always)]
        unsafe fn every(self, value: f32) -> __m512 {
            // SAFETY: the path has AVX-512.
            unsafe { _mm512_set1_ps(value) }
        }

        #[inline(always)]
        unsafe fn zero(self) -> __m512 {
            // SAFETY: the path has AVX-512.
            unsafe { _mm512_setzero_ps() }
        }

        #[inline(always)]
        unsafe fn multiply_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: the path has AVX-512.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }

        #[inline(always)]
        unsafe fn sum(self, lanes: __m512) -> f32 {
            // SAFETY: the path has AVX-512. The order is that of `four_sums`.
            unsafe {
                let halves = _mm512_add_ps(lanes, _mm512_shuffle_ps::<0b01_00_11_10>(lanes, lanes));
                let quarters = _mm512_add_ps(halves, _mm512_shuffle_ps::<0b10_11_00_01>(halves, halves));
                let eight =
                    _mm256_add_ps(_mm512_castps512_ps256(quarters), _mm512_extractf32x8_ps::<1>(quarters));
                _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight)))
            }
        }

        #[inline(always)]
        unsafe fn four_sums(self, [a, b, c, d]: [__m512; 4]) -> [f32; 4] {
            let mut sums = [0.0; 4];
            // SAFETY: the path has AVX-512; the array has 16 bytes.
            unsafe {
                let ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
                let cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
                let (ab, cd) = (_mm512_castps_pd(ab), _mm512_castps_pd(cd));
                let low = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
                let high = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
                let quarters = _mm512_add_ps(low, high);
                let halves =
                    _mm256_add_ps(_mm512_castps512_ps256(quarters), _mm512_extractf32x8_ps::<1>(quarters));
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

/// Nibbles against bytes: low ones with the even values, high ones with the odd ones. `E2M1` looks up such
/// numbers; `STARTS` takes what sums begin with from the activations.
#[derive(Clone, Copy)]
struct IntNibbles<const E2M1: bool, const STARTS: bool, const VNNI: bool>;

impl<const E2M1: bool, const STARTS: bool, const VNNI: bool> IntNibbles<E2M1, STARTS, VNNI> {
    #[inline(always)]
    unsafe fn split(self, packed: __m512i) -> (__m512i, __m512i) {
        // SAFETY: the path has AVX-512.
        unsafe {
            let mask = _mm512_set1_epi8(15);
            let low = _mm512_and_si512(packed, mask);
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(packed), mask);
            if !E2M1 {
                return (low, high);
            }
            let table = e2m1_codes();
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            (_mm512_shuffle_epi8(table, low), _mm512_shuffle_epi8(table, high))
        }
    }
}

impl<const E2M1: bool, const STARTS: bool, const VNNI: bool> Dot for IntNibbles<E2M1, STARTS, VNNI> {
    type Codes = (__m512i, __m512i);
    const PER_LANE: usize = 8;
    const X_BYTES: usize = if STARTS { 256 } else { 192 };
    lanes!();

    #[inline(always)]
    fn code_bytes(self) -> usize {
        64
    }

    #[inline(always)]
    fn read_bytes(self) -> usize {
        64
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> Self::Codes {
        // SAFETY: 64 bytes are readable.
        unsafe { self.split(_mm512_loadu_si512(from.cast())) }
    }

    #[inline(always)]
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> Self::Codes {
        // SAFETY: the masked load touches `bytes` bytes only.
        unsafe { self.split(_mm512_maskz_loadu_epi8(first(bytes), from.cast())) }
    }

    #[inline(always)]
    unsafe fn products(self, (low, high): Self::Codes, x: *const u8) -> __m512 {
        // SAFETY: a block of activations has two vectors of bytes, one of scales and perhaps one of starts.
        unsafe {
            let (even, odd) = (_mm512_loadu_si512(x.cast()), _mm512_loadu_si512(x.add(64).cast()));
            let start = if STARTS { _mm512_loadu_si512(x.add(192).cast()) } else { _mm512_setzero_si512() };
            let sums = if VNNI {
                _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start, low, even), high, odd)
            } else {
                // Four products of at most 24 * 127 fit 16 bits.
                let pairs =
                    _mm512_add_epi16(_mm512_maddubs_epi16(low, even), _mm512_maddubs_epi16(high, odd));
                let sums = _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
                if STARTS { _mm512_add_epi32(sums, start) } else { sums }
            };
            _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_loadu_ps(x.add(128).cast()))
        }
    }
}

/// Nibbles against f32, by looking each up among sixteen floats.
#[derive(Clone, Copy)]
struct FloatNibbles<'a> {
    table: &'a [f32; 16],
}

impl Dot for FloatNibbles<'_> {
    type Codes = __m512i;
    const PER_LANE: usize = 8;
    const X_BYTES: usize = 512;
    lanes!();

    #[inline(always)]
    fn code_bytes(self) -> usize {
        64
    }

    #[inline(always)]
    fn read_bytes(self) -> usize {
        64
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> __m512i {
        // SAFETY: 64 bytes are readable.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> __m512i {
        // SAFETY: the masked load touches `bytes` bytes only.
        unsafe { _mm512_maskz_loadu_epi8(first(bytes), from.cast()) }
    }

    #[inline(always)]
    unsafe fn products(self, codes: __m512i, x: *const u8) -> __m512 {
        // SAFETY: a block of activations has eight vectors. The permutation looks at four bits of each lane,
        // so that shifting alone selects a nibble.
        unsafe {
            let table = _mm512_loadu_ps(self.table.as_ptr());
            let value = |codes| _mm512_permutexvar_ps(codes, table);
            let x = |plane: usize| _mm512_loadu_ps(x.add(64 * plane).cast());
            let mut even = _mm512_mul_ps(value(codes), x(0));
            let mut odd = _mm512_mul_ps(value(_mm512_srli_epi32::<4>(codes)), x(1));
            even = _mm512_fmadd_ps(value(_mm512_srli_epi32::<8>(codes)), x(2), even);
            odd = _mm512_fmadd_ps(value(_mm512_srli_epi32::<12>(codes)), x(3), odd);
            even = _mm512_fmadd_ps(value(_mm512_srli_epi32::<16>(codes)), x(4), even);
            odd = _mm512_fmadd_ps(value(_mm512_srli_epi32::<20>(codes)), x(5), odd);
            even = _mm512_fmadd_ps(value(_mm512_srli_epi32::<24>(codes)), x(6), even);
            odd = _mm512_fmadd_ps(value(_mm512_srli_epi32::<28>(codes)), x(7), odd);
            _mm512_add_ps(even, odd)
        }
    }
}

/// Codes of any width against bytes. `STARTS` takes what sums begin with from the activations.
#[derive(Clone, Copy)]
struct IntBits<'a, const STARTS: bool, const VNNI: bool, const VBMI: bool> {
    bits: &'a Bits,
}

impl<const STARTS: bool, const VNNI: bool, const VBMI: bool> Dot for IntBits<'_, STARTS, VNNI, VBMI> {
    type Codes = __m512i;
    const PER_LANE: usize = 4;
    const X_BYTES: usize = if STARTS { 192 } else { 128 };
    lanes!();

    #[inline(always)]
    fn code_bytes(self) -> usize {
        8 * self.bits.width()
    }

    #[inline(always)]
    fn read_bytes(self) -> usize {
        8 * self.bits.width()
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> __m512i {
        // SAFETY: a block's bytes are readable.
        unsafe { self.bits.unpack::<VBMI>(from, self.code_bytes()) }
    }

    #[inline(always)]
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> __m512i {
        // SAFETY: so many bytes are readable.
        unsafe { self.bits.unpack::<VBMI>(from, bytes) }
    }

    #[inline(always)]
    unsafe fn products(self, codes: __m512i, x: *const u8) -> __m512 {
        // SAFETY: a block of activations has a vector of bytes, one of scales and perhaps one of starts.
        unsafe {
            let quants = _mm512_loadu_si512(x.cast());
            let start = if STARTS { _mm512_loadu_si512(x.add(128).cast()) } else { _mm512_setzero_si512() };
            let sums = if VNNI {
                _mm512_dpbusd_epi32(start, codes, quants)
            } else if self.bits.width() < 8 {
                // Two products of at most 127 * 127 fit 16 bits.
                _mm512_madd_epi16(_mm512_maddubs_epi16(codes, quants), _mm512_set1_epi16(1))
            } else {
                // Two products of 255 * 127 do not: halves of the codes, the upper ones counted sixteenfold.
                let mask = _mm512_set1_epi8(15);
                let low = _mm512_and_si512(codes, mask);
                let high = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), mask);
                let low = _mm512_madd_epi16(_mm512_maddubs_epi16(low, quants), _mm512_set1_epi16(1));
                let high = _mm512_madd_epi16(_mm512_maddubs_epi16(high, quants), _mm512_set1_epi16(16));
                _mm512_add_epi32(low, high)
            };
            let sums = if STARTS && !VNNI { _mm512_add_epi32(sums, start) } else { sums };
            _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_loadu_ps(x.add(64).cast()))
        }
    }
}

/// Codes of any width, or e4m3 numbers, against f32.
#[derive(Clone, Copy)]
struct FloatBits<'a, const VBMI: bool> {
    bits: &'a Bits,
    small: bool,
}

impl<const VBMI: bool> Dot for FloatBits<'_, VBMI> {
    type Codes = __m512i;
    const PER_LANE: usize = 4;
    const X_BYTES: usize = 256;
    lanes!();

    #[inline(always)]
    fn code_bytes(self) -> usize {
        8 * self.bits.width()
    }

    #[inline(always)]
    fn read_bytes(self) -> usize {
        8 * self.bits.width()
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> __m512i {
        // SAFETY: a block's bytes are readable.
        unsafe { self.bits.unpack::<VBMI>(from, self.code_bytes()) }
    }

    #[inline(always)]
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> __m512i {
        // SAFETY: so many bytes are readable.
        unsafe { self.bits.unpack::<VBMI>(from, bytes) }
    }

    #[inline(always)]
    unsafe fn products(self, codes: __m512i, x: *const u8) -> __m512 {
        // SAFETY: a block of activations has four vectors.
        unsafe {
            let byte = _mm512_set1_epi32(255);
            let value = |codes| {
                let code = _mm512_and_si512(codes, byte);
                if self.small { e4m3(code) } else { _mm512_cvtepi32_ps(code) }
            };
            let x = |plane: usize| _mm512_loadu_ps(x.add(64 * plane).cast());
            let even = _mm512_mul_ps(value(codes), x(0));
            let odd = _mm512_mul_ps(value(_mm512_srli_epi32::<8>(codes)), x(1));
            let even = _mm512_fmadd_ps(value(_mm512_srli_epi32::<16>(codes)), x(2), even);
            let odd = _mm512_fmadd_ps(value(_mm512_srli_epi32::<24>(codes)), x(3), odd);
            _mm512_add_ps(even, odd)
        }
    }
}
