//! The instruction loop of a method: portable operators, delegates, moves and jumps over a table of values.
//!
//! Tensors that the file plans into shared memory are values here; a write replaces the value, so nothing is
//! ever seen through somebody else's memory. Buffers are the exception: they are read and written by number.

use crate::backend::{GraphId, RunControl, State};
use crate::portable::{Call, Operator, OutType, Outs, lanes};
use crate::program::{Inner, Instruction, Method, TensorPlan, TensorSource, ValuePlan, show_place};
use crate::reference::interpret::extent;
use crate::{Error, Result, Value};
use pteron_tensor::HostTensor;

/// One run of a method.
pub(crate) struct Execution<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) method: &'a Method,
    pub(crate) state: &'a mut dyn State,
    /// The program's buffers; the caller keeps its own until the run has succeeded.
    pub(crate) buffers: Vec<HostTensor>,
    pub(crate) values: Vec<Value>,
    /// Bytes of the tensors among the values, constants apart.
    pub(crate) held: u64,
    pub(crate) control: RunControl,
}

impl Execution<'_> {
    /// Runs all chains; the outputs in order.
    pub(crate) fn run(&mut self, inputs: &[Value]) -> Result<Vec<Value>> {
        self.values = self.method.values.iter().map(start).collect();
        for (index, (&value, given)) in self.method.inputs.iter().zip(inputs).enumerate() {
            self.set(value, given.clone())
                .map_err(|error| error.at(&self.method.name, format!("input {index}")))?;
        }
        let mut left = self.inner.limits.executed_instructions;
        for (number, chain) in self.method.chains.iter().enumerate() {
            let mut at = 0;
            while let Some(instruction) = chain.get(at) {
                left = left.checked_sub(1).ok_or(Error::Limit {
                    what: "the number of instructions",
                    limit: "executed_instructions",
                    found: self.inner.limits.executed_instructions + 1,
                    allowed: self.inner.limits.executed_instructions,
                })?;
                self.control.check()?;
                at = self.step(instruction, at).map_err(|error| {
                    error.at(
                        &self.method.name,
                        format!("{} ({})", show_place(number, at), instruction.describe()),
                    )
                })?;
            }
        }
        let outputs = self.method.outputs.iter().enumerate().map(|(index, &output)| {
            self.resolve(output).map_err(|error| error.at(&self.method.name, format!("output {index}")))
        });
        outputs.collect()
    }

    /// Runs one instruction; the place of the next.
    fn step(&mut self, instruction: &Instruction, at: usize) -> Result<usize> {
        match instruction {
            Instruction::Kernel { operator, inputs, outs } => self.kernel(operator, inputs, outs)?,
            Instruction::Delegate { graph, inputs, outputs, .. } => {
                let arguments =
                    inputs.iter().map(|&value| self.resolve(value)).collect::<Result<Vec<_>>>()?;
                let results = self.run_delegate(*graph, &arguments)?;
                for (&value, result) in outputs.iter().zip(results) {
                    self.store(value, result)?;
                }
            }
            Instruction::Move { from, to } => {
                let value = self.resolve(*from)?;
                self.set(*to, value)?;
            }
            Instruction::JumpFalse { condition, to } => {
                if !self.is_true(*condition)? {
                    return Ok(*to);
                }
            }
            Instruction::Free { value } => {
                if let ValuePlan::Tensor(TensorPlan { source: TensorSource::Run, .. }) =
                    self.method.values[*value]
                {
                    self.set(*value, Value::None)?;
                }
            }
        }
        Ok(at + 1)
    }

    fn run_delegate(&mut self, graph: GraphId, arguments: &[Value]) -> Result<Vec<Value>> {
        let buffers: u64 = self.buffers.iter().map(|buffer| buffer.bytes().len() as u64).sum();
        self.control.held = self.held.saturating_add(buffers);
        self.inner.loaded.run(graph, self.state, arguments, &self.control)
    }

    fn kernel(&mut self, operator: &Operator, inputs: &[usize], outs: &[usize]) -> Result<()> {
        let mut arguments = Vec::with_capacity(inputs.len());
        for (position, &value) in inputs.iter().enumerate() {
            let argument = match self.resolve(value) {
                // The first step of a loop finds nothing to grow.
                Err(Error::Unset(_)) if position == 0 && operator.outs == Outs::Grown => Value::None,
                other => other?,
            };
            arguments.push(match argument {
                Value::Device(tensor) => Value::Tensor(tensor.to_host()?),
                other => other,
            });
        }
        let out_types: Vec<OutType> = outs.iter().filter_map(|&out| self.out_type(out)).collect();
        self.admit(&arguments, &out_types)?;
        let call = Call { args: &arguments, outs: &out_types, control: &self.control };
        let results = operator.run(&call).map_err(|source| Error::Operator {
            arguments: arguments.iter().map(Value::describe).collect::<Vec<_>>().join(", "),
            source,
        })?;
        if results.len() != outs.len() {
            return Err(Error::Invalid(format!("{} results for {} values", results.len(), outs.len())));
        }
        for (&out, result) in outs.iter().zip(results) {
            self.store(out, result)?;
        }
        Ok(())
    }

    fn out_type(&self, value: usize) -> Option<OutType> {
        match &self.method.values[value] {
            ValuePlan::Tensor(plan) => Some(OutType { dtype: plan.dtype, sizes: plan.sizes.clone() }),
            _ => None,
        }
    }

    /// Counts work, and refuses what would not fit in memory: operators widen elements to eight bytes.
    fn admit(&self, arguments: &[Value], outs: &[OutType]) -> Result<()> {
        let given = arguments.iter().map(|argument| match argument {
            Value::Tensor(tensor) => tensor.len(),
            Value::Tensors(list) => list.iter().flatten().map(HostTensor::len).sum(),
            Value::Ints(list) => list.len(),
            _ => 0,
        });
        let given = given.map(|count| count as u64);
        let elements = given.chain(outs.iter().map(|out| extent(&out.sizes))).fold(0u64, u64::saturating_add);
        self.control.charge(elements.saturating_add(1))?;
        let (found, allowed) =
            (self.held.saturating_add(elements.saturating_mul(8)), self.inner.limits.live_bytes);
        if found > allowed {
            return Err(Error::Limit {
                what: "the memory of an operator",
                limit: "live_bytes",
                found,
                allowed,
            });
        }
        Ok(())
    }

    /// A value as operators and delegates take it: lists with their members.
    fn resolve(&self, value: usize) -> Result<Value> {
        match &self.method.values[value] {
            ValuePlan::Tensor(TensorPlan { source: TensorSource::Buffer(number), .. }) => {
                Ok(Value::Tensor(self.buffers[*number].clone()))
            }
            ValuePlan::Tensor(_) => match &self.values[value] {
                Value::None => Err(Error::Unset(value)),
                other => Ok(other.clone()),
            },
            ValuePlan::Value(_) => Ok(self.values[value].clone()),
            ValuePlan::Ints(items) => {
                self.control.charge(items.len() as u64)?;
                let items = items.iter().map(|&item| {
                    let number = self.values[item].as_int();
                    number.ok_or_else(|| Error::Invalid(format!("value {item} of a list is no integer")))
                });
                Ok(Value::Ints(items.collect::<Result<_>>()?))
            }
            ValuePlan::Tensors(items) => {
                self.control.charge(items.len() as u64)?;
                let items = items.iter().map(|item| match item {
                    Some(item) => self.resolve_member(*item),
                    None => Ok(None),
                });
                Ok(Value::Tensors(items.collect::<Result<_>>()?))
            }
        }
    }

    /// A member of a list: a tensor or nothing, never another list.
    fn resolve_member(&self, item: usize) -> Result<Option<HostTensor>> {
        match &self.method.values[item] {
            ValuePlan::Tensor(_) => self.resolve(item)?.to_tensor(),
            ValuePlan::Value(Value::None) => Ok(None),
            _ => Err(Error::Invalid(format!("value {item} of a list is no tensor"))),
        }
    }

    /// Writes a result: a tensor in the dtype that the program declares for it.
    fn store(&mut self, value: usize, result: Value) -> Result<()> {
        let result = match (&self.method.values[value], result) {
            (ValuePlan::Tensor(plan), Value::Device(tensor)) if tensor.dtype() != plan.dtype => {
                Value::Tensor(lanes::cast(&tensor.to_host()?, plan.dtype)?)
            }
            (ValuePlan::Tensor(plan), Value::Tensor(tensor)) => {
                Value::Tensor(lanes::cast(&tensor, plan.dtype)?)
            }
            (_, other) => other,
        };
        self.set(value, result)
    }

    /// Replaces a value, if its declaration allows it.
    fn set(&mut self, value: usize, new: Value) -> Result<()> {
        if let ValuePlan::Tensor(plan) = &self.method.values[value] {
            match &new {
                Value::Tensor(tensor) => {
                    plan.check(tensor)?;
                    let (found, allowed) = (extent(tensor.shape()), self.inner.limits.tensor_bytes);
                    if found > allowed {
                        return Err(Error::Limit { what: "a shape", limit: "tensor_bytes", found, allowed });
                    }
                }
                Value::Device(_) | Value::None => {}
                other => {
                    let given = other.describe();
                    return Err(Error::Invalid(format!("{given} where the tensor {plan} is declared")));
                }
            }
            if let TensorSource::Buffer(number) = plan.source {
                if let Some(tensor) = new.to_tensor()? {
                    self.buffers[number] = tensor;
                }
                return Ok(());
            }
        }
        let bytes = |value: &Value| value.as_tensor().map_or(0, |tensor| tensor.bytes().len() as u64);
        let slot = &mut self.values[value];
        self.held = self.held.saturating_add(bytes(&new)).saturating_sub(bytes(slot));
        *slot = new;
        let (found, allowed) = (self.held, self.inner.limits.live_bytes);
        if found > allowed {
            return Err(Error::Limit { what: "the memory of a run", limit: "live_bytes", found, allowed });
        }
        Ok(())
    }

    /// Whether a condition holds: a truth value, or a tensor of which no element is false.
    fn is_true(&self, value: usize) -> Result<bool> {
        match self.resolve(value)? {
            Value::Bool(truth) => Ok(truth),
            Value::Int(number) => Ok(number != 0),
            other => match other.to_tensor()? {
                Some(tensor) => Ok(lanes::truths(&tensor).into_iter().all(|truth| truth)),
                None => Err(Error::Invalid(format!("{} is no condition", other.describe()))),
            },
        }
    }
}

/// What a value is when a run begins; what lives elsewhere or is not set yet is nothing.
fn start(plan: &ValuePlan) -> Value {
    match plan {
        ValuePlan::Value(value) => value.clone(),
        ValuePlan::Tensor(TensorPlan { source: TensorSource::Constant(tensor), .. }) => {
            Value::Tensor(tensor.clone())
        }
        ValuePlan::Tensor(_) | ValuePlan::Ints(_) | ValuePlan::Tensors(_) => Value::None,
    }
}
