//! Builds small `.pte` files: delegates from the text form, values and instructions by hand.

#![allow(dead_code)] // each test file uses its part
#![allow(clippy::unwrap_used)] // a file that cannot be built fails its test

use pteron_format::pte::{
    AllocationDetails, BackendDelegate, BackendDelegateDataReference, Chain, DataLocation, DelegateCall,
    EValue, ExecutionPlan, FreeCall, Instruction, JumpFalseCall, KernelCall, MoveCall, NamedData, Operator,
    Program, SubsegmentOffsets, Tensor, TensorShapeDynamism,
};
use pteron_format::{List, Segment, WriteOptions, emit, pte};
use pteron_ir::parse_module;
use pteron_runtime::{DataFile, Options, Program as Loaded, Result};
use pteron_tensor::{Bytes, DType, HostTensor};

/// A file in the making.
#[derive(Default)]
pub(crate) struct File {
    plans: Vec<ExecutionPlan>,
    segments: Vec<Bytes>,
    named: Vec<NamedData>,
    constants: Vec<u8>,
    constant_offsets: Vec<u64>,
}

/// A method in the making; values are known by their number.
pub(crate) struct Method {
    name: String,
    values: Vec<EValue>,
    inputs: Vec<i32>,
    outputs: Vec<i32>,
    operators: Vec<Operator>,
    delegates: Vec<BackendDelegate>,
    steps: Vec<Instruction>,
    arenas: Vec<i64>,
    /// Bytes of the first arena that are taken.
    taken: u32,
}

impl Method {
    pub(crate) fn new(name: &str) -> Method {
        Method {
            name: name.into(),
            values: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            operators: Vec::new(),
            delegates: Vec::new(),
            steps: Vec::new(),
            arenas: vec![0, 1 << 24],
            taken: 0,
        }
    }

    pub(crate) fn value(&mut self, value: EValue) -> i32 {
        self.values.push(value);
        self.values.len() as i32 - 1
    }

    fn table(dtype: DType, sizes: &[i32], arena: Option<(u32, u32)>) -> Tensor {
        Tensor {
            scalar_type: dtype.into(),
            sizes: sizes.to_vec().into(),
            dim_order: (0..sizes.len() as u8).collect(),
            allocation_info: arena.map(|(memory_id, memory_offset_low)| AllocationDetails {
                memory_id,
                memory_offset_low,
                memory_offset_high: 0,
            }),
            ..Tensor::default()
        }
    }

    /// Room of its own in the first arena.
    pub(crate) fn take(&mut self, dtype: DType, sizes: &[i32]) -> u32 {
        let offset = self.taken;
        let bytes = sizes.iter().product::<i32>() as u32 * dtype.size() as u32;
        self.taken = (offset + bytes).next_multiple_of(16);
        offset
    }

    /// A planned tensor of the run.
    pub(crate) fn tensor(&mut self, dtype: DType, sizes: &[i32]) -> i32 {
        let offset = self.take(dtype, sizes);
        self.placed(dtype, sizes, 1, offset)
    }

    /// A tensor at a place of an arena.
    pub(crate) fn placed(&mut self, dtype: DType, sizes: &[i32], arena: u32, offset: u32) -> i32 {
        if arena == 2 && self.arenas.len() == 2 {
            self.arenas.push(64);
        }
        self.value(EValue::Tensor(Box::new(Method::table(dtype, sizes, Some((arena, offset))))))
    }

    /// A planned tensor whose sizes are bounds.
    pub(crate) fn dynamic(&mut self, dtype: DType, sizes: &[i32]) -> i32 {
        let offset = self.take(dtype, sizes);
        self.dynamic_at(dtype, sizes, offset)
    }

    /// The same at a place of the first arena.
    pub(crate) fn dynamic_at(&mut self, dtype: DType, sizes: &[i32], offset: u32) -> i32 {
        let mut table = Method::table(dtype, sizes, Some((1, offset)));
        table.shape_dynamism = TensorShapeDynamism::DynamicBound;
        self.value(EValue::Tensor(Box::new(table)))
    }

    /// A constant, stored with dims in the given order.
    pub(crate) fn constant(&mut self, file: &mut File, tensor: &HostTensor, order: &[u8]) -> i32 {
        let sizes: Vec<i32> = tensor.shape().iter().map(|&size| size as i32).collect();
        let mut table = Method::table(tensor.dtype(), &sizes, None);
        table.dim_order = order.to_vec().into();
        table.data_buffer_idx = file.add_constant(tensor.bytes());
        self.value(EValue::Tensor(Box::new(table)))
    }

    pub(crate) fn int(&mut self, value: i64) -> i32 {
        self.value(EValue::Int(value))
    }

    pub(crate) fn input(&mut self, value: i32) -> i32 {
        self.inputs.push(value);
        value
    }

    pub(crate) fn output(&mut self, value: i32) {
        self.outputs.push(value);
    }

    pub(crate) fn kernel(&mut self, name: &str, overload: &str, args: &[i32]) {
        self.operators.push(Operator { name: name.into(), overload: overload.into() });
        let op_index = self.operators.len() as i32 - 1;
        self.steps.push(Instruction::Kernel(KernelCall { op_index, args: args.to_vec().into() }));
    }

    pub(crate) fn jump_false(&mut self, cond_value_index: i32, destination_instruction: i32) {
        self.steps.push(Instruction::JumpFalse(JumpFalseCall { cond_value_index, destination_instruction }));
    }

    pub(crate) fn move_value(&mut self, move_from: i32, move_to: i32) {
        self.steps.push(Instruction::Move(MoveCall { move_from, move_to }));
    }

    pub(crate) fn free(&mut self, value_index: i32) {
        self.steps.push(Instruction::Free(FreeCall { value_index }));
    }

    /// A list of fixed integers.
    pub(crate) fn ints(&mut self, items: &[i64]) -> i32 {
        let items: Vec<i64> = items.iter().map(|&item| self.int(item).into()).collect();
        self.value(EValue::IntList(items.into()))
    }

    /// A list of tensors.
    pub(crate) fn tensors(&mut self, items: &[i32]) -> i32 {
        self.value(EValue::TensorList(items.to_vec().into()))
    }

    /// Calls a delegate whose graph is given as text.
    pub(crate) fn delegate(&mut self, file: &mut File, graph: &str, args: &[i32]) {
        let module = parse_module(graph).unwrap();
        let payload = emit(&module).unwrap().encode().unwrap();
        self.foreign_delegate(file, "MLXBackend", &payload, args);
    }

    pub(crate) fn foreign_delegate(&mut self, file: &mut File, id: &str, payload: &[u8], args: &[i32]) {
        let index = file.add_segment(payload);
        let processed = Some(BackendDelegateDataReference { location: DataLocation::Segment, index });
        self.delegates.push(BackendDelegate { id: id.into(), processed, compile_specs: List::default() });
        self.call_again(self.delegates.len() as i32 - 1, args);
    }

    /// Calls a delegate that is there already.
    pub(crate) fn call_again(&mut self, delegate_index: i32, args: &[i32]) {
        self.steps.push(Instruction::Delegate(DelegateCall { delegate_index, args: args.to_vec().into() }));
    }
}

impl File {
    fn add_segment(&mut self, bytes: &[u8]) -> u32 {
        if self.segments.is_empty() {
            // Segment 0 is that of the constants.
            self.segments.push(Bytes::zeroed(0));
        }
        self.segments.push(Bytes::copy_of(bytes));
        self.segments.len() as u32 - 1
    }

    fn add_constant(&mut self, bytes: &[u8]) -> u32 {
        if self.constant_offsets.is_empty() {
            self.constant_offsets.push(0);
        }
        self.constants.resize(self.constants.len().next_multiple_of(16), 0);
        self.constant_offsets.push(self.constants.len() as u64);
        self.constants.extend_from_slice(bytes);
        self.constant_offsets.len() as u32 - 1
    }

    /// Named data, for constants of delegates.
    pub(crate) fn name(&mut self, key: &str, tensor: &HostTensor) {
        let segment_index = self.add_segment(tensor.bytes());
        self.named.push(NamedData { key: key.into(), segment_index });
    }

    pub(crate) fn add(&mut self, method: Method) {
        self.plans.push(ExecutionPlan {
            name: method.name.into(),
            values: method.values.into(),
            inputs: method.inputs.into(),
            outputs: method.outputs.into(),
            chains: vec![Chain { instructions: method.steps.into(), ..Chain::default() }].into(),
            operators: method.operators.into(),
            delegates: method.delegates.into(),
            non_const_buffer_sizes: method.arenas.into(),
            ..ExecutionPlan::default()
        });
    }

    /// A constant method.
    pub(crate) fn metadata(&mut self, name: &str, value: EValue) {
        let mut method = Method::new(name);
        let value = method.value(value);
        method.output(value);
        method.arenas = vec![0];
        self.add(method);
    }

    pub(crate) fn bytes(mut self) -> Bytes {
        if self.segments.is_empty() {
            self.segments.push(Bytes::zeroed(0));
        }
        self.segments[0] = Bytes::copy_of(&self.constants);
        if self.constant_offsets.is_empty() {
            self.constant_offsets.push(0);
        }
        let program = Program {
            execution_plan: self.plans.into(),
            constant_segment: Some(SubsegmentOffsets {
                segment_index: 0,
                offsets: self.constant_offsets.into(),
            }),
            named_data: self.named.into(),
            ..Program::default()
        };
        let segments: Vec<Segment<'_>> = self.segments.into_iter().map(Segment::shared).collect();
        let mut file = Vec::new();
        pte::write(&program, &segments, &WriteOptions::default(), &mut file).unwrap();
        Bytes::copy_of(&file)
    }

    pub(crate) fn load(self) -> Result<Loaded> {
        self.load_with(&[], &Options::default())
    }

    pub(crate) fn load_with(self, data: &[DataFile], options: &Options) -> Result<Loaded> {
        let options = Options { registry: crate::registry(), ..options.clone() };
        Loaded::load("test.pte", self.bytes(), data, &options)
    }
}

pub(crate) fn f32s(shape: &[usize], values: &[f32]) -> HostTensor {
    HostTensor::from_slice(shape.to_vec(), values).unwrap()
}

pub(crate) fn i64s(shape: &[usize], values: &[i64]) -> HostTensor {
    HostTensor::from_slice(shape.to_vec(), values).unwrap()
}
