//! The tables of a `.pte` program, owned, one type a table of ExecuTorch 1.5.1's `program.fbs`.
//!
//! They mirror the wire: an absent vector stays absent, indices stay indices. Names are the schema's. What the
//! tables promise each other is checked in `check`, not here; the two unions are in `values`.

use super::values::{EValue, Instruction, ScalarType};
use crate::mirror::{Blob, List, Text, mirror_enum, mirror_table};

mirror_table! {
    /// The root: everything a `.pte` file says outside its segments.
    pub struct Program {
        /// Schema version; 0 in every file so far, as compatibility rides on the file identifier.
        0 version: u32,
        /// One per method.
        1 execution_plan: List<ExecutionPlan>,
        /// Constants inside the tables. Deprecated since 2024: [`constant_segment`](Program::constant_segment).
        2 constant_buffer: List<Buffer>,
        /// Delegate payloads inside the tables.
        3 backend_delegate_data: List<BackendDelegateInlineData>,
        /// Where the segments lie; recomputed when a file is written.
        4 segments: List<DataSegment>,
        /// Where the constants of all methods lie in their segment; entry 0 stands for "no constant".
        5 constant_segment: Option<SubsegmentOffsets>,
        /// Where the initial values of mutable tensors lie in theirs.
        6 mutable_data_segments: List<SubsegmentOffsets>,
        /// Segments that have a name.
        7 named_data: List<NamedData>,
    }

    /// One method.
    pub struct ExecutionPlan {
        /// Name of the method.
        0 name: Text,
        /// How to nest the flat inputs and outputs again.
        1 container_meta_type: Option<ContainerMetadata>,
        /// All values that the method uses.
        2 values: List<EValue>,
        /// Values that are its inputs.
        3 inputs: List<i32>,
        /// Values that are its outputs.
        4 outputs: List<i32>,
        /// Run one after another; one in practice.
        5 chains: List<Chain>,
        /// What kernel calls name.
        6 operators: List<Operator>,
        /// What delegate calls name.
        7 delegates: List<BackendDelegate>,
        /// Bytes of each planned arena; entry 0 is reserved.
        8 non_const_buffer_sizes: List<i64>,
        /// Devices of the arenas, where any is not the CPU.
        9 non_const_buffer_device: List<NonConstBufferDevice>,
    }

    /// Torch's pytree of inputs and outputs, as JSON.
    pub struct ContainerMetadata {
        /// Of the inputs.
        0 encoded_inp_str: Text,
        /// Of the outputs.
        1 encoded_out_str: Text,
    }

    /// A list of instructions.
    pub struct Chain limited by chains {
        /// Values that flow into the chain.
        0 inputs: List<i32>,
        /// Values that flow out of it.
        1 outputs: List<i32>,
        /// Executed in order, but for jumps.
        2 instructions: List<Instruction>,
        /// Source places, one list an instruction, if the exporter was asked for them.
        3 stacktrace: List<FrameList>,
    }

    /// Source places of one instruction.
    pub struct FrameList limited by instructions {
        /// Innermost last.
        0 items: List<Frame>,
    }

    /// One source place.
    pub struct Frame {
        /// The source file.
        0 filename: Text,
        /// Its line.
        1 lineno: i32,
        /// The function.
        2 name: Text,
        /// The source text.
        3 context: Text,
    }

    /// A kernel by name, such as `aten::add` and `out`.
    pub struct Operator {
        /// The qualified name.
        0 name: Text,
        /// The overload.
        1 overload: Text,
    }

    /// A part of the method that a backend runs.
    pub struct BackendDelegate {
        /// The backend, such as `MLXBackend`.
        0 id: Text,
        /// Where its payload lies.
        1 processed: Option<BackendDelegateDataReference>,
        /// What the exporter told the backend's compiler.
        2 compile_specs: List<CompileSpec>,
    }

    /// Where a delegate's payload lies.
    pub struct BackendDelegateDataReference {
        /// Which list `index` is of.
        0 location: DataLocation,
        /// Index into `backend_delegate_data` or `segments`.
        1 index: u32,
    }

    /// One setting of a backend's compiler.
    pub struct CompileSpec {
        /// The setting.
        0 key: Text,
        /// Its value, in the backend's own encoding.
        1 value: Blob<1>,
    }

    /// The device of one planned arena.
    pub struct NonConstBufferDevice {
        /// Index into `non_const_buffer_sizes`.
        0 buffer_idx: i32,
        /// The kind of device.
        1 device_type: DeviceType,
        /// Which of that kind.
        2 device_index: i8,
    }

    /// A constant inside the tables.
    pub struct Buffer {
        /// Its bytes.
        0 storage: Blob<16>,
    }

    /// A delegate payload inside the tables.
    pub struct BackendDelegateInlineData {
        /// Its bytes.
        0 data: Blob<16>,
    }

    /// Where one segment lies.
    pub struct DataSegment {
        /// From the segment base.
        0 offset: u64,
        /// Without padding.
        1 size: u64,
    }

    /// Offsets into one segment.
    pub struct SubsegmentOffsets {
        /// Which segment.
        0 segment_index: u32,
        /// Where each entry starts; ends are not stored.
        1 offsets: List<u64>,
    }

    /// A segment's name. Several names may share a segment.
    pub struct NamedData {
        /// The name.
        0 key: Text,
        /// Which segment.
        1 segment_index: u32,
    }

    /// A tensor value: type, shape and where its bytes come from.
    pub struct Tensor {
        /// The element type.
        0 scalar_type: ScalarType,
        /// In elements; 0 in every file, as no runtime takes another.
        1 storage_offset: i32,
        /// The shape, or its upper bound.
        2 sizes: List<i32>,
        /// Dimensions from outer to inner in memory.
        3 dim_order: List<u8>,
        /// Torch's flag.
        4 requires_grad: bool,
        /// Index of a constant or initial value; 0 is none.
        5 data_buffer_idx: u32,
        /// The planned place, for tensors that have one.
        6 allocation_info: Option<AllocationDetails>,
        /// Torch's layout number.
        7 layout: i8,
        /// What `sizes` promises.
        8 shape_dynamism: TensorShapeDynamism,
        /// What few tensors have.
        9 extra_tensor_info: Option<ExtraTensorInfo>,
    }

    /// A place in a planned arena.
    pub struct AllocationDetails {
        /// The arena, from 1.
        0 memory_id: u32,
        /// Low half of the offset.
        1 memory_offset_low: u32,
        /// High half of the offset.
        2 memory_offset_high: u32,
    }

    /// What few tensors have.
    pub struct ExtraTensorInfo {
        /// Index into `mutable_data_segments`.
        0 mutable_data_segments_idx: u64,
        /// Name of the tensor; the key of external data.
        1 fully_qualified_name: Text,
        /// Inside the file or outside.
        2 location: TensorDataLocation,
        /// The kind of device it lives on.
        3 device_type: DeviceType,
        /// Which of that kind.
        4 device_index: i8,
    }

    /// Calls an operator.
    pub struct KernelCall {
        /// Index into `operators`.
        0 op_index: i32,
        /// Values: inputs, then outputs, the last output often twice.
        1 args: List<i32>,
    }

    /// Runs a delegate.
    pub struct DelegateCall {
        /// Index into `delegates`.
        0 delegate_index: i32,
        /// Values: inputs, then outputs; only the payload knows where one list ends.
        1 args: List<i32>,
    }

    /// Copies a value's handle, not its data.
    pub struct MoveCall {
        /// The value copied.
        0 move_from: i32,
        /// The value replaced.
        1 move_to: i32,
    }

    /// Jumps if a value is false.
    pub struct JumpFalseCall {
        /// A bool, or a tensor of which one element is false.
        0 cond_value_index: i32,
        /// Instruction of the same chain.
        1 destination_instruction: i32,
    }

    /// Drops a tensor's data.
    pub struct FreeCall {
        /// The tensor.
        0 value_index: i32,
    }
}

mirror_enum! {
    /// What a tensor's sizes promise.
    pub enum TensorShapeDynamism {
        /// They are the shape.
        Static = 0,
        /// They bound the shape.
        DynamicBound = 1,
        /// They mean nothing.
        DynamicUnbound = 2,
    }

    /// Where a tensor's data is stored.
    pub enum TensorDataLocation {
        /// In this file.
        Segment = 0,
        /// In another file, under the tensor's name.
        External = 1,
    }

    /// Where a payload is stored.
    pub enum DataLocation {
        /// Inside the tables.
        Inline = 0,
        /// In a segment.
        Segment = 1,
    }

    /// The kind of device that memory belongs to.
    pub enum DeviceType {
        /// Host memory.
        Cpu = 0,
        /// CUDA memory.
        Cuda = 1,
    }
}

impl AllocationDetails {
    /// The offset of both halves.
    pub fn offset(&self) -> u64 {
        u64::from(self.memory_offset_high) << 32 | u64::from(self.memory_offset_low)
    }
}

impl Tensor {
    /// Whether its data comes from another file.
    pub fn is_external(&self) -> bool {
        self.extra_tensor_info.as_ref().is_some_and(|extra| extra.location == TensorDataLocation::External)
    }

    /// Bytes of the shape (or its bound) as stored, if they can be counted.
    pub fn byte_len(&self) -> Option<u64> {
        self.sizes.iter().try_fold(self.scalar_type.size() as u64, |bytes, size| {
            bytes.checked_mul(u64::try_from(*size).ok()?)
        })
    }
}
