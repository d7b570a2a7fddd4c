//! Sizes and strides of a tensor, held in place so that a run allocates nothing. All arithmetic of views is here.

use pteron_ir::rules::SliceRange;

/// The most axes that a layout has.
pub const MAX_RANK: usize = 16;

/// Sizes and strides (in elements), outermost first.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    rank: usize,
    sizes: [usize; MAX_RANK],
    strides: [isize; MAX_RANK],
}

impl Layout {
    /// A tensor of one element.
    pub const SCALAR: Layout = Layout { rank: 0, sizes: [0; MAX_RANK], strides: [0; MAX_RANK] };

    /// Row-major without gaps; `None` for more axes than a view can have.
    pub fn row_major(sizes: &[usize]) -> Option<Layout> {
        let mut layout = Layout::SCALAR;
        layout.sizes.get_mut(..sizes.len())?.copy_from_slice(sizes);
        layout.rank = sizes.len();
        let mut step = 1isize;
        for axis in (0..sizes.len()).rev() {
            layout.strides[axis] = step;
            step = step.saturating_mul(isize::try_from(sizes[axis].max(1)).unwrap_or(isize::MAX));
        }
        Some(layout)
    }

    /// From parts of equal length.
    pub fn from_parts(sizes: &[usize], strides: &[isize]) -> Option<Layout> {
        let mut layout = Layout::row_major(sizes)?;
        layout.strides.get_mut(..strides.len())?.copy_from_slice(strides);
        (sizes.len() == strides.len()).then_some(layout)
    }

    /// Number of axes.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Outermost first.
    #[inline]
    pub fn sizes(&self) -> &[usize] {
        &self.sizes[..self.rank]
    }

    /// In elements, outermost first.
    #[inline]
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.rank]
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.sizes().iter().product()
    }

    /// Whether it has no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sizes().contains(&0)
    }

    /// Whether the elements lie in row-major order without gaps.
    #[inline]
    pub fn is_row_major(&self) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut step = 1isize;
        for (&size, &stride) in self.sizes().iter().zip(self.strides()).rev() {
            if size > 1 {
                if stride != step {
                    return false;
                }
                step *= size as isize;
            }
        }
        true
    }

    /// A new axis of size 1 before `axis`.
    #[inline]
    pub fn insert_axis(&self, axis: usize) -> Option<Layout> {
        if self.rank == MAX_RANK || axis > self.rank {
            return None;
        }
        let mut layout = *self;
        layout.rank += 1;
        layout.sizes.copy_within(axis..self.rank, axis + 1);
        layout.strides.copy_within(axis..self.rank, axis + 1);
        (layout.sizes[axis], layout.strides[axis]) = (1, 0);
        Some(layout)
    }

    /// Without one axis; what is left starts at the axis' first element.
    #[inline]
    pub fn remove_axis(&self, axis: usize) -> Option<Layout> {
        if axis >= self.rank {
            return None;
        }
        let mut layout = *self;
        layout.sizes.copy_within(axis + 1..self.rank, axis);
        layout.strides.copy_within(axis + 1..self.rank, axis);
        layout.rank -= 1;
        Some(layout)
    }

    /// Axes in another order.
    pub fn permute(&self, order: impl Iterator<Item = usize>) -> Option<Layout> {
        let mut layout = *self;
        let mut count = 0;
        for (target, source) in order.enumerate() {
            *layout.sizes.get_mut(target)? = *self.sizes().get(source)?;
            layout.strides[target] = self.strides[source];
            count += 1;
        }
        (count == self.rank).then_some(layout)
    }

    /// A range of one axis; with it, how many elements further it begins.
    #[inline]
    pub fn slice(&self, axis: usize, range: SliceRange) -> Option<(isize, Layout)> {
        if axis >= self.rank {
            return None;
        }
        let mut layout = *self;
        let offset = self.strides[axis] * range.start as isize;
        layout.sizes[axis] = range.count;
        layout.strides[axis] = self.strides[axis].checked_mul(range.step)?;
        Some((offset, layout))
    }

    /// Axes of size 1 repeated, and leading axes added, to reach `sizes`.
    pub fn broadcast_to(&self, sizes: &[usize]) -> Option<Layout> {
        let lead = sizes.len().checked_sub(self.rank)?;
        let mut layout = Layout::row_major(sizes)?;
        for (axis, &size) in sizes.iter().enumerate() {
            layout.strides[axis] = match axis.checked_sub(lead) {
                Some(own) if self.sizes[own] == size => self.strides[own],
                Some(own) if self.sizes[own] == 1 => 0,
                Some(_) => return None,
                None => 0,
            };
        }
        Some(layout)
    }

    /// The same elements in the same order under other sizes, if strides can say that.
    pub fn reshape(&self, sizes: &[usize]) -> Option<Layout> {
        let mut layout = Layout::row_major(sizes)?;
        if layout.len() != self.len() {
            return None;
        }
        if self.is_row_major() {
            return Some(layout);
        }
        // Runs of axes of the new shape are matched with runs of the old one that step evenly.
        let mut kept = [(0, 0); MAX_RANK];
        let mut count = 0;
        for (&size, &stride) in self.sizes().iter().zip(self.strides()).filter(|(size, _)| **size != 1) {
            kept[count] = (size, stride);
            count += 1;
        }
        let old = &kept[..count];
        let (mut from, mut to) = (0, 0);
        while from < old.len() {
            let (mut old_len, mut new_len) = (old[from].0, 1);
            let new_start = to;
            from += 1;
            while new_len != old_len {
                if new_len < old_len {
                    new_len *= *sizes.get(to)?;
                    to += 1;
                } else {
                    let (size, stride) = *old.get(from)?;
                    if old[from - 1].1 != stride * size as isize {
                        return None;
                    }
                    old_len *= size;
                    from += 1;
                }
            }
            let mut step = old[from - 1].1;
            for axis in (new_start..to).rev() {
                layout.strides[axis] = step;
                step *= sizes[axis] as isize;
            }
        }
        for axis in to..sizes.len() {
            layout.strides[axis] = 0;
        }
        Some(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The element offsets of a layout in row-major order of its indices.
    fn offsets(layout: &Layout) -> Vec<isize> {
        let mut all = vec![0];
        for (&size, &stride) in layout.sizes().iter().zip(layout.strides()) {
            all =
                all.iter().flat_map(|at| (0..size as isize).map(move |index| at + index * stride)).collect();
        }
        all
    }

    #[test]
    fn a_reshape_keeps_the_order_of_elements_or_is_refused() {
        let base = Layout::row_major(&[4, 6, 5]).unwrap();
        let turned = base.permute([1, 0, 2].into_iter()).unwrap();
        for source in [base, turned, base.slice(1, SliceRange { start: 1, step: 2, count: 2 }).unwrap().1] {
            for sizes in
                [vec![24, 5], vec![4, 30], vec![120], vec![2, 2, 6, 5, 1], vec![6, 1, 4, 5], vec![8, 5]]
            {
                if let Some(reshaped) = source.reshape(&sizes) {
                    assert_eq!(offsets(&reshaped), offsets(&source), "{sizes:?}");
                    assert_eq!(reshaped.sizes(), sizes);
                }
            }
        }
        assert!(base.reshape(&[120]).is_some());
        assert!(turned.reshape(&[120]).is_none());
        assert!(turned.reshape(&[6, 2, 2, 5]).is_some());
        assert!(base.reshape(&[7]).is_none());
    }

    #[test]
    fn axes_come_and_go() {
        let base = Layout::row_major(&[2, 3]).unwrap();
        let wider = base.insert_axis(1).unwrap();
        assert_eq!(wider.sizes(), [2, 1, 3]);
        assert_eq!(wider.remove_axis(1).unwrap().sizes(), [2, 3]);
        assert_eq!(base.broadcast_to(&[4, 2, 3]).unwrap().strides(), [0, 3, 1]);
        assert!(base.broadcast_to(&[3, 3]).is_none());
        assert!(Layout::row_major(&[1; MAX_RANK + 1]).is_none());
        assert!(Layout::row_major(&[1; MAX_RANK]).unwrap().insert_axis(0).is_none());
    }
}
