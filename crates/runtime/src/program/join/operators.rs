//! Operators between delegates that are being joined: what they are given as values of the graph, and what they become there.

use super::super::method::ValuePlan;
use super::super::tensors::TensorPlan;
use super::super::translate::{self, Nodes, Operand};
use super::{Group, MOST_VALUES};
use crate::Value;
use crate::backend::Backend;
use pteron_ir::op::IntArg;
use pteron_ir::{Output, TensorType, Type, ValueId};
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
        let [out] = outs else { return None };
        if self.written.len() >= MOST_VALUES || self.inputs.len() + inputs.len() > MOST_VALUES {
            return None;
        }
        let before = self.mark();
        let added = self.try_operator(name, inputs, *out, backend);
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
        out: usize,
        backend: &dyn Backend,
    ) -> Option<()> {
        let operands = inputs.iter().map(|&value| self.operand(value)).collect::<Option<Vec<Operand>>>()?;
        let mut nodes = Nodes { graph: &mut self.graph, backend };
        let value = translate::append(name, &operands, &mut nodes)?;
        let ty = self.graph.ty(value)?.clone();
        if !self.always_fits(out, &ty) {
            return None;
        }
        self.written.push((out, Output { name: String::new(), value, ty }));
        Some(())
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
                    None => self.inside(value).map(Operand::Number),
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
    fn number(&self, value: usize) -> Option<IntArg<ValueId>> {
        match translate::fixed(&self.method.values, value, |value| self.uses.is_fixed(value)) {
            Some(Value::Int(number)) => Some(IntArg::Literal(number)),
            Some(_) => None,
            None => self.inside(value).map(IntArg::Value),
        }
    }

    /// An integer that the graph has computed. Of others nobody knows what they will be.
    fn inside(&self, value: usize) -> Option<ValueId> {
        let inside = self.source(value)??;
        matches!(self.graph.ty(inside), Some(Type::Int(_))).then_some(inside)
    }

    /// A tensor from outside, where its sizes are known and it lies in memory as it is read.
    fn take(&mut self, value: usize, plan: &TensorPlan) -> Option<ValueId> {
        let is_plain = plan.order.iter().copied().eq(0..plan.order.len() as u8);
        if plan.dynamic || !is_plain {
            return None;
        }
        if let Some(constant) = &plan.constant {
            return self.constant(value, constant);
        }
        self.inputs.push(value);
        Some(self.graph.add_input("", Type::Tensor(TensorType::known(plan.dtype, &plan.sizes))))
    }

    /// A constant of the program as one of the graph.
    fn constant(&mut self, value: usize, tensor: &HostTensor) -> Option<ValueId> {
        let known = self.program.iter().find(|(known, _)| *known == value);
        if let Some((_, known)) = known {
            return Some(*known);
        }
        let name = program_name(value);
        if !self.names.insert(name.clone()) {
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
