//! The tables of a payload, owned, one type a table of ExecuTorch 1.5.1's `schema.fbs`.
//!
//! They mirror the wire: an absent vector stays absent, slots stay numbers. Names are the schema's, but for the
//! root, which is `MLXGraph` there. What the tables promise each other is checked in `check`, not here.

use std::fmt;

use pteron_ir::Op;
use pteron_ir::op::{OpKind, World};

use super::node;
use crate::flatbuffer::{Builder, Offset, Table, TableFields};
use crate::mirror::{Field, List, Mirror, Source, Text, empty_union, mirror_enum, mirror_table, write_union};
use crate::pte::ScalarType;
use crate::{FormatError, Limits, Result};

/// A tensor slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u32);

/// A value slot: an integer, float or bool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vid(pub u32);

/// An instruction chain by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId(pub u32);

/// The world of payloads: operands are slots, bodies are chains.
#[derive(Clone, Debug, PartialEq)]
pub struct Wire;

impl World for Wire {
    type Tensor = Tid;
    type Scalar = Vid;
    type Body = ChainId;
    type LoopSlots = Vec<Tid>;
}

/// A slot of either space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// Of the tensors.
    Tensor(Tid),
    /// Of the values.
    Value(Vid),
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slot::Tensor(Tid(index)) => write!(f, "tensor slot {index}"),
            Slot::Value(Vid(index)) => write!(f, "value slot {index}"),
        }
    }
}

/// One node with the slots that its results go to, which are as many as its catalogue entry says.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// What is computed, from which slots.
    pub op: Op<Wire>,
    /// Where the results go. Branches have none: they write outer slots.
    pub results: Vec<Slot>,
}

mirror_table! {
    /// The root: everything that one payload says.
    pub struct Payload {
        /// Schema version, a number as text; absent and empty mean 1.
        0 version: Text,
        /// Tensor slots that hold constants; they come first.
        1 num_constant_tensors: u32,
        /// Tensor slots that hold inputs, after the constants.
        2 num_input_tensors: u32,
        /// Tensor slots that hold outputs, after the inputs.
        3 num_output_tensors: u32,
        /// Tensor slots that keep their content from run to run, after the outputs.
        4 num_mutable_buffer_tensors: u32,
        /// Tensor slots for everything else, last.
        5 num_temp_tensors: u32,
        /// Value slots: inputs, outputs, then everything else.
        6 num_values: u32,
        /// Lists of instructions that run one after another.
        7 instruction_chains: List<InstructionChain>,
        /// The chain of every call.
        8 main_chain_idx: ChainId,
        /// The chain that runs once, before the first call, and may write constants.
        9 init_chain_idx: Option<ChainId>,
        /// Arguments in order.
        10 input_map: List<SlotVariant>,
        /// Results in order.
        11 output_map: List<SlotVariant>,
        /// Mutable buffers.
        12 mutable_buffer_map: List<SlotVariant>,
        /// Names of constants (the keys of their data), inputs, outputs and mutable buffers.
        13 named_slots: List<NamedSlot>,
        /// Of every tensor slot but the temporaries, by slot.
        14 tensor_meta: List<TensorMeta>,
    }

    /// A list of instructions: the program, its initialisation, or a body.
    pub struct InstructionChain limited by chains {
        /// Executed in order.
        0 instructions: List<Instruction>,
    }

    /// Dtype and shape of a tensor slot.
    pub struct TensorMeta limited by tensors {
        /// Sizes, outermost first.
        0 shape: List<ShapeDim>,
        /// Element type.
        1 scalar_type: ScalarType,
        /// Axes from outer to inner in memory; absent for rank 0.
        2 dim_order: List<u8>,
    }

    /// A slot of either space, with what it holds.
    pub struct SlotVariant {
        /// Number of the slot in its space.
        0 idx: u32,
        /// The space, and what a value slot holds.
        1 slot_type: SlotType,
    }

    /// A name of a slot.
    pub struct NamedSlot {
        /// The name.
        0 name: Text,
        /// The slot.
        1 slot: Option<SlotVariant>,
    }
}

mirror_enum! {
    /// What a slot at the boundary holds.
    pub enum SlotType {
        /// A tensor.
        Tensor = 0,
        /// An integer.
        IntValue = 1,
        /// A float.
        FloatValue = 2,
        /// A bool.
        BoolValue = 3,
    }
}

impl SlotVariant {
    /// A slot as maps and names list it; a value slot counts as an integer.
    pub fn of(slot: Slot) -> SlotVariant {
        match slot {
            Slot::Tensor(Tid(idx)) => SlotVariant { idx, slot_type: SlotType::Tensor },
            Slot::Value(Vid(idx)) => SlotVariant { idx, slot_type: SlotType::IntValue },
        }
    }

    /// The slot itself.
    pub fn slot(&self) -> Slot {
        match self.slot_type {
            SlotType::Tensor => Slot::Tensor(Tid(self.idx)),
            _ => Slot::Value(Vid(self.idx)),
        }
    }
}

/// One size of a tensor slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeDim {
    /// The size, or -1 where it is known at run time only.
    pub value: i32,
    /// The least size of a dynamic dim; exporters declare 2 where runs give 1.
    pub min_value: i32,
    /// The largest size of a dynamic dim, -1 where there is no bound.
    pub max_value: i32,
}

impl ShapeDim {
    /// A fixed size.
    pub fn fixed(size: i32) -> ShapeDim {
        ShapeDim { value: size, ..ShapeDim::default() }
    }
}

impl Default for ShapeDim {
    fn default() -> ShapeDim {
        ShapeDim { value: -1, min_value: 0, max_value: -1 }
    }
}

impl Mirror for ShapeDim {
    const NAME: &'static str = "ShapeDim";
    const SLOTS: u16 = 3;

    fn read(_: &Source<'_>, table: &Table<'_>) -> Result<ShapeDim> {
        let absent = ShapeDim::default();
        Ok(ShapeDim {
            value: table.scalar(0, "value", absent.value)?,
            min_value: table.scalar(1, "min_value", absent.min_value)?,
            max_value: table.scalar(2, "max_value", absent.max_value)?,
        })
    }

    fn write(&self, builder: &mut Builder) -> Offset {
        let absent = ShapeDim::default();
        let mut fields = TableFields::new();
        fields.scalar_unless(0, self.value, absent.value);
        fields.scalar_unless(1, self.min_value, absent.min_value);
        fields.scalar_unless(2, self.max_value, absent.max_value);
        builder.table(&fields)
    }
}

impl Mirror for Instruction {
    const NAME: &'static str = "Instruction";
    const SLOTS: u16 = 2;

    fn limit(limits: &Limits) -> (&'static str, u64) {
        ("instructions", limits.instructions)
    }

    fn read(_: &Source<'_>, table: &Table<'_>) -> Result<Instruction> {
        let Some((tag, member)) = table.union(0, "op")? else { return Err(empty_union(table, "op")) };
        match OpKind::from_tag(tag) {
            Some(kind) => node::read(kind, &member),
            None => Err(FormatError::UnknownTag {
                place: table.place("op"),
                union_name: "OpNode",
                tag,
                known: OpKind::all().last().and_then(|kind| kind.spec().tag).unwrap_or(0),
            }),
        }
    }

    fn write(&self, builder: &mut Builder) -> Offset {
        let member = node::write(self, builder);
        let mut fields = TableFields::new();
        // Internal ops have no tag; `check` refuses a payload with one, and `emit` makes none.
        write_union(&mut fields, 0, self.op.spec().tag.unwrap_or(0), member);
        builder.table(&fields)
    }
}

impl Field for ChainId {
    fn read(_: &Source<'_>, table: &Table<'_>, slot: u16, name: &'static str) -> Result<ChainId> {
        Ok(ChainId(table.scalar(slot, name, 0)?))
    }

    fn write(&self, _: &mut Builder, fields: &mut TableFields, slot: u16) {
        fields.scalar_unless(slot, self.0, 0);
    }
}

/// A chain that need not be there: -1 on the wire.
impl Field for Option<ChainId> {
    fn read(_: &Source<'_>, table: &Table<'_>, slot: u16, name: &'static str) -> Result<Self> {
        match table.scalar(slot, name, -1i32)? {
            -1 => Ok(None),
            index => match u32::try_from(index) {
                Ok(index) => Ok(Some(ChainId(index))),
                Err(_) => Err(table.problem(name, format!("{index} is not a chain"))),
            },
        }
    }

    fn write(&self, _: &mut Builder, fields: &mut TableFields, slot: u16) {
        // What exceeds i32 is no chain: a table of so many would exceed the buffer long before.
        fields.scalar_unless(slot, self.map_or(-1, |chain| chain.0 as i32), -1);
    }
}
