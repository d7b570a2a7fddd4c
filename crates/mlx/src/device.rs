//! Outputs that stay where MLX computes them until somebody asks; they may be on their way when they are given out.

use crate::calls::{Call, Mlx};
use crate::error::MlxError;
use crate::known::Known;
use crate::lower::scalar_tensor;
use crate::values::{ArrayType, Held, Kept};
use pteron_runtime::{DeviceTensor, Result};
use pteron_tensor::{DType, HostTensor, Scalar, element_count};
use std::any::Any;
use std::sync::Arc;

/// An MLX array as a value of the program.
pub(crate) struct DeviceArray {
    mlx: Mlx,
    tensor: Kept,
}

impl DeviceArray {
    pub(crate) fn new(mlx: Mlx, tensor: Kept) -> DeviceArray {
        DeviceArray { mlx, tensor }
    }

    pub(crate) fn tensor(&self) -> &Kept {
        &self.tensor
    }

    /// Where the greatest element of the last row is, handed over.
    fn place_of_greatest(&self, row: usize, ty: ArrayType) -> Result<DeviceArray, MlxError> {
        let (mlx, rows) = (self.mlx, self.tensor.ty.count() / row);
        let [rows, columns] = [rows as i64, row as i64];
        let array = Held::enter(self.tensor.array.clone())?;
        let flat = mlx.one(Call::Reshape, &[&array], &[rows, columns])?;
        let last = mlx.one(Call::Slice, &[&flat], &[rows - 1, 0, rows, columns, 1, 1])?;
        let found = mlx.one(Call::Argmax, &[&last], &[1, 0])?;
        let found = mlx.one(Call::AsType, &[&found], &[ty.dtype.code().into()])?;
        // A comparison with what is not a number never holds.
        let bound = |bound: f64| mlx.copy(&scalar_tensor(Scalar::Float(bound), self.tensor.ty.dtype)?);
        let below = mlx.one(Call::Less, &[&last, &bound(f64::INFINITY)?], &[])?;
        let above = mlx.one(Call::Greater, &[&last, &bound(f64::NEG_INFINITY)?], &[])?;
        let (all, any) = (mlx.one(Call::All, &[&below], &[0, 1])?, mlx.one(Call::Any, &[&above], &[0, 1])?);
        let is_found = mlx.one(Call::LogicalAnd, &[&all, &any], &[])?;
        let none = mlx.copy(&scalar_tensor(Scalar::Int(-1), ty.dtype)?)?;
        let found = mlx.one(Call::Where, &[&is_found, &found, &none], &[])?;
        let shaped = mlx.one(Call::Reshape, &[&found], &ty.ints())?;
        let before = self.tensor.array.flight().cloned().into_iter().collect();
        let (mut arrays, _) = mlx.submit(vec![shaped.into()], before)?;
        let array = arrays.pop().ok_or_else(|| MlxError::Invalid("an array went missing".into()))?;
        let known = Known::Within(-1, columns - 1);
        Ok(DeviceArray::new(mlx, Kept::new(array, ty).with_known(Some(known))))
    }
}

impl DeviceTensor for DeviceArray {
    fn dtype(&self) -> DType {
        self.tensor.ty.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.tensor.ty.shape
    }

    fn to_host(&self) -> Result<HostTensor> {
        Ok(self.tensor.array.to_host()?)
    }

    fn argmax_last(&self, dtype: DType, shape: &[usize]) -> Result<Option<Arc<dyn DeviceTensor>>> {
        let row = self.shape().last().copied().unwrap_or(0);
        if row == 0
            || self.tensor.ty.count() < row
            || !self.dtype().is_float()
            || element_count(shape) != Some(1)
        {
            return Ok(None);
        }
        let found = self.place_of_greatest(row, ArrayType { dtype, shape: shape.to_vec() })?;
        Ok(Some(Arc::new(found)))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl std::fmt::Debug for DeviceArray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.tensor, f)
    }
}
