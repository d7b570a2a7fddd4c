//! Moves elements without looking at them: every op that only picks, places, repeats or reorders is a
//! [`Transfer`], so it works alike for all dtypes and keeps every bit, NaN payloads included.

use super::offsets::strides;
use super::{Computed, KernelError, ResultType};
use pteron_tensor::HostTensor;

/// The positions that one axis goes through.
#[derive(Clone, Debug)]
pub(crate) enum Walk {
    /// `first`, `first + step`, ...; none of them negative.
    Steps { first: usize, step: isize, len: usize },
    /// As listed.
    List(Vec<usize>),
}

impl Walk {
    /// `0, step, 2 * step, ...`
    pub(crate) fn steps(len: usize, step: usize) -> Walk {
        Walk::Steps { first: 0, step: step as isize, len }
    }

    /// One position again and again.
    pub(crate) fn stay(len: usize) -> Walk {
        Walk::steps(len, 0)
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Walk::Steps { len, .. } => *len,
            Walk::List(list) => list.len(),
        }
    }

    /// A position, or a distance from the start, which wraps when it is backwards.
    fn at(&self, index: usize) -> usize {
        match self {
            Walk::Steps { first, step, .. } => first.wrapping_add_signed(step.wrapping_mul(index as isize)),
            Walk::List(list) => list[index],
        }
    }

    /// The furthest position; `None` when there is none or one is not a position at all.
    fn furthest(&self) -> Option<usize> {
        match self {
            Walk::Steps { first, step, len } => {
                let way = step.checked_mul(isize::try_from(len.checked_sub(1)?).ok()?)?;
                first.checked_add_signed(way).map(|last| last.max(*first))
            }
            Walk::List(list) => list.iter().copied().max(),
        }
    }

    /// Where the walk starts, which it then no longer does: what is left are distances from there.
    fn take_first(&mut self) -> usize {
        match self {
            Walk::Steps { first, .. } => std::mem::take(first),
            Walk::List(_) => 0,
        }
    }

    fn scaled(self, size: usize) -> Option<Walk> {
        Some(match self {
            Walk::Steps { first, step, len } => {
                Walk::Steps { first: first.checked_mul(size)?, step: step.checked_mul(size as isize)?, len }
            }
            Walk::List(mut list) => {
                for position in &mut list {
                    *position = position.checked_mul(size)?;
                }
                Walk::List(list)
            }
        })
    }
}

/// A row-major walk over a shape.
pub(crate) fn row_major(shape: &[usize]) -> Vec<Walk> {
    shape.iter().zip(strides(shape)).map(|(&len, stride)| Walk::steps(len, stride)).collect()
}

/// Copies elements along pairs of walks: where they go, and where they come from.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// In bytes, outermost first.
    axes: Vec<(Walk, Walk)>,
    /// Bytes that lie together on both sides.
    run: usize,
    /// Where either side begins, in bytes.
    start: (usize, usize),
    /// How far either side reaches, in bytes.
    reach: (usize, usize),
    empty: bool,
}

impl Transfer {
    /// Of elements of `size` bytes; walks count in elements, and the two of a pair are equally long.
    pub(crate) fn new(
        size: usize,
        to: impl IntoIterator<Item = Walk>,
        from: impl IntoIterator<Item = Walk>,
    ) -> Result<Transfer, KernelError> {
        let mut transfer =
            Transfer { axes: Vec::new(), run: size, start: (0, 0), reach: (size, size), empty: false };
        for (to, from) in to.into_iter().zip(from) {
            if to.len() != from.len() {
                return Err(KernelError::Invalid(format!("{} elements for {} places", from.len(), to.len())));
            }
            transfer.empty |= to.len() == 0;
            transfer.axes.push((to, from));
        }
        if !transfer.empty {
            transfer.scale(size).ok_or_else(outside)?;
            transfer.join_runs();
        }
        Ok(transfer)
    }

    fn scale(&mut self, size: usize) -> Option<()> {
        for (to, from) in &mut self.axes {
            *to = std::mem::replace(to, Walk::stay(1)).scaled(size)?;
            *from = std::mem::replace(from, Walk::stay(1)).scaled(size)?;
            self.reach.0 = self.reach.0.checked_add(to.furthest()?)?;
            self.reach.1 = self.reach.1.checked_add(from.furthest()?)?;
            self.start.0 += to.take_first();
            self.start.1 += from.take_first();
        }
        Some(())
    }

    /// Inner axes on which both sides simply go on become one longer run.
    fn join_runs(&mut self) {
        self.axes.retain(|(to, from)| {
            !matches!((to, from), (Walk::Steps { len: 1, .. }, Walk::Steps { len: 1, .. }))
        });
        while let Some((Walk::Steps { step: to, len, .. }, Walk::Steps { step: from, .. })) = self.axes.last()
            && (*to, *from) == (self.run as isize, self.run as isize)
        {
            self.run *= len;
            self.axes.pop();
        }
    }

    /// Copies from `source` to `target`, each shifted by a number of bytes.
    pub(crate) fn run(
        &self,
        target: &mut [u8],
        to: usize,
        source: &[u8],
        from: usize,
    ) -> Result<(), KernelError> {
        if self.empty {
            return Ok(());
        }
        let fits =
            |shift: usize, reach: usize, len: usize| shift.checked_add(reach).is_some_and(|end| end <= len);
        if !fits(to, self.reach.0, target.len()) || !fits(from, self.reach.1, source.len()) {
            return Err(outside());
        }
        let (to, from) = (to + self.start.0, from + self.start.1);
        match self.run {
            1 => copy::<1>(&self.axes, target, to, source, from),
            2 => copy::<2>(&self.axes, target, to, source, from),
            4 => copy::<4>(&self.axes, target, to, source, from),
            8 => copy::<8>(&self.axes, target, to, source, from),
            run => copy_runs(&self.axes, run, target, to, source, from),
        }
        Ok(())
    }
}

fn outside() -> KernelError {
    KernelError::Invalid("elements outside the tensor's memory".into())
}

/// Runs of a single element: a fixed size makes each copy a plain load and store.
fn copy<const N: usize>(axes: &[(Walk, Walk)], target: &mut [u8], to: usize, source: &[u8], from: usize) {
    match axes {
        [] => target[to..to + N].copy_from_slice(&source[from..from + N]),
        // The innermost axis, where a transposed tensor spends its time.
        [(Walk::Steps { step: step_to, len, .. }, Walk::Steps { step: step_from, .. })] => {
            let (mut to, mut from) = (to, from);
            for _ in 0..*len {
                target[to..to + N].copy_from_slice(&source[from..from + N]);
                (to, from) = (to.wrapping_add_signed(*step_to), from.wrapping_add_signed(*step_from));
            }
        }
        [(outer_to, outer_from), inner @ ..] => {
            for index in 0..outer_to.len() {
                let (to, from) =
                    (to.wrapping_add(outer_to.at(index)), from.wrapping_add(outer_from.at(index)));
                copy::<N>(inner, target, to, source, from);
            }
        }
    }
}

fn copy_runs(axes: &[(Walk, Walk)], run: usize, target: &mut [u8], to: usize, source: &[u8], from: usize) {
    match axes {
        [] => target[to..to + run].copy_from_slice(&source[from..from + run]),
        [(outer_to, outer_from), inner @ ..] => {
            for index in 0..outer_to.len() {
                let (to, from) =
                    (to.wrapping_add(outer_to.at(index)), from.wrapping_add(outer_from.at(index)));
                copy_runs(inner, run, target, to, source, from);
            }
        }
    }
}

/// A new tensor whose elements, in order, are those of `x` that `from` goes through.
pub(crate) fn picked(x: &HostTensor, out: &ResultType, from: Vec<Walk>) -> Computed {
    let lengths: Vec<usize> = from.iter().map(Walk::len).collect();
    let mut tensor = HostTensor::zeros(x.dtype(), out.shape.clone())?;
    Transfer::new(x.dtype().size(), row_major(&lengths), from)?.run(tensor.bytes_mut(), 0, x.bytes(), 0)?;
    Ok(tensor)
}
