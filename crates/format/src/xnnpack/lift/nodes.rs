//! What each node kind is in the catalogue's ops: those that go element by element, and those that move elements.

use pteron_ir::op::IntArg;
use pteron_ir::{Op, Ssa, ValueId};

use super::Lifter;
use crate::draft::{Part, Step, problem, small};
use crate::xnnpack::node::{
    Binary, Concatenation, Kind, Node, StaticConstantPad, StaticReshape, StaticSlice, StaticTranspose, Unary,
};

/// Keeping the axes that are folded.
const KEEP_DIMS: u32 = 0x40;

impl Lifter<'_> {
    pub(super) fn node(&mut self, node: &Node) -> Step<()> {
        match &node.kind {
            Kind::Add(ends) => self.binary(node, ends, |a, b| Op::Add { a, b }),
            Kind::Subtract(ends) => self.binary(node, ends, |a, b| Op::Subtract { a, b }),
            Kind::Multiply(ends) => self.binary(node, ends, |a, b| Op::Multiply { a, b }),
            Kind::Div(ends) => self.binary(node, ends, |a, b| Op::Divide { a, b }),
            Kind::Minimum(ends) => self.binary(node, ends, |a, b| Op::Minimum { a, b }),
            Kind::Maximum(ends) => self.binary(node, ends, |a, b| Op::Maximum { a, b }),
            Kind::PReLU(ends) => {
                let (x, slope) = (self.value(ends.input1_id)?, self.value(ends.input2_id)?);
                let below = self.emit(Op::Multiply { a: x, b: slope })?;
                self.below_zero(node, x, below, ends.output_id)
            }

            Kind::Abs(ends) => self.unary(node, ends, |x| Op::Abs { x }),
            Kind::Ceiling(ends) => self.unary(node, ends, |x| Op::Ceil { x }),
            Kind::Cos(ends) => self.unary(node, ends, |x| Op::Cos { x }),
            Kind::Exp(ends) => self.unary(node, ends, |x| Op::Exp { x }),
            Kind::Floor(ends) => self.unary(node, ends, |x| Op::Floor { x }),
            Kind::Gelu(ends) => self.unary(node, ends, |x| Op::Gelu { x, approximate: "none".into() }),
            Kind::Log(ends) => self.unary(node, ends, |x| Op::Log { x }),
            Kind::Negate(ends) => self.unary(node, ends, |x| Op::Neg { x }),
            Kind::ReciprocalSquareRoot(ends) => self.unary(node, ends, |x| Op::Rsqrt { x }),
            Kind::Sigmoid(ends) => self.unary(node, ends, |x| Op::Sigmoid { x }),
            Kind::Sin(ends) => self.unary(node, ends, |x| Op::Sin { x }),
            Kind::Softmax(ends) => self.unary(node, ends, |x| Op::Softmax { x, axis: -1, precise: true }),
            Kind::Square(ends) => self.unary(node, ends, |x| Op::Square { x }),
            Kind::SquareRoot(ends) => self.unary(node, ends, |x| Op::Sqrt { x }),
            Kind::Tanh(ends) => self.unary(node, ends, |x| Op::Tanh { x }),
            Kind::Hardswish(ends) => self.hard_swish(node, ends),
            Kind::ELU(elu) => {
                let x = self.value(elu.input_id)?;
                let alpha = self.number_like(x, elu.alpha.into())?;
                let below = self.emit(Op::Expm1 { x })?;
                let below = self.emit(Op::Multiply { a: below, b: alpha })?;
                self.below_zero(node, x, below, elu.output_id)
            }
            Kind::LeakyReLU(leaky) => {
                let x = self.value(leaky.input_id)?;
                let slope = self.number_like(x, leaky.negative_slope.into())?;
                let below = self.emit(Op::Multiply { a: x, b: slope })?;
                self.below_zero(node, x, below, leaky.output_id)
            }
            // Numbers stay what they are, but for what `give` does to every result.
            Kind::Clamp(ends) | Kind::Convert(ends) | Kind::Copy(ends) => {
                let x = self.value(ends.input_id)?;
                self.pass(node, &[ends.input_id], ends.output_id, x)
            }

            Kind::StaticTranspose(transpose) => self.transpose(node, transpose),
            Kind::StaticReshape(reshape) => self.reshape(node, reshape),
            Kind::StaticSlice(slice) => self.slice(node, slice),
            Kind::StaticConstantPad(pad) => self.pad(node, pad),
            Kind::Concatenate2(join)
            | Kind::Concatenate3(join)
            | Kind::Concatenate4(join)
            | Kind::Concatenate5(join) => self.concatenate(node, join),

            Kind::FullyConnected(product) => self.fully_connected(node, product),
            Kind::BatchMatrixMultiply(product) => self.batch_product(node, product),
            Kind::ScaledDotProductAttention(attention) => self.attention(node, attention),
            Kind::Conv2d(conv) => self.convolution(node, conv),
            Kind::DepthwiseConv2d(conv) => self.depthwise(node, conv),
            Kind::ConvTranspose2d(conv) => self.transposed_convolution(node, conv),

            Kind::MaxPooling2d(pool) => self.max_pool(node, pool),
            Kind::AvgPooling2d(pool) => self.average_pool(node, pool),
            Kind::ArgMaxPooling2d(pool) => self.arg_max_pool(node, pool),
            Kind::GlobalAvgPooling2d(ends) => {
                let x = self.value(ends.input_id)?;
                self.of_rank(x, 4)?;
                let keepdims = ends.flags & KEEP_DIMS != 0;
                let mean = self.emit(Op::Mean { x, axes: Some(vec![1, 2]), keepdims })?;
                self.give(node, ends.output_id, mean)
            }
            Kind::StaticResizeBilinear2D(resize) => self.resize(node, resize),
        }
    }

    fn unary(&mut self, node: &Node, ends: &Unary, op: impl FnOnce(ValueId) -> Op<Ssa>) -> Step<()> {
        let x = self.value(ends.input_id)?;
        let value = self.emit(op(x))?;
        self.give(node, ends.output_id, value)
    }

    fn binary(
        &mut self,
        node: &Node,
        ends: &Binary,
        op: impl FnOnce(ValueId, ValueId) -> Op<Ssa>,
    ) -> Step<()> {
        let (a, b) = (self.value(ends.input1_id)?, self.value(ends.input2_id)?);
        let value = self.emit(op(a, b))?;
        self.give(node, ends.output_id, value)
    }

    /// `x`, but `below` where it is less than zero.
    fn below_zero(&mut self, node: &Node, x: ValueId, below: ValueId, output: u32) -> Step<()> {
        let zero = self.number_like(x, 0.0)?;
        let condition = self.emit(Op::Less { a: x, b: zero })?;
        let value = self.emit(Op::Where { condition, x: below, y: x })?;
        self.give(node, output, value)
    }

    /// `x * clip(x + 3, 0, 6) / 6`.
    fn hard_swish(&mut self, node: &Node, ends: &Unary) -> Step<()> {
        let x = self.value(ends.input_id)?;
        let dtype = self.dtype(x)?;
        let (zero, three, six) =
            (self.number(0.0, dtype)?, self.number(3.0, dtype)?, self.number(6.0, dtype)?);
        let gate = self.emit(Op::Add { a: x, b: three })?;
        let gate = self.emit(Op::Clip { x: gate, a_min: Some(zero), a_max: Some(six) })?;
        let product = self.emit(Op::Multiply { a: x, b: gate })?;
        let value = self.emit(Op::Divide { a: product, b: six })?;
        self.give(node, ends.output_id, value)
    }

    fn transpose(&mut self, node: &Node, transpose: &StaticTranspose) -> Step<()> {
        let x = self.value(transpose.input_id)?;
        let perm = transpose.perm.iter().map(|&axis| small("an axis", axis)).collect::<Step<_>>()?;
        let value = self.emit(Op::Transpose { x, perm })?;
        self.pass(node, &[transpose.input_id], transpose.output_id, value)
    }

    fn reshape(&mut self, node: &Node, reshape: &StaticReshape) -> Step<()> {
        let x = self.value(reshape.input_id)?;
        if reshape.new_shape.iter().filter(|size| **size == 0).count() > 1 {
            return problem("more than one size is to be found");
        }
        let size = |&size: &u32| IntArg::Literal(if size == 0 { -1 } else { size.into() });
        let shape = reshape.new_shape.iter().map(size).collect();
        let value = self.emit(Op::Reshape { x, shape })?;
        self.pass(node, &[reshape.input_id], reshape.output_id, value)
    }

    fn slice(&mut self, node: &Node, slice: &StaticSlice) -> Step<()> {
        let x = self.value(slice.input_id)?;
        let rank = self.rank(x)?;
        if slice.offsets.len() != rank || slice.sizes.len() != rank {
            let (offsets, sizes) = (slice.offsets.len(), slice.sizes.len());
            return problem(format!("{offsets} offsets and {sizes} sizes for {rank} dims"));
        }
        let mut value = x;
        for (axis, (&offset, &size)) in slice.offsets.iter().zip(slice.sizes.iter()).enumerate() {
            let ty = self.ty(Part::Main, value)?;
            let most = ty.shape.get(axis).and_then(|dim| self.main.graph().symbols.upper(dim));
            let is_whole = size == 0 || most.is_some_and(|most| most <= size.into());
            if offset == 0 && is_whole {
                continue;
            }
            let start = i64::from(offset);
            // Beyond the end is the end.
            let stop = if size == 0 { i32::MAX.into() } else { start + i64::from(size) };
            let [axis, start, stop] = [axis as i64, start, stop].map(IntArg::Literal);
            value = self.emit(Op::Slice { x: value, axis, start, stop, step: 1 })?;
        }
        self.pass(node, &[slice.input_id], slice.output_id, value)
    }

    fn pad(&mut self, node: &Node, pad: &StaticConstantPad) -> Step<()> {
        let x = self.value(pad.input_id)?;
        let rank = self.rank(x)?;
        if pad.pre_paddings.len() != rank || pad.post_paddings.len() != rank {
            let (before, behind) = (pad.pre_paddings.len(), pad.post_paddings.len());
            return problem(format!("{before} paddings before and {behind} behind {rank} dims"));
        }
        let widths = pad.pre_paddings.iter().zip(pad.post_paddings.iter());
        let pad_width =
            widths.flat_map(|(&before, &behind)| [before, behind].map(|width| IntArg::Literal(width.into())));
        let (pad_width, mode) = (pad_width.collect(), "constant".into());
        let value = self.emit(Op::Pad { x, pad_width, mode, constant_value: pad.padding_value })?;
        self.give(node, pad.output_id, value)
    }

    fn concatenate(&mut self, node: &Node, join: &Concatenation) -> Step<()> {
        let from = node.kind.inputs();
        let tensors = from.iter().map(|&id| self.value(id)).collect::<Step<_>>()?;
        let value = self.emit(Op::Concatenate { tensors, axis: small("an axis", join.axis)? })?;
        self.pass(node, &from, join.output_id, value)
    }
}
