//! Operators against literal expectations: one row a case.

use super::{Call, FAMILIES, OutType, Outs, find};
use crate::{RunControl, Value};
use pteron_tensor::HostTensor;
use std::collections::HashSet;

pub(super) fn f(shape: &[usize], values: &[f32]) -> Value {
    HostTensor::from_slice(shape.to_vec(), values).unwrap().into()
}

fn d(shape: &[usize], values: &[f64]) -> Value {
    HostTensor::from_slice(shape.to_vec(), values).unwrap().into()
}

pub(super) fn i(shape: &[usize], values: &[i64]) -> Value {
    HostTensor::from_slice(shape.to_vec(), values).unwrap().into()
}

fn i8s(shape: &[usize], values: &[i8]) -> Value {
    HostTensor::from_slice(shape.to_vec(), values).unwrap().into()
}

pub(super) fn b(shape: &[usize], values: &[bool]) -> Value {
    HostTensor::from_bools(shape.to_vec(), values).unwrap().into()
}

pub(super) fn list(values: &[i64]) -> Value {
    Value::Ints(values.to_vec())
}

/// Runs an operator with out arguments of the wanted types; what it gives in those dtypes.
pub(super) fn run(name: &str, args: &[Value], wanted: &[Value]) -> Result<Vec<HostTensor>, String> {
    run_row(find(name).ok_or_else(|| format!("no {name}"))?, args, wanted)
}

fn run_row(operator: &super::Operator, args: &[Value], wanted: &[Value]) -> Result<Vec<HostTensor>, String> {
    let outs: Vec<OutType> = wanted
        .iter()
        .filter_map(Value::as_tensor)
        .map(|want| OutType { dtype: want.dtype(), sizes: want.shape().to_vec() })
        .collect();
    let control = RunControl::default();
    let results =
        operator.run(&Call { args, outs: &outs, control: &control }).map_err(|error| error.to_string())?;
    let cast = |(result, out): (&Value, &OutType)| {
        super::lanes::cast(result.as_tensor().ok_or("no tensor")?, out.dtype)
            .map_err(|error| error.to_string())
    };
    results.iter().zip(&outs).map(cast).collect()
}

/// Every number of what an operator gives is that of PyTorch, which has rounded its own.
pub(super) fn check_close(name: &str, args: &[Value], wanted: &[Value]) {
    let got = run(name, args, wanted).unwrap();
    assert_eq!(got.len(), wanted.len(), "{name}");
    for (got, wanted) in got.iter().zip(wanted.iter().filter_map(Value::as_tensor)) {
        assert_eq!((got.dtype(), got.shape()), (wanted.dtype(), wanted.shape()), "{name} {args:?}");
        let pairs = super::lanes::floats(got).into_iter().zip(super::lanes::floats(wanted));
        let is_close = |(a, b): (f64, f64)| (a - b).abs() < 1e-5 || (a.is_nan() && b.is_nan());
        assert!(pairs.into_iter().all(is_close), "{name} {args:?}: {got:?}");
    }
}

fn check(cases: &[(&str, &[Value], Value)]) {
    for (name, args, want) in cases {
        let got = run(name, args, std::slice::from_ref(want));
        assert_eq!(
            got.map(|mut got| got.remove(0)).as_ref(),
            Ok(want.as_tensor().unwrap()),
            "{name} {args:?}"
        );
    }
}

#[test]
fn names_are_unique_and_have_the_inputs_they_need() {
    let mut seen = HashSet::new();
    for row in FAMILIES.iter().copied().flatten() {
        assert!(seen.insert(row.name), "{} stands twice", row.name);
        assert!(row.inputs > 0, "{}", row.name);
        assert!(row.outs != Outs::Tensors(0), "{}", row.name);
    }
}

#[test]
fn arithmetic_promotes_and_rounds_as_torch_does() {
    let (two, three) = (Value::Int(2), Value::Int(3));
    check(&[
        ("aten::add.out", &[f(&[2], &[1.0, 2.0]), f(&[1], &[10.0]), two.clone()], f(&[2], &[21.0, 22.0])),
        ("aten::add.out", &[i8s(&[1], &[100]), i8s(&[1], &[100]), Value::Int(1)], i8s(&[1], &[-56])),
        ("aten::sub.Scalar_out", &[i(&[2], &[1, 2]), three.clone(), two.clone()], i(&[2], &[-5, -4])),
        ("aten::rsub.Scalar_out", &[f(&[1], &[1.0]), Value::Int(5), two.clone()], f(&[1], &[3.0])),
        ("aten::mul.Scalar_out", &[i(&[2], &[1, 2]), Value::Float(0.5)], f(&[2], &[0.5, 1.0])),
        ("aten::div.out", &[i(&[2], &[1, 2]), i(&[2], &[2, 2])], f(&[2], &[0.5, 1.0])),
        (
            "aten::div.out_mode",
            &[i(&[2], &[-7, 7]), i(&[1], &[2]), Value::Str("floor".into())],
            i(&[2], &[-4, 3]),
        ),
        (
            "aten::div.out_mode",
            &[i(&[2], &[-7, 7]), i(&[1], &[2]), Value::Str("trunc".into())],
            i(&[2], &[-3, 3]),
        ),
        ("aten::floor_divide.out", &[f(&[1], &[1.0]), f(&[1], &[0.1])], f(&[1], &[9.0])),
        ("aten::remainder.Scalar_out", &[i(&[2], &[-7, 7]), three.clone()], i(&[2], &[2, 1])),
        ("aten::fmod.Scalar_out", &[i(&[2], &[-7, 7]), three.clone()], i(&[2], &[-1, 1])),
        ("aten::pow.Tensor_Scalar_out", &[i(&[3], &[2, -2, 0]), three], i(&[3], &[8, -8, 0])),
        ("aten::maximum.out", &[f(&[2], &[1.0, 3.0]), f(&[2], &[2.0, 2.0])], f(&[2], &[2.0, 3.0])),
        (
            "aten::bitwise_and.Tensor_out",
            &[b(&[2], &[true, true]), b(&[2], &[true, false])],
            b(&[2], &[true, false]),
        ),
        ("aten::bitwise_left_shift.Tensor_Scalar_out", &[i(&[2], &[1, -3]), two], i(&[2], &[4, -12])),
        // The number is rounded to the tensor's dtype before it is compared.
        ("aten::eq.Scalar_out", &[f(&[2], &[0.1, 0.2]), Value::Float(0.1)], b(&[2], &[true, false])),
        ("aten::eq.Scalar_out", &[d(&[1], &[0.1]), Value::Float(0.1)], b(&[1], &[true])),
        ("aten::lt.Tensor_out", &[i(&[2], &[1, 2]), f(&[1], &[1.5])], b(&[2], &[true, false])),
        ("aten::logical_xor.out", &[f(&[2], &[0.0, 2.0]), i(&[2], &[3, 3])], b(&[2], &[true, false])),
        (
            "aten::where.self_out",
            &[b(&[2], &[true, false]), i(&[], &[1]), d(&[2], &[2.5, 3.5])],
            d(&[2], &[1.0, 3.5]),
        ),
        ("aten::clamp.out", &[i(&[3], &[-9, 0, 9]), Value::Int(-1), Value::None], i(&[3], &[-1, 0, 9])),
    ]);
    assert!(run("aten::floor_divide.out", &[i(&[1], &[1]), i(&[1], &[0])], &[i(&[1], &[0])]).is_err());
    assert!(
        run("aten::add.out", &[f(&[2], &[0.0; 2]), f(&[3], &[0.0; 3]), Value::Int(1)], &[f(&[3], &[0.0; 3])])
            .is_err()
    );
}

#[test]
fn unary_operators_keep_integers_where_torch_does() {
    let x = || f(&[3], &[-1.5, 0.5, 2.5]);
    check(&[
        ("aten::abs.out", &[i(&[2], &[-3, 3])], i(&[2], &[3, 3])),
        ("aten::neg.out", &[i8s(&[1], &[-128])], i8s(&[1], &[-128])),
        ("aten::round.out", &[x()], f(&[3], &[-2.0, 0.0, 2.0])),
        ("aten::sign.out", &[f(&[2], &[f32::NAN, -0.0])], f(&[2], &[0.0, 0.0])),
        ("aten::relu.out", &[x()], f(&[3], &[0.0, 0.5, 2.5])),
        ("aten::sqrt.out", &[i(&[2], &[4, 9])], f(&[2], &[2.0, 3.0])),
        ("aten::isnan.out", &[f(&[2], &[f32::NAN, 1.0])], b(&[2], &[true, false])),
        ("aten::logical_not.out", &[f(&[2], &[0.0, f32::NAN])], b(&[2], &[true, false])),
        ("aten::bitwise_not.out", &[b(&[2], &[true, false])], b(&[2], &[false, true])),
        ("aten::bitwise_not.out", &[i(&[1], &[5])], i(&[1], &[-6])),
        ("aten::leaky_relu.out", &[x(), Value::Float(0.1)], f(&[3], &[-0.15, 0.5, 2.5])),
        ("aten::elu.out", &[f(&[1], &[2.0]), Value::Int(1), Value::Int(1), Value::Int(1)], f(&[1], &[2.0])),
        ("aten::_to_copy.out", &[x(), Value::Bool(false), Value::None], i(&[3], &[-1, 0, 2])),
    ]);
}

#[test]
fn reductions_join_the_axes_they_name() {
    let x = || f(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let no = || Value::Bool(false);
    check(&[
        ("aten::sum.IntList_out", &[x(), list(&[1]), no(), Value::None], f(&[2], &[6.0, 15.0])),
        ("aten::sum.IntList_out", &[x(), Value::None, Value::Bool(true), Value::None], f(&[1, 1], &[21.0])),
        (
            "aten::sum.IntList_out",
            &[b(&[3], &[true, true, false]), list(&[0]), no(), Value::None],
            i(&[], &[2]),
        ),
        ("aten::mean.out", &[x(), list(&[0]), no(), Value::None], f(&[3], &[2.5, 3.5, 4.5])),
        ("aten::amax.out", &[x(), list(&[-1]), no()], f(&[2], &[3.0, 6.0])),
        ("aten::argmax.out", &[f(&[3], &[1.0, 7.0, 7.0]), Value::None, no()], i(&[], &[1])),
        ("aten::argmax.out", &[f(&[3], &[1.0, f32::NAN, 7.0]), Value::Int(0), no()], i(&[], &[1])),
        ("aten::any.out", &[x(), Value::Int(0), no()], b(&[3], &[true; 3])),
        ("aten::var.correction_out", &[x(), list(&[1]), Value::Int(1), no()], f(&[2], &[1.0, 1.0])),
        (
            "aten::cumsum.out",
            &[x(), Value::Int(1), Value::None],
            f(&[2, 3], &[1.0, 3.0, 6.0, 4.0, 9.0, 15.0]),
        ),
        ("aten::_softmax.out", &[f(&[2], &[0.0, 0.0]), Value::Int(0), no()], f(&[2], &[0.5, 0.5])),
    ]);
    let values =
        run("aten::max.dim_max", &[x(), Value::Int(1), no()], &[f(&[2], &[0.0; 2]), i(&[2], &[0; 2])]);
    let want = [f(&[2], &[3.0, 6.0]), i(&[2], &[2, 2])].map(|value| value.as_tensor().unwrap().clone());
    assert_eq!(values.unwrap(), want);
    assert!(run("aten::amax.out", &[f(&[0], &[]), list(&[0]), no()], &[f(&[], &[0.0])]).is_err());
}

#[test]
fn shape_operators_move_elements_of_any_dtype() {
    let x = || i8s(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    let end = || Value::Int(i64::MAX);
    check(&[
        ("aten::permute_copy.out", &[x(), list(&[1, 0])], i8s(&[3, 2], &[1, 4, 2, 5, 3, 6])),
        ("aten::view_copy.out", &[x(), list(&[-1, 2])], i8s(&[3, 2], &[1, 2, 3, 4, 5, 6])),
        (
            "aten::slice_copy.Tensor_out",
            &[x(), Value::Int(1), Value::Int(0), end(), Value::Int(2)],
            i8s(&[2, 2], &[1, 3, 4, 6]),
        ),
        ("aten::select_copy.int_out", &[x(), Value::Int(1), Value::Int(-1)], i8s(&[2], &[3, 6])),
        (
            "aten::expand_copy.out",
            &[i8s(&[1, 2], &[7, 8]), list(&[2, -1]), Value::Bool(false)],
            i8s(&[2, 2], &[7, 8, 7, 8]),
        ),
        ("aten::flip.out", &[x(), list(&[1])], i8s(&[2, 3], &[3, 2, 1, 6, 5, 4])),
        ("aten::roll.out", &[x(), list(&[1]), list(&[1])], i8s(&[2, 3], &[3, 1, 2, 6, 4, 5])),
        ("aten::repeat.out", &[i8s(&[2], &[1, 2]), list(&[2, 2])], i8s(&[2, 4], &[1, 2, 1, 2, 1, 2, 1, 2])),
        ("aten::diagonal_copy.out", &[x(), Value::Int(1), Value::Int(0), Value::Int(1)], i8s(&[2], &[2, 6])),
        ("aten::tril.out", &[x(), Value::Int(0)], i8s(&[2, 3], &[1, 0, 0, 4, 5, 0])),
        (
            "aten::constant_pad_nd.out",
            &[i8s(&[2], &[1, 2]), list(&[1, -1]), Value::Int(9)],
            i8s(&[2], &[9, 1]),
        ),
        (
            "aten::reflection_pad1d.out",
            &[i8s(&[3], &[1, 2, 3]), list(&[1, 2])],
            i8s(&[6], &[2, 1, 2, 3, 2, 1]),
        ),
    ]);
    let pieces = run(
        "aten::split_copy.Tensor_out",
        &[x(), Value::Int(2), Value::Int(1)],
        &[i8s(&[2, 2], &[0; 4]), i8s(&[2, 1], &[0; 2])],
    );
    let want =
        [i8s(&[2, 2], &[1, 2, 4, 5]), i8s(&[2, 1], &[3, 6])].map(|value| value.as_tensor().unwrap().clone());
    assert_eq!(pieces.unwrap(), want);
    let parts = Value::Tensors(vec![
        x().as_tensor().cloned(),
        Some(i(&[1, 3], &[7, 8, 9]).as_tensor().unwrap().clone()),
    ]);
    check(&[("aten::cat.out", &[parts, Value::Int(0)], i(&[3, 3], &[1, 2, 3, 4, 5, 6, 7, 8, 9]))]);
}

#[test]
fn indices_wrap_once_and_are_checked() {
    let x = || f(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let rows = |values: &[i64]| i(&[values.len()], values);
    let by = |index: Value| Value::Tensors(vec![index.as_tensor().cloned()]);
    check(&[
        (
            "aten::gather.out",
            &[x(), Value::Int(0), i(&[1, 2], &[2, 0]), Value::Bool(false)],
            f(&[1, 2], &[5.0, 2.0]),
        ),
        ("aten::index_select.out", &[x(), Value::Int(0), rows(&[-1, 0])], f(&[2, 2], &[5.0, 6.0, 1.0, 2.0])),
        ("aten::index.Tensor_out", &[x(), by(rows(&[1]))], f(&[1, 2], &[3.0, 4.0])),
        (
            "aten::index.Tensor_out",
            &[x(), by(b(&[3], &[true, false, true]))],
            f(&[2, 2], &[1.0, 2.0, 5.0, 6.0]),
        ),
        (
            "aten::index_put.out",
            &[x(), by(rows(&[1, 1])), f(&[2], &[1.0, 1.0]), Value::Bool(true)],
            f(&[3, 2], &[1.0, 2.0, 5.0, 6.0, 5.0, 6.0]),
        ),
        (
            "aten::scatter_add.out",
            &[x(), Value::Int(0), i(&[1, 2], &[2, 2]), f(&[1, 2], &[1.0, 1.0])],
            f(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 6.0, 7.0]),
        ),
        (
            "aten::embedding.out",
            &[x(), rows(&[2]), Value::Int(-1), Value::Bool(false), Value::Bool(false)],
            f(&[1, 2], &[5.0, 6.0]),
        ),
        ("aten::nonzero.out", &[f(&[1, 3], &[0.0, 2.0, 3.0])], i(&[2, 2], &[0, 1, 0, 2])),
    ]);
    let outside = run("aten::index_select.out", &[x(), Value::Int(0), rows(&[3])], &[f(&[1, 2], &[0.0; 2])]);
    assert_eq!(outside.unwrap_err(), "index 3 is outside an axis of size 3");
}

/// Complex numbers as tensors carry them.
fn c(shape: &[usize], values: &[[f32; 2]]) -> Value {
    let carried: Vec<u64> = values.iter().map(|value| bytemuck::cast(*value)).collect();
    HostTensor::from_slice(shape.to_vec(), &carried).unwrap().into()
}

#[test]
fn spectra_are_made_moved_and_read() {
    let spectrum = || c(&[1, 3], &[[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]]);
    let samples = || f(&[1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let (none, halved) = (Value::Int(0), Value::Int(2));
    let (half, whole) = (Value::Bool(true), Value::Bool(false));
    let third = |sign: f64| ((8.0 + sign * 14.0 * 0.75f64.sqrt()) / 3.0) as f32;
    let (to, back, stays) = ((false, true), (true, false), (true, true));
    type Case<'c> = (&'c str, (bool, bool), &'c [Value], Value);
    let cases: [Case<'_>; 12] = [
        ("aten::_fft_r2c.out", to, &[samples(), list(&[-1]), none.clone(), half.clone()], spectrum()),
        (
            "aten::_fft_r2c.out",
            to,
            &[samples(), list(&[1]), none.clone(), whole],
            c(&[1, 4], &[[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0], [-2.0, -2.0]]),
        ),
        (
            "aten::_fft_r2c.out",
            to,
            &[f(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), list(&[1, 0]), Value::Int(1), half.clone()],
            c(&[2, 2], &[[5.0, 0.0], [-1.0, 0.0], [-2.0, 0.0], [0.0, 0.0]]),
        ),
        (
            "aten::_fft_r2c.out",
            to,
            &[f(&[0, 4], &[]), list(&[1]), none.clone(), half.clone()],
            c(&[0, 3], &[]),
        ),
        ("aten::_fft_c2r.out", back, &[spectrum(), list(&[1]), halved.clone(), Value::Int(4)], samples()),
        (
            "aten::_fft_c2r.out",
            back,
            &[c(&[2, 1], &[[6.0, 0.0], [-2.0, 7.0]]), list(&[0]), halved, Value::Int(3)],
            f(&[3, 1], &[2.0 / 3.0, third(-1.0), third(1.0)]),
        ),
        ("aten::abs.out", back, &[c(&[2], &[[3.0, -4.0], [0.0, 0.0]])], f(&[2], &[5.0, 0.0])),
        ("aten::_conj_physical.out", stays, &[c(&[1], &[[3.0, -4.0]])], c(&[1], &[[3.0, 4.0]])),
        (
            "aten::view_as_real_copy.out",
            back,
            &[c(&[2], &[[3.0, -4.0], [1.0, 2.0]])],
            f(&[2, 2], &[3.0, -4.0, 1.0, 2.0]),
        ),
        (
            "aten::permute_copy.out",
            stays,
            &[spectrum(), list(&[1, 0])],
            c(&[3, 1], &[[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]]),
        ),
        (
            "aten::squeeze_copy.dims_out",
            stays,
            &[spectrum(), list(&[0])],
            c(&[3], &[[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]]),
        ),
        (
            "aten::slice_copy.Tensor_out",
            stays,
            &[spectrum(), Value::Int(1), Value::Int(0), Value::Int(-1), Value::Int(1)],
            c(&[1, 2], &[[10.0, 0.0], [-2.0, 2.0]]),
        ),
    ];
    for (name, (takes, gives), args, want) in &cases {
        let operator = super::find_for(name, *takes, *gives).unwrap();
        let got = run_row(operator, args, std::slice::from_ref(want)).unwrap().remove(0);
        assert_eq!(Some(&got), want.as_tensor(), "{name} {args:?}");
    }
    let refused: [&[Value]; 4] = [
        &[samples(), list(&[0, -2]), none.clone(), half.clone()],
        &[samples(), list(&[1]), Value::Int(3), half.clone()],
        &[f(&[1, 0], &[]), list(&[1]), none.clone(), half.clone()],
        &[samples(), list(&[]), none.clone(), half],
    ];
    let operator = super::find_for("aten::_fft_r2c.out", false, true).unwrap();
    for args in refused {
        assert!(run_row(operator, args, &[spectrum()]).is_err(), "{args:?}");
    }
    let operator = super::find_for("aten::_fft_c2r.out", true, false).unwrap();
    assert!(run_row(operator, &[spectrum(), list(&[1]), none, Value::Int(6)], &[samples()]).is_err());
    // Whatever has no meaning for complex numbers is refused before anything runs, and so is a transform of none.
    for (name, takes, gives) in [
        ("aten::exp.out", true, true),
        ("aten::add.out", false, true),
        ("aten::cat.out", true, true),
        ("aten::copy.out", true, true),
        ("aten::abs.out", true, true),
        ("aten::_fft_r2c.out", false, false),
        ("aten::permute_copy.out", true, false),
    ] {
        assert!(super::find_for(name, takes, gives).is_none(), "{name}");
    }
}

#[test]
fn products_and_convolutions_sum_what_meets() {
    let (a, c) = (|| f(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), || f(&[2, 1], &[1.0, 10.0]));
    let ones = |shape: &[usize]| f(shape, &vec![1.0; shape.iter().product()]);
    let conv = |x: Value, w: Value, pad: i64, transposed: bool| {
        let (one, zero) = (list(&[1]), list(&[0]));
        [x, w, Value::None, one.clone(), list(&[pad]), one, Value::Bool(transposed), zero, Value::Int(1)]
    };
    check(&[
        ("aten::mm.out", &[a(), c()], f(&[2, 1], &[21.0, 43.0])),
        ("aten::mm.out", &[i(&[1, 2], &[2, 3]), i(&[2, 1], &[4, 5])], i(&[1, 1], &[23])),
        (
            "aten::addmm.out",
            &[f(&[1], &[1.0]), a(), c(), Value::Int(2), Value::Int(1)],
            f(&[2, 1], &[23.0, 45.0]),
        ),
        ("aten::linear.out", &[f(&[2], &[1.0, 2.0]), a(), Value::None], f(&[2], &[5.0, 11.0])),
        (
            "aten::_cdist_forward.out",
            &[a(), f(&[1, 2], &[4.0, 6.0]), Value::Float(2.0), Value::None],
            f(&[2, 1], &[5.0, 5.0f32.sqrt()]),
        ),
        ("aten::_pdist_forward.out", &[a(), Value::Float(f64::INFINITY)], f(&[1], &[2.0])),
        ("aten::_pdist_forward.out", &[a(), Value::Float(1.0)], f(&[1], &[4.0])),
        (
            "aten::convolution.out",
            &conv(f(&[1, 1, 3], &[1.0, 2.0, 3.0]), ones(&[1, 1, 3]), 1, false),
            f(&[1, 1, 3], &[3.0, 6.0, 5.0]),
        ),
        (
            "aten::convolution.out",
            &conv(f(&[1, 1, 2], &[1.0, 2.0]), ones(&[1, 1, 2]), 0, true),
            f(&[1, 1, 3], &[1.0, 3.0, 2.0]),
        ),
    ]);
}

#[test]
fn results_that_do_not_fit_are_refused_before_they_are_computed() {
    let huge = list(&[1 << 40, 1 << 20]);
    let small = f(&[1], &[0.0]);
    for (name, args) in [
        ("aten::full.out", vec![huge.clone(), Value::Float(1.0)]),
        ("aten::repeat.out", vec![small.clone(), huge.clone()]),
        ("aten::expand_copy.out", vec![small.clone(), huge, Value::Bool(false)]),
        ("aten::arange.out", vec![Value::Int(i64::MAX)]),
        ("aten::eye.out", vec![Value::Int(1 << 33)]),
    ] {
        assert!(run(name, &args, std::slice::from_ref(&small)).is_err(), "{name}");
    }
}

#[test]
fn codes_and_numbers_are_turned_into_each_other() {
    let (zero, three) = (Value::Int(0), Value::Int(3));
    let grid = || [Value::Float(0.5), Value::Int(3), Value::Int(-128), Value::Int(127), Value::Int(1)];
    let x = || f(&[2, 2], &[0.0, 0.25, 0.75, -100.0]);
    let coded = |x: Value, rest: &[Value]| [&[x], rest].concat();
    let bytes =
        |shape: &[usize], values: &[u8]| Value::from(HostTensor::from_slice(shape.to_vec(), values).unwrap());
    let rows = |bytes: Value, groups: usize, index: i64| {
        let scales = f(&[2, groups], &(1..=2 * groups).map(|scale| scale as f32).collect::<Vec<_>>());
        [bytes, scales, Value::None, Value::Int(0), Value::Int(0), i(&[1], &[index])]
    };
    check(&[
        // Halves go to the even code.
        (
            "quantized_decomposed::quantize_per_tensor.out",
            &coded(x(), &grid()),
            i8s(&[2, 2], &[3, 3, 5, -128]),
        ),
        (
            "quantized_decomposed::quantize_per_channel.out",
            &[
                x(),
                d(&[2], &[0.25, 0.5]),
                i(&[2], &[0, 1]),
                Value::Int(-1),
                Value::Int(-8),
                Value::Int(7),
                zero.clone(),
            ],
            i8s(&[2, 2], &[0, 1, 3, -8]),
        ),
        (
            "quantized_decomposed::dequantize_per_token.out",
            &[
                i8s(&[2, 2], &[1, 2, 3, 4]),
                d(&[2, 1], &[1.0, 2.0]),
                i(&[2, 1], &[0, 3]),
                Value::Int(-128),
                Value::Int(127),
                zero.clone(),
                zero.clone(),
            ],
            f(&[2, 2], &[1.0, 2.0, 0.0, 2.0]),
        ),
        (
            "quantized_decomposed::embedding_byte.out",
            &rows(i8s(&[2, 2], &[1, 2, -3, 4]), 2, 1),
            f(&[1, 2], &[-9.0, 16.0]),
        ),
        (
            "quantized_decomposed::embedding_4bit.out",
            &rows(bytes(&[2, 1], &[0, 0x9F]), 1, 1),
            f(&[1, 2], &[2.0, 14.0]),
        ),
        (
            "quantized_decomposed::embedding_2bit.out",
            &rows(bytes(&[2, 1], &[0b11_10_01_00, 0]), 1, 0),
            f(&[1, 4], &[-2.0, -1.0, 0.0, 1.0]),
        ),
    ]);
    let chosen = run(
        "quantized_decomposed::choose_qparams_per_token_asymmetric.out",
        &[f(&[2, 2], &[-1.0, 1.55, 0.0, 0.0]), Value::Int(1)],
        &[d(&[2, 1], &[0.0; 2]), i(&[2, 1], &[0; 2])],
    )
    .unwrap();
    assert_eq!(chosen[1].as_slice::<i64>().unwrap(), [-28, 127]);
    let scales = chosen[0].as_slice::<f64>().unwrap();
    assert!((scales[0] - 0.01).abs() < 1e-9 && scales[1] == 0.1, "{scales:?}");
    let short = [x(), d(&[1], &[0.25]), i(&[1], &[0]), Value::Int(1), zero.clone(), three, zero];
    let refused = run("quantized_decomposed::quantize_per_channel.out", &short, &[i8s(&[2, 2], &[0; 4])]);
    assert_eq!(refused.unwrap_err(), "1 scales where 2 are needed");
}

#[test]
fn attention_sees_its_cache_up_to_itself() {
    let cache = || f(&[1, 3, 1, 1], &[1.0, 0.0, 9.0]);
    let new = f(&[1, 1, 1, 1], &[4.0]);
    let outs = [cache(), f(&[1], &[0.0])];
    let written = run("llama::update_cache.out", &[new.clone(), cache(), Value::Int(1)], &outs).unwrap();
    assert_eq!(written[0].as_slice::<f32>().unwrap(), [1.0, 4.0, 9.0]);
    let beyond = run("llama::update_cache.out", &[new.clone(), cache(), Value::Int(3)], &outs);
    assert_eq!(beyond.unwrap_err(), "1 positions from 3 on go beyond a cache of 3");
    // Two heads of queries share one of keys; scores are 0, so that values are averaged.
    let queries = || f(&[1, 2, 2, 1], &[0.0; 4]);
    let values = || f(&[1, 3, 1, 1], &[2.0, 4.0, 6.0]);
    let rest = |start: i64, causal: bool| {
        [
            queries(),
            cache(),
            values(),
            Value::Int(start),
            Value::None,
            Value::Float(0.0),
            Value::Bool(causal),
            Value::None,
        ]
    };
    check(&[
        ("llama::custom_sdpa.out", &rest(1, true), f(&[1, 2, 2, 1], &[3.0, 3.0, 4.0, 4.0])),
        ("llama::custom_sdpa.out", &rest(0, false), f(&[1, 2, 2, 1], &[3.0; 4])),
    ]);
    let both = run(
        "llama::sdpa_with_kv_cache.out",
        &[
            new.clone(),
            new.clone(),
            new,
            cache(),
            cache(),
            Value::Int(0),
            Value::Int(1),
            Value::None,
            Value::Float(0.0),
            Value::Bool(true),
            Value::None,
        ],
        &[cache(), cache(), f(&[1, 1, 1, 1], &[0.0])],
    )
    .unwrap();
    assert_eq!(both.iter().map(|tensor| tensor.as_slice::<f32>().unwrap()[0]).collect::<Vec<_>>(), [4.0; 3]);
}
