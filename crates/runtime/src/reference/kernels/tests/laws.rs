//! What holds for every kernel, or between kernels: memory is reused only when it may be, and what can be
//! written in two ways comes out alike.

use super::super::functions::erf;
use super::{Datum, lit, run_data, show, tensor, v};
use pteron_ir::{Op, Ssa};

fn in_place_ops() -> Vec<(Op<Ssa>, Vec<&'static str>)> {
    let (dst, update, indices) = (v(0), v(1), v(2));
    let slice = Op::SliceUpdate { dst, update, axis: lit(0), start: lit(1), stop: lit(2), step: 1 };
    vec![
        (slice, vec!["f32[4] 1 2 3 4", "f32[1] 9"]),
        (Op::IndexCopy { dst, update, indices, axis: 0 }, vec!["f32[4] 1 2 3 4", "f32[1] 9", "i64[1] 2"]),
        (
            Op::ScatterAdd { x: dst, indices, updates: update, axis: 0 },
            vec!["f32[4] 1 2 3 4", "f32[1] 9", "i64[1] 2"],
        ),
        (Op::Tril { x: dst, k: 0 }, vec!["f32[2,2] 1 2 3 4"]),
        (Op::Reshape { x: dst, shape: vec![lit(4)] }, vec!["f32[2,2] 1 2 3 4"]),
    ]
}

#[test]
fn memory_is_reused_at_the_last_use_and_only_then() {
    for (op, inputs) in in_place_ops() {
        let x = tensor(inputs[0]);
        let (text, place) = (show(&x), x.bytes().as_ptr());
        let rest = || inputs[1..].iter().map(|text| Datum::Tensor(tensor(text)));

        let shared: Vec<Datum> = std::iter::once(Datum::Tensor(x.clone())).chain(rest()).collect();
        let copied = run_data(&op, shared, false).unwrap();
        assert_eq!(show(&x), text, "{op:?} wrote to memory that is still read");

        let owned: Vec<Datum> = std::iter::once(Datum::Tensor(x)).chain(rest()).collect();
        let reused = run_data(&op, owned, true).unwrap();
        let (Datum::Tensor(copied), Datum::Tensor(reused)) = (&copied[0], &reused[0]) else {
            panic!("{op:?}")
        };
        assert_eq!(show(copied), show(reused));
        assert_eq!(reused.bytes().as_ptr(), place, "{op:?} copied");
    }
}

/// Both operands are the same value, and it is read for the last time.
#[test]
fn an_operand_may_stand_twice() {
    let op = Op::SliceUpdate { dst: v(0), update: v(0), axis: lit(0), start: lit(0), stop: lit(2), step: 1 };
    let results = run_data(&op, vec![Datum::Tensor(tensor("f32[2] 1 2"))], true).unwrap();
    let Datum::Tensor(result) = &results[0] else { panic!() };
    assert_eq!(show(result), "f32[2] 1 2");
}

/// Values by Python's `math.erf`.
#[test]
fn erf_is_right_in_double_precision() {
    let cases = [
        (1e-300, 1.1283791670955126e-300),
        (0.1, 0.1124629160182849),
        (0.5, 0.5204998778130465),
        (1.0, 0.8427007929497149),
        (1.5, 0.9661051464753108),
        (2.0, 0.9953222650189527),
        (3.0, 0.9999779095030014),
        (4.5, 0.9999999998033839),
        (5.9, 1.0),
        (6.1, 1.0),
        (f64::INFINITY, 1.0),
    ];
    for (x, want) in cases {
        assert!((erf(x) - want).abs() <= want * 1e-15, "erf({x}) = {}", erf(x));
        assert_eq!(erf(-x), -erf(x));
    }
    assert!(erf(f64::NAN).is_nan());
}
