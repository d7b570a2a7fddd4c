//! Where a run's regions lie: what the host writes for it, what is bound to kernels, and what is read back of a view.

use super::Run;
use crate::ffi::{ALIGNMENT, Binding, Buffer, Purpose};
use crate::outcome::Kept;
use crate::workspace::Outputs;
use pteron_gpu::{Dispatch, Given, REPORT_WORDS, Region, View, Walk};
use pteron_runtime::{Error, Result, Value};
use pteron_tensor::HostTensor;
use std::sync::Arc;

/// Where an input lies.
pub(super) struct Lies {
    /// The memory of another run's output, or that of the slot.
    pub(super) outputs: Option<Arc<Outputs>>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// The first element of a tensor of integers.
pub(crate) fn first_element(tensor: &HostTensor) -> Option<i64> {
    let bytes = tensor.bytes();
    Some(match tensor.dtype() {
        pteron_tensor::DType::I64 => *tensor.as_slice::<i64>().ok()?.first()?,
        pteron_tensor::DType::I32 => (*tensor.as_slice::<i32>().ok()?.first()?).into(),
        pteron_tensor::DType::U32 => (*tensor.as_slice::<u32>().ok()?.first()?).into(),
        pteron_tensor::DType::I16 => (*tensor.as_slice::<i16>().ok()?.first()?).into(),
        pteron_tensor::DType::U16 => (*tensor.as_slice::<u16>().ok()?.first()?).into(),
        pteron_tensor::DType::U8 => (*bytes.first()?).into(),
        pteron_tensor::DType::I8 => (*tensor.as_slice::<i8>().ok()?.first()?).into(),
        pteron_tensor::DType::Bool => i64::from(*bytes.first()? != 0),
        _ => return None,
    })
}

impl Run<'_> {
    /// Writes inputs one behind the other, but for those that are on the device already.
    pub(super) fn inputs(&mut self, inputs: &[Value]) -> Result<Vec<Given>> {
        let mut given = Vec::with_capacity(inputs.len());
        let mut tensors = Vec::new();
        let mut end = 0u64;
        self.given.clear();
        for value in inputs {
            if let Some(number) = value.as_scalar() {
                given.push(Given::Number(number));
                self.given.push(None);
                continue;
            }
            if let Value::Device(tensor) = value
                && let Some(kept) = tensor.as_any().downcast_ref::<Kept>()
                && let Some((outputs, offset)) = kept.place(&self.program.device)
                && offset.is_multiple_of(ALIGNMENT)
            {
                let (dtype, sizes) = (tensor.dtype(), tensor.shape().to_vec());
                let bytes = sizes.iter().product::<usize>() * dtype.size();
                given.push(Given::Tensor { dtype, sizes, offset: 0, first: None });
                self.given.push(Some(Lies { outputs: Some(outputs), offset, bytes: bytes as u64 }));
                continue;
            }
            let Some(tensor) = value.to_tensor()? else {
                return Err(Error::Invalid(format!("{} as input", value.describe())));
            };
            given.push(Given::Tensor {
                dtype: tensor.dtype(),
                sizes: tensor.shape().to_vec(),
                offset: 0,
                first: first_element(&tensor),
            });
            let bytes = tensor.bytes().len() as u64;
            self.given.push(Some(Lies { outputs: None, offset: end, bytes }));
            tensors.push((end, tensor));
            end = (end + bytes).next_multiple_of(ALIGNMENT);
        }
        let slot = &mut self.space.slots[self.slot];
        if end > slot.inputs.bytes {
            let bytes = end.next_power_of_two();
            slot.inputs = Buffer::new(&self.program.device, bytes, Purpose::Upload, "inputs")?;
        }
        for (offset, tensor) in tensors {
            slot.inputs.write_landed(offset, tensor.bytes())?;
        }
        Ok(given)
    }

    /// Whether a region still lies in the same memory.
    pub(super) fn is_there(&self, &(region, id, offset): &(Region, u64, u64)) -> bool {
        self.memory(region).is_some_and(|(held, at)| (held.id(), at) == (id, offset))
    }

    /// The memory that dispatches see, but for constants, which stay where they are.
    pub(super) fn memory_of(&self, dispatches: &[Dispatch]) -> Vec<(Region, u64, u64)> {
        let mut memory: Vec<(Region, u64, u64)> = Vec::new();
        for region in dispatches.iter().flat_map(|dispatch| &dispatch.operands).map(|operand| operand.region)
        {
            let is_new =
                !matches!(region, Region::Constant(_)) && memory.iter().all(|(seen, ..)| *seen != region);
            if let (true, Some((held, offset))) = (is_new, self.memory(region)) {
                memory.push((region, held.id(), offset));
            }
        }
        memory
    }

    /// What a kernel sees of a region from a byte on.
    pub(super) fn binding(&self, region: Region, base: u64) -> Result<Binding> {
        let most = self.program.device.adapter.features.max_binding;
        let of = |buffer: &Buffer, offset: u64, bytes: u64| {
            let left = bytes.next_multiple_of(4).saturating_sub(base).max(4).min(most);
            buffer.binding(offset + base, left)
        };
        let missing = || Error::Invalid("a kernel is bound to memory that is not there".into());
        Ok(match region {
            Region::Arena => of(&self.space.arena, 0, self.space.arena.bytes),
            Region::Input(number) => {
                let lies = self.given.get(number).and_then(Option::as_ref).ok_or_else(missing)?;
                let held = lies.outputs.as_ref().map_or(&self.slot().inputs, |outputs| &outputs.buffer);
                of(held, lies.offset, lies.bytes)
            }
            Region::Outputs => of(&self.slot().outputs.buffer, 0, self.slot().outputs.buffer.bytes),
            Region::Faults => of(&self.slot().report, 0, 4 * REPORT_WORDS as u64),
            Region::Constant(number) => {
                let placed = self.program.constants[self.id.0].get(number).ok_or_else(missing)?;
                of(&self.program.blocks[placed.block], placed.offset, placed.bytes)
            }
            Region::Buffer(number) => {
                let slot = self.state.slots.by_graph[self.id.0].get(number).ok_or_else(missing)?;
                of(self.state.buffers.as_ref().ok_or_else(missing)?, slot.offset, slot.bytes)
            }
            Region::Cache(part) => {
                let state = self.state_of(part.span).ok_or_else(missing)?;
                let part = state.cache.as_ref().and_then(|cache| cache.part(part)).ok_or_else(missing)?;
                of(part, 0, part.bytes)
            }
        })
    }

    /// The memory of a region, and where the region begins in it.
    pub(super) fn memory(&self, region: Region) -> Option<(&Buffer, u64)> {
        Some(match region {
            Region::Arena => (&self.space.arena, 0),
            Region::Input(number) => {
                let lies = self.given.get(number)?.as_ref()?;
                let held = lies.outputs.as_ref().map_or(&self.slot().inputs, |outputs| &outputs.buffer);
                (held, lies.offset)
            }
            Region::Outputs => (&self.slot().outputs.buffer, 0),
            Region::Faults => (&self.slot().report, 0),
            Region::Constant(number) => {
                let placed = self.program.constants[self.id.0].get(number)?;
                (&self.program.blocks[placed.block], placed.offset)
            }
            Region::Buffer(number) => {
                let slot = self.state.slots.by_graph[self.id.0].get(number)?;
                (self.state.buffers.as_ref()?, slot.offset)
            }
            Region::Cache(part) => (self.state_of(part.span)?.cache.as_ref()?.part(part)?, 0),
        })
    }

    /// A view's elements on the host, read one row-major run after the other.
    pub(super) fn fetch(&self, view: &View, _: &Walk<'_>) -> Result<HostTensor> {
        let mut tensor = HostTensor::zeros(view.dtype, view.sizes().to_vec())?;
        let Some((buffer, start)) = self.memory(view.region) else {
            return Err(Error::Invalid("a value is read from memory that is not there".into()));
        };
        let size = view.dtype.size();
        if view.layout.is_row_major() {
            buffer.read(start + view.offset as u64, tensor.bytes_mut())?;
            return Ok(tensor);
        }
        let mut index = vec![0usize; view.sizes().len()];
        for element in tensor.bytes_mut().chunks_exact_mut(size) {
            let steps = index.iter().zip(view.layout.strides());
            let moved: isize = steps.map(|(&at, &stride)| at as isize * stride).sum();
            let at = view.offset.saturating_add_signed(moved * size as isize);
            buffer.read(start + at as u64, element)?;
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                if index[axis] < view.sizes()[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        Ok(tensor)
    }
}
