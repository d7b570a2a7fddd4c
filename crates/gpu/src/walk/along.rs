//! Ops along an axis: elements by index, orders, medians, circles; and what is put together from other ops' kernels.

use super::compute::odd;
use super::{Walk, WalkError, invalid};
use crate::dispatch::View;
use crate::lower::{self, Numbers, PackedRows, axis_of};
use pteron_ir::op::{IndexArg, IntArg};
use pteron_ir::rules::SliceRange;
use pteron_ir::{Node, OpKind, Type, ValueId};
use pteron_plan::Layout;
use pteron_tensor::{DType, Scalar};

impl Walk<'_> {
    /// Elements along an axis by indices of the result's sizes.
    pub(super) fn take_along(
        &mut self,
        out: View,
        x: View,
        indices: View,
        axis: usize,
    ) -> Result<(), WalkError> {
        let mut sizes = out.sizes().to_vec();
        let around = if let Some(size) = sizes.get_mut(axis) {
            *size = 1;
            let whole = odd(x.layout.slice(axis, SliceRange { start: 0, step: 1, count: 1 }))?.1;
            odd(whole.broadcast_to(&sizes).and_then(|layout| layout.broadcast_to(out.sizes())))?
        } else {
            x.layout
        };
        let over = odd(indices.layout.broadcast_to(out.sizes()))?;
        lower::pick_along(&mut self.lowering, out, (x, around), (indices, over), axis);
        Ok(())
    }

    /// The indices that sort along an axis.
    pub(super) fn order(&mut self, out: View, x: View, axis: usize) -> Result<(), WalkError> {
        let last = x.layout.rank().saturating_sub(1);
        if axis == last {
            return odd(lower::order(&mut self.lowering, out, x));
        }
        // Along another axis: with that axis last, then back.
        let mut order: Vec<usize> = (0..=last).collect();
        order.swap(axis, last);
        let turned = x.with(odd(x.layout.permute(order.iter().copied()))?);
        let aside = self.lowering.scratch(out.dtype, turned.sizes());
        odd(lower::order(&mut self.lowering, aside, turned))?;
        let back = aside.with(odd(aside.layout.permute(order.into_iter()))?);
        lower::copy(&mut self.lowering, out, back, true);
        Ok(())
    }

    pub(super) fn take_slices(
        &mut self,
        out: View,
        x: ValueId,
        index: &IndexArg<ValueId, ValueId>,
        axis: i32,
    ) -> Result<(), WalkError> {
        let x = self.tensor(x)?;
        let axis = axis_of(axis, x.layout.rank());
        let number = match index {
            IndexArg::Literal(number) => *number,
            IndexArg::Value(value) => self.int(&IntArg::Value(*value))?,
            IndexArg::Tensor(indices) => {
                let indices = self.tensor(*indices)?;
                let (strides, over) = (x.layout.strides(), indices.layout.strides());
                let zeros = vec![0isize; over.len()];
                let around = [&strides[..axis], &zeros, &strides[axis + 1..]].concat();
                let mut placed = vec![0isize; axis];
                placed.extend(over);
                placed.resize(out.layout.rank(), 0);
                let around = odd(Layout::from_parts(out.sizes(), &around))?;
                let over = odd(Layout::from_parts(out.sizes(), &placed))?;
                lower::pick_along(&mut self.lowering, out, (x, around), (indices, over), axis);
                return Ok(());
            }
        };
        let size = odd(x.sizes().get(axis).copied())?;
        let at = if number < 0 { number + size as i64 } else { number };
        let Some(at) = usize::try_from(at).ok().filter(|&at| at < size) else {
            return invalid(format!("index {number} is outside an axis of {size}"));
        };
        let (moved, layout) = odd(x.layout.slice(axis, SliceRange { start: at, step: 1, count: 1 }))?;
        let row = x.with(odd(layout.remove_axis(axis))?).moved(moved);
        lower::copy(&mut self.lowering, out, row, true);
        Ok(())
    }

    /// Shifts axes in a circle; without axes, all elements.
    pub(super) fn roll(
        &mut self,
        out: View,
        x: ValueId,
        shifts: &[IntArg<ValueId>],
        axes: &[i32],
    ) -> Result<(), WalkError> {
        let mut x = self.tensor(x)?;
        if x.layout.is_empty() {
            return Ok(());
        }
        let mut out = out;
        if axes.is_empty() {
            let flat = odd(Layout::row_major(&[out.layout.len()]))?;
            x = self.lowering.plain(x).with(flat);
            out = out.with(flat);
        }
        let listed = if axes.is_empty() { &[0][..] } else { axes };
        let mut moves = Vec::new();
        for (shift, &axis) in shifts.iter().zip(listed) {
            let axis = axis_of(axis, x.layout.rank());
            let size = odd(x.sizes().get(axis).copied())?;
            match self.int(shift)?.rem_euclid(size as i64) as usize {
                0 => {}
                shift => moves.push((axis, shift)),
            }
        }
        if moves.is_empty() {
            lower::copy(&mut self.lowering, out, x, true);
            return Ok(());
        }
        odd(lower::roll(&mut self.lowering, out, x, &moves))
    }

    /// The middle of what folds together, sorted; of an even count, the mean of the middle two. A row that has NaN ends with it.
    pub(super) fn median(&mut self, out: View, x: View, axes: &[i32]) -> Result<(), WalkError> {
        let rank = x.layout.rank();
        let listed: Vec<usize> = axes.iter().map(|&axis| axis_of(axis, rank)).collect();
        let is_folded = |axis: &usize| listed.is_empty() || listed.contains(axis);
        let (last, first): (Vec<usize>, Vec<usize>) = (0..rank).partition(is_folded);
        let turned = odd(x.layout.permute(first.into_iter().chain(last)))?;
        let rows = out.layout.len();
        if rows == 0 {
            return Ok(());
        }
        let count = x.layout.len() / rows;
        if count == 0 {
            return invalid("there is no element to choose");
        }
        let sizes = [rows, count];
        let x = match turned.reshape(&sizes) {
            Some(layout) => x.with(layout),
            None => {
                let whole = self.lowering.scratch(x.dtype, &sizes);
                lower::expanded(&mut self.lowering, whole, x.with(turned));
                whole
            }
        };
        let indices = self.lowering.scratch(DType::U32, &sizes);
        self.order(indices, x, 1)?;
        let sorted = self.lowering.scratch(x.dtype, &sizes);
        self.take_along(sorted, x, indices, 1)?;
        let at = |place: usize| {
            let (moved, layout) = sorted.layout.slice(1, SliceRange { start: place, step: 1, count: 1 })?;
            Some(sorted.with(layout).moved(moved))
        };
        let [below, above, end] = [(count - 1) / 2, count / 2, count - 1].map(at);
        let one = |on: &mut Self, kind: OpKind, work: DType, dtype: DType, inputs: &[View]| {
            let result = on.lowering.scratch(dtype, &[rows, 1]);
            let what = Numbers { kind, form: 0, work, numbers: [0; 2], inputs };
            lower::elementwise(&mut on.lowering, result, &what);
            result
        };
        let float = DType::F32;
        let two = self.lowering.scratch(float, &[]);
        lower::fill(&mut self.lowering, two, Scalar::Float(2.0));
        let halves =
            [odd(below)?, odd(above)?].map(|view| one(self, OpKind::Divide, float, float, &[view, two]));
        let middle = one(self, OpKind::Add, float, float, &halves);
        let end = odd(end)?;
        let is_number = one(self, OpKind::Equal, end.dtype, DType::Bool, &[end, end]);
        let flat = out.with(odd(Layout::row_major(&[rows, 1]))?);
        let inputs = [is_number, middle, end];
        let what = Numbers { kind: OpKind::Where, form: 0, work: float, numbers: [0; 2], inputs: &inputs };
        lower::elementwise(&mut self.lowering, flat, &what);
        Ok(())
    }

    /// A left operand of a product, or the matrices of it that indices pick.
    pub(super) fn picked_left(&mut self, x: ValueId, indices: Option<ValueId>) -> Result<View, WalkError> {
        let x = self.tensor(x)?;
        let Some(indices) = indices else { return Ok(x) };
        let indices = self.tensor(indices)?;
        let &[ref lead @ .., rows, inner] = x.sizes() else { return invalid("the left operand is a matrix") };
        let sizes = [lead.iter().product(), rows, inner];
        let x = match x.layout.reshape(&sizes) {
            Some(layout) => x.with(layout),
            None => self.lowering.plain(x).with(odd(Layout::row_major(&sizes))?),
        };
        let picked = self.lowering.scratch(x.dtype, &[indices.sizes(), &[rows, inner]].concat());
        odd(lower::pick_matrices(&mut self.lowering, picked, x, indices))?;
        Ok(picked)
    }

    /// The numbers of packed rows with a scale for all of them, which is counted in the largest that a group's scale makes.
    pub(super) fn dequantize_scaled(
        &mut self,
        out: View,
        packed: PackedRows,
        scale: View,
    ) -> Result<(), WalkError> {
        let numbers = self.lowering.scratch(DType::F32, out.sizes());
        odd(lower::dequantize(&mut self.lowering, numbers, packed))?;
        let most = self.lowering.scratch(DType::F32, &[]);
        lower::fill(&mut self.lowering, most, Scalar::Float(448.0 * 6.0));
        let whole = self.lowering.scratch(DType::F32, &[]);
        let scale = scale.with(odd(scale.layout.reshape(&[]))?);
        let float = DType::F32;
        for (kind, to, inputs) in
            [(OpKind::Divide, whole, [scale, most]), (OpKind::Multiply, out, [numbers, whole])]
        {
            let what = Numbers { kind, form: 0, work: float, numbers: [0; 2], inputs: &inputs };
            lower::elementwise(&mut self.lowering, to, &what);
        }
        Ok(())
    }

    /// The gated delta rule: what comes out, and the next state.
    pub(super) fn delta(&mut self, node: &Node, inputs: &[ValueId], types: &[Type]) -> Result<(), WalkError> {
        let (&[q, k, v, left, rates, state, steps], &[y, next]) = (inputs, node.results.as_slice()) else {
            return invalid("the delta rule has seven operands");
        };
        let tokens = self.tensor(q)?.sizes().get(1).copied();
        if self.first_of(steps) != tokens.map(|tokens| tokens as i64) {
            return invalid("the number of time steps is not that of the queries");
        }
        let mut views = [self.tensor(q)?; 6];
        for (view, value) in views.iter_mut().zip([q, k, v, left, rates, state]) {
            *view = self.tensor(value)?;
        }
        let mut results = views;
        for (view, (value, ty)) in results.iter_mut().zip([y, next].into_iter().zip(types)) {
            let Type::Tensor(ty) = ty else { return invalid("the op gives tensors") };
            *view = self.placed(value, ty)?;
        }
        let [out, after, ..] = results;
        odd(lower::delta(&mut self.lowering, (out, after), views))?;
        for (value, view) in [(y, out), (next, after)] {
            self.firsts[value.0 as usize] = None;
            self.set_tensor(value, view);
        }
        Ok(())
    }
}
