//! Runs a graph, node by node: the type rule with the numbers at hand, then the kernel. Values are dropped after
//! their last use, so an op that updates one may do it in place.

use super::attend::Flat;
use super::cost;
use super::effects::Effects;
use super::kernels::random;
use super::kernels::{self, Datum, KernelError, Operands, ResultType};
use super::liveness::{BlockLife, reads_once};
use super::memory::{Held, address};
use crate::backend::{GraphId, RunControl, Step};
use crate::error::NodeError;
use crate::value::describe_tensor;
use crate::{Error, Result, Value};
use pteron_format::Limits;
use pteron_ir::op::ResultKind;
use pteron_ir::text::Printer;
use pteron_ir::{Block, Dim, Graph, Node, Op, Symbols, TensorType, Type, TypeSource, ValueId, infer};
use pteron_tensor::{DType, HostTensor, Scalar, element_count};

/// Everything that a run of a graph needs besides its arguments.
pub(super) struct Context<'a> {
    pub(super) id: GraphId,
    pub(super) graph: &'a Graph,
    pub(super) life: &'a BlockLife,
    pub(super) limits: &'a Limits,
    pub(super) control: &'a RunControl,
    pub(super) effects: &'a mut Effects,
    /// Bytes of state that this graph does not touch.
    pub(super) elsewhere: u64,
    /// Where tokens are those of several sessions.
    pub(super) flat: Option<Flat<'a>>,
}

/// Runs a graph: outputs in their own dtypes. `constants` and `buffers` stand in the graph's order; the buffers
/// are replaced by what they hold afterwards.
pub(super) fn run(
    context: Context<'_>,
    inputs: Vec<Datum>,
    constants: &[HostTensor],
    buffers: &mut [HostTensor],
) -> Result<Vec<Datum>> {
    let graph = context.graph;
    let held = Held::new(context.limits, context.control.held.saturating_add(context.elsewhere));
    let values = graph.values.iter().map(|_| None).collect();
    let types = graph.values.iter().map(|_| None).collect();
    let mut machine = Machine { context, values: Values { data: values, types }, held };
    for (constant, tensor) in graph.constants.iter().zip(constants) {
        machine.held.borrow(tensor);
        machine.values.set(constant.value, Datum::Tensor(tensor.clone()));
    }
    for (input, datum) in graph.inputs.iter().zip(inputs) {
        machine.set(input.value, datum);
    }
    for (buffer, tensor) in graph.buffers.iter().zip(buffers.iter()) {
        machine.set(buffer.value, Datum::Tensor(tensor.clone()));
    }
    machine.block(&graph.body, machine.context.life)?;
    let outputs =
        graph.outputs.iter().map(|output| machine.get(output.value).cloned()).collect::<Result<_>>()?;
    let updates = graph.buffers.iter().map(|buffer| machine.tensor(buffer.update).cloned());
    let updates = updates.collect::<Result<Vec<_>>>()?;
    for ((slot, update), buffer) in buffers.iter_mut().zip(updates).zip(&graph.buffers) {
        if (slot.dtype(), slot.shape()) != (update.dtype(), update.shape()) {
            return Err(Error::Invalid(format!(
                "buffer `{}` holds {}, but {} is written to it",
                buffer.name,
                describe_tensor(slot.dtype(), slot.shape()),
                describe_tensor(update.dtype(), update.shape()),
            )));
        }
        *slot = update;
    }
    Ok(outputs)
}

/// Values with their types: known sizes and known integers throughout.
pub(super) struct Values {
    pub(super) data: Vec<Option<Datum>>,
    types: Vec<Option<Type>>,
}

impl Values {
    fn set(&mut self, value: ValueId, datum: Datum) -> Option<Datum> {
        let ty = match &datum {
            Datum::Tensor(tensor) => Type::Tensor(TensorType::known(tensor.dtype(), tensor.shape())),
            Datum::Scalar(Scalar::Int(number)) => Type::Int(Dim::known(*number)),
            Datum::Scalar(Scalar::Bool(truth)) => Type::Int(Dim::known((*truth).into())),
            Datum::Scalar(Scalar::Float(_)) => Type::Float,
        };
        let index = value.0 as usize;
        if let Some(slot) = self.types.get_mut(index) {
            *slot = Some(ty);
        }
        self.data.get_mut(index).and_then(|slot| slot.replace(datum))
    }
}

impl TypeSource for Values {
    fn type_of(&self, value: ValueId) -> Option<&Type> {
        self.types.get(value.0 as usize)?.as_ref()
    }
}

pub(super) struct Machine<'a> {
    pub(super) context: Context<'a>,
    pub(super) values: Values,
    pub(super) held: Held<'a>,
}

impl<'a> Machine<'a> {
    pub(super) fn get(&self, value: ValueId) -> Result<&Datum> {
        let datum = self.values.data.get(value.0 as usize).and_then(Option::as_ref);
        datum.ok_or_else(|| Error::Invalid(format!("%{} is read before it is set", value.0)))
    }

    pub(super) fn tensor(&self, value: ValueId) -> Result<&HostTensor> {
        match self.get(value)? {
            Datum::Tensor(tensor) => Ok(tensor),
            Datum::Scalar(_) => Err(Error::Invalid(format!("%{} is a number, not a tensor", value.0))),
        }
    }

    pub(super) fn set(&mut self, value: ValueId, datum: Datum) {
        if let Datum::Tensor(tensor) = &datum {
            self.held.hold(tensor);
        }
        if let Some(Datum::Tensor(old)) = self.values.set(value, datum) {
            self.held.release(address(&old));
        }
    }

    pub(super) fn clear(&mut self, value: ValueId) {
        if let Some(Some(Datum::Tensor(tensor))) =
            self.values.data.get_mut(value.0 as usize).map(Option::take)
        {
            self.held.release(address(&tensor));
        }
    }

    pub(super) fn block(&mut self, block: &'a Block, life: &'a BlockLife) -> Result<()> {
        for (index, node) in block.nodes.iter().enumerate() {
            self.context.control.check()?;
            let dying = &life.dying[index];
            let leaving: Vec<(ValueId, usize)> =
                dying.iter().filter_map(|&value| Some((value, address(self.tensor(value).ok()?)))).collect();
            let results = match &node.op {
                Op::If { .. } => self.branch(node, &life.nested[index]),
                Op::Scan { .. } => self.scan(node, &life.nested[index]),
                _ => self.node(node, &|value| dying.contains(&value) && reads_once(node, value)),
            };
            let results = results.map_err(|error| self.at_node(node, error))?;
            self.trace(node, &results);
            for (&value, datum) in node.results.iter().zip(results) {
                self.set(value, datum);
            }
            for &(value, address) in &leaving {
                self.values.data[value.0 as usize] = None;
                self.held.release(address);
            }
            // Results that nobody reads.
            dying.iter().for_each(|&value| self.clear(value));
        }
        Ok(())
    }

    /// An op that only computes, or computes with an effect.
    fn node(&mut self, node: &Node, last_use: &dyn Fn(ValueId) -> bool) -> Result<Vec<Datum>, NodeError> {
        // Integers read out of tensors get a symbol from their rule, which their value replaces.
        let types = infer(&node.op, &self.values, &mut Symbols::default())?;
        if node.op.spec().result.kind == ResultKind::Scalar {
            let operands = Operands::new(&mut self.values.data, last_use, Vec::new());
            return Ok(vec![Datum::Scalar(kernels::compute_scalar(&node.op, &operands)?)]);
        }
        if node.op.kind().is_internal() {
            return self.expanded(node).map_err(|error| NodeError::Run(Box::new(error)));
        }
        let results = types.into_iter().map(result_type).collect::<Result<Vec<_>, _>>()?;
        self.admit(node, &results).map_err(|error| NodeError::Run(Box::new(error)))?;
        let tensors = match &node.op {
            Op::UpdateAndAttend { .. } => vec![self.update_and_attend(&node.op, &results)?],
            Op::RandomBits { seed: None, .. } => {
                let (kept, used) = self.context.effects.key.split();
                self.context.effects.key = kept;
                results.iter().map(|result| random::bits(used, result)).collect::<Result<_, _>>()?
            }
            op => {
                let mut operands = Operands::new(&mut self.values.data, last_use, results);
                kernels::compute(op, &mut operands)?
            }
        };
        Ok(tensors.into_iter().map(Datum::Tensor).collect())
    }

    /// An internal op: the plain ops that it stands for.
    fn expanded(&mut self, node: &Node) -> Result<Vec<Datum>> {
        let mut operands = Vec::new();
        node.for_each_operand(|value| operands.push(value));
        let operands = operands.into_iter().map(|value| Ok((value, to_value(self.get(value)?.clone()))));
        let operands = operands.collect::<Result<Vec<_>>>()?;
        // A listener wants the nodes of the graph.
        let control = RunControl { trace: None, ..self.context.control.clone() };
        super::run_expanded(&node.op, &operands, self.context.effects, self.context.limits, &control)
    }

    /// Checks memory and work before anything is computed.
    fn admit(&self, node: &Node, results: &[ResultType]) -> Result<()> {
        // Every step counts, so that no loop is free.
        let shape_of = |value: ValueId| match self.values.data.get(value.0 as usize) {
            Some(Some(Datum::Tensor(tensor))) => tensor.shape(),
            _ => &[],
        };
        let written = results.iter().fold(0u64, |sum, result| sum.saturating_add(extent(&result.shape)));
        self.context.control.charge(cost::work(node, &shape_of, written).saturating_add(1))?;
        let mut together = 0u64;
        for result in results {
            // A tensor with an empty dim has no bytes, but a kernel may still walk its other dims.
            let bytes = extent(&result.shape).saturating_mul(result.dtype.size() as u64);
            self.held.admit(bytes, 0)?;
            together = together.saturating_add(bytes);
        }
        self.held.admit(0, together)
    }

    fn trace(&self, node: &Node, results: &[Datum]) {
        let Some(trace) = &self.context.control.trace else { return };
        let results: Vec<Value> = results.iter().cloned().map(to_value).collect();
        trace.step(&Step { graph: self.context.id, op: &node.op, place: node.place, results: &results });
    }

    /// Adds the op, its place and its operands; errors from inside a nested block have theirs already.
    fn at_node(&self, node: &Node, source: NodeError) -> Error {
        if let NodeError::Run(inner) = source {
            return match *inner {
                error @ (Error::Node { .. } | Error::Cancelled | Error::Deadline) => error,
                other => self.node_error(node, NodeError::Run(Box::new(other))),
            };
        }
        self.node_error(node, source)
    }

    fn node_error(&self, node: &Node, source: NodeError) -> Error {
        let mut operands = Vec::new();
        node.for_each_operand(|value| {
            operands.push(match self.values.type_of(value) {
                Some(Type::Tensor(tensor)) => {
                    format!(
                        "%{} {}",
                        value.0,
                        describe_tensor(tensor.dtype, &tensor.known_shape().unwrap_or_default())
                    )
                }
                Some(Type::Int(dim)) => format!("%{} = {}", value.0, dim.as_known().unwrap_or_default()),
                Some(_) => format!("%{}", value.0),
                None => format!("%{} unset", value.0),
            });
        });
        let operands = if operands.is_empty() { "nothing".to_owned() } else { operands.join(", ") };
        let op = Printer::new(self.context.graph).node(node).to_string();
        Error::Node { op, place: show_place(node), operands, source: Box::new(source) }
    }
}

/// Where a node stood in its payload.
pub(crate) fn show_place(node: &Node) -> String {
    match node.place {
        Some(place) => format!("chain {} #{}", place.chain, place.index),
        None => "made by lift".to_owned(),
    }
}

/// A value of the graph as one of the program.
pub(super) fn to_value(datum: Datum) -> Value {
    match datum {
        Datum::Tensor(tensor) => Value::Tensor(tensor),
        Datum::Scalar(Scalar::Int(value)) => Value::Int(value),
        Datum::Scalar(Scalar::Float(value)) => Value::Float(value),
        Datum::Scalar(Scalar::Bool(value)) => Value::Bool(value),
    }
}

fn result_type(ty: Type) -> Result<ResultType, NodeError> {
    let unknown = || NodeError::Kernel(KernelError::Invalid("the size of a result is not known".into()));
    match ty {
        Type::Tensor(tensor) => {
            Ok(ResultType { dtype: tensor.dtype, shape: tensor.known_shape().ok_or_else(unknown)? })
        }
        _ => Err(NodeError::Kernel(KernelError::Invalid("a number where a tensor is given".into()))),
    }
}

/// The product of all dims that are not zero.
pub fn extent(shape: &[usize]) -> u64 {
    shape.iter().fold(1u64, |product, &dim| product.saturating_mul(dim.max(1) as u64))
}

/// Bytes of a tensor of that type.
pub(super) fn byte_size(dtype: DType, shape: &[usize]) -> Option<u64> {
    (element_count(shape)? as u64).checked_mul(dtype.size() as u64)
}
