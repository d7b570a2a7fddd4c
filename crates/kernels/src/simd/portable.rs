//! Eight f32 in an array: plain loops of a fixed length, which compilers turn into whatever vectors the target
//! has. On aarch64 that is NEON with fused multiply-add.

use super::Simd;

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> [f32; 8] {
    let mut out = [0.0; 8];
    for (i, out) in out.iter_mut().enumerate() {
        *out = f(i);
    }
    out
}

// SAFETY (all functions): `LANES` elements lie at the pointer, or the `count` that is named, by the trait's
// contract; no instruction set is needed.
impl Simd for Portable {
    const LANES: usize = 8;
    const ACCUMULATORS: usize = if cfg!(target_arch = "aarch64") { 12 } else { 4 };
    type F = [f32; 8];

    #[inline(always)]
    unsafe fn load(at: *const f32) -> [f32; 8] {
        unsafe { at.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const half::f16) -> [f32; 8] {
        let bits = unsafe { at.cast::<[u16; 8]>().read_unaligned() };
        each(|i| crate::convert::f16_to_f32(bits[i]))
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const half::bf16) -> [f32; 8] {
        let bits = unsafe { at.cast::<[u16; 8]>().read_unaligned() };
        each(|i| f32::from_bits(u32::from(bits[i]) << 16))
    }
    #[inline(always)]
    unsafe fn store(at: *mut f32, value: [f32; 8]) {
        unsafe { at.cast::<[f32; 8]>().write_unaligned(value) }
    }
    #[inline(always)]
    unsafe fn store_f16(at: *mut half::f16, value: [f32; 8]) {
        unsafe { at.cast::<[u16; 8]>().write_unaligned(value.map(crate::convert::f32_to_f16)) }
    }
    #[inline(always)]
    unsafe fn store_bf16(at: *mut half::bf16, value: [f32; 8]) {
        unsafe { at.cast::<[u16; 8]>().write_unaligned(value.map(crate::convert::f32_to_bf16)) }
    }
    #[inline(always)]
    unsafe fn load_first(at: *const f32, count: usize) -> [f32; 8] {
        let mut out = [0.0; 8];
        for (i, out) in out.iter_mut().enumerate().take(count) {
            *out = unsafe { at.add(i).read() };
        }
        out
    }
    #[inline(always)]
    unsafe fn store_first(at: *mut f32, value: [f32; 8], count: usize) {
        for (i, &value) in value.iter().enumerate().take(count) {
            unsafe { at.add(i).write(value) };
        }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> [f32; 8] {
        [value; 8]
    }
    #[inline(always)]
    unsafe fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn sub(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(|i| a[i] - b[i])
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(|i| a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn fma(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        each(|i| Self::fma1(a[i], b[i], c[i]))
    }
    #[inline(always)]
    unsafe fn max(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn sum(a: [f32; 8]) -> f32 {
        ((a[0] + a[4]) + (a[1] + a[5])) + ((a[2] + a[6]) + (a[3] + a[7]))
    }
    #[inline(always)]
    unsafe fn largest(a: [f32; 8]) -> f32 {
        let mut best = a[0];
        for x in a {
            best = if best > x { best } else { x };
        }
        best
    }
    #[inline(always)]
    unsafe fn power_of_two(a: [f32; 8]) -> [f32; 8] {
        each(|i| {
            f32::from_bits(((a[i] + ROUND).to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127)) << 23)
        })
    }
    #[inline(always)]
    unsafe fn round(a: [f32; 8]) -> [f32; 8] {
        each(|i| (a[i] + ROUND) - ROUND)
    }
    #[inline(always)]
    fn fma1(a: f32, b: f32, c: f32) -> f32 {
        // Without the instruction a fused product is a library call.
        if cfg!(any(target_arch = "aarch64", target_feature = "fma")) { a.mul_add(b, c) } else { a * b + c }
    }
    #[inline(always)]
    fn fma64(a: f64, b: f64, c: f64) -> f64 {
        if cfg!(any(target_arch = "aarch64", target_feature = "fma")) { a.mul_add(b, c) } else { a * b + c }
    }
    #[inline(always)]
    unsafe fn at_least(x: [f32; 8], bound: [f32; 8]) -> [f32; 8] {
        each(|i| if x[i] > bound[i] || x[i].is_nan() { x[i] } else { bound[i] })
    }
    #[inline(always)]
    unsafe fn at_most(x: [f32; 8], bound: [f32; 8]) -> [f32; 8] {
        each(|i| if x[i] < bound[i] || x[i].is_nan() { x[i] } else { bound[i] })
    }
    #[inline(always)]
    unsafe fn zero_below(x: [f32; 8], limit: [f32; 8], value: [f32; 8]) -> [f32; 8] {
        each(|i| if x[i] < limit[i] { 0.0 } else { value[i] })
    }
}

/// Adding it to a small float leaves the nearest integer in the low bits.
const ROUND: f32 = 12_582_912.0;
