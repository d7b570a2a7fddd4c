//! Element-wise kernels: one generator for all functions of one to three numbers, casts and what is made from numbers alone.
//! Operands are read through strides; each thread makes a word of the result.
//!
//! Parameters: elements, first word of the result, two numbers of the op, then sizes and each operand's first element and
//! strides.

use super::source::{Lane, Source, locate, param, rounded, signed, words};
use pteron_ir::OpKind;
use pteron_tensor::DType;

/// Where the op's own two numbers are.
const NUMBERS: u32 = 2;
/// Where sizes begin.
const SIZES: u32 = 4;

const NAMES: [&str; 3] = ["a", "b", "c"];

pub(super) fn text(kind: OpKind, form: u8, inputs: &[DType], work: DType, out: DType, rank: u32) -> String {
    let mut source = Source::new();
    source.writes("out");
    for (name, dtype) in NAMES.iter().zip(inputs) {
        source.reads(name, *dtype);
    }
    let names = &NAMES[..inputs.len()];
    let mut element = format!("fn element(e: u32) -> {} {{\n", Lane::of(out).wgsl());
    if rank == 0 {
        for (number, name) in names.iter().enumerate() {
            element.push_str(&format!("let {name}_at = {} + e;\n", param(SIZES + number as u32)));
        }
    } else {
        element.push_str(&locate("e", rank, SIZES, names));
    }
    for (number, (name, dtype)) in names.iter().zip(inputs).enumerate() {
        // What chooses is a truth value whatever the others are computed in.
        let wanted = if kind == OpKind::Where && number == 0 { DType::Bool } else { work };
        let value = converted(*dtype, wanted, &format!("load_{name}({name}_at)"), kind == OpKind::AsType);
        element.push_str(&format!("let {name} = {value};\n"));
    }
    let (lane, gives) = (Lane::of(work), given(kind, Lane::of(work)));
    let value = expression(kind, form, lane);
    element.push_str(&format!("let result = {value};\nreturn {};\n}}", narrowed(gives, out, "result")));
    words(&mut source, out, &element);
    source.finish()
}

/// An operand as a number of the dtype in which is computed.
fn converted(from: DType, to: DType, value: &str, is_cast: bool) -> String {
    let value = Lane::of(from).cast(Lane::of(to), value);
    // A cast rounds where its result is written.
    if from == to || !to.is_float() || is_cast { value } else { rounded(to, &value) }
}

/// What an op gives when it computes in a lane.
fn given(kind: OpKind, work: Lane) -> Lane {
    match kind {
        OpKind::Less
        | OpKind::LessEqual
        | OpKind::Greater
        | OpKind::GreaterEqual
        | OpKind::Equal
        | OpKind::NotEqual
        | OpKind::LogicalAnd
        | OpKind::LogicalOr
        | OpKind::LogicalNot => Lane::Bool,
        _ => work,
    }
}

/// A value of one lane as one that an element of a dtype is encoded from. Floats that go to narrow integers stop at their
/// bounds; integers wrap when they are encoded.
fn narrowed(from: Lane, to: DType, value: &str) -> String {
    let bounds = match (from, to) {
        (Lane::F32, DType::U8) => Some(("0.0", "255.0")),
        (Lane::F32, DType::U16) => Some(("0.0", "65535.0")),
        (Lane::F32, DType::I8) => Some(("-128.0", "127.0")),
        (Lane::F32, DType::I16) => Some(("-32768.0", "32767.0")),
        _ => None,
    };
    match bounds {
        Some((low, high)) => {
            let number = format!("select(clamp({value}, {low}, {high}), 0.0, is_nan({value}))");
            from.cast(Lane::of(to), &number)
        }
        None => from.cast(Lane::of(to), value),
    }
}

/// What is computed from `a`, `b` and `c`.
fn expression(kind: OpKind, form: u8, lane: Lane) -> String {
    let float = lane == Lane::F32;
    let zero = lane.literal(0);
    let text = match kind {
        OpKind::AsType | OpKind::Contiguous => "a",
        OpKind::Full => return number(lane),
        OpKind::ARange => {
            // Wrapping 32-bit steps are those of the reference for what a tensor of positions holds.
            return match lane {
                Lane::F32 => format!("f32({} + i32(e) * {})", signed(NUMBERS), signed(NUMBERS + 1)),
                Lane::I64 | Lane::U64 => format!(
                    "{0}(i64({1}) + i64(e) * i64({2}))",
                    lane.wgsl(),
                    signed(NUMBERS),
                    signed(NUMBERS + 1)
                ),
                Lane::Bool => format!("({} + i32(e) * {}) != 0i", signed(NUMBERS), signed(NUMBERS + 1)),
                _ => format!("{}({} + i32(e) * {})", lane.wgsl(), signed(NUMBERS), signed(NUMBERS + 1)),
            };
        }
        // Rows and columns of the last two axes: the numbers are the columns and the diagonal; behind all other parameters,
        // `form` of them, are the rows.
        OpKind::Tri | OpKind::Tril | OpKind::Triu => {
            let value = if kind == OpKind::Tri { lane.literal(1) } else { "a".to_owned() };
            let (columns, k) = (param(NUMBERS), signed(NUMBERS + 1));
            let row = format!("i32(e / {columns} % {})", param(SIZES + u32::from(form)));
            let column = format!("i32(e % {columns})");
            let keep = if kind == OpKind::Triu { ">=" } else { "<=" };
            return format!("select({zero}, {value}, {column} {keep} {row} + {k})");
        }
        OpKind::Abs if matches!(lane, Lane::U32 | Lane::U64 | Lane::Bool) => "a",
        OpKind::Abs => "abs(a)",
        OpKind::Neg if matches!(lane, Lane::U32 | Lane::U64) => return format!("{zero} - a"),
        OpKind::Neg => "-a",
        OpKind::Square if lane == Lane::Bool => "a",
        OpKind::Square => "a * a",
        OpKind::Sign if float => "select(select(0.0, -1.0, a < 0.0), 1.0, a > 0.0)",
        OpKind::Sign if lane == Lane::Bool => "a",
        OpKind::Sign => {
            let one = lane.literal(1);
            let below = if matches!(lane, Lane::I32 | Lane::I64) { format!("-{one}") } else { zero.clone() };
            return format!("select(select({zero}, {below}, a < {zero}), {one}, a > {zero})");
        }
        OpKind::Floor => "floor(a)",
        OpKind::Ceil => "ceil(a)",
        OpKind::Trunc => "trunc(a)",
        // To a multiple of a power of ten, or by a power of ten more.
        OpKind::Round if float && form == 1 => {
            return format!("quotient_f32(round(a * {0}), {0})", number(lane));
        }
        OpKind::Round if float && form == 2 => {
            return format!("(round(quotient_f32(a, {0})) * {0})", number(lane));
        }
        OpKind::Round if form == 2 => return format!("round_{}(a, {})", lane.wgsl(), number(lane)),
        OpKind::Round => "round(a)",
        OpKind::Gelu if form == 1 => {
            "0.5 * a * (1.0 + tanh_f32(0.7978845608028654 * (a + 0.044715 * a * a * a)))"
        }
        OpKind::Gelu => "0.5 * a * (1.0 + erf_f32(a * 0.7071067811865476))",
        OpKind::Silu => "a / (1.0 + exp(-a))",
        OpKind::Sigmoid => "1.0 / (1.0 + exp(-a))",
        OpKind::Tanh => "tanh_f32(a)",
        OpKind::Erf => "erf_f32(a)",
        OpKind::Exp => "exp(a)",
        OpKind::Expm1 => "expm1(a)",
        OpKind::Log => "log(a)",
        OpKind::Log2 => "log2(a)",
        OpKind::Log10 => "log(a) * 0.4342944819032518",
        OpKind::Log1p => "log1p(a)",
        OpKind::Sqrt => "sqrt(a)",
        OpKind::Rsqrt => "1.0 / sqrt(a)",
        OpKind::Reciprocal => "1.0 / a",
        OpKind::Sin => "sin_cos_f32(a).x",
        OpKind::Cos => "sin_cos_f32(a).y",
        OpKind::Tan => "tangent(sin_cos_f32(a))",
        OpKind::Arcsin => "asin_f32(a)",
        OpKind::Arccos => "acos_f32(a)",
        OpKind::Arctan => "atan_f32(a)",
        OpKind::Atan2 => "atan2_f32(a, b)",
        OpKind::Sinh => "sinh_f32(a)",
        OpKind::Cosh => "cosh_f32(a)",
        OpKind::Arcsinh => "asinh_f32(a)",
        OpKind::Arccosh => "acosh_f32(a)",
        OpKind::Arctanh => "atanh_f32(a)",
        OpKind::LogicalNot => "!a",
        OpKind::BitwiseInvert if lane == Lane::Bool => "!a",
        OpKind::BitwiseInvert => "~a",
        OpKind::Add | OpKind::BitwiseOr | OpKind::LogicalOr | OpKind::Maximum if lane == Lane::Bool => {
            "a || b"
        }
        OpKind::Multiply | OpKind::BitwiseAnd | OpKind::LogicalAnd | OpKind::Minimum
            if lane == Lane::Bool =>
        {
            "a && b"
        }
        OpKind::BitwiseXor | OpKind::Subtract if lane == Lane::Bool => "a != b",
        OpKind::Add => "a + b",
        OpKind::Subtract => "a - b",
        OpKind::Multiply => "a * b",
        OpKind::Divide => "a / b",
        OpKind::Power if lane == Lane::Bool => "a || !b",
        OpKind::FloorDivide if lane == Lane::Bool => "a && b",
        OpKind::Remainder if lane == Lane::Bool => "a && !b",
        OpKind::Power if float => "pow_f32(a, b)",
        OpKind::Power => return format!("power_{}(a, b)", lane.wgsl()),
        OpKind::Remainder if float => "remainder_f32(a, b)",
        OpKind::Remainder if matches!(lane, Lane::U32 | Lane::U64) => {
            return format!("select(a % max(b, {}), a, b == {zero})", lane.literal(1));
        }
        OpKind::Remainder => return format!("a - floor_divide_{}(a, b) * b", lane.wgsl()),
        OpKind::LogAddExp => "log_add_exp(a, b)",
        OpKind::FloorDivide if matches!(lane, Lane::U32 | Lane::U64) => {
            let one = lane.literal(1);
            return format!("select(a / max(b, {one}), {zero}, b == {zero})");
        }
        OpKind::FloorDivide => return format!("floor_divide_{}(a, b)", lane.wgsl()),
        OpKind::Maximum if float => "max_f32(a, b)",
        OpKind::Minimum if float => "min_f32(a, b)",
        OpKind::Maximum => "max(a, b)",
        OpKind::Minimum => "min(a, b)",
        OpKind::Less if lane == Lane::Bool => "!a && b",
        OpKind::LessEqual if lane == Lane::Bool => "!a || b",
        OpKind::Greater if lane == Lane::Bool => "a && !b",
        OpKind::GreaterEqual if lane == Lane::Bool => "a || !b",
        OpKind::Less => "a < b",
        OpKind::LessEqual => "a <= b",
        OpKind::Greater => "a > b",
        OpKind::GreaterEqual => "a >= b",
        OpKind::Equal => "a == b",
        OpKind::NotEqual => "!(a == b)",
        OpKind::BitwiseAnd => "a & b",
        OpKind::BitwiseOr => "a | b",
        OpKind::BitwiseXor => "a ^ b",
        OpKind::Where => "select(c, b, a)",
        OpKind::Clip => {
            let (low, high) = if float { ("max_f32", "min_f32") } else { ("max", "min") };
            return match form {
                1 => format!("{low}(a, b)"),
                2 => format!("{high}(a, b)"),
                _ => format!("{high}({low}(a, b), c)"),
            };
        }
        // `supports` lets no other op come here.
        _ => return zero,
    };
    text.to_owned()
}

/// The op's number in a lane.
fn number(lane: Lane) -> String {
    match lane {
        Lane::F32 => super::source::float(NUMBERS),
        Lane::I32 => signed(NUMBERS),
        Lane::U32 => param(NUMBERS),
        Lane::Bool => format!("({} != 0u)", param(NUMBERS)),
        Lane::I64 | Lane::U64 => {
            let (low, high) = (param(NUMBERS), param(NUMBERS + 1));
            format!("{}(u64({low}) | (u64({high}) << 32u))", lane.wgsl())
        }
    }
}
