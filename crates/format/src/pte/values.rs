//! The unions of a program: values and instructions, and the numbers of element types.
//!
//! A member of a union that the schema gives a table of one field is that field here.

use pteron_tensor::DType;

use super::schema::{DelegateCall, FreeCall, JumpFalseCall, KernelCall, MoveCall, Tensor};
use crate::flatbuffer::{Builder, Offset, Table, TableFields};
use crate::mirror::{Field, List, Mirror, Source, Text, empty_union, read_table, write_single, write_union};
use crate::{FormatError, Limits, Result};

/// One value of a method.
#[derive(Clone, Debug, PartialEq)]
pub enum EValue {
    /// None.
    Null,
    /// An integer.
    Int(i64),
    /// A bool.
    Bool(bool),
    /// A float.
    Double(f64),
    /// A tensor.
    Tensor(Box<Tensor>),
    /// A text.
    String(Text),
    /// Integers: the items are indices of values that are `Int`, not the numbers themselves.
    IntList(List<i64>),
    /// Floats, themselves.
    DoubleList(List<f64>),
    /// Bools, themselves.
    BoolList(List<bool>),
    /// Indices of values that are tensors.
    TensorList(List<i32>),
    /// The same, with -1 or the index of a `Null` for none.
    OptionalTensorList(List<i32>),
}

impl EValue {
    /// The schema's name of its kind.
    pub fn kind(&self) -> &'static str {
        const NAMES: [&str; 11] = [
            "Null",
            "Int",
            "Bool",
            "Double",
            "Tensor",
            "String",
            "IntList",
            "DoubleList",
            "BoolList",
            "TensorList",
            "OptionalTensorList",
        ];
        NAMES[usize::from(self.tag()) - 1]
    }

    fn tag(&self) -> u8 {
        match self {
            EValue::Null => 1,
            EValue::Int(_) => 2,
            EValue::Bool(_) => 3,
            EValue::Double(_) => 4,
            EValue::Tensor(_) => 5,
            EValue::String(_) => 6,
            EValue::IntList(_) => 7,
            EValue::DoubleList(_) => 8,
            EValue::BoolList(_) => 9,
            EValue::TensorList(_) => 10,
            EValue::OptionalTensorList(_) => 11,
        }
    }
}

impl Mirror for EValue {
    const NAME: &'static str = "EValue";
    const SLOTS: u16 = 2;

    fn limit(limits: &Limits) -> (&'static str, u64) {
        ("values", limits.values)
    }

    fn read(source: &Source<'_>, table: &Table<'_>) -> Result<EValue> {
        let (tag, member) = table.union(0, "val")?.ok_or_else(|| empty_union(table, "val"))?;
        let member = &member;
        Ok(match tag {
            1 => EValue::Null,
            2 => EValue::Int(Field::read(source, member, 0, "int_val")?),
            3 => EValue::Bool(Field::read(source, member, 0, "bool_val")?),
            4 => EValue::Double(Field::read(source, member, 0, "double_val")?),
            5 => EValue::Tensor(Box::new(read_table(source, member)?)),
            6 => EValue::String(Field::read(source, member, 0, "string_val")?),
            7 => EValue::IntList(Field::read(source, member, 0, "items")?),
            8 => EValue::DoubleList(Field::read(source, member, 0, "items")?),
            9 => EValue::BoolList(Field::read(source, member, 0, "items")?),
            10 => EValue::TensorList(Field::read(source, member, 0, "items")?),
            11 => EValue::OptionalTensorList(Field::read(source, member, 0, "items")?),
            tag => {
                let (place, union_name) = (table.place("val"), "KernelTypes");
                return Err(FormatError::UnknownTag { place, union_name, tag, known: 11 });
            }
        })
    }

    fn write(&self, builder: &mut Builder) -> Offset {
        let member = match self {
            EValue::Null => builder.table(&TableFields::new()),
            EValue::Int(value) => write_single(builder, value),
            EValue::Bool(value) => write_single(builder, value),
            EValue::Double(value) => write_single(builder, value),
            EValue::Tensor(tensor) => tensor.write(builder),
            EValue::String(text) => write_single(builder, text),
            EValue::IntList(items) => write_single(builder, items),
            EValue::DoubleList(items) => write_single(builder, items),
            EValue::BoolList(items) => write_single(builder, items),
            EValue::TensorList(items) | EValue::OptionalTensorList(items) => write_single(builder, items),
        };
        let mut fields = TableFields::new();
        write_union(&mut fields, 0, self.tag(), member);
        builder.table(&fields)
    }
}

/// One step of a chain.
#[derive(Clone, Debug, PartialEq)]
pub enum Instruction {
    /// Calls an operator.
    Kernel(KernelCall),
    /// Runs a delegate.
    Delegate(DelegateCall),
    /// Copies a value's handle.
    Move(MoveCall),
    /// Jumps if a value is false.
    JumpFalse(JumpFalseCall),
    /// Drops a tensor's data.
    Free(FreeCall),
}

impl Mirror for Instruction {
    const NAME: &'static str = "Instruction";
    const SLOTS: u16 = 2;

    fn limit(limits: &Limits) -> (&'static str, u64) {
        ("instructions", limits.instructions)
    }

    fn read(source: &Source<'_>, table: &Table<'_>) -> Result<Instruction> {
        let name = "instr_args";
        let (tag, member) = table.union(0, name)?.ok_or_else(|| empty_union(table, name))?;
        Ok(match tag {
            1 => Instruction::Kernel(read_table(source, &member)?),
            2 => Instruction::Delegate(read_table(source, &member)?),
            3 => Instruction::Move(read_table(source, &member)?),
            4 => Instruction::JumpFalse(read_table(source, &member)?),
            5 => Instruction::Free(read_table(source, &member)?),
            tag => {
                let (place, union_name) = (table.place(name), "InstructionArguments");
                return Err(FormatError::UnknownTag { place, union_name, tag, known: 5 });
            }
        })
    }

    fn write(&self, builder: &mut Builder) -> Offset {
        let (tag, member) = match self {
            Instruction::Kernel(call) => (1, call.write(builder)),
            Instruction::Delegate(call) => (2, call.write(builder)),
            Instruction::Move(call) => (3, call.write(builder)),
            Instruction::JumpFalse(call) => (4, call.write(builder)),
            Instruction::Free(call) => (5, call.write(builder)),
        };
        let mut fields = TableFields::new();
        write_union(&mut fields, 0, tag, member);
        builder.table(&fields)
    }
}

/// ExecuTorch's number of an element type, one of those that its readers know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScalarType(i8);

impl ScalarType {
    /// The type of that number, if it has a size.
    pub fn from_code(code: i8) -> Option<ScalarType> {
        ScalarType::size_of(code).map(|_| ScalarType(code))
    }

    /// Its number.
    pub fn code(self) -> i8 {
        self.0
    }

    /// The element type that our tensors have for it, if any: none for quantised, complex and f8 numbers.
    pub fn dtype(self) -> Option<DType> {
        DType::from_code(self.0)
    }

    /// Bytes per element.
    pub fn size(self) -> usize {
        // Only numbers with a size are constructed.
        ScalarType::size_of(self.0).unwrap_or(0)
    }

    fn size_of(code: i8) -> Option<usize> {
        Some(match code {
            0 | 1 | 11 | 12 | 13 | 16 | 17 | 18..=21 | 23..=26 => 1,
            2 | 5 | 15 | 22 | 27 => 2,
            3 | 6 | 8 | 14 | 28 => 4,
            4 | 7 | 9 | 29 => 8,
            10 => 16,
            _ => return None,
        })
    }
}

impl From<DType> for ScalarType {
    fn from(dtype: DType) -> ScalarType {
        ScalarType(dtype.code())
    }
}

impl Field for ScalarType {
    fn read(_: &Source<'_>, table: &Table<'_>, slot: u16, name: &'static str) -> Result<ScalarType> {
        let code = table.scalar(slot, name, 0i8)?;
        ScalarType::from_code(code).ok_or_else(|| FormatError::UnknownValue {
            place: table.place(name),
            enum_name: "ScalarType",
            value: code.into(),
        })
    }

    fn write(&self, _: &mut Builder, fields: &mut TableFields, slot: u16) {
        fields.scalar_unless(slot, self.0, 0);
    }
}
