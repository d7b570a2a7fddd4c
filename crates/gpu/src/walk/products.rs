//! Fused nodes: products of one tensor, gates, sums with their norms, packed embeddings, and ropes that are done elsewhere.

use super::compute::odd;
use super::{Walk, WalkError, invalid};
use crate::dispatch::{Region, View};
use crate::lower::{self, Cacheable, Numbers, PackedRows, Products, Turned, Turns};
use crate::steps::StepNode;
use pteron_ir::op::{Activation, IntArg, OffsetArg};
use pteron_ir::{Node, Op, OpKind, Ssa, Type, ValueId};
use pteron_plan::{Layout, Storage};
use pteron_tensor::DType;
use std::sync::Arc;

/// A norm that the products which read it compute themselves.
#[derive(Clone, Copy)]
pub(super) struct Normed {
    /// What is normed, in memory that nothing else gets in this run.
    sum: View,
    weight: View,
    eps: f32,
}

/// What a rope turns by.
pub(super) struct RopeTurns {
    pub(super) offset: Result<View, i64>,
    pub(super) freqs: Option<View>,
    pub(super) traditional: bool,
    pub(super) radians: Arc<[f32]>,
    pub(super) scale: f32,
}

impl RopeTurns {
    pub(super) fn of(&self, dims: usize) -> Turns<'_> {
        Turns {
            dims,
            offset: self.offset,
            freqs: self.freqs,
            traditional: self.traditional,
            radians: &self.radians,
            scale: self.scale,
        }
    }
}

impl Walk<'_> {
    /// Memory that the plan has set aside for a step: the part of this number, of as many bytes as a tensor has.
    pub(super) fn aside(
        &mut self,
        scratch: Option<usize>,
        dtype: DType,
        sizes: &[usize],
        part: usize,
    ) -> View {
        let layout = Layout::row_major(sizes).unwrap_or(Layout::SCALAR);
        let bytes = (layout.len() * dtype.size()).next_multiple_of(crate::dispatch::BINDING_ALIGNMENT);
        let storage = scratch.map_or(Storage::None, |number| self.planned.plan.scratch(number));
        match storage {
            Storage::Arena { offset, bytes: room } if part * bytes + layout.len() * dtype.size() <= room => {
                let offset = offset + part * bytes;
                View { region: Region::Arena, offset, dtype, layout, storage }
            }
            _ => self.lowering.scratch(dtype, sizes),
        }
    }

    pub(super) fn turns(&mut self, op: &Op<Ssa>, x: &View) -> Result<(usize, RopeTurns), WalkError> {
        let (Op::Rope { dims, offset, freqs, traditional, base, scale, .. }
        | Op::RopeUpdate { dims, offset, freqs, traditional, base, scale, .. }) = op
        else {
            return invalid("the op turns nothing");
        };
        let offset = match offset {
            OffsetArg::Tensor(tensor) => Ok(self.tensor(*tensor)?),
            OffsetArg::Value(value) => Err(self.int(&IntArg::Value(*value))?),
        };
        let freqs = self.maybe(*freqs)?;
        let dims = usize::try_from(*dims).unwrap_or(0).min(*x.sizes().last().unwrap_or(&0));
        let radians = if freqs.is_some() { Arc::default() } else { self.lowering.radians(*base, dims) };
        Ok((dims, RopeTurns { offset, freqs, traditional: *traditional, radians, scale: *scale }))
    }

    /// Keeps a rope that was lowered as the last dispatch, for whoever writes its result elsewhere.
    pub(super) fn remember_rope(
        &mut self,
        result: ValueId,
        op: &Op<Ssa>,
        out: View,
    ) -> Result<(), WalkError> {
        let Op::Rope { x, .. } = op else { return Ok(()) };
        let x = self.tensor(*x)?;
        let (dims, RopeTurns { offset, freqs, traditional, radians, scale }) = self.turns(op, &x)?;
        // An offset in a tensor of the call is the number that the host knows.
        let offset = match (offset, op) {
            (Err(number), _) => Some(number),
            (Ok(view), Op::Rope { offset: OffsetArg::Tensor(tensor), .. }) if view.layout.len() == 1 => {
                self.first_of(*tensor)
            }
            _ => None,
        };
        if let (Some(offset), true) = (offset, freqs.is_none_or(|view| view.is_plain())) {
            let (dispatch, step) = (Some(self.lowering.dispatches.len() - 1), self.lowering.step);
            let turned = Turned { dispatch, step, x, out, dims, offset, freqs, traditional, radians, scale };
            self.ropes.insert(result, turned);
        }
        Ok(())
    }

    /// `RopeUpdate` of rows of a cache in the graph: keys are turned on their way there, and with them the queries whose rope came just
    /// before. `None` where that cannot be.
    pub(super) fn turned_in_place(&mut self, op: &Op<Ssa>) -> Result<Option<View>, WalkError> {
        let Op::RopeUpdate { x, dst, axis, start, stop, step, .. } = op else { return Ok(None) };
        let (x, dst) = (self.tensor(*x)?, self.tensor(*dst)?);
        let (dims, RopeTurns { offset, freqs, traditional, radians, scale }) = self.turns(op, &x)?;
        let (axis, range) = self.range(&dst.layout, axis, start, stop, *step)?;
        let offset = match (offset, op) {
            (Err(number), _) => Some(number),
            (Ok(view), Op::RopeUpdate { offset: OffsetArg::Tensor(tensor), .. })
                if view.layout.len() == 1 =>
            {
                self.first_of(*tensor)
            }
            _ => None,
        };
        let whole = dst.is_plain()
            && (axis, range.step) == (2, 1)
            && freqs.is_none_or(|view| view.is_plain())
            && matches!((x.sizes(), dst.sizes()), (&[1, h, t, d], &[1, heads, _, features]) if (h, t, d) == (heads, range.count, features));
        let (Some(offset), true) = (offset, whole) else { return Ok(None) };
        let (dispatch, own) = (self.lowering.dispatches.len(), self.lowering.step);
        let k = Turned {
            dispatch: None,
            step: own,
            x,
            out: dst,
            dims,
            offset,
            freqs,
            traditional,
            radians,
            scale,
        };
        // Where it begins in its region is a part of the row, because rows are counted from the region's begin.
        let row = x.sizes()[3] * x.dtype.size();
        if !dst.offset.is_multiple_of(row) {
            return Ok(None);
        }
        let start = (range.start + dst.offset / row, 0);
        let last = self.ropes.values().find(|q| q.dispatch.is_some_and(|at| at + 1 == dispatch)).cloned();
        let new = Cacheable { q: last.as_ref(), k: &k, v: None };
        if let Some(q) = &last
            && lower::turn(&mut self.lowering, &new, [dst, dst], start).is_some()
        {
            self.merge_with(q.step);
            self.ropes.clear();
            return Ok(Some(dst));
        }
        let alone = Cacheable { q: None, ..new };
        Ok(lower::turn(&mut self.lowering, &alone, [dst, dst], start).map(|()| dst))
    }

    /// Products of few rows as one dispatch, with a norm that was left to them; false where that cannot be.
    pub(super) fn multiplied(
        &mut self,
        x: ValueId,
        outs: &[View],
        packed: &[PackedRows],
        gate: Option<&'static str>,
    ) -> Result<bool, WalkError> {
        let (x, norm) = match self.norms.get(&x) {
            Some(normed) => (normed.sum, Some((normed.weight, normed.eps))),
            None => (self.tensor(x)?, None),
        };
        let products =
            Products { outs: outs.to_vec(), packed: packed.to_vec(), gate, norm, ..Products::new(x) };
        Ok(lower::gemv(&mut self.lowering, products))
    }

    /// A tensor whose norm was left to others, computed after all.
    pub(super) fn settled(&mut self, x: ValueId) -> Result<View, WalkError> {
        let view = self.tensor(x)?;
        if let Some(Normed { sum, weight, eps }) = self.norms.remove(&x) {
            lower::norm(&mut self.lowering, (None, view), sum, None, (Some(weight), eps));
        }
        Ok(view)
    }

    fn packed_list(
        &self,
        w: &[ValueId],
        scales: &[ValueId],
        biases: &[ValueId],
        form: (&str, i32, i32),
    ) -> Result<Vec<PackedRows>, WalkError> {
        let parts = w.iter().zip(scales).enumerate();
        parts.map(|(at, (&w, &scales))| self.packed(w, scales, biases.get(at).copied(), form)).collect()
    }

    pub(super) fn projections(&mut self, node: &Node, types: &[Type]) -> Result<(), WalkError> {
        let Op::Projections { x, w, scales, biases, group_size, bits, mode } = &node.op else {
            return invalid("the op multiplies nothing");
        };
        let mut outs = Vec::with_capacity(node.results.len());
        for (&result, ty) in node.results.iter().zip(types) {
            let Type::Tensor(ty) = ty else { return invalid("a product is a tensor") };
            outs.push(self.placed(result, ty)?);
        }
        let packed = self.packed_list(w, scales, biases, (mode, *bits, *group_size))?;
        if !self.multiplied(*x, &outs, &packed, None)? {
            let x = self.settled(*x)?;
            for (&out, &packed) in outs.iter().zip(&packed) {
                odd(lower::quantized_matmul(&mut self.lowering, out, x, packed, true))?;
            }
        }
        for (&result, &out) in node.results.iter().zip(&outs) {
            self.set_tensor(result, out);
            self.firsts[result.0 as usize] = None;
        }
        Ok(())
    }

    pub(super) fn gated(&mut self, op: &Op<Ssa>, out: View, scratch: Option<usize>) -> Result<(), WalkError> {
        let Op::GatedProjection { x, w, scales, biases, group_size, bits, mode, activation } = op else {
            return invalid("the op has no gate");
        };
        let Some(activation) = Activation::from_name(activation) else {
            return invalid(format!("no activation is called {activation}"));
        };
        let packed = self.packed_list(w, scales, biases, (mode, *bits, *group_size))?;
        let &[of_gate, of_up] = packed.as_slice() else { return invalid("a gate has two matrices") };
        if self.multiplied(*x, &[out], &packed, Some(activation.name()))? {
            return Ok(());
        }
        let x = self.settled(*x)?;
        let gate = self.aside(scratch, out.dtype, out.sizes(), 0);
        let up = self.aside(scratch, out.dtype, out.sizes(), 1);
        let on = &mut self.lowering;
        odd(lower::quantized_matmul(on, gate, x, of_gate, true))?;
        odd(lower::quantized_matmul(on, up, x, of_up, true))?;
        let mut map = |kind: OpKind, form: u8, inputs: &[View]| {
            let what = Numbers { kind, form, work: out.dtype, numbers: [0; 2], inputs };
            lower::elementwise(on, out, &what);
        };
        match activation {
            Activation::Silu => map(OpKind::Silu, 0, &[gate]),
            Activation::Gelu => map(OpKind::Gelu, 0, &[gate]),
            Activation::GeluTanh => map(OpKind::Gelu, 1, &[gate]),
            Activation::SigmoidProduct => {
                map(OpKind::Sigmoid, 0, &[gate]);
                map(OpKind::Multiply, 0, &[gate, out]);
            }
        }
        // Each element is read by the thread that writes it.
        map(OpKind::Multiply, 0, &[out, up]);
        Ok(())
    }

    /// Rows of packed weights as numbers.
    pub(super) fn embedded(&mut self, op: &Op<Ssa>, out: View) -> Result<(), WalkError> {
        let Op::PackedEmbedding { w, scales, biases, indices, group_size, bits, mode, .. } = op else {
            return invalid("the op picks no rows");
        };
        let packed = self.packed(*w, *scales, *biases, (mode, *bits, *group_size))?;
        let indices = self.tensor(*indices)?;
        odd(lower::embed(&mut self.lowering, out, indices, packed))
    }

    pub(super) fn add_norm(&mut self, node: &Node, types: &[Type]) -> Result<(), WalkError> {
        let (&Op::AddRmsNorm { a, b, weight, eps }, &[summed, normed]) = (&node.op, node.results.as_slice())
        else {
            return invalid("the op adds and norms");
        };
        let &[Type::Tensor(sum_type), Type::Tensor(normed_type)] = &types else {
            return invalid("a sum and a norm are tensors");
        };
        let (first, second, weight) = (self.tensor(a)?, self.tensor(b)?, self.maybe(weight)?);
        let out = self.placed(normed, normed_type)?;
        let sum = match self.added_behind_product([(a, first), (b, second)]) {
            Some(sum) => {
                let left = weight.filter(|&weight| self.is_left_to_products(normed, sum, (weight, eps)));
                match left {
                    Some(weight) => {
                        self.norms.insert(normed, Normed { sum, weight, eps });
                    }
                    None => self.normed(out, sum, (weight, eps)),
                }
                sum
            }
            None => {
                let sum = self.placed(summed, sum_type)?;
                if lower::is_normed_by_words(&self.lowering, (Some(sum), out), first, Some(second)) {
                    let on = &mut self.lowering;
                    lower::norm(on, (Some(sum), out), first, Some(second), (weight, eps));
                } else {
                    let inputs = [first, second];
                    let (kind, work) = (OpKind::Add, sum.dtype);
                    let what = Numbers { kind, form: 0, work, numbers: [0; 2], inputs: &inputs };
                    lower::elementwise(&mut self.lowering, sum, &what);
                    self.normed(out, sum, (weight, eps));
                }
                sum
            }
        };
        for (value, view) in [(summed, sum), (normed, out)] {
            self.set_tensor(value, view);
            self.firsts[value.0 as usize] = None;
        }
        Ok(())
    }

    fn normed(&mut self, out: View, x: View, (weight, eps): (Option<View>, f32)) {
        let on = &mut self.lowering;
        if lower::is_normed_by_words(on, (None, out), x, None) {
            lower::norm(on, (None, out), x, None, (weight, eps));
        } else {
            lower::rows(on, out, x, OpKind::RMSNorm, (weight, None), eps);
        }
    }

    /// Where the product that was just lowered gives one of two operands and nobody else reads that: it adds the other itself. The sum
    /// then lies in memory of its own, because it is written before the plan has it.
    fn added_behind_product(&mut self, operands: [(ValueId, View); 2]) -> Option<View> {
        let (at, products) = self.lowering.product.take()?;
        let &[out] = products.outs.as_slice() else { return None };
        let is_product = |&(value, view): &(ValueId, View)| {
            (out.region, out.offset, out.dtype) == (view.region, view.offset, view.dtype)
                && out.layout.len() == view.layout.len()
                && self.planned.is_read_once(value)
        };
        let place = operands.iter().position(is_product)?;
        let (first, second) = (operands[place].1, operands[1 - place].1);
        let fits =
            at == self.lowering.dispatches.len() && products.residual.is_none() && products.gate.is_none();
        if !fits || (first.offset, first.region) == (second.offset, second.region) {
            return None;
        }
        let before = self.lowering.cursor();
        let sum = self.lowering.scratch(first.dtype, first.sizes());
        let plain = self.lowering.dispatches.pop()?;
        let products = Products { outs: vec![sum], residual: Some(second), ..products };
        if !lower::gemv(&mut self.lowering, products) {
            self.lowering.begin_at(before);
            self.lowering.dispatches.push(plain);
            return None;
        }
        self.merge_with(plain.step);
        Some(sum)
    }

    /// Whether all who read a norm are products that can compute it themselves.
    fn is_left_to_products(&self, normed: ValueId, sum: View, norm: (View, f32)) -> bool {
        let (steps, count) = &self.planned.readers[normed.0 as usize];
        let fits = |&step: &usize| {
            let Some(StepNode::Run { node, .. }) = self.planned.steps.get(step) else { return false };
            let (x, packed) = match &node.op {
                Op::QuantizedMatmul {
                    x, w, scales, biases, group_size, bits, mode, transpose: true, ..
                } => {
                    let packed = self.packed(*w, *scales, *biases, (mode, *bits, *group_size));
                    (x, packed.map(|packed| vec![packed]))
                }
                Op::Projections { x, w, scales, biases, group_size, bits, mode }
                | Op::GatedProjection { x, w, scales, biases, group_size, bits, mode, .. } => {
                    (x, self.packed_list(w, scales, biases, (mode, *bits, *group_size)))
                }
                _ => return false,
            };
            let Ok(packed) = packed else { return false };
            let norm = Some(norm);
            *x == normed && Products { packed, norm, ..Products::new(sum) }.fits(&self.lowering)
        };
        *count == steps.len() && steps.iter().all(fits)
    }
}
