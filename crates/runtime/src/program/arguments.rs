//! Inputs and outputs of a method as a caller sees them, and the check of what a caller gives.

use super::method::{Instruction, Method, ValuePlan};
use super::{Argument, ArgumentKind, Bound};
use crate::backend::ProgramGraphs;
use crate::{Error, Result, Value};
use pteron_ir::{Graph, Type, ValueId};
use std::collections::HashSet;

/// What the arguments of a method are read from.
pub(super) struct Arguments<'a> {
    pub(super) method: &'a Method,
    /// Values that the method uses.
    pub(super) used: &'a HashSet<usize>,
    pub(super) graphs: &'a ProgramGraphs,
}

impl Arguments<'_> {
    pub(super) fn inputs(&self) -> Vec<Argument> {
        let inputs = self.method.inputs.iter();
        inputs.map(|&value| self.argument(value, self.consumer(value), self.used.contains(&value))).collect()
    }

    pub(super) fn outputs(&self) -> Vec<Argument> {
        self.method.outputs.iter().map(|&value| self.argument(value, self.producer(value), true)).collect()
    }

    /// A delegate knows more of an argument than the program: its name, and which dims are dynamic.
    fn argument(&self, value: usize, known: Option<(&Graph, &str, ValueId)>, used: bool) -> Argument {
        let name = known.map_or_else(String::new, |(_, name, _)| name.to_owned());
        let kind = match &self.method.values[value] {
            ValuePlan::Tensor(plan) => {
                let declared = plan.sizes.iter().map(|&size| match plan.dynamic {
                    true => Bound { min: 0, max: Some(size) },
                    false => Bound::exactly(size),
                });
                let mut dims: Vec<Bound> = declared.collect();
                if let Some((graph, _, id)) = known
                    && let Some(Type::Tensor(ty)) = graph.ty(id)
                    && ty.shape.len() == dims.len()
                    && plan.dynamic
                {
                    for (bound, dim) in dims.iter_mut().zip(&ty.shape) {
                        narrow(bound, graph, dim);
                    }
                }
                ArgumentKind::Tensor { dtype: plan.dtype, dims }
            }
            // An exporter that fixed a number leaves its input unused; one that is used is a real input.
            ValuePlan::Value(Value::Int(_)) if used => ArgumentKind::Int,
            ValuePlan::Value(fixed) => ArgumentKind::Fixed(fixed.describe()),
            ValuePlan::Ints(_) => ArgumentKind::Fixed("a list of integers".into()),
            ValuePlan::Tensors(_) => ArgumentKind::Fixed("a list of tensors".into()),
        };
        Argument { name, kind }
    }

    /// The delegate input that a value is given to.
    fn consumer(&self, value: usize) -> Option<(&Graph, &str, ValueId)> {
        self.delegate_calls().find_map(|(graph, inputs, _)| {
            let position = inputs.iter().position(|&input| input == value)?;
            graph.inputs.get(position).map(|input| (graph, input.name.as_str(), input.value))
        })
    }

    /// The delegate output that a value is.
    fn producer(&self, value: usize) -> Option<(&Graph, &str, ValueId)> {
        self.delegate_calls().find_map(|(graph, _, outputs)| {
            let position = outputs.iter().position(|&output| output == value)?;
            graph.outputs.get(position).map(|output| (graph, output.name.as_str(), output.value))
        })
    }

    fn delegate_calls(&self) -> impl Iterator<Item = (&Graph, &[usize], &[usize])> {
        self.method.chains.iter().flatten().filter_map(|instruction| match instruction {
            Instruction::Delegate { graph, inputs, outputs, .. } => {
                let graph = &self.graphs.graphs.get(graph.0)?.module.main;
                Some((graph, inputs.as_slice(), outputs.as_slice()))
            }
            _ => None,
        })
    }
}

fn narrow(bound: &mut Bound, graph: &Graph, dim: &pteron_ir::Dim) {
    if let Some(size) = dim.as_known().and_then(|size| usize::try_from(size).ok()) {
        *bound = Bound::exactly(size);
        return;
    }
    if let Some(info) = dim.as_symbol().and_then(|symbol| graph.symbols.get(symbol)) {
        bound.min = usize::try_from(info.min).unwrap_or(0);
    }
    let most = graph.symbols.upper(dim).and_then(|most| usize::try_from(most).ok());
    bound.max = match (bound.max, most) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
}

/// Refuses an input that the method does not take, saying what it wants.
pub(crate) fn check(
    method: &str,
    index: usize,
    argument: &Argument,
    plan: &ValuePlan,
    given: &Value,
) -> Result<()> {
    let wrong = || {
        Err(Error::Input {
            method: method.to_owned(),
            index,
            name: argument.name.clone(),
            wanted: argument.kind.to_string(),
            given: given.describe(),
        })
    };
    match (&argument.kind, given) {
        (ArgumentKind::Tensor { dtype, dims }, Value::Tensor(_) | Value::Device(_)) => {
            let (given_dtype, shape) = match given {
                Value::Tensor(tensor) => (tensor.dtype(), tensor.shape()),
                Value::Device(tensor) => (tensor.dtype(), tensor.shape()),
                _ => return wrong(),
            };
            let fits = given_dtype == *dtype
                && shape.len() == dims.len()
                && shape.iter().zip(dims).all(|(&size, bound)| bound.allows(size));
            if fits { Ok(()) } else { wrong() }
        }
        (ArgumentKind::Int, Value::Int(_)) => Ok(()),
        (ArgumentKind::Fixed(_), given) => match plan {
            ValuePlan::Value(fixed) if same(fixed, given) => Ok(()),
            _ => wrong(),
        },
        _ => wrong(),
    }
}

fn same(fixed: &Value, given: &Value) -> bool {
    match (fixed, given) {
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Float(a), Value::Float(b)) => a == b || (a.is_nan() && b.is_nan()),
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Str(a), Value::Str(b)) => a == b,
        (Value::None, Value::None) => true,
        _ => false,
    }
}

impl std::fmt::Display for ArgumentKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ArgumentKind::Tensor { dtype, dims } => {
                let dims: Vec<String> = dims.iter().map(Bound::to_string).collect();
                write!(f, "{dtype} [{}]", dims.join(", "))
            }
            ArgumentKind::Int => f.write_str("int"),
            ArgumentKind::Fixed(value) => write!(f, "exactly {value}, which is fixed in the program"),
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.max {
            Some(max) if max == self.min => write!(f, "{max}"),
            Some(max) => write!(f, "{}..{max}", self.min),
            None => write!(f, "{}..", self.min),
        }
    }
}

impl Bound {
    /// A dim of exactly that size.
    pub fn exactly(size: usize) -> Bound {
        Bound { min: size, max: Some(size) }
    }

    /// Whether a size is accepted: a fixed one only as it is, any other up to its bound. The least size is not
    /// held to.
    pub fn allows(&self, size: usize) -> bool {
        match self.max {
            Some(max) if max == self.min => size == max,
            Some(max) => size <= max,
            None => true,
        }
    }
}
