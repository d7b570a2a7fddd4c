//! Tensors as lanes of `i64` or `f64`: wide enough that every operator is written once, narrow enough that a
//! result is right after one rounding. Float operators on f32 computed in f64 and rounded once give the same or
//! a better number than f32 arithmetic does.

use half::{bf16, f16};
use pteron_tensor::{Bytes, DType, HostTensor, Scalar, TensorError};

/// The elements of a tensor, widened.
#[derive(Clone, Debug)]
pub(crate) enum Lanes {
    /// Of bools and integers; u64 keeps its bits.
    Int(Vec<i64>),
    /// Of floats.
    Float(Vec<f64>),
}

/// Calls a macro body with the Rust type of a dtype's elements; bools are read as bytes.
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::Bool | DType::U8 => {
                type $T = u8;
                $body
            }
            DType::U16 => {
                type $T = u16;
                $body
            }
            DType::U32 => {
                type $T = u32;
                $body
            }
            DType::U64 => {
                type $T = u64;
                $body
            }
            DType::I8 => {
                type $T = i8;
                $body
            }
            DType::I16 => {
                type $T = i16;
                $body
            }
            DType::I32 => {
                type $T = i32;
                $body
            }
            DType::I64 => {
                type $T = i64;
                $body
            }
            DType::F16 => {
                type $T = f16;
                $body
            }
            DType::BF16 => {
                type $T = bf16;
                $body
            }
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
        }
    };
}

/// An element that can be widened and narrowed.
trait Lane: bytemuck::Pod {
    fn to_int(self) -> i64;
    fn to_float(self) -> f64;
    fn from_int(value: i64) -> Self;
    fn from_float(value: f64) -> Self;
}

macro_rules! integer_lanes {
    ($($T:ty),*) => { $(impl Lane for $T {
        fn to_int(self) -> i64 { self as i64 }
        fn to_float(self) -> f64 { self as f64 }
        // Narrowing wraps, as in C.
        fn from_int(value: i64) -> $T { value as $T }
        // Out of range saturates and NaN becomes 0: C leaves both undefined.
        fn from_float(value: f64) -> $T { value as $T }
    })* };
}
integer_lanes!(u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! float_lanes {
    ($($T:ty: $from_int:expr, $from_float:expr);*) => { $(impl Lane for $T {
        fn to_int(self) -> i64 { f64::from(self) as i64 }
        fn to_float(self) -> f64 { f64::from(self) }
        fn from_int(value: i64) -> $T { $from_int(value) }
        fn from_float(value: f64) -> $T { $from_float(value) }
    })* };
}
float_lanes!(
    // By way of f32: `half` drops the low half of an f64 before it looks for ties.
    f16: |value| f16::from_f32(value as f32), |value| f16::from_f32(value as f32);
    bf16: |value| bf16::from_f32(value as f32), |value| bf16::from_f32(value as f32);
    f32: |value| value as f32, |value| value as f32;
    f64: |value| value as f64, |value| value
);

/// The elements widened: floats to f64, the others to i64.
pub(crate) fn lanes(tensor: &HostTensor) -> Lanes {
    if tensor.dtype().is_float() { Lanes::Float(floats(tensor)) } else { Lanes::Int(ints(tensor)) }
}

/// The elements as integers; floats are cut toward zero.
pub(crate) fn ints(tensor: &HostTensor) -> Vec<i64> {
    with_element!(tensor.dtype(), T => elements::<T>(tensor).iter().map(|&x| x.to_int()).collect())
}

/// The elements as floats.
pub(crate) fn floats(tensor: &HostTensor) -> Vec<f64> {
    with_element!(tensor.dtype(), T => elements::<T>(tensor).iter().map(|&x| x.to_float()).collect())
}

/// Whether each element is not zero; NaN is not.
pub(crate) fn truths(tensor: &HostTensor) -> Vec<bool> {
    match lanes(tensor) {
        Lanes::Int(values) => values.into_iter().map(|value| value != 0).collect(),
        Lanes::Float(values) => values.into_iter().map(|value| value != 0.0).collect(),
    }
}

/// A tensor of integers, wrapped to the dtype; of bools, whether not zero.
pub(crate) fn from_ints(
    dtype: DType,
    shape: Vec<usize>,
    values: impl IntoIterator<Item = i64>,
) -> Result<HostTensor, TensorError> {
    // Collected first: one copy of the loop for each dtype, not one for each dtype of each operator.
    store_ints(dtype, shape, &values.into_iter().collect::<Vec<_>>())
}

fn store_ints(dtype: DType, shape: Vec<usize>, values: &[i64]) -> Result<HostTensor, TensorError> {
    let values = values.iter().copied();
    if dtype == DType::Bool {
        return from_elements::<u8>(dtype, shape, values.map(|value| (value != 0).into()));
    }
    with_element!(dtype, T => from_elements::<T>(dtype, shape, values.map(<T as Lane>::from_int)))
}

/// A tensor of floats, rounded to the dtype; of bools, whether not zero.
pub(crate) fn from_floats(
    dtype: DType,
    shape: Vec<usize>,
    values: impl IntoIterator<Item = f64>,
) -> Result<HostTensor, TensorError> {
    store_floats(dtype, shape, &values.into_iter().collect::<Vec<_>>())
}

fn store_floats(dtype: DType, shape: Vec<usize>, values: &[f64]) -> Result<HostTensor, TensorError> {
    let values = values.iter().copied();
    if dtype == DType::Bool {
        return from_elements::<u8>(dtype, shape, values.map(|value| (value != 0.0).into()));
    }
    with_element!(dtype, T => from_elements::<T>(dtype, shape, values.map(<T as Lane>::from_float)))
}

/// A tensor of lanes.
pub(crate) fn from_lanes(dtype: DType, shape: Vec<usize>, values: Lanes) -> Result<HostTensor, TensorError> {
    match values {
        Lanes::Int(values) => from_ints(dtype, shape, values),
        Lanes::Float(values) => from_floats(dtype, shape, values),
    }
}

/// A tensor of truth values.
pub(crate) fn from_bools(
    shape: Vec<usize>,
    values: impl IntoIterator<Item = bool>,
) -> Result<HostTensor, TensorError> {
    from_elements::<u8>(DType::Bool, shape, values.into_iter().map(u8::from))
}

/// The same tensor in another dtype: shared when it has it already.
pub(crate) fn cast(tensor: &HostTensor, dtype: DType) -> Result<HostTensor, TensorError> {
    if tensor.dtype() == dtype {
        return Ok(tensor.clone());
    }
    from_lanes(dtype, tensor.shape().to_vec(), lanes(tensor))
}

/// One value everywhere.
pub(crate) fn filled(dtype: DType, shape: Vec<usize>, value: Scalar) -> Result<HostTensor, TensorError> {
    let count = pteron_tensor::element_count(&shape)
        .ok_or_else(|| TensorError::Overflow { dtype, shape: shape.clone() })?;
    match value {
        Scalar::Int(value) => from_ints(dtype, shape, std::iter::repeat_n(value, count)),
        Scalar::Bool(value) => from_ints(dtype, shape, std::iter::repeat_n(value.into(), count)),
        Scalar::Float(value) => from_floats(dtype, shape, std::iter::repeat_n(value, count)),
    }
}

/// The first element as a scalar.
pub(crate) fn first(tensor: &HostTensor) -> Option<Scalar> {
    match (lanes(tensor), tensor.dtype()) {
        (Lanes::Int(values), DType::Bool) => values.first().map(|&value| Scalar::Bool(value != 0)),
        (Lanes::Int(values), _) => values.first().map(|&value| Scalar::Int(value)),
        (Lanes::Float(values), _) => values.first().map(|&value| Scalar::Float(value)),
    }
}

impl Lanes {
    /// As floats.
    pub(crate) fn into_floats(self) -> Vec<f64> {
        match self {
            Lanes::Int(values) => values.into_iter().map(|value| value as f64).collect(),
            Lanes::Float(values) => values,
        }
    }

    /// The lanes at those places, in that order.
    pub(crate) fn pick(&self, places: impl Iterator<Item = usize>) -> Lanes {
        match self {
            Lanes::Int(values) => Lanes::Int(places.map(|place| values[place]).collect()),
            Lanes::Float(values) => Lanes::Float(places.map(|place| values[place]).collect()),
        }
    }
}

fn elements<T: Lane>(tensor: &HostTensor) -> &[T] {
    // A host tensor is aligned for its dtype and holds whole elements.
    bytemuck::cast_slice(tensor.bytes())
}

fn from_elements<T: Lane>(
    dtype: DType,
    shape: Vec<usize>,
    values: impl Iterator<Item = T>,
) -> Result<HostTensor, TensorError> {
    let mut tensor = HostTensor::zeros(dtype, shape)?;
    let len = tensor.len();
    let mut given = 0;
    for (slot, value) in bytemuck::cast_slice_mut::<u8, T>(tensor.bytes_mut()).iter_mut().zip(values) {
        *slot = value;
        given += 1;
    }
    if given != len {
        let shape = tensor.shape().to_vec();
        return Err(TensorError::Size { dtype, shape, want: len * dtype.size(), got: given * dtype.size() });
    }
    Ok(tensor)
}

/// Copies `data` out of a dtype-blind buffer by element number: the loop behind every shape operator.
pub(crate) fn pick_elements(
    tensor: &HostTensor,
    shape: Vec<usize>,
    mut places: impl Iterator<Item = usize>,
) -> Result<HostTensor, TensorError> {
    pick_places(tensor, shape, &mut places)
}

fn pick_places(
    tensor: &HostTensor,
    shape: Vec<usize>,
    places: &mut dyn Iterator<Item = usize>,
) -> Result<HostTensor, TensorError> {
    let mut out = HostTensor::zeros(tensor.dtype(), shape)?;
    let source: &Bytes = tensor.bytes();
    macro_rules! copy {
        ($T:ty) => {{
            let from: &[$T] = bytemuck::cast_slice(source);
            let to: &mut [$T] = bytemuck::cast_slice_mut(out.bytes_mut());
            for slot in to.iter_mut() {
                // Places are made from checked shapes; running out of them leaves zeros.
                let Some(&value) = places.next().and_then(|place| from.get(place)) else { break };
                *slot = value;
            }
        }};
    }
    match tensor.dtype().size() {
        1 => copy!(u8),
        2 => copy!(u16),
        4 => copy!(u32),
        _ => copy!(u64),
    }
    Ok(out)
}
