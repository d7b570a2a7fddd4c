//! Ops of one operand, and casts.

use super::lane::{Int, Lane};
use super::math;
use super::run::{Map, One, map};
use crate::simd::{Level, Simd};

use std::marker::PhantomData;

/// What an element becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it
pub enum UnaryOp {
    Abs,
    Neg,
    Square,
    /// -1, 0 or 1; of NaN 0.
    Sign,
    Floor,
    Ceil,
    Trunc,
    /// To the nearest integer, halves to even. With decimals: [`super::ChainBuilder::round`].
    Round,
    /// With the error function.
    Gelu,
    GeluTanh,
    Silu,
    Sigmoid,
    Erf,
    Exp,
    Expm1,
    Log,
    Log2,
    Log10,
    Log1p,
    Sqrt,
    Rsqrt,
    Reciprocal,
    Sin,
    Cos,
    Tan,
    Arcsin,
    Arccos,
    Arctan,
    Sinh,
    Cosh,
    Tanh,
    Arcsinh,
    Arccosh,
    Arctanh,
    /// Gives bool.
    LogicalNot,
    BitwiseInvert,
}

macro_rules! functions {
    ($($Name:ident: $In:ty => $Out:ty, |$x:ident, $S:ident| $value:expr;)*) => { $(
        struct $Name;
        impl Map for $Name {
            type In = $In;
            type Out = $Out;
            #[inline(always)]
            fn apply<$S: Simd>($x: $In) -> $Out { $value }
        }
    )* };
}

functions! {
    AbsF: f32 => f32, |x, S| x.abs();
    NegF: f32 => f32, |x, S| -x;
    SquareF: f32 => f32, |x, S| x * x;
    SignF: f32 => f32, |x, S| f32::from(u8::from(x > 0.0)) - f32::from(u8::from(x < 0.0));
    FloorF: f32 => f32, |x, S| x.floor();
    CeilF: f32 => f32, |x, S| x.ceil();
    TruncF: f32 => f32, |x, S| x.trunc();
    RoundF: f32 => f32, |x, S| x.round_ties_even();
    Gelu: f32 => f32, |x, S| math::gelu::<S>(x);
    GeluTanh: f32 => f32, |x, S| math::gelu_tanh::<S>(x);
    Silu: f32 => f32, |x, S| math::silu::<S>(x);
    Sigmoid: f32 => f32, |x, S| math::sigmoid::<S>(x);
    Erf: f32 => f32, |x, S| math::erf::<S>(x);
    Exp: f32 => f32, |x, S| math::exp::<S>(x);
    Expm1: f32 => f32, |x, S| math::exp_m1::<S>(x);
    Log: f32 => f32, |x, S| math::log::<S>(x);
    Log2: f32 => f32, |x, S| math::log2::<S>(x);
    Log10: f32 => f32, |x, S| math::log10::<S>(x);
    Log1p: f32 => f32, |x, S| math::log_1p::<S>(x);
    Sqrt: f32 => f32, |x, S| x.sqrt();
    Rsqrt: f32 => f32, |x, S| math::rsqrt::<S>(x);
    Reciprocal: f32 => f32, |x, S| 1.0 / x;
    Arcsin: f32 => f32, |x, S| math::asin::<S>(x);
    Arccos: f32 => f32, |x, S| math::acos::<S>(x);
    Arctan: f32 => f32, |x, S| math::atan::<S>(x);
    Sinh: f32 => f32, |x, S| math::sinh::<S>(x);
    Cosh: f32 => f32, |x, S| math::cosh::<S>(x);
    Tanh: f32 => f32, |x, S| math::tanh::<S>(x);
    Arcsinh: f32 => f32, |x, S| math::asinh::<S>(x);
    Arccosh: f32 => f32, |x, S| math::acosh::<S>(x);
    Arctanh: f32 => f32, |x, S| math::atanh::<S>(x);
    NotB: u8 => u8, |x, S| u8::from(x == 0);
    FromF16: u16 => f32, |x, S| crate::convert::f16_to_f32(x);
    FromBF16: u16 => f32, |x, S| f32::from_bits(u32::from(x) << 16);
    ToF16: f32 => u16, |x, S| crate::convert::f32_to_f16(x);
    ToBF16: f32 => u16, |x, S| crate::convert::f32_to_bf16(x);
}

/// Functions of angles, which for huge ones need a reduction that is no vector code.
macro_rules! periodic {
    ($($Name:ident, $f:ident;)*) => { $(
        struct $Name;
        impl Map for $Name {
            type In = f32;
            type Out = f32;
            #[inline(always)]
            fn apply<S: Simd>(x: f32) -> f32 { math::$f::<S>(x) }
            #[inline(always)]
            fn is_regular(x: f32) -> bool { math::is_reducible(x) }
            fn exceptional(x: f32) -> f32 { f64::from(x).$f() as f32 }
        }
    )* };
}
periodic! { Sin, sin; Cos, cos; Tan, tan; }

/// Functions of integers.
macro_rules! int_functions {
    ($($Name:ident, |$x:ident| $value:expr;)*) => { $(
        struct $Name<T>(PhantomData<T>);
        impl<T: Int> Map for $Name<T> {
            type In = T;
            type Out = T;
            #[inline(always)]
            fn apply<S: Simd>($x: T) -> T { $value }
        }
    )* };
}
int_functions! {
    AbsI, |x| x.abs();
    NegI, |x| T::ZERO.sub(x);
    SquareI, |x| x.mul(x);
    SignI, |x| x.signum();
    NotI, |x| x.not();
}

struct IsZero<T>(PhantomData<T>);
impl<T: Int> Map for IsZero<T> {
    type In = T;
    type Out = u8;
    #[inline(always)]
    fn apply<S: Simd>(x: T) -> u8 {
        u8::from(x == T::ZERO)
    }
}

/// The loop of an op over elements of a lane; `None` where the op has no meaning there. Rounding of integers and
/// bools is no op at all and not found here.
pub(super) fn unary(op: UnaryOp, lane: Lane, level: Level) -> Option<One> {
    use UnaryOp as Op;
    macro_rules! ints {
        ($F:ident) => {
            match lane {
                Lane::U8 => map::<$F<u8>>(level),
                Lane::U16 => map::<$F<u16>>(level),
                Lane::U32 => map::<$F<u32>>(level),
                Lane::U64 => map::<$F<u64>>(level),
                Lane::I8 => map::<$F<i8>>(level),
                Lane::I16 => map::<$F<i16>>(level),
                Lane::I32 => map::<$F<i32>>(level),
                Lane::I64 => map::<$F<i64>>(level),
                _ => return None,
            }
        };
    }
    if lane == Lane::Bool {
        return matches!(op, Op::LogicalNot | Op::BitwiseInvert).then(|| map::<NotB>(level));
    }
    if lane != Lane::F32 {
        return Some(match op {
            Op::Abs => ints!(AbsI),
            Op::Neg => ints!(NegI),
            Op::Square => ints!(SquareI),
            Op::Sign => ints!(SignI),
            Op::BitwiseInvert => ints!(NotI),
            Op::LogicalNot => ints!(IsZero),
            _ => return None,
        });
    }
    Some(match op {
        Op::Abs => map::<AbsF>(level),
        Op::Neg => map::<NegF>(level),
        Op::Square => map::<SquareF>(level),
        Op::Sign => map::<SignF>(level),
        Op::Floor => map::<FloorF>(level),
        Op::Ceil => map::<CeilF>(level),
        Op::Trunc => map::<TruncF>(level),
        Op::Round => map::<RoundF>(level),
        Op::Gelu => map::<Gelu>(level),
        Op::GeluTanh => map::<GeluTanh>(level),
        Op::Silu => map::<Silu>(level),
        Op::Sigmoid => map::<Sigmoid>(level),
        Op::Erf => map::<Erf>(level),
        Op::Exp => map::<Exp>(level),
        Op::Expm1 => map::<Expm1>(level),
        Op::Log => map::<Log>(level),
        Op::Log2 => map::<Log2>(level),
        Op::Log10 => map::<Log10>(level),
        Op::Log1p => map::<Log1p>(level),
        Op::Sqrt => map::<Sqrt>(level),
        Op::Rsqrt => map::<Rsqrt>(level),
        Op::Reciprocal => map::<Reciprocal>(level),
        Op::Sin => map::<Sin>(level),
        Op::Cos => map::<Cos>(level),
        Op::Tan => map::<Tan>(level),
        Op::Arcsin => map::<Arcsin>(level),
        Op::Arccos => map::<Arccos>(level),
        Op::Arctan => map::<Arctan>(level),
        Op::Sinh => map::<Sinh>(level),
        Op::Cosh => map::<Cosh>(level),
        Op::Tanh => map::<Tanh>(level),
        Op::Arcsinh => map::<Arcsinh>(level),
        Op::Arccosh => map::<Arccosh>(level),
        Op::Arctanh => map::<Arctanh>(level),
        Op::LogicalNot => map::<IsZeroF>(level),
        Op::BitwiseInvert => return None,
    })
}

struct IsZeroF;
impl Map for IsZeroF {
    type In = f32;
    type Out = u8;
    #[inline(always)]
    fn apply<S: Simd>(x: f32) -> u8 {
        u8::from(x == 0.0)
    }
}

/// A 16-bit float to f32.
pub(super) fn widen(lane: Lane, level: Level) -> Option<One> {
    match lane {
        Lane::F16 => Some(map::<FromF16>(level)),
        Lane::BF16 => Some(map::<FromBF16>(level)),
        _ => None,
    }
}

/// f32 to a 16-bit float.
pub(super) fn narrow(lane: Lane, level: Level) -> Option<One> {
    match lane {
        Lane::F16 => Some(map::<ToF16>(level)),
        Lane::BF16 => Some(map::<ToBF16>(level)),
        _ => None,
    }
}

/// One number type to another by Rust's `as`: integers wrap, floats truncate and saturate, NaN becomes 0.
struct Cast<A, B>(PhantomData<(A, B)>);

macro_rules! casts {
    ($($A:ty => $($B:ty),*;)*) => { $( $(
        impl Map for Cast<$A, $B> {
            type In = $A;
            type Out = $B;
            #[inline(always)]
            fn apply<S: Simd>(x: $A) -> $B { x as $B }
        }
    )* )* };
}
casts! {
    u8 => u16, u32, u64, f32;
    u16 => u8, u32, u64, f32;
    u32 => u8, u16, u64, f32;
    u64 => u8, u16, u32, f32;
    i8 => u16, u32, u64, f32;
    i16 => u8, u32, u64, f32;
    i32 => u8, u16, u64, f32;
    i64 => u8, u16, u32, f32;
    f32 => u8, u16, u32, u64, i8, i16, i32, i64;
}

/// Anything but zero is true, NaN too.
struct IsTrue<T>(PhantomData<T>);
impl<T: Int> Map for IsTrue<T> {
    type In = T;
    type Out = u8;
    #[inline(always)]
    fn apply<S: Simd>(x: T) -> u8 {
        u8::from(x != T::ZERO)
    }
}
struct IsTrueF;
impl Map for IsTrueF {
    type In = f32;
    type Out = u8;
    #[inline(always)]
    fn apply<S: Simd>(x: f32) -> u8 {
        u8::from(x != 0.0)
    }
}

/// How a lane becomes another.
pub(super) enum Conversion {
    /// The bits are the same.
    Same,
    By(One),
}

/// The loop that converts between two computed lanes.
pub(super) fn cast(from: Lane, to: Lane, level: Level) -> Option<Conversion> {
    use Lane::*;
    // Where only the sign differs, the wider or equal result has the same bits for both kinds of target.
    macro_rules! from {
        ($A:ty: $($Lane:pat => $B:ty),*) => {
            match to {
                $($Lane => map::<Cast<$A, $B>>(level),)*
                _ => return None,
            }
        };
    }
    if from == to
        || matches!((from, to), (U8, I8) | (I8, U8) | (U16, I16) | (I16, U16) | (U32, I32) | (I32, U32))
        || matches!((from, to), (U64, I64) | (I64, U64))
    {
        return Some(Conversion::Same);
    }
    if to == Bool {
        return Some(Conversion::By(match from {
            U8 | I8 => map::<IsTrue<u8>>(level),
            U16 | I16 => map::<IsTrue<u16>>(level),
            U32 | I32 => map::<IsTrue<u32>>(level),
            U64 | I64 => map::<IsTrue<u64>>(level),
            F32 => map::<IsTrueF>(level),
            Bool | F16 | BF16 => return None,
        }));
    }
    Some(Conversion::By(match from {
        // Bytes of bools are made 0 or 1 before.
        Bool if to == U8 || to == I8 => map::<IsTrue<u8>>(level),
        Bool | U8 => from!(u8: U16 | I16 => u16, U32 | I32 => u32, U64 | I64 => u64, F32 => f32),
        U16 => from!(u16: U8 | I8 => u8, U32 | I32 => u32, U64 | I64 => u64, F32 => f32),
        U32 => from!(u32: U8 | I8 => u8, U16 | I16 => u16, U64 | I64 => u64, F32 => f32),
        U64 => from!(u64: U8 | I8 => u8, U16 | I16 => u16, U32 | I32 => u32, F32 => f32),
        I8 => from!(i8: U16 | I16 => u16, U32 | I32 => u32, U64 | I64 => u64, F32 => f32),
        I16 => from!(i16: U8 | I8 => u8, U32 | I32 => u32, U64 | I64 => u64, F32 => f32),
        I32 => from!(i32: U8 | I8 => u8, U16 | I16 => u16, U64 | I64 => u64, F32 => f32),
        I64 => from!(i64: U8 | I8 => u8, U16 | I16 => u16, U32 | I32 => u32, F32 => f32),
        F32 => {
            from!(f32: U8 => u8, U16 => u16, U32 => u32, U64 => u64, I8 => i8, I16 => i16, I32 => i32, I64 => i64)
        }
        F16 | BF16 => return None,
    }))
}

/// Bytes of bools as 0 or 1.
pub(super) fn truth(level: Level) -> One {
    map::<IsTrue<u8>>(level)
}
