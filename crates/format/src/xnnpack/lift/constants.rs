//! Constants: those of plain numbers as they are, those of codes as the numbers that an init graph makes of them.

use pteron_ir::op::IntArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::Lifter;
use super::boundary::stored_dtype;
use crate::draft::{Part, Step, problem};
use crate::xnnpack::tables::{Datatype, PerChannelGroupQuant, PerChannelQuant, Quantization, TensorValue};

/// How ExecuTorch makes bf16 of the f32 scales of old files: times this, then cut off.
const SCALE_ROUNDING: f32 = 1.003_891;

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

    /// A stored constant, read as a tensor of that type.
    pub(super) fn stored_at(
        &mut self,
        part: Part,
        index: u32,
        dtype: DType,
        shape: &[usize],
    ) -> Step<ValueId> {
        let found = self.payload.constant(index);
        self.stored(part, (index, found), dtype, shape)
    }

    fn plain(&mut self, part: Part, tensor: &TensorValue) -> Step<ValueId> {
        self.stored_at(part, tensor.constant_buffer_idx, stored_dtype(tensor.datatype)?, &sizes(tensor))
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
            index => self.stored_at(Part::Init, index, DType::F32, &[channels]),
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
            index => self.stored_at(part, index, DType::BF16, &shape),
        }
    }

    /// The numbers -8 to 7 of a matrix of 4-bit codes: two a byte, the even column in the low half.
    fn nibbles(&mut self, tensor: &TensorValue) -> Step<ValueId> {
        let &[rows, columns] = &sizes(tensor)[..] else { return problem("codes of 4 bits need two dims") };
        let shape = [rows, columns.div_ceil(2)];
        let bytes = self.stored_at(Part::Init, tensor.constant_buffer_idx, DType::U8, &shape)?;
        self.draft.nibbles(bytes, shape, columns, true)
    }

    /// Whether a value is a constant, and its tensor.
    pub(super) fn stored_tensor(&self, id: u32) -> Step<Option<&TensorValue>> {
        let at = self.at(id)?;
        Ok(self.payload.graph.xvalues[at].tensor().filter(|tensor| tensor.constant_buffer_idx != 0))
    }
}
