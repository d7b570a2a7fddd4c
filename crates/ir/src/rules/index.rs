//! Rules of ops that pick and place elements by index tensors.

use super::{Results, RuleError, Typing, invalid, one};
use crate::dim::{Dim, Verdict};
use crate::graph::ValueId;
use crate::op::{IndexArg, IntArg};

impl Typing<'_> {
    pub(crate) fn take(&mut self, x: ValueId, index: &IndexArg<ValueId, ValueId>, axis: i32) -> Results {
        let x = self.tensor(x)?;
        let at = self.axis(axis.into(), x.shape.len())?;
        let picked: &[Dim] = match *index {
            IndexArg::Tensor(index) => &self.int_tensor("an index", index)?.shape,
            IndexArg::Literal(literal) => {
                self.index_exists(&IntArg::Literal(literal), &x.shape[at])?;
                &[]
            }
            IndexArg::Value(value) => {
                self.index_exists(&IntArg::Value(value), &x.shape[at])?;
                &[]
            }
        };
        one(x.dtype, [&x.shape[..at], picked, &x.shape[at + 1..]].concat())
    }

    fn index_exists(&mut self, index: &IntArg<ValueId>, size: &Dim) -> Result<(), RuleError> {
        match (self.int(index)?.as_known(), size.as_known()) {
            (Some(index), Some(size)) if index < -size || index >= size => {
                invalid(format!("index {index} is outside an axis of size {size}"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn take_along_axis(&mut self, x: ValueId, indices: ValueId, axis: i32) -> Results {
        let (x, indices) = (self.tensor(x)?, self.int_tensor("an index", indices)?);
        let rank = x.shape.len();
        if indices.shape.len() != rank {
            return Err(RuleError::Dims {
                what: "ranks of a tensor and its indices",
                a: self.show(&x.shape),
                b: self.show(&indices.shape),
            });
        }
        let Some(at) = self.axis_or_scalar(axis.into(), rank)? else { return one(x.dtype, Vec::new()) };
        let mut shape = Vec::with_capacity(rank);
        for axis in 0..rank {
            shape.push(if axis == at {
                indices.shape[axis].clone()
            } else {
                self.broadcast_dim(&x.shape[axis], &indices.shape[axis])?
            });
        }
        one(x.dtype, shape)
    }

    pub(crate) fn gather(
        &mut self,
        x: ValueId,
        indices: &[ValueId],
        axes: &[i32],
        slice_sizes: &[i32],
    ) -> Results {
        let x = self.tensor(x)?;
        let rank = x.shape.len();
        if indices.len() != axes.len() || slice_sizes.len() != rank {
            return invalid(format!(
                "{} indices for {} axes, {} slice sizes for rank {rank}",
                indices.len(),
                axes.len(),
                slice_sizes.len()
            ));
        }
        let mut seen = vec![false; rank];
        for &axis in axes {
            let at = self.axis(axis.into(), rank)?;
            if std::mem::replace(&mut seen[at], true) {
                return invalid(format!("axis {axis} is indexed twice"));
            }
        }
        for (&slice, size) in slice_sizes.iter().zip(&x.shape) {
            let too_large = self.symbols.at_most(&Dim::known(slice.into()), size) == Verdict::No;
            if slice < 0 || too_large {
                return invalid(format!(
                    "slices of {slice} from an axis of size {}",
                    self.symbols.show(size)
                ));
            }
        }
        let mut shape = Vec::new();
        for &index in indices {
            let index = self.int_tensor("an index", index)?;
            shape = self.broadcast(&shape, &index.shape)?;
        }
        shape.extend(slice_sizes.iter().map(|&size| Dim::known(size.into())));
        one(x.dtype, shape)
    }

    pub(crate) fn index_copy(
        &mut self,
        dst: ValueId,
        update: ValueId,
        indices: ValueId,
        axis: i32,
    ) -> Results {
        let (dst, update) = (self.tensor(dst)?, self.tensor(update)?);
        let indices = self.int_tensor("an index", indices)?;
        let [count] = indices.shape.as_slice() else {
            return Err(RuleError::Rank { what: "indices", got: indices.shape.len(), want: "1".into() });
        };
        let at = self.axis(axis.into(), dst.shape.len())?;
        let mut rows = dst.shape.clone();
        rows[at] = count.clone();
        self.same_shape("an update and the rows that it replaces", &update.shape, &rows)?;
        one(dst.dtype, dst.shape.clone())
    }

    /// Indices and updates broadcast to each other; on the other axes they start at 0 and may be shorter than
    /// `x`, as in PyTorch.
    pub(crate) fn scatter_add(
        &mut self,
        x: ValueId,
        indices: ValueId,
        updates: ValueId,
        axis: i32,
    ) -> Results {
        let (x, indices) = (self.tensor(x)?, self.int_tensor("an index", indices)?);
        let updates = self.tensor(updates)?;
        let rank = x.shape.len();
        let written = self.broadcast(&indices.shape, &updates.shape)?;
        if indices.shape.len() != rank || updates.shape.len() != rank {
            return Err(RuleError::Dims {
                what: "ranks of a tensor, its indices and updates",
                a: self.show(&x.shape),
                b: self.show(&written),
            });
        }
        let at = self.axis_or_scalar(axis.into(), rank)?;
        for (axis, (written, size)) in written.iter().zip(&x.shape).enumerate() {
            if Some(axis) != at && self.symbols.at_most(written, size) == Verdict::No {
                return Err(RuleError::Dims {
                    what: "sizes beside the indexed axis",
                    a: self.symbols.show(size),
                    b: self.symbols.show(written),
                });
            }
        }
        one(x.dtype, x.shape.clone())
    }
}
