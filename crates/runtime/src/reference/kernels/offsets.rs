//! Where elements lie: row-major strides, broadcasting, and the order in which a result meets its operands'
//! elements. Counts in elements; knows nothing of dtypes.

/// Row-major strides of a shape. With an empty axis they mean nothing and may not overflow either.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis]);
    }
    strides
}

/// Strides that read a tensor of `shape` as one of `target`: 0 along axes that are repeated.
pub(crate) fn broadcast_strides(shape: &[usize], target: &[usize]) -> Vec<usize> {
    let own = strides(shape);
    let lead = target.len().saturating_sub(shape.len());
    let repeated = |axis: usize| axis < lead || shape[axis - lead] == 1;
    (0..target.len()).map(|axis| if repeated(axis) { 0 } else { own[axis - lead] }).collect()
}

/// An axis counted from the front. A tensor of rank 0 counts as one element along axis 0 or -1, as in PyTorch.
pub(crate) fn axis_of(axis: i64, rank: usize) -> usize {
    let axis = if axis < 0 { axis + rank.max(1) as i64 } else { axis };
    axis as usize
}

#[derive(Clone, Copy, Debug)]
struct Axis {
    len: usize,
    stride: usize,
    at: usize,
}

/// Offsets of elements in row-major order of a shape that is read through strides; starts over at the end.
#[derive(Debug)]
pub(crate) struct Offsets {
    outer: Vec<Axis>,
    inner: Axis,
    next: usize,
}

impl Offsets {
    pub(crate) fn new(shape: &[usize], strides: &[usize]) -> Offsets {
        let mut axes: Vec<Axis> = Vec::with_capacity(shape.len());
        for (&len, &stride) in shape.iter().zip(strides) {
            match axes.last_mut() {
                _ if len == 1 => {}
                // One step of the outer axis is the whole of this one: together they are one longer axis.
                Some(outer) if Some(outer.stride) == stride.checked_mul(len) => {
                    *outer = Axis { len: outer.len.saturating_mul(len), stride, at: 0 };
                }
                _ => axes.push(Axis { len, stride, at: 0 }),
            }
        }
        let inner = axes.pop().unwrap_or(Axis { len: 1, stride: 0, at: 0 });
        Offsets { outer: axes, inner, next: 0 }
    }

    /// 0, 1, 2, ...
    pub(crate) fn contiguous(len: usize) -> Offsets {
        Offsets::new(&[len], &[1])
    }

    /// Of a tensor of `shape` broadcast to `target`.
    pub(crate) fn broadcast(shape: &[usize], target: &[usize]) -> Offsets {
        Offsets::new(target, &broadcast_strides(shape, target))
    }

    /// Visits the next `count` offsets as runs along the innermost axis: the first, the step, how many.
    pub(crate) fn next_runs(&mut self, mut count: usize, mut visit: impl FnMut(usize, usize, usize)) {
        while count > 0 {
            let length = count.min(self.inner.len - self.inner.at);
            if length == 0 {
                return; // an empty shape
            }
            visit(self.next, self.inner.stride, length);
            self.advance(length);
            count -= length;
        }
    }

    /// The next offset.
    pub(crate) fn next_one(&mut self) -> usize {
        let next = self.next;
        self.advance(1);
        next
    }

    /// Steps along the innermost axis, not beyond its end, and carries into the outer ones.
    fn advance(&mut self, length: usize) {
        let inner = &mut self.inner;
        inner.at += length;
        self.next += length * inner.stride;
        if inner.at < inner.len {
            return;
        }
        self.next -= inner.at * inner.stride;
        inner.at = 0;
        for axis in self.outer.iter_mut().rev() {
            axis.at += 1;
            self.next += axis.stride;
            if axis.at < axis.len {
                return;
            }
            self.next -= axis.len * axis.stride;
            axis.at = 0;
        }
    }
}
