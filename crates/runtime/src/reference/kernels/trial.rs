//! What tests of kernels need: operands out of plain tensors, numbers that look random, and comparison with
//! formulas in f64.

use super::{Datum, KernelError, Operands, ResultType};
use pteron_ir::ValueId;
use pteron_tensor::{DType, HostTensor, Scalar};

/// Calls a kernel with tensors as values 0, 1, 2, ...
pub(super) fn run<R>(
    tensors: &[&HostTensor],
    results: &[(DType, &[usize])],
    kernel: impl FnOnce(&Operands<'_>) -> R,
) -> R {
    let data = tensors.iter().map(|&tensor| Datum::Tensor(tensor.clone())).collect();
    run_data(data, results, kernel)
}

/// The same with scalars among the values.
pub(super) fn run_data<R>(
    data: Vec<Datum>,
    results: &[(DType, &[usize])],
    kernel: impl FnOnce(&Operands<'_>) -> R,
) -> R {
    let mut values: Vec<Option<Datum>> = data.into_iter().map(Some).collect();
    let results = results.iter().map(|&(dtype, shape)| ty(dtype, shape)).collect();
    kernel(&Operands::new(&mut values, &|_| false, results))
}

pub(super) fn ty(dtype: DType, shape: &[usize]) -> ResultType {
    ResultType { dtype, shape: shape.to_vec() }
}

pub(super) fn int(value: i64) -> Datum {
    Datum::Scalar(Scalar::Int(value))
}

pub(super) const fn v(index: u32) -> ValueId {
    ValueId(index)
}

/// An f32 tensor of numbers between -1 and 1 that depend on the seed.
pub(super) fn random(seed: u32, shape: &[usize]) -> HostTensor {
    let mut state = seed.wrapping_mul(2654435761).wrapping_add(1);
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count)
        .map(|_| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect();
    f32s(shape, &values)
}

pub(super) fn f32s(shape: &[usize], values: &[f32]) -> HostTensor {
    HostTensor::from_slice(shape.to_vec(), values).unwrap()
}

pub(super) fn as_f64(tensor: &HostTensor) -> Vec<f64> {
    super::floats::all(tensor).unwrap().iter().map(|&value| value.into()).collect()
}

/// Fails unless a result is as close to a formula as f32 sums can be.
#[track_caller]
pub(super) fn assert_close(got: Result<HostTensor, KernelError>, want: &[f64]) {
    let got = as_f64(&got.unwrap());
    assert_eq!(got.len(), want.len());
    for (at, (got, want)) in got.iter().zip(want).enumerate() {
        let close =
            (got - want).abs() <= 2e-6 * (1.0 + want.abs()) || (got.is_nan() && want.is_nan()) || got == want;
        assert!(close, "element {at}: {got}, not {want}");
    }
}
