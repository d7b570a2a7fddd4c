//! The tables of a Vulkan payload, owned, one type a table of ExecuTorch 1.5.1's `schema.fbs`.
//!
//! They mirror the wire: an absent vector stays absent, ids stay numbers. What they promise each other is checked in
//! `check`, what they mean is known in `lift`.

use pteron_tensor::DType;

use crate::flatbuffer::{Builder, Offset, Table, TableFields};
use crate::mirror::{Field, List, Mirror, Source, Text, empty_union, mirror_table, read_table, write_union};
use crate::{FormatError, Limits, Result};

/// The offset of constants that are found by a key.
pub const BY_KEY: u64 = u64::MAX;

mirror_table! {
    /// The root: `VkGraph` in the schema.
    pub struct VkGraph {
        /// Schema version, a number as text.
        0 version: Text,
        /// In execution order.
        1 chain: List<OperatorCall>,
        /// All values: tensors, numbers, lists.
        2 values: List<Value>,
        /// Values that a call gives, in the order of its arguments.
        3 input_ids: List<u32>,
        /// Values that a call takes back, behind them.
        4 output_ids: List<u32>,
        /// Where constants lie.
        5 constants: List<VkBytes>,
        /// Shaders of the payload; its exporter writes none.
        6 shaders: List<VkBytes>,
        /// How tensors are stored that do not say so themselves.
        7 storage_type_override: StorageType,
        /// How they are laid out.
        8 memory_layout_override: MemoryLayout,
    }

    /// One step.
    pub struct OperatorCall limited by instructions {
        /// Where it came from in the exporter's graph.
        0 node_id: u32,
        /// The operator with its overload: `aten.add.Tensor`.
        1 name: Text,
        /// Values by position, in the order of the operator's schema; the last is what it gives.
        2 args: List<i32>,
    }

    /// A tensor.
    pub struct VkTensor {
        /// Element type on the device.
        0 datatype: Datatype,
        /// Sizes, outermost first; upper bounds where a program has dynamic shapes.
        1 dims: List<u32>,
        /// Which constant it is; negative for none.
        2 constant_id: i32,
        /// Which memory it may share with others; negative for none.
        3 mem_obj_id: i32,
        /// Buffer or texture.
        4 storage_type: StorageType,
        /// Which axis lies together.
        5 memory_layout: MemoryLayout,
        /// Element type outside the device.
        6 staging_datatype: StagingDatatype,
    }

    /// Bytes outside the tables: behind them, or under a key of the program's or a `.ptd` file's named data.
    pub struct VkBytes {
        /// Byte behind the tables, or [`BY_KEY`].
        0 offset: u64,
        /// How many bytes.
        1 length: u64,
        /// Key of named data.
        2 named_key: Text,
    }

    /// A string.
    pub struct StringValue {
        /// The text.
        0 string_val: Text,
    }

    /// Integers.
    pub struct IntList {
        /// Them.
        0 items: List<i64>,
    }

    /// Floats.
    pub struct DoubleList {
        /// Them.
        0 items: List<f64>,
    }

    /// Truth values.
    pub struct BoolList {
        /// Them.
        0 items: List<bool>,
    }

    /// Values by id.
    pub struct ValueList {
        /// Their ids.
        0 items: List<i32>,
    }

    /// An integer.
    pub struct IntValue {
        /// It.
        0 int_val: i64,
    }

    /// A float.
    pub struct DoubleValue {
        /// It.
        0 double_val: f64,
    }

    /// A truth value.
    pub struct BoolValue {
        /// It.
        0 bool_val: bool,
    }

    /// An integer that a call sets or computes.
    pub struct SymInt {
        /// What it begins with.
        0 value: i32,
    }
}

/// Nothing: a table without fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Null;

impl Mirror for Null {
    const NAME: &'static str = "Null";
    const SLOTS: u16 = 0;

    fn read(_: &Source<'_>, _: &Table<'_>) -> Result<Null> {
        Ok(Null)
    }

    fn write(&self, builder: &mut Builder) -> Offset {
        builder.table(&TableFields::new())
    }
}

macro_rules! values {
    ($( $tag:literal $name:ident($table:ident) $doc:literal, )*) => {
        /// A value of the graph: `VkValue` in the schema.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Value { $( #[doc = $doc] $name($table), )* }

        impl Value {
            const LAST: u8 = [$( $tag ),*].len() as u8;

            /// What it is, in the schema's words.
            pub fn kind(&self) -> &'static str {
                match self { $( Value::$name(_) => stringify!($name), )* }
            }
        }

        impl Mirror for Value {
            const NAME: &'static str = "VkValue";
            const SLOTS: u16 = 2;

            fn limit(limits: &Limits) -> (&'static str, u64) {
                ("tensors", limits.tensors)
            }

            fn read(source: &Source<'_>, table: &Table<'_>) -> Result<Value> {
                const NAME: &str = "value";
                match table.union(0, NAME)? {
                    None => Err(empty_union(table, NAME)),
                    $( Some(($tag, member)) => read_table(source, &member).map(Value::$name), )*
                    Some((tag, _)) => Err(FormatError::UnknownTag {
                        place: table.place(NAME),
                        union_name: "GraphTypes",
                        tag,
                        known: Value::LAST,
                    }),
                }
            }

            fn write(&self, builder: &mut Builder) -> Offset {
                let (tag, member) = match self { $( Value::$name(table) => ($tag, table.write(builder)), )* };
                let mut fields = TableFields::new();
                write_union(&mut fields, 0, tag, member);
                builder.table(&fields)
            }
        }
    };
}

values! {
    1 Null(Null) "Nothing.",
    2 Int(IntValue) "An integer.",
    3 Double(DoubleValue) "A float.",
    4 Bool(BoolValue) "A truth value.",
    5 Tensor(VkTensor) "A tensor.",
    6 Ints(IntList) "Integers.",
    7 Doubles(DoubleList) "Floats.",
    8 Bools(BoolList) "Truth values.",
    9 Values(ValueList) "Values by id.",
    10 Text(StringValue) "A string.",
    11 SymInt(SymInt) "An integer that a call sets or computes.",
}

macro_rules! codes {
    ($(
        $(#[$meta:meta])*
        $name:ident in $schema:literal as $wire:ty, $default:ident otherwise
        { $( $value:ident = $code:literal $doc:literal, )* }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $( #[doc = $doc] $value = $code, )* }

        impl Default for $name {
            fn default() -> $name {
                $name::$default
            }
        }

        impl Field for $name {
            fn read(_: &Source<'_>, table: &Table<'_>, slot: u16, name: &'static str) -> Result<$name> {
                match table.scalar(slot, name, $name::$default as $wire)? {
                    $( $code => Ok($name::$value), )*
                    code => Err(FormatError::UnknownValue {
                        place: table.place(name),
                        enum_name: $schema,
                        value: code.into(),
                    }),
                }
            }

            fn write(&self, _: &mut Builder, fields: &mut TableFields, slot: u16) {
                fields.scalar_unless(slot, *self as $wire, $name::$default as $wire);
            }
        }
    )*};
}

codes! {
    /// Element type of a tensor.
    Datatype in "VkDataType" as i8, Bool otherwise {
        Bool = 0 "Truth values.",
        Uint8 = 1 "Unsigned bytes.",
        Int8 = 2 "Signed bytes.",
        Int32 = 3 "32-bit integers.",
        Float16 = 4 "16-bit floats.",
        Float32 = 5 "32-bit floats.",
        Float64 = 6 "64-bit floats.",
        Int64 = 7 "64-bit integers.",
    }

    /// Element type of a tensor outside the device.
    StagingDatatype in "VkDataType" as i8, Unset otherwise {
        Bool = 0 "Truth values.",
        Uint8 = 1 "Unsigned bytes.",
        Int8 = 2 "Signed bytes.",
        Int32 = 3 "32-bit integers.",
        Float16 = 4 "16-bit floats.",
        Float32 = 5 "32-bit floats.",
        Float64 = 6 "64-bit floats.",
        Int64 = 7 "64-bit integers.",
        Unset = 127 "The same as on the device.",
    }

    /// What holds a tensor on a device; it changes nothing of what is computed.
    StorageType in "VkStorageType" as u8, Unset otherwise {
        Buffer = 0 "A buffer.",
        Texture3d = 1 "A texture of three axes.",
        Texture2d = 2 "A texture of two axes.",
        Unset = 255 "What the graph or the device says.",
    }

    /// How a tensor is laid out on a device; it changes nothing of what is computed.
    MemoryLayout in "VkMemoryLayout" as u8, Unset otherwise {
        WidthPacked = 0 "Four of a row together.",
        HeightPacked = 1 "Four of a column together.",
        ChannelsPacked = 2 "Four channels together.",
        PackedInt8x4W4C = 3 "Bytes, four columns of four channels.",
        PackedInt8x4H4W = 4 "Bytes, four rows of four columns.",
        PackedInt8x4W = 5 "Bytes, four columns.",
        PackedInt8x4C = 6 "Bytes, four channels.",
        PackedInt8x4C1W = 8 "Bytes, four channels of a column.",
        PackedInt8Conv2d = 9 "Bytes, as a convolution likes them.",
        Unset = 255 "What the graph or the device says.",
    }
}

impl Datatype {
    /// The dtype of its elements.
    pub fn dtype(self) -> DType {
        match self {
            Datatype::Bool => DType::Bool,
            Datatype::Uint8 => DType::U8,
            Datatype::Int8 => DType::I8,
            Datatype::Int32 => DType::I32,
            Datatype::Float16 => DType::F16,
            Datatype::Float32 => DType::F32,
            Datatype::Float64 => DType::F64,
            Datatype::Int64 => DType::I64,
        }
    }
}
