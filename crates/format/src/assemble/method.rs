//! One method in the making: values, calls in order, inputs and outputs. Where its tensors lie is planned when it is
//! finished, so that callers only say what lives how long: for a moment, or from call to call.

use indexmap::IndexMap;
use pteron_ir::{Symbols, TensorType};
use pteron_tensor::DType;

use super::tables::{containers, named, place, table};
use super::{AssembleError, MLX_BACKEND, PayloadIndex, StoredIndex, arena};
use crate::List;
use crate::pte::{
    AllocationDetails, BackendDelegate, BackendDelegateDataReference, Chain, DataLocation, DelegateCall,
    EValue, ExecutionPlan, Instruction, JumpFalseCall, KernelCall, MoveCall, Operator,
};

/// A value of one method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValueIndex(pub(super) i32);

/// A jump whose destination is not known yet.
#[derive(Debug)]
#[must_use = "a jump needs a place to land"]
pub struct Jump(usize);

/// Element type and sizes of a tensor; sizes are bounds where the tensor is dynamic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Element type.
    pub dtype: DType,
    /// Sizes, or the largest ones.
    pub sizes: Vec<u64>,
    /// Whether a run may have smaller ones.
    pub dynamic: bool,
}

impl TensorSpec {
    /// A tensor whose sizes are known.
    pub fn known(dtype: DType, shape: &[usize]) -> TensorSpec {
        TensorSpec { dtype, sizes: shape.iter().map(|&size| size as u64).collect(), dynamic: false }
    }

    /// The tensor that a graph's input or output is; `None` where a size has no bound.
    pub fn of(ty: &TensorType, symbols: &Symbols) -> Option<TensorSpec> {
        let sizes = ty.shape.iter().map(|dim| u64::try_from(symbols.upper(dim)?).ok());
        let dynamic = ty.shape.iter().any(|dim| dim.as_known().is_none());
        Some(TensorSpec { dtype: ty.dtype, sizes: sizes.collect::<Option<_>>()?, dynamic })
    }

    fn bytes(&self) -> Option<u64> {
        let size = self.dtype.size() as u64;
        self.sizes.iter().try_fold(size, |bytes, &size| bytes.checked_mul(size))
    }
}

/// Where the bytes of a tensor come from.
#[derive(Clone, Debug)]
pub(super) enum Storage {
    /// Memory for as long as it is used.
    Run,
    /// The file.
    Constant(StoredIndex),
    /// Memory of its own that keeps what the last call left there.
    State { name: String, initial: Option<StoredIndex> },
    /// The same, shared by all methods that name it.
    Shared { name: String },
}

impl Storage {
    /// The arena of a method's own tensors, and that of shared state; the format counts from 1.
    pub(super) const OWN_ARENA: u32 = 1;
    pub(super) const SHARED_ARENA: u32 = 2;
}

pub(super) enum Value {
    Plain(EValue),
    Tensor(TensorSpec, Storage),
}

/// A method in the making.
pub struct MethodWriter {
    pub(super) name: String,
    pub(super) values: Vec<Value>,
    inputs: Vec<i32>,
    outputs: Vec<i32>,
    /// Operators of a method that is continued: those of this writer come behind them.
    pub(super) operators_before: usize,
    pub(super) operators: IndexMap<(String, String), ()>,
    delegates: Vec<PayloadIndex>,
    pub(super) steps: Vec<Instruction>,
}

impl MethodWriter {
    /// A method that does nothing yet.
    pub fn new(name: &str) -> MethodWriter {
        MethodWriter {
            name: name.to_owned(),
            values: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            operators_before: 0,
            operators: IndexMap::new(),
            delegates: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn push(&mut self, value: Value) -> ValueIndex {
        self.values.push(value);
        ValueIndex(self.values.len() as i32 - 1)
    }

    /// Any value that is not a tensor. Lists name other values by number: see [`MethodWriter::ints`] and
    /// [`MethodWriter::tensors`].
    pub fn value(&mut self, value: EValue) -> ValueIndex {
        self.push(Value::Plain(value))
    }

    /// Nothing, for an optional argument.
    pub fn null(&mut self) -> ValueIndex {
        self.value(EValue::Null)
    }

    /// A number.
    pub fn int(&mut self, value: i64) -> ValueIndex {
        self.value(EValue::Int(value))
    }

    /// A truth value.
    pub fn bool(&mut self, value: bool) -> ValueIndex {
        self.value(EValue::Bool(value))
    }

    /// A float.
    pub fn double(&mut self, value: f64) -> ValueIndex {
        self.value(EValue::Double(value))
    }

    /// A text.
    pub fn string(&mut self, text: &str) -> ValueIndex {
        self.value(EValue::String(text.into()))
    }

    /// Numbers: each becomes a value of its own, as the format has it.
    pub fn ints(&mut self, values: &[i64]) -> ValueIndex {
        let items: List<i64> = values.iter().map(|&value| i64::from(self.int(value).0)).collect();
        self.value(EValue::IntList(items))
    }

    /// Numbers of which some are known only when the method runs.
    pub fn int_values(&mut self, values: &[ValueIndex]) -> ValueIndex {
        self.value(EValue::IntList(values.iter().map(|value| i64::from(value.0)).collect()))
    }

    /// Several tensors.
    pub fn tensors(&mut self, tensors: &[ValueIndex]) -> ValueIndex {
        self.value(EValue::TensorList(tensors.iter().map(|value| value.0).collect()))
    }

    /// Several tensors, some of them absent.
    pub fn optional_tensors(&mut self, tensors: &[Option<ValueIndex>]) -> ValueIndex {
        let items = tensors.iter().map(|value| value.map_or(-1, |value| value.0));
        self.value(EValue::OptionalTensorList(items.collect()))
    }

    /// A tensor that lives while it is used.
    pub fn tensor(&mut self, spec: &TensorSpec) -> ValueIndex {
        self.push(Value::Tensor(spec.clone(), Storage::Run))
    }

    /// A tensor that the file stores.
    pub fn constant(&mut self, spec: &TensorSpec, stored: StoredIndex) -> ValueIndex {
        self.push(Value::Tensor(spec.clone(), Storage::Constant(stored)))
    }

    /// A tensor of the method that keeps its content from call to call; zeros at first, unless `initial` says more.
    pub fn state(&mut self, name: &str, spec: &TensorSpec, initial: Option<StoredIndex>) -> ValueIndex {
        self.push(Value::Tensor(spec.clone(), Storage::State { name: name.to_owned(), initial }))
    }

    /// A tensor that keeps its content from call to call and that all methods share which name it; zeros at first.
    pub fn shared_state(&mut self, name: &str, spec: &TensorSpec) -> ValueIndex {
        self.push(Value::Tensor(spec.clone(), Storage::Shared { name: name.to_owned() }))
    }

    /// The next input is a tensor of that kind.
    pub fn input(&mut self, spec: &TensorSpec) -> ValueIndex {
        let value = self.tensor(spec);
        self.input_value(value)
    }

    /// The next input is that value.
    pub fn input_value(&mut self, value: ValueIndex) -> ValueIndex {
        self.inputs.push(value.0);
        value
    }

    /// The next output is that value.
    pub fn output(&mut self, value: ValueIndex) {
        self.outputs.push(value.0);
    }

    /// Calls a portable operator. `arguments` are its inputs, then its outputs, as the operator's table wants them.
    pub fn kernel(&mut self, name: &str, overload: &str, arguments: &[ValueIndex]) {
        let (op_index, _) = self.operators.insert_full((name.to_owned(), overload.to_owned()), ());
        let op_index = (self.operators_before + op_index) as i32;
        let args = arguments.iter().map(|value| value.0).collect();
        self.steps.push(Instruction::Kernel(KernelCall { op_index, args }));
    }

    /// Runs a payload: its inputs in order, then its outputs. Each call is a delegate with state of its own.
    pub fn delegate(&mut self, payload: PayloadIndex, inputs: &[ValueIndex], outputs: &[ValueIndex]) {
        self.delegates.push(payload);
        let delegate_index = self.delegates.len() as i32 - 1;
        let args = inputs.iter().chain(outputs).map(|value| value.0).collect();
        self.steps.push(Instruction::Delegate(DelegateCall { delegate_index, args }));
    }

    /// Lets `to` stand for the same tensor as `from`.
    pub fn alias(&mut self, from: ValueIndex, to: ValueIndex) {
        self.steps.push(Instruction::Move(MoveCall { move_from: from.0, move_to: to.0 }));
    }

    /// Skips what follows, up to [`MethodWriter::land`], where the condition is false.
    pub fn jump_false(&mut self, condition: ValueIndex) -> Jump {
        let call = JumpFalseCall { cond_value_index: condition.0, destination_instruction: -1 };
        self.steps.push(Instruction::JumpFalse(call));
        Jump(self.steps.len() - 1)
    }

    /// The jump leads to whatever comes next.
    pub fn land(&mut self, jump: Jump) {
        let here = self.steps.len() as i32;
        if let Some(Instruction::JumpFalse(call)) = self.steps.get_mut(jump.0) {
            call.destination_instruction = here;
        }
    }

    /// Payloads that are called, with the number of arguments.
    pub(super) fn calls(&self) -> impl Iterator<Item = (PayloadIndex, usize)> + '_ {
        self.steps.iter().filter_map(|step| match step {
            Instruction::Delegate(call) => {
                Some((*self.delegates.get(call.delegate_index as usize)?, call.args.len()))
            }
            _ => None,
        })
    }

    /// Shared state with its bytes.
    pub(super) fn shared(&self) -> impl Iterator<Item = (&str, u64)> + '_ {
        self.values.iter().filter_map(|value| match value {
            Value::Tensor(spec, Storage::Shared { name }) => Some((name.as_str(), spec.bytes()?)),
            _ => None,
        })
    }

    pub(super) fn finish(
        self,
        shared: &IndexMap<String, (u64, u64)>,
    ) -> Result<ExecutionPlan, AssembleError> {
        let places = self.plan()?;
        let values = tables(&self.name, self.values, &places, shared)?;
        let delegates = self.delegates.iter().map(|payload| BackendDelegate {
            id: MLX_BACKEND.into(),
            processed: Some(BackendDelegateDataReference {
                location: DataLocation::Segment,
                index: payload.0 as u32,
            }),
            compile_specs: List::from(Vec::new()),
        });
        let operators = self.operators.into_keys().map(operator);
        let planned = places.bytes > 0;
        Ok(ExecutionPlan {
            container_meta_type: Some(containers(self.inputs.len(), self.outputs.len())),
            name: self.name.into(),
            inputs: self.inputs.into(),
            outputs: self.outputs.into(),
            chains: vec![Chain { instructions: self.steps.into(), ..Chain::default() }].into(),
            operators: operators.collect(),
            delegates: delegates.collect(),
            non_const_buffer_sizes: if planned { vec![0, places.bytes as i64] } else { vec![0] }.into(),
            values: values.into(),
            ..ExecutionPlan::default()
        })
    }

    /// Places for everything that has one in the method's own arena.
    pub(super) fn plan(&self) -> Result<Places, AssembleError> {
        let mut spans = arena::spans(self.values.len(), &self.steps, &self.inputs, &self.outputs, |value| {
            match self.values.get(value as usize) {
                Some(Value::Plain(EValue::TensorList(items) | EValue::OptionalTensorList(items))) => items,
                _ => &[],
            }
        });
        let mut tensors = Vec::new();
        for (number, value) in self.values.iter().enumerate() {
            let Value::Tensor(spec, storage @ (Storage::Run | Storage::State { .. })) = value else {
                continue;
            };
            let problem = || self.size_problem(number, "its bytes exceed 2^64");
            let bytes = spec.bytes().ok_or_else(problem)?;
            if let Storage::State { .. } = storage {
                spans[number] = Some((0, usize::MAX));
            }
            // A value that no call names still needs a place that readers can check.
            let span = spans[number].unwrap_or((0, 0));
            tensors.push(arena::Tensor { value: number, bytes, first: span.0, last: span.1 });
        }
        let (offsets, bytes) =
            arena::place(&tensors).ok_or_else(|| self.size_problem(0, "the arena exceeds 2^63"))?;
        let mut places = Places { offsets: vec![None; self.values.len()], base: 0, bytes };
        for (tensor, offset) in tensors.iter().zip(offsets) {
            places.offsets[tensor.value] = Some(offset);
        }
        Ok(places)
    }

    pub(super) fn size_problem(&self, value: usize, problem: &str) -> AssembleError {
        AssembleError::Size { method: self.name.clone(), value: value as i32, problem: problem.to_owned() }
    }
}

/// What the tables of a file say of values.
pub(super) fn tables(
    method: &str,
    values: Vec<Value>,
    places: &Places,
    shared: &IndexMap<String, (u64, u64)>,
) -> Result<Vec<EValue>, AssembleError> {
    let mut tables = Vec::with_capacity(values.len());
    for (number, value) in values.into_iter().enumerate() {
        tables.push(match value {
            Value::Plain(value) => value,
            Value::Tensor(spec, storage) => {
                let mut table = table(method, number as i32, &spec)?;
                match storage {
                    Storage::Constant(stored) => table.data_buffer_idx = stored.0,
                    Storage::Run => table.allocation_info = places.of(number, Storage::OWN_ARENA),
                    Storage::State { name, initial } => {
                        table.allocation_info = places.of(number, Storage::OWN_ARENA);
                        table.data_buffer_idx = initial.map_or(0, |stored| stored.0);
                        table.extra_tensor_info = Some(named(&name));
                    }
                    Storage::Shared { name } => {
                        let offset = shared.get(&name).map_or(0, |(offset, _)| *offset);
                        table.allocation_info = Some(place(Storage::SHARED_ARENA, offset));
                    }
                }
                EValue::Tensor(Box::new(table))
            }
        });
    }
    Ok(tables)
}

pub(super) fn operator((name, overload): (String, String)) -> Operator {
    Operator { name: name.into(), overload: overload.into() }
}

/// By value, its offset in the method's own arena.
pub(super) struct Places {
    offsets: Vec<Option<u64>>,
    /// What lies in the arena before the first of them.
    pub(super) base: u64,
    pub(super) bytes: u64,
}

impl Places {
    fn of(&self, value: usize, arena: u32) -> Option<AllocationDetails> {
        self.offsets[value].map(|offset| place(arena, self.base + offset))
    }
}
