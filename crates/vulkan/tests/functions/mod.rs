//! Functions whose digits devices do not promise, against the reference backend: angles far from zero, quotients and
//! remainders that are exact, powers of integers, decimals.

use crate::packed::{agrees, devices, operands};
use pteron_ir::{Op, Ssa, ValueId};
use pteron_runtime::reference::cast;
use pteron_tensor::{DType, HostTensor};

const X: ValueId = ValueId(0);

fn floats(dtype: DType, numbers: &[f32]) -> HostTensor {
    cast(&HostTensor::from_slice(vec![numbers.len()], numbers).unwrap(), dtype).unwrap()
}

/// All pairs of some numbers.
fn pairs(numbers: &[f32], dtype: DType) -> [HostTensor; 2] {
    let (one, other): (Vec<f32>, Vec<f32>) =
        numbers.iter().flat_map(|&a| numbers.iter().map(move |&b| (a, b))).unzip();
    [floats(dtype, &one), floats(dtype, &other)]
}

#[test]
fn angles_agree_with_the_reference_backend() {
    let near: Vec<f32> = (-40..=40).map(|at| at as f32 * 0.37).collect();
    let far: Vec<f32> = (0..60)
        .flat_map(|at| [1.0, -1.0].map(|sign| sign * 1.37f32 * 3.7f32.powi(at)))
        .chain([f32::MAX, f32::INFINITY, f32::NAN, 0.0, -0.0, 131_072.0, 199_999.9, 200_001.0])
        .collect();
    let within: Vec<f32> = (-50..=50).map(|at| at as f32 / 50.0).chain([1.5, -2.0, f32::NAN]).collect();
    for backend in devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for (what, numbers) in [("near", &near), ("far", &far)] {
                let given = operands([floats(dtype, numbers)]);
                for op in [Op::Sin { x: X }, Op::Cos { x: X }, Op::Arctan { x: X }] {
                    agrees(&op, &given, backend.as_ref(), &format!("{what} {dtype} {:?}", op.kind()));
                }
            }
            agrees(&Op::Tan { x: X }, &operands([floats(dtype, &near)]), backend.as_ref(), "tangents");
            let given = operands([floats(dtype, &within)]);
            for op in [Op::Arcsin { x: X }, Op::Arccos { x: X }] {
                agrees(&op, &given, backend.as_ref(), &format!("{dtype} {:?}", op.kind()));
            }
            let special =
                [0.0, -0.0, 1.0, -1.0, 3.5, -1e-3, 1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
            let op = Op::Atan2 { a: X, b: ValueId(1) };
            agrees(&op, &operands(pairs(&special, dtype)), backend.as_ref(), &format!("{dtype} points"));
        }
        let whole: Vec<i32> = (0..200i32)
            .map(|at| at.wrapping_mul(at).wrapping_mul(1_234_567_891))
            .chain([i32::MAX, i32::MIN, 0, -1])
            .collect();
        let whole = HostTensor::from_slice(vec![whole.len()], &whole).unwrap();
        for dtype in [DType::I32, DType::U32, DType::I8, DType::U8, DType::I16, DType::Bool] {
            let given = operands([cast(&whole, dtype).unwrap()]);
            for op in [Op::Sin { x: X }, Op::Cos { x: X }, Op::Arctan { x: X }] {
                agrees(&op, &given, backend.as_ref(), &format!("{dtype} {:?}", op.kind()));
            }
        }
    }
    let Some(backend) = crate::device::open() else { return };
    let wide: Vec<i64> =
        (0..60).map(|at| (1i64 << at).wrapping_mul(-3)).chain([i64::MAX, i64::MIN, 0]).collect();
    let given = operands([HostTensor::from_slice(vec![wide.len()], &wide).unwrap()]);
    for op in [Op::Sin { x: X }, Op::Cos { x: X }] {
        agrees(&op, &given, backend.as_ref(), &format!("integers of 64 bits {:?}", op.kind()));
    }
}

/// Near whole numbers, far apart, small beside large, by zero and by what is no number.
#[test]
fn quotients_and_remainders_agree_with_the_reference_backend() {
    let numbers = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.1,
        -0.1,
        0.3,
        7.0,
        -7.5,
        3.0,
        -3.0,
        1e-3,
        1e6,
        123_456.7,
        -99_999.0,
        2.5e-7,
        16_777_217.0,
    ];
    let (a, b) = (X, ValueId(1));
    let special = [1.0, -2.5, 0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let far = [1e30, -1e30, 3.0, -7e-20, 1e-3];
    for backend in devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for numbers in [&numbers[..], &special, &far] {
                let given = operands(pairs(numbers, dtype));
                agrees(&Op::Remainder { a, b }, &given, backend.as_ref(), &format!("{dtype} {numbers:?}"));
                if !numbers.contains(&1e30) {
                    agrees(&Op::Power { a, b }, &given, backend.as_ref(), &format!("{dtype} {numbers:?}"));
                }
                agrees(&Op::FloorDivide { a, b }, &given, backend.as_ref(), &format!("{dtype} {numbers:?}"));
            }
        }
        let whole = [0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 100.0, -1.0, -3.0, -128.0, 11.0];
        for dtype in [DType::I32, DType::I16, DType::I8, DType::U8, DType::U32, DType::Bool] {
            let given = operands(pairs(&whole, dtype));
            for op in [Op::Remainder { a, b }, Op::FloorDivide { a, b }, Op::Power { a, b }] {
                agrees(&op, &given, backend.as_ref(), &format!("{dtype} {:?}", op.kind()));
            }
        }
    }
    let Some(backend) = crate::device::open() else { return };
    let wide = [0i64, 1, -1, 3, -7, 63, i64::MAX, i64::MIN, 1 << 40];
    let (one, other): (Vec<i64>, Vec<i64>) =
        wide.iter().flat_map(|&a| wide.iter().map(move |&b| (a, b))).unzip();
    let given = [one, other].map(|numbers| HostTensor::from_slice(vec![numbers.len()], &numbers).unwrap());
    for op in [Op::Remainder { a, b }, Op::Power { a, b }] {
        agrees(&op, &operands(given.clone()), backend.as_ref(), &format!("64 bits {:?}", op.kind()));
    }
}

#[test]
fn decimals_agree_with_the_reference_backend() {
    let numbers: Vec<f32> = (-60..60)
        .flat_map(|at| [at as f32 * 0.125, at as f32 * 5.0, at as f32 * 12_345.678, at as f32 * 0.05])
        .chain([f32::INFINITY, f32::NAN, -0.0, 0.35, 2.5e9])
        .collect();
    let round = |decimals| -> Op<Ssa> { Op::Round { x: X, decimals } };
    for backend in devices() {
        for decimals in [0, 1, 2, 3, -1, -2, -4, -12, 7] {
            for dtype in [DType::F32, DType::F16, DType::BF16] {
                let numbers: Vec<f32> =
                    numbers.iter().copied().filter(|x| dtype == DType::F32 || x.abs() < 6e4).collect();
                let given = operands([floats(dtype, &numbers)]);
                agrees(&round(decimals), &given, backend.as_ref(), &format!("{dtype} {decimals}"));
            }
            for dtype in [DType::I32, DType::I16, DType::U8, DType::U32, DType::I8, DType::Bool] {
                let whole: Vec<i32> = (-300..300).map(|at| at * 5).chain([i32::MAX, i32::MIN]).collect();
                let whole = HostTensor::from_slice(vec![whole.len()], &whole).unwrap();
                let given = operands([cast(&whole, dtype).unwrap()]);
                agrees(&round(decimals), &given, backend.as_ref(), &format!("{dtype} {decimals}"));
            }
        }
    }
}
