//! Payloads that come back as they were, and payloads that must not get through.

use pteron_ir::Op;
use pteron_ir::op::{Field, FieldKind, FieldSpec, FloatArg, IndexArg, IntArg, OffsetArg, OpKind, ResultKind};
use pteron_tensor::DType;

use super::*;
use crate::FormatError;
use crate::flatbuffer::{Builder, TableFields};

fn limits() -> Limits {
    Limits::default()
}

/// A payload of these chains, with plenty of slots.
pub(crate) fn payload_of(chains: Vec<Vec<Instruction>>) -> Payload {
    Payload {
        version: "1".into(),
        num_temp_tensors: 100,
        num_values: 100,
        instruction_chains: chains
            .into_iter()
            .map(|instructions| InstructionChain { instructions: instructions.into() })
            .collect(),
        input_map: Vec::new().into(),
        output_map: Vec::new().into(),
        mutable_buffer_map: Vec::new().into(),
        named_slots: Vec::new().into(),
        tensor_meta: Vec::new().into(),
        ..Payload::default()
    }
}

/// How a made-up field is filled.
#[derive(Clone, Copy, PartialEq)]
enum Fill {
    /// What can be absent is, scalars have their defaults.
    Least,
    /// Everything is there, with literals.
    Literals,
    /// Everything is there, with values; lists are empty.
    Values,
}

fn made_up(spec: &FieldSpec, fill: Fill, salt: u32) -> Field<Wire> {
    if let (Fill::Least, Some(field)) = (fill, Field::absent(spec)) {
        return field;
    }
    let few = if fill == Fill::Values { 0 } else { 3 };
    let tid = |offset: u32| Tid((salt + offset) % 100);
    let int = |offset: u32| match fill {
        Fill::Values => IntArg::Value(Vid((salt + offset) % 100)),
        _ => IntArg::Literal(i64::from(salt + offset) - 20),
    };
    let tids = || (0..few).map(tid).collect();
    let ints = || (0..3).map(int).collect();
    let texts = || (0..few).map(|index| format!("text {index}")).collect();
    match spec.kind {
        FieldKind::Tensor => Field::Tensor(tid(0)),
        FieldKind::MaybeTensor => Field::MaybeTensor(Some(tid(0))),
        FieldKind::Tensors => Field::Tensors(tids()),
        FieldKind::LoopSlots => Field::LoopSlots(tids()),
        FieldKind::Int => Field::Int(int(0)),
        FieldKind::MaybeInt => Field::MaybeInt(Some(int(0))),
        FieldKind::Ints => Field::Ints(ints()),
        FieldKind::MaybeInts => Field::MaybeInts(Some(ints())),
        FieldKind::Float => Field::Float(match fill {
            Fill::Values => FloatArg::Value(Vid(7)),
            Fill::Literals => FloatArg::Literal(-0.0),
            Fill::Least => FloatArg::Literal(0.0),
        }),
        FieldKind::Offset => Field::Offset(match fill {
            Fill::Values => OffsetArg::Value(Vid(7)),
            _ => OffsetArg::Tensor(tid(0)),
        }),
        FieldKind::Index => Field::Index(match fill {
            Fill::Values => IndexArg::Value(Vid(7)),
            Fill::Literals => IndexArg::Literal(-1),
            Fill::Least => IndexArg::Tensor(tid(0)),
        }),
        FieldKind::MaybeScalar => Field::MaybeScalar(Some(Vid(7))),
        FieldKind::I32 => Field::I32(-5),
        FieldKind::MaybeI32 => Field::MaybeI32(Some(0)),
        FieldKind::I32s => Field::I32s((0..few as i32).collect()),
        FieldKind::MaybeI32s => Field::MaybeI32s(Some((0..few as i32).collect())),
        FieldKind::MaybeI8s => Field::MaybeI8s(Some((0..few as i8).collect())),
        FieldKind::U64 => Field::U64(u64::MAX),
        FieldKind::F32 => Field::F32(-0.0),
        FieldKind::MaybeF32 => Field::MaybeF32(Some(0.0)),
        FieldKind::Bool => Field::Bool(salt.is_multiple_of(2)),
        FieldKind::Str => Field::Str("tanh".into()),
        FieldKind::MaybeStr => Field::MaybeStr(Some(String::new())),
        FieldKind::MaybeStrs => Field::MaybeStrs(Some(texts())),
        FieldKind::DType => Field::DType(DType::BF16),
        FieldKind::MaybeDType => Field::MaybeDType(Some(DType::U8)),
        FieldKind::MaybeDTypes => Field::MaybeDTypes(Some(vec![DType::F32; few as usize])),
        FieldKind::Body => Field::Body(ChainId(u32::from(fill != Fill::Least))),
    }
}

fn instruction_of(kind: OpKind, fill: Fill, salt: u32) -> Instruction {
    let spec = kind.spec();
    let fields = spec.fields.iter().enumerate();
    let fields = fields.map(|(index, field)| made_up(field, fill, salt + index as u32)).collect();
    let results = match spec.result.kind {
        ResultKind::Tensor => vec![Slot::Tensor(Tid(salt % 100))],
        ResultKind::Scalar => vec![Slot::Value(Vid(salt % 100))],
        ResultKind::Tensors => (0..salt % 3).map(|index| Slot::Tensor(Tid(index))).collect(),
        ResultKind::Yielded | ResultKind::Nothing => Vec::new(),
    };
    Instruction { op: Op::from_fields(kind, fields).expect("fields follow the entry"), results }
}

/// One instruction of every kind, in a chain of its own behind two empty ones that it may run.
fn one_of_each(fill: Fill) -> Payload {
    let kinds = OpKind::all().iter().enumerate();
    let all = kinds.map(|(index, &kind)| instruction_of(kind, fill, index as u32 * 7)).collect();
    Payload { main_chain_idx: ChainId(2), ..payload_of(vec![Vec::new(), Vec::new(), all]) }
}

#[test]
fn every_kind_of_node_comes_back_as_it_was() {
    for fill in [Fill::Least, Fill::Literals, Fill::Values] {
        let payload = one_of_each(fill);
        let bytes = payload.encode().unwrap();
        assert_eq!(bytes.len() % 16, 0);
        assert_eq!(bytes, payload.encode().unwrap(), "encoding is not deterministic");
        let decoded = Payload::decode(&bytes, &limits()).unwrap();
        for (want, got) in
            payload.instruction_chains[2].instructions.iter().zip(&decoded.instruction_chains[2].instructions)
        {
            assert_eq!(format!("{want:?}"), format!("{got:?}"), "also the sign of zeros");
        }
        assert_eq!(payload, decoded);
    }
}

#[test]
fn boundary_tables_come_back_as_they_were() {
    let slot = |idx, slot_type| SlotVariant { idx, slot_type };
    let payload = Payload {
        version: Default::default(),
        num_constant_tensors: 1,
        num_input_tensors: 2,
        num_output_tensors: 3,
        num_mutable_buffer_tensors: 4,
        main_chain_idx: ChainId(1),
        init_chain_idx: Some(ChainId(0)),
        input_map: vec![slot(1, SlotType::Tensor), slot(0, SlotType::IntValue)].into(),
        output_map: vec![slot(4, SlotType::FloatValue), slot(5, SlotType::BoolValue)].into(),
        named_slots: vec![NamedSlot { name: "w".into(), slot: Some(slot(0, SlotType::Tensor)) }].into(),
        tensor_meta: vec![TensorMeta {
            shape: vec![
                ShapeDim::fixed(0),
                ShapeDim::default(),
                ShapeDim { value: -1, min_value: 2, max_value: 9 },
            ]
            .into(),
            scalar_type: DType::BF16.into(),
            dim_order: vec![0, 1, 2].into(),
        }]
        .into(),
        ..payload_of(vec![Vec::new(), Vec::new()])
    };
    assert_eq!(payload, Payload::decode(&payload.encode().unwrap(), &limits()).unwrap());
}

/// What a payload is refused for.
fn refusal(payload: &Payload) -> String {
    refusal_under(payload, &limits())
}

fn refusal_under(payload: &Payload, limits: &Limits) -> String {
    let bytes = payload.encode().unwrap();
    Payload::decode(&bytes, limits).expect_err("it should be refused").to_string()
}

fn copy(x: u32, out: u32) -> Instruction {
    Instruction { op: Op::IdCopy { x: Tid(x) }, results: vec![Slot::Tensor(Tid(out))] }
}

fn branch(then: u32, other: u32) -> Instruction {
    let (then_chain_idx, else_chain_idx) = (ChainId(then), ChainId(other));
    Instruction {
        op: Op::If { cond: IntArg::Literal(1), then_chain_idx, else_chain_idx },
        results: Vec::new(),
    }
}

#[test]
fn versions_are_checked() {
    let of = |version: &str| Payload { version: version.into(), ..payload_of(vec![Vec::new()]) };
    assert!(Payload::decode(&of("").encode().unwrap(), &limits()).is_ok());
    let newer = refusal(&of("2"));
    assert!(newer.contains("version 2") && newer.contains("up to 1"), "{newer}");
    let words = refusal(&of("one"));
    assert!(words.contains("\"one\" is not a version number"), "{words}");
}

#[test]
fn slots_and_chains_must_exist() {
    let text = refusal(&payload_of(vec![vec![copy(0, 0), copy(100, 0)]]));
    assert!(text.contains("instruction_chains[0].instructions[1].IdCopy.x: index 100"), "{text}");
    let text = refusal(&payload_of(vec![vec![copy(0, 4_000_000_000)]]));
    assert!(text.contains("IdCopy.out: index 4000000000, but there are 100 tensor slots"), "{text}");
    let text = refusal(&payload_of(vec![vec![branch(0, 1)]]));
    assert!(text.contains("the chain runs itself"), "{text}");
    let text = refusal(&payload_of(vec![vec![branch(1, 2)], Vec::new()]));
    assert!(text.contains("index 2, but there are 2 chains"), "{text}");
    let text = refusal(&Payload { main_chain_idx: ChainId(1), ..payload_of(vec![Vec::new()]) });
    assert!(text.contains("main_chain_idx: index 1"), "{text}");
    let text = refusal(&Payload { num_input_tensors: u32::MAX, ..payload_of(vec![Vec::new()]) });
    assert!(text.contains("limit `tensors`"), "{text}");
}

#[test]
fn chains_must_not_nest_or_multiply_beyond_limits() {
    let tower = |height: u32| {
        let mut chains: Vec<Vec<Instruction>> =
            (0..height).map(|level| vec![branch(level + 1, level + 1)]).collect();
        chains.push(vec![copy(0, 0)]);
        payload_of(chains)
    };
    let text = refusal(&tower(30));
    assert!(text.contains("limit `instructions`"), "two to the thirtieth copies: {text}");
    let text = refusal_under(&tower(5), &Limits { chain_depth: 5, ..limits() });
    assert!(text.contains("limit `chain_depth`"), "{text}");
    assert!(tower(5).check(&Limits { chain_depth: 6, ..limits() }).is_ok());
}

#[test]
fn unknown_kinds_are_named() {
    let mut builder = Builder::new();
    let node = builder.table(&TableFields::new());
    let mut fields = TableFields::new();
    fields.scalar(0, 200u8).offset(1, node);
    let instruction = builder.table(&fields);
    let instructions = builder.offsets(&[instruction]);
    let mut fields = TableFields::new();
    fields.offset(0, instructions);
    let chain = builder.table(&fields);
    let chains = builder.offsets(&[chain]);
    let mut fields = TableFields::new();
    fields.offset(7, chains);
    let root = builder.table(&fields);
    let bytes = header::prepend(&builder.finish(root, None).unwrap().bytes);
    let error = Payload::decode(&bytes, &limits()).unwrap_err();
    assert!(matches!(error, FormatError::UnknownTag { tag: 200, known: 136, .. }), "{error}");
}

#[test]
fn headers_are_checked() {
    let bytes = payload_of(vec![Vec::new()]).encode().unwrap();
    let damaged = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        Payload::decode(&bytes, &limits()).expect_err("it should be refused").to_string()
    };
    assert!(damaged(4, b'X').contains("`XLX0`"));
    assert!(damaged(15, 1).contains("tables end at byte"));
    assert!(damaged(8, 24).contains("tables end at byte 24"));
    assert!(damaged(16, 1).contains("1 bytes of data"));
    for len in 0..bytes.len() {
        assert!(Payload::decode(&bytes[..len], &limits()).is_err(), "cut to {len} bytes");
    }
}

#[test]
fn damaged_payloads_never_panic() {
    let bytes = one_of_each(Fill::Literals).encode().unwrap();
    let stride = if cfg!(miri) { 4999 } else { 2 };
    for at in (0..bytes.len()).step_by(stride) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at / 2 % 8);
        if let Ok(payload) = Payload::decode(&damaged, &limits()) {
            let back = Payload::decode(&payload.encode().unwrap(), &limits()).unwrap();
            // By text: a flipped bit may make a NaN.
            assert_eq!(format!("{payload:?}"), format!("{back:?}"));
            let _ = crate::lift(&payload, "damaged", &limits());
        }
    }
}
