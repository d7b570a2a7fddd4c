//! Products with matrices that are picked by number: whichever way they are picked, on every vector path, they are what the
//! reference backend gives; and a number that no matrix has is an error.

#![allow(clippy::unwrap_used)] // a test may panic

mod agree;
#[path = "../../runtime/tests/graphs/mod.rs"]
mod graphs;

use agree::{assert_agrees, backends, codes, f32s, floats, ints, ramp};
use graphs::Trial;
use pteron_runtime::Value;
use pteron_tensor::DType;

/// Experts; each has `ROWS` rows of 64 numbers.
const EXPERTS: usize = 5;
const ROWS: usize = 24;

/// A graph with one product: the axes of the input before its rows, how many rows, and what picks.
fn packed(batch: &str, picks: &[(&str, &str, &str)], result: &str) -> String {
    let mut inputs = String::new();
    let mut fields = String::new();
    for (number, (field, dtype, shape)) in picks.iter().enumerate() {
        inputs += &format!("  input %{} \"{field}\": {dtype}{shape}\n", number + 1);
        fields += &format!("{field}=%{}, ", number + 1);
    }
    let w = picks.len() + 1;
    let (scales, biases, out) = (w + 1, w + 2, w + 3);
    format!(
        "graph \"forward\"\n  input %0 \"x\": f32[{batch}, 64]\n{inputs}  constant %{w} \"w\": u32[{EXPERTS}, {ROWS}, 8]\n  \
         constant %{scales} \"scales\": f32[{EXPERTS}, {ROWS}, 2]\n  constant %{biases} \"biases\": f32[{EXPERTS}, {ROWS}, 2]\n\
         {{\n  %{out}: f32[{result}, {ROWS}] = gather_qmm(x=%0, w=%{w}, scales=%{scales}, mode=\"affine\", biases=%{biases}, \
         {fields}group_size=32, bits=4)\n}}\noutput %{out} \"y\": f32[{result}, {ROWS}]\n"
    )
}

fn constants() -> [(&'static str, pteron_tensor::HostTensor); 3] {
    let groups = EXPERTS * ROWS * 2;
    let biases: Vec<f32> = (0..groups).map(|at| (at % 7) as f32 * 0.1 - 0.3).collect();
    [
        ("w", codes(&[EXPERTS, ROWS, 8], 5)),
        ("scales", ramp(&[EXPERTS, ROWS, 2])),
        ("biases", f32s(&[EXPERTS, ROWS, 2], &biases)),
    ]
}

#[test]
fn tokens_meet_the_experts_that_they_pick() {
    // So many tokens that some experts have more rows than kernels for few of them take.
    for tokens in [1, 3, 41] {
        let text = packed(
            &format!("{tokens}, 1, 1"),
            &[("rhs_indices", "i64", &format!("[{tokens}, 3]"))],
            &format!("{tokens}, 3, 1"),
        );
        let picks: Vec<i64> = (0..tokens as i64 * 3).map(|at| (at * at + at / 4) % EXPERTS as i64).collect();
        let inputs = [ramp(&[tokens, 1, 1, 64]).into(), ints(DType::I64, &[tokens, 3], &picks).into()];
        assert_agrees(&text, &constants(), &inputs);
    }
}

#[test]
fn both_sides_may_be_picked_and_matrices_have_several_rows() {
    let both = packed("4, 3", &[("lhs_indices", "u32", "[2, 1]"), ("rhs_indices", "i32", "[5]")], "2, 5, 3");
    let x = || Value::Tensor(ramp(&[4, 3, 64]));
    let (left, right) = (ints(DType::U32, &[2, 1], &[3, 1]), ints(DType::I32, &[5], &[4, 0, 4, 2, 0]));
    assert_agrees(&both, &constants(), &[x(), left.into(), right.into()]);
    let left = packed("4, 3", &[("lhs_indices", "i64", "[5]")], "5, 3");
    assert_agrees(&left, &constants(), &[x(), ints(DType::I64, &[5], &[0, 3, 3, 1, 2]).into()]);
}

#[test]
fn a_number_that_no_matrix_has_is_an_error() {
    let text = packed("2, 1, 1", &[("rhs_indices", "i64", "[2, 2]")], "2, 2, 1");
    for wrong in [EXPERTS as i64, -1, i64::MAX, i64::MIN] {
        let inputs = [ramp(&[2, 1, 1, 64]).into(), ints(DType::I64, &[2, 2], &[0, 1, wrong, 2]).into()];
        for (name, backend) in backends() {
            let error = Trial::of(&[&text], &constants(), backend.as_ref()).run(0, &inputs).unwrap_err();
            assert!(error.to_string().contains(&wrong.to_string()), "{name}, {wrong}: {error}");
        }
    }
}

#[test]
fn plain_floats_are_picked_too() {
    let text = r#"graph "forward"
  input %0 "x": f32[37, 1, 1, 6]
  input %1 "picks": i32[37, 2]
  constant %2 "w": f32[3, 4, 6]
{
  %3: f32[3, 6, 4] = transpose(x=%2, perm=[0, 2, 1])
  %4: f32[37, 2, 1, 4] = gather_mm(a=%0, b=%3, rhs_indices=%1)
}
output %4 "y": f32[37, 2, 1, 4]
"#;
    let picks: Vec<i64> = (0..74).map(|at| at * at % 3).collect();
    let inputs = [ramp(&[37, 1, 1, 6]).into(), ints(DType::I32, &[37, 2], &picks).into()];
    let weights = [("w", ramp(&[3, 4, 6]))];
    assert_agrees(text, &weights, &inputs);
    let wrong = [ramp(&[37, 1, 1, 6]).into(), ints(DType::I32, &[37, 2], &[3; 74]).into()];
    for (name, backend) in backends() {
        let mut trial = Trial::of(&[text], &weights, backend.as_ref());
        assert!(trial.run(0, &wrong).is_err(), "{name}");
        // What failed leaves nothing behind.
        assert_eq!(floats(&trial.run(0, &inputs).unwrap()[0]).len(), 37 * 2 * 4, "{name}");
    }
}
