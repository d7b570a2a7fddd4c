//! Walks over elements: shapes, strides, and the order in which a row-major tensor is visited through them.

use super::PortableError;
use pteron_tensor::{HostTensor, element_count};

/// Strides of a row-major tensor, in elements.
pub(crate) fn row_major(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![0; shape.len()];
    let mut step = 1isize;
    for (stride, &dim) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        // Shapes of existing tensors do not overflow; those with a zero dim have nothing to visit.
        step = step.saturating_mul(dim.max(1) as isize);
    }
    strides
}

/// Element numbers in row-major order of `shape`, each `offset` plus index times strides.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    shape: Vec<usize>,
    strides: Vec<isize>,
    index: Vec<usize>,
    at: isize,
    left: usize,
}

impl Walk {
    /// A walk; the caller knows that every element number lies inside its tensor.
    pub(crate) fn new(shape: &[usize], strides: &[isize], offset: isize) -> Walk {
        Walk {
            shape: shape.to_vec(),
            // A stride that is never taken may be anything.
            strides: shape
                .iter()
                .zip(strides)
                .map(|(&dim, &stride)| if dim > 1 { stride } else { 0 })
                .collect(),
            index: vec![0; shape.len()],
            at: offset,
            left: element_count(shape).unwrap_or(0),
        }
    }

    /// A walk over `from` as it is broadcast to `to`.
    pub(crate) fn broadcast(from: &[usize], to: &[usize]) -> Walk {
        let mut strides = vec![0; to.len()];
        let lead = to.len().saturating_sub(from.len());
        for ((slot, stride), &dim) in strides[lead..].iter_mut().zip(row_major(from)).zip(from) {
            *slot = if dim == 1 { 0 } else { stride };
        }
        Walk::new(to, &strides, 0)
    }
}

impl Iterator for Walk {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let here = self.at;
        for axis in (0..self.shape.len()).rev() {
            self.index[axis] += 1;
            self.at += self.strides[axis];
            if self.index[axis] < self.shape[axis] {
                break;
            }
            self.at -= self.strides[axis] * self.shape[axis] as isize;
            self.index[axis] = 0;
        }
        Some(here as usize)
    }
}

/// The shape that two shapes broadcast to.
pub(crate) fn broadcast_shape(a: &[usize], b: &[usize]) -> Result<Vec<usize>, PortableError> {
    let rank = a.len().max(b.len());
    let dim = |shape: &[usize], axis: usize| match (axis + shape.len()).checked_sub(rank) {
        Some(at) => shape[at],
        None => 1,
    };
    (0..rank)
        .map(|axis| match (dim(a, axis), dim(b, axis)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(PortableError::Invalid(format!("shapes {a:?} and {b:?} do not broadcast"))),
        })
        .collect()
}

/// An axis counted from the front; a tensor of rank 0 counts as having one.
pub(crate) fn axis(axis: i64, rank: usize) -> Result<usize, PortableError> {
    let size = rank.max(1) as i64;
    if axis < -size || axis >= size {
        return Err(PortableError::Invalid(format!("axis {axis} is outside a tensor of rank {rank}")));
    }
    Ok(axis.rem_euclid(size) as usize)
}

/// A list of axes as a mask; an empty one means all.
pub(crate) fn axis_mask(axes: &[i64], rank: usize) -> Result<Vec<bool>, PortableError> {
    let mut mask = vec![axes.is_empty(); rank];
    for &at in axes {
        let at = axis(at, rank)?;
        if let Some(slot) = mask.get_mut(at) {
            *slot = true;
        }
    }
    Ok(mask)
}

/// How a tensor is reduced over some axes: the shape that is left, where each group begins, and where its
/// members lie from there.
pub(crate) struct Groups {
    pub(crate) shape: Vec<usize>,
    pub(crate) starts: Walk,
    pub(crate) members: Vec<usize>,
}

/// Groups of the elements that a reduction over `mask` joins.
pub(crate) fn groups(shape: &[usize], mask: &[bool], keep: bool) -> Groups {
    let strides = row_major(shape);
    let side = |reduced: bool| -> (Vec<usize>, Vec<isize>) {
        let axes = (0..shape.len()).filter(|&axis| mask[axis] == reduced);
        axes.map(|axis| (shape[axis], strides[axis])).unzip()
    };
    let ((kept, kept_strides), (joined, joined_strides)) = (side(false), side(true));
    let left = match keep {
        true => shape.iter().zip(mask).map(|(&dim, &reduced)| if reduced { 1 } else { dim }).collect(),
        false => kept.clone(),
    };
    Groups {
        shape: left,
        starts: Walk::new(&kept, &kept_strides, 0),
        members: Walk::new(&joined, &joined_strides, 0).collect(),
    }
}

/// A tensor seen as `[outer, axis, inner]`; one of rank 0 as `[1, 1, 1]`.
pub(crate) fn around(tensor: &HostTensor, axis: usize) -> (usize, usize, usize) {
    around_axis(tensor.shape(), axis)
}

/// The same of a shape.
pub(crate) fn around_axis(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    // Shapes are admitted by the product of their dims, so these do not overflow.
    let outer = shape.iter().take(axis).product();
    let inner = shape.iter().skip(axis + 1).product();
    (outer, shape.get(axis).copied().unwrap_or(1), inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_visit_in_row_major_order() {
        assert_eq!(Walk::new(&[2, 3], &[1, 2], 0).collect::<Vec<_>>(), [0, 2, 4, 1, 3, 5]);
        assert_eq!(Walk::new(&[3], &[-1], 2).collect::<Vec<_>>(), [2, 1, 0]);
        assert_eq!(Walk::new(&[], &[], 0).collect::<Vec<_>>(), [0]);
        assert_eq!(Walk::new(&[2, 0], &[1, 1], 0).count(), 0);
        assert_eq!(Walk::broadcast(&[2, 1], &[2, 2]).collect::<Vec<_>>(), [0, 0, 1, 1]);
        assert_eq!(Walk::broadcast(&[2], &[2, 2]).collect::<Vec<_>>(), [0, 1, 0, 1]);
    }

    #[test]
    fn groups_split_kept_from_joined_axes() {
        let groups = groups(&[2, 3], &[false, true], true);
        assert_eq!((groups.shape, groups.members), (vec![2, 1], vec![0, 1, 2]));
        assert_eq!(groups.starts.collect::<Vec<_>>(), [0, 3]);
    }
}
