//! Tensors from numbers, and triangles.

use super::{check, lit, lits, refuse, run, v};
use pteron_ir::Op;
use pteron_ir::op::{FloatArg, IntArg};
use pteron_tensor::DType;

#[test]
fn one_value_everywhere() {
    let full = |value, scalar_type| Op::Full { shape: lits(&[2]), v: FloatArg::Literal(value), scalar_type };
    let cases = [
        (full(1.5, DType::F32), "f32[2] 1.5 1.5"),
        (full(2.7, DType::I32), "i32[2] 2 2"),
        (full(-1.0, DType::U8), "u8[2] 255 255"),
        (full(16777217.0, DType::I32), "i32[2] 16777217 16777217"),
        (full(f64::NAN, DType::Bool), "bool[2] 1 1"),
        (full(f64::NEG_INFINITY, DType::BF16), "bf16[2] -inf -inf"),
        (full(1e30, DType::I16), "i16[2] 32767 32767"),
        (full(0.1, DType::F16), "f16[2] 0.1 0.1"),
    ];
    for (op, want) in cases {
        check(op, &[], want);
    }
    let full = |value| Op::Full { shape: vec![lit(1)], v: FloatArg::Value(v(0)), scalar_type: value };
    check(full(DType::I64), &["int 9007199254740993"], "i64[1] 9007199254740993");
    check(full(DType::F32), &["float 0.5"], "f32[1] 0.5");
    check(full(DType::F32), &["bool true"], "f32[1] 1");
    let empty = Op::Full { shape: lits(&[0, 3]), v: FloatArg::Literal(1.0), scalar_type: DType::F32 };
    check(empty, &[], "f32[0,3]");
    let like = |scalar_type| Op::FullLike { x: v(0), v: FloatArg::Literal(3.0), scalar_type };
    check(like(None), &["bf16[1,2] 0 0"], "bf16[1,2] 3 3");
    check(like(Some(DType::I8)), &["bf16[] 0"], "i8[] 3");
}

#[test]
fn ranges() {
    let range = |start, stop, step, scalar_type| Op::ARange {
        start: lit(start),
        stop: lit(stop),
        step: lit(step),
        scalar_type,
    };
    let cases = [
        (range(0, 4, 1, None), "i32[4] 0 1 2 3"),
        (range(1, 8, 3, Some(DType::I64)), "i64[3] 1 4 7"),
        (range(5, 0, -2, Some(DType::F32)), "f32[3] 5 3 1"),
        (range(3, 3, 1, None), "i32[0]"),
        (range(3, 0, 1, None), "i32[0]"),
        (range(2047, 2052, 1, Some(DType::F16)), "f16[5] 2047 2048 2048 2050 2052"),
        (range(254, 258, 1, Some(DType::U8)), "u8[4] 254 255 0 1"),
    ];
    for (op, want) in cases {
        check(op, &[], want);
    }
    refuse(range(0, 3, 0, None), &[], "step 0");
    let to_value = Op::ARange { start: lit(0), stop: IntArg::Value(v(0)), step: lit(1), scalar_type: None };
    assert_eq!(run(&to_value, &["int 2"]), Ok(vec!["i32[2] 0 1".to_owned()]));
}

#[test]
fn triangles() {
    let tri = |n, m, k, scalar_type| Op::Tri { n: lit(n), m: lit(m), k, scalar_type };
    check(tri(2, 3, 0, DType::F32), &[], "f32[2,3] 1 0 0 1 1 0");
    check(tri(2, 3, 1, DType::Bool), &[], "bool[2,3] 1 1 0 1 1 1");
    check(tri(3, 2, -1, DType::I64), &[], "i64[3,2] 0 0 1 0 1 1");
    check(tri(2, 2, i32::MIN, DType::BF16), &[], "bf16[2,2] 0 0 0 0");
    check(tri(2, 2, i32::MAX, DType::U8), &[], "u8[2,2] 1 1 1 1");
    check(tri(0, 4, 0, DType::F32), &[], "f32[0,4]");
    let (x, square) = (v(0), "f32[2,2,2] 1 nan 3 4 5 6 inf 8");
    check(Op::Tril { x, k: 0 }, &[square], "f32[2,2,2] 1 0 3 4 5 0 inf 8");
    check(Op::Triu { x, k: 0 }, &[square], "f32[2,2,2] 1 nan 0 4 5 6 0 8");
    check(Op::Triu { x, k: 1 }, &[square], "f32[2,2,2] 0 nan 0 0 0 6 0 0");
    check(Op::Tril { x, k: -1 }, &["i16[1,3] 1 2 3"], "i16[1,3] 0 0 0");
    check(Op::Tril { x, k: 0 }, &["f32[2,0]"], "f32[2,0]");
    refuse(Op::Tril { x, k: 0 }, &["f32[2] 1 2"], "rank");
}
