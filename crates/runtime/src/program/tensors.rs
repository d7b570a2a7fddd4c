//! Tensors of the program itself: what they are, and where their contents come from. The file plans them into
//! shared memory; here each is a value, and only those that outlive a call are kept.

use crate::reference::interpret::extent;
use crate::value::describe_tensor;
use crate::{Error, Result};
use pteron_format::Limits;
use pteron_format::pte::{self, TensorShapeDynamism};
use pteron_tensor::{DType, HostTensor, element_count};

/// A tensor of the program.
#[derive(Debug)]
pub(crate) struct TensorPlan {
    pub(crate) dtype: DType,
    /// The shape, or its upper bound.
    pub(crate) sizes: Vec<usize>,
    pub(crate) dynamic: bool,
    pub(crate) source: TensorSource,
}

/// Where a tensor's contents come from.
#[derive(Clone, Debug)]
pub(crate) enum TensorSource {
    /// Set during the run.
    Run,
    /// The same for ever.
    Constant(HostTensor),
    /// A buffer of the session, by number.
    Buffer(usize),
}

impl TensorPlan {
    /// Type and sizes of a table, its contents still open.
    pub(super) fn new(table: &pte::Tensor, limits: &Limits) -> Result<TensorPlan, String> {
        let dtype = table.scalar_type.dtype();
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
        Ok(TensorPlan { dtype, sizes, dynamic, source: TensorSource::Run })
    }

    /// Refuses a tensor that this one cannot hold. A dynamic one is held to its number of elements, as in
    /// ExecuTorch: which dims are dynamic is not stored.
    pub(crate) fn check(&self, tensor: &HostTensor) -> Result<()> {
        let fits = match self.dynamic {
            true => tensor.rank() == self.sizes.len() && Some(tensor.len()) <= element_count(&self.sizes),
            false => tensor.shape() == self.sizes,
        };
        if fits && tensor.dtype() == self.dtype {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "{} where {} is declared",
            describe_tensor(tensor.dtype(), tensor.shape()),
            self
        )))
    }
}

impl std::fmt::Display for TensorPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let most = if self.dynamic { "at most " } else { "" };
        write!(f, "{} {most}{:?}", self.dtype, self.sizes)
    }
}
