//! Graphs in the text form, and where their values come to lie.

use pteron_ir::Op;
use pteron_ir::text::parse_module;

use crate::payload::machine::{run_module, run_payload};
use crate::payload::{Payload, Slot, Tid};
use crate::{Limits, emit, lift};

/// Emits a module, which must keep its meaning and lift again.
#[track_caller]
fn emitted(text: &str) -> Payload {
    let module = parse_module(text).unwrap();
    let payload = emit(&module).unwrap();
    payload.check(&Limits::default()).unwrap();
    assert_eq!(payload, emit(&module).unwrap(), "emitting is not deterministic");
    for seed in 0..4 {
        assert_eq!(run_module(&module, seed), run_payload(&payload, seed), "{payload:#?}");
    }
    lift(&payload, "again", &Limits::default()).unwrap();
    payload
}

fn copies(payload: &Payload) -> usize {
    let all = payload.instruction_chains.iter().flat_map(|chain| chain.instructions.iter());
    all.filter(|instruction| matches!(instruction.op, Op::IdCopy { .. })).count()
}

fn results(payload: &Payload) -> Vec<u32> {
    let main = payload.instruction_chains[0].instructions.iter();
    main.flat_map(|instruction| &instruction.results)
        .filter_map(|slot| match slot {
            Slot::Tensor(Tid(index)) => Some(*index),
            Slot::Value(_) => None,
        })
        .collect()
}

#[test]
fn temporaries_are_used_again_and_outputs_computed_in_place() {
    let payload = emitted(
        r#"graph "chain"
             input %0 "x": f32[2]
             constant %1 "w": f32[2]
           {
             %2: f32[2] = neg(x=%0)
             %3: f32[2] = add(a=%2, b=%1)
             %4: f32[2] = neg(x=%3)
             %5: f32[2] = add(a=%4, b=%2)
             %6: f32[2] = neg(x=%5)
           }
           output %6 "y": f32[2]
           output %5 "z": f32[2]"#,
    );
    // Slots: w, x, y, z, then temporaries; a result may take the place of an operand that dies with it.
    assert_eq!(results(&payload), [4, 5, 5, 3, 2]);
    assert_eq!(payload.num_temp_tensors, 2);
    assert_eq!(copies(&payload), 0);
    let names: Vec<&str> = payload.named_slots.iter().map(|named| &*named.name).collect();
    assert_eq!(names, ["w", "x", "y", "z"]);
}

#[test]
fn a_buffer_is_updated_in_place_once_its_old_content_is_dead() {
    let in_place = emitted(
        r#"graph "update"
             input %0 "x": f32[2]
             buffer %1 "b": f32[2] -> %2
           {
             %2: f32[2] = add(a=%1, b=%0)
             %3: f32[2] = neg(x=%2)
           }
           output %3 "y": f32[2]"#,
    );
    assert_eq!((results(&in_place), copies(&in_place)), (vec![2, 1], 0));
    let later = emitted(
        r#"graph "read afterwards"
             input %0 "x": f32[2]
             buffer %1 "b": f32[2] -> %2
           {
             %2: f32[2] = add(a=%1, b=%0)
             %3: f32[2] = neg(x=%1)
           }
           output %3 "y": f32[2]"#,
    );
    assert_eq!(copies(&later), 1);
}

#[test]
fn what_need_not_be_computed_is_copied() {
    let payload = emitted(
        r#"graph "copies"
             input %0 "x": f32[2]
             constant %1 "w": f32[2]
             buffer %2 "a": f32[2] -> %3
             buffer %3 "b": f32[2] -> %2
             buffer %4 "c": f32[2] -> %5
             buffer %6 "d": f32[2] -> %5
             buffer %7 "e": f32[2] -> %0
           {
             %5: f32[2] = add(a=%2, b=%3)
           }
           output %0 "x again": f32[2]
           output %1 "w again": f32[2]
           output %2 "old a": f32[2]
           output %5 "c": f32[2]
           output %5 "c": f32[2]
           output %5 "c too": f32[2]"#,
    );
    assert_eq!(payload.num_output_tensors, 5, "the same output twice is one slot");
    assert_eq!(payload.output_map[3], payload.output_map[4]);
    // a and b swap through a scratch slot; c is in place; d, e, and the outputs are copies.
    assert_eq!(copies(&payload), 3 + 2 + 5);
    assert_eq!(payload.num_temp_tensors, 1);
}

#[test]
fn bodies_write_where_their_results_are_wanted() {
    let payload = emitted(
        r#"graph "branch"
             symbol n in i32
             input %0 "x": f32[2]
             input %1 "n": int(n)
             buffer %2 "b": f32[2] -> %6
           {
             %5: f32[2], %6: f32[2] = if(cond=%1) then {
               %3: f32[2] = neg(x=%2)
               yield %3, %3
             } else {
               %4: f32[2] = neg(x=%0)
               yield %4, %2
             }
           }
           output %5 "y": f32[2]"#,
    );
    // The buffer is read inside the branch, so its update is in a temporary first.
    assert_eq!(copies(&payload), 3);
}

#[test]
fn a_loop_updates_its_carried_slot_in_place() {
    let payload = emitted(
        r#"graph "loop"
             input %0 "xs": f32[3, 2]
             buffer %1 "state": f32[2] -> %7
           {
             %6: f32[3, 2], %7: f32[2] = scan(originals=[%0], carry=[%1], scan_axis=0) body (%2: f32[2], %3: f32[2]) {
               %4: f32[2] = add(a=%3, b=%2)
               %5: f32[2] = neg(x=%4)
               yield %5, %4
             }
           }
           output %6 "ys": f32[3, 2]"#,
    );
    assert_eq!(copies(&payload), 0, "{payload:#?}");
    assert_eq!(payload.num_temp_tensors, 1, "only the slice");
}

#[test]
fn an_init_graph_writes_constants() {
    let payload = emitted(
        r#"init graph "load"
             constant %0 "scales": f32[4]
             constant %1 "dummy": f32[]
           {
             %2: f32[4] = neg(x=%0)
             %3: f32[4] = neg(x=%2)
           }
           output %2 "dummy": f32[4]
           output %3 "derived": f32[4]
           graph "main"
             input %0 "x": f32[4]
             constant %1 "dummy": f32[4]
             constant %2 "derived": f32[4]
           {
             %3: f32[4] = add(a=%0, b=%1)
             %4: f32[4] = add(a=%3, b=%2)
           }
           output %4 "y": f32[4]"#,
    );
    assert_eq!(payload.num_constant_tensors, 3);
    let ranks: Vec<usize> = payload.tensor_meta[..3].iter().map(|meta| meta.shape.len()).collect();
    assert_eq!(ranks, [0, 0, 1], "placeholders where the init chain defines, data where it reads");
    assert!(payload.init_chain_idx.is_some());
}

#[test]
fn broken_graphs_are_refused() {
    let refused = |text: &str, words: &str| {
        let error = emit(&parse_module(text).unwrap()).expect_err("it should be refused").to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(
        r#"graph "g" input %0 "x": f32[2] value %2: f32[2] { %1: f32[2] = neg(x=%2) } output %1 "y": f32[2]"#,
        "neg uses %2, which is not defined there",
    );
    refused(
        r#"graph "g" input %0 "x": f32[2] input %1 "n": int(4)
           { %3: f32[2] = if(cond=%1) then { %2: f32[2] = neg(x=%0) yield %2 } else { yield %0 } %4: f32[2] = neg(x=%2) }
           output %4 "y": f32[2]"#,
        "neg uses %2",
    );
    refused(
        r#"graph "g" symbol T in 0..=9 constant %0 "w": f32[T] { } output %0 "y": f32[2]"#,
        "constant \"w\": T",
    );
    refused(r#"graph "g" input %0 "b": bool { } output %0 "y": bool"#, "copies only tensors and integers");
}

#[test]
fn internal_ops_are_written_as_what_they_stand_for() {
    let text = r#"graph "fused"
             symbol T in 1..=4
             input %0 "x": bf16[T, 64]
             input %1 "more": bf16[T, 64]
             constant %2 "norm": bf16[64]
             constant %3 "w": u32[8, 8]
             constant %4 "s": bf16[8, 2]
           {
             %5: bf16[T, 64], %6: bf16[T, 64] = add_rms_norm(a=%0, b=%1, weight=%2, eps=1e-5)
             %7: bf16[T, 8], %8: bf16[T, 8] = projections(x=%6, w=[%3, %3], scales=[%4, %4], biases=[%4, %4], group_size=32, bits=4, mode="affine")
             %9: bf16[T, 8] = gated_projection(x=%5, w=[%3, %3], scales=[%4, %4], biases=[%4, %4], group_size=32, bits=4, mode="affine", activation="gelu_tanh")
             %10: bf16[T, 8] = add(a=%7, b=%8)
             %11: bf16[T, 8] = add(a=%9, b=%10)
           }
           output %11 "y": bf16[T, 8]"#;
    let fused = parse_module(text).unwrap();
    let mut plain = fused.clone();
    pteron_ir::expand(&mut plain.main).unwrap();
    plain.main.for_each_node(|node, _| assert!(!node.op.kind().is_internal()));
    let payload = emit(&fused).unwrap();
    assert_eq!(payload.encode().unwrap(), emit(&plain).unwrap().encode().unwrap());
    assert_eq!(payload.instruction_chains[0].instructions.len(), 10);
}
