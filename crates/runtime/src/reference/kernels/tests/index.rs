//! Picking and placing by index: negative once, errors outside, order of equal ones.

use super::{check, refuse, v};
use pteron_ir::op::IndexArg;
use pteron_ir::{Op, Ssa};
use pteron_tensor::DType;

const GRID: &str = "i32[2,3] 1 2 3 4 5 6";

#[test]
fn taking() {
    let at = |index, axis| Op::Take { x: v(0), index: IndexArg::Literal(index), axis };
    let by = |axis| Op::Take { x: v(0), index: IndexArg::Tensor(v(1)), axis };
    check(at(1, 0), &[GRID], "i32[3] 4 5 6");
    check(at(-1, 1), &[GRID], "i32[2] 3 6");
    check(at(0, -1), &["f32[1] 7"], "f32[] 7");
    check(Op::Take { x: v(0), index: IndexArg::Value(v(1)), axis: 0 }, &[GRID, "int -2"], "i32[3] 1 2 3");
    refuse(at(2, 0), &[GRID], "index 2 is outside an axis of size 2");
    refuse(at(-3, 0), &[GRID], "index -3");
    let cases = [
        (by(0), GRID, "i64[2] 1 -2", "i32[2,3] 4 5 6 1 2 3"),
        (by(-1), GRID, "u8[2,2] 0 2 2 1", "i32[2,2,2] 1 3 3 2 4 6 6 5"),
        (by(0), "bf16[2] 1 2", "i32[] -1", "bf16[] 2"),
        (by(0), GRID, "i32[0]", "i32[0,3]"),
        (by(1), "f32[0,3]", "i32[2] 0 2", "f32[0,2]"),
    ];
    for (op, x, index, want) in cases {
        check(op, &[x, index], want);
    }
    refuse(by(0), &[GRID, "i64[2] 0 2"], "index 2 is outside an axis of size 2");
    refuse(by(0), &["f32[0]", "i64[1] 0"], "index 0 is outside an axis of size 0");
    refuse(by(0), &[GRID, "u64[1] 18446744073709551615"], "outside");
    refuse(by(0), &[GRID, "f32[1] 0"], "integer");
}

#[test]
fn taking_along_an_axis() {
    let op = |axis| Op::TakeAlongAxis { x: v(0), indices: v(1), axis };
    let cases = [
        (op(1), GRID, "i64[2,2] 2 0 -1 1", "i32[2,2] 3 1 6 5"),
        (op(0), GRID, "u32[1,3] 1 0 1", "i32[1,3] 4 2 6"),
        (op(-1), GRID, "i32[1,1] 1", "i32[2,1] 2 5"),
        (op(-1), "f16[1,3] 1 2 3", "i32[2,2] 0 1 2 2", "f16[2,2] 1 2 3 3"),
        (op(0), "f32[] 4", "i64[] 0", "f32[] 4"),
        (op(0), "f32[2] 1 2", "i64[0]", "f32[0]"),
    ];
    for (op, x, index, want) in cases {
        check(op, &[x, index], want);
    }
    refuse(op(1), &[GRID, "i64[2,1] 3 0"], "index 3 is outside an axis of size 3");
    refuse(op(0), &["f32[] 4", "i64[] 1"], "index 1");
}

#[test]
fn gathering_slices() {
    let op = |axes: &[i32], sizes: &[i32]| Op::Gather {
        x: v(0),
        indices: (1..=axes.len() as u32).map(v).collect(),
        axes: axes.to_vec(),
        slice_sizes: sizes.to_vec(),
    };
    check(op(&[0], &[1, 3]), &[GRID, "i64[2] 1 -2"], "i32[2,1,3] 4 5 6 1 2 3");
    check(op(&[0, 1], &[1, 1]), &[GRID, "i64[2,1] 0 1", "u8[2] 2 0"], "i32[2,2,1,1] 3 1 6 4");
    check(op(&[1], &[2, 2]), &[GRID, "i32[] 1"], "i32[2,2] 2 3 5 6");
    check(op(&[0], &[1, 3]), &[GRID, "i64[0]"], "i32[0,1,3]");
    check(op(&[], &[2, 1]), &[GRID], "i32[2,1] 1 4");
    refuse(op(&[1], &[2, 2]), &[GRID, "i32[1] 2"], "index 3 is outside an axis of size 3");
    refuse(op(&[0], &[1, 3]), &[GRID, "i32[1] 2"], "index 2");
}

#[test]
fn copying_rows() {
    let op = |axis| Op::IndexCopy { dst: v(0), update: v(1), indices: v(2), axis };
    let cases = [
        (op(0), GRID, "i32[1,3] 7 8 9", "i64[1] -1", "i32[2,3] 1 2 3 7 8 9"),
        (op(1), GRID, "f32[2,2] 7.5 8 9 10", "i64[2] 2 0", "i32[2,3] 8 2 7 10 5 9"),
        // Of equal indices the last one wins.
        (op(0), "f32[3] 0 0 0", "f32[3] 1 2 3", "i64[3] 1 1 1", "f32[3] 0 3 0"),
        (op(0), "f32[3] 0 0 0", "f32[0]", "i64[0]", "f32[3] 0 0 0"),
    ];
    for (op, dst, update, indices, want) in cases {
        check(op, &[dst, update, indices], want);
    }
    refuse(op(0), &[GRID, "i32[1,3] 7 8 9", "i64[1] 2"], "index 2");
}

fn scatter(axis: i32) -> Op<Ssa> {
    Op::ScatterAdd { x: v(0), indices: v(1), updates: v(2), axis }
}

#[test]
fn scattering() {
    let cases = [
        (scatter(0), "f32[3] 1 1 1", "i64[3] 0 -1 0", "f32[3] 1 2 3", "f32[3] 5 1 3"),
        (scatter(1), GRID, "i32[2,1] 0 2", "i32[1,1] 10", "i32[2,3] 11 2 3 4 5 16"),
        (scatter(0), GRID, "i32[1,3] 1 1 0", "i32[2,3] 1 2 3 4 5 6", "i32[2,3] 1 2 12 9 12 6"),
        // Shorter than x beside the axis.
        (scatter(0), GRID, "i32[2,1] 1 1", "i32[2,1] 5 6", "i32[2,3] 1 2 3 15 5 6"),
        (scatter(0), "f32[] 1", "i64[] 0", "f32[] 2", "f32[] 3"),
        (scatter(0), "f32[2] 1 2", "i64[0]", "f32[0]", "f32[2] 1 2"),
        (scatter(0), "i8[1] 127", "i64[1] 0", "i8[1] 1", "i8[1] -128"),
        (scatter(0), "bool[2] 0 1", "i64[2] 0 1", "bool[2] 1 1", "bool[2] 1 1"),
        (scatter(0), "i32[1] 1", "i64[1] 0", "f32[1] 2.9", "i32[1] 3"),
    ];
    for (op, x, indices, updates, want) in cases {
        check(op, &[x, indices, updates], want);
    }
    refuse(scatter(0), &["f32[1] 1", "i64[1] 1", "f32[1] 1"], "index 1");
    for dtype in DType::all().filter(|&dtype| dtype != DType::Bool) {
        let inputs = [format!("{dtype}[2] 1 2"), "i16[2] 1 1".into(), format!("{dtype}[2] 3 4")];
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        check(scatter(0), &inputs, &format!("{dtype}[2] 1 9"));
    }
}

/// More indices than are read at a time.
#[test]
fn indices_over_many_blocks() {
    let text = |dtype: &str, shape: &str, values: &mut dyn Iterator<Item = usize>| {
        let values: Vec<String> = values.map(|value| value.to_string()).collect();
        format!("{dtype}[{shape}] {}", values.join(" "))
    };
    let backwards = text("i64", "1000", &mut (0..1000).rev());
    let x = text("i32", "2,1000", &mut (0..2000));
    let turned = text("i32", "2,1000", &mut (0..1000).rev().chain((1000..2000).rev()));
    let take = Op::Take { x: v(0), index: IndexArg::Tensor(v(1)), axis: 1 };
    check(take, &[&x, &backwards], &turned);
    let gather = Op::Gather { x: v(0), indices: vec![v(1)], axes: vec![1], slice_sizes: vec![1, 1] };
    check(gather, &[&x, &backwards], &text("i32", "1000,1,1", &mut (0..1000).rev()));
    let zeros = text("i32", "2,1000", &mut std::iter::repeat_n(0, 2000));
    let copy = Op::IndexCopy { dst: v(0), update: v(1), indices: v(2), axis: 1 };
    check(copy, &[&zeros, &x, &backwards], &turned);
    let rows = text("i64", "1,1000", &mut (0..1000).rev());
    check(Op::TakeAlongAxis { x: v(0), indices: v(1), axis: 1 }, &[&x, &rows], &turned);
    check(scatter(1), &[&zeros, &rows, &x], &turned);
}

/// The last index is wrong, and it stands in the second block.
#[test]
fn a_wrong_index_leaves_nothing_half_written() {
    let mut indices = vec!["0"; 299];
    indices.push("1");
    let indices = super::tensor(&format!("i64[300] {}", indices.join(" ")));
    let ones = super::tensor(&format!("f32[300] {}", "1 ".repeat(300)));
    let cases = [
        Op::IndexCopy { dst: v(0), update: v(1), indices: v(2), axis: 0 },
        Op::ScatterAdd { x: v(0), updates: v(1), indices: v(2), axis: 0 },
    ];
    for op in cases {
        let mut values = [super::tensor("f32[1] 5"), ones.clone(), indices.clone()]
            .map(|tensor| Some(super::Datum::Tensor(tensor)));
        let results = vec![super::ResultType { dtype: DType::F32, shape: vec![1] }];
        let mut operands = super::Operands::new(&mut values, &|_| true, results);
        assert!(super::compute(&op, &mut operands).is_err());
        assert_eq!(super::show(operands.tensor(v(0)).unwrap()), "f32[1] 5", "{op:?}");
    }
}
