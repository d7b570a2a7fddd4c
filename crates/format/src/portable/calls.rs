//! The values of a method while a graph becomes calls in it: tensors of the run, constants, numbers, and tensors whose axes lie in
//! another order in memory, which are turned only when somebody needs them so.

use std::collections::{HashMap, HashSet};

use pteron_ir::op::IntArg;
use pteron_ir::{Dim, Graph, TensorType, Type, ValueId};
use pteron_tensor::{Bytes, DType, HostTensor};

use super::Prepared;
use super::plain::named;
use super::store::Store;
use crate::assemble::{MethodWriter, StoredIndex, TensorSpec, ValueIndex};
use crate::pte::{EValue, ExecutionPlan};

/// Values that calls of one method share.
#[derive(Default)]
pub(super) struct Shared {
    ints: HashMap<i64, ValueIndex>,
    lists: HashMap<Vec<ValueIndex>, ValueIndex>,
    constants: HashMap<(u32, DType, Vec<usize>), ValueIndex>,
    plain: HashMap<String, ValueIndex>,
    /// What delegates keep from call to call, by delegate and place.
    states: HashMap<(i32, usize), ValueIndex>,
}

/// What a value of the graph is in the method.
#[derive(Clone)]
pub(super) enum Held {
    /// A tensor that the file stores, once somebody reads it.
    Constant(HostTensor),
    /// A tensor of the run.
    Tensor(ValueIndex),
    /// A tensor of the run with its axes in that order.
    Turned(ValueIndex, Vec<usize>),
    /// An integer of the run.
    Number(ValueIndex),
}

/// A graph on its way into a method.
pub(super) struct Calls<'c> {
    pub(super) graph: &'c Graph,
    pub(super) method: &'c mut MethodWriter,
    store: &'c mut Store,
    shared: &'c mut Shared,
    held: HashMap<ValueId, Held>,
    /// What is given out, by the value of the graph that it is.
    targets: HashMap<ValueId, ValueIndex>,
    /// Turned tensors that lie in order too.
    in_order: HashMap<(ValueIndex, Vec<usize>), ValueIndex>,
}

/// What takes part in an element-wise operator, and in which order its axes lie.
pub(super) type Laid = (Vec<ValueIndex>, Option<Vec<usize>>);

impl<'c> Calls<'c> {
    pub(super) fn new(
        prepared: &'c Prepared,
        (method, store, shared): (&'c mut MethodWriter, &'c mut Store, &'c mut Shared),
    ) -> Calls<'c> {
        let constants = prepared.constants.iter();
        let held = constants.map(|(value, tensor)| (*value, Held::Constant(tensor.clone()))).collect();
        let (targets, in_order) = (HashMap::new(), HashMap::new());
        Calls { graph: &prepared.graph, method, store, shared, held, targets, in_order }
    }

    /// Adds the calls that a delegate's call with those arguments stands for.
    pub(super) fn run(
        mut self,
        plan: &ExecutionPlan,
        delegate: i32,
        arguments: &[i32],
    ) -> Result<(), Vec<String>> {
        let (inputs, outputs) = (self.graph.inputs.len(), self.graph.outputs.len());
        if arguments.len() != inputs + outputs {
            let count = arguments.len();
            return Err(vec![format!(
                "it is called with {count} values, but takes {inputs} and gives {outputs}"
            )]);
        }
        let (entering, leaving) = arguments.split_at(inputs);
        for (input, &number) in self.graph.inputs.iter().zip(entering) {
            self.enter(input.value, number, plan).map_err(|problem| vec![problem])?;
        }
        for (place, buffer) in self.graph.buffers.iter().enumerate() {
            let state = self.state(delegate, place).map_err(|problem| vec![problem])?;
            self.held.insert(buffer.value, Held::Tensor(state));
        }
        for (output, number) in self.graph.outputs.iter().zip(leaving) {
            let is_alone =
                !entering.contains(number) && leaving.iter().filter(|other| *other == number).count() == 1;
            if is_alone && self.writes_plainly(output.value, *number, plan) {
                self.targets.entry(output.value).or_insert(ValueIndex::existing(*number));
            }
        }
        let mut problems = Vec::new();
        let mut spoilt = HashSet::new();
        for (at, node) in self.graph.body.nodes.iter().enumerate() {
            let mut is_spoilt = false;
            node.for_each_operand(|value| is_spoilt |= spoilt.contains(&value));
            // What reads a value that there is not has been complained about.
            let done = if is_spoilt { Ok(()) } else { super::kernels::node(&mut self, node) };
            if is_spoilt || done.is_err() {
                spoilt.extend(node.results.iter().copied());
            }
            problems.extend(done.err().map(|problem| format!("{}: {problem}", named(node, at))));
        }
        if problems.is_empty() {
            for (output, &number) in self.graph.outputs.iter().zip(leaving) {
                if let Err(problem) = self.leave(output.value, number, plan) {
                    problems.push(problem);
                }
            }
            problems.extend(self.keep(delegate).err());
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn enter(&mut self, value: ValueId, number: i32, plan: &ExecutionPlan) -> Result<(), String> {
        let index = ValueIndex::existing(number);
        let found = usize::try_from(number).ok().and_then(|number| plan.values.get(number));
        let held = match (self.graph.ty(value), found) {
            (Some(Type::Tensor(ty)), Some(EValue::Tensor(tensor))) => {
                let wanted = held_as(ty.dtype)?;
                let mut index = index;
                if !is_in_order(&tensor.dim_order) {
                    let order: Vec<i64> = (0..tensor.dim_order.len() as i64).collect();
                    let own =
                        tensor.scalar_type.dtype().ok_or("an input whose type tensors here do not have")?;
                    let spec = TensorSpec { dtype: own, ..self.spec(ty)? };
                    index = self.in_dim_order(index, &order, &spec);
                }
                if tensor.scalar_type.dtype() != Some(wanted) {
                    let spec = self.spec(ty)?;
                    let out = self.method.tensor(&spec);
                    self.converted(index, out);
                    index = out;
                }
                Held::Tensor(index)
            }
            (Some(Type::Int(_)), Some(EValue::Int(_))) => Held::Number(index),
            // What no node reads may be anything.
            _ => return Ok(()),
        };
        self.held.insert(value, held);
        Ok(())
    }

    /// A tensor of the method that keeps what a delegate kept.
    fn state(&mut self, delegate: i32, place: usize) -> Result<ValueIndex, String> {
        if let Some(&known) = self.shared.states.get(&(delegate, place)) {
            return Ok(known);
        }
        let buffer = &self.graph.buffers[place];
        let spec = self.spec(self.ty(buffer.value)?)?;
        let state = self.method.state(&format!("delegate_{delegate}_{place}_{}", buffer.name), &spec, None);
        self.shared.states.insert((delegate, place), state);
        Ok(state)
    }

    /// Writes what is kept for the next call, once all that reads what was kept before has run.
    fn keep(&mut self, delegate: i32) -> Result<(), String> {
        let mut updates = Vec::new();
        for (place, buffer) in self.graph.buffers.iter().enumerate() {
            if buffer.update == buffer.value {
                continue;
            }
            let mut from = self.tensor(buffer.update)?;
            if self.shared.states.values().any(|state| *state == from) {
                let spec = self.spec(self.ty(buffer.update)?)?;
                let copy = self.method.tensor(&spec);
                let format = self.null();
                self.call("aten::clone", "out", &[from, format], copy);
                from = copy;
            }
            updates.push((self.state(delegate, place)?, from));
        }
        for (to, from) in updates {
            let blocking = self.bool(false);
            self.method.kernel("aten::copy_", "", &[to, from, blocking, to]);
        }
        Ok(())
    }

    fn in_dim_order(&mut self, x: ValueIndex, order: &[i64], spec: &TensorSpec) -> ValueIndex {
        let out = self.method.tensor(spec);
        self.reorder(x, order, out);
        out
    }

    fn reorder(&mut self, x: ValueIndex, order: &[i64], out: ValueIndex) {
        let (blocking, order) = (self.bool(false), self.ints(order));
        self.call("dim_order_ops::_to_dim_order_copy", "out", &[x, blocking, order], out);
    }

    /// Whether a value can be written where the method wants it: in that dtype, and in the order of its axes.
    fn writes_plainly(&self, value: ValueId, number: i32, plan: &ExecutionPlan) -> bool {
        let found = usize::try_from(number).ok().and_then(|number| plan.values.get(number));
        match (self.graph.ty(value), found) {
            (Some(Type::Tensor(ty)), Some(EValue::Tensor(tensor))) => {
                is_in_order(&tensor.dim_order)
                    && tensor.scalar_type.dtype() == held_as(ty.dtype).ok()
                    && tensor.sizes.len() == ty.shape.len()
            }
            (Some(Type::Int(_)), Some(EValue::Int(_))) => true,
            _ => false,
        }
    }

    fn leave(&mut self, value: ValueId, number: i32, plan: &ExecutionPlan) -> Result<(), String> {
        let to = ValueIndex::existing(number);
        let Some(EValue::Tensor(tensor)) = usize::try_from(number).ok().and_then(|at| plan.values.get(at))
        else {
            return match self.number(value)? == to {
                true => Ok(()),
                false => Err("it gives an integer that something else is".into()),
            };
        };
        let order: Vec<i64> = tensor.dim_order.iter().map(|&axis| axis.into()).collect();
        if is_in_order(&tensor.dim_order)
            && let Some(Held::Turned(source, perm)) = self.held.get(&value).cloned()
            && self.writes_plainly(value, number, plan)
        {
            let perm: Vec<i64> = perm.iter().map(|&axis| axis as i64).collect();
            let perm = self.ints(&perm);
            self.call("aten::permute_copy", "out", &[source, perm], to);
            return Ok(());
        }
        let mut from = self.tensor(value)?;
        if from == to {
            return Ok(());
        }
        let ty = self.ty(value)?.clone();
        if tensor.scalar_type.dtype() != Some(held_as(ty.dtype)?) {
            let dtype = tensor.scalar_type.dtype().ok_or("an output whose type tensors here do not have")?;
            let out = match is_in_order(&tensor.dim_order) {
                true => to,
                false => {
                    let spec = TensorSpec { dtype, ..self.spec(&ty)? };
                    self.method.tensor(&spec)
                }
            };
            self.converted(from, out);
            from = out;
        }
        match (from == to, is_in_order(&tensor.dim_order)) {
            (true, _) => {}
            (false, true) => {
                let format = self.null();
                self.call("aten::clone", "out", &[from, format], to);
            }
            (false, false) => self.reorder(from, &order, to),
        }
        Ok(())
    }

    /// A tensor in another dtype: that of `out`.
    pub(super) fn converted(&mut self, x: ValueIndex, out: ValueIndex) {
        let (blocking, format) = (self.bool(false), self.null());
        self.call("aten::_to_copy", "out", &[x, blocking, format], out);
    }

    /// Calls a kernel that writes one value; what it returns is named once more.
    pub(super) fn call(&mut self, name: &str, overload: &str, inputs: &[ValueIndex], out: ValueIndex) {
        self.method.kernel(name, overload, &[inputs, &[out, out]].concat());
    }

    pub(super) fn ty(&self, value: ValueId) -> Result<&'c TensorType, String> {
        match self.graph.ty(value) {
            Some(Type::Tensor(ty)) => Ok(ty),
            _ => Err("a tensor is wanted".into()),
        }
    }

    pub(super) fn rank(&self, value: ValueId) -> Result<usize, String> {
        Ok(self.ty(value)?.shape.len())
    }

    pub(super) fn spec(&self, ty: &TensorType) -> Result<TensorSpec, String> {
        let ty = TensorType { dtype: held_as(ty.dtype)?, shape: ty.shape.clone() };
        let symbols = &self.graph.symbols;
        TensorSpec::of(&ty, symbols).ok_or_else(|| {
            let sizes: Vec<String> = ty.shape.iter().map(|dim| symbols.show(dim)).collect();
            format!("sizes [{}] have no bound, so that no memory can be planned", sizes.join(", "))
        })
    }

    /// A new tensor of that type.
    pub(super) fn fresh(&mut self, dtype: DType, shape: Vec<Dim>) -> Result<ValueIndex, String> {
        let spec = self.spec(&TensorType { dtype, shape })?;
        Ok(self.method.tensor(&spec))
    }

    /// The tensor that a result of a node is to be.
    pub(super) fn result(&mut self, value: ValueId) -> Result<ValueIndex, String> {
        let index = match self.targets.get(&value) {
            Some(&target) => target,
            None => {
                let spec = self.spec(self.ty(value)?)?;
                self.method.tensor(&spec)
            }
        };
        self.held.insert(value, Held::Tensor(index));
        Ok(index)
    }

    /// The integer that a result of a node is to be.
    pub(super) fn result_number(&mut self, value: ValueId) -> ValueIndex {
        let index = self.targets.get(&value).copied().unwrap_or_else(|| self.method.int(0));
        self.held.insert(value, Held::Number(index));
        index
    }

    pub(super) fn hold(&mut self, value: ValueId, held: Held) {
        self.held.insert(value, held);
    }

    pub(super) fn held(&self, value: ValueId) -> Result<&Held, String> {
        self.held.get(&value).ok_or_else(|| "it reads what nothing gives".into())
    }

    /// A tensor of the graph in the order of its axes.
    pub(super) fn tensor(&mut self, value: ValueId) -> Result<ValueIndex, String> {
        match self.held(value)?.clone() {
            Held::Tensor(index) => Ok(index),
            Held::Constant(tensor) => self.constant(&tensor),
            Held::Turned(source, perm) => self.turned(source, perm, self.ty(value)?),
            Held::Number(_) => Err("a tensor is wanted, not an integer".into()),
        }
    }

    pub(super) fn number(&self, value: ValueId) -> Result<ValueIndex, String> {
        match self.held(value)? {
            Held::Number(index) => Ok(*index),
            _ => Err("an integer is wanted".into()),
        }
    }

    /// A tensor with its axes in another order; `ty` is that of the result.
    fn turned(
        &mut self,
        source: ValueIndex,
        perm: Vec<usize>,
        ty: &TensorType,
    ) -> Result<ValueIndex, String> {
        if is_in_place(&perm) {
            return Ok(source);
        }
        let key = (source, perm);
        if let Some(&known) = self.in_order.get(&key) {
            return Ok(known);
        }
        let spec = self.spec(ty)?;
        let out = self.method.tensor(&spec);
        let order: Vec<i64> = key.1.iter().map(|&axis| axis as i64).collect();
        let order = self.ints(&order);
        self.call("aten::permute_copy", "out", &[source, order], out);
        self.in_order.insert(key, out);
        Ok(out)
    }

    /// What a permutation of a value is: nothing is moved yet.
    pub(super) fn permuted(&self, value: ValueId, perm: &[usize]) -> Result<Held, String> {
        Ok(match self.held(value)? {
            Held::Constant(tensor) => Held::Constant(permuted(tensor, perm)?),
            Held::Tensor(index) => Held::Turned(*index, perm.to_vec()),
            Held::Turned(source, before) => {
                let perm: Vec<usize> = perm.iter().filter_map(|&axis| before.get(axis).copied()).collect();
                if is_in_place(&perm) { Held::Tensor(*source) } else { Held::Turned(*source, perm) }
            }
            Held::Number(_) => return Err("a tensor is wanted, not an integer".into()),
        })
    }

    /// A permutation of a value as a tensor in order.
    pub(super) fn in_order_of(&mut self, value: ValueId, perm: &[usize]) -> Result<ValueIndex, String> {
        let ty = self.ty(value)?;
        let shape = perm.iter().filter_map(|&axis| ty.shape.get(axis).cloned()).collect();
        match self.permuted(value, perm)? {
            Held::Constant(tensor) => self.constant(&tensor),
            Held::Turned(source, perm) => self.turned(source, perm, &TensorType { dtype: ty.dtype, shape }),
            Held::Tensor(index) | Held::Number(index) => Ok(index),
        }
    }

    /// Operands of an element-wise operator: where one is turned and the others can be as well, all are, and so is the result.
    pub(super) fn laid(&mut self, operands: &[ValueId]) -> Result<Laid, String> {
        let order = operands.iter().find_map(|value| match self.held.get(value) {
            Some(Held::Turned(_, perm)) => Some(perm.clone()),
            _ => None,
        });
        if let Some(perm) = order {
            let mut inverse = vec![0; perm.len()];
            perm.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
            let mut all = Vec::new();
            for &value in operands {
                match self.held(value)?.clone() {
                    Held::Turned(source, other) if other == perm => all.push(source),
                    Held::Tensor(index) if self.rank(value)? == 0 => all.push(index),
                    Held::Constant(tensor) if tensor.rank() <= 1 || tensor.rank() == perm.len() => {
                        let tensor = match tensor.rank() {
                            0 => tensor,
                            rank => {
                                let lead = vec![1; perm.len() - rank];
                                let shape = [&lead, tensor.shape()].concat();
                                let tensor = tensor.reshaped(shape).map_err(|error| error.to_string())?;
                                permuted(&tensor, &inverse)?
                            }
                        };
                        all.push(self.constant(&tensor)?);
                    }
                    _ => break,
                }
            }
            if all.len() == operands.len() {
                return Ok((all, Some(perm)));
            }
        }
        let all = operands.iter().map(|&value| self.tensor(value)).collect::<Result<_, _>>()?;
        Ok((all, None))
    }

    /// The tensor that an element-wise operator writes, laid as its operands are.
    pub(super) fn result_laid(
        &mut self,
        value: ValueId,
        order: Option<Vec<usize>>,
    ) -> Result<ValueIndex, String> {
        let Some(perm) = order else { return self.result(value) };
        let ty = self.ty(value)?;
        let mut shape = ty.shape.clone();
        for (to, &from) in perm.iter().enumerate() {
            shape[from] = ty.shape[to].clone();
        }
        let out = self.fresh(ty.dtype, shape)?;
        self.held.insert(value, Held::Turned(out, perm));
        Ok(out)
    }

    /// A tensor that the file stores.
    pub(super) fn constant(&mut self, tensor: &HostTensor) -> Result<ValueIndex, String> {
        let dtype = held_as(tensor.dtype())?;
        if dtype != tensor.dtype() {
            return Err(format!("constants of {} have no portable form", tensor.dtype().name()));
        }
        let stored: StoredIndex = self.store.add(tensor.bytes());
        let key = (stored.number(), dtype, tensor.shape().to_vec());
        let method = &mut *self.method;
        let add = || method.constant(&TensorSpec::known(dtype, tensor.shape()), stored);
        Ok(*self.shared.constants.entry(key).or_insert_with(add))
    }

    pub(super) fn int(&mut self, number: i64) -> ValueIndex {
        *self.shared.ints.entry(number).or_insert_with(|| self.method.int(number))
    }

    pub(super) fn ints(&mut self, numbers: &[i64]) -> ValueIndex {
        let items: Vec<ValueIndex> = numbers.iter().map(|&number| self.int(number)).collect();
        self.list(items)
    }

    fn list(&mut self, items: Vec<ValueIndex>) -> ValueIndex {
        let method = &mut *self.method;
        *self.shared.lists.entry(items).or_insert_with_key(|items| method.int_values(items))
    }

    pub(super) fn int_of(&mut self, number: IntArg<ValueId>) -> Result<ValueIndex, String> {
        match number {
            IntArg::Literal(number) => Ok(self.int(number)),
            IntArg::Value(value) => self.number(value),
        }
    }

    pub(super) fn ints_of(&mut self, numbers: &[IntArg<ValueId>]) -> Result<ValueIndex, String> {
        let items = numbers.iter().map(|&number| self.int_of(number)).collect::<Result<_, _>>()?;
        Ok(self.list(items))
    }

    /// A value that is neither a tensor nor a list, once for a method.
    fn single(&mut self, value: EValue) -> ValueIndex {
        let method = &mut *self.method;
        *self.shared.plain.entry(format!("{value:?}")).or_insert_with(|| method.value(value))
    }

    pub(super) fn null(&mut self) -> ValueIndex {
        self.single(EValue::Null)
    }

    pub(super) fn bool(&mut self, value: bool) -> ValueIndex {
        self.single(EValue::Bool(value))
    }

    pub(super) fn double(&mut self, value: f64) -> ValueIndex {
        self.single(EValue::Double(value))
    }

    pub(super) fn string(&mut self, text: &str) -> ValueIndex {
        self.single(EValue::String(text.into()))
    }
}

/// The dtype in which kernels hold numbers of a graph's: they have no unsigned ones but bytes.
pub(super) fn held_as(dtype: DType) -> Result<DType, String> {
    match dtype {
        DType::U16 => Ok(DType::I32),
        DType::U32 => Ok(DType::I64),
        DType::U64 => Err("kernels have no numbers of u64".into()),
        other => Ok(other),
    }
}

fn is_in_order(order: &[u8]) -> bool {
    order.iter().enumerate().all(|(at, &axis)| at == usize::from(axis))
}

fn is_in_place(perm: &[usize]) -> bool {
    perm.iter().enumerate().all(|(at, &axis)| at == axis)
}

/// A stored tensor with its axes in another order.
pub(super) fn permuted(tensor: &HostTensor, perm: &[usize]) -> Result<HostTensor, String> {
    let shape: Vec<usize> = perm.iter().filter_map(|&axis| tensor.shape().get(axis).copied()).collect();
    if shape.len() != tensor.rank() || perm.len() != tensor.rank() {
        return Err(format!("{perm:?} is no order of {} axes", tensor.rank()));
    }
    if is_in_place(perm) {
        return Ok(tensor.clone());
    }
    let size = tensor.dtype().size();
    let mut strides = vec![size; tensor.rank()];
    for axis in (1..tensor.rank()).rev() {
        strides[axis - 1] = strides[axis] * tensor.shape()[axis];
    }
    let steps: Vec<usize> = perm.iter().map(|&axis| strides[axis]).collect();
    let mut bytes = Vec::with_capacity(tensor.bytes().len());
    let mut at = vec![0; shape.len()];
    for _ in 0..tensor.len() {
        let start: usize = at.iter().zip(&steps).map(|(at, step)| at * step).sum();
        bytes.extend_from_slice(&tensor.bytes()[start..start + size]);
        for axis in (0..shape.len()).rev() {
            at[axis] += 1;
            if at[axis] < shape[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
    HostTensor::new(tensor.dtype(), shape, Bytes::copy_of(&bytes)).map_err(|error| error.to_string())
}
