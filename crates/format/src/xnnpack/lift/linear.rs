//! Products with weights and convolutions. Weights of a product stay packed where the catalogue has their layout: codes of
//! 4 bits lie in the file as it wants them, codes of 8 bits but for their sign.

use pteron_ir::op::IntArg;
use pteron_ir::{Op, ValueId};
use pteron_tensor::DType;

use super::Lifter;
use crate::draft::{Part, Step, literals, problem, small};
use crate::xnnpack::node::{Attention, Binary, Convolution, FullyConnected, Node};
use crate::xnnpack::tables::{Datatype, NO_ID, Quantization, TensorValue, Value};

/// Weights are [inputs, outputs]; of a batched product, the right matrix is transposed.
const TRANSPOSED: u32 = 1;
/// Padding that depends on the input's size.
const SAME_PADDING: u32 = 4;

/// The catalogue's groups, the largest first: fewer scales to read.
const GROUPS: [usize; 3] = [128, 64, 32];

/// Weights as `QuantizedMatmul` takes them.
struct Packed {
    w: ValueId,
    scales: ValueId,
    biases: ValueId,
    group_size: i32,
    bits: i32,
}

impl Lifter<'_> {
    pub(super) fn fully_connected(&mut self, node: &Node, product: &FullyConnected) -> Step<()> {
        let x = self.value(product.input1_id)?;
        let bias = self.maybe_value(product.bias_id)?;
        let is_transposed = product.flags & TRANSPOSED != 0;
        if let Some(Packed { w, scales, biases, group_size, bits }) =
            self.packed(product.filter_id, is_transposed)?
        {
            let (biases, mode) = (Some(biases), "affine".into());
            let matmul =
                Op::QuantizedMatmul { x, w, scales, biases, group_size, bits, mode, transpose: true };
            let value = self.emit(matmul)?;
            let value = self.biased(value, bias)?;
            return self.give(node, product.output_id, value);
        }
        let filter = self.value(product.filter_id)?;
        let mat2 = if is_transposed { filter } else { self.swapped(filter)? };
        let value = self.emit(Op::Addmm { mat1: x, mat2, bias, alpha: 1.0, beta: 1.0 })?;
        self.give(node, product.output_id, value)
    }

    fn maybe_value(&mut self, id: u32) -> Step<Option<ValueId>> {
        if id == NO_ID { Ok(None) } else { self.value(id).map(Some) }
    }

    fn biased(&mut self, value: ValueId, bias: Option<ValueId>) -> Step<ValueId> {
        match bias {
            Some(bias) => self.emit(Op::Add { a: value, b: bias }),
            None => Ok(value),
        }
    }

    /// Packed weights, where the filter is a constant of such codes.
    fn packed(&mut self, filter: u32, is_transposed: bool) -> Step<Option<Packed>> {
        let value = self.declared(filter)?;
        let (Some(tensor), Some(quantization)) = (value.tensor(), value.quantization()) else {
            return Ok(None);
        };
        let &[rows, columns] = &tensor.dims[..] else { return Ok(None) };
        let (rows, columns) = (rows as usize, columns as usize);
        if is_transposed || tensor.constant_buffer_idx == 0 || rows == 0 || columns == 0 || columns % 32 != 0
        {
            return Ok(None);
        }
        if !channels_are_rows(value) {
            return Ok(None);
        }
        let bits = match tensor.datatype {
            Datatype::Qbint4 | Datatype::Qcint4 => 4,
            Datatype::Qint8 | Datatype::Qcint8 => 8,
            _ => return Ok(None),
        };
        let shape = [rows, columns / (32 / bits as usize)];
        let w = match bits {
            4 => self.stored_at(Part::Main, tensor.constant_buffer_idx, DType::U32, &shape)?,
            _ => self.unsigned_bytes(tensor, &shape)?,
        };
        let name = |what: &str| format!("value_{filter}_{what}");
        if let Quantization::PerChannelGroup(grid) = quantization
            && GROUPS.contains(&usize::try_from(grid.group_size).unwrap_or(0))
        {
            let scales = self.group_scales(Part::Main, tensor, grid)?;
            let in_init = self.group_scales(Part::Init, tensor, grid)?;
            // A stored factor, so that whoever loads the program sees a multiple of the scales and need not make it.
            let eight = half_bits(-8.0).to_le_bytes();
            let factor = self.written(Part::Init, "factor_-8", DType::BF16, &[], &eight)?;
            let biases = self.append(Part::Init, Op::Multiply { a: in_init, b: factor })?;
            let biases = self.made(name("biases"), biases)?;
            return Ok(Some(Packed { w, scales, biases, group_size: grid.group_size, bits }));
        }
        let (scales, group_size) = self.spread_scales(quantization, tensor, rows, columns)?;
        let zero = match quantization {
            Quantization::PerTensor(grid) => 128.0 + f64::from(grid.zero_point),
            _ => f64::from(1 << (bits - 1)),
        };
        let dtype = self.ty(Part::Init, scales)?.dtype;
        let factor = self.number_in(Part::Init, -zero, dtype)?;
        let biases = self.append(Part::Init, Op::Multiply { a: scales, b: factor })?;
        let (scales, biases) = (self.made(name("scales"), scales)?, self.made(name("biases"), biases)?);
        Ok(Some(Packed { w, scales, biases, group_size, bits }))
    }

    /// Signed bytes as packed words of unsigned ones: all that differs is the highest bit of each.
    fn unsigned_bytes(&mut self, tensor: &TensorValue, shape: &[usize]) -> Step<ValueId> {
        let words = self.stored_at(Part::Init, tensor.constant_buffer_idx, DType::U32, shape)?;
        let mask = 0x8080_8080u32.to_le_bytes();
        let mask = self.written(Part::Init, "high_bits", DType::U32, &[], &mask)?;
        let turned = self.append(Part::Init, Op::BitwiseXor { a: words, b: mask })?;
        self.made(format!("value_{}_bytes", tensor.id_out), turned)
    }

    /// Scales of larger groups, of channels or of a whole matrix as those of the catalogue's groups, in the init graph.
    fn spread_scales(
        &mut self,
        quantization: &Quantization,
        tensor: &TensorValue,
        rows: usize,
        columns: usize,
    ) -> Step<(ValueId, i32)> {
        let per = match quantization {
            Quantization::PerChannelGroup(grid) => usize::try_from(grid.group_size).unwrap_or(columns),
            _ => columns,
        };
        // Groups are multiples of 32, and so are columns.
        let size = GROUPS.into_iter().find(|size| per % size == 0).unwrap_or(32);
        let groups = columns / size;
        let scales = match quantization {
            Quantization::PerChannelGroup(grid) => {
                let scales = self.group_scales(Part::Init, tensor, grid)?;
                let repeats = IntArg::Literal((per / size) as i64);
                self.append(Part::Init, Op::Repeat { x: scales, repeats, axis: 1 })?
            }
            Quantization::PerChannel(grid) => {
                let scales = self.channel_scales(tensor, grid)?;
                let column =
                    self.append(Part::Init, Op::Reshape { x: scales, shape: literals(&[rows, 1]) })?;
                let shape = literals(&[rows, groups]);
                self.append(Part::Init, Op::BroadcastTo { x: column, shape })?
            }
            Quantization::PerTensor(grid) => {
                let scale = self.number_in(Part::Init, grid.scale.into(), DType::F32)?;
                self.append(Part::Init, Op::BroadcastTo { x: scale, shape: literals(&[rows, groups]) })?
            }
            Quantization::PerTokenDynamic(_) => return problem("weights are not quantised at run time"),
        };
        Ok((scales, size as i32))
    }

    pub(super) fn batch_product(&mut self, node: &Node, product: &Binary) -> Step<()> {
        let (mat1, right) = (self.value(product.input1_id)?, self.value(product.input2_id)?);
        let mat2 = if product.flags & TRANSPOSED != 0 { self.swapped(right)? } else { right };
        let value = self.emit(Op::Addmm { mat1, mat2, bias: None, alpha: 1.0, beta: 1.0 })?;
        self.give(node, product.output_id, value)
    }

    /// Softmax of scaled queries times keys plus the mask, times values.
    pub(super) fn attention(&mut self, node: &Node, attention: &Attention) -> Step<()> {
        let (q, scale) = (self.value(attention.query_id)?, self.value(attention.scale_id)?);
        let (k, v) = (self.value(attention.key_id)?, self.value(attention.value_id)?);
        let mask = self.value(attention.mask_id)?;
        let q = self.emit(Op::Multiply { a: q, b: scale })?;
        let keys = self.swapped(k)?;
        let scores = self.emit(Op::Addmm { mat1: q, mat2: keys, bias: None, alpha: 1.0, beta: 1.0 })?;
        let scores = self.emit(Op::Add { a: scores, b: mask })?;
        let weights = self.emit(Op::Softmax { x: scores, axis: -1, precise: true })?;
        let value = self.emit(Op::Addmm { mat1: weights, mat2: v, bias: None, alpha: 1.0, beta: 1.0 })?;
        self.give(node, attention.output_id, value)
    }

    pub(super) fn convolution(&mut self, node: &Node, conv: &Convolution) -> Step<()> {
        let w = self.value(conv.filter_id)?;
        self.convolved(node, conv, w, small("groups", conv.groups)?)
    }

    /// Kernels are [1, height, width, outputs]; the catalogue has outputs first.
    pub(super) fn depthwise(&mut self, node: &Node, conv: &Convolution) -> Step<()> {
        let perm = vec![3, 1, 2, 0];
        let w = match self.stored_tensor(conv.filter_id)? {
            Some(_) => {
                let at = self.at(conv.filter_id)?;
                let filter = self.constant_in_init(at)?;
                let turned = self.append(Part::Init, Op::Transpose { x: filter, perm })?;
                let turned = self.append(Part::Init, Op::Contiguous { x: turned })?;
                self.made(format!("value_{at}_kernels"), turned)?
            }
            None => {
                let filter = self.value(conv.filter_id)?;
                self.emit(Op::Transpose { x: filter, perm })?
            }
        };
        self.convolved(node, conv, w, small("groups", conv.groups)?)
    }

    fn convolved(&mut self, node: &Node, conv: &Convolution, w: ValueId, groups: i32) -> Step<()> {
        let mut x = self.value(conv.input1_id)?;
        let bias = self.maybe_value(conv.bias_id)?;
        no_same_padding(conv)?;
        self.of_rank(x, 4)?;
        let frame = [conv.padding_top, conv.padding_bottom, conv.padding_left, conv.padding_right];
        let mut padding = (small("padding", frame[0])?, small("padding", frame[2])?);
        if frame[0] != frame[1] || frame[2] != frame[3] {
            x = self.framed(x, frame, 0.0)?;
            padding = (0, 0);
        }
        let value = self.emit(Op::Conv2D {
            x,
            w,
            stride_h: small("a stride", conv.subsampling_height)?,
            stride_w: small("a stride", conv.subsampling_width)?,
            padding_h: padding.0,
            padding_w: padding.1,
            dilation_h: small("a dilation", conv.dilation_height)?,
            dilation_w: small("a dilation", conv.dilation_width)?,
            groups,
        })?;
        let value = self.biased(value, bias)?;
        self.give(node, conv.output_id, value)
    }

    pub(super) fn transposed_convolution(&mut self, node: &Node, conv: &Convolution) -> Step<()> {
        let (x, w) = (self.value(conv.input1_id)?, self.value(conv.filter_id)?);
        let bias = self.maybe_value(conv.bias_id)?;
        no_same_padding(conv)?;
        if conv.padding_top != conv.padding_bottom || conv.padding_left != conv.padding_right {
            return problem("a transposed convolution with other paddings on both sides");
        }
        let value = self.emit(Op::ConvTranspose2D {
            x,
            w,
            stride_h: small("a stride", conv.subsampling_height)?,
            stride_w: small("a stride", conv.subsampling_width)?,
            padding_h: small("padding", conv.padding_top)?,
            padding_w: small("padding", conv.padding_left)?,
            dilation_h: small("a dilation", conv.dilation_height)?,
            dilation_w: small("a dilation", conv.dilation_width)?,
            output_padding_h: small("output padding", conv.adjustment_height)?,
            output_padding_w: small("output padding", conv.adjustment_width)?,
            groups: small("groups", conv.groups)?,
        })?;
        let value = self.biased(value, bias)?;
        self.give(node, conv.output_id, value)
    }
}

/// Whether the scales of a filter [outputs, inputs] belong to its outputs.
fn channels_are_rows(filter: &Value) -> bool {
    match filter.quantization() {
        Some(Quantization::PerChannel(grid)) => grid.channel_dim == 0,
        Some(Quantization::PerTensor(_) | Quantization::PerChannelGroup(_)) => true,
        _ => false,
    }
}

fn no_same_padding(conv: &Convolution) -> Step<()> {
    match conv.flags & SAME_PADDING {
        0 => Ok(()),
        _ => problem("padding after the input's size (flag 4) is not known here"),
    }
}

/// The upper half of a float: exact for small powers of two.
fn half_bits(number: f32) -> u16 {
    (number.to_bits() >> 16) as u16
}
