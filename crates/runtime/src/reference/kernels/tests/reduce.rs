//! Reductions and running sums: empty rows, axes from either end, accumulation, NaN.

use super::{check, refuse, v};
use pteron_ir::{Op, Ssa};

fn reduction(name: &str, axes: &[i32], keepdims: bool) -> Op<Ssa> {
    let (x, axes) = (v(0), Some(axes.to_vec()));
    match name {
        "sum" => Op::Sum { x, axes, keepdims },
        "prod" => Op::Prod { x, axes, keepdims },
        "mean" => Op::Mean { x, axes, keepdims },
        "max" => Op::Max { x, axes, keepdims },
        "min" => Op::Min { x, axes, keepdims },
        "median" => Op::Median { x, axes, keepdims },
        "any" => Op::Any { x, axes, keepdims },
        "all" => Op::All { x, axes, keepdims },
        "var" => Op::Var { x, axes, keepdims, ddof: 0 },
        "var1" => Op::Var { x, axes, keepdims, ddof: 1 },
        "var5" => Op::Var { x, axes, keepdims, ddof: 5 },
        "std" => Op::Std { x, axes, keepdims, ddof: 0 },
        _ => panic!("{name}"),
    }
}

#[test]
fn axes() {
    let x = "i32[2,3] 1 2 3 4 5 6";
    let cases: [(&[i32], bool, &str); 8] = [
        (&[], false, "i32[] 21"),
        (&[], true, "i32[1,1] 21"),
        (&[0], false, "i32[3] 5 7 9"),
        (&[1], false, "i32[2] 6 15"),
        (&[-1], true, "i32[2,1] 6 15"),
        (&[-2], true, "i32[1,3] 5 7 9"),
        (&[0, 1], false, "i32[] 21"),
        (&[1, 0], true, "i32[1,1] 21"),
    ];
    for (axes, keepdims, want) in cases {
        check(reduction("sum", axes, keepdims), &[x], want);
    }
    check(Op::Sum { x: v(0), axes: None, keepdims: false }, &[x], "i32[] 21");
    let cube = "i32[2,2,2] 1 2 3 4 5 6 7 8";
    check(reduction("sum", &[1], false), &[cube], "i32[2,2] 4 6 12 14");
    check(reduction("sum", &[0, 2], false), &[cube], "i32[2] 14 22");
    check(reduction("max", &[0, 1], true), &[cube], "i32[1,1,2] 7 8");
    // A tensor of rank 0 counts as one element.
    check(reduction("sum", &[0], false), &["f32[] 3"], "f32[] 3");
    check(reduction("max", &[-1], true), &["f32[] 3"], "f32[] 3");
    refuse(reduction("sum", &[2], false), &[x], "axis 2");
    refuse(reduction("sum", &[0, -2], false), &[x], "twice");
}

#[test]
fn values() {
    let cases = [
        ("sum", "bool[3] 1 1 1", "i32[] 3"),
        ("sum", "i8[2] 127 127", "i32[] 254"),
        ("sum", "u8[2] 255 255", "u32[] 510"),
        ("sum", "i32[2] 2147483647 1", "i32[] -2147483648"),
        ("sum", "u64[2] 18446744073709551615 2", "u64[] 1"),
        ("sum", "f16[3] 60000 60000 -60000", "f16[] 60000"),
        ("sum", "f32[2] inf -inf", "f32[] nan"),
        ("sum", "f32[0]", "f32[] 0"),
        ("prod", "i8[3] 100 2 3", "i32[] 600"),
        ("prod", "f32[3] 2 3 nan", "f32[] nan"),
        ("prod", "f32[0]", "f32[] 1"),
        ("mean", "f32[4] 1 2 3 5", "f32[] 2.75"),
        ("mean", "i32[2] 1 2", "f32[] 1.5"),
        ("mean", "bool[4] 1 0 0 0", "f32[] 0.25"),
        ("mean", "f16[2] 60000 60000", "f16[] 60000"),
        ("mean", "f32[0]", "f32[] nan"),
        ("max", "f32[3] 1 nan 2", "f32[] nan"),
        ("min", "f32[3] 1 nan 2", "f32[] nan"),
        ("max", "f32[2] -inf -inf", "f32[] -inf"),
        ("max", "u64[2] 1 18446744073709551615", "u64[] 18446744073709551615"),
        ("min", "i64[2] -9223372036854775808 3", "i64[] -9223372036854775808"),
        ("max", "bool[2] 0 1", "bool[] 1"),
        ("var", "f32[4] 1 2 3 4", "f32[] 1.25"),
        ("var1", "f32[4] 1 2 3 4", "f32[] 1.6666666"),
        ("var1", "f32[1] 1", "f32[] nan"),
        ("var5", "f32[2] 1 2", "f32[] inf"),
        ("var", "f32[2] 100000000 100000008", "f32[] 16"),
        ("var", "i32[2] 1 3", "f32[] 1"),
        ("var", "f32[2] 1 inf", "f32[] nan"),
        ("std", "bf16[4] 1 2 3 4", "bf16[] 1.1171875"),
        ("median", "f32[3] 3 1 2", "f32[] 2"),
        ("median", "f32[4] 4 1 3 2", "f32[] 2.5"),
        ("median", "f32[3] 3 nan 2", "f32[] nan"),
        ("median", "f32[1] -inf", "f32[] -inf"),
        ("median", "i32[2] 1 2", "f32[] 1.5"),
        ("median", "bool[3] 1 0 1", "f32[] 1"),
        ("median", "f16[2] 65504 65504", "f16[] 65504"),
        ("any", "f32[2] 0 nan", "bool[] 1"),
        ("any", "f32[2] 0 -0", "bool[] 0"),
        ("any", "bool[0]", "bool[] 0"),
        ("all", "f32[2] 0 nan", "bool[] 0"),
        ("all", "i8[2] -1 2", "bool[] 1"),
        ("all", "bool[0]", "bool[] 1"),
    ];
    for (name, x, want) in cases {
        check(reduction(name, &[], false), &[x], want);
    }
    check(reduction("median", &[-1], true), &["f32[2,3] 9 7 8 1 3 2"], "f32[2,1] 8 2");
    check(reduction("median", &[0], false), &["i64[2,2] 1 2 3 6"], "f32[2] 2 4");
}

#[test]
fn sums_do_not_stop_growing() {
    let ones = |dtype: &str| format!("{dtype}[4096] {}", "1 ".repeat(4096));
    check(reduction("sum", &[], false), &[&ones("bf16")], "bf16[] 4096");
    let hundreds = format!("f16[4096] {}", "100 ".repeat(4096));
    check(reduction("mean", &[], false), &[&hundreds], "f16[] 100");
}

#[test]
fn empty_rows() {
    check(reduction("sum", &[0], false), &["f32[0,2]"], "f32[2] 0 0");
    check(reduction("sum", &[1], false), &["f32[0,2]"], "f32[0]");
    check(reduction("max", &[1], false), &["f32[0,2]"], "f32[0]");
    check(reduction("max", &[1], false), &["f32[0,0]"], "f32[0]");
    for name in ["max", "min", "median"] {
        refuse(reduction(name, &[0], false), &["f32[0,2]"], "no element");
        refuse(reduction(name, &[], false), &["f32[0]"], "no element");
    }
    refuse(Op::Argmax { x: v(0), axis: 0, keepdims: false }, &["f32[0]"], "no element");
}

#[test]
fn indices_of_extremes() {
    let argmax = |axis, keepdims| Op::Argmax { x: v(0), axis, keepdims };
    let argmin = |axis, keepdims| Op::Argmin { x: v(0), axis, keepdims };
    let cases = [
        (argmax(0, false), "f32[4] 1 3 3 2", "u32[] 1"),
        (argmin(0, false), "f32[4] 2 1 1 3", "u32[] 1"),
        (argmax(0, false), "f32[4] 1 nan 9 nan", "u32[] 1"),
        (argmin(0, false), "f32[4] 1 nan 0 nan", "u32[] 1"),
        (argmax(0, false), "f32[2] 0 -0", "u32[] 0"),
        (argmax(-1, true), "i32[2,3] 1 5 2 9 8 9", "u32[2,1] 1 0"),
        (argmax(0, false), "i32[2,3] 1 5 2 9 8 9", "u32[3] 1 1 1"),
        (argmin(1, false), "bool[2,2] 1 0 1 1", "u32[2] 1 0"),
        (argmax(0, false), "u64[2] 1 18446744073709551615", "u32[] 1"),
        (argmax(-1, false), "f32[] 5", "u32[] 0"),
        (argmax(1, false), "f32[0,3]", "u32[0]"),
    ];
    for (op, x, want) in cases {
        check(op, &[x], want);
    }
}

#[test]
fn running_sums() {
    let cumsum = |axis, reverse, inclusive| Op::Cumsum { x: v(0), axis, reverse, inclusive };
    let x = "i32[4] 1 2 3 4";
    let cases = [
        (cumsum(0, false, true), x, "i32[4] 1 3 6 10"),
        (cumsum(0, false, false), x, "i32[4] 0 1 3 6"),
        (cumsum(0, true, true), x, "i32[4] 10 9 7 4"),
        (cumsum(-1, true, false), x, "i32[4] 9 7 4 0"),
        (cumsum(0, false, true), "i32[2,2] 1 2 3 4", "i32[2,2] 1 2 4 6"),
        (cumsum(1, true, true), "i32[2,2] 1 2 3 4", "i32[2,2] 3 2 7 4"),
        (cumsum(1, false, true), "i32[2,2,2] 1 2 3 4 5 6 7 8", "i32[2,2,2] 1 2 4 6 5 6 12 14"),
        (cumsum(0, false, true), "i8[2] 127 1", "i8[2] 127 -128"),
        (cumsum(0, false, true), "bool[2] 1 1", "i32[2] 1 2"),
        (cumsum(0, false, true), "f32[3] 1 nan 2", "f32[3] 1 nan nan"),
        (cumsum(0, false, true), "f32[] 7", "f32[] 7"),
        (cumsum(-1, true, false), "f32[] 7", "f32[] 0"),
        (cumsum(0, false, true), "f32[0,2]", "f32[0,2]"),
    ];
    for (op, x, want) in cases {
        check(op, &[x], want);
    }
}

/// PyTorch keeps the sum in f32: 1000 times the bf16 nearest to 0.1 ends at 100, where MLX stops at 32.
#[test]
fn running_sums_are_rounded_one_by_one() {
    let op = Op::Cumsum { x: v(0), axis: 0, reverse: false, inclusive: true };
    let x = format!("bf16[1000] {}", "0.1 ".repeat(1000));
    let sums = super::run(&op, &[&x]).unwrap();
    assert!(sums[0].ends_with(" 100"), "{}", sums[0]);
}
