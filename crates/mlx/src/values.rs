//! What a graph's values are while it runs on MLX: arrays with the types that the type rules gave them, and numbers. A
//! walk holds arrays that may be yet to be handed over ([`Held`]); what outlives it holds those that were ([`Kept`]).

use crate::error::{MlxError, invalid};
use crate::ffi::{Array, Shared};
use crate::known::Known;
use pteron_ir::op::{FloatArg, IntArg};
use pteron_ir::{Dim, TensorType, Type, TypeSource, ValueId};
use pteron_tensor::{DType, HostTensor, Scalar, element_count};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

/// Dtype and sizes of a tensor at hand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ArrayType {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
}

impl ArrayType {
    /// Elements.
    pub(crate) fn count(&self) -> usize {
        element_count(&self.shape).unwrap_or(usize::MAX)
    }

    /// Sizes as the shim takes them.
    pub(crate) fn ints(&self) -> Vec<i64> {
        self.shape.iter().map(|&size| size as i64).collect()
    }
}

impl std::fmt::Display for ArrayType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.dtype, self.shape)
    }
}

/// An array in the hands of a walk.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    /// Made by the walk, perhaps yet to be computed.
    Made(Rc<Array>),
    /// Handed over before, and perhaps shared with other threads; see [`Held::enter`].
    Shared(Arc<Shared>),
}

impl Held {
    /// An array that was handed over before, for a walk of this thread.
    pub(crate) fn enter(array: Arc<Shared>) -> Result<Held, MlxError> {
        array.enter()?;
        Ok(Held::Shared(array))
    }

    /// A copy on the host; waits for it, and computes what is not computed yet.
    pub(crate) fn to_host(&self) -> Result<HostTensor, MlxError> {
        match self {
            Held::Made(array) => array.to_host(),
            Held::Shared(array) => array.to_host(),
        }
    }
}

impl Deref for Held {
    type Target = Array;

    fn deref(&self) -> &Array {
        match self {
            Held::Made(array) => array,
            // That this thread may use it was seen to when it was entered, and a `Held` never leaves its thread.
            Held::Shared(array) => array.entered(),
        }
    }
}

impl From<Array> for Held {
    fn from(array: Array) -> Held {
        Held::Made(Rc::new(array))
    }
}

/// An array and its type.
#[derive(Clone, Debug)]
pub(crate) struct Tensor<A = Held> {
    pub(crate) array: A,
    pub(crate) ty: Arc<ArrayType>,
    /// What the host knows of its elements without asking MLX.
    pub(crate) known: Option<Known>,
}

/// A tensor that outlives its run: weights, state, outputs.
pub(crate) type Kept = Tensor<Arc<Shared>>;

impl Kept {
    /// The same for a walk of this thread.
    pub(crate) fn enter(self) -> Result<Tensor, MlxError> {
        self.map(&mut Held::enter)
    }
}

impl<A> Tensor<A> {
    /// An array of a type that is known to be its own.
    pub(crate) fn new(array: impl Into<A>, ty: ArrayType) -> Tensor<A> {
        Tensor { array: array.into(), ty: Arc::new(ty), known: None }
    }

    /// The same with what the host knows of its elements.
    pub(crate) fn with_known(self, known: Option<Known>) -> Tensor<A> {
        Tensor { known, ..self }
    }

    /// The same with another holder of the array.
    pub(crate) fn map<B>(self, to: &mut impl FnMut(A) -> Result<B, MlxError>) -> Result<Tensor<B>, MlxError> {
        Ok(Tensor { array: to(self.array)?, ty: self.ty, known: self.known })
    }

    /// Bytes of the elements.
    pub(crate) fn bytes(&self) -> u64 {
        (self.ty.count() as u64).saturating_mul(self.ty.dtype.size() as u64)
    }
}

/// What a value is.
#[derive(Clone, Debug)]
pub(crate) enum Datum<A = Held> {
    Tensor(Tensor<A>),
    Scalar(Scalar),
}

impl<A> Datum<A> {
    /// The same with another holder of the array.
    pub(crate) fn map<B>(self, to: &mut impl FnMut(A) -> Result<B, MlxError>) -> Result<Datum<B>, MlxError> {
        Ok(match self {
            Datum::Tensor(tensor) => Datum::Tensor(tensor.map(to)?),
            Datum::Scalar(scalar) => Datum::Scalar(scalar),
        })
    }
}

impl Datum {
    /// The same with what the host knows of a tensor's elements.
    pub(crate) fn with_known(self, known: Option<Known>) -> Datum {
        match self {
            Datum::Tensor(tensor) => Datum::Tensor(tensor.with_known(known)),
            Datum::Scalar(scalar) => Datum::Scalar(scalar),
        }
    }

    pub(crate) fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Datum::Tensor(tensor) => Some(tensor),
            Datum::Scalar(_) => None,
        }
    }
}

/// All values of a graph, with their types for the rules.
pub(crate) struct Values {
    data: Vec<Option<Datum>>,
    types: Vec<Option<Type>>,
}

impl Values {
    /// Room for that many, none of them set.
    pub(crate) fn new(count: usize) -> Values {
        Values { data: (0..count).map(|_| None).collect(), types: (0..count).map(|_| None).collect() }
    }

    /// Sets a value; what it was before.
    pub(crate) fn set(&mut self, value: ValueId, datum: Datum) -> Option<Datum> {
        let ty = match &datum {
            Datum::Tensor(tensor) => Type::Tensor(TensorType::known(tensor.ty.dtype, &tensor.ty.shape)),
            Datum::Scalar(Scalar::Int(number)) => Type::Int(Dim::known(*number)),
            Datum::Scalar(Scalar::Bool(truth)) => Type::Int(Dim::known((*truth).into())),
            Datum::Scalar(Scalar::Float(_)) => Type::Float,
        };
        let index = value.0 as usize;
        if let Some(slot) = self.types.get_mut(index) {
            *slot = Some(ty);
        }
        self.data.get_mut(index).and_then(|slot| slot.replace(datum))
    }

    /// Forgets a value, so that its memory may be donated; its type stays, for errors.
    pub(crate) fn clear(&mut self, value: ValueId) -> Option<Datum> {
        self.data.get_mut(value.0 as usize).and_then(Option::take)
    }

    pub(crate) fn get(&self, value: ValueId) -> Result<&Datum, MlxError> {
        let datum = self.data.get(value.0 as usize).and_then(Option::as_ref);
        datum.ok_or_else(|| MlxError::Invalid(format!("%{} is read before it is set", value.0)))
    }

    pub(crate) fn tensor(&self, value: ValueId) -> Result<&Tensor, MlxError> {
        match self.get(value)? {
            Datum::Tensor(tensor) => Ok(tensor),
            Datum::Scalar(_) => invalid(format!("%{} is a number, not a tensor", value.0)),
        }
    }

    pub(crate) fn scalar(&self, value: ValueId) -> Result<Scalar, MlxError> {
        match self.get(value)? {
            Datum::Scalar(scalar) => Ok(*scalar),
            Datum::Tensor(_) => invalid(format!("%{} is a tensor, not a number", value.0)),
        }
    }

    pub(crate) fn int(&self, arg: &IntArg<ValueId>) -> Result<i64, MlxError> {
        match arg {
            IntArg::Literal(value) => Ok(*value),
            IntArg::Value(value) => match self.scalar(*value)? {
                Scalar::Int(value) => Ok(value),
                Scalar::Bool(value) => Ok(value.into()),
                Scalar::Float(value) => invalid(format!("{value} where an integer is needed")),
            },
        }
    }

    pub(crate) fn number(&self, arg: &FloatArg<ValueId>) -> Result<Scalar, MlxError> {
        match arg {
            FloatArg::Literal(value) => Ok(Scalar::Float(*value)),
            FloatArg::Value(value) => self.scalar(*value),
        }
    }
}

impl TypeSource for Values {
    fn type_of(&self, value: ValueId) -> Option<&Type> {
        self.types.get(value.0 as usize)?.as_ref()
    }
}
