//! The types of metadata and of tensors, by their numbers in the file.

use std::fmt;

use pteron_tensor::quant::BlockFormat;

/// The type of a value of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    /// All types, by number.
    const ALL: [ValueType; 13] = [
        ValueType::U8,
        ValueType::I8,
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::Bool,
        ValueType::String,
        ValueType::Array,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    pub(crate) fn from_number(number: u32) -> Option<ValueType> {
        ValueType::ALL.get(usize::try_from(number).ok()?).copied()
    }

    pub(crate) fn number(self) -> u32 {
        self as u32
    }

    /// Bytes of a value, where all values of the type have as many.
    pub(crate) fn size(self) -> Option<usize> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::String | ValueType::Array => None,
        }
    }

    /// The fewest bytes that a value takes.
    pub(crate) fn least_size(self) -> usize {
        match self {
            ValueType::String => 8,
            ValueType::Array => 12,
            _ => self.size().unwrap_or(1),
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::String => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        })
    }
}

/// The type of a tensor's elements: how many make a block, and how many bytes that has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TensorType(&'static Row);

/// Number, name, elements of a block, bytes of a block.
#[derive(PartialEq, Eq)]
struct Row(u32, &'static str, usize, usize);

/// Every type that ggml has or had with a layout of its own. Some cannot be decoded, but all can be walked over.
const TYPES: &[Row] = &[
    Row(0, "F32", 1, 4),
    Row(1, "F16", 1, 2),
    Row(2, "Q4_0", 32, 18),
    Row(3, "Q4_1", 32, 20),
    Row(6, "Q5_0", 32, 22),
    Row(7, "Q5_1", 32, 24),
    Row(8, "Q8_0", 32, 34),
    Row(9, "Q8_1", 32, 40),
    Row(10, "Q2_K", 256, 84),
    Row(11, "Q3_K", 256, 110),
    Row(12, "Q4_K", 256, 144),
    Row(13, "Q5_K", 256, 176),
    Row(14, "Q6_K", 256, 210),
    Row(15, "Q8_K", 256, 292),
    Row(16, "IQ2_XXS", 256, 66),
    Row(17, "IQ2_XS", 256, 74),
    Row(18, "IQ3_XXS", 256, 98),
    Row(19, "IQ1_S", 256, 50),
    Row(20, "IQ4_NL", 32, 18),
    Row(21, "IQ3_S", 256, 110),
    Row(22, "IQ2_S", 256, 82),
    Row(23, "IQ4_XS", 256, 136),
    Row(24, "I8", 1, 1),
    Row(25, "I16", 1, 2),
    Row(26, "I32", 1, 4),
    Row(27, "I64", 1, 8),
    Row(28, "F64", 1, 8),
    Row(29, "IQ1_M", 256, 56),
    Row(30, "BF16", 1, 2),
    Row(34, "TQ1_0", 256, 54),
    Row(35, "TQ2_0", 256, 66),
    Row(39, "MXFP4", 32, 17),
    Row(40, "NVFP4", 64, 36),
    Row(41, "Q1_0", 128, 18),
    Row(42, "Q2_0", 64, 18),
];

impl TensorType {
    /// The type of that number, where it is known.
    pub fn from_number(number: u32) -> Option<TensorType> {
        TYPES.iter().find(|row| row.0 == number).map(TensorType)
    }

    /// The type of that name, such as `Q4_K`, where it is known.
    pub fn from_name(name: &str) -> Option<TensorType> {
        TYPES.iter().find(|row| row.1 == name).map(TensorType)
    }

    /// Its number in a file.
    pub fn number(self) -> u32 {
        self.0.0
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0.1
    }

    /// Elements of a block.
    pub fn block_len(self) -> usize {
        self.0.2
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.0.3
    }

    /// Bytes of a row of that many elements; nothing where they make no whole blocks, or too many.
    pub fn row_bytes(self, len: usize) -> Option<usize> {
        len.is_multiple_of(self.block_len())
            .then_some(len / self.block_len())?
            .checked_mul(self.block_bytes())
    }

    /// How its blocks are decoded; nothing where they are not.
    pub fn format(self) -> Option<BlockFormat> {
        Some(match self.name() {
            "F32" => BlockFormat::F32,
            "F16" => BlockFormat::F16,
            "BF16" => BlockFormat::BF16,
            "Q4_0" => BlockFormat::Q4_0,
            "Q4_1" => BlockFormat::Q4_1,
            "Q5_0" => BlockFormat::Q5_0,
            "Q5_1" => BlockFormat::Q5_1,
            "Q8_0" => BlockFormat::Q8_0,
            "Q2_K" => BlockFormat::Q2K,
            "Q3_K" => BlockFormat::Q3K,
            "Q4_K" => BlockFormat::Q4K,
            "Q5_K" => BlockFormat::Q5K,
            "Q6_K" => BlockFormat::Q6K,
            "Q1_0" => BlockFormat::Q1_0,
            "Q2_0" => BlockFormat::Q2_0,
            "TQ1_0" => BlockFormat::TQ1_0,
            "TQ2_0" => BlockFormat::TQ2_0,
            "IQ1_S" => BlockFormat::IQ1_S,
            "IQ1_M" => BlockFormat::IQ1_M,
            "IQ2_XXS" => BlockFormat::IQ2_XXS,
            "IQ2_XS" => BlockFormat::IQ2_XS,
            "IQ2_S" => BlockFormat::IQ2_S,
            "IQ3_XXS" => BlockFormat::IQ3_XXS,
            "IQ3_S" => BlockFormat::IQ3_S,
            "IQ4_NL" => BlockFormat::IQ4_NL,
            "IQ4_XS" => BlockFormat::IQ4_XS,
            "MXFP4" => BlockFormat::MXFP4,
            "NVFP4" => BlockFormat::NVFP4,
            _ => return None,
        })
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_to_the_same_type() {
        for row in TYPES {
            let ty = TensorType::from_number(row.0).unwrap();
            assert_eq!(TensorType::from_name(ty.name()), Some(ty));
            if let Some(format) = ty.format() {
                assert_eq!((format.block_len(), format.block_bytes()), (ty.block_len(), ty.block_bytes()));
            }
        }
        assert_eq!(TensorType::from_number(4), None);
        for (number, ty) in ValueType::ALL.iter().enumerate() {
            assert_eq!(ty.number() as usize, number);
        }
    }

    #[test]
    fn rows_are_whole_blocks() {
        let ty = TensorType::from_name("Q4_0").unwrap();
        assert_eq!(ty.row_bytes(64), Some(36));
        assert_eq!(ty.row_bytes(63), None);
        assert_eq!(TensorType::from_name("F64").unwrap().row_bytes(usize::MAX), None);
    }
}
