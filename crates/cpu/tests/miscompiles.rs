//! Plans that computed something else than their graph says, each as the smallest graph that showed it. The reference
//! backend says what is right.

#![allow(clippy::unwrap_used)] // a test may panic

mod agree;
#[path = "../../runtime/tests/graphs/mod.rs"]
mod graphs;

use agree::{assert_agrees, backends, codes, f32s, floats, ints, ramp};
use graphs::{Trial, buffer};
use pteron_runtime::Value;
use pteron_tensor::DType;

/// Every step starts from the same outer value, whatever the one before has made of it.
#[test]
fn an_update_at_the_end_of_a_loop_leaves_the_outer_value_alone() {
    let of = |update: &str| {
        format!(
            r#"graph "forward"
  input %0 "x": f32[3, 2]
  input %1 "b": f32[4]
  input %2 "places": i64[2]
{{
  %3: f32[4] = add(a=%1, b=%1)
  %4: f32[3, 4] = scan(originals=[%0], carry=[], scan_axis=0) body (%5: f32[2]) {{
    %6: f32[2] = slice(x=%3, axis=0, start=0, stop=2)
    %7: f32[2] = add(a=%6, b=%5)
    %8: f32[4] = {update}
    yield %8
  }}
}}
output %4 "y": f32[3, 4]
"#
        )
    };
    let x = f32s(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let inputs: [Value; 3] =
        [x.into(), f32s(&[4], &[10.0, 20.0, 30.0, 40.0]).into(), ints(DType::I64, &[2], &[0, 1]).into()];
    let wanted = [21.0, 42.0, 60.0, 80.0, 23.0, 44.0, 60.0, 80.0, 25.0, 46.0, 60.0, 80.0];
    for update in [
        "slice_update(dst=%3, update=%7, axis=0, start=0, stop=2)",
        "index_copy(dst=%3, update=%7, indices=%2, axis=0)",
    ] {
        let text = of(update);
        for (name, backend) in backends() {
            let outputs = Trial::of(&[&text], &[], backend.as_ref()).run(0, &inputs).unwrap();
            assert_eq!(floats(&outputs[0]), wanted, "{name}: {update}");
        }
    }
}

/// A buffer that a loop updates in its last node: the first step's result is not the second one's start.
#[test]
fn an_update_of_a_buffer_in_a_loop_starts_from_what_the_run_began_with() {
    let text = r#"graph "forward"
  input %0 "x": f32[3, 2]
  buffer %1 "kept": f32[4] -> %1
{
  %2: f32[3, 4] = scan(originals=[%0], carry=[], scan_axis=0) body (%3: f32[2]) {
    %4: f32[2] = slice(x=%1, axis=0, start=0, stop=2)
    %5: f32[2] = add(a=%4, b=%3)
    %6: f32[4] = slice_update(dst=%1, update=%5, axis=0, start=0, stop=2)
    yield %6
  }
}
output %2 "y": f32[3, 4]
"#;
    let x: Value = f32s(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).into();
    for (name, backend) in backends() {
        let mut trial = Trial::of(&[text], &[], backend.as_ref());
        for _ in 0..2 {
            let outputs = trial.run(0, std::slice::from_ref(&x)).unwrap();
            let wanted = [1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0, 5.0, 6.0, 0.0, 0.0];
            assert_eq!(floats(&outputs[0]), wanted, "{name}");
        }
        assert_eq!(trial.buffer(0, "kept"), f32s(&[4], &[0.0; 4]), "{name}");
    }
}

/// What may be a view of one buffer goes into another, while that one's old contents go into the first.
#[test]
fn buffers_that_change_places_are_put_aside_first() {
    for op in ["contiguous(x=%0)", "reshape(x=%0, shape=[-1])", "id_copy(x=%0)", "neg(x=%0)"] {
        let text = format!(
            r#"graph "forward"
  buffer %0 "a": f32[2] -> %1
  buffer %1 "b": f32[2] -> %2
{{
  %2: f32[2] = {op}
}}
output %2 "y": f32[2]
"#
        );
        for (name, backend) in backends() {
            let mut trial = Trial::of(&[&text], &[], backend.as_ref());
            let (a, b) = (f32s(&[2], &[1.0, 2.0]), f32s(&[2], &[3.0, 4.0]));
            trial.state.write(&buffer(0, "a"), &a).unwrap();
            trial.state.write(&buffer(0, "b"), &b).unwrap();
            let outputs = trial.run(0, &[]).unwrap();
            assert_eq!(trial.buffer(0, "a"), b, "{name}: {op}");
            assert_eq!(floats(&outputs[0]), trial.buffer(0, "b").as_slice::<f32>().unwrap(), "{name}: {op}");
            let sign = if op.starts_with("neg") { -1.0 } else { 1.0 };
            assert_eq!(trial.buffer(0, "b"), f32s(&[2], &[sign, 2.0 * sign]), "{name}: {op}");
        }
    }
}

/// Eight bits in groups of 32 and four bits in groups of 64 are both legal over the same words and scales.
#[test]
fn the_same_constants_under_another_scheme_get_their_own_kernel() {
    let product = |result: usize, bits: usize| {
        let (x, group) = if bits == 8 { (0, 32) } else { (1, 64) };
        format!(
            "  %{result}: f32[1, 4] = quantized_matmul(x=%{x}, w=%2, scales=%3, biases=%4, group_size={group}, \
             bits={bits}, mode=\"affine\")\n"
        )
    };
    let constants =
        [("w", codes(&[4, 16], 1)), ("scales", ramp(&[4, 2])), ("biases", f32s(&[4, 2], &[0.5; 8]))];
    let inputs = [Value::Tensor(ramp(&[1, 64])), Value::Tensor(ramp(&[1, 128]))];
    for (first, second) in [(8, 4), (4, 8)] {
        let text = format!(
            "graph \"forward\"\n  input %0 \"a\": f32[1, 64]\n  input %1 \"b\": f32[1, 128]\n  \
             constant %2 \"w\": u32[4, 16]\n  constant %3 \"scales\": f32[4, 2]\n  constant %4 \"biases\": f32[4, 2]\n\
             {{\n{}{}}}\noutput %5 \"first\": f32[1, 4]\noutput %6 \"second\": f32[1, 4]\n",
            product(5, first),
            product(6, second)
        );
        assert_agrees(&text, &constants, &inputs);
    }
}

const INTEGERS: [DType; 8] =
    [DType::U8, DType::I8, DType::U16, DType::I16, DType::U32, DType::I32, DType::U64, DType::I64];

#[test]
fn index_copy_into_a_buffer_takes_every_integer_index() {
    for dtype in INTEGERS {
        let text = format!(
            r#"graph "forward"
  input %0 "rows": f32[2, 2]
  input %1 "places": {dtype}[2]
  buffer %2 "kept": f32[5, 2] -> %3
{{
  %3: f32[5, 2] = index_copy(dst=%2, update=%0, indices=%1, axis=0)
}}
output %3 "all": f32[5, 2]
"#
        );
        let rows = |start: f32| Value::Tensor(f32s(&[2, 2], &[start, start + 1.0, start + 2.0, start + 3.0]));
        let places = |values: [i64; 2]| Value::Tensor(ints(dtype, &[2], &values));
        for (name, backend) in backends() {
            let mut trial = Trial::of(&[&text], &[], backend.as_ref());
            let outputs = trial.run(0, &[rows(1.0), places([3, 0])]);
            let outputs = outputs.unwrap_or_else(|error| panic!("{name}, {dtype}: {error}"));
            let once = [3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0];
            assert_eq!(floats(&outputs[0]), once, "{name}, {dtype}");
            // Of equal places the last row wins; one that is nowhere leaves the buffer alone.
            trial.run(0, &[rows(5.0), places([1, 1])]).unwrap();
            let twice = f32s(&[5, 2], &[3.0, 4.0, 7.0, 8.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0]);
            assert_eq!(trial.buffer(0, "kept"), twice, "{name}, {dtype}");
            assert!(trial.run(0, &[rows(9.0), places([2, 5])]).is_err(), "{name}, {dtype}");
            assert_eq!(trial.buffer(0, "kept"), twice, "{name}, {dtype}");
        }
    }
}

#[test]
fn strided_indices_and_ids_run() {
    for dtype in INTEGERS {
        let text = format!(
            r#"graph "forward"
  input %0 "rows": f32[2, 2]
  input %1 "places": {dtype}[4]
  buffer %2 "kept": f32[5, 2] -> %4
{{
  %3: {dtype}[2] = slice(x=%1, axis=0, start=0, stop=4, step=2)
  %4: f32[5, 2] = index_copy(dst=%2, update=%0, indices=%3, axis=0)
}}
output %4 "all": f32[5, 2]
"#
        );
        let inputs = [
            Value::Tensor(f32s(&[2, 2], &[1.0, 2.0, 3.0, 4.0])),
            Value::Tensor(ints(dtype, &[4], &[4, 3, 1, 0])),
        ];
        assert_agrees(&text, &[], &inputs);
        let text = format!(
            r#"graph "forward"
  input %0 "ids": {dtype}[3, 2]
  constant %1 "w": u32[6, 8]
  constant %2 "scales": f32[6, 2]
  constant %3 "biases": f32[6, 2]
{{
  %4: {dtype}[2, 3] = transpose(x=%0, perm=[1, 0])
  %5: u32[2, 3, 8] = take(x=%1, index=%4, axis=0)
  %6: f32[2, 3, 2] = take(x=%2, index=%4, axis=0)
  %7: f32[2, 3, 2] = take(x=%3, index=%4, axis=0)
  %8: f32[2, 3, 64] = dequantize(w=%5, scales=%6, biases=%7, group_size=32, bits=4, mode="affine")
}}
output %8 "rows": f32[2, 3, 64]
"#
        );
        let constants =
            [("w", codes(&[6, 8], 3)), ("scales", ramp(&[6, 2])), ("biases", f32s(&[6, 2], &[0.5; 12]))];
        assert_agrees(&text, &constants, &[ints(dtype, &[3, 2], &[5, 0, 1, 4, 2, 3]).into()]);
    }
}

#[test]
fn what_a_branch_yields_twice_is_not_updated_in_place() {
    let text = r#"graph "forward"
  symbol C in 0..=1
  input %0 "x": f32[4]
  input %1 "c": int(C)
{
  %2: f32[4] = add(a=%0, b=%0)
  %3: f32[4], %4: f32[4] = if(cond=%1) then {
    %5: f32[4] = neg(x=%2)
    yield %5, %5
  } else {
    yield %2, %2
  }
  %6: f32[2] = slice(x=%0, axis=0, start=0, stop=2)
  %7: f32[4] = slice_update(dst=%3, update=%6, axis=0, start=1, stop=3)
  %8: f32[4] = add(a=%2, b=%0)
}
output %7 "updated": f32[4]
output %4 "other": f32[4]
output %8 "outer": f32[4]
"#;
    for condition in [0, 1] {
        assert_agrees(text, &[], &[ramp(&[4]).into(), Value::Int(condition)]);
    }
}

#[test]
fn what_a_loop_yields_twice_is_not_updated_in_place() {
    let text = r#"graph "forward"
  input %0 "x": f32[3, 2]
  input %1 "b": f32[2]
{
  %2: f32[3, 2], %3: f32[3, 2], %4: f32[2], %5: f32[2] = scan(originals=[%0], carry=[%1, %1], scan_axis=0) body (%6: f32[2], %7: f32[2], %8: f32[2]) {
    %9: f32[2] = add(a=%6, b=%7)
    %10: f32[1] = slice(x=%8, axis=0, start=0, stop=1)
    %11: f32[2] = slice_update(dst=%7, update=%10, axis=0, start=1, stop=2)
    yield %11, %6, %9, %9
  }
  %12: f32[1] = slice(x=%1, axis=0, start=1, stop=2)
  %13: f32[2] = slice_update(dst=%4, update=%12, axis=0, start=0, stop=1)
}
output %2 "stacked": f32[3, 2]
output %3 "given": f32[3, 2]
output %13 "updated": f32[2]
output %5 "other": f32[2]
"#;
    assert_agrees(text, &[], &[ramp(&[3, 2]).into(), f32s(&[2], &[5.0, 7.0]).into()]);
}
