//! What elements are while a chain computes: numbers of the machine, one type for each dtype, except that 16-bit
//! floats become f32 on the way in and are rounded on the way out.

use pteron_tensor::DType;

/// The type of the elements of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// One byte, anything but 0 is true.
    Bool,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    /// An IEEE half as it lies in memory; only moved, widened and narrowed.
    F16,
    /// A bf16 as it lies in memory.
    BF16,
    F32,
}

impl Lane {
    /// How elements of a dtype lie in memory; chains do not know f64.
    pub(crate) fn stored(dtype: DType) -> Option<Lane> {
        Some(match dtype {
            DType::Bool => Lane::Bool,
            DType::U8 => Lane::U8,
            DType::U16 => Lane::U16,
            DType::U32 => Lane::U32,
            DType::U64 => Lane::U64,
            DType::I8 => Lane::I8,
            DType::I16 => Lane::I16,
            DType::I32 => Lane::I32,
            DType::I64 => Lane::I64,
            DType::F16 => Lane::F16,
            DType::BF16 => Lane::BF16,
            DType::F32 => Lane::F32,
            DType::F64 => return None,
        })
    }

    /// What an element of this type is computed as.
    pub(crate) fn computed(self) -> Lane {
        match self {
            Lane::F16 | Lane::BF16 => Lane::F32,
            other => other,
        }
    }
}

/// A signed or unsigned integer of the machine; everything wraps.
pub(crate) trait Int: Copy + PartialOrd + 'static {
    const ZERO: Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn not(self) -> Self;
    fn abs(self) -> Self;
    fn signum(self) -> Self;
    /// The quotient rounded down; by 0 it is 0.
    fn floor_divide(self, other: Self) -> Self;
    /// With the divisor's sign; by 0 it is the dividend.
    fn remainder(self, other: Self) -> Self;
    /// Repeated multiplication; a negative power is 0.
    fn power(self, other: Self) -> Self;
    /// Rounded to a multiple of ten to a power that the other operand gives, halves to even.
    fn round_to(self, power: Self) -> Self;
}

macro_rules! int {
    ($($T:ty),*) => { $(
        impl Int for $T {
            const ZERO: $T = 0;
            #[inline(always)]
            fn add(self, other: $T) -> $T { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: $T) -> $T { self.wrapping_sub(other) }
            #[inline(always)]
            fn mul(self, other: $T) -> $T { self.wrapping_mul(other) }
            #[inline(always)]
            fn and(self, other: $T) -> $T { self & other }
            #[inline(always)]
            fn or(self, other: $T) -> $T { self | other }
            #[inline(always)]
            fn xor(self, other: $T) -> $T { self ^ other }
            #[inline(always)]
            fn not(self) -> $T { !self }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn abs(self) -> $T { if self < 0 { (0 as $T).wrapping_sub(self) } else { self } }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn signum(self) -> $T {
                if self < 0 { (0 as $T).wrapping_sub(1) } else if self > 0 { 1 } else { 0 }
            }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn floor_divide(self, other: $T) -> $T {
                if other == 0 {
                    return 0;
                }
                let quotient = self.wrapping_div(other);
                let rest = self.wrapping_rem(other);
                if rest != 0 && (self < 0) != (other < 0) { quotient.wrapping_sub(1) } else { quotient }
            }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn remainder(self, other: $T) -> $T {
                if other == 0 {
                    return self;
                }
                let rest = self.wrapping_rem(other);
                if rest != 0 && (rest < 0) != (other < 0) { rest.wrapping_add(other) } else { rest }
            }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn power(self, other: $T) -> $T {
                if other < 0 {
                    return 0;
                }
                let (mut power, mut square, mut left) = (1 as $T, self, other);
                while left > 0 {
                    if left & 1 == 1 {
                        power = power.wrapping_mul(square);
                    }
                    square = square.wrapping_mul(square);
                    left >>= 1;
                }
                power
            }
            #[inline(always)]
            fn round_to(self, power: $T) -> $T {
                // Every integer is less than half of 10^20, and so rounds to none of it.
                if power as u64 >= 20 {
                    return 0;
                }
                let (x, unit) = (self as i128, 10i128.pow(power as u32));
                let below = x.div_euclid(unit);
                let twice = 2 * (x - below * unit);
                let up = twice > unit || (twice == unit && below % 2 != 0);
                ((below + i128::from(up)) * unit) as $T
            }
        }
    )* };
}
int!(u8, u16, u32, u64, i8, i16, i32, i64);
