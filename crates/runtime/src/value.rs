//! What goes in and out of a method: tensors on the host or still on a device, and the small values that
//! programs pass around.

use crate::Result;
use pteron_tensor::{DType, HostTensor, Scalar};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A tensor that a backend keeps in its own memory until somebody asks for it.
pub trait DeviceTensor: Send + Sync + fmt::Debug {
    /// Element type.
    fn dtype(&self) -> DType;
    /// Dims, outermost first.
    fn shape(&self) -> &[usize];
    /// A copy on the host; waits for whatever computes it.
    fn to_host(&self) -> Result<HostTensor>;
    /// Where the greatest element of the last row is, along the last axis, and the first of them where several are: one
    /// integer as a tensor of that dtype and shape, which stays there too. It is -1 where no element is the greatest: one is
    /// not a number or infinite, or none is above negative infinity. `None` where it has to be found on the host.
    fn argmax_last(&self, dtype: DType, shape: &[usize]) -> Result<Option<Arc<dyn DeviceTensor>>> {
        let _ = (dtype, shape);
        Ok(None)
    }
    /// For the backend that made it.
    fn as_any(&self) -> &dyn Any;
}

/// An argument or a result.
#[derive(Clone, Debug)]
pub enum Value {
    /// A tensor in host memory.
    Tensor(HostTensor),
    /// A tensor that is still where it was computed.
    Device(Arc<dyn DeviceTensor>),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Str(String),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A list of floats.
    Floats(Vec<f64>),
    /// A list of truth values.
    Bools(Vec<bool>),
    /// A list of tensors, some of which may be absent.
    Tensors(Vec<Option<HostTensor>>),
    /// Nothing.
    None,
}

impl Value {
    /// The tensor, fetched from its device where need be; `None` for anything else.
    pub fn to_tensor(&self) -> Result<Option<HostTensor>> {
        match self {
            Value::Tensor(tensor) => Ok(Some(tensor.clone())),
            Value::Device(tensor) => tensor.to_host().map(Some),
            _ => Ok(None),
        }
    }

    /// The tensor, if it is one in host memory.
    pub fn as_tensor(&self) -> Option<&HostTensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, if it is an integer, a float or a truth value.
    pub fn as_scalar(&self) -> Option<Scalar> {
        match self {
            Value::Int(value) => Some(Scalar::Int(*value)),
            Value::Float(value) => Some(Scalar::Float(*value)),
            Value::Bool(value) => Some(Scalar::Bool(*value)),
            _ => None,
        }
    }

    /// Dtype and shape of a tensor, or the value itself, as errors and listings show it.
    pub fn describe(&self) -> String {
        match self {
            Value::Tensor(tensor) => describe_tensor(tensor.dtype(), tensor.shape()),
            Value::Device(tensor) => describe_tensor(tensor.dtype(), tensor.shape()),
            Value::Int(value) => format!("int {value}"),
            Value::Float(value) => format!("float {value}"),
            Value::Bool(value) => format!("bool {value}"),
            Value::Str(value) => format!("text {value:?}"),
            Value::Ints(values) => format!("ints {values:?}"),
            Value::Floats(values) => format!("floats {values:?}"),
            Value::Bools(values) => format!("bools {values:?}"),
            Value::Tensors(values) => format!("a list of {} tensors", values.len()),
            Value::None => "nothing".to_owned(),
        }
    }
}

impl From<HostTensor> for Value {
    fn from(tensor: HostTensor) -> Value {
        Value::Tensor(tensor)
    }
}

/// `f32 [2, 3]`.
pub(crate) fn describe_tensor(dtype: DType, shape: &[usize]) -> String {
    format!("{dtype} {shape:?}")
}
