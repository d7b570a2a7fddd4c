//! Tensors that cross the border without a copy: memory of ours that others look at, memory of others that we look at.

use crate::error::{PteronError, Result};
use crate::open::size;
use pteron::{ByteOwner, Bytes, HostTensor};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, uniffi::Enum)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned 8 bits.
    U8,
    /// Unsigned 16 bits.
    U16,
    /// Unsigned 32 bits.
    U32,
    /// Unsigned 64 bits.
    U64,
    /// Signed 8 bits.
    I8,
    /// Signed 16 bits.
    I16,
    /// Signed 32 bits.
    I32,
    /// Signed 64 bits.
    I64,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
}

const DTYPES: [(DType, pteron::DType); 13] = [
    (DType::Bool, pteron::DType::Bool),
    (DType::U8, pteron::DType::U8),
    (DType::U16, pteron::DType::U16),
    (DType::U32, pteron::DType::U32),
    (DType::U64, pteron::DType::U64),
    (DType::I8, pteron::DType::I8),
    (DType::I16, pteron::DType::I16),
    (DType::I32, pteron::DType::I32),
    (DType::I64, pteron::DType::I64),
    (DType::F16, pteron::DType::F16),
    (DType::Bf16, pteron::DType::BF16),
    (DType::F32, pteron::DType::F32),
    (DType::F64, pteron::DType::F64),
];

impl DType {
    pub(crate) fn of(dtype: pteron::DType) -> Result<DType> {
        let found = DTYPES.iter().find(|(_, facade)| *facade == dtype);
        found.map(|(own, _)| *own).ok_or_else(|| PteronError::run(format_args!("{dtype} is not known here")))
    }

    fn facade(self) -> Result<pteron::DType> {
        let found = DTYPES.iter().find(|(own, _)| *own == self);
        let unknown = || PteronError::invalid(format_args!("{self:?} is not known here"));
        found.map(|(_, facade)| *facade).ok_or_else(unknown)
    }
}

/// Keeps memory of another language alive: as long as this is not dropped there, the memory stays where it is and as it is.
#[uniffi::export(with_foreign)]
pub trait Keeper: Send + Sync {
    /// What is kept, for messages about it.
    fn what(&self) -> String;
}

/// Memory of another language.
struct Kept {
    address: usize,
    len: usize,
    _keeper: Arc<dyn Keeper>,
}

impl ByteOwner for Kept {
    fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: whoever made the tensor by `Tensor::over` promised that so many bytes lie there, and that they stay there
        // and unchanged until the keeper is dropped, which is after this.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) }
    }
}

/// A tensor in memory, with its elements row by row.
#[derive(Debug, uniffi::Object)]
pub struct Tensor(pub(crate) HostTensor);

#[uniffi::export]
impl Tensor {
    /// A tensor of bytes, in the machine's order.
    #[uniffi::constructor]
    pub fn new(dtype: DType, shape: Vec<u64>, bytes: Vec<u8>) -> Result<Arc<Tensor>, PteronError> {
        Tensor::of(dtype, shape, Bytes::copy_of(&bytes))
    }

    /// A tensor over memory of the caller, which is not copied. The caller promises that `byte_length` bytes lie at that
    /// address, and that they stay there and unchanged until the keeper is let go.
    #[uniffi::constructor]
    pub fn over(
        dtype: DType,
        shape: Vec<u64>,
        address: u64,
        byte_length: u64,
        keeper: Arc<dyn Keeper>,
    ) -> Result<Arc<Tensor>, PteronError> {
        let (at, len) = (size(address), size(byte_length));
        let align = dtype.facade()?.size();
        if len > isize::MAX as usize || (len > 0 && (at == 0 || !at.is_multiple_of(align))) {
            let what = keeper.what();
            return Err(PteronError::invalid(format_args!(
                "{what} is no memory for elements of {align} bytes"
            )));
        }
        let owner = Arc::new(Kept { address: at, len, _keeper: keeper });
        let bytes = Bytes::shared(owner, 0..len).ok_or_else(|| PteronError::invalid("no such memory"))?;
        Tensor::of(dtype, shape, bytes)
    }

    /// Element type.
    pub fn dtype(&self) -> Result<DType, PteronError> {
        DType::of(self.0.dtype())
    }

    /// Dims, outermost first.
    pub fn shape(&self) -> Vec<u64> {
        self.0.shape().iter().map(|&dim| dim as u64).collect()
    }

    /// A copy of its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.bytes().to_vec()
    }

    /// Where its bytes lie, as long as this object is held. They are for reading.
    pub fn address(&self) -> u64 {
        self.0.bytes().as_ptr() as usize as u64
    }

    /// How many bytes it has.
    pub fn byte_length(&self) -> u64 {
        self.0.bytes().len() as u64
    }
}

impl Tensor {
    fn of(dtype: DType, shape: Vec<u64>, bytes: Bytes) -> Result<Arc<Tensor>> {
        let shape = shape.into_iter().map(size).collect();
        let tensor = HostTensor::new(dtype.facade()?, shape, bytes);
        Ok(Arc::new(Tensor(tensor.map_err(PteronError::invalid)?)))
    }
}
