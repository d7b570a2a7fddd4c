//! Ops of two operands of one type.

use super::lane::{Int, Lane};
use super::math;
use super::run::{Two, Zip, zip};
use crate::simd::{Level, Simd};
use std::marker::PhantomData;

/// What two elements become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it
pub enum BinaryOp {
    Add,
    Subtract,
    Multiply,
    /// Floats only.
    Divide,
    /// The quotient rounded down; by an integer 0 it is 0.
    FloorDivide,
    /// With the divisor's sign; by an integer 0 it is the dividend.
    Remainder,
    /// Integers wrap, a negative power of one is 0.
    Power,
    /// NaN wins; of equals the second.
    Maximum,
    Minimum,
    /// Floats only.
    Atan2,
    /// Floats only.
    LogAddExp,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    /// Of truth values, as is `LogicalOr`.
    LogicalAnd,
    LogicalOr,
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    /// An integer rounded to a multiple of ten to the power that the second operand gives, halves to even.
    RoundTo,
}

impl BinaryOp {
    /// Whether the result is a truth value whatever the operands are.
    pub fn gives_bool(self) -> bool {
        use BinaryOp as Op;
        matches!(
            self,
            Op::Less
                | Op::LessEqual
                | Op::Greater
                | Op::GreaterEqual
                | Op::Equal
                | Op::NotEqual
                | Op::LogicalAnd
                | Op::LogicalOr
        )
    }
}

macro_rules! float_functions {
    ($($Name:ident => $Out:ty, |$a:ident, $b:ident, $S:ident| $value:expr;)*) => { $(
        struct $Name;
        impl Zip for $Name {
            type In = f32;
            type Out = $Out;
            #[inline(always)]
            fn apply<$S: Simd>($a: f32, $b: f32) -> $Out { $value }
        }
    )* };
}
float_functions! {
    AddF => f32, |a, b, S| a + b;
    SubF => f32, |a, b, S| a - b;
    MulF => f32, |a, b, S| a * b;
    DivF => f32, |a, b, S| a / b;
    FloorDivF => f32, |a, b, S| floor_divide(a.into(), b.into()) as f32;
    RemF => f32, |a, b, S| remainder(a, b);
    PowF => f32, |a, b, S| math::pow::<S>(a, b);
    MaxF => f32, |a, b, S| if a > b || a.is_nan() { a } else { b };
    MinF => f32, |a, b, S| if a < b || a.is_nan() { a } else { b };
    Atan2F => f32, |a, b, S| math::atan2::<S>(a, b);
    LogAddExpF => f32, |a, b, S| math::log_add_exp::<S>(a, b);
    LessF => u8, |a, b, S| u8::from(a < b);
    LessEqualF => u8, |a, b, S| u8::from(a <= b);
    GreaterF => u8, |a, b, S| u8::from(a > b);
    GreaterEqualF => u8, |a, b, S| u8::from(a >= b);
    EqualF => u8, |a, b, S| u8::from(a == b);
    NotEqualF => u8, |a, b, S| u8::from(a != b);
}

/// The remainder has the divisor's sign. A zero one keeps the dividend's, as in PyTorch: -6 mod 3 is -0.
#[inline(always)]
fn remainder(a: f32, b: f32) -> f32 {
    let rest = a % b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
}

/// PyTorch's quotient rounded down, built on the exact remainder: -1 divided by infinity is -1.
#[inline(always)]
fn floor_divide(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return a / b;
    }
    let rest = a % b;
    let mut quotient = (a - rest) / b;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return 0f64.copysign(a / b);
    }
    let floor = quotient.floor();
    if quotient - floor > 0.5 { floor + 1.0 } else { floor }
}

macro_rules! int_functions {
    ($($Name:ident => $Out:ty, |$a:ident, $b:ident| $value:expr;)*) => { $(
        struct $Name<T>(PhantomData<T>);
        impl<T: Int> Zip for $Name<T> {
            type In = T;
            type Out = $Out;
            #[inline(always)]
            fn apply<S: Simd>($a: T, $b: T) -> $Out { $value }
        }
    )* };
}
int_functions! {
    AddI => T, |a, b| a.add(b);
    SubI => T, |a, b| a.sub(b);
    MulI => T, |a, b| a.mul(b);
    FloorDivI => T, |a, b| a.floor_divide(b);
    RemI => T, |a, b| a.remainder(b);
    PowI => T, |a, b| a.power(b);
    MaxI => T, |a, b| if a > b { a } else { b };
    MinI => T, |a, b| if a < b { a } else { b };
    AndI => T, |a, b| a.and(b);
    OrI => T, |a, b| a.or(b);
    XorI => T, |a, b| a.xor(b);
    RoundToI => T, |a, b| a.round_to(b);
    LessI => u8, |a, b| u8::from(a < b);
    LessEqualI => u8, |a, b| u8::from(a <= b);
    EqualI => u8, |a, b| u8::from(a == b);
    NotEqualI => u8, |a, b| u8::from(a != b);
}

macro_rules! truth_functions {
    ($($Name:ident, |$a:ident, $b:ident| $value:expr;)*) => { $(
        struct $Name;
        impl Zip for $Name {
            type In = u8;
            type Out = u8;
            #[inline(always)]
            fn apply<S: Simd>(a: u8, b: u8) -> u8 {
                let ($a, $b) = (a != 0, b != 0);
                u8::from($value)
            }
        }
    )* };
}
truth_functions! {
    AndB, |a, b| a & b;
    OrB, |a, b| a | b;
    XorB, |a, b| a ^ b;
    SameB, |a, b| a == b;
    LessB, |a, b| !a & b;
    LessEqualB, |a, b| !a | b;
    ButNotB, |a, b| a & !b;
    PowB, |a, b| a | !b;
}

/// The loop of an op over elements of a lane; `None` where the op has no meaning there. `swapped` says that the
/// operands change places.
pub(super) fn binary(op: BinaryOp, lane: Lane, level: Level) -> Option<(Two, bool)> {
    use BinaryOp as Op;
    let (op, swapped) = match op {
        Op::Greater if lane != Lane::F32 => (Op::Less, true),
        Op::GreaterEqual if lane != Lane::F32 => (Op::LessEqual, true),
        other => (other, false),
    };
    let run = match lane {
        Lane::Bool => truths(op, level)?,
        Lane::F32 => floats(op, level)?,
        Lane::F16 | Lane::BF16 => return None,
        _ => ints(op, lane, level)?,
    };
    Some((run, swapped))
}

/// Bools count as the numbers 0 and 1, and results as whether they are not 0.
fn truths(op: BinaryOp, level: Level) -> Option<Two> {
    use BinaryOp as Op;
    Some(match op {
        Op::Add | Op::Maximum | Op::LogicalOr | Op::BitwiseOr => zip::<OrB>(level),
        Op::Multiply | Op::Minimum | Op::FloorDivide | Op::LogicalAnd | Op::BitwiseAnd => zip::<AndB>(level),
        Op::Subtract | Op::NotEqual | Op::BitwiseXor => zip::<XorB>(level),
        Op::Remainder => zip::<ButNotB>(level),
        Op::Power => zip::<PowB>(level),
        Op::Less => zip::<LessB>(level),
        Op::LessEqual => zip::<LessEqualB>(level),
        Op::Equal => zip::<SameB>(level),
        _ => return None,
    })
}

fn floats(op: BinaryOp, level: Level) -> Option<Two> {
    use BinaryOp as Op;
    Some(match op {
        Op::Add => zip::<AddF>(level),
        Op::Subtract => zip::<SubF>(level),
        Op::Multiply => zip::<MulF>(level),
        Op::Divide => zip::<DivF>(level),
        Op::FloorDivide => zip::<FloorDivF>(level),
        Op::Remainder => zip::<RemF>(level),
        Op::Power => zip::<PowF>(level),
        Op::Maximum => zip::<MaxF>(level),
        Op::Minimum => zip::<MinF>(level),
        Op::Atan2 => zip::<Atan2F>(level),
        Op::LogAddExp => zip::<LogAddExpF>(level),
        Op::Less => zip::<LessF>(level),
        Op::LessEqual => zip::<LessEqualF>(level),
        Op::Greater => zip::<GreaterF>(level),
        Op::GreaterEqual => zip::<GreaterEqualF>(level),
        Op::Equal => zip::<EqualF>(level),
        Op::NotEqual => zip::<NotEqualF>(level),
        _ => return None,
    })
}

fn ints(op: BinaryOp, lane: Lane, level: Level) -> Option<Two> {
    use BinaryOp as Op;
    macro_rules! each {
        ($F:ident) => {
            match lane {
                Lane::U8 => zip::<$F<u8>>(level),
                Lane::U16 => zip::<$F<u16>>(level),
                Lane::U32 => zip::<$F<u32>>(level),
                Lane::U64 => zip::<$F<u64>>(level),
                Lane::I8 => zip::<$F<i8>>(level),
                Lane::I16 => zip::<$F<i16>>(level),
                Lane::I32 => zip::<$F<i32>>(level),
                Lane::I64 => zip::<$F<i64>>(level),
                _ => return None,
            }
        };
    }
    // Where the sign does not matter, one loop serves both.
    macro_rules! sizes {
        ($F:ident) => {
            match lane {
                Lane::U8 | Lane::I8 => zip::<$F<u8>>(level),
                Lane::U16 | Lane::I16 => zip::<$F<u16>>(level),
                Lane::U32 | Lane::I32 => zip::<$F<u32>>(level),
                Lane::U64 | Lane::I64 => zip::<$F<u64>>(level),
                _ => return None,
            }
        };
    }
    Some(match op {
        Op::Add => sizes!(AddI),
        Op::Subtract => sizes!(SubI),
        Op::Multiply => sizes!(MulI),
        Op::FloorDivide => each!(FloorDivI),
        Op::Remainder => each!(RemI),
        Op::Power => each!(PowI),
        Op::Maximum => each!(MaxI),
        Op::Minimum => each!(MinI),
        Op::BitwiseAnd => sizes!(AndI),
        Op::BitwiseOr => sizes!(OrI),
        Op::BitwiseXor => sizes!(XorI),
        Op::RoundTo => each!(RoundToI),
        Op::Less => each!(LessI),
        Op::LessEqual => each!(LessEqualI),
        Op::Equal => sizes!(EqualI),
        Op::NotEqual => sizes!(NotEqualI),
        _ => return None,
    })
}
