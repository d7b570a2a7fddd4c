//! Elements as what they are folded as: f32 for floats, i64 and u64 for integers, bytes for truth.

use crate::path::Path;
use half::{bf16, f16};
use pteron_tensor::DType;

/// Elements that are converted at a time.
pub(super) const BLOCK: usize = 512;

/// A type in which elements are folded.
pub(super) trait Lane: Copy + Default + 'static {
    /// The dtype whose elements these are, if any: where they lie side by side, no copy is made.
    const DTYPE: DType;
    /// Converts `count` elements that lie `stride` apart.
    ///
    /// # Safety
    /// They can be read; `count` is at most the length of `to`.
    unsafe fn load(path: Path, from: *const u8, dtype: DType, stride: isize, count: usize, to: &mut [Self]);
}

/// # Safety
/// `count` elements lie `stride` apart from `from` on.
#[inline(always)]
unsafe fn each<T: Copy, L>(from: *const u8, stride: isize, count: usize, to: &mut [L], f: impl Fn(T) -> L) {
    let from = from.cast::<T>();
    for (i, to) in to[..count].iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *to = f(unsafe { from.offset(i as isize * stride).read() });
    }
}

impl Lane for f32 {
    const DTYPE: DType = DType::F32;
    unsafe fn load(path: Path, from: *const u8, dtype: DType, stride: isize, count: usize, to: &mut [f32]) {
        // SAFETY: the caller's promise.
        unsafe {
            match dtype {
                DType::F16 | DType::BF16 if stride == 1 => {
                    crate::convert::widen(path, from, dtype, to[..count].as_mut_ptr(), count);
                }
                DType::F16 => each(from, stride, count, to, |x: f16| crate::convert::f16_to_f32(x.to_bits())),
                DType::BF16 => each(from, stride, count, to, |x: bf16| x.to_f32()),
                _ => each(from, stride, count, to, |x: f32| x),
            }
        }
    }
}

macro_rules! int_lane {
    ($L:ty, $Same:ident) => {
        impl Lane for $L {
            const DTYPE: DType = DType::$Same;
            unsafe fn load(
                _: Path,
                from: *const u8,
                dtype: DType,
                stride: isize,
                count: usize,
                to: &mut [$L],
            ) {
                // SAFETY: the caller's promise.
                unsafe {
                    match dtype {
                        DType::Bool => each(from, stride, count, to, |x: u8| <$L>::from(x != 0)),
                        DType::U8 => each(from, stride, count, to, |x: u8| x as $L),
                        DType::U16 => each(from, stride, count, to, |x: u16| x as $L),
                        DType::U32 => each(from, stride, count, to, |x: u32| x as $L),
                        DType::U64 => each(from, stride, count, to, |x: u64| x as $L),
                        DType::I8 => each(from, stride, count, to, |x: i8| x as $L),
                        DType::I16 => each(from, stride, count, to, |x: i16| x as $L),
                        DType::I32 => each(from, stride, count, to, |x: i32| x as $L),
                        _ => each(from, stride, count, to, |x: i64| x as $L),
                    }
                }
            }
        }
    };
}
int_lane!(i64, I64);
int_lane!(u64, U64);

/// Whether an element is not zero; NaN is not.
impl Lane for u8 {
    // Bytes of bools may be anything, so they are always converted.
    const DTYPE: DType = DType::F64;
    unsafe fn load(_: Path, from: *const u8, dtype: DType, stride: isize, count: usize, to: &mut [u8]) {
        // SAFETY: the caller's promise.
        unsafe {
            match dtype {
                DType::Bool | DType::U8 | DType::I8 => {
                    each(from, stride, count, to, |x: u8| u8::from(x != 0))
                }
                DType::U16 | DType::I16 => each(from, stride, count, to, |x: u16| u8::from(x != 0)),
                DType::U32 | DType::I32 => each(from, stride, count, to, |x: u32| u8::from(x != 0)),
                DType::U64 | DType::I64 => each(from, stride, count, to, |x: u64| u8::from(x != 0)),
                DType::F32 => each(from, stride, count, to, |x: f32| u8::from(x != 0.0)),
                // Zeros have no bits but the sign.
                _ => each(from, stride, count, to, |x: u16| u8::from(x & 0x7fff != 0)),
            }
        }
    }
}

/// A result, before it is rounded or wrapped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Float(f64),
    Int(u64),
}

impl Number {
    /// Writes it as an element.
    ///
    /// # Safety
    /// The element lies at `to` and is nobody else's.
    pub(super) unsafe fn write(self, to: *mut u8, dtype: DType) {
        let (float, int) = match self {
            Number::Float(x) => (x, x as i64 as u64),
            Number::Int(x) => (x as f64, x),
        };
        // SAFETY: the caller's promise.
        unsafe {
            match dtype {
                DType::F64 => to.cast::<f64>().write(float),
                DType::F32 => to.cast::<f32>().write(float as f32),
                DType::F16 => to.cast::<u16>().write(crate::convert::f32_to_f16(float as f32)),
                DType::BF16 => to.cast::<u16>().write(crate::convert::f32_to_bf16(float as f32)),
                DType::Bool => to.write(u8::from(float != 0.0)),
                DType::U8 | DType::I8 => to.write(int as u8),
                DType::U16 | DType::I16 => to.cast::<u16>().write(int as u16),
                DType::U32 | DType::I32 => to.cast::<u32>().write(int as u32),
                DType::U64 | DType::I64 => to.cast::<u64>().write(int),
            }
        }
    }
}
