//! The tensors that a compiled program carries: weights as they lie in the archive, and what the compiler made of
//! them (packed, transposed, numbers of the source model).
//!
//! Names are unique in a method; whoever writes the file puts the method's prefix before them. Bytes of the archive
//! are borrowed, never copied to be looked at.

use indexmap::IndexMap;
use pteron_ir::TensorType;
use pteron_tensor::{Bytes, DType, HostTensor};

/// A tensor with its name.
#[derive(Clone, Debug)]
pub struct ConstantData {
    /// Its elements, row-major.
    pub tensor: HostTensor,
}

/// The constants of one method.
#[derive(Clone, Debug, Default)]
pub struct Constants {
    by_name: IndexMap<String, ConstantData>,
}

impl Constants {
    /// The constant of that name.
    pub fn get(&self, name: &str) -> Option<&HostTensor> {
        self.by_name.get(name).map(|data| &data.tensor)
    }

    /// Adds a constant; one that is there already under that name stays.
    pub fn add(&mut self, name: &str, tensor: HostTensor) {
        self.by_name.entry(name.to_owned()).or_insert(ConstantData { tensor });
    }

    /// All constants in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &HostTensor)> {
        self.by_name.iter().map(|(name, data)| (name.as_str(), &data.tensor))
    }

    /// Keeps the constants that `wanted` names.
    pub fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.by_name.retain(|name, _| wanted(name));
    }
}

/// A number of one element in a dtype; `None` where the dtype has no such number type here.
pub(crate) fn scalar(dtype: DType, value: f64, integer: Option<i64>) -> HostTensor {
    let whole = integer.unwrap_or(value as i64);
    let bytes: Vec<u8> = match dtype {
        DType::Bool => vec![u8::from(value != 0.0)],
        DType::U8 => vec![whole as u8],
        DType::I8 => (whole as i8).to_le_bytes().to_vec(),
        DType::U16 => (whole as u16).to_le_bytes().to_vec(),
        DType::I16 => (whole as i16).to_le_bytes().to_vec(),
        DType::U32 => (whole as u32).to_le_bytes().to_vec(),
        DType::I32 => (whole as i32).to_le_bytes().to_vec(),
        DType::U64 => (whole as u64).to_le_bytes().to_vec(),
        DType::I64 => whole.to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f64(value).to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
    };
    HostTensor::new(dtype, Vec::new(), Bytes::copy_of(&bytes))
        .unwrap_or_else(|_| unreachable!("one element has the size of its dtype"))
}

/// The type of a tensor that is there.
pub(crate) fn type_of(tensor: &HostTensor) -> TensorType {
    TensorType::known(tensor.dtype(), tensor.shape())
}

/// The elements in another order of axes.
pub(crate) fn permuted(tensor: &HostTensor, perm: &[usize]) -> Option<HostTensor> {
    let shape: Vec<usize> = perm.iter().map(|&axis| tensor.shape()[axis]).collect();
    let mut strides = vec![1usize; tensor.rank()];
    for axis in (0..tensor.rank().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * tensor.shape()[axis + 1];
    }
    let strides: Vec<usize> = perm.iter().map(|&axis| strides[axis]).collect();
    let size = tensor.dtype().size();
    let mut out = Bytes::zeroed(tensor.bytes().len());
    let (mut index, mut from) = (vec![0usize; shape.len()], 0usize);
    let source: &[u8] = tensor.bytes();
    for target in out.make_mut().chunks_exact_mut(size) {
        target.copy_from_slice(&source[from * size..(from + 1) * size]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            from += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            from -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    HostTensor::new(tensor.dtype(), shape, out).ok()
}
