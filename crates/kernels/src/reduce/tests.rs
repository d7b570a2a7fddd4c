//! Reductions against plain folds, on every path.

use super::*;
use crate::trial::{Random, dense, on_every_path, sized};
use half::f16;

/// Elements of the result's kind, gathered for each result in order of their index.
fn groups(sizes: &[usize], strides: &[isize], folded: &[bool], x: &[f64]) -> Vec<Vec<f64>> {
    let kept: Vec<usize> =
        sizes.iter().zip(folded).map(|(&size, &folded)| if folded { 1 } else { size }).collect();
    let steps = dense(&kept);
    let mut out = vec![Vec::new(); kept.iter().product()];
    for at in 0..sizes.iter().product() {
        let (mut left, mut from, mut to) = (at, 0isize, 0isize);
        for axis in (0..sizes.len()).rev() {
            let i = (left % sizes[axis]) as isize;
            left /= sizes[axis];
            from += i * strides[axis];
            to += if folded[axis] { 0 } else { i * steps[axis] };
        }
        out[to as usize].push(x[from as usize]);
    }
    out
}

fn want(op: ReduceOp, group: &[f64]) -> f64 {
    let n = group.len() as f64;
    let mean = group.iter().sum::<f64>() / n;
    let variance =
        |ddof: i32| group.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - f64::from(ddof)).max(0.0);
    let best = |better: fn(f64, f64) -> bool| {
        (0..group.len()).fold(0, |best, i| if better(group[i], group[best]) { i } else { best })
    };
    match op {
        ReduceOp::Sum => group.iter().sum(),
        ReduceOp::Prod => group.iter().product(),
        ReduceOp::Mean => mean,
        ReduceOp::Var { ddof } => variance(ddof),
        ReduceOp::Std { ddof } => variance(ddof).sqrt(),
        ReduceOp::Max => group[best(|a, b| a > b)],
        ReduceOp::Min => group[best(|a, b| a < b)],
        ReduceOp::Any => f64::from(u8::from(group.iter().any(|&x| x != 0.0))),
        ReduceOp::All => f64::from(u8::from(group.iter().all(|&x| x != 0.0))),
        ReduceOp::Argmax => best(|a, b| a > b) as f64,
        ReduceOp::Argmin => best(|a, b| a < b) as f64,
    }
}

const OPS: [ReduceOp; 11] = [
    ReduceOp::Sum,
    ReduceOp::Prod,
    ReduceOp::Mean,
    ReduceOp::Var { ddof: 1 },
    ReduceOp::Std { ddof: 0 },
    ReduceOp::Max,
    ReduceOp::Min,
    ReduceOp::Any,
    ReduceOp::All,
    ReduceOp::Argmax,
    ReduceOp::Argmin,
];

fn output(op: ReduceOp, input: DType) -> DType {
    match op {
        ReduceOp::Any | ReduceOp::All => DType::Bool,
        ReduceOp::Argmax | ReduceOp::Argmin => DType::U32,
        _ => input,
    }
}

#[test]
fn every_op_folds_any_axes_of_any_layout() {
    let mut random = Random::new(5);
    on_every_path(|path| {
        for round in 0..sized(60, 4) {
            let rank = 1 + random.below(sized(4, 3));
            let sizes: Vec<usize> =
                (0..rank).map(|_| 1 + random.below(if round % 4 == 0 { sized(40, 12) } else { 9 })).collect();
            let mut order: Vec<usize> = (0..rank).collect();
            (0..rank).for_each(|i| order.swap(i, random.below(rank)));
            let stored: Vec<usize> = order.iter().map(|&axis| sizes[axis]).collect();
            let mut strides = vec![0; rank];
            order.iter().zip(dense(&stored)).for_each(|(&axis, step)| strides[axis] = step);
            let mut folded: Vec<bool> = (0..rank).map(|_| random.below(2) == 0).collect();
            let count: usize = sizes.iter().product();
            let floats: Vec<f32> = random
                .floats(count)
                .iter()
                .map(|&x| f16::from_f32(if x > 0.9 { 0.0 } else { x }).to_f32())
                .collect();
            let halves: Vec<f16> = floats.iter().map(|&x| f16::from_f32(x)).collect();
            let ints: Vec<i32> = (0..count).map(|_| random.below(5) as i32 - 1).collect();
            for op in OPS {
                if matches!(op, ReduceOp::Argmax | ReduceOp::Argmin) {
                    let axis = random.below(rank);
                    folded = (0..rank).map(|at| at == axis).collect();
                }
                let to: Vec<usize> =
                    sizes.iter().zip(&folded).map(|(&size, &folded)| if folded { 1 } else { size }).collect();
                let inputs: [(DType, &[u8], Vec<f64>); 3] = [
                    (DType::F32, bytemuck::cast_slice(&floats), floats.iter().map(|&x| x.into()).collect()),
                    (DType::F16, bytemuck::cast_slice(&halves), floats.iter().map(|&x| x.into()).collect()),
                    (DType::I32, bytemuck::cast_slice(&ints), ints.iter().map(|&x| x.into()).collect()),
                ];
                for (dtype, bytes, values) in inputs {
                    let result = output(op, dtype);
                    let Some(reduce) = Reduce::new(op, dtype, result, path) else {
                        assert!(
                            dtype == DType::I32
                                && matches!(op, ReduceOp::Mean | ReduceOp::Var { .. } | ReduceOp::Std { .. })
                        );
                        continue;
                    };
                    let total: usize = to.iter().product();
                    let mut out = vec![0u32; total];
                    let steps = dense(&to);
                    let raw: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut out)[..total * result.size()];
                    reduce
                        .run(
                            &Pool::new(2),
                            &mut ViewMut::new(raw, result, 0, &to, &steps).unwrap(),
                            &View::new(bytes, dtype, 0, &sizes, &strides).unwrap(),
                        )
                        .unwrap();
                    for (at, group) in groups(&sizes, &strides, &folded, &values).iter().enumerate() {
                        let want = want(op, group);
                        let raw: &[u8] = bytemuck::cast_slice(&out);
                        let element = &raw[at * result.size()..][..result.size()];
                        let what =
                            format!("{op:?} of {dtype} {sizes:?} {strides:?} {folded:?} at {at} on {path}");
                        let got = match result {
                            DType::F32 => f32::from_ne_bytes(element.try_into().unwrap()).into(),
                            DType::F16 => f16::from_ne_bytes(element.try_into().unwrap()).to_f64(),
                            DType::I32 => {
                                // Products of many twos wrap; the rest is exact.
                                let exact = group.iter().map(|&x| x as i32);
                                let want = match op {
                                    ReduceOp::Prod => exact.fold(1, i32::wrapping_mul),
                                    _ => want as i32,
                                };
                                assert_eq!(i32::from_ne_bytes(element.try_into().unwrap()), want, "{what}");
                                continue;
                            }
                            DType::U32 => u32::from_ne_bytes(element.try_into().unwrap()).into(),
                            _ => element[0].into(),
                        };
                        let slack = if result == DType::F16 { 1e-3 } else { 1e-6 };
                        let same = got == want || (got.is_nan() && want.is_nan());
                        assert!(
                            same || (got - want).abs() <= slack * want.abs() + 1e-7,
                            "{what}: {got}, not {want}"
                        );
                    }
                }
            }
        }
    });
}

#[test]
fn no_elements_and_nan() {
    on_every_path(|path| {
        let run = |op, x: &[f32]| {
            let mut out = [7f32];
            let sizes = [x.len()];
            let reduce = Reduce::new(op, DType::F32, output(op, DType::F32), path).unwrap();
            let size = output(op, DType::F32).size();
            let raw = &mut bytemuck::cast_slice_mut(&mut out)[..size];
            // Two axes, so that the second stays.
            let (from, to) = ([sizes[0], 1], [1, 1]);
            let view = View::new(bytemuck::cast_slice(x), DType::F32, 0, &from, &[1, 1]).unwrap();
            let done = reduce.run(
                &Pool::new(1),
                &mut ViewMut::new(raw, output(op, DType::F32), 0, &to, &[1, 1]).unwrap(),
                &view,
            );
            done.map(|()| out[0])
        };
        assert_eq!(run(ReduceOp::Sum, &[]), Ok(0.0));
        assert_eq!(run(ReduceOp::Prod, &[]), Ok(1.0));
        assert!(run(ReduceOp::Mean, &[]).unwrap().is_nan());
        assert_eq!(run(ReduceOp::Max, &[]), Err(Empty));
        assert_eq!(run(ReduceOp::Argmax, &[]), Err(Empty));
        assert!(run(ReduceOp::Max, &[1.0, f32::NAN, 3.0]).unwrap().is_nan());
        assert!(run(ReduceOp::Min, &[1.0, f32::NAN, 3.0]).unwrap().is_nan());
        let mut long = vec![0.5; 2000];
        (long[700], long[1500]) = (f32::NAN, f32::NAN);
        assert_eq!(run(ReduceOp::Argmin, &long).unwrap().to_bits(), 700);
        (long[700], long[1500]) = (9.0, 9.0);
        assert_eq!(run(ReduceOp::Argmax, &long).unwrap().to_bits(), 700);
    });
}

#[test]
fn running_sums() {
    on_every_path(|path| {
        let x = [1i32, 2, 3, 4, 10, 20, 30, 40];
        let run = |reverse, inclusive, axis| {
            let mut out = [0i32; 8];
            let raw = bytemuck::cast_slice_mut(&mut out);
            cumsum(
                &Pool::new(1),
                path,
                &mut ViewMut::new(raw, DType::I32, 0, &[2, 4], &[4, 1]).unwrap(),
                &View::new(bytemuck::cast_slice(&x), DType::I32, 0, &[2, 4], &[4, 1]).unwrap(),
                axis,
                Cumulative { reverse, inclusive },
            );
            out
        };
        assert_eq!(run(false, true, 1), [1, 3, 6, 10, 10, 30, 60, 100]);
        assert_eq!(run(false, false, 1), [0, 1, 3, 6, 0, 10, 30, 60]);
        assert_eq!(run(true, true, 1), [10, 9, 7, 4, 100, 90, 70, 40]);
        assert_eq!(run(true, false, 1), [9, 7, 4, 0, 90, 70, 40, 0]);
        assert_eq!(run(false, true, 0), [1, 2, 3, 4, 11, 22, 33, 44]);
    });
}
