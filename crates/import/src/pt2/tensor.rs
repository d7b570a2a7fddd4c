//! A tensor as torch stores it: a storage borrowed from the file, and where in it the elements lie.
//!
//! Every extent is checked when one is made, so that reading elements later cannot leave the storage. Memory
//! is taken only when a tensor that is not contiguous is asked for as a whole.

use super::argument::ScalarType;
use pteron_format::Limits;
use pteron_tensor::{Bytes, HostTensor, element_count};

/// A strided view of a storage.
#[derive(Clone, Debug, PartialEq)]
pub struct StridedTensor {
    dtype: ScalarType,
    sizes: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    storage: Bytes,
}

impl StridedTensor {
    /// A view whose every element lies in the storage; the error says what does not fit.
    pub fn new(
        dtype: ScalarType,
        sizes: &[i64],
        strides: &[i64],
        offset: i64,
        storage: Bytes,
        limits: &Limits,
    ) -> Result<StridedTensor, String> {
        if sizes.len() != strides.len() {
            return Err(format!("{} sizes, but {} strides", sizes.len(), strides.len()));
        }
        if sizes.len() > limits.rank {
            return Err(format!("{} dims exceed the limit `rank` of {}", sizes.len(), limits.rank));
        }
        let natural = |values: &[i64], what: &str| -> Result<Vec<usize>, String> {
            let values = values.iter().map(|&value| usize::try_from(value));
            values.collect::<Result<_, _>>().map_err(|_| format!("a {what} is negative"))
        };
        let tensor = StridedTensor {
            dtype,
            sizes: natural(sizes, "size")?,
            strides: natural(strides, "stride")?,
            offset: usize::try_from(offset).map_err(|_| "its offset is negative".to_owned())?,
            storage,
        };
        let bytes = tensor.checked_bytes().ok_or_else(|| format!("sizes {sizes:?} are too large"))?;
        if bytes as u64 > limits.tensor_bytes {
            return Err(format!("{bytes} bytes exceed the limit `tensor_bytes` of {}", limits.tensor_bytes));
        }
        let end = tensor.end().and_then(|end| end.checked_mul(dtype.size()));
        match end {
            Some(end) if end <= tensor.storage.len() => Ok(tensor),
            _ => Err(format!(
                "sizes {sizes:?}, strides {strides:?} and offset {offset} of {} reach beyond its {} stored bytes",
                dtype.name(),
                tensor.storage.len()
            )),
        }
    }

    fn checked_bytes(&self) -> Option<usize> {
        element_count(&self.sizes)?.checked_mul(self.dtype.size())
    }

    /// One past the last element that is used; an empty tensor uses none, wherever it begins.
    fn end(&self) -> Option<usize> {
        if self.sizes.contains(&0) {
            return Some(0);
        }
        let spans = self.sizes.iter().zip(&self.strides);
        let last = spans.map(|(size, stride)| (size - 1).checked_mul(*stride));
        last.into_iter().try_fold(self.offset, |sum, span| sum.checked_add(span?))?.checked_add(1)
    }

    /// Type of one element.
    pub fn dtype(&self) -> ScalarType {
        self.dtype
    }

    /// Dims, outermost first.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Elements between neighbours of each dim.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// The storage that it looks at; tensors that share one have the same memory here.
    pub fn storage(&self) -> &Bytes {
        &self.storage
    }

    /// Bytes of its elements, each counted once for every index that leads to it.
    pub fn byte_size(&self) -> u64 {
        // `new` proved that this does not overflow.
        self.checked_bytes().unwrap_or_default() as u64
    }

    /// Whether the elements lie side by side in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1usize;
        self.sizes.contains(&0)
            || self.sizes.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
                let fits = size == 1 || stride == expected;
                expected = expected.saturating_mul(size);
                fits
            })
    }

    /// The elements' bytes in row-major order: borrowed where they are contiguous, copied otherwise.
    pub fn to_bytes(&self) -> Bytes {
        let bytes = self.checked_bytes().unwrap_or_default();
        if bytes == 0 {
            return Bytes::zeroed(0);
        }
        let element = self.dtype.size();
        if self.is_contiguous() {
            let start = self.offset * element;
            // `new` proved the range; were it wrong, the copy below would be no better.
            if let Some(shared) = self.storage.slice(start..start + bytes) {
                return shared;
            }
        }
        let mut packed = Bytes::zeroed(bytes);
        let mut index = vec![0usize; self.sizes.len()];
        let mut from = self.offset;
        for target in packed.make_mut().chunks_exact_mut(element) {
            target.copy_from_slice(&self.storage[from * element..(from + 1) * element]);
            for dim in (0..index.len()).rev() {
                index[dim] += 1;
                from += self.strides[dim];
                if index[dim] < self.sizes[dim] {
                    break;
                }
                from -= self.strides[dim] * self.sizes[dim];
                index[dim] = 0;
            }
        }
        packed
    }

    /// The same as a host tensor; an error names a dtype that the rest of the workspace has not.
    pub fn to_host(&self) -> Result<HostTensor, String> {
        let dtype =
            self.dtype.dtype().ok_or_else(|| format!("no backend computes with {}", self.dtype.name()))?;
        HostTensor::new(dtype, self.sizes.clone(), self.to_bytes()).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(sizes: &[i64], strides: &[i64], offset: i64) -> Result<StridedTensor, String> {
        let storage = Bytes::copy_of(&(0u8..24).collect::<Vec<_>>());
        StridedTensor::new(ScalarType::I16, sizes, strides, offset, storage, &Limits::default())
    }

    #[test]
    fn elements_are_found_by_their_strides() {
        type Case<'a> = (&'a [i64], &'a [i64], i64, &'a [u8]);
        let cases: [Case<'_>; 6] = [
            (&[2, 2], &[2, 1], 1, &[2, 3, 4, 5, 6, 7, 8, 9]),
            (&[2, 2], &[1, 2], 0, &[0, 1, 4, 5, 2, 3, 6, 7]),
            (&[3], &[0], 11, &[22, 23, 22, 23, 22, 23]),
            (&[], &[], 5, &[10, 11]),
            (&[2, 1], &[6, 99], 0, &[0, 1, 12, 13]),
            (&[0, 5], &[5, 1], 0, &[]),
        ];
        for (sizes, strides, offset, want) in cases {
            let tensor = view(sizes, strides, offset).unwrap();
            assert_eq!(&*tensor.to_bytes(), want, "{sizes:?} {strides:?}");
            assert_eq!(tensor.to_host().unwrap().shape(), tensor.sizes());
        }
    }

    #[test]
    fn what_reaches_beyond_the_storage_is_an_error() {
        let cases: [(&[i64], &[i64], i64, &str); 8] = [
            (&[13], &[1], 0, "reach beyond its 24 stored bytes"),
            (&[12], &[1], 1, "reach beyond"),
            (&[2], &[i64::MAX], 0, "reach beyond"),
            (&[i64::MAX, 4], &[0, 0], 0, "too large"),
            (&[1 << 33], &[0], 0, "tensor_bytes"),
            (&[-1], &[1], 0, "a size is negative"),
            (&[1], &[1, 1], 0, "1 sizes, but 2 strides"),
            (&[1; 17], &[1; 17], 0, "rank"),
        ];
        for (sizes, strides, offset, want) in cases {
            let error = view(sizes, strides, offset).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }
}
