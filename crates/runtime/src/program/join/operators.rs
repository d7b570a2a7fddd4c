//! Operators between delegates that are being joined: what they are given as values of the graph, and what they become there.

use super::super::method::ValuePlan;
use super::super::tensors::TensorPlan;
use super::super::translate::{self, Nodes, Operand};
use super::super::uses::Span;
use super::written::Held;
use super::{Group, MOST_INPUTS};
use crate::Value;
use crate::backend::Backend;
use pteron_ir::op::IntArg;
use pteron_ir::{Dim, Output, TensorType, Type, ValueId};
use pteron_tensor::HostTensor;

/// Members of a list that an operator takes at most: each is looked for among the values of the group.
const MOST_MEMBERS: usize = 32;

impl Group<'_> {
    /// Adds a portable operator as a node; it stays only if another delegate follows. `None` where there is no node that
    /// means the same, and nothing is changed.
    pub(super) fn add_operator(
        &mut self,
        name: &str,
        inputs: &[usize],
        outs: &[usize],
        backend: &dyn Backend,
    ) -> Option<()> {
        if self.inputs.len() + inputs.len() > MOST_INPUTS {
            return None;
        }
        let before = self.mark();
        let added = self.try_operator(name, inputs, outs, backend);
        match added {
            Some(()) => {
                self.steps += 1;
                self.behind.get_or_insert(before);
            }
            None => self.cut(&before),
        }
        added
    }

    /// Leaves out that a tensor is dropped, where nobody looks for it any more; the others behind it stay in the group only if
    /// another delegate follows.
    pub(super) fn add_free(&mut self, value: usize, chain: usize, place: usize) -> Option<()> {
        let is_missed = self.uses.is_used_after(value, chain, place);
        let before = self.mark();
        (!is_missed).then(|| {
            self.steps += 1;
            self.behind.get_or_insert(before);
        })
    }

    fn try_operator(
        &mut self,
        name: &str,
        inputs: &[usize],
        outs: &[usize],
        backend: &dyn Backend,
    ) -> Option<()> {
        let operands = inputs.iter().map(|&value| self.operand(value)).collect::<Option<Vec<Operand>>>()?;
        let mut nodes = Nodes { graph: &mut self.graph, backend };
        let values = translate::append(name, &operands, &mut nodes)?;
        let mut outputs = Vec::with_capacity(outs.len());
        for (&out, &value) in outs.iter().zip(&values) {
            let ty = self.graph.ty(value)?.clone();
            let fits = self.always_fits(out, &ty);
            outputs.push(fits.then_some((out, Output { name: String::new(), value, ty }))?);
        }
        if outputs.len() != outs.len() {
            return None;
        }
        let is_view = matches!(name, "executorch_prim::et_view.default");
        for (out, output) in outputs {
            let span = Span::of(&self.method.values[out]);
            match inputs.first() {
                Some(&of) if is_view && self.lies_with(out, of) => {
                    self.written.push_view(out, span, of, output);
                }
                _ => self.written.push(out, span, output),
            }
        }
        Some(())
    }

    /// Whether two values lie at one place, in full, and the group has written the second.
    fn lies_with(&self, value: usize, of: usize) -> bool {
        let [span, other] = [value, of].map(|value| Span::of(&self.method.values[value]));
        span.is_some() && span == other && matches!(self.written.held(of, other), Held::Written(_))
    }

    /// What an operator is given.
    fn operand(&mut self, value: usize) -> Option<Operand> {
        let method = self.method;
        match &method.values[value] {
            ValuePlan::Tensor(_) => self.tensor(value).map(Operand::Tensor),
            ValuePlan::Tensors(items) if items.len() > MOST_MEMBERS => None,
            ValuePlan::Ints(items) if items.len() > MOST_MEMBERS => None,
            ValuePlan::Tensors(items) => {
                let items = items.iter().map(|item| self.tensor((*item)?));
                items.collect::<Option<_>>().map(Operand::Tensors)
            }
            ValuePlan::Ints(items) => {
                items.iter().map(|&item| self.number(item)).collect::<Option<_>>().map(Operand::Ints)
            }
            ValuePlan::Value(_) => {
                let fixed = translate::fixed(&method.values, value, |value| self.uses.is_fixed(value));
                match fixed {
                    Some(fixed) => Some(Operand::Fixed(fixed)),
                    None => self.integer(value).map(Operand::Number),
                }
            }
        }
    }

    /// A tensor as a value of the graph.
    fn tensor(&mut self, value: usize) -> Option<ValueId> {
        let method = self.method;
        let ValuePlan::Tensor(plan) = &method.values[value] else { return None };
        match self.source(value)? {
            Some(inside) => Some(inside),
            None => self.take(value, plan),
        }
    }

    /// A member of a list of integers.
    fn number(&mut self, value: usize) -> Option<IntArg<ValueId>> {
        match translate::fixed(&self.method.values, value, |value| self.uses.is_fixed(value)) {
            Some(Value::Int(number)) => Some(IntArg::Literal(number)),
            Some(_) => None,
            None => self.integer(value).map(IntArg::Value),
        }
    }

    /// An integer that the graph has computed, or that is computed before it.
    fn integer(&mut self, value: usize) -> Option<ValueId> {
        if let Some(inside) = self.source(value)? {
            return matches!(self.graph.ty(inside), Some(Type::Int(_))).then_some(inside);
        }
        // What a number is when the method begins says of which kind it is.
        let is_integer = matches!(self.method.values[value], ValuePlan::Value(Value::Int(_)));
        is_integer.then(|| {
            let number = self.graph.symbols.fresh_int();
            self.inputs.push(value);
            self.graph.add_input("", Type::Int(number))
        })
    }

    /// A tensor from outside, where it lies in memory as it is read.
    fn take(&mut self, value: usize, plan: &TensorPlan) -> Option<ValueId> {
        if !plan.is_row_major() {
            return None;
        }
        if let Some(constant) = &plan.constant {
            return self.constant(value, constant);
        }
        let symbols = &mut self.graph.symbols;
        let shape = plan.sizes.iter().map(|&size| match plan.dynamic && size > 1 {
            // Which dims vary is said nowhere; one of at most 1 is 1, or there is nothing to compute.
            true => symbols.fresh_size(Some(size as i64)),
            false => Dim::known(size as i64),
        });
        let ty = TensorType { dtype: plan.dtype, shape: shape.collect() };
        self.inputs.push(value);
        Some(self.graph.add_input("", Type::Tensor(ty)))
    }

    /// A tensor that the file fixes, as a constant of the graph.
    pub(super) fn fixed_tensor(&mut self, value: usize) -> Option<ValueId> {
        let method = self.method;
        match &method.values[value] {
            ValuePlan::Tensor(plan @ TensorPlan { constant: Some(constant), .. }) if plan.is_row_major() => {
                self.constant(value, constant)
            }
            _ => None,
        }
    }

    /// A constant of the program as one of the graph.
    fn constant(&mut self, value: usize, tensor: &HostTensor) -> Option<ValueId> {
        let known = self.program.iter().find(|(known, _)| *known == value);
        if let Some((_, known)) = known {
            return Some(*known);
        }
        let name = program_name(value);
        if self.program.len() >= MOST_INPUTS || !self.names.insert(name.clone()) {
            return None;
        }
        let made = self.graph.add_constant(&name, TensorType::known(tensor.dtype(), tensor.shape()));
        self.program.push((value, made));
        Some(made)
    }
}

/// What a constant of the program is called in a graph; a delegate that has one of that name is not joined with it.
pub(super) fn program_name(value: usize) -> String {
    format!("value {value}")
}
