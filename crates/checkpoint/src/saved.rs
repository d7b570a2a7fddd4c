//! Weights that `torch.save` wrote under names of a publisher's own, by the names that architectures ask for.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use half::{bf16, f16};
use pteron_import::pt2::argument::ScalarType;
use pteron_import::pt2::{Saved, StridedTensor};
use pteron_models::{Form, Wanted, WeightError, WeightSource};
use pteron_tensor::Bytes;

/// The weights of a file.
pub(crate) struct SavedWeights {
    saved: Saved,
    /// Where they are in the file.
    prefix: &'static str,
    /// A name as the file has it, behind the prefix.
    stored: fn(&str) -> String,
    /// The last tensor in row-major order, by its name: published ones lie transposed, and are read row by row.
    last: Mutex<Option<(String, Bytes)>>,
}

impl SavedWeights {
    pub(crate) fn new(saved: Saved, prefix: &'static str, stored: fn(&str) -> String) -> SavedWeights {
        SavedWeights { saved, prefix, stored, last: Mutex::new(None) }
    }

    fn find(&self, wanted: Wanted<'_>) -> Result<&StridedTensor, WeightError> {
        let name = (self.stored)(wanted.name);
        let missing = || WeightError::Missing { name: name.clone() };
        let tensor = self.saved.tensors.get(&format!("{}{name}", self.prefix)).ok_or_else(missing)?;
        if !same_shape(tensor.sizes(), wanted.shape) {
            let (found, wanted) = (tensor.sizes().to_vec(), wanted.shape.to_vec());
            return Err(WeightError::Shape { name, found, wanted });
        }
        match tensor.dtype() {
            ScalarType::F16 | ScalarType::F32 | ScalarType::BF16 => Ok(tensor),
            other => {
                let problem = format!("it is stored as {}; f32, f16 and bf16 are read", other.name());
                Err(WeightError::Read { name, problem })
            }
        }
    }

    /// The elements of a tensor in order.
    fn ordered(&self, name: &str, tensor: &StridedTensor) -> Bytes {
        // A panic elsewhere leaves a whole tensor here, or none.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((known, bytes)) if known == name => bytes.clone(),
            _ => {
                let bytes = tensor.to_bytes();
                *last = Some((name.to_owned(), bytes.clone()));
                bytes
            }
        }
    }
}

/// Whether a tensor has the shape that is asked for: a convolution of one place at a time is a matrix, and stored with axes
/// of size 1 behind it.
pub(crate) fn same_shape(stored: &[usize], wanted: &[usize]) -> bool {
    stored.strip_prefix(wanted).is_some_and(|rest| rest.iter().all(|&size| size == 1))
}

impl WeightSource for SavedWeights {
    fn form(&self, wanted: Wanted<'_>) -> Result<Form, WeightError> {
        self.find(wanted).map(|_| Form::Floats)
    }

    fn read(&self, wanted: Wanted<'_>, elements: Range<usize>, out: &mut [f32]) -> Result<(), WeightError> {
        let tensor = self.find(wanted)?;
        let size = tensor.dtype().size();
        let short =
            || WeightError::Read { name: wanted.name.to_owned(), problem: "it is too short".to_owned() };
        let bytes = self.ordered(wanted.name, tensor);
        let bytes = bytes.get(elements.start * size..elements.end * size).ok_or_else(short)?;
        match tensor.dtype() {
            ScalarType::F16 => {
                let halves = bytes.as_chunks::<2>().0.iter();
                out.iter_mut().zip(halves).for_each(|(out, half)| *out = f16::from_le_bytes(*half).to_f32());
            }
            ScalarType::BF16 => {
                let halves = bytes.as_chunks::<2>().0.iter();
                out.iter_mut().zip(halves).for_each(|(out, half)| *out = bf16::from_le_bytes(*half).to_f32());
            }
            _ => {
                let words = bytes.as_chunks::<4>().0.iter();
                out.iter_mut().zip(words).for_each(|(out, word)| *out = f32::from_le_bytes(*word));
            }
        }
        Ok(())
    }

    fn beyond(&self, weights: &HashSet<String>) -> Vec<String> {
        let taken: HashSet<String> = weights.iter().map(|name| (self.stored)(name)).collect();
        let names = self.saved.tensors.keys().filter_map(|name| name.strip_prefix(self.prefix));
        names.filter(|name| !taken.contains(*name)).map(str::to_owned).collect()
    }

    fn stored_bytes(&self, name: &str) -> Option<u64> {
        let stored = format!("{}{}", self.prefix, (self.stored)(name));
        self.saved.tensors.get(&stored).map(StridedTensor::byte_size)
    }
}
