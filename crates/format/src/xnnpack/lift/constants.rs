//! Constants: those of plain numbers as they are, those of codes as the numbers that an init graph makes of them.

use pteron_ir::op::IntArg;
use pteron_ir::{Op, Output, TensorType, Type, ValueId};
use pteron_tensor::{Bytes, DType};

use super::boundary::stored_dtype;
use super::{Int, Lifter, Part, Step, problem};
use crate::xnnpack::Constant;
use crate::xnnpack::tables::{Datatype, PerChannelGroupQuant, PerChannelQuant, Quantization, TensorValue};

/// How ExecuTorch makes bf16 of the f32 scales of old files: times this, then cut off.
const SCALE_ROUNDING: f32 = 1.003_891;

/// Sizes as the arguments of an op.
pub(super) fn literals(shape: &[usize]) -> Vec<Int> {
    shape.iter().map(|&size| IntArg::Literal(size as i64)).collect()
}

fn sizes(tensor: &TensorValue) -> Vec<usize> {
    tensor.dims.iter().map(|&size| size as usize).collect()
}

impl Lifter<'_> {
    /// The value at a place of the payload, which is a constant, in the main graph.
    pub(super) fn constant(&mut self, at: usize) -> Step<ValueId> {
        let value = &self.payload.graph.xvalues[at];
        let Some(tensor) = value.tensor() else { return problem("it has no tensor") };
        match value.quantization() {
            None => self.plain(Part::Main, tensor),
            Some(_) => {
                let numbers = self.constant_in_init(at)?;
                self.made(format!("value_{at}"), numbers)
            }
        }
    }

    /// The same in the init graph, for more to be made of it there.
    pub(super) fn constant_in_init(&mut self, at: usize) -> Step<ValueId> {
        let value = &self.payload.graph.xvalues[at];
        let Some(tensor) = value.tensor() else { return problem("it has no tensor") };
        match value.quantization() {
            None => self.plain(Part::Init, tensor),
            Some(Quantization::PerTensor(grid)) => {
                let codes = self.plain(Part::Init, tensor)?;
                self.decode(Part::Init, codes, grid.scale, grid.zero_point)
            }
            Some(Quantization::PerChannel(grid)) => {
                let codes = match tensor.datatype {
                    Datatype::Qcint4 => self.nibbles(tensor)?,
                    _ => self.plain(Part::Init, tensor)?,
                };
                let scales = self.channel_scales(tensor, grid)?;
                let mut shape = vec![IntArg::Literal(1); tensor.dims.len()];
                if let Some(size) =
                    usize::try_from(grid.channel_dim).ok().and_then(|axis| shape.get_mut(axis))
                {
                    *size = IntArg::Literal(-1);
                }
                let scales = self.append(Part::Init, Op::Reshape { x: scales, shape })?;
                let steps = self.append(Part::Init, Op::AsType { x: codes, scalar_type: DType::F32 })?;
                self.append(Part::Init, Op::Multiply { a: steps, b: scales })
            }
            Some(Quantization::PerChannelGroup(grid)) => {
                let steps = self.nibbles(tensor)?;
                let scales = self.group_scales(Part::Init, tensor, grid)?;
                let repeats = IntArg::Literal(grid.group_size.into());
                let scales = self.append(Part::Init, Op::Repeat { x: scales, repeats, axis: 1 })?;
                self.append(Part::Init, Op::Multiply { a: steps, b: scales })
            }
            Some(Quantization::PerTokenDynamic(_)) => problem("a constant is not quantised at run time"),
        }
    }

    /// A constant that the main graph reads and the init graph makes.
    pub(super) fn made(&mut self, name: String, value: ValueId) -> Step<ValueId> {
        if let Some(&known) = self.constants.get(&(Part::Main, name.clone())) {
            return Ok(known);
        }
        if self.data.contains_key(&name) {
            return problem(format!("a key `{name}`, which stands for what is made of another constant"));
        }
        let ty = self.ty(Part::Init, value)?.clone();
        let output = Output { name: name.clone(), value, ty: Type::Tensor(ty.clone()) };
        self.init.graph_mut().outputs.push(output);
        let constant = self.main.graph_mut().add_constant(&name, ty);
        self.constants.insert((Part::Main, name), constant);
        Ok(constant)
    }

    fn plain(&mut self, part: Part, tensor: &TensorValue) -> Step<ValueId> {
        self.stored(part, tensor.constant_buffer_idx, stored_dtype(tensor.datatype)?, &sizes(tensor))
    }

    /// A stored constant, read as a tensor of that type.
    pub(super) fn stored(&mut self, part: Part, index: u32, dtype: DType, shape: &[usize]) -> Step<ValueId> {
        let key = (index, dtype, shape.to_vec());
        let name = match self.names.get(&key) {
            Some(name) => name.clone(),
            None => {
                let Some(found) = self.payload.constant(index) else {
                    return problem(format!("there is no constant {index}"));
                };
                let bytes = self.bytes_of(dtype, shape)?;
                let (base, found) = match found {
                    Constant::Named(key) => (key.clone(), Constant::Named(key)),
                    Constant::Inline(all) => {
                        let Some(part) = all.slice(0..bytes) else {
                            return problem(format!(
                                "constant {index} has {} bytes instead of {bytes}",
                                all.len()
                            ));
                        };
                        (format!("constant_{index}"), Constant::Inline(part))
                    }
                };
                // The same bytes may be read as tensors of several types; each has a name of its own.
                let mut name = base.clone();
                let mut number = 1;
                while self.data.contains_key(&name)
                    || self.constants.contains_key(&(Part::Main, name.clone()))
                {
                    number += 1;
                    name = format!("{base}_{number}");
                }
                self.data.insert(name.clone(), found);
                self.names.insert(key, name.clone());
                name
            }
        };
        Ok(self.listed(part, name, dtype, shape))
    }

    /// A constant whose bytes come from here.
    pub(super) fn written(
        &mut self,
        part: Part,
        name: &str,
        dtype: DType,
        shape: &[usize],
        bytes: &[u8],
    ) -> Step<ValueId> {
        if self.bytes_of(dtype, shape)? != bytes.len() {
            return problem(format!("{} bytes for {shape:?} of {}", bytes.len(), dtype.name()));
        }
        if !self.data.contains_key(name) {
            self.data.insert(name.to_owned(), Constant::Inline(Bytes::copy_of(bytes)));
        }
        Ok(self.listed(part, name.to_owned(), dtype, shape))
    }

    fn listed(&mut self, part: Part, name: String, dtype: DType, shape: &[usize]) -> ValueId {
        let graph = match part {
            Part::Init => self.init.graph_mut(),
            Part::Main => self.main.graph_mut(),
        };
        *self
            .constants
            .entry((part, name))
            .or_insert_with_key(|(_, name)| graph.add_constant(name, TensorType::known(dtype, shape)))
    }

    fn bytes_of(&self, dtype: DType, shape: &[usize]) -> Step<usize> {
        let bytes = shape.iter().try_fold(dtype.size(), |bytes, &size| bytes.checked_mul(size));
        match bytes.filter(|bytes| *bytes as u64 <= self.limits.tensor_bytes) {
            Some(bytes) => Ok(bytes),
            None => problem(format!(
                "a constant of {shape:?} exceeds the limit `tensor_bytes` of {}",
                self.limits.tensor_bytes
            )),
        }
    }

    /// The f32 scales of channels, in the init graph.
    pub(super) fn channel_scales(&mut self, tensor: &TensorValue, grid: &PerChannelQuant) -> Step<ValueId> {
        let axis = usize::try_from(grid.channel_dim).unwrap_or(usize::MAX);
        let channels = tensor.dims.get(axis).map_or(0, |&size| size as usize);
        match grid.scale_buffer_idx {
            0 => {
                let bytes: Vec<u8> = grid.scale.iter().flat_map(|scale| scale.to_le_bytes()).collect();
                let name = format!("scales_{}", tensor.id_out);
                self.written(Part::Init, &name, DType::F32, &[channels], &bytes)
            }
            index => self.stored(Part::Init, index, DType::F32, &[channels]),
        }
    }

    /// The bf16 scales of groups, [rows, groups].
    pub(super) fn group_scales(
        &mut self,
        part: Part,
        tensor: &TensorValue,
        grid: &PerChannelGroupQuant,
    ) -> Step<ValueId> {
        let &[rows, columns] = &sizes(tensor)[..] else { return problem("groups need two dims") };
        let groups = usize::try_from(grid.group_size).ok().and_then(|size| columns.checked_div(size));
        let shape = [rows, groups.unwrap_or(0)];
        match grid.scale_buffer_idx {
            0 => {
                let cut = |scale: &f32| ((scale * SCALE_ROUNDING).to_bits() >> 16) as u16;
                let bytes: Vec<u8> = grid.scale.iter().flat_map(|scale| cut(scale).to_le_bytes()).collect();
                self.written(part, &format!("scales_{}", tensor.id_out), DType::BF16, &shape, &bytes)
            }
            index => self.stored(part, index, DType::BF16, &shape),
        }
    }

    /// The numbers -8 to 7 of a matrix of 4-bit codes: two a byte, the even column in the low half.
    fn nibbles(&mut self, tensor: &TensorValue) -> Step<ValueId> {
        let &[rows, columns] = &sizes(tensor)[..] else { return problem("codes of 4 bits need two dims") };
        let pairs = columns.div_ceil(2);
        let bytes = self.stored(Part::Init, tensor.constant_buffer_idx, DType::U8, &[rows, pairs])?;
        let mask = self.number_in(Part::Init, 15.0, DType::U8)?;
        let shift = self.number_in(Part::Init, 16.0, DType::U8)?;
        let low = self.append(Part::Init, Op::BitwiseAnd { a: bytes, b: mask })?;
        let high = self.append(Part::Init, Op::FloorDivide { a: bytes, b: shift })?;
        let both = self.append(Part::Init, Op::Stack { tensors: vec![low, high], axis: 2 })?;
        let shape = literals(&[rows, 2 * pairs]);
        let mut codes = self.append(Part::Init, Op::Reshape { x: both, shape })?;
        if 2 * pairs != columns {
            let (axis, start) = (IntArg::Literal(1), IntArg::Literal(0));
            let stop = IntArg::Literal(columns as i64);
            codes = self.append(Part::Init, Op::Slice { x: codes, axis, start, stop, step: 1 })?;
        }
        let codes = self.append(Part::Init, Op::AsType { x: codes, scalar_type: DType::F32 })?;
        let middle = self.number_in(Part::Init, 8.0, DType::F32)?;
        self.append(Part::Init, Op::Subtract { a: codes, b: middle })
    }

    /// Whether a value is a constant, and its tensor.
    pub(super) fn stored_tensor(&self, id: u32) -> Step<Option<&TensorValue>> {
        let at = self.at(id)?;
        Ok(self.payload.graph.xvalues[at].tensor().filter(|tensor| tensor.constant_buffer_idx != 0))
    }
}
