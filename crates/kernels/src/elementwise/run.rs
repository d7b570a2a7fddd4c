//! How functions of elements become loops over runs of them, compiled once per instruction set. A run is a pointer
//! to its first element; what it points to follows from the lanes for which a loop was picked.

use crate::simd::{Level, Portable, Simd};

/// `out[i] = f(x[i])`. The output does not overlap the operands; the same goes for the others.
pub(crate) type One = unsafe fn(*mut u8, *const u8, usize);
/// `out[i] = f(a[i], b[i])`.
pub(crate) type Two = unsafe fn(*mut u8, *const u8, *const u8, usize);
/// `out[i] = f(a[i], b[i], c[i])`.
pub(crate) type Three = unsafe fn(*mut u8, *const u8, *const u8, *const u8, usize);

/// A function of one element.
pub(crate) trait Map {
    type In: Copy;
    type Out: Copy;
    fn apply<S: Simd>(x: Self::In) -> Self::Out;
    /// Whether `apply` means anything for this element; a run in which it does not is left to `exceptional`.
    #[inline(always)]
    fn is_regular(_: Self::In) -> bool {
        true
    }
    fn exceptional(x: Self::In) -> Self::Out {
        Self::apply::<Portable>(x)
    }
}

/// A function of two elements.
pub(crate) trait Zip {
    type In: Copy;
    type Out: Copy;
    fn apply<S: Simd>(a: Self::In, b: Self::In) -> Self::Out;
}

macro_rules! versions {
    ($pick:ident, $body:ident, $Bound:ident, $Run:ident, ($($name:ident: $T:ty),*)) => {
        /// The loop for an instruction set.
        pub(crate) fn $pick<M: $Bound>(level: Level) -> $Run {
            unsafe fn portable<M: $Bound>($($name: $T),*) {
                // SAFETY: the caller's promise.
                unsafe { $body::<M, Portable>($($name),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2<M: $Bound>($($name: $T),*) {
                // SAFETY: the caller's promise.
                unsafe { $body::<M, crate::simd::Avx2>($($name),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            unsafe fn avx512<M: $Bound>($($name: $T),*) {
                // SAFETY: the caller's promise.
                unsafe { $body::<M, crate::simd::Avx512>($($name),*) }
            }
            match level {
                Level::Portable => portable::<M>,
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => avx2::<M>,
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => avx512::<M>,
            }
        }
    };
}

versions!(map, map_run, Map, One, (out: *mut u8, x: *const u8, count: usize));
versions!(zip, zip_run, Zip, Two, (out: *mut u8, a: *const u8, b: *const u8, count: usize));

/// # Safety
/// `count` elements of their types lie at both pointers, aligned, and do not overlap.
#[inline(always)]
unsafe fn map_run<M: Map, S: Simd>(out: *mut u8, x: *const u8, count: usize) {
    // SAFETY: the caller's promise; the output is only written.
    let (out, x) = unsafe {
        (
            std::slice::from_raw_parts_mut(out.cast::<std::mem::MaybeUninit<M::Out>>(), count),
            std::slice::from_raw_parts(x.cast::<M::In>(), count),
        )
    };
    let mut regular = true;
    for &x in x {
        regular &= M::is_regular(x);
    }
    if regular {
        for (out, &x) in out.iter_mut().zip(x) {
            out.write(M::apply::<S>(x));
        }
    } else {
        for (out, &x) in out.iter_mut().zip(x) {
            out.write(if M::is_regular(x) { M::apply::<S>(x) } else { M::exceptional(x) });
        }
    }
}

/// # Safety
/// As [`map_run`].
#[inline(always)]
unsafe fn zip_run<M: Zip, S: Simd>(out: *mut u8, a: *const u8, b: *const u8, count: usize) {
    // SAFETY: the caller's promise; the output is only written.
    let (out, a, b) = unsafe {
        (
            std::slice::from_raw_parts_mut(out.cast::<std::mem::MaybeUninit<M::Out>>(), count),
            std::slice::from_raw_parts(a.cast::<M::In>(), count),
            std::slice::from_raw_parts(b.cast::<M::In>(), count),
        )
    };
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        out.write(M::apply::<S>(a, b));
    }
}

/// `out[i] = if condition[i] { x[i] } else { y[i] }` for elements of a size; conditions are bytes.
pub(crate) fn select(size: usize) -> Option<Three> {
    unsafe fn run<T: Copy>(out: *mut u8, condition: *const u8, x: *const u8, y: *const u8, count: usize) {
        // SAFETY: the caller's promise; the output is only written.
        let (out, condition, x, y) = unsafe {
            (
                std::slice::from_raw_parts_mut(out.cast::<std::mem::MaybeUninit<T>>(), count),
                std::slice::from_raw_parts(condition, count),
                std::slice::from_raw_parts(x.cast::<T>(), count),
                std::slice::from_raw_parts(y.cast::<T>(), count),
            )
        };
        for (((out, &condition), &x), &y) in out.iter_mut().zip(condition).zip(x).zip(y) {
            out.write(if condition != 0 { x } else { y });
        }
    }
    Some(match size {
        1 => run::<u8>,
        2 => run::<u16>,
        4 => run::<u32>,
        8 => run::<u64>,
        _ => return None,
    })
}
