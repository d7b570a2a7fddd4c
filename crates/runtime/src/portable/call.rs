//! The arguments of one operator call, checked as they are taken.

use super::PortableError;
use super::lanes;
use crate::reference::interpret::extent;
use crate::{RunControl, Value};
use pteron_tensor::{DType, HostTensor, Scalar, element_count};

/// What the program declares of an out argument.
#[derive(Clone, Debug)]
pub(crate) struct OutType {
    /// The dtype in which the result is written.
    pub(crate) dtype: DType,
    /// The sizes now or their bound.
    pub(crate) sizes: Vec<usize>,
}

/// One call of an operator.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// The inputs.
    pub(crate) args: &'a [Value],
    /// Declared types of what is written; of numbers, nothing.
    pub(crate) outs: &'a [OutType],
    /// What the run may still take.
    pub(crate) control: &'a RunControl,
}

impl<'a> Call<'a> {
    fn arg(&self, index: usize) -> &'a Value {
        self.args.get(index).unwrap_or(&Value::None)
    }

    fn wrong<T>(&self, index: usize, wanted: &'static str) -> Result<T, PortableError> {
        Err(PortableError::Argument { index, wanted, given: self.arg(index).describe() })
    }

    /// Refuses a result that what is written cannot hold, before it is computed.
    pub(crate) fn admit(&self, shape: &[usize]) -> Result<(), PortableError> {
        let room =
            self.outs.iter().filter_map(|out| element_count(&out.sizes)).fold(0usize, usize::saturating_add);
        match element_count(shape) {
            // A shape without elements can still have dims that are too long to walk.
            Some(count) if count <= room && extent(shape) <= LONGEST => Ok(()),
            _ => {
                Err(PortableError::Invalid(format!("a result of shape {shape:?} where {room} elements fit")))
            }
        }
    }

    /// Counts work that goes beyond the elements read and written; refuses what is more than the run may take.
    pub(crate) fn charge(&self, factors: &[usize]) -> Result<(), PortableError> {
        let work = factors.iter().fold(1u64, |work, &factor| work.saturating_mul(factor as u64));
        self.control.charge(work).map_err(|error| PortableError::Invalid(error.to_string()))
    }

    /// The dtype of the first out argument.
    pub(crate) fn out_dtype(&self) -> DType {
        self.outs.first().map_or(DType::F32, |out| out.dtype)
    }

    pub(crate) fn tensor(&self, index: usize) -> Result<&'a HostTensor, PortableError> {
        match self.arg(index) {
            Value::Tensor(tensor) => Ok(tensor),
            _ => self.wrong(index, "a tensor"),
        }
    }

    pub(crate) fn maybe_tensor(&self, index: usize) -> Result<Option<&'a HostTensor>, PortableError> {
        match self.arg(index) {
            Value::None => Ok(None),
            _ => self.tensor(index).map(Some),
        }
    }

    pub(crate) fn int(&self, index: usize) -> Result<i64, PortableError> {
        match self.arg(index) {
            Value::Int(value) => Ok(*value),
            Value::Bool(value) => Ok((*value).into()),
            _ => self.wrong(index, "an integer"),
        }
    }

    pub(crate) fn maybe_int(&self, index: usize) -> Result<Option<i64>, PortableError> {
        match self.arg(index) {
            Value::None => Ok(None),
            _ => self.int(index).map(Some),
        }
    }

    pub(crate) fn bool(&self, index: usize) -> Result<bool, PortableError> {
        match self.arg(index) {
            Value::Bool(value) => Ok(*value),
            Value::Int(value) => Ok(*value != 0),
            _ => self.wrong(index, "a truth value"),
        }
    }

    /// A number of any kind.
    pub(crate) fn scalar(&self, index: usize) -> Result<Scalar, PortableError> {
        match self.arg(index) {
            // An operator may take a tensor of one element where it says a number.
            Value::Tensor(tensor) if tensor.len() == 1 => Ok(lanes::first(tensor).unwrap_or(Scalar::Int(0))),
            other => other.as_scalar().map_or_else(|| self.wrong(index, "a number"), Ok),
        }
    }

    pub(crate) fn maybe_scalar(&self, index: usize) -> Result<Option<Scalar>, PortableError> {
        match self.arg(index) {
            Value::None => Ok(None),
            _ => self.scalar(index).map(Some),
        }
    }

    /// A number of any kind as a float.
    pub(crate) fn float(&self, index: usize) -> Result<f64, PortableError> {
        self.scalar(index).map(as_float)
    }

    pub(crate) fn maybe_float(&self, index: usize) -> Result<Option<f64>, PortableError> {
        self.maybe_scalar(index).map(|scalar| scalar.map(as_float))
    }

    pub(crate) fn text(&self, index: usize) -> Result<&'a str, PortableError> {
        match self.arg(index) {
            Value::Str(text) => Ok(text),
            Value::None => Ok(""),
            _ => self.wrong(index, "text"),
        }
    }

    /// A list of integers; nothing is an empty one.
    pub(crate) fn ints(&self, index: usize) -> Result<Vec<i64>, PortableError> {
        match self.arg(index) {
            Value::Ints(values) => Ok(values.clone()),
            Value::Int(value) => Ok(vec![*value]),
            Value::None => Ok(Vec::new()),
            _ => self.wrong(index, "a list of integers"),
        }
    }

    /// A list of floats; nothing is an empty one.
    pub(crate) fn floats(&self, index: usize) -> Result<Vec<f64>, PortableError> {
        match self.arg(index) {
            Value::Floats(values) => Ok(values.clone()),
            Value::None => Ok(Vec::new()),
            _ => self.wrong(index, "a list of floats"),
        }
    }

    /// A list of truth values.
    pub(crate) fn bools(&self, index: usize) -> Result<&'a [bool], PortableError> {
        match self.arg(index) {
            Value::Bools(values) => Ok(values),
            _ => self.wrong(index, "a list of truth values"),
        }
    }

    /// A list of sizes.
    pub(crate) fn sizes(&self, index: usize) -> Result<Vec<usize>, PortableError> {
        self.ints(index)?.into_iter().map(as_size).collect()
    }

    /// A list of tensors, none of them absent.
    pub(crate) fn tensors(&self, index: usize) -> Result<Vec<&'a HostTensor>, PortableError> {
        let list = self.maybe_tensors(index)?;
        let present: Vec<&HostTensor> = list.iter().copied().flatten().collect();
        if present.len() == list.len() { Ok(present) } else { self.wrong(index, "a list of tensors") }
    }

    /// A list of tensors, some of which may be absent.
    pub(crate) fn maybe_tensors(&self, index: usize) -> Result<Vec<Option<&'a HostTensor>>, PortableError> {
        match self.arg(index) {
            Value::Tensors(list) => Ok(list.iter().map(Option::as_ref).collect()),
            _ => self.wrong(index, "a list of tensors"),
        }
    }

    /// A number or a tensor, as an operand of arithmetic.
    pub(crate) fn is_tensor(&self, index: usize) -> bool {
        matches!(self.arg(index), Value::Tensor(_))
    }
}

/// Dims of a shape without elements multiply to no more than this.
const LONGEST: u64 = 1 << 32;

pub(crate) fn as_float(scalar: Scalar) -> f64 {
    match scalar {
        Scalar::Int(value) => value as f64,
        Scalar::Float(value) => value,
        Scalar::Bool(value) => u8::from(value).into(),
    }
}

pub(crate) fn as_size(value: i64) -> Result<usize, PortableError> {
    usize::try_from(value).map_err(|_| PortableError::Invalid(format!("{value} is not a size")))
}
