//! How the fields of ops are written: one way to print and one to parse for each kind of field, chosen by the
//! catalogue's [`FieldSpec`]. No op is known here.

use super::cursor::{Cursor, Parsed};
use super::error::{Problem, shorten};
use super::lexer::Token;
use crate::graph::{Ssa, ValueId};
use crate::op::{DefaultValue, Field, FieldKind, FieldRef, FieldSpec, FloatArg, IndexArg, IntArg, OffsetArg};
use pteron_tensor::DType;
use std::fmt::{self, Display};

/// What a field can hold: prints as text that parses to the same bits.
pub(super) trait Literal {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    fn parse(cursor: &mut Cursor<'_>) -> Parsed<Self>
    where
        Self: Sized;
}

/// Something to print as a field's value.
pub(super) struct Shown<'a>(&'a dyn Literal);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.print(f)
    }
}

/// What to print for a field; nothing where it holds its default, is absent, or is a body.
pub(super) fn shown<'a>(spec: &FieldSpec, field: FieldRef<'a, Ssa>) -> Option<Shown<'a>> {
    fn some<T: Literal>(value: &Option<T>) -> Option<Shown<'_>> {
        value.as_ref().map(|value| Shown(value))
    }
    fn unless<T: Literal>(default: bool, value: &T) -> Option<Shown<'_>> {
        (!default).then_some(Shown(value))
    }
    match field {
        FieldRef::Tensor(value) => Some(Shown(value)),
        FieldRef::MaybeTensor(value) => some(value),
        FieldRef::Tensors(values) => Some(Shown(values)),
        FieldRef::Int(value) => Some(Shown(value)),
        FieldRef::MaybeInt(value) => some(value),
        FieldRef::Ints(values) => Some(Shown(values)),
        FieldRef::MaybeInts(values) => some(values),
        FieldRef::Float(value) => Some(Shown(value)),
        FieldRef::Offset(value) => Some(Shown(value)),
        FieldRef::Index(value) => Some(Shown(value)),
        FieldRef::MaybeScalar(value) => some(value),
        FieldRef::I32(value) => unless(spec.default == Some(DefaultValue::I32(*value)), value),
        FieldRef::MaybeI32(value) => some(value),
        FieldRef::I32s(values) => Some(Shown(values)),
        FieldRef::MaybeI32s(values) => some(values),
        FieldRef::MaybeI8s(values) => some(values),
        FieldRef::U64(value) => unless(spec.default == Some(DefaultValue::U64(*value)), value),
        // By bits: -0.0 is not 0.0.
        FieldRef::F32(value) => unless(
            matches!(spec.default, Some(DefaultValue::F32(default)) if default.to_bits() == value.to_bits()),
            value,
        ),
        FieldRef::MaybeF32(value) => some(value),
        FieldRef::Bool(value) => unless(spec.default == Some(DefaultValue::Bool(*value)), value),
        FieldRef::Str(value) => Some(Shown(value)),
        FieldRef::MaybeStr(value) => some(value),
        FieldRef::MaybeStrs(values) => some(values),
        FieldRef::DType(value) => Some(Shown(value)),
        FieldRef::MaybeDType(value) => some(value),
        FieldRef::MaybeDTypes(values) => some(values),
        FieldRef::Body(_) | FieldRef::LoopSlots(()) => None,
    }
}

/// Reads the value of a field of that kind; bodies are written elsewhere.
pub(super) fn parse(kind: FieldKind, cursor: &mut Cursor<'_>) -> Parsed<Field<Ssa>> {
    fn one<T: Literal>(cursor: &mut Cursor<'_>) -> Parsed<T> {
        T::parse(cursor)
    }
    Ok(match kind {
        FieldKind::Tensor => Field::Tensor(one(cursor)?),
        FieldKind::MaybeTensor => Field::MaybeTensor(Some(one(cursor)?)),
        FieldKind::Tensors => Field::Tensors(one(cursor)?),
        FieldKind::Int => Field::Int(one(cursor)?),
        FieldKind::MaybeInt => Field::MaybeInt(Some(one(cursor)?)),
        FieldKind::Ints => Field::Ints(one(cursor)?),
        FieldKind::MaybeInts => Field::MaybeInts(Some(one(cursor)?)),
        FieldKind::Float => Field::Float(one(cursor)?),
        FieldKind::Offset => Field::Offset(one(cursor)?),
        FieldKind::Index => Field::Index(one(cursor)?),
        FieldKind::MaybeScalar => Field::MaybeScalar(Some(one(cursor)?)),
        FieldKind::I32 => Field::I32(one(cursor)?),
        FieldKind::MaybeI32 => Field::MaybeI32(Some(one(cursor)?)),
        FieldKind::I32s => Field::I32s(one(cursor)?),
        FieldKind::MaybeI32s => Field::MaybeI32s(Some(one(cursor)?)),
        FieldKind::MaybeI8s => Field::MaybeI8s(Some(one(cursor)?)),
        FieldKind::U64 => Field::U64(one(cursor)?),
        FieldKind::F32 => Field::F32(one(cursor)?),
        FieldKind::MaybeF32 => Field::MaybeF32(Some(one(cursor)?)),
        FieldKind::Bool => Field::Bool(one(cursor)?),
        FieldKind::Str => Field::Str(one(cursor)?),
        FieldKind::MaybeStr => Field::MaybeStr(Some(one(cursor)?)),
        FieldKind::MaybeStrs => Field::MaybeStrs(Some(one(cursor)?)),
        FieldKind::DType => Field::DType(one(cursor)?),
        FieldKind::MaybeDType => Field::MaybeDType(Some(one(cursor)?)),
        FieldKind::MaybeDTypes => Field::MaybeDTypes(Some(one(cursor)?)),
        FieldKind::Body | FieldKind::LoopSlots => return cursor.unexpected("a field that is not a body"),
    })
}

/// The field that is meant when the text leaves it out. Fields without a default must be written, so that a
/// forgotten axis is an error and not 0.
pub(super) fn left_out(spec: &FieldSpec) -> Option<Field<Ssa>> {
    match spec.kind {
        FieldKind::LoopSlots => Some(Field::LoopSlots(())),
        FieldKind::I32 | FieldKind::U64 | FieldKind::F32 | FieldKind::Bool | FieldKind::DType
            if spec.default.is_none() =>
        {
            None
        }
        _ => Field::absent(spec),
    }
}

impl Literal for ValueId {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }

    fn parse(cursor: &mut Cursor<'_>) -> Parsed<ValueId> {
        cursor.value()
    }
}

macro_rules! integer_literal {
    ($($Int:ident $expected:literal),*) => { $(
        impl Literal for $Int {
            fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }

            fn parse(cursor: &mut Cursor<'_>) -> Parsed<$Int> {
                cursor.integer($expected)
            }
        }
    )* };
}
integer_literal!(
    i8 "an integer of 8 bits", i32 "an integer of 32 bits", i64 "an integer of 64 bits",
    u64 "an unsigned integer of 64 bits"
);

macro_rules! float_literal {
    ($($Float:ident $Bits:ident $expected:literal),*) => { $(
        impl Literal for $Float {
            /// The shortest text that reads back to the same number; of NaN, its payload where it has one.
            fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if !self.is_nan() {
                    return write!(f, "{self:?}");
                }
                let sign = if self.is_sign_negative() { "-" } else { "" };
                let payload = self.to_bits() & $Float::NAN_PAYLOAD;
                if payload == $Float::QUIET { write!(f, "{sign}nan") } else { write!(f, "{sign}nan({payload})") }
            }

            fn parse(cursor: &mut Cursor<'_>) -> Parsed<$Float> {
                let spot = cursor.spot();
                let negative = cursor.eat("-")?;
                let out_of_range = |text: &str| {
                    spot.error(Problem::OutOfRange { text: shorten(text), expected: $expected })
                };
                let size = match *cursor.peek() {
                    Token::Number(text) => {
                        cursor.take()?;
                        let number: $Float = text.parse().map_err(|_| out_of_range(text))?;
                        if number.is_infinite() {
                            return Err(out_of_range(text));
                        }
                        number
                    }
                    Token::Word("inf") => {
                        cursor.take()?;
                        $Float::INFINITY
                    }
                    Token::Word("nan") => {
                        cursor.take()?;
                        let mut payload = $Float::QUIET;
                        if cursor.eat("(")? {
                            payload = cursor.integer("the payload of a NaN")?;
                            cursor.expect(")")?;
                        }
                        if payload == 0 || payload > $Float::NAN_PAYLOAD {
                            return Err(out_of_range("this payload of a NaN"));
                        }
                        $Float::from_bits($Float::INFINITY.to_bits() | payload)
                    }
                    _ => return cursor.unexpected($expected),
                };
                Ok(if negative { -size } else { size })
            }
        }

        impl NanBits for $Float {
            type Bits = $Bits;
            const NAN_PAYLOAD: $Bits = (1 << ($Float::MANTISSA_DIGITS - 1)) - 1;
            const QUIET: $Bits = 1 << ($Float::MANTISSA_DIGITS - 2);
        }
    )* };
}

/// How a float type writes NaN.
trait NanBits {
    type Bits;
    /// The bits that tell one NaN from another.
    const NAN_PAYLOAD: Self::Bits;
    /// Those bits of the NaN that arithmetic makes.
    const QUIET: Self::Bits;
}
float_literal!(f32 u32 "an f32", f64 u64 "an f64");

impl Literal for bool {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }

    fn parse(cursor: &mut Cursor<'_>) -> Parsed<bool> {
        match cursor.peek() {
            Token::Word("true") => cursor.take().map(|_| true),
            Token::Word("false") => cursor.take().map(|_| false),
            _ => cursor.unexpected("true or false"),
        }
    }
}

impl Literal for String {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quoted(f, self)
    }

    fn parse(cursor: &mut Cursor<'_>) -> Parsed<String> {
        cursor.string()
    }
}

impl Literal for DType {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }

    fn parse(cursor: &mut Cursor<'_>) -> Parsed<DType> {
        let dtype = match cursor.peek() {
            Token::Word(word) => DType::from_name(word),
            _ => None,
        };
        match dtype {
            Some(dtype) => cursor.take().map(|_| dtype),
            None => cursor.unexpected("an element type such as f32"),
        }
    }
}

impl<T: Literal> Literal for Vec<T> {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, item) in self.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            item.print(f)?;
        }
        f.write_str("]")
    }

    fn parse(cursor: &mut Cursor<'_>) -> Parsed<Vec<T>> {
        cursor.list("[", "]", T::parse)
    }
}

impl Literal for IntArg<ValueId> {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntArg::Literal(number) => number.print(f),
            IntArg::Value(value) => value.print(f),
        }
    }

    fn parse(cursor: &mut Cursor<'_>) -> Parsed<IntArg<ValueId>> {
        match cursor.peek() {
            Token::Value(_) => cursor.value().map(IntArg::Value),
            _ => cursor.integer("an integer of 64 bits or a value").map(IntArg::Literal),
        }
    }
}

impl Literal for FloatArg<ValueId> {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FloatArg::Literal(number) => number.print(f),
            FloatArg::Value(value) => value.print(f),
        }
    }

    fn parse(cursor: &mut Cursor<'_>) -> Parsed<FloatArg<ValueId>> {
        match cursor.peek() {
            Token::Value(_) => cursor.value().map(FloatArg::Value),
            _ => f64::parse(cursor).map(FloatArg::Literal),
        }
    }
}

impl Literal for OffsetArg<ValueId, ValueId> {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OffsetArg::Value(value) => write!(f, "int(%{})", value.0),
            OffsetArg::Tensor(value) => value.print(f),
        }
    }

    fn parse(cursor: &mut Cursor<'_>) -> Parsed<OffsetArg<ValueId, ValueId>> {
        match cursor.peek() {
            Token::Value(_) => cursor.value().map(OffsetArg::Tensor),
            Token::Word("int") => int_value(cursor).map(OffsetArg::Value),
            _ => cursor.unexpected("a tensor such as %12 or an integer such as int(%12)"),
        }
    }
}

impl Literal for IndexArg<ValueId, ValueId> {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexArg::Literal(number) => number.print(f),
            IndexArg::Value(value) => write!(f, "int(%{})", value.0),
            IndexArg::Tensor(value) => value.print(f),
        }
    }

    fn parse(cursor: &mut Cursor<'_>) -> Parsed<IndexArg<ValueId, ValueId>> {
        match cursor.peek() {
            Token::Value(_) => cursor.value().map(IndexArg::Tensor),
            Token::Word("int") => int_value(cursor).map(IndexArg::Value),
            _ => cursor.integer("an integer, a tensor such as %12 or int(%12)").map(IndexArg::Literal),
        }
    }
}

/// `int(%12)`: an integer value where a tensor might stand.
fn int_value(cursor: &mut Cursor<'_>) -> Parsed<ValueId> {
    cursor.take()?;
    cursor.expect("(")?;
    let value = cursor.value()?;
    cursor.expect(")")?;
    Ok(value)
}

/// A string in quotes, with escapes for whatever would not be seen.
pub(super) fn write_quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '\'' => f.write_str("'")?,
            // `escape_debug` writes NUL as `\0`, which the lexer does not know.
            '\0' => f.write_str("\\u{0}")?,
            _ => write!(f, "{}", c.escape_debug())?,
        }
    }
    f.write_str("\"")
}
