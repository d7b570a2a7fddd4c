//! The tables of an XNNPACK payload but for its nodes, owned, one type a table of ExecuTorch 1.5.1's `runtime_schema.fbs`,
//! which has all that files of either identifier have.
//!
//! They mirror the wire: an absent vector stays absent, ids stay numbers. What they promise each other is checked in
//! `check`, what they mean is known in `lift`.

use super::node::Node;
use crate::flatbuffer::{Builder, Offset, Table, TableFields};
use crate::mirror::{
    Blob, Field, List, Mirror, Source, Text, empty_union, mirror_table, read_table, write_union,
};
use crate::{FormatError, Limits, Result};

/// The id of a value that there is none of: no bias, no external value.
pub const NO_ID: u32 = u32::MAX;

/// The offset of constants that are found by a key.
pub const BY_KEY: u64 = u64::MAX;

mirror_table! {
    /// The root: `XNNGraph` in the schema.
    pub struct XnnGraph {
        /// Schema version, a number as text.
        0 version: Text,
        /// In execution order.
        1 xnodes: List<Node>,
        /// All values: inputs, outputs, constants and what lies between.
        2 xvalues: List<Value>,
        /// How many arguments a call has.
        3 num_externs: u32,
        /// External ids of the inputs.
        4 input_ids: List<u32>,
        /// External ids of the outputs.
        5 output_ids: List<u32>,
        /// Constants inside the tables, of old files; entry 0 stands for "no constant".
        6 constant_buffer: List<Buffer>,
        /// Sizes of memory, of old files; nobody reads them.
        7 mem_buffer_sizes: List<u32>,
        /// Where constants lie; entry 0 stands for "no constant".
        8 constant_data: List<ConstantData>,
    }

    /// Bytes of a constant inside the tables.
    pub struct Buffer {
        /// The bytes.
        0 storage: Blob<16>,
    }

    /// Where a constant lies: behind the tables, or under a key of the program's or a `.ptd` file's named data.
    pub struct ConstantData {
        /// Byte behind the tables, or [`BY_KEY`].
        0 offset: u64,
        /// How many bytes.
        1 size: u64,
        /// Key of named data.
        2 named_key: Text,
    }

    /// Bounds that a node's result is held to.
    pub struct OutputMinMax {
        /// The least.
        0 output_min: f32,
        /// The largest.
        1 output_max: f32,
    }

    /// A tensor.
    pub struct TensorValue {
        /// Element type.
        0 datatype: Datatype,
        /// Its rank.
        1 num_dims: u32,
        /// Sizes, outermost first; upper bounds where a program has dynamic shapes.
        2 dims: List<u32>,
        /// Which constant it is; 0 for none.
        3 constant_buffer_idx: u32,
        /// Position among the arguments of a call, or [`NO_ID`].
        4 external_id: u32,
        /// 1 for an input, 2 for an output.
        5 flags: u32,
        /// What nodes call it.
        6 id_out: u32,
        /// What an input is to be quantised to, in old files.
        7 dq_datatype: Datatype,
    }

    /// One scale for each index of an axis.
    pub struct PerChannelQuant {
        /// The scales, in old files.
        0 scale: List<f32>,
        /// The axis.
        1 channel_dim: i32,
        /// The constant that holds the scales as f32; 0 for none.
        2 scale_buffer_idx: u32,
        /// How many it holds.
        3 num_scales: u32,
    }

    /// One scale and zero point.
    pub struct PerTensorQuant {
        /// The scale.
        0 scale: f32,
        /// The code of zero.
        1 zero_point: i32,
    }

    /// Scales that are found when a value is quantised, one for each index of the leading axes.
    pub struct PerTokenDynamicQuant {
        /// How many trailing axes share a scale.
        0 num_nonbatch_dims: i32,
    }

    /// One scale for each group of a row.
    pub struct PerChannelGroupQuant {
        /// The scales, in old files.
        0 scale: List<f32>,
        /// The axis of the rows.
        1 channel_dim: i32,
        /// Elements of a group.
        2 group_size: i32,
        /// Scales as bf16, in files of a short time; no reader takes them.
        3 scale_bf16: List<u16>,
        /// The constant that holds the scales as bf16; 0 for none.
        4 scale_buffer_idx: u32,
        /// How many it holds.
        5 num_scales: u32,
    }
}

/// How the numbers of a value become codes.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantization {
    /// A scale for each index of an axis.
    PerChannel(PerChannelQuant),
    /// One scale.
    PerTensor(PerTensorQuant),
    /// Found at run time.
    PerTokenDynamic(PerTokenDynamicQuant),
    /// A scale for each group of a row.
    PerChannelGroup(PerChannelGroupQuant),
}

/// A value of the graph: `XValue` in the schema.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A tensor of numbers.
    Tensor(TensorValue),
    /// A tensor of codes.
    Quantized {
        /// The tensor; absent in no sound file.
        tensor: Option<TensorValue>,
        /// What its codes mean.
        quantization: Quantization,
    },
}

impl Value {
    /// The tensor.
    pub fn tensor(&self) -> Option<&TensorValue> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            Value::Quantized { tensor, .. } => tensor.as_ref(),
        }
    }

    /// What its codes mean, where it has codes.
    pub fn quantization(&self) -> Option<&Quantization> {
        match self {
            Value::Tensor(_) => None,
            Value::Quantized { quantization, .. } => Some(quantization),
        }
    }
}

macro_rules! datatypes {
    ($( $(#[$meta:meta])* $name:ident = $code:literal $text:literal, )*) => {
        /// Element type of a value.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum Datatype { $( $(#[$meta])* $name = $code, )* }

        impl Datatype {
            fn from_code(code: i16) -> Option<Datatype> {
                match code { $( $code => Some(Datatype::$name), )* _ => None }
            }

            /// The name in the schema, less `xnn_datatype_`.
            pub fn name(self) -> &'static str {
                match self { $( Datatype::$name => $text, )* }
            }
        }
    };
}

datatypes! {
    /// None.
    #[default]
    Invalid = 0 "invalid",
    /// 32-bit floats.
    Fp32 = 1 "fp32",
    /// 16-bit floats.
    Fp16 = 2 "fp16",
    /// Signed bytes of one scale.
    Qint8 = 3 "qint8",
    /// Unsigned bytes of one scale.
    Quint8 = 4 "quint8",
    /// 32-bit codes of one scale: biases.
    Qint32 = 5 "qint32",
    /// Signed bytes with a scale a channel: weights.
    Qcint8 = 6 "qcint8",
    /// 32-bit codes with a scale a channel: biases.
    Qcint32 = 7 "qcint32",
    /// Nibbles with a scale a channel: weights.
    Qcint4 = 8 "qcint4",
    /// Signed bytes, scales found at run time: activations.
    Qdint8 = 9 "qdint8",
    /// Nibbles with a scale a group: weights.
    Qbint4 = 10 "qbint4",
    /// Like `Qdint8`, packed.
    Qpint8 = 11 "qpint8",
    /// 32-bit integers.
    Int32 = 12 "int32",
    /// 32-bit floats, packed.
    Pfp32 = 13 "pfp32",
    /// The upper half of 32-bit floats.
    Bf16 = 14 "bf16",
}

impl Field for Datatype {
    fn read(_: &Source<'_>, table: &Table<'_>, slot: u16, name: &'static str) -> Result<Datatype> {
        let code = table.scalar(slot, name, 0i16)?;
        Datatype::from_code(code).ok_or_else(|| FormatError::UnknownValue {
            place: table.place(name),
            enum_name: "XNNDatatype",
            value: code.into(),
        })
    }

    fn write(&self, _: &mut Builder, fields: &mut TableFields, slot: u16) {
        fields.scalar_unless(slot, *self as i16, 0);
    }
}

fn unknown_tag(
    table: &Table<'_>,
    name: &'static str,
    union_name: &'static str,
    tag: u8,
    known: u8,
) -> FormatError {
    FormatError::UnknownTag { place: table.place(name), union_name, tag, known }
}

impl Mirror for Value {
    const NAME: &'static str = "XValue";
    const SLOTS: u16 = 2;

    fn limit(limits: &Limits) -> (&'static str, u64) {
        ("tensors", limits.tensors)
    }

    fn read(source: &Source<'_>, table: &Table<'_>) -> Result<Value> {
        const NAME: &str = "xvalue_union";
        match table.union(0, NAME)? {
            None => Err(empty_union(table, NAME)),
            Some((1, member)) => read_table(source, &member).map(Value::Tensor),
            Some((2, member)) => {
                let tensor = Field::read(source, &member, 0, "tensor_value")?;
                Ok(Value::Quantized { tensor, quantization: quantization(source, &member)? })
            }
            Some((tag, _)) => Err(unknown_tag(table, NAME, "XValueUnion", tag, 2)),
        }
    }

    fn write(&self, builder: &mut Builder) -> Offset {
        let (tag, member) = match self {
            Value::Tensor(tensor) => (1, tensor.write(builder)),
            Value::Quantized { tensor, quantization } => {
                let (kind, parameters) = match quantization {
                    Quantization::PerChannel(table) => (1, table.write(builder)),
                    Quantization::PerTensor(table) => (2, table.write(builder)),
                    Quantization::PerTokenDynamic(table) => (3, table.write(builder)),
                    Quantization::PerChannelGroup(table) => (4, table.write(builder)),
                };
                let mut fields = TableFields::new();
                Field::write(tensor, builder, &mut fields, 0);
                write_union(&mut fields, 1, kind, parameters);
                (2, builder.table(&fields))
            }
        };
        let mut fields = TableFields::new();
        write_union(&mut fields, 0, tag, member);
        builder.table(&fields)
    }
}

fn quantization(source: &Source<'_>, table: &Table<'_>) -> Result<Quantization> {
    const NAME: &str = "quant_params";
    match table.union(1, NAME)? {
        None => Err(empty_union(table, NAME)),
        Some((1, member)) => read_table(source, &member).map(Quantization::PerChannel),
        Some((2, member)) => read_table(source, &member).map(Quantization::PerTensor),
        Some((3, member)) => read_table(source, &member).map(Quantization::PerTokenDynamic),
        Some((4, member)) => read_table(source, &member).map(Quantization::PerChannelGroup),
        Some((tag, _)) => Err(unknown_tag(table, NAME, "XNNQuantParams", tag, 4)),
    }
}
