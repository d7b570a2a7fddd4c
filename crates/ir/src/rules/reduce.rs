//! Rules of reductions, running sums and ordering along an axis.

use super::{Results, RuleError, Typing, float_of, invalid, one};
use crate::dim::Dim;
use crate::graph::ValueId;
use crate::op::IntArg;
use pteron_tensor::DType;

impl Typing<'_> {
    pub(crate) fn reduce_to_float(&mut self, x: ValueId, axes: Option<&[i32]>, keepdims: bool) -> Results {
        one(float_of(self.tensor(x)?.dtype), self.reduced(x, axes, keepdims)?)
    }

    pub(crate) fn reduce_to_bool(&mut self, x: ValueId, axes: Option<&[i32]>, keepdims: bool) -> Results {
        one(DType::Bool, self.reduced(x, axes, keepdims)?)
    }

    pub(crate) fn reduce_widening(&mut self, x: ValueId, axes: Option<&[i32]>, keepdims: bool) -> Results {
        let dtype = match self.tensor(x)?.dtype {
            DType::Bool | DType::I8 | DType::I16 => DType::I32,
            DType::U8 | DType::U16 => DType::U32,
            other => other,
        };
        one(dtype, self.reduced(x, axes, keepdims)?)
    }

    pub(crate) fn reduce_nonempty(&mut self, x: ValueId, axes: Option<&[i32]>, keepdims: bool) -> Results {
        self.has_elements(x, axes)?;
        one(self.tensor(x)?.dtype, self.reduced(x, axes, keepdims)?)
    }

    pub(crate) fn median(&mut self, x: ValueId, axes: Option<&[i32]>, keepdims: bool) -> Results {
        self.has_elements(x, axes)?;
        self.reduce_to_float(x, axes, keepdims)
    }

    pub(crate) fn arg_reduce(&mut self, x: ValueId, axis: i32, keepdims: bool) -> Results {
        self.has_elements(x, Some(&[axis]))?;
        one(DType::U32, self.reduced(x, Some(&[axis]), keepdims)?)
    }

    pub(crate) fn softmax(&mut self, x: ValueId, axis: i32) -> Results {
        let x = self.tensor(x)?;
        self.axis_or_scalar(axis.into(), x.shape.len())?;
        one(float_of(x.dtype), x.shape.clone())
    }

    pub(crate) fn cumsum(&mut self, x: ValueId, axis: i32) -> Results {
        let x = self.tensor(x)?;
        self.axis_or_scalar(axis.into(), x.shape.len())?;
        one(if x.dtype == DType::Bool { DType::I32 } else { x.dtype }, x.shape.clone())
    }

    pub(crate) fn along_axis(&mut self, x: ValueId, axis: i32) -> Results {
        let x = self.tensor(x)?;
        self.axis_or_scalar(axis.into(), x.shape.len())?;
        one(x.dtype, x.shape.clone())
    }

    pub(crate) fn indices_along_axis(&mut self, x: ValueId, axis: i32) -> Results {
        let x = self.tensor(x)?;
        self.axis_or_scalar(axis.into(), x.shape.len())?;
        one(DType::U32, x.shape.clone())
    }

    pub(crate) fn partition(&mut self, x: ValueId, kth: &IntArg<ValueId>, axis: i32) -> Results {
        self.kth_exists(x, kth, axis)?;
        self.along_axis(x, axis)
    }

    pub(crate) fn arg_partition(&mut self, x: ValueId, kth: &IntArg<ValueId>, axis: i32) -> Results {
        self.kth_exists(x, kth, axis)?;
        self.indices_along_axis(x, axis)
    }

    fn kth_exists(&mut self, x: ValueId, kth: &IntArg<ValueId>, axis: i32) -> Result<(), RuleError> {
        let x = self.tensor(x)?;
        let size = match self.axis_or_scalar(axis.into(), x.shape.len())? {
            Some(axis) => x.shape[axis].as_known(),
            None => Some(1),
        };
        match (self.int(kth)?.as_known(), size) {
            (Some(kth), Some(size)) if kth < -size || kth >= size => {
                invalid(format!("there is no element {kth} along an axis of size {size}"))
            }
            _ => Ok(()),
        }
    }

    /// Which axes are reduced: all of them where none is listed.
    fn reduced_axes(&self, rank: usize, axes: Option<&[i32]>) -> Result<Vec<bool>, RuleError> {
        let axes = axes.unwrap_or_default();
        if axes.is_empty() {
            return Ok(vec![true; rank]);
        }
        let mut reduced = vec![false; rank];
        for &axis in axes {
            let Some(at) = self.axis_or_scalar(axis.into(), rank)? else { continue };
            if std::mem::replace(&mut reduced[at], true) {
                return invalid(format!("axis {axis} is reduced twice"));
            }
        }
        Ok(reduced)
    }

    fn reduced(&self, x: ValueId, axes: Option<&[i32]>, keepdims: bool) -> Result<Vec<Dim>, RuleError> {
        let shape = &self.tensor(x)?.shape;
        let reduced = self.reduced_axes(shape.len(), axes)?;
        let dims = shape.iter().zip(reduced).filter_map(|(dim, reduced)| match (reduced, keepdims) {
            (false, _) => Some(dim.clone()),
            (true, true) => Some(Dim::known(1)),
            (true, false) => None,
        });
        Ok(dims.collect())
    }

    /// A largest element needs an element, unless no result is asked for either.
    fn has_elements(&self, x: ValueId, axes: Option<&[i32]>) -> Result<(), RuleError> {
        let shape = &self.tensor(x)?.shape;
        let reduced = self.reduced_axes(shape.len(), axes)?;
        let zero = |dim: &Dim| dim.as_known() == Some(0);
        let nothing_to_find = shape.iter().zip(&reduced).any(|(dim, &reduced)| reduced && zero(dim));
        let nothing_asked = shape.iter().zip(&reduced).any(|(dim, &reduced)| !reduced && zero(dim));
        if nothing_to_find && !nothing_asked {
            return invalid(format!("there is no element to choose in {}", self.show(shape)));
        }
        Ok(())
    }
}
