//! Rules of ops that move elements and make shapes.

use super::{Results, RuleError, Typing, invalid, one};
use crate::dim::{Dim, Verdict};
use crate::graph::{TensorType, Type, ValueId};
use crate::op::IntArg;
use pteron_tensor::{DType, promote};

/// The elements that a slice picks: `start`, `start + step`, …, `count` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SliceRange {
    pub start: usize,
    pub step: isize,
    pub count: usize,
}

/// Python's slice over an axis of `size`: negative bounds count from the end, everything clamps. With a negative
/// step a stop below `-size` means through element 0. `None` for step 0.
pub fn slice_range(size: usize, start: i64, stop: i64, step: i32) -> Option<SliceRange> {
    let (length, step) = (size as i64, i64::from(step));
    let from_front = |bound: i64| if bound < 0 { bound.saturating_add(length) } else { bound };
    let (start, count) = match step {
        0 => return None,
        1.. => {
            let (start, stop) = (from_front(start).clamp(0, length), from_front(stop).clamp(0, length));
            (start, (stop - start + step - 1).div_euclid(step))
        }
        _ => {
            let (start, stop) =
                (from_front(start).clamp(-1, length - 1), from_front(stop).clamp(-1, length - 1));
            (start, (start - stop - step - 1).div_euclid(-step))
        }
    };
    let count = usize::try_from(count.max(0)).ok()?;
    // An empty slice has no first element to point at.
    Some(SliceRange { start: if count == 0 { 0 } else { start as usize }, step: step as isize, count })
}

impl Typing<'_> {
    pub(crate) fn expand_dims(&mut self, x: ValueId, axis: i32) -> Results {
        let x = self.tensor(x)?;
        let at = self.axis(axis.into(), x.shape.len() + 1)?;
        let mut shape = x.shape.clone();
        shape.insert(at, Dim::known(1));
        one(x.dtype, shape)
    }

    pub(crate) fn squeeze(&mut self, x: ValueId, dims: Option<&[i32]>) -> Results {
        let x = self.tensor(x)?;
        let rank = x.shape.len();
        let dims = dims.unwrap_or_default();
        let mut listed = vec![dims.is_empty(); rank];
        for &dim in dims {
            if let Some(at) = self.axis_or_scalar(dim.into(), rank)? {
                listed[at] = true;
            }
        }
        let kept = x.shape.iter().zip(listed).filter(|(dim, listed)| !(*listed && dim.as_known() == Some(1)));
        one(x.dtype, kept.map(|(dim, _)| dim.clone()).collect())
    }

    pub(crate) fn tile(&mut self, x: ValueId, reps: &[IntArg<ValueId>]) -> Results {
        let x = self.tensor(x)?;
        let reps = self.sizes(reps)?;
        let rank = x.shape.len().max(reps.len());
        let lead = |dims: &[Dim]| -> Vec<Dim> {
            let ones = std::iter::repeat_n(Dim::known(1), rank - dims.len());
            ones.chain(dims.iter().cloned()).collect()
        };
        let (sizes, reps) = (lead(&x.shape), lead(&reps));
        let shape =
            sizes.iter().zip(&reps).map(|(size, reps)| self.times(size, reps)).collect::<Result<_, _>>()?;
        one(x.dtype, shape)
    }

    pub(crate) fn repeat(&mut self, x: ValueId, repeats: &IntArg<ValueId>, axis: i32) -> Results {
        let x = self.tensor(x)?;
        let repeats = self.sizes(std::slice::from_ref(repeats))?.remove(0);
        let at = self.axis(axis.into(), x.shape.len())?;
        let mut shape = x.shape.clone();
        shape[at] = self.times(&shape[at], &repeats)?;
        one(x.dtype, shape)
    }

    pub(crate) fn split(&mut self, x: ValueId, sizes: &[IntArg<ValueId>], axis: i32) -> Results {
        let x = self.tensor(x)?;
        let at = self.axis(axis.into(), x.shape.len())?;
        let sizes = self.sizes(sizes)?;
        let pieces = match sizes.as_slice() {
            [piece] => self.equal_pieces(&x.shape[at], piece)?,
            _ => {
                let sum = sizes
                    .iter()
                    .try_fold(Dim::known(0), |sum, size| sum.add(size))
                    .ok_or(RuleError::Overflow)?;
                self.same_dim("the axis and the sum of its pieces", &x.shape[at], &sum)?;
                sizes
            }
        };
        let piece = |size: Dim| {
            let mut shape = x.shape.clone();
            shape[at] = size;
            Type::Tensor(TensorType { dtype: x.dtype, shape })
        };
        Ok(pieces.into_iter().map(piece).collect())
    }

    fn equal_pieces(&self, size: &Dim, piece: &Dim) -> Result<Vec<Dim>, RuleError> {
        if size == piece {
            return Ok(vec![size.clone()]);
        }
        let (Some(size), Some(piece)) = (size.as_known(), piece.as_known()) else {
            return invalid("the number of pieces must be known: give each piece's length");
        };
        if piece <= 0 {
            return invalid(format!("pieces of length {piece}"));
        }
        // An empty axis is one empty piece.
        let count = ((size - 1).div_euclid(piece) + 1).max(1);
        if count > 1_000_000 {
            return invalid(format!("{count} pieces"));
        }
        Ok((0..count).map(|index| Dim::known(piece.min(size - index * piece).max(0))).collect())
    }

    pub(crate) fn broadcast_to(&mut self, x: ValueId, shape: &[IntArg<ValueId>]) -> Results {
        let x = self.tensor(x)?;
        let mut target = shape.iter().map(|arg| self.int(arg)).collect::<Result<Vec<_>, _>>()?;
        let lead = target.len() as i64 - x.shape.len() as i64;
        for (at, dim) in target.iter_mut().enumerate() {
            if dim.as_known() == Some(-1) {
                let kept = usize::try_from(at as i64 - lead).ok().and_then(|at| x.shape.get(at));
                let Some(kept) = kept else { return invalid("-1 on an axis that the tensor does not have") };
                *dim = kept.clone();
            } else if self.symbols.upper(dim).is_some_and(|most| most < 0) {
                return invalid(format!("{} is not a size", self.symbols.show(dim)));
            }
        }
        self.broadcasts_to("a shape and what it should broadcast to", &x.shape, &target)?;
        one(x.dtype, target)
    }

    pub(crate) fn pad(&mut self, x: ValueId, pad_width: &[IntArg<ValueId>], mode: &str) -> Results {
        let x = self.tensor(x)?;
        if !matches!(mode, "constant" | "edge") {
            return invalid(format!("padding mode {mode:?} is neither constant nor edge"));
        }
        if pad_width.len() != 2 * x.shape.len() {
            return invalid(format!("{} widths for rank {}", pad_width.len(), x.shape.len()));
        }
        let widths = self.sizes(pad_width)?;
        let mut shape = Vec::with_capacity(x.shape.len());
        for (size, pair) in x.shape.iter().zip(widths.chunks_exact(2)) {
            let grown = size.add(&pair[0]).and_then(|sum| sum.add(&pair[1])).ok_or(RuleError::Overflow)?;
            if mode == "edge" && size.as_known() == Some(0) && grown.as_known() != Some(0) {
                return invalid("an empty axis has no edge to repeat");
            }
            shape.push(grown);
        }
        one(x.dtype, shape)
    }

    pub(crate) fn reshape(&mut self, x: ValueId, shape: &[IntArg<ValueId>]) -> Results {
        let x = self.tensor(x)?;
        let mut target = shape.iter().map(|arg| self.int(arg)).collect::<Result<Vec<_>, _>>()?;
        let unknown: Vec<usize> = (0..target.len()).filter(|&at| target[at].as_known() == Some(-1)).collect();
        if unknown.len() > 1 || target.iter().any(|dim| dim.as_known().is_some_and(|size| size < -1)) {
            return invalid(format!("{} is not a shape", self.show(&target)));
        }
        let total = self.product(&x.shape);
        let mismatch = |rules: &Self, target: &[Dim]| {
            Err(RuleError::Dims { what: "element counts", a: rules.show(&x.shape), b: rules.show(target) })
        };
        if let Some(&at) = unknown.first() {
            let others: Vec<Dim> =
                target.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, d)| d.clone()).collect();
            target[at] = match (&total, self.product(&others).as_ref().and_then(Dim::as_known)) {
                (Some(total), Some(0)) if total.as_known().is_some() => return mismatch(self, &target),
                (Some(total), Some(rest)) if rest != 0 => match total.divide_exactly(rest) {
                    Some(size) => size,
                    None if total.as_known().is_some() => return mismatch(self, &target),
                    None => self.quotient_of_equal_factors(&x.shape, &others),
                },
                _ => self.quotient_of_equal_factors(&x.shape, &others),
            };
        } else if let (Some(from), Some(to)) = (&total, self.product(&target))
            && self.symbols.equal(from, &to) == Verdict::No
        {
            return mismatch(self, &target);
        }
        one(x.dtype, target)
    }

    /// What is left of a product when equal factors are struck out: [B, T, 8] as [B, -1, 4] is 2*T.
    fn quotient_of_equal_factors(&mut self, from: &[Dim], others: &[Dim]) -> Dim {
        let mut left = from.to_vec();
        let mut divisor = 1i64;
        for dim in others {
            match left.iter().position(|have| have == dim) {
                Some(at) => drop(left.swap_remove(at)),
                None => match dim.as_known().and_then(|known| divisor.checked_mul(known)) {
                    Some(product) => divisor = product,
                    None => return self.part_of_product(&left, divisor),
                },
            }
        }
        let exact = self.product(&left).and_then(|product| product.divide_exactly(divisor));
        exact.unwrap_or_else(|| self.part_of_product(&left, divisor))
    }

    /// A size of which nothing is known but that it is a product over something that `divisor` divides.
    fn part_of_product(&mut self, dims: &[Dim], divisor: i64) -> Dim {
        let bound = |dim: &Dim| self.symbols.upper(dim).filter(|bound| *bound >= 0);
        let most = dims.iter().try_fold(1i64, |most, dim| most.checked_mul(bound(dim)?));
        self.symbols.fresh_size(most.map(|most| most / divisor.max(1)))
    }

    pub(crate) fn transpose(&mut self, x: ValueId, perm: &[i32]) -> Results {
        let x = self.tensor(x)?;
        let rank = x.shape.len();
        let axes = perm.iter().map(|&axis| self.axis(axis.into(), rank)).collect::<Result<Vec<_>, _>>()?;
        let complete = axes.len() == rank && (0..rank).all(|axis| axes.contains(&axis));
        if !complete {
            return invalid(format!("{perm:?} is not a permutation of {rank} axes"));
        }
        one(x.dtype, axes.into_iter().map(|axis| x.shape[axis].clone()).collect())
    }

    pub(crate) fn as_strided(
        &mut self,
        x: ValueId,
        shape: &[IntArg<ValueId>],
        strides: &[IntArg<ValueId>],
    ) -> Results {
        let x = self.tensor(x)?;
        if shape.len() != strides.len() {
            return invalid(format!("{} sizes and {} strides", shape.len(), strides.len()));
        }
        for stride in strides {
            self.int(stride)?;
        }
        one(x.dtype, self.sizes(shape)?)
    }

    pub(crate) fn slice(
        &mut self,
        x: ValueId,
        axis: &IntArg<ValueId>,
        start: &IntArg<ValueId>,
        stop: &IntArg<ValueId>,
        step: i32,
    ) -> Results {
        let x = self.tensor(x)?;
        let shape = self.sliced(&x.shape, axis, start, stop, step)?;
        one(x.dtype, shape)
    }

    /// The shape of a slice.
    pub(super) fn sliced(
        &mut self,
        shape: &[Dim],
        axis: &IntArg<ValueId>,
        start: &IntArg<ValueId>,
        stop: &IntArg<ValueId>,
        step: i32,
    ) -> Result<Vec<Dim>, RuleError> {
        let (axis, start, stop) = (self.int(axis)?, self.int(start)?, self.int(stop)?);
        if step == 0 {
            return invalid("a slice with step 0");
        }
        let Some(axis) = axis.as_known() else {
            return Ok(shape
                .iter()
                .map(|dim| self.symbols.upper(dim))
                .collect::<Vec<_>>()
                .into_iter()
                .map(|most| self.symbols.fresh_size(most))
                .collect());
        };
        let at = self.axis(axis, shape.len())?;
        let size = &shape[at];
        let mut sliced = shape.to_vec();
        sliced[at] = match (size.as_known(), start.as_known(), stop.as_known()) {
            (Some(size), Some(start), Some(stop)) => {
                let size = usize::try_from(size).map_err(|_| RuleError::Overflow)?;
                let range = slice_range(size, start, stop, step);
                Dim::known(range.map_or(0, |range| range.count as i64))
            }
            _ => self.symbolic_slice(size, &start, &stop, step),
        };
        Ok(sliced)
    }

    fn symbolic_slice(&mut self, size: &Dim, start: &Dim, stop: &Dim, step: i32) -> Dim {
        let zero = Dim::known(0);
        let inside = |rules: &Self, bound: &Dim| {
            rules.symbols.at_most(&zero, bound) == Verdict::Yes
                && rules.symbols.at_most(bound, size) == Verdict::Yes
        };
        let to_the_end = stop.as_known().is_some_and(|stop| stop >= i64::from(i32::MAX))
            || self.symbols.at_most(size, stop) == Verdict::Yes;
        let stop = if to_the_end { size } else { stop };
        if step == 1
            && inside(self, start)
            && inside(self, stop)
            && self.symbols.at_most(start, stop) == Verdict::Yes
            && let Some(count) = stop.sub(start)
        {
            return count;
        }
        // Bounds that are in order, from whichever end they count, have no more between them than they are apart.
        let apart = stop.sub(start).filter(|apart| self.symbols.at_most(&zero, apart) == Verdict::Yes);
        let apart = apart.and_then(|apart| self.symbols.upper(&apart));
        let most = [self.symbols.upper(size), apart].into_iter().flatten().min();
        self.symbols.fresh_size(most)
    }

    pub(crate) fn slice_update(
        &mut self,
        dst: ValueId,
        update: ValueId,
        axis: &IntArg<ValueId>,
        start: &IntArg<ValueId>,
        stop: &IntArg<ValueId>,
        step: i32,
    ) -> Results {
        let (dst, update) = (self.tensor(dst)?, self.tensor(update)?);
        if step < 1 {
            return invalid(format!("an update with step {step}"));
        }
        let slice = self.sliced(&dst.shape, axis, start, stop, step)?;
        // Nothing is written to an empty slice, whatever the update's shape.
        if !slice.iter().any(|dim| dim.as_known() == Some(0)) {
            self.broadcasts_to("an update and the slice that it replaces", &update.shape, &slice)?;
        }
        one(dst.dtype, dst.shape.clone())
    }

    pub(crate) fn concatenate(&mut self, tensors: &[ValueId], axis: i32) -> Results {
        let Some(&first) = tensors.first() else { return invalid("nothing to concatenate") };
        let first = self.tensor(first)?;
        let at = self.axis(axis.into(), first.shape.len())?;
        let (mut dtype, mut shape) = (first.dtype, first.shape.clone());
        for &tensor in &tensors[1..] {
            let tensor = self.tensor(tensor)?;
            if tensor.shape.len() != shape.len() {
                return Err(RuleError::Dims {
                    what: "ranks of concatenated tensors",
                    a: self.show(&shape),
                    b: self.show(&tensor.shape),
                });
            }
            for (axis, size) in tensor.shape.iter().enumerate() {
                shape[axis] = if axis == at {
                    shape[axis].add(size).ok_or(RuleError::Overflow)?
                } else {
                    self.same_dim("sizes beside the joined axis", &shape[axis], size)?
                };
            }
            dtype = promote(dtype, tensor.dtype);
        }
        one(dtype, shape)
    }

    pub(crate) fn stack(&mut self, tensors: &[ValueId], axis: i32) -> Results {
        let Some(&first) = tensors.first() else { return invalid("nothing to stack") };
        let first = self.tensor(first)?;
        let (mut dtype, mut shape) = (first.dtype, first.shape.clone());
        for &tensor in &tensors[1..] {
            let tensor = self.tensor(tensor)?;
            shape = self.same_shape("shapes of stacked tensors", &shape, &tensor.shape)?;
            dtype = promote(dtype, tensor.dtype);
        }
        let at = self.axis(axis.into(), shape.len() + 1)?;
        shape.insert(at, Dim::known(tensors.len() as i64));
        one(dtype, shape)
    }

    pub(crate) fn roll(&mut self, x: ValueId, shift: &[IntArg<ValueId>], axes: &[i32]) -> Results {
        let x = self.tensor(x)?;
        for arg in shift {
            self.int(arg)?;
        }
        for &axis in axes {
            self.axis(axis.into(), x.shape.len())?;
        }
        // Without axes the tensor is rolled as if it were flat, by one shift.
        let fits = if axes.is_empty() { shift.len() == 1 } else { shift.len() == axes.len() };
        if !fits {
            return invalid(format!("{} shifts for {} axes", shift.len(), axes.len()));
        }
        one(x.dtype, x.shape.clone())
    }

    pub(crate) fn flip(&mut self, x: ValueId, axes: &[i32]) -> Results {
        let x = self.tensor(x)?;
        for &axis in axes {
            self.axis_or_scalar(axis.into(), x.shape.len())?;
        }
        one(x.dtype, x.shape.clone())
    }

    pub(crate) fn full(&mut self, shape: &[IntArg<ValueId>], dtype: DType) -> Results {
        one(dtype, self.sizes(shape)?)
    }

    pub(crate) fn full_like(&mut self, x: ValueId, dtype: Option<DType>) -> Results {
        let x = self.tensor(x)?;
        one(dtype.unwrap_or(x.dtype), x.shape.clone())
    }

    pub(crate) fn arange(
        &mut self,
        start: &IntArg<ValueId>,
        stop: &IntArg<ValueId>,
        step: &IntArg<ValueId>,
        dtype: Option<DType>,
    ) -> Results {
        let (start, stop, step) = (self.int(start)?, self.int(stop)?, self.int(step)?);
        let span = stop.sub(&start).ok_or(RuleError::Overflow)?;
        let count = match (span.as_known(), step.as_known()) {
            (_, Some(0)) => return invalid("a range with step 0"),
            (Some(span), Some(step)) => {
                let up = if step > 0 { span.checked_add(step - 1) } else { span.checked_add(step + 1) };
                Dim::known(up.and_then(|up| up.checked_div(step)).ok_or(RuleError::Overflow)?.max(0))
            }
            (None, Some(1)) if self.symbols.at_most(&Dim::known(0), &span) == Verdict::Yes => span,
            _ => {
                let step = step.as_known().filter(|step| *step > 0);
                let most = self.symbols.upper(&span).zip(step);
                self.symbols
                    .fresh_size(most.map(|(span, step)| (span.max(0) as u64).div_ceil(step as u64) as i64))
            }
        };
        one(dtype.unwrap_or(DType::I32), vec![count])
    }

    pub(crate) fn tri(&mut self, n: &IntArg<ValueId>, m: &IntArg<ValueId>, dtype: DType) -> Results {
        one(dtype, self.sizes(&[*n, *m])?)
    }

    pub(crate) fn triangle(&mut self, x: ValueId) -> Results {
        let x = self.tensor(x)?;
        if x.shape.len() < 2 {
            return Err(RuleError::Rank { what: "x", got: x.shape.len(), want: "2 or more".into() });
        }
        one(x.dtype, x.shape.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_follow_python() {
        let range = |start, step, count| Some(SliceRange { start, step, count });
        let end = i64::from(i32::MAX);
        let cases = [
            ((5, 0, end, 1), range(0, 1, 5)),
            ((5, 1, -1, 1), range(1, 1, 3)),
            ((5, -2, i64::MAX, 1), range(3, 1, 2)),
            ((5, 0, 5, 2), range(0, 2, 3)),
            ((5, 4, 2, 1), range(0, 1, 0)),
            ((5, 9, 12, 1), range(0, 1, 0)),
            ((5, 4, -6, -1), range(4, -1, 5)),
            ((5, 2, -4, -1), range(2, -1, 1)),
            ((5, 100, 0, -2), range(4, -2, 2)),
            ((0, 0, end, 1), range(0, 1, 0)),
            ((0, 3, -9, -1), range(0, -1, 0)),
            ((5, i64::MIN, i64::MAX, 1), range(0, 1, 5)),
            ((5, 0, 5, 0), None),
        ];
        for ((size, start, stop, step), want) in cases {
            assert_eq!(slice_range(size, start, stop, step), want, "{size} [{start}:{stop}:{step}]");
        }
    }
}
