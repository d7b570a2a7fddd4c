//! One node that only computes: views for what is another look at an operand, dispatches for everything else. One arm an op; what
//! has none is not supported, and never comes here.

use super::{Walk, WalkError, invalid};
use crate::dispatch::View;
use crate::kernel::Packed;
use crate::lower::{self, Convolution, PackedRows, axis_of};
use pteron_ir::op::{FloatArg, IntArg};
use pteron_ir::rules::{SliceRange, slice_range};
use pteron_ir::{Node, Op, Symbols, Type, ValueId, infer};
use pteron_plan::Layout;
use pteron_tensor::quant::Mode;
use pteron_tensor::{DType, Scalar};
use std::collections::BTreeSet;

pub(super) fn odd<T>(layout: Option<T>) -> Result<T, WalkError> {
    layout.ok_or_else(|| WalkError::Invalid("the op does not fit its operands".into()))
}

impl Walk<'_> {
    pub(super) fn compute(
        &mut self,
        node: &Node,
        in_place: bool,
        scratch: Option<usize>,
    ) -> Result<(), WalkError> {
        let types = infer(&node.op, &self.types, &mut Symbols::default())?;
        match &node.op {
            Op::Split { x, axis, .. } => return self.split(node, *x, *axis, &types),
            Op::AddRmsNorm { .. } => {
                self.turn_spans();
                return self.add_norm(node, &types);
            }
            Op::Projections { .. } => {
                self.turn_spans();
                return self.projections(node, &types);
            }
            Op::MetalKernel { inputs, .. } => {
                self.turn_spans();
                return self.delta(node, inputs, &types);
            }
            Op::Noop {} => return Ok(()),
            _ => {}
        }
        let (Some(Type::Tensor(ty)), &[result]) = (types.first(), node.results.as_slice()) else {
            return invalid("the op gives no tensor");
        };
        let Some(sizes) = ty.known_shape() else { return invalid("the size of a result is not known") };
        let view = match self.viewed(&node.op, ty.dtype, &sizes)? {
            Some((view, first)) => {
                self.firsts[result.0 as usize] = first;
                view
            }
            None if self.turns_by_span(&node.op)? => {
                let out = self.placed(result, ty)?;
                self.firsts[result.0 as usize] = None;
                self.spanned_rope(result, &node.op, out)?
            }
            None if in_place => {
                self.turn_spans();
                let view = match self.turned_in_place(&node.op)? {
                    Some(view) => view,
                    None => self.updated(&node.op, None, scratch)?,
                };
                self.firsts[result.0 as usize] = None;
                view
            }
            None => {
                self.turn_spans();
                let out = self.placed(result, ty)?;
                let before = self.lowering.dispatches.len();
                self.computed(&node.op, out, scratch)?;
                if self.lowering.dispatches.len() == before + 1 {
                    self.remember_rope(result, &node.op, out)?;
                }
                self.firsts[result.0 as usize] = self.known_first(&node.op);
                out
            }
        };
        self.set_tensor(result, view);
        Ok(())
    }

    fn split(&mut self, node: &Node, x: ValueId, axis: i32, types: &[Type]) -> Result<(), WalkError> {
        let x = self.tensor(x)?;
        let axis = axis_of(axis, x.layout.rank());
        let mut start = 0;
        for (&result, ty) in node.results.iter().zip(types) {
            let Type::Tensor(ty) = ty else { return invalid("a piece is a tensor") };
            let count = odd(ty.known_shape().and_then(|sizes| sizes.get(axis).copied()))?;
            let (moved, layout) = odd(x.layout.slice(axis, SliceRange { start, step: 1, count }))?;
            start += count;
            self.set_tensor(result, x.with(layout).moved(moved));
        }
        Ok(())
    }

    /// The first element of what an op makes, where the host knows it.
    fn known_first(&self, op: &Op<pteron_ir::Ssa>) -> Option<i64> {
        match op {
            Op::Full { v: FloatArg::Value(value), .. } | Op::FullLike { v: FloatArg::Value(value), .. } => {
                match self.scalar(*value).ok()? {
                    Scalar::Int(number) => Some(number),
                    _ => None,
                }
            }
            Op::Full { v: FloatArg::Literal(number), .. } if number.fract() == 0.0 => Some(*number as i64),
            Op::ARange { start, .. } => self.int(start).ok(),
            Op::AsType { x, .. } | Op::Reshape { x, .. } | Op::Contiguous { x } => self.first_of(*x),
            _ => None,
        }
    }

    /// Another look at an operand, with its first element where the host knows it; `None` where the op computes.
    #[allow(clippy::type_complexity)] // a view and a number
    fn viewed(
        &mut self,
        op: &Op<pteron_ir::Ssa>,
        dtype: DType,
        sizes: &[usize],
    ) -> Result<Option<(View, Option<i64>)>, WalkError> {
        let (x, layout, moved) = match op {
            Op::IdCopy { x } => (*x, self.tensor(*x)?.layout, 0),
            Op::AsType { x, .. } if self.tensor(*x)?.dtype == dtype => (*x, self.tensor(*x)?.layout, 0),
            Op::ExpandDims { x, axis } => {
                let layout = self.tensor(*x)?.layout;
                (*x, odd(layout.insert_axis(axis_of(*axis, layout.rank() + 1)))?, 0)
            }
            Op::Squeeze { x, .. } => {
                let layout = self.tensor(*x)?.layout;
                // Axes of size 1 step nowhere: the same elements under the sizes that are left.
                (*x, odd(layout.reshape(sizes))?, 0)
            }
            Op::Transpose { x, perm } => {
                let layout = self.tensor(*x)?.layout;
                let order = perm.iter().map(|&axis| axis_of(axis, layout.rank()));
                (*x, odd(layout.permute(order))?, 0)
            }
            Op::BroadcastTo { x, .. } => (*x, odd(self.tensor(*x)?.layout.broadcast_to(sizes))?, 0),
            Op::Slice { x, axis, start, stop, step } => {
                let layout = self.tensor(*x)?.layout;
                let (axis, range) = self.range(&layout, axis, start, stop, *step)?;
                let (moved, layout) = odd(layout.slice(axis, range))?;
                (*x, layout, moved)
            }
            Op::Flip { x, axes } => {
                let mut layout = self.tensor(*x)?.layout;
                let mut moved = 0;
                // An axis that is listed twice is turned once.
                let listed: BTreeSet<usize> = axes.iter().map(|&axis| axis_of(axis, layout.rank())).collect();
                for axis in listed {
                    let count = odd(layout.sizes().get(axis).copied())?;
                    let range = SliceRange { start: count.saturating_sub(1), step: -1, count };
                    let (further, flipped) = odd(layout.slice(axis, range))?;
                    (moved, layout) = (moved + further, flipped);
                }
                (*x, layout, moved)
            }
            Op::Reshape { x, .. } => match self.tensor(*x)?.layout.reshape(sizes) {
                Some(layout) => (*x, layout, 0),
                None => return Ok(None),
            },
            Op::Contiguous { x } if self.tensor(*x)?.layout.is_row_major() => {
                (*x, self.tensor(*x)?.layout, 0)
            }
            _ => return Ok(None),
        };
        let view = self.tensor(x)?;
        let first = if moved == 0 && !layout.is_empty() { self.first_of(x) } else { None };
        Ok(Some((view.with(layout).moved(moved), first)))
    }

    pub(super) fn range(
        &self,
        layout: &Layout,
        axis: &IntArg<ValueId>,
        start: &IntArg<ValueId>,
        stop: &IntArg<ValueId>,
        step: i32,
    ) -> Result<(usize, SliceRange), WalkError> {
        let axis = axis_of(odd(i32::try_from(self.int(axis)?).ok())?, layout.rank());
        let size = odd(layout.sizes().get(axis).copied())?;
        Ok((axis, odd(slice_range(size, self.int(start)?, self.int(stop)?, step))?))
    }

    /// `SliceUpdate`, `IndexCopy` and `RopeUpdate`: into the operand itself, or into `out` as a copy of it.
    fn updated(
        &mut self,
        op: &Op<pteron_ir::Ssa>,
        out: Option<View>,
        scratch: Option<usize>,
    ) -> Result<View, WalkError> {
        let (dst, mut update) = match op {
            Op::SliceUpdate { dst, update, .. } | Op::IndexCopy { dst, update, .. } => {
                (self.tensor(*dst)?, self.tensor(*update)?)
            }
            Op::RopeUpdate { x, dst, .. } => {
                let x = self.tensor(*x)?;
                let turned = self.aside(scratch, x.dtype, x.sizes(), 0);
                let (dims, turns) = self.turns(op, &x)?;
                odd(lower::rope(&mut self.lowering, turned, x, &turns.of(dims)))?;
                (self.tensor(*dst)?, turned)
            }
            _ => return invalid("the op changes no operand"),
        };
        let target = match out {
            Some(out) => {
                lower::copy(&mut self.lowering, out, dst, true);
                out
            }
            None => dst,
        };
        if update.dtype != target.dtype {
            let converted = self.lowering.scratch(target.dtype, update.sizes());
            lower::cast(&mut self.lowering, converted, update);
            update = converted;
        }
        match op {
            Op::SliceUpdate { axis, start, stop, step, .. }
            | Op::RopeUpdate { axis, start, stop, step, .. } => {
                let (axis, range) = self.range(&target.layout, axis, start, stop, *step)?;
                let (moved, layout) = odd(target.layout.slice(axis, range))?;
                if layout.is_empty() {
                    return Ok(target);
                }
                let update = update.with(odd(update.layout.broadcast_to(layout.sizes()))?);
                lower::copy(&mut self.lowering, target.with(layout).moved(moved), update, false);
            }
            Op::IndexCopy { indices, axis, .. } => {
                let (indices, axis) = (self.tensor(*indices)?, axis_of(*axis, target.layout.rank()));
                lower::index_copy(&mut self.lowering, target, update, indices, axis);
            }
            _ => {}
        }
        Ok(target)
    }

    fn computed(
        &mut self,
        op: &Op<pteron_ir::Ssa>,
        out: View,
        scratch: Option<usize>,
    ) -> Result<(), WalkError> {
        let kind = op.kind();
        match op {
            Op::SliceUpdate { .. } | Op::IndexCopy { .. } | Op::RopeUpdate { .. } => {
                self.updated(op, Some(out), scratch)?;
            }
            Op::AsType { x, .. } => {
                let x = self.tensor(*x)?;
                lower::cast(&mut self.lowering, out, x);
            }
            Op::Reshape { x, .. } | Op::Contiguous { x } => {
                let x = self.tensor(*x)?;
                lower::expanded(&mut self.lowering, out, x);
            }
            Op::Full { v, .. } | Op::FullLike { v, .. } => {
                let number = match v {
                    FloatArg::Literal(number) => Scalar::Float(*number),
                    FloatArg::Value(value) => self.scalar(*value)?,
                };
                lower::fill(&mut self.lowering, out, number);
            }
            Op::ARange { start, step, .. } => {
                let (start, step) = (self.int(start)?, self.int(step)?);
                lower::range(&mut self.lowering, out, start, step);
            }
            Op::Tri { k, .. } => lower::triangle(&mut self.lowering, out, kind, *k, None),
            Op::Tril { x, k } | Op::Triu { x, k } => {
                let x = self.tensor(*x)?;
                lower::triangle(&mut self.lowering, out, kind, *k, Some(x));
            }
            Op::Concatenate { tensors, axis } => {
                let parts = tensors.iter().map(|&part| self.tensor(part)).collect::<Result<Vec<_>, _>>()?;
                lower::join(&mut self.lowering, out, axis_of(*axis, out.layout.rank()), &parts);
            }
            Op::Stack { tensors, axis } => {
                let axis = axis_of(*axis, out.layout.rank());
                let parts = tensors.iter().map(|&part| {
                    let part = self.tensor(part)?;
                    Ok(part.with(odd(part.layout.insert_axis(axis))?))
                });
                let parts = parts.collect::<Result<Vec<_>, WalkError>>()?;
                lower::join(&mut self.lowering, out, axis, &parts);
            }
            Op::Tile { x, .. } => {
                let x = self.tensor(*x)?;
                let (lead, mut sizes, mut strides) =
                    (out.layout.rank() - x.layout.rank(), Vec::new(), Vec::new());
                for (axis, &size) in out.sizes().iter().enumerate() {
                    let own = axis.checked_sub(lead);
                    let (count, stride) = own.map_or((1, 0), |own| (x.sizes()[own], x.layout.strides()[own]));
                    sizes.extend([size / count.max(1), count]);
                    strides.extend([0, stride]);
                }
                let layout = odd(Layout::from_parts(&sizes, &strides))?;
                lower::expanded(&mut self.lowering, out, x.with(layout));
            }
            Op::Repeat { x, axis, .. } => {
                let x = self.tensor(*x)?;
                let axis = axis_of(*axis, x.layout.rank());
                let (mut sizes, mut strides) = (x.sizes().to_vec(), x.layout.strides().to_vec());
                let repeats = out.sizes()[axis] / sizes[axis].max(1);
                sizes.insert(axis + 1, repeats);
                strides.insert(axis + 1, 0);
                let layout = odd(Layout::from_parts(&sizes, &strides))?;
                lower::expanded(&mut self.lowering, out, x.with(layout));
            }
            Op::AsStrided { x, strides, offset, .. } => {
                let x = self.tensor(*x)?;
                let x = self.lowering.plain(x);
                let strides: Vec<isize> = strides
                    .iter()
                    .map(|stride| Ok(self.int(stride)? as isize))
                    .collect::<Result<_, WalkError>>()?;
                let layout = odd(Layout::from_parts(out.sizes(), &strides))?;
                lower::expanded(&mut self.lowering, out, x.with(layout).moved(*offset as isize));
            }
            Op::Pad { x, pad_width, mode, constant_value } => {
                let x = self.tensor(*x)?;
                let widths: Vec<usize> = pad_width
                    .iter()
                    .map(|width| Ok(usize::try_from(self.int(width)?).unwrap_or(0)))
                    .collect::<Result<_, WalkError>>()?;
                if mode == "edge" {
                    let pairs: Vec<[usize; 2]> =
                        widths.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
                    return odd(lower::edges(&mut self.lowering, out, x, &pairs));
                }
                let before: Vec<usize> = widths.into_iter().step_by(2).collect();
                lower::pad(&mut self.lowering, out, &before, x, *constant_value);
            }
            Op::Roll { x, shift, axes } => self.roll(out, *x, shift, axes)?,
            Op::Cumsum { x, axis, reverse, inclusive } => {
                let x = self.tensor(*x)?;
                let axis = axis_of(*axis, x.layout.rank());
                odd(lower::running(&mut self.lowering, out, x, axis, (*reverse, *inclusive)))?;
            }
            Op::ScatterAdd { x, indices, updates, axis } => {
                let (x, indices, updates) =
                    (self.tensor(*x)?, self.tensor(*indices)?, self.tensor(*updates)?);
                let axis = axis_of(*axis, x.layout.rank());
                odd(lower::scatter(&mut self.lowering, out, x, (indices, updates), axis))?;
            }
            Op::RandomBits { seed: Some(seed), .. } => {
                let Scalar::Int(seed) = self.scalar(*seed)? else { return invalid("a seed is an integer") };
                lower::random(&mut self.lowering, out, seed as u64);
            }
            Op::Median { x, axes, .. } => {
                let x = self.tensor(*x)?;
                self.median(out, x, axes.as_deref().unwrap_or_default())?;
            }
            _ if Convolution::of(op).is_some() => {
                let what = odd(Convolution::of(op))?;
                let operands = (self.tensor(what.x)?, self.tensor(what.w)?);
                odd(lower::convolution(&mut self.lowering, out, operands, &what))?;
            }
            Op::Take { x, index, axis } => self.take_slices(out, *x, index, *axis)?,
            Op::TakeAlongAxis { x, indices, axis } => {
                let (x, indices) = (self.tensor(*x)?, self.tensor(*indices)?);
                self.take_along(out, x, indices, axis_of(*axis, x.layout.rank()))?;
            }
            Op::Argsort { x, axis } | Op::ArgPartition { x, axis, .. } => {
                let x = self.tensor(*x)?;
                self.order(out, x, axis_of(*axis, x.layout.rank()))?;
            }
            // A partition is a whole order: that is all that it promises, and more.
            Op::Sort { x, axis } | Op::Partition { x, axis, .. } => {
                let x = self.tensor(*x)?;
                let axis = axis_of(*axis, x.layout.rank());
                let indices = self.lowering.scratch(DType::U32, x.sizes());
                self.order(indices, x, axis)?;
                self.take_along(out, x, indices, axis)?;
            }
            // Without indices, the one slice that begins at 0.
            Op::Gather { x, indices, slice_sizes, .. } if indices.is_empty() => {
                let mut x = self.tensor(*x)?;
                for (axis, &size) in slice_sizes.iter().enumerate() {
                    let range = SliceRange { start: 0, step: 1, count: size.max(0) as usize };
                    x = x.with(odd(x.layout.slice(axis, range))?.1);
                }
                lower::copy(&mut self.lowering, out, x, true);
            }
            Op::Gather { x, indices, axes, slice_sizes } => {
                let x = self.tensor(*x)?;
                let placed = indices
                    .iter()
                    .zip(axes)
                    .map(|(&index, &axis)| Ok((self.tensor(index)?, axis_of(axis, x.layout.rank()))));
                let placed = placed.collect::<Result<Vec<_>, WalkError>>()?;
                let slice: Vec<usize> = slice_sizes.iter().map(|&size| size.max(0) as usize).collect();
                lower::pick_slices(&mut self.lowering, out, x, &placed, &slice);
            }
            Op::Softmax { x, axis, .. } => {
                let mut x = self.tensor(*x)?;
                if !x.dtype.is_float() {
                    let floats = self.lowering.scratch(out.dtype, x.sizes());
                    lower::cast(&mut self.lowering, floats, x);
                    x = floats;
                }
                let axis = axis_of(*axis, x.layout.rank());
                let last = x.layout.rank().saturating_sub(1);
                if axis == last {
                    lower::rows(&mut self.lowering, out, x, kind, (None, None), 0.0);
                } else {
                    // Along another axis: with that axis last, then back.
                    let mut order: Vec<usize> = (0..=last).collect();
                    order.swap(axis, last);
                    let turned = x.with(odd(x.layout.permute(order.iter().copied()))?);
                    let aside = self.lowering.scratch(out.dtype, turned.sizes());
                    lower::rows(&mut self.lowering, aside, turned, kind, (None, None), 0.0);
                    let back = aside.with(odd(aside.layout.permute(order.into_iter()))?);
                    lower::copy(&mut self.lowering, out, back, true);
                }
            }
            Op::RMSNorm { x, weight, eps } => {
                let (x, weight) = (self.tensor(*x)?, self.maybe(*weight)?);
                if lower::is_normed_by_words(&self.lowering, (None, out), x, None) {
                    lower::norm(&mut self.lowering, (None, out), x, None, (weight, *eps));
                } else {
                    lower::rows(&mut self.lowering, out, x, kind, (weight, None), *eps);
                }
            }
            Op::LayerNorm { x, weight, bias, eps } => {
                let (x, weight, bias) = (self.tensor(*x)?, self.maybe(*weight)?, self.maybe(*bias)?);
                lower::rows(&mut self.lowering, out, x, kind, (weight, bias), *eps);
            }
            Op::Addmm { mat1, mat2, bias, alpha, beta } => {
                let (a, b, bias) = (self.tensor(*mat1)?, self.tensor(*mat2)?, self.maybe(*bias)?);
                odd(lower::addmm(&mut self.lowering, out, (a, b), bias, (*alpha, *beta)))?;
            }
            Op::QuantizedMatmul { x, w, scales, biases, group_size, bits, mode, transpose } => {
                let packed = self.packed(*w, *scales, *biases, (mode, *bits, *group_size))?;
                if !transpose || !self.multiplied(*x, &[out], &[packed], None)? {
                    let x = self.settled(*x)?;
                    odd(lower::quantized_matmul(&mut self.lowering, out, x, packed, *transpose))?;
                }
            }
            Op::GatherQmm {
                x,
                w,
                scales,
                biases,
                lhs_indices,
                rhs_indices,
                group_size,
                bits,
                mode,
                transpose,
                ..
            } => {
                let packed = self.packed(*w, *scales, *biases, (mode, *bits, *group_size))?;
                let (x, picks) = (self.picked_left(*x, *lhs_indices)?, self.maybe(*rhs_indices)?);
                let on = &mut self.lowering;
                odd(match picks {
                    Some(picks) => lower::gather_packed(on, out, x, (packed, *transpose), picks),
                    None => lower::quantized_matmul(on, out, x, packed, *transpose),
                })?;
            }
            Op::GatherMm { a, b, lhs_indices, rhs_indices, .. } => {
                let a = self.picked_left(*a, *lhs_indices)?;
                let (b, picks) = (self.tensor(*b)?, self.maybe(*rhs_indices)?);
                let on = &mut self.lowering;
                odd(match picks {
                    Some(picks) => lower::gather(on, out, a, b, picks),
                    None => lower::addmm(on, out, (a, b), None, (1.0, 0.0)),
                })?;
            }
            Op::GatedProjection { .. } => self.gated(op, out, scratch)?,
            Op::PackedEmbedding { .. } => self.embedded(op, out)?,
            Op::Dequantize { w, scales, biases, group_size, bits, mode, global_scale, .. } => {
                let packed = self.packed(*w, *scales, *biases, (mode, *bits, *group_size))?;
                match self.maybe(*global_scale)? {
                    Some(scale) => self.dequantize_scaled(out, packed, scale)?,
                    None => odd(lower::dequantize(&mut self.lowering, out, packed))?,
                }
            }
            Op::Rope { x, .. } => {
                let x = self.tensor(*x)?;
                let (dims, turns) = self.turns(op, &x)?;
                odd(lower::rope(&mut self.lowering, out, x, &turns.of(dims)))?;
            }
            Op::Sdpa { q, k, v, scale, mask, causal } => {
                let tensors = [self.tensor(*q)?, self.tensor(*k)?, self.tensor(*v)?];
                let mask = self.maybe(*mask)?;
                odd(lower::sdpa(&mut self.lowering, out, tensors, mask, (*scale, *causal)))?;
            }
            _ => return self.elementwise(op, out),
        }
        Ok(())
    }

    /// Packed rows of a mode, a width and a group size.
    pub(super) fn packed(
        &self,
        w: ValueId,
        scales: ValueId,
        biases: Option<ValueId>,
        (mode, bits, group): (&str, i32, i32),
    ) -> Result<PackedRows, WalkError> {
        let (w, scales, biases) = (self.tensor(w)?, self.tensor(scales)?, self.maybe(biases)?);
        let mode = Mode::from_name(mode).map_err(|error| WalkError::Invalid(error.to_string()))?;
        let packed = Packed { mode, bits: bits as u32, group: group as u32, dtype: scales.dtype };
        if packed.is_biased() != biases.is_some() {
            return invalid("affine weights have biases, and no others do");
        }
        Ok(PackedRows { packed, w, scales, biases })
    }
}
