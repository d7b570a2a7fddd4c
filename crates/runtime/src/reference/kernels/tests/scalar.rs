//! Numbers beside the tensors: 32 bits, Python's division.

use super::{run, v};
use pteron_ir::op::IntArg;
use pteron_ir::{Op, Ssa};

fn check(op: Op<Ssa>, inputs: &[&str], want: i64) {
    assert_eq!(run(&op, inputs), Ok(vec![format!("Int({want})")]), "{op:?} {inputs:?}");
}

fn refuse(op: Op<Ssa>, inputs: &[&str]) {
    assert!(run(&op, inputs).is_err(), "{op:?} {inputs:?}");
}

#[test]
fn items_by_dtype() {
    let op = || Op::ItemInt { x: v(0) };
    let cases = [
        ("i64[] -5", -5),
        ("i32[1] 7", 7),
        ("u8[1,1] 200", 200),
        ("bool[] 1", 1),
        ("f32[] 2.7", 2),
        ("bf16[] -3.5", -3),
        ("u32[] 2147483647", 2147483647),
    ];
    for (x, want) in cases {
        check(op(), &[x], want);
    }
    for x in ["i64[] 2147483648", "u64[] 18446744073709551615", "f32[] inf", "i32[2] 1 2", "i32[0]"] {
        refuse(op(), &[x]);
    }
}

#[test]
fn sizes() {
    check(Op::SymSize { a: v(0), dim: 1 }, &["f32[2,0]"], 0);
    check(Op::SymSize { a: v(0), dim: -2 }, &["f32[2,0]"], 2);
    refuse(Op::SymSize { a: v(0), dim: 2 }, &["f32[2,0]"]);
}

#[test]
fn arithmetic() {
    let (a, b) = (IntArg::Value(v(0)), IntArg::Value(v(1)));
    let cases = [
        (Op::AddInt { a, b }, [2, 3], Some(5)),
        (Op::AddInt { a, b }, [2147483647, 1], None),
        (Op::SubtractInt { a, b }, [2, 3], Some(-1)),
        (Op::SubtractInt { a, b }, [-2147483648, 1], None),
        (Op::MultiplyInt { a, b }, [-4, 3], Some(-12)),
        (Op::MultiplyInt { a, b }, [65536, 65536], None),
        (Op::FloorDivideInt { a, b }, [7, 2], Some(3)),
        (Op::FloorDivideInt { a, b }, [-7, 2], Some(-4)),
        (Op::FloorDivideInt { a, b }, [7, -2], Some(-4)),
        (Op::FloorDivideInt { a, b }, [-2147483648, -1], None),
        (Op::FloorDivideInt { a, b }, [1, 0], None),
        (Op::ModInt { a, b }, [7, 3], Some(1)),
        (Op::ModInt { a, b }, [-7, 3], Some(2)),
        (Op::ModInt { a, b }, [7, -3], Some(-2)),
        (Op::ModInt { a, b }, [-2147483648, -1], Some(0)),
        (Op::ModInt { a, b }, [1, 0], None),
    ];
    for (op, [a, b], want) in cases {
        let inputs = [format!("int {a}"), format!("int {b}")];
        let inputs = [inputs[0].as_str(), inputs[1].as_str()];
        match want {
            Some(want) => check(op, &inputs, want),
            None => refuse(op, &inputs),
        }
    }
    check(Op::AddInt { a, b: IntArg::Literal(1) }, &["bool true"], 2);
}
