//! Kernels held against tables of cases: an op, its operands as text, and what it must give. Every case goes
//! through the type rule first, as in a run, so that rule and kernel are held against each other too.
//!
//! A tensor reads `f32[2,3] 1 2 3 4 5 6`; a number beside the tensors reads `int 5`, `float 0.5` or `bool true`.

mod create;
mod elementwise;
mod index;
mod laws;
mod order;
mod reduce;
mod scalar;
mod shape;

use super::lanes::Writer;
use super::{Datum, Operands, ResultType, compute, compute_scalar};
use pteron_ir::op::{IntArg, ResultKind};
use pteron_ir::{Dim, Op, Ssa, Symbols, TensorType, Type, ValueId, ValueInfo, infer};
use pteron_tensor::{DType, HostTensor, Scalar};

/// The n-th operand of a case.
pub(super) fn v(n: u32) -> ValueId {
    ValueId(n)
}

pub(super) fn lit(value: i64) -> IntArg<ValueId> {
    IntArg::Literal(value)
}

pub(super) fn lits(values: &[i64]) -> Vec<IntArg<ValueId>> {
    values.iter().map(|&value| lit(value)).collect()
}

/// The tensor that a text describes.
pub(super) fn tensor(text: &str) -> HostTensor {
    let (dtype, rest) = text.split_once('[').unwrap_or_else(|| panic!("no shape: {text}"));
    let (shape, values) = rest.split_once(']').unwrap_or_else(|| panic!("no shape: {text}"));
    let dtype = DType::from_name(dtype).unwrap_or_else(|| panic!("no dtype: {text}"));
    let shape: Vec<usize> =
        shape.split(',').filter(|size| !size.is_empty()).map(|size| size.trim().parse().unwrap()).collect();
    let mut writer = Writer::new(&ResultType { dtype, shape }).unwrap();
    for value in values.split_whitespace() {
        match value.parse::<i128>() {
            Ok(value) if !dtype.is_float() => writer.put(&[value]).unwrap(),
            _ => writer.put(&[value.parse::<f64>().unwrap_or_else(|_| panic!("{value}: {text}"))]).unwrap(),
        }
    }
    assert_eq!(writer.left(), 0, "too few values: {text}");
    writer.finish()
}

/// The text of a tensor: equal texts are equal bits, but for what a NaN carries.
pub(super) fn show(x: &HostTensor) -> String {
    let values: Vec<String> = match x.dtype() {
        DType::Bool => x.bytes().iter().map(u8::to_string).collect(),
        DType::U8 => strings(x.as_slice::<u8>().unwrap()),
        DType::U16 => strings(x.as_slice::<u16>().unwrap()),
        DType::U32 => strings(x.as_slice::<u32>().unwrap()),
        DType::U64 => strings(x.as_slice::<u64>().unwrap()),
        DType::I8 => strings(x.as_slice::<i8>().unwrap()),
        DType::I16 => strings(x.as_slice::<i16>().unwrap()),
        DType::I32 => strings(x.as_slice::<i32>().unwrap()),
        DType::I64 => strings(x.as_slice::<i64>().unwrap()),
        DType::F16 => strings(x.as_slice::<half::f16>().unwrap()),
        DType::BF16 => strings(x.as_slice::<half::bf16>().unwrap()),
        DType::F32 => strings(x.as_slice::<f32>().unwrap()),
        DType::F64 => strings(x.as_slice::<f64>().unwrap()),
    };
    let shape: Vec<String> = x.shape().iter().map(usize::to_string).collect();
    format!("{}[{}] {}", x.dtype(), shape.join(","), values.join(" ")).trim_end().to_owned()
}

fn strings<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(T::to_string).collect()
}

fn datum(text: &str) -> Datum {
    match text.split_once(' ') {
        Some(("int", value)) => Datum::Scalar(Scalar::Int(value.parse().unwrap())),
        Some(("float", value)) => Datum::Scalar(Scalar::Float(value.parse().unwrap())),
        Some(("bool", value)) => Datum::Scalar(Scalar::Bool(value.parse().unwrap())),
        _ => Datum::Tensor(tensor(text)),
    }
}

fn type_of(datum: &Datum) -> Type {
    match datum {
        Datum::Tensor(x) => Type::Tensor(TensorType::known(x.dtype(), x.shape())),
        Datum::Scalar(Scalar::Int(value)) => Type::Int(Dim::known(*value)),
        Datum::Scalar(Scalar::Float(_)) => Type::Float,
        Datum::Scalar(Scalar::Bool(_)) => Type::Bool,
    }
}

/// Runs an op whose n-th operand is value n: its results as text, or what the rule or the kernel refused.
pub(super) fn run(op: &Op<Ssa>, inputs: &[&str]) -> Result<Vec<String>, String> {
    let data = inputs.iter().map(|text| datum(text)).collect();
    let results = run_data(op, data, true)?;
    Ok(results
        .iter()
        .map(|result| match result {
            Datum::Tensor(x) => show(x),
            Datum::Scalar(scalar) => format!("{scalar:?}"),
        })
        .collect())
}

/// Runs an op on data that is read for the last time, or not.
fn run_data(op: &Op<Ssa>, data: Vec<Datum>, last_use: bool) -> Result<Vec<Datum>, String> {
    let infos: Vec<ValueInfo> = data.iter().map(|datum| ValueInfo { ty: type_of(datum) }).collect();
    let types = infer(op, &infos, &mut Symbols::default()).map_err(|error| error.to_string())?;
    let tensor_types = types.iter().filter_map(|ty| match ty {
        Type::Tensor(ty) => Some(ResultType { dtype: ty.dtype, shape: ty.known_shape().unwrap() }),
        _ => None,
    });
    let tensor_types: Vec<ResultType> = tensor_types.collect();
    let mut values: Vec<Option<Datum>> = data.into_iter().map(Some).collect();
    let is_last = |_| last_use;
    let mut operands = Operands::new(&mut values, &is_last, tensor_types.clone());
    if op.spec().result.kind == ResultKind::Scalar {
        let scalar = compute_scalar(op, &operands).map_err(|error| error.to_string())?;
        return Ok(vec![Datum::Scalar(scalar)]);
    }
    let results = compute(op, &mut operands).map_err(|error| error.to_string())?;
    for (result, ty) in results.iter().zip(&tensor_types) {
        assert_eq!((result.dtype(), result.shape()), (ty.dtype, ty.shape.as_slice()), "{op:?}");
    }
    Ok(results.into_iter().map(Datum::Tensor).collect())
}

/// Holds an op with one result against a table row.
pub(super) fn check(op: Op<Ssa>, inputs: &[&str], want: &str) {
    let got = run(&op, inputs);
    assert_eq!(got, Ok(vec![show(&tensor(want))]), "\n{op:?}\nof {inputs:#?}");
}

/// An op that must be refused, by its rule or its kernel, with these words.
pub(super) fn refuse(op: Op<Ssa>, inputs: &[&str], words: &str) {
    match run(&op, inputs) {
        Ok(results) => panic!("{op:?}\nof {inputs:#?}\ngave {results:#?}"),
        Err(error) => assert!(error.contains(words), "{op:?}: {error}"),
    }
}
