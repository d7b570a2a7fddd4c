//! What several patterns look for: axes, casts, views that only add or drop axes of size 1, products.

use crate::rewrite::Site;
use pteron_ir::{Dim, Op, Ssa, ValueId, Verdict};
use pteron_tensor::DType;

/// An axis from the front.
pub(crate) fn axis_of(axis: i64, rank: usize) -> Option<usize> {
    let counted = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(counted).ok().filter(|axis| *axis < rank)
}

impl Site<'_> {
    pub(crate) fn dtype(&self, value: ValueId) -> Option<DType> {
        self.tensor(value).map(|ty| ty.dtype)
    }

    pub(crate) fn rank(&self, value: ValueId) -> Option<usize> {
        self.tensor(value).map(|ty| ty.shape.len())
    }

    /// Whether two tensors surely have the same shape.
    pub(crate) fn same_shape(&self, a: ValueId, b: ValueId) -> bool {
        match (self.tensor(a), self.tensor(b)) {
            (Some(a), Some(b)) => self.equal_dims(&a.shape, &b.shape),
            _ => false,
        }
    }

    pub(crate) fn equal_dims(&self, a: &[Dim], b: &[Dim]) -> bool {
        let symbols = &self.graph().symbols;
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| symbols.equal(a, b) == Verdict::Yes)
    }

    /// Whether two tensors surely have the same type.
    pub(crate) fn same_type(&self, a: ValueId, b: ValueId) -> bool {
        self.dtype(a) == self.dtype(b) && self.same_shape(a, b)
    }

    /// The last axis' size, if it is known.
    pub(crate) fn features(&self, value: ValueId) -> Option<i64> {
        self.tensor(value)?.shape.last()?.as_known()
    }

    /// What a value was before it was converted, and the dtype it was converted to.
    pub(crate) fn before_cast(&self, value: ValueId) -> Option<(ValueId, DType)> {
        match self.definition(value)? {
            Op::AsType { x, scalar_type } => Some((*x, *scalar_type)),
            _ => None,
        }
    }

    /// What a value was before it was converted, or itself.
    pub(crate) fn without_cast(&self, value: ValueId) -> ValueId {
        self.before_cast(value).map_or(value, |(x, _)| x)
    }

    /// The two sides of a product, both ways round.
    pub(crate) fn factors(&self, value: ValueId) -> [Option<(ValueId, ValueId)>; 2] {
        match self.definition(value) {
            Some(Op::Multiply { a, b }) => [Some((*a, *b)), Some((*b, *a))],
            _ => [None, None],
        }
    }

    /// The two sides of a sum, both ways round.
    pub(crate) fn terms(&self, value: ValueId) -> [Option<(ValueId, ValueId)>; 2] {
        match self.definition(value) {
            Some(Op::Add { a, b }) => [Some((*a, *b)), Some((*b, *a))],
            _ => [None, None],
        }
    }

    /// What a node squeezes, if its type tells which axes go: one of a size that is not known goes when it turns out
    /// to be 1.
    pub(crate) fn squeezed(&self, op: &Op<Ssa>) -> Option<ValueId> {
        let Op::Squeeze { x, dims } = op else { return None };
        let shape = &self.tensor(*x)?.shape;
        let is_known = |axis: usize| shape[axis].as_known().is_some();
        let listed = dims.as_deref().unwrap_or_default();
        let told = match listed.is_empty() {
            true => (0..shape.len()).all(is_known),
            false => listed.iter().all(|&axis| axis_of(i64::from(axis), shape.len()).is_some_and(is_known)),
        };
        told.then_some(*x)
    }

    /// What a value is a view of, seen through axes of size 1 that come and go. The order of the others stays, so that
    /// both hold the same elements in the same order.
    pub(crate) fn without_unit_axes(&self, mut value: ValueId) -> ValueId {
        loop {
            let x = match self.definition(value) {
                Some(Op::ExpandDims { x, .. } | Op::Contiguous { x }) => *x,
                Some(Op::Reshape { x, .. }) if self.same_but_unit_axes(*x, value) => *x,
                Some(op) => match self.squeezed(op) {
                    Some(x) => x,
                    None => return value,
                },
                None => return value,
            };
            value = x;
        }
    }

    /// Whether two shapes are the same but for axes of size 1.
    fn same_but_unit_axes(&self, a: ValueId, b: ValueId) -> bool {
        let wide = |value: ValueId| -> Option<Vec<Dim>> {
            Some(self.tensor(value)?.shape.iter().filter(|dim| dim.as_known() != Some(1)).cloned().collect())
        };
        match (wide(a), wide(b)) {
            (Some(a), Some(b)) => self.equal_dims(&a, &b),
            _ => false,
        }
    }
}
