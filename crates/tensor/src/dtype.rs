//! The element types of the format, their wire codes, and how two of them promote.

use std::fmt;

/// The type of one tensor element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned 8 bits.
    U8,
    /// Unsigned 16 bits.
    U16,
    /// Unsigned 32 bits.
    U32,
    /// Unsigned 64 bits.
    U64,
    /// Signed 8 bits.
    I8,
    /// Signed 16 bits.
    I16,
    /// Signed 32 bits.
    I32,
    /// Signed 64 bits.
    I64,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    BF16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision; only portable operators have it.
    F64,
}

/// What kind of number a dtype holds: promotion never leaves the higher kind of its two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Bool,
    Unsigned,
    Signed,
    Float,
}

/// Name, ExecuTorch's `ScalarType` code, size in bytes and kind: the one table behind every method.
const TABLE: [(DType, &str, i8, usize, Kind); 13] = [
    (DType::Bool, "bool", 11, 1, Kind::Bool),
    (DType::U8, "u8", 0, 1, Kind::Unsigned),
    (DType::U16, "u16", 27, 2, Kind::Unsigned),
    (DType::U32, "u32", 28, 4, Kind::Unsigned),
    (DType::U64, "u64", 29, 8, Kind::Unsigned),
    (DType::I8, "i8", 1, 1, Kind::Signed),
    (DType::I16, "i16", 2, 2, Kind::Signed),
    (DType::I32, "i32", 3, 4, Kind::Signed),
    (DType::I64, "i64", 4, 8, Kind::Signed),
    (DType::F16, "f16", 5, 2, Kind::Float),
    (DType::BF16, "bf16", 15, 2, Kind::Float),
    (DType::F32, "f32", 6, 4, Kind::Float),
    (DType::F64, "f64", 7, 8, Kind::Float),
];

impl DType {
    /// Every dtype, in declaration order.
    pub fn all() -> impl Iterator<Item = DType> {
        TABLE.iter().map(|row| row.0)
    }

    fn row(self) -> &'static (DType, &'static str, i8, usize, Kind) {
        &TABLE[self as usize]
    }

    /// Short name as the text form writes it: `f32`, `bf16`, `i64`, `bool`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The dtype of that short name.
    pub fn from_name(name: &str) -> Option<DType> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// ExecuTorch's `ScalarType` number.
    pub fn code(self) -> i8 {
        self.row().2
    }

    /// The dtype of that `ScalarType` number, if it is one that we know.
    pub fn from_code(code: i8) -> Option<DType> {
        TABLE.iter().find(|row| row.2 == code).map(|row| row.0)
    }

    /// Bytes per element.
    pub fn size(self) -> usize {
        self.row().3
    }

    /// Whether this is one of the float types.
    pub fn is_float(self) -> bool {
        self.row().4 == Kind::Float
    }

    /// Whether this is a signed or unsigned integer (bool is neither).
    pub fn is_int(self) -> bool {
        matches!(self.row().4, Kind::Signed | Kind::Unsigned)
    }

    /// Whether this is an unsigned integer.
    pub fn is_unsigned(self) -> bool {
        self.row().4 == Kind::Unsigned
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The dtype of a binary operation, by MLX's rules: there are no weak scalars, any integer with a float
/// gives that float, f16 with bf16 gives f32, and unsigned with signed goes to a signed type that holds both
/// (except u64, which goes to f32).
pub fn promote(a: DType, b: DType) -> DType {
    if a == b {
        return a;
    }
    let (low, high) = if a.row().4 <= b.row().4 { (a, b) } else { (b, a) };
    match (low.row().4, high.row().4) {
        (Kind::Bool, _) => high,
        (Kind::Float, Kind::Float) if low.size() == high.size() => DType::F32,
        (x, y) if x == y => {
            if low.size() > high.size() {
                low
            } else {
                high
            }
        }
        (_, Kind::Float) => high,
        (Kind::Unsigned, _) => match low {
            DType::U64 => DType::F32,
            _ if low.size() < high.size() => high,
            DType::U8 => DType::I16,
            DType::U16 => DType::I32,
            _ => DType::I64,
        },
        _ => high,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::*;

    #[test]
    fn table_rows_stand_in_declaration_order() {
        for (index, dtype) in DType::all().enumerate() {
            assert_eq!(dtype as usize, index);
            assert_eq!(DType::from_code(dtype.code()), Some(dtype));
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
    }

    #[test]
    fn promotion_follows_mlx() {
        let cases = [
            (U8, I8, I16),
            (U16, I16, I32),
            (U32, I8, I64),
            (U32, I32, I64),
            (U32, I64, I64),
            (U64, I64, F32),
            (U8, I32, I32),
            (Bool, U8, U8),
            (Bool, F16, F16),
            (I64, F16, F16),
            (I64, BF16, BF16),
            (F16, BF16, F32),
            (F16, F32, F32),
            (I8, I64, I64),
            (U64, F16, F16),
            (U8, U32, U32),
        ];
        for (a, b, want) in cases {
            assert_eq!(promote(a, b), want, "{a} + {b}");
            assert_eq!(promote(b, a), want, "{b} + {a}");
        }
    }
}
