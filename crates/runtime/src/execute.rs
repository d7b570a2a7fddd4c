//! The instruction loop of a method: portable operators, delegates, moves and jumps over a table of values.
//!
//! Planned tensors live in [`Memory`], all other values in a list. Buffers of the session are put into memory before the
//! run and taken out again after it. A run stops before each delegate: who drives it hands the call to the backend, alone
//! or with those of other sessions, and gives back what came of it.

use crate::backend::{Call, GraphId, RunControl, State, Ticket};
use crate::memory::Memory;
use crate::portable::{Call as OperatorCall, Operator, OutType, Outs, lanes};
use crate::program::{Inner, Instruction, Method, Place, TensorPlan, ValuePlan, show_place};
use crate::reference::interpret::extent;
use crate::{Error, Result, Value};
use pteron_tensor::HostTensor;

/// What a run works on. A session keeps it, so that runs like the one before allocate nothing.
#[derive(Default)]
pub(crate) struct Table {
    memory: Memory,
    /// What is not in memory: numbers, lists, tensors without a place, and moved ones. Constants are the method's, which
    /// all sessions share: a run that does not read one leaves its count of holders alone.
    values: Vec<Value>,
    /// What a delegate is given, and what it gave.
    arguments: Vec<Value>,
    results: Vec<Value>,
}

/// The state during a run: what the run writes is taken back unless somebody keeps it. An error and a panic that unwinds
/// both leave by way of [`Drop`].
pub(crate) struct Attempt<'a> {
    pub(crate) state: &'a mut dyn State,
    is_kept: bool,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(state: &'a mut dyn State) -> Attempt<'a> {
        Attempt { state, is_kept: false }
    }

    /// Keeps what the run wrote.
    pub(crate) fn keep(&mut self) -> Result<()> {
        self.state.commit()?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.state.rollback();
        }
    }
}

/// One run of a method.
pub(crate) struct Execution<'a> {
    inner: &'a Inner,
    method: &'a Method,
    attempt: Attempt<'a>,
    control: RunControl,
    table: &'a mut Table,
    /// Bytes of the tensors among the values, constants apart.
    held: u64,
    /// Where it stands: a chain, and an instruction there.
    chain: usize,
    at: usize,
    /// Instructions that it may still take.
    left: u64,
}

impl Drop for Execution<'_> {
    /// Lets go of all tensors.
    fn drop(&mut self) {
        self.table.memory.clear();
        self.table.values.clear();
        self.table.arguments.clear();
        self.table.results.clear();
    }
}

impl<'a> Execution<'a> {
    pub(crate) fn new(
        inner: &'a Inner,
        method: &'a Method,
        state: &'a mut dyn State,
        control: RunControl,
        table: &'a mut Table,
    ) -> Execution<'a> {
        table.values.clear();
        table.values.extend(method.values.iter().map(start));
        let left = inner.limits.executed_instructions;
        let attempt = Attempt::new(state);
        Execution { inner, method, attempt, control, table, held: 0, chain: 0, at: 0, left }
    }

    /// Puts inputs and buffers where instructions find them. `buffers` are the program's, as they were before.
    pub(crate) fn begin(&mut self, inputs: &[Value], buffers: &[HostTensor]) -> Result<()> {
        for &(place, number) in &self.method.buffers {
            let tensor = &buffers[number];
            self.table.memory.write(place, None, Value::Tensor(tensor.clone()), tensor.bytes().len() as u64);
        }
        for (index, (&value, given)) in self.method.inputs.iter().zip(inputs).enumerate() {
            self.set(value, given.clone())
                .map_err(|error| error.at(&self.method.name, format!("input {index}")))?;
        }
        Ok(())
    }

    /// Goes on to the next delegate, whose call is then to be had from [`Execution::call`]; `None` at the end. Of `spare`,
    /// outputs may take the memory.
    pub(crate) fn advance(&mut self, spare: &mut [Value]) -> Result<Option<GraphId>> {
        let method = self.method;
        while let Some(chain) = method.chains.get(self.chain) {
            let Some(instruction) = chain.get(self.at) else {
                (self.chain, self.at) = (self.chain + 1, 0);
                continue;
            };
            let allowed = self.inner.limits.executed_instructions;
            self.left = self.left.checked_sub(1).ok_or(Error::Limit {
                what: "the number of instructions",
                limit: "executed_instructions",
                found: allowed.saturating_add(1),
                allowed,
            })?;
            self.control.check()?;
            if let Instruction::Delegate { graph, inputs, outputs, .. } = instruction {
                self.control.last = self.ends_after(self.chain, self.at);
                self.prepare(inputs, outputs, spare).map_err(|error| self.here(error))?;
                return Ok(Some(*graph));
            }
            self.at = self.step(instruction).map_err(|error| self.here(error))?;
        }
        Ok(None)
    }

    /// The delegate's call before which the run stands.
    pub(crate) fn call(&mut self) -> Call<'_> {
        let Table { arguments, results, .. } = &mut *self.table;
        let (state, control) = (&mut *self.attempt.state, &self.control);
        Call { state, inputs: arguments, outputs: results, control, result: Ok(()) }
    }

    /// What the delegate is given.
    pub(crate) fn arguments(&self) -> &[Value] {
        &self.table.arguments
    }

    /// Takes what the call gave, and goes on behind it.
    pub(crate) fn accept(&mut self, result: Result<()>) -> Result<()> {
        result.and_then(|()| self.store_results()).map_err(|error| self.here(error))?;
        self.at += 1;
        Ok(())
    }

    /// Runs to the end, its calls alone; adds a ticket for each that the backend is not done with.
    pub(crate) fn run(&mut self, spare: &mut [Value], tickets: &mut Vec<Ticket>) -> Result<()> {
        while let Some(graph) = self.advance(spare)? {
            let loaded = &self.inner.loaded;
            let mut calls = [self.call()];
            let ticket = loaded.submit(graph, &mut calls);
            let [Call { result, .. }] = calls;
            let ticket = ticket.map_err(|error| self.here(error))?;
            tickets.extend(Some(ticket).filter(|ticket| !ticket.is_done()));
            self.accept(result)?;
        }
        Ok(())
    }

    /// Puts the outputs of a run that has come to its end into `outputs`, in order.
    pub(crate) fn take_outputs(&mut self, outputs: &mut Vec<Value>) -> Result<()> {
        outputs.clear();
        for (index, &output) in self.method.outputs.iter().enumerate() {
            let value = self.resolve(output);
            outputs.push(value.map_err(|error| error.at(&self.method.name, format!("output {index}")))?);
        }
        Ok(())
    }

    /// Keeps what the run wrote to the state.
    pub(crate) fn keep(&mut self) -> Result<()> {
        self.attempt.keep()
    }

    /// An error with the instruction at which it came up.
    pub(crate) fn here(&self, error: Error) -> Error {
        let instruction = self.method.chains.get(self.chain).and_then(|chain| chain.get(self.at));
        let what =
            instruction.map_or_else(String::new, |instruction| format!(" ({})", instruction.describe()));
        error.at(&self.method.name, format!("{}{what}", show_place(self.chain, self.at)))
    }

    /// What the program's buffers hold after the run, by their numbers.
    pub(crate) fn changed(&self, buffers: &[HostTensor]) -> Result<Vec<(usize, HostTensor)>> {
        let kept = self.method.buffers.iter().map(|&(place, number)| {
            let kept = self.kept(place, &buffers[number])?;
            Ok(kept.map(|tensor| (number, tensor)))
        });
        kept.filter_map(Result::transpose).collect()
    }

    /// Whether nothing but bookkeeping stands behind an instruction.
    fn ends_after(&self, chain: usize, at: usize) -> bool {
        let rest = self.method.chains[chain][at + 1..].iter();
        let mut rest = rest.chain(self.method.chains[chain + 1..].iter().flatten());
        rest.all(|instruction| matches!(instruction, Instruction::Move { .. } | Instruction::Free { .. }))
    }

    /// A buffer out of memory. What another tensor of the place wrote is seen as the buffer's own type; `None` where
    /// something else was written over the place: the buffer keeps what it had.
    fn kept(&self, place: Place, buffer: &HostTensor) -> Result<Option<HostTensor>> {
        let Some(entry) = self.table.memory.read(place) else { return Ok(None) };
        let Some(tensor) = entry.tensor.to_tensor()? else { return Ok(None) };
        if tensor.bytes().len() != buffer.bytes().len() {
            return Ok(None);
        }
        Ok(Some(HostTensor::new(buffer.dtype(), buffer.shape().to_vec(), tensor.bytes().clone())?))
    }

    /// Runs one instruction that is no delegate's; the place of the next.
    fn step(&mut self, instruction: &Instruction) -> Result<usize> {
        match instruction {
            Instruction::Kernel { operator, inputs, outs } => self.kernel(operator, inputs, outs)?,
            Instruction::Delegate { .. } => {}
            Instruction::Move { from, to } => {
                // The handle is copied, not what it points at: the target's own place is left alone.
                let value = self.resolve(*from)?;
                self.set_value(*to, value)?;
            }
            Instruction::JumpFalse { condition, to } => {
                if !self.is_true(*condition)? {
                    return Ok(*to);
                }
            }
            Instruction::Free { value } => {
                if let ValuePlan::Tensor(TensorPlan { constant: None, .. }) = self.method.values[*value] {
                    self.set_value(*value, Value::None)?;
                }
            }
        }
        Ok(self.at + 1)
    }

    /// Gathers what a delegate is given, and the memory that its outputs may take.
    fn prepare(&mut self, inputs: &[usize], outputs: &[usize], spare: &mut [Value]) -> Result<()> {
        let mut arguments = std::mem::take(&mut self.table.arguments);
        arguments.clear();
        let gathered: Result<()> = inputs.iter().try_for_each(|&value| {
            arguments.push(self.resolve(value)?);
            Ok(())
        });
        self.table.arguments = arguments;
        gathered?;
        self.table.results.clear();
        self.table.results.extend(outputs.iter().map(|value| {
            let output = self.method.outputs.iter().position(|output| output == value);
            let spare = output.and_then(|output| spare.get_mut(output));
            spare.map_or(Value::None, |spare| std::mem::replace(spare, Value::None))
        }));
        self.control.held = self.bytes();
        Ok(())
    }

    /// Writes what a delegate gave.
    fn store_results(&mut self) -> Result<()> {
        let Some(Instruction::Delegate { outputs, .. }) =
            self.method.chains.get(self.chain).and_then(|chain| chain.get(self.at))
        else {
            return Err(Error::Invalid("the run stands before no delegate".into()));
        };
        let mut results = std::mem::take(&mut self.table.results);
        let stored = results.drain(..).zip(0..).try_for_each(|(result, at)| {
            let Some((&value, behind)) = outputs.get(at..).and_then(<[usize]>::split_first) else {
                return Ok(());
            };
            // Of views of one tensor all can be read, though they are written one by one.
            let is_hidden = behind.len() < MOST_VIEWS && behind.iter().any(|&other| self.hides(other, value));
            if is_hidden { self.store_view(value, result) } else { self.store(value, result) }
        });
        self.table.results = results;
        self.table.arguments.clear();
        stored
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
        let call = OperatorCall { args: &arguments, outs: &out_types, control: &self.control };
        let results = operator.run(&call).map_err(|source| Error::Operator {
            arguments: arguments.iter().map(Value::describe).collect::<Vec<_>>().join(", "),
            source,
        })?;
        if results.len() != outs.len() {
            return Err(Error::Invalid(format!("{} results for {} values", results.len(), outs.len())));
        }
        for (&out, result) in outs.iter().zip(results) {
            match inputs.first() {
                Some(&of) if operator.name == VIEW && self.hides(out, of) => self.store_view(out, result)?,
                _ => self.store(out, result)?,
            }
        }
        Ok(())
    }

    /// Whether a tensor that is written to memory hides another: both lie at one place, and what lies there is seen as another
    /// tensor only where sizes are known.
    fn hides(&self, tensor: usize, other: usize) -> bool {
        let dynamic_place = |value: usize| match &self.method.values[value] {
            ValuePlan::Tensor(plan) if plan.dynamic => plan.place,
            _ => None,
        };
        let place = dynamic_place(other);
        place.is_some() && dynamic_place(tensor) == place
    }

    /// Writes a view beside memory.
    fn store_view(&mut self, value: usize, view: Value) -> Result<()> {
        let ValuePlan::Tensor(plan) = &self.method.values[value] else { return self.set_value(value, view) };
        let view = match view {
            Value::Device(tensor) if tensor.dtype() == plan.dtype => {
                plan.check_shape(tensor.dtype(), tensor.shape())?;
                return self.set_value(value, Value::Device(tensor));
            }
            other => other.to_tensor()?,
        };
        let Some(view) = view else {
            return Err(Error::Invalid(format!("nothing where the tensor {plan} is declared")));
        };
        let view = lanes::cast(&view, plan.dtype)?;
        plan.check(&view)?;
        self.set_value(value, Value::Tensor(view))
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
            Value::Tensor(tensor) => extent(tensor.shape()),
            Value::Tensors(list) => list.iter().flatten().map(|tensor| extent(tensor.shape())).sum(),
            Value::Ints(list) => list.len() as u64,
            _ => 0,
        });
        let outs = outs.iter().map(|out| extent(&out.sizes));
        let elements = given.chain(outs).fold(0u64, u64::saturating_add);
        self.control.charge(elements.saturating_add(1))?;
        let found = self.bytes().saturating_add(elements.saturating_mul(8));
        let allowed = self.inner.limits.live_bytes;
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
            ValuePlan::Tensor(plan) => match (&self.table.values[value], &plan.constant) {
                (Value::None, Some(constant)) => Ok(Value::Tensor(constant.clone())),
                (Value::None, None) => self.read(value, plan).ok_or(Error::Unset(value)),
                (other, _) => Ok(other.clone()),
            },
            ValuePlan::Value(_) => Ok(self.table.values[value].clone()),
            ValuePlan::Ints(items) => {
                self.control.charge(items.len() as u64)?;
                let items = items.iter().map(|&item| {
                    let number = self.table.values[item].as_int();
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

    /// A planned tensor: what was written to it, or what was written to its place as another tensor.
    fn read(&self, value: usize, plan: &TensorPlan) -> Option<Value> {
        if plan.bytes() == 0 {
            return HostTensor::zeros(plan.dtype, plan.sizes.clone()).ok().map(Value::Tensor);
        }
        let entry = self.table.memory.read(plan.place?)?;
        let order = match entry.writer {
            Some(writer) if writer == value => return Some(entry.tensor.clone()),
            Some(writer) => match &self.method.values[writer] {
                ValuePlan::Tensor(writer) => &writer.order,
                _ => return None,
            },
            None => &plan.order,
        };
        let tensor = entry.tensor.to_tensor().ok()??;
        plan.view(&tensor, order).map(Value::Tensor)
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

    /// Writes a value, if its declaration allows it: to its place in memory, or to the table.
    fn set(&mut self, value: usize, new: Value) -> Result<()> {
        let ValuePlan::Tensor(plan) = &self.method.values[value] else { return self.set_value(value, new) };
        let elements = match &new {
            Value::Tensor(tensor) => {
                plan.check(tensor)?;
                let (found, allowed) = (extent(tensor.shape()), self.inner.limits.tensor_bytes);
                if found > allowed {
                    return Err(Error::Limit { what: "a shape", limit: "tensor_bytes", found, allowed });
                }
                tensor.len()
            }
            Value::Device(tensor) => tensor.shape().iter().product(),
            other => {
                let given = other.describe();
                return Err(Error::Invalid(format!("{given} where the tensor {plan} is declared")));
            }
        };
        match plan.place {
            // Nothing is written where there is no element, so another tensor may well lie there.
            Some(place) if elements > 0 => {
                self.set_value(value, Value::None)?;
                let len = elements as u64 * plan.dtype.size() as u64;
                self.table.memory.write(place, Some(value), new, len);
                self.admit_bytes()
            }
            _ => self.set_value(value, new),
        }
    }

    /// Replaces a value in the table.
    fn set_value(&mut self, value: usize, new: Value) -> Result<()> {
        let bytes = |value: &Value| value.as_tensor().map_or(0, |tensor| tensor.bytes().len() as u64);
        let slot = &mut self.table.values[value];
        self.held = self.held.saturating_add(bytes(&new)).saturating_sub(bytes(slot));
        *slot = new;
        self.admit_bytes()
    }

    fn bytes(&self) -> u64 {
        self.held.saturating_add(self.table.memory.bytes())
    }

    fn admit_bytes(&self) -> Result<()> {
        let (found, allowed) = (self.bytes(), self.inner.limits.live_bytes);
        match found <= allowed {
            true => Ok(()),
            false => Err(Error::Limit { what: "the memory of a run", limit: "live_bytes", found, allowed }),
        }
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

/// Outputs of one call at most among which views are looked for.
const MOST_VIEWS: usize = 256;
/// The operator that looks at a tensor in another shape.
const VIEW: &str = "executorch_prim::et_view.default";

/// What a value is when a run begins; what lives elsewhere or is not set yet is nothing.
fn start(plan: &ValuePlan) -> Value {
    match plan {
        ValuePlan::Value(value) => value.clone(),
        ValuePlan::Tensor(_) | ValuePlan::Ints(_) | ValuePlan::Tensors(_) => Value::None,
    }
}
