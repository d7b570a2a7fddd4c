//! Element-wise kernels: promotion, broadcasting, rounding, NaN, and the values that semantics.md gives.

use super::{check, refuse, run, tensor, v};
use pteron_ir::{Op, Ssa};
use pteron_tensor::DType;

fn binary(name: &str) -> Op<Ssa> {
    let (a, b) = (v(0), v(1));
    match name {
        "add" => Op::Add { a, b },
        "subtract" => Op::Subtract { a, b },
        "multiply" => Op::Multiply { a, b },
        "divide" => Op::Divide { a, b },
        "floor_divide" => Op::FloorDivide { a, b },
        "remainder" => Op::Remainder { a, b },
        "power" => Op::Power { a, b },
        "maximum" => Op::Maximum { a, b },
        "minimum" => Op::Minimum { a, b },
        "atan2" => Op::Atan2 { a, b },
        "log_add_exp" => Op::LogAddExp { a, b },
        "less" => Op::Less { a, b },
        "less_equal" => Op::LessEqual { a, b },
        "greater" => Op::Greater { a, b },
        "greater_equal" => Op::GreaterEqual { a, b },
        "equal" => Op::Equal { a, b },
        "not_equal" => Op::NotEqual { a, b },
        "logical_and" => Op::LogicalAnd { a, b },
        "logical_or" => Op::LogicalOr { a, b },
        "bitwise_and" => Op::BitwiseAnd { a, b },
        "bitwise_or" => Op::BitwiseOr { a, b },
        "bitwise_xor" => Op::BitwiseXor { a, b },
        _ => panic!("{name}"),
    }
}

#[test]
fn two_operands() {
    let cases = [
        // Promotion: no weak scalars, an integer takes the float's dtype first.
        ("add", "f32[2] 1 2", "bf16[] 0.5", "f32[2] 1.5 2.5"),
        ("add", "f16[1] 1", "bf16[1] 2", "f32[1] 3"),
        ("add", "i64[1] 70000", "f16[1] 1", "f16[1] inf"),
        ("add", "i64[1] 16777217", "f32[1] 0", "f32[1] 16777216"),
        ("add", "u8[1] 200", "i8[1] 100", "i16[1] 300"),
        ("add", "i8[2] 127 -128", "i8[2] 1 -1", "i8[2] -128 127"),
        ("add", "u64[1] 18446744073709551615", "u64[1] 2", "u64[1] 1"),
        ("add", "i64[1] 9223372036854775807", "i64[1] 1", "i64[1] -9223372036854775808"),
        ("add", "bool[4] 0 0 1 1", "bool[4] 0 1 0 1", "bool[4] 0 1 1 1"),
        ("subtract", "bool[4] 0 0 1 1", "bool[4] 0 1 0 1", "bool[4] 0 1 1 0"),
        ("multiply", "bool[4] 0 0 1 1", "bool[4] 0 1 0 1", "bool[4] 0 0 0 1"),
        ("multiply", "u64[1] 18446744073709551615", "u64[1] 18446744073709551615", "u64[1] 1"),
        ("subtract", "u32[1] 0", "i32[1] 1", "i64[1] -1"),
        ("add", "u64[1] 1", "i64[1] -3", "f32[1] -2"),
        // Broadcasting, empty and 0-d.
        ("add", "i32[2,1] 10 20", "i32[3] 1 2 3", "i32[2,3] 11 12 13 21 22 23"),
        ("add", "i32[2,1,2] 0 1 2 3", "i32[2,1] 10 20", "i32[2,2,2] 10 11 20 21 12 13 22 23"),
        ("add", "f32[0,3]", "f32[1,3] 1 2 3", "f32[0,3]"),
        ("add", "f32[] 1", "f32[] 2", "f32[] 3"),
        // Rounding: once, to nearest even.
        ("add", "f16[2] 2048 65504", "f16[2] 1 16", "f16[2] 2048 inf"),
        ("add", "bf16[1] 256", "bf16[1] 1", "bf16[1] 256"),
        ("multiply", "f32[1] 1e30", "f32[1] 1e30", "f32[1] inf"),
        ("divide", "i32[3] 7 -7 1", "i32[3] 2 2 0", "f32[3] 3.5 -3.5 inf"),
        ("divide", "bool[2] 1 0", "bool[2] 1 0", "f32[2] 1 nan"),
        ("divide", "f32[1] 1", "f32[1] 3", "f32[1] 0.33333334"),
        // Quotients rounded down.
        ("floor_divide", "i32[5] 7 -7 7 -7 6", "i32[5] 2 2 -2 -2 -3", "i32[5] 3 -4 -4 3 -2"),
        ("floor_divide", "u8[2] 255 7", "u8[2] 2 0", "u8[2] 127 0"),
        ("floor_divide", "u64[1] 18446744073709551615", "u64[1] 2", "u64[1] 9223372036854775807"),
        ("floor_divide", "i32[1] -2147483648", "i32[1] -1", "i32[1] -2147483648"),
        ("floor_divide", "f32[6] 7 -7 1 -1 1 inf", "f32[6] 2 2 0.1 inf 0 2", "f32[6] 3 -4 9 -1 inf nan"),
        ("remainder", "i32[4] 7 -7 7 -7", "i32[4] 3 3 -3 -3", "i32[4] 1 2 -2 -1"),
        ("remainder", "f32[4] 7 -7 7 -7", "f32[4] 3 3 -3 -3", "f32[4] 1 2 -2 -1"),
        ("remainder", "f32[4] -1 5 -6 5", "f32[4] inf 0 3 -inf", "f32[4] inf nan -0 -inf"),
        ("remainder", "i64[1] 5", "i64[1] 0", "i64[1] 5"),
        ("remainder", "bf16[1] -7", "bf16[1] 2.5", "bf16[1] 0.5"),
        // Powers.
        ("power", "i32[5] 2 2 1 -3 0", "i32[5] 10 -1 -1 3 0", "i32[5] 1024 0 0 -27 1"),
        ("power", "i8[1] 2", "i8[1] 7", "i8[1] -128"),
        ("power", "u64[1] 3", "u64[1] 41", "u64[1] 18026252303461234787"),
        ("power", "f32[4] -8 0 2 -2", "f32[4] 0.33333334 0 0.5 3", "f32[4] nan 1 1.4142135 -8"),
        ("power", "f32[2] 1 nan", "f32[2] nan 0", "f32[2] 1 1"),
        // Extremes: NaN wins from either side, of equals the second is returned.
        ("maximum", "f32[4] nan 1 0 -0", "f32[4] 1 nan -0 0", "f32[4] nan nan -0 0"),
        ("minimum", "f32[4] nan 1 0 -0", "f32[4] 1 nan -0 0", "f32[4] nan nan -0 0"),
        ("maximum", "u64[1] 18446744073709551615", "u64[1] 1", "u64[1] 18446744073709551615"),
        ("minimum", "i32[2] -1 3", "f16[1] 2", "f16[2] -1 2"),
        ("atan2", "f32[4] 1 0 -0 -1", "f32[4] 1 -1 -1 0", "f32[4] 0.7853982 3.1415927 -3.1415927 -1.5707964"),
        (
            "log_add_exp",
            "f32[5] -inf inf 0 1000 nan",
            "f32[5] -inf -inf 0 1000 1",
            "f32[5] -inf inf 0.6931472 1000.69315 nan",
        ),
        // Comparisons.
        ("less", "f32[4] 1 2 nan -0", "f32[4] 2 1 1 0", "bool[4] 1 0 0 0"),
        ("less_equal", "i32[3] 1 2 3", "f32[1] 2", "bool[3] 1 1 0"),
        ("greater", "u64[1] 18446744073709551615", "u64[1] 1", "bool[1] 1"),
        ("greater_equal", "f32[2] nan 1", "f32[2] nan 1", "bool[2] 0 1"),
        ("equal", "f32[3] nan 0 1", "f32[3] nan -0 2", "bool[3] 0 1 0"),
        ("equal", "i64[1] 9007199254740993", "i64[1] 9007199254740992", "bool[1] 0"),
        ("not_equal", "f32[2] nan 1", "f32[2] nan 1", "bool[2] 1 0"),
        ("logical_and", "f32[3] nan 0 2", "i32[3] 1 1 -1", "bool[3] 1 0 1"),
        ("logical_or", "f16[2] 0 -0", "bool[2] 0 1", "bool[2] 0 1"),
        ("bitwise_and", "i8[2] -1 12", "u8[2] 255 10", "i16[2] 255 8"),
        ("bitwise_or", "bool[2] 0 1", "bool[2] 0 0", "bool[2] 0 1"),
        ("bitwise_xor", "u64[1] 18446744073709551615", "u64[1] 1", "u64[1] 18446744073709551614"),
    ];
    for (name, a, b, want) in cases {
        check(binary(name), &[a, b], want);
    }
    refuse(binary("add"), &["f32[2] 1 2", "f32[3] 1 2 3"], "broadcast");
    refuse(binary("bitwise_and"), &["f32[1] 1", "i32[1] 1"], "integer");
}

#[test]
fn one_operand() {
    let x = v(0);
    let cases = [
        (Op::Abs { x }, "i32[2] -2147483648 -5", "i32[2] -2147483648 5"),
        (Op::Abs { x }, "f32[3] -0 nan -inf", "f32[3] 0 nan inf"),
        (Op::Abs { x }, "bool[2] 0 1", "bool[2] 0 1"),
        (Op::Neg { x }, "u8[2] 1 0", "u8[2] 255 0"),
        (Op::Neg { x }, "f16[2] 0 -3", "f16[2] -0 3"),
        (Op::Square { x }, "i8[2] 12 -16", "i8[2] -112 0"),
        (Op::Square { x }, "bf16[1] 3.5", "bf16[1] 12.25"),
        (Op::Sign { x }, "f32[5] -3 0 -0 nan inf", "f32[5] -1 0 0 0 1"),
        (Op::Sign { x }, "u8[2] 0 9", "u8[2] 0 1"),
        (Op::Sign { x }, "i64[2] -9 9", "i64[2] -1 1"),
        (Op::Floor { x }, "f32[3] -1.5 1.5 -0.5", "f32[3] -2 1 -1"),
        (Op::Ceil { x }, "f32[3] -1.5 1.5 -0.5", "f32[3] -1 2 -0"),
        (Op::Trunc { x }, "f32[3] -1.5 1.5 inf", "f32[3] -1 1 inf"),
        (Op::Trunc { x }, "i64[1] 9007199254740993", "i64[1] 9007199254740993"),
        (Op::Round { x, decimals: 0 }, "f32[5] 0.5 1.5 2.5 -0.5 nan", "f32[5] 0 2 2 -0 nan"),
        (Op::Round { x, decimals: 1 }, "f32[4] 0.25 0.35 -1.06 nan", "f32[4] 0.2 0.4 -1.1 nan"),
        (Op::Round { x, decimals: -1 }, "i32[5] 15 25 35 -15 4", "i32[5] 20 20 40 -20 0"),
        (Op::Round { x, decimals: 3 }, "i32[1] 1234", "i32[1] 1234"),
        (Op::Round { x, decimals: -30 }, "i64[1] -9223372036854775808", "i64[1] 0"),
        (Op::Round { x, decimals: -2 }, "f32[2] 1250 1350", "f32[2] 1200 1400"),
        (Op::LogicalNot { x }, "f32[3] 0 -0 nan", "bool[3] 1 1 0"),
        (Op::BitwiseInvert { x }, "bool[2] 0 1", "bool[2] 1 0"),
        (Op::BitwiseInvert { x }, "u8[2] 0 254", "u8[2] 255 1"),
        (Op::BitwiseInvert { x }, "i64[1] 5", "i64[1] -6"),
        (Op::Noop {}, "f32[1] 1", ""),
        (Op::IdCopy { x }, "bf16[2,1] 1 2", "bf16[2,1] 1 2"),
        (Op::Contiguous { x }, "f32[] 7", "f32[] 7"),
        (Op::Exp { x }, "f32[0]", "f32[0]"),
        (Op::Exp { x }, "f32[] 0", "f32[] 1"),
        (Op::Exp { x }, "i32[2] 0 1", "f32[2] 1 2.7182817"),
        (Op::Exp { x }, "f16[1] 12", "f16[1] inf"),
        (Op::Exp { x }, "bf16[1] 1", "bf16[1] 2.71875"),
    ];
    for (op, x, want) in cases {
        match op {
            Op::Noop {} => assert_eq!(run(&op, &[x]), Ok(Vec::new())),
            op => check(op, &[x], want),
        }
    }
    refuse(Op::Neg { x }, &["bool[1] 1"], "bool");
    refuse(Op::BitwiseInvert { x }, &["f32[1] 1"], "integer");
}

/// Values by Python's `math` in double precision, rounded to f32.
#[test]
fn transcendental_functions() {
    let x = v(0);
    let exact = "none".to_owned();
    let cases = [
        (Op::Exp { x }, "-inf -1 0 0.5 90 nan", "0 0.36787945 1 1.6487212 inf nan"),
        (Op::Expm1 { x }, "-inf 1e-10 1 nan", "-1 1e-10 1.7182819 nan"),
        (Op::Log { x }, "-1 0 1 10 inf", "nan -inf 0 2.3025851 inf"),
        (Op::Log2 { x }, "0 8 10", "-inf 3 3.321928"),
        (Op::Log10 { x }, "0 1000 2", "-inf 3 0.30103"),
        (Op::Log1p { x }, "-1 1e-10 1", "-inf 1e-10 0.6931472"),
        (Op::Sqrt { x }, "-1 -0 2 inf", "nan -0 1.4142135 inf"),
        (Op::Rsqrt { x }, "-1 0 2 inf", "nan inf 0.70710677 0"),
        (Op::Reciprocal { x }, "0 -0 3 inf", "inf -inf 0.33333334 0"),
        (Op::Sin { x }, "0.5 1000 inf", "0.4794255386 0.8268795405 nan"),
        (Op::Cos { x }, "0.5 1000 inf", "0.8775825619 0.5623790763 nan"),
        (Op::Tan { x }, "0.5 1000 inf", "0.5463024898 1.4703241557 nan"),
        (Op::Arcsin { x }, "0.5 1 2", "0.5235988 1.5707964 nan"),
        (Op::Arccos { x }, "0.5 1 2", "1.0471976 0 nan"),
        (Op::Arctan { x }, "0.5 inf -inf", "0.4636476 1.5707964 -1.5707964"),
        (Op::Sinh { x }, "0.5 -1 100", "0.5210953055 -1.1752011936 inf"),
        (Op::Cosh { x }, "0.5 -1 100", "1.1276259652 1.5430806348 inf"),
        (Op::Tanh { x }, "0.5 -20 inf", "0.46211717 -1 1"),
        (Op::Arcsinh { x }, "0.5 -1 1e-10", "0.48121182506 -0.88137358702 1e-10"),
        (Op::Arccosh { x }, "1 2 0.5", "0 1.3169578969 nan"),
        (Op::Arctanh { x }, "0.5 1 2", "0.54930614433 inf nan"),
        (Op::Sigmoid { x }, "-1000 -100 0 1 1000 nan", "0 3.783506e-44 0.5 0.7310586 1 nan"),
        (Op::Silu { x }, "-100 0 1 1000 nan", "-3.7204474e-42 0 0.7310586 1000 nan"),
        (
            Op::Erf { x },
            "-inf -4 -0 1e-10 0.5 1 2.5 4 nan",
            "-1 -1 -0 1.1283791671e-10 0.52049987781 0.84270079295 0.99959304798 1 nan",
        ),
        (
            Op::Gelu { x, approximate: exact },
            "-10 -5 -1 0 1 10",
            "-0 -1.4332578594e-6 -0.15865525393 0 0.84134474607 10",
        ),
        (
            Op::Gelu { x, approximate: "tanh".into() },
            "-1 0 1 3",
            "-0.15880800939 0 0.84119199061 2.9963626079",
        ),
    ];
    for (op, inputs, want) in cases {
        let count = inputs.split_whitespace().count();
        check(op, &[&format!("f32[{count}] {inputs}")], &format!("f32[{count}] {want}"));
    }
}

/// MLX rounds at every step and gives 0.84375 here.
#[test]
fn gelu_rounds_once() {
    let op = Op::Gelu { x: v(0), approximate: "none".into() };
    check(op, &["bf16[1] 1"], "bf16[1] 0.83984375");
}

#[test]
fn choosing_and_clipping() {
    let choose = Op::Where { condition: v(0), x: v(1), y: v(2) };
    let cases = [
        ("bool[2] 1 0", "f32[2] 1 nan", "f32[2] nan 2", "f32[2] 1 2"),
        ("f32[3] nan 0 -0", "i32[] 1", "i32[] 2", "i32[3] 1 2 2"),
        ("bool[2,1] 1 0", "i64[2] 9007199254740993 2", "u8[] 7", "i64[2,2] 9007199254740993 2 7 7"),
        ("bool[1] 1", "f16[1] 1", "f32[1] 2", "f32[1] 1"),
        ("bool[] 1", "bool[1] 1", "bool[1] 0", "bool[1] 1"),
        ("bool[0]", "f32[] 1", "f32[] 2", "f32[0]"),
    ];
    for (condition, x, y, want) in cases {
        check(choose.clone(), &[condition, x, y], want);
    }
    let both = Op::Clip { x: v(0), a_min: Some(v(1)), a_max: Some(v(2)) };
    let cases = [
        ("f32[4] -5 0.5 nan inf", "f32[] 0", "f32[] 1", "f32[4] 0 0.5 nan 1"),
        ("f32[1] 5", "f32[] 3", "f32[] 2", "f32[1] 2"),
        ("i32[3] -5 0 5", "i32[] -1", "i32[3] 1 1 1", "i32[3] -1 0 1"),
        ("i32[1] 5", "f32[] 0.5", "f32[] 2.5", "f32[1] 2.5"),
    ];
    for (x, low, high, want) in cases {
        check(both.clone(), &[x, low, high], want);
    }
    check(Op::Clip { x: v(0), a_min: None, a_max: Some(v(1)) }, &["u8[2] 3 9", "u8[] 5"], "u8[2] 3 5");
    check(Op::Clip { x: v(0), a_min: Some(v(1)), a_max: None }, &["u8[2] 3 9", "u8[] 5"], "u8[2] 5 9");
    check(Op::Clip { x: v(0), a_min: None, a_max: None }, &["f16[1] nan"], "f16[1] nan");
}

#[test]
fn conversions() {
    let cases = [
        ("f32[5] 1.9 -1.9 nan inf -inf", DType::I32, "i32[5] 1 -1 0 2147483647 -2147483648"),
        ("f32[3] 300 -1.9 255.9", DType::U8, "u8[3] 255 0 255"),
        ("f32[2] 1e10 -1e30", DType::I64, "i64[2] 10000000000 -9223372036854775808"),
        ("f32[3] 0 nan -0", DType::Bool, "bool[3] 0 1 0"),
        ("i32[3] 300 -1 128", DType::I8, "i8[3] 44 -1 -128"),
        ("i64[1] -1", DType::U64, "u64[1] 18446744073709551615"),
        ("u64[1] 18446744073709551615", DType::I64, "i64[1] -1"),
        ("u64[1] 18446744073709551615", DType::F32, "f32[1] 18446744073709551616"),
        ("i64[1] 16777217", DType::F32, "f32[1] 16777216"),
        ("i32[2] 0 5", DType::Bool, "bool[2] 0 1"),
        ("bool[2] 0 1", DType::BF16, "bf16[2] 0 1"),
        ("f32[3] 65519 65520 5.9604645e-8", DType::F16, "f16[3] 65504 inf 5.9604645e-8"),
        // A tie but for the last bit of the f32: upwards, where dropping bits first would go to even.
        ("f32[2] 1.0004883 1.0004884", DType::F16, "f16[2] 1 1.0009766"),
        ("f32[2] 1.00390625 1.01171875", DType::BF16, "bf16[2] 1 1.015625"),
        ("f32[2] nan -inf", DType::BF16, "bf16[2] nan -inf"),
        ("f64[1] 0.1", DType::F32, "f32[1] 0.1"),
        ("f16[1] 65504", DType::F64, "f64[1] 65504"),
        ("f32[2,0]", DType::I8, "i8[2,0]"),
    ];
    for (x, scalar_type, want) in cases {
        check(Op::AsType { x: v(0), scalar_type }, &[x], want);
    }
}

/// Every dtype, in blocks of more than one.
#[test]
fn every_dtype_adds_over_many_blocks() {
    for dtype in DType::all() {
        let ones = format!("{dtype}[3,300] {}", "1 ".repeat(900));
        let sum = if dtype == DType::Bool { "1 " } else { "2 " };
        check(
            binary("add"),
            &[&ones, &format!("{dtype}[300] {}", "1 ".repeat(300))],
            &format!("{dtype}[3,300] {}", sum.repeat(900)),
        );
    }
}

/// A caller's memory may hold any byte as a bool.
#[test]
fn every_byte_but_zero_is_true() {
    let mut x = tensor("bool[2] 0 0");
    x.bytes_mut()[1] = 7;
    let cast = super::super::cast(&x, DType::I32).unwrap();
    assert_eq!(super::show(&cast), "i32[2] 0 1");
}
