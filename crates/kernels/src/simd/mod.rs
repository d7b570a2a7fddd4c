//! One vector of f32 per instruction set, under one set of names. A kernel is written once over [`Simd`] as a
//! [`Kernel`] whose body is always inlined; [`on`] compiles that body once per instruction set and picks one.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use crate::path::Path;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::{Avx512, transpose_16};
pub(crate) use portable::Portable;

/// A 16-bit float or f32 in memory, as kernels read and write it.
pub(crate) trait Stored: Copy + Send + Sync + 'static {
    /// One vector of elements as f32.
    ///
    /// # Safety
    /// `S::LANES` elements can be read at `at`.
    unsafe fn load<S: Simd>(at: *const Self) -> S::F;
    /// Rounds one vector into memory, nearest even.
    ///
    /// # Safety
    /// `S::LANES` elements can be written at `at`.
    unsafe fn store<S: Simd>(at: *mut Self, value: S::F);
    /// The first `count` elements as f32, 0 in the other lanes; nothing behind them is read.
    ///
    /// # Safety
    /// `count` elements can be read at `at`.
    #[inline(always)]
    unsafe fn load_first<S: Simd>(at: *const Self, count: usize) -> S::F {
        let mut values = [0f32; 16];
        for (i, value) in values.iter_mut().enumerate().take(count) {
            // SAFETY: the caller's promise.
            *value = unsafe { at.add(i).read() }.to_f32();
        }
        // SAFETY: no vector has more than 16 lanes.
        unsafe { S::load(values.as_ptr()) }
    }
    fn to_f32(self) -> f32;
    fn from_f32(value: f32) -> Self;
}

impl Stored for f32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(at: *const f32) -> S::F {
        // SAFETY: passed on.
        unsafe { S::load(at) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(at: *mut f32, value: S::F) {
        // SAFETY: passed on.
        unsafe { S::store(at, value) }
    }
    #[inline(always)]
    unsafe fn load_first<S: Simd>(at: *const f32, count: usize) -> S::F {
        // SAFETY: passed on.
        unsafe { S::load_first(at, count) }
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(value: f32) -> f32 {
        value
    }
}

impl Stored for half::f16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(at: *const half::f16) -> S::F {
        // SAFETY: passed on.
        unsafe { S::load_f16(at) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(at: *mut half::f16, value: S::F) {
        // SAFETY: passed on.
        unsafe { S::store_f16(at, value) }
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        crate::convert::f16_to_f32(self.to_bits())
    }
    #[inline(always)]
    fn from_f32(value: f32) -> half::f16 {
        half::f16::from_bits(crate::convert::f32_to_f16(value))
    }
}

impl Stored for half::bf16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(at: *const half::bf16) -> S::F {
        // SAFETY: passed on.
        unsafe { S::load_bf16(at) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(at: *mut half::bf16, value: S::F) {
        // SAFETY: passed on.
        unsafe { S::store_bf16(at, value) }
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn from_f32(value: f32) -> half::bf16 {
        half::bf16::from_bits(crate::convert::f32_to_bf16(value))
    }
}

/// The vector operations that kernels are made of. Implementations exist only where [`on`] has checked that the
/// path names the instruction set, so that calling them is sound inside a [`Kernel`] alone.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// f32 values in a vector.
    const LANES: usize;
    /// Vector registers that a tile of sums may fill, beside those that it needs for operands.
    const ACCUMULATORS: usize;
    /// The vector.
    type F: Copy;

    /// # Safety
    /// The instruction set is there and `LANES` elements can be read; the same goes for all functions below.
    unsafe fn load(at: *const f32) -> Self::F;
    unsafe fn load_f16(at: *const half::f16) -> Self::F;
    unsafe fn load_bf16(at: *const half::bf16) -> Self::F;
    unsafe fn store(at: *mut f32, value: Self::F);
    unsafe fn store_f16(at: *mut half::f16, value: Self::F);
    unsafe fn store_bf16(at: *mut half::bf16, value: Self::F);
    /// The first `count` elements, 0 in the others; nothing behind them is read.
    unsafe fn load_first(at: *const f32, count: usize) -> Self::F;
    unsafe fn store_first(at: *mut f32, value: Self::F, count: usize);
    unsafe fn splat(value: f32) -> Self::F;
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once where the machine can.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger of each pair; `b` where one is NaN.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// Sum of all lanes.
    unsafe fn sum(a: Self::F) -> f32;
    /// Sums of all lanes of four vectors.
    #[inline(always)]
    unsafe fn sum4(a: [Self::F; 4]) -> [f32; 4] {
        // SAFETY: as the caller's.
        unsafe { [Self::sum(a[0]), Self::sum(a[1]), Self::sum(a[2]), Self::sum(a[3])] }
    }
    /// Largest lane.
    unsafe fn largest(a: Self::F) -> f32;
    /// 2 to the power of integers in [-126, 127] that are held as floats.
    unsafe fn power_of_two(a: Self::F) -> Self::F;
    /// The nearest integers.
    unsafe fn round(a: Self::F) -> Self::F;
    /// One product and sum, as [`Simd::fma`].
    fn fma1(a: f32, b: f32, c: f32) -> f32;
    /// The same in f64.
    fn fma64(a: f64, b: f64, c: f64) -> f64;

    /// `e^x` for x up to 0, right to 2 units in the last place; below -87 it is 0.
    #[inline(always)]
    unsafe fn exp_negative(x: Self::F) -> Self::F {
        // SAFETY: as the caller's.
        unsafe {
            // One step further down is 2^-126, the last normal power; what is below counts as nothing.
            let floor = Self::splat(-87.0);
            let clamped = Self::max(floor, x);
            let n = Self::round(Self::mul(clamped, Self::splat(std::f32::consts::LOG2_E)));
            let r = Self::fma(n, Self::splat(-0.693_359_4), clamped);
            let r = Self::fma(n, Self::splat(2.121_944_4e-4), r);
            let mut p = Self::splat(1.0 / 5040.0);
            for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
                p = Self::fma(p, r, Self::splat(c));
            }
            let result = Self::mul(p, Self::power_of_two(n));
            Self::zero_below(x, floor, result)
        }
    }

    /// Asks for a line of the cache that will be read soon, wherever it lies: into the second cache. Nothing where the loads around it
    /// leave no room for that.
    #[inline(always)]
    fn prefetch(_at: *const f32) {}
    /// An address of which the compiler cannot tell where it came from.
    #[inline(always)]
    fn opaque(at: *const f32) -> *const f32 {
        at
    }
    /// `x` where it is larger than `bound` or NaN, else `bound`; the bound is no NaN.
    unsafe fn at_least(x: Self::F, bound: Self::F) -> Self::F;
    /// `x` where it is smaller than `bound` or NaN, else `bound`; the bound is no NaN.
    unsafe fn at_most(x: Self::F, bound: Self::F) -> Self::F;
    /// `value`, but 0 where `x` is less than `limit`.
    unsafe fn zero_below(x: Self::F, limit: Self::F, value: Self::F) -> Self::F;
}

/// A computation over vectors. `run` must be `#[inline(always)]`, as must everything that it calls, so that it
/// is compiled for the instruction set of its caller.
pub(crate) trait Kernel {
    type Output;
    /// # Safety
    /// The instruction set of `S` is there.
    unsafe fn run<S: Simd>(self) -> Self::Output;
}

/// Runs a kernel on the instruction set of a path.
#[inline]
pub(crate) fn on<K: Kernel>(path: Path, kernel: K) -> K::Output {
    // SAFETY: `level` has found the instruction set.
    unsafe {
        match level(path) {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => on_avx512(kernel),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => on_avx2(kernel),
            Level::Portable => kernel.run::<Portable>(),
        }
    }
}

/// What a path means for kernels of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Whatever the compiler makes of plain loops; on aarch64 that is NEON.
    Portable,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// The level of a path; a path that this machine lacks is plain Rust.
#[inline]
pub(crate) fn level(path: Path) -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        let avx2 = || has!("avx2") && has!("fma") && has!("f16c");
        let avx512 = || has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
        match path {
            Path::Avx2 | Path::AvxVnni if avx2() => return Level::Avx2,
            Path::Avx512Bw | Path::Avx512 | Path::Amx if avx2() && avx512() => return Level::Avx512,
            _ => {}
        }
    }
    let _ = path;
    Level::Portable
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn on_avx512<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller has found the instruction set.
    unsafe { kernel.run::<Avx512>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn on_avx2<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller has found the instruction set.
    unsafe { kernel.run::<Avx2>() }
}
