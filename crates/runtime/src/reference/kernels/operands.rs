//! What a kernel is given and what it gives: operands by value, the types of its results, and why it could not
//! compute. Knows nothing of what any op means.

use pteron_ir::ValueId;
use pteron_ir::op::{FloatArg, IntArg};
use pteron_tensor::{DType, HostTensor, Scalar, TensorError};

/// Why a kernel could not compute; whoever runs the graph adds the op, its place and the shapes.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum KernelError {
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error("index {index} is outside an axis of size {size}")]
    Index { index: i64, size: usize },
    #[error("{0}")]
    Invalid(String),
    #[error("{0} is not supported: {1}")]
    Unsupported(&'static str, String),
    #[error("a value is read before it is set")]
    Unset,
}

/// What a kernel gives: one tensor for most ops.
pub(crate) type Computed = Result<HostTensor, KernelError>;

/// Dtype and sizes of a result, as the type rule computed them from the operands at hand.
#[derive(Clone, Debug)]
pub(crate) struct ResultType {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
}

/// What a run-time value is.
#[derive(Clone, Debug)]
pub(crate) enum Datum {
    Tensor(HostTensor),
    Scalar(Scalar),
}

/// What a kernel sees: operands by value, and the types of its results.
pub(crate) struct Operands<'a> {
    /// By value id; dead values are `None`.
    values: &'a mut [Option<Datum>],
    /// Whether this op is the last reader of a value, so that its memory may be reused.
    last_use: &'a dyn Fn(ValueId) -> bool,
    pub(crate) results: Vec<ResultType>,
}

impl<'a> Operands<'a> {
    pub(crate) fn new(
        values: &'a mut [Option<Datum>],
        last_use: &'a dyn Fn(ValueId) -> bool,
        results: Vec<ResultType>,
    ) -> Operands<'a> {
        Operands { values, last_use, results }
    }

    /// A tensor operand.
    pub(crate) fn tensor(&self, value: ValueId) -> Result<&HostTensor, KernelError> {
        match self.values.get(value.0 as usize) {
            Some(Some(Datum::Tensor(tensor))) => Ok(tensor),
            _ => Err(KernelError::Unset),
        }
    }

    /// A tensor operand that may be absent.
    pub(crate) fn maybe(&self, value: Option<ValueId>) -> Result<Option<&HostTensor>, KernelError> {
        value.map(|value| self.tensor(value)).transpose()
    }

    /// A tensor operand to be changed in place: moved out when nobody reads it afterwards, else shared (and so
    /// copied at the first write).
    pub(crate) fn take(&mut self, value: ValueId) -> Result<HostTensor, KernelError> {
        if (self.last_use)(value)
            && let Some(Some(Datum::Tensor(_))) = self.values.get(value.0 as usize)
            && let Some(Datum::Tensor(tensor)) = self.values[value.0 as usize].take()
        {
            return Ok(tensor);
        }
        self.tensor(value).cloned()
    }

    /// A scalar operand.
    pub(crate) fn scalar(&self, value: ValueId) -> Result<Scalar, KernelError> {
        match self.values.get(value.0 as usize) {
            Some(Some(Datum::Scalar(scalar))) => Ok(*scalar),
            _ => Err(KernelError::Unset),
        }
    }

    /// An integer operand.
    pub(crate) fn int(&self, arg: &IntArg<ValueId>) -> Result<i64, KernelError> {
        match arg {
            IntArg::Literal(value) => Ok(*value),
            IntArg::Value(value) => match self.scalar(*value)? {
                Scalar::Int(value) => Ok(value),
                Scalar::Bool(value) => Ok(value.into()),
                Scalar::Float(value) => {
                    Err(KernelError::Invalid(format!("{value} where an integer is needed")))
                }
            },
        }
    }

    /// A float operand; a value may also be an integer or a bool, which is kept as it is.
    pub(crate) fn number(&self, arg: &FloatArg<ValueId>) -> Result<Scalar, KernelError> {
        match arg {
            FloatArg::Literal(value) => Ok(Scalar::Float(*value)),
            FloatArg::Value(value) => self.scalar(*value),
        }
    }

    /// The type of the first result.
    pub(crate) fn out(&self) -> &ResultType {
        &self.results[0]
    }
}
