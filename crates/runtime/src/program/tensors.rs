//! Tensors of the program itself: their type, their place in planned memory, and constant contents.

use crate::portable::complex::CARRIER;
use crate::reference::interpret::extent;
use crate::value::describe_tensor;
use crate::{Error, Result};
use pteron_format::Limits;
use pteron_format::pte::{self, TensorShapeDynamism};
use pteron_tensor::{DType, HostTensor, element_count};

/// ExecuTorch's `ScalarType` of two f32 that are a complex number.
const COMPLEX: i8 = 9;

/// A tensor of the program.
#[derive(Debug)]
pub(crate) struct TensorPlan {
    pub(crate) dtype: DType,
    /// Whether its elements are complex numbers, carried in that dtype.
    pub(crate) is_complex: bool,
    /// The shape, or its upper bound.
    pub(crate) sizes: Vec<usize>,
    pub(crate) dynamic: bool,
    /// Dims from outer to inner in memory.
    pub(crate) order: Vec<u8>,
    /// Where in planned memory it lies, if it does.
    pub(crate) place: Option<Place>,
    /// Contents that never change.
    pub(crate) constant: Option<HostTensor>,
}

/// A place in planned memory. Tensors at one place share it: a view that the exporter left out is a second
/// tensor at the place of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// The arena, from 1.
    pub(crate) arena: u32,
    /// Bytes from its start.
    pub(crate) offset: u64,
}

impl TensorPlan {
    /// Type and place of a table, its contents still open.
    pub(super) fn new(table: &pte::Tensor, limits: &Limits) -> Result<TensorPlan, String> {
        let is_complex = table.scalar_type.code() == COMPLEX;
        let dtype = if is_complex { Some(CARRIER) } else { table.scalar_type.dtype() };
        let dtype = dtype
            .ok_or_else(|| format!("elements of type {} are not supported", table.scalar_type.code()))?;
        let sizes =
            table.sizes.iter().map(|&size| usize::try_from(size).map_err(|_| format!("a size of {size}")));
        let sizes = sizes.collect::<Result<Vec<usize>, _>>()?;
        if extent(&sizes).saturating_mul(dtype.size() as u64) > limits.tensor_bytes {
            let allowed = limits.tensor_bytes;
            return Err(format!(
                "{} exceeds the limit `tensor_bytes` of {allowed}",
                describe_tensor(dtype, &sizes)
            ));
        }
        let dynamic = match table.shape_dynamism {
            TensorShapeDynamism::Static => false,
            TensorShapeDynamism::DynamicBound => true,
            TensorShapeDynamism::DynamicUnbound => return Err("a size without a bound".into()),
        };
        let place = table.allocation_info.as_ref();
        let place = place.map(|details| Place { arena: details.memory_id, offset: details.offset() });
        let (order, constant) = (table.dim_order.to_vec(), None);
        Ok(TensorPlan { dtype, is_complex, sizes, dynamic, order, place, constant })
    }

    /// Whether it lies in memory as it is read.
    pub(crate) fn is_row_major(&self) -> bool {
        self.order.iter().copied().eq(0..self.order.len() as u8)
    }

    /// Bytes at the declared sizes.
    pub(crate) fn bytes(&self) -> u64 {
        // Checked when the plan was made.
        element_count(&self.sizes).unwrap_or(0) as u64 * self.dtype.size() as u64
    }

    /// Refuses a tensor that this one cannot hold. A dynamic one is held to its number of elements, as in
    /// ExecuTorch: which dims are dynamic is not stored.
    pub(crate) fn check(&self, tensor: &HostTensor) -> Result<()> {
        self.check_shape(tensor.dtype(), tensor.shape())
    }

    /// The same for a tensor that lies elsewhere.
    pub(crate) fn check_shape(&self, dtype: DType, shape: &[usize]) -> Result<()> {
        let fits = match self.dynamic {
            true => shape.len() == self.sizes.len() && element_count(shape) <= element_count(&self.sizes),
            false => shape == self.sizes,
        };
        if fits && dtype == self.dtype {
            return Ok(());
        }
        Err(Error::Invalid(format!("{} where {} is declared", describe_tensor(dtype, shape), self)))
    }

    /// The bytes of another tensor of the same place, seen as this one. `None` where that means nothing: the
    /// sizes differ, or one of them has its dims in another order.
    pub(crate) fn view(&self, tensor: &HostTensor, order: &[u8]) -> Option<HostTensor> {
        if (tensor.dtype(), tensor.shape(), order) == (self.dtype, &self.sizes[..], &self.order[..]) {
            return Some(tensor.clone());
        }
        let plain = |order: &[u8]| order.iter().copied().eq(0..order.len() as u8);
        if self.dynamic || !plain(order) || !plain(&self.order) || tensor.bytes().len() as u64 != self.bytes()
        {
            return None;
        }
        HostTensor::new(self.dtype, self.sizes.clone(), tensor.bytes().clone()).ok()
    }
}

impl std::fmt::Display for TensorPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let most = if self.dynamic { "at most " } else { "" };
        match self.is_complex {
            true => write!(f, "c64 {most}{:?}", self.sizes),
            false => write!(f, "{} {most}{:?}", self.dtype, self.sizes),
        }
    }
}
