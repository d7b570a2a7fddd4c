//! 16-bit floats to f32 and back, without branches, so that loops over them become vector code on any path. Whole
//! tensors are converted by [`crate::elementwise`].

use crate::path::Path;
use crate::rows::with_float;
use crate::simd::{Kernel, Simd, Stored, on};
use pteron_tensor::DType;

/// An IEEE half as f32; exact.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    // The exponent is 112 too small. The product corrects it, and makes subnormal halves normal on the way.
    let scaled = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = magnitude | 0x7f80_0000;
    let finite = magnitude < 0x0f80_0000;
    f32::from_bits(if finite { scaled } else { special } | (u32::from(bits & 0x8000) << 16))
}

/// The nearest IEEE half, ties to even; NaN stays one.
#[inline(always)]
pub fn f32_to_f16(value: f32) -> u16 {
    let sign = (value.to_bits() >> 16) as u16 & 0x8000;
    let magnitude = value.to_bits() & 0x7fff_ffff;
    // Normal halves: rebias the exponent and round at bit 13.
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_add(0xc800_0fff).wrapping_add(odd) >> 13;
    // Subnormal halves: adding 0.5 leaves the value, rounded to units of 2^-24, in the low bits.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if magnitude < 0x3880_0000 { subnormal } else { normal };
    let special = if magnitude > 0x7f80_0000 { 0x7e00 | (magnitude >> 13) & 0x1ff } else { 0x7c00 };
    sign | if magnitude < 0x477f_f000 { finite } else { special } as u16
}

/// The nearest bf16, ties to even; NaN stays one.
#[inline(always)]
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    let kept = if bits & 0x7fff_ffff > 0x7f80_0000 { bits | 0x40_0000 } else { rounded };
    (kept >> 16) as u16
}

/// Converts dense elements to f32.
///
/// # Safety
/// `count` elements of the dtype lie at `from`, and there is room for as many at `to`.
pub(crate) unsafe fn widen(path: Path, from: *const u8, dtype: DType, to: *mut f32, count: usize) {
    with_float!(dtype, T => on(path, Widen::<T> { from: from.cast(), to, count }));
}

struct Widen<T> {
    from: *const T,
    to: *mut f32,
    count: usize,
}

impl<T: Stored> Kernel for Widen<T> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: `count` elements lie at both pointers, as `widen` says.
        unsafe {
            let mut at = 0;
            while at + S::LANES <= self.count {
                S::store(self.to.add(at), T::load::<S>(self.from.add(at)));
                at += S::LANES;
            }
            while at < self.count {
                self.to.add(at).write(self.from.add(at).read().to_f32());
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::sized;
    use half::{bf16, f16};

    #[test]
    fn every_half_equals_the_library() {
        for bits in (0..=u16::MAX).step_by(sized(1, 13)) {
            let (got, want) = (f16_to_f32(bits), f16::from_bits(bits).to_f32());
            assert!(got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()), "{bits:#x}");
        }
    }

    #[test]
    fn rounding_equals_the_library() {
        // Every exponent and sign, with low bits around each tie.
        for high in (0..=u16::MAX).step_by(sized(1, 131)) {
            for low in [0u32, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let value = f32::from_bits(u32::from(high) << 16 | low);
                let (half, brain) = (f16::from_f32(value), bf16::from_f32(value));
                let got = (f16::from_bits(f32_to_f16(value)), bf16::from_bits(f32_to_bf16(value)));
                if value.is_nan() {
                    assert!(got.0.is_nan() && got.1.is_nan());
                } else {
                    assert_eq!(
                        (got.0.to_bits(), got.1.to_bits()),
                        (half.to_bits(), brain.to_bits()),
                        "{value:e}"
                    );
                }
            }
        }
    }
}
