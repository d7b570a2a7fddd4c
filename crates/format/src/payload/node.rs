//! Nodes on the wire: reading and writing any op by its catalogue entry, field by field.
//!
//! A new op needs no line here; a new kind of field needs one arm in [`read_field`] and one in [`write_field`].

use pteron_ir::Op;
use pteron_ir::op::{
    DefaultValue, Field, FieldKind, FieldRef, FieldSpec, FloatArg, IndexArg, IntArg, NO_SLOT, OffsetArg,
    OpKind, ResultKind, ResultSpec,
};
use pteron_tensor::DType;

use super::tables::{ChainId, Instruction, Slot, Tid, Vid, Wire};
use crate::flatbuffer::{Builder, Offset, Table, TableFields};
use crate::{FormatError, Result};

/// Reads the node of that kind.
pub(super) fn read(kind: OpKind, table: &Table<'_>) -> Result<Instruction> {
    let spec = kind.spec();
    let known = spec.fields.len() as u16 + u16::from(spec.result.slot != NO_SLOT);
    if let Some(slot) = (known..table.slots()).find(|&slot| table.has(slot)) {
        let problem = format!(
            "a {} with a field {slot} that this reader does not know; a newer exporter wrote it",
            spec.name
        );
        return Err(table.problem(spec.name, problem));
    }
    let mut fields = Vec::with_capacity(spec.fields.len());
    for (index, field) in spec.fields.iter().enumerate() {
        fields.push(read_field(table, spec.field_slot(index), field)?);
    }
    let op = Op::from_fields(kind, fields)
        .map_err(|field| table.problem(field, "the catalogue has another kind of field here"))?;
    Ok(Instruction { op, results: read_results(table, &spec.result)? })
}

fn read_results(table: &Table<'_>, spec: &ResultSpec) -> Result<Vec<Slot>> {
    let (slot, name) = (spec.slot, spec.name);
    Ok(match spec.kind {
        ResultKind::Tensor => {
            vec![Slot::Tensor(Tid(required(table, name, table.optional_scalar(slot, name)?)?))]
        }
        ResultKind::Scalar => {
            vec![Slot::Value(Vid(required(table, name, table.optional_scalar(slot, name)?)?))]
        }
        ResultKind::Tensors => {
            let slots: Vec<u32> = required(table, name, table.vector(slot, name)?)?;
            slots.into_iter().map(|slot| Slot::Tensor(Tid(slot))).collect()
        }
        ResultKind::Yielded | ResultKind::Nothing => Vec::new(),
    })
}

fn required<T>(table: &Table<'_>, name: &'static str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| table.problem(name, "the field is required and missing"))
}

fn read_field(table: &Table<'_>, slot: u16, spec: &'static FieldSpec) -> Result<Field<Wire>> {
    let name = spec.name;
    let field = match spec.kind {
        FieldKind::Tensor => table.optional_scalar(slot, name)?.map(|slot| Field::Tensor(Tid(slot))),
        FieldKind::MaybeTensor => {
            table.optional_scalar(slot, name)?.map(|slot| Field::MaybeTensor(Some(Tid(slot))))
        }
        FieldKind::Tensors => tensors(table, slot, name)?.map(Field::Tensors),
        FieldKind::LoopSlots => tensors(table, slot, name)?.map(Field::LoopSlots),
        FieldKind::Int => argument(table, slot, name, int_arg)?.map(Field::Int),
        FieldKind::MaybeInt => argument(table, slot, name, int_arg)?.map(|arg| Field::MaybeInt(Some(arg))),
        FieldKind::Ints => ints(table, slot, name)?.map(Field::Ints),
        FieldKind::MaybeInts => ints(table, slot, name)?.map(|args| Field::MaybeInts(Some(args))),
        FieldKind::Float => argument(table, slot, name, float_arg)?.map(Field::Float),
        FieldKind::Offset => argument(table, slot, name, offset_arg)?.map(Field::Offset),
        FieldKind::Index => argument(table, slot, name, index_arg)?.map(Field::Index),
        FieldKind::MaybeScalar => {
            table.optional_scalar(slot, name)?.map(|slot| Field::MaybeScalar(Some(Vid(slot))))
        }
        FieldKind::I32 => table.optional_scalar(slot, name)?.map(Field::I32),
        FieldKind::MaybeI32 => table.optional_scalar(slot, name)?.map(|value| Field::MaybeI32(Some(value))),
        FieldKind::I32s => table.vector(slot, name)?.map(Field::I32s),
        FieldKind::MaybeI32s => table.vector(slot, name)?.map(|values| Field::MaybeI32s(Some(values))),
        FieldKind::MaybeI8s => table.vector(slot, name)?.map(|values| Field::MaybeI8s(Some(values))),
        FieldKind::U64 => table.optional_scalar(slot, name)?.map(Field::U64),
        FieldKind::F32 => table.optional_scalar(slot, name)?.map(Field::F32),
        FieldKind::MaybeF32 => table.optional_scalar(slot, name)?.map(|value| Field::MaybeF32(Some(value))),
        FieldKind::Bool => table.optional_scalar(slot, name)?.map(Field::Bool),
        FieldKind::Str => table.string(slot, name)?.map(|text| Field::Str(text.to_owned())),
        FieldKind::MaybeStr => table.string(slot, name)?.map(|text| Field::MaybeStr(Some(text.to_owned()))),
        FieldKind::MaybeStrs => match table.strings(slot, name)? {
            Some(texts) => {
                let texts: Result<Vec<String>> = texts.iter().map(|text| text.map(str::to_owned)).collect();
                Some(Field::MaybeStrs(Some(texts?)))
            }
            None => None,
        },
        FieldKind::DType => match table.optional_scalar(slot, name)? {
            Some(code) => Some(Field::DType(dtype(table, name, code)?)),
            None => None,
        },
        FieldKind::MaybeDType => match table.optional_scalar(slot, name)? {
            Some(code) => Some(Field::MaybeDType(Some(dtype(table, name, code)?))),
            None => None,
        },
        FieldKind::MaybeDTypes => match table.vector::<i8>(slot, name)? {
            Some(codes) => {
                let dtypes: Result<Vec<DType>> =
                    codes.into_iter().map(|code| dtype(table, name, code)).collect();
                Some(Field::MaybeDTypes(Some(dtypes?)))
            }
            None => None,
        },
        // Chain numbers are signed in Scan and unsigned in If; a negative one is far out of range either way.
        FieldKind::Body => Some(Field::Body(ChainId(table.scalar(slot, name, 0)?))),
    };
    match field.or_else(|| Field::absent(spec)) {
        Some(field) => Ok(field),
        None => required(table, name, None),
    }
}

fn dtype(table: &Table<'_>, name: &'static str, code: i8) -> Result<DType> {
    DType::from_code(code).ok_or_else(|| FormatError::UnknownValue {
        place: table.place(name),
        enum_name: "ScalarType",
        value: code.into(),
    })
}

fn tensors(table: &Table<'_>, slot: u16, name: &'static str) -> Result<Option<Vec<Tid>>> {
    Ok(table.vector::<u32>(slot, name)?.map(|slots| slots.into_iter().map(Tid).collect()))
}

fn ints(table: &Table<'_>, slot: u16, name: &'static str) -> Result<Option<Vec<IntArg<Vid>>>> {
    let Some(tables) = table.tables(slot, name)? else { return Ok(None) };
    tables.iter().map(|item| int_arg(&item?)).collect::<Result<_>>().map(Some)
}

fn argument<T>(
    table: &Table<'_>,
    slot: u16,
    name: &'static str,
    read: impl Fn(&Table<'_>) -> Result<T>,
) -> Result<Option<T>> {
    table.table(slot, name)?.map(|table| read(&table)).transpose()
}

// The schema's either-or tables: which one counts is said by `is_vid` or `kind`; the others are ignored.

fn int_arg(table: &Table<'_>) -> Result<IntArg<Vid>> {
    Ok(match table.scalar(2, "is_vid", false)? {
        true => IntArg::Value(vid(table, 1)?),
        false => IntArg::Literal(table.scalar(0, "literal", 0)?),
    })
}

fn float_arg(table: &Table<'_>) -> Result<FloatArg<Vid>> {
    Ok(match table.scalar(2, "is_vid", false)? {
        true => FloatArg::Value(vid(table, 1)?),
        false => FloatArg::Literal(table.scalar(0, "literal", 0.0)?),
    })
}

fn offset_arg(table: &Table<'_>) -> Result<OffsetArg<Tid, Vid>> {
    Ok(match table.scalar(2, "is_vid", false)? {
        true => OffsetArg::Value(vid(table, 0)?),
        false => OffsetArg::Tensor(tid(table, 1)?),
    })
}

fn index_arg(table: &Table<'_>) -> Result<IndexArg<Tid, Vid>> {
    Ok(match table.scalar(3, "kind", 0u8)? {
        0 => IndexArg::Literal(table.scalar(0, "literal", 0)?),
        1 => IndexArg::Value(vid(table, 1)?),
        2 => IndexArg::Tensor(tid(table, 2)?),
        kind => {
            return Err(FormatError::UnknownValue {
                place: table.place("kind"),
                enum_name: "kind of IntOrVidOrTid",
                value: kind.into(),
            });
        }
    })
}

fn vid(table: &Table<'_>, slot: u16) -> Result<Vid> {
    required(table, "vid", table.optional_scalar(slot, "vid")?).map(Vid)
}

fn tid(table: &Table<'_>, slot: u16) -> Result<Tid> {
    required(table, "tid", table.optional_scalar(slot, "tid")?).map(Tid)
}

/// Writes the node's table.
pub(super) fn write(instruction: &Instruction, builder: &mut Builder) -> Offset {
    let spec = instruction.op.spec();
    let mut fields = TableFields::new();
    let mut index = 0;
    instruction.op.for_each_field(|field, value| {
        write_field(builder, &mut fields, spec.field_slot(index), field, value);
        index += 1;
    });
    let slots = instruction.results.iter().map(|slot| match slot {
        Slot::Tensor(Tid(index)) | Slot::Value(Vid(index)) => *index,
    });
    match spec.result.kind {
        ResultKind::Tensor | ResultKind::Scalar => {
            for slot in slots {
                fields.scalar(spec.result.slot, slot);
            }
        }
        ResultKind::Tensors => {
            fields.offset(spec.result.slot, builder.vector(&slots.collect::<Vec<u32>>()));
        }
        ResultKind::Yielded | ResultKind::Nothing => {}
    }
    builder.table(&fields)
}

fn write_field(
    builder: &mut Builder,
    fields: &mut TableFields,
    slot: u16,
    spec: &FieldSpec,
    value: FieldRef<'_, Wire>,
) {
    match value {
        FieldRef::Tensor(tid) | FieldRef::MaybeTensor(Some(tid)) => {
            fields.scalar(slot, tid.0);
        }
        FieldRef::Tensors(tids) | FieldRef::LoopSlots(tids) => {
            let tids: Vec<u32> = tids.iter().map(|tid| tid.0).collect();
            fields.offset(slot, builder.vector(&tids));
        }
        FieldRef::Int(arg) | FieldRef::MaybeInt(Some(arg)) => {
            fields.offset(slot, write_int(builder, arg));
        }
        FieldRef::Ints(args) | FieldRef::MaybeInts(Some(args)) => {
            let args: Vec<Offset> = args.iter().map(|arg| write_int(builder, arg)).collect();
            fields.offset(slot, builder.offsets(&args));
        }
        FieldRef::Float(arg) => {
            let mut table = TableFields::new();
            match arg {
                FloatArg::Literal(literal) => float_unless(&mut table, 0, *literal, 0.0),
                FloatArg::Value(vid) => {
                    table.scalar(1, vid.0).scalar(2, true);
                }
            }
            fields.offset(slot, builder.table(&table));
        }
        FieldRef::Offset(arg) => {
            let mut table = TableFields::new();
            match arg {
                OffsetArg::Value(vid) => table.scalar(0, vid.0).scalar(2, true),
                OffsetArg::Tensor(tid) => table.scalar(1, tid.0),
            };
            fields.offset(slot, builder.table(&table));
        }
        FieldRef::Index(arg) => {
            let mut table = TableFields::new();
            match arg {
                IndexArg::Literal(literal) => table.scalar_unless(0, *literal, 0),
                IndexArg::Value(vid) => table.scalar(1, vid.0).scalar(3, 1u8),
                IndexArg::Tensor(tid) => table.scalar(2, tid.0).scalar(3, 2u8),
            };
            fields.offset(slot, builder.table(&table));
        }
        FieldRef::MaybeScalar(Some(vid)) => {
            fields.scalar(slot, vid.0);
        }
        FieldRef::I32(value) => {
            let default = if let Some(DefaultValue::I32(default)) = spec.default { default } else { 0 };
            fields.scalar_unless(slot, *value, default);
        }
        FieldRef::U64(value) => {
            let default = if let Some(DefaultValue::U64(default)) = spec.default { default } else { 0 };
            fields.scalar_unless(slot, *value, default);
        }
        FieldRef::F32(value) => {
            let default = if let Some(DefaultValue::F32(default)) = spec.default { default } else { 0.0 };
            if value.to_bits() != default.to_bits() {
                fields.scalar(slot, *value);
            }
        }
        FieldRef::Bool(value) => {
            let default = matches!(spec.default, Some(DefaultValue::Bool(true)));
            fields.scalar_unless(slot, *value, default);
        }
        FieldRef::MaybeI32(Some(value)) => {
            fields.scalar(slot, *value);
        }
        FieldRef::MaybeF32(Some(value)) => {
            fields.scalar(slot, *value);
        }
        FieldRef::I32s(values) | FieldRef::MaybeI32s(Some(values)) => {
            fields.offset(slot, builder.vector(values));
        }
        FieldRef::MaybeI8s(Some(values)) => {
            fields.offset(slot, builder.vector(values));
        }
        FieldRef::Str(text) | FieldRef::MaybeStr(Some(text)) => {
            // Kernels carry their source with every node.
            fields.offset(slot, builder.shared_string(text));
        }
        FieldRef::MaybeStrs(Some(texts)) => {
            let texts: Vec<Offset> = texts.iter().map(|text| builder.shared_string(text)).collect();
            fields.offset(slot, builder.offsets(&texts));
        }
        FieldRef::DType(dtype) => {
            fields.scalar_unless(slot, dtype.code(), 0);
        }
        FieldRef::MaybeDType(Some(dtype)) => {
            fields.scalar(slot, dtype.code());
        }
        FieldRef::MaybeDTypes(Some(dtypes)) => {
            let codes: Vec<i8> = dtypes.iter().map(|dtype| dtype.code()).collect();
            fields.offset(slot, builder.vector(&codes));
        }
        FieldRef::Body(chain) => {
            fields.scalar_unless(slot, chain.0, 0);
        }
        FieldRef::MaybeTensor(None)
        | FieldRef::MaybeInt(None)
        | FieldRef::MaybeInts(None)
        | FieldRef::MaybeScalar(None)
        | FieldRef::MaybeI32(None)
        | FieldRef::MaybeI32s(None)
        | FieldRef::MaybeI8s(None)
        | FieldRef::MaybeF32(None)
        | FieldRef::MaybeStr(None)
        | FieldRef::MaybeStrs(None)
        | FieldRef::MaybeDType(None)
        | FieldRef::MaybeDTypes(None) => {}
    }
}

fn write_int(builder: &mut Builder, arg: &IntArg<Vid>) -> Offset {
    let mut table = TableFields::new();
    match arg {
        IntArg::Literal(literal) => table.scalar_unless(0, *literal, 0),
        IntArg::Value(vid) => table.scalar(1, vid.0).scalar(2, true),
    };
    builder.table(&table)
}

/// Compared by bits: a negative zero is not the default, and `==` would lose its sign.
fn float_unless(fields: &mut TableFields, slot: u16, value: f64, default: f64) {
    if value.to_bits() != default.to_bits() {
        fields.scalar(slot, value);
    }
}
