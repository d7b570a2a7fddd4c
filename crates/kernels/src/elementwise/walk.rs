//! The order in which a result meets its operands' elements: axes of all of them joined where they lie alike, then
//! visited as runs along the innermost one.

use crate::view::MAX_RANK;

/// The most tensors that are walked together.
pub(crate) const MAX_OPERANDS: usize = 9;

/// Joined axes of several tensors of one shape, outermost first; strides are in elements.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    rank: usize,
    sizes: [usize; MAX_RANK],
    strides: [[isize; MAX_RANK]; MAX_OPERANDS],
    operands: usize,
}

impl Walk {
    /// Of tensors that all have the given sizes; a stride of 0 repeats elements.
    pub(crate) fn new(sizes: &[usize], strides: &[&[isize]]) -> Walk {
        let mut walk = Walk {
            rank: 0,
            sizes: [1; MAX_RANK],
            strides: [[0; MAX_RANK]; MAX_OPERANDS],
            operands: strides.len(),
        };
        for (axis, &size) in sizes.iter().enumerate() {
            if size == 1 {
                continue;
            }
            let last = walk.rank.wrapping_sub(1);
            let joins = walk.rank > 0
                && strides
                    .iter()
                    .zip(&walk.strides)
                    .all(|(strides, joined)| joined[last] == strides[axis].wrapping_mul(size as isize));
            let at = if joins { last } else { walk.rank };
            walk.sizes[at] = if joins { walk.sizes[at].saturating_mul(size) } else { size };
            for (joined, strides) in walk.strides.iter_mut().zip(strides) {
                joined[at] = strides[axis];
            }
            walk.rank = at + 1;
        }
        walk.rank = walk.rank.max(1);
        walk
    }

    /// Joined axes; at least one.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Size of a joined axis, and the strides of the first two tensors along it.
    pub(crate) fn axis(&self, axis: usize) -> (usize, [isize; 2]) {
        (self.sizes[axis], [self.strides[0][axis], self.strides[1][axis]])
    }

    /// Elements along the innermost axis.
    pub(crate) fn inner(&self) -> usize {
        self.sizes[self.rank - 1]
    }

    /// The stride of a tensor along the innermost axis.
    pub(crate) fn inner_stride(&self, operand: usize) -> isize {
        self.strides[operand][self.rank - 1]
    }

    /// Whether a tensor is one element, repeated.
    pub(crate) fn is_constant(&self, operand: usize) -> bool {
        self.strides[operand][..self.rank].iter().all(|&stride| stride == 0)
    }

    /// Starts at an element, counted in row-major order.
    pub(crate) fn cursor(&self, element: usize) -> Cursor<'_> {
        let mut cursor = Cursor { walk: self, at: [0; MAX_RANK], offsets: [0; MAX_OPERANDS] };
        let mut left = element;
        for axis in (0..self.rank).rev() {
            let size = self.sizes[axis].max(1);
            let at = if axis == 0 { left } else { left % size };
            left /= size;
            cursor.at[axis] = at;
            for (offset, strides) in cursor.offsets.iter_mut().zip(&self.strides) {
                *offset += strides[axis] * at as isize;
            }
        }
        cursor
    }
}

/// A place in a [`Walk`].
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    walk: &'a Walk,
    at: [usize; MAX_RANK],
    offsets: [isize; MAX_OPERANDS],
}

impl Cursor<'_> {
    /// Where the next element of a tensor lies.
    pub(crate) fn offset(&self, operand: usize) -> isize {
        self.offsets[operand]
    }

    /// Elements up to the end of the innermost axis.
    pub(crate) fn left_in_row(&self) -> usize {
        self.walk.inner() - self.at[self.walk.rank - 1]
    }

    /// Steps along the innermost axis, not beyond its end, and carries into the outer ones.
    pub(crate) fn advance(&mut self, count: usize) {
        let walk = self.walk;
        let inner = walk.rank - 1;
        self.at[inner] += count;
        for operand in 0..walk.operands {
            self.offsets[operand] += walk.strides[operand][inner] * count as isize;
        }
        let mut axis = inner;
        while self.at[axis] == walk.sizes[axis] && axis > 0 {
            for operand in 0..walk.operands {
                self.offsets[operand] +=
                    walk.strides[operand][axis - 1] - walk.strides[operand][axis] * walk.sizes[axis] as isize;
            }
            self.at[axis] = 0;
            self.at[axis - 1] += 1;
            axis -= 1;
        }
    }
}
