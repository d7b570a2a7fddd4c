//! Sorting: NaN last, stable, along any axis, every dtype.

use super::{check, lit, refuse, v};
use pteron_ir::Op;
use pteron_tensor::DType;

#[test]
fn sorting() {
    let sort = |axis| Op::Sort { x: v(0), axis };
    let cases = [
        (sort(0), "f32[5] 2 nan -inf 1 inf", "f32[5] -inf 1 2 inf nan"),
        (sort(-1), "i32[2,3] 3 1 2 9 7 8", "i32[2,3] 1 2 3 7 8 9"),
        (sort(0), "i32[2,3] 3 1 2 1 7 0", "i32[2,3] 1 1 0 3 7 2"),
        (sort(1), "i32[2,2,2] 4 3 2 1 8 5 6 7", "i32[2,2,2] 2 1 4 3 6 5 8 7"),
        (sort(0), "u64[2] 18446744073709551615 1", "u64[2] 1 18446744073709551615"),
        (sort(0), "i8[3] 1 -128 127", "i8[3] -128 1 127"),
        (sort(0), "bool[3] 1 0 1", "bool[3] 0 1 1"),
        (sort(0), "f32[] 4", "f32[] 4"),
        (sort(0), "f32[0,3]", "f32[0,3]"),
        (sort(1), "f32[2,0]", "f32[2,0]"),
    ];
    for (op, x, want) in cases {
        check(op, &[x], want);
    }
    for dtype in DType::all().filter(|&dtype| dtype != DType::Bool) {
        check(sort(0), &[&format!("{dtype}[4] 3 1 2 0")], &format!("{dtype}[4] 0 1 2 3"));
        check(Op::Argsort { x: v(0), axis: 0 }, &[&format!("{dtype}[4] 3 1 2 0")], "u32[4] 3 1 2 0");
    }
}

#[test]
fn equal_elements_keep_their_order() {
    let argsort = |axis| Op::Argsort { x: v(0), axis };
    check(argsort(0), &["f32[5] 1 0 -0 nan 0"], "u32[5] 1 2 4 0 3");
    check(argsort(0), &["i64[6] 1 0 1 0 1 0"], "u32[6] 1 3 5 0 2 4");
    check(argsort(0), &["i32[3,2] 3 0 1 0 2 0"], "u32[3,2] 1 0 2 1 0 2");
    check(argsort(-1), &["bf16[] 1"], "u32[] 0");
    check(Op::Sort { x: v(0), axis: 0 }, &["f32[3] 0 -0 -1"], "f32[3] -1 0 -0");
}

#[test]
fn partitions() {
    let partition = |kth| Op::Partition { x: v(0), kth: lit(kth), axis: -1 };
    let arg_partition = |kth| Op::ArgPartition { x: v(0), kth: lit(kth), axis: -1 };
    check(partition(1), &["f32[4] 4 2 3 1"], "f32[4] 1 2 3 4");
    check(partition(-1), &["f32[2,2] 4 2 3 1"], "f32[2,2] 2 4 1 3");
    check(arg_partition(-2), &["f32[4] 4 2 3 1"], "u32[4] 3 1 2 0");
    refuse(partition(4), &["f32[4] 4 2 3 1"], "no element 4");
    refuse(arg_partition(-5), &["f32[4] 4 2 3 1"], "no element -5");
}
