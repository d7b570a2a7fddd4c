//! Four lanes of NEON, with or without its int8 dot product. Matrix multiplication of int8 does not help
//! here: a lane must end as the sum of one group.

use super::{Dot, Span, entry};
use crate::path::Path;
use crate::quant::layout::{E2M1_OFFSET, Numbers};
use crate::quant::weight::{AsBf16, AsF16, AsF32, Elements, Stored, StoredAs, element};
use std::arch::aarch64::*;
use std::arch::asm;

/// Runs a span with the operations that its weight and layout ask for.
///
/// # Safety
/// The machine has what the product's path says, and the span's rows exist.
pub(super) unsafe fn span(span: &Span<'_>) {
    let (weight, lanes) = (span.product.weight, span.product.layout.lanes);
    let dots = span.product.path != Path::Neon;
    let bits = || Bits::new(weight.scheme.bits());
    // SAFETY: the caller's promises.
    unsafe {
        match (lanes.per_lane, lanes.numbers, dots) {
            (8, Numbers::Int8, false) => stored(span, IntNibbles::<false, false>),
            (8, Numbers::Int8Shifted { .. }, false) => stored(span, IntNibbles::<true, false>),
            (8, Numbers::Int8, true) => stored_dots(span, IntNibbles::<false, true>),
            (8, Numbers::Int8Shifted { .. }, true) => stored_dots(span, IntNibbles::<true, true>),
            (8, Numbers::F32, _) => {
                let table = std::array::from_fn(|code| element(weight.elements, code as u8) as i8);
                stored(span, FloatNibbles { table: &table });
            }
            (_, Numbers::F32, _) => {
                stored(span, FloatBits { bits: &bits(), small: weight.elements == Elements::E4M3 });
            }
            (_, _, false) => stored(span, IntBits::<false> { bits: &bits() }),
            (_, _, true) => stored_dots(span, IntBits::<true> { bits: &bits() }),
        }
    }
}

entry!(stored, rows, block, #[target_feature(enable = "neon")]);
entry!(stored_dots, rows_dots, block_dots, #[target_feature(enable = "neon,dotprod")]);

/// What all of NEON's operations share.
macro_rules! lanes {
    () => {
        type Lanes = float32x4_t;
        type Spread = u32;
        const LANES: usize = 4;
        const BESIDE: usize = 2;

        #[inline(always)]
        unsafe fn spread(self, group_shift: u32) -> u32 {
            group_shift
        }

        #[inline(always)]
        unsafe fn scales<S: StoredAs>(self, from: *const u8, count: usize, group_shift: u32) -> float32x4_t {
            // SAFETY: the caller says that so many scales are readable; blocks of at most 32 values have at
            // most two groups.
            unsafe {
                let bytes = std::slice::from_raw_parts(from, count * S::SIZE);
                let first = S::STORED.get(bytes, 0);
                if count == 1 {
                    return vdupq_n_f32(first);
                }
                let second = S::STORED.get(bytes, 1);
                let is_first = |lane: usize| (lane * Self::PER_LANE) >> group_shift == 0;
                let of = |lane: usize| if is_first(lane) { first } else { second };
                vld1q_f32([of(0), of(1), of(2), of(3)].as_ptr())
            }
        }

        #[inline(always)]
        unsafe fn floats<S: StoredAs>(self, from: *const u8, count: usize) -> float32x4_t {
            // SAFETY: the caller says that so many floats are readable.
            unsafe {
                let bytes = std::slice::from_raw_parts(from, count * S::SIZE);
                let of = |lane: usize| if lane < count { S::STORED.get(bytes, lane) } else { 0.0 };
                vld1q_f32([of(0), of(1), of(2), of(3)].as_ptr())
            }
        }

        #[inline(always)]
        unsafe fn every(self, value: f32) -> float32x4_t {
            // SAFETY: every AArch64 has NEON.
            unsafe { vdupq_n_f32(value) }
        }

        #[inline(always)]
        unsafe fn zero(self) -> float32x4_t {
            // SAFETY: every AArch64 has NEON.
            unsafe { vdupq_n_f32(0.0) }
        }

        #[inline(always)]
        unsafe fn multiply_add(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
            // SAFETY: every AArch64 has NEON.
            unsafe { vfmaq_f32(c, a, b) }
        }

        #[inline(always)]
        unsafe fn sum(self, lanes: float32x4_t) -> f32 {
            // SAFETY: every AArch64 has NEON.
            unsafe { vaddvq_f32(lanes) }
        }

        #[inline(always)]
        unsafe fn prefetch(self, from: *const u8) {
            // SAFETY: a prefetch of any address is harmless.
            unsafe {
                asm!("prfm pldl1strm, [{}]", in(reg) from, options(nostack, readonly, preserves_flags));
            }
        }
    };
}

/// A copy of a few bytes, with zeros after them.
#[inline(always)]
unsafe fn padded(from: *const u8, bytes: usize) -> [u8; 16] {
    let mut copy = [0u8; 16];
    // SAFETY: so many bytes are readable, and a block has at most 16.
    unsafe { std::ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), bytes) };
    copy
}

/// `sums + a . b`, four neighbouring bytes a lane.
#[inline(always)]
unsafe fn dot(sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let mut sums = sums;
    // SAFETY: called only where the path has the dot product; only the named register changes.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// As [`dot`] for the sum of two such products, each of at most 128 * 127 in magnitude, without the
/// instruction for it.
#[inline(always)]
unsafe fn two_dots(a: [int8x16_t; 2], b: [int8x16_t; 2]) -> int32x4_t {
    // SAFETY: every AArch64 has NEON.
    unsafe {
        let low = |i: usize| vpaddlq_s16(vmull_s8(vget_low_s8(a[i]), vget_low_s8(b[i])));
        let high = |i: usize| vpaddlq_s16(vmull_high_s8(a[i], b[i]));
        vaddq_s32(vpaddq_s32(low(0), high(0)), vpaddq_s32(low(1), high(1)))
    }
}

/// Nibbles against bytes: low ones with the even values, high ones with the odd ones. `SHIFTED` looks up e2m1
/// numbers.
#[derive(Clone, Copy)]
struct IntNibbles<const SHIFTED: bool, const DOTS: bool>;

impl<const SHIFTED: bool, const DOTS: bool> Dot for IntNibbles<SHIFTED, DOTS> {
    type Codes = (int8x16_t, int8x16_t);
    const PER_LANE: usize = 8;
    const X_BYTES: usize = if SHIFTED { 64 } else { 48 };
    lanes!();

    #[inline(always)]
    fn code_bytes(self) -> usize {
        16
    }

    #[inline(always)]
    fn read_bytes(self) -> usize {
        16
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> Self::Codes {
        // SAFETY: 16 bytes are readable.
        unsafe {
            let packed = vld1q_u8(from);
            let (low, high) = (vandq_u8(packed, vdupq_n_u8(15)), vshrq_n_u8::<4>(packed));
            if !SHIFTED {
                return (vreinterpretq_s8_u8(low), vreinterpretq_s8_u8(high));
            }
            let table: [i8; 16] = std::array::from_fn(|code| {
                (element(Elements::DoubledE2M1, code as u8) as i32 + i32::from(E2M1_OFFSET)) as i8
            });
            let table = vld1q_s8(table.as_ptr());
            (vqtbl1q_s8(table, low), vqtbl1q_s8(table, high))
        }
    }

    #[inline(always)]
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> Self::Codes {
        // SAFETY: so many bytes are readable, and the copy has 16.
        unsafe { self.codes(padded(from, bytes).as_ptr()) }
    }

    #[inline(always)]
    unsafe fn products(self, (low, high): Self::Codes, x: *const u8) -> float32x4_t {
        // SAFETY: a block of activations has two vectors of bytes, one of scales and, shifted, one of starts.
        unsafe {
            let (even, odd) = (vld1q_s8(x.cast()), vld1q_s8(x.add(16).cast()));
            let start = if SHIFTED { vld1q_s32(x.add(48).cast()) } else { vdupq_n_s32(0) };
            let sums = if DOTS {
                dot(dot(start, low, even), high, odd)
            } else {
                vaddq_s32(start, two_dots([low, high], [even, odd]))
            };
            vmulq_f32(vcvtq_f32_s32(sums), vld1q_f32(x.add(32).cast()))
        }
    }
}

/// Nibbles against f32, by looking each up among sixteen small whole numbers.
#[derive(Clone, Copy)]
struct FloatNibbles<'a> {
    table: &'a [i8; 16],
}

impl Dot for FloatNibbles<'_> {
    type Codes = (int32x4_t, int32x4_t);
    const PER_LANE: usize = 8;
    const X_BYTES: usize = 128;
    lanes!();

    #[inline(always)]
    fn code_bytes(self) -> usize {
        16
    }

    #[inline(always)]
    fn read_bytes(self) -> usize {
        16
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> Self::Codes {
        // SAFETY: 16 bytes are readable.
        unsafe {
            let packed = vld1q_u8(from);
            let table = vld1q_s8(self.table.as_ptr());
            let low = vqtbl1q_s8(table, vandq_u8(packed, vdupq_n_u8(15)));
            let high = vqtbl1q_s8(table, vshrq_n_u8::<4>(packed));
            (vreinterpretq_s32_s8(low), vreinterpretq_s32_s8(high))
        }
    }

    #[inline(always)]
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> Self::Codes {
        // SAFETY: so many bytes are readable, and the copy has 16.
        unsafe { self.codes(padded(from, bytes).as_ptr()) }
    }

    #[inline(always)]
    unsafe fn products(self, (low, high): Self::Codes, x: *const u8) -> float32x4_t {
        // SAFETY: a block of activations has eight vectors.
        unsafe {
            let x = |plane: usize| vld1q_f32(x.add(16 * plane).cast());
            // The lowest byte of each lane, with its sign.
            let value = |codes| vcvtq_f32_s32(vshrq_n_s32::<24>(vshlq_n_s32::<24>(codes)));
            let mut even = vmulq_f32(value(low), x(0));
            let mut odd = vmulq_f32(value(high), x(1));
            even = vfmaq_f32(even, value(vshrq_n_s32::<8>(low)), x(2));
            odd = vfmaq_f32(odd, value(vshrq_n_s32::<8>(high)), x(3));
            even = vfmaq_f32(even, value(vshrq_n_s32::<16>(low)), x(4));
            odd = vfmaq_f32(odd, value(vshrq_n_s32::<16>(high)), x(5));
            even = vfmaq_f32(even, value(vshrq_n_s32::<24>(low)), x(6));
            odd = vfmaq_f32(odd, value(vshrq_n_s32::<24>(high)), x(7));
            vaddq_f32(even, odd)
        }
    }
}

/// How 16 codes of any width become 16 bytes: each is looked up with its neighbouring byte into 16 bits of
/// its own and moved down.
struct Bits {
    width: usize,
    /// For the first and for the second eight codes.
    bytes: [[u8; 16]; 2],
    shifts: [i16; 8],
}

impl Bits {
    fn new(width: u32) -> Bits {
        let width = width as usize;
        Bits {
            width,
            // A byte beyond the sixteen is looked up as zero, and no code reaches into it.
            bytes: std::array::from_fn(|half| {
                std::array::from_fn(|i| ((8 * half + i / 2) * width / 8 + i % 2) as u8)
            }),
            shifts: std::array::from_fn(|j| -((j * width % 8) as i16)),
        }
    }

    #[inline(always)]
    unsafe fn unpack(&self, from: *const u8) -> uint8x16_t {
        // SAFETY: 16 bytes are readable.
        unsafe {
            let packed = vld1q_u8(from);
            let eight = |half: usize| {
                let apart = vreinterpretq_u16_u8(vqtbl1q_u8(packed, vld1q_u8(self.bytes[half].as_ptr())));
                vmovn_u16(vshlq_u16(apart, vld1q_s16(self.shifts.as_ptr())))
            };
            vandq_u8(vcombine_u8(eight(0), eight(1)), vdupq_n_u8((0xffu32 >> (8 - self.width)) as u8))
        }
    }
}

/// Codes of any width against bytes.
#[derive(Clone, Copy)]
struct IntBits<'a, const DOTS: bool> {
    bits: &'a Bits,
}

impl<const DOTS: bool> Dot for IntBits<'_, DOTS> {
    type Codes = int8x16_t;
    const PER_LANE: usize = 4;
    const X_BYTES: usize = 32;
    lanes!();

    #[inline(always)]
    fn code_bytes(self) -> usize {
        2 * self.bits.width
    }

    #[inline(always)]
    fn read_bytes(self) -> usize {
        16
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> int8x16_t {
        // SAFETY: 16 bytes are readable. Half the range is taken off, so that codes of eight bits are signed
        // bytes too.
        unsafe { vreinterpretq_s8_u8(vsubq_u8(self.bits.unpack(from), vdupq_n_u8(128))) }
    }

    #[inline(always)]
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> int8x16_t {
        // SAFETY: so many bytes are readable, and the copy has 16.
        unsafe { self.codes(padded(from, bytes).as_ptr()) }
    }

    #[inline(always)]
    unsafe fn products(self, codes: int8x16_t, x: *const u8) -> float32x4_t {
        // SAFETY: a block of activations has a vector of bytes and one of scales.
        unsafe {
            let quants = vld1q_s8(x.cast());
            // What was taken off the codes comes back as a multiple of the activations' sum.
            let taken = vshlq_n_s32::<7>(vpaddlq_s16(vpaddlq_s8(quants)));
            let sums = if DOTS {
                dot(taken, codes, quants)
            } else {
                vaddq_s32(taken, two_dots([codes, vdupq_n_s8(0)], [quants, quants]))
            };
            vmulq_f32(vcvtq_f32_s32(sums), vld1q_f32(x.add(16).cast()))
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
    type Codes = uint32x4_t;
    const PER_LANE: usize = 4;
    const X_BYTES: usize = 64;
    lanes!();

    #[inline(always)]
    fn code_bytes(self) -> usize {
        2 * self.bits.width
    }

    #[inline(always)]
    fn read_bytes(self) -> usize {
        16
    }

    #[inline(always)]
    unsafe fn codes(self, from: *const u8) -> uint32x4_t {
        // SAFETY: 16 bytes are readable.
        unsafe { vreinterpretq_u32_u8(self.bits.unpack(from)) }
    }

    #[inline(always)]
    unsafe fn codes_of(self, from: *const u8, bytes: usize) -> uint32x4_t {
        // SAFETY: so many bytes are readable, and the copy has 16.
        unsafe { self.codes(padded(from, bytes).as_ptr()) }
    }

    #[inline(always)]
    unsafe fn products(self, codes: uint32x4_t, x: *const u8) -> float32x4_t {
        // SAFETY: a block of activations has four vectors.
        unsafe {
            let value = |codes| {
                let code = vandq_u32(codes, vdupq_n_u32(255));
                if self.small { e4m3(code) } else { vcvtq_f32_u32(code) }
            };
            let x = |plane: usize| vld1q_f32(x.add(16 * plane).cast());
            let even = vmulq_f32(value(codes), x(0));
            let odd = vmulq_f32(value(vshrq_n_u32::<8>(codes)), x(1));
            let even = vfmaq_f32(even, value(vshrq_n_u32::<16>(codes)), x(2));
            let odd = vfmaq_f32(odd, value(vshrq_n_u32::<24>(codes)), x(3));
            vaddq_f32(even, odd)
        }
    }
}

/// e4m3fn numbers from their codes in 32 bits: exponent and mantissa moved to their places in f32, whose
/// exponent has a bias larger by 120.
#[inline(always)]
unsafe fn e4m3(code: uint32x4_t) -> float32x4_t {
    // SAFETY: every AArch64 has NEON.
    unsafe {
        let magnitude = vandq_u32(code, vdupq_n_u32(0x7f));
        let sign = vshlq_n_u32::<24>(vandq_u32(code, vdupq_n_u32(0x80)));
        let number = vreinterpretq_f32_u32(vshlq_n_u32::<20>(magnitude));
        let number = vmulq_f32(number, vdupq_n_f32(f32::from_bits((127 + 120) << 23)));
        // All ones where the code is that of NaN, which is a NaN.
        let is_nan = vceqq_u32(magnitude, vdupq_n_u32(0x7f));
        vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(number), vorrq_u32(is_nan, sign)))
    }
}
