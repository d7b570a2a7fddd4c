//! Small payloads by hand with the graphs they must become.

use pteron_ir::op::IntArg;
use pteron_ir::{Module, Op};
use pteron_tensor::DType;

use crate::payload::machine::{run_module, run_payload};
use crate::payload::{
    ChainId, Instruction, InstructionChain, NamedSlot, Payload, ShapeDim, Slot, SlotType, SlotVariant,
    TensorMeta, Tid, Vid, Wire,
};
use crate::{Limits, emit, lift};

fn tensor(index: u32) -> Slot {
    Slot::Tensor(Tid(index))
}

pub(super) fn node(op: Op<Wire>, out: u32) -> Instruction {
    Instruction { op, results: vec![tensor(out)] }
}

pub(super) fn copy(x: u32, out: u32) -> Instruction {
    node(Op::IdCopy { x: Tid(x) }, out)
}

pub(super) fn neg(x: u32, out: u32) -> Instruction {
    node(Op::Neg { x: Tid(x) }, out)
}

pub(super) fn add(a: u32, b: u32, out: u32) -> Instruction {
    node(Op::Add { a: Tid(a), b: Tid(b) }, out)
}

pub(super) fn size(x: u32, out: u32) -> Instruction {
    Instruction { op: Op::SymSize { a: Tid(x), dim: 0 }, results: vec![Slot::Value(Vid(out))] }
}

pub(super) fn branch(cond: u32, then: u32, other: u32) -> Instruction {
    let (then_chain_idx, else_chain_idx) = (ChainId(then), ChainId(other));
    let cond = IntArg::Value(Vid(cond));
    Instruction { op: Op::If { cond, then_chain_idx, else_chain_idx }, results: Vec::new() }
}

pub(super) fn scan(original: u32, sliced: u32, carry: &[u32], body: u32, outputs: &[u32]) -> Instruction {
    let op = Op::Scan {
        originals: vec![Tid(original)],
        sliced: vec![Tid(sliced)],
        carry: carry.iter().map(|&index| Tid(index)).collect(),
        body_chain_idx: ChainId(body),
        scan_axis: 0,
    };
    Instruction { op, results: outputs.iter().map(|&index| tensor(index)).collect() }
}

/// Slot 0 is the constant `w`, 1 the input `x` and 2 the input `xs`, 3 the output `y`, 4 the buffer `b`; from 5 on
/// temporaries. `xs` is f32[3, 2, 2], all others are f32[2, 2].
pub(super) fn payload_of(chains: Vec<Vec<Instruction>>) -> Payload {
    let meta = |sizes: &[i32]| TensorMeta {
        shape: sizes.iter().map(|&size| ShapeDim::fixed(size)).collect(),
        scalar_type: DType::F32.into(),
        dim_order: (0..sizes.len() as u8).collect(),
    };
    let names = ["w", "x", "xs", "y", "b"].into_iter().enumerate();
    let chains =
        chains.into_iter().map(|instructions| InstructionChain { instructions: instructions.into() });
    Payload {
        version: "1".into(),
        num_constant_tensors: 1,
        num_input_tensors: 2,
        num_output_tensors: 1,
        num_mutable_buffer_tensors: 1,
        num_temp_tensors: 20,
        num_values: 10,
        instruction_chains: chains.collect(),
        input_map: vec![SlotVariant::of(tensor(1)), SlotVariant::of(tensor(2))].into(),
        output_map: vec![SlotVariant::of(tensor(3))].into(),
        mutable_buffer_map: vec![SlotVariant::of(tensor(4))].into(),
        named_slots: names
            .map(|(index, name)| NamedSlot {
                name: name.into(),
                slot: Some(SlotVariant::of(tensor(index as u32))),
            })
            .collect(),
        tensor_meta: vec![meta(&[2, 2]), meta(&[2, 2]), meta(&[3, 2, 2]), meta(&[2, 2]), meta(&[2, 2])]
            .into(),
        ..Payload::default()
    }
}

/// Lifts, and holds the graph, what is emitted from it and what that lifts to against each other.
fn lifted(payload: &Payload) -> Module {
    let module = lift(payload, "test", &Limits::default()).unwrap();
    let emitted = emit(&module).unwrap();
    for seed in 0..4 {
        let want = run_payload(payload, seed);
        assert_eq!(want, run_module(&module, seed), "{module}");
        assert_eq!(want, run_payload(&emitted, seed), "{module}\n{emitted:#?}");
    }
    let again = lift(&emitted, "test", &Limits::default()).unwrap();
    assert_eq!(module, again, "{module}\n{again}");
    module
}

#[track_caller]
fn assert_lifts(chains: Vec<Vec<Instruction>>, body: &str) {
    let module = lifted(&payload_of(chains));
    let text = module.main.to_string();
    let from = text.find('{').unwrap() + 1;
    let to = text.rfind('}').unwrap();
    let lines = text[from..to].lines().map(|line| line.split(';').next().unwrap().trim());
    let got: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let want: Vec<&str> = body.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(got, want, "{text}");
}

#[track_caller]
fn assert_refused(payload: &Payload, words: &str) {
    let error = lift(payload, "test", &Limits::default()).expect_err("it should be refused").to_string();
    assert!(error.contains(words), "{error}");
}

#[test]
fn slots_that_are_used_again_become_values() {
    assert_lifts(
        vec![vec![neg(1, 5), neg(5, 5), add(5, 1, 5), copy(5, 6), neg(1, 5), add(5, 6, 3)]],
        "%4: f32[2, 2] = neg(x=%1)
         %5: f32[2, 2] = neg(x=%4)
         %6: f32[2, 2] = add(a=%5, b=%1)
         %7: f32[2, 2] = neg(x=%1)
         %8: f32[2, 2] = add(a=%7, b=%6)",
    );
}

#[test]
fn buffers_are_values_before_and_after() {
    let module = lifted(&payload_of(vec![vec![copy(4, 3), add(4, 1, 4)]]));
    let main = &module.main;
    assert_eq!(main.outputs[0].value, main.buffers[0].value, "the old content was read before the update");
    assert_eq!(main.buffers[0].update, main.body.nodes[0].results[0]);
    assert_eq!(main.body.nodes.len(), 1);
}

#[test]
fn a_branch_gives_what_is_read_later() {
    assert_lifts(
        vec![
            vec![size(1, 0), neg(1, 5), branch(0, 1, 2), add(5, 6, 3)],
            vec![add(5, 5, 5), neg(5, 6)],
            vec![neg(1, 7), add(7, 7, 6)],
        ],
        "%4: int(2) = sym_size(a=%1, dim=0)
         %5: f32[2, 2] = neg(x=%1)
         %10: f32[2, 2], %11: f32[2, 2] = if(cond=%4) then {
         %6: f32[2, 2] = add(a=%5, b=%5)
         %7: f32[2, 2] = neg(x=%6)
         yield %6, %7
         } else {
         %8: f32[2, 2] = neg(x=%1)
         %9: f32[2, 2] = add(a=%8, b=%8)
         yield %5, %9
         }
         %12: f32[2, 2] = add(a=%10, b=%11)",
    );
}

#[test]
fn integers_go_through_branches() {
    let increment = Instruction {
        op: Op::AddInt { a: IntArg::Value(Vid(0)), b: IntArg::Literal(1) },
        results: vec![Slot::Value(Vid(0))],
    };
    let module = lifted(&payload_of(vec![
        vec![size(1, 0), branch(0, 1, 2), branch(0, 3, 2), copy(5, 3)],
        vec![increment, neg(1, 5)],
        vec![copy(1, 5)],
        vec![neg(5, 5)],
    ]));
    assert_eq!(module.main.body.nodes[1].results.len(), 2);
}

#[test]
fn a_loop_carries_what_its_next_step_reads() {
    assert_lifts(
        vec![vec![copy(1, 6), scan(2, 5, &[6], 1, &[7]), add(6, 6, 3)], vec![add(6, 5, 6), neg(6, 7), neg(7, 8)]],
        "%9: f32[3, 2, 2], %10: f32[2, 2] = scan(originals=[%2], carry=[%1], scan_axis=0) body (%4: f32[2, 2], %5: f32[2, 2]) {
         %6: f32[2, 2] = add(a=%5, b=%4)
         %7: f32[2, 2] = neg(x=%6)
         %8: f32[2, 2] = neg(x=%7)
         yield %7, %6
         }
         %11: f32[2, 2] = add(a=%10, b=%10)",
    );
}

#[test]
fn a_loop_may_swap_carry_hide_and_keep() {
    // Slots 6 and 7 swap through 8; 9 is written and read after the loop only; the slice itself is read later.
    let body = vec![copy(6, 8), copy(7, 6), copy(8, 7), neg(5, 9), add(4, 5, 4), neg(6, 10)];
    let main = vec![
        copy(1, 6),
        neg(1, 7),
        copy(1, 9),
        copy(1, 5),
        scan(2, 5, &[], 1, &[10]),
        add(6, 7, 3),
        add(3, 9, 3),
        add(3, 5, 3),
    ];
    let module = lifted(&payload_of(vec![main, body]));
    let Op::Scan { carry, .. } = &module.main.body.nodes[1].op else { panic!("{module}") };
    assert_eq!(carry.len(), 5);
}

#[test]
fn what_a_loop_widens_starts_wide() {
    let mut payload = payload_of(vec![
        vec![
            node(Op::AsType { x: Tid(1), scalar_type: DType::BF16 }, 6),
            scan(2, 5, &[6], 1, &[7]),
            copy(6, 3),
        ],
        vec![add(6, 5, 6), neg(6, 7)],
    ]);
    payload.instruction_chains.make_mut()[0].instructions.make_mut().push(copy(6, 4));
    let module = lift(&payload, "test", &Limits::default()).unwrap();
    let names: Vec<&str> = module.main.body.nodes.iter().map(|node| node.op.spec().text).collect();
    assert_eq!(names, ["as_type", "as_type", "scan"], "{module}");
    assert_eq!(module, lift(&emit(&module).unwrap(), "test", &Limits::default()).unwrap());
}

#[test]
fn an_update_has_the_dtype_of_its_buffer() {
    let payload =
        payload_of(vec![vec![node(Op::AsType { x: Tid(4), scalar_type: DType::BF16 }, 4), copy(1, 3)]]);
    let module = lift(&payload, "test", &Limits::default()).unwrap();
    let main = &module.main;
    assert_eq!(main.ty(main.buffers[0].update), main.ty(main.buffers[0].value), "{module}");
    assert_eq!(module, lift(&emit(&module).unwrap(), "test", &Limits::default()).unwrap());
}

#[test]
fn the_init_chain_defines_constants() {
    let mut payload = payload_of(vec![
        vec![add(0, 1, 3)],
        vec![
            neg(0, 5),
            node(Op::Concatenate { tensors: vec![Tid(0), Tid(5)], axis: 0 }, 0),
            node(
                Op::Slice {
                    x: Tid(0),
                    axis: IntArg::Literal(0),
                    start: IntArg::Literal(1),
                    stop: IntArg::Literal(2),
                    step: 1,
                },
                0,
            ),
        ],
    ]);
    payload.init_chain_idx = Some(ChainId(1));
    let module = lifted(&payload);
    let text = module.to_string();
    assert!(text.contains("output %3 \"w\": f32[1, 2]"), "{text}");
    assert!(text.contains("constant %0 \"w\": f32[1, 2]"), "the derived type, not the placeholder's: {text}");
    let emitted = emit(&module).unwrap();
    assert_eq!(
        emitted.tensor_meta[0], payload.tensor_meta[0],
        "the data in the file has the placeholder's type"
    );
}

#[test]
fn what_makes_no_sense_is_refused_with_its_place() {
    let refused = |chains: Vec<Vec<Instruction>>, words: &str| assert_refused(&payload_of(chains), words);
    refused(
        vec![vec![neg(1, 3), add(3, 7, 3)]],
        "chain 0 #1 (Add) reads tensor slot 7, which nothing has set",
    );
    refused(vec![vec![neg(1, 0)]], "chain 0 #0 (Neg) writes tensor slot 0 \"w\": only the init chain");
    refused(vec![vec![neg(1, 5)]], "output 0 reads tensor slot 3 \"y\"");
    refused(
        vec![vec![
            node(Op::Addmm { mat1: Tid(1), mat2: Tid(2), bias: Some(Tid(2)), alpha: 1.0, beta: 1.0 }, 3),
            node(Op::Transpose { x: Tid(1), perm: vec![0] }, 3),
        ]],
        "x = tensor slot 1: f32[2, 2]",
    );
    // Only one branch sets slot 5, and it is read afterwards.
    refused(
        vec![vec![size(1, 0), branch(0, 1, 2), neg(5, 3)], vec![neg(1, 5)], vec![]],
        "chain 0 #1 (If) reads tensor slot 5",
    );
    refused(
        vec![vec![copy(1, 3), scan(2, 5, &[], 1, &[])], vec![neg(5, 2)]],
        "cannot change what it runs over",
    );
    let increment = |out| Instruction {
        op: Op::AddInt { a: IntArg::Value(Vid(0)), b: IntArg::Literal(1) },
        results: vec![Slot::Value(Vid(out))],
    };
    refused(
        vec![vec![size(1, 0), copy(1, 3), scan(2, 5, &[], 1, &[])], vec![increment(0)]],
        "a loop carries tensors, not values",
    );
    let pieces = Op::Split { x: Tid(1), sizes: vec![IntArg::Literal(1)], axis: 0 };
    refused(
        vec![vec![Instruction { op: pieces, results: vec![tensor(5)] }]],
        "has 1 result slots, but the op gives 2 results; operands: x = tensor slot 1: f32[2, 2]",
    );
}

#[test]
fn a_boundary_that_makes_no_sense_is_refused() {
    let payload = || payload_of(vec![vec![neg(1, 3)]]);
    let mut unnamed = payload();
    unnamed.named_slots.make_mut().remove(0);
    assert_refused(&unnamed, "constant tensor slot 0: it has no name");
    let mut dynamic = payload();
    dynamic.tensor_meta.make_mut()[4].shape.make_mut()[0] = ShapeDim::default();
    assert_refused(&dynamic, "mutable buffer tensor slot 4 \"b\": its size is not fixed");
    let mut blank = payload();
    blank.tensor_meta.make_mut().truncate(3);
    assert_refused(&blank, "tensor slot 4 \"b\": it has no metadata");
    let mut twice = payload();
    twice.input_map.make_mut().push(SlotVariant::of(tensor(1)));
    assert_refused(&twice, "input 2 writes tensor slot 1 \"x\": the slot takes two inputs");
    let mut both = payload();
    both.input_map.make_mut().push(SlotVariant::of(tensor(4)));
    assert_refused(&both, "mutable buffer tensor slot 4 \"b\": it takes an input as well");
    let mut column = payload();
    column.tensor_meta.make_mut()[1].dim_order = vec![1, 0].into();
    assert_refused(&column, "not in row-major order");
}

#[test]
fn types_cannot_outgrow_the_limits() {
    let deep = (0..40).map(|_| node(Op::ExpandDims { x: Tid(5), axis: 0 }, 5));
    let chain = [copy(1, 5)].into_iter().chain(deep).chain([copy(1, 3)]).collect();
    assert_refused(&payload_of(vec![chain]), "limit `rank`");
    let payload = payload_of(vec![vec![neg(1, 3); 50]]);
    let limits = Limits { decoded_bytes: 2000, ..Limits::default() };
    let error = lift(&payload, "test", &limits).unwrap_err().to_string();
    assert!(error.contains("limit `decoded_bytes`"), "{error}");
}

#[test]
fn value_inputs_and_outputs_keep_their_kinds() {
    let mut payload = payload_of(vec![vec![
        neg(1, 3),
        Instruction {
            op: Op::AddInt { a: IntArg::Value(Vid(0)), b: IntArg::Literal(2) },
            results: vec![Slot::Value(Vid(3))],
        },
    ]]);
    let value = |idx, slot_type| SlotVariant { idx, slot_type };
    payload.input_map.make_mut().extend([
        value(0, SlotType::IntValue),
        value(1, SlotType::FloatValue),
        value(2, SlotType::BoolValue),
    ]);
    payload.output_map.make_mut().extend([value(3, SlotType::IntValue), value(0, SlotType::IntValue)]);
    let module = lift(&payload, "test", &Limits::default()).unwrap();
    let emitted = emit(&module).unwrap();
    assert_eq!(emitted.input_map[2..], payload.input_map[2..]);
    assert_eq!(run_payload(&payload, 1), run_payload(&emitted, 1));
}
