//! Tensors in host memory: contiguous, row-major, one dtype.

use crate::{Bytes, DType};
use half::{bf16, f16};
use smallvec::SmallVec;

/// A Rust type that holds one element of a dtype.
pub trait Element: bytemuck::Pod {
    /// The dtype whose elements these are.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => { $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })* };
}
elements!(u8 => U8, u16 => U16, u32 => U32, u64 => U64, i8 => I8, i16 => I16, i32 => I32, i64 => I64,
          f16 => F16, bf16 => BF16, f32 => F32, f64 => F64);

/// What can be wrong when a tensor is made or looked at.
#[derive(Debug, thiserror::Error, PartialEq)]
#[allow(missing_docs)] // the messages say it
pub enum TensorError {
    #[error("a {dtype} tensor of shape {shape:?} needs {want} bytes, not {got}")]
    Size { dtype: DType, shape: Vec<usize>, want: usize, got: usize },
    #[error("shape {shape:?} of {dtype} does not fit the address space")]
    Overflow { dtype: DType, shape: Vec<usize> },
    #[error("the tensor holds {got}, not {want}")]
    DType { want: DType, got: DType },
    #[error("tensor data is not aligned for {0}")]
    Alignment(DType),
}

/// One number of any dtype, wide enough to hold it exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// Signed and unsigned integers up to 63 bits.
    Int(i64),
    /// Any float.
    Float(f64),
    /// A truth value.
    Bool(bool),
}

/// Number of elements of a shape; `None` when it overflows.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    // A zero anywhere makes the count zero, whatever the other dims multiply to.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim))
}

/// Dims of nearly all tensors, in place.
type Shape = SmallVec<[usize; 6]>;

/// A contiguous row-major tensor. Cloning shares the memory; writing copies it when it is shared.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    dtype: DType,
    shape: Shape,
    data: Bytes,
}

impl HostTensor {
    /// A tensor over `data`, whose length must fit. Data that is not aligned for the dtype is copied.
    pub fn new(dtype: DType, shape: Vec<usize>, data: Bytes) -> Result<HostTensor, TensorError> {
        let want = byte_size(dtype, &shape)?;
        if data.len() != want {
            return Err(TensorError::Size { dtype, shape, want, got: data.len() });
        }
        let aligned = (data.as_ptr() as usize).is_multiple_of(dtype.size());
        let data = if aligned { data } else { Bytes::copy_of(&data) };
        Ok(HostTensor { dtype, shape: Shape::from_slice(&shape), data })
    }

    /// All zeros.
    pub fn zeros(dtype: DType, shape: Vec<usize>) -> Result<HostTensor, TensorError> {
        let len = byte_size(dtype, &shape)?;
        Ok(HostTensor { dtype, shape: Shape::from_slice(&shape), data: Bytes::zeroed(len) })
    }

    /// A copy of a slice.
    pub fn from_slice<T: Element>(shape: Vec<usize>, values: &[T]) -> Result<HostTensor, TensorError> {
        HostTensor::new(T::DTYPE, shape, Bytes::copy_of(bytemuck::cast_slice(values)))
    }

    /// A bool tensor.
    pub fn from_bools(shape: Vec<usize>, values: &[bool]) -> Result<HostTensor, TensorError> {
        let bytes: Vec<u8> = values.iter().map(|&value| value.into()).collect();
        HostTensor::new(DType::Bool, shape, Bytes::copy_of(&bytes))
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dims, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len() / self.dtype.size()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The raw bytes, shared.
    pub fn bytes(&self) -> &Bytes {
        &self.data
    }

    /// The same tensor over the same memory, with a count of holders of its own: [`Bytes::counted_apart`].
    pub fn counted_apart(&self) -> HostTensor {
        HostTensor { dtype: self.dtype, shape: self.shape.clone(), data: self.data.counted_apart() }
    }

    /// The elements, if they are of type `T`. Bools are read as `u8` through [`HostTensor::bytes`].
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        self.expect::<T>()?;
        bytemuck::try_cast_slice(&self.data).map_err(|_| TensorError::Alignment(self.dtype))
    }

    /// The elements for writing, if they are of type `T`; copies first when the memory is shared.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], TensorError> {
        self.expect::<T>()?;
        let dtype = self.dtype;
        bytemuck::try_cast_slice_mut(self.data.make_mut()).map_err(|_| TensorError::Alignment(dtype))
    }

    /// The raw bytes for writing; copies first when the memory is shared.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.data.make_mut()
    }

    /// Makes this a tensor of another type in the same memory, where nobody else holds that and it has the size: its
    /// bytes, with whatever they held. `None`, and nothing has changed, where it does not.
    pub fn reuse(&mut self, dtype: DType, shape: &[usize]) -> Option<&mut [u8]> {
        if byte_size(dtype, shape).ok()? != self.data.len() {
            return None;
        }
        let bytes = self.data.get_mut()?;
        (self.dtype, self.shape) = (dtype, Shape::from_slice(shape));
        Some(bytes)
    }

    /// The same elements under another shape of the same count, without a copy.
    pub fn reshaped(mut self, shape: Vec<usize>) -> Result<HostTensor, TensorError> {
        let want = byte_size(self.dtype, &shape)?;
        if want != self.data.len() {
            return Err(TensorError::Size { dtype: self.dtype, shape, want, got: self.data.len() });
        }
        self.shape = Shape::from_slice(&shape);
        Ok(self)
    }

    fn expect<T: Element>(&self) -> Result<(), TensorError> {
        if T::DTYPE == self.dtype {
            Ok(())
        } else {
            Err(TensorError::DType { want: T::DTYPE, got: self.dtype })
        }
    }
}

fn byte_size(dtype: DType, shape: &[usize]) -> Result<usize, TensorError> {
    element_count(shape)
        .and_then(|count| count.checked_mul(dtype.size()))
        .filter(|&size| size <= isize::MAX as usize)
        .ok_or_else(|| TensorError::Overflow { dtype, shape: shape.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_overflow_are_errors() {
        assert!(matches!(
            HostTensor::zeros(DType::F32, vec![usize::MAX, 2]),
            Err(TensorError::Overflow { .. })
        ));
        assert_eq!(HostTensor::zeros(DType::F32, vec![usize::MAX, 2, 0]).unwrap().len(), 0);
        assert!(matches!(
            HostTensor::new(DType::F32, vec![2], Bytes::zeroed(7)),
            Err(TensorError::Size { want: 8, got: 7, .. })
        ));
    }

    #[test]
    fn slices_have_the_type_of_the_tensor() {
        let tensor = HostTensor::from_slice(vec![2], &[1.5f32, 2.5]).unwrap();
        assert_eq!(tensor.as_slice::<f32>().unwrap(), &[1.5, 2.5]);
        assert!(tensor.as_slice::<i32>().is_err());
    }
}
