//! Kernels that move elements: every bit stays, every axis from either end, empty tensors and rank 0.

use super::{check, lit, lits, refuse, run, tensor, v};
use pteron_ir::op::IntArg;
use pteron_ir::{Op, Ssa};
use pteron_tensor::DType;

const GRID: &str = "i32[2,3] 1 2 3 4 5 6";

#[test]
fn the_same_elements() {
    let x = v(0);
    let cases = [
        (Op::Reshape { x, shape: lits(&[3, -1]) }, GRID, "i32[3,2] 1 2 3 4 5 6"),
        (Op::Reshape { x, shape: lits(&[]) }, "f32[1,1] 4", "f32[] 4"),
        (Op::Reshape { x, shape: lits(&[0, 7]) }, "f32[3,0]", "f32[0,7]"),
        (Op::Squeeze { x, dims: None }, "f32[1,2,1] 1 2", "f32[2] 1 2"),
        (Op::Squeeze { x, dims: Some(vec![0, 1]) }, "f32[1,2,1] 1 2", "f32[2,1] 1 2"),
        (Op::Squeeze { x, dims: Some(vec![-1]) }, "f32[1,2,1] 1 2", "f32[1,2] 1 2"),
        (Op::ExpandDims { x, axis: -1 }, "f32[2] 1 2", "f32[2,1] 1 2"),
        (Op::ExpandDims { x, axis: 0 }, "f32[] 1", "f32[1] 1"),
    ];
    for (op, x, want) in cases {
        check(op, &[x], want);
    }
    refuse(Op::Reshape { x, shape: lits(&[4, -1]) }, &[GRID], "element counts");
    refuse(Op::Reshape { x, shape: lits(&[0, -1]) }, &["f32[0]"], "element counts");
}

#[test]
fn repeating() {
    let x = v(0);
    let cases = [
        (
            Op::BroadcastTo { x, shape: lits(&[2, -1, 2]) },
            "i32[3,1] 1 2 3",
            "i32[2,3,2] 1 1 2 2 3 3 1 1 2 2 3 3",
        ),
        (Op::BroadcastTo { x, shape: lits(&[2, 2]) }, "bool[] 1", "bool[2,2] 1 1 1 1"),
        (Op::BroadcastTo { x, shape: lits(&[0, 3]) }, "f32[1,3] 1 2 3", "f32[0,3]"),
        (Op::BroadcastTo { x, shape: lits(&[0, 1 << 40]) }, "f32[1] 1", "f32[0,1099511627776]"),
        (Op::Tile { x, reps: lits(&[2]) }, "i32[2,2] 1 2 3 4", "i32[2,4] 1 2 1 2 3 4 3 4"),
        (Op::Tile { x, reps: lits(&[2, 1]) }, "i32[2,2] 1 2 3 4", "i32[4,2] 1 2 3 4 1 2 3 4"),
        (Op::Tile { x, reps: lits(&[2, 1, 2]) }, "u8[2] 1 2", "u8[2,1,4] 1 2 1 2 1 2 1 2"),
        (Op::Tile { x, reps: lits(&[3]) }, "f64[] 5", "f64[3] 5 5 5"),
        (Op::Tile { x, reps: lits(&[0, 2]) }, "i32[2] 1 2", "i32[0,4]"),
        (Op::Repeat { x, repeats: lit(2), axis: 0 }, "i32[2,2] 1 2 3 4", "i32[4,2] 1 2 1 2 3 4 3 4"),
        (Op::Repeat { x, repeats: lit(2), axis: -1 }, "i32[2,2] 1 2 3 4", "i32[2,4] 1 1 2 2 3 3 4 4"),
        (Op::Repeat { x, repeats: lit(0), axis: 0 }, "i32[2] 1 2", "i32[0]"),
    ];
    for (op, x, want) in cases {
        check(op, &[x], want);
    }
}

#[test]
fn reordering() {
    let x = v(0);
    let roll = |shift: &[i64], axes: &[i32]| Op::Roll { x, shift: lits(shift), axes: axes.to_vec() };
    let cases = [
        (Op::Transpose { x, perm: vec![1, 0] }, GRID, "i32[3,2] 1 4 2 5 3 6"),
        (Op::Transpose { x, perm: vec![-1, 0, 1] }, "u8[2,1,3] 1 2 3 4 5 6", "u8[3,2,1] 1 4 2 5 3 6"),
        (
            Op::Transpose { x, perm: vec![0, 2, 1] },
            "f16[2,2,2] 1 2 3 4 5 6 7 8",
            "f16[2,2,2] 1 3 2 4 5 7 6 8",
        ),
        (Op::Transpose { x, perm: vec![] }, "f32[] 1", "f32[] 1"),
        (Op::Transpose { x, perm: vec![1, 0] }, "f32[0,3]", "f32[3,0]"),
        (roll(&[1], &[0]), "i64[4] 1 2 3 4", "i64[4] 4 1 2 3"),
        (roll(&[-5], &[-1]), GRID, "i32[2,3] 3 1 2 6 4 5"),
        (roll(&[1, 1], &[0, 1]), GRID, "i32[2,3] 6 4 5 3 1 2"),
        (roll(&[1], &[]), GRID, "i32[2,3] 6 1 2 3 4 5"),
        (roll(&[i64::MIN], &[0]), "i32[3] 1 2 3", "i32[3] 3 1 2"),
        (roll(&[3], &[0]), "f32[0]", "f32[0]"),
        (Op::Flip { x, axes: vec![0] }, GRID, "i32[2,3] 4 5 6 1 2 3"),
        (Op::Flip { x, axes: vec![-1] }, GRID, "i32[2,3] 3 2 1 6 5 4"),
        (Op::Flip { x, axes: vec![0, 1] }, GRID, "i32[2,3] 6 5 4 3 2 1"),
        (Op::Flip { x, axes: vec![] }, GRID, GRID),
        (Op::Flip { x, axes: vec![0] }, "f32[] 1", "f32[] 1"),
        (Op::Flip { x, axes: vec![0] }, "f32[0,2]", "f32[0,2]"),
    ];
    for (op, x, want) in cases {
        check(op, &[x], want);
    }
}

fn slice(axis: i64, start: i64, stop: i64, step: i32) -> Op<Ssa> {
    Op::Slice { x: v(0), axis: lit(axis), start: lit(start), stop: lit(stop), step }
}

#[test]
fn slicing() {
    let (line, end) = ("i32[5] 0 1 2 3 4", i64::MAX);
    let cases = [
        (slice(0, 1, 3, 1), line, "i32[2] 1 2"),
        (slice(0, -2, end, 1), line, "i32[2] 3 4"),
        (slice(0, 0, end, 2), line, "i32[3] 0 2 4"),
        (slice(0, 4, 2, 1), line, "i32[0]"),
        (slice(0, 100, 200, 1), line, "i32[0]"),
        (slice(0, -100, 2, 1), line, "i32[2] 0 1"),
        // The top-k lowering's way to turn the last k around.
        (slice(0, 2, -4, -1), "i32[3] 1 2 3", "i32[3] 3 2 1"),
        (slice(0, end, 0, -2), line, "i32[2] 4 2"),
        (slice(-1, 1, 2, 1), GRID, "i32[2,1] 2 5"),
        (slice(0, 1, 2, 1), GRID, "i32[1,3] 4 5 6"),
        (slice(1, 2, -4, -1), GRID, "i32[2,3] 3 2 1 6 5 4"),
        (slice(1, 0, end, 1), "f32[2,0]", "f32[2,0]"),
    ];
    for (op, x, want) in cases {
        check(op, &[x], want);
    }
    refuse(slice(0, 0, 5, 0), &[line], "step 0");
    refuse(slice(1, 0, 5, 1), &[line], "axis 1");
    let (axis, start) = (IntArg::Value(v(1)), IntArg::Value(v(2)));
    let by_value = Op::Slice { x: v(0), axis, start, stop: lit(end), step: 1 };
    check(by_value, &[GRID, "int -1", "int 2"], "i32[2,1] 3 6");
}

#[test]
fn splitting() {
    let split = |sizes: &[i64], axis| Op::Split { x: v(0), sizes: lits(sizes), axis };
    let cases = [
        (split(&[2], 0), "i32[5] 0 1 2 3 4", vec!["i32[2] 0 1", "i32[2] 2 3", "i32[1] 4"]),
        (split(&[1, 2], -1), GRID, vec!["i32[2,1] 1 4", "i32[2,2] 2 3 5 6"]),
        (split(&[0, 2], 0), "f32[2] 1 2", vec!["f32[0]", "f32[2] 1 2"]),
        (split(&[2, 0], 0), "f32[2] 1 2", vec!["f32[2] 1 2", "f32[0]"]),
        (split(&[7], 0), "f32[2] 1 2", vec!["f32[2] 1 2"]),
    ];
    for (op, x, want) in cases {
        let want = want.into_iter().map(str::to_owned).collect();
        assert_eq!(run(&op, &[x]), Ok(want), "{op:?}");
    }
    refuse(split(&[1, 1], 0), &["f32[3] 1 2 3"], "sum of its pieces");
}

#[test]
fn updating_a_slice() {
    let update = |axis, start, stop, step| {
        let (dst, update) = (v(0), v(1));
        Op::SliceUpdate { dst, update, axis: lit(axis), start: lit(start), stop: lit(stop), step }
    };
    let (line, end) = ("f32[5] 0 0 0 0 0", i64::MAX);
    let cases = [
        (update(0, 1, 3, 1), line, "f32[2] 7 8", "f32[5] 0 7 8 0 0"),
        (update(0, -2, end, 1), line, "f32[2] 7 8", "f32[5] 0 0 0 7 8"),
        (update(0, 0, end, 2), line, "f32[3] 7 8 9", "f32[5] 7 0 8 0 9"),
        // The update is converted and broadcast.
        (update(0, 1, 4, 1), line, "i64[] 3", "f32[5] 0 3 3 3 0"),
        (update(1, 0, 2, 1), "i32[2,3] 1 2 3 4 5 6", "i32[2,1] 8 9", "i32[2,3] 8 8 3 9 9 6"),
        (update(0, 1, 2, 1), "i32[2,3] 1 2 3 4 5 6", "f32[3] 7.9 8 -9.9", "i32[2,3] 1 2 3 7 8 -9"),
        // Nothing to write, whatever the update's shape.
        (update(0, 2, 2, 1), line, "f32[2] 7 8", line),
        (update(0, 3, 1, 1), line, "f32[2] 7 8", line),
        (update(0, 5, 9, 1), line, "f32[1] 7", line),
        (update(1, 0, 1, 1), "f32[0,2]", "f32[0,1]", "f32[0,2]"),
        // A clamped tail takes a single element only.
        (update(0, 4, 9, 1), line, "f32[1] 7", "f32[5] 0 0 0 0 7"),
    ];
    for (op, dst, new, want) in cases {
        check(op, &[dst, new], want);
    }
    refuse(update(0, 4, 6, 1), &[line, "f32[2] 7 8"], "replaces");
    refuse(update(0, 0, 2, -1), &[line, "f32[2] 7 8"], "step -1");
}

#[test]
fn joining() {
    let join = |axis| Op::Concatenate { tensors: vec![v(0), v(1)], axis };
    let stack = |axis| Op::Stack { tensors: vec![v(0), v(1)], axis };
    let cases = [
        (join(0), "i32[2] 1 2", "i32[1] 3", "i32[3] 1 2 3"),
        (join(-1), "i32[2,1] 1 2", "i32[2,2] 3 4 5 6", "i32[2,3] 1 3 4 2 5 6"),
        (join(0), "i32[0,2]", "i32[1,2] 3 4", "i32[1,2] 3 4"),
        (join(0), "f32[0]", "f32[0]", "f32[0]"),
        (join(0), "i64[1] 3", "f16[1] 0.5", "f16[2] 3 0.5"),
        (join(0), "bool[1] 1", "u8[1] 7", "u8[2] 1 7"),
        (stack(0), "i32[2] 1 2", "i32[2] 3 4", "i32[2,2] 1 2 3 4"),
        (stack(-1), "i32[2] 1 2", "i32[2] 3 4", "i32[2,2] 1 3 2 4"),
        (stack(1), "i32[2,2] 1 2 3 4", "i32[2,2] 5 6 7 8", "i32[2,2,2] 1 2 5 6 3 4 7 8"),
        (stack(0), "f32[] 1", "bf16[] 2", "f32[2] 1 2"),
        (stack(1), "f32[2,0]", "f32[2,0]", "f32[2,2,0]"),
    ];
    for (op, a, b, want) in cases {
        check(op, &[a, b], want);
    }
}

#[test]
fn padding() {
    let pad = |widths: &[i64], mode: &str, constant_value| Op::Pad {
        x: v(0),
        pad_width: lits(widths),
        mode: mode.to_owned(),
        constant_value,
    };
    let cases = [
        (pad(&[1, 2], "constant", 9.0), "f32[2] 1 2", "f32[5] 9 1 2 9 9"),
        (pad(&[1, 0, 0, 1], "constant", 0.0), "i32[1,2] 1 2", "i32[2,3] 0 0 0 1 2 0"),
        (pad(&[1, 0], "constant", 2.7), "i32[1] 5", "i32[2] 2 5"),
        (pad(&[0, 1], "constant", f32::NEG_INFINITY), "bf16[1] 5", "bf16[2] 5 -inf"),
        (pad(&[2, 1], "constant", 1.0), "u8[0]", "u8[3] 1 1 1"),
        (pad(&[], "constant", 1.0), "f32[] 3", "f32[] 3"),
        (pad(&[2, 1], "edge", 0.0), "i32[2] 1 2", "i32[5] 1 1 1 2 2"),
        (pad(&[1, 0, 0, 1], "edge", 0.0), "i32[2,2] 1 2 3 4", "i32[3,3] 1 2 2 1 2 2 3 4 4"),
        (pad(&[0, 0, 2, 2], "edge", 0.0), "i32[0,1]", "i32[0,5]"),
    ];
    for (op, x, want) in cases {
        check(op, &[x], want);
    }
    refuse(pad(&[-1, 0], "constant", 0.0), &["f32[2] 1 2"], "not a size");
    refuse(pad(&[1, 0], "reflect", 0.0), &["f32[2] 1 2"], "mode");
    refuse(pad(&[1, 0], "edge", 0.0), &["f32[0]"], "edge");
}

#[test]
fn strides() {
    let strided = |shape: &[i64], strides: &[i64], offset| Op::AsStrided {
        x: v(0),
        shape: lits(shape),
        strides: lits(strides),
        offset,
    };
    let x = "i32[2,3] 0 1 2 3 4 5";
    let cases = [
        (strided(&[3, 2], &[1, 3], 0), "i32[3,2] 0 3 1 4 2 5"),
        (strided(&[2, 2], &[1, 1], 3), "i32[2,2] 3 4 4 5"),
        (strided(&[3], &[-2], 5), "i32[3] 5 3 1"),
        (strided(&[2, 3], &[-3, 1], 3), "i32[2,3] 3 4 5 0 1 2"),
        (strided(&[2, 2], &[0, -1], 1), "i32[2,2] 1 0 1 0"),
        (strided(&[], &[], 4), "i32[] 4"),
        (strided(&[0, 9], &[100, 100], 1000), "i32[0,9]"),
    ];
    for (op, want) in cases {
        check(op, &[x], want);
    }
    refuse(strided(&[4], &[2], 0), &[x], "0 to 6 of 6");
    refuse(strided(&[2], &[-1], 0), &[x], "-1 to 0");
    refuse(strided(&[2], &[i64::MAX], u64::MAX), &[x], "of 6");
    refuse(strided(&[1], &[1], 0), &["f32[0]"], "of 0");
}

/// A signalling NaN with a payload, through every way of moving it.
#[test]
fn moving_keeps_every_bit() {
    let x = v(0);
    let bits = 0x7fa0_1234u32;
    let ops = [
        Op::Transpose { x, perm: vec![1, 0] },
        Op::Flip { x, axes: vec![0] },
        Op::Concatenate { tensors: vec![x, x], axis: 0 },
        Op::Repeat { x, repeats: lit(2), axis: 0 },
        Op::AsType { x, scalar_type: DType::F32 },
        Op::Sort { x, axis: 0 },
        Op::Tril { x, k: 1 },
    ];
    for op in ops {
        let mut nan = tensor("f32[1,2] 0 0");
        nan.bytes_mut().chunks_exact_mut(4).for_each(|element| element.copy_from_slice(&bits.to_le_bytes()));
        let results = super::run_data(&op, vec![super::Datum::Tensor(nan)], true).unwrap();
        let super::Datum::Tensor(result) = &results[0] else { panic!("{op:?}") };
        let kept = result.bytes().chunks_exact(4).all(|element| element == bits.to_le_bytes());
        assert!(kept, "{op:?}: {:?}", &result.bytes()[..]);
    }
}
